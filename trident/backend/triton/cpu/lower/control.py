"""Control flow: loops, branches and the blocks of early returns.

Owns how values pass through control flow. Scalars stay SSA values. A tensor that a loop carries lives in a buffer that each
iteration overwrites at its end; an argument that only moves by something uniform (pointers, offsets) is carried as that distance.
What must hold: at the end of an iteration every new value is computed from the old ones, whatever order they are written in.

May import: core, facts, plan, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu.lower import facts
from trident.backend.triton.cpu.lower.core import SSA, Buffer, Chunk, Tensor
from trident.backend.triton.cpu.lower.elementwise import RULES
from trident.backend.triton.cpu.ttir import Block, Op, Value

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering


def write_all(low: Lowering, values: Sequence[Value], buffers: Sequence[Buffer]) -> None:
    """Assign tensors to buffers at once: none sees another's new value."""
    written = set(buffers)
    ready: list[tuple[Tensor, Value, Buffer]] = []
    for value, buffer in zip(values, buffers, strict=True):
        tensor = low.tensor(value)
        if tensor.buffer is buffer:
            continue
        if any(source in written and (source is not buffer or not same) for source, same in tensor.sources.items()):
            tensor = low.to_memory(tensor, value.type.shape, facts=facts.wanted(low, [value]))
        ready.append((tensor, value, buffer))
    for tensor, value, buffer in ready:
        low.to_memory(tensor, value.type.shape, buffer, facts.wanted(low, [value]))


class _Moving:
    """A loop argument that is its first value plus a carried distance."""

    def __init__(self, low: Lowering, arg: Value, init: Tensor) -> None:
        self.low, self.arg, self.init = low, arg, init
        self.pointer = arg.type.elem == "ptr"
        self.elem = "i64" if self.pointer else arg.type.elem
        # The rule for adding needs an op to ask for types: any that adds to the argument serves.
        name = "tt.addptr" if self.pointer else "arith.addi"
        self.adder = next((u for u, position in arg.uses if u.name == name and (position == 0 or not self.pointer)), None)

    def zero(self) -> SSA:
        em = self.low.em
        return em.const(em.storage[self.elem], 0)

    def tensor(self, distance: SSA) -> Tensor:
        if self.adder is None:
            return self.init
        init, low, adder = self.init, self.low, self.adder

        def emit(bits: tuple[int, ...]) -> Chunk:
            start = low.em.at(init, bits)
            step = Chunk(start.n, self.elem, base=distance)
            return RULES[adder.name](low.em, adder, [start, step], start.n)

        return Tensor(init.bits, init.elem, emit, sources=dict(init.sources))

    def advance(self, distance: SSA, steps: Sequence[Value]) -> SSA:
        em = self.low.em
        for value in steps:
            found = self.low.env[value]
            chunk = found if isinstance(found, Chunk) else em.at(found, (0,) * found.bits)
            step = chunk.base
            if step.type != distance.type:
                step = em.op("arith.extsi", distance.type, step)
            distance = em.op("arith.addi", distance.type, distance, step)
        return distance


def _for(low: Lowering, op: Op) -> None:
    em = low.em
    body = op.regions[0][0]
    args, inits, yielded = body.args[1:], op.operands[3:], body.ops[-1].operands
    moving: dict[Value, _Moving] = {}
    buffers: dict[Value, Buffer] = {}
    carried: list[Value] = []
    start: list[SSA] = []
    for arg, init in zip(args, inits, strict=True):
        if not arg.type.ranked:
            carried.append(arg)
            start.append(low.scalar(init))
        elif arg in low.plan.steps:
            moving[arg] = _Moving(low, arg, low.tensor(init))
            carried.append(arg)
            start.append(moving[arg].zero())
        else:
            buffers[arg] = em.alloc(arg.type.bits, arg.type.elem)
            low.to_memory(low.tensor(init), arg.type.shape, buffers[arg], facts.wanted(low, [init]))
            _claim(low, body, arg, yielded[arg.index - 1], buffers[arg])
    bounds = [low.scalar(v) for v in op.operands[:3]]
    attributes = {"unsignedCmp": ir.UnitAttr.get()} if "unsignedCmp" in op.attrs else {}
    loop = ir.Operation.create("scf.for", results=[v.type for v in start], operands=[*bounds, *start], attributes=attributes, regions=1)
    block = loop.regions[0].blocks.append(bounds[0].type, *[v.type for v in start])
    with em.scope(block):
        low.set_scalar(body.args[0], block.arguments[0])
        inside = dict(zip(carried, list(block.arguments)[1:], strict=True))
        _bind(low, args, args, inside, moving, buffers, carried_buffers=True)
        low.block(body)
        kept = [(new, buffers[arg]) for arg, new in zip(args, yielded, strict=True) if arg in buffers]
        write_all(low, [v for v, _ in kept], [b for _, b in kept])
        new_of = dict(zip(args, yielded, strict=True))
        em.do("scf.yield", *[moving[a].advance(inside[a], low.plan.steps[a]) if a in moving else low.scalar(new_of[a])
                             for a in carried])
    _bind(low, args, op.results, dict(zip(carried, loop.results, strict=True)), moving, buffers, carried_buffers=False)


