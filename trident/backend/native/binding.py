"""Binding call arguments to parameters, natively.

Owns the native counterpart of what CPython does between a call and the first instruction of a function. What must hold: the bound
array has one word per parameter in the order of co_varnames (arguments, keyword-only arguments, *args, **kwargs); whatever does not
bind is left to CPython, which then raises its own error; defaults are read from the function at each call.

May import: llvmlite through emit, dict_versions, layouts.
"""

from __future__ import annotations

from llvmlite import ir

from trident.backend.native import dict_versions, layouts
from trident.backend.native.emit import I1, I32, I64, NULL, PTR, VOID, Function, Module, i32, i64

COUNT = "trident.parameters"
BIND = "trident.bind"
RELEASE = "trident.release"

BOUND, MISMATCH, ERROR = 0, 1, 2
MAX_PARAMETERS = 4096  # the array lies on the C stack


def define_binding(module: Module) -> None:
    """Add `trident.parameters`, `trident.bind` and `trident.release` to a module."""
    _define_count(module)
    _define_release(module)
    _define_find(module)
    _define_keywords(module)
    _define_defaults(module)
    _define_bind(module)


def has_keywords(f: Function, code: ir.Value) -> ir.Value:
    """Whether a code object has a **kwargs, which is its last parameter."""
    return _flag(f, code, layouts.CO_VARKEYWORDS)


def _flag(f: Function, code: ir.Value, flag: int) -> ir.Value:
    flags = f.load(code, f.module.layout.code_flags, I32)
    return f.differ(f.b.and_(flags, i32(flag)), i32(0))


def _define_count(module: Module) -> None:
    """`i64 trident.parameters(code)`: how many parameters a code object has, *args and **kwargs included."""
    layout = module.layout
    f = module.function(COUNT, I64, [PTR], internal=True)
    f.inline()
    (code,) = f.args
    named = f.b.add(f.int32(code, layout.code_argcount), f.int32(code, layout.code_kwonlyargcount))
    stars = f.b.add(f.b.zext(_flag(f, code, layouts.CO_VARARGS), I64), f.b.zext(_flag(f, code, layouts.CO_VARKEYWORDS), I64))
    f.ret(f.b.add(named, stars))


def _define_release(module: Module) -> None:
    """`void trident.release(bound, n, keywords)`: drop n owned references, some of which may be NULL. keywords: the last is **kwargs."""
    f = module.function(RELEASE, VOID, [PTR, I64, I1], internal=True)
    bound, count, keywords = f.args
    others = f.b.sub(count, f.b.zext(keywords, I64))
    with f.loop(i64(0), others) as i:
        f.clear(f.item(bound, i))
    with f.when(keywords), dict_versions.left_out(f, freed=True):
        f.clear(f.item(bound, others))
    f.ret()


def _define_find(module: Module) -> None:
    """`i64 trident.find(code, key, first, stop)`: index of the parameter named by key, -1 where there is none, -2 on an error."""
    layout = module.layout
    f = module.function("trident.find", I64, [PTR, PTR, I64, I64], internal=True)
    code, key, first, stop = f.args
    names = f.at(f.load(code, layout.code_localsplusnames), layouts.TUPLE_ITEMS)
    with f.loop(first, stop) as i, f.when(f.equal(f.load(f.item(names, i)), key)):
        f.ret(i)
    with f.loop(first, stop) as i:
        same = f.call("PyObject_RichCompareBool", I32, key, f.load(f.item(names, i)), i32(2))  # Py_EQ
        with f.when(f.b.icmp_signed(">", same, i32(0))):
            f.ret(i)
        with f.when(f.b.icmp_signed("<", same, i32(0))):
            f.ret(i64(-2))
    f.ret(i64(-1))


def _define_keywords(module: Module) -> None:
    """`i32 trident.keywords(code, values, kwnames, bound, named, keywords)`: place keyword arguments; status."""
    layout = module.layout
    f = module.function("trident.keywords", I32, [PTR, PTR, PTR, PTR, I64, PTR], internal=True)
    code, values, kwnames, bound, named, keywords = f.args
    first = f.int32(code, layout.code_posonlyargcount)
    with f.loop(i64(0), f.load(kwnames, layouts.OB_SIZE, I64)) as i:
        key = f.load(f.item(f.at(kwnames, layouts.TUPLE_ITEMS), i))
        value = f.load(f.item(values, i))
        flags = f.load(f.load(key, layouts.OB_TYPE), layouts.TYPE_FLAGS, I64)
        with f.when(f.equal(f.b.and_(flags, i64(layouts.UNICODE_SUBCLASS)), i64(0))):
            f.ret(i32(MISMATCH))
        index = f.call("trident.find", I64, code, key, first, named)
        with f.when(f.equal(index, i64(-2))):
            f.ret(i32(ERROR))
        with f.otherwise(f.equal(index, i64(-1))) as (unknown, known):
            with unknown:
                with f.when(f.is_null(keywords)):
                    f.ret(i32(MISMATCH))
                with dict_versions.left_out(f):
                    failed = f.call("PyDict_SetItem", I32, keywords, key, value)
                with f.when(f.differ(failed, i32(0))):
                    f.ret(i32(ERROR))
            with known:
                slot = f.item(bound, index)
                with f.when(f.not_null(f.load(slot))):
                    f.ret(i32(MISMATCH))
                f.incref(value)
                f.store(value, slot)
    f.ret(i32(BOUND))


