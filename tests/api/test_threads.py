"""What other threads (or finalizers, or keywords with an `__eq__`) may do between two steps of a call, done at exactly that point."""

from __future__ import annotations

import random
import threading
import time
from functools import partial
from types import CellType, CodeType, FunctionType
from typing import Any

import pytest
import torch

import trident
from tests.storm import storm
from trident import entry as entry_module
from trident.api import entry_of
from trident.backend.dispatch import sweep
from trident.backend.native import resume
from trident.entry import Entry, all_entries
from trident.frontend.recorder import Recorder

X = torch.arange(4.0)


def pair() -> tuple[FunctionType, CodeType]:
    """A function, and other code for it that takes its arguments otherwise."""
    namespace: dict[str, Any] = {"__name__": __name__}
    exec("def f(x, n=2, *, k=1):\n    return x * n + k\n\ndef g(n=2, *x):\n    return n, x\n", namespace)
    return namespace["f"], namespace["g"].__code__


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, action: Any, *, after: bool = False) -> list[object]:
    """Have something done before (or after) the next call of a function of Trident's. What has been done so far."""
    original, done = getattr(owner, name), []

    def replaced(*args: Any, **kwargs: Any) -> Any:
        if not done and not after:
            done.append(action(*args))
        result = original(*args, **kwargs)
        if not done:
            done.append(action(*args))
        return result

    replaced.__code__ = replaced.__code__.replace(co_filename=resume.__file__)  # one of Trident's own frames
    monkeypatch.setattr(owner, name, replaced)
    return done


# ------------------------------------------------------------------------------------------- code that is assigned during a call

def assign(f: FunctionType, code: CodeType) -> Any:
    return lambda *_: setattr(f, "__code__", code)


@pytest.mark.parametrize("recorded", [True, False])
def test_between_binding_and_recording(monkeypatch: pytest.MonkeyPatch, recorded: bool) -> None:
    """The call has the code for which its arguments were bound."""
    f, other = pair()
    first, jitted = f.__code__, trident.jit(f)
    done = once(monkeypatch, Entry, "_sits_out", assign(f, other))
    if not recorded:
        entry_of(jitted).skip = 1
    assert jitted(X, 3, k=2).tolist() == (X * 3 + 2).tolist() and done
    assert jitted(3, X) == (3, (X,)), "the next call has the new code"
    f.__code__ = first
    for _ in range(3):
        assert jitted(X, 3, k=2).tolist() == (X * 3 + 2).tolist()


def test_between_the_look_at_the_code_and_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    f, other = pair()
    jitted = trident.jit(f)
    entry_of(jitted).skip = 1
    done = once(monkeypatch, resume, "_hidden_below", assign(f, other))
    assert jitted(X, 3, k=2).tolist() == (X * 3 + 2).tolist() and done


def test_a_captured_frame_keeps_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    f, other = pair()
    first, done = f.__code__, once(monkeypatch, Entry, "miss_of_frame", assign(f, other))
    with trident.frame_hook():
        assert f(X, 3).tolist() == (X * 3 + 1).tolist() and done
        assert f(3, X) == (3, (X,))
        f.__code__ = first
        assert [f(X, 3).tolist() for _ in range(3)] == [(X * 3 + 1).tolist()] * 3


def test_keywords_that_assign_code() -> None:
    """Native binding compares keywords, which may run code of theirs."""
    f, other = pair()

    class Keyword(str):
        __slots__ = ()
        __hash__ = str.__hash__

        def __eq__(self, to: object) -> bool:
            f.__code__ = other
            return str.__eq__(self, to)

    first, jitted = f.__code__, trident.jit(f)
    for _ in range(3):
        f.__code__ = first
        assert jitted(X, **{Keyword("k"): 2}).tolist() == (X * 2 + 2).tolist()
        f.__code__ = other
        assert jitted(3, X) == (3, (X,))


