"""The native check of pins.

Owns `trident_pins(table, others, count) -> i1`: 1 where a pin does not hold. The first `others` pins are compared at each check, those
behind them, about dicts, only where some dict of the process has changed since they were last seen to hold. What must hold: it runs with
the GIL held; a word that differs is looked at again by key or item, and remembered where what was pinned is still the same.

May import: llvmlite (through emit), emit, dict_versions, frame, pin_layout.
"""

from __future__ import annotations

import functools
from typing import Any, Final

from llvmlite import ir

from trident.backend.native import dict_versions, emit, frame, pin_layout
from trident.backend.native.emit import I1, I32, I64, PTR, VOID, i64

FUNCTIONS: Final = ("trident_pins",)
BLOCK: Final = 8  # pins that are compared with one branch: their loads wait for the memory together


def define(m: emit.Module) -> None:
    """Add the function to the runtime."""
    _pin_slow(m)
    _pins_again(m)
    _compare_pins(m)
    _pins(m)


def _difference(f: emit.Function, entry: ir.Value) -> ir.Value:
    """0 where the word is the expected one."""
    now = f.load(f.load(entry, frame.PIN_ADDRESS), kind=I64)
    return f.b.xor(now, f.load(entry, frame.PIN_EXPECTED, I64))


def _pins(m: emit.Module) -> None:
    f = m.function("trident_pins", I1, [PTR, I64, I64])
    table, others, count = f.args
    with f.when(f.call("trident_compare_pins", I1, table, count, i64(0), others), likely=False):
        f.ret(ir.Constant(I1, 1))
    version = dict_versions.version(f) if dict_versions.is_known() else None
    if version is not None:
        with f.when(f.equal(version, f.load(table, frame.PINS_VERSION, I64)), likely=True):
            f.ret(ir.Constant(I1, 0))
    with f.when(f.call("trident_compare_pins", I1, table, count, others, count), likely=False):
        f.ret(ir.Constant(I1, 1))
    if version is not None:  # of before the comparison: what changes meanwhile is looked at again
        f.store(version, table, frame.PINS_VERSION)
    f.ret(ir.Constant(I1, 0))


def _compare_pins(m: emit.Module) -> None:
    """Whether one of the pins from `start` to `end` does not hold."""
    f = m.function("trident_compare_pins", I1, [PTR, I64, I64, I64], internal=True)
    table, count, start, end = f.args
    blocks = f.b.add(start, f.b.and_(f.b.sub(end, start), i64(-BLOCK)))

    def check(size: int, index: ir.Value) -> None:
        first = _entry(f, table, index)
        entries = [f.at(first, n * frame.PIN_SIZE) for n in range(size)]
        differ = functools.reduce(f.b.or_, [_difference(f, entry) for entry in entries])
        with f.when(f.differ(differ, i64(0)), likely=False):
            with f.when(f.call("trident_pins_again", I1, table, count, index, f.b.add(index, i64(size)))):
                f.ret(ir.Constant(I1, 1))

    with f.loop(start, blocks, BLOCK) as index:
        check(BLOCK, index)
    with f.loop(blocks, end) as index:
        check(1, index)
    f.ret(ir.Constant(I1, 0))


def _entry(f: emit.Function, table: ir.Value, index: ir.Value) -> ir.Value:
    return f.at(f.at(table, f.b.mul(index, i64(frame.PIN_SIZE))), frame.PINS_START)


def _pins_again(m: emit.Module) -> None:
    """Compare pins one by one and look again at those that differ; 1 where one does not hold."""
    f = m.function("trident_pins_again", I1, [PTR, I64, I64, I64], internal=True)
    table, count, start, end = f.args
    more = _entry(f, table, count)
    with f.loop(start, end) as index:
        entry = _entry(f, table, index)
        with f.when(f.differ(_difference(f, entry), i64(0))):
            cold = f.at(more, f.b.mul(index, i64(frame.PIN_MORE_SIZE)))
            with f.when(f.b.not_(f.call("trident_pin_slow", I1, entry, f.load(cold, frame.PIN_SLOW)))):
                f.add_to(cold, frame.PIN_FAILURES, 1)
                f.ret(ir.Constant(I1, 1))
    f.ret(ir.Constant(I1, 0))


