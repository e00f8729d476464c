"""The exceptions of the cpu backend.

Owns the exception classes and nothing else. May import: nothing.
"""

from __future__ import annotations


class UnsupportedKernelError(RuntimeError):
    """A kernel needs something that the cpu backend cannot do. The message names the operation and the user's line."""

    def __init__(self, message: str, op: str = "", location: str = "") -> None:
        super().__init__(message)
        self.op = op
        self.location = location

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (str(self), self.op, self.location)


class InternalError(RuntimeError):
    """The lowering produced something that MLIR or LLVM refuses: a bug in the backend, reported instead of a crash."""


class KernelAssertionError(RuntimeError):
    """A `tl.device_assert` of a kernel compiled with `debug=True` did not hold."""
