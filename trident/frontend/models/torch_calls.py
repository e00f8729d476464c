"""Calls of ATen operators through torch's Python bindings: bind, guard, execute, emit.

Owns the generic model of `torch.*`, `Tensor.*`, `torch._C._nn.*` (and `_linalg`, `_fft`, `_special`) and `torch.ops.aten.*`. What
must hold: the whole decision is made from `torch_schema.bind` and `lowerable` before anything is guarded; guards precede the
execution; the real callable is executed exactly once; the operator emitted is the one that this execution dispatched.

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch_mlir import ir as mlir

from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.sequences import virtual_sequence
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

# Operators that can hand back the very tensor that they were given, so that the class of the result is that of the argument.
MAY_RETURN_ARGUMENT: frozenset[str] = frozenset({
    "_conj", "_conj_physical", "adjoint", "alpha_dropout", "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_to", "cartesian_prod",
    "chain_matmul", "coalesce", "conj", "conj_physical", "contiguous", "dequantize", "dropout", "expand_as", "feature_alpha_dropout",
    "feature_dropout", "fix", "flatten", "lift", "lift_fresh", "linalg_multi_dot", "mT", "matrix_H", "moveaxis", "movedim",
    "nan_to_num", "native_dropout", "numpy_T", "pad", "pin_memory", "positive", "ravel", "real", "repeat_interleave", "reshape",
    "resolve_conj", "resolve_neg", "rot90", "rrelu", "squeeze", "sum_to_size", "tile", "to", "to_dense", "type_as", "unflatten",
    "view_as_real",
})  # fmt: skip

# In-place operators that change sizes or strides.
CHANGES_METADATA: frozenset[str] = frozenset({
    "resize_", "resize_as_", "set_", "squeeze_", "unsqueeze_", "t_", "transpose_", "swapdims_", "swapaxes_", "as_strided_",
    "resize_as_sparse_", "sparse_resize_", "sparse_resize_and_clear_", "detach_", "rename_", "swap",
})  # fmt: skip

# Names whose binding is hand-written in C++ and does something else than the operator of that name: modelled elsewhere or opaque.
_HAND_WRITTEN: frozenset[str] = frozenset({
    "contiguous", "copy_", "dim", "get_device", "is_complex", "is_contiguous", "is_floating_point", "is_inference", "is_signed", "item",
    "nonzero", "numel", "range", "requires_grad_", "set_", "size", "sparse_bsc_tensor", "sparse_bsr_tensor",
    "sparse_compressed_tensor", "sparse_coo_tensor", "sparse_csc_tensor", "sparse_csr_tensor", "storage_offset", "stride", "to",
})  # fmt: skip

_PROMOTED = frozenset({"ScalarType", "Layout", "MemoryFormat", "Device", "str", "Generator"})
SINGLETONS = (torch.dtype, torch.layout, torch.memory_format)
_WRAPPED = "trident::wrapped_number"


@dataclass(frozen=True, slots=True)
class Plan:
    """A call that can be written: `values` are the operands in schema order, absent ones as constants of their default."""

    overload: schema.Overload
    values: tuple[Value, ...]
    broadcast: tuple[bool, ...]


# ----------------------------------------------------------------------------------------------------------- planning


def _is_number(obj: object) -> bool:
    return type(obj) in (int, float, bool)


def supports_numbers(rec: Recorder) -> bool:
    """Whether the lowering can make tensors of numbers as the bindings do."""
    return rec.services.supports_operator(_WRAPPED, "")


def _fits(obj: object) -> bool:
    return type(obj) is not int or -(2**63) <= obj < 2**63


def _lowerable_item(param: schema.Param, obj: object) -> bool:
    match param.base:
        case "Tensor":
            return type(obj) in schema.TENSOR_TYPES or (_is_number(obj) and _fits(obj))
        case "Scalar" | "int" | "float" | "bool":
            if param.base == "float" and type(obj) is int:
                return abs(obj) <= 2**53  # exact as a double
            return type(obj) in (int, float, bool) and _fits(obj)
        case "ScalarType":
            return obj in schema.PYTHON_DTYPES or obj in schema.SCALAR_TYPE or type(obj) is int
        case "Layout":
            return obj in schema.LAYOUT
        case "MemoryFormat":
            return type(obj) is int or obj in schema.MEMORY_FORMAT  # an int: the default of a schema
        case "Device":
            return type(obj) is torch.device or _is_device_name(obj)
        case "str":
            return type(obj) is str
    return False


def _is_device_name(obj: object) -> bool:
    try:
        torch.device(obj)  # type: ignore[call-overload]
    except (RuntimeError, TypeError, ValueError):
        return False
    return True


def lowerable(param: schema.Param, obj: object, broadcast: bool) -> bool:
    """Whether an object can be an operand of the trace for this parameter."""
    if obj is None:
        return True
    if not param.is_list or broadcast:
        return _lowerable_item(param, obj)
    return all((item is None and param.element_optional) or _lowerable_item(param, item) for item in obj)  # type: ignore[attr-defined]


def plan(rec: Recorder, binding: schema.Binding | None, args: Sequence[Value], kwargs: dict[str, Value]) -> Plan | None:
    """Whether and how a bound call can be written. Pure."""
    if binding is None or not environment_allows(rec):
        return None
    overload = binding.overload
    if not rec.services.supports_operator(overload.name, overload.overload):
        return None
    if schema.has_options(overload) and torch._C._get_default_device() != "cpu":
        return None  # the bindings of factories use the default device, ATen does not
    values = []
    for param, source, broadcast in zip(overload.params, binding.sources, binding.broadcast, strict=True):
        match source.kind:
            case "arg":
                value: Value = args[source.index]
            case "kwarg":
                value = kwargs[source.name]
            case "varargs":
                items = list(args[source.index :])
                value = Virtual(tuple(item.obj for item in items), "tuple", items)
            case _:
                value = Const(tuple(source.value) if type(source.value) is list else source.value)
        value = rec.resolve(value)
        if not lowerable(param, value.obj, broadcast) or not _promotable(param, value):
            return None
        if type(value) is Virtual and value.kind not in ("tuple", "list"):
            return None
        if param.base == "Tensor" and _is_number(value.obj) and not supports_numbers(rec):
            return None
        values.append(value)
    return Plan(overload, tuple(values), binding.broadcast)


def environment_allows(rec: Recorder) -> bool:
    """Whether torch calls reach ATen now, and nothing else: no TorchFunctionMode or TorchDispatchMode is active and nothing disables
    __torch_function__."""
    C = torch._C
    return C._len_torch_function_stack() == 0 and C._len_torch_dispatch_stack() == 0 and C._is_torch_function_enabled()


def guard_environment(rec: Recorder) -> None:
    """No TorchFunctionMode, established once and again after every call that may have changed anything."""
    if rec.__dict__.get("_torch_modes_epoch") != rec.epoch:
        builder = rec.builder
        rec.guard(builder.op("eq_int", builder.op("torch_function_modes"), builder.int(0)), True, "environment",
                  "no TorchFunctionMode is active")
        rec.__dict__["_torch_modes_epoch"] = rec.epoch


# ----------------------------------------------------------------------------------------------------------- operands


def _item(rec: Recorder, param: schema.Param, value: Value, what: str) -> mlir.Value:
    value = rec.resolve(value)
    if value.obj is None:
        if type(value) is Traced:
            rec.type_of(value)
        return rec.builder.none()
    match param.base:
        case "Tensor" if not _is_number(value.obj):
            return rec.ssa(value, "tensor")
        case "Tensor" | "Scalar":  # a number for a tensor is wrapped by `emit`
            kind = rec.number_kind(value)
            assert kind is not None
            return rec.ssa(value, kind)
        case "int" | "float" | "bool":
            return rec.ssa(value, param.base)
    return constant(rec, param, promote(rec, value, f"{param.name} of {what}"))


def promote(rec: Recorder, value: Value, why: str) -> Any:
    """As `rec.promote`; a dtype, layout or memory format is one object wherever it comes from."""
    if type(value) is Traced and type(value.obj) in SINGLETONS:
        rec.guard_identity(value, f"{rec.name_of(value)} is {value.obj} ({why})")
        return value.obj
    return rec.promote(value, why)


def _promotable(param: schema.Param, value: Value) -> bool:
    """Whether `promote` can succeed where the parameter needs a constant."""
    if param.base not in _PROMOTED or type(value) is not Traced or value.obj is None:
        return True
    return type(value.obj) in (*SINGLETONS, str, torch.device) or not value.facts.get("fresh")


def constant(rec: Recorder, param: schema.Param, obj: Any) -> mlir.Value:
    """A dtype, layout, memory format, device, string or number as the operand that the schema's type wants."""
    builder = rec.builder
    if obj is None:
        return builder.none()
    match param.base:
        case "ScalarType":
            return builder.int(obj if type(obj) is int else schema.SCALAR_TYPE[schema.PYTHON_DTYPES.get(obj, obj)])
        case "Layout":
            return builder.int(schema.LAYOUT[obj])
        case "MemoryFormat":
            return builder.int(obj if type(obj) is int else schema.MEMORY_FORMAT[obj])
        case "Device":
            return builder.device(str(torch.device(obj)))
        case "str":
            return builder.str(obj)
        case "float":
            return builder.float(float(obj))
        case "bool":
            return builder.bool(bool(obj))
        case "int":
            return builder.int(int(obj))
        case "Scalar":
            made = {bool: builder.bool, int: builder.int, float: builder.float}[type(obj)]
            return made(obj)
    raise AssertionError(param.base)


