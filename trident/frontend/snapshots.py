"""Snapshots: the frames at a point of the trace as recipes, and back (for bridges).

Owns the recipes. What must hold: one object is one recipe within a snapshot (identity is kept); dead locals are NULL; the
operands of the outer frames come first, so that their part is reused while a callee runs.

May import: ir, frontend.{aborts,chunks,frames,lifetimes,values,virtuals}.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch_mlir import ir as mlir

from trident.frontend.aborts import Leave
from trident.frontend.chunks import Chunker, Joined, joined, revived
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.lifetimes import held
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import Maker, OrderedLike, is_disturbed, maker_of
from trident.ir import NULL, Build, FrameState, Known, Recipe, Slot, Snapshot, TraceBuilder

if TYPE_CHECKING:
    from trident.frontend.core import Core


class _Writing:
    """Operands, types and recipes collected so far (outermost frame first)."""

    def __init__(self, equal_to: dict[int, Traced], chunker: Chunker) -> None:
        self.equal_to, self.chunker = equal_to, chunker
        self.varying: dict[int, mlir.Value] = {}  # ids of constants that are operands nevertheless
        self.objects: list[object] | None = None  # those of the operands, where they are wanted (a kept one would keep them alive)
        self.operands: list[mlir.Value] = []
        self.types: list[type | None] = []
        self.fresh: set[int] = set()  # operands that calls have made
        self.made: dict[int, Recipe] = {}
        self.frames: list[FrameState] = []

    def copy(self) -> _Writing:
        other = _Writing(self.equal_to, self.chunker)
        other.operands, other.types = self.operands[:], self.types[:]
        other.made, other.frames, other.fresh = dict(self.made), self.frames[:], set(self.fresh)
        return other

    def slot(self, ssa: mlir.Value, known: type | None, obj: object) -> Slot:
        self.operands.append(ssa)
        if self.objects is not None:
            self.objects.append(obj)
        self.types.append(known)
        return Slot(len(self.operands) - 1)

    def recipe(self, entry: Entry | None) -> Recipe:
        if entry is NULL or entry is None:
            return NULL
        found = self.made.get(id(entry))
        if found is None:
            found = self.made[id(entry)] = self._recipe(entry)  # type: ignore[arg-type]
        return found

    def _recipe(self, value: Value) -> Recipe:
        if type(value) is Const:
            if id(value) in self.varying:
                return self.slot(self.varying[id(value)], type(value.obj), value.obj)
            return Known(value.obj) if id(value) not in self.equal_to else self.recipe(self.equal_to[id(value)])
        if type(value) is Traced:
            constant = value.facts.get("constant") if value.facts else None
            if constant is not None and id(constant) not in self.equal_to:
                return Known(constant.obj)
            # A number that has been an object stays that object.
            ssa = value.ssa if value.boxed is None or value.kind == "tensor" else value.boxed
            if value.facts.get("fresh"):
                self.fresh.add(len(self.operands))
            return self.slot(ssa, _reliable_type(value), value.obj)
        assert type(value) is Virtual
        if value.kind == "generator" and value.escaped is None and value.state.get("stopped"):
            raise Leave("unsupported", "a generator that was left in the middle")
        if value.kind == "iterator" and is_disturbed(value):
            raise Leave("unsupported", "a dict that changes while it is iterated over")
        if value.escaped is not None:
            traced = value.state.get("traced")
            return self.slot(value.escaped, type(value.obj), value.obj) if traced is None else self.recipe(traced)  # type: ignore[arg-type]
        if "source" in value.state:  # the order of its keys is not guarded
            items = (value.state["source"], *value.items)
            return Build(OrderedLike(tuple(value.keys or ())), tuple(self.recipe(item) for item in items), "dict")  # type: ignore[arg-type]
        if chunks := self.chunker.chunks(value):
            make, parts = joined(value, chunks)
            return Build(make, tuple(self.recipe(part) for part in parts), value.kind)
        return Build(maker_of(value), tuple(self.recipe(item) for item in value.items), value.kind)


def _reliable_type(value: Traced) -> type | None:
    """The exact type, where the trace has established it; for an int also that it fits int64."""
    if value.kind == "object" and value.known_type is int and not value.facts.get("fits"):
        return None
    return value.known_type


class SnapshotWriter:
    """Takes snapshots of the recorder's frames."""

    def __init__(self, recorder: Core) -> None:
        self._recorder = recorder
        self._chunker = Chunker(recorder.builder, lambda value: recorder.ssa(value, "object"), recorder.resolve, recorder.equal_to)
        self._outer: list[tuple[RecordedFrame, _Writing]] = []

    def close(self) -> None:
        """No more snapshots: let go of the recorder."""
        self._outer.clear()
        del self._recorder, self._chunker

    def invalidate(self) -> None:
        """A virtual object changed: recipes made from it are stale."""
        self._outer.clear()

    def take(self, offset: int = -1, stack: list[Entry] | None = None, live: int = -1) -> tuple[Snapshot, list[mlir.Value]]:
        """The snapshot before the current instruction of the innermost frame (or at `offset` with this stack)."""
        recorder = self._recorder
        frames = recorder.frames[:recorder.pure_base] if recorder.pure_base else recorder.frames
        writing = self._outer_frames(frames[:-1]).copy()
        inner = frames[-1]
        if offset < 0:
            offset, stack, live = inner.current.offset, inner.before, inner.current.live
        assert stack is not None
        _add(writing, inner, offset, stack, live)
        return self._finished(writing), writing.operands

    def take_general(self, varying: dict[int, mlir.Value]) -> tuple[Snapshot, list[mlir.Value], list[object]]:
        """The snapshot before the current instruction, with some constants (by id) as operands. With the operands' objects."""
        frames = self._recorder.frames
        writing = _Writing(self._recorder.equal_to, self._chunker)
        objects: list[object] = []
        writing.varying, writing.objects = varying, objects
        for frame in frames:
            _add(writing, frame, frame.current.offset, frame.before, frame.current.live)
        return self._finished(writing), writing.operands, objects

    def _finished(self, writing: _Writing) -> Snapshot:
        builder = self._recorder.builder
        return Snapshot(tuple(writing.frames), builder.line, builder.file, tuple(writing.types), frozenset(writing.fresh))

    def _outer_frames(self, frames: list[RecordedFrame]) -> _Writing:
        """What has been collected for the frames that wait for a callee; reused while they wait for the same call."""
        known = self._outer
        keep = 0
        while keep < len(frames) and keep < len(known) and known[keep][0] is frames[keep] and frames[keep].cached_state is known[keep][1]:
            keep += 1
        del known[keep:]
        for frame in frames[keep:]:
            writing = known[-1][1].copy() if known else _Writing(self._recorder.equal_to, self._chunker)
            _add(writing, frame, frame.current.offset, frame.before, frame.current.live)
            frame.cached_state = writing
            known.append((frame, writing))
        return known[-1][1] if known else _Writing(self._recorder.equal_to, self._chunker)


