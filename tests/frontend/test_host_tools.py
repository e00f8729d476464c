"""What a program can ask of the interpreter itself: tracers, frames, the recursion limit, signals, warnings, imports, classes,
generators and coroutines that recorded code drives. Each comes out as in eager, at the first call and at hits."""

from __future__ import annotations

import asyncio
import cProfile
import importlib.util
import inspect
import operator
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import trident
from trident.api import entry_of
from trident.backend.native import tools


def _agree(fn: Callable[..., Any], *calls: tuple[Any, ...], rounds: int = 4, hits: bool = True) -> Any:
    """Eager and jitted give the same, round after round."""
    jitted = trident.jit(fn)
    for _ in range(rounds):
        for args in calls or ((),):
            assert jitted(*args) == fn(*args)
    entry = entry_of(jitted)
    assert not [abort for abort in entry.aborts if abort.reason in ("internal", "compile")], entry.aborts
    assert entry.cell.hits or not hits, [abort.text for abort in entry.aborts]
    return entry


# ------------------------------------------------------------------------------------------------------- tracing tools
def _double(x: int) -> int:
    y = x + x
    return y


def _uses_double(x: int) -> int:
    z = _double(x)
    return z + 1


def _lines(call: Callable[[], object]) -> list[tuple[str, str, int]]:
    seen: list[tuple[str, str, int]] = []

    def tracer(frame: Any, event: str, arg: object) -> Any:
        if frame.f_code.co_filename == __file__ and frame.f_code.co_name in ("_double", "_uses_double"):
            seen.append((frame.f_code.co_name, event, frame.f_lineno - frame.f_code.co_firstlineno))
            return tracer
        return None

    sys.settrace(tracer)
    try:
        call()
    finally:
        sys.settrace(None)
    return seen


def test_settrace_sees_plain_cpython() -> None:
    jitted = trident.jit(_uses_double)
    expected = _lines(lambda: _uses_double(3))
    assert ("_double", "return", 2) in expected
    assert _lines(lambda: jitted(3)) == expected, "before anything is compiled"
    for _ in range(3):
        jitted(3)
    assert entry_of(jitted).cell.hits
    assert _lines(lambda: jitted(3)) == expected, "with a specialization that applies"


def test_setprofile_sees_plain_cpython() -> None:
    jitted = trident.jit(_uses_double)
    for _ in range(3):
        jitted(3)

    def events(fn: Callable[[int], int]) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []
        sys.setprofile(lambda frame, event, arg: seen.append((frame.f_code.co_name, event)))
        try:
            fn(3)
        finally:
            sys.setprofile(None)
        return [entry for entry in seen if entry[0] in ("_double", "_uses_double")]

    assert events(jitted) == events(_uses_double) != []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in Python 3.12")
def test_monitoring_sees_plain_cpython() -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined]
    jitted = trident.jit(_uses_double)
    for _ in range(3):
        jitted(3)

    def starts(fn: Callable[[int], int]) -> list[str]:
        seen: list[str] = []
        monitoring.use_tool_id(4, "test")
        try:
            monitoring.register_callback(4, monitoring.events.PY_START, lambda code, offset: seen.append(code.co_name))
            monitoring.set_events(4, monitoring.events.PY_START)
            fn(3)
        finally:
            monitoring.set_events(4, 0)
            monitoring.free_tool_id(4)
        return [name for name in seen if name in ("_double", "_uses_double")]

    assert starts(jitted) == starts(_uses_double) == ["_uses_double", "_double"]


def test_a_tracer_that_is_installed_by_recorded_code() -> None:
    def f(x: int) -> Any:
        seen: list[str] = []
        sys.settrace(lambda frame, event, arg: seen.append(frame.f_code.co_name))
        _double(x)
        sys.settrace(None)
        return seen

    _agree(f, (1,), hits=False)


# ------------------------------------------------------------------------------------------------------------- frames
def test_locals_and_frames() -> None:
    def f(x: int) -> Any:
        y = x + 1
        return dict(locals()), sys._getframe().f_code.co_name, sys._getframe().f_lineno, y

    def g(x: int) -> Any:
        frame = inspect.currentframe()
        assert frame is not None
        return frame.f_code.co_name, frame.f_locals["x"], frame.f_back is sys._getframe(1)

    def h(x: int) -> Any:
        return sys._getframe(1).f_code.co_name, [info.function for info in inspect.stack()[:2]]

    jitted = [trident.jit(fn) for fn in (f, g, h)]
    for _ in range(4):
        for fn, made in zip((f, g, h), jitted, strict=True):
            assert made(3) == fn(3)


