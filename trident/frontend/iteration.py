"""Iteration over Values: known items, virtual iterators, opaque iterators.

Owns the virtual "iterator" kind. state: how, pos, and per `how`: zip (strict), enumerate (start). In a loop the position is a
run-time value, so an item instead of `pos`: "count" (current and stop of a range; the step is `stride` of the state), "at" (index, list
or tuple), "counted" (what is enumerated, count). What must hold: all guards of a step come before its first change; the concrete iterator
advances exactly once per step, in step with the virtual one.

May import: ir, frontend.{operators,guards,frames,values,models}.
"""

from __future__ import annotations

import types
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trident.frontend import generators, operators
from trident.frontend.frames import Entry
from trident.frontend.guards import fits
from trident.frontend.handlers import build
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import contents_of, deletions, dict_base, is_disturbed, maker_of, view_of, viewed
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


class _End:
    """No further item."""

    def __repr__(self) -> str:
        return "END"


END = _End()
SENTINEL = object()  # what `next(it, SENTINEL)` yields at the end, in traces
_PLAIN_SEQUENCES = (tuple, str, bytes, range)
MAX_KNOWN = 4096  # items of one container that the trace knows one by one (every snapshot lists them)
UNROLLED = 64  # iterations up to which a loop whose number of iterations is a constant becomes straight code
_SHORT_TUPLE = 16  # items of a run-time tuple that are gone through one by one
_DICTS: tuple[dict[str, int], ...] = ({}, OrderedDict())
_SIZED = (dict, OrderedDict, *(type(view) for made in _DICTS for view in (made.keys(), made.values(), made.items())))


# --------------------------------------------------------------------------------------------------------- known items
def known_items(rec: Recorder, value: Value) -> list[Value] | None:
    """All items of an iterable, with the guards that make their number a constant; None where that is impossible.

    A virtual iterator is used up by this."""
    value = rec.resolve(value)
    obj: Any = value.obj
    if rec.is_hooked(value):
        answer = registry().try_hooks("iterate", rec, value)
        if answer is not NotModelled:
            return answer  # type: ignore[no-any-return]
    if is_long(obj):
        return None
    if type(value) is Virtual:
        return _items_of_virtual(rec, value)
    if type(value) is Const:
        return _items_of_constant(rec, value, obj)
    assert type(value) is Traced
    cls: type = type(obj)
    if cls is list or issubclass(cls, tuple) and type(cls.__iter__) is types.WrapperDescriptorType:
        rec.type_of(value)
        cls = list if cls is list else tuple
        size = len(obj)
        if cls is list or value.facts.get("length") != size:
            counted = rec.builder.op(f"{cls.__name__}_len", value.ssa)
            cond = rec.builder.op("eq_int", counted, rec.builder.int(size))
            rec.guard(cond, True, "length", f"len({rec.name_of(value)}) == {size}")
            value.facts["length"] = size
        return [load_item(rec, value, n) for n in range(size)]
    pairs = traced_pairs(rec, value) if cls is dict else None
    return None if pairs is None else [Const(key) for key, _ in pairs]


def is_iterable(rec: Recorder, value: Value) -> bool:
    """Whether an object's type can be iterated over at all."""
    cls = rec.type_of(value)
    if rec.read_type(cls, "__iter__") is not NULL:
        return True
    if rec.read_type(cls, "__getitem__") is NULL:
        return False
    try:
        iter(value.obj)  # type: ignore[call-overload]  # runs nobody's code; types in C may have an item of a key, and none of an index
    except TypeError:
        return False
    return True


def is_long(obj: Any) -> bool:
    """Whether a container has too many items for the trace to know them one by one."""
    if type(obj) is range:  # its length need not fit
        return len(obj[:MAX_KNOWN + 1]) > MAX_KNOWN
    return is_a(obj, tuple | list | dict | str | bytes) and type(obj).__len__ in _C_LENGTHS and len(obj) > MAX_KNOWN


_C_LENGTHS = (tuple.__len__, list.__len__, dict.__len__, OrderedDict.__len__, str.__len__, bytes.__len__)


