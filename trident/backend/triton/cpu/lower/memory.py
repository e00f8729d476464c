"""Loads and stores.

Owns the choice of instruction for a chunk of addresses. What must hold: a lane whose mask is false touches no memory.

May import: core, facts, plan, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from torch_mlir import ir

from trident.backend.triton.cpu.lower.core import SIZES, SSA, Chunk, Emitter, Tensor
from trident.backend.triton.cpu.lower.facts import wanted, whole_chunk
from trident.backend.triton.cpu.lower.index import LANE, Bits, lane_bits
from trident.backend.triton.cpu.lower.plan import is_position
from trident.backend.triton.cpu.ttir import Op, Value

EQ, ULE = 0, 7  # arith.cmpi predicates

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def _alignment(em: Emitter, elem: str, width: int = 64) -> ir.Attribute:
    return ir.IntegerAttr.get(em.i64 if width == 64 else em.i32, SIZES[elem])


def consecutive(chunk: Chunk, elem: str) -> bool:
    """Whether the addresses are base, base + size, base + 2 * size, …"""
    return chunk.offs is not None and bool((chunk.offs == SIZES[elem] * np.arange(chunk.n)).all())


def when(em: Emitter, condition: SSA, results: list[ir.Type], then: Callable[[], list[SSA]],
         otherwise: Callable[[], list[SSA]]) -> list[SSA]:
    """scf.if."""
    branch = ir.Operation.create("scf.if", results=results, operands=[condition], regions=2)
    for region, body in zip(branch.regions, (then, otherwise), strict=True):
        if not results and body is nothing:
            continue
        with em.scope(region.blocks.append()):
            em.do("scf.yield", *body())
    return list(branch.results)


def nothing() -> list[SSA]:
    return []


def load_chunk(em: Emitter, op: Op, pointer: Chunk, mask: Chunk | None, other: Chunk | None, whole: SSA = None) -> Chunk:
    """Load `pointer.n` elements; masked-off ones become `other`, or zero. whole: whether the mask is true everywhere, if that is known."""
    n, elem = pointer.n, op.results[0].type.elem
    if elem not in SIZES:
        raise op.unsupported(f"the type {elem}")
    if elem == "i1":
        raise op.unsupported("a load of single bits")
    if mask is not None and mask.uniform and mask.const == 1:
        mask = None
    stype = em.storage[elem]
    if pointer.uniform and (mask is None or mask.uniform) and (other is None or other.uniform):
        value = _scalar_load(em, stype, pointer, mask, other, elem)
        return Chunk(n, elem, base=value)
    vtype = em.vector_type(n, stype)
    if consecutive(pointer, elem):
        if mask is None:
            _prefetch(em, op, pointer, elem)
            return em.from_vec(n, elem, em.op("llvm.load", vtype, pointer.base, alignment=_alignment(em, elem)))
        fill, lanes = em.vec(other) if other is not None else em.zero(vtype), em.vec(mask)

        def plain() -> list[SSA]:
            return [em.op("llvm.load", vtype, pointer.base, alignment=_alignment(em, elem))]

        def masked() -> list[SSA]:
            return [em.op("llvm.intr.masked.load", vtype, pointer.base, lanes, fill, alignment=_alignment(em, elem, 32))]

        if _cheap_masks(em, elem, store=False) and whole is None:
            return em.from_vec(n, elem, masked()[0])
        return em.from_vec(n, elem, when(em, _all_set(em, mask) if whole is None else whole, [vtype], plain, masked)[0])
    value = em.gather(em.vec(pointer), None if mask is None else em.vec(mask), None if other is None else em.vec(other), n, stype)
    return em.from_vec(n, elem, value)


def _prefetch(em: Emitter, op: Op, pointer: Chunk, elem: str) -> None:
    """Ask for what lies one block further on: mostly the next program's, which so arrives while this one computes."""
    kind = op.results[0].type
    if len(kind.shape) == 1 and kind.numel >= 256 and pointer.n * SIZES[elem] >= 64:
        zero = em.i32_attr(0)
        address = em.gep(pointer.base, kind.numel * SIZES[elem], em.i8)
        em.do("llvm.intr.prefetch", address, rw=zero, hint=em.i32_attr(3), cache=em.i32_attr(1))


def _scalar_load(em: Emitter, stype: ir.Type, pointer: Chunk, mask: Chunk | None, other: Chunk | None, elem: str) -> SSA:
    def load() -> list[SSA]:
        return [em.op("llvm.load", stype, pointer.base, alignment=_alignment(em, elem))]

    if mask is None:
        return load()[0]
    return when(em, mask.base, [stype], load, lambda: [em.zero(stype) if other is None else other.base])[0]


def _all_set(em: Emitter, mask: Chunk) -> SSA:
    """Whether a mask is true in every lane."""
    number = ir.IntegerType.get_signless(mask.n)
    return em.op("arith.cmpi", em.i1, em.op("llvm.bitcast", number, em.vec(mask)), em.const(number, -1),
                 predicate=ir.IntegerAttr.get(em.i64, EQ))


