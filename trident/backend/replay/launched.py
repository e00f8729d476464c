"""Whether Triton would launch the kernels of a graph again: the words that it looks at besides a launch's arguments.

Owns `Launched`. What must hold: its rows are those of `triton.guards` for every kernel of a graph; they are renewed only where the very
kernels that were captured are still the ones in Triton's caches.

May import: triton, ir, backend.triton.{guards,specialize}, replay.split.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trident.backend.replay.split import Unfit
from trident.ir.trace import LaunchSite


class Launched:
    """The kernels of one graph. words, dicts: rows as `triton.guards` has them."""

    def __init__(self, launches: Sequence[tuple[LaunchSite, Any]]) -> None:
        self._launches = list({(id(site), id(compiled)): (site, compiled) for site, compiled in launches}.values())
        self._snapshots: list[object] = []
        self.words: list[tuple[int, int, int]] = []
        self.dicts: list[tuple[int, int, int, int, int]] = []
        self._alive: list[Any] = []
        if self._launches:
            self._take()
            self._snapshots = self._taken_snapshots()

    def _take(self) -> None:
        from triton.runtime.jit import JITFunction

        from trident.backend.triton import guards
        from trident.backend.triton.specialize import Unsuitable

        words: dict[tuple[int, int, int], None] = {}
        dicts: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}
        try:
            for site, compiled in self._launches:
                guards.unpatched(type(site.kernel).run, JITFunction)
                taken = guards.take(site)
                taken.class_of(compiled)
                taken.class_of(compiled.run)
                words.update(dict.fromkeys(taken.words))
                dicts.update({(row[0], row[2]): row for row in taken.dicts})
                self._alive += [taken.alive, taken.values]
        except Unsuitable as error:
            raise Unfit(f"a kernel's launch: {error}") from None
        self.words, self.dicts = list(words), list(dicts.values())

    def _taken_snapshots(self) -> list[object]:
        from trident.backend.triton import guards

        return [guards.snapshot(site) for site, _ in self._launches]

    def renew(self) -> bool:
        """Take the words as they are now. Whether the kernels are still those that were captured."""
        if not self._launches or self._taken_snapshots() != self._snapshots:
            return False
        for site, compiled in self._launches:
            cached = [kernel for caches in list(site.kernel.device_caches.values()) for kernel in list(caches[0].values())]
            if not any(kernel is compiled for kernel in cached):
                return False
        try:
            self._take()
        except Unfit:
            return False
        return True
