"""Subscripts: reads, stores and deletions on sequences and dicts, and membership.

May import: ir, frontend.{operators,values,models}.
"""

from __future__ import annotations

import operator
import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trident.frontend import iteration, operators
from trident.frontend.guards import fits
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import contents_of, viewed
from trident.ir import NULL, PinKind
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_DICTS = (dict, OrderedDict)


def _is_index(index: Value) -> bool:
    """Whether a value can be an index that is promoted: an int, or a slice of ints and None."""
    if type(index) is Virtual and index.kind == "slice":
        return all(_is_index(item) or item.obj is None for item in index.items)
    return type(index.obj) in (int, bool, slice)


def subscript(rec: Recorder, a: Value, index: Value) -> Any:
    """`a[index]`: a Value, or INLINED for a Python `__getitem__` (tail position)."""
    a, index = rec.resolve(a), rec.resolve(index)
    if rec.is_hooked(a):
        answer = registry().try_hooks("subscript", rec, a, index)
        if answer is not NotModelled:
            return answer
    obj: Any = a.obj
    if is_a(obj, tuple | list | range | str) and _is_index(index) and _has_c_getitem(type(obj), index):
        answer = _sequence_subscript(rec, a, index)
        if answer is not NotModelled:
            return answer
    if type(obj) in _DICTS:
        answer = _dict_subscript(rec, a, index)
        if answer is not NotModelled:
            return answer
    if type(obj) in _DICTS and type(a) is not Virtual and hashes_in_c(rec.resolve(index)):
        rec.type_of(a)
        return rec.write_call(operator.getitem, [a, index], f"subscript of {rec.name_of(a)}")
    if operators.is_foldable(a) and operators.is_foldable(index):
        return Const(rec.execute(operator.getitem, obj, index.obj))
    if rec.follows_type(a):
        found = rec.read_type(type(obj), "__getitem__")
        if is_a(found, types.FunctionType):
            return rec.call(Const(found), [a, index], {})
        if (contents := contents_of(a)) is not None and found is dict.__getitem__ and rec.read_type(type(obj), "__missing__") is NULL:
            return subscript(rec, contents, index)
    return rec.opaque(Const(operator.getitem), [a, index], {}, f"subscript of a {type(obj).__name__}")


def _has_c_getitem(cls: type, index: Value) -> bool:
    """Whether items of a sequence type are what they are in a tuple or list (slices of a torch.Size are not)."""
    getter: Any = getattr(cls, "__getitem__")  # noqa: B009 (typed as Any)
    return getter in _C_GETITEM or issubclass(cls, tuple) and type(getter) is types.WrapperDescriptorType and type(index.obj) is int


_C_GETITEM = (tuple.__getitem__, list.__getitem__, range.__getitem__, str.__getitem__)


def slice_parts(where: slice) -> tuple[object, object, object]:
    """start, stop, step."""
    return where.start, where.stop, where.step


def _is_plain_index(part: object) -> bool:
    """Whether a part of a slice has no `__index__` of the user's, which would run each time that the slice is used."""
    return part is None or type(part) in (int, bool)


def _sequence_subscript(rec: Recorder, a: Value, index: Value) -> Any:
    obj: Any = a.obj
    if type(a) is Virtual and a.kind == "range" and not all(type(rec.resolve(item)) is Const for item in a.items):
        return NotModelled
    if type(a) is Traced and type(obj) is list and type(index.obj) is int and type(index) is Const:
        return _list_item(rec, a, index.obj)
    if type(a) is Const and type(obj) is list and rec.list_is_dynamic(obj):
        return _sequence_subscript(rec, rec.dynamic_list(a), index)
    items = iteration.known_items(rec, a)
    if items is None or type(index.obj) is slice and not all(_is_plain_index(part) for part in slice_parts(index.obj)):
        return NotModelled
    where = rec.promote(index, f"index of {rec.name_of(a)}")
    if type(where) in (int, bool):
        if not -len(items) <= where < len(items):
            rec.abort("raised", "index out of range")
        return items[where]
    if where.step == 0:
        rec.abort("raised", "slice step cannot be zero")
    if type(a) is Const and type(obj) in (str, range):
        return Const(obj[where])
    if is_a(obj, tuple):
        if type(obj) is tuple and where.indices(len(items)) == (0, len(items), 1):
            return a
        return rec.virtual_tuple(items[where])
    return rec.virtual_list(items[where]) if type(obj) is list else NotModelled


