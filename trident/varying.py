"""Which values that a constant object holds are read when the trace runs instead of being pinned: they turned out to vary.

Owns that policy for one function. What must hold: a number is read at run time once it has been seen to differ; another object after two
recordings in the middle of a call (behind a call that replaces it each time, for example) that did not hold for the next one; nothing is
where the traces go through the whole dict, which is recorded only of constants.

May import: backend.{exits,scm}, ir.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from trident.backend.exits import ExitSite
from trident.backend.scm import HostProgram
from trident.ir import PinKind, Trace
from trident.ir.pins import holds

_PATIENCE: Final = 2
"""Recordings for an object that is another one each time."""

_KEPT: Final = 1024


class Varying:
    """See the module. demoted: what is read at run time, as the recorder knows it (`options.demoted`)."""

    def __init__(self, demoted: set[tuple[int, object]]) -> None:
        self.demoted = demoted
        self._seen: Counter[tuple[int, object]] = Counter()

    def note_miss(self, trace: Trace) -> None:
        """A root trace has not answered."""
        for pin in trace.pins:
            if pin.kind is PinKind.DICT and type(pin.expected) in (int, float) and not holds(pin):
                self.demoted.add((id(pin.owner), pin.key))

    def note_exit(self, program: HostProgram, site: ExitSite) -> None:
        """Another recording is to begin at an exit of a program: it may be pins that did not hold."""
        if site.what != "trident.pin":
            return
        whole = {id(pin.owner) for pin in program.trace.pins if pin.kind is PinKind.DICT_KEYS}
        for pin, _ in program.pin_failures():
            if pin.kind not in (PinKind.DICT, PinKind.LIST, PinKind.CELL) or id(pin.owner) in whole or holds(pin):
                continue
            place = id(pin.owner), "cell_contents" if pin.kind is PinKind.CELL else pin.key
            if len(self._seen) < _KEPT or place in self._seen:
                self._seen[place] += 1
            if type(pin.expected) in (int, float) or self._seen[place] >= _PATIENCE:
                self.demoted.add(place)

    def clear(self) -> None:
        """Nothing is known."""
        self.demoted.clear()
        self._seen.clear()


__all__ = ["Varying"]
