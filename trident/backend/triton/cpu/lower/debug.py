"""device_print and device_assert.

Owns their lowering to calls of the host's message function. What must hold: elements are reported in order.
May import: core, memory, messages (its numbers), ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu import messages
from trident.backend.triton.cpu.lower.core import FLOATS, SSA, Chunk
from trident.backend.triton.cpu.lower.index import Bits
from trident.backend.triton.cpu.lower.memory import nothing, when
from trident.backend.triton.cpu.ttir import Op, Value, describe_location

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def _report(low: Lowering, text: SSA, kind: int, index: SSA, bits: SSA) -> None:
    em = low.em
    callee = em.declare(messages.SYMBOL, [em.ptr, em.i32, em.i32, em.i32, em.i32, em.i64, em.i64], None)
    em.do("func.call", text, em.const(em.i32, kind), *low.program_ids, index, bits, callee=callee)


def _as_i64(low: Lowering, op: Op, chunk: Chunk) -> SSA:
    """An element's bits."""
    em, value, elem = low.em, chunk.base, chunk.elem
    if elem == "ptr":
        return em.op("llvm.ptrtoint", em.i64, value)
    if elem in FLOATS and elem != "bf16":
        width = {"f16": 16, "f32": 32, "f64": 64}[elem]
        value = em.op("arith.bitcast", ir.IntegerType.get_signless(width), value)
    elif elem not in messages.KINDS:
        raise op.unsupported(f"a value of type {elem}")
    return value if value.type == em.i64 else em.op("arith.extui", em.i64, value)


def _each_element(low: Lowering, value: Value, body: Callable[[Chunk, SSA], None]) -> None:
    em = low.em
    if not value.type.ranked:
        chunk = low.env[value]
        assert isinstance(chunk, Chunk)
        body(chunk, em.const(em.i64, -1))
        return
    tensor = low.tensor(value)

    def at(bits: Bits) -> None:
        body(em.at(tensor, bits), em.op("arith.extui", em.i64, em.linear(bits)))

    em.each(value.type.shape, at, lanes=0)


def _print(low: Lowering, op: Op) -> None:
    em = low.em
    text = em.string(ir.StringAttr(op.attrs["prefix"]).value)
    if not op.operands:
        zero = em.const(em.i64, 0)
        _report(low, text, messages.ASSERT - 1, zero, zero)
    hexadecimal = messages.HEX if op.int_attr("hex", 0) else 0
    signs = list(ir.DenseI32ArrayAttr(op.attrs["isSigned"])) if "isSigned" in op.attrs else [1] * len(op.operands)
    for value, signed in zip(op.operands, signs, strict=True):
        if value.type.elem not in messages.KINDS:
            raise op.unsupported(f"a value of type {value.type.elem}")
        kind = messages.KINDS.index(value.type.elem) | hexadecimal | (0 if signed else messages.UNSIGNED)
        _each_element(low, value, lambda chunk, index, k=kind: _report(low, text, k, index, _as_i64(low, op, chunk)))  # type: ignore[misc]


def _assert(low: Lowering, op: Op) -> None:
    em = low.em
    message = ir.StringAttr(op.attrs["message"]).value
    text = em.string(f"{message} (at {describe_location(str(op.location))})")

    def check(chunk: Chunk, index: SSA) -> None:
        def fail() -> list[SSA]:
            _report(low, text, messages.ASSERT, index, em.const(em.i64, 0))
            return []

        when(em, em.op("arith.xori", em.i1, chunk.base, em.const(em.i1, 1)), [], fail, nothing)

    _each_element(low, op.operands[0], check)


OPS: dict[str, Callable[[Lowering, Op], None]] = {"tt.print": _print, "tt.assert": _assert}