def _operand(rec: Recorder, param: schema.Param, value: Value, broadcast: bool, what: str) -> mlir.Value:
    if value.obj is None or not param.is_list:
        return _item(rec, param, value, what)
    if broadcast:
        item = _item(rec, param, value, what)
        items = [item] * (param.size or 1)
    else:
        items = [_item(rec, param, element, what) for element in elements(rec, value)]
    if param.base == "Scalar":
        return rec.builder.list(items, "number")
    element = "optional<tensor>" if param.element_optional else "tensor" if param.base == "Tensor" else param.base
    return rec.builder.list(items, element)


def elements(rec: Recorder, value: Value) -> list[Value]:
    """The items of a tuple or list operand."""
    value = rec.resolve(value)
    if type(value) is Virtual:
        return list(value.items)
    if type(value) is Const and type(value.obj) in (tuple, torch.Size):
        return [Const(item) for item in value.obj]  # type: ignore[attr-defined]
    return rec.iterate(value)


def operands(rec: Recorder, planned: Plan) -> list[mlir.Value]:
    """The SSA operands in schema order; writes whatever guards they need."""
    guard_environment(rec)
    what = planned.overload.name
    return [
        _operand(rec, param, value, broadcast, what)
        for param, value, broadcast in zip(planned.overload.params, planned.values, planned.broadcast, strict=True)
    ]


