"""The decision tree over many specializations: it never leaves out one that answers, and it costs next to nothing."""

from __future__ import annotations

import ctypes
import itertools
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trident
from trident import entry
from trident.backend import scm
from trident.backend.native.callable import MISS_ADDRESS


class Mark:
    def __init__(self, number: int) -> None:
        self.number = number


MARKS = [Mark(n) for n in range(6)]
TABLE = {k: k * 0.5 for k in range(80)}


def _mixed(x: Any, n: Any, flag: Any, pair: Any) -> Any:
    """Branches on types, values, ranks, sizes, dtypes, conditions, lengths and identities."""
    if isinstance(n, str):
        n = len(n)
    if flag is None:
        return x * n
    if flag:
        if x.dim() == 2 and x.shape[0] == 3:
            return x.sum(0) + n
        if x.dtype == torch.float64:
            return x - TABLE[n % 5]
        return x + TABLE[n] if n > 3 else x * n
    first, *rest = pair
    if rest and rest[0] > 0.5:
        return x * first + len(rest)
    return x + (2 if first is MARKS[1] else 3)


TENSORS = [torch.ones(4), torch.ones(3, 2), torch.ones(2, 2), torch.ones(4, dtype=torch.float64), torch.ones(2, 3, 1),
           torch.nn.Parameter(torch.ones(4))]
NUMBERS = [0, 1, 4, 5, 6, 7, "", "ab", True]
FLAGS = [None, True, False, 0, 1]
PAIRS = [(1,), (2.5, 0.75), (3, 0.25, 1), (MARKS[1], 0.1), (MARKS[2],)]


def _entry(function: Callable[..., Any]) -> entry.Entry:
    return next(e for e in entry.all_entries() if e.function is function)


def _answers(roots: list[scm.HostProgram], bound: list[object]) -> list[int]:
    """Numbers of the programs that answer, newest first."""
    array = (ctypes.py_object * len(bound))(*bound)
    found = []
    for n, program in enumerate(reversed(roots)):
        result = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(program.address)(ctypes.addressof(array))
        if result != MISS_ADDRESS:
            ctypes.pythonapi.Py_DecRef(ctypes.c_void_p(result))
            found.append(n)
    return found


def _selected(made: entry.Entry, bound: list[object]) -> list[int]:
    array = (ctypes.py_object * len(bound))(*bound)
    code = made.scm._dispatch._selections[-1]  # type: ignore[union-attr]
    assert code is not None
    at = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(code.address("select"))(ctypes.addressof(array))
    count = ctypes.c_uint64.from_address(at).value
    return list((ctypes.c_uint64 * count).from_address(at + 8))


@pytest.fixture(scope="module")
def mixed() -> Any:
    jitted = trident.jit(_mixed, max_specializations=200)
    for arguments in itertools.product(TENSORS, NUMBERS[::2], FLAGS[:3], PAIRS[::2]):
        jitted(*arguments)
    return jitted


def _all_calls() -> list[tuple[Any, ...]]:
    return list(itertools.product(TENSORS, NUMBERS, FLAGS, PAIRS))


def test_no_program_that_answers_is_left_out(mixed: Any) -> None:
    made = _entry(_mixed)
    assert len(made.scm.roots) > 10
    fewer = 0
    for arguments in _all_calls():
        bound = [*arguments, _mixed]
        selected = _selected(made, bound)
        assert selected == sorted(selected) and set(_answers(made.scm.roots, bound)) <= set(selected)
        fewer += len(selected) <= 3
    assert fewer > 0.8 * len(_all_calls())


@given(st.sampled_from(TENSORS), st.one_of(st.sampled_from(NUMBERS), st.integers(), st.floats(), st.none()),
       st.one_of(st.sampled_from(FLAGS), st.floats(), st.text()), st.one_of(st.sampled_from(PAIRS), st.tuples(), st.lists(st.floats())))
@settings(max_examples=300, deadline=None)
def test_results_are_those_of_eager(mixed: Any, x: Any, n: Any, flag: Any, pair: Any) -> None:
    outcomes = []
    for function in (mixed, _mixed):
        try:
            outcomes.append(repr(function(x, n, flag, pair)))
        except Exception as error:
            outcomes.append(f"{type(error)}{error}")
    assert outcomes[0] == outcomes[1]


def test_64_specializations_in_any_order() -> None:
    jitted = trident.jit(_by_constant)
    x = torch.ones(4)
    for n in range(64):
        jitted(x, n)
    assert jitted.specializations == 64
    misses = trident.explain(jitted).misses
    for step in (1, 5, 7, 63):
        for k in range(64):
            n = k * step % 64
            assert torch.equal(jitted(x, n), _by_constant(x, n))
    told = trident.explain(jitted)
    assert told.misses == misses
    assert told.selection.count("try root") >= 64 and "n == 63" in told.selection


def _by_constant(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + TABLE[n]


@pytest.mark.slow
def test_a_hit_among_64_costs_little_more_than_among_one() -> None:
    many, one = trident.jit(_by_constant), trident.jit(lambda x, n: x + TABLE[n])
    x, numbers = torch.ones(4), [n * 29 % 64 for n in range(64)]
    for n in numbers:
        many(x, n)
    one(x, 3)

    def seconds(function: Any, arguments: list[int]) -> float:
        start = time.perf_counter()
        for _ in range(20):
            for n in arguments:
                function(x, n)
        return time.perf_counter() - start

    ratios = [seconds(many, numbers) / seconds(one, [3] * 64) for _ in range(41)]
    assert statistics.median(ratios) < 1.3