def test_frames_of_a_callee() -> None:
    def callee() -> Any:
        return sys._getframe(1).f_code.co_name, sys._getframe(2).f_code.co_name, sys._getframe(1).f_locals["x"]

    def f(x: int) -> Any:
        return callee()

    _agree(f, (3,), hits=False)


def _maker(seen: list[Any]) -> Iterator[int]:
    frame = sys._getframe()
    while frame is not None:
        seen.append(frame.f_code.co_filename)
        frame = frame.f_back  # type: ignore[assignment]
    yield 1


def test_nobody_finds_frames_of_trident() -> None:
    def f(seen: list[Any]) -> Any:
        return list(_maker(seen)), sorted([2, 1], key=lambda x: next(_maker(seen)) + x)

    jitted = trident.jit(f)
    for _ in range(3):
        seen: list[Any] = []
        assert jitted(seen) == f([])
        assert seen and not [name for name in seen if name.startswith(os.path.dirname(trident.__file__) + os.sep)]


def _warns(x: int) -> int:
    warnings.warn("deprecated", DeprecationWarning, stacklevel=2)
    return x + 1


def _calls_warns(x: int) -> int:
    return _warns(x) * 2


@pytest.mark.parametrize("fn", [_warns, _calls_warns])
def test_warnings_name_the_right_line(fn: Callable[[int], int]) -> None:
    def caught(call: Callable[[int], int]) -> list[tuple[str, str]]:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            call(3)
        return [(str(w.message), w.filename) for w in seen]

    jitted = trident.jit(fn)
    for _ in range(4):
        assert caught(jitted) == caught(fn) == [("deprecated", __file__)]


# ------------------------------------------------------------------------------------------------- recursion and signals
def test_recursion_limit() -> None:
    def depth(n: int) -> int:
        return 0 if n == 0 else 1 + recursive(n - 1)

    def endless(n: int) -> int:
        return endless_jitted(n + 1)

    recursive = trident.jit(depth)
    for n in (3, 50, 3, 50):
        assert recursive(n) == n
    endless_jitted = trident.jit(endless)
    for _ in range(3):
        with pytest.raises(RecursionError):
            endless_jitted(0)
    assert recursive(20) == 20, "the interpreter is whole"


def test_recursion_error_is_handled_inside() -> None:
    def down(n: int) -> int:
        return down(n + 1)

    def f() -> str:
        try:
            down(0)
        except RecursionError:
            return "too deep"
        return "?"

    _agree(f, hits=False)


def test_keyboard_interrupt_in_a_long_hit() -> None:
    ready = threading.Event()

    def f(x: int) -> int:
        for _ in range(40):
            time.sleep(x / 100)
        return x

    jitted = trident.jit(f)
    assert jitted(0) == jitted(0) == 0
    hits = entry_of(jitted).cell.hits
    assert hits

    def interrupt() -> None:
        ready.wait()
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    start = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        ready.set()
        for _ in range(50):
            jitted(5)
    thread.join()
    assert time.perf_counter() - start < 20
    assert jitted(0) == 0


# ------------------------------------------------------------------------------------- classes, imports, names, iterators
class _Registry(type):
    made: list[str] = []

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], tag: str = "") -> Any:
        cls = super().__new__(mcs, name, bases, namespace)
        cls.tag = tag  # type: ignore[attr-defined]
        return cls

    def __call__(cls, *args: Any) -> Any:
        made = super().__call__(*args)
        made.called = cls.tag  # type: ignore[attr-defined]
        return made


def test_class_bodies_and_metaclasses() -> None:
    def f(x: int) -> Any:
        class Base(metaclass=_Registry, tag="base"):
            field = x

            def get(self) -> int:
                return self.field + x

        class Derived(Base, tag="derived"):
            def get(self) -> int:
                return super().get() * 10

            def who(self) -> Any:
                return __class__.__name__  # type: ignore[name-defined]

        made = Derived()
        return made.get(), made.called, made.who(), Base.tag, Derived.__mro__[1].__name__, Derived.__qualname__, Derived.__module__

    _agree(f, (1,), (5,))


