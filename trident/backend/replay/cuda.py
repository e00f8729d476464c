"""CUDA graphs: captured with torch.cuda.CUDAGraph, launched natively through its C++ object.

Owns the target for CUDA and its pools of memory. What must hold: graphs of one pool are replayed on one stream only, one after the other;
each pool has a stream of its own for captures, which nobody else has, for cuBLAS keeps memory for each stream and the graphs use it; a
failed capture leaves allocator, generator and stream as they were; no address is used before it has been verified.

May import: torch, native.{emit,engine,replay_layout,replay_runtime,symbols}, replay.{split,targets}.
"""

from __future__ import annotations

import ctypes
import gc
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import torch

from trident.backend.native import replay_runtime
from trident.backend.replay.split import Unfit
from trident.backend.replay.targets import Capture, Execute
from trident.errors import NativeError

_INSTANCE_VALUE: Final = 16  # of a pybind11 instance: the pointer to the C++ object, behind the head of the Python object
_EXEC, _POOL = 8, 32  # of at::cuda::CUDAGraph: graph_exec_, mempool_id_
_VERIFIED_BYTES: Final = 48
_NON_BLOCKING: Final = 1
_failed: Final[list[Any]] = []
"""Graphs whose capture could not be ended: torch's allocators may still ask them whether a stream is theirs."""


class _Pool:
    """Memory that the graphs of a device share which are replayed on one stream. live: how many there are. stream: to capture on."""

    def __init__(self, device: int) -> None:
        self.handle: Any = None
        self.live = 0
        self.stream = _new_stream(device)

    def take(self) -> Any:
        """torch forgets a pool that no graph uses."""
        if self.live == 0 or self.handle is None:
            self.handle = torch.cuda.graph_pool_handle()
        return self.handle


_pools: Final[dict[tuple[int, int], _Pool]] = {}
_targets: Final[dict[int, Cuda]] = {}


def _new_stream(device: int) -> torch.cuda.Stream:
    """A stream that nobody else has, for the life of the process."""
    driver = ctypes.CDLL("libcuda.so.1")
    made = ctypes.c_void_p()
    status = driver.cuStreamCreate(ctypes.byref(made), _NON_BLOCKING)
    if status or not made.value:
        raise Unfit(f"no stream to capture on: cuStreamCreate gives {status}")
    stream: torch.cuda.Stream = torch.cuda.ExternalStream(made.value, device=device)
    return stream


