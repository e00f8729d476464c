"""What Python reads from a tensor: shape, dtype, device and other metadata, items, truth; and the hand-written methods.

Owns attributes and those methods of Tensor whose binding is not generated (`size`, `stride`, `to`, `item`, …). What must hold:
sizes and strides stay run-time values (only the number of dimensions is guarded, once); dtype and device are guarded and then
constants; a fact is read again after whatever may have changed metadata (`rec.epoch`).

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend import objects
from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.sequences import virtual_sequence
from trident.frontend.models.torch_calls import (
    call_overload,
    emit,
    environment_allows,
    guard_count,
    guard_environment,
    operands,
    plan_overload,
)
from trident.frontend.models.torch_operators import is_tensor
from trident.frontend.values import Const, Value
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

# c10::DeviceType. On these, the index says nothing except on cuda.
DEVICE_TYPE: dict[str, int] = {"cpu": 0, "cuda": 1, "meta": 14}


# -------------------------------------------------------------------------------------------------------------- facts


def _facts(rec: Recorder) -> dict[tuple[Any, ...], Any]:
    """What is known of tensors since the last change of metadata; keys start with the tensor's SSA value."""
    epoch, facts = rec.__dict__.get("_tensor_facts", (-1, {}))
    if epoch != rec.epoch:
        facts = {}
        rec.__dict__["_tensor_facts"] = (rec.epoch, facts)
    return facts


def guarded_rank(rec: Recorder, value: Value) -> int:
    """The number of dimensions as a constant."""
    tensor = rec.ssa(value, "tensor")
    facts, rank = _facts(rec), value.obj.dim()  # type: ignore[attr-defined]
    if (tensor, "rank") not in facts:
        cond = rec.builder.op("eq_int", rec.builder.op("rank", tensor), rec.builder.int(rank))
        rec.guard(cond, True, "rank", f"{rec.name_of(value)}.dim() == {rank}")
        facts[tensor, "rank"] = rank
    return rank


def _dim_value(rec: Recorder, value: Value, op: str, dim: int, concrete: int) -> Value:
    tensor = rec.ssa(value, "tensor")
    facts = _facts(rec)
    if (tensor, op, dim) not in facts:
        facts[tensor, op, dim] = rec.result(concrete, rec.builder.op(op, tensor, dim=dim), f"{rec.name_of(value)}.{op}({dim})")
    return facts[tensor, op, dim]


def size_value(rec: Recorder, value: Value, dim: int) -> Value:
    """Size of dimension `dim`, which is in range."""
    guarded_rank(rec, value)
    return _dim_value(rec, value, "size", dim, value.obj.size(dim))  # type: ignore[attr-defined]


def stride_value(rec: Recorder, value: Value, dim: int) -> Value:
    """Stride of dimension `dim`, which is in range."""
    guarded_rank(rec, value)
    return _dim_value(rec, value, "stride", dim, value.obj.stride(dim))  # type: ignore[attr-defined]


def guarded_dtype(rec: Recorder, value: Value) -> torch.dtype | None:
    """The dtype as a constant; None for one that has no number here."""
    dtype: torch.dtype = value.obj.dtype  # type: ignore[attr-defined]
    if dtype not in schema.SCALAR_TYPE:
        return None
    tensor = rec.ssa(value, "tensor")
    facts = _facts(rec)
    if (tensor, "dtype") not in facts:
        cond = rec.builder.op("eq_int", rec.builder.op("dtype", tensor), rec.builder.int(schema.SCALAR_TYPE[dtype]))
        rec.guard(cond, True, "dtype", f"{rec.name_of(value)}.dtype == {dtype}")
        facts[tensor, "dtype"] = dtype
    return dtype


