"""Whether somebody watches: settrace, setprofile, sys.monitoring.

Owns the check that every native entry makes before it takes a call away from the interpreter. What must hold: while a tool is
active in a thread (or, for sys.monitoring, on the code), the check says so; a tool that has gone is not remembered.

The fast check is a few loads. On 3.11 the thread's C frame has a flag. On 3.12 the thread has the two hook functions; global
events of sys.monitoring change a number of the interpreter; local events are a byte per event at the start of a table of the code
object (layouts.LOCAL_EVENTS bytes). Either sign asks `monitoring`, which knows for certain.

May import: llvmlite through emit, monitoring.
"""

from __future__ import annotations

import ctypes
from functools import cache
from types import CodeType

from llvmlite import ir

from trident.backend.native import monitoring
from trident.backend.native.emit import I1, I8, I32, I64, PTR, Module, i32, i64

CHECK = "trident.tracing"


def define_check(module: Module) -> None:
    """Add `i1 trident.tracing(tstate, code)` to a module. It needs the GIL."""
    layout = module.layout
    f = module.function(CHECK, I1, [PTR, PTR], internal=True)
    f.inline()
    tstate, code = f.args
    if layout.cframe_use_tracing >= 0:
        flag = f.load(f.load(tstate, layout.tstate_cframe), layout.cframe_use_tracing, I8)
        f.ret(f.differ(flag, ir.Constant(I8, 0)))
        return
    hooks = f.b.or_(f.load(tstate, layout.tstate_trace, I64), f.load(tstate, layout.tstate_profile, I64))
    with f.when(f.differ(hooks, i64(0)), likely=False):
        f.ret(I1(1))
    monitoring.install()
    with f.when(monitoring.emit_changed(f, tstate), likely=False), f.when(f.differ(f.call(monitoring.MONITORED, I32), i32(0))):
        f.ret(I1(1))
    table = f.load(code, layout.code_monitoring)
    with f.when(f.not_null(table), likely=False):
        first, last = f.load(table, 0, I64), f.b.zext(f.load(table, 8, ir.IntType(16)), I64)
        with f.when(f.differ(f.b.or_(first, last), i64(0))):
            f.ret(f.differ(f.call(monitoring.MONITORED_CODE, I32, code), i32(0)))
    f.ret(I1(0))


@cache
def _check() -> ctypes._CFuncPtr:  # type: ignore[name-defined]
    module = Module("tracing")
    define_check(module)
    f = module.function("tracing_active", I32, [PTR])
    tstate = f.call("PyThreadState_Get", PTR)
    f.ret(f.b.zext(f.call(CHECK, I1, tstate, f.args[0]), I32))
    address = module.compile().address("tracing_active")
    return ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object)(address)


def tracing_active(code: CodeType | None = None) -> bool:
    """Whether a tool watches this thread (or, through sys.monitoring's local events, this code): then CPython must run it."""
    return bool(_check()(tracing_active.__code__ if code is None else code))
