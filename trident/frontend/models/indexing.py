"""`x[index]` and `x[index] = value` on tensors, as torch's binding does them (torch/csrc/autograd/python_variable_indexing.cpp).

Owns the plan of views and the advanced index that an index becomes. What must hold: the operators, their order and their
arguments are those of eager, so that values, strides, aliasing and the autograd graph are; an index out of range leaves the trace
before anything is done, because the binding raises its own error; lists, bools and 0-d tensors as indices are opaque calls.

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir as mlir

from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.tensors import ITEM_KINDS, guarded_device, guarded_dtype, guarded_rank, read_item, size_value
from trident.frontend.models.torch_calls import elements, environment_allows, guard_environment, supports_numbers
from trident.frontend.models.torch_operators import is_tensor
from trident.frontend.values import Const, Traced, Value, Virtual

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_END = 2**63 - 1  # what an absent stop of a slice means to ATen
_INDEX_DTYPES = (torch.int64, torch.int32, torch.int16, torch.int8)  # of index tensors that count as one dimension


@dataclass(frozen=True, slots=True)
class Step:
    """One view. kind: "select", "slice", "unsqueeze" or "whole" at dimension `dim` of what the steps before gave; `source` is the
    dimension of the indexed tensor that it consumes; `values`: the index, or start, stop and step (None where absent). "whole" is a
    slice of everything, for which the binding makes no view."""

    kind: str
    dim: int
    source: int = -1
    values: tuple[Value | None, ...] = ()


@dataclass(slots=True)
class Indexing:
    """What an index means: views, then tensors that index the dimensions of the last view (None: all of it).

    kept: for each dimension of the last view the dimension of the tensor that it is all of, or the step that made it; None for what
    an index tensor consumes. elides: a slice of everything makes no view, as everywhere but in a `x[a:b]` that is read.
    """

    elides: bool

    steps: list[Step] = field(default_factory=list)
    tensors: list[Value | None] = field(default_factory=list)
    kept: list[int | Step | None] = field(default_factory=list)


# ----------------------------------------------------------------------------------------------------------- planning


def _is_int(value: Value) -> bool:
    return type(value.obj) is int and -(2**63) <= value.obj < 2**63


def _slice_parts(rec: Recorder, value: Value) -> tuple[Value | None, ...] | None:
    """start, stop, step of a slice whose parts are ints or None, else None."""
    value = rec.resolve(value)
    if type(value) is Virtual:
        parts = [rec.resolve(part) for part in value.items]
    elif type(value) is Const:
        parts = [Const(part) for part in (value.obj.start, value.obj.stop, value.obj.step)]  # type: ignore[attr-defined]
    else:
        return None
    if len(parts) != 3 or not all(part.obj is None or _is_int(part) for part in parts):
        return None
    if parts[2].obj is not None and parts[2].obj <= 0:  # type: ignore[operator]
        return None  # raises
    return tuple(None if part.obj is None and type(part) is Const else part for part in parts)


def _number_of(part: Value | None, absent: int) -> int:
    return absent if part is None or part.obj is None else part.obj  # type: ignore[return-value]


def _is_whole(parts: tuple[Value | None, ...], size: int) -> bool:
    """Whether the binding takes a slice for one of everything: by its bounds as they were given."""
    start, stop, step = (_number_of(part, absent) for part, absent in zip(parts, (0, _END, 1), strict=True))
    return start == 0 and stop >= size and step == 1


def _guard_whole(rec: Recorder, tensor: Value, step: Step) -> None:
    """Guard the answer of `_is_whole`, as far as it depends on what is not constant."""
    start, stop, stride = step.values
    builder = rec.builder
    if _number_of(stride, 1) != 1:
        return  # the step is a constant of the trace
    first = _number_of(start, 0)
    if type(start) is Traced and start.obj is not None:
        rec.guard(builder.op("eq_int", rec.ssa(start, "int"), builder.int(0)), first == 0, "branch", f"{rec.name_of(start)} == 0")
    last = _number_of(stop, _END)
    if first != 0 or last == _END or (type(stop) is Const and last < 0):
        return
    assert stop is not None
    size = rec.ssa(size_value(rec, tensor, step.source), "int")
    cond = builder.op("ge_int", rec.ssa(stop, "int"), size)
    text = f"{rec.name_of(stop)} >= {rec.name_of(tensor)}.size({step.source})"
    rec.guard(cond, last >= tensor.obj.size(step.source), "size", text)  # type: ignore[attr-defined]


def _is_plain(tensor: Any) -> bool:
    return tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested


def _index_items(rec: Recorder, index: Value) -> list[Value] | None:
    """The items of an index (of one item where it is not a tuple); None for what is not looked into."""
    if type(index.obj) is not tuple:
        return [index]
    if type(index) is Virtual and index.kind != "tuple":
        return None
    return [rec.resolve(item) for item in elements(rec, index)]


def _specified(item: Value) -> int:
    """Number of dimensions that an item consumes; -1 for an item that is not modelled."""
    obj: Any = item.obj
    if obj is None or obj is Ellipsis:
        return 0
    if type(obj) is int or type(obj) is slice:
        return 1
    if is_tensor(item) and obj.dim() > 0:
        return 1 if obj.dtype in _INDEX_DTYPES else obj.dim() if obj.dtype is torch.bool else -1
    return -1


def plan_index(rec: Recorder, tensor: Value, index: Value, store: bool = False) -> Indexing | None:
    """The views and index tensors of `tensor[index]`, read or stored to; None if it is not modelled or raises."""
    index = rec.resolve(index)
    items = _index_items(rec, index)
    if items is None:
        return None
    counts = [_specified(item) for item in items]
    rank: int = tensor.obj.dim()  # type: ignore[attr-defined]
    if -1 in counts or sum(counts) > rank or sum(item.obj is Ellipsis for item in items) > 1:
        return None
    if any(count > 1 for count in counts[:-1]):
        return None  # what follows a mask of several dimensions is counted in the binding's own way
    planned = Indexing(store or type(index.obj) is tuple)
    source = 0
    for item, count in zip(items, counts, strict=True):
        source = _add_item(rec, planned, tensor, item, source, count, rank - sum(counts))
        if source < 0:
            return None
    planned.kept.extend(range(source, rank))
    return planned


def _add_item(rec: Recorder, planned: Indexing, tensor: Value, item: Value, source: int, count: int, free: int) -> int:
    """Plan one item at dimension `source` of the tensor; the next dimension, -1 if it is not modelled."""
    dim = len(planned.kept)
    if item.obj is None:
        planned.steps.append(Step("unsqueeze", dim))
        planned.kept.append(planned.steps[-1])
    elif item.obj is Ellipsis:
        planned.kept.extend(range(source, source + free))
        return source + free
    elif type(item.obj) is int:
        if not _is_int(item) or not -tensor.obj.size(source) <= item.obj < tensor.obj.size(source):  # type: ignore[attr-defined]
            return -1
        planned.steps.append(Step("select", dim, source, (item,)))
    elif type(item.obj) is slice:
        parts = _slice_parts(rec, item)
        if parts is None:
            return -1
        whole = _is_whole(parts, tensor.obj.size(source))  # type: ignore[attr-defined]
        planned.steps.append(Step("whole" if whole and planned.elides else "slice", dim, source, parts))
        planned.kept.append(source if whole and planned.elides else planned.steps[-1])
    else:
        planned.tensors.extend([None] * (dim - len(planned.tensors)))
        planned.tensors.append(item)
        planned.kept.append(None)
        planned.kept.extend([None] * (count - 1))
    return source + count


# --------------------------------------------------------------------------------------------------------- preparation


@dataclass(slots=True)
class _Forms:
    """The SSA operands of a plan, with all guards written."""

    tensor: mlir.Value
    steps: list[tuple[Step, list[mlir.Value]]]
    tensors: list[mlir.Value]


def _guard_in_range(rec: Recorder, tensor: Value, source: int, index: Value) -> None:
    builder = rec.builder
    size = rec.ssa(size_value(rec, tensor, source), "int")
    name = f"{rec.name_of(tensor)}.size({source})"
    if type(index) is Const:
        number: Any = index.obj
        low = builder.int(number) if number >= 0 else builder.int(-1 - number)
        rec.guard(builder.op("gt_int", size, low), True, "size", f"{name} > {number if number >= 0 else -1 - number}")
        return
    where = rec.ssa(index, "int")
    rec.guard(builder.op("lt_int", where, size), True, "size", f"{rec.name_of(index)} < {name}")
    rec.guard(builder.op("ge_int", where, rec.op("neg_int", size)), True, "size", f"{rec.name_of(index)} >= -{name}")


def _prepare(rec: Recorder, tensor: Value, planned: Indexing) -> _Forms:
    guard_environment(rec)
    form = rec.ssa(tensor, "tensor")
    guarded_rank(rec, tensor)
    builder, steps = rec.builder, []
    for step in planned.steps:
        values: list[mlir.Value] = [builder.int(step.dim)]
        if step.kind == "select":
            index = step.values[0]
            assert index is not None
            _guard_in_range(rec, tensor, step.source, index)
            values.append(rec.ssa(index, "int"))
        elif step.kind in ("slice", "whole"):
            values += _slice_forms(rec, step.values)
            if planned.elides:
                _guard_whole(rec, tensor, step)
        if step.kind != "whole":
            steps.append((step, values))
    tensors = []
    for item in planned.tensors:
        tensors.append(builder.none() if item is None else rec.ssa(item, "tensor"))
        if item is not None:  # how many dimensions it consumes, and that it is not read as a number
            guarded_rank(rec, item)
            guarded_dtype(rec, item)
    return _Forms(form, steps, tensors)


def _slice_forms(rec: Recorder, parts: tuple[Value | None, ...]) -> list[mlir.Value]:
    forms = []
    for part, absent in zip(parts, (0, _END, 1), strict=True):
        if part is not None and part.obj is None:
            rec.type_of(part)
            part = None
        if part is None:
            forms.append(rec.builder.int(absent))
        elif absent == 1:
            forms.append(rec.builder.int(rec.promote(part, "the step of a slice")))
        else:
            forms.append(rec.ssa(part, "int"))
    return forms


_OPERATORS = {"select": ("select", "int"), "slice": ("slice", "Tensor"), "unsqueeze": ("unsqueeze", "")}


def _supported(rec: Recorder, planned: Indexing, *more: tuple[str, str]) -> bool:
    used = {_OPERATORS[step.kind] for step in planned.steps if step.kind != "whole"} | set(more)
    return all(rec.services.supports_operator(*name) for name in used)


def _views(rec: Recorder, forms: _Forms) -> mlir.Value:
    current = forms.tensor
    for step, values in forms.steps:
        current = rec.builder.aten(*_OPERATORS[step.kind], [current, *values], ["tensor"])[0]
    return current


# --------------------------------------------------------------------------------------------------------------- read


def subscript(rec: Recorder, a: Value, index: Value) -> Answer:
    """`a[index]`"""
    tensor = rec.resolve(a)
    if not is_tensor(tensor) or not environment_allows(rec) or not _is_plain(tensor.obj):
        return NotModelled
    planned = plan_index(rec, tensor, index)
    if planned is None or not _supported(rec, planned, ("index", "Tensor") if planned.tensors else ("alias", "")):
        return NotModelled
    forms = _prepare(rec, tensor, planned)
    rec.effect()
    result = rec.execute(operator.getitem, tensor.obj, index.obj)
    view = _views(rec, forms)
    if forms.tensors:
        view = rec.builder.aten("index", "Tensor", [view, rec.builder.list(forms.tensors, "optional<tensor>")], ["tensor"])[0]
    elif not forms.steps:  # a fresh alias, also where every slice was one of everything
        view = rec.builder.aten("alias", "", [view], ["tensor"])[0]
    return rec.result(result, view)


# ------------------------------------------------------------------------------------------------------------ numbers


def _is_number_of_slice(value: Value) -> bool:
    """Whether a tensor as a bound of a slice stands for its only element."""
    obj: Any = value.obj
    return is_tensor(value) and ITEM_KINDS.get(obj.dtype) == "int" and obj.numel() == 1 and not obj.is_meta


def _is_number_of_index(value: Value) -> bool:
    """The same of a tensor as an index: other tensors select by the binding's `index`."""
    obj: Any = value.obj
    return is_tensor(value) and obj.dtype in _INDEX_DTYPES and obj.dim() == 0 and not obj.is_meta


