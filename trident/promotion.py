"""When a specialization becomes a graph that is replayed: the policy of tier 2.

Owns `Promotion`, one root trace's way from its first hits to its graphs, and `promote`. What must hold: a call that was missed so that this
may be done is left to its caller, who executes it in CPython; whatever cannot be captured stays in tier 1, with a reason that `explain`
shows; captures that are of no use become ever more seldom and end.

May import: torch, ir, log, options, backend.{reference,scm}, backend.replay.*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from trident import log
from trident.backend.misses import first_failure
from trident.backend.native.replay_layout import Mismatch
from trident.backend.reference import Leave, Run, evaluate
from trident.backend.replay.graph import Graph, NotCopied, capture, may_be_copied
from trident.backend.replay.site import ReplaySite
from trident.backend.replay.split import Plan, Unfit, split
from trident.backend.replay.targets import target_of
from trident.backend.scm import SCM, HostProgram
from trident.ir import Trace

_FIRST: Final = {"auto": 16, "always": 1}
"""Hits before a root trace is looked at."""
_SAMPLES: Final = 3
"""Calls whose inputs' addresses are compared before the first capture."""
_AGAIN: Final = 16
"""Hits of the root trace, which come when no graph fits, before another one is captured."""
LATER: Final = 64
"""Hits after which what could not be done now is tried again."""
_EVER, _LONGEST, _PATIENCE, _FEW = -1, 1 << 20, 4, 4
_PASSING: Final = (Mismatch.BUSY, Mismatch.CAPTURING, Mismatch.PROFILER, Mismatch.OVERLAP, Mismatch.COPY)
"""Reasons for which another graph would fit no better."""


