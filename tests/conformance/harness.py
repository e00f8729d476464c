"""Four-way conformance: the same call eager, recorded, by the reference executor and natively, equal bit for bit.

What is compared: see `observing`. `check` takes a function and arguments; `check_program` the text of a whole program, of which
it makes two modules, so that what the program does to its globals and classes is compared too.
"""

from __future__ import annotations

import copy
import inspect
import linecache
import sys
import types
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import torch

import trident
from tests.conformance.observing import Observed, difference, observe
from trident.api import entry_of
from trident.backend.reference import Miss, Onward, SideExit, run_trace
from trident.ir import exceptions, rebuild
from trident.resuming import continue_frames

Entry = Any


class Mismatch(AssertionError):
    """Two ways differ."""


def agree(expected: Observed, seen: Observed, way: str) -> None:
    """Raise unless two observations are equal."""
    found = difference(expected, seen)
    if found:
        raise Mismatch(f"{way}: {found}")


def clone(args: tuple[object, ...]) -> tuple[object, ...]:
    """Independent arguments with the same strides and grad flags."""
    def one(value: object) -> object:
        if isinstance(value, torch.nn.Module):
            return value
        if isinstance(value, torch.Tensor):
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            made.copy_(value.detach())
            return made.requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(map(one, value))
        if isinstance(value, list):
            return list(map(one, value))
        if isinstance(value, dict):
            return {k: one(v) for k, v in value.items()}
        return copy.deepcopy(value)

    return tuple(one(v) for v in args)


def check(fn: Callable[..., object], *arguments: tuple[object, ...], expect_trace: bool = True, **options: object) -> Entry:
    """All four ways over several argument tuples, three times round. Returns the entry, for more asserts.

    expect_trace: also assert that something was compiled and hit.
    """
    jitted = trident.jit(fn, **options)
    entry = entry_of(jitted)
    file = fn.__code__.co_filename

    def call(function: Callable[..., object], args: tuple[object, ...]) -> Observed:
        return observe(lambda: function(*args), args, file)

    for round_ in range(3):
        for args in arguments:
            agree(call(fn, clone(args)), call(jitted, clone(args)), f"round {round_}")
    for args in arguments:
        expected = call(fn, clone(args))
        for root in entry.roots:
            agree(expected, call(Reference(entry, [root]), clone(args)), "reference")
    if expect_trace:
        assert entry.specializations, [a.text for a in entry.aborts]
        assert entry.cell.hits > 0, list(map(str, entry.misses.last))
    return entry


def bound_arguments(function: types.FunctionType, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, ...]:
    """The arguments of a call in localsplus order: those of a trace, but for the function itself."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    kinds = inspect.signature(function).parameters
    star = [n for n, p in kinds.items() if p.kind is p.VAR_POSITIONAL]
    names = [n for n in kinds if n not in star]
    at = len(names) - any(p.kind is p.VAR_KEYWORD for p in kinds.values())
    names[at:at] = star
    return tuple(bound.arguments[n] for n in names)


class Reference:
    """An entry's function by the reference executor, with the first of these specializations that applies; eager if none does."""

    def __init__(self, entry: Entry, roots: list[Any]) -> None:
        self.entry, self.roots, self.applied = entry, roots, 0

    def __call__(self, *args: object, **kwargs: object) -> object:
        self.applied += 1
        try:
            return _by_reference(self.entry, args, kwargs, self.roots)
        except Miss:
            self.applied -= 1
        return self.entry.function(*args, **kwargs)


def _by_reference(entry: Entry, args: tuple[object, ...], kwargs: dict[str, object], roots: list[Any]) -> object:
    """Miss if none applies. A side exit continues in CPython from the rebuilt frames, as one without a bridge does."""
    bound = bound_arguments(entry.function, args, kwargs)
    left: SideExit | None = None
    handled = sys.exception()
    for root in roots:
        try:
            return run_trace(root.trace, (*bound, entry.function))
        except Miss:
            continue
        except SideExit as leave:
            left = leave
        while isinstance(left, Onward):  # at the header of a loop; what comes after that is CPython's
            loop = next((s.trace for s in entry.specializations if s.trace.parent is left.snapshot), None)
            if loop is None:
                break
            try:
                return run_trace(loop, left.values)
            except SideExit as leave:
                left = leave
        break
    if left is None:
        raise Miss("no specialization applies")
    frames, error = rebuild(left.snapshot, left.values), left.error
    if error is not None:
        error.__traceback__ = _users_part(error.__traceback__)
    del left, bound, args, kwargs
    try:
        return continue_frames(frames, error)
    finally:
        exceptions.pop(handled)  # it may have left from the middle of a handler


