"""sys.monitoring as native code asks it and switches it (Python 3.12 and later).

Owns the questions whether a tool has events on, globally or in one code object, and taking the global ones away for a while. What must
hold: a tool sees nothing of it, so no Python code runs: the functions of `sys.monitoring` are called from native code; an exception that
is set stays set. A question that fails is answered with yes.

The native functions, as symbols (all need the GIL): `i32 trident_monitored()`; `i32 trident_monitored_code(code)`;
`void trident_events_take(words)`: turn the global events off and note them, TOOLS words of 64 bits; `void trident_events_give(words)`.

Global events change a version number of the interpreter, which is compared with the number that was last found quiet, so that the
first answer costs a few loads where nothing has changed.

May import: llvmlite through emit, engine, layouts.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Final

from trident.backend.native import engine, layouts
from trident.backend.native.emit import I32, I64, NULL, PTR, VOID, Function, Module, i32, i64, ir, pointer

MONITORED: Final = "trident_monitored"
MONITORED_CODE: Final = "trident_monitored_code"
TAKE: Final = "trident_events_take"
GIVE: Final = "trident_events_give"
TOOLS: Final = 6  # those that programs can use

_quiet_version = ctypes.c_uint64(0)  # the number of sys.monitoring's state that was last seen to have no global events


def exists() -> bool:
    """Whether this Python has sys.monitoring."""
    return layouts.current().interp_monitoring_version >= 0


def emit_changed(f: Function, tstate: ir.Value) -> ir.Value:
    """Whether there may be global events: their number is not the one that was last found quiet."""
    version = f.load(f.load(tstate, f.module.layout.tstate_interp), f.module.layout.interp_monitoring_version, I64)
    return f.differ(version, f.load(f.module.external_variable("trident_quiet_version"), kind=I64))


def _function(name: str) -> ir.Value:
    return pointer(engine.immortal(getattr(sys.monitoring, name)))  # type: ignore[attr-defined]


def _tool(f: Function, number: ir.Value) -> ir.Value:
    """The int object of a tool's number: CPython has one of each."""
    return f.load(f.item(f.module.external_variable("trident_tool_numbers"), number))


@contextmanager
def _exception_set_aside(f: Function) -> Iterator[None]:
    error = f.call("PyErr_GetRaisedException", PTR)
    yield
    f.call("PyErr_SetRaisedException", VOID, error)


def _emit_number(f: Function, answer: ir.Value) -> ir.Value:
    """The events in an answer of sys.monitoring, which is released; -1 where asking has raised."""
    number = f.variable(i64(-1))
    with f.when(f.not_null(answer), likely=True):
        f.store(f.call("PyLong_AsLong", I64, answer), number)
        f.decref(answer)
    with f.when(f.b.icmp_signed("<", f.load(number, kind=I64), i64(0)), likely=False):
        f.call("PyErr_Clear", VOID)
    return f.load(number, kind=I64)


def _define_questions(module: Module) -> None:
    f = module.function(MONITORED, I32, [])
    tstate = f.call("PyThreadState_Get", PTR)
    with f.when(f.b.not_(emit_changed(f, tstate)), likely=True):
        f.ret(i32(0))
    version = f.load(f.load(tstate, module.layout.tstate_interp), module.layout.interp_monitoring_version, I64)
    found = f.variable(i64(0))
    with _exception_set_aside(f), f.loop(i64(0), i64(TOOLS)) as tool:
        events = _emit_number(f, f.call("PyObject_CallOneArg", PTR, _function("get_events"), _tool(f, tool)))
        f.store(f.b.or_(f.load(found, kind=I64), events), found)
    with f.when(f.differ(f.load(found, kind=I64), i64(0))):
        f.ret(i32(1))
    f.store(version, module.external_variable("trident_quiet_version"))
    f.ret(i32(0))

    f = module.function(MONITORED_CODE, I32, [PTR])
    arguments, found = f.words(PTR, i64(2)), f.variable(i64(0))
    f.store(f.args[0], arguments, 8)
    with _exception_set_aside(f), f.loop(i64(0), i64(TOOLS)) as tool:
        f.store(_tool(f, tool), arguments)
        answer = f.call("PyObject_Vectorcall", PTR, _function("get_local_events"), arguments, i64(2), NULL)
        f.store(f.b.or_(f.load(found, kind=I64), _emit_number(f, answer)), found)
    f.ret(f.b.zext(f.differ(f.load(found, kind=I64), i64(0)), I32))


def _emit_set(f: Function, tool: ir.Value, events: ir.Value) -> None:
    """`sys.monitoring.set_events`; what it raises (the tool has no owner any more) changes nothing."""
    arguments = f.words(PTR, i64(2))
    number = f.call("PyLong_FromLong", PTR, events)
    f.store(_tool(f, tool), arguments)
    f.store(number, arguments, 8)
    answer = f.variable(NULL)
    with f.when(f.not_null(number)):
        f.store(f.call("PyObject_Vectorcall", PTR, _function("set_events"), arguments, i64(2), NULL), answer)
        f.decref(number)
    with f.when(f.is_null(f.load(answer)), likely=False):
        f.call("PyErr_Clear", VOID)
    f.xdecref(f.load(answer))


def _define_switches(module: Module) -> None:
    f = module.function(TAKE, VOID, [PTR])
    with _exception_set_aside(f), f.loop(i64(0), i64(TOOLS)) as tool:
        events = _emit_number(f, f.call("PyObject_CallOneArg", PTR, _function("get_events"), _tool(f, tool)))
        on = f.b.icmp_signed(">", events, i64(0))
        f.store(f.b.select(on, events, i64(0)), f.item(f.args[0], tool))
        with f.when(on):
            f.call("trident.set_events", VOID, tool, i64(0))
    f.ret()

    f = module.function(GIVE, VOID, [PTR])
    with _exception_set_aside(f), f.loop(i64(0), i64(TOOLS)) as tool:
        events = f.load(f.item(f.args[0], tool), kind=I64)
        f.store(i64(0), f.item(f.args[0], tool))
        with f.when(f.differ(events, i64(0))):
            f.call("trident.set_events", VOID, tool, events)
    f.ret()


@cache
def install() -> None:
    """Make the symbols known, for modules that are compiled from now on. Nothing happens without sys.monitoring."""
    if not exists():
        return
    numbers = (ctypes.c_void_p * TOOLS)(*map(engine.immortal, range(TOOLS)))
    engine.immortal(numbers)
    engine.add_symbol("trident_tool_numbers", ctypes.addressof(numbers))
    engine.add_symbol("trident_quiet_version", ctypes.addressof(_quiet_version))
    module = Module("monitoring")
    f = module.function("trident.set_events", VOID, [I64, I64], internal=True)
    _emit_set(f, *f.args)
    f.ret()
    _define_questions(module)
    _define_switches(module)
    code = module.compile()
    for name in (MONITORED, MONITORED_CODE, TAKE, GIVE):
        engine.add_symbol(name, code.address(name))
