"""How often an exit must be taken before a bridge is recorded for it.

Owns that policy for one function. What must hold: whatever a function does, bridges that are left where they began (an object that is
another one each time, a list that grows) become ever more seldom, so that recording never takes more than a small part of its time.

May import: backend.exits, ir, options.
"""

from __future__ import annotations

from typing import Final

from trident.backend.exits import ExitSite
from trident.ir import Snapshot, Trace
from trident.options import Options

Way = tuple[tuple[int, int], ...]
"""Where the bridges began that lead to a program: ids of codes, and offsets."""

_LINKS: Final = 6
"""Bridges from one instruction, each left where it began, after which each one waits twice as long as the one before."""


class Patience:
    """See the module."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._waiting: dict[ExitSite, int] = {}  # exits whose recording has failed -> how often they are taken till the next

    def enough(self, site: ExitSite, way: Way) -> bool:
        """Whether an exit, to which bridges from these instructions have led, has been taken often enough."""
        # A loop is left at the latest when it is over: what comes then is the rest of the function.
        least = 1 if site.trace.loops else self._options.bridge_threshold
        if site.taken < max(least, self._waiting.get(site, 0)):
            return False
        return site.taken >= 2 ** max(way.count(_place(site.snapshot)) - _LINKS, 0)

    def failed(self, site: ExitSite) -> None:
        """What raises from here on is tried ever more seldom."""
        self._waiting[site] = 2 * site.taken + 1

    def drop(self, exits: set[ExitSite]) -> None:
        """These are no more."""
        self._waiting = {site: taken for site, taken in self._waiting.items() if site not in exits}

    def clear(self) -> None:
        """There are none."""
        self._waiting.clear()


def _place(snapshot: Snapshot | None) -> tuple[int, int]:
    return (id(snapshot.frames[-1].code), snapshot.frames[-1].offset) if snapshot is not None and snapshot.frames else (0, 0)


def further(way: Way, trace: Trace) -> Way:
    """The way to the exits of a trace that is recorded for an exit to which this way has led."""
    return (*way, _place(trace.parent)) if trace.parent is not None and not trace.loops else way


__all__ = ["Patience", "Way", "further"]
