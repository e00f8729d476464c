"""tl.map_elementwise: a function with control flow of its own, applied to elements one by one.

Owns its lowering: a loop over the elements whose body is the function's blocks. What must hold: the function runs for the elements in
order, for `pack` neighbours at once, and only the way that an element takes is executed for it.

May import: control, core, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu.lower import control
from trident.backend.triton.cpu.lower.core import Chunk
from trident.backend.triton.cpu.lower.index import Bits, dim_ranges
from trident.backend.triton.cpu.ttir import Op

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def _map(low: Lowering, op: Op) -> None:
    em = low.em
    operands = [low.tensor(v) for v in op.operands]
    buffers = [em.alloc(r.type.bits, r.type.elem) for r in op.results]
    pack = op.int_attr("pack")
    width = pack.bit_length() - 1
    if pack != 1 << width or width > op.results[0].type.bits:
        raise op.unsupported(f"packs of {pack} elements of {op.results[0].type.numel}")
    blocks = op.regions[0]
    types = [em.storage[r.type.elem] for r in op.results for _ in range(pack)]

    def each(bits: Bits) -> None:
        places = [(*((j >> k) & 1 for k in range(width)), *bits[width:]) for j in range(pack)]
        inputs = [em.at(t, place).base for t in operands for place in places]
        body = ir.Operation.create("scf.execute_region", results=types, regions=1)
        body.regions[0].blocks.append()
        for argument, value in zip(blocks[0].args, inputs, strict=True):
            low.set_scalar(argument, value)
        control.lower_blocks(low, blocks, body.regions[0])
        results = iter(body.results)
        for buffer in buffers:
            for place in places:
                em.write(buffer, place, Chunk(1, buffer.elem, base=next(results)))

    bits = [0] * op.results[0].type.bits
    ranges = [(max(f, width), f + w - max(f, width)) for f, w in dim_ranges(op.results[0].type.shape) if f + w > width]
    with em.scope():
        em.nest([(f, w) for f, w in ranges if w > 0], bits, each)
    for result, buffer in zip(op.results, buffers, strict=True):
        low.env[result] = em.tensor_of(buffer)


def _return(low: Lowering, op: Op) -> None:
    low.em.do("scf.yield", *[low.scalar(v) for v in op.operands])


OPS: dict[str, Callable[[Lowering, Op], None]] = {"tt.map_elementwise": _map, "tt.map_elementwise.return": _return}
