"""Which tensors are computed where they are used, and which are put into memory first.

Owns `Plan`. Its vocabulary: an *anchor* is an op that runs a loop over a tensor's elements (a store, a reduction, a yield, anything
that fills a buffer). The pure ops between anchors need no loop of their own: an anchor computes them chunk by chunk. What must
hold: a load that is not put into memory is executed by exactly one anchor, in its own block, with nothing between the two that may
write memory.

May import: ttir, elementwise (cost table).
"""

from __future__ import annotations

from trident.backend.triton.cpu.lower.core import FLOATS
from trident.backend.triton.cpu.lower.elementwise import ADDRESS_OPS, COSTS, RULES
from trident.backend.triton.cpu.ttir import Block, Kernel, Op, Value

VIEWS = frozenset({"tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.splat", "tt.join", "tt.split", "tt.cat",
                   "tt.make_range", "arith.constant", "ub.poison"})
WRITES = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.atomic_load", "tt.atomic_store", "tt.atomic_poll", "tt.print",
                    "tt.assert", "tt.call", "gpu.barrier"})

# What one element may cost to compute again before it is better to put the tensor into memory.
_RECOMPUTE = 6
# The same for comparisons and other integer work, whose operands are mostly positions and fold away.
_RECOMPUTE_INT = 16


class Plan:
    """Decisions per value of one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.in_memory: set[Value] = set()
        self.anchors: dict[Value, set[tuple[Op, int]]] = {}  # with the operand's position in the anchor
        self.repeated: set[Value] = set()  # asked for more than once by one anchor, through a broadcast
        self.steps: dict[Value, list[Value]] = {}  # loop argument that only moves: the uniform values added per iteration
        self.cost: dict[Value, int] = {}
        self.writes: set[Op] = set()
        for block in kernel.blocks:
            self._forward(block)
        for block in reversed(kernel.blocks):
            self._backward(block)

    # -- costs, writes and moving arguments, in program order ------------------------------------------------------------------------

    def _forward(self, block: Block) -> None:
        for arg in block.args:
            self.cost.setdefault(arg, 1)
        for op in block.ops:
            if op.name == "scf.for":
                self._find_steps(op)
            for region in op.regions:
                for inner in region:
                    self._forward(inner)
            if op.name in WRITES or any(o in self.writes for r in op.regions for b in r for o in b.ops):
                self.writes.add(op)
            own = 0 if op.name in VIEWS else COSTS.get(op.name, 1)
            total = own + sum(self.cost[v] for v in op.operands if v.type.ranked)  # a scalar is computed once
            for result in op.results:
                self.cost[result] = min(total, 1000) if is_pure(op) else 1

    def _find_steps(self, loop: Op) -> None:
        """Arguments of integers or pointers to which every iteration adds something uniform."""
        body = loop.regions[0][0]
        yielded = body.ops[-1].operands
        for arg, new in zip(body.args[1:], yielded, strict=True):
            if arg.type.ranked and (arg.type.elem == "ptr" or arg.type.elem in ("i32", "i64")):
                steps: list[Value] = []
                value = new
                while value is not arg and value.op is not None and value.op.block is body:
                    adder = value.op
                    if adder.name not in ("tt.addptr", "arith.addi"):
                        break
                    left, right = adder.operands
                    if adder.name == "arith.addi" and uniform(left) and not uniform(right):
                        left, right = right, left
                    if not uniform(right):
                        break
                    steps.append(right)
                    value = left
                if value is arg:
                    self.steps[arg] = steps

    # -- anchors, against program order ----------------------------------------------------------------------------------------------

    def _backward(self, block: Block) -> None:
        for op in reversed(block.ops):
            for region in op.regions:
                for inner in reversed(region):
                    self._backward(inner)
            for result in op.results:
                if result.type.ranked:
                    self._decide(op, result)
        for arg in block.args:
            if arg.type.ranked:
                self._collect(arg)

    def _collect(self, value: Value) -> None:
        """Find the anchors of a value, and whether some anchor asks for an element more than once."""
        found: set[tuple[Op, int]] = set()
        repeated = False
        for user, position in value.uses:
            if user.name == "scf.for" and position >= 3:
                arg = user.regions[0][0].args[position - 2]
                if arg in self.steps:
                    found |= self.anchors.get(arg, set()) | self.anchors.get(user.results[position - 3], set())
                    continue
            if user.name == "scf.yield" and self._yields_step(user, position):
                continue
            lazy = [r for r in user.results if r.type.ranked and r not in self.in_memory]
            if lazy and (is_pure(user) or user.name == "tt.load"):
                for r in lazy:
                    found |= self.anchors[r]
                    repeated |= r in self.repeated or r.type.bits > value.type.bits
                continue
            found.add((user, position))
        self.anchors[value] = found
        if repeated:
            self.repeated.add(value)

    def _yields_step(self, user: Op, position: int) -> bool:
        loop = user.block.parent
        return loop is not None and loop.name == "scf.for" and loop.regions[0][0].args[position + 1] in self.steps

    def _decide(self, op: Op, result: Value) -> None:
        self._collect(result)
        if op.name == "tt.load":
            if result.uses and not self._load_may_wait(op, result):
                self.in_memory.add(result)
            return
        if not is_pure(op) or op.name in VIEWS or result.type.elem == "ptr":
            return
        users = {a for a, _ in self.anchors[result]}
        once = len(users) <= 1 and all(a.block is op.block for a in users) and result not in self.repeated
        if op.name in ADDRESS_OPS:
            # Positions are cheap, whatever their number of operations; values that were divided or loaded are not.
            limit = 4 * _RECOMPUTE_INT
        else:
            limit = _RECOMPUTE if result.type.elem in FLOATS else _RECOMPUTE_INT
        if not once and self.cost[result] > limit:
            self.in_memory.add(result)

    def _load_may_wait(self, load: Op, result: Value) -> bool:
        if result in self.repeated or len({a for a, _ in self.anchors[result]}) != 1:
            return False
        # Addresses and masks are read while memory is written, and an atomic's values too. A store looks after its values itself.
        if any(a.name in WRITES and (a.name != "tt.store" or position != 1) for a, position in self.anchors[result]):
            return False
        ((anchor, _), *_) = self.anchors[result]
        if anchor.block is not load.block:
            return False
        between = load.block.ops[load.position + 1:anchor.position]
        return not any(o in self.writes for o in between)


def is_pure(op: Op) -> bool:
    """Whether the op only computes, element by element or by moving elements."""
    return op.name in RULES or op.name in VIEWS


def uniform(value: Value) -> bool:
    """Whether all elements are known to be one value."""
    op = value.op
    if op is None:
        return not value.type.ranked
    if not value.type.ranked or op.name == "tt.splat":
        return True
    if op.name == "arith.constant":
        return "dense<" in str(op.attrs["value"]) and "[" not in str(op.attrs["value"]).split("tensor", 1)[0]
    if op.name in ("tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans") or op.name in RULES:
        return bool(op.operands) and all(uniform(v) for v in op.operands)
    return False


def is_position(value: Value) -> bool:
    """Whether a tensor is computed from ranges and scalars by address arithmetic alone."""
    op = value.op
    if not value.type.ranked:
        return True
    if op is None:
        return False
    return (op.name in ADDRESS_OPS or op.name in VIEWS) and all(is_position(v) for v in op.operands)
