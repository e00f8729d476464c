"""The walk over a kernel's operations.

Owns `Lowering`: the values defined so far, the table of what to do per operation name, and the operations that only move elements.
What must hold: an operation that is in no table is an error before anything is compiled; side effects are emitted in program order.

May import: core, index, plan, elementwise, and the tables of the other modules in this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

from torch_mlir import ir

from trident.backend.triton.cpu.lower import atomics, control, debug, dot, facts, index, mapping, memory, reduce, small_floats
from trident.backend.triton.cpu.lower.core import COUNTER, INTS, LANE, SSA, Buffer, Chunk, Emitter, Tensor
from trident.backend.triton.cpu.lower.elementwise import RULES
from trident.backend.triton.cpu.lower.index import Bits, is_lane, lane_bits
from trident.backend.triton.cpu.lower.plan import Plan
from trident.backend.triton.cpu.ttir import Block, Op, Value

Defined: TypeAlias = Chunk | Tensor


class Lowering:
    """State of one kernel's lowering."""

    def __init__(self, em: Emitter, plan: Plan, program_ids: Sequence[SSA], grid: Sequence[SSA]) -> None:
        self.em, self.plan = em, plan
        self.env: dict[Value, Defined] = {}
        self.program_ids, self.grid = program_ids, grid
        self.blocks: dict[Block, Any] = {}
        self.targets: dict[Op, Buffer] = {}  # ops that write their result into a given buffer
        self.block_buffers: dict[Value, Buffer] = {}
        self.assumed: dict[Value, facts.Fact] = {}  # the facts that hold where code is emitted now

    # -- access ------------------------------------------------------------------------------------------------------------------

    def scalar(self, value: Value) -> SSA:
        """A scalar's SSA value."""
        chunk = self.env[value]
        assert isinstance(chunk, Chunk)
        return chunk.base

    def tensor(self, value: Value) -> Tensor:
        found = self.env[value]
        assert isinstance(found, Tensor)
        return found

    def chunk(self, defined: Defined, bits: Bits) -> Chunk:
        """The elements at a position; a scalar is the same everywhere."""
        if isinstance(defined, Tensor):
            return self.em.at(defined, bits)
        n = 1 << len(lane_bits(bits))
        return defined if n == 1 else Chunk(n, defined.elem, base=defined.base, const=defined.const)

    @staticmethod
    def sources(parts: Iterable[Defined], same: bool = True) -> dict[Any, bool]:
        """What tensors read together; `same` tells whether they are read at the position asked for."""
        out: dict[Any, bool] = {}
        for part in parts:
            if isinstance(part, Tensor):
                for key, identical in part.sources.items():
                    out[key] = out.get(key, True) and identical and same
        return out

    def define(self, value: Value, tensor: Tensor) -> None:
        """Bind a tensor, computing it now if the plan wants it in memory."""
        if value in self.plan.in_memory:
            assert value.op is not None
            tensor = self.to_memory(tensor, value.type.shape, facts=facts.wanted_by(self, value.op))
        self.env[value] = facts.with_fact(self, value, tensor) if facts.possible(self, value) else tensor

    def set_scalar(self, value: Value, ssa: SSA) -> None:
        self.env[value] = Chunk(1, value.type.elem, base=ssa)

    # -- memory ------------------------------------------------------------------------------------------------------------------

    def to_memory(self, tensor: Tensor, shape: Sequence[int], buffer: Buffer | None = None, facts: Iterable[Value] = ()) -> Tensor:
        """Compute a tensor into a buffer (a new one by default) now. facts: those that its code could use."""
        em = self.em
        target = buffer if buffer is not None else em.alloc(tensor.bits, tensor.elem)
        whole = tuple(LANE + k for k in range(tensor.bits))
        kept: list[Chunk] = []

        def body(bits: Bits) -> None:
            chunk = em.at(tensor, bits)
            em.write(target, bits, chunk)
            if bits == whole:
                kept.append(chunk)

        self.each(shape, body, facts)
        result = em.tensor_of(target)
        if kept and buffer is None:
            # A tensor of one chunk also stays in registers.
            reload = result.emit
            result.emit = lambda bits: kept[0] if bits == whole else reload(bits)
        return result

    def each(self, shape: Sequence[int], body: Callable[[Bits], None], wanted: Iterable[Value]) -> None:
        """`Emitter.each`, twice where the loop is one that facts make simpler."""

        def loop() -> list[SSA]:
            self.em.each(shape, body)
            return []

        facts.versioned(self, wanted if sum(d.bit_length() - 1 for d in shape) > self.em.lanes else (), loop)

    def in_memory(self, value: Value) -> Buffer:
        """The buffer that holds a tensor, filled now if there is none."""
        defined = self.tensor(value)
        if defined.buffer is None:
            defined = self.to_memory(defined, value.type.shape, facts=facts.wanted(self, [value]))
        assert defined.buffer is not None
        return defined.buffer

    # -- the walk ----------------------------------------------------------------------------------------------------------------

    def block(self, block: Block) -> None:
        """Lower a block's operations at the current insertion point, without its terminator if that is a yield."""
        for op in block.ops:
            if op.name not in ("scf.yield", "scf.condition", "tt.reduce.return", "tt.scan.return"):
                self.op(op)

    def op(self, op: Op) -> None:
        handler = OPS.get(op.name)
        if handler is not None:
            handler(self, op)
        elif op.name in RULES:
            self.elementwise(op)
        else:
            raise op.unsupported("this operation is not supported")

    def elementwise(self, op: Op) -> None:
        rule, em = RULES[op.name], self.em
        operands = [self.env[v] for v in op.operands]
        kind = op.result.type
        if not kind.ranked:
            chunks = [o for o in operands if isinstance(o, Chunk)]
            self.env[op.result] = rule(em, op, chunks, 1)
            return

        def emit(bits: Bits) -> Chunk:
            chunks = [self.chunk(o, bits) for o in operands]
            return rule(em, op, chunks, 1 << len(lane_bits(bits)))

        self.define(op.result, Tensor(kind.bits, kind.elem, emit, sources=self.sources(operands)))


