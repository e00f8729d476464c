"""What is remembered of the calls of one function that no specialization answered.

Owns the last misses, the totals, and how many more specializations a function with as many as it may have deserves. What must hold: what
is kept is bounded, and keeps no object of the user's alive.

May import: backend.misses, ir, log, report.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from trident import log
from trident.backend.misses import first_failure
from trident.ir import Trace
from trident.report import Miss, MissTotal

_KEPT, _KEPT_PLACES = 64, 256
_HITS_PER_RECORDING: Final = 64
"""Hits that make up for recording another specialization in the place of one."""


class Misses:
    """See the module. last: the failures of the last calls, one for each specialization that there was."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: deque[Miss] = deque(maxlen=_KEPT)
        self._totals: Counter[tuple[str, str, int]] = Counter()
        self._texts: dict[tuple[str, str, int], str] = {}
        self._hits = 0
        self._earned = 0

    def note(self, roots: Sequence[Trace], arguments: tuple[object, ...]) -> set[str]:
        """Find out why none of them answered; the kinds of the guards that failed."""
        kinds = set()
        for n, trace in enumerate(roots):
            found = first_failure(trace, arguments)
            if found is None:
                miss = Miss(n, "applies (published meanwhile)", "", "", "", 0)
            else:
                why, seen = found
                miss = Miss(n, why.text, seen, why.kind, why.file, why.line)
                self._count(miss)
            kinds.add(miss.kind)
            self.last.append(miss)
            log.write("misses", f"{self.name}: {miss}")
        return kinds

    def _count(self, miss: Miss) -> None:
        place = miss.kind, miss.file, miss.line
        if place in self._totals or len(self._totals) < _KEPT_PLACES:
            self._totals[place] += 1
            self._texts[place] = miss.text

    @property
    def totals(self) -> tuple[MissTotal, ...]:
        """How often guards of each kind and line failed, the most frequent first."""
        return tuple(MissTotal(self._texts[place], *place, count) for place, count in self._totals.most_common())

    @property
    def latest(self) -> str:
        """The last one, in words."""
        return str(self.last[-1]) if self.last else "none"

    def has_earned(self, hits: int, most: int) -> bool:
        """Whether a function with all the specializations that it may have is to get another one for the least used.

        hits: of its life so far. Each recording costs as much as thousands of calls; a function that hits often enough in between
        deserves it, another one would thrash."""
        new = (hits - self._hits) // _HITS_PER_RECORDING
        self._hits += new * _HITS_PER_RECORDING
        self._earned = min(self._earned + new, most)
        return self._earned > 0

    def earns_another(self, hits: int, most: int) -> bool:
        """The same, and it is about to get it."""
        if not self.has_earned(hits, most):
            return False
        self._earned -= 1
        return True

    def clear(self) -> None:
        """Nothing has been missed."""
        self.last.clear()
        self._totals.clear()
        self._texts.clear()
        self._hits = self._earned = 0
