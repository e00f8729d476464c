"""torch.compile, set up so that it can compile user-written Triton kernels on the CPU as well."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from typing import Any

import torch


def torch_compile(function: Callable[..., Any], device: torch.device, mode: str | None = None) -> Callable[..., Any]:
    """`torch.compile(function)`."""
    if device.type == "cpu":
        import torch._inductor.config as config

        # Inductor's worker processes know only the Triton backends that are installed, not those registered in this process.
        config.compile_threads = 1
    compiled: Callable[..., Any] = torch.compile(function, mode=mode)
    return compiled


def no_compiler() -> str:
    """Why torch.compile cannot work for the CPU on this machine, "" if it can."""
    wanted = os.environ.get("CXX") or "g++"
    return "" if shutil.which(wanted) else f"it needs a C++ compiler, and there is no {wanted} on this machine"
