"""Graphs: captured for the tensors of one call, with the tables by which native code tells whether they fit another one.

Owns `capture` and `Graph`. What must hold: a graph fits only calls for which the operators would do exactly what was captured; its tables
stay as long as it does; a capture that fails leaves everything as it was.

May import: torch, ir, native.*, replay.*, backend.triton.guards.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Collection, Sequence
from typing import Any, Final

import torch

from trident.backend.native import keys, replay_layout
from trident.backend.native import replay_layout as layout
from trident.backend.native.aside import aside
from trident.backend.native.replay_layout import OutputKind
from trident.backend.replay import environment, facts
from trident.backend.replay.device import DevicePart
from trident.backend.replay.launched import Launched
from trident.backend.replay.split import Plan, Unfit
from trident.backend.replay.targets import Capture, Target, target_of, unchanged


class NotCopied(Unfit):
    """An input that cannot be copied in: `number`."""

    def __init__(self, number: int, why: str) -> None:
        super().__init__(why)
        self.number = number


COPIED_BYTES: Final = 1 << 20
"""An input that comes at another address each time is copied in if it is no larger than this."""
_ALL: Final = (1 << 64) - 1


class Graph:
    """A captured graph. `address` is that of its words. pinned: the addresses at which its inputs lie, 0 for those that are copied."""

    def __init__(self, capture: Capture, pinned: Sequence[int], questions: Sequence[str]) -> None:
        self.capture = capture
        self.pinned = tuple(pinned)
        self.questions = questions
        self._keep: list[Any] = [capture]
        self._launched = Launched(())
        self._words = self.words([0] * (layout.GRAPH_SIZE // 8))
        self.address = ctypes.addressof(self._words)

    def words(self, values: Sequence[int]) -> Any:
        array = (ctypes.c_uint64 * max(len(values), 1))(*[value & _ALL for value in values])
        self._keep.append(array)
        return array

    def keep(self, obj: object) -> None:
        """Let something live as long as the graph."""
        self._keep.append(obj)

    def set(self, offset: int, value: int) -> None:
        self._words[offset // 8] = value & _ALL

    def table(self, offset: int, count: int, rows: Sequence[Sequence[int]]) -> None:
        """A table of rows of words, and their number."""
        self.set(offset, ctypes.addressof(self.words([word for row in rows for word in row])))
        self.set(count, len(rows))

    def guard_launches(self, launched: Launched) -> None:
        """Replay only while Triton would launch the same kernels."""
        self._launched = launched
        self.table(layout.GRAPH_WORDS, layout.GRAPH_WORD_COUNT, [*self.capture.words, *launched.words])
        self.table(layout.GRAPH_DICTS, layout.GRAPH_DICT_COUNT, launched.dicts)

    def renew(self) -> bool:
        """Look again at what Triton looks at. Whether it would still launch the same kernels."""
        if not self._launched.renew():
            return False
        self.guard_launches(self._launched)
        return True

    @property
    def replays(self) -> int:
        """How often it was launched."""
        return int(self._words[layout.GRAPH_REPLAYS // 8])


class _Capturing:
    """One capture. copied: numbers of inputs that are copied in."""

    def __init__(self, plan: Plan, tensors: Sequence[torch.Tensor], numbers: Sequence[object], copied: Collection[int]) -> None:
        self.plan, self.tensors, self.numbers = plan, tensors, numbers
        self.copied = frozenset(copied)
        self.target: Target = target_of(tensors)
        self.part = DevicePart(plan)

    def graph(self) -> Graph:
        if replay_layout.current() is None or keys.current() is None:
            raise Unfit("where this torch keeps what a graph depends on is not known")
        for tensor in self.tensors:
            facts.refuse_input(tensor)
            self.target.look(tensor)
        thread = _thread_state()
        rows, questions = environment.snapshot(device=self.target.device)
        given = [self._placeholder(n, tensor) if n in self.copied else tensor for n, tensor in enumerate(self.tensors)]
        pinned = [tensor for n, tensor in enumerate(self.tensors) if n not in self.copied]
        counts = [replay_layout.version_of(tensor) for tensor in self.tensors]
        before = [0 if count is None else count.value for count in counts]
        try:
            with unchanged(self.tensors):
                captured = self.target.capture(lambda: self.part.run(given, self.numbers, self._look), given, pinned,
                                               draws=self.plan.draws)
            bumps = [0 if count is None else count.value - was for count, was in zip(counts, before, strict=True)]
        finally:
            for count, was in zip(counts, before, strict=True):
                if count is not None:
                    count.value = was
        try:
            return self._describe(captured, given, bumps, thread, rows, questions)
        except BaseException:
            captured.release()
            raise

    def _look(self, tensor: torch.Tensor) -> None:
        facts.refuse_odd(tensor)
        self.target.look(tensor)

    def _placeholder(self, number: int, tensor: torch.Tensor) -> torch.Tensor:
        """Memory of its own for an input."""
        size = facts.extent(tensor)
        if size < 0:
            raise NotCopied(number, "an input that comes at another address each time has gaps between its elements")
        if size > COPIED_BYTES:
            raise NotCopied(number, f"an input of {size} bytes comes at another address each time")
        if self.plan.reaches_storage and tensor.storage_offset():
            raise NotCopied(number, "an operator may look beyond an input that comes at another address each time")
        made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        if size and (tensor.data_ptr() | made.data_ptr()) % self.target.alignment:
            raise NotCopied(number, "an input that comes at another address each time is not aligned")
        with torch.no_grad():
            made.copy_(tensor)
        return made

    # --------------------------------------------------------------------------------------------------------- tables

    def _describe(self, captured: Capture, given: Sequence[torch.Tensor], bumps: Sequence[int], thread: tuple[int, int, int],
                  rows: Sequence[int], questions: Sequence[str]) -> Graph:
        written = self.part.written
        for n in self.copied:
            if given[n].untyped_storage()._cdata in written:
                raise NotCopied(n, "it writes to an input that comes at another address each time")
        graph = Graph(captured, [0 if n in self.copied else t.data_ptr() for n, t in enumerate(self.tensors)], questions)
        graph.keep([given, captured.results, self.plan])
        graph.table(layout.GRAPH_ENVIRONMENT, layout.GRAPH_ENVIRONMENT_COUNT, _rows(rows, layout.ROW_SIZE // 8))
        for offset, word in zip((layout.GRAPH_INCLUDED, layout.GRAPH_EXCLUDED, layout.GRAPH_MODES), thread, strict=True):
            graph.set(offset, word)
        graph.table(layout.GRAPH_INPUTS, layout.GRAPH_INPUT_COUNT,
                    [self._input(graph, n, tensor, given[n]) for n, tensor in enumerate(self.tensors)])
        graph.table(layout.GRAPH_NUMBERS, layout.GRAPH_NUMBER_COUNT, [[_bits(number)] for number in self.numbers])
        graph.table(layout.GRAPH_OUTPUTS, layout.GRAPH_OUTPUT_COUNT, self._outputs(graph, captured.results, given))
        storages = {t.untyped_storage()._cdata: t.untyped_storage() for n, t in enumerate(self.tensors) if n not in self.copied}
        graph.table(layout.GRAPH_WRITTEN, layout.GRAPH_WRITTEN_COUNT,
                    [[s.data_ptr(), s.data_ptr() + s.nbytes()] for at, s in storages.items() if at in written])
        self._versions(graph, bumps)
        graph.guard_launches(Launched(self.part.launched))
        for offset, word in ((layout.GRAPH_COPY, captured.copy), (layout.GRAPH_STREAM, captured.stream),
                             (layout.GRAPH_CAPTURING, captured.capturing), (layout.GRAPH_LAUNCH, captured.launch),
                             (layout.GRAPH_CONTEXT, captured.context), (layout.GRAPH_BUSY, captured.busy)):
            graph.set(offset, word)
        return graph

    def _input(self, graph: Graph, number: int, tensor: torch.Tensor, given: torch.Tensor) -> list[int]:
        copied = number in self.copied
        known = facts.words_of(tensor, offset=not copied or self.plan.reaches_storage)
        memory = 0 if copied else ctypes.addressof(graph.words(replay_layout.memory_of(tensor)))
        row = [0] * (layout.INPUT_SIZE // 8)
        for offset, word in ((layout.INPUT_FACTS, ctypes.addressof(graph.words([word for fact in known for word in fact]))),
                             (layout.INPUT_FACT_COUNT, len(known)), (layout.INPUT_MEMORY, memory),
                             (layout.INPUT_PLACEHOLDER, given.data_ptr() if copied else 0),
                             (layout.INPUT_BYTES, facts.extent(tensor) if copied else 0), (layout.INPUT_ITEM, tensor.element_size()),
                             (layout.INPUT_ALIGNMENT, self.target.alignment - 1),
                             (layout.INPUT_DIFFERENTIABLE, int(not torch.is_grad_enabled()))):
            row[offset // 8] = word
        return row

    def _outputs(self, graph: Graph, results: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> list[list[int]]:
        """What each result is."""
        inputs = {tensor._cdata: n for n, tensor in reversed(list(enumerate(given)))}
        taken = {tensor.untyped_storage()._cdata for tensor in given}
        seen: dict[int, int] = {}
        rows = []
        for n, result in enumerate(results):
            if result._cdata in inputs:
                rows.append([OutputKind.INPUT, inputs[result._cdata], 0, 0, 0])
            elif result._cdata in seen:
                rows.append([OutputKind.SAME, seen[result._cdata], 0, 0, 0])
            else:
                rows.append(self._fresh(graph, result, taken))
            seen.setdefault(result._cdata, n)
        return rows

    def _fresh(self, graph: Graph, result: torch.Tensor, taken: set[int]) -> list[int]:
        storage, size = result.untyped_storage(), facts.extent(result)
        if storage._cdata in taken:
            raise Unfit("a result shares memory with an input or with another result")
        taken.add(storage._cdata)
        if result.requires_grad or size < 0 or result.storage_offset() or storage.nbytes() != size or result.is_conj() or result.is_neg():
            raise Unfit("a result is a part of a larger tensor, or has gaps between its elements")
        cell = graph.words([result._cdata])  # an at::Tensor, as a reference takes it
        return [OutputKind.FRESH, 0, ctypes.addressof(cell), result.data_ptr(), size]

    def _versions(self, graph: Graph, bumps: Sequence[int]) -> None:
        """Inputs with one version counter are bumped once."""
        at = replay_layout.current()
        assert at is not None
        counters: dict[int, list[int]] = {}
        for n, tensor in enumerate(self.tensors):
            if bumps[n]:
                counters.setdefault(ctypes.c_uint64.from_address(tensor._cdata + at.version).value, []).append(n)
        graph.table(layout.GRAPH_BUMPS, layout.GRAPH_BUMP_COUNT, [[group[0], bumps[group[0]]] for group in counters.values()])
        graph.table(layout.GRAPH_SHARED, layout.GRAPH_SHARED_COUNT,
                    [[group[0], other] for group in counters.values() for other in group[1:]])


def _rows(words: Sequence[int], size: int) -> list[Sequence[int]]:
    return [words[start:start + size] for start in range(0, len(words), size)]


def _bits(number: Any) -> int:
    """A number as the lowering passes it."""
    if type(number) is float:
        return int(struct.unpack("<Q", struct.pack("<d", number))[0])
    return int(number)


def _raw_thread_state() -> tuple[int, int, int]:
    known = keys.current()
    assert known is not None
    thread = keys.thread_keys()
    modes = keys.autograd_state() + known.grad_mode
    included, excluded = (ctypes.c_uint64.from_address(thread + offset).value for offset in (keys.INCLUDED, keys.EXCLUDED))
    return included, excluded, ctypes.c_uint8.from_address(modes).value


def _thread_state() -> tuple[int, int, int]:
    """This thread's dispatch keys and modes. Unfit where something stands between a call and its kernel, but for inference mode."""
    found = _raw_thread_state()
    if found[:2] != (0, 0) and found[:2] != aside(_in_inference_mode):
        raise Unfit("a mode of torch is active (autocast, a transform, a tracer)")
    return found


def _in_inference_mode() -> tuple[int, int]:
    with torch.inference_mode():
        return _raw_thread_state()[:2]


def may_be_copied(tensor: torch.Tensor) -> bool:
    """Whether an input is small enough, and without gaps."""
    return 0 <= facts.extent(tensor) <= COPIED_BYTES


def capture(plan: Plan, tensors: Sequence[torch.Tensor], numbers: Sequence[object], copied: Collection[int]) -> Graph:
    """Capture the device's part of a plan for these tensors and numbers, which a call has. copied: numbers of the inputs that come at
    another address each time. Unfit where that cannot be, NotCopied where it can be if one of those keeps its address."""
    return _Capturing(plan, tensors, numbers, copied).graph()


__all__ = ["COPIED_BYTES", "Graph", "NotCopied", "capture", "may_be_copied"]
