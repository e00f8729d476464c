"""What all parts of the generator write with: choices drawn from Hypothesis, lines of source, and the variables in scope.

What must hold: every choice is a byte that Hypothesis has drawn; a program ends after few steps (loops count, what grows is cut short
where it may be in a loop) and does nothing that two runs could do differently.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

KINDS = ("int", "float", "bool", "str", "list", "dict", "tuple", "set", "tensor", "obj", "func")


class Writer:
    """The program under construction. choices: a byte for each choice; when they are used up, the first of everything is taken."""

    def __init__(self, choices: bytes) -> None:
        self._choices = iter(choices)
        self.lines: list[str] = []
        self.indent = 1
        self.used: set[str] = set()  # names of the prelude that the program needs
        self.scopes: list[dict[str, list[str]]] = [{kind: [] for kind in KINDS}]
        self.counter = 0
        self.loops = 0  # loops around the present place, in this function
        self.functions = 0  # functions around it, but for the program's own
        self.handlers = 0
        self.budget = 0  # statements that may still be written
        self.lazy = 0  # expressions in which nothing may be assigned
        self.own: list[set[str]] = [set()]  # names that the functions around this place assign

    # ------------------------------------------------------------------------------------------------------ choices
    def upto(self, n: int) -> int:
        """An int from 0 to n."""
        return next(self._choices, 0) * (n + 1) >> 8

    def chance(self, percent: int) -> bool:
        """True that often."""
        return self.upto(99) >= 100 - percent

    def pick(self, items: Sequence[Any]) -> Any:
        """One of them."""
        return items[self.upto(len(items) - 1)]

    # -------------------------------------------------------------------------------------------------------- lines
    def line(self, text: str) -> None:
        """One line of source."""
        self.lines.append("    " * self.indent + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """An indented block, with a scope of its own: what it assigns may not be there afterwards."""
        self.line(head)
        self.indent += 1
        self.scopes.append({kind: [] for kind in KINDS})
        before = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == before:
                self.line("pass")
            self.scopes.pop()
            self.indent -= 1

    # ------------------------------------------------------------------------------------------------------- names
    def fresh(self, prefix: str) -> str:
        """A new name."""
        self.counter += 1
        return f"{prefix}{self.counter}"

    def variables(self, kind: str) -> list[str]:
        """Those of a kind in scope."""
        return [name for scope in self.scopes for name in scope[kind]]

    def declare(self, kind: str, name: str) -> str:
        """A variable of this kind is there from now on."""
        if name not in self.scopes[-1][kind]:
            self.scopes[-1][kind].append(name)
        return name

    def target(self, kind: str) -> str:
        """A name to assign to: a variable of this function's or a new one."""
        own = [name for name in self.variables(kind) if name in self.own[-1]]
        name = self.pick(own) if own and self.chance(60) else self.fresh(kind[0])
        self.own[-1].add(name)
        return str(name)

    def need(self, name: str) -> str:
        """A name of the prelude."""
        self.used.add(name)
        return name
