"""What cannot be recorded is finished by CPython: same result, same exception, same traceback; the outcome says why."""

from __future__ import annotations

import gc
import inspect
import sys
import traceback
import warnings
import weakref
from typing import Any

import pytest
from driver import Driver, check

from trident.frontend import calls
from trident.frontend.aborts import ABORT_REASONS, AbortInfo
from trident.frontend.recorder import INLINE_BLAME, Recorder


@pytest.fixture(autouse=True)
def _forget_what_is_avoided() -> None:
    calls._avoided.clear()


def ended(fn: Any, *args: Any) -> tuple[Any, AbortInfo]:
    """Result and reason of one call."""
    driver = Driver(fn)
    result = driver(*args)
    abort = driver.outcomes[0].abort
    assert abort is not None and driver.outcomes[0].trace is None
    assert driver.services.resumed == 1
    return result, abort


def test_locals() -> None:
    def f(a: int) -> Any:
        b = a + 1
        return sorted(locals()), b

    result, abort = ended(f, 1)
    assert result == (["a", "b"], 2)
    assert abort.reason == "frame" and abort.line == f.__code__.co_firstlineno + 2


def test_eval_sees_the_frame() -> None:
    def f(a: int) -> Any:
        b = a + 1  # noqa: F841 (the evaluated code reads it)
        return eval("a + b")

    assert ended(f, 1)[0] == 3


def test_frames_of_inlined_functions_are_real() -> None:
    def who() -> list[str]:
        frame, names = sys._getframe(), []
        while frame is not None and len(names) < 3:
            names.append(frame.f_code.co_name)
            frame = frame.f_back  # type: ignore[assignment]
        return names

    def middle(k: int) -> Any:
        return who(), k

    def f(k: int) -> Any:
        return middle(k + 1)

    assert ended(f, 1)[0] == (["who", "middle", "f"], 2)


def test_inspect() -> None:
    def f(a: int) -> Any:
        return inspect.currentframe().f_lineno + a  # type: ignore[union-attr]

    assert ended(f, 1)[0] == f.__code__.co_firstlineno + 2


def test_warnings_name_the_line() -> None:
    def f(a: int) -> int:
        warnings.warn("careful", stacklevel=2)
        return a + 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        f(1)
        assert ended(f, 1)[0] == 2
    assert [str(w.message) for w in caught] == ["careful", "careful"] and caught[0].filename == __file__


def _lines(error: BaseException) -> list[tuple[str, int]]:
    return [(entry.name, entry.lineno or 0) for entry in traceback.extract_tb(error.__traceback__) if entry.filename == __file__]


def _raised_by(fn: Any, *args: Any) -> BaseException:
    try:
        fn(*args)
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def test_exceptions_have_the_users_traceback() -> None:
    def inner(d: dict[str, int], key: str) -> int:
        return d[key]

    def f(d: dict[str, int]) -> int:
        x = inner(d, "a")
        return x + inner(d, "b")

    for argument in ({"a": 1}, {}):
        plain, recorded = _raised_by(f, argument), _raised_by(Driver(f), argument)
        assert type(plain) is type(recorded) and plain.args == recorded.args
        assert [e for e in _lines(recorded) if e[0] in ("f", "inner")] == [e for e in _lines(plain) if e[0] in ("f", "inner")]


def test_exceptions_of_c_functions() -> None:
    def f(x: Any) -> Any:
        y = 1
        return sorted(x), y

    plain, recorded = _raised_by(f, [1, "a"]), _raised_by(Driver(f), [1, "a"])
    assert str(plain) == str(recorded) and _lines(plain)[-1] == _lines(recorded)[-1]
    assert "core.py" not in "".join(traceback.format_exception(recorded))


def test_context_and_cause() -> None:
    def f(x: int) -> int:
        try:
            return 1 // x
        except ZeroDivisionError as error:
            raise ValueError("zero") from error

    recorded = _raised_by(Driver(f), 0)
    assert isinstance(recorded, ValueError) and isinstance(recorded.__cause__, ZeroDivisionError)
    assert recorded.__context__ is recorded.__cause__


