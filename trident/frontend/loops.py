"""Loops: when a trace ends at the header of one, and what goes on there.

A loop over modules, or of a short constant number of iterations, becomes straight code. Where the number is a run-time value, the first
iteration is recorded as any code is. When the header (the instruction that backward jumps lead to) comes again, the trace ends there, and
a trace of its own begins with the frames as they are: the loop's. It is the recording of one iteration; at the header the frames are
compared with what they were at the beginning, and if they fit, the trace ends with a back edge. Whatever reaches that header with fitting
frames later (a bridge from a rare branch in the body, the code around an inner loop, another root trace) ends with a jump to that trace.

Owns when that happens, and the comparison. What must hold:
 * A trace that begins at a header relies on nothing but its snapshot: the constants in it and the types of its slots. A jump to it
   establishes both. Everything else is guarded or pinned in the trace, so again in each iteration.
 * A constant of the frames that is another number in the next iteration is a slot, as is the position of an iterator.
 * What no trace can describe again and again (frames that never fit, numbers that are needed as constants in the body) is unrolled.

May import: ir, frontend.{recorder's bases,iteration,snapshots,values,virtuals}.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir as mlir

from trident.frontend import iteration
from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.guards import fits
from trident.frontend.models import registry
from trident.frontend.raising import Raising
from trident.frontend.snapshots import LoopSlots, visible_locals
from trident.frontend.values import Const, Value, Virtual
from trident.frontend.virtuals import MUTABLE, Maker, maker_of
from trident.ir import NULL, Build, Known, Recipe, Slot, Snapshot, Trace
from trident.ir.dialect import kind_of
from trident.ir.ops import BY_NAME

_VERSIONS = 16  # traces that begin at one header
_FAILURES = 3  # of them that did not come back to their beginning
_NUMBERS = frozenset({int, float, bool})
_PLAIN = frozenset({int, bool, str, bytes, type(None)})


@dataclass(eq=False)
class Target:
    """A trace that begins at a header. kinds: the forms that the slots had when it was recorded. program: what it was compiled to."""

    snapshot: Snapshot
    kinds: tuple[str, ...]
    program: Any = None


@dataclass(eq=False)
class Header:
    """What is known of a loop's header in given frames. unrolled: why it is, "" if it is not."""

    frames: tuple[Any, ...]  # their code: the key has the ids
    targets: list[Target] = field(default_factory=list)
    failures: int = 0
    unrolled: str = ""


@dataclass(eq=False)
class Onward:
    """Where a recording has stopped: at a header, with these objects in the slots of the target's snapshot.

    target: the trace that goes on there; without a program it is to be recorded, if it is not the one that has ended."""

    target: Target
    values: list[object]
    header: Header


@dataclass(eq=False, slots=True)
class _Visit:
    count: int = 0
    snapshot: Snapshot | None = None
    branches: int = 0


class Ended(Exception):
    """The trace is complete, the call is not."""


def _can_vary(obj: Any) -> bool:
    """Whether a constant can be a number that the trace computes."""
    return type(obj) in _NUMBERS and (type(obj) is not int or fits(obj))


