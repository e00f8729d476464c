"""Containers, functions, strings: instructions that make objects.

May import: frontend.*, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trident.frontend import iteration, operators, subscripts
from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.handlers.operators import make_slice
from trident.frontend.models import NotModelled
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import make_function
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def take(frame: RecordedFrame, count: int) -> list[Any]:
    """Pop `count` values, in stack order."""
    if not count:
        return []
    items = frame.stack[-count:]
    del frame.stack[-count:]
    return items


@handles("BUILD_TUPLE")
def build_tuple(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`(a, b)`."""
    items = take(frame, ins.arg)
    if all(type(item) is Const and operators.is_immutable(item.obj) for item in items):
        frame.stack.append(Const(tuple(item.obj for item in items)))
    else:
        frame.stack.append(rec.virtual_tuple(items))


@handles("BUILD_LIST")
def build_list(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`[a, b]`."""
    frame.stack.append(rec.virtual_list(take(frame, ins.arg)))


@handles("BUILD_SET")
def build_set(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`{a, b}`."""
    items = take(frame, ins.arg)
    made = operators.make_set(rec, [rec.resolve(item) for item in items])
    if made is NotModelled:
        made = rec.opaque(Const(set), [rec.virtual_tuple(items)] if items else [], {}, "makes a set")
    frame.stack.append(made)  # type: ignore[arg-type]


@handles("BUILD_MAP")
def build_map(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`{a: b}`."""
    flat = take(frame, 2 * ins.arg)
    _push_dict(rec, frame, flat[::2], flat[1::2])


@handles("BUILD_CONST_KEY_MAP")
def build_const_key_map(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """A dict whose keys are a constant tuple."""
    keys = frame.pop_value().obj
    _push_dict(rec, frame, [Const(key) for key in keys], take(frame, ins.arg))  # type: ignore[attr-defined]


def _push_dict(rec: Recorder, frame: RecordedFrame, keys: list[Value], items: list[Value]) -> None:
    if all(subscripts.can_be_key(rec, key) for key in keys):
        made = rec.virtual_dict([], [])
        for key, item in zip(keys, items, strict=True):
            constant = rec.promote(key, "key of a dict")
            made.obj[constant] = item.obj  # type: ignore[index]
            operators.set_key(made, constant, item)
        frame.stack.append(made)
        return
    pairs = rec.virtual_tuple([rec.virtual_tuple([key, item]) for key, item in zip(keys, items, strict=True)])
    frame.stack.append(rec.opaque(Const(dict), [pairs], {}, "makes a dict with run-time keys"))


@handles("BUILD_SLICE")
def build_slice(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`i:j:k`."""
    parts = take(frame, ins.arg)
    frame.stack.append(make_slice(rec, [*parts, Const(None)][:3]))


def container_at(rec: Recorder, frame: RecordedFrame, depth: int) -> Value:
    """The container `depth` entries below the (popped) top."""
    entry = frame.stack[-depth]
    assert isinstance(entry, Value)
    return rec.resolve(entry)


def append(rec: Recorder, target: Value, item: Value) -> None:
    """`list.append`."""
    if type(target) is Virtual and target.kind == "list" and subscripts.reaches(rec, item, target):
        rec.materialise(target)
        target = rec.resolve(target)
    if type(target) is Virtual and target.kind == "list":
        rec.mutation(target, len(target.items))
        rec.execute(list.append, target.obj, item.obj)
        target.items.append(item)
    else:
        rec.write_call(list.append, [target, item], "append to a list")
        if not (type(target) is Traced and target.facts.get("new")):
            rec.changed_anything()  # it may be one of the constants


@handles("LIST_APPEND")
def list_append(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Append, in a comprehension."""
    item = frame.pop_value()
    append(rec, container_at(rec, frame, ins.arg), item)


@handles("SET_ADD")
def set_add(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Add, in a comprehension."""
    item, held = frame.pop_value(), container_at(rec, frame, ins.arg)
    if type(held) is Virtual and held.kind == "set" and type(rec.resolve(item)) is Const and operators.is_immutable(item.obj):
        rec.mutation(held)
        rec.execute(set.add, held.obj, item.obj)  # type: ignore[arg-type]
        held.items.append(item)
        return
    rec.opaque(Const(set.add), [held, item], {}, "add to a set")


@handles("MAP_ADD")
def map_add(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Add a pair, in a comprehension."""
    item, key = frame.pop_value(), frame.pop_value()
    subscripts.store_subscript(rec, container_at(rec, frame, ins.arg), key, item)


@handles("LIST_EXTEND")
def list_extend(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`[*a]`."""
    source = frame.pop_value()
    target = container_at(rec, frame, ins.arg)
    items = iteration.known_items(rec, source)
    if items is None or type(target) is not Virtual or any(subscripts.reaches(rec, item, target) for item in items):
        if not iteration.is_iterable(rec, source):
            raise Leave("raised", f"Value after * must be an iterable, not {type(source.obj).__name__}")
        rec.opaque(Const(list.extend), [target, source], {}, f"extends a list by a {type(source.obj).__name__}")
        return
    rec.mutation(target, len(target.items))
    rec.execute_part(list.extend, target.obj, [item.obj for item in items])
    target.items.extend(items)


@handles("LIST_TO_TUPLE")
def list_to_tuple(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """The tuple of a list that was made for it."""
    push_tuple_of(rec, frame, frame.pop_value())


def push_tuple_of(rec: Recorder, frame: RecordedFrame, source: Value) -> None:
    """`tuple(list)`."""
    source = rec.resolve(source)
    if type(source) is Virtual:
        frame.stack.append(rec.virtual_tuple(source.items))
    else:
        made = rec.opaque(Const(tuple), [source], {}, "a tuple of an iterable with an unknown number of items")
        assert isinstance(made, Traced)
        made.known_type = tuple
        frame.stack.append(made)


@handles("SET_UPDATE")
def set_update(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`{*a}`."""
    source = frame.pop_value()
    rec.opaque(Const(set.update), [container_at(rec, frame, ins.arg), source], {}, "adds items to a set")


@handles("DICT_UPDATE", "DICT_MERGE")
def dict_update(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`{**a}`, and `f(**a)`, where a key that is there already is an error."""
    source = rec.resolve(frame.pop_value())
    target = container_at(rec, frame, ins.arg)
    pairs = dict_pairs(rec, source)
    if pairs is None or type(target) is not Virtual or target.keys is None:
        if ins.name == "DICT_MERGE":
            raise Leave("unsupported", f"** of a {type(source.obj).__name__}")
        rec.opaque(Const(_update), [target, source], {}, f"updates a dict by a {type(source.obj).__name__}")
        return
    if ins.name == "DICT_MERGE" and any(key in target.keys or type(key) is not str for key, _ in pairs):
        raise Leave("raised", "multiple values for a keyword argument")
    if any(subscripts.reaches(rec, item, target) for _, item in pairs):
        raise Leave("unsupported", "a dict that holds itself")
    source = rec.resolve(source)
    if type(source) is Virtual and "source" in source.state or type(source) is Traced:
        if target.keys or len(pairs) < 2:
            ordered_pairs(rec, source)
        else:  # a copy: in the same order, whatever it is
            target.state["source"] = source.state["source"] if type(source) is Virtual else source
    else:
        operators.before_set(rec, target, [key for key, _ in pairs])
    for key, item in pairs:
        target.obj[key] = item.obj  # type: ignore[index]
        operators.set_key(target, key, item)


def _update(target: dict[Any, Any], source: Any) -> None:
    """`{**source}`: not `dict.update`, which takes pairs too."""
    target.update({**source})


def ordered_pairs(rec: Recorder, source: Value) -> list[tuple[Any, Value]] | None:
    """As `dict_pairs`, in an order that is guarded too."""
    source = rec.resolve(source)
    if type(source) is Traced and type(source.obj) is dict and all(type(key) is str for key in source.obj):
        return traced_pairs(rec, source)
    if type(source) is Virtual and "source" in source.state:
        rec.fix_order(source)
    return dict_pairs(rec, source)


def dict_pairs(rec: Recorder, source: Value) -> list[tuple[Any, Value]] | None:
    """Keys and values of a dict, where they are known; the order of a traced one is not guarded."""
    source = rec.resolve(source)
    if type(source) is Traced and type(source.obj) is dict and all(type(key) is str for key in source.obj):
        return _traced_pairs(rec, source, source.obj)
    if type(source) is Virtual and source.kind == "dict":
        return list(zip(source.keys or (), source.items, strict=True))
    if type(source) is Const and type(source.obj) is dict:
        return rec.dict_items(source.obj, rec.name_of(source))
    return None


def traced_pairs(rec: Recorder, source: Traced) -> list[tuple[Any, Value]]:
    """Keys and values of a dict of the trace whose keys are str: the keys are guarded, in order."""
    real: Any = source.obj
    keys = tuple(real)
    rec.type_of(source)
    same = rec.builder.op("dict_keys_are", source.ssa, index=rec.builder.constant_index(keys))
    rec.guard(same, True, "key", f"keys of {rec.name_of(source)} are {', '.join(keys) or 'none'}")
    return [(key, subscripts.dict_item(rec, source, key)) for key in keys]


def _traced_pairs(rec: Recorder, source: Traced, held: dict[str, Any]) -> list[tuple[Any, Value]]:
    """The keys of a traced dict (their set is guarded) and its values."""
    rec.type_of(source)
    builder, name = rec.builder, rec.name_of(source)
    counted = builder.op("eq_int", builder.op("dict_len", source.ssa), builder.int(len(held)))
    rec.guard(counted, True, "length", f"len({name}) == {len(held)}")
    pairs: list[tuple[Any, Value]] = []
    for key in held:
        at = builder.constant_index(key)
        rec.guard(builder.op("dict_has", source.ssa, index=at), True, "key", f"{key!r} in {name}")
        pairs.append((key, subscripts.dict_item(rec, source, key)))
    return pairs


# ----------------------------------------------------------------------------------------------------------- functions
@handles("MAKE_FUNCTION")
def make_function_op(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """A function of a code object, defaults, keyword defaults, annotations and cells."""
    code: Any = frame.pop_value().obj
    closure = rec.resolve(frame.pop_value()) if ins.arg & 8 else None
    annotations: Entry = frame.pop_value() if ins.arg & 4 else NULL
    kwdefaults: Entry = frame.pop_value() if ins.arg & 2 else NULL
    defaults: Entry = frame.pop_value() if ins.arg & 1 else NULL
    cells: list[Value] = []
    if closure is not None:
        cells = closure.items if type(closure) is Virtual else [Const(cell) for cell in closure.obj]  # type: ignore[attr-defined]
    parts = [NULL if item is NULL else item.obj for item in (defaults, kwdefaults, annotations)]  # type: ignore[union-attr]
    real = make_function(code, frame.globals, parts[0], parts[1], parts[2], tuple(cell.obj for cell in cells))
    items: Any = [defaults, kwdefaults, annotations, *cells]
    frame.stack.append(rec.virtual(real, "function", items, code=code, globals=frame.globals))


# ------------------------------------------------------------------------------------------------------------- strings
_CONVERSIONS: dict[int, Any] = {1: str, 2: repr, 3: ascii}


@handles("FORMAT_VALUE")
def format_value(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """One part of an f-string."""
    spec = frame.pop_value() if ins.arg & 4 else Const("")
    value = rec.resolve(frame.pop_value())
    convert = _CONVERSIONS.get(ins.arg & 3)
    if operators.is_foldable(value) and operators.is_foldable(spec):
        obj = value.obj if convert is None else convert(value.obj)
        frame.stack.append(Const(rec.execute(format, obj, spec.obj)))
        return
    if type(value.obj) is str and convert in (None, str) and spec.obj == "":
        rec.type_of(value)
        frame.stack.append(value)
        return
    function, args = (format, [value, spec]) if convert is None else (convert, [value])
    if convert is not None and spec.obj != "":
        function, args = _convert_and_format, [Const(convert), value, spec]
    if rec.number_kind(value) is not None or type(value.obj) is str and rec.type_of(value) is str:
        frame.stack.append(rec.write_call(function, args, "formats a string"))
    else:
        frame.stack.append(rec.opaque(Const(function), args, {}, "formats a string"))
    rec.mark_type(frame.stack[-1], str)


def _convert_and_format(convert: Any, value: object, spec: str) -> str:
    """`f"{value!r:spec}"`."""
    return format(convert(value), spec)


@handles("BUILD_STRING")
def build_string(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Join the parts of an f-string."""
    parts = [rec.resolve(part) for part in take(frame, ins.arg)]
    if all(operators.is_foldable(part) for part in parts):
        frame.stack.append(Const("".join(part.obj for part in parts)))
        return
    frame.stack.append(rec.write_call("".join, [rec.virtual_tuple(parts)], "joins strings"))
    rec.mark_type(frame.stack[-1], str)
