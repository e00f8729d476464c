"""Atomics.

Owns tt.atomic_*. What must hold: they are the processor's own atomics, for other threads run the same grid; the lanes of one run in order;
a lane whose mask is false touches no memory.

May import: core, floats, memory, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu.lower import floats
from trident.backend.triton.cpu.lower.core import FLOATS, SIZES, SSA, Chunk, Emitter, Tensor
from trident.backend.triton.cpu.lower.index import Bits
from trident.backend.triton.cpu.lower.memory import EQ, nothing, when
from trident.backend.triton.cpu.ttir import Op

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering

UGE = 9  # arith.cmpi predicate
NANOSECONDS = 1_000_000_000
CLOCK_MONOTONIC = 1

_AND, _OR, _XOR, _ADD, _FADD, _MAX, _MIN, _UMAX, _UMIN, _XCHG = range(1, 11)
_LLVM_OP = {_AND: 3, _OR: 5, _XOR: 6, _ADD: 1, _FADD: 11, _MAX: 7, _MIN: 8, _UMAX: 9, _UMIN: 10, _XCHG: 0}
_ORDERING = {1: 2, 2: 4, 3: 5, 4: 6}  # relaxed, acquire, release, acquire and release


def _ordering(op: Op) -> int:
    return _ORDERING[op.int_attr("sem")]


def _per_element(low: Lowering, op: Op, mask: Chunk | Tensor | None, one: Callable[[list[Chunk]], SSA],
                 operands: list[Chunk | Tensor]) -> None:
    """Run `one` for each element in order, where the mask is set; its result is the op's result."""
    em, elem = low.em, op.result.type.elem
    stype = em.storage[elem]

    def at(bits: Bits) -> Chunk:
        chunks = [low.chunk(o, bits) for o in operands]
        if mask is None:
            return Chunk(1, elem, base=one(chunks))
        condition = low.chunk(mask, bits)
        return Chunk(1, elem, base=when(em, condition.base, [stype], lambda: [one(chunks)], lambda: [em.zero(stype)])[0])

    if not op.result.type.ranked:
        low.env[op.result] = at(())
        return
    buffer = em.alloc(op.result.type.bits, elem)
    em.each(op.result.type.shape, lambda bits: em.write(buffer, bits, at(bits)), lanes=0)
    low.env[op.result] = em.tensor_of(buffer)


def atomic_rmw(low: Lowering, op: Op) -> None:
    """tt.atomic_rmw."""
    em = low.em
    kind, ordering = op.int_attr("atomic_rmw_op"), _ordering(op)
    elem = op.result.type.elem
    mask = low.env[op.operands[2]] if len(op.operands) > 2 else None
    if kind not in _LLVM_OP:
        raise op.unsupported(f"atomic operation {kind}")

    def one(chunks: list[Chunk]) -> SSA:
        pointer, value = chunks[0].base, chunks[1].base
        if kind == _FADD and elem in ("f16", "bf16"):
            return _half_add(em, pointer, value, elem)
        return em.op("llvm.atomicrmw", value.type, pointer, value, bin_op=ir.IntegerAttr.get(em.i64, _LLVM_OP[kind]),
                     ordering=ir.IntegerAttr.get(em.i64, ordering))

    if elem not in SIZES or elem in ("i1", "ptr") or (elem in FLOATS and kind not in (_FADD, _XCHG)):
        raise op.unsupported(f"this atomic operation on {elem}")
    _per_element(low, op, mask, one, [low.env[op.operands[0]], low.env[op.operands[1]]])


def _half_add(em: Emitter, pointer: SSA, value: SSA, elem: str) -> SSA:
    """Atomic addition to a 16-bit float: a loop of compare and exchange."""
    addend = floats.widen(em, value, elem)
    old = em.op("llvm.load", em.i16, pointer, alignment=ir.IntegerAttr.get(em.i64, 2))
    loop = ir.Operation.create("scf.while", results=[em.i16], operands=[old], regions=2)
    before = loop.regions[0].blocks.append(em.i16)
    with em.scope(before):
        seen = before.arguments[0]
        total = em.op("arith.addf", em.f32, floats.widen(em, _as(em, seen, elem), elem), addend)
        new = _bits(em, floats.narrow(em, total, elem))
        swapped, done = _cmpxchg(em, pointer, seen, new)
        again = em.op("arith.xori", em.i1, done, em.const(em.i1, 1))
        em.do("scf.condition", again, swapped)
    after = loop.regions[1].blocks.append(em.i16)
    with em.scope(after):
        em.do("scf.yield", after.arguments[0])
    return _as(em, loop.results[0], elem)


def _as(em: Emitter, bits: SSA, elem: str) -> SSA:
    return bits if em.storage[elem] == bits.type else em.op("arith.bitcast", em.storage[elem], bits)


def _bits(em: Emitter, value: SSA) -> SSA:
    return value if value.type == em.i16 else em.op("arith.bitcast", em.i16, value)


def _cmpxchg(em: Emitter, pointer: SSA, expected: SSA, new: SSA) -> tuple[SSA, SSA]:
    pair = em.op("llvm.cmpxchg", ir.Type.parse(f"!llvm.struct<({new.type}, i1)>"), pointer, expected, new,
                 success_ordering=ir.IntegerAttr.get(em.i64, 6), failure_ordering=ir.IntegerAttr.get(em.i64, 4))
    first = em.op("llvm.extractvalue", new.type, pair, position=ir.DenseI64ArrayAttr.get([0]))
    return first, em.op("llvm.extractvalue", em.i1, pair, position=ir.DenseI64ArrayAttr.get([1]))


