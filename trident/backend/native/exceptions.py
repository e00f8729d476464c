"""Native counterparts of `ir.exceptions`: what CPython's evaluation loop does with an exception in flight.

Owns these functions; all need the GIL and none fails (an error on the way, for want of memory, is dropped):

  trident_caught(ptr result) -> ptr     `result`, or where it is NULL the exception that is set, normalised and unset (a reference)
  trident_push_handled(ptr exc) -> ptr  make an exception the handled one; the one before, or None (a reference)
  trident_pop_handled(ptr exc)          make an exception, or None, the handled one
  trident_add_context(ptr exc)          as `raise` does
  trident_add_traceback(ptr exc, ptr code, ptr globals, i64 lasti, ptr lasti object, ptr line object, i64 first, i64 behind)
                                        first, behind: where the free variables are in localsplus
  trident_traceback(ptr exc) -> ptr     the traceback, or None (a reference)

What must hold: the same as in `ir.exceptions`.

May import: llvmlite (through emit), emit, engine, layouts, ir.exceptions.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from llvmlite import ir

from trident.backend.native import emit, engine, layouts
from trident.backend.native.emit import I32, I64, NULL, PTR, VOID, i64
from trident.ir import exceptions

FUNCTIONS: Final = ("trident_caught", "trident_push_handled", "trident_pop_handled", "trident_add_context", "trident_add_traceback",
                    "trident_traceback")


@cache
def load() -> engine.Compiled:
    """Compile the functions and make them known."""
    m = emit.Module("trident.exceptions")
    _caught(m)
    _handled(m)
    _context(m)
    _add_traceback(m)
    compiled = m.compile(opt=2)
    for name in FUNCTIONS:
        engine.add_symbol(name, compiled.address(name))
    return compiled


def _fetch(f: emit.Function) -> ir.Value:
    """The exception that is set, normalised, with its traceback in it; it is unset."""
    kind, value, traceback = f.variable(NULL), f.variable(NULL), f.variable(NULL)
    f.call("PyErr_Fetch", VOID, kind, value, traceback)
    f.call("PyErr_NormalizeException", VOID, kind, value, traceback)
    found = f.load(value)
    with f.when(f.not_null(f.load(traceback))):
        f.call("PyException_SetTraceback", I32, found, f.load(traceback))
    f.xdecref(f.load(kind))
    f.xdecref(f.load(traceback))
    return found


def _caught(m: emit.Module) -> None:
    f = m.function("trident_caught", PTR, [PTR])
    with f.when(f.not_null(f.args[0]), likely=False):
        f.ret(f.args[0])
    f.ret(_fetch(f))


def _none_for_null(f: emit.Function, value: ir.Value) -> None:
    """Return a value (borrowed), or None for NULL, as a new reference."""
    result = f.b.select(f.is_null(value), f.module.external_variable("_Py_NoneStruct"), value)
    f.incref(result)
    f.ret(result)


def _handled(m: emit.Module) -> None:
    none = m.external_variable("_Py_NoneStruct")
    f = m.function("trident_pop_handled", VOID, [PTR])
    f.call("PyErr_SetHandledException", VOID, f.b.select(f.equal(f.args[0], none), NULL, f.args[0]))
    f.ret()
    f = m.function("trident_push_handled", PTR, [PTR])
    state = f.load(f.call("PyThreadState_Get", PTR), exceptions.state_offset())
    before = f.load(state)
    result = f.b.select(f.is_null(before), none, before)
    f.incref(result)
    f.call("trident_pop_handled", VOID, f.args[0])
    f.ret(result)
    f = m.function("trident_traceback", PTR, [PTR])
    found = f.call("PyException_GetTraceback", PTR, f.args[0])
    with f.when(f.not_null(found)):
        f.ret(found)
    _none_for_null(f, found)


def _context(m: emit.Module) -> None:
    f = m.function("trident_add_context", VOID, [PTR])
    f.call("PyErr_SetObject", VOID, f.load(f.args[0], layouts.OB_TYPE), f.args[0])
    f.decref(_fetch(f))
    f.ret()


def _add_traceback(m: emit.Module) -> None:
    f = m.function("trident_add_traceback", VOID, [PTR, PTR, PTR, I64, PTR, PTR, I64, I64])
    error, code, globals_, lasti, lasti_object, line, first, behind = f.args
    offsets = exceptions.frame_offsets()
    frame = f.call("PyFrame_New", PTR, f.call("PyThreadState_Get", PTR), code, globals_, NULL)
    with f.when(f.is_null(frame), likely=False):
        f.call("PyErr_Clear", VOID)
        f.ret()
    inner = f.load(frame, exceptions.FRAME_OF_OBJECT)
    f.store(f.at(code, f.b.add(lasti, i64(offsets.start))), inner, offsets.previous)
    with f.loop(first, behind) as n:
        f.store(f.call("PyCell_New", PTR, NULL), f.item(f.at(inner, offsets.slots), n))
    arguments = f.words(PTR, i64(5))
    following = f.call("trident_traceback", PTR, error)
    for n, value in enumerate((NULL, following, frame, lasti_object, line)):
        f.store(value, arguments, 8 * n)
    made = f.call("PyObject_Vectorcall", PTR, m.external_variable("PyTraceBack_Type"), f.at(arguments, 8),
                  i64(4 | -(1 << 63)), NULL)
    f.decref(following)
    f.decref(frame)
    with f.otherwise(f.is_null(made)) as (failed, good):
        with failed:
            f.call("PyErr_Clear", VOID)
        with good:
            f.call("PyException_SetTraceback", I32, error, made)
            f.decref(made)
    f.ret()
