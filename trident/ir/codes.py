"""What is known of code objects, for as long as they live.

Owns `OfCode`. What must hold: a table keeps no code object alive, so its values must not refer to their keys; equal code objects are
different keys, because they differ in lines and in what was learnt of them.

May import: the standard library.
"""

from __future__ import annotations

import weakref
from types import CodeType
from typing import Generic, TypeVar

Value = TypeVar("Value")


class OfCode(Generic[Value]):
    """A table by identity of code objects. An entry goes with its code object."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[CodeType], Value]] = {}

    def get(self, code: CodeType) -> Value | None:
        """The value of a code object, or None."""
        found = self._entries.get(id(code))
        return None if found is None else found[1]

    def __setitem__(self, code: CodeType, value: Value) -> None:
        key, entries = id(code), self._entries
        entries[key] = weakref.ref(code, lambda _: entries.pop(key, None)), value

    def pop(self, code: CodeType) -> Value | None:
        """Take the value of a code object out of the table."""
        found = self._entries.pop(id(code), None)
        return None if found is None else found[1]

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        """Forget everything."""
        self._entries.clear()
