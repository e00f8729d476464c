"""Which arguments of a function are other objects at each call, and are read at run time instead of being guarded by identity.

Owns that policy for one function. What must hold: an argument is generalised only where its identity is what a specialization asks
for and another object of the same class has come. Where reading it at run time costs opaque calls, identity is guarded again until
some more objects have come (each is a recording, which is worth many such calls); where it cannot be recorded, for good.

May import: frontend.instances.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trident.frontend.instances import argument_at, is_generalisable

_PATIENCE: Final = 4
"""Objects, after those for which reading an argument at run time meant more opaque calls, that make up for these."""


class Strangers:
    """See the module. generalised: the arguments that are read at run time, as the recorder knows them (`options.generalised`)."""

    def __init__(self, generalised: set[Any]) -> None:
        self.generalised = generalised
        # Arguments for which reading at run time was tried and did not pay -> strangers until they are read so all the same.
        self._fixed: dict[Any, float] = {}

    def generalise(self, arguments: tuple[object, ...], recorded: Iterable[tuple[Mapping[Any, object], int]]
                   ) -> tuple[set[Any], int | None]:
        """What is to be read at run time from now on, and how many opaque calls the next recording may have for it (None: any).

        recorded: for each trace the objects that it asks for by number of the argument, and the number of its opaque calls."""
        known: set[Any] = set()
        found: set[Any] = set()
        opaque = 0
        for identified, count in recorded:
            for n, obj in identified.items():
                mine = argument_at(arguments, n)
                if mine is obj:
                    known.add(n)
                elif type(mine) is type(obj) and is_generalisable(mine):
                    found.add(n)
                    opaque = max(opaque, count)
        for n in self._fixed.keys() & found - known:
            self._fixed[n] -= 1
        found = {n for n in found if self._fixed.get(n, 0) <= 0}
        self.generalised |= found
        return found, opaque if found - self._fixed.keys() else None

    def fix(self, *, for_good: bool) -> None:
        """Reading the arguments at run time made things worse: guard their identity again."""
        for n in self.generalised - self._fixed.keys():
            self._fixed[n] = math.inf if for_good else _PATIENCE
        self.generalised.difference_update([n for n, left in self._fixed.items() if left > 0])

    def clear(self) -> None:
        """Nothing is known."""
        self.generalised.clear()
        self._fixed.clear()
