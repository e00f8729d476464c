"""A word that stays while no dict that a trace rests on has changed.

From 3.12 on CPython tells a watcher of the changes of chosen dicts (PyDict_Watch), and the word counts what it is told. Before, it is
the word in which CPython counts the changes of all dicts: each dict's version tag is the value that it had when the dict was changed
last. It has no exported symbol, so it is looked for in the interpreter's own data, by its value.

Owns the word, and the number of changes in CPython's that native code has made itself, to dicts that nobody knew yet. What must hold:
CPython calls a watcher just before it changes a dict, and runs no Python code in between; CPython's own word has followed every kind of
change of planted dicts, and no other word has. Where neither is to be had there is no such word for Trident.

May import: llvmlite (through emit), emit, pin_layout.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from llvmlite import ir

from trident.backend.native import emit, pin_layout
from trident.backend.native.emit import I32, I64, PTR, i64

_ROUNDS: Final = 8
_TRIES: Final = 3  # the search itself may make a dict at an inconvenient moment
_SLACK: Final = 1 << 10  # some changes count more than once
_READABLE, _ANONYMOUS = "rw-p", ""


class _Instance:
    a = b = 0


def _tag(planted: dict[Any, Any]) -> int:
    return ctypes.c_uint64.from_address(id(planted) + pin_layout.DICT_TAG).value


def _own_data() -> list[tuple[int, int]]:
    """Writable memory of the image that CPython's variables lie in, as (start, end)."""
    with open("/proc/self/maps") as lines:
        rows = [(*line.split(maxsplit=5), "")[:6] for line in lines]
    inside = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "PyDict_Type"))
    areas = [(int(row[0].split("-")[0], 16), int(row[0].split("-")[1], 16), row[1], row[5].strip()) for row in rows]
    image = next((name for start, end, _, name in areas if start <= inside < end), None)
    if not image:
        return []
    found: list[tuple[int, int]] = []
    for start, end, access, name in areas:
        zeroed = name == _ANONYMOUS and bool(found) and found[-1][1] == start  # its variables that are zero at first
        if access == _READABLE and (name == image or zeroed):
            found.append((start, end))
    return found


def _words_of_value(areas: list[tuple[int, int]]) -> set[int]:
    """Addresses of the words that have the value of the newest tag."""
    planted: dict[Any, Any] = {}
    pattern = struct.pack("<Q", _tag(planted))
    found = set()
    for start, end in areas:
        data = ctypes.string_at(start, end - start)
        at = data.find(pattern)
        while at >= 0:
            if at % 8 == 0:
                found.add(start + at)
            at = data.find(pattern, at + 1)
    return found


def _changes() -> Iterator[dict[Any, Any]]:
    """A dict after each kind of change."""
    held = _Instance()
    planted, other = held.__dict__, {"x": 1}
    for round_ in range(_ROUNDS):
        yield {}
        held.a = round_
        yield planted
        planted["b"] = round_
        yield planted
        planted.update(other)
        yield planted
        del planted["x"], held.a
        yield planted
        planted.setdefault("y", 1)
        yield planted
        planted.pop("y")
        yield planted
        planted.clear()
        yield planted
        yield dict(other)


@dataclass(frozen=True, slots=True)
class _Found:
    """address: of the word, 0 where it has not been found for certain. made, freed: what it grows by where a dict is made, and where it is
    freed; 0 where that is not known."""

    address: int = 0
    made: int = 0
    freed: int = 0


@cache
def find() -> _Found:
    """The word."""
    try:
        areas = _own_data()
        candidates = set().union(*(_words_of_value(areas) for _ in range(_TRIES)))
    except OSError:
        return _Found()
    words = {at: memoryview((ctypes.c_char * 8).from_address(at)).cast("B").cast("Q") for at in candidates}
    followed = dict.fromkeys(words, 0)
    for changed in _changes():
        values = [word[0] for word in words.values()]
        tag = _tag(changed)
        for at, value in zip(list(words), values, strict=True):
            if not followed[at] < tag <= value <= tag + _SLACK:
                del words[at]
        followed.update({at: word[0] for at, word in words.items()})
    if len(words) != 1:
        return _Found()
    (address, word), = words.items()
    made, freed = [], []
    for _ in range(_ROUNDS):
        before = word[0]
        planted: dict[Any, Any] = {}
        between = word[0]
        del planted
        freed.append(word[0] - between)
        made.append(between - before)
    if len(set(made)) + len(set(freed)) > 2:  # another thread has changed dicts meanwhile
        return _Found(address)
    return _Found(address, made[0], freed[0])


_own: Final = ctypes.c_uint64()
_told: Final = ctypes.c_uint64()  # changes of watched dicts


@cache
def _watcher() -> int:
    """Our watcher's number; -1 where there can be none."""
    if not hasattr(ctypes.pythonapi, "PyDict_AddWatcher"):
        return -1
    module = emit.Module("dict_watcher")
    f = module.function("trident_dict_changes", I32, [I32, PTR, PTR, PTR])
    f.add_to(emit.pointer(ctypes.addressof(_told)), 0, 1)
    f.ret(emit.i32(0))
    try:
        return ctypes.pythonapi.PyDict_AddWatcher(ctypes.c_void_p(module.compile().pin().address("trident_dict_changes")))
    except RuntimeError:  # others have all of them
        return -1


def watch(owner: dict[Any, Any]) -> None:
    """Let the word tell of a dict's changes, as long as the dict lives."""
    if _watcher() >= 0:
        ctypes.pythonapi.PyDict_Watch(_watcher(), ctypes.py_object(owner))


def is_known() -> bool:
    """Whether `version` tells anything."""
    return _watcher() >= 0 or find().address != 0


def version(f: emit.Function) -> ir.Value:
    """The value of the word, without native code's own changes. With the GIL."""
    if _watcher() >= 0:
        return f.load(emit.pointer(ctypes.addressof(_told)), kind=I64)
    return f.b.sub(_now(f), f.load(emit.pointer(ctypes.addressof(_own)), kind=I64))


def current() -> int:
    """What `version` is now."""
    return _told.value if _watcher() >= 0 else ctypes.c_uint64.from_address(find().address).value - _own.value


@contextmanager
def left_out(f: emit.Function, *, freed: bool = False) -> Iterator[None]:
    """One change, made here to a dict that nobody else knows, does not count: the making of it, one new key, or (freed) its end.

    Only where nothing else has counted meanwhile, because a collection or a finalizer may run code. That code must never find a version
    that comes again later: it runs before a dict that is made counts, so that is left out afterwards; and after one that ends counts, so
    that is left out before."""
    step = 0 if _watcher() >= 0 else find().freed if freed else find().made
    if not step:  # an end that does not count must not hide what the values' finalizers do
        yield
        return
    if freed:
        _add_own(f, step)
    before = _now(f)
    yield
    alone = f.equal(f.b.sub(_now(f), before), i64(step))
    with f.when(f.b.not_(alone) if freed else alone):
        _add_own(f, -step if freed else step)


def _add_own(f: emit.Function, amount: int) -> None:
    f.add_to(emit.pointer(ctypes.addressof(_own)), 0, amount)


def _now(f: emit.Function) -> ir.Value:
    return f.load(emit.pointer(find().address), kind=I64)
