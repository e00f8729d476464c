"""Evaluates pins in Python: the definition that the native check must agree with, and the explanation of a miss.

May import: ir.trace.
"""

from __future__ import annotations

import ctypes
from collections import OrderedDict
from types import CellType

from trident.ir.describing import dict_of, mro_of
from trident.ir.trace import NULL, Pin, PinKind


def type_lookup(cls: type, name: str) -> object:
    """`_PyType_Lookup(cls, name)`: the attribute found along the MRO, unbound; NULL if absent."""
    for base in mro_of(cls):
        if name in dict_of(base):
            return dict_of(base)[name]
    return NULL


def _same(a: object, b: object) -> bool:
    return a is b


def holds(pin: Pin) -> bool:
    """Whether a pin's fact is true now."""
    owner, expected = pin.owner, pin.expected
    match pin.kind:
        case PinKind.WORD:
            return ctypes.c_uint64.from_address(owner).value == expected
        case PinKind.DICT:
            return _same(dict.get(owner, pin.key, NULL), expected)
        case PinKind.TYPE:
            return _same(type_lookup(owner, pin.key), expected)
        case PinKind.LIST:
            return len(owner) == len(expected) and all(map(_same, owner, expected))
        case PinKind.CELL:
            return _same(_cell_contents(owner), expected)
        case PinKind.FUNCTION:
            code, defaults, kwdefaults = expected
            return owner.__code__ is code and owner.__defaults__ is defaults and owner.__kwdefaults__ is kwdefaults
        case PinKind.DICT_KEYS:
            flat = [part for item in dict.items(owner) for part in item]
            return len(flat) == len(expected) and all(map(_same, flat, expected))
        case PinKind.ORDER:
            return len(owner) == len(expected) and all(map(_same, OrderedDict.__iter__(owner), expected))
        case PinKind.EMPTY:
            return (len(owner) == 0) is expected
    raise AssertionError(pin.kind)


def _cell_contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return NULL
