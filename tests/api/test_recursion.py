"""Functions that call themselves and each other: eager's results, its RecursionError, and no specialization for each level."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

import trident

X = torch.zeros(2)
LIMIT = 1000
NEAR = 40
"""Levels below the recursion limit between which a call of Trident's may raise RecursionError though eager's does not."""


@pytest.fixture(autouse=True)
def limit() -> Any:
    """The tests run at a known depth below the limit."""
    before, depth = sys.getrecursionlimit(), 0
    frame: Any = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    sys.setrecursionlimit(LIMIT + depth)
    yield
    sys.setrecursionlimit(before)


def make_down() -> Any:
    @trident.jit
    def down(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else down(x + 1, n - 1)

    return down


def make_fib() -> Any:
    @trident.jit
    def fib(n: int) -> int:
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib


def make_mutual() -> Any:
    @trident.jit
    def even(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else odd(x + 1, n - 1)

    @trident.jit
    def odd(x: torch.Tensor, n: int) -> torch.Tensor:
        return x if n == 0 else even(x + 1, n - 1)

    return even


@pytest.mark.parametrize("make", [make_down, make_mutual])
@pytest.mark.parametrize("n", [0, 5, 100, 900])
def test_depth(make: Callable[[], Any], n: int) -> None:
    function = make()
    for _ in range(4):
        assert function(X, n).equal(X + n)
    assert function.specializations <= 2, trident.explain(function)
    assert function(X, 7).equal(X + 7)
    if n:
        hits = trident.explain(function).hits
        function(X, 50)
        assert trident.explain(function).hits > hits
    assert not trident.explain(function).aborts


@pytest.mark.parametrize("n", [1, 5, 15])
def test_fib(n: int) -> None:
    fib = make_fib()
    plain = [0, 1]
    while len(plain) <= n:
        plain.append(plain[-1] + plain[-2])
    for _ in range(3):
        assert fib(n) == plain[n]
    assert fib.specializations <= 3 and fib(12) == 144


def test_trees() -> None:
    @trident.jit
    def walk(tree: Any) -> torch.Tensor:
        if isinstance(tree, tuple):
            return walk(tree[0]) + walk(tree[1])
        return tree * 2

    full: Any = X + 1
    for _ in range(6):
        full = (full, full)
    deep: Any = X + 1
    for _ in range(800):
        deep = (deep, X)
    for _ in range(3):
        assert walk(full).equal(X + 128) and walk(deep).equal(X + 2)
    assert walk.specializations <= 4


@pytest.mark.parametrize("make", [make_down, make_mutual])
def test_recursion_error_where_eager_raises_it(make: Callable[[], Any]) -> None:
    function = make()
    for _ in range(4):
        with pytest.raises(RecursionError):
            function(X, LIMIT + NEAR)
        assert function(X, LIMIT - NEAR).equal(X + (LIMIT - NEAR))
    assert function.specializations <= 2 and "nothing" not in trident.explain(function).status


def test_handlers_of_recursion_errors_run() -> None:
    journal: list[int] = []

    @trident.jit
    def forever(x: torch.Tensor, n: int) -> int:
        try:
            return forever(x + 1, n + 1)
        except RecursionError:
            journal.append(n)
            return n

    depths = [forever(X, 0) for _ in range(4)]
    assert journal == depths and all(LIMIT - NEAR <= depth <= LIMIT + NEAR for depth in depths), depths


def _below(depth: int, function: Callable[[], Any]) -> Any:
    return function() if depth == 0 else _below(depth - 1, function)


@pytest.mark.parametrize("left", [NEAR, 80, 150])
def test_a_first_call_near_the_limit(left: int) -> None:
    function = trident.jit(lambda x: x + 1)
    for _ in range(3):
        assert _below(LIMIT - left, lambda: function(X)).equal(X + 1)
    assert function(X).equal(X + 1) and function(X).equal(X + 1) and trident.explain(function).hits


def test_the_limit_is_the_users_again_afterwards() -> None:
    """Trident's own Python has more room than the user's, and gives it back."""
    def depth(n: int = 0) -> int:
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    expected = depth()
    found: list[int] = []

    @trident.jit
    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        found.append(depth())
        return x + n if float(x[0]) == 0.0 else x - n

    for n in range(12):
        function(X + n % 3, n)
        assert depth() == expected
    # The first 60 levels are frames of the recorder's, not of the interpreter's.
    assert all(abs(seen - expected) <= 80 for seen in found), (found, expected)


def test_threads_recurse() -> None:
    function, wrong = make_down(), []

    def work(seed: int) -> None:
        for n in (3, 50, 200):
            if not function(X + seed, n).equal(X + seed + n):
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


_DEEP = """
import sys, threading, trident
sys.setrecursionlimit(1000000)
if len(sys.argv) > 1:
    threading.stack_size(int(sys.argv[1]))

def make():
    @trident.jit
    def down(n):
        return 0 if n == 0 else down(n - 1) + 1
    return down

def attempt(function, n):
    try:
        assert function(n) == n
    except RecursionError:
        return
    print(n)

def work():
    known = make()
    known(3), known(3)
    for n in (100, 300, 100000):
        attempt(known, n)
        attempt(make(), n)

thread = threading.Thread(target=work)
thread.start()
thread.join()
work()
"""


@pytest.mark.parametrize("size", [(), ("1048576",)])
def test_the_c_stack_does_not_overflow(size: tuple[str, ...]) -> None:
    """With a raised recursion limit eager's recursion on 3.11 ends with the memory, a jitted function's before the C stack does."""
    done = subprocess.run([sys.executable, "-c", _DEEP, *size], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, (done.returncode, done.stderr)
    assert done.stdout.split() == ["100", "100", "300", "300"] * 2
