"""Helpers of the backend's tests: traces written with TraceBuilder, and programs called through ctypes.

Owns `Native` (a compiled trace that can be called with Python objects) and small builders. What must hold: a call here is the very
call that dispatch makes.

May import: ir, backend.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from torch_mlir import ir as mlir

from trident.backend.native.callable import MISS_ADDRESS
from trident.backend.scm import HostProgram
from trident.ir.builder import TraceBuilder
from trident.ir.trace import GuardInfo, Snapshot, Trace

INFO = GuardInfo("test", "value", "test.py", 1)


class Miss:
    """What `Native` gives where the program answers with the miss marker."""


MISS = Miss()


class Left(Exception):
    """Raised by the default handler of a test that expects no exit."""


def snapshot(line: int = 1) -> Snapshot:
    """A snapshot that only says where it is."""
    return Snapshot((), line, "test.py")


def default_handler(site: Any, values: list[object], error: BaseException | None) -> object:
    """Hand a user exception on; any other exit fails the test."""
    if error is not None:
        raise error
    raise Left(f"{site} {values!r:.200}")


class Native:
    """A compiled trace."""

    def __init__(self, trace: Trace, handler: Callable[..., object] = default_handler) -> None:
        self.program = HostProgram(trace, handler)
        self._count = len(trace.block.arguments)

    def __call__(self, *args: object) -> Any:
        assert len(args) == self._count, (len(args), self._count)
        array = (ctypes.py_object * max(len(args), 1))(*args)
        return _call(self.program.address, ctypes.addressof(array))


_prototype = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)


def _call(address: int, array: int) -> Any:
    raw = _prototype(address)(array)
    if raw == MISS_ADDRESS:
        return MISS
    assert raw, "NULL without an exception"
    found = ctypes.cast(raw, ctypes.py_object).value
    ctypes.pythonapi.Py_DecRef(ctypes.py_object(found))
    return found


class Builder(TraceBuilder):
    """A TraceBuilder with shorthands."""

    def state_of(self, *values: mlir.Value, line: int = 1) -> None:
        self.state(snapshot(line), values)

    def tensors(self, *indices: int) -> list[mlir.Value]:
        """The tensors in some arguments."""
        return [self.op("unbox_tensor", self.args[i]) for i in indices]

    def give(self, value: mlir.Value) -> Trace:
        """Return a value of any kind."""
        return self.ret(self.op("box", value) if str(value.type) != "!trident.object" else value)

    def give_all(self, values: Sequence[mlir.Value]) -> Trace:
        """Return a tuple of values."""
        return self.ret(self.op("build_tuple", values=values))
