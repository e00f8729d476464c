"""Values of a trace as the lowering sees them: where each lives, what keeps it alive, and when it dies.

Owns `Value` and `Op`. What must hold: a value's `last` is final before the lowering starts.

May import: torch_mlir, ir.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from torch_mlir import ir


class Place(Enum):
    """Where a value is.

    NOWHERE not defined yet. CONST a compile-time constant (`const`). REG an SSA register (`reg`). ARG argument number `index`.
    OBJECT the Python object at address `index`. SLOT the slot `index` (which owns it, or holds a borrowed PyObject*). BOXED the
    tensor inside the Python object of the value `const`. AT the tensor that the pointer in slot `index` points to. ITEMS a list
    of the values `items`, which only exists at compile time.
    """

    NOWHERE = 0
    CONST = 1
    REG = 2
    ARG = 3
    OBJECT = 4
    SLOT = 5
    BOXED = 6
    AT = 7
    ITEMS = 8


class Value:
    """One SSA value.

    kind: a key of `ops.TYPES`, or `none`, `str`, `device`, `generator`, `list`. anchors: values that must live as long as this
    one. last: number of the last op that needs it. stated: a `trident.state` names it. copy: the slot where a stated scalar is
    kept too. owned: it has a slot that it must give back. steady: an object that outlives every run of the program's code on it.
    """

    __slots__ = ("kind", "place", "index", "reg", "const", "items", "anchors", "last", "stated", "copy", "owned", "steady")

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.place = Place.NOWHERE
        self.index = 0
        self.reg = ""
        self.const: Any = None
        self.items: list[Value] = []
        self.anchors: list[Value] = []
        self.last = -1
        self.stated = False
        self.copy = -1
        self.owned = False
        self.steady = False

    def set_const(self, value: Any) -> None:
        self.place, self.const = Place.CONST, value

    def set_reg(self, reg: str) -> None:
        self.place, self.reg = Place.REG, reg

    def set_object(self, address: int) -> None:
        self.place, self.index, self.steady = Place.OBJECT, address, True

    def same_as(self, other: Value) -> None:
        """Be another name of a value that an anchor keeps alive."""
        self.place, self.index, self.reg, self.const, self.items = other.place, other.index, other.reg, other.const, other.items
        self.steady = other.steady

    def inner(self) -> Value:
        """The value behind any `trident.pack`."""
        return self.anchors[0].inner() if self.kind == "value" else self

    def __repr__(self) -> str:
        return f"<{self.kind} {self.place.name} {self.reg or self.index or self.const!r} last {self.last}>"


@dataclass(slots=True)
class Op:
    """One operation. name: its full name, `torch.operator` ops having that of their operator; dying: values of no use after it."""

    name: str
    operands: list[Value]
    results: list[Value]
    mlir: ir.Operation
    index: int
    dying: list[Value] = field(default_factory=list)

    def integer(self, attribute: str) -> int:
        return int(self.mlir.attributes[attribute].value)

    def integers(self, attribute: str) -> list[int]:
        return list(ir.DenseI64ArrayAttr(self.mlir.attributes[attribute]))

    def text(self, attribute: str) -> str:
        return str(self.mlir.attributes[attribute].value)

    def flag(self, attribute: str) -> bool:
        return bool(self.mlir.attributes[attribute].value)

    def texts(self, attribute: str) -> list[str]:
        return [str(item.value) for item in self.mlir.attributes[attribute]]

    def number(self, attribute: str) -> float:
        return float(self.mlir.attributes[attribute].value)
