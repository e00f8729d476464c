"""Matrix products.

Owns tt.dot: both operands are widened into buffers, the right one in panels of a vector's width, then blocks of rows by one vector of
columns are accumulated in registers over the inner dimension, with one fused multiply-add per element and step. What must hold: the
products of 16-bit floats are accumulated in f32 (f64 in f64, 8-bit integers in i32) in the order of the inner dimension.

May import: core, facts, floats, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from trident.backend.triton.cpu.lower import floats
from trident.backend.triton.cpu.lower.core import COUNTER, FLOATS, INTS, LANE, SSA, Buffer, Chunk, Tensor
from trident.backend.triton.cpu.lower.facts import versioned, wanted
from trident.backend.triton.cpu.lower.index import Bits, lane_bits
from trident.backend.triton.cpu.ttir import Op, Value

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def _wide(low: Lowering, value: Value, elem: str) -> Tensor:
    """The operand in the accumulator's type."""
    em, source = low.em, low.tensor(value)
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


def _rows(low: Lowering, value: Value, elem: str) -> Buffer:
    """The operand in memory, row by row."""
    if low.tensor(value).elem == elem:
        return low.in_memory(value)
    made = low.to_memory(_wide(low, value, elem), value.type.shape, facts=wanted(low, [value]))
    assert made.buffer is not None
    return made.buffer


def _panels(low: Lowering, value: Value, elem: str, lanes: int) -> Buffer:
    """The operand in memory, in panels: the first vector of every row, then the second one of every row, …

    So what one tile reads lies together, in sets of the cache of its own, however long the rows are.
    """
    em, source = low.em, _wide(low, value, elem)
    *_, k, n = value.type.shape
    kb, nb = k.bit_length() - 1, n.bit_length() - 1
    target = em.alloc(source.bits, elem)
    ranges = [(kb + nb, source.bits - kb - nb), (nb, kb), (lanes, nb - lanes)]

    def pack() -> list[SSA]:
        def body(bits: Bits) -> None:
            em.write(target, panel_bits(bits, lanes, nb, kb), em.at(source, bits))

        with em.scope():
            em.nest([(f, w) for f, w in ranges if w > 0], [LANE + b if b < lanes else 0 for b in range(source.bits)], body)
        return []

    versioned(low, wanted(low, [value]), pack)
    return target


def panel_bits(bits: Bits, lanes: int, nb: int, kb: int) -> Bits:
    """Where a position of a matrix of 2**kb rows and 2**nb columns lies among its panels."""
    return bits[:lanes] + bits[nb:nb + kb] + bits[lanes:nb] + bits[nb + kb:]


class _Dot:
    """One tt.dot, of matrices or of stacks of matrices."""

    def __init__(self, low: Lowering, op: Op) -> None:
        self.low, self.em, self.op = low, low.em, op
        *batch, self.m, self.k = op.operands[0].type.shape
        self.n = op.operands[1].type.shape[-1]
        self.batch_bits = sum(d.bit_length() - 1 for d in batch)
        self.mb, self.kb, self.nb = (d.bit_length() - 1 for d in (self.m, self.k, self.n))
        a, out = op.operands[0].type.elem, op.result.type.elem
        self.acc = "f64" if out == "f64" else "f32" if out in FLOATS else out
        if (a in FLOATS) != (out in FLOATS) or (a not in FLOATS and a not in INTS):
            raise op.unsupported(f"a product of {a} into {out}")
        self.out = out
        self.lanes = min(self.nb, self.em.lanes)
        rows = 3 if self.em.lanes >= 5 else 2
        self.rows = min(self.mb, rows)
        self.unrolled = min(self.kb, 2)

    def run(self) -> None:
        em, op = self.em, self.op
        left, right = _rows(self.low, op.operands[0], self.acc), _panels(self.low, op.operands[1], self.acc, self.lanes)
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
    _Dot(low, op).run()


OPS: dict[str, Callable[[Lowering, Op], None]] = {"tt.dot": _dot}
