"""A decorated function and what a frame hook captures of it have one entry: one SCM, one list of specializations, one count of hits."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import nn

import trident
from tests.processes import environment
from trident import options
from trident.api import entry_of
from trident.entry import all_entries

X = torch.arange(4.0)
Function = Callable[..., Any]


def fresh(bias: float = 1.0) -> FunctionType:
    """A function with a code object of its own."""
    namespace: dict[str, Any] = {"__name__": __name__, "BIAS": bias}
    exec(compile("def f(x, n=2):\n    return x * n + BIAS\n", f"<fresh {bias}>", "exec"), namespace)
    return namespace["f"]  # type: ignore[no-any-return]


def adders() -> Callable[[float], Function]:
    """Makes functions that share a code object, which nobody has seen before."""
    namespace: dict[str, Any] = {"__name__": __name__}
    exec("def adder(k):\n    def add(x):\n        return x + k\n    return add\n", namespace)
    return namespace["adder"]  # type: ignore[no-any-return]


def under_hook(call: Callable[[], Any], times: int = 1) -> Any:
    with trident.frame_hook():
        results = [call() for _ in range(times)]
    return results[-1]


def entries(f: Any) -> int:
    """How many entries there are for functions of a code object."""
    return sum(entry.function.__code__ is f.__code__ for entry in all_entries())


def counts(target: Any) -> tuple[int, int, int]:
    explanation = trident.explain(target)
    return explanation.hits, explanation.misses, len(explanation.specializations)


# ------------------------------------------------------------------------------------------------------------- one entry, either way


def test_decorated_then_captured() -> None:
    f = fresh()
    jitted = trident.jit(f)
    assert jitted(X).equal(X * 2 + 1)
    assert under_hook(lambda: f(X), 3).equal(X * 2 + 1)
    assert counts(jitted) == counts(f) == (3, 1, 1), "the hook finds what the callable has recorded"
    assert jitted(X).equal(X * 2 + 1) and counts(f) == (4, 1, 1)
    assert entries(f) == 1 and entry_of(f) is entry_of(jitted)


def test_what_the_hook_records_serves_the_callable() -> None:
    f = fresh()
    jitted = trident.jit(f)
    assert under_hook(lambda: f(X), 2).equal(X * 2 + 1)
    assert jitted.specializations == 1
    assert jitted(X).equal(X * 2 + 1) and counts(jitted) == (2, 1, 1)


def test_captured_then_decorated() -> None:
    f = fresh()
    assert under_hook(lambda: f(X), 3).equal(X * 2 + 1)
    assert counts(f) == (2, 1, 1)
    jitted = trident.jit(f)
    assert counts(jitted) == (2, 1, 1) and entries(f) == 1
    assert jitted(X).equal(X * 2 + 1) and under_hook(lambda: f(X)).equal(X * 2 + 1)
    assert counts(jitted) == counts(f) == (4, 1, 1)
    jitted.reset()
    assert counts(f) == (0, 0, 0)
    assert under_hook(lambda: f(X), 2).equal(X * 2 + 1) and counts(jitted) == (1, 1, 1)


def test_decorated_while_the_hook_is_active() -> None:
    f = fresh()
    with trident.frame_hook(), trident.frame_hook():
        f(X), f(X)
        jitted = trident.jit(f)
        with trident.frame_hook():
            assert f(X).equal(X * 2 + 1) and jitted(X).equal(X * 2 + 1)
        assert f(X).equal(X * 2 + 1)
    assert counts(jitted) == counts(f) == (4, 1, 1)


def test_the_callable_under_a_hook() -> None:
    """Calls that the callable leaves to CPython make frames of the function, which are not captured for a second entry."""
    def f(x, d):
        return x * d["a"]

    jitted = trident.jit(f)
    with trident.frame_hook():
        for _ in range(12):
            with pytest.raises(KeyError):
                jitted(X, {})
        assert jitted(X, {"a": 2}).equal(X * 2)
    assert entries(f) == 1
    assert trident.explain(jitted).misses == 13, "each call counts once"


def test_what_is_left_to_cpython_stays_so_under_a_hook() -> None:
    def f(x):
        return callers_name(), x + 1

    def callers_name():
        return sys._getframe(1).f_code.co_name

    jitted = trident.jit(f)
    with trident.frame_hook():
        for _ in range(8):
            name, result = jitted(X)
            assert name == "f" and result.equal(X + 1)
            name, result = f(X)
            assert name == "f" and result.equal(X + 1)
    assert entry_of(f) is entry_of(jitted) and entries(f) == 1


def test_recursion_of_the_plain_function() -> None:
    def down(x, n):
        return x if n == 0 else down(x, n - 1) + 1

    plain, jitted = down, trident.jit(down)
    with trident.frame_hook():
        for _ in range(4):
            assert jitted(X, 5).equal(X + 5) and plain(X, 4).equal(X + 4)
    assert entry_of(plain) is entry_of(jitted) and entries(plain) == 1


def test_plain_calls_outside_of_a_hook_are_plain() -> None:
    f = fresh()
    jitted = trident.jit(f)
    jitted(X), under_hook(lambda: f(X), 2)
    before = counts(jitted)
    assert [f(X).tolist() for _ in range(3)] == [(X * 2 + 1).tolist()] * 3
    assert counts(jitted) == before
    seen: list[Any] = []
    with trident.frame_hook():
        thread = threading.Thread(target=lambda: seen.extend(f(X) for _ in range(3)))
        thread.start()
        thread.join()
    assert len(seen) == 3 and counts(jitted) == before


# ------------------------------------------------------------------------------------------------------------- where there are two


def test_other_options_are_another_entry() -> None:
    f = fresh()
    jitted = trident.jit(f, max_specializations=3)
    assert under_hook(lambda: f(X), 2).equal(X * 2 + 1)
    assert counts(jitted) == (0, 0, 0) and counts(f) == (1, 1, 1)
    again = trident.jit(f)
    assert counts(again) == (1, 1, 1), "this one has the hook's options"
    assert entry_of(again) is not entry_of(jitted)


def test_the_hooks_options_are_those_in_force_when_it_looks() -> None:
    f = fresh()
    with options.scope(max_specializations=3), trident.frame_hook():
        f(X), f(X)
    assert trident.jit(f).specializations == 0
    assert trident.jit(f, max_specializations=3).specializations == 1


def test_each_jit_is_an_entry_of_its_own() -> None:
    f = fresh()
    first, second = trident.jit(f), trident.jit(f)
    first(X)
    assert second.specializations == 0 and entry_of(first) is not entry_of(second)
    assert under_hook(lambda: f(X)).equal(X * 2 + 1)
    assert counts(first) == (1, 1, 1) and counts(second) == (0, 0, 0), "the hook shares the oldest"
    entry = weakref.ref(entry_of(first))
    del first
    gc.collect()
    assert entry() is None
    assert under_hook(lambda: f(X), 2).equal(X * 2 + 1)
    assert counts(f) == counts(second) == (1, 1, 1), "the next one takes its place"


def test_a_jitted_module_is_not_its_forward() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(4, 4)

        def forward(self, x):
            return torch.tanh(self.up(x))

    net, other = Net(), Net()
    jitted = trident.jit(net)
    with trident.frame_hook():
        for _ in range(3):
            assert jitted(X).equal(torch.tanh(net.up(X)))
            assert net(X).equal(torch.tanh(net.up(X))) and other(X).equal(torch.tanh(other.up(X)))
    assert entry_of(jitted) is not entry_of(Net.forward) and trident.explain(jitted).hits == 2
    assert trident.explain(Net.forward).hits >= 2


def test_a_forward_that_is_decorated() -> None:
    class Net(nn.Module):
        def __init__(self, k: float) -> None:
            super().__init__()
            self.k = nn.Parameter(torch.full((4,), k))

        def forward(self, x):
            return x * self.k

    plain, nets = Net.forward, [Net(2.0), Net(3.0)]
    jitted = trident.jit(Net.forward)
    with trident.frame_hook():
        for _ in range(4):
            for net in nets:
                assert net(X).equal(X * net.k)
    assert entry_of(plain) is entry_of(jitted) and counts(jitted)[0] >= 5
    assert jitted(nets[0], X).equal(X * 2)


def test_methods() -> None:
    class Thing:
        def __init__(self, k: float) -> None:
            self.k = k

        def scaled(self, x):
            return x * self.k

    a, b = Thing(2.0), Thing(3.0)
    jitted, plain = trident.jit(a.scaled), Thing.scaled
    for _ in range(2):
        assert jitted(X).equal(X * 2.0)
    with trident.frame_hook():
        for _ in range(4):
            assert a.scaled(X).equal(X * 2.0) and b.scaled(X).equal(X * 3.0)
    assert entries(plain) == 1 and entry_of(plain) is entry_of(jitted)
    assert jitted(X).equal(X * 2.0) and trident.explain(jitted).hits >= 6


# --------------------------------------------------------------------------------------------------- closures that share a code object


def test_decorated_closures_have_entries_of_their_own() -> None:
    adder = adders()
    one, two, three = adder(1.0), adder(2.0), adder(3.0)
    jitted = [trident.jit(one), trident.jit(two)]
    with trident.frame_hook():
        for _ in range(4):
            for k, f in enumerate((one, two, three), 1):
                assert f(X).equal(X + k)
    assert [counts(f) for f in (one, two, three)] == [(3, 1, 1)] * 3
    assert [entry_of(f) for f in (one, two)] == [entry_of(f) for f in jitted]
    assert entry_of(three) not in map(entry_of, jitted)


@pytest.mark.filterwarnings("ignore:trident")
def test_closures_that_come_after_the_decorated_one() -> None:
    adder = adders()
    one, rest = adder(1.0), [adder(float(k)) for k in range(2, 12)]
    assert under_hook(lambda: one(X), 2).equal(X + 1)
    jitted = trident.jit(one)
    assert counts(jitted) == (1, 1, 1)
    with trident.frame_hook():
        for k, f in enumerate(rest, 2):
            assert f(X).equal(X + k)
        assert one(X).equal(X + 1)
    assert counts(jitted) == (2, 1, 1), "they neither miss in its entry nor retire it"


def test_a_closure_that_the_hook_has_seen_with_others() -> None:
    adder = adders()
    one, two = adder(1.0), adder(2.0)
    with trident.frame_hook():
        for _ in range(2):
            assert one(X).equal(X + 1) and two(X).equal(X + 2)
    jitted = trident.jit(one)
    assert jitted.specializations == 0
    with trident.frame_hook():
        for _ in range(3):
            assert one(X).equal(X + 1) and two(X).equal(X + 2)
    assert counts(jitted) == counts(one) == (2, 1, 1) and entry_of(two) is not entry_of(jitted)


# ----------------------------------------------------------------------------------------------------------- what is left alone, retired


def test_frames_that_the_hook_leaves_alone_disable_no_callable() -> None:
    f = fresh()
    jitted = trident.jit(f)
    assert under_hook(lambda: f(3), 5) == 7
    jitted(X), jitted(X)
    assert counts(jitted) == (1, 4, 1), "three frames and a call"
    assert under_hook(lambda: f(X)).equal(X * 2 + 1) and counts(f) == (2, 4, 1), "what it has compiled is for both"


def test_what_the_hook_has_left_alone_can_be_decorated() -> None:
    f = fresh()
    assert under_hook(lambda: f(3), 5) == 7
    jitted = trident.jit(f)
    jitted(X), jitted(X)
    assert counts(jitted) == (1, 4, 1)


def test_what_the_hook_has_retired_is_not_taken_over() -> None:
    switch = {"on": True}

    def f(x):
        if switch["on"]:
            sys._getframe(0)
        return x + 1

    assert under_hook(lambda: f(X), 10).equal(X + 1)
    assert trident.explain(f).status.startswith("left to CPython")
    switch["on"] = False
    jitted = trident.jit(f)
    for _ in range(3):
        assert jitted(X).equal(X + 1)
    assert trident.explain(jitted).hits >= 1
    hits = trident.explain(jitted).hits
    assert under_hook(lambda: f(X)).equal(X + 1) and trident.explain(f).hits == hits + 1


# ------------------------------------------------------------------------------------------------------------------------- __code__


def test_code_is_assigned() -> None:
    f, other = fresh(), fresh(5.0)
    first = f.__code__
    jitted = trident.jit(f)
    under_hook(lambda: f(X), 2)
    f.__code__ = other.__code__.replace(co_consts=tuple(7 if c == 2 else c for c in other.__code__.co_consts))
    other.__code__ = f.__code__
    for _ in range(3):
        assert jitted(X, 3).equal(X * 3 + 1) and under_hook(lambda: f(X, 3)).equal(X * 3 + 1)
        assert under_hook(lambda: other(X, 3)).equal(X * 3 + 5)
    f.__code__ = first
    assert under_hook(lambda: f(X)).equal(X * 2 + 1) and jitted(X).equal(X * 2 + 1)
    assert entry_of(f) is entry_of(jitted) and counts(jitted)[0] == 1, "the frame was recorded, and the call has hit"


def test_code_with_other_parameters_is_assigned() -> None:
    """What was compiled for one code reads no arguments of a frame of the other."""
    f = fresh()
    two, three = f.__code__, (lambda x, n, y: (x - n, y)).__code__
    jitted = trident.jit(f)
    for _ in range(3):
        f.__code__, f.__defaults__ = two, (2,)
        for call in (f, jitted, f):
            assert under_hook(lambda: call(X), 2).equal(X * 2 + 1)  # noqa: B023
        f.__code__ = three.replace(co_name="f")
        for call in (jitted, f, jitted):
            first, second = under_hook(lambda: call(X, 1, X), 2)  # noqa: B023
            assert first.equal(X - 1) and second is X


def test_code_objects_are_exchanged() -> None:
    def double(x):
        return x * 2

    def triple(x):
        return x * 3

    jitted = [trident.jit(double), trident.jit(triple)]
    under_hook(lambda: (double(X), triple(X)), 3)
    double.__code__, triple.__code__ = triple.__code__, double.__code__
    for _ in range(4):
        assert jitted[0](X).equal(X * 3) and jitted[1](X).equal(X * 2)
        with trident.frame_hook():
            assert double(X).equal(X * 3) and triple(X).equal(X * 2)


def test_an_entry_of_the_hooks_is_not_another_codes() -> None:
    """A function that is captured and then gets another code: what lies at the old code's address later is not its entry's."""
    def f(x):
        return x

    for n in range(50):
        namespace: dict[str, Any] = {"__name__": __name__}
        exec(f"def f{n}(x):\n    return x + {n}\n", namespace)
        g = namespace[f"f{n}"]
        with trident.frame_hook():
            g(3)
        assert trident.explain(g).function == f"f{n}"
        g.__code__ = f.__code__
        del namespace, g


# --------------------------------------------------------------------------------------------------------------------------- lifetime


def test_the_callable_goes_and_the_hook_stays() -> None:
    f = fresh()
    with trident.frame_hook():
        f(X), f(X)
        jitted = trident.jit(f)
        assert f(X).equal(X * 2 + 1) and counts(f) == (2, 1, 1)
        entry = weakref.ref(entry_of(jitted))
        del jitted
        gc.collect()
        assert entry() is None, "an entry that a callable has goes with it"
        for _ in range(3):
            assert f(X).equal(X * 2 + 1)
        assert counts(f) == (2, 1, 1)
        jitted = trident.jit(f)
        assert f(X).equal(X * 2 + 1) and counts(jitted) == (3, 1, 1)


def test_the_hook_goes_and_the_callable_stays() -> None:
    f = fresh()
    with trident.frame_hook():
        f(X), f(X)
        jitted = trident.jit(f)
    trident.api._hook().forget()
    assert jitted(X).equal(X * 2 + 1) and counts(jitted) == (2, 1, 1)
    code = weakref.ref(f.__code__)
    with trident.frame_hook():
        assert f(X).equal(X * 2 + 1) and counts(jitted) == (3, 1, 1)
    entry = weakref.ref(entry_of(jitted))
    del f, jitted
    gc.collect()
    assert entry() is None and code() is None, "the hook keeps nothing of what a callable has had"


@pytest.mark.parametrize("leave", [False, True])
def test_the_callable_goes_in_the_middle_of_a_hit(leave: bool) -> None:
    """The last reference goes while the hook is inside of native code; then comes an exit, or the end."""
    callables: list[Any] = []
    gone: list[bool] = []

    def drop(x):
        if callables and x.shape[0] == 3:
            entry = weakref.ref(entry_of(callables.pop()))
            gc.collect()
            gone.append(entry() is None)

    foreign = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(drop)  # which recordings do not look into

    def f(x, flag):
        y = x * 2
        foreign(x)
        if flag["on"]:
            return y + 1
        return y - 1

    callables.append(trident.jit(f))
    with trident.frame_hook():
        for _ in range(3):
            assert f(X, {"on": True}).equal(X * 2 + 1)
        assert trident.explain(f).hits >= 1
        short = torch.ones(3)
        assert f(short, {"on": not leave}).equal(short * 2 + (-1 if leave else 1))
        assert gone and not callables
        gc.collect()
        for on in (True, False, True, False):
            assert f(X, {"on": on}).equal(X * 2 + (1 if on else -1))


def test_nothing_is_left_of_closures() -> None:
    """Made, decorated, called both ways under a hook, and dropped."""
    make = adders()
    kept: list[Any] = []
    for n in range(1000):
        f = make(float(n))
        kept.append(weakref.ref(f))
        with trident.frame_hook():
            f(3)
            jitted = trident.jit(f)
            kept.append(weakref.ref(entry_of(jitted)))
            if n % 200 == 0:
                assert f(X).equal(X + n) and jitted(X).equal(X + n) and counts(jitted)[:1] == (1,)
            f(3)
        del f, jitted
        if n % 250 == 249:
            gc.collect()
    gc.collect()
    assert sum(ref() is not None for ref in kept) == 0


def test_threads() -> None:
    """One thread decorates, calls and drops; others run the plain function under hooks."""
    f = fresh()
    wrong: list[Any] = []
    done = threading.Event()

    def captured(seed: int) -> None:
        x = torch.full((seed + 2,), float(seed))
        while not done.is_set():
            with trident.frame_hook():
                for n in (2, 3):
                    if not f(x, n).equal(x * n + 1):
                        wrong.append((seed, n))

    threads = [threading.Thread(target=captured, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(8):
            jitted = trident.jit(f)
            for n in (2, 3):
                if not jitted(X, n).equal(X * n + 1):
                    wrong.append(n)
            del jitted
            gc.collect()
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert not wrong


_FIRST_USE = """
import sys, threading, torch, trident
sys.setswitchinterval(1e-5)
x, start, results = torch.ones(2), threading.Barrier(4), []

def work(n):
    def f(x):
        return x + n
    start.wait()
    if n % 2:
        with trident.frame_hook():
            results.append(f(x).tolist() == [n + 1.0] * 2)
    results.append(trident.jit(f)(x).tolist() == [n + 1.0] * 2)

threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(results)
"""


def test_several_threads_are_the_first() -> None:
    done = subprocess.run([sys.executable, "-c", _FIRST_USE], capture_output=True, text=True, timeout=120, env=environment())
    assert done.stdout.split() == ["[True,", *["True,"] * 4, "True]"] and done.stderr == "", done.stderr
