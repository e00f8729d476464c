"""Facts that hold in most program instances and make their code simple: a mask is true everywhere, a remainder only shifts.

Owns which facts the code of some tensors could use, the test of each at run time, and `versioned`, which emits that code twice: under
the facts, and without them. What must hold: a test never succeeds where the fact is false, integers that wrap included; under the facts
every element is computed to the same bits.

A fact is about a value of the kernel: the i1 tensor of a comparison of positions ("all true"), or the result of a remainder ("the
dividend plus one number"). A *chain* is a tensor that grows by one constant from element to element along one range.

May import: core, plan, ttir, lowering (types only).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from torch_mlir import ir

from trident.backend.triton.cpu.lower.core import SSA, Chunk, Emitter, Tensor
from trident.backend.triton.cpu.lower.index import Bits, broadcast_map, is_lane, lane_bits
from trident.backend.triton.cpu.lower.plan import is_pure, uniform
from trident.backend.triton.cpu.ttir import Op, Value

if TYPE_CHECKING:
    from trident.backend.triton.cpu.lower.lowering import Lowering

EQ, SLT, SLE, SGT, SGE, ULT = 0, 2, 3, 4, 5, 6  # arith.cmpi predicates; the unsigned ones follow in the same order
MOVES = frozenset({"tt.expand_dims", "tt.broadcast", "tt.reshape", "tt.trans", "tt.splat"})


def chain(low: Lowering, value: Value) -> tuple[int, int] | None:
    """(growth per step, number of steps) of a chain; None for anything else."""
    if value in low.plan.steps and value.op is None:
        loop = value.owner.parent  # type: ignore[union-attr]
        return chain(low, loop.operands[value.index + 2]) if loop is not None else None
    op = value.op
    if op is None or not value.type.ranked:
        return None
    if op.name == "tt.make_range":
        return 1, op.int_attr("end") - op.int_attr("start") - 1
    if op.name in MOVES or op.name == "arith.extsi":
        return chain(low, op.operands[0])
    if op.name not in ("arith.addi", "arith.subi", "arith.muli"):
        return None
    left, right = op.operands
    sign = 1
    if uniform(left):
        left, right = right, left
        sign = -1 if op.name == "arith.subi" else 1
    found = chain(low, left) if uniform(right) else None
    if found is None:
        return None
    if op.name == "arith.muli":
        factor = _constant(right)
        return None if factor is None or abs(found[0] * factor * found[1]) >= 1 << 31 else (found[0] * factor, found[1])
    return found[0] * sign, found[1]


def _constant(value: Value) -> int | None:
    """The number that all elements are, if the kernel says so."""
    op = value.op
    while op is not None and op.name in MOVES:
        op = op.operands[0].op
    if op is None or op.name != "arith.constant":
        return None
    attr = op.attrs["value"]
    if op.result.type.ranked:
        dense = ir.DenseElementsAttr(attr)
        if not dense.is_splat:
            return None
        attr = dense.get_splat_value()
    return int(attr.value if hasattr(attr, "value") else ir.IntegerAttr(attr).value)


def possible(low: Lowering, value: Value) -> bool:
    """Whether there may be a fact about this value itself."""
    op = value.op
    if op is None or not value.type.ranked:
        return False
    if op.name == "arith.cmpi":
        known = [chain(low, v) is not None for v in op.operands]
        return op.int_attr("predicate") >= SLT and any(known) and all(k or uniform(v) for k, v in zip(known, op.operands, strict=True))
    if op.name == "arith.remsi":
        return chain(low, op.operands[0]) is not None and uniform(op.operands[1])
    return False


def mask_facts(low: Lowering, mask: Value) -> list[Value] | None:
    """The facts that together make a mask true everywhere."""
    if possible(low, mask):
        return [mask]
    op = mask.op
    if op is None:
        return None
    if op.name == "arith.andi":
        both = [mask_facts(low, v) for v in op.operands]
        return None if both[0] is None or both[1] is None else both[0] + both[1]
    if op.name == "tt.splat":
        return [mask]
    return mask_facts(low, op.operands[0]) if op.name in MOVES else None


def wanted(low: Lowering, values: Iterable[Value], masks: Iterable[Value] = ()) -> dict[Value, None]:
    """The facts that the code of these tensors, with these masks of its own, could use."""
    found: dict[Value, None] = {}
    seen: set[Value] = set()
    stack = list(values)
    for mask in masks:
        found.update(dict.fromkeys(mask_facts(low, mask) or ()))
    while stack:
        value = stack.pop()
        op = value.op
        if value in low.plan.steps and op is None and value.type.ranked:
            loop = value.owner.parent  # type: ignore[union-attr]
            stack.extend([loop.operands[value.index + 2]] if loop is not None else [])
            continue
        if value in seen or op is None or not value.type.ranked:
            continue
        seen.add(value)
        if op.name == "arith.remsi" and possible(low, value):
            found[value] = None
        elif op.name == "scf.for" and (op.regions[0][0].args[value.index + 1]) in low.plan.steps:
            stack.append(op.operands[value.index + 3])
        elif value in low.plan.in_memory:
            continue
        elif op.name == "tt.load":
            if len(op.operands) > 1:
                found.update(dict.fromkeys(mask_facts(low, op.operands[1]) or ()))
            stack.extend(op.operands)
        elif is_pure(op):
            stack.extend(op.operands)
    return {value: None for value in found if value not in low.assumed}


def _compare(em: Emitter, predicate: int, a: SSA, b: SSA) -> SSA:
    return em.op("arith.cmpi", em.i1, a, b, predicate=ir.IntegerAttr.get(em.i64, predicate))


class Fact:
    """The test of one fact, at the current insertion point, and what the code under it needs."""

    def __init__(self, low: Lowering, value: Value) -> None:
        self.low, self.em, self.value = low, low.em, value
        self.delta: SSA = None  # of a remainder: what is added to the dividend
        op = value.op
        assert op is not None
        self.op: Op = op
        if op.name == "tt.splat":
            self.condition = low.scalar(op.operands[0])
        else:
            self.condition = self._remainder() if op.name == "arith.remsi" else self._comparison()

    def _all(self, conditions: Sequence[SSA]) -> SSA:
        total: SSA = None
        for condition in conditions:
            total = condition if total is None else self.em.op("arith.andi", self.em.i1, total, condition)
        return total

    def _compare(self, predicate: int, a: SSA, b: SSA) -> SSA:
        return _compare(self.em, predicate, a, b)

    def _wide(self, value: SSA) -> SSA:
        return value if value.type == self.em.i64 else self.em.op("arith.extsi", self.em.i64, value)

    def _ends(self, value: Value) -> tuple[list[SSA], list[SSA]]:
        """The first and the last element of a chain (one of what is uniform), and what shows that nothing wraps between them."""
        em, tensor = self.em, self.low.tensor(value)
        first = em.at(tensor, (0,) * tensor.bits).base
        found = chain(self.low, value)
        if found is None or found[0] * found[1] == 0:
            return [first], []
        last = em.at(tensor, (1,) * tensor.bits).base
        growth = found[0] * found[1]
        wide_first, wide_last = self._wide(first), self._wide(last)
        straight = self._compare(EQ, em.op("arith.subi", em.i64, wide_last, wide_first), em.const(em.i64, growth))
        return [first, last], [straight, self._compare(SLE if growth > 0 else SGE, wide_first, wide_last)]

    def _comparison(self) -> SSA:
        predicate = self.op.int_attr("predicate")
        (left, left_tests), (right, right_tests) = (self._ends(v) for v in self.op.operands)
        tests = [*left_tests, *right_tests]
        if predicate >= ULT:
            tests += [self._compare(SGE, v, self.em.const(v.type, 0)) for v in (*left, *right)]
        return self._all([*tests, *(self._compare(predicate, a, b) for a in left for b in right)])

    def _remainder(self) -> SSA:
        em = self.em
        ends, tests = self._ends(self.op.operands[0])
        divisor = em.at(self.low.tensor(self.op.operands[1]), (0,) * self.op.result.type.bits).base
        positive = self._compare(SGT, divisor, em.const(divisor.type, 0))
        safe = em.op("arith.select", divisor.type, positive, divisor, em.const(divisor.type, 1))
        # An unsigned remainder: the dividend is seen to be no negative number.
        rest = em.op("arith.remui", divisor.type, ends[0], safe)
        self.delta = em.op("arith.subi", divisor.type, rest, ends[0])
        # In f64 or i64 no sum of these wraps; in i64 the dividend's end is one that exists.
        reach = em.op("arith.addi", em.i64, self._wide(ends[-1]), self._wide(self.delta))
        inside = [self._compare(SGE, v, em.const(v.type, 0)) for v in ends]
        return self._all([*tests, positive, *inside, self._compare(SGE, reach, em.const(em.i64, 0)),
                          self._compare(SLT, reach, self._wide(safe))])

    def chunk(self, bits: Bits, n: int) -> Chunk:
        """The value's elements, where the fact holds."""
        em = self.em
        if self.delta is None:
            return Chunk(n, "i1", base=em.const(em.i1, 1), const=1)
        dividend = self.low.chunk(self.low.env[self.op.operands[0]], bits)
        delta = self.delta

        def exact() -> SSA:
            vector = em.vec(dividend)
            return em.op("arith.addi", vector.type, vector, em.splat(delta, n))

        if not dividend.affine:
            return em.from_vec(n, dividend.elem, exact())
        base = em.op("arith.addi", dividend.base.type, dividend.base, delta)
        return Chunk(n, dividend.elem, base=base, offs=dividend.offs, make=exact if dividend.make else None)