def _list_item(rec: Recorder, a: Traced, where: int) -> Any:
    """One item of a traced list: only that the index is in range is guarded."""
    obj: Any = a.obj
    if not -len(obj) <= where < len(obj):
        rec.abort("raised", "index out of range")
    rec.type_of(a)
    counted = rec.builder.op("list_len", a.ssa)
    if where >= 0:
        cond = rec.builder.op("lt_int", rec.builder.int(where), counted)
        rec.guard(cond, True, "length", f"{where} < len({rec.name_of(a)})")
        return iteration.load_item(rec, a, where)
    at = rec.op("add_int", counted, rec.builder.int(where))
    rec.guard(rec.builder.op("lt_int", rec.builder.int(-1), at), True, "length", f"len({rec.name_of(a)}) >= {-where}")
    return rec.inherit(Traced(obj[where], rec.op("list_at", a.ssa, at)), a)


def _find_key(rec: Recorder, a: Virtual, key: object) -> int:
    for n, known in enumerate(a.keys or ()):
        if known is key or known == key:
            return n
    return -1


def can_be_key(rec: Recorder, index: Value) -> bool:
    """Whether a value may be promoted to a dict key."""
    index = rec.resolve(index)
    if type(index) is Const:
        return operators.is_immutable(index.obj) or getattr(type(index.obj), "__hash__", None) is object.__hash__
    return type(index.obj) in (int, str, bool, type(None))


def _dict_subscript(rec: Recorder, a: Value, index: Value) -> Any:
    found = dict_get(rec, a, index)
    if found is NULL:
        rec.abort("raised", f"KeyError: {index.obj!r}", KeyError)
    return found


def dict_get(rec: Recorder, a: Value, index: Value) -> Any:
    """The value under a key of an exact dict or OrderedDict, NULL if there is none, NotModelled where that is not known."""
    a, index = rec.resolve(a), rec.resolve(index)
    obj: Any = a.obj
    if not can_be_key(rec, index) or type(a) is Traced and type(index.obj) is not str:
        return NotModelled
    key: Any = rec.promote(index, f"key of {rec.name_of(a)}")
    if type(a) is Virtual and a.kind == "vars":
        return vars_item(rec, a, key)
    if type(a) is Virtual:
        where = _find_key(rec, a, key)
        return NULL if where < 0 else a.items[where]
    if type(a) is Const:
        text = f"{rec.name_of(a)}[{key!r}]"
        if type(key) is str:
            return rec.read_dict(obj, key, text)
        if rec.is_changed(obj):
            return NotModelled
        items = rec.dict_items(obj, rec.name_of(a))
        found = dict.get(obj, key, NULL)  # the dict's own lookup: it compares keys of the same hash only
        return next((item for _, item in items if item.obj is found), NULL)
    assert type(a) is Traced
    rec.type_of(a)
    at = rec.builder.constant_index(key)
    present = key in obj
    text = f"{key!r} in {rec.name_of(a)}"
    rec.guard(rec.builder.op("dict_has", a.ssa, index=at), present, "key", text if present else f"not ({text})")
    return dict_item(rec, a, key) if present else NULL


def vars_item(rec: Recorder, a: Virtual, key: str) -> Any:
    """From the instance dict of a virtual instance; NotModelled where that has escaped."""
    owner = rec.resolve(a.items[0])
    if type(owner) is not Virtual:
        return NotModelled
    return owner.items[owner.keys.index(key)] if key in (owner.keys or ()) else NULL  # type: ignore[union-attr]