# ------------------------------------------------------------------------------------------------------------ results

_RESULT_KINDS = {"Tensor": "tensor", "Tensor[]": "tensors", "bool": "bool", "int": "int", "SymInt": "int", "float": "float"}


def emit(rec: Recorder, planned: Plan, forms: list[mlir.Value], result: object) -> Value:
    """Write the operator whose execution gave `result`; the Value of the result. `rec.effect()` has been called."""
    overload = planned.overload
    forms = [
        rec.builder.op("wrapped_number", form) if param.base == "Tensor" and _is_number(value.obj) else form
        for param, value, form in zip(overload.params, planned.values, forms, strict=True)
    ]
    ssa = rec.builder.aten(overload.name, overload.overload, forms, [_RESULT_KINDS[kind] for kind in overload.returns])
    if overload.name in CHANGES_METADATA:
        rec.epoch += 1
    return wrap(rec, planned, ssa, result)


def wrap(rec: Recorder, planned: Plan, ssa: Sequence[mlir.Value], result: object) -> Value:
    """The Value of an operator's results."""
    overload = planned.overload
    if result is None:
        return Const(None)
    for param, value in zip(overload.params, planned.values, strict=True):
        if param.writes and value.obj is result:  # in place: the same Python object
            return rec.resolve(value)
    if len(overload.returns) == 1 and overload.returns[0] == "Tensor[]":
        assert isinstance(result, tuple | list)
        items: list[Value] = [rec.result(obj, rec.builder.op("list_get", ssa[0], item=n)) for n, obj in enumerate(result)]
        return rec.virtual_list(items) if type(result) is list else virtual_sequence(rec, type(result), items)
    if len(overload.returns) == 1:
        return _single(rec, planned, ssa[0], result)
    assert isinstance(result, tuple)
    items = [rec.result(obj, one) for obj, one in zip(result, ssa, strict=True)]
    return virtual_sequence(rec, type(result), items)


