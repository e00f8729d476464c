"""Matrix products.

Owns tt.dot and tt.dot_scaled: both operands are widened into buffers, the right one in panels of a vector's width, then blocks of rows
by one vector of columns are accumulated in registers over the inner dimension, with one fused multiply-add per element and step. What
must hold: the products of floats of up to 16 bits are accumulated in f32 (f64 in f64, 8-bit integers in i32) in the order of the inner
dimension.

May import: core, facts, floats, small_floats, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu.lower import floats, small_floats
from trident.backend.triton.cpu.lower.core import COUNTER, FLOATS, INTS, LANE, SSA, Buffer, Chunk, Tensor
from trident.backend.triton.cpu.lower.facts import versioned, wanted
from trident.backend.triton.cpu.lower.index import Bits, lane_bits
from trident.backend.triton.cpu.ttir import Op, Value

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


@dataclass(slots=True, eq=False)
class Operand:
    """A matrix, or a stack of them. facts: those that its code could use."""

    tensor: Tensor
    shape: tuple[int, ...]
    facts: Iterable[Value]


def _operand(low: Lowering, value: Value) -> Operand:
    return Operand(low.tensor(value), value.type.shape, wanted(low, [value]))


def _wide(low: Lowering, source: Tensor, elem: str) -> Tensor:
    """The operand in the accumulator's type."""
    em = low.em
    if source.elem == elem:
        return source

    def emit(bits: Bits) -> Chunk:
        chunk = em.at(source, bits)
        n = 1 << len(lane_bits(bits))
        if elem in FLOATS:
            return em.from_vec(n, elem, floats.convert(em, em.vec(chunk), source.elem, elem))
        wide = em.op("arith.extsi", em.vector_type(n, em.storage[elem]), em.vec(chunk))
        return em.from_vec(n, elem, wide)

    return Tensor(source.bits, elem, emit)


def _rows(low: Lowering, operand: Operand, elem: str) -> Buffer:
    """The operand in memory, row by row."""
    wide = _wide(low, operand.tensor, elem)
    if wide.buffer is None:
        wide = low.to_memory(wide, operand.shape, facts=operand.facts)
    assert wide.buffer is not None
    return wide.buffer


def _panels(low: Lowering, operand: Operand, elem: str, lanes: int) -> Buffer:
    """The operand in memory, in panels: the first vector of every row, then the second one of every row, …

    So what one tile reads lies together, in sets of the cache of its own, however long the rows are.
    """
    em, source = low.em, _wide(low, operand.tensor, elem)
    *_, k, n = operand.shape
    kb, nb = k.bit_length() - 1, n.bit_length() - 1
    target = em.alloc(source.bits, elem)
    ranges = [(kb + nb, source.bits - kb - nb), (nb, kb), (lanes, nb - lanes)]

    def pack() -> list[SSA]:
        def body(bits: Bits) -> None:
            em.write(target, panel_bits(bits, lanes, nb, kb), em.at(source, bits))

        with em.scope():
            em.nest([(f, w) for f, w in ranges if w > 0], [LANE + b if b < lanes else 0 for b in range(source.bits)], body)
        return []

    versioned(low, operand.facts, pack)
    return target


def panel_bits(bits: Bits, lanes: int, nb: int, kb: int) -> Bits:
    """Where a position of a matrix of 2**kb rows and 2**nb columns lies among its panels."""
    return bits[:lanes] + bits[nb:nb + kb] + bits[lanes:nb] + bits[nb + kb:]