def dict_item(rec: Recorder, a: Traced, key: str) -> Traced:
    """The value under a key of a dict of the trace; that the key exists is guarded already."""
    at = rec.builder.constant_index(key)
    real: Any = a.obj
    return rec.inherit(Traced(real[key], rec.builder.op("dict_item", a.ssa, index=at), f"{rec.name_of(a)}[{key!r}]"), a, key)


# -------------------------------------------------------------------------------------------------------------- stores
def store_subscript(rec: Recorder, a: Value, index: Value, item: Value) -> Any:
    """`a[index] = item`: None, or INLINED for a Python `__setitem__` (its result is dropped)."""
    a, index = rec.resolve(a), rec.resolve(index)
    obj: Any = a.obj
    if rec.is_hooked(a):
        answer = registry().try_hooks("store_subscript", rec, a, index, item)
        if answer is not NotModelled:
            return None
    if type(a) is Virtual and a.kind in ("list", "dict"):
        if _store_virtual(rec, a, index, item):
            return None
        rec.materialise(a)
        a = rec.resolve(a)
    if type(a) is Const and type(obj) in _DICTS and type(index) is Const and type(index.obj) is str:
        rec.store_dict(obj, index.obj, item, f"{rec.name_of(a)}[{index.obj!r}] = …")
        return None
    if type(obj) in (list, dict) and type(a) is not Virtual and type(index.obj) in (int, str, bool):
        _store_builtin(rec, a, index, item)
        return None
    if rec.follows_type(a):
        found = rec.read_type(type(obj), "__setitem__")
        if is_a(found, types.FunctionType):
            return rec.call_discard(Const(found), [a, index, item])
        if contents_of(a) is not None:
            rec.call(Const(found), [a, index, item], {})
            return None
    rec.opaque(Const(operator.setitem), [a, index, item], {}, f"item assignment of a {type(obj).__name__}")
    return None


def _store_builtin(rec: Recorder, a: Value, index: Value, item: Value) -> None:
    """Into an exact list or dict that exists outside of the trace."""
    rec.type_of(a)
    rec.write_call(operator.setitem, [a, index, item], f"item assignment of a {type(a.obj).__name__}")
    if type(a) is Traced:
        a.facts.pop("pairs", None)
    if type(a) is Const:
        rec.note_store(a.obj, "", item, PinKind.LIST if type(a.obj) is list else PinKind.DICT_KEYS)  # type: ignore[arg-type]
    elif not (type(a) is Traced and a.facts.get("new")):
        rec.changed_anything()  # it may be one of the constants


def _store_virtual(rec: Recorder, a: Virtual, index: Value, item: Value) -> bool:
    """Whether the store could be done on the parts."""
    real: Any = a.obj
    if reaches(rec, item, a):
        return False
    if a.kind == "dict":
        if not can_be_key(rec, index):
            return False
        key = rec.promote(index, "key of a dict")
        operators.before_set(rec, a, [key])
        rec.execute(operator.setitem, real, key, item.obj)
        operators.set_key(a, key, item)
        return True
    if type(index.obj) not in (int, bool):
        return False
    where = rec.promote(index, "index of a list")
    rec.mutation(a, position(a, where))
    rec.execute(operator.setitem, real, where, item.obj)
    a.items[where] = item
    return True


def position(a: Virtual, where: int) -> int:
    """Number of the items before an index of a virtual list."""
    return max(where + len(a.items), 0) if where < 0 else where


def reaches(rec: Recorder, value: Value, target: Virtual) -> bool:
    """Whether a virtual object holds `target` (which must then not hold it)."""
    value = rec.resolve(value)
    if type(value) is not Virtual:
        return False
    return value is target or any(item is not NULL and reaches(rec, item, target) for item in value.items)


