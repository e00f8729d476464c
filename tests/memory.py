"""Memory of tensors and of the process."""

from __future__ import annotations

import resource
from collections.abc import Callable

import torch


def peak_memory(call: Callable[[], object]) -> int:
    """Bytes of tensors on the CPU that a call has allocated and not freed, at their most."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    held = most = 0
    for event in profile.profiler.kineto_results.events():  # type: ignore[union-attr]
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def resident() -> int:
    """Bytes of memory that the process has now (ru_maxrss, the most that it ever had, hides whatever is below an earlier peak)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
