"""When objects die that a trace holds: as in CPython, seen through weak references, finalizers and the garbage collector."""

from __future__ import annotations

import operator
import sys
import types
import weakref

import pytest
import torch

import trident
from trident import options
from trident.api import entry_of

pytestmark = pytest.mark.skipif(options.current().check > 1, reason="the shadow check keeps the objects of a recording alive")

LOG = []
X = torch.ones(3)


class Watched:
    """An object whose death is noted."""

    def __init__(self, name):
        self.name = name

    def __del__(self):
        LOG.append(f"{self.name} died")


def _make(name):
    LOG.append(f"make {name}")
    return Watched(name)


def make(name):
    return operator.call(_make, name)


def note(text):
    operator.call(LOG.append, text)


def _watch(tensor, name):
    weakref.finalize(tensor, LOG.append, f"{name} died").atexit = False
    return name


def watch(tensor, name):
    return operator.call(_watch, tensor, name)


def until_the_end(x):
    a = make("a")
    note(a.name)
    note("later")
    return x + 1


def order_at_the_end(x):
    b = make("b")
    a = make("a")
    note(a.name + b.name)
    return x + 1


def rebound(x):
    a = make("a")
    note("before")
    a = make("b")
    note("after")
    a = x
    note("last")
    return a + 1


def deleted(x):
    a = make("a")
    note("before")
    del a
    note("after")
    return x + 1


def discarded(x):
    make("a")
    note("after")
    return x + 1


def temporary(x):
    note(make("a").name)
    note("after")
    return x + 1


def callee(name):
    kept = make(name)
    note(f"in callee {kept.name}")
    note("callee ends")
    return 3


def end_of_a_callee(x):
    n = callee("a")
    note("back")
    return x * n


def passed_on(x):
    def inner(y):
        note("inner")
        return y

    a = make("a")
    b = inner(a)
    a = None
    note("still there")
    b = a
    note("gone")
    return x + (1 if b is None else 2)


def in_containers(x):
    pair = (make("a"), [make("b")])
    note("made")
    pair = pair[1]
    note("half")
    pair = None
    note("gone")
    return x + 1


def in_a_cell(x):
    a = make("a")

    def use():
        return a.name

    note(use())
    note("later")
    a = None
    note("gone")
    return x + 1


def tensors(x):
    y = x + 1
    watch(y, "y")
    z = y * 2
    note("used")
    y = None
    note("gone")
    watch(z, "z")
    z = z + 1
    note("again")
    return z


def iterators(x):
    total = 0
    for item in (make("a"), make("b"), make("c")):
        total += len(item.name)
        note(f"seen {item.name}")
        if item.name == "b":
            break
    note("after")
    return x * total


def loops_to_the_end(x):
    for item in [make("a"), make("b"), make("c")]:
        note(f"seen {item.name}")
    note("after")
    for n, item in enumerate((make("d"), make("e"))):
        note(f"seen {n} {item.name}")
    note("last")
    return x + 1


def exceptions(x):
    a = make("a")
    try:
        operator.call(operator.getitem, {}, "none")
    except KeyError as error:
        error.held = make("b")
        note("caught")
    note("after")
    return x * len(a.name)


def raised_through(x):
    def fails():
        b = make("b")
        note("fails")
        if b.name:
            raise KeyError

    try:
        fails()
    except KeyError:
        note("caught")
    note("after")
    return x + 1


def comprehension(x):
    names = [made.name for made in [make("a"), make("b")]]
    note("after")
    return x * len(names)


PROGRAMS = [until_the_end, order_at_the_end, rebound, deleted, discarded, temporary, end_of_a_callee, passed_on, in_containers, in_a_cell,
            tensors, iterators, loops_to_the_end, exceptions, raised_through,
            comprehension]


def log_of(function):
    LOG.clear()
    function(X)
    seen = LOG[:]
    LOG.clear()
    return seen


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_deaths(program) -> None:
    jitted = trident.jit(program)
    expected = log_of(program)
    recorded = log_of(jitted)
    for _ in range(3):
        assert log_of(jitted) == expected
    entry = entry_of(jitted)
    assert entry.cell.hits == 3 and not entry.aborts, [str(a) for a in entry.aborts]
    assert recorded == expected


def test_a_dead_local_survives_a_side_exit() -> None:
    def program(x, n):
        a = make("a")
        note(a.name)
        if n > 2:
            note("large")
        note("later")
        return x + 1

    jitted = trident.jit(program)
    for n in (1, 3, 1, 5, 7, 3):
        LOG.clear()
        program(X, n)
        expected = LOG[:]
        LOG.clear()
        jitted(X, n)
        assert LOG == expected, n


def test_the_argument_of_a_call_that_cpython_makes_dies_with_it() -> None:
    class Tool(Watched):
        def __call__(self, *event):
            pass

    def program(x):
        sys.setprofile(Tool("a"))
        note("installed")
        sys.setprofile(None)
        note("replaced")
        return x + 1

    expected = log_of(program)
    assert expected == ["installed", "a died", "replaced"]
    jitted = trident.jit(program)
    for _ in range(3):
        assert log_of(jitted) == expected


def test_a_bridge_lets_go_in_time() -> None:
    """What a bridge was given dies where the frame drops it, not at the end of the bridge."""
    def program(x, n):
        a = make("a")
        y = x + 1
        watch(y, "y")
        if operator.call(abs, n) > 2:
            note("large")
            a = None
            note(str(float(y.sum())))
            y = x
            note("later")
        return y + (1 if a is None else 2)

    jitted = trident.jit(program)
    for n in (1, 3, 3, 3, 1, 5):
        LOG.clear()
        program(X, n)
        expected = LOG[:]
        LOG.clear()
        jitted(X, n)
        assert LOG == expected, n
    assert len(entry_of(jitted).specializations) == 2 and entry_of(jitted).side_exits <= 2


class _Module(types.ModuleType):
    """Promoted to a constant where an attribute is read."""


def _given_up_at_a_frame_reader():
    made = _Module("m")
    made.x = X + 1
    gone = weakref.ref(made), weakref.ref(made.x)
    sys._getframe()
    del made
    return [ref() is None for ref in gone]


def _given_up_by_an_exception():
    made = _Module("m")
    made.x = X + 1
    gone = weakref.ref(made), weakref.ref(made.x)
    try:
        raise ValueError from KeyError
    except ValueError:
        pass
    del made
    return [ref() is None for ref in gone]


@pytest.mark.parametrize("fn", [_given_up_at_a_frame_reader, _given_up_by_an_exception])
def test_a_recording_that_is_given_up_holds_nothing(fn):
    assert fn() == [True, True]
    jitted = trident.jit(fn)
    for _ in range(3):
        assert jitted() == [True, True]
    assert entry_of(jitted).aborts


def test_functions_without_free_variables_have_no_closure():
    def f(x):
        def plain(y, *, z=1):
            return y

        def closed():
            return x

        return operator.call(lambda *made: [fn.__closure__ is None for fn in made], plain, lambda: 1, closed)

    jitted = trident.jit(f)
    for _ in range(3):
        assert jitted(2) == f(2) == [True, True, False]
    assert entry_of(jitted).cell.hits
