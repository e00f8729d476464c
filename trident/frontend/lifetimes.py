"""When the trace lets go of Python objects: where CPython drops the last reference that a frame holds, not at the last use.

Owns which values count: objects that exist when the trace runs and that foreign code may have seen, or that may have a finalizer
(results of calls, what was read from containers, tensors and containers that were given to foreign code). A tensor without a Python
object dies at its last use. What must hold: where a frame drops such a value, a `trident.keep` says so, and a state that a frame
with one is part of names it, even where no path reads it again. An exception holds the locals of the frames that it has ended.

May import: ir, frontend.{frames,values}.
"""

from __future__ import annotations

from torch_mlir import ir as mlir

from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.values import Traced, Value, Virtual
from trident.ir import NULL, TraceBuilder

_PLAIN = frozenset({int, float, bool, str, bytes, complex, type(None), range, slice})
"""Types whose instances nobody can watch die."""


def held(entry: Entry | None, seen: set[int] | None = None) -> list[mlir.Value]:
    """The SSA objects that die with an entry of a frame, if nothing else holds them."""
    if type(entry) is Traced:
        if entry.kind == "tensor":
            return [] if entry.boxed is None else [entry.boxed]
        facts = entry.facts
        if entry.kind != "object" or entry.known_type in _PLAIN or "argument" in facts and "owned" not in facts or "constant" in facts:
            return []
        frames = [value for local in facts.get("frames", ()) for value in held(local, seen)] if facts else []
        return [entry.ssa, *frames]
    if type(entry) is not Virtual:
        return []
    if entry.escaped is not None:
        return [entry.escaped]
    seen = set() if seen is None else seen
    if id(entry) in seen:
        return []
    seen.add(id(entry))
    items = reversed(entry.items) if entry.kind in ("tuple", "list") else entry.items  # as their deallocators go
    return [value for item in items for value in held(item, seen)]


class Lifetimes:
    """See the module. A part of the recorder: the fields are those of Core."""

    in_entry: bool
    pure_base: int
    builder: TraceBuilder

    def drop(self, *entries: Entry | None) -> None:
        """The innermost frame has dropped these, in this order."""
        if not self.in_entry and not self.pure_base:
            self.keep([value for entry in entries for value in held(entry)])

    def drop_frame(self, frame: RecordedFrame, error: Value) -> None:
        """A frame ends with an exception: its operand stack goes, its locals live in the traceback."""
        self.drop(*reversed(frame.before))
        if type(error) is Traced:
            error.facts.setdefault("frames", []).extend(frame.locals)
        else:
            self.drop(*frame.locals)

    def keep(self, values: list[mlir.Value]) -> None:
        """`trident.keep` of each."""
        for value in values:
            self.builder.op("keep", value)

    def held_by(self, frame: RecordedFrame) -> list[mlir.Value]:
        """What dies with a frame that ends: its locals, in order."""
        if self.in_entry or self.pure_base:
            return []
        return [value for entry in frame.locals if entry is not NULL for value in held(entry)]