def test_super_in_every_form() -> None:
    class A:
        def name(self) -> str:
            return "A"

        @classmethod
        def make(cls) -> str:
            return cls.__name__

        @property
        def size(self) -> int:
            return 1

    class B(A):
        def name(self) -> str:
            return "B" + super().name() + super(B, self).name()  # noqa: UP008

        @classmethod
        def make(cls) -> str:
            return "B" + super().make()

        @property
        def size(self) -> int:
            return super().size + 1

    class C(B):
        def name(self) -> str:
            return "C" + super().name() + next(super(C, self).name() for _ in range(1))

    def f(made: Any) -> Any:
        return made.name(), made.make(), type(made).make(), made.size

    _agree(f, (B(),), (C(),))


def test_imports_inside_functions() -> None:
    def f(x: float) -> Any:
        import math as m
        from os import path as p
        from os import sep
        from os.path import basename
        return m.floor(x), basename(f"a{sep}b"), p.join("a", "b")

    def g() -> Any:
        try:
            import no_such_module_at_all  # noqa: F401
        except ImportError as error:
            return error.name
        return "?"

    _agree(f, (1.5,), (2.5,))
    _agree(g, hits=False)


def test_nonlocal_and_global_names() -> None:
    def f(x: int) -> Any:
        count = 0

        def up(by: int) -> int:
            nonlocal count
            count += by
            return count

        def outer() -> int:
            def inner() -> int:
                nonlocal count
                count *= 2
                return count
            return inner()

        return up(x), up(1), outer(), count

    _agree(f, (1,), (7,))


_global = 0


def test_globals_that_are_written() -> None:
    def f(x: int) -> int:
        global _global
        _global += x
        return _global

    def run(call: Callable[[int], int]) -> list[int]:
        global _global
        _global = 0
        return [call(n) for n in (1, 2, 3, 4)]

    assert run(trident.jit(f)) == run(f)


def _numbers(n: int) -> Iterator[int]:
    total = 0
    for i in range(n):
        sent = yield i + total
        total += sent or 0
    return total  # type: ignore[return-value]


def test_generators_are_driven() -> None:
    def delegating(n: int) -> Any:
        got = yield from _numbers(n)
        yield ("got", got)

    def f(n: int) -> Any:
        gen = _numbers(n)
        first = [next(gen), gen.send(10)]  # type: ignore[attr-defined]
        gen.close()  # type: ignore[attr-defined]
        unpacked = [*_numbers(3)]
        return first, unpacked, sum(x * 2 for x in _numbers(n)), list(delegating(2)), dict(zip("ab", _numbers(2)))

    _agree(f, (3,), (5,))


def test_generators_that_run_out_and_throw() -> None:
    def f(n: int) -> Any:
        gen = _numbers(n)
        seen = []
        while True:
            try:
                seen.append(next(gen))
            except StopIteration as stop:
                return seen, stop.value

    def g() -> Any:
        gen = _numbers(3)
        next(gen)
        try:
            gen.throw(KeyError("thrown"))  # type: ignore[attr-defined]
        except KeyError as error:
            return str(error)
        return "?"

    _agree(f, (2,), hits=False)
    _agree(g, hits=False)


def test_coroutines_are_driven() -> None:
    async def add(a: int, b: int) -> int:
        await asyncio.sleep(0)
        return a + b

    async def ticks(n: int) -> Any:
        for i in range(n):
            yield i

    async def main(n: int) -> Any:
        found = await asyncio.gather(add(n, 1), add(n, 2))
        return found, [i async for i in ticks(n)]

    def f(n: int) -> Any:
        return asyncio.run(main(n))

    def by_hand(n: int) -> Any:
        async def plain() -> int:
            return n + 1

        coroutine = plain()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            return stop.value
        return None

    _agree(f, (2,), (3,), hits=False)
    _agree(by_hand, (2,), hits=False)
    _agree(inner_jit, (2,), hits=False)


@trident.jit
def _step(x: int) -> int:
    return x * 2 + 1


def inner_jit(n: int) -> Any:
    """Coroutines and generators that call a jitted function."""
    async def main() -> list[int]:
        return [_step(i) for i in range(n)]

    return asyncio.run(main()), [_step(i) for i in range(n)], [_step(i) for i in range(n)]


