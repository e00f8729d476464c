"""Where CPython keeps the facts that pins compare: dict version tags, type version tags, list, set, cell and function fields.

Owns those offsets. What must hold: each has been found true with planted objects in this process before `current()` returns it.

May import: errors, layouts.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from dataclasses import dataclass
from functools import cache
from types import CellType, FunctionType
from typing import Any, Final

from trident.backend.native.layouts import peek
from trident.errors import UnsupportedPython

SIZE: Final = 16
"""ma_used of a dict and ob_size of a list."""
DICT_TAG: Final = 24
SET_USED: Final = 24
LIST_ITEMS: Final = 24
TUPLE_ITEMS: Final = 24
CELL_CONTENTS: Final = 16
ORDER_STATE: Final = 88
"""Of an OrderedDict: what its own list of nodes counts changes with."""
FIRST_NODE: Final = 48
NODE_KEY: Final = 0
NEXT_NODE: Final = 16
TYPE_TAG: Final = 384
FLOAT_VALUE: Final = 16
OB_TYPE: Final = 8


@dataclass(frozen=True, slots=True)
class FunctionFields:
    """Offsets inside a function object."""

    code: int
    defaults: int
    kwdefaults: int


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _int32(address: int) -> int:
    return ctypes.c_uint32.from_address(address).value


def _check(what: str, holds: bool) -> None:
    if not holds:
        raise UnsupportedPython(f"the layout of {what} in this Python is not the known one")


def _check_dict() -> None:
    planted: dict[str, Any] = {"a": 1, "b": 2, "c": 3}
    tags = [_word(id(planted) + DICT_TAG)]
    _check("a dict", _word(id(planted) + SIZE) == 3)
    for key, value in (("a", 5), ("d", 6)):
        planted[key] = value
        tags.append(_word(id(planted) + DICT_TAG))
    del planted["b"]
    tags.append(_word(id(planted) + DICT_TAG))
    # Every change takes a new tag, and nothing but a change does.
    _check("a dict", len(set(tags)) == 4 and tags[-1] == _word(id(planted) + DICT_TAG) and 0 not in tags)
    _check("a dict", planted.get("a") == 5 and tags[-1] == _word(id(planted) + DICT_TAG))


def _check_order() -> None:
    planted: OrderedDict[str, Any] = OrderedDict(a=1, b=2)

    def keys() -> list[str]:
        first = _word(id(planted) + FIRST_NODE)
        nodes = [first, peek(first + NEXT_NODE)]
        return [key for node in nodes for key in planted if peek(node + NODE_KEY) == id(key)]

    states = [_word(id(planted) + ORDER_STATE)]
    _check("an OrderedDict", keys() == ["a", "b"])
    planted["a"] = 3
    _check("an OrderedDict", states[-1] == _word(id(planted) + ORDER_STATE))
    for change in (lambda: planted.move_to_end("a"), lambda: planted.move_to_end("a", last=False), lambda: planted.popitem(),
                   lambda: planted.__setitem__("c", 4)):
        change()
        states.append(_word(id(planted) + ORDER_STATE))
    _check("an OrderedDict", len(set(states)) == 5 and keys() == ["a", "c"])


def _check_type() -> None:
    class Base:
        attribute = 1

    class Derived(Base):
        pass

    lookup = ctypes.pythonapi._PyType_Lookup
    lookup.restype, lookup.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.py_object]
    lookup(Derived, "attribute")
    first = _int32(id(Derived) + TYPE_TAG)
    lookup(Derived, "attribute")
    _check("a type", first != 0 and first == _int32(id(Derived) + TYPE_TAG))
    Base.attribute = 2
    _check("a type", _int32(id(Derived) + TYPE_TAG) == 0)
    lookup(Derived, "attribute")
    second = _int32(id(Derived) + TYPE_TAG)
    _check("a type", second not in (0, first))
    Derived.other = 3  # type: ignore[attr-defined]
    _check("a type", _int32(id(Derived) + TYPE_TAG) == 0)


def _function_fields() -> FunctionFields:
    def planted(a: object = 1, *, b: object = 2) -> None:
        """Its fields are looked for."""

    assert isinstance(planted, FunctionType)
    found = []
    for part in (planted.__code__, planted.__defaults__, planted.__kwdefaults__):
        places = [offset for offset in range(16, 96, 8) if _word(id(planted) + offset) == id(part)]
        _check("a function", len(places) == 1)
        found.append(places[0])
    return FunctionFields(*found)


@cache
def current() -> FunctionFields:
    """Check everything; UnsupportedPython where one fact does not hold."""
    a, b = object(), object()
    listed, together, cell, real = [a, b], {1, 2, 3}, CellType(a), 2.5
    items = _word(id(listed) + LIST_ITEMS)
    _check("a list", _word(id(listed) + SIZE) == 2 and _word(items) == id(a) and _word(items + 8) == id(b))
    _check("a set", _word(id(together) + SET_USED) == 3)
    _check("a cell", _word(id(cell) + CELL_CONTENTS) == id(a))
    _check("a float", ctypes.c_double.from_address(id(real) + FLOAT_VALUE).value == 2.5)
    _check("a tuple", _word(id((a, b)) + SIZE) == 2 and _word(id(t := (a, b)) + TUPLE_ITEMS + 8) == id(b) and len(t) == 2)
    _check("an object", _word(id(cell) + OB_TYPE) == id(CellType))
    _check_dict()
    _check_order()
    _check_type()
    return _function_fields()