def traced_pairs(rec: Recorder, value: Traced) -> list[tuple[Any, Value]] | None:
    """Keys (guarded, in order) and values of a traced dict; known until something may have changed it."""
    known: Any = value.facts.get("pairs")
    if known is not None and known[0] == (rec.epoch, rec.stores, rec.run_time_stores):
        return known[1]  # type: ignore[no-any-return]
    pairs = build.ordered_pairs(rec, value) if type(value.obj) is dict else _pairs_of_instance(rec, value)
    if pairs is not None:
        value.facts["pairs"] = ((rec.epoch, rec.stores, rec.run_time_stores), pairs)
    return pairs


def _pairs_of_instance(rec: Recorder, value: Traced) -> list[tuple[Any, Value]] | None:
    """The contents of an OrderedDict, or of an instance of a plain subclass of dict or OrderedDict, as their methods find them."""
    cls, obj = type(value.obj), value.obj
    base = dict_base(cls)
    if base is None or cls is not base and not rec.is_run_time_instance(value):
        return None
    rec.type_of(value)
    keys = tuple(base.__iter__(obj))  # type: ignore[attr-defined]
    if not all(type(key) is str for key in keys):
        return None
    if rec.read_type(cls, "__iter__") not in _C_ITERATORS or rec.read_type(cls, "__len__") not in operators.C_LENGTHS:
        return None
    name = "odict_keys_are" if base is OrderedDict else "dict_keys_are"
    rec.may_exit()
    same = rec.builder.op(name, value.ssa, index=rec.builder.constant_index(keys))
    rec.guard(same, True, "key", f"keys of {rec.name_of(value)} are {', '.join(keys) or 'none'}")
    return [(key, contents_item(rec, value, key)) for key in keys]


def contents_item(rec: Recorder, value: Traced, key: str) -> Traced:
    """An item of an instance of a dict's subclass, whose key exists."""
    real: Any = dict.__getitem__(value.obj, key)  # type: ignore[arg-type]
    made = rec.builder.op("dict_item", value.ssa, index=rec.builder.constant_index(key))
    return rec.inherit(Traced(real, made, f"{rec.name_of(value)}[{key!r}]"), value)


def load_item(rec: Recorder, value: Traced, index: int) -> Traced:
    """Item of a traced tuple or list; its length is guarded already."""
    obj: Any = value.obj
    cls = "list" if type(obj) is list else "tuple"
    if cls == "tuple":
        cache: dict[int, Traced] = value.facts.setdefault("items", {})  # type: ignore[assignment]
        if index in cache:
            return cache[index]
    origin = f"{value.origin}[{index}]" if value.origin else ""
    item = Traced(obj[index], rec.builder.op(f"{cls}_item", value.ssa, item=index), origin)
    if cls == "tuple":
        cache[index] = item
    return rec.inherit(item, value, index)


def _items_of_constant(rec: Recorder, value: Const, obj: Any) -> list[Value] | None:
    name = rec.name_of(value)
    if type(obj) in _PLAIN_SEQUENCES or is_a(obj, tuple) and type(obj).__iter__ is tuple.__iter__:
        return [Const(item, f"{name}[{n}]") for n, item in enumerate(obj)]
    if type(obj) is list and not rec.list_is_dynamic(obj):
        return rec.list_items(obj, name)
    if type(obj) is list:
        return known_items(rec, rec.dynamic_list(value))
    if type(obj) in (dict, OrderedDict):
        return [Const(key) for key, _ in rec.dict_items(obj, name)]
    return None


def _items_of_virtual(rec: Recorder, value: Virtual) -> list[Value] | None:
    match value.kind:
        case "tuple" | "list":
            return list(value.items)
        case "dict":
            rec.fix_order(value)
            return [Const(key) for key in value.keys or ()]
        case "set":  # of constants: the order is that of any set that is made of them in the same way
            return [Const(item) for item in value.obj]  # type: ignore[attr-defined]
        case "range":
            for item in value.items:
                rec.promote(item, "the length of a range")
            return [Const(n) for n in value.obj]  # type: ignore[attr-defined]
        case "view":
            return _items_of_view(rec, value)
        case "iterator":
            return _exhaust(rec, value)
        case "generator":
            return generators.items_of(rec, value)
        case "instance" if (contents := contents_of(value)) is not None and rec.read_type(type(value.obj), "__iter__") in _C_ITERATORS:
            return _items_of_virtual(rec, contents)
    return None


