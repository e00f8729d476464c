"""Room below the recursion limit for Trident's own Python, and on the C stack for calls.

Owns the grant. A miss or a side exit is handled in Python, some 10 to 100 frames deep, where the user's program would have none;
so the thread may then go GRANT frames deeper. What must hold: a thread has one grant at a time, however its calls nest; while
code of the user's runs for it (`native.resume`), the thread has as much room left as without Trident; the grant ends with the call.

Owns also the check of the C stack. Where the program raises the recursion limit, CPython 3.11 lets Python call Python for as long as
there is memory; a call through native code needs the C stack, so that it must be refused before that is full.

May import: llvmlite through emit, engine.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Final

from trident.backend.native import engine
from trident.backend.native.emit import I1, I32, I64, PTR, VOID, Function, Module, i32, i64, ir, pointer

GRANT: Final = 400
FULL: Final = "trident.stack_full"
RESERVE: Final = 512 << 10  # bytes of the C stack that a call leaves free: for a recording, for the operators that it runs
TAKE, GIVE, SUSPEND, RESUME = "trident.room_take", "trident.room_give", "trident.room_suspend", "trident.room_resume"

_holder = ctypes.c_uint64(0)  # the thread state that has a grant in force


_KNOWN_STACKS: Final = 64
_stacks = (ctypes.c_uint64 * (3 * _KNOWN_STACKS))()  # thread state, first usable address, end; by a hash of the thread state


@cache
def _export() -> None:
    engine.add_symbol("trident_stacks", ctypes.addressof(_stacks))
    engine.add_symbol("trident_room_holder", ctypes.addressof(_holder))


def define(module: Module) -> None:
    """Add the functions; each takes the thread state first, and needs the GIL.

    `i32 take(tstate)` and `void give(tstate, taken)` stand around Trident's Python, `i32 suspend(tstate, hidden)` and
    `void resume(tstate, suspended)` around the user's code below it; hidden: the number of Trident's frames in between.
    """
    _export()
    holder = module.external_variable("trident_room_holder")

    def change(f: Function, amount: ir.Value) -> None:
        at = f.at(f.args[0], module.layout.tstate_recursion_remaining)
        f.store(f.b.add(f.load(at, kind=I32), amount), at)

    def number(f: Function) -> ir.Value:
        return f.b.ptrtoint(f.args[0], I64)

    f = module.function(TAKE, I32, [PTR], internal=True)
    with f.when(f.differ(f.load(holder, kind=I64), i64(0))):  # this thread's, or another's: then there is none for this one
        f.ret(i32(0))
    f.store(number(f), holder)
    change(f, i32(GRANT))
    f.ret(i32(GRANT))

    f = module.function(GIVE, VOID, [PTR, I32], internal=True)
    with f.when(f.differ(f.args[1], i32(0))):
        change(f, f.b.neg(f.args[1]))
        with f.when(f.equal(f.load(holder, kind=I64), number(f))):
            f.store(i64(0), holder)
    f.ret()

    f = module.function(SUSPEND, I32, [PTR, I32], internal=True)
    with f.when(f.differ(f.load(holder, kind=I64), number(f))):
        f.ret(i32(0))
    amount = f.b.sub(i32(GRANT), f.args[1])
    f.store(i64(0), holder)
    change(f, f.b.neg(amount))
    f.ret(amount)

    f = module.function(RESUME, VOID, [PTR, I32], internal=True)
    with f.when(f.differ(f.args[1], i32(0))):
        change(f, f.args[1])
        with f.when(f.equal(f.load(holder, kind=I64), i64(0))):
            f.store(number(f), holder)
    f.ret()


def define_stack(module: Module) -> None:
    """Add `i1 full(tstate)`: whether the C stack has no room for another call; then RecursionError is set."""
    _export()
    _define_measure(module)
    f = module.function(FULL, I1, [PTR], internal=True)
    f.inline()
    here = f.b.ptrtoint(f.words(I64), I64)
    number = f.b.ptrtoint(f.args[0], I64)
    place = f.b.urem(f.b.lshr(number, i64(6)), i64(_KNOWN_STACKS))
    known = f.at(module.external_variable("trident_stacks"), f.b.mul(place, i64(24)))
    above = f.b.icmp_unsigned(">", here, f.load(known, 8, I64))
    inside = f.b.and_(above, f.b.icmp_unsigned("<", here, f.load(known, 16, I64)))
    with f.when(f.b.and_(inside, f.equal(f.load(known, 0, I64), number)), likely=True):
        f.ret(I1(0))
    f.ret(f.call("trident.stack_measure", I1, f.args[0], known, here))


def _define_measure(module: Module) -> None:
    """Ask the system where this thread's stack is, and remember it."""
    f = module.function("trident.stack_measure", I1, [PTR, PTR, I64], internal=True)
    f.function.attributes.add("noinline")
    tstate, known, here = f.args
    attributes, bounds = f.words(I64, i64(16)), f.words(I64, i64(2))
    failed = f.call("pthread_getattr_np", I32, f.call("pthread_self", I64), attributes)
    with f.when(f.differ(failed, i32(0))):
        f.ret(I1(0))
    f.call("pthread_attr_getstack", I32, attributes, bounds, f.at(bounds, 8))
    f.call("pthread_attr_destroy", I32, attributes)
    start, size = f.load(bounds, 0, I64), f.load(bounds, 8, I64)
    small = f.b.udiv(size, i64(2))
    reserve = f.b.select(f.b.icmp_unsigned("<", small, i64(RESERVE)), small, i64(RESERVE))
    first, end = f.b.add(start, reserve), f.b.add(start, size)
    f.store(f.b.ptrtoint(tstate, I64), known)
    f.store(first, known, 8)
    f.store(end, known, 16)
    # A stack that is not this one (of a coroutine library, say) cannot be judged.
    full = f.b.and_(f.b.icmp_unsigned(">=", here, start), f.b.icmp_unsigned("<=", here, first))
    with f.when(full):
        f.call("PyErr_SetString", VOID, f.load(module.external_variable("PyExc_RecursionError")), pointer(_FULL_ADDRESS))
    f.ret(full)


_FULL = ctypes.create_string_buffer(b"maximum recursion depth exceeded: no room on the C stack for another call of a jitted function")
_FULL_ADDRESS: Final = ctypes.addressof(_FULL)
