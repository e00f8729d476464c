"""Jumps: programs that continue in other programs.

A program that is left for another one returns a record (see `frame`), its address tagged: the program to run and its arguments. Whoever
called the first program of a call runs it when the frame of the one before is gone, so the stack does not grow however often that happens.

Owns the native functions of these records, and `Jump`, the same in Python's hands. What must hold: a handler of side exits may return a
Jump for its result, then the native code that asked it goes on there; whoever is called by anything else calls `run`.

  trident_new_jump(program, count) -> ptr  a record; NULL with an exception set
  trident_free_jump(record)                and the arguments that it still holds
  trident_as_jump(obj) -> ptr              a Jump (a reference of ours) as a tagged record; anything else as it is
  trident_go_on(result) -> ptr             what a tagged record, and those after it, come to; anything else as it is
  trident_run(jump) -> ptr                 the same of a borrowed Jump
  trident_poll(ptr last) -> i1             what the interpreter does between instructions, unless that was done just now (`*last`: when);
                                           1 with an exception set

May import: emit, frame, pin_layout; native.resume and native.runtime when it runs.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

from llvmlite import ir

from trident.backend.native import emit, frame, pin_layout, resume, runtime
from trident.backend.native.emit import I1, I64, NULL, PTR, VOID, i64, pointer

FUNCTIONS: Final[tuple[str, ...]] = ("trident_run", "trident_poll")


class Jump(tuple[int, list[object]]):
    """(address of a bridge's program, its arguments): the list is emptied, so that the program alone holds them."""

    __slots__ = ()


@cache
def _native() -> Any:
    return ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(runtime.load().address("trident_run"))


def run(jump: Jump) -> object:
    """Run the program, and those that it goes on in: the call's result."""
    return resume.call(_native(), (jump,))


def define(m: emit.Module) -> None:
    """All of them."""
    _records(m)
    _running(m)
    _poll(m)


def _records(m: emit.Module) -> None:
    f = m.function("trident_new_jump", PTR, [PTR, I64], internal=True)
    program, count = f.args
    record = f.call("PyMem_RawCalloc", PTR, f.b.add(count, i64(frame.JUMP_VALUES // 8)), i64(8))
    with f.when(f.is_null(record)):
        f.call("PyErr_NoMemory", PTR)
        f.ret(NULL)
    f.store(program, record)
    f.store(count, record, frame.JUMP_COUNT)
    f.ret(record)

    f = m.function("trident_free_jump", VOID, [PTR], internal=True)
    record = f.args[0]
    with f.when(f.not_null(record)):
        with f.loop(i64(0), f.load(record, frame.JUMP_COUNT, I64)) as index:
            f.xdecref(f.load(f.item(f.at(record, frame.JUMP_VALUES), index)))
        f.call("PyMem_RawFree", VOID, record)
    f.ret()

    f = m.function("trident_as_jump", PTR, [PTR], internal=True)
    with f.when(f.is_null(f.args[0])):
        f.ret(NULL)
    with f.when(f.differ(f.load(f.args[0], pin_layout.OB_TYPE), pointer(id(Jump)))):
        f.ret(f.args[0])
    address = f.call("PyLong_AsSize_t", PTR, f.load(f.args[0], pin_layout.TUPLE_ITEMS))
    values = f.load(f.args[0], pin_layout.TUPLE_ITEMS + 8)
    count = f.load(values, pin_layout.SIZE, I64)
    record = f.call("trident_new_jump", PTR, address, count)
    with f.when(f.not_null(record)):
        with f.loop(i64(0), count) as index:
            item = f.item(f.load(values, pin_layout.LIST_ITEMS), index)
            f.store(f.load(item), f.item(f.at(record, frame.JUMP_VALUES), index))
            f.store(NULL, item)
        f.decref(f.args[0])
        f.ret(f.at(record, frame.JUMP_TAG))
    f.decref(f.args[0])
    f.ret(NULL)


def _running(m: emit.Module) -> None:
    f = m.function("trident_go_on", PTR, [PTR], internal=True)
    result = f.variable(f.args[0])
    head, body, end = (f.b.append_basic_block(name) for name in ("head", "body", "end"))
    f.b.branch(head)
    f.b.position_at_end(head)
    tag = f.b.and_(f.b.ptrtoint(f.load(result), I64), i64(frame.JUMP_TAG))
    f.b.cbranch(f.differ(tag, i64(0)), body, end)
    f.b.position_at_end(body)
    record = f.at(f.load(result), -frame.JUMP_TAG)
    f.store(f.call_address(f.load(record), PTR, f.at(record, frame.JUMP_VALUES)), result)
    f.call("trident_free_jump", VOID, record)
    with f.when(f.equal(f.load(result), m.external_variable("trident_miss"))):
        f.store(NULL, result)
        f.call("PyErr_SetString", VOID, f.load(m.external_variable("PyExc_SystemError")), pointer(_NO_MISS_ADDRESS))
    f.b.branch(head)
    f.b.position_at_end(end)
    f.ret(f.load(result))

    f = m.function("trident_run", PTR, [PTR])  # a borrowed Jump
    f.incref(f.args[0])
    f.ret(f.call("trident_go_on", PTR, f.call("trident_as_jump", PTR, f.args[0])))


def _nothing() -> None:
    """A call of it lets the interpreter do what is due between two instructions."""


def _poll(m: emit.Module) -> None:
    """The interpreter looks after signals, other threads, pending calls and exceptions sent by other threads when a function begins."""
    f = m.function("trident_poll", I1, [PTR])
    last = f.args[0]
    now = f.call("llvm.readcyclecounter", I64)
    with f.when(f.b.icmp_unsigned("<", f.b.sub(now, f.load(last, kind=I64)), i64(_POLL_CYCLES)), likely=True):
        f.ret(ir.Constant(I1, 0))
    f.store(now, last)
    result = f.call("PyObject_Vectorcall", PTR, pointer(id(_nothing)), NULL, i64(0), NULL)
    with f.when(f.not_null(result)):
        f.decref(result)
    f.ret(f.is_null(result))


_POLL_CYCLES: Final = 100_000  # tens of microseconds, where the interpreter's own switch interval is milliseconds
_NO_MISS: Final = ctypes.create_string_buffer(b"trident: a bridge has no state before its first exit")
_NO_MISS_ADDRESS: Final = ctypes.addressof(_NO_MISS)