def _cheap_masks(em: Emitter, elem: str, *, store: bool) -> bool:
    """Whether the hardware has fast masked instructions: AVX-512's; AVX2's loads, of 32 bits and more."""
    return em.lanes >= 5 or (not store and SIZES[elem] >= 4)


def store_chunk(em: Emitter, op: Op, pointer: Chunk, value: Chunk, mask: Chunk | None, whole: SSA = None) -> None:
    """Store a chunk. whole: whether the mask is true everywhere, if that is known."""
    elem = value.elem
    if elem not in SIZES or elem == "i1":
        raise op.unsupported(f"a store of {elem}")
    if mask is not None and mask.uniform and mask.const == 1:
        mask = None
    if value.n == 1:
        def store() -> list[SSA]:
            em.do("llvm.store", value.base, pointer.base, alignment=_alignment(em, elem))
            return []

        if mask is None:
            store()
        else:
            when(em, mask.base, [], store, nothing)
    elif consecutive(pointer, elem):
        vector = em.vec(value)

        def plain() -> list[SSA]:
            em.do("llvm.store", vector, pointer.base, alignment=_alignment(em, elem))
            return []

        def masked() -> list[SSA]:
            assert mask is not None
            em.do("llvm.intr.masked.store", vector, pointer.base, em.vec(mask), alignment=_alignment(em, elem, 32))
            return []

        if mask is None:
            plain()
        elif _cheap_masks(em, elem, store=True):
            masked()
        else:
            when(em, _all_set(em, mask) if whole is None else whole, [], plain, masked)
    else:
        em.scatter(em.vec(value), em.vec(pointer), None if mask is None else em.vec(mask), value.n)


def load(low: Lowering, op: Op) -> None:
    """tt.load."""
    pointer = low.env[op.operands[0]]
    mask = low.env[op.operands[1]] if len(op.operands) > 1 else None
    other = low.env[op.operands[2]] if len(op.operands) > 2 else None
    if op.operands[0].type.pointee.startswith("tensor"):
        raise op.unsupported("a block pointer")
    if isinstance(pointer, Chunk):
        assert not isinstance(mask, Tensor) and not isinstance(other, Tensor)
        low.env[op.result] = load_chunk(low.em, op, pointer, mask, other)
        return
    parts = [p for p in (pointer, mask, other) if p is not None]

    def emit(bits: Bits) -> Chunk:
        chunks = [low.chunk(p, bits) for p in parts]
        return load_chunk(low.em, op, chunks[0], chunks[1] if mask is not None else None, chunks[2] if other is not None else None,
                          None if mask is None else _whole(low, op.operands[1], chunks[1], bits))

    sources = low.sources(parts)
    sources[op.operands[0]] = True
    low.define(op.result, Tensor(op.result.type.bits, op.result.type.elem, emit, sources=sources))


def store(low: Lowering, op: Op) -> None:
    """tt.store. A value whose computation loads from memory that the store may overwrite is computed completely first."""
    em = low.em
    pointer, value = low.env[op.operands[0]], low.env[op.operands[1]]
    mask = low.env[op.operands[2]] if len(op.operands) > 2 else None
    if op.operands[0].type.pointee.startswith("tensor"):
        raise op.unsupported("a block pointer")
    if isinstance(pointer, Chunk):
        assert isinstance(value, Chunk) and not isinstance(mask, Tensor)
        store_chunk(em, op, pointer, value, mask)
        return
    shape = op.operands[0].type.shape
    if isinstance(value, Tensor) and value.bits > em.lanes:
        loads = {source: same for source, same in value.sources.items() if isinstance(source, Value)}
        hazards = [source for source, same in loads.items() if source is not op.operands[0] or not same]
        if hazards:
            target = _range(low, op.operands[0]) if all(loads[h] for h in hazards) else None
            ranges = [_range(low, h) for h in hazards]
            if target is not None and all(r is not None for r in ranges):
                _store_checked(low, op, target, [r for r in ranges if r is not None], value, mask)
                return
            value = low.to_memory(value, shape, facts=wanted(low, op.operands[1:2]))

    def body(bits: Bits) -> None:
        chunks = [low.chunk(p, bits) for p in (pointer, value, mask) if p is not None]
        store_chunk(em, op, chunks[0], chunks[1], chunks[2] if mask is not None else None,
                    None if mask is None else _whole(low, op.operands[2], chunks[2], bits))

    low.each(shape, body, _store_facts(low, op))


def _whole(low: Lowering, mask: Value, chunk: Chunk, bits: Bits) -> SSA:
    """What tells at once whether a mask is true in a whole chunk; None where nothing does, or masks cost nothing."""
    em = low.em
    if em.lanes >= 5 or chunk.uniform or chunk.n == 1 or not mask.type.ranked:
        return None
    return em.remember(("whole", mask, bits), lambda: whole_chunk(low, mask, bits))


def _store_facts(low: Lowering, op: Op) -> dict[Value, None]:
    """The facts that a store's code could use."""
    return wanted(low, op.operands, op.operands[2:3])


