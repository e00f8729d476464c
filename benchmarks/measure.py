"""Timing: variants of a case in interleaved rounds.

Owns how a time is taken. A variant is prepared once (compiling, warm-up, checking); then each round takes one sample of every
variant, in an order that rotates, so that a machine that gets slower or faster hurts all alike.
"""

from __future__ import annotations

import statistics
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from llm.report import describe

# Microseconds per call, measured over so many calls.
Sampler = Callable[[int], float]


@dataclass(frozen=True)
class Variant:
    """One way to do a case's work. `prepare` makes a sampler; whatever it raises is the reason why there are no times."""

    name: str
    prepare: Callable[[], Sampler]


@dataclass(frozen=True)
class Case:
    """What is measured. baseline: the variant that ratios refer to. max_calls: calls of one sample (a device queues so many)."""

    key: str
    title: str
    variants: Sequence[Variant]
    baseline: str = "eager"
    max_calls: int = 100_000


@dataclass
class Row:
    """Result of one variant: samples in microseconds per call, or the reason why there are none."""

    variant: str
    samples: list[float] = field(default_factory=list)
    calls: int = 0
    reason: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.samples)

    @property
    def best(self) -> float:
        return min(self.samples)


@dataclass(frozen=True)
class Grid:
    """Figures that are no variants of one thing: a table as it is to be shown."""

    key: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def python_sampler(statement: str, names: Mapping[str, object], device: torch.device, *, total: bool = False) -> Sampler:
    """Times a Python expression in timeit's loop (no call is added). total: until the device is done, else until it is told."""
    setup = "synchronize(device)"
    scope = {**names, "synchronize": synchronize, "device": device}
    timer = timeit.Timer(statement, setup, globals=scope)

    def sample(calls: int) -> float:
        synchronize(device)
        if not total:
            return timer.timeit(calls) / calls * 1e6
        start = time.perf_counter()
        timer.timeit(calls)
        synchronize(device)
        return (time.perf_counter() - start) / calls * 1e6

    return sample


def native_sampler(loop: Callable[[int], None], device: torch.device, *, total: bool = False) -> Sampler:
    """Times a native loop that is told how often to go round."""

    def sample(calls: int) -> float:
        synchronize(device)
        start = time.perf_counter()
        loop(calls)
        if total:
            synchronize(device)
        return (time.perf_counter() - start) / calls * 1e6

    return sample


def run_case(case: Case, rounds: int, sample_ms: float, progress: Callable[[], None] = lambda: None) -> list[Row]:
    """Prepares every variant, then takes `rounds` interleaved samples of about `sample_ms` each."""
    rows = [Row(variant.name) for variant in case.variants]
    ready: list[tuple[Row, Sampler]] = []
    for variant, row in zip(case.variants, rows):
        try:
            sampler = variant.prepare()
            sampler(3)
            once = min(sampler(2), sampler(2))
            row.calls = max(1, min(case.max_calls, int(sample_ms * 1e3 / max(once, 0.01))))
            sampler(row.calls)
            ready.append((row, sampler))
        except Exception as error:
            row.reason = describe(error)
        progress()
    for index in range(rounds):
        turn = index % max(1, len(ready))
        for row, sampler in ready[turn:] + ready[:turn]:
            row.samples.append(sampler(row.calls))
        progress()
    return rows


def steps(case: Case, rounds: int) -> int:
    """How often `run_case` reports progress."""
    return len(case.variants) + rounds