class Promotion:
    """See the module. why: why it is not replayed, "" where that is not (or no more) known. program: what is replayed."""

    def __init__(self, trace: Trace, choice: str) -> None:
        self.trace, self.choice = trace, choice
        self.site = ReplaySite()
        self.plan: Plan | None = None
        self.program: HostProgram | None = None
        self.why = ""
        self.given_up = False
        self._samples: list[tuple[list[int], list[Any]]] = []
        self._pinned: set[int] = set()  # inputs that cannot be copied
        self._copied: set[int] = set()
        self._failures = self._futile = self._seen = 0

    @property
    def first(self) -> int:
        """Hits to wait for at first."""
        return _FIRST[self.choice]

    def __str__(self) -> str:
        if self.program is not None:
            graphs = f"{len(self.site.graphs)} graph{'s' * (len(self.site.graphs) != 1)}"
            return f"replayed {self.site.replays} times, {graphs}{f'; {self.why}' if self.why else ''}"
        return f"not replayed: {self.why}" if self.why else "waits for hits"

    # ---------------------------------------------------------------------------------------------------------- steps

    def step(self, scm: SCM, root: HostProgram, arguments: tuple[object, ...], handler: Any) -> int | None:
        """Do what is due, with a call's arguments (its function is the last): hits of the root to wait for until the next step, _EVER
        for none. None where the call is not one of the root's."""
        try:
            if self.plan is None:
                self.plan = self.site.plan = split(self.trace, self.site)
            operands = _operands(self.plan, arguments)
            if operands is None:
                return None if first_failure(self.trace, arguments) is not None else LATER
            tensors, numbers = operands
            target_of(tensors)
            if self.program is None:
                return self._first_graph(scm, root, tensors, numbers, handler)
            return self._another_graph(tensors, numbers)
        except Unfit as error:
            return self._refused(str(error))

    def _refused(self, why: str) -> int:
        self.why = why
        self._failures += 1
        log.write("replay", f"{self.trace.name}: {why}")
        if self.plan is None or self._failures > _PATIENCE:
            self.given_up = True
            return _EVER
        return int(min(LATER << 2 * self._failures, _LONGEST))

    def _first_graph(self, scm: SCM, root: HostProgram, tensors: Sequence[Any], numbers: Sequence[Any], handler: Any) -> int:
        self._samples.append(([tensor.data_ptr() for tensor in tensors], list(numbers)))
        if len(self._samples) < _SAMPLES:
            return 1
        samples, self._samples = self._samples, []
        if any(list(map(repr, found)) != list(map(repr, numbers)) for _, found in samples):
            raise Unfit("a number that it is given differs from call to call")
        for n, tensor in enumerate(tensors):
            seen = {addresses[n] for addresses, _ in samples}
            if len(seen) > 1 and may_be_copied(tensor):
                self._copied.add(n)
            elif len(seen) == len(samples):
                raise Unfit(f"an input of {tensor.numel() * tensor.element_size()} bytes comes at another address each time")
        graph = self._captured(tensors, numbers)
        assert self.plan is not None
        try:
            program = HostProgram(self.plan.host, handler)
        except BaseException:
            graph.capture.release()
            raise
        self.site.add(graph)
        scm.add_replay(root, program)
        self.program = program
        return _AGAIN

    def _another_graph(self, tensors: Sequence[Any], numbers: Sequence[Any]) -> int:
        """The root trace has answered again: no graph has fitted for a while."""
        why, _ = self.site.why
        if why is Mismatch.LAUNCH and self.site.renew():
            return _AGAIN
        if why in _PASSING:
            return LATER
        used, self._seen = self.site.replays - self._seen, self.site.replays
        self._futile = self._futile + 1 if used < _FEW else 0
        if self._futile > _PATIENCE:
            self.why = f"no new graph: the last ones were hardly used ({why.name.lower()})"
            self.given_up = True
            return _EVER
        latest = self.site.graphs[0].pinned if self.site.graphs else ()
        for n, address in enumerate(latest):
            if address not in (0, tensors[n].data_ptr()) and may_be_copied(tensors[n]) and n not in self._pinned:
                self._copied.add(n)
        self.site.add(self._captured(tensors, numbers))
        return _AGAIN

    def _captured(self, tensors: Sequence[Any], numbers: Sequence[Any]) -> Graph:
        assert self.plan is not None
        while True:
            try:
                graph = capture(self.plan, tensors, numbers, self._copied)
            except NotCopied as error:
                self._copied.discard(error.number)
                self._pinned.add(error.number)
                continue
            self.why, self._failures = "", 0
            log.write("replay", f"{self.trace.name}: captured, {len(tensors)} inputs, {len(self._copied)} of them copied")
            return graph


def _operands(plan: Plan, arguments: tuple[object, ...]) -> tuple[list[Any], list[Any]] | None:
    """The tensors and numbers that a call gives the device's part; None where it is not one of this trace's."""
    trace = plan.host
    run = Run(trace, dict(zip(trace.block.arguments, arguments, strict=True)))
    for view in trace.block.operations:
        op = view.operation
        given = [run.env[operand] for operand in op.operands]
        if op.name == "trident.replay":
            return given[:len(plan.inputs)], given[len(plan.inputs):]
        try:
            run.env.update(zip(op.results, evaluate(run, op, given), strict=True))
        except Leave:
            return None
    return None


def promote(scm: SCM, due: Sequence[tuple[HostProgram, Promotion]], arguments: tuple[object, ...], handler: Any, lock: Any
            ) -> Promotion | None:
    """Do what is due for some roots. The one of them whose call it is (or may be), if it is one's. lock: of the one thread that may do
    so."""
    if not lock.acquire(blocking=False):
        for root, _ in due:
            scm.await_hits(root, LATER)
        return due[0][1] if due else None
    try:
        mine = None
        for root, promotion in due:
            wait = promotion.step(scm, root, arguments, handler)
            mine = promotion if wait is not None else mine
            scm.await_hits(root, 0 if wait is None else None if wait == _EVER else wait)
        return mine
    finally:
        lock.release()
