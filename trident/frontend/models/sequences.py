"""Tuples of torch's own classes: torch.Size and the struct sequences of torch.return_types.

Owns how they are held (a virtual tuple whose state names the class) and what they do differently from a tuple. What must
hold: an operation whose result is a torch.Size in eager gives one here.

May import: torch, frontend.{values,models}.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.values import Const, Value, Virtual
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

RETURN_TYPES: tuple[type, ...] = tuple(
    found for name in dir(torch.return_types)
    if isinstance(found := getattr(torch.return_types, name), type) and hasattr(found, "n_sequence_fields")
)  # fmt: skip


def virtual_sequence(rec: Recorder, cls: type, items: list[Value]) -> Value:
    """A new tuple of class `cls`."""
    if cls is tuple:
        return rec.virtual_tuple(items)
    made = cls(tuple(item.obj for item in items))  # type: ignore[call-arg]
    return rec.virtual(made, "tuple", items, cls=cls)


def size_items(value: Value) -> list[Value] | None:
    """Items of a torch.Size, tuple or list that the trace has by its parts, or that is a constant."""
    if type(value) is Virtual and value.kind in ("tuple", "list") and value.escaped is None:
        return list(value.items)
    if type(value) is Const and type(value.obj) in (tuple, torch.Size):
        return [Const(item) for item in value.obj]  # type: ignore[attr-defined]
    return None


def _subscript(rec: Recorder, a: Value, index: Value) -> Answer:
    index = rec.resolve(index)
    items = size_items(rec.resolve(a))
    if type(a.obj) is not torch.Size or items is None or type(index.obj) is not slice:
        return NotModelled
    if type(index) is Virtual:
        bounds = [None if part.obj is None else rec.promote(part, "a bound of a slice") for part in index.items]
        return virtual_sequence(rec, torch.Size, items[slice(*bounds)])
    return virtual_sequence(rec, torch.Size, items[index.obj]) if type(index) is Const else NotModelled


def _binary(rec: Recorder, opname: str, a: Value, b: Value) -> Answer:
    left, right = size_items(rec.resolve(a)), size_items(rec.resolve(b))
    if left is None or right is None or opname not in ("add", "iadd") or torch.Size not in (type(a.obj), type(b.obj)):
        return NotModelled
    if not all(type(x.obj) in (tuple, torch.Size) for x in (a, b)) or not all(type(i.obj) is int for i in left + right):
        return NotModelled
    try:
        cls = type(a.obj + b.obj)  # type: ignore[operator]
    except TypeError:
        return NotModelled
    return virtual_sequence(rec, cls, left + right)


def _attribute(rec: Recorder, a: Value, name: str) -> Answer:
    value = rec.resolve(a)
    if type(value) is not Virtual or not is_a(value.obj, RETURN_TYPES) or value.kind != "tuple":
        return NotModelled
    cls = type(value.obj)
    fields = [field for field, member in cls.__dict__.items() if type(member).__name__ == "member_descriptor"]
    for field in fields:
        if field == name:
            concrete = getattr(value.obj, name)
            matching = [item for item in value.items if item.obj is concrete]
            return matching[0] if len(matching) == 1 else NotModelled
    return NotModelled


def _numel(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    items = size_items(rec.resolve(args[0])) if len(args) == 1 and not kwargs else None
    if items is None:
        return NotModelled
    product = rec.builder.int(1)
    for item in items:
        product = rec.op("mul_int", product, rec.ssa(item, "int"))
    return rec.result(args[0].obj.numel(), product)  # type: ignore[attr-defined]


def register(registry: Registry) -> None:
    """Hooks for the classes above."""
    registry.hook_type(torch.Size, *RETURN_TYPES)
    registry.hook("subscript", _subscript)
    registry.hook("binary", _binary)
    registry.hook("attribute", _attribute)
    registry.function(torch.Size.numel, _numel)
