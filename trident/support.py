"""Whether this machine, Python, torch and Triton can be served.

Owns the version ranges and the start-up verification. What must hold: anything that does not verify turns Trident off with a
reason, it is never guessed. May import: backend.native (lazily), boundary, errors.
"""

from __future__ import annotations

import platform
import re
import sys
from functools import cache

from trident.boundary import describe_error
from trident.errors import TridentError

PYTHONS = ((3, 11), (3, 12))
TORCH_RANGE = ((2, 11), (2, 14))


def _torch_version() -> tuple[int, int] | None:
    """Major and minor number of torch, whatever follows them; None where they cannot be read."""
    import torch

    found = re.match(r"(\d+)\.(\d+)(?!\d)", torch.__version__)
    return (int(found[1]), int(found[2])) if found else None


@cache
def unsupported_reason() -> str:
    """Why Trident is off on this machine, "" if it is not."""
    if sys.implementation.name != "cpython" or sys.version_info[:2] not in PYTHONS:
        return f"Python {platform.python_version()} ({sys.implementation.name}) is not one of " + ", ".join(f"{a}.{b}" for a, b in PYTHONS)
    if platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux":
        return f"{sys.platform} on {platform.machine()} is not x86-64 Linux"
    version = _torch_version()
    if version is None or not TORCH_RANGE[0] <= version < TORCH_RANGE[1]:
        import torch

        low, high = (".".join(map(str, v)) for v in TORCH_RANGE)
        return f"torch {torch.__version__} is outside {low} <= torch < {high}"
    try:
        from trident.backend.native import verify

        verify()
    except TridentError as e:
        return str(e)
    except Exception as e:
        return f"the start-up verification failed: {describe_error(e)}"
    return ""
