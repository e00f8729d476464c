"""Reductions, scans and histograms.

Owns how a combine region is applied. What must hold: the order of a reduction is fixed by shape and type, so a kernel gives the same
bits every time; a scan runs in order; NaN is treated exactly as the region's operations treat it.

May import: core, elementwise, facts, memory, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from trident.backend.triton.cpu.lower import index
from trident.backend.triton.cpu.lower.core import COUNTER, INTS, LANE, SSA, Buffer, Chunk, Emitter, Tensor
from trident.backend.triton.cpu.lower.elementwise import RULES
from trident.backend.triton.cpu.lower.facts import versioned, wanted
from trident.backend.triton.cpu.lower.index import Bits
from trident.backend.triton.cpu.ttir import Block, Op, Value

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def combine(low: Lowering, block: Block, args: Sequence[Chunk], n: int) -> list[Chunk]:
    """Run a combine region on vectors of n elements."""
    em = low.em
    env: dict[Value, Chunk] = dict(zip(block.args, args, strict=True))

    def value_of(value: Value) -> Chunk:
        found = env.get(value)
        if found is None:
            outer = low.env[value]
            assert isinstance(outer, Chunk)
            found = Chunk(n, outer.elem, base=outer.base, const=outer.const)
        return found

    for op in block.ops:
        if op.name in ("tt.reduce.return", "tt.scan.return"):
            return [value_of(v) for v in op.operands]
        if op.name == "arith.constant":
            from trident.backend.triton.cpu.lower.lowering import OPS

            OPS[op.name](low, op)
            continue
        rule = RULES.get(op.name)
        if rule is None:
            raise op.unsupported("this operation is not supported inside a combine function")
        env[op.result] = rule(em, op, [value_of(v) for v in op.operands], n)
    raise AssertionError("a combine region without a terminator")


_INF = float("inf")
_NAN = float("nan")


def _identity(block: Block) -> float | int | None:
    """The neutral element of a region that is a single known operation on its arguments."""
    if len(block.ops) != 2 or len(block.args) != 2 or set(block.ops[0].operands) != set(block.args):
        return None
    elem = block.args[0].type.elem
    width = INTS.get(elem, 0)
    floats = {"arith.addf": -0.0, "arith.mulf": 1.0, "arith.maxnumf": _NAN, "arith.minnumf": _NAN, "arith.maximumf": -_INF,
              "arith.minimumf": _INF}
    ints = {"arith.addi": 0, "arith.muli": 1, "arith.ori": 0, "arith.xori": 0, "arith.andi": -1, "arith.maxui": 0,
            "arith.minui": -1, "arith.maxsi": -(1 << (width - 1)) if width else 0, "arith.minsi": (1 << (width - 1)) - 1 if width else 0}
    name = block.ops[0].name
    if elem in ("f32", "f64", "f16"):
        return floats.get(name)
    return ints.get(name) if width > 1 else None


def _axis_lanes(em: Emitter, lanes: int, first: int, width: int) -> list[int]:
    """The lane bits that lie on the axis."""
    return [b for b in range(lanes) if first <= b < first + width]


class _Reduction:
    """One tt.reduce."""

    def __init__(self, low: Lowering, op: Op) -> None:
        self.low, self.em, self.op = low, low.em, op
        self.operands = [low.tensor(v) for v in op.operands]
        self.shape = op.operands[0].type.shape
        self.bits = op.operands[0].type.bits
        self.block = op.regions[0][0]
        self.first, self.width = index.dim_ranges(self.shape)[op.int_attr("axis")]
        self.lanes = min(self.bits, self.em.lanes)

    def chunks(self, bits: Bits) -> list[Chunk]:
        return [self.em.at(t, bits) for t in self.operands]

    def accumulate(self, bits: list[int]) -> list[Chunk]:
        """Combine over the axis bits above the lanes; the other bits are set."""
        em = self.em
        lo = max(self.first, self.lanes)
        steps = max(self.first + self.width - lo, 0)
        n = 1 << self.lanes
        if steps == 0:
            return self.chunks(tuple(bits))
        types = [em.type_of(n, t.elem) for t in self.operands]
        neutral = _identity(self.block)
        # With a neutral element several sums run side by side: each waits for its own last addition only.
        side = 0 if neutral is None else min(steps, 2)

        def chunks_at(i: SSA, part: int) -> list[Chunk]:
            c = em.counter(i, steps - side)
            here = list(bits)
            for k in range(steps):
                here[lo + k] = (part >> k) & 1 if k < side else COUNTER * (c + 1) + k - side
            return self.chunks(tuple(here))

        def body(i: SSA, carried: list[SSA]) -> Sequence[SSA]:
            out: list[SSA] = []
            for part in range(1 << side):
                mine = carried[part * len(types):(part + 1) * len(types)]
                before = [em.from_vec(n, t.elem, v) for t, v in zip(self.operands, mine, strict=True)]
                out += [em.vec(c) for c in combine(self.low, self.block, [*before, *chunks_at(i, part)], n)]
            return out

        def loop() -> list[SSA]:
            if neutral is None:
                with em.scope():
                    inits = [em.vec(c) for c in self.chunks(tuple(bits))]
                return em.for_loop(1, 1 << steps, inits, body)
            sums = em.for_loop(0, 1 << steps - side, [em.const(types[0], neutral)] * (1 << side), body)
            parts = [em.from_vec(n, self.operands[0].elem, value) for value in sums]
            while len(parts) > 1:
                half = len(parts) // 2
                parts = [combine(self.low, self.block, [parts[k], parts[k + half]], n)[0] for k in range(half)]
            return [em.vec(parts[0])]

        results = versioned(self.low, wanted(self.low, self.op.operands), loop, types)
        return [em.from_vec(n, t.elem, v) for t, v in zip(self.operands, results, strict=True)]

    def fold_lanes(self, chunks: list[Chunk]) -> list[Chunk]:
        """Combine the lanes that lie on the axis, halving; the lanes left keep their order."""
        lanes = self.lanes
        for bit in reversed(_axis_lanes(self.em, self.lanes, self.first, self.width)):
            numbers = np.arange(1 << (lanes - 1), dtype=np.int64)
            low_part, high_part = numbers & ((1 << bit) - 1), numbers >> bit
            zero = (high_part << (bit + 1)) | low_part
            left = [self.em.shuffle(c, zero) for c in chunks]
            right = [self.em.shuffle(c, zero | (1 << bit)) for c in chunks]
            lanes -= 1
            chunks = combine(self.low, self.block, [*left, *right], 1 << lanes)
        return chunks

    def result_bits(self, bits: Sequence[int]) -> Bits:
        """The result's position: the operand's without the axis, its lanes renumbered."""
        kept = tuple(b for k, b in enumerate(bits) if not self.first <= k < self.first + self.width)
        return index.compact(kept)[0]

    def run(self) -> None:
        em, op = self.em, self.op
        if not op.results[0].type.ranked:
            bits = [LANE + k if k < self.lanes else 0 for k in range(self.bits)]
            with em.scope():
                for result, chunk in zip(op.results, self.fold_lanes(self.accumulate(bits)), strict=True):
                    self.low.env[result] = Chunk(1, chunk.elem, base=em.vec(chunk))
            return
        buffers = [em.alloc(r.type.bits, r.type.elem) for r in op.results]
        kept: list[list[Chunk]] = []
        bits = [LANE + k if k < self.lanes else 0 for k in range(self.bits)]
        ranges = [(max(f, self.lanes), f + w - max(f, self.lanes)) for f, w in index.dim_ranges(self.shape)
                  if f + w > self.lanes and (f, w) != (self.first, self.width)]
        ranges = [(f, w) for f, w in ranges if w > 0]

        def body(position: Bits) -> None:
            chunks = self.fold_lanes(self.accumulate(list(position)))
            where = self.result_bits(position)
            for buffer, chunk in zip(buffers, chunks, strict=True):
                em.write(buffer, where, chunk)
            if not ranges:
                kept.append(chunks)

        def nest() -> list[SSA]:
            with em.scope():
                em.nest(ranges, bits, body)
            return []

        versioned(self.low, wanted(self.low, op.operands) if ranges else (), nest)
        for k, (result, buffer) in enumerate(zip(op.results, buffers, strict=True)):
            self.low.env[result] = _with_register(em, buffer, kept[0][k] if kept else None)


def _with_register(em: Emitter, buffer: Buffer, chunk: Chunk | None) -> Tensor:
    """The tensor in a buffer, taken from a register where one holds all of it."""
    tensor = em.tensor_of(buffer)
    whole = tuple(LANE + k for k in range(buffer.bits))
    if chunk is not None and chunk.n == 1 << buffer.bits:
        reload = tensor.emit
        tensor.emit = lambda bits: chunk if bits == whole else reload(bits)
    return tensor


def _reduce(low: Lowering, op: Op) -> None:
    _Reduction(low, op).run()


def _scan(low: Lowering, op: Op) -> None:
    """tt.scan: in order along the axis; other dimensions are lanes where the axis is not the innermost one."""
    em, shape = low.em, op.operands[0].type.shape
    operands = [low.tensor(v) for v in op.operands]
    total = op.operands[0].type.bits
    first, width = index.dim_ranges(shape)[op.int_attr("axis")]
    reverse = op.int_attr("reverse", 0) != 0
    lanes = min(first, em.lanes)
    buffers = [em.alloc(r.type.bits, r.type.elem) for r in op.results]
    block = op.regions[0][0]
    n = 1 << lanes
    bits = [LANE + k if k < lanes else 0 for k in range(total)]
    ranges = [(max(f, lanes), f + w - max(f, lanes)) for f, w in index.dim_ranges(shape) if f != first or w != width]
    ranges = [(f, w) for f, w in ranges if w > 0]

    def along(position: Bits) -> None:
        here = list(position)
        end = 1 if reverse else 0
        here[first:first + width] = [end] * width
        with em.scope():
            start = [em.at(t, tuple(here)) for t in operands]
            for buffer, chunk in zip(buffers, start, strict=True):
                em.write(buffer, tuple(here), chunk)
            inits = [em.vec(c) for c in start]

        def step(i: SSA, carried: list[SSA]) -> Sequence[SSA]:
            where = em.op("arith.subi", em.i32, em.const(em.i32, (1 << width) - 1), i) if reverse else i
            c = em.counter(where, width)
            here[first:first + width] = [COUNTER * (c + 1) + k for k in range(width)]
            position = tuple(here)
            before = [em.from_vec(n, t.elem, v) for t, v in zip(operands, carried, strict=True)]
            after = combine(low, block, [*before, *[em.at(t, position) for t in operands]], n)
            for buffer, chunk in zip(buffers, after, strict=True):
                em.write(buffer, position, chunk)
            return [em.vec(c) for c in after]

        em.for_loop(1, 1 << width, inits, step)

    with em.scope():
        em.nest(ranges, bits, along)
    for result, buffer in zip(op.results, buffers, strict=True):
        low.env[result] = em.tensor_of(buffer)


def _histogram(low: Lowering, op: Op) -> None:
    """tt.histogram: counts of values in [0, bins); others are not counted."""
    from torch_mlir import ir

    from trident.backend.triton.cpu.lower.memory import nothing, when

    em, kind = low.em, op.result.type
    source = low.tensor(op.operands[0])
    mask = low.env[op.operands[1]] if len(op.operands) > 1 else None
    buffer = em.alloc(kind.bits, kind.elem)
    stype = em.storage[kind.elem]
    em.each(kind.shape, lambda bits: em.write(
        buffer, bits, Chunk(1 << len(index.lane_bits(bits)), kind.elem, base=em.const(stype, 0))))

    def count(bits: Bits) -> None:
        value = em.at(source, bits).base
        inside = em.op("arith.cmpi", em.i1, value, em.const(value.type, kind.numel), predicate=ir.IntegerAttr.get(em.i64, 6))
        if mask is not None:
            inside = em.op("arith.andi", em.i1, inside, low.chunk(mask, bits).base)

        def add() -> list[SSA]:
            wide = value if value.type == em.i64 else em.op("arith.extui", em.i64, value)
            pointer = em.gep(buffer.pointer, wide, stype)
            old = em.op("llvm.load", stype, pointer)
            em.do("llvm.store", em.op("arith.addi", stype, old, em.const(stype, 1)), pointer)
            return []

        when(em, inside, [], add, nothing)

    em.each(op.operands[0].type.shape, count, lanes=0)
    low.env[op.result] = em.tensor_of(buffer)


OPS: dict[str, Callable[[Lowering, Op], None]] = {"tt.reduce": _reduce, "tt.scan": _scan, "tt.histogram": _histogram}
