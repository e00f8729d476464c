"""Whether somebody watches: settrace, setprofile, sys.monitoring.

Owns the check that every native entry makes before it takes a call away from the interpreter. What must hold: while a tool is
active in a thread (or, for sys.monitoring, on the code), the check says so; a tool that has gone is not remembered.

The fast check is a few loads. On 3.11 the thread's C frame has a flag. On 3.12 the thread has the two hook functions; global
events of sys.monitoring change the interpreter's version number, which is compared with the number that was last found quiet;
local events are a byte per event at the start of a table of the code object (layouts.LOCAL_EVENTS bytes). Either sign asks
`_monitoring_active`, which knows for certain.

May import: llvmlite through emit, layouts.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from types import CodeType

from llvmlite import ir

from trident.backend.native import engine, layouts
from trident.backend.native.emit import I1, I8, I32, I64, PTR, Module, i32, i64

CHECK = "trident.tracing"
_quiet_version = ctypes.c_uint64(0)  # the number of sys.monitoring's state that was last seen to have no global events
_asking = ctypes.c_uint64(0)  # `_monitoring_active` is running


def _monitoring_active(code: CodeType) -> bool:
    """The certain answer for sys.monitoring, on 3.12 and later."""
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    version = layouts.word(layouts.interpreter() + layouts.current().interp_monitoring_version)
    tools = [tool for tool in range(6) if monitoring.get_tool(tool) is not None]
    if any(monitoring.get_events(tool) for tool in tools):
        return True
    _quiet_version.value = version
    return any(monitoring.get_local_events(tool, code) for tool in tools)


def define_check(module: Module) -> None:
    """Add `i1 trident.tracing(tstate, code)` to a module. It needs the GIL; an exception in it counts as "active"."""
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
    _export()
    version = f.load(f.load(tstate, layout.tstate_interp), layout.interp_monitoring_version, I64)
    quiet = f.load(module.external_variable("trident_quiet_version"), kind=I64)
    local = f.variable(f.differ(version, quiet))
    table = f.load(code, layout.code_monitoring)
    with f.when(f.not_null(table), likely=False):
        first, last = f.load(table, 0, I64), f.b.zext(f.load(table, 8, ir.IntType(16)), I64)
        f.store(f.b.or_(f.load(local, kind=I1), f.differ(f.b.or_(first, last), i64(0))), local)
    with f.when(f.load(local, kind=I1), likely=False):
        # The question is answered in Python, whose frames come to the evaluator, which must not ask again: they run in CPython.
        asking = module.external_variable("trident_asking_monitoring")
        with f.when(f.differ(f.load(asking, kind=I64), i64(0))):
            f.ret(I1(1))
        f.store(i64(1), asking)
        answer = f.call("PyObject_CallOneArg", PTR, module.external_variable("trident_monitoring_active"), code)
        f.store(i64(0), asking)
        with f.when(f.is_null(answer)):
            f.call("PyErr_Clear", ir.VoidType())
            f.ret(I1(1))
        truth = f.call("PyObject_IsTrue", I32, answer)
        f.decref(answer)
        f.ret(f.differ(truth, i32(0)))
    f.ret(I1(0))


@cache
def _export() -> None:
    engine.add_symbol("trident_quiet_version", ctypes.addressof(_quiet_version))
    engine.add_symbol("trident_asking_monitoring", ctypes.addressof(_asking))
    engine.add_symbol("trident_monitoring_active", engine.immortal(_monitoring_active))


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