def _items_of_view(rec: Recorder, view: Virtual) -> list[Value] | None:
    owner = viewed(rec.resolve(view.items[0]))
    if type(owner) is Virtual:
        rec.fix_order(owner)
        pairs = list(zip(owner.keys or (), owner.items, strict=True))
    elif type(owner) is Const:
        pairs = rec.dict_items(owner.obj, rec.name_of(owner))  # type: ignore[arg-type]
    else:
        traced = traced_pairs(rec, owner) if type(owner) is Traced else None
        if traced is None:
            return None
        pairs = traced
    match view.state["view"]:
        case "keys":
            return [Const(key) for key, _ in pairs]
        case "values":
            return [item for _, item in pairs]
    return [rec.virtual_tuple([Const(key), item]) for key, item in pairs]


def _exhaust(rec: Recorder, iterator: Virtual) -> list[Value] | None:
    """The remaining items of a virtual iterator.

    The concrete iterators are not run: nobody else can see them, so they are replaced by ones in the final state (and the
    originals come back if the instruction is left to CPython after all)."""
    rec.may_exit()  # the state of the guards below is that of the untouched iterators
    rec.mutation(iterator)
    parts = parts_of(rec, iterator)
    saved = [(part, part.obj, dict(part.state), part.items) for part in parts]

    def undo() -> None:
        for part, obj, state, items in saved:
            part.obj, part.state, part.items = obj, state, items

    items: list[Value] = []
    while True:
        item = step(rec, iterator)
        if item is END:
            break
        if item is None:
            undo()
            return None
        items.append(item)
    rec.undo.append(undo)
    iterator.state["how"], iterator.items = "done", []
    for part in parts:
        part.obj = maker_of(part)(*[item.obj for item in part.items])
    return items


def parts_of(rec: Recorder, iterator: Virtual) -> list[Virtual]:
    """A virtual iterator and those that it draws from, these first."""
    found: list[Virtual] = []
    for item in iterator.items:
        item = rec.resolve(item)
        if type(item) is Virtual and item.kind in ("iterator", "generator"):
            found += [part for part in parts_of(rec, item) if part not in found]
    return [*found, iterator]


# ----------------------------------------------------------------------------------------------------------- iterators
def get_iterator(rec: Recorder, value: Value) -> Any:
    """`iter(value)`: a Value, or INLINED for a Python `__iter__` (tail position)."""
    value = rec.resolve(value)
    obj: Any = value.obj
    if rec.is_hooked(value):
        items = known_items(rec, value)
        if items is not None:
            return sequence_iterator(rec, rec.virtual_tuple(items))
    if type(value) is Virtual:
        if value.kind in ("iterator", "generator"):
            return value
        if value.kind in ("tuple", "list", "dict", "set", "range", "view"):
            return sequence_iterator(rec, value)
    cls = type(obj)
    if type(value) is Const:
        if cls in (tuple, str, bytes, range, list, dict, OrderedDict):
            return sequence_iterator(rec, value)
    elif cls in (tuple, list):
        rec.type_of(value)
        if cls is tuple and len(obj) <= _SHORT_TUPLE:
            known_items(rec, value)
        return sequence_iterator(rec, value)
    elif cls is dict and type(value) is Traced and traced_pairs(rec, value) is not None:
        return sequence_iterator(rec, value)
    if rec.follows_type(value):
        found = rec.read_type(cls, "__iter__")
        if is_a(found, types.FunctionType):
            return rec.call_for_iterator(Const(found, f"{cls.__qualname__}.__iter__"), value)
        if contents_of(value) is not None and found in _C_ITERATORS:
            return sequence_iterator(rec, keys_of(rec, value))
    return rec.opaque(Const(iter), [value], {}, f"iteration over a {cls.__name__}")


