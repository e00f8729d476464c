"""Functions with thousands of exits, exits that fail again and again, functions that keep missing; the cost of long traces."""

from __future__ import annotations

import gc
import sys
import time
import warnings
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch

import trident
from trident.api import entry_of

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.recorder import PROGRAMS, copies_for, first_call

X = torch.ones(2)


def with_exits(n: int) -> FunctionType:
    """y * i for the key i, by n branches on a number that the function computes."""
    branches = "".join(f"    if found == {i}: return y * {i}\n" for i in range(n))
    scope: dict[str, Any] = {}
    exec(f"def many(x, key):\n    y, found = x + 1, int(key.item())\n{branches}    return y\n", scope)
    return scope["many"]  # type: ignore[no-any-return]


def resident_kb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_thousands_of_exits() -> None:
    n, steps, each = 3000, 4, 25
    jitted = trident.jit(with_exits(n), max_bridges=n, bridge_threshold=1)
    entry = entry_of(jitted)
    assert torch.equal(jitted(X, torch.tensor(-1)), X + 1)
    assert len(entry.specializations[0].program.exits) > n
    gc.collect()
    seconds, memory = [], []
    keys = [torch.tensor(key) for key in range(0, n, n // (steps * each))]
    assert len(keys) == steps * each
    for step in range(steps):
        start, before = time.process_time(), resident_kb()
        for key in keys[step * each:(step + 1) * each]:
            assert torch.equal(jitted(X, key), (X + 1) * int(key))
        seconds.append((time.process_time() - start) / each)
        memory.append((resident_kb() - before) / each)
    assert len(entry.specializations) == 1 + steps * each
    assert min(seconds[2:]) < 2 * min(seconds[:2]), seconds
    assert min(memory[1:]) < 300, memory
    hits, exits = entry.cell.hits, entry.side_exits
    for key in keys:
        assert torch.equal(jitted(X, key), (X + 1) * int(key))
    assert entry.cell.hits == hits + len(keys)
    assert entry.side_exits == exits


def test_an_exit_becomes_a_bridge_once() -> None:
    jitted = trident.jit(with_exits(10))
    entry = entry_of(jitted)
    for key in (-1, *[3] * 30, *[5] * 30):
        assert torch.equal(jitted(X, torch.tensor(key)), (X + 1) * (key if key >= 0 else 1))
    assert len(entry.specializations) == 3
    assert entry.side_exits == 2 * 2, "the first exit continues in CPython, the second one records"


def test_an_exit_without_a_bridge_is_tried_ever_more_seldom() -> None:
    recordings = 0

    def fails(y: torch.Tensor) -> torch.Tensor:
        nonlocal recordings
        recordings += 1
        return sys._getframe().f_locals["y"] * 2

    def program(x: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        y = x + 1
        return fails(y) if key.item() else y

    jitted = trident.jit(program)
    entry = entry_of(jitted)
    jitted(X, torch.tensor(0))
    for _ in range(200):
        assert torch.equal(jitted(X, torch.tensor(1)), (X + 1) * 2)
    assert recordings == 200
    assert len(entry.specializations) <= 2
    assert len(entry.aborts) < 10, entry.aborts


def test_a_function_that_keeps_missing_is_left_to_cpython() -> None:
    seen: dict[int, int] = {n: n for n in range(200)}

    def program(x: torch.Tensor, key: int) -> torch.Tensor:
        return x + seen[key]  # a key of a dict is a constant of the trace

    jitted = trident.jit(program, max_specializations=8)
    entry = entry_of(jitted)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for key in range(100):
            assert torch.equal(jitted(X, key), X + key)
    assert len(entry.specializations) == 8
    assert [str(w.message) for w in caught if "runs eagerly" in str(w.message)] and len(caught) == 1
    assert "more than 8 specializations" in trident.explain(jitted).status
    hits = entry.cell.hits
    assert torch.equal(jitted(X, 3), X + 3) and entry.cell.hits == hits + 1, "what is compiled stays in use"


def _seconds_per_op(name: str, copies: int) -> float:
    gc.collect()
    specialization, seconds = first_call(name, copies)
    return seconds / len(specialization.trace.block.operations)


@pytest.mark.parametrize("name", PROGRAMS)
def test_recording_and_compiling_is_linear(name: str) -> None:
    """Seconds per op of 500 and of 4,000 ops, the best of up to five tries each."""
    few, more = copies_for(name, 500), copies_for(name, 4000)
    best = [min(_seconds_per_op(name, few) for _ in range(2)), _seconds_per_op(name, more)]
    for _ in range(4):
        if best[1] < 1.5 * best[0]:
            break
        best = [min(best[0], _seconds_per_op(name, few)), min(best[1], _seconds_per_op(name, more))]
    assert best[1] < 2 * best[0], best