def guarded_device(rec: Recorder, value: Value) -> torch.device | None:
    """The device as a constant; None for one that is not known here."""
    device: torch.device = value.obj.device  # type: ignore[attr-defined]
    if device.type not in DEVICE_TYPE:
        return None
    tensor = rec.ssa(value, "tensor")
    facts, builder, text = _facts(rec), rec.builder, f"{rec.name_of(value)}.device == {device}"
    if (tensor, "device") not in facts:
        cond = builder.op("eq_int", builder.op("device_type", tensor), builder.int(DEVICE_TYPE[device.type]))
        rec.guard(cond, True, "device", text)
        if device.type == "cuda":
            cond = builder.op("eq_int", builder.op("device_index", tensor), builder.int(device.index))
            rec.guard(cond, True, "device", text)
        facts[tensor, "device"] = device
    return device


# --------------------------------------------------------------------------------------------------------- attributes


def _shape(rec: Recorder, value: Value) -> Answer:
    return virtual_sequence(rec, torch.Size, [size_value(rec, value, d) for d in range(guarded_rank(rec, value))])


def _strides(rec: Recorder, value: Value) -> Answer:
    return rec.virtual_tuple([stride_value(rec, value, d) for d in range(guarded_rank(rec, value))])


def _rank(rec: Recorder, value: Value) -> Answer:
    tensor = rec.ssa(value, "tensor")
    rank: int = value.obj.dim()  # type: ignore[attr-defined]
    if (tensor, "rank") in _facts(rec):
        return Const(rank)
    return rec.result(rank, rec.builder.op("rank", tensor), f"{rec.name_of(value)}.dim()")


def _dtype(rec: Recorder, value: Value) -> Answer:
    dtype = guarded_dtype(rec, value)
    return NotModelled if dtype is None else Const(dtype, f"{rec.name_of(value)}.dtype")


def _device(rec: Recorder, value: Value) -> Answer:
    device = guarded_device(rec, value)
    return NotModelled if device is None else Const(device, f"{rec.name_of(value)}.device")


def _from_dtype(read: Callable[[Any], object], rec: Recorder, value: Value) -> Answer:
    return NotModelled if guarded_dtype(rec, value) is None else Const(read(value.obj))


def _from_device(read: Callable[[Any], object], rec: Recorder, value: Value) -> Answer:
    return NotModelled if guarded_device(rec, value) is None else Const(read(value.obj))


def _read(op: str, read: Callable[[Any], object], rec: Recorder, value: Value) -> Answer:
    """A run-time fact that is an op of its own."""
    return rec.result(read(value.obj), rec.builder.op(op, rec.ssa(value, "tensor")), f"{rec.name_of(value)}.{op}")


def _operator(name: str, attribute: str, rec: Recorder, value: Value) -> Answer:
    """An attribute that is an ATen operator."""
    return call_overload(rec, name, "", lambda tensor: getattr(tensor, attribute), [value])


_ATTRIBUTES: dict[str, Callable[[Recorder, Value], Answer]] = {
    "shape": _shape,
    "ndim": _rank,
    "dtype": _dtype,
    "device": _device,
    "itemsize": partial(_from_dtype, lambda t: t.itemsize),
    "requires_grad": partial(_read, "requires_grad", lambda t: t.requires_grad),
    **{name: partial(_from_device, attrgetter(name)) for name in ("is_cuda", "is_cpu", "is_meta")},
    **{attribute: partial(_operator, name, attribute) for attribute, name in
       (("T", "numpy_T"), ("mT", "mT"), ("H", "matrix_H"), ("mH", "mH"), ("real", "real"), ("imag", "imag"))},
}  # fmt: skip


