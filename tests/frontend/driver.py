"""What the frontend's tests share: a small jit over the recorder and the reference executor.

`Driver(fn)(*args)` tries the traces recorded so far with the reference executor; a miss records another one, a side exit records
a bridge (or, the first time with an error, resumes in CPython). `check` compares every call with a plain call.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

from trident.frontend.recorder import Outcome, record, record_bridge
from trident.ir import Frame, Trace, rebuild

try:
    from trident.backend.reference import Miss, SideExit, run_trace
except ModuleNotFoundError:  # no torch
    run_trace = None  # type: ignore[assignment]


class Services:
    """Resumes natively; counts."""

    def __init__(self) -> None:
        self.resumed = 0

    def resume(self, frames: list[Frame], exc: BaseException | None) -> object:
        from trident.backend.native.resume import resume

        self.resumed += 1
        return resume(frames, exc)

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        return function(*args, **keywords)

    def watched(self) -> bool:
        return False

    def supports_operator(self, name: str, overload: str) -> bool:
        return True


@dataclass
class Options:
    demoted: set[tuple[int, str]] = field(default_factory=set)
    max_trace_ops: int = 20_000


def bind(fn: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[object, ...]:
    """Arguments in localsplus order."""
    bound = inspect.signature(fn).bind(*args, **kwargs)
    bound.apply_defaults()
    order = list(fn.__code__.co_varnames)
    return tuple(sorted_values(bound.arguments, order))


def sorted_values(arguments: dict[str, Any], order: list[str]) -> list[Any]:
    return [arguments[name] for name in sorted(arguments, key=order.index)]


class Driver:
    """A function with the traces that were recorded for it."""

    def __init__(self, fn: FunctionType) -> None:
        self.fn, self.services, self.options = fn, Services(), Options()
        self.traces: list[Trace] = []
        self.bridges: dict[int, Trace] = {}
        self.outcomes: list[Outcome] = []
        self.hits = self.exits = 0
        self.misses: list[str] = []

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        bound = bind(self.fn, args, kwargs)
        if run_trace is not None:
            for trace in self.traces:
                try:
                    result = run_trace(trace, (*bound, self.fn))
                except Miss as miss:
                    self.misses.append(str(miss))
                    continue
                except SideExit as out:
                    return self.leave(out)
                self.hits += 1
                return result
        return self.take(record(self.fn, bound, self.services, self.options), self.traces.append)

    def leave(self, out: Any) -> Any:
        """A side exit."""
        self.exits += 1
        while True:
            if out.error is not None:
                return self.services.resume(rebuild(out.snapshot, out.values), out.error)
            bridge = self.bridges.get(id(out.snapshot))
            if bridge is None:
                break
            try:
                result = run_trace(bridge, out.values)
            except SideExit as again:
                out = again
                continue
            self.hits += 1
            return result
        outcome = record_bridge(out.snapshot, list(out.values), self.services, self.options)
        return self.take(outcome, lambda trace: self.bridges.__setitem__(id(out.snapshot), trace))

    def take(self, outcome: Outcome, keep: Callable[[Trace], object]) -> Any:
        """Keep what was recorded; give the call's result."""
        self.outcomes.append(outcome)
        self.options.demoted |= outcome.overwritten
        if outcome.trace is not None:
            keep(outcome.trace)
        return outcome.unwrap()


def observe(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    """Result or exception, and the arguments after the call."""
    try:
        return "returned", fn(*args, **kwargs), args, kwargs
    except Exception as error:
        return "raised", type(error), str(error), args, kwargs


def check(fn: Callable[..., Any], *calls: Any, recorded: bool = True, rounds: int = 2, **kwargs: Any) -> Driver:
    """Every call, plain and driven, gives the same; each element of `calls` is a tuple of arguments."""
    driver = Driver(fn)  # type: ignore[arg-type]
    for _ in range(rounds):
        for args in calls:
            expected = observe(fn, copy.deepcopy(args), copy.deepcopy(kwargs))
            seen = observe(driver, copy.deepcopy(args), copy.deepcopy(kwargs))
            assert same(expected, seen), f"{fn.__qualname__}{args}: expected {expected}, got {seen}; {[o.abort for o in driver.outcomes]}"
    faults = [o.abort for o in driver.outcomes if o.abort is not None and o.abort.reason == "internal"]
    assert not faults, faults
    if recorded:
        aborts = [str(o.abort) for o in driver.outcomes if o.abort is not None]
        assert not aborts, aborts
        assert run_trace is None or driver.hits > 0, f"no trace was ever used again: {driver.misses}"
    return driver


def same(a: Any, b: Any) -> bool:
    """Equality with types, also inside containers, NaN equal to itself."""
    if type(a) is not type(b):
        return False
    if type(a).__module__.startswith("torch") and hasattr(a, "data_ptr"):
        return a.shape == b.shape and a.dtype == b.dtype and a.stride() == b.stride() and a.equal(b) and a.requires_grad == b.requires_grad
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return a == b or (a != a and b != b)
    if hasattr(a, "__dict__") and type(a).__eq__ is object.__eq__:
        return same(vars(a), vars(b))
    return bool(a == b)