class _Dot:
    """One product, of matrices or of stacks of matrices."""

    def __init__(self, low: Lowering, op: Op, left: Operand, right: Operand) -> None:
        self.low, self.em, self.op = low, low.em, op
        self.left, self.right = left, right
        *batch, self.m, self.k = left.shape
        self.n = right.shape[-1]
        self.batch_bits = sum(d.bit_length() - 1 for d in batch)
        self.mb, self.kb, self.nb = (d.bit_length() - 1 for d in (self.m, self.k, self.n))
        a, out = left.tensor.elem, op.result.type.elem
        self.acc = "f64" if out == "f64" else "f32" if out in FLOATS else out
        if (a in floats.COMPUTE) != (out in FLOATS) or (a not in floats.COMPUTE and a not in INTS):
            raise op.unsupported(f"a product of {a} into {out}")
        self.out = out
        self.lanes = min(self.nb, self.em.lanes)
        rows = 3 if self.em.lanes >= 5 else 2
        self.rows = min(self.mb, rows)
        self.unrolled = min(self.kb, 2)

    def run(self) -> None:
        em, op = self.em, self.op
        left, right = _rows(self.low, self.left, self.acc), _panels(self.low, self.right, self.acc, self.lanes)
        start = self.low.tensor(op.operands[2])
        target = self.low.targets.get(op)
        if target is not None and not start.sources.get(target, True):
            target = None
        result = target if target is not None else em.alloc(op.result.type.bits, self.out)
        total = self.nb + self.mb + self.batch_bits
        bits = [LANE + k if k < self.lanes else 0 for k in range(total)]
        ranges = [(self.nb + self.mb, self.batch_bits), (self.nb + self.rows, self.mb - self.rows), (self.lanes, self.nb - self.lanes)]
        with em.scope():
            em.nest([(f, w) for f, w in ranges if w > 0], bits, lambda b: self.tile(b, left, right, start, result))
        self.low.env[op.result] = em.tensor_of(result, carried=target is not None)

    def tile(self, bits: Bits, left: Buffer, right: Buffer, start: Tensor, result: Buffer) -> None:
        em = self.em
        column, row, batch = bits[:self.nb], bits[self.nb:self.nb + self.mb], bits[self.nb + self.mb:]
        n = 1 << self.lanes
        rows = [tuple((r >> k) & 1 if k < self.rows else row[k] for k in range(self.mb)) for r in range(1 << self.rows)]
        places = [(*column, *r, *batch) for r in rows]
        inits = [floats.convert(em, em.vec(em.at(start, p)), self.out, self.acc) if self.acc in FLOATS
                 else em.vec(em.at(start, p)) for p in places]

        def step(i: SSA, carried: list[SSA]) -> Sequence[SSA]:
            c = em.counter(i, self.kb - self.unrolled)
            outer = tuple(COUNTER * (c + 1) + b for b in range(self.kb - self.unrolled))
            for k in range(1 << self.unrolled):
                inner = (*((k >> b) & 1 for b in range(self.unrolled)), *outer)
                b_vec = em.vec(em.read(right, panel_bits((*column, *inner, *batch), self.lanes, self.nb, self.kb)))
                carried = [self.multiply_add(em.splat(em.read(left, (*inner, *r, *batch)).base, n), b_vec, acc)
                           for r, acc in zip(rows, carried, strict=True)]
            return carried

        sums = em.for_loop(0, self.k >> self.unrolled, inits, step)
        for place, value in zip(places, sums, strict=True):
            value = floats.convert(em, value, self.acc, self.out) if self.acc in FLOATS else value
            em.write(result, place, em.from_vec(n, self.out, value))

    def multiply_add(self, a: SSA, b: SSA, acc: SSA) -> SSA:
        em = self.em
        if self.acc in FLOATS:
            return em.op("math.fma", acc.type, a, b, acc)
        return em.op("arith.addi", acc.type, acc, em.op("arith.muli", acc.type, a, b))


def _dot(low: Lowering, op: Op) -> None:
    _Dot(low, op, _operand(low, op.operands[0]), _operand(low, op.operands[1])).run()


# -- scaled products: blocks of elements of few bits along the inner dimension share a scale -------------------------------------------

_FOUR_BITS = 4  # ScaleDotElemType of two-bit exponents and one-bit mantissas, two elements in a byte