def visible_locals(frame: RecordedFrame, live: int) -> list[Entry]:
    """The locals that a snapshot names: a local that nobody reads any more stays where its death could be noticed."""
    return [entry if live >> n & 1 or entry is not NULL and held(entry) else NULL for n, entry in enumerate(frame.locals)]


def _add(writing: _Writing, frame: RecordedFrame, offset: int, stack: list[Entry], live: int) -> None:
    locals_ = tuple(writing.recipe(entry) for entry in visible_locals(frame, live))
    result = None if frame.result is None else writing.recipe(frame.result)
    writing.frames.append(FrameState(writing.recipe(frame.function), frame.code.code, offset, locals_,
                                     tuple(writing.recipe(entry) for entry in stack), frame.is_call, frame.pops,
                                     frame.resume_at, frame.arrival, result))


@dataclass(slots=True)
class LoopSlots:
    """The slots of a snapshot as the values of a loop. unboxed: by slot, (kind, value) of other forms that a slot has."""

    values: list[mlir.Value]
    unboxed: dict[int, list[tuple[str, mlir.Value]]]


class Reviver:
    """Values of a bridge from a snapshot: each Slot is a block argument (a value of the loop), Known a constant, Build a virtual object."""

    def __init__(self, snapshot: Snapshot, values: list[object], builder: TraceBuilder, loop: LoopSlots | None = None) -> None:
        self._values, self._args, self._builder = values, builder.args if loop is None else loop.values, builder
        self._unboxed = {} if loop is None else loop.unboxed
        self._types: Any = snapshot.types or (None,) * len(values)
        self._fresh = snapshot.fresh
        self._made: dict[int, Value] = {}
        self._slots: dict[int, Traced] = {}

    def mark(self, fact: str) -> None:
        """Give all slots a fact."""
        for value in self._slots.values():
            value.facts[fact] = True

    def entry(self, recipe: Recipe) -> Entry:
        """The Value (or NULL) of a recipe."""
        if isinstance(recipe, Slot):
            return self._slot(recipe.index)
        if isinstance(recipe, Known):
            return Const(recipe.obj)
        if isinstance(recipe, Build):
            if id(recipe) not in self._made:
                self._made[id(recipe)] = self._build(recipe)
            return self._made[id(recipe)]
        return recipe

    def _slot(self, index: int) -> Traced:
        if index not in self._slots:
            value = Traced(self._values[index], self._args[index], "", self._types[index])
            value.facts["argument"] = value.facts["owned"] = True
            if value.known_type is int:
                value.facts["fits"] = True
            if index in self._fresh:
                value.facts["fresh"] = True
            value.unboxed.update(self._unboxed.get(index, ()))
            self._slots[index] = value
        return self._slots[index]

    def _build(self, recipe: Build) -> Virtual:
        items = [self.entry(item) for item in recipe.items]
        obj = recipe.make(*[NULL if item is NULL else item.obj for item in items])  # type: ignore[union-attr]
        virtual = Virtual(obj, recipe.kind, items, make=recipe.make)  # type: ignore[arg-type]
        if isinstance(recipe.make, Maker):
            virtual.make = None
            virtual.keys = None if recipe.make.keys is None else list(recipe.make.keys)
            virtual.state = dict(recipe.make.state)
        elif isinstance(recipe.make, Joined):
            whole = recipe.make.whole()
            virtual.make, virtual.keys, virtual.state = None, None if whole.keys is None else list(whole.keys), dict(whole.state)
            virtual.items = revived(recipe.make, items, self._builder)
        elif isinstance(recipe.make, OrderedLike):
            virtual.make, virtual.keys = None, list(recipe.make.keys)
            virtual.items, virtual.state = items[1:], {"source": items[0]}  # type: ignore[assignment]
        return virtual

    def frame(self, state: FrameState, analyse: Any, *, innermost: bool) -> RecordedFrame:
        """A frame in the state of the snapshot; the instruction of an outer one is in progress."""
        function = self.entry(state.function)
        assert isinstance(function, Value)
        info = analyse(state.code)
        frame = RecordedFrame(function, info, [self.entry(v) for v in state.locals])
        frame.stack = [self.entry(v) for v in state.stack]
        frame.before = frame.stack[:]
        frame.current = info.instructions[info.at[state.offset]]
        frame.pc = frame.current.index + (not innermost)
        frame.is_call, frame.pops, frame.arrival = state.is_call, state.pops, state.arrival
        frame.resume_at = state.next_offset
        frame.result = None if state.result is None else self.entry(state.result)  # type: ignore[assignment]
        return frame