def attribute(rec: Recorder, a: Value, name: str) -> Any:
    """Everything that Tensor's type defines; what else a tensor has (instance attributes) is read when the trace runs."""
    value = rec.resolve(a)
    if not is_tensor(value):
        return NotModelled
    cls = rec.type_of(value)
    found = rec.read_type(cls, name)
    if is_a(found, types.FunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        if name in _instance_dict(value.obj):
            return objects.Access("opaque", reason="an attribute of this tensor hides that of its class")
        return objects.Access("method", Const(found, f"{cls.__name__}.{name}"), value)
    if type(found) is types.GetSetDescriptorType and found.__objclass__ is torch._C.TensorBase:
        if name in _ATTRIBUTES and environment_allows(rec):
            guard_environment(rec)
            answer = _ATTRIBUTES[name](rec, value)
            if answer is not NotModelled:
                return answer
        return objects.Access("value", rec.write_call(getattr, [value, Const(name)], f"reads Tensor.{name}"))
    if name == "__class__":
        return Const(cls)
    reason = "an instance attribute of a tensor" if found is NULL else f"descriptor {type(found).__name__}"
    return objects.Access("opaque", reason=reason)


def _instance_dict(obj: object) -> dict[str, object]:
    return getattr(obj, "__dict__", {})


# ------------------------------------------------------------------------------------------------------------ methods

Method = Callable[["Recorder", Value, list[Value], dict[str, Value]], Answer]


def _named(args: list[Value], kwargs: dict[str, Value], *names: str) -> dict[str, Value] | None:
    """Arguments by name; None if they do not bind."""
    if len(args) > len(names) or any(key not in names[len(args):] for key in kwargs):
        return None
    return {**dict(zip(names, args, strict=False)), **kwargs}


def _no_arguments(model: Callable[[Recorder, Value], Answer]) -> Method:
    def method(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        return NotModelled if args or kwargs else model(rec, value)

    return method


def _of_dims(whole: Callable[[Recorder, Value], Answer], single: Callable[[Recorder, Value, int], Value]) -> Method:
    """`size` and `stride`: of all dimensions, or of one."""

    def method(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        named = _named(args, kwargs, "dim")
        if named is None:
            return NotModelled
        if "dim" not in named or named["dim"].obj is None:
            return whole(rec, value) if "dim" not in named else NotModelled
        rank: int = value.obj.dim()  # type: ignore[attr-defined]
        dim = named["dim"].obj
        if type(dim) is not int or not -rank <= dim < rank:
            return NotModelled  # raises
        rec.promote(named["dim"], "a dimension")
        return single(rec, value, dim % guarded_rank(rec, value))

    return method


ITEM_KINDS: dict[torch.dtype, str] = {
    torch.bool: "bool",
    **dict.fromkeys((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32), "int"),
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32, torch.float64), "float"),
}


def _item(rec: Recorder, value: Value) -> Answer:
    kind = ITEM_KINDS.get(value.obj.dtype)  # type: ignore[attr-defined]
    if kind is None or not rec.services.supports_operator("item", ""):
        return NotModelled
    guarded_dtype(rec, value)
    return read_item(rec, value)


def read_item(rec: Recorder, value: Value) -> Value:
    """The only element of a tensor whose dtype is guarded."""
    tensor = rec.ssa(value, "tensor")
    rec.effect()
    obj = rec.execute(torch.Tensor.item, value.obj)
    kind = ITEM_KINDS[value.obj.dtype]  # type: ignore[attr-defined]
    return rec.result(obj, rec.builder.aten("item", "", [tensor], [kind])[0], f"{rec.name_of(value)}.item()")


def _as_number(cls: type, otherwise: Callable[..., Answer] | None) -> Callable[[Recorder, list[Value], dict[str, Value]], Answer]:
    """`int(tensor)`, `float(tensor)`: of one element and where the number needs no conversion."""

    def model(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        value = rec.resolve(args[0]) if args else None
        if value is None or not is_tensor(value):
            return NotModelled if otherwise is None else otherwise(rec, args, kwargs)
        tensor: Any = value.obj
        if len(args) != 1 or kwargs or not environment_allows(rec):
            return NotModelled
        if ITEM_KINDS.get(tensor.dtype) != cls.__name__ or tensor.numel() != 1 or tensor.requires_grad:
            return NotModelled  # (requires_grad: the binding warns)
        guard_environment(rec)
        rec.guard(rec.builder.op("requires_grad", rec.ssa(value, "tensor")), False, "metadata", f"not {rec.name_of(value)}.requires_grad")
        cond = rec.builder.op("eq_int", rec.builder.op("numel", rec.ssa(value, "tensor")), rec.builder.int(1))
        rec.guard(cond, True, "size", f"{rec.name_of(value)}.numel() == 1")
        return _item(rec, value)

    return model


def _to(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`x.to(...)`: the parser's three signatures."""
    first = args[0].obj if args else None
    if args and is_a(first, torch.Tensor) or "other" in kwargs:
        named = _named(args, kwargs, "other", "non_blocking", "copy", "memory_format")
    elif args and is_a(first, torch.dtype | type):
        named = _named(args, kwargs, "dtype", "non_blocking", "copy", "memory_format")
    else:
        named = _named(args, kwargs, "device", "dtype", "non_blocking", "copy", "memory_format")
    if named is None or len(args) > (4 if named.keys() & {"device"} else 3):
        return NotModelled
    given = {key: item for key, item in named.items() if item.obj is not None or key in ("non_blocking", "copy")}
    for item in named.values():
        if item.obj is None:
            rec.type_of(item)
    return _convert(rec, value, given, lambda *_: value.obj.to(*[a.obj for a in args], **{k: v.obj for k, v in kwargs.items()}))  # type: ignore[attr-defined]


def _convert(rec: Recorder, value: Value, given: dict[str, Value], execute: Callable[..., object]) -> Answer:
    """The overload of `to` for what is given, as the binding chooses it."""
    overload: str
    keys: tuple[str, ...]
    if "other" in given:
        overload, keys = "other", ("other", "non_blocking", "copy", "memory_format")
    elif "dtype" in given and "device" in given:
        overload, keys = "device", ("device", "dtype", "non_blocking", "copy", "memory_format")
    elif "dtype" in given:
        overload, keys = "dtype", ("dtype", "non_blocking", "copy", "memory_format")
    elif "device" in given:  # the binding passes the dtype of the tensor
        dtype = guarded_dtype(rec, value)
        if dtype is None:
            return NotModelled
        given = {**given, "dtype": Const(dtype)}
        overload, keys = "device", ("device", "dtype", "non_blocking", "copy", "memory_format")
    else:
        overload, keys = "dtype_layout", ("non_blocking", "copy", "memory_format")
    if any(key not in keys for key in given):
        return NotModelled
    return call_overload(rec, "to", overload, lambda *a, **k: execute(), [value], given)


def _cast(name: str, dtype: torch.dtype) -> Method:
    """`x.float()` and the like."""

    def method(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        named = _named(args, kwargs, "memory_format")
        if named is None or args:
            return NotModelled
        given = {"dtype": Const(dtype), **{k: v for k, v in named.items() if v.obj is not None}}
        concrete = {key: item.obj for key, item in kwargs.items()}
        return _convert(rec, value, given, lambda: getattr(value.obj, name)(**concrete))  # type: ignore[arg-type]

    return method


def _type(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`x.type(dtype)`: `x.to(dtype)`, which is x itself where it has that dtype."""
    named = _named(args, kwargs, "dtype", "non_blocking")
    if named is None or type(named.get("dtype", Const(None)).obj) is not torch.dtype:
        return NotModelled
    concrete = {key: item.obj for key, item in named.items()}
    return _convert(rec, value, named, lambda *_: value.obj.type(**concrete))  # type: ignore[attr-defined]


def _cpu(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if args or kwargs:
        return NotModelled
    return _convert(rec, value, {"device": Const(torch.device("cpu"))}, lambda: value.obj.cpu())  # type: ignore[attr-defined]


def _schema_method(name: str, *names: str) -> Method:
    """A hand-written binding whose arguments are those of the one overload."""

    def method(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        named = _named(args, kwargs, *names)
        if named is None:
            return NotModelled
        concrete = {key: item.obj for key, item in named.items()}
        return call_overload(rec, name, "", lambda *a, **k: getattr(value.obj, name)(**concrete), [value], named)

    return method


def _copy(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    named = _named(args, kwargs, "other", "non_blocking")
    if named is None or "other" not in named or not is_tensor(named["other"]):
        return NotModelled
    given = {"src" if key == "other" else key: item for key, item in named.items()}
    concrete = {key: item.obj for key, item in named.items()}
    return call_overload(rec, "copy_", "", lambda *a, **k: value.obj.copy_(**concrete), [value], given)  # type: ignore[attr-defined]


def _nonzero(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if args or any(key != "as_tuple" for key in kwargs):
        return NotModelled
    as_tuple = kwargs.get("as_tuple", Const(False))
    if type(as_tuple.obj) is not bool:
        return NotModelled
    name = "nonzero_numpy" if rec.promote(as_tuple, "as_tuple") else "nonzero"
    return call_overload(rec, name, "", lambda tensor: torch.nonzero(tensor, as_tuple=as_tuple.obj), [value])  # type: ignore[call-overload]


def _is_contiguous(rec: Recorder, value: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if args or kwargs:
        return NotModelled
    return _read("is_contiguous", lambda t: t.is_contiguous(), rec, value)


_CASTS: dict[str, torch.dtype] = {
    "float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16, "int": torch.int32,
    "long": torch.int64, "short": torch.int16, "char": torch.int8, "byte": torch.uint8, "bool": torch.bool,
    "cfloat": torch.complex64, "cdouble": torch.complex128,
}  # fmt: skip

# Methods of TensorBase, and functions of torch that take a tensor first, whose bindings are written by hand.
_METHODS: dict[str, Method] = {
    "size": _of_dims(_shape, size_value),
    "stride": _of_dims(_strides, stride_value),
    "dim": _no_arguments(_rank),
    "ndimension": _no_arguments(_rank),
    "numel": _no_arguments(partial(_read, "numel", lambda t: t.numel())),
    "nelement": _no_arguments(partial(_read, "numel", lambda t: t.numel())),
    "storage_offset": _no_arguments(partial(_read, "storage_offset", lambda t: t.storage_offset())),
    "data_ptr": _no_arguments(partial(_read, "data_ptr", lambda t: t.data_ptr())),
    "get_device": _no_arguments(partial(_read, "device_index", lambda t: t.get_device())),
    "is_contiguous": _is_contiguous,
    "element_size": _no_arguments(partial(_from_dtype, lambda t: t.element_size())),
    "is_floating_point": _no_arguments(partial(_from_dtype, lambda t: t.is_floating_point())),
    "is_complex": _no_arguments(partial(_from_dtype, lambda t: t.is_complex())),
    "is_signed": _no_arguments(partial(_from_dtype, lambda t: t.is_signed())),
    "item": _no_arguments(_item),
    "to": _to,
    "cpu": _cpu,
    "type": _type,
    "contiguous": _schema_method("contiguous", "memory_format"),
    "copy_": _copy,
    "nonzero": _nonzero,
    **{name: _cast(name, dtype) for name, dtype in _CASTS.items()},
}
_FUNCTIONS = ("numel", "get_device", "nonzero", "is_floating_point", "is_complex", "is_signed")


def _model(method: Method) -> Callable[[Recorder, list[Value], dict[str, Value]], Answer]:
    def model(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        if args:
            value, rest = args[0], args[1:]
        elif "input" in kwargs:
            kwargs = dict(kwargs)
            value, rest = kwargs.pop("input"), []
        else:
            return NotModelled
        value = rec.resolve(value)
        if not is_tensor(value) or not environment_allows(rec):
            return NotModelled
        guard_environment(rec)
        return method(rec, value, rest, kwargs)

    return model


def _holds_numbers(rec: Recorder, value: Value) -> bool:
    """Whether a value is a number, or a list or tuple of such, as far as its exact types: a tensor is made of it in C++ alone."""
    value = rec.resolve(value)
    if type(value.obj) in (list, tuple):
        items = rec.known_items(value)
        return items is not None and all(_holds_numbers(rec, item) for item in items)
    return type(value.obj) in (int, float, bool) and rec.number_kind(value) is not None


def _tensor(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`torch.tensor(numbers, dtype=…, device=…)`"""
    if len(args) != 1 or set(kwargs) - {"dtype", "device", "requires_grad"} or not environment_allows(rec):
        return NotModelled
    if not all(value.obj is None or type(value.obj) in (torch.dtype, torch.device, str, type, bool) for value in kwargs.values()):
        return NotModelled
    if not _holds_numbers(rec, args[0]):
        return NotModelled
    guard_environment(rec)
    made = rec.write_call(torch.tensor, args, "makes a tensor of numbers", kwargs)
    rec.mark_type(made, torch.Tensor)
    return made


# -------------------------------------------------------------------------------------------------------------- hooks


def truth(rec: Recorder, a: Value) -> Answer:
    """`bool(tensor)`"""
    value = rec.resolve(a)
    return call_overload(rec, "is_nonzero", "", bool, [value]) if is_tensor(value) else NotModelled


def length(rec: Recorder, a: Value) -> Answer:
    """`len(tensor)`"""
    value = rec.resolve(a)
    if not is_tensor(value) or not environment_allows(rec) or value.obj.dim() == 0:  # type: ignore[attr-defined]
        return NotModelled
    guard_environment(rec)
    return size_value(rec, value, 0)


def iterate(rec: Recorder, a: Value) -> Any:
    """`iter(tensor)` is `iter(tensor.unbind(0))`.

    Making the views is not counted as the execution of the instruction: whoever wants the items may still execute it as a whole.
    """
    value = rec.resolve(a)
    if not is_tensor(value) or not environment_allows(rec) or value.obj.dim() == 0:  # type: ignore[attr-defined]
        return NotModelled
    if rec.effect_serial == rec.serial:  # no guard may be written any more
        rec.abort("unsupported", "iteration over several tensors in one instruction")
    planned = plan_overload(rec, "unbind", "int", [value, Const(0)])
    if planned is None:
        return NotModelled
    forms = operands(rec, planned)
    guard_count(rec, planned)
    rec.effect()
    return emit(rec, planned, forms, value.obj.unbind(0)).items  # type: ignore[attr-defined]


def store_attribute(rec: Recorder, a: Value, name: str, item: Value) -> Any:
    """`tensor.name = item` (grad, data, requires_grad, …): whatever tensor it is, without looking into it. What the class knows nothing
    of goes into the instance dict."""
    value = rec.resolve(a)
    if not is_tensor(value):
        return NotModelled
    cls = rec.type_of(value)
    if rec.read_type(cls, name) is NULL and rec.read_type(cls, "__setattr__") is object.__setattr__:
        rec.write_call(setattr, [value, Const(name), item], f"store to Tensor.{name}")
        rec.changed_anything()  # it may be one of the constants
        return None
    rec.opaque(Const(setattr), [value, Const(name), item], {}, f"store to Tensor.{name}")
    return None


def register(registry: Registry) -> None:
    """The hooks and methods above."""
    registry.tensor_types.add(torch.Tensor)
    registry.hook("store_attribute", store_attribute)
    base = torch._C.TensorBase
    for name, method in _METHODS.items():
        registry.function(base.__dict__[name], _model(method))
    for cls in (int, float):
        registry.function(cls, _as_number(cls, registry.find(cls)))
    registry.function(torch.tensor, _tensor)
    for name in _FUNCTIONS:
        registry.function(getattr(torch, name), _model(_METHODS[name]))
    registry.hook("attribute", attribute)
    registry.hook("truth", truth)
    registry.hook("length", length)
    registry.hook("iterate", iterate)


__all__ = ["ITEM_KINDS", "attribute", "guarded_device", "guarded_dtype", "guarded_rank", "read_item", "register", "size_value",
           "stride_value"]