_C_ITERATORS = (dict.__iter__, OrderedDict.__iter__)


def keys_of(rec: Recorder, instance: Value) -> Virtual:
    """The keys of a virtual instance of a dict's subclass."""
    return rec.virtual(view_of(instance.obj, "keys"), "view", [instance], view="keys")


def sequence_iterator(rec: Recorder, source: Value, how: str = "seq") -> Virtual:
    """A virtual iterator over a sequence."""
    real = reversed(source.obj) if how == "reversed" else iter(source.obj)  # type: ignore[call-overload]
    if how == "reversed":  # a list may change meanwhile: it began where the list ended
        return rec.virtual(real, "iterator", [source], how=how, pos=0, start=len(source.obj))  # type: ignore[arg-type]
    if type(source.obj) in _SIZED:  # must not change its size meanwhile
        size: int = len(source.obj)  # type: ignore[arg-type]
        return rec.virtual(real, "iterator", [source], how=how, pos=0, size=size, deleted=deletions(source))
    return rec.virtual(real, "iterator", [source], how=how, pos=0)


def advance(rec: Recorder, iterator: Virtual) -> Any:
    """The next item of a virtual iterator, END, or None where the trace cannot know it."""
    item = step(rec, iterator)
    if item is None:
        return None
    rec.mutation(iterator)
    if item is END and "size" in iterator.state and rec.execute_part(next, iterator.obj, SENTINEL) is not SENTINEL:
        rec.abort("unsupported", "a dict that changes while it is iterated over")
    if item is END:  # an iterator that has ended stays so, even if its list grows
        rec.drop(iterator)  # it lets go of what it has gone through
        saved = iterator.obj, iterator.state["how"], iterator.items
        parts = parts_of(rec, iterator)[:-1]  # a zip has taken items of those before the one that ended
        before = [part.obj for part in parts]

        def undo() -> None:
            iterator.obj, iterator.state["how"], iterator.items = saved
            for part, obj in zip(parts, before, strict=True):
                part.obj = obj

        rec.undo.append(undo)
        for part in parts:
            part.obj = maker_of(part)(*[item.obj for item in part.items])
        iterator.obj, iterator.state["how"], iterator.items = iter(()), "done", []
        return END
    real = rec.execute_part(next, iterator.obj, SENTINEL)
    if "size" in iterator.state and type(item) is Const and real is not item.obj:
        rec.abort("unsupported", "a dict that changes while it is iterated over")
    return item


def step(rec: Recorder, iterator: Virtual) -> Any:
    """`advance` without the concrete iterator (a zip advances the concrete ones of its parts itself)."""
    state = iterator.state
    pos: int = state["pos"]  # type: ignore[assignment]
    match state["how"]:
        case "seq":
            if is_disturbed(iterator):
                rec.abort("unsupported", "a dict that changes while it is iterated over")
            item = _sequence_item(rec, rec.resolve(iterator.items[0]), pos)
        case "reversed":
            items = known_items(rec, iterator.items[0])
            at: int = state["start"] - 1 - pos  # type: ignore[operator]
            item = None if items is None else items[at] if 0 <= at < len(items) else END
        case "enumerate":
            part = step(rec, rec.resolve(iterator.items[0]))  # type: ignore[arg-type]
            item = part
            if isinstance(part, Value):
                item = rec.virtual_tuple([Const(pos + state["start"]), part])  # type: ignore[operator]
        case "zip":
            return _zip_item(rec, iterator)
        case "count":
            return _count(rec, iterator)
        case "at":
            return _item_at(rec, iterator)
        case "counted":
            return _counted(rec, iterator)
        case _:
            item = END
    if item is not None and item is not END:
        state["pos"] = pos + 1
    return item


def _count(rec: Recorder, iterator: Virtual) -> Any:
    """The next number of a range whose position is a run-time value."""
    current, stop = (rec.resolve(item) for item in iterator.items)
    stride: int = iterator.state["stride"]
    if type(current) is Const and type(stop) is Const:
        if not (current.obj < stop.obj if stride > 0 else current.obj > stop.obj):
            return END
    elif not operators.decide(rec, operators.compare(rec, "lt" if stride > 0 else "gt", current, stop)):
        return END
    iterator.items = [_add(rec, current, Const(stride)), stop]
    return current