class Looping(Raising):
    """A part of the recorder. See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.headers: dict[Any, Header] | None = getattr(self.options, "loops", None)
        self.started = False  # whether an instruction has been executed
        self.own: Target | None = None  # the loop that this trace is to be
        self.forms: list[tuple[int, str]] = []  # slot and kind of each value that it carries
        self.own_frame: RecordedFrame | None = None
        self.onward: Onward | None = None
        self.complete: Trace | None = None

    def begin_loop(self, target: Target) -> LoopSlots:
        """At the beginning of the trace: the slots as values that may change. A number that is an object has two forms."""
        builder, self.own = self.builder, target
        self.forms = list(enumerate(target.kinds))
        self.forms += [(n, known.__name__) for n, known in enumerate(target.snapshot.types)
                       if known is not None and known in _NUMBERS and target.kinds[n] == "object"]
        initial = [arg if kind == "object" else builder.op(f"unbox_{kind}", arg)
                   for kind, arg in ((kind, builder.args[n]) for n, kind in self.forms)]
        carried = [builder.carry(value) for value in initial]
        builder.op("loop")
        slots = len(target.kinds)
        more = zip(self.forms[slots:], carried[slots:], strict=True)
        return LoopSlots(carried[:slots], {n: [(kind, value)] for (n, kind), value in more})

    def arrive(self, frame: RecordedFrame, ins: Instruction) -> None:
        """Before the instruction of a header. May end the trace."""
        if self.headers is None or self.pure_base or self.stop_depth or self.handled:
            return
        key = tuple((id(f.code.code), f.current.offset) for f in self.frames)
        header = self.headers.get(key)
        if header is None:
            header = self.headers[key] = Header(tuple(f.code.code for f in self.frames))
        visit = frame.visits.setdefault(ins.index, _Visit())
        if not self.started:  # whatever happens here first happens in this trace
            self.own_frame = frame
            visit.count, visit.snapshot, visit.branches = 1, self._describe(header), self.branches
        elif not header.unrolled:
            self._make_positions_varying({})
            self._close_or_jump(frame, header, visit)
            if not header.unrolled and self._is_due(frame, ins, header, visit):
                self._begin(frame, header, visit)
        self.serial += 1  # the instruction has a state of its own

    def _describe(self, header: Header) -> Snapshot | None:
        try:
            return self.snapshots.take_general({})[0]
        except Leave:
            header.unrolled = "frames without a description"
            return None

    # ------------------------------------------------------------------------------------------------ ends of a trace
    def _close_or_jump(self, frame: RecordedFrame, header: Header, visit: _Visit) -> None:
        own = self.own
        if own is not None and frame is self.own_frame and frame.code.at[own.snapshot.frames[-1].offset] == frame.pc:
            match = Match(self, own.snapshot)
            if match.holds:
                operands = match.operands(own.kinds)
                carried = [self.ssa(match.slot(n), kind) for n, kind in self.forms]
                if self._needs_constants(carried):
                    header.unrolled = "a number that changes is needed as a constant"
                    return
                self._end(header, own, match)
                self.builder.state(own.snapshot, operands)
                self.complete = self.builder.back(carried)
                raise Ended
            header.failures += 1
            visit.snapshot, self.own = own.snapshot, None
            if header.failures > _FAILURES:
                header.unrolled = "an iteration never ends as it begins"
                return
        for target in header.targets:
            match = Match(self, target.snapshot)
            if match.holds and target.program is not None:
                operands = match.operands(target.kinds)
                self._end(header, target, match)
                self.complete = self.builder.jump(target.snapshot, operands)
                raise Ended

    def _end(self, header: Header, target: Target, match: Match) -> None:
        self._leave_entry()
        self.onward = Onward(target, [match.slot(n).obj for n in range(len(target.kinds))], header)

    def _leave_entry(self) -> None:
        if self.in_entry:
            self.builder.entry_ends_here()
            self.in_entry = False

    def _is_due(self, frame: RecordedFrame, ins: Instruction, header: Header, visit: _Visit) -> bool:
        """Whether the loop is one, and what its variables do is known."""
        branches, visit.branches = visit.branches, self.branches
        if ins.name == "FOR_ITER":
            iterator = frame.stack[-1]
            assert isinstance(iterator, Value)
            if iteration.is_unrolled(self, iterator):  # type: ignore[arg-type]
                return False
        visit.count += 1
        previous = visit.snapshot
        if previous is None or ins.name != "FOR_ITER" and branches == self.branches and visit.count <= iteration.UNROLLED:
            visit.snapshot = self._describe(header)
            return False
        return True

    def _begin(self, frame: RecordedFrame, header: Header, visit: _Visit) -> None:
        """End the trace; another one begins here, with everything that was seen to change as a slot."""
        if len(header.targets) >= _VERSIONS:
            header.unrolled = "it begins in too many ways"
            return
        varying: dict[int, Const] = {}
        known = [visit.snapshot, *(target.snapshot for target in header.targets[-1:])]
        for snapshot in known:
            assert snapshot is not None
            match = Match(self, snapshot)
            varying.update(match.varying)
            for virtual in match.changed:
                self.materialise(virtual)
        self._make_positions_varying(varying)
        for f in self.frames:
            headers = {index for index, visit in f.visits.items() if visit.count}
            for n in f.code.stored_around(f.current.index, headers):
                entry = f.locals[n]
                value = entry if entry is NULL else self.resolve(entry)  # type: ignore[arg-type]
                if type(value) is Const and _can_vary(value.obj):
                    varying[id(value)] = value
        forms = {key: self.ssa(value, type(value.obj).__name__) for key, value in varying.items()}
        snapshot, operands, objects = self.snapshots.take_general(forms)
        self._leave_entry()
        kinds = ("object" if kind == "tensor" and known not in registry().tensor_types else kind
                 for kind, known in zip(map(kind_of, operands), snapshot.types, strict=True))
        self.onward = Onward(Target(snapshot, tuple(kinds)), objects, header)
        self.complete = self.builder.jump(snapshot, operands)
        raise Ended

    def _make_positions_varying(self, varying: dict[int, Const]) -> None:
        for frame in self.frames:
            for entry in (frame.stack if frame is self.frames[-1] else frame.before):
                iteration.make_positions_varying(self, entry, varying)  # type: ignore[arg-type]

    def _needs_constants(self, operands: list[mlir.Value]) -> bool:
        """Whether a guard of this trace wants a number, or an item at a run-time index, to be the same in each iteration."""
        block = self.builder.trace.block
        carries = [view.operation for view in block.operations if view.operation.name == "trident.carry"]
        varying = {op.results[0] for op, value in zip(carries, operands, strict=True)
                   if value != op.results[0] and kind_of(op.results[0]) in _FORMS}
        for view in block.operations:
            op = view.operation
            if op.name == "trident.guard":
                if mlir.StringAttr(op.attributes["kind"]).value in ("value", "identity") and op.operands[0] in varying:
                    return True
            elif op.name in _DERIVING and any(operand in varying for operand in op.operands):
                varying.update(op.results)
        return False


_FORMS = frozenset({"int", "float", "bool"})
_DERIVING = frozenset(
    {name for name, spec in BY_NAME.items() if spec.operands and spec.results
     and _FORMS.issuperset((*spec.operands, *spec.results))} | {f"trident.{name}" for name in (
         "tuple_at", "list_at", "box", "unbox_int", "unbox_float", "unbox_bool", "is_constant", "str_is", "device_is")})
"""Operations whose result is another one for another number."""


class Match:
    """A snapshot of a header, compared with the frames as they are now.

    fits: nothing is in the way but what the other fields name. varying: numbers that are constants in both, but not the same. changed:
    containers whose parts cannot be compared. holds: the frames are as the snapshot says.
    """

    def __init__(self, rec: Looping, snapshot: Snapshot) -> None:
        self._rec, self._types = rec, snapshot.types
        self.fits = True
        self.varying: dict[int, Const] = {}
        self.changed: list[Virtual] = []
        self._slots: dict[int, Value] = {}
        self._of: dict[int, Value] = {}  # by id of a Build
        self._recipes: dict[int, Recipe] = {}  # by id of a virtual object
        if len(snapshot.frames) != len(rec.frames):
            self.fits = False
            return
        for state, frame in zip(snapshot.frames, rec.frames, strict=True):
            inner = frame is rec.frames[-1]
            self._entry(state.function, frame.function)
            offset = frame.current.offset
            mine = (frame.code.code, offset, frame.is_call, frame.pops, frame.resume_at, frame.arrival)
            theirs = (state.code, state.offset, state.is_call, state.pops, state.next_offset, state.arrival)
            stack = frame.stack if inner else frame.before
            if mine[0] is not theirs[0] or mine[1:] != theirs[1:] or len(stack) != len(state.stack):
                self.fits = False
                return
            for recipe, entry in zip(state.locals, visible_locals(frame, frame.current.live), strict=True):
                self._entry(recipe, entry)
            for recipe, entry in zip(state.stack, stack, strict=True):
                self._entry(recipe, entry)
            self._entry(NULL if state.result is None else state.result, NULL if frame.result is None else frame.result)
        self.fits &= len(self._slots) == len(self._types)

    @property
    def holds(self) -> bool:
        return self.fits and not self.varying and not self.changed

    def slot(self, index: int) -> Value:
        """The value in a slot."""
        return self._slots[index]

    def operands(self, kinds: tuple[str, ...]) -> list[mlir.Value]:
        """The slots in these forms, with the guards that they have their types."""
        rec = self._rec
        for index, known in enumerate(self._types):
            if known in _NUMBERS:
                rec.number_kind(self._slots[index])
            elif known is not None:
                rec.type_of(self._slots[index])
        return [rec.ssa(self._slots[index], kind) for index, kind in enumerate(kinds)]

    def _entry(self, recipe: Recipe, entry: Entry) -> None:
        if recipe is NULL or entry is NULL:
            self.fits &= recipe is entry
            return
        assert isinstance(entry, Value)
        value = self._rec.resolve(entry)
        if isinstance(recipe, Known):
            self._constant(recipe.obj, value)
        elif isinstance(recipe, Slot):
            self._slot(recipe.index, value)
        else:
            assert isinstance(recipe, Build)
            self._build(recipe, value)

    def _constant(self, obj: Any, value: Value) -> None:
        mine: Any = value.obj
        if type(value) is not Const or id(value) in self._rec.equal_to:
            self.fits = False
        elif mine is not obj and not (type(obj) in _PLAIN and type(mine) is type(obj) and mine == obj):
            if type(mine) is type(obj) and _can_vary(mine):
                self.varying[id(value)] = value
            else:
                self.fits = False

    def _slot(self, index: int, value: Value) -> None:
        known = self._types[index]
        before = self._slots.setdefault(index, value)
        if before is not value and not (type(before) is Const and type(value) is Const and before.obj is value.obj):
            self.fits = False
        obj: Any = value.obj
        if known is not None and (type(obj) is not known or known is int and not _can_vary(obj)):
            self.fits = False
        if type(value) is Virtual:
            self.fits &= id(value) not in self._recipes
            self._recipes[id(value)] = Slot(index)

    def _build(self, recipe: Build, value: Value) -> None:
        if id(recipe) in self._of or id(value) in self._recipes:  # one object here and there, and the same
            self.fits &= self._of.get(id(recipe)) is value and self._recipes.get(id(value)) is recipe
            return
        self._of[id(recipe)], self._recipes[id(value)] = value, recipe
        if type(value) is not Virtual or value.kind != recipe.kind or "source" in value.state:
            self.fits = False
            return
        if not _same_maker(recipe.make, maker_of(value)) or len(value.items) != len(recipe.items):
            if value.kind in MUTABLE and value.kind != "iterator":
                self.changed.append(value)
            else:
                self.fits = False
            return
        for part, item in zip(recipe.items, value.items, strict=True):
            self._entry(part, NULL if item is None else item)


def _same_maker(a: Any, b: Any) -> bool:
    if not isinstance(a, Maker) or not isinstance(b, Maker):
        return a is b
    return a.kind == b.kind and _same_parts(a.keys, b.keys) and _same_parts(
        [part for item in a.state for part in item], [part for item in b.state for part in item])


def _same_parts(a: Any, b: Any) -> bool:
    if a is None or b is None:
        return a is b
    return len(a) == len(b) and all(x is y or type(x) is type(y) and type(x) in _PLAIN and x == y for x, y in zip(a, b, strict=True))


__all__ = ["Ended", "Header", "Looping", "Match", "Onward", "Target"]