def wanted_by(low: Lowering, op: Op) -> dict[Value, None]:
    """The facts that the code of an operation's result could use."""
    return wanted(low, op.operands, op.operands[1:2] if op.name == "tt.load" else ())


def versioned(low: Lowering, facts: Iterable[Value], body: Callable[[], list[SSA]], types: Sequence[ir.Type] = ()) -> list[SSA]:
    """Emit `body` (whose results have these types) under the facts and, where they do not hold, without them."""
    from trident.backend.triton.cpu.lower.memory import when

    em, tests = low.em, {value: Fact(low, value) for value in facts}
    if not tests:
        return body()
    condition: SSA = None
    for fact in tests.values():
        condition = fact.condition if condition is None else em.op("arith.andi", em.i1, condition, fact.condition)

    def simple() -> list[SSA]:
        low.assumed.update(tests)
        try:
            return body()
        finally:
            for value in tests:
                del low.assumed[value]

    return when(em, condition, list(types), simple, body)


def whole_chunk(low: Lowering, mask: Value, bits: Bits) -> SSA:
    """Whether a mask is true in every lane at a position, told by the ends of the lanes; None where only the lanes can tell."""
    leaves = mask_facts(low, mask)
    if not leaves or mask.type.bits != len(bits):
        return None
    tests: list[SSA] = []
    for leaf in leaves:
        where = _position(mask, leaf, bits)
        op = leaf.op
        assert op is not None
        if op.name == "tt.splat":
            tests.append(low.scalar(op.operands[0]))
        elif op.name != "arith.cmpi" or where is None:
            return None
        else:
            fact = _ChunkFact(low, leaf, where)
            if fact.condition is None:
                return None
            tests.append(fact.condition)
    total = tests[0]
    for test in tests[1:]:
        total = low.em.op("arith.andi", low.em.i1, total, test)
    return total


