"""Tools of sys.monitoring that recorded code installs: they see the program from there on, and nothing of Trident's."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trident
from trident.api import entry_of
from trident.backend.native import tools

pytestmark = pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in Python 3.12")

_TOOL = 4
_NAMES = ("PY_START", "PY_RETURN", "PY_UNWIND", "PY_YIELD", "PY_RESUME", "RAISE", "EXCEPTION_HANDLED", "LINE", "CALL", "STOP_ITERATION")
_Events = list[tuple[str, str]]


@pytest.fixture
def seen() -> Iterator[_Events]:
    """What the tool sees while its events are on."""
    found: _Events = []
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    monitoring.use_tool_id(_TOOL, "test")
    for name in _NAMES:
        def note(code: Any, *rest: object, name: str = name) -> None:
            found.append((code.co_name, name))

        monitoring.register_callback(_TOOL, getattr(monitoring.events, name), note)
    yield found
    monitoring.set_events(_TOOL, 0)
    for name in _NAMES:
        monitoring.register_callback(_TOOL, getattr(monitoring.events, name), None)
    monitoring.free_tool_id(_TOOL)


def _switch(on: bool) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    events = 0
    for name in _NAMES:
        events |= getattr(monitoring.events, name)
    monitoring.set_events(_TOOL, events if on else 0)


class _Switch:
    """Switches the tool from inside of an opaque call."""

    def on(self) -> None:
        _switch(True)


_opaquely = operator.methodcaller("on")


def _double(x: int) -> int:
    return x + x


def _runs(fn: Callable[[int], int], seen: _Events, count: int) -> list[_Events]:
    runs = []
    for _ in range(count):
        seen.clear()
        assert fn(3) == 14
        runs.append(list(seen))
    return runs


def test_a_tool_that_the_function_itself_installs(seen: _Events) -> None:
    def f(n: int) -> int:
        _switch(True)
        result = _double(n) + _double(n + 1)
        _switch(False)
        return result

    expected, = _runs(f, seen, 1)
    assert ("_double", "PY_RETURN") in expected
    assert _runs(trident.jit(f), seen, 5) == [expected] * 5


def test_frames_that_a_hook_looks_at_meanwhile(seen: _Events) -> None:
    def f(n: int) -> int:
        _switch(True)
        result = _double(n) + _double(n + 1)
        _switch(False)
        return result

    expected, = _runs(f, seen, 1)
    with trident.frame_hook():
        assert _runs(f, seen, 5) == [expected] * 5


@pytest.mark.parametrize("fails", [False, True])
def test_a_tool_that_an_opaque_call_installs(seen: _Events, fails: bool) -> None:
    def f(n: int) -> int:
        _opaquely(_Switch())
        try:
            result = _double(n) + _double(n + 1) if not fails else _double(n) // 0
        except ZeroDivisionError:
            result = 14
        _switch(False)
        return result

    expected, = _runs(f, seen, 1)
    assert ("_double", "PY_RETURN") in expected
    assert _runs(trident.jit(f), seen, 5) == [expected] * 5
    assert not tools.hidden()


def test_a_tool_that_a_call_leaves_behind(seen: _Events) -> None:
    def f(n: int) -> int:
        return _opaquely(_Switch()) or _double(n)

    def events(fn: Callable[[int], int]) -> _Events:
        seen.clear()
        assert fn(1) == 2
        _double(2)
        _switch(False)
        return list(seen)

    expected = events(f)
    assert expected.count(("_double", "PY_RETURN")) == 2
    jitted = trident.jit(f)
    for _ in range(3):
        assert events(jitted) == expected
    assert not tools.hidden()


def test_a_tool_that_was_there_before_is_left_alone(seen: _Events) -> None:
    jitted = trident.jit(_double)
    for _ in range(3):
        assert jitted(2) == 4
    hits = entry_of(jitted).cell.hits
    _switch(True)
    assert jitted(2) == 4
    _switch(False)
    assert seen.count(("_double", "PY_RETURN")) == 1 and entry_of(jitted).cell.hits == hits
    assert jitted(2) == 4 and entry_of(jitted).cell.hits == hits + 1
