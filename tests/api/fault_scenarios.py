"""Programs that take every way through Trident, and faults put into functions of Trident while they run.

A scenario makes fresh functions and calls them several times; what it gives (results and the journal of side effects) must be
that of the plain functions. `fault(path)` lets a function of Trident raise, wherever it was imported to.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import FunctionType
from typing import Any

import torch
import triton
import triton.language as tl
from torch import nn

import trident

Jit = Callable[[Any], Any]
Journal = list[object]


class Injected(RuntimeError):
    """What the faults raise; a user's program never sees it."""


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _attempt(function: Any, *args: Any) -> object:
    try:
        return _plain(function(*args))
    except Injected:
        raise
    except Exception as error:
        return type(error).__name__, str(error)


X = torch.arange(4.0)


def roots(jit: Jit) -> object:
    """First calls, hits, and so many specializations that a selection is built; side effects in each."""
    journal: Journal = []

    @jit
    def f(x: torch.Tensor, mode: str, n: int = 1) -> torch.Tensor:
        journal.append(mode)
        y = x * n + len(mode)
        if mode == "b":
            y = y.relu()
        journal.append(float(y[0]))
        return y

    return [_attempt(f, X, mode, n) for mode in ("a", "bb", "ccc", "b", "a") for n in (1, 2)], journal


def bridges(jit: Jit) -> object:
    """A branch on a value goes the other way: resumed first, then a bridge is recorded, then taken."""
    journal: Journal = []

    def helper(x: torch.Tensor) -> float:
        journal.append("helper")
        return float(x.sum())

    @jit
    def f(x: torch.Tensor) -> torch.Tensor:
        journal.append("begin")
        if helper(x) > 3.0:
            journal.append("large")
            return x + 1
        journal.append("small")
        return x - 1

    return [_attempt(f, X * k) for k in (1, 1, 0, 0, 0, 0, 1, -1)], journal


def exceptions(jit: Jit) -> object:
    """The user's own exceptions, handled and not, in recordings and on hits."""
    journal: Journal = []

    @jit
    def f(x: torch.Tensor, key: str) -> object:
        table = {"a": 1}
        journal.append(key)
        try:
            n = table[key]
        except KeyError:
            journal.append("handled")
            n = 7
        finally:
            journal.append("finally")
        if n == 7 and x.shape[0] == 2:
            raise ValueError(f"bad {key}")
        try:
            if n == 7:
                raise LookupError from ValueError("cause")
            journal.append("on")
        except LookupError as error:
            journal.append(repr(error.__cause__))
        return x.reshape(2, -1) * n

    return [_attempt(f, x, key) for key in ("a", "b", "a", "b") for x in (X, X[:2], X[:3])], journal


def modules(jit: Jit) -> object:
    """A jitted module with state of its own."""
    journal: Journal = []

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.calls = nn.Parameter(torch.full((4,), 2.0)), 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            journal.append(self.calls)
            return x * self.scale + self.calls

    net = jit(Net())
    return [_attempt(net, X) for _ in range(4)], journal


@triton.jit
def _scaled(x, out, k, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, k * tl.load(x + i, mask=i < n) + tl.load(out + i, mask=i < n), mask=i < n)


def launches(jit: Jit) -> object:
    """Launches that add to their output: one too many shows. New keys come later, and one that Triton refuses."""
    journal: Journal = []

    @jit
    def f(x: torch.Tensor, k: Any) -> torch.Tensor:
        out = torch.ones_like(x)
        _scaled[(triton.cdiv(x.numel(), 16),)](x, out, k, x.numel(), BLOCK=16)
        journal.append(str(k))
        return out

    calls = [(X, 2), (X, 2), (X, 3), (X, 16), (X[1:], 3), (X.double(), 2), (X, 2)]
    return [_attempt(f, x, k) for x, k in calls], journal


def hooked(jit: Jit) -> object:
    """Undecorated functions under the frame hook (plain where `jit` is the identity)."""
    journal: Journal = []

    @fresh
    def inner(x: torch.Tensor, k: int) -> torch.Tensor:
        journal.append(k)
        return x * k

    @fresh
    def outer(x: torch.Tensor) -> torch.Tensor:
        return inner(x, 2) + inner(x, 3) if float(x[0]) < 5 else inner(x, 4)

    with nullcontext() if jit is plainly else trident.frame_hook():
        return [_attempt(outer, X + k) for k in (0, 0, 1, 9, 9, 9, 9)], journal


def fresh(function: Any) -> Any:
    """The function with a code object of its own, which no hook has seen yet."""
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__)


def plainly(target: Any) -> Any:
    """The `jit` that does nothing."""
    return target


SCENARIOS: dict[str, Callable[[Jit], object]] = {f.__name__: f for f in (roots, bridges, exceptions, modules, launches, hooked)}


# ------------------------------------------------------------------------------------------------------------------- faults


def function_at(path: str) -> FunctionType:
    """The function at "module:name" or "module:Class.name" (below `trident`)."""
    module, _, name = path.partition(":")
    found: Any = importlib.import_module(f"trident.{module}" if module else "trident")
    for part in name.split("."):
        found = found.__dict__[part] if isinstance(found, type) else getattr(found, part)
    if isinstance(found, property):
        found = found.fget
    found = getattr(found, "__func__", found)
    while not isinstance(found, FunctionType):  # what functools.cache keeps
        found = found.__wrapped__
    return found


@contextmanager
def fault(path: str) -> Iterator[list[str]]:
    """While it lasts, the function raises. Gives a list that gets an item for each time."""
    function = function_at(path)
    assert not function.__code__.co_freevars, f"{path} is a closure"
    raised: list[str] = []

    def fail() -> None:
        raised.append(path)
        raise Injected("injected")

    original, key = function.__code__, f"_fault_{id(raised)}"
    namespace: dict[str, Any] = {}
    exec(f"def raising(*args, **kwargs): {key}()", namespace)
    function.__globals__[key] = fail
    function.__code__ = namespace["raising"].__code__
    try:
        yield raised
    finally:
        function.__code__ = original
        del function.__globals__[key]
