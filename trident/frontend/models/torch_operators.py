"""Python's operators on tensors: which ATen operators `a + b`, `a @ b`, `-a`, `a < b`, `a += b` reach.

Owns the tables from operator names to ATen names. What must hold: they follow Tensor's own methods, in the order in which
CPython tries them (a Parameter on the right of a Tensor is asked first in comparisons, because it is a subclass).

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.torch_calls import call, call_named, emit, operands, plan
from trident.frontend.values import Value

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_NUMBERS = (int, float, bool)

# tensor <op> other
_FORWARD: dict[str, str] = {
    "add": "add", "sub": "sub", "mul": "mul", "truediv": "div", "floordiv": "floor_divide", "mod": "remainder", "pow": "pow",
    "matmul": "matmul", "and": "__and__", "or": "__or__", "xor": "__xor__", "lshift": "__lshift__", "rshift": "__rshift__",
}  # fmt: skip
# tensor <op>= other; `x @= y` is `x = x @ y`
_IN_PLACE: dict[str, str] = {
    "iadd": "add_", "isub": "sub_", "imul": "mul_", "itruediv": "div_", "ifloordiv": "floor_divide_", "imod": "remainder_",
    "ipow": "pow_", "iand": "__iand__", "ior": "__ior__", "ixor": "__ixor__", "ilshift": "__ilshift__", "irshift": "__irshift__",
}  # fmt: skip
# number <op> tensor: the operator, and whether the tensor comes first
_REFLECTED: dict[str, tuple[str, bool]] = {
    "add": ("add", True), "sub": ("rsub", True), "mul": ("mul", True), "mod": ("remainder", False), "pow": ("pow", False),
    "and": ("bitwise_and", True), "or": ("bitwise_or", True), "xor": ("bitwise_xor", True), "lshift": ("bitwise_left_shift", False),
    "rshift": ("bitwise_right_shift", False),
}  # fmt: skip
_UNARY: dict[str, str] = {"neg": "neg", "pos": "positive", "invert": "bitwise_not", "abs": "abs"}
_SWAPPED: dict[str, str] = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}

_EXECUTE: dict[str, Any] = {
    **{name: getattr(operator, name if hasattr(operator, name) else name + "_") for name in _FORWARD},
    **{name: getattr(operator, name) for name in (*_IN_PLACE, *_SWAPPED, "neg", "pos", "invert", "abs")},
    "imatmul": operator.imatmul,
}


def is_tensor(value: Value) -> bool:
    """Whether the value is a tensor that models may look at."""
    return type(value.obj) in schema.TENSOR_TYPES


def binary(rec: Recorder, opname: str, a: Value, b: Value) -> Answer:
    """`a <op> b` and `a <op>= b`."""
    a, b = rec.resolve(a), rec.resolve(b)
    if not _known(a) or not _known(b):
        return NotModelled
    if is_tensor(a):
        name = _FORWARD.get("matmul" if opname == "imatmul" else opname) or _IN_PLACE.get(opname)
        if name is None:
            return NotModelled
        return _call(rec, name, True, opname, [a, b], [a, b])
    base = opname.removeprefix("i") if opname in _IN_PLACE else opname
    if base == "truediv":
        return _reciprocal_times(rec, opname, a, b)
    if base == "floordiv" or base not in _REFLECTED:
        return NotModelled
    name, tensor_first = _REFLECTED[base]
    return _call(rec, name, False, opname, [b, a] if tensor_first else [a, b], [a, b])


def _known(value: Value) -> bool:
    return is_tensor(value) or type(value.obj) in _NUMBERS


def _call(rec: Recorder, name: str, method: bool, opname: str, args: list[Value], written: list[Value]) -> Answer:
    """The operator `name` of `args`; what is executed is the Python operator on the operands as they were written."""

    def execute(*_: object) -> object:
        return _EXECUTE[opname](*[value.obj for value in written])

    return call_named(rec, name, method, execute, args, {})


def _reciprocal_times(rec: Recorder, opname: str, number: Value, tensor: Value) -> Answer:
    """`number / tensor` is `tensor.reciprocal() * number`."""
    first = plan(rec, schema.bind("reciprocal", [tensor.obj], {}, True), [tensor], {})
    product = plan(rec, schema.bind("mul", [tensor.obj, number.obj], {}, True), [tensor, number], {})
    if first is None or product is None or rec.number_kind(number) is None:
        return NotModelled
    forms = operands(rec, first)
    factor = rec.ssa(number, type(number.obj).__name__)
    rec.effect()
    result = rec.execute(_EXECUTE[opname], number.obj, tensor.obj)
    inverse = rec.builder.aten("reciprocal", "", forms, ["tensor"])[0]
    return emit(rec, product, [inverse, factor], result)


def unary(rec: Recorder, opname: str, a: Value) -> Answer:
    """`-a`, `+a`, `~a`, `abs(a)`"""
    a = rec.resolve(a)
    if not is_tensor(a) or opname not in _UNARY:
        return NotModelled
    return _call(rec, _UNARY[opname], True, opname, [a], [a])


def compare(rec: Recorder, opname: str, a: Value, b: Value) -> Answer:
    """`a < b` and the like; tensors give tensors."""
    a, b = rec.resolve(a), rec.resolve(b)
    if not _known(a) or not _known(b) or opname not in _SWAPPED:
        return NotModelled
    subclass_first = type(a.obj) is torch.Tensor and type(b.obj) is torch.nn.Parameter
    if is_tensor(a) and not subclass_first:
        return _call(rec, opname, True, opname, [a, b], [a, b])
    return _call(rec, _SWAPPED[opname], True, opname, [b, a], [a, b])


def _abs(otherwise: Any) -> Any:
    """`abs(tensor)`; numbers are left to the model of builtins."""

    def model(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        if len(args) == 1 and not kwargs and is_tensor(rec.resolve(args[0])):
            return unary(rec, "abs", args[0])
        return NotModelled if otherwise is None else otherwise(rec, args, kwargs)

    return model


def register(registry: Registry) -> None:
    """The hooks, and `abs`."""
    registry.function(abs, _abs(registry.find(abs)))
    registry.hook("binary", binary)
    registry.hook("unary", unary)
    registry.hook("compare", compare)


__all__ = ["binary", "call", "compare", "is_tensor", "register", "unary"]
