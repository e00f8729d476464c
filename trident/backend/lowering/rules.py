"""The registry of lowering rules: one per operation.

Owns the table. What must hold: every op of `ops.OPS` has exactly one rule; ATen operators share one.

May import: ir, lowering.values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trident.errors import TridentError

if TYPE_CHECKING:
    from trident.backend.lowering.values import Op


class LoweringError(TridentError, NotImplementedError):
    """A trace that native code cannot be made for; the message says which op and why."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operation becomes LLVM IR.

    emit(function, op): writes it and places the results. leaves: it can leave the program (so the state before it is needed).
    anchored: its result borrows from its operands.
    """

    emit: Callable[[Any, Op], None]
    leaves: bool
    anchored: bool


RULES: dict[str, Rule] = {}
ATEN = "torch.aten"
"""Key of the rule that all ATen operators share."""


def rule(*names: str, leaves: bool = False, anchored: bool = False) -> Callable[[Callable[[Any, Op], None]], Callable[[Any, Op], None]]:
    """Register a function as the rule of the named ops."""

    def register(emit: Callable[[Any, Op], None]) -> Callable[[Any, Op], None]:
        for name in names:
            assert name not in RULES, name
            RULES[name] = Rule(emit, leaves, anchored)
        return emit

    return register


def rule_of(name: str) -> Rule:
    """The rule of an op, by its full name."""
    found = RULES.get(ATEN if name.startswith("torch.aten.") else name)
    if found is None:
        raise LoweringError(f"no lowering rule for {name}")
    return found