def _tensors_of(rec: Recorder, index: Value) -> list[Value]:
    """The tensors in an index that stand for numbers, in the order in which they are read."""
    index = rec.resolve(index)
    if type(index) is Virtual and index.kind == "tuple":
        return [tensor for item in index.items for tensor in _tensors_of(rec, item)]
    if type(index) is Virtual and index.kind == "slice":
        parts = [rec.resolve(part) for part in index.items]
        return [part for part in (parts[-1], *parts[:-1]) if _is_number_of_slice(part)]
    return [index] if _is_number_of_index(index) else []


def _replaced(rec: Recorder, index: Value, numbers: dict[int, Value]) -> Value:
    index = rec.resolve(index)
    if id(index) in numbers:
        return numbers[id(index)]
    if type(index) is Virtual and index.kind == "tuple":
        return rec.virtual_tuple([_replaced(rec, item, numbers) for item in index.items])
    if type(index) is Virtual and index.kind == "slice":
        parts = [_replaced(rec, part, numbers) for part in index.items]
        return rec.virtual(slice(*[part.obj for part in parts]), "slice", parts)
    return index


def index_numbers(rec: Recorder, a: Value, index: Value) -> Any:
    """The index of `a[index]` with numbers in the place of the tensors that the binding reads. The caller writes a state behind that."""
    tensor = rec.resolve(a)
    if rec.pure_base or not is_tensor(tensor) or not environment_allows(rec) or not _is_plain(tensor.obj):
        return NotModelled
    found = {id(value): value for value in _tensors_of(rec, index)}
    if not found or not rec.services.supports_operator("item", ""):
        return NotModelled
    guard_environment(rec)
    for value in found.values():
        guarded_dtype(rec, value)
        guarded_rank(rec, value)
        if value.obj.dim():  # type: ignore[attr-defined]
            cond = rec.builder.op("eq_int", rec.builder.op("numel", rec.ssa(value, "tensor")), rec.builder.int(1))
            rec.guard(cond, True, "size", f"{rec.name_of(value)}.numel() == 1")
    numbers = {}
    for key, value in found.items():
        numbers[key] = read_item(rec, value)
        rec.executed = 0  # reading it once more changes nothing
    return _replaced(rec, index, numbers)


