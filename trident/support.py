"""Whether this machine, Python, torch and Triton can be served.

Owns the version ranges and the start-up verification. What must hold: anything that does not verify turns Trident off with a
reason, it is never guessed. May import: backend.native (lazily), errors.
"""

from __future__ import annotations

import platform
import sys
from functools import cache

from trident.errors import TridentError

PYTHONS = ((3, 11), (3, 12))
TORCH_RANGE = ((2, 11), (2, 14))


def _torch_version() -> tuple[int, int]:
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


@cache
def unsupported_reason() -> str:
    """Why Trident is off on this machine, "" if it is not."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in PYTHONS:
        return f"Python {platform.python_version()} ({sys.implementation.name}) is not one of " + ", ".join(f"{a}.{b}" for a, b in PYTHONS)
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        return f"{sys.platform} on {platform.machine()} is not x86-64 Linux"
    if not TORCH_RANGE[0] <= _torch_version() < TORCH_RANGE[1]:
        low, high = (".".join(map(str, v)) for v in TORCH_RANGE)
        return f"torch {'.'.join(map(str, _torch_version()))} is outside {low} <= torch < {high}"
    try:
        from trident.backend.native import verify

        verify()
    except TridentError as e:
        return str(e)
    return ""