# -- operations that make or move elements -----------------------------------------------------------------------------------------


def _constant(low: Lowering, op: Op) -> None:
    em, kind = low.em, op.result.type
    attr = op.attrs["value"]
    if kind.elem not in em.storage:
        raise op.unsupported(f"a constant of type {kind.elem}")
    if kind.ranked:
        dense = ir.DenseElementsAttr(attr)
        if not dense.is_splat:
            raise op.unsupported("a tensor constant whose elements differ")
        attr = dense.get_splat_value()
    value = attr.value if hasattr(attr, "value") else ir.IntegerAttr(attr).value
    known = int(value) if kind.elem in INTS else None

    def scalar() -> SSA:
        stype = em.storage[kind.elem]
        if kind.elem == "bf16":
            return em.const(stype, _bf16_bits(float(value)))
        if kind.elem in small_floats.FORMATS:
            return em.const(stype, small_floats.constant_bits(float(value), small_floats.FORMATS[kind.elem]))
        return em.const(stype, value)

    if kind.ranked:
        low.env[op.result] = Tensor(kind.bits, kind.elem,
                                    lambda bits: Chunk(1 << len(lane_bits(bits)), kind.elem, base=scalar(), const=known))
    else:
        low.env[op.result] = Chunk(1, kind.elem, base=scalar(), const=known)


def _bf16_bits(value: float) -> int:
    import struct

    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def _poison(low: Lowering, op: Op) -> None:
    em, kind = low.em, op.result.type

    def scalar() -> SSA:
        return em.zero(em.storage[kind.elem])

    if kind.ranked:
        low.env[op.result] = Tensor(kind.bits, kind.elem, lambda bits: Chunk(1 << len(lane_bits(bits)), kind.elem, base=scalar()))
    else:
        low.env[op.result] = Chunk(1, kind.elem, base=scalar())


def _make_range(low: Lowering, op: Op) -> None:
    em, kind, start = low.em, op.result.type, op.int_attr("start")

    def emit(bits: Bits) -> Chunk:
        lanes = len(lane_bits(bits))
        base = em.linear(bits)
        if start:
            base = em.op("arith.addi", em.i32, base, em.const(em.i32, start))
        if lanes == 0:
            return Chunk(1, "i32", base=base)
        return Chunk(1 << lanes, "i32", base=base, offs=index.lane_offsets(bits, lanes))

    low.env[op.result] = Tensor(kind.bits, kind.elem, emit)


def _splat(low: Lowering, op: Op) -> None:
    scalar = low.env[op.operands[0]]
    kind = op.result.type
    tensor = Tensor(kind.bits, kind.elem, lambda bits: low.chunk(scalar, bits))
    low.env[op.result] = facts.with_fact(low, op.result, tensor) if kind.elem == "i1" else tensor


