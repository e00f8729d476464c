"""Native comparisons of str, and of whole dictionaries.

Owns `i1 trident_dict_keys_are(ptr dict, ptr tuple)` (the keys of an exact dict are, in order, the str of an exact tuple),
`i1 trident_strings_are(ptr tuple, ptr tuple)` (the same of the items of a tuple, which it drops) and
`i1 trident_str_is(ptr object, ptr str)` (an exact str that equals another) and
`i64 trident_str_hash(ptr object)` (the hash of an exact str; of anything else -1, which no str has). What must hold: they run no
Python code (what is no exact str differs), and need the GIL.

May import: llvmlite (through emit), emit, engine, layouts.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from llvmlite import ir

from trident.backend.native import emit, engine, layouts, pin_layout
from trident.backend.native.emit import I1, I32, I64, NULL, PTR, i64

KEYS_ARE: Final = "trident_dict_keys_are"
STRINGS_ARE: Final = "trident_strings_are"
STR_IS: Final = "trident_str_is"
STR_HASH: Final = "trident_str_hash"


@cache
def load() -> engine.Compiled:
    """Compile the functions and make them known."""
    m = emit.Module("trident.dict_runtime")
    _write_str_is(m)
    _write_str_hash(m)
    f = m.function(KEYS_ARE, I1, [PTR, PTR])
    dictionary, expected = f.args
    no, yes = ir.Constant(I1, 0), ir.Constant(I1, 1)
    count = f.load(expected, pin_layout.SIZE, I64)
    with f.when(f.differ(f.call("PyDict_Size", I64, dictionary), count)):
        f.ret(no)
    position, key, value = f.variable(i64(0)), f.variable(NULL), f.variable(NULL)
    unicode_type = m.external_variable("PyUnicode_Type")
    with f.loop(i64(0), count) as index:
        f.call("PyDict_Next", I32, dictionary, position, key, value)
        found, wanted = f.load(key), f.load(f.item(f.at(expected, layouts.TUPLE_ITEMS), index))
        with f.when(f.differ(found, wanted)):
            with f.when(f.differ(f.load(found, layouts.OB_TYPE), unicode_type)):
                f.ret(no)
            with f.when(f.differ(f.call("PyUnicode_Compare", I32, found, wanted), emit.i32(0))):
                f.ret(no)
    f.ret(yes)
    _write_strings_are(m)
    compiled = m.compile(opt=2)
    for name in (KEYS_ARE, STRINGS_ARE, STR_IS, STR_HASH):
        engine.add_symbol(name, compiled.address(name))
    return compiled


def _write_strings_are(m: emit.Module) -> None:
    f = m.function(STRINGS_ARE, I1, [PTR, PTR])
    tuple_, expected = f.args
    no, yes = ir.Constant(I1, 0), ir.Constant(I1, 1)
    same, count = f.variable(yes), f.load(expected, pin_layout.SIZE, I64)
    with f.when(f.differ(f.load(tuple_, pin_layout.SIZE, I64), count)):
        f.call("Py_DecRef", ir.VoidType(), tuple_)
        f.ret(no)
    with f.loop(i64(0), count) as index:
        found, wanted = (f.load(f.item(f.at(held, layouts.TUPLE_ITEMS), index)) for held in (tuple_, expected))
        with f.when(f.differ(f.call(STR_IS, I1, found, wanted), yes)):
            f.store(no, same)
    f.call("Py_DecRef", ir.VoidType(), tuple_)
    f.ret(f.load(same, 0, I1))


def _write_str_is(m: emit.Module) -> None:
    f = m.function(STR_IS, I1, [PTR, PTR])
    found, wanted = f.args
    with f.when(f.differ(found, wanted)):
        with f.when(f.differ(f.load(found, layouts.OB_TYPE), m.external_variable("PyUnicode_Type"))):
            f.ret(ir.Constant(I1, 0))
        with f.when(f.differ(f.call("PyUnicode_Compare", I32, found, wanted), emit.i32(0))):
            f.ret(ir.Constant(I1, 0))
    f.ret(ir.Constant(I1, 1))


def _write_str_hash(m: emit.Module) -> None:
    f = m.function(STR_HASH, I64, [PTR])
    with f.when(f.differ(f.load(f.args[0], layouts.OB_TYPE), m.external_variable("PyUnicode_Type"))):
        f.ret(i64(-1))
    f.ret(f.call("PyObject_Hash", I64, f.args[0]))