def _single(rec: Recorder, planned: Plan, ssa: mlir.Value, result: object) -> Value:
    uncertain = planned.overload.name in MAY_RETURN_ARGUMENT or any(value.obj is result for value in planned.values)
    if uncertain and any(type(value.obj) is torch.nn.Parameter for value in planned.values):
        # Whether the result is the parameter itself is only known when the trace runs: its type is left to a guard.
        return rec.result(result, rec.builder.op("box", ssa))
    return rec.result(result, ssa)


# ------------------------------------------------------------------------------------------------------ list results


def guard_count(rec: Recorder, planned: Plan) -> bool:
    """Guard what the number of tensors in a list result depends on. False: not known for this operator."""
    overload = planned.overload
    if "Tensor[]" not in overload.returns:
        return True
    if len(overload.returns) != 1:
        return False
    rule = _COUNTS.get(overload.full_name)
    if rule is not None:
        return rule(rec, dict(zip((p.name for p in overload.params), planned.values, strict=True)))
    return overload.full_name in _COUNT_OF_LIST or overload.name.startswith("_foreach")


def _dim_size(rec: Recorder, tensor: Value, dim: Value) -> mlir.Value | None:
    from trident.frontend.models.tensors import guarded_rank, size_value

    rank = guarded_rank(rec, tensor)
    where = rec.promote(dim, "dim") if type(dim.obj) is int else None
    if where is None or not -rank <= where < rank:
        return None
    return rec.ssa(size_value(rec, tensor, where % rank), "int")


def _ceil_div(rec: Recorder, a: mlir.Value, b: mlir.Value) -> mlir.Value:
    """-(-a // b)"""
    return rec.op("neg_int", rec.op("floordiv_int", rec.op("neg_int", a), b))


def _expect(rec: Recorder, count: mlir.Value, expected: int, text: str) -> bool:
    rec.guard(rec.builder.op("eq_int", count, rec.builder.int(expected)), True, "length", text)
    return True


def _positive(rec: Recorder, value: Value, name: str) -> mlir.Value:
    form = rec.ssa(value, "int")
    if type(rec.resolve(value)) is not Const:
        rec.guard(rec.builder.op("gt_int", form, rec.builder.int(0)), True, "branch", f"{name} > 0")
    return form


def _count_unbind(rec: Recorder, named: dict[str, Value]) -> bool:
    tensor = named["self"]
    size = _dim_size(rec, tensor, named["dim"])
    if size is None:
        return False
    count = tensor.obj.size(named["dim"].obj)  # type: ignore[attr-defined]
    return _expect(rec, size, count, f"unbind gives {count} tensors")