def test_an_exception_that_the_caller_handles_is_no_context() -> None:
    def f(x: int) -> int:
        return x.nothing  # type: ignore[attr-defined, no-any-return]

    assert _raised_by(Driver(f), 0).__context__ is None


def test_keyboard_interrupt_passes() -> None:
    def f(x: int) -> int:
        y = x + 1
        return y * 2

    class Interrupted(Recorder):
        def step(self) -> None:
            if self.serial == 3:
                frame = self.frames[-1]
                frame.current, frame.before = frame.code.instructions[frame.pc], frame.stack
                raise KeyboardInterrupt
            super().step()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trident.frontend.recorder.Recorder", Interrupted)
        driver = Driver(f)
        assert type(_raised_by(driver, 1)) is KeyboardInterrupt
    assert driver.outcomes[0].abort.reason == "interrupt"  # type: ignore[union-attr]


def test_an_internal_error_is_no_error_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: int) -> int:
        return len([x]) + x

    def broken(*args: Any) -> None:
        raise ZeroDivisionError("inside the recorder")

    monkeypatch.setattr("trident.frontend.operators.length", broken)
    result, abort = ended(f, 2)
    assert result == 3
    assert abort.reason == "internal" and "inside the recorder" in abort.text and "test_aborts.py" in abort.text


def test_a_long_trace_is_given_up() -> None:
    def f(n: int) -> int:
        total = 0
        while n > 0:
            total += n
            n -= 1
        return total

    driver = Driver(f)
    driver.options.max_trace_ops = 1000
    assert driver(10_000) == 50005000
    assert driver.outcomes[0].abort.reason == "length"  # type: ignore[union-attr]


def test_a_callee_that_cannot_be_recorded_is_an_opaque_call_the_next_time() -> None:
    def changes_class(k: int) -> int:
        thing = Thing()
        thing.__class__ = Thing
        return k + 1

    def f(k: int) -> int:
        return changes_class(k) + 1

    driver = Driver(f)
    assert driver(1) == 3
    assert driver.outcomes[0].abort.reason == "unsupported" and driver.outcomes[0].blamed.endswith("changes_class")  # type: ignore[union-attr]
    assert driver(1) == 3
    assert [c.callee.rpartition(".")[2] for c in driver.traces[0].opaque_calls] == ["changes_class"]
    assert driver(2) == 4 and driver.hits == 1


def test_generators_and_coroutines_are_made_but_not_entered() -> None:
    def numbers(n: int) -> Any:
        yield from range(n)

    async def coroutine() -> int:
        return 1

    def f(n: int) -> Any:
        c = coroutine()
        c.close()
        return [x + 1 for x in numbers(n)]

    check(f, (3,))


def test_recursion_beyond_the_limit() -> None:
    def f(n: int) -> int:
        return 0 if n == 0 else 1 + f(n - 1)

    check(f, (200,))
    plain, recorded = _raised_by(f, 10**6), _raised_by(Driver(f), 10**6)
    assert type(plain) is type(recorded) is RecursionError


def test_reasons_are_in_the_table() -> None:
    assert INLINE_BLAME <= set(ABORT_REASONS)
    assert str(AbortInfo("frame", "locals", "f.py", 3)) == "a call that reads or changes Python frames: locals (f.py:3)"


class Thing:
    pass


@pytest.mark.parametrize("way", ["returned", "raised", "aborted"])
def test_objects_live_no_longer_than_they_would(way: str) -> None:
    def f(thing: Thing) -> None:
        thing.part = Thing()  # type: ignore[attr-defined]
        other = [thing]
        if way == "raised":
            raise ValueError
        if way == "aborted":
            locals()
        other.clear()

    thing = Thing()
    alive = weakref.ref(thing)
    gc.disable()
    try:
        driver = Driver(f)
        try:
            driver(thing)
        except ValueError:
            pass
        driver.outcomes.clear()
        driver.traces.clear()
        del thing
        assert alive() is None
    finally:
        gc.enable()
