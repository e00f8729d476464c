"""Triton kernels on the CPU: an unmodified `kernel[grid](...)` on CPU tensors runs natively.

Owns the public names of the package. `register()` tells Triton about the backend.
May import: errors; the rest only on `register`.
"""

from __future__ import annotations

from trident.backend.triton.cpu.errors import InternalError, UnsupportedKernelError


def register() -> None:
    """Register the backend named `cpu` with Triton. Needs triton and torch; torch_mlir and llvmlite at the first compilation."""
    from trident.backend.triton.cpu import route

    route.register()


__all__ = ["InternalError", "UnsupportedKernelError", "register"]