def _count_split(rec: Recorder, named: dict[str, Value]) -> bool:
    tensor, step = named["self"], named["split_size"].obj
    extent = _size_of(tensor.obj, named["dim"].obj)
    if not isinstance(step, int) or step <= 0 or extent <= 0:
        return False
    size = _dim_size(rec, tensor, named["dim"])
    assert size is not None
    width = _positive(rec, named["split_size"], "split_size")
    count = -(-extent // step)
    return _expect(rec, _ceil_div(rec, size, width), count, f"split gives {count} tensors")


def _count_chunk(rec: Recorder, named: dict[str, Value]) -> bool:
    tensor, chunks = named["self"], named["chunks"].obj
    extent = _size_of(tensor.obj, named["dim"].obj)
    if not isinstance(chunks, int) or chunks <= 0 or extent <= 0:
        return False
    size = _dim_size(rec, tensor, named["dim"])
    assert size is not None
    number = _positive(rec, named["chunks"], "chunks")
    rec.guard(rec.builder.op("gt_int", size, rec.builder.int(0)), True, "size", "the dimension to be split is not empty")
    count = -(-extent // -(-extent // chunks))
    return _expect(rec, _ceil_div(rec, size, _ceil_div(rec, size, number)), count, f"chunk gives {count} tensors")


def _count_nonzero(rec: Recorder, named: dict[str, Value]) -> bool:
    from trident.frontend.models.tensors import guarded_rank

    tensor = named["condition"] if "condition" in named else named["self"]
    return guarded_rank(rec, tensor) > 0


def _count_sections(rec: Recorder, named: dict[str, Value]) -> bool:
    """`tensor_split(n)` and its kin give n tensors."""
    sections = named["sections"]
    return type(sections.obj) is int and sections.obj > 0 and rec.promote(sections, "the number of results") > 0


def _size_of(tensor: object, dim: object) -> int:
    assert isinstance(tensor, torch.Tensor)
    if not isinstance(dim, int) or not -tensor.dim() <= dim < tensor.dim():
        return -1
    return tensor.size(dim)


_COUNTS: dict[str, Callable[[Recorder, dict[str, Value]], bool]] = {
    "unbind.int": _count_unbind,
    "split.Tensor": _count_split,
    "unsafe_split.Tensor": _count_split,
    "chunk": _count_chunk,
    "unsafe_chunk": _count_chunk,
    "tensor_split.sections": _count_sections,
    "hsplit.int": _count_sections,
    "vsplit.int": _count_sections,
    "dsplit.int": _count_sections,
    "where": _count_nonzero,
    "nonzero_numpy": _count_nonzero,
}
# As many tensors as an argument list has items: nothing to guard, because the list is of known length.
_COUNT_OF_LIST: frozenset[str] = frozenset({
    "split.sizes", "split_with_sizes", "unsafe_split_with_sizes", "split_with_sizes_copy", "broadcast_tensors", "meshgrid",
    "meshgrid.indexing", "atleast_1d.Sequence", "atleast_2d.Sequence", "atleast_3d.Sequence", "tensor_split.indices", "hsplit.array",
    "vsplit.array", "dsplit.array",
})  # fmt: skip


# -------------------------------------------------------------------------------------------------------------- calls


def call(rec: Recorder, planned: Plan, execute: Callable[..., object], args: Sequence[Value], kwargs: dict[str, Value]) -> Answer:
    """Guard, execute and emit a planned call."""
    forms = operands(rec, planned)
    if not guard_count(rec, planned):
        return NotModelled
    rec.effect()
    result = rec.execute(execute, *[a.obj for a in args], **{name: v.obj for name, v in kwargs.items()})
    return emit(rec, planned, forms, result)


def call_named(rec: Recorder, name: str, method: bool, execute: Callable[..., object], args: list[Value],
               kwargs: dict[str, Value]) -> Answer:
    """The model of the Python binding of the ATen name `name`."""
    binding = schema.bind(name, [a.obj for a in args], {k: v.obj for k, v in kwargs.items()}, method)
    planned = plan(rec, binding, args, kwargs)
    return NotModelled if planned is None else call(rec, planned, execute, args, kwargs)


def plan_overload(rec: Recorder, name: str, overload: str, args: list[Value], kwargs: dict[str, Value] | None = None) -> Plan | None:
    """The plan of an operator that is known: `args` and `kwargs` are those of the schema."""
    kwargs = kwargs or {}
    found = schema.find(name, overload)
    if found is None:
        return None
    return plan(rec, schema.bind_overload(found, [a.obj for a in args], {k: v.obj for k, v in kwargs.items()}), args, kwargs)


def call_overload(rec: Recorder, name: str, overload: str, execute: Callable[..., object], args: list[Value],
                  kwargs: dict[str, Value] | None = None) -> Answer:
    """The model of something whose operator is known. `execute` gets the concrete arguments."""
    planned = plan_overload(rec, name, overload, args, kwargs)
    return NotModelled if planned is None else call(rec, planned, execute, args, kwargs or {})


def _binding(name: str, method: bool, execute: Callable[..., object]) -> Callable[..., Answer]:
    def model(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        return call_named(rec, name, method, execute, args, kwargs)

    return model


def call_operator(rec: Recorder, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`torch.ops.aten.<name>[.<overload>](...)`."""
    target = callee.obj
    if type(callee) is not Const:
        return NotModelled
    if is_a(target, torch._ops.OpOverloadPacket):
        names = [n for n in target.overloads() if not n.endswith("out")]
        if len(names) != 1 or not target._qualified_op_name.startswith("aten::"):
            return NotModelled  # TorchScript's matching rules choose
        target = getattr(target, names[0])
    if not is_a(target, torch._ops.OpOverload) or target.namespace != "aten":
        return NotModelled
    overload = "" if target._overloadname == "default" else target._overloadname
    return call_overload(rec, target._schema.name.split("::", 1)[1], overload, callee.obj, args, kwargs)  # type: ignore[arg-type]


# Binding names of methods that are other operators: (attribute of TensorBase, ATen name).
METHOD_NAMES: dict[str, str] = {
    "__add__": "add", "__radd__": "add", "__iadd__": "add_", "__sub__": "sub", "__isub__": "sub_", "__mul__": "mul",
    "__rmul__": "mul", "__imul__": "mul_", "__div__": "div", "__truediv__": "div", "__idiv__": "div_",
    "__floordiv__": "floor_divide",
    "__ifloordiv__": "floor_divide_", "__mod__": "remainder", "__imod__": "remainder_", "__matmul__": "matmul", "__eq__": "eq",
    "__ne__": "ne", "__lt__": "lt", "__le__": "le", "__gt__": "gt", "__ge__": "ge", "__rand__": "bitwise_and", "__ror__": "bitwise_or",
    "__rxor__": "bitwise_xor",
}  # fmt: skip

_MODULES = ("_nn", "_linalg", "_fft", "_special", "_sparse")


def _register_bindings(registry: Registry) -> None:
    operators = {n.removeprefix("aten::").split(".", 1)[0] for n in schema._operator_names() if n.startswith("aten::")}
    homes = [torch._C._VariableFunctions, *(getattr(torch._C, name) for name in _MODULES if hasattr(torch._C, name))]
    for home in homes:
        for name in dir(home):
            function = getattr(home, name)
            if name in operators and name not in _HAND_WRITTEN and type(function) is types.BuiltinFunctionType:
                registry.function(function, _binding(name, False, function))
    for name, found in torch._C.TensorBase.__dict__.items():
        operator = METHOD_NAMES.get(name, name)
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType) and operator in operators \
                and operator not in _HAND_WRITTEN:
            registry.function(found, _binding(operator, True, found))


def register(registry: Registry) -> None:
    """Fill the registry with everything that this package knows of torch."""
    from trident.frontend.models import indexing, sequences, tensors, torch_environment, torch_operators

    _register_bindings(registry)
    # Its Python code is `super().unflatten(dim, sizes)`.
    registry.function(torch.Tensor.unflatten, _binding("unflatten", True, torch.Tensor.unflatten))
    registry.hook_type(torch.Tensor, torch._ops.OpOverload, torch._ops.OpOverloadPacket)
    registry.hook("call", lambda rec, callee, args, kwargs: call_operator(rec, callee, args, kwargs))
    registry.constant_type(torch.dtype, torch.device, torch.layout, torch.memory_format)
    for family in (sequences, torch_environment, torch_operators, tensors, indexing):
        family.register(registry)


__all__ = ["Plan", "call", "call_named", "call_operator", "call_overload", "elements", "emit", "operands", "plan", "register"]