def _add(rec: Recorder, a: Value, b: Const) -> Value:
    if type(a) is Const:
        return Const(a.obj + b.obj)
    return operators.binary(rec, "add", a, b)  # type: ignore[no-any-return]


def _item_at(rec: Recorder, iterator: Virtual) -> Any:
    """The item of a list or tuple at a run-time position."""
    index, source = (rec.resolve(item) for item in iterator.items)
    cls = rec.type_of(source).__name__
    owner, at, obj = rec.ssa(source, "object"), rec.ssa(index, "int"), source.obj
    more = index.obj < len(obj)
    cond = rec.builder.op("lt_int", at, rec.builder.op(f"{cls}_len", owner))
    rec.guard(cond, more, "length", f"{rec.name_of(index)} {'<' if more else '>='} len({rec.name_of(source)})")
    if not more:
        return END
    item = Traced(obj[index.obj], rec.op(f"{cls}_at", owner, at))
    iterator.items = [_add(rec, index, Const(1)), source]
    return rec.inherit(item, source) if type(source) is Traced else item


def _counted(rec: Recorder, iterator: Virtual) -> Any:
    part, count = (rec.resolve(item) for item in iterator.items)
    if rec.mutation_serial != rec.serial:
        rec.may_exit()  # before the part changes
    item = step(rec, part)  # type: ignore[arg-type]
    if not isinstance(item, Value):
        return item
    iterator.items = [part, _add(rec, count, Const(1))]
    return rec.virtual_tuple([count, item])


def is_unrolled(rec: Recorder, iterator: Value) -> bool:
    """Whether a `for` over this iterator becomes straight code: what it runs over is known to the trace, and short or made of objects."""
    iterator = rec.resolve(iterator)
    if type(iterator) is not Virtual or iterator.kind != "iterator":
        return False
    match iterator.state["how"]:
        case "count" | "at":
            return False
        case "enumerate" | "counted":
            return is_unrolled(rec, iterator.items[0])
        case "zip":
            return any(is_unrolled(rec, part) for part in iterator.items)
        case "seq":
            return _is_unrolled_source(rec, rec.resolve(iterator.items[0]))
    return True


def _is_unrolled_source(rec: Recorder, source: Value) -> bool:
    obj: Any = source.obj
    if type(obj) is range:
        if not all(map(fits, (obj.start, obj.stop, obj.step))) or obj.step not in _STRIDES:
            return True
        constant = type(source) is Const or all(type(rec.resolve(item)) is Const for item in source.items)  # type: ignore[attr-defined]
        return constant and len(obj[:UNROLLED + 1]) <= UNROLLED
    if type(source) is Const and type(obj) is list:
        return not rec.list_is_dynamic(obj)
    return type(source) is not Traced or type(obj) is not list and (type(obj) is not tuple or len(obj) <= _SHORT_TUPLE)


_STRIDES = range(-(2**31), 2**31)


def make_positions_varying(rec: Recorder, iterator: Entry, varying: dict[int, Const]) -> None:
    """Turn an iterator that is not unrolled into the form whose position is an item; positions that are constants go into `varying`."""
    iterator = iterator if iterator is NULL else rec.resolve(iterator)  # type: ignore[arg-type]
    if type(iterator) is not Virtual or iterator.kind != "iterator" or is_unrolled(rec, iterator):
        return
    state = iterator.state
    if state["how"] in ("enumerate", "counted", "zip"):
        for part in iterator.items[:1] if state["how"] != "zip" else iterator.items:
            make_positions_varying(rec, part, varying)
    match state["how"]:
        case "enumerate":
            position: Value = Const(state["pos"] + state["start"])
            iterator.items, iterator.state = [iterator.items[0], position], {"how": "counted", "pos": 0}
        case "seq":
            position = _convert_sequence(rec, iterator)
        case "count" | "at":
            position = rec.resolve(iterator.items[0])
        case "counted":
            position = rec.resolve(iterator.items[1])
        case _:
            return
    if type(position) is Const:
        varying[id(position)] = position
    rec.snapshots.invalidate()