# -------------------------------------------------------------------------------------------------------------- store


def store_subscript(rec: Recorder, a: Value, index: Value, item: Value) -> Any:
    """`a[index] = item`"""
    tensor, item = rec.resolve(a), rec.resolve(item)
    if not is_tensor(tensor) or not environment_allows(rec) or not _is_plain(tensor.obj):
        return NotModelled
    if not is_tensor(item) and not (_is_number(item) and _makes_numbers(rec, tensor)):
        return NotModelled
    planned = plan_index(rec, tensor, index, store=True)
    if planned is None:
        return NotModelled
    store = _store_tensors if planned.tensors else _store_number if not is_tensor(item) else _store_copy
    return store(rec, tensor, index, item, planned)


def _is_number(item: Value) -> bool:
    return type(item.obj) in (float, bool) or _is_int(item)


def _makes_numbers(rec: Recorder, tensor: Value) -> bool:
    """Whether what the binding does with a number stored to this tensor is known: it makes a tensor of it on the CPU."""
    obj: Any = tensor.obj
    return obj.device.type in ("cpu", "cuda") and obj.dtype in schema.SCALAR_TYPE and supports_numbers(rec)


def _guarded_number(rec: Recorder, tensor: Value, item: Value) -> tuple[mlir.Value, int]:
    """A number that is stored (a bool counts as an int), and the ScalarType of the tensor to be made of it."""
    dtype = guarded_dtype(rec, tensor)
    assert dtype is not None
    guarded_device(rec, tensor)
    return _number(rec, item), schema.SCALAR_TYPE[dtype]