def _unpacked(low: Lowering, value: Value, selector: int) -> Operand:
    """The f32 of 4-bit elements. selector: the bit of a position that tells the upper half of a byte from the lower one."""
    from trident.backend.triton.cpu.lower.lowering import choose

    em, packed = low.em, low.tensor(value)

    def half(shift: int) -> Tensor:
        def emit(bits: Bits) -> Chunk:
            n = 1 << len(lane_bits(bits))
            byte = em.vec(em.at(packed, bits))
            if shift:
                byte = em.op("arith.shrui", byte.type, byte, em.const(byte.type, shift))
            nibble = em.op("arith.andi", byte.type, byte, em.const(byte.type, 15))
            return em.from_vec(n, "f32", small_floats.widen(em, nibble, small_floats.E2M1, sign_at=3))

        return Tensor(packed.bits, "f32", emit)

    lower, upper = half(0), half(4)

    def emit(bits: Bits) -> Chunk:
        return choose(low, bits[selector], lower, upper, bits[:selector] + bits[selector + 1:], len(lane_bits(bits)))

    return Operand(Tensor(packed.bits + 1, "f32", emit), (), wanted(low, [value]))


def _scaled(low: Lowering, operand: Operand, scale: Value | None, inner: tuple[int, int], outer: tuple[int, int]) -> Operand:
    """The operand times its scales. inner, outer: (first, number) of the position bits of the two dimensions."""
    if scale is None:
        return operand
    em, scales, wide = low.em, low.tensor(scale), _wide(low, operand.tensor, "f32")
    group = inner[1] - (scale.type.shape[-1].bit_length() - 1)

    def emit(bits: Bits) -> Chunk:
        lanes = len(lane_bits(bits))
        at_k, at_row = bits[inner[0] + group:sum(inner)], bits[outer[0]:sum(outer)]
        rest = bits[inner[1] + outer[1]:]
        factor = em.vec(em.moved(scales, (*at_k, *at_row, *rest), lanes))
        if scales.elem in small_floats.FORMATS:
            factor = floats.widen(em, factor, scales.elem)
        else:
            factor = _power_of_two(low, factor)
        value = em.vec(em.at(wide, bits))
        return em.from_vec(1 << lanes, "f32", em.op("arith.mulf", value.type, value, factor))

    return Operand(Tensor(wide.bits, "f32", emit), operand.shape, operand.facts)


def _power_of_two(low: Lowering, bits: SSA) -> SSA:
    """2**(bits - 127) of eight bits; 255 is NaN."""
    em = low.em
    itype, btype = em.like(bits, em.i32), em.like(bits, em.i1)

    def equal(value: int) -> SSA:
        return em.op("arith.cmpi", btype, wide, em.const(itype, value), predicate=ir.IntegerAttr.get(em.i64, 0))

    wide = em.op("arith.extui", itype, bits)
    out = em.op("arith.shli", itype, wide, em.const(itype, 23))
    out = em.op("arith.select", itype, equal(0), em.const(itype, 1 << 22), out)  # a denormal number
    out = em.op("arith.select", itype, equal(255), em.const(itype, 0x7FC00000), out)
    return em.op("arith.bitcast", em.like(bits, em.f32), out)


def _dot_scaled(low: Lowering, op: Op) -> None:
    segments = [int(d) for d in ir.DenseI32ArrayAttr(op.attrs["operandSegmentSizes"])]
    rest = list(op.operands[3:])
    left_scale = rest.pop(0) if segments[3] else None
    right_scale = rest.pop(0) if segments[4] else None
    *batch, m, n = op.result.type.shape
    left, right = (_operand(low, v) for v in op.operands[:2])
    mb, nb = m.bit_length() - 1, n.bit_length() - 1
    left_packed, right_packed = (op.int_attr(f"{side}_elem_type") == _FOUR_BITS for side in "ab")
    left_along_k, right_along_k = (op.int_attr(f"{side}_k_pack", 1) != 0 for side in ("lhs", "rhs"))
    k = left.shape[-1] * (2 if left_packed and left_along_k else 1)
    kb = k.bit_length() - 1
    if left_packed:
        left = _unpacked(low, op.operands[0], 0 if left_along_k else kb)
    if right_packed:
        right = _unpacked(low, op.operands[1], nb if right_along_k else 0)
    left.shape, right.shape = (*batch, m, k), (*batch, k, n)
    left = _scaled(low, left, left_scale, (0, kb), (kb, mb))
    right = _scaled(low, right, right_scale, (nb, kb), (0, nb))
    _Dot(low, op, left, right).run()


OPS: dict[str, Callable[[Lowering, Op], None]] = {"tt.dot": _dot, "tt.dot_scaled": _dot_scaled}
