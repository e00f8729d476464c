"""What the recorder holds in a frame's locals and operand stack: a concrete Python object and what the trace knows of it.

Owns the value classes. What must hold: `obj` is always the real object of this execution (the recorder executes for real),
and the other fields say how the trace obtains the same object when it runs again.

May import: ir.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch_mlir import ir as mlir

from trident.ir.describing import dict_of, mro_of
from trident.ir.dialect import kind_of


def own_dict(obj: object) -> Any:
    """The instance dict, without code of the object's class; None where there is none, or where that defines `__dict__` itself."""
    found: Any = next((dict_of(base)["__dict__"] for base in mro_of(type(obj)) if "__dict__" in dict_of(base)), None)
    return found.__get__(obj) if type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType) else None


@dataclass(eq=False, slots=True)
class Value:
    """Base: `obj` is the concrete object."""

    obj: Any


@dataclass(eq=False, slots=True)
class Const(Value):
    """The same object at every execution of the trace (code constants, pinned globals, promoted values).

    `origin` names where it came from, for guards' texts ("self.layers", "torch.nn.functional").
    """

    origin: str = ""


@dataclass(eq=False, slots=True)
class Traced(Value):
    """An SSA value: kind is tensor, int, float, bool or object (see ir.ops.TYPES).

    unboxed: forms of an `object` value already computed, by kind, so that each is guarded and unboxed once. boxed: the object
    form of a tensor/int/float/bool value. known_type: the exact type, once it is guarded or follows from the op; None before.
    fresh: made by the trace itself (a result of an op), so that no alias exists outside.
    """

    ssa: mlir.Value = None
    origin: str = ""
    known_type: type | None = None
    unboxed: dict[str, mlir.Value] = field(default_factory=dict)
    boxed: mlir.Value | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Key of ir.ops.TYPES."""
        return kind_of(self.ssa)


@dataclass(eq=False, slots=True)
class Virtual(Value):
    """An object that the trace has made and that nobody outside can see yet; it is not built on a hit unless it escapes.

    kind: tuple, list, dict, slice, cell, method, function, range, iterator, partial, launcher, … . items: its parts, in an
    order that `make(*concrete_items)` understands (make rebuilds the object in a side exit). When it escapes, the recorder
    materialises it: `escaped` is then the SSA object, and mutable kinds are no longer followed.
    """

    kind: str = ""
    items: list[Any] = field(default_factory=list)
    make: Callable[..., object] | None = None
    keys: list[Any] | None = None  # dict: concrete keys, parallel to items
    state: dict[str, Any] = field(default_factory=dict)  # kind-specific: iterator position, …
    escaped: mlir.Value | None = None