def _unsplat(low: Lowering, op: Op) -> None:
    low.env[op.result] = low.em.at(low.tensor(op.operands[0]), (0,) * op.operands[0].type.bits)


def _view(low: Lowering, op: Op, mapping: Sequence[int] | None) -> None:
    """`mapping`: for each bit of the operand's position its bit in the result's; None where positions are the same."""
    source, kind, em = low.tensor(op.operands[0]), op.result.type, low.em
    if mapping is None:
        low.env[op.result] = Tensor(kind.bits, kind.elem, lambda bits: em.at(source, bits), source.buffer, dict(source.sources))
        return
    moves = list(mapping)

    def emit(bits: Bits) -> Chunk:
        return em.moved(source, tuple(bits[m] for m in moves), len(lane_bits(bits)))

    same = moves == list(range(kind.bits))
    low.env[op.result] = Tensor(kind.bits, kind.elem, emit, sources=low.sources([source], same))


def _reshape(low: Lowering, op: Op) -> None:
    _view(low, op, None)


def _broadcast(low: Lowering, op: Op) -> None:
    _view(low, op, index.broadcast_map(op.operands[0].type.shape, op.result.type.shape))


def _trans(low: Lowering, op: Op) -> None:
    order = [int(d) for d in ir.DenseI32ArrayAttr(op.attrs["order"])]
    _view(low, op, index.transpose_map(op.operands[0].type.shape, order))


def choose(low: Lowering, bit: int, a: Tensor, b: Tensor, rest: Bits, lanes: int) -> Chunk:
    """`a` where the bit is 0 and `b` where it is 1, both at position `rest`."""
    em = low.em
    if bit < LANE:
        return em.moved(b if bit else a, rest, lanes)
    x, y = em.moved(a, rest, lanes), em.moved(b, rest, lanes)
    n = 1 << lanes
    if is_lane(bit):
        picks = [k + n * ((k >> (bit - LANE)) & 1) for k in range(n)]
        return em.from_vec(n, a.elem, em.shuffle_vec(em.vec(x), picks, em.vec(y)))
    counter, position = index.counter_of(bit)
    value = em.op("arith.shrui", em.i32, em.counters[counter][0], em.const(em.i32, position))
    condition = em.op("arith.trunci", em.i1, value)
    vx, vy = em.vec(x), em.vec(y)
    return em.from_vec(n, a.elem, em.op("arith.select", vx.type, condition, vy, vx))


def _join_like(low: Lowering, op: Op, position: int) -> None:
    a, b = low.tensor(op.operands[0]), low.tensor(op.operands[1])
    kind = op.result.type

    def emit(bits: Bits) -> Chunk:
        return choose(low, bits[position], a, b, bits[:position] + bits[position + 1:], len(lane_bits(bits)))

    low.env[op.result] = Tensor(kind.bits, kind.elem, emit, sources=low.sources([a, b], same=False))


def _join(low: Lowering, op: Op) -> None:
    _join_like(low, op, 0)


def _cat(low: Lowering, op: Op) -> None:
    _join_like(low, op, op.result.type.bits - 1)


def _split(low: Lowering, op: Op) -> None:
    source, em = low.tensor(op.operands[0]), low.em
    for k, result in enumerate(op.results):
        low.env[result] = Tensor(result.type.bits, result.type.elem, lambda bits, k=k: em.at(source, (k, *bits)),  # type: ignore[misc]
                                 sources=low.sources([source], same=False))


def _program_id(low: Lowering, op: Op) -> None:
    low.set_scalar(op.result, low.program_ids[op.int_attr("axis")])


def _num_programs(low: Lowering, op: Op) -> None:
    low.set_scalar(op.result, low.grid[op.int_attr("axis")])


OPS: dict[str, Callable[[Lowering, Op], None]] = {
    "arith.constant": _constant, "ub.poison": _poison, "tt.make_range": _make_range, "tt.splat": _splat, "tt.unsplat": _unsplat,
    "tt.expand_dims": _reshape, "tt.reshape": _reshape, "tt.broadcast": _broadcast, "tt.trans": _trans, "tt.join": _join,
    "tt.split": _split, "tt.cat": _cat, "tt.get_program_id": _program_id, "tt.get_num_programs": _num_programs,
    **memory.OPS, **reduce.OPS, **control.OPS, **dot.OPS, **debug.OPS, **mapping.OPS, **atomics.OPS,
}

__all__ = ["COUNTER", "Lowering", "OPS"]