def _make_tensor(rec: Recorder, number: tuple[mlir.Value, int]) -> mlir.Value:
    """What `valueToTensor` of the binding makes."""
    made = rec.builder.op("number_tensor", number[0], dtype=number[1])
    return rec.builder.aten("lift_fresh", "", [made], ["tensor"])[0]


def _number(rec: Recorder, item: Value) -> mlir.Value:
    kind = rec.number_kind(item)
    assert kind is not None
    return rec.ssa(item, "int" if kind == "bool" else kind) if not (type(item) is Const and kind == "bool") \
        else rec.builder.int(int(item.obj))  # type: ignore[call-overload]


def _store_number(rec: Recorder, tensor: Value, index: Value, item: Value, planned: Indexing) -> Any:
    """A tensor of no dimensions is made first; it is copied to a view of none, and fills any other."""
    if not _supported(rec, planned, ("fill_", "Tensor"), ("copy_", ""), ("lift_fresh", "")):
        return NotModelled
    forms, number = _prepare(rec, tensor, planned), _guarded_number(rec, tensor, item)
    rec.effect()
    rec.execute(operator.setitem, tensor.obj, index.obj, item.obj)
    value, builder = _make_tensor(rec, number), rec.builder
    view = _views(rec, forms)
    if planned.kept:
        builder.aten("fill_", "Tensor", [view, value], ["tensor"])
    else:
        builder.aten("copy_", "", [view, value, builder.bool(False)], ["tensor"])
    return None