def _users_part(trace: types.TracebackType | None) -> types.TracebackType | None:
    while trace is not None and "/trident/" in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return trace


# -------------------------------------------------------------------------------------------------------- whole programs
FILE = "<program>"
ROUNDS = (0, 0, 1, 1, 0, 2, 2, 1)
"""Which of the program's calls are made, in order: recording, hits, changed arguments, bridges, hits of all of them."""


@dataclass
class Report:
    """What became of a program."""

    fault: str = ""  # the first difference, "" if there is none
    counts: Counter[str] = field(default_factory=Counter)


def load(source: str) -> dict[str, Any]:
    """The namespace of a program: `program`, and `CALLS`, functions that make (args, kwargs) anew."""
    module = types.ModuleType("program")
    exec(_compiled(source), module.__dict__)
    return module.__dict__


@lru_cache(maxsize=2)
def _compiled(source: str) -> types.CodeType:
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return compile(source, FILE, "exec", dont_inherit=True)


def _surroundings(namespace: dict[str, Any]) -> list[tuple[str, object]]:
    left_out = types.FunctionType | types.ModuleType
    return [(k, v) for k, v in namespace.items() if not k.startswith("__") and k != "CALLS" and not isinstance(v, left_out)]


def _call(namespace: dict[str, Any], number: int, function: Callable[..., object] | None = None) -> Observed:
    """One of the program's calls. function: what is called in the place of `program`."""
    args, kwargs = namespace["CALLS"][number]()
    called = function or namespace["program"]
    return observe(lambda: called(*args, **kwargs), (args, kwargs), FILE, lambda: _surroundings(namespace))


def check_program(source: str, **options: object) -> Report:
    """All four ways over the calls of a program. Differences, and faults of Trident's own, are told, not raised."""
    eager, traced = load(source), load(source)
    jitted = trident.jit(traced["program"], **options)
    entry = entry_of(jitted)
    report = Report(counts=Counter(programs=1))
    try:
        for n, number in enumerate(ROUNDS):
            expected = _call(eager, number)
            report.counts["raised"] += expected.error[0] != "NoneType"
            agree(expected, _call(traced, number, jitted), f"call {n}, arguments {number}")
            assert sys.exception() is None, "an exception is handled after the call"
        for number in sorted(set(ROUNDS)):
            _reference(report, eager, traced, entry, number)
        internal = [a for a in entry.aborts if a.reason in ("internal", "compile")]
        if internal:
            report.fault = f"a fault of Trident's own: {internal[0].reason}: {internal[0].text} (line {internal[0].line})"
    except AssertionError as difference:  # Mismatch, and shadow checks
        report.fault = str(difference)
    report.counts.update(hits=entry.cell.hits, exits=entry.side_exits, traces=len(entry.roots), compiled=bool(entry.roots),
                         bridges=len(entry.specializations) - len(entry.roots), aborts=len(entry.aborts))
    for abort in entry.aborts:
        report.counts[f"aborted: {abort.reason}"] += 1
    return report


def _reference(report: Report, eager: dict[str, Any], traced: dict[str, Any], entry: Entry, number: int) -> None:
    reference = Reference(entry, entry.roots)
    agree(_call(eager, number), _call(traced, number, reference), f"reference, arguments {number}")
    report.counts["by reference"] += reference.applied


def steady(source: str) -> bool:
    """Whether two eager runs of a program do the same."""
    one, other = load(source), load(source)
    return not any(difference(_call(one, number), _call(other, number)) for number in ROUNDS)
