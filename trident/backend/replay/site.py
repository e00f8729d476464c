"""What a `trident.replay` has for its site: the graphs of one replay trace, in a table that native code walks.

Owns `ReplaySite`. What must hold: a graph is in the table only while its own tables are alive; there are at most MOST_GRAPHS, the one that
was used least makes room.

May import: torch, ir, native.replay_layout, replay.{device,graph,split}.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

import torch

from trident.backend.native import replay_layout as layout
from trident.backend.native.replay_layout import Mismatch
from trident.backend.replay.device import DevicePart
from trident.backend.replay.graph import Graph
from trident.backend.replay.split import Plan

MOST_GRAPHS: Final = 8


class ReplaySite:
    """See the module. `address` is that of its words."""

    def __init__(self) -> None:
        self.graphs: list[Graph] = []
        self._words = (ctypes.c_uint64 * (layout.SITE_SIZE // 8))()
        self.address = ctypes.addressof(self._words)
        self._arrays: list[Any] = []
        self._gone: list[Graph] = []
        self._counted: dict[int, int] = {}
        self.plan: Plan | None = None
        self._publish()

    def _publish(self) -> None:
        array = (ctypes.c_uint64 * (len(self.graphs) + 1))(*[graph.address for graph in self.graphs], 0)
        self._arrays.append(array)
        self._words[layout.SITE_GRAPHS // 8] = ctypes.addressof(array)

    def add(self, graph: Graph) -> None:
        """From now on this one is tried first."""
        if len(self.graphs) >= MOST_GRAPHS:
            least = min(self.graphs, key=lambda other: other.replays - self._counted.get(id(other), 0))
            self.drop(least)
        self._counted = {id(other): other.replays for other in self.graphs}
        self.graphs.insert(0, graph)
        self._publish()

    def drop(self, graph: Graph) -> None:
        """It is tried no more, and its memory on the device is free; its tables stay, for somebody may be reading them."""
        self.graphs.remove(graph)
        self._gone.append(graph)
        self._publish()
        graph.capture.release()

    def renew(self) -> bool:
        """Look again at what Triton looks at, where that kept a graph from fitting. Whether one has been renewed."""
        graphs, self.graphs = self.graphs, []
        self._publish()  # nobody reads tables that change
        renewed = [graph for graph in graphs if graph.renew()]
        self.graphs = graphs
        self._publish()
        return bool(renewed)

    def close(self) -> None:
        """Let all of them go."""
        for graph in list(self.graphs):
            self.drop(graph)

    @property
    def replays(self) -> int:
        """How often any of them was launched."""
        return sum(graph.replays for graph in (*self.graphs, *self._gone))

    @property
    def why(self) -> tuple[Mismatch, int]:
        """Why the last call that none fitted was missed, and the number of what did not fit."""
        return Mismatch(self._words[layout.SITE_WHY // 8]), int(self._words[layout.SITE_WHERE // 8])

    def run(self, operands: Sequence[Any]) -> Sequence[torch.Tensor] | str:
        """What a graph does, by the reference executor."""
        if self.plan is None:
            return "no graph"
        count = len(self.plan.inputs)
        return DevicePart(self.plan).run(operands[:count], operands[count:], lambda tensor: None)
