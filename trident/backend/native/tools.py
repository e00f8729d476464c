"""Tools (settrace, setprofile, their C counterparts, sys.monitoring) that the program installs while Trident works in its thread.

Owns hiding and showing them. What must hold: a tool that a call of the program has installed sees the program's frames from there
on and none of Trident's: it is hidden from the return of that call until the frames of the program go on, again from where they
return to Trident, and shown for good where Trident returns to the program. A tool that was there before is left alone. That a frame
goes on with an exception, which CPython takes for a generator's `throw`, is no call. Events of sys.monitoring are those of all threads:
what other threads do while a tool is hidden is not seen.

The native functions, as symbols (all need the GIL): `i32 trident_tools_active()`; `void trident_tools_hide(i32 before)`: hide what is
active now, unless it was before; `void trident_tools_show()`; `void trident_tools_no_call()`: a call that is the next event is no event.

May import: llvmlite through emit, layouts, engine, monitoring.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from trident.backend.native import engine, layouts, monitoring
from trident.backend.native.emit import I8, I32, I64, NULL, PTR, VOID, Function, Module, i32, i64, ir

ACTIVE: Final = "trident_tools_active"
HIDE: Final = "trident_tools_hide"
SHOW: Final = "trident_tools_show"
NO_CALL: Final = "trident_tools_no_call"
_CALL: Final = 0  # PyTrace_CALL
_ROOM: Final = 16  # threads that have hidden tools at the same time; in others the tools stay active
_EVENTS: Final = 5  # words before: thread state, function and object of the profiler, the same of the tracer
_RECORD: Final = _EVENTS + monitoring.TOOLS
_WORDS: Final = (("PyEval_SetProfile", "tstate_profile", 1), ("PyEval_SetTrace", "tstate_trace", 3))


_records = (ctypes.c_uint64 * (_ROOM * _RECORD))()
_hidden = ctypes.c_uint64(0)  # records in use


def _find(f: Function, owner: ir.Value) -> ir.Value:
    """The record with this thread state (NULL: a free one), or NULL."""
    records = f.module.external_variable("trident_tools_records")
    found = f.variable(NULL)
    with f.loop(i64(0), i64(_ROOM)) as i:
        record = f.at(records, f.b.mul(i, i64(8 * _RECORD)))
        with f.when(f.equal(f.load(record), owner)):
            f.store(record, found)
    return f.load(found)


def _define(module: Module) -> None:
    layout = module.layout
    f = module.function(ACTIVE, I32, [])
    tstate = f.call("PyThreadState_Get", PTR)
    if layout.cframe_use_tracing >= 0:
        flag = f.load(f.load(tstate, layout.tstate_cframe), layout.cframe_use_tracing, I8)
        f.ret(f.b.zext(f.differ(flag, ir.Constant(I8, 0)), I32))
    else:
        hooks = f.b.or_(f.load(tstate, layout.tstate_profile, I64), f.load(tstate, layout.tstate_trace, I64))
        with f.when(f.differ(hooks, i64(0)), likely=False):
            f.ret(i32(1))
        f.ret(f.call(monitoring.MONITORED, I32))

    f = module.function(HIDE, VOID, [I32])
    tstate = f.call("PyThreadState_Get", PTR)
    with f.when(f.b.or_(f.differ(f.args[0], i32(0)), f.equal(f.call(ACTIVE, I32), i32(0))), likely=True):
        f.ret()
    record = _find(f, NULL)
    with f.when(f.b.or_(f.is_null(record), f.not_null(_find(f, tstate)))):
        f.ret()
    f.store(tstate, record)
    f.add_to(module.external_variable("trident_tools_hidden"), 0, 1)
    for _, field, word in _WORDS:
        at = getattr(layout, field)
        owner = f.load(tstate, at + layouts.TOOL_OBJECT)
        with f.when(f.not_null(owner)):
            f.incref(owner)
        f.store(f.load(tstate, at), record, 8 * word)
        f.store(owner, record, 8 * word + 8)
    for setter, field, _ in _WORDS:
        with f.when(f.not_null(f.load(tstate, getattr(layout, field)))):
            f.call(setter, VOID, NULL, NULL)
    if monitoring.exists():
        f.call(monitoring.TAKE, VOID, f.at(record, 8 * _EVENTS))
    f.ret()

    f = module.function(SHOW, VOID, [])
    count = module.external_variable("trident_tools_hidden")
    with f.when(f.equal(f.load(count, kind=I64), i64(0)), likely=True):
        f.ret()
    record = _find(f, f.call("PyThreadState_Get", PTR))
    with f.when(f.is_null(record)):
        f.ret()
    tools = [(setter, f.load(record, 8 * word), f.load(record, 8 * word + 8)) for setter, _, word in _WORDS]
    events = f.words(I64, i64(monitoring.TOOLS))
    for word in range(monitoring.TOOLS):
        f.store(f.load(record, 8 * (_EVENTS + word), I64), events, 8 * word)
    f.store(NULL, record)
    f.add_to(count, 0, -1)
    for setter, function, owner in tools:
        with f.when(f.not_null(function)):
            f.call(setter, VOID, function, owner)
        f.xdecref(owner)
    if monitoring.exists():
        f.call(monitoring.GIVE, VOID, events)
    f.ret()


def _define_no_call(module: Module) -> None:
    """Functions that take the place of the tools' own until the next event."""
    layout = module.layout
    stand_ins = []
    for _, field, _ in _WORDS:
        own = module.variable(f"own.{field}")
        f = module.function(f"stand_in.{field}", I32, [PTR, PTR, I32, PTR])
        original = f.load(own)
        f.store(original, f.call("PyThreadState_Get", PTR), getattr(layout, field))
        with f.when(f.equal(f.args[2], i32(_CALL))):
            f.ret(i32(0))
        f.forward(original, I32)
        stand_ins.append((own, module.address_of(f.function), getattr(layout, field)))
    f = module.function(NO_CALL, VOID, [])
    tstate = f.call("PyThreadState_Get", PTR)
    for own, stand_in, at in stand_ins:
        present = f.load(tstate, at)
        with f.when(f.b.and_(f.not_null(present), f.differ(present, stand_in))):
            f.store(present, own)
            f.store(stand_in, tstate, at)
    f.ret()


@cache
def install() -> None:
    """Make the symbols known, for modules that are compiled from now on."""
    engine.add_symbol("trident_tools_records", ctypes.addressof(_records))
    engine.add_symbol("trident_tools_hidden", ctypes.addressof(_hidden))
    monitoring.install()
    module = Module("tools")
    _define(module)
    _define_no_call(module)
    code = module.compile()
    for name in (ACTIVE, HIDE, SHOW, NO_CALL):
        engine.add_symbol(name, code.address(name))


def hidden() -> bool:
    """Whether this thread has tools that are hidden now."""
    return bool(_hidden.value) and layouts.thread_state() in _records[::_RECORD]