def test_between_the_rebuilding_of_a_frame_and_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x: Any, n: int) -> Any:
        y = x + 1
        if y[0].item() > n:
            return y * n
        return y - n

    first, jitted = f.__code__, trident.jit(f, max_bridges=0)
    for _ in range(3):
        assert jitted(X, 0).tolist() == ((X + 1) * 0).tolist()
    done = once(monkeypatch, resume.evaluator, "note_frames", assign(f, (lambda x, n, *rest: (n, x)).__code__))
    assert jitted(X, 2).tolist() == (X - 1).tolist() and done and entry_of(jitted).side_exits == 1
    assert f(1, 2) == (2, 1)
    f.__code__ = first
    assert jitted(X, 2).tolist() == (X - 1).tolist() and f(X, 0).tolist() == ((X + 1) * 0).tolist()


def test_of_an_inlined_callee(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is pinned is what is followed."""
    def callee(x: Any, n: int = 2) -> Any:
        return x * n

    def f(x: Any) -> Any:
        return callee(x)

    first, jitted = callee.__code__, trident.jit(f)
    original, done = Recorder.pin_function, []

    def pin_function(self: Recorder, function: FunctionType, *args: Any) -> Any:
        parts = original(self, function, *args)
        if function is callee and not done:
            done.append(True)
            callee.__code__, callee.__defaults__ = (lambda x, n=5: x - n).__code__, (5,)
        return parts

    monkeypatch.setattr(Recorder, "pin_function", pin_function)
    assert jitted(X).tolist() in ((X * 2).tolist(), (X - 5).tolist()) and done
    for _ in range(2):
        assert jitted(X).tolist() == (X - 5).tolist()
    callee.__code__, callee.__defaults__ = first, (2,)
    for _ in range(2):
        assert jitted(X).tolist() == (X * 2).tolist()


# --------------------------------------------------------------------------------------------------------- threads in one entry

def test_misses_of_two_threads_overlap() -> None:
    """A thread whose miss is over may miss again, whichever of the threads comes first to its end."""
    begun, second_in, first_out, results = threading.Event(), threading.Event(), threading.Event(), []

    @trident.jit
    def f(x: Any, call: Any) -> Any:
        call()
        return x + 1

    def wait_for_the_second() -> None:
        begun.set()
        assert second_in.wait(30)

    def wait_for_the_first() -> None:
        second_in.set()
        assert first_out.wait(30)

    def second() -> None:
        assert begun.wait(30)
        results.append(f(X, wait_for_the_first).tolist())

    thread = threading.Thread(target=second)
    thread.start()
    results.append(f(X, wait_for_the_second).tolist())
    first_out.set()
    thread.join()
    assert results == [(X + 1).tolist()] * 2
    before = f.specializations
    f(X, list)
    assert f.specializations == before + 1


# --------------------------------------------------------------------------------------------------- reset while a call is going on

def total(x: Any, n: int) -> Any:
    s = 0
    for i in range(n):
        if i % 7 == 3:
            s -= 5
        else:
            s += i
    return x + s


def plain_total(n: int) -> list[float]:
    return (X + sum(-5 if i % 7 == 3 else i for i in range(n))).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(("owner", "name"), [
    (entry_module, "run"), (Entry, "_go_on"), (Entry, "_compile"), (Entry, "_finish"), (Entry, "_record_loop"), (Entry, "_bridge"),
    (entry_module, "begin_bridge"), (Recorder, "run")])
@pytest.mark.parametrize("after", [False, True])
def test_reset_in_the_middle_of_a_call(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool) -> None:
    """What is dropped is not freed while somebody may come to it, and nothing new is built on it."""
    jitted = trident.jit(FunctionType(total.__code__.replace(), globals(), "total"))

    def drop(*_: Any) -> None:
        def work() -> None:
            jitted.reset()
            assert jitted.specializations == 0
            trident.jit(lambda x: x + 1)(X)  # what is not in use any more is freed, and its memory taken for something else

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    done = once(monkeypatch, owner, name, drop, after=after)
    for n in (100, 100, 5, 100, 40, 3, 100, 100):
        assert jitted(X, n).tolist() == plain_total(n)
    assert done
    for _ in range(3):
        assert jitted(X, 100).tolist() == plain_total(100)
    assert jitted.specializations and not trident.explain(jitted).aborts


def test_what_a_call_is_about_to_enter_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = trident.jit(FunctionType(total.__code__.replace(), globals(), "total"))
    entry, kept = entry_of(jitted), []

    def drop(*_: Any) -> None:
        kept.extend(made.program for made in entry.specializations)
        jitted.reset()
        sweep()
        assert kept and not any(program._compiled.closed for program in kept)

    done = once(monkeypatch, entry_module, "run", drop)
    assert jitted(X, 100).tolist() == plain_total(100) and done
    sweep()
    assert all(program._compiled.closed for program in kept)


def test_what_was_recorded_before_a_reset_is_not_published_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = trident.jit(FunctionType(total.__code__.replace(), globals(), "total"))
    done = once(monkeypatch, Recorder, "run", lambda *_: jitted.reset(), after=True)
    assert jitted(X, 100).tolist() == plain_total(100) and done
    assert entry_of(jitted).specializations == []
    assert jitted(X, 100).tolist() == plain_total(100) and jitted.specializations == 1


def test_no_bridge_of_what_has_been_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    @trident.jit(bridge_threshold=1)
    def f(x: Any, n: int) -> Any:
        y = x + 1
        return y * n if y[0].item() > n else y - n

    assert f(X, 0).tolist() == ((X + 1) * 0).tolist()
    done = once(monkeypatch, Entry, "_bridge", lambda *_: f.reset())
    assert f(X, 2).tolist() == (X - 1).tolist() and done
    assert entry_of(f).specializations == []


# ------------------------------------------------------------------------------------------------------------------ all of it at once

_CODES = {"add": "x * n + k", "sub": "(x - k, n)", "loop": "x + sum_to(n * 30) * k"}


def sum_to(n: int) -> int:
    s = 0
    for i in range(n):
        s += i
    return s


def closures(k: float, codes: dict[str, CodeType]) -> dict[str, FunctionType]:
    """New functions of these code objects, which all threads share."""
    return {name: FunctionType(code, globals(), name, (2,), (CellType(k),)) for name, code in codes.items()}


def wanted(kind: str, k: float, n: int) -> Any:
    """The results as plain lists."""
    values = X.tolist()
    if kind == "sub":
        return [v - k for v in values], n
    return [v * n + k for v in values] if kind == "add" else [v + sum(range(n * 30)) * k for v in values]


def one_thread(seed: int, codes: dict[str, CodeType], seconds: float) -> None:
    """Makes functions, decorates them, calls them and captures them, resets and drops what it has, and swaps their code."""
    choose, end = random.Random(seed), time.monotonic() + seconds
    k = float(seed + 1)
    functions, jitted = closures(k, codes), {}
    kinds = {name: name for name in functions}
    while time.monotonic() < end:
        name, n, what = choose.choice(list(functions)), choose.choice((2, 3)), choose.random()
        if what < 0.02:
            functions, jitted, kinds = closures(k, codes), {}, {name: name for name in codes}
        elif what < 0.06:
            other = choose.choice(list(functions))
            a, b = functions[name], functions[other]
            a.__code__, b.__code__ = b.__code__, a.__code__
            kinds[name], kinds[other] = kinds[other], kinds[name]
        elif what < 0.09 and name in jitted:
            jitted[name].reset() if what < 0.075 else jitted.pop(name)
        if name not in jitted:
            jitted[name] = trident.jit(functions[name])
        if what < 0.5:
            with trident.frame_hook():
                result = functions[name](X, n)
        else:
            result = jitted[name](X, n)
        plain = (result[0].tolist(), result[1]) if type(result) is tuple else result.tolist()
        assert plain == wanted(kinds[name], k, n), (name, kinds[name], n)


def test_all_at_once() -> None:
    namespace: dict[str, Any] = {}
    for name, text in _CODES.items():
        exec(f"def make(k):\n    def {name}(x, n=2):\n        return {text}\n    return {name}\n", namespace)
        namespace[name] = namespace["make"](1.0).__code__
    codes = {name: namespace[name] for name in _CODES}
    storm(partial(one_thread, seed, codes, 3.0) for seed in range(3))
    faults = [abort for entry in all_entries() if entry.code in codes.values() for abort in entry.aborts]
    assert not [abort for abort in faults if abort.reason in ("internal", "compile")]
