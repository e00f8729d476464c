"""Positions in a tensor, bit by bit.

Owns `Bits`. Every Triton shape is a power of two, so a row-major position is a string of bits, and everything that only moves
elements (expand_dims, broadcast, reshape, trans, join, split) moves bits. One position describes many elements at once: each bit,
lowest first, is a constant, a lane's bit, or a bit of a loop counter.

    value 0 or 1               that constant
    LANE + j                   bit j of the lane number
    COUNTER * (c + 1) + b      bit b of counter c

What must hold: in one `Bits` each lane bit and each counter bit occurs at most once, so a sum of parts is a position.
May import: numpy.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Bits: TypeAlias = tuple[int, ...]
Offsets: TypeAlias = npt.NDArray[np.int64]

LANE = 2
COUNTER = 1000


def is_lane(bit: int) -> bool:
    return LANE <= bit < COUNTER


def lane_bits(bits: Bits) -> list[int]:
    """The lane bits that occur, sorted."""
    return sorted(b - LANE for b in bits if is_lane(b))


def counter_of(bit: int) -> tuple[int, int]:
    return bit // COUNTER - 1, bit % COUNTER


def lane_offsets(bits: Bits, lanes: int) -> Offsets:
    """For each of 2**lanes lanes, the part of the position that the lane contributes."""
    numbers = np.arange(1 << lanes, dtype=np.int64)
    out = np.zeros_like(numbers)
    for k, bit in enumerate(bits):
        if is_lane(bit):
            out += ((numbers >> (bit - LANE)) & 1) << k
    return out


def constant_part(bits: Bits) -> int:
    return sum(1 << k for k, bit in enumerate(bits) if bit == 1)


def counter_runs(bits: Bits) -> list[tuple[int, int, int, int]]:
    """Maximal runs (counter, first counter bit, length, first position bit)."""
    runs: list[tuple[int, int, int, int]] = []
    for k, bit in enumerate(bits):
        if bit < COUNTER:
            continue
        counter, b = counter_of(bit)
        if runs:
            c, first, length, position = runs[-1]
            if c == counter and first + length == b and position + length == k:
                runs[-1] = (c, first, length + 1, position)
                continue
        runs.append((counter, b, 1, k))
    return runs


def compact(bits: Bits) -> tuple[Bits, list[int]]:
    """Renumber the lane bits that occur to 0, 1, …; also the old numbers, in order."""
    used = lane_bits(bits)
    if used == list(range(len(used))):
        return bits, used
    renumber = {LANE + old: LANE + new for new, old in enumerate(used)}
    return tuple(renumber.get(b, b) for b in bits), used


def spread(used: list[int], lanes: int) -> Offsets:
    """For each of 2**lanes lanes, the lane it takes its value from after `compact`."""
    numbers = np.arange(1 << lanes, dtype=np.int64)
    out = np.zeros_like(numbers)
    for new, old in enumerate(used):
        out |= ((numbers >> old) & 1) << new
    return out


# How an operand's position follows from the result's, per moving op. Shapes are row-major: the last dimension has the low bits.


def dim_ranges(shape: tuple[int, ...]) -> list[tuple[int, int]]:
    """For each dimension its (first bit, number of bits)."""
    out: list[tuple[int, int]] = []
    first = 0
    for size in reversed(shape):
        width = size.bit_length() - 1
        out.append((first, width))
        first += width
    return out[::-1]


def broadcast_map(source: tuple[int, ...], target: tuple[int, ...]) -> list[int]:
    """For each bit of the source its bit in the target."""
    out: list[int] = []
    for (first, width), size in reversed(list(zip(dim_ranges(target), source, strict=True))):
        if size != 1:
            out.extend(range(first, first + width))
    return out


def transpose_map(source: tuple[int, ...], order: list[int]) -> list[int]:
    """`order[i]` is the source dimension of result dimension i. For each bit of the source its bit in the result."""
    result = dim_ranges(tuple(source[d] for d in order))
    where = {d: result[i] for i, d in enumerate(order)}
    out: list[int] = []
    for d in reversed(range(len(source))):
        first, width = where[d]
        out.extend(range(first, first + width))
    return out
