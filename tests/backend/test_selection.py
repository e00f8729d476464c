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
    code = made._scm._dispatch._selections[-1]  # type: ignore[union-attr]
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
    assert len(made._scm.roots) > 10
    fewer = 0
    for arguments in _all_calls():
        bound = [*arguments, _mixed]
        selected = _selected(made, bound)
        assert selected == sorted(selected) and set(_answers(made._scm.roots, bound)) <= set(selected)
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


CLASSES = [type(f"Class{n}", (), {}) for n in range(16)]
WEIGHTS = {key: 1.0 + n for n in range(64) for key in (n * n * 7, f"name {n}", CLASSES[n % 16])}


def _weighted(x: torch.Tensor, key: Any) -> torch.Tensor:
    return x * WEIGHTS[key]


def _by_float(x: torch.Tensor, n: float) -> torch.Tensor:
    for known in range(1, 17):
        if n == known * 0.75:
            return x * known
    return x


def _by_callee(x: torch.Tensor, function: Any) -> torch.Tensor:
    return function(x)  # type: ignore[no-any-return]


def _by_type(x: torch.Tensor, held: Any) -> torch.Tensor:
    return x * WEIGHTS[type(held)]


def _by_size(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return x * WEIGHTS[other.shape[0] ** 2 * 7]


def _by_two(x: torch.Tensor, name: str, n: int) -> torch.Tensor:
    return x * WEIGHTS[name] * WEIGHTS[n]


KINDS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "int": (_weighted, [(n * n * 7,) for n in range(16)]),
    "str": (_weighted, [("na" + f"me {n}",) for n in range(16)]),
    "identity": (_by_callee, [(function,) for function in (torch.sin, torch.cos, torch.exp, torch.abs, torch.neg, torch.tan)]),
    "float": (_by_float, [(n * 0.75,) for n in range(1, 17)]),
    "type": (_by_type, [(cls(),) for cls in CLASSES]),
    "size": (_by_size, [(torch.ones(n),) for n in range(16)]),
    "two": (_by_two, [(f"name {n % 4}", (n // 4) ** 2 * 7) for n in range(16)]),
}


def _longest_way(node: Any) -> int:
    """The largest number of tests that a call can take to its specialization."""
    if node.test is None:
        return 0
    return 1 + max(map(_longest_way, [*node.cases.values(), node.default]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_way_to_one_of_many(kind: str) -> None:
    """One test per thing that is looked at tells all of its values apart, whatever their kind."""
    function, calls = KINDS[kind]
    jitted, x = trident.jit(function), torch.ones(4)
    for arguments in calls:
        jitted(x, *arguments)
    assert jitted.specializations == len(calls)
    for arguments in reversed(calls):
        assert torch.equal(jitted(x, *arguments), function(x, *arguments))
    made = _entry(function)
    assert made.cell.hits == len(calls)
    assert made._scm.selection is not None and _longest_way(made._scm.selection.tree) <= 4  # types first
    assert all(len(_selected(made, [x, *arguments, function])) == 1 for arguments in calls)
    made.forget()


class _Same(str):
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def test_strings_that_are_none_of_the_known_ones() -> None:
    jitted, x = trident.jit(_weighted), torch.ones(4)
    for n in range(8):
        jitted(x, f"name {n}")
    made = _entry(_weighted)
    unhashed = "".join(["name", " 3"])  # its hash is computed by the tree
    assert len(_selected(made, [x, unhashed, _weighted])) == 1
    for other in ("name 9", _Same("name 3"), 3, None):
        assert _selected(made, [x, other, _weighted]) == []
    made.forget()


@pytest.mark.slow
def test_a_hit_among_64_costs_little_more_than_among_one() -> None:
    many, one = trident.jit(_weighted), trident.jit(lambda x, n: x * WEIGHTS[n])
    x, numbers = torch.ones(4), [f"name {n * 29 % 64}" for n in range(64)]
    for n in numbers:
        many(x, n)
    one(x, "name 3")

    def seconds(function: Any, arguments: list[str]) -> float:
        start = time.perf_counter()
        for _ in range(20):
            for n in arguments:
                function(x, n)
        return time.perf_counter() - start

    ratios = [seconds(many, numbers) / seconds(one, ["name 3"] * 64) for _ in range(41)]
    assert statistics.median(ratios) < 1.3


def _of_bools_and_ints(a: Any, b: Any) -> Any:
    smaller, larger = min(a, b), max(a, b)
    return smaller, larger, a or b


def test_a_test_comes_after_those_that_make_it_safe_and_those_that_make_them_safe() -> None:
    jitted = trident.jit(_of_bools_and_ints)
    values = [0, 1, -2, 2**63, 10**25, 0.5, -0.0, True, False]
    for a, b in itertools.product(values, values):
        assert repr(jitted(a, b)) == repr(_of_bools_and_ints(a, b))


def _branches_on_a_tensor_or_not(flag: Any, x: Any) -> Any:
    if isinstance(x, torch.Tensor) and x.shape[0] > flag:
        return 1 if flag else 2
    return 3 if flag else 4


def test_no_test_reads_what_is_no_tensor() -> None:
    jitted = trident.jit(_branches_on_a_tensor_or_not)
    values = [torch.ones(1), torch.ones(0), 1, "text", None, [1], 2.5, (), object()]
    for _ in range(3):
        for flag, x in itertools.product((True, False, 0, 3), values):
            assert jitted(flag, x) == _branches_on_a_tensor_or_not(flag, x)