class _Installs:
    """Installs a tool from inside of an opaque call."""

    def __init__(self, setter: Any, tool: Any) -> None:
        self.setter, self.tool = setter, tool

    def go(self) -> None:
        self.setter(self.tool)


def _events_of(setter: Any, wrap: Any) -> list[list[tuple[str, str]]]:
    seen: list[tuple[str, str]] = []

    def tool(frame: Any, event: str, arg: object) -> Any:
        seen.append((frame.f_code.co_name, event))
        return tool

    installs, call = _Installs(setter, tool), operator.methodcaller("go")

    def outer(n: int) -> int:
        call(installs)
        result = _double(n) + _double(n + 1)
        setter(None)
        return result

    fn, runs = wrap(outer), []
    for _ in range(6):
        seen.clear()
        assert fn(3) == 14
        runs.append(list(seen))
    return runs


@pytest.mark.parametrize("setter", [sys.setprofile, sys.settrace])
def test_a_tool_that_is_installed_half_way_sees_the_program_only(setter: Any) -> None:
    expected = _events_of(setter, lambda fn: fn)
    assert ("_double", "return") in expected[-1]
    assert _events_of(setter, trident.jit) == [expected[-1]] * 6
    assert not tools.hidden()


@pytest.mark.parametrize("setter", [sys.setprofile, sys.settrace])
def test_a_tool_that_a_call_leaves_behind_sees_what_follows_it(setter: Any) -> None:
    def events(wrap: Any) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        def tool(frame: Any, event: str, arg: object) -> Any:
            seen.append((frame.f_code.co_name, event))
            return tool

        def install() -> int:
            return operator.methodcaller("go")(_Installs(setter, tool)) or _double(1)

        wrapped = wrap(install)
        try:
            wrapped()
            _double(2)
        finally:
            setter(None)
        return [entry for entry in seen if entry[0] != "events"]

    expected = events(lambda fn: fn)
    assert expected.count(("_double", "return")) == 2
    for _ in range(3):
        assert events(trident.jit) == expected
    assert not tools.hidden()


@pytest.mark.parametrize("setter", [sys.setprofile, sys.settrace])
def test_going_on_with_an_exception_is_no_call(setter: Any) -> None:
    def events(wrap: Any) -> list[tuple[str, str]]:
        seen: list[tuple[str, str]] = []

        def tool(frame: Any, event: str, arg: object) -> Any:
            if event in ("call", "return", "exception"):
                seen.append((frame.f_code.co_name, event))
            return tool

        def fails() -> None:
            setter(tool)
            sys._getframe().f_back.f_trace = tool  # type: ignore[union-attr]
            raise KeyError

        def catches() -> int:
            try:
                fails()
            except KeyError:
                pass
            setter(None)
            return _double(1)

        assert wrap(catches)() == 2
        return seen

    expected = events(lambda fn: fn)
    assert expected and ("catches", "call") not in expected
    for _ in range(3):
        assert events(trident.jit) == expected


def test_a_profiler_that_is_enabled_half_way() -> None:
    profiler = cProfile.Profile()

    def f(n: int) -> int:
        profiler.enable()
        result = _double(n)
        profiler.disable()
        return result

    fn = trident.jit(f)
    for _ in range(5):
        profiler.clear()
        assert fn(4) == 8
        profiler.create_stats()
        names = [name for _, _, name in profiler.stats]
        assert sorted(names) == ["<method 'disable' of '_lsprof.Profiler' objects>", "_double"]


@pytest.mark.skipif(importlib.util.find_spec("_testcapi") is None, reason="this Python has no _testcapi")
def test_a_tracer_written_in_c_sees_no_frame_of_tridents() -> None:
    """3.11's ends the process where a function that it sees is left by an exception: it must not see ours."""
    import _testcapi

    def gen() -> Any:
        yield 1

    def f(events: list[Any]) -> int:
        _testcapi.settrace_to_record(events)
        for _ in gen():
            pass
        sys.settrace(None)
        return len(events)

    expected: list[Any] = []
    count = f(expected)
    fn = trident.jit(f)
    for _ in range(5):
        seen: list[Any] = []
        assert fn(seen) == count and [entry[:2] for entry in seen] == [entry[:2] for entry in expected]