def _store_copy(rec: Recorder, tensor: Value, index: Value, item: Value, planned: Indexing) -> Any:
    """`copy_to` of ATen's indexing: copy_ where the sizes are equal, fill_ from a number on the CPU, else view, expand and copy_.

    Leading sizes of 1 go in that view."""
    source: Any = item.obj
    rank = len(planned.kept)
    if source.dim() > rank or not _supported(rec, planned, ("copy_", ""), ("fill_", "Tensor"), ("expand", ""), ("view", "")):
        return NotModelled
    forms, value = _prepare(rec, tensor, planned), rec.ssa(item, "tensor")
    guarded_rank(rec, item)
    fill = source.dim() == 0 and rank > 0 and source.device.type == "cpu"
    if source.dim() == 0 and rank > 0 and guarded_device(rec, item) is None:
        return NotModelled
    equal = not fill and _guard_equal_sizes(rec, tensor, item, planned)
    ones = 0 if fill or equal else _guarded_leading_ones(rec, item)
    rec.effect()
    rec.execute(operator.setitem, tensor.obj, index.obj, source)
    view, builder = _views(rec, forms), rec.builder
    if fill:
        builder.aten("fill_", "Tensor", [view, value], ["tensor"])
        return None
    if not equal:
        own = builder.list([builder.op("size", value, dim=d) for d in range(ones, source.dim())], "int")
        value = builder.aten("view", "", [value, own], ["tensor"])[0]
        sizes = builder.list([builder.op("size", view, dim=d) for d in range(rank)], "int")
        value = builder.aten("expand", "", [value, sizes, builder.bool(False)], ["tensor"])[0]
    builder.aten("copy_", "", [view, value, builder.bool(False)], ["tensor"])
    return None


def _guarded_leading_ones(rec: Recorder, item: Value) -> int:
    """The number of leading sizes that are 1."""
    sizes: Any = item.obj.size()  # type: ignore[attr-defined]
    for dim, number in enumerate(sizes):
        size = rec.ssa(size_value(rec, item, dim), "int")
        text = f"{rec.name_of(item)}.size({dim}) {'==' if number == 1 else '!='} 1"
        rec.guard(rec.builder.op("eq_int", size, rec.builder.int(1)), number == 1, "size", text)
        if number != 1:
            return dim
    return len(sizes)


def _extent(tensor: Value, kept: int | Step) -> int:
    """The size of a dimension of the view."""
    obj: Any = tensor.obj
    if isinstance(kept, int):
        return obj.size(kept)  # type: ignore[no-any-return]
    if kept.kind == "unsqueeze":
        return 1
    start, stop, step = (None if part is None else part.obj for part in kept.values)
    return len(range(*slice(start, stop, step).indices(obj.size(kept.source))))


