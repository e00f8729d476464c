"""Leaving a recording or a trace anywhere gives the same as never having entered it.

Every instruction of every function of `test_language` is a place where (1) the recording is given up, (2) a fault of the recorder
comes after the operation was executed, (3) a trace exits and CPython continues, (4) a trace exits and a bridge is recorded.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import test_language
from driver import Driver, bind, observe, same

from trident.frontend import calls, recorder
from trident.frontend.aborts import Leave
from trident.frontend.recorder import Recorder, record_bridge
from trident.ir import rebuild

reference = pytest.importorskip("trident.backend.reference")
EVERY = int(os.environ.get("TRIDENT_TEST_STRIDE", "3"))  # 1 tries every instruction

CASES = [(case[0], args) for case in test_language.CASES + test_language.RAISING for args in case[1:]]
each_case = pytest.mark.parametrize(("fn", "args"), CASES, ids=lambda part: getattr(part, "__name__", "-"))


class Stopping(Recorder):
    """Gives up before (or fails after) the instruction number `at`."""

    at, count, after = 0, 0, False

    def step(self) -> None:
        outer = not self.pure_base
        if outer:
            Stopping.count += 1
        if outer and not self.after and Stopping.count == Stopping.at:
            frame = self.frames[-1]
            self.step_depth, self.executed = len(self.frames), 0
            frame.current, frame.before = frame.code.instructions[frame.pc], frame.stack
            raise Leave("unsupported", "stopped by a test")
        super().step()
        finished = outer and self.executed and self.frames and self.step_depth == len(self.frames)
        if finished and self.after and Stopping.count == Stopping.at:
            raise RuntimeError("made by a test")


def _run(fn: Any, args: Any, at: int) -> Any:
    Stopping.at, Stopping.count = at, 0
    calls._avoided.clear()
    return observe(Driver(fn), copy.deepcopy(args), {})


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@each_case
def test_recording_ends_anywhere(fn: Any, args: Any, after: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "Recorder", Stopping)
    monkeypatch.setattr(Stopping, "after", after)
    expected = observe(fn, copy.deepcopy(args), {})
    _run(fn, args, 0)
    for at in range(1, min(Stopping.count, 400) + 1, EVERY):
        seen = _run(fn, args, at)
        assert same(expected, seen), (at, expected, seen)
    calls._avoided.clear()


class Dense(Recorder):
    """Writes a state before every instruction; `restated` are those that describe another place than where they stand."""

    restated: set[int] = set()

    def step(self) -> None:
        if not self.pure_base:
            frame = self.frames[-1]
            frame.current, frame.before = frame.code.instructions[frame.pc], frame.stack.copy()
            if self.in_entry:
                self.in_entry, self.hoist_epoch = False, -1
            self._write_state()
        super().step()

    def restate(self, *args: Any) -> None:
        super().restate(*args)
        self.restated.add(id(self.builder.trace.snapshots[-1]))


def _states(trace: Any, bound: tuple[Any, ...], every: int) -> Any:
    """(snapshot, values) at a state of the trace, one per execution; None when all have been tried."""
    run = reference.Run(trace, dict(zip(trace.block.arguments, bound, strict=True)))
    count = 0
    for op in trace.block.operations:
        operation = op.operation
        if operation.name == "func.return":
            return None
        reference.execute(run, operation)
        if operation.name == "trident.state":
            count += 1
            if count >= every and id(run.state[0]) not in Dense.restated:
                return run.state
    return None


def _exits(fn: Any, args: Any, go_on: Callable[[Driver, Any, Any], Any], monkeypatch: pytest.MonkeyPatch, stride: int) -> int:
    monkeypatch.setattr(recorder, "Recorder", Dense)
    expected = observe(fn, copy.deepcopy(args), {})
    driver = Driver(fn)
    observe(driver, copy.deepcopy(args), {})
    if not driver.traces:
        return 0
    tried = 0
    done = False
    at = 1
    while not done:
        def once(*fresh: Any) -> Any:
            nonlocal done
            state = _states(driver.traces[0], (*bind(fn, fresh, {}), fn), at)  # noqa: B023
            done = state is None
            return None if done else go_on(driver, *state)

        seen = observe(once, copy.deepcopy(args), {})
        if not done:
            tried += 1
            assert same(expected, seen), (at, expected, seen)
        at += stride
    return tried


def _resume(driver: Driver, snapshot: Any, values: Any) -> Any:
    return driver.services.resume(rebuild(snapshot, values), None)


def _bridge(driver: Driver, snapshot: Any, values: Any) -> Any:
    outcome = record_bridge(snapshot, list(values), driver.services, driver.options)
    assert outcome.abort is None or outcome.abort.reason != "internal", outcome.abort
    return outcome.unwrap()


@each_case
def test_exit_anywhere_resumes(fn: Any, args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _exits(fn, args, _resume, monkeypatch, EVERY)


@each_case
def test_exit_anywhere_bridges(fn: Any, args: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    _exits(fn, args, _bridge, monkeypatch, 4 * EVERY)


def test_the_exits_are_really_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _exits(test_language.with_statement, (3,), _resume, monkeypatch, 1) > 50
