"""Where graphs are captured and replayed: CUDA, and an emulation on the CPU for tests.

Owns the interface `Target` and the emulation. What must hold for a target: `capture` executes the device's part without any lasting
effect on the tensors that it is given; its launch function does, to the same memory, what that execution would have done; a failed
capture leaves everything as it was.

May import: torch, native.{engine,replay_runtime}, replay.*.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from trident.backend.native import replay_layout, replay_runtime
from trident.backend.replay.facts import memory_of
from trident.backend.replay.split import Unfit

Execute = Callable[[], list[torch.Tensor]]


@dataclass(slots=True)
class Capture:
    """A captured graph. results: its own tensors. launch, context, copy, stream, capturing, busy: see native.replay_layout.GRAPH_*.
    alive: what these addresses lie in. release: lets go of the device's memory. words: address, mask and word of what must stay."""

    results: list[torch.Tensor]
    launch: int
    context: int
    copy: int
    stream: int = 0
    capturing: int = 0
    busy: int = 0
    alive: list[Any] = field(default_factory=list)
    release: Callable[[], None] = lambda: None
    words: list[tuple[int, int, int]] = field(default_factory=list)


class Target(Protocol):
    """A kind of device. alignment: of the memory that it allocates, in bytes. device: whether CUDA is asked what is current."""

    alignment: int
    device: bool

    def look(self, tensor: torch.Tensor) -> None:
        """Unfit for a tensor that its graphs cannot hold."""

    def capture(self, execute: Execute, inputs: Sequence[torch.Tensor], pinned: Sequence[torch.Tensor], *, draws: bool) -> Capture:
        """Capture what `execute` does. inputs: tensors that it is given; pinned: those of them that are the program's own. draws: it
        takes random numbers."""


class Emulation:
    """A graph is the device's part, executed again by the reference executor."""

    alignment, device = 16, False

    def __init__(self) -> None:
        self.busy = ctypes.c_uint64(0)
        self.launches = 0

    def look(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cpu":
            raise Unfit(f"a tensor is on {tensor.device.type}")

    def capture(self, execute: Execute, inputs: Sequence[torch.Tensor], pinned: Sequence[torch.Tensor], *, draws: bool) -> Capture:
        compiled = replay_runtime.load()
        with undone(pinned):
            results = execute()

        def launch() -> None:
            self.launches += 1
            versions = [count.value if count is not None else 0 for count in map(replay_layout.version_of, pinned)]
            again = execute()
            for count, version in zip(map(replay_layout.version_of, pinned), versions, strict=True):
                if count is not None:
                    count.value = version
            for result, new in zip(results, again, strict=True):
                if (new.shape, new.stride(), new.dtype) != (result.shape, result.stride(), result.dtype):
                    raise RuntimeError("trident: a graph's result has another shape than when it was captured")
                if new.data_ptr() != result.data_ptr():
                    ctypes.memmove(result.data_ptr(), new.data_ptr(), new.numel() * new.element_size())

        return Capture(results, compiled.address(replay_runtime.CALL), id(launch), compiled.address(replay_runtime.HOST_COPY),
                       busy=ctypes.addressof(self.busy), alive=[self, launch])


@contextmanager
def undone(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """What the block does to the memory of tensors, and to the generator of random numbers, is undone behind it."""
    storages = {t.untyped_storage()._cdata: t.untyped_storage() for t in tensors}
    saved = [(storage, ctypes.string_at(storage.data_ptr(), storage.nbytes()) if storage.nbytes() else b"")
             for storage in storages.values()]
    random = torch.get_rng_state()
    try:
        yield
    finally:
        torch.set_rng_state(random)
        for storage, contents in saved:
            if contents:
                ctypes.memmove(storage.data_ptr(), contents, len(contents))


@contextmanager
def unchanged(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Unfit if the block gives one of the tensors other memory or metadata."""
    before = [memory_of(tensor) for tensor in tensors]
    yield
    if [memory_of(tensor) for tensor in tensors] != before:
        raise Unfit("an input got other memory or another shape")


_emulated: list[Emulation] = []


@contextmanager
def emulated() -> Iterator[Emulation]:
    """For tests: graphs of the CPU's tensors are emulated while this is active."""
    _emulated.append(Emulation())
    try:
        yield _emulated[-1]
    finally:
        _emulated.pop()


def target_of(tensors: Sequence[torch.Tensor]) -> Target:
    """Where the work on these tensors is captured. Unfit where that is nowhere."""
    kinds = {(tensor.device.type, tensor.device.index) for tensor in tensors}
    if len(kinds) != 1:
        raise Unfit("its tensors are on different devices" if kinds else "it is given no tensor, which would say where it runs")
    kind, index = kinds.pop()
    if kind == "cpu" and _emulated:
        return _emulated[-1]
    if kind == "cuda" and index is not None:
        from trident.backend.replay import cuda

        return cuda.target(index)
    raise Unfit(f"there are no graphs on {kind}")