def atomic_cas(low: Lowering, op: Op) -> None:
    """tt.atomic_cas."""
    em = low.em
    elem = op.result.type.elem
    if elem not in SIZES or elem in ("i1", "ptr"):
        raise op.unsupported(f"compare and exchange of {elem}")
    itype = ir.IntegerType.get_signless(8 * SIZES[elem])

    def one(chunks: list[Chunk]) -> SSA:
        expected, new = ((c.base if c.base.type == itype else em.op("arith.bitcast", itype, c.base)) for c in chunks[1:])
        old, _ = _cmpxchg(em, chunks[0].base, expected, new)
        return old if em.storage[elem] == itype else em.op("arith.bitcast", em.storage[elem], old)

    _per_element(low, op, None, one, [low.env[v] for v in op.operands])


def atomic_load(low: Lowering, op: Op) -> None:
    """tt.atomic_load."""
    em, elem, ordering = low.em, op.result.type.elem, _ordering(op)
    if elem not in SIZES or elem == "i1":
        raise op.unsupported(f"an atomic load of {elem}")
    mask = low.env[op.operands[1]] if len(op.operands) > 1 else None
    _per_element(low, op, mask, lambda chunks: _read(em, chunks[0].base, elem, ordering), [low.env[op.operands[0]]])


def _read(em: Emitter, pointer: SSA, elem: str, ordering: int) -> SSA:
    return em.op("llvm.load", em.storage[elem], pointer, alignment=ir.IntegerAttr.get(em.i64, SIZES[elem]),
                 ordering=ir.IntegerAttr.get(em.i64, ordering))


def atomic_store(low: Lowering, op: Op) -> None:
    """tt.atomic_store."""
    em, kind, ordering = low.em, op.operands[1].type, _ordering(op)
    if kind.elem not in SIZES or kind.elem == "i1":
        raise op.unsupported(f"an atomic store of {kind.elem}")
    mask = low.env[op.operands[2]] if len(op.operands) > 2 else None
    pointer, value = low.env[op.operands[0]], low.env[op.operands[1]]

    def at(bits: Bits) -> None:
        def write() -> list[SSA]:
            em.do("llvm.store", low.chunk(value, bits).base, low.chunk(pointer, bits).base,
                  alignment=ir.IntegerAttr.get(em.i64, SIZES[kind.elem]), ordering=ir.IntegerAttr.get(em.i64, ordering))
            return []

        if mask is None:
            write()
        else:
            when(em, low.chunk(mask, bits).base, [], write, nothing)

    if kind.ranked:
        em.each(kind.shape, at, lanes=0)
    else:
        at(())


def atomic_poll(low: Lowering, op: Op) -> None:
    """tt.atomic_poll: wait, element by element, until memory holds the expected value, or the time is over."""
    em, elem, ordering = low.em, op.operands[1].type.elem, _ordering(op)
    limit = low.scalar(op.operands[2]) if len(op.operands) > 2 else None
    start = None if limit is None else _now(em)

    def compare(predicate: int, a: SSA, b: SSA) -> SSA:
        return em.op("arith.cmpi", em.i1, a, b, predicate=ir.IntegerAttr.get(em.i64, predicate))

    def one(chunks: list[Chunk]) -> SSA:
        loop = ir.Operation.create("scf.while", results=[em.i1], operands=[], regions=2)
        with em.scope(loop.regions[0].blocks.append()):
            found = compare(EQ, _read(em, chunks[0].base, elem, ordering), chunks[1].base)
            over = found
            if start is not None and limit is not None:
                late = compare(UGE, em.op("arith.subi", em.i64, _now(em), start), limit)
                over = em.op("arith.ori", em.i1, found, late)
            em.do("scf.condition", em.op("arith.xori", em.i1, over, em.const(em.i1, 1)), found)
        after = loop.regions[1].blocks.append(em.i1)
        with em.scope(after):
            em.op("func.call", em.i32, callee=em.declare("sched_yield", [], em.i32))
            em.do("scf.yield")
        return loop.results[0]

    _per_element(low, op, None, one, [low.env[v] for v in op.operands[:2]])


def _now(em: Emitter) -> SSA:
    """Nanoseconds of the clock that only goes on."""
    assert em.entry is not None
    with em.entry:
        place = em.op("llvm.alloca", em.ptr, em.const(em.i64, 2), elem_type=ir.TypeAttr.get(em.i64),
                      alignment=ir.IntegerAttr.get(em.i64, 16))
    callee = em.declare("clock_gettime", [em.i32, em.ptr], em.i32)
    em.op("func.call", em.i32, em.const(em.i32, CLOCK_MONOTONIC), place, callee=callee)
    seconds, rest = (em.op("llvm.load", em.i64, em.gep(place, offset, em.i8), alignment=ir.IntegerAttr.get(em.i64, 8)) for offset in (0, 8))
    return em.op("arith.addi", em.i64, em.op("arith.muli", em.i64, seconds, em.const(em.i64, NANOSECONDS)), rest)


OPS = {"tt.atomic_rmw": atomic_rmw, "tt.atomic_cas": atomic_cas, "tt.atomic_load": atomic_load, "tt.atomic_store": atomic_store,
       "tt.atomic_poll": atomic_poll}
