"""A function has a bounded number of specializations: the one used least makes room, and one that would thrash says so once."""

from __future__ import annotations

import random
import warnings
from functools import partial
from typing import Any

import torch

import trident
from tests.storm import storm
from trident.api import entry_of
from trident.backend import dispatch

X = torch.arange(4.0)
TABLE = {n: n * 0.5 for n in range(200)}


def _lookup(x: torch.Tensor, key: int) -> torch.Tensor:
    return x + TABLE[key]


def _looping(x: torch.Tensor, key: int) -> torch.Tensor:
    y = x * TABLE[key]
    for n in range(key + int(x.shape[0])):
        y = y + n if n % 3 else y * 0.5
    return y if y.sum() > 3 else -y


def _earn(jitted: Any, *arguments: Any, times: int = 64) -> None:
    for _ in range(times):
        jitted(*arguments)


def test_the_least_used_makes_room() -> None:
    jitted = trident.jit(_lookup, max_specializations=4)
    entry = entry_of(jitted)
    for key in (0, 1, 2, 3):
        jitted(X, key)
    for key in (0, 2, 3):
        _earn(jitted, X, key)
    known, gone = [s.program for s in entry.specializations], entry.specializations[1].program
    assert torch.equal(jitted(X, 9), X + TABLE[9])
    assert entry.evicted == 1 and jitted.specializations == 4 and gone._compiled.closed
    assert [program for program in known if program is not gone] == [s.program for s in entry.specializations[:3]]
    misses = entry.cell.misses
    for key in (0, 2, 3, 9):
        assert torch.equal(jitted(X, key), X + TABLE[key])
    assert entry.cell.misses == misses
    assert torch.equal(jitted(X, 1), X + TABLE[1]) and entry.evicted == 2
    assert "evicted specializations 2" in str(trident.explain(jitted)) and trident.explain(jitted).status == "active"


def test_what_was_used_long_ago_counts_less() -> None:
    jitted = trident.jit(_lookup, max_specializations=3)
    _earn(jitted, X, 0, times=300)
    for key in (1, 2):
        _earn(jitted, X, key, times=60)
    for key in range(10, 16):
        _earn(jitted, X, key, times=80)
    hits = entry_of(jitted).cell.hits
    for key in (13, 14, 15):
        jitted(X, key)
    assert entry_of(jitted).cell.hits == hits + 3


def test_a_function_that_would_thrash_says_so_once() -> None:
    jitted = trident.jit(_lookup, max_specializations=4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            for key in range(40):
                assert torch.equal(jitted(X, key), X + TABLE[key])
    (warning,) = caught
    line = _lookup.__code__.co_firstlineno + 1
    assert "more than 4 specializations" in str(warning.message)
    assert "key == 3 (key of TABLE), seen 4" in str(warning.message) and f"{__file__}:{line}" in str(warning.message)
    entry = entry_of(jitted)
    assert entry.evicted == 0 and jitted.specializations == 4 and "more than 4" in trident.explain(jitted).status
    _earn(jitted, X, 0)
    assert torch.equal(jitted(X, 40), X + TABLE[40]) and entry.evicted == 1, "it hits often enough again"


def test_bridges_and_loops_go_with_their_root() -> None:
    jitted = trident.jit(_looping, max_specializations=2)
    entry = entry_of(jitted)
    kept = []
    for key in range(12):
        for x in (X, -X, X[:3], X, -X) * 14:
            assert torch.equal(jitted(x, key), _looping(x, key))
        kept.append((len(entry.specializations), len(entry._scm.bridges), len(entry._scm._dispatch._tables)))
    assert entry.evicted >= 8
    assert max(kept[4:]) <= max(kept[:4]), kept
    assert len(entry._scm.programs) == len(entry.specializations)
    dispatch.sweep()
    assert not [1 for owner, _ in dispatch._graveyard if owner is entry._scm._dispatch]


def test_eviction_while_others_are_inside() -> None:
    jitted = trident.jit(_looping, max_specializations=3)
    wrong: list[Any] = []
    expected = {(key, n): _looping(X[:n], key) for key in range(8) for n in (3, 4)}

    def work(seed: int) -> None:
        chosen = random.Random(seed)
        for _ in range(1500):
            key, n = min(chosen.randrange(8), chosen.randrange(8)), chosen.choice((3, 4))
            if not torch.equal(jitted(X[:n], key), expected[key, n]):
                wrong.append((key, n))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storm(partial(work, seed) for seed in range(4))
    assert not wrong and entry_of(jitted).evicted > 3
