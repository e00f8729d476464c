"""Operators, comparisons, subscripts.

May import: frontend.*, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trident.frontend import operators, subscripts
from trident.frontend.analysis import Instruction
from trident.frontend.calls import INLINED
from trident.frontend.frames import RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Value

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

# By the argument of BINARY_OP (NB_* of opcode.h, the same in 3.11 and 3.12).
BINARY_OPS = ("add", "and", "floordiv", "lshift", "matmul", "mul", "mod", "or", "pow", "rshift", "sub", "truediv", "xor",
              "iadd", "iand", "ifloordiv", "ilshift", "imatmul", "imul", "imod", "ior", "ipow", "irshift", "isub", "itruediv", "ixor")
COMPARE_OPS = ("lt", "le", "eq", "ne", "gt", "ge")


@handles("BINARY_OP")
def binary_op(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a op b`, `a op= b`."""
    b, a = frame.pop_value(), frame.pop_value()
    result = operators.binary(rec, BINARY_OPS[ins.arg], a, b)
    if result is not INLINED:
        frame.stack.append(result)


@handles("UNARY_NEGATIVE", "UNARY_POSITIVE", "UNARY_INVERT")
def unary_op(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`-a`, `+a`, `~a`."""
    name = {"UNARY_NEGATIVE": "neg", "UNARY_POSITIVE": "pos", "UNARY_INVERT": "invert"}[ins.name]
    frame.stack.append(operators.unary(rec, name, frame.pop_value()))


@handles("UNARY_NOT")
def unary_not(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`not a`."""
    frame.stack.append(operators.logical_not(rec, frame.pop_value()))


def compare_op(rec: Recorder, frame: RecordedFrame, ins: Instruction, which: int) -> None:
    """A rich comparison."""
    b, a = frame.pop_value(), frame.pop_value()
    frame.stack.append(operators.compare(rec, COMPARE_OPS[which], a, b))


def _inverted(rec: Recorder, value: Value, invert: int) -> Value:
    return operators.logical_not(rec, value) if invert else value


@handles("IS_OP")
def is_op(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`is`, `is not`."""
    b, a = frame.pop_value(), frame.pop_value()
    frame.stack.append(_inverted(rec, operators.identical(rec, a, b), ins.arg))


@handles("CONTAINS_OP")
def contains_op(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`in`, `not in`."""
    container, item = frame.pop_value(), frame.pop_value()
    frame.stack.append(_inverted(rec, subscripts.contains(rec, container, item), ins.arg))


def _read_indices(rec: Recorder, frame: RecordedFrame, ins: Instruction, a: Value, index: Value, *others: Value) -> Value:
    """An index with numbers in the place of the tensors that torch reads for it; a state behind that, in which the instruction is still
    to be executed. others: operands below."""
    numbers: Any = registry().try_hooks("index_numbers", rec, a, index) if rec.is_hooked(rec.resolve(a)) else NotModelled
    if numbers is NotModelled:
        return index
    parts = numbers.items[:2] if ins.name.endswith("_SLICE") else [numbers]
    frame.before = [*frame.stack, *others, a, *parts]
    rec.restate(ins.offset, frame.before, ins.live)
    return numbers  # type: ignore[no-any-return]


@handles("BINARY_SUBSCR")
def binary_subscr(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a[i]`."""
    index, a = frame.pop_value(), frame.pop_value()
    index = _read_indices(rec, frame, ins, a, index)
    result = subscripts.subscript(rec, a, index)
    if result is not INLINED:
        frame.stack.append(result)


@handles("STORE_SUBSCR")
def store_subscr(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a[i] = x`."""
    index, a, item = frame.pop_value(), frame.pop_value(), frame.pop_value()
    index = _read_indices(rec, frame, ins, a, index, item)
    subscripts.store_subscript(rec, a, index, item)


@handles("DELETE_SUBSCR")
def delete_subscr(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`del a[i]`."""
    index, a = frame.pop_value(), frame.pop_value()
    subscripts.delete_subscript(rec, a, index)


def make_slice(rec: Recorder, parts: list[Value]) -> Value:
    """A slice of start, stop and step."""
    real = slice(*[part.obj for part in parts])
    if all(operators.is_foldable(part) for part in parts):
        return Const(real)
    return rec.virtual(real, "slice", parts)


@handles("BINARY_SLICE")
def binary_slice(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a[i:j]`."""
    stop, start, a = frame.pop_value(), frame.pop_value(), frame.pop_value()
    index = _read_indices(rec, frame, ins, a, make_slice(rec, [start, stop, Const(None)]))
    result = subscripts.subscript(rec, a, index)
    if result is not INLINED:
        frame.stack.append(result)


@handles("STORE_SLICE")
def store_slice(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a[i:j] = x`."""
    stop, start, a, item = frame.pop_value(), frame.pop_value(), frame.pop_value(), frame.pop_value()
    index = _read_indices(rec, frame, ins, a, make_slice(rec, [start, stop, Const(None)]), item)
    subscripts.store_subscript(rec, a, index, item)


@handles("GET_LEN")
def get_len(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push the length of the top."""
    top = frame.stack[-1]
    assert isinstance(top, Value)
    frame.stack.append(operators.length(rec, top))