def _position(value: Value, leaf: Value, bits: Bits) -> Bits | None:
    """Where `leaf`, of which `value` is made by moves and conjunctions, is read for a position of `value`."""
    if value is leaf:
        return bits
    op = value.op
    assert op is not None
    if op.name == "tt.broadcast":
        return _position(op.operands[0], leaf, tuple(bits[m] for m in broadcast_map(op.operands[0].type.shape, value.type.shape)))
    if op.name in ("tt.expand_dims", "tt.reshape"):
        return _position(op.operands[0], leaf, bits)
    if op.name == "arith.andi":
        return next((p for p in (_position(v, leaf, bits) for v in op.operands) if p is not None), None)
    return None


class _ChunkFact:
    """The test of a comparison for the lanes of one chunk."""

    def __init__(self, low: Lowering, value: Value, bits: Bits) -> None:
        self.low, self.em = low, low.em
        op = value.op
        assert op is not None
        self.condition: SSA = None
        predicate = op.int_attr("predicate")
        tests: list[SSA] = []
        ends: list[list[SSA]] = []
        for operand in op.operands:
            found = self._ends(operand, bits)
            if found is None or predicate >= ULT:
                return
            ends.append(found[0])
            tests += found[1]
        for a in ends[0]:
            for b in ends[1]:
                tests.append(_compare(self.em, predicate, a, b))
        for test in tests:
            self.condition = test if self.condition is None else self.em.op("arith.andi", self.em.i1, self.condition, test)

    def _ends(self, value: Value, bits: Bits) -> tuple[list[SSA], list[SSA]] | None:
        em, tensor = self.em, self.low.tensor(value)
        first = em.at(tensor, tuple(0 if is_lane(b) else b for b in bits)).base
        if uniform(value) or not lane_bits(bits):
            return [first], []
        chunk = em.moved(tensor, bits, len(lane_bits(bits)))
        growth = None if chunk.offs is None else chunk.offs[1:] - chunk.offs[:-1]
        if growth is None or chunk.offs is None or not ((growth >= 0).all() or (growth <= 0).all()):
            return None
        last = em.at(tensor, tuple(1 if is_lane(b) else b for b in bits)).base
        reach = int(chunk.offs[-1] - chunk.offs[0])
        wide = [v if v.type == em.i64 else em.op("arith.extsi", em.i64, v) for v in (first, last)]
        straight = _compare(em, EQ, em.op("arith.subi", em.i64, wide[1], wide[0]), em.const(em.i64, reach))
        return [first, last], [straight, _compare(em, SLE if reach >= 0 else SGE, wide[0], wide[1])]


def with_fact(low: Lowering, value: Value, tensor: Tensor) -> Tensor:
    """The tensor of a value that there may be a fact about: simple in code under the fact."""
    emit = tensor.emit

    def chosen(bits: Bits) -> Chunk:
        fact = low.assumed.get(value)
        return emit(bits) if fact is None else fact.chunk(bits, 1 << len(lane_bits(bits)))

    return Tensor(tensor.bits, tensor.elem, chosen, tensor.buffer, tensor.sources)
