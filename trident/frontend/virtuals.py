"""Virtual objects: kinds, how each is made from its items, and how it is written into the trace when it escapes.

Owns one row per kind. What must hold: `Maker(*concrete items)` makes an object equal to the one that the recorder holds; it is
immutable, so that a snapshot taken now is not changed by what happens to the virtual object later.

May import: ir, frontend.values.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType, CodeType, FunctionType, MethodDescriptorType, MethodType, WrapperDescriptorType
from typing import Any

from trident.frontend.values import Virtual, own_dict
from trident.ir import NULL
from trident.ir.describing import mro_of


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """`Build.make` of the recorder's own kinds; the fields are what a bridge needs to have the virtual object again."""

    kind: str
    keys: tuple[object, ...] | None
    state: tuple[tuple[str, object], ...]

    def __call__(self, *items: object) -> object:
        return KINDS[self.kind](items, self.keys, dict(self.state))


@dataclass(frozen=True, slots=True, eq=False)
class OrderedLike:
    """`Build.make` of a dict whose keys come in the order of another dict (the first item)."""

    keys: tuple[object, ...]

    def __call__(self, source: dict[object, object], *items: object) -> object:
        made = dict(zip(self.keys, items, strict=True))
        first = {key: made.pop(key) for key in source if key in made}
        return {**first, **made}


def deletions(source: object) -> int:
    """Keys that the trace has deleted from a virtual dict, or from the one that a view shows."""
    if type(source) is not Virtual:
        return 0
    return deletions(viewed(source.items[0])) if source.kind == "view" else source.state.get("deleted", 0)


def is_disturbed(iterator: Virtual) -> bool:
    """Whether keys came or went since a dict's iterator was made: only CPython's own iterator knows what that means."""
    state = iterator.state
    if "size" not in state or state["how"] == "done":
        return False
    source = iterator.items[0]
    return state["size"] != len(source.obj) or state.get("deleted", 0) != deletions(source)


def maker_of(virtual: Virtual, keys: tuple[object, ...] | None = None) -> Callable[..., object]:
    """The callable for a recipe. keys: those to make it with, if not all."""
    if virtual.make is not None:
        return virtual.make
    state = tuple(item for item in virtual.state.items() if item[0] not in _PRIVATE)
    if keys is None and virtual.keys is not None:
        keys = tuple(virtual.keys)
    return Maker(virtual.kind, keys, state)