def _convert_sequence(rec: Recorder, iterator: Virtual) -> Value:
    source, pos = rec.resolve(iterator.items[0]), iterator.state["pos"]
    obj: Any = source.obj
    position: Value = Const(pos)
    if type(obj) is range:
        start, stop, stride = map(rec.resolve, source.items) if type(source) is Virtual else map(Const, (obj.start, obj.stop, obj.step))
        step = rec.promote(stride, "the step of a range")
        position = Const(start.obj + pos * step) if type(start) is Const else operators.binary(rec, "add", start, Const(pos * step))
        iterator.items, iterator.state = [position, stop], {"how": "count", "pos": 0, "stride": step}
    else:
        if type(source) is Const:
            source = rec.dynamic_list(source)
        iterator.items, iterator.state = [position, source], {"how": "at", "pos": 0}
    return position


def _zip_item(rec: Recorder, iterator: Virtual) -> Any:
    parts = [rec.resolve(part) for part in iterator.items]
    if rec.mutation_serial != rec.serial:
        rec.may_exit()  # before the first part changes
    if not all(type(part) is Virtual and part.kind == "iterator" for part in parts):
        return None
    items = []
    for n, part in enumerate(parts):
        item = step(rec, part)  # type: ignore[arg-type]
        if item is None:
            rec.abort("unsupported", "zip over an iterable of unknown items")
        if item is END:
            if iterator.state["strict"] and (n > 0 or any(step(rec, other) is not END for other in parts[1:])):  # type: ignore[arg-type]
                rec.abort("raised", "zip() arguments differ in length")
            return END
        items.append(item)
    return rec.virtual_tuple(items) if items else END


def _sequence_item(rec: Recorder, source: Value, pos: int) -> Any:
    """Item `pos` of what a "seq" iterator runs over."""
    obj: Any = source.obj
    if type(source) is Virtual and source.kind == "range":
        return _range_item(rec, source, pos)
    if type(source) is Virtual and source.kind in ("tuple", "list"):
        return source.items[pos] if pos < len(source.items) else END
    if type(source) is Const and type(obj) in _PLAIN_SEQUENCES:
        return Const(obj[pos], f"{rec.name_of(source)}[{pos}]") if pos < len(obj) else END
    if type(source) is Const and type(obj) is list and rec.list_is_dynamic(obj):
        source = rec.dynamic_list(source)
    if type(source) is Traced and type(obj) is set:
        rec.abort("unsupported", "a set that something else has got while it is iterated over")
    if type(source) is Traced and type(obj) is not dict:
        rec.type_of(source)
        more = pos < len(obj)
        if type(obj) is list or type(obj) is tuple and "length" not in source.facts:
            counted = rec.builder.op(f"{type(obj).__name__}_len", source.ssa)
            cond = rec.builder.op("lt_int", rec.builder.int(pos), counted)
            rec.guard(cond, more, "length", f"{pos} {'<' if more else '>='} len({rec.name_of(source)})")
        return load_item(rec, source, pos) if more else END
    items = known_items(rec, source)
    if items is None:
        return None
    return items[pos] if pos < len(items) else END


def _range_item(rec: Recorder, source: Virtual, pos: int) -> Any:
    start, stop, stride = (rec.resolve(item) for item in source.items)
    steps = rec.promote(stride, "the step of a range")
    if type(start) is Const and type(stop) is Const:
        return Const(source.obj[pos]) if pos < len(source.obj) else END  # type: ignore[index, arg-type]
    if type(start) is Const:
        current: Value = Const(start.obj + pos * steps)  # type: ignore[operator]
    else:
        current = operators.binary(rec, "add", start, Const(pos * steps)) if pos else start
    cond = operators.compare(rec, "lt" if steps > 0 else "gt", current, stop)
    return current if operators.decide(rec, cond) else END