def _bind(low: Lowering, args: Sequence[Value], names: Sequence[Value], scalars: dict[Value, SSA], moving: dict[Value, _Moving],
          buffers: dict[Value, Buffer], *, carried_buffers: bool) -> None:
    """Define the loop's arguments, or its results, from what is carried."""
    for arg, name in zip(args, names, strict=True):
        if arg in moving:
            low.env[name] = moving[arg].tensor(scalars[arg])
        elif arg in buffers:
            low.env[name] = low.em.tensor_of(buffers[arg], carried=carried_buffers)
        else:
            low.set_scalar(name, scalars[arg])


def _claim(low: Lowering, body: Block, arg: Value, new: Value, buffer: Buffer) -> None:
    """Let a product accumulate into the loop's own buffer when nothing else reads the old value."""
    producer = new.op
    if producer is not None and producer.name == "tt.dot" and producer.block is body and len(new.uses) == 1 \
            and low.plan.anchors[arg] == {(producer, 2)} and new.type == arg.type:
        low.targets[producer] = buffer


def _if(low: Lowering, op: Op) -> None:
    em = low.em
    buffers = {r: em.alloc(r.type.bits, r.type.elem) for r in op.results if r.type.ranked}
    scalars = [r for r in op.results if not r.type.ranked]
    branch = ir.Operation.create("scf.if", results=[em.storage[r.type.elem] for r in scalars],
                                 operands=[low.scalar(op.operands[0])], regions=2)
    for region, target in zip(op.regions, branch.regions, strict=True):
        if not region:
            continue
        with em.scope(target.blocks.append()):
            low.block(region[0])
            yielded = region[0].ops[-1].operands
            pairs = dict(zip(op.results, yielded, strict=True))
            write_all(low, [pairs[r] for r in buffers], list(buffers.values()))
            em.do("scf.yield", *[low.scalar(pairs[r]) for r in scalars])
    for result, value in zip(scalars, branch.results, strict=True):
        low.set_scalar(result, value)
    for result, buffer in buffers.items():
        low.env[result] = em.tensor_of(buffer)


def _while(low: Lowering, op: Op) -> None:
    em = low.em
    before, after = op.regions[0][0], op.regions[1][0]
    condition, end = before.ops[-1], after.ops[-1]
    forwarded = condition.operands[1:]
    buffers = {a: em.alloc(a.type.bits, a.type.elem) for a in before.args if a.type.ranked}
    for arg, init in zip(before.args, op.operands, strict=True):
        if arg in buffers:
            low.to_memory(low.tensor(init), arg.type.shape, buffers[arg])
    passed = [buffers.get(f) or em.alloc(f.type.bits, f.type.elem) if f.type.ranked else None for f in forwarded]
    scalars = [f for f in forwarded if not f.type.ranked]
    inits = [low.scalar(v) for v in op.operands if not v.type.ranked]
    loop = ir.Operation.create("scf.while", results=[em.storage[f.type.elem] for f in scalars], operands=inits, regions=2)
    block = loop.regions[0].blocks.append(*[v.type for v in inits])
    with em.scope(block):
        _bind_block(low, before.args, list(block.arguments), buffers)
        low.block(before)
        moved = [(f, b) for f, b in zip(forwarded, passed, strict=True) if b is not None]
        write_all(low, [f for f, _ in moved], [b for _, b in moved])
        em.do("scf.condition", low.scalar(condition.operands[0]), *[low.scalar(f) for f in scalars])
    block = loop.regions[1].blocks.append(*[em.storage[f.type.elem] for f in scalars])
    given = {a: b for a, b in zip(after.args, passed, strict=True) if b is not None}
    with em.scope(block):
        _bind_block(low, after.args, list(block.arguments), given)
        low.block(after)
        kept = [(new, buffers[arg]) for arg, new in zip(before.args, end.operands, strict=True) if arg in buffers]
        write_all(low, [v for v, _ in kept], [b for _, b in kept])
        em.do("scf.yield", *[low.scalar(v) for v in end.operands if not v.type.ranked])
    results = iter(loop.results)
    for result, buffer in zip(op.results, passed, strict=True):
        if buffer is not None:
            low.env[result] = em.tensor_of(buffer)
        else:
            low.set_scalar(result, next(results))