def _range(low: Lowering, pointer: Value) -> tuple[SSA, str] | None:
    """The first address and the element type of a tensor of consecutive addresses, if it is known to be one."""
    if pointer.type.bits > 14 or not is_position(pointer):
        return None
    whole = tuple(LANE + k for k in range(pointer.type.bits))
    with low.em.scope():
        chunk = low.em.at(low.tensor(pointer), whole)
    return (chunk.base, pointer.type.pointee) if consecutive(chunk, pointer.type.pointee) else None


def _store_checked(low: Lowering, op: Op, target: tuple[SSA, str], loads: list[tuple[SSA, str]], value: Tensor,
                   mask: Chunk | Tensor | None) -> None:
    """Store while loading, straight to memory unless what is loaded overlaps it: then by way of a buffer."""
    em, (start, elem) = low.em, target
    shape, numel = op.operands[0].type.shape, op.operands[0].type.numel

    def compare(predicate: int, a: SSA, b: SSA) -> SSA:
        return em.op("arith.cmpi", em.i1, a, b, predicate=ir.IntegerAttr.get(em.i64, predicate))

    def ends(base: SSA, of: str) -> tuple[SSA, SSA]:
        first = em.op("llvm.ptrtoint", em.i64, base)
        return first, em.op("arith.addi", em.i64, first, em.const(em.i64, numel * SIZES[of]))

    first, last = ends(start, elem)
    safe: SSA = em.const(em.i1, 1)
    for base, of in loads:
        load_first, load_last = ends(base, of)
        apart = em.op("arith.ori", em.i1, compare(ULE, load_last, first), compare(ULE, last, load_first))
        if SIZES[of] == SIZES[elem]:
            apart = em.op("arith.ori", em.i1, apart, compare(EQ, load_first, first))
        safe = em.op("arith.andi", em.i1, safe, apart)
    buffer = em.alloc(value.bits, elem)
    chosen = em.op("arith.select", em.ptr, safe, start, buffer.pointer)

    def put(base: SSA, bits: Bits, chunk: Chunk) -> None:
        address = em.gep(base, em.linear(bits), em.storage[elem])
        offs = SIZES[elem] * np.arange(chunk.n, dtype=np.int64)
        here = None if mask is None else low.chunk(mask, bits)
        whole = None if here is None else _whole(low, op.operands[2], here, bits)
        store_chunk(em, op, Chunk(chunk.n, "ptr", base=address, offs=offs), chunk, here, whole)

    low.each(shape, lambda bits: put(chosen, bits, low.chunk(value, bits)), _store_facts(low, op))

    def copy() -> list[SSA]:
        em.each(shape, lambda bits: put(start, bits, em.read(buffer, bits)))
        return []

    when(em, em.op("arith.xori", em.i1, safe, em.const(em.i1, 1)), [], copy, nothing)


def gather(low: Lowering, op: Op) -> None:
    """tt.gather: elements of a tensor by index along one axis. An index out of range is wrapped: no memory is harmed."""
    em = low.em
    source_type, axis = op.operands[0].type, op.int_attr("axis")
    source = low.in_memory(op.operands[0])
    indices = low.env[op.operands[1]]
    from trident.backend.triton.cpu.lower import index

    first, width = index.dim_ranges(source_type.shape)[axis]
    ranges = index.dim_ranges(op.result.type.shape)
    targets = index.dim_ranges(source_type.shape)

    def emit(bits: Bits) -> Chunk:
        lanes = len(lane_bits(bits))
        place = [0] * source_type.bits
        for d, ((rf, rw), (tf, _)) in enumerate(zip(ranges, targets, strict=True)):
            if d != axis:
                place[tf:tf + rw] = bits[rf:rf + rw]
        position = tuple(place)
        chunk = low.chunk(indices, bits)
        itype = em.vector_type(1 << lanes, em.i64)
        where = em.vec(chunk)
        where = where if em.scalar_type(where) == em.i64 else em.op("arith.extui", itype, where)
        where = em.op("arith.andi", itype, where, em.const(itype, (1 << width) - 1))
        where = em.op("arith.shli", itype, where, em.const(itype, first))
        base = em.splat(em.op("arith.extui", em.i64, em.linear(position)), 1 << lanes)
        where = em.op("arith.addi", itype, where, base)
        where = em.op("arith.addi", itype, where, em.const_ints(index.lane_offsets(position, lanes), em.i64))
        elem = em.memory_type(source.elem)
        addresses = em.gep(source.pointer, where, elem)
        if lanes == 0:
            value = em.op("llvm.load", elem, addresses, alignment=ir.IntegerAttr.get(em.i64, SIZES[source.elem]))
        else:
            value = em.gather(addresses, None, None, 1 << lanes, elem)
        if source.elem == "i1":
            value = em.op("arith.trunci", em.like(value, em.i1), value)
        return em.from_vec(1 << lanes, source.elem, value)

    tensor = Tensor(op.result.type.bits, source.elem, emit)
    low.env[op.result] = low.to_memory(tensor, op.result.type.shape, facts=wanted(low, op.operands[1:]))


OPS = {"tt.load": load, "tt.store": store, "tt.gather": gather}