def delete_subscript(rec: Recorder, a: Value, index: Value) -> None:
    """`del a[index]`."""
    a, index = rec.resolve(a), rec.resolve(index)
    if type(a) is Virtual and a.kind == "dict" and can_be_key(rec, index):
        key = rec.promote(index, "key of a dict")
        rec.mutation(a)
        rec.execute(operator.delitem, a.obj, key)  # type: ignore[arg-type]
        where = _find_key(rec, a, key)
        del a.items[where], a.keys[where]  # type: ignore[index]
        a.state["deleted"] = a.state.get("deleted", 0) + 1
        return
    if type(a) is Virtual and a.kind == "list" and type(index.obj) is int:
        where = rec.promote(index, "index of a list")
        rec.mutation(a)
        rec.execute(operator.delitem, a.obj, where)  # type: ignore[arg-type]
        del a.items[where]
        return
    rec.opaque(Const(operator.delitem), [a, index], {}, f"del of an item of a {type(a.obj).__name__}")


# ---------------------------------------------------------------------------------------------------------- membership
def contains(rec: Recorder, container: Value, item: Value) -> Value:
    """`item in container`: a bool."""
    container, item = rec.resolve(container), rec.resolve(item)
    obj: Any = container.obj
    if operators.is_foldable(container) and operators.is_foldable(item):
        return Const(rec.execute(operator.contains, obj, item.obj))
    if type(obj) in _DICTS:
        found = dict_get(rec, container, item)
        if found is not NotModelled:
            return Const(found is not NULL)
        if type(container) is not Virtual and hashes_in_c(rec.resolve(item)):
            rec.type_of(container)
            there = rec.write_call(operator.contains, [container, item], f"membership in {rec.name_of(container)}")
            rec.mark_type(there, bool)
            return there
    if type(container) is Const and type(obj) is frozenset and type(item.obj) in (int, str):
        return Const(rec.promote(item, "membership") in obj)
    if type(obj) in (tuple, list):
        items = iteration.known_items(rec, container)
        answer = None if items is None else _among(rec, items, item)
        if answer is not None:
            return Const(answer)
    if type(obj) is set and type(container) is not Virtual and hashes_in_c(item):
        rec.type_of(container)
        found = rec.write_call(set.__contains__, [container, item], "membership in a set")
        rec.mark_type(found, bool)
        return found
    if type(container) is Virtual and container.kind == "range" and type(item) is Const:
        if all(type(rec.resolve(part)) is Const for part in container.items):
            return Const(item.obj in obj)
    if type(container) is Virtual and container.kind == "view" and container.state["view"] == "keys":
        return contains(rec, viewed(rec.resolve(container.items[0])), item)
    if type(container) is Virtual and container.kind == "set" and can_be_key(rec, item):
        return Const(rec.promote(item, "membership") in obj)
    if rec.follows_type(container):
        method = rec.read_type(type(obj), "__contains__")
        if (contents := contents_of(container)) is not None and method is dict.__contains__:
            return contains(rec, contents, item)
        if is_a(method, types.FunctionType) and (found := rec.try_pure(Const(method), [container, item])) is not None:
            return operators.truth(rec, found)
    result = rec.opaque(Const(operator.contains), [container, item], {}, f"membership in a {type(obj).__name__}")
    rec.mark_type(result, bool)
    return result


def hashes_in_c(value: Value) -> bool:
    """Whether a value can be looked up in a set or dict without code of Python's."""
    cls: Any = type(value.obj)
    if operators.is_immutable(value.obj) and type(value) is Const:
        return True
    return type(value) is Const and cls.__hash__ in (object.__hash__, type.__hash__) and cls.__eq__ in (object.__eq__, type.__eq__)


def _among(rec: Recorder, items: list[Value], item: Value) -> bool | None:
    for known in items:
        same = operators.equal_item(rec, known, item)
        if same is None:
            return None
        if same:
            return True
    return False


def as_int(rec: Recorder, value: Value) -> int | None:
    """A small constant int of a value, None if it is not one."""
    value = rec.resolve(value)
    return value.obj if type(value) is Const and type(value.obj) is int and fits(value.obj) else None