def _pin_slow(m: emit.Module) -> None:
    """Look again; 1 where the pin holds, and then the word is the expected one from now on."""
    f = m.function("trident_pin_slow", I1, [PTR, PTR], internal=True)
    entry, slow = f.args
    with f.when(f.is_null(slow)):
        f.ret(ir.Constant(I1, 0))
    kind, owner = f.load(slow, frame.SLOW_KIND, I64), f.load(slow, frame.SLOW_OWNER)
    count, items = f.load(slow, frame.SLOW_COUNT, I64), f.load(slow, frame.SLOW_ITEMS)
    now = f.load(f.load(entry, frame.PIN_ADDRESS), kind=I64)

    def require(condition: ir.Value) -> None:
        with f.when(f.b.not_(condition)):
            f.ret(ir.Constant(I1, 0))

    def renew(word: ir.Value) -> None:
        f.store(word, entry, frame.PIN_EXPECTED)
        f.ret(ir.Constant(I1, 1))

    with f.when(f.equal(kind, i64(frame.SlowKind.DICT))):
        with f.loop(i64(0), count) as index:
            pair = f.at(items, f.b.mul(index, i64(16)))
            found = f.call("PyDict_GetItemWithError", PTR, owner, f.load(pair))
            with f.when(f.is_null(found)):
                with f.when(f.not_null(f.call("PyErr_Occurred", PTR))):
                    f.call("PyErr_Clear", VOID)
                    f.ret(ir.Constant(I1, 0))
            require(f.equal(found, f.load(pair, 8)))
        # A lookup may have run code that changed the dict: then the old tag makes the next check look again.
        renew(now)
    with f.when(f.equal(kind, i64(frame.SlowKind.TYPE))):
        with f.loop(i64(0), count) as index:
            pair = f.at(items, f.b.mul(index, i64(16)))
            require(f.equal(f.call("_PyType_Lookup", PTR, owner, f.load(pair)), f.load(pair, 8)))
        word = f.load(f.load(entry, frame.PIN_ADDRESS), kind=I64)
        valid = f.differ(f.b.and_(word, i64(0xFFFFFFFF)), i64(0))
        renew(f.b.select(valid, word, i64(frame.NEVER)))
    with f.when(f.equal(kind, i64(frame.SlowKind.DICT_KEYS))):
        _same_items(f, owner, count, items, require)
        renew(now)
    with f.when(f.equal(kind, i64(frame.SlowKind.ORDER))):
        node = f.variable(f.load(owner, pin_layout.FIRST_NODE))
        with f.loop(i64(0), count) as index:
            require(f.not_null(f.load(node)))
            require(f.equal(f.load(f.load(node), pin_layout.NODE_KEY), f.load(f.item(items, index))))
            f.store(f.load(f.load(node), pin_layout.NEXT_NODE), node)
        require(f.is_null(f.load(node)))
        renew(now)
    with f.when(f.equal(kind, i64(frame.SlowKind.NOT_EMPTY))):
        require(f.differ(now, i64(0)))
        renew(now)
    require(f.equal(now, count))  # LIST: the word is the size
    with f.loop(i64(0), count) as index:
        require(f.equal(f.load(f.item(f.load(owner, pin_layout.LIST_ITEMS), index)), f.load(f.item(items, index))))
    f.ret(ir.Constant(I1, 1))


def _same_items(f: emit.Function, owner: ir.Value, count: ir.Value, items: ir.Value, require: Any) -> None:
    """The keys and values of a dict, in order and by identity."""
    require(f.equal(f.load(owner, pin_layout.SIZE, I64), count))
    state = f.words(I64, i64(3))
    f.store(i64(0), state)
    with f.loop(i64(0), count) as index:
        more = f.call("PyDict_Next", I32, owner, state, f.at(state, 8), f.at(state, 16))
        require(f.differ(more, emit.i32(0)))
        pair = f.at(items, f.b.mul(index, i64(16)))
        require(f.equal(f.load(state, 8), f.load(pair)))
        require(f.equal(f.load(state, 16), f.load(pair, 8)))
