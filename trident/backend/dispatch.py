"""Dispatch: the native function that tries the specializations of a function: those that a selection names, or all, the one that
answered last first.

Owns its code, the table that it walks, and the count of threads inside. What must hold: it is entered and left with the GIL held, so
the count is exact; a table that was published stays, and so does code, until the SCM is retired and the count is zero.

May import: native.engine, native.fast, native.frame, native.runtime.
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from trident.backend.native import frame, runtime
from trident.backend.native.engine import Compiled
from trident.backend.native.fast import compile_fast


class _Closable(Protocol):
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A program in the table. wait: hits after which it is passed over, None for never. behind: how far before it the program stands
    that is to be tried first where this one has answered."""

    address: int
    wait: int | None = None
    behind: int = 0


class _Old:
    """Tables and selections that were published once."""

    def __init__(self, tables: list[Any], selections: list[Compiled | None]) -> None:
        self._tables, self._selections = tables, selections

    def close(self) -> None:
        for code in self._selections:
            if code is not None:
                code.close()
        self._tables.clear()


_graveyard: Final[list[tuple[Dispatch, list[_Closable]]]] = []
"""Retired SCMs that somebody was still inside of, with what to free."""


class Dispatch:
    """One SCM's dispatch. `address` is that of `ptr dispatch(ptr bound)`: a result, or the miss marker. It never changes.

    visitors: not empty while somebody may be in a program that was not entered through here."""

    def __init__(self, name: str, visitors: Collection[object] = ()) -> None:
        runtime.load()
        sweep()
        self._visitors = visitors
        self._tables: list[Any] = []
        self._selections: list[Compiled | None] = []
        self._record = (ctypes.c_uint64 * (frame.DISPATCH_SIZE // 8))()
        self.publish([])
        text = (f"declare ptr @trident_dispatch(ptr, ptr)\ndefine ptr @dispatch(ptr %bound) {{\n"
                f"%r = tail call ptr @trident_dispatch(ptr inttoptr (i64 {ctypes.addressof(self._record)} to ptr), ptr %bound)\n"
                "ret ptr %r\n}\n")
        self._compiled = compile_fast(text, name=f"trident.dispatch.{name}")
        self.address = self._compiled.address("dispatch")

    def publish(self, entries: Sequence[Entry], selection: Compiled | None = None) -> None:
        """From now on try these programs, those first that come first. selection: the code that says which can answer."""
        words = [len(entries), 0, selection.address("select") if selection is not None else 0]
        for n, entry in enumerate(entries):
            words += [entry.address, 0, frame.NEVER if entry.wait is None else entry.wait, n - entry.behind]
        table = (ctypes.c_uint64 * len(words))(*words)
        self._tables.append(table)
        self._selections.append(selection)
        # One store: whoever comes now sees the new table, whoever is inside goes on with the old one.
        self._record[frame.DISPATCH_TABLE // 8] = ctypes.addressof(table)

    @property
    def hits(self) -> list[int]:
        """How often each program answered since this table was published, in its order."""
        return self._column(frame.ENTRY_HITS)

    def _column(self, field: int) -> list[int]:
        return list(self._tables[-1][(frame.TABLE_ENTRIES + field) // 8::frame.DISPATCH_ENTRY_SIZE // 8])

    @property
    def waits(self) -> list[int | None]:
        """How many hits each program has to go until it is passed over, None for ever."""
        return [None if due == frame.NEVER else due - hits for due, hits in zip(self._column(frame.ENTRY_DUE), self.hits, strict=True)]

    @property
    def due(self) -> list[int]:
        """The programs that are passed over now."""
        columns = self._column(frame.ENTRY_DUE), self.hits
        return [n for n, (due, hits) in enumerate(zip(*columns, strict=True)) if due == hits]

    def await_hits(self, number: int, wait: int | None) -> None:
        """Pass a program over when it has that many more hits; None: never."""
        place = (frame.TABLE_ENTRIES + number * frame.DISPATCH_ENTRY_SIZE) // 8
        hits = self._tables[-1][place + frame.ENTRY_HITS // 8]
        self._tables[-1][place + frame.ENTRY_DUE // 8] = frame.NEVER if wait is None else hits + wait

    @property
    def inside(self) -> int:
        """How many calls are in progress."""
        return int(self._record[frame.DISPATCH_INSIDE // 8])

    @property
    def is_deserted(self) -> bool:
        """Whether nobody is in any of the programs."""
        return self.inside == 0 and not self._visitors

    def close(self) -> None:
        """Unmap the code. Nobody may be inside."""
        for code in (self._compiled, *self._selections):
            if code is not None:
                code.close()

    def drop(self, programs: Sequence[_Closable]) -> None:
        """Free programs that the table no longer names, and what was published before it, as soon as nobody is inside."""
        old = _Old(self._tables[:-1], self._selections[:-1])
        del self._tables[:-1], self._selections[:-1]
        _graveyard.append((self, [old, *programs]))
        sweep()

    def retire(self, programs: Sequence[_Closable]) -> None:
        """Free everything as soon as nobody is inside. Nobody may enter any more."""
        _graveyard.append((self, [self, *programs]))
        sweep()


def sweep() -> None:
    """Free what nobody is inside of any more."""
    for entry in list(_graveyard):
        if entry[0].is_deserted:
            try:
                _graveyard.remove(entry)
            except ValueError:  # another thread frees it
                continue
            for code in entry[1]:
                code.close()