def _tuple(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    cls = state.get("cls", tuple)
    if cls is tuple:
        return items
    if not cls.__flags__ & 1 << 9:  # a static type (torch.Size, struct sequences) has its own rules about its making
        return cls(items)
    return tuple.__new__(cls, items)


def _dict(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    cls = state.get("cls", dict)
    made = cls()
    made.update(zip(keys, items, strict=True))
    return made


def _slice(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return slice(*items)


def _cell(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return CellType() if items[0] is NULL else CellType(items[0])


def _function(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return make_function(state["code"], state["globals"], items[0], items[1], items[2], items[3:])


def make_function(code: CodeType, globals_: dict[str, Any], defaults: Any, kwdefaults: Any, annotations: Any,
                  closure: tuple[CellType, ...]) -> FunctionType:
    """What MAKE_FUNCTION makes."""
    function = FunctionType(code, globals_, code.co_name, None if defaults is NULL else defaults, closure or None)
    function.__qualname__ = code.co_qualname
    if kwdefaults is not NULL:
        function.__kwdefaults__ = kwdefaults
    if annotations is not NULL:
        flat = annotations
        function.__annotations__ = dict(zip(flat[::2], flat[1::2], strict=True)) if isinstance(flat, tuple) else flat
    return function


def bind_method(function: Any, owner: object) -> object:
    """The method that an attribute access makes of what it found in the type."""
    if type(function) in C_METHODS:  # whose `__get__` takes None for no owner
        return getattr(None, function.__name__) if owner is None else function.__get__(owner, type(owner))
    return MethodType(function, owner)


def _range(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return range(*items)


def _view(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return view_of(items[0], state["view"])


def view_of(owner: Any, name: str) -> Any:
    """The view of a dict, or of an instance of a subclass (which may have another method of that name)."""
    return getattr(dict_base(type(owner)) or type(owner), name)(owner)


def viewed(owner: Any) -> Any:
    """What a view shows: of a virtual instance its contents."""
    return contents_of(owner) or owner


def _iterator(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    """state: how ("seq", "reversed", "view", "zip", "enumerate"), pos: number of items already taken, …; "count", "at" and "counted" are
    a range's, a list's or tuple's, and an enumeration's in a loop: the position is an item."""
    how, pos = state["how"], state["pos"]
    if how == "count":
        return iter(range(items[0], items[1], state["stride"]))
    if how == "at":
        return _iterator_at(items[1], items[0])
    if how == "counted":
        return enumerate(items[0], items[1])
    if how == "zip":
        return zip(*items, strict=state["strict"])
    if how == "enumerate":
        return enumerate(items[0], pos + state["start"])
    if how == "done":
        return iter(())
    if how == "reversed" and type(items[0]) is list:
        at = state["start"] - 1 - pos
        if at >= len(items[0]):
            return iter(())
        backwards = reversed(items[0])
        backwards.__setstate__(at)  # type: ignore[attr-defined]
        return backwards
    if how == "seq" and type(items[0]) is list:
        return _iterator_at(items[0], pos)
    made = reversed(items[0]) if how == "reversed" else iter(items[0])
    for _ in range(pos):
        next(made)
    return made


def _iterator_at(sequence: list[Any] | tuple[Any, ...], pos: int) -> object:
    """An iterator of a list or tuple that has given `pos` items, more than there are where the list has become shorter since.

    Such an iterator goes on there once the list is longer again, but `__setstate__` puts none behind the end."""
    made, short = iter(sequence), pos - len(sequence)
    if type(sequence) is not list or short <= 0:
        made.__setstate__(pos)  # type: ignore[attr-defined]
        return made
    sequence += [None] * short
    try:
        made.__setstate__(pos)  # type: ignore[attr-defined]
    finally:
        del sequence[-short:]
    return made


class _Contents:
    """Stands for the contents of an instance of a dict's subclass among the names of its attributes."""

    def __repr__(self) -> str:
        return "CONTENTS"

    def __copy__(self) -> _Contents:
        return self


CONTENTS = _Contents()


def dict_base(cls: type) -> type | None:
    """dict or OrderedDict, whose methods hold the contents of the instances of a class; None for other classes."""
    return next((base for base in mro_of(cls) if base is dict or base is OrderedDict), None)


def contents_of(value: object) -> Virtual | None:
    """The virtual dict inside a virtual instance of a dict's subclass."""
    if type(value) is Virtual and value.kind == "instance" and value.escaped is None and value.keys and value.keys[0] is CONTENTS:
        return value.items[0]  # type: ignore[no-any-return]
    return None


def _instance(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    cls: Any = state["cls"]
    base: Any = dict_base(cls) or object
    made = base.__new__(cls)
    for name, item in zip(keys, items, strict=True):
        if name is CONTENTS:
            for key, value in item.items():
                base.__setitem__(made, key, value)
        else:
            object.__setattr__(made, name, item)
    return made


def _super(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    return super(*items)


def _partial(items: tuple[Any, ...], keys: Any, state: dict[str, Any]) -> object:
    split = len(items) - len(keys or ())
    return functools.partial(items[0], *items[1:split], **dict(zip(keys or (), items[split:], strict=True)))


KINDS: dict[str, Callable[[tuple[Any, ...], Any, dict[str, Any]], object]] = {
    "tuple": _tuple,
    "list": lambda items, keys, state: list(items),
    "dict": _dict,
    "set": lambda items, keys, state: set(items),
    "slice": _slice,
    "cell": _cell,
    "method": lambda items, keys, state: bind_method(*items),
    "function": _function,
    "range": _range,
    "view": _view,
    "iterator": _iterator,
    "instance": _instance,
    "generator": lambda items, keys, state: items[0](items[1]),
    "vars": lambda items, keys, state: own_dict(items[0]),
    "super": _super,
    "partial": _partial,
}
# Keys of `Virtual.state` that mean something only within one recording.
_PRIVATE = ("birth", "traced", "content", "deleted", "chunks", "least", "stopped")
C_METHODS = (MethodDescriptorType, WrapperDescriptorType)
MUTABLE = frozenset({"list", "dict", "set", "cell", "iterator", "instance", "generator"})
