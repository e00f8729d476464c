"""The tables that a `trident.replay` shares with native code: of a site, of its graphs, and what of a tensor's memory they compare.

Owns these layouts (byte offsets; every field is one word) and where torch keeps a tensor's memory and version, found by planting. What
must hold: `current()` is None unless each fact has been found true in this very process; then nothing is replayed.

May import: errors, native.{aside,keys,torch_layouts}. Uses torch.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Any, Final

import torch

from trident.backend.native import keys, torch_layouts
from trident.backend.native.aside import aside
from trident.errors import UnsupportedTorch

# A site.
SITE_GRAPHS: Final = 0  # -> addresses of graphs, ended by 0; replaced as a whole
SITE_WHY: Final = 8  # Mismatch of the graph that was tried last
SITE_WHERE: Final = 16  # number of the input, number or row that did not fit
SITE_SIZE: Final = 24

# A graph.
GRAPH_REPLAYS: Final = 0
GRAPH_BUSY: Final = 8  # -> a word that is not zero while a graph of the same memory is replayed; 0 where the GIL sees to that
GRAPH_ENVIRONMENT: Final = 16  # -> rows
GRAPH_ENVIRONMENT_COUNT: Final = 24
GRAPH_INCLUDED: Final = 32  # this thread's dispatch keys
GRAPH_EXCLUDED: Final = 40
GRAPH_MODES: Final = 48  # the byte of c10::AutogradState
GRAPH_INPUT_COUNT: Final = 56
GRAPH_INPUTS: Final = 64  # -> inputs
GRAPH_NUMBER_COUNT: Final = 72
GRAPH_NUMBERS: Final = 80  # -> words
GRAPH_OUTPUT_COUNT: Final = 88
GRAPH_OUTPUTS: Final = 96  # -> outputs
GRAPH_WRITTEN_COUNT: Final = 104
GRAPH_WRITTEN: Final = 112  # -> pairs of addresses: memory that the graph writes to
GRAPH_BUMP_COUNT: Final = 120
GRAPH_BUMPS: Final = 128  # -> pairs: number of an input, what is added to its version
GRAPH_SHARED_COUNT: Final = 136
GRAPH_SHARED: Final = 144  # -> pairs of numbers of inputs that have one version counter
GRAPH_COPY: Final = 152  # i32 copy(to, from, bytes, stream), 0 for done
GRAPH_STREAM: Final = 160
GRAPH_CAPTURING: Final = 168  # i32 capturing(stream, i32* status), 0 for done; 0 where there are no captures
GRAPH_LAUNCH: Final = 176  # i32 launch(context), 0 for done, else with a Python exception
GRAPH_CONTEXT: Final = 184
GRAPH_WORD_COUNT: Final = 192
GRAPH_WORDS: Final = 200  # -> address, mask, expected: what Triton looks at when it launches
GRAPH_DICT_COUNT: Final = 208
GRAPH_DICTS: Final = 216  # -> dict, version tag seen last, key, hash of the key, expected value
GRAPH_SIZE: Final = 224

# A row of the environment: a function of up to three arguments, and what it gives under a mask.
ROW_FUNCTION: Final = 0
ROW_ARGUMENTS: Final = 8
ROW_KIND: Final = 32  # a RowKind
ROW_MASK: Final = 40
ROW_EXPECTED: Final = 48
ROW_SIZE: Final = 56
ARRAY_BYTES: Final = 128
FOLD: Final = 1099511628211

# An input.
INPUT_FACTS: Final = 0  # -> offset in the TensorImpl, mask, word
INPUT_FACT_COUNT: Final = 8
INPUT_MEMORY: Final = 16  # -> the three words of its storage's memory; 0 where it is copied
INPUT_PLACEHOLDER: Final = 24  # the address that it is copied to
INPUT_BYTES: Final = 32
INPUT_ITEM: Final = 40  # bytes of an element
INPUT_ALIGNMENT: Final = 48  # of its address, less one
INPUT_DIFFERENTIABLE: Final = 56  # not zero where gradients are off
INPUT_SIZE: Final = 64
FACT_SIZE: Final = 24
MEMORY_WORDS: Final = 3

# An output.
OUTPUT_KIND: Final = 0  # an OutputKind
OUTPUT_INDEX: Final = 8  # number of the input, or of the output, that it is
OUTPUT_TENSOR: Final = 16  # -> at::Tensor of the graph's
OUTPUT_MEMORY: Final = 24  # address of its elements
OUTPUT_BYTES: Final = 32
OUTPUT_SIZE: Final = 40


class RowKind(IntEnum):
    """Which part of what a function gives is compared: the first register, the second, or an array of up to ARRAY_BYTES behind a hidden
    pointer, folded."""

    FIRST = 0
    SECOND = 1
    ARRAY = 2


class OutputKind(IntEnum):
    """What a result is: a tensor of its own, one of the inputs, or an output before."""

    FRESH = 0
    INPUT = 1
    SAME = 2


class Mismatch(IntEnum):
    """Why no graph fitted: what SITE_WHY says."""

    NONE = 0
    NO_GRAPH = 1
    ENVIRONMENT = 2
    THREAD = 3
    METADATA = 4
    ADDRESS = 5
    ALIGNMENT = 6
    OVERLAP = 7
    AUTOGRAD = 8
    NUMBER = 9
    CAPTURING = 10
    BUSY = 11
    PROFILER = 12
    VERSION = 13
    COPY = 14
    LAUNCH = 15


DONE, MISSED, RAISED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class MemoryLayout:
    """Byte offsets. storage, version: words of TensorImpl; memory: the first word of the StorageImpl's memory (its address, who frees it
    and what owns it); count: of the version in what the version word points to (32 bits)."""

    storage: int
    memory: int
    version: int
    count: int


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _only(what: str, found: list[int]) -> int:
    if len(found) != 1:
        raise UnsupportedTorch(f"cannot locate {what}: {len(found)} places fit")
    return found[0]


def _plant() -> MemoryLayout | None:
    if keys.current() is None:
        return None
    base = torch.zeros(40)
    tensors = [base, base[7:], torch.zeros(3), torch.zeros(2, dtype=torch.int64)]
    for n, tensor in enumerate(tensors[2:]):
        for _ in range(5 + 2 * n):
            tensor.add_(1)
    try:
        storage = _only("a tensor's storage", [at for at in range(16, 64, 8)
                                               if all(_word(t._cdata + at) == t.untyped_storage()._cdata for t in tensors)])
        # Of memory of the host its address and what owns it are one word; between them is who frees it.
        memory = _only("a storage's memory", [at for at in range(16, 64, 8) if all(
            [_word(t.untyped_storage()._cdata + at + n) == t.untyped_storage().data_ptr() for n in (0, 8, 16)] == [True, False, True]
            for t in tensors)])
        versions = [at for at in range(16, 72, 8) if at != storage and all(_pointers_alike(t, at) for t in tensors)]
        version = _only("a tensor's version", [at for at in versions if [_count(t, at) for t in tensors] == [0, 0, 5, 7]
                                               and _word(base._cdata + at) == _word(tensors[1]._cdata + at)])
    except (UnsupportedTorch, RuntimeError, AttributeError):
        return None
    return MemoryLayout(storage, memory, version, torch_layouts.REFCOUNT + 8)


def _pointers_alike(tensor: Any, at: int) -> bool:
    """Whether a word of a TensorImpl points to something of the heap that is counted, as far as can be told without reading it."""
    found = _word(tensor._cdata + at)
    return 1 << 20 < found < 1 << 47 and found % 16 == 0


def _count(tensor: Any, at: int) -> int:
    return ctypes.c_uint32.from_address(_word(tensor._cdata + at) + torch_layouts.REFCOUNT + 8).value


@cache
def current() -> MemoryLayout | None:
    """The verified layout; None where one fact does not hold."""
    return aside(_plant)


def version_of(tensor: Any) -> ctypes.c_uint32 | None:
    """The version of a tensor, in place; None for those that have none (made in inference mode)."""
    layout = current()
    assert layout is not None
    counter = _word(tensor._cdata + layout.version)
    return ctypes.c_uint32.from_address(counter + layout.count) if counter else None


def memory_of(tensor: Any) -> list[int]:
    """The words of the memory of a tensor's storage."""
    layout = current()
    assert layout is not None
    at = tensor.untyped_storage()._cdata + layout.memory
    return [_word(at + 8 * n) for n in range(MEMORY_WORDS)]
