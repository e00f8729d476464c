"""Long containers in snapshots: their first items are gathered in tuples, so that a state names a few tuples instead of every item.

A virtual list of n items would be n operands of each of the states that follow: a trace that grows a list would be quadratic. Here
the items stay known to the recorder one by one; only the recipe of the container is made of tuples ("chunks") that the trace builds
once, and of the items behind them. Chunks of equal size are merged, so that their number grows with the logarithm.

Owns the chunks of a virtual object (`state["chunks"]`) and their form in a recipe. What must hold: a chunk holds exactly the items
that the container has at its place; whoever changes those drops it (`keep_first`). Making a chunk has no effect and cannot exit.

May import: ir, frontend.{values,virtuals}.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch_mlir import ir as mlir

from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import Maker, maker_of
from trident.ir import Known, TraceBuilder

LEAST = 64
"""Items behind the last chunk from which on a new chunk is made. More than SIZE: who pops what was appended last finds no chunk."""

SIZE = 32
WAYS = 4  # chunks of a size that become one
_GROWN = 4  # factor of LEAST for a container whose chunks were dropped
_KINDS = frozenset({"list", "dict", "tuple"})

Shape = Known | type | None
"""What is known of an item of a chunk: the object itself, or its exact type, or nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """A chunk as a recipe sees it. keys: of a dict."""

    shapes: tuple[Shape, ...]
    keys: tuple[object, ...] | None


@dataclass(frozen=True, slots=True, eq=False)
class Joined:
    """`Build.make` of a container whose first items come in tuples: one for each part, then the other items, which `rest` is for."""

    rest: Maker
    parts: tuple[Part, ...]

    def __call__(self, *items: Any) -> object:
        count = len(self.parts)
        return self.whole()(*itertools.chain.from_iterable(items[:count]), *items[count:])

    def whole(self) -> Maker:
        """The maker that takes all items one by one."""
        keys = self.rest.keys
        if keys is not None:
            keys = tuple(itertools.chain(*(part.keys or () for part in self.parts), keys))
        return Maker(self.rest.kind, keys, self.rest.state)


@dataclass(slots=True, eq=False)
class Chunk:
    """The first items of a container, or those behind the chunk before: a tuple of the trace."""

    value: Value
    part: Part

    def __len__(self) -> int:
        return len(self.part.shapes)


def keep_first(virtual: Virtual, count: int) -> None:
    """The items of a container from number `count` on change."""
    chunks: list[Chunk] = virtual.state.get("chunks") or []
    end = sum(map(len, chunks))
    if end > count:
        while end > count:
            end -= len(chunks.pop())
        virtual.state["least"] = _least(virtual) * _GROWN


def _least(virtual: Virtual) -> int:
    return virtual.state.get("least", LEAST)  # type: ignore[no-any-return]


class Chunker:
    """Makes the chunks of one recording. boxed: the SSA object of a value (see Guarding.ssa)."""

    def __init__(self, builder: TraceBuilder, boxed: Callable[[Value], mlir.Value], resolve: Callable[[Value], Value],
                 equal_to: dict[int, Traced]) -> None:
        self._builder, self._boxed, self._resolve, self._equal_to = builder, boxed, resolve, equal_to

    def chunks(self, virtual: Virtual) -> list[Chunk]:
        """The chunks that a container has now; what is due is made."""
        if virtual.kind not in _KINDS or virtual.make is not None or len(virtual.items) < LEAST:
            return []
        chunks: list[Chunk] = virtual.state.setdefault("chunks", [])
        end = sum(map(len, chunks))
        while len(virtual.items) - end >= _least(virtual):
            if not all(self._fits(item) for item in virtual.items[end:end + SIZE]):
                virtual.state["least"] = _least(virtual) * _GROWN
                break
            chunks.append(self._chunk(virtual, end, SIZE))
            end += SIZE
            self._merge(virtual, chunks, end)
        return chunks

    def _merge(self, virtual: Virtual, chunks: list[Chunk], end: int) -> None:
        while len(chunks) >= WAYS and len({len(chunk) for chunk in chunks[-WAYS:]}) == 1:
            size = sum(map(len, chunks[-WAYS:]))
            chunks[-WAYS:] = [self._chunk(virtual, end - size, size)]

    def _fits(self, item: Any) -> bool:
        """Whether an item can be made an object here, without an effect and without losing sight of its parts."""
        if not isinstance(item, Value):
            return False
        item = self._resolve(item)
        if type(item) is not Virtual or item.escaped is not None:
            return True
        return item.kind == "tuple" and item.state.get("cls", tuple) is tuple and all(self._fits(part) for part in item.items)

    def _chunk(self, virtual: Virtual, start: int, size: int) -> Chunk:
        items = [self._resolve(item) for item in virtual.items[start:start + size]]
        keys = None if virtual.keys is None else tuple(virtual.keys[start:start + size])
        shapes = tuple(self._shape(item) for item in items)
        value = tuple(item.obj for item in items)
        if all(isinstance(shape, Known) for shape in shapes):
            return Chunk(Const(value), Part(shapes, keys))
        return Chunk(Traced(value, self._tuple(items), "", tuple), Part(shapes, keys))

    def _shape(self, item: Value) -> Shape:
        if type(item) is Const:
            return None if id(item) in self._equal_to else Known(item.obj)
        if type(item) is Traced:
            return None if item.kind == "object" and item.known_type is int and not item.facts.get("fits") else item.known_type
        return type(item.obj)

    def _tuple(self, items: list[Value]) -> mlir.Value:
        return self._builder.op("build_tuple", values=[self._object(item) for item in items])

    def _object(self, item: Value) -> mlir.Value:
        item = self._resolve(item)
        if type(item) is Virtual and item.escaped is None:
            item.escaped = self._tuple(item.items)
        return self._boxed(item)


def joined(virtual: Virtual, chunks: list[Chunk]) -> tuple[Joined, list[Any]]:
    """How a recipe makes a container with chunks, and of which values."""
    count = sum(map(len, chunks))
    keys = None if virtual.keys is None else tuple(virtual.keys[count:])
    rest = maker_of(virtual, keys)
    assert isinstance(rest, Maker)
    return Joined(rest, tuple(chunk.part for chunk in chunks)), [*(chunk.value for chunk in chunks), *virtual.items[count:]]


def revived(make: Joined, items: list[Any], builder: TraceBuilder) -> list[Any]:
    """The items one by one, for a bridge: those of a chunk are read from its tuple."""
    found: list[Any] = []
    for part, chunk in zip(make.parts, items, strict=False):
        for n, (shape, obj) in enumerate(zip(part.shapes, chunk.obj, strict=True)):
            if isinstance(shape, Known):
                found.append(Const(shape.obj))
                continue
            item = Traced(obj, builder.op("tuple_item", chunk.ssa, item=n), "", shape)
            if shape is int:
                item.facts["fits"] = True
            found.append(item)
    return [*found, *items[len(make.parts):]]