def _bind_block(low: Lowering, args: Sequence[Value], scalars: list[SSA], buffers: dict[Value, Buffer]) -> None:
    remaining = iter(scalars)
    for arg in args:
        if arg in buffers:
            low.env[arg] = low.em.tensor_of(buffers[arg], carried=True)
        else:
            low.set_scalar(arg, next(remaining))


# -- blocks ------------------------------------------------------------------------------------------------------------------------


def _pass_to(low: Lowering, successor: Block, operands: Sequence[Value]) -> list[SSA]:
    """Hand arguments to a block: tensors through their buffers; the scalars are returned."""
    pairs = list(zip(successor.args, operands, strict=True))
    tensors = [(v, low.block_buffers[a]) for a, v in pairs if a.type.ranked]
    write_all(low, [v for v, _ in tensors], [b for _, b in tensors])
    return [low.scalar(v) for a, v in pairs if not a.type.ranked]


def _br(low: Lowering, op: Op) -> None:
    scalars = _pass_to(low, op.successors[0], op.operands)
    ir.Operation.create("cf.br", operands=scalars, successors=[low.blocks[op.successors[0]]])


def _cond_br(low: Lowering, op: Op) -> None:
    yes, no = op.successors
    first = len(yes.args)
    left = _pass_to(low, yes, op.operands[1:1 + first])
    right = _pass_to(low, no, op.operands[1 + first:])
    ir.Operation.create(
        "cf.cond_br", operands=[low.scalar(op.operands[0]), *left, *right], successors=[low.blocks[yes], low.blocks[no]],
        attributes={"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, len(left), len(right)])})


def _return(low: Lowering, op: Op) -> None:
    if op.operands:
        raise op.unsupported("a kernel that returns a value")
    low.em.do("func.return")


def _barrier(low: Lowering, op: Op) -> None:
    """A program's operations run one after the other here, and so do kernels: there is nothing to wait for. Hints need no code."""


def lower_blocks(low: Lowering, blocks: Sequence[Block], function: ir.Region) -> None:
    """The kernel's own blocks, in order; the first is the function's entry."""
    em = low.em
    low.blocks[blocks[0]] = function.blocks[0]
    for block in blocks[1:]:
        for arg in block.args:
            if arg.type.ranked:
                low.block_buffers[arg] = em.alloc(arg.type.bits, arg.type.elem)
        types = [em.storage[a.type.elem] for a in block.args if not a.type.ranked]
        low.blocks[block] = function.blocks.append(*types)
    for block in blocks:
        target = low.blocks[block]
        with em.fresh(target):
            if block is not blocks[0]:
                scalars = iter(target.arguments)
                for arg in block.args:
                    if arg.type.ranked:
                        low.env[arg] = em.tensor_of(low.block_buffers[arg], carried=True)
                    else:
                        low.set_scalar(arg, next(scalars))
            low.block(block)


OPS: dict[str, Callable[[Lowering, Op], None]] = {
    "scf.for": _for, "scf.if": _if, "scf.while": _while, "cf.br": _br, "cf.cond_br": _cond_br, "tt.return": _return,
    "tt.grid_dependency_wait": _barrier, "tt.grid_dependency_launch_dependents": _barrier, "llvm.intr.assume": _barrier,
    "gpu.barrier": _barrier, "ttg.barrier": _barrier, "tt.debug_barrier": _barrier, "ttg.local_barrier": _barrier,
}