def _define_defaults(module: Module) -> None:
    """`i32 trident.defaults(function, code, bound, nargs)`: fill the parameters that no argument was given for; status."""
    layout = module.layout
    f = module.function("trident.defaults", I32, [PTR, PTR, PTR, I64], internal=True)
    function, code, bound, nargs = f.args
    positional = f.int32(code, layout.code_argcount)
    defaults = f.load(function, layout.function_defaults)
    count = f.variable(i64(0))
    with f.when(f.not_null(defaults)):
        f.store(f.load(defaults, layouts.OB_SIZE, I64), count)
    without = f.b.sub(positional, f.load(count, kind=I64))
    with f.loop(nargs, positional) as i, f.when(f.is_null(f.load(f.item(bound, i)))):
        with f.when(f.b.icmp_signed("<", i, without)):
            f.ret(i32(MISMATCH))
        value = f.load(f.item(f.at(defaults, layouts.TUPLE_ITEMS), f.b.sub(i, without)))
        f.incref(value)
        f.store(value, f.item(bound, i))
    names = f.at(f.load(code, layout.code_localsplusnames), layouts.TUPLE_ITEMS)
    with f.loop(positional, f.b.add(positional, f.int32(code, layout.code_kwonlyargcount))) as i:
        with f.when(f.is_null(f.load(f.item(bound, i)))):
            by_name = f.load(function, layout.function_kwdefaults)
            with f.when(f.is_null(by_name)):
                f.ret(i32(MISMATCH))
            value = f.call("PyDict_GetItemWithError", PTR, by_name, f.load(f.item(names, i)))
            with f.when(f.is_null(value)):
                occurred = f.not_null(f.call("PyErr_Occurred", PTR))
                f.ret(f.b.select(occurred, i32(ERROR), i32(MISMATCH)))
            f.incref(value)
            f.store(value, f.item(bound, i))
    f.ret(i32(BOUND))


def _define_bind(module: Module) -> None:
    """`i32 trident.bind(function, code, args, nargs, kwnames, bound)`: fill `bound` with owned references; status.

    code: the function's, which the caller owns. Whatever the status, the caller releases all `trident.parameters(code)` entries.
    """
    layout = module.layout
    f = module.function(BIND, I32, [PTR, PTR, PTR, I64, PTR, PTR], internal=True)
    function, code, args, nargs, kwnames, bound = f.args
    positional = f.int32(code, layout.code_argcount)
    named = f.b.add(positional, f.int32(code, layout.code_kwonlyargcount))
    has_rest, has_keywords = _flag(f, code, layouts.CO_VARARGS), _flag(f, code, layouts.CO_VARKEYWORDS)
    with f.loop(i64(0), f.call(COUNT, I64, code)) as i:
        f.store(NULL, f.item(bound, i))
    surplus = f.b.icmp_signed(">", nargs, positional)
    given = f.b.select(surplus, positional, nargs)
    with f.when(f.b.and_(surplus, f.b.not_(has_rest))):
        f.ret(i32(MISMATCH))
    with f.loop(i64(0), given) as i:
        value = f.load(f.item(args, i))
        f.incref(value)
        f.store(value, f.item(bound, i))
    with f.when(has_rest):
        size = f.b.sub(nargs, given)
        rest = f.call("PyTuple_New", PTR, size)
        with f.when(f.is_null(rest)):
            f.ret(i32(ERROR))
        with f.loop(i64(0), size) as i:
            value = f.load(f.item(args, f.b.add(given, i)))
            f.incref(value)
            f.store(value, f.item(f.at(rest, layouts.TUPLE_ITEMS), i))
        f.store(rest, f.item(bound, named))
    keywords = f.variable(NULL)
    with f.when(has_keywords):
        with dict_versions.left_out(f):
            made = f.call("PyDict_New", PTR)
        with f.when(f.is_null(made)):
            f.ret(i32(ERROR))
        f.store(made, f.item(bound, f.b.add(named, f.b.zext(has_rest, I64))))
        f.store(made, keywords)
    with f.when(f.not_null(kwnames)):
        status = f.call("trident.keywords", I32, code, f.item(args, nargs), kwnames, bound, named, f.load(keywords))
        with f.when(f.differ(status, i32(BOUND))):
            f.ret(status)
    f.ret(f.call("trident.defaults", I32, function, code, bound, given))


def is_simple(f: Function, code: ir.Value, nargs: ir.Value, kwnames: ir.Value) -> ir.Value:
    """Whether the arguments of a call are exactly the bound array: all positional, as many as parameters, no stars."""
    layout = f.module.layout
    flags = f.b.and_(f.load(code, layout.code_flags, I32), i32(layouts.CO_VARARGS | layouts.CO_VARKEYWORDS))
    simple = f.b.and_(f.is_null(kwnames), f.equal(nargs, f.int32(code, layout.code_argcount)))
    rest = f.equal(f.b.or_(flags, f.load(code, layout.code_kwonlyargcount, I32)), i32(0))
    result: ir.Value = f.b.and_(simple, rest)
    assert result.type == I1
    return result