def _memory_at(address: int, size: int) -> bytes:
    """Some bytes of this process, read in a way that cannot crash. Unfit where there is nothing."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            found = os.pread(memory.fileno(), size, address)
    except (OSError, OverflowError, ValueError) as error:
        raise Unfit(f"torch.cuda.CUDAGraph does not lie where it is looked for: {error}") from None
    if len(found) != size:
        raise Unfit("torch.cuda.CUDAGraph does not lie where it is looked for")
    return found


def _object_of(graph: Any) -> int:
    """Address of the at::cuda::CUDAGraph behind its Python object, recognised by what it holds."""
    address: int = ctypes.c_uint64.from_address(id(graph) + _INSTANCE_VALUE).value
    words = struct.unpack(f"<{_VERIFIED_BYTES // 8}Q", _memory_at(address, _VERIFIED_BYTES))
    expected = (graph.raw_cuda_graph_exec(), *graph.pool())
    found = (words[_EXEC // 8], words[_POOL // 8], words[_POOL // 8 + 1])
    if found != expected:
        raise Unfit(f"torch.cuda.CUDAGraph is not the known one: it holds {list(map(hex, words))}, not {list(map(hex, expected))}")
    return address


_GENERATOR: Final = 16  # of a torch.Generator: the pointer to the GeneratorImpl, behind the head of the Python object
_GENERATOR_BYTES: Final = 256


@cache
def _generator_state(device: int) -> int:
    """Offset in a CUDAGeneratorImpl of the pointer to its state, which a graph holds: the one word that it shares with a generator of the
    same state and not with another one. Unfit where there is no such word."""
    default = torch.cuda.default_generators[device]
    same, other = default.graphsafe_get_state(), torch.Generator(f"cuda:{device}")
    words = []
    for generator in (default, same, other):
        at: int = ctypes.c_uint64.from_address(id(generator) + _GENERATOR).value
        data = _memory_at(at, _GENERATOR_BYTES)
        words.append(struct.unpack(f"<{_GENERATOR_BYTES // 8}Q", data))
    found = [8 * n for n, (a, b, c) in enumerate(zip(*words, strict=True)) if a == b != c and 1 << 20 < a < 1 << 47]
    if len(found) != 1:
        raise Unfit(f"where torch keeps the state of a generator is not known: {found}")
    return found[0]


def _generator_words(device: int) -> list[tuple[int, int, int]]:
    """Address, mask and word: the state of the default generator is the same object as now."""
    at: int = ctypes.c_uint64.from_address(id(torch.cuda.default_generators[device]) + _GENERATOR).value + _generator_state(device)
    return [(at, (1 << 64) - 1, ctypes.c_uint64.from_address(at).value)]


@contextmanager
def _no_collection() -> Iterator[None]:
    """A finalizer in the middle of a capture may do what no capture allows."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Cuda:
    """One device."""

    alignment, device = 256, True

    def __init__(self, index: int) -> None:
        self.index = index

    def look(self, tensor: torch.Tensor) -> None:
        if tensor.device.type != "cuda" or tensor.device.index != self.index:
            raise Unfit(f"a tensor is on {tensor.device}")

    def capture(self, execute: Execute, inputs: Sequence[torch.Tensor], pinned: Sequence[torch.Tensor], *,
                draws: bool) -> Capture:
        if torch.cuda.current_device() != self.index:
            raise Unfit("its tensors are not on the current device")
        if torch.cuda.is_current_stream_capturing():
            raise Unfit("the program captures a graph itself")
        generator_words = _generator_words(self.index) if draws else []
        try:
            addresses = replay_runtime.cuda_addresses()
        except NativeError as error:
            raise Unfit(str(error)) from None
        current = torch.cuda.current_stream(self.index)
        key = self.index, current.stream_id
        pool = _pools.get(key) or _pools.setdefault(key, _Pool(self.index))
        graph, results, probe = self._capture(execute, pool)
        try:
            known = {tensor.untyped_storage()._cdata for tensor in inputs}
            own = [t.data_ptr() for t in results if t.numel() and t.untyped_storage()._cdata not in known]
            _check_pool(pool.handle, [probe, *own])
            context = _object_of(graph)
        except BaseException:
            results.clear()
            graph.reset()
            raise
        pool.live += 1
        return Capture(results, addresses.launch, context, addresses.copy, current.cuda_stream, addresses.capturing, 0,
                       [graph, self], _releaser(graph, results, pool), generator_words)

    def _capture(self, execute: Execute, pool: _Pool) -> tuple[Any, list[torch.Tensor], int]:
        """The graph, its results, and the address of memory that was allocated while it was captured."""
        graph = torch.cuda.CUDAGraph()
        handle = pool.take()
        error: BaseException | None = None
        results: list[torch.Tensor] = []
        with _no_collection(), torch.cuda.stream(pool.stream):
            torch.cuda.current_blas_handle()  # none can be made while a stream is captured
            try:
                graph.capture_begin(pool=handle, capture_error_mode="thread_local")
            except BaseException:
                self._recover(graph, handle)
                raise
            try:
                probe = torch.empty(1, dtype=torch.uint8, device=f"cuda:{self.index}").data_ptr()
                results = execute()
            except BaseException as raised:
                error = raised
            try:
                graph.capture_end()
            except BaseException as raised:
                error = error or raised
                self._recover(graph, handle)
            if error is None:
                return graph, results, probe
            results.clear()
            graph.reset()
        if isinstance(error, RuntimeError) and not isinstance(error, Unfit):
            raise Unfit(f"an operation cannot be captured: {str(error).splitlines()[0] if str(error) else type(error).__name__}") from None
        raise error

    def _recover(self, graph: Any, handle: Any) -> None:
        """torch leaves allocator and generator in the state of a capture where it could not end one: end it for them."""
        _failed.append(graph)
        try:
            torch._C._cuda_endAllocateToPool(self.index, handle)
        except RuntimeError:
            pass  # it had come so far
        other = torch.cuda.CUDAGraph()
        other.capture_begin(capture_error_mode="thread_local")
        torch.empty(1, device=f"cuda:{self.index}").zero_()
        other.capture_end()
        other.reset()


def _releaser(graph: Any, results: list[torch.Tensor], pool: _Pool) -> Callable[[], None]:
    held = [graph]

    def release() -> None:
        while held:
            results.clear()
            held.pop().reset()
            pool.live -= 1

    return release


def _segments(handle: Any) -> list[tuple[int, int]]:
    """Address and size of the memory of a pool."""
    found = []
    for segment in torch.cuda.memory_snapshot():
        if "segment_pool_id" not in segment:
            raise Unfit("this torch does not tell which memory belongs to which pool")
        if tuple(segment["segment_pool_id"]) == tuple(handle):
            found.append((segment["address"], segment["total_size"]))
    return found


def _check_pool(handle: Any, addresses: Sequence[int]) -> None:
    """Unfit unless what was allocated during a capture lies in its pool."""
    segments = _segments(handle)
    for address in addresses:
        if not any(start <= address < start + size for start, size in segments):
            raise Unfit(f"memory of a graph ({address:#x}) was not taken from the pool of graphs: {segments}")


def pool_bytes() -> int:
    """Memory that the graphs of all devices have reserved."""
    handles = {tuple(pool.handle) for pool in _pools.values() if pool.live}
    if not handles:
        return 0
    return sum(segment["total_size"] for segment in torch.cuda.memory_snapshot() if tuple(segment.get("segment_pool_id", ())) in handles)


def target(index: int) -> Cuda:
    """The target of a device."""
    return _targets.setdefault(index, Cuda(index))