def _bound(rec: Recorder, part: Value | None, absent: mlir.Value, size: mlir.Value) -> mlir.Value:
    """A bound of a slice, within the dimension."""
    if part is None or part.obj is None:
        return absent
    form, number = rec.ssa(part, "int"), part.obj
    negative: bool = number < 0  # type: ignore[operator]
    if type(rec.resolve(part)) is Traced:
        rec.guard(rec.builder.op("lt_int", form, rec.builder.int(0)), negative, "branch", f"{rec.name_of(part)} < 0")
    return rec.op("max_int", rec.op("add_int", size, form), rec.builder.int(0)) if negative else rec.op("min_int", size, form)


def _extent_form(rec: Recorder, tensor: Value, kept: int | Step) -> mlir.Value:
    """`_extent` when the trace runs; the guards of `_prepare` have been written."""
    builder = rec.builder
    if isinstance(kept, int):
        return rec.ssa(size_value(rec, tensor, kept), "int")
    if kept.kind == "unsqueeze":
        return builder.int(1)
    size = rec.ssa(size_value(rec, tensor, kept.source), "int")
    start, stop, step = kept.values
    first, last = _bound(rec, start, builder.int(0), size), _bound(rec, stop, size, size)
    length, stride = rec.op("max_int", rec.op("sub_int", last, first), builder.int(0)), _number_of(step, 1)
    if stride == 1:
        return length
    return rec.op("floordiv_int", rec.op("add_int", length, builder.int(stride - 1)), builder.int(stride))


def _differing(tensor: Value, item: Value, planned: Indexing) -> int | None:
    """The first dimension in which a value of the view's rank has another size; None: there is none."""
    sizes: Any = item.obj.size()  # type: ignore[attr-defined]
    for dim, kept in enumerate(planned.kept):
        assert kept is not None
        if sizes[dim] != _extent(tensor, kept):
            return dim
    return None


def _guard_equal_sizes(rec: Recorder, tensor: Value, item: Value, planned: Indexing) -> bool:
    """Guard whether the value has the sizes of the view."""
    if item.obj.dim() != len(planned.kept):  # type: ignore[attr-defined]
        return False
    other = _differing(tensor, item, planned)
    for dim, kept in enumerate(planned.kept):
        assert kept is not None
        if other is None or dim == other:
            mine, theirs = rec.ssa(size_value(rec, item, dim), "int"), _extent_form(rec, tensor, kept)
            text = f"{rec.name_of(item)}.size({dim}) {'==' if other is None else '!='} dimension {dim} of {rec.name_of(tensor)}[...]"
            rec.guard(rec.builder.op("eq_int", mine, theirs), other is None, "size", text)
    return other is None


def _store_tensors(rec: Recorder, tensor: Value, index: Value, item: Value, planned: Indexing) -> Any:
    """`index_put_`; a value whose first size is 1 is reshaped by the binding and is left to it."""
    source: Any = item.obj
    if is_tensor(item) and source.dim() > 0 and source.size(0) == 1:
        return NotModelled
    if not _supported(rec, planned, ("index_put_", ""), ("lift_fresh", "")):
        return NotModelled
    forms, builder = _prepare(rec, tensor, planned), rec.builder
    number = None if is_tensor(item) else _guarded_number(rec, tensor, item)
    if is_tensor(item):
        value = rec.ssa(item, "tensor")
        if guarded_rank(rec, item) > 0:
            _guarded_leading_ones(rec, item)
    rec.effect()
    rec.execute(operator.setitem, tensor.obj, index.obj, source)
    if number is not None:
        value = _make_tensor(rec, number)
    view = _views(rec, forms)
    indices = builder.list(forms.tensors, "optional<tensor>")
    builder.aten("index_put_", "", [view, indices, value, builder.bool(False)], ["tensor"])
    return None


def register(registry: Registry) -> None:
    """The hooks."""
    registry.hook("subscript", subscript)
    registry.hook("store_subscript", store_subscript)
    registry.hook("index_numbers", index_numbers)


__all__ = ["Indexing", "Step", "plan_index", "register", "store_subscript", "subscript"]
