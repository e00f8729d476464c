"""Programs in which campaigns (see `campaign`) have found something, made smaller by hand: each four ways."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
import torch

import trident
from tests.conformance.harness import check_program

CASES: dict[str, str] = {}


def case(source: str) -> None:
    """A program; its name is what it says in its first line."""
    name, _, text = source.strip().partition("\n")
    CASES[name.strip("# ")] = text + "\n"


case("""
# unpacking what cannot be iterated over
def program(n, what):
    if n == 0:
        a, b = what
    elif n == 1:
        a, *b = what
    elif n == 2:
        a = [1, *what]
        b = 0
    else:
        a = {**what}
        b = 1
    return a, b

CALLS = [lambda: ((0, 5), {}), lambda: ((1, True), {}), lambda: ((2, 2.5), {})]
""")
case("""
# a mapping is needed, pairs are none
def program(n, what):
    return {"a": n, **what}

CALLS = [lambda: ((0, [("b", 2)]), {}), lambda: ((1, 5), {}), lambda: ((2, {"a": 3}), {})]
""")
case("""
# unpacking takes no more items than it must
def program(n, log):
    def items():
        for i in range(n):
            log.append(i)
            yield i

    it = items()
    try:
        a, b = it
    except ValueError as error:
        log.append(str(error))
        a = b = None
    return a, b, log, list(it)

CALLS = [lambda: ((2, []), {}), lambda: ((9, []), {}), lambda: ((1, []), {})]
""")
case("""
# an iterator over a dict that has ended is still there
import torch
def program(d, x):
    it = iter({"a": x, **d})
    for key in it:
        pass
    y = x + 1
    y.add_(len(key))
    return y, list(it)

CALLS = [lambda: ({"b": 2}, torch.ones(2)), lambda: ({}, torch.ones(2)), lambda: ({"b": 2}, torch.ones(3))]
CALLS = [lambda made=made: (made(), {}) for made in CALLS]
""")
case("""
# a cell that is empty when it escapes
def program(n, keep):
    def inner():
        return n

    del n
    keep.append(inner)
    return n

CALLS = [lambda: ((1, []), {}), lambda: ((2, []), {}), lambda: ((1, [3]), {})]
""")
case("""
# a model that has looked at the items of a generator does not take it
import torch
def program(x, seen):
    seen.append(x.shape)
    return sum(row for row in x), max((row * 2 for row in x), key=len), any(row > 1 for row in x)

CALLS = [lambda: ((torch.ones(3), []), {}), lambda: ((torch.zeros(2), []), {}), lambda: ((torch.ones(4), []), {})]
""")
case("""
# properties and __getattr__ around each other
class Base:
    def __init__(self, log):
        self.log = log

    @property
    def total(self):
        return self.missing + 1

    def __getattr__(self, name):
        self.log.append(name)
        raise AttributeError("no " + name)

class Child(Base):
    @property
    def total(self):
        return super().total * 2

def program(cls, log):
    made = (Base, Child)[cls](log)
    try:
        return made.total
    except AttributeError as error:
        return str(error), log, made.total

CALLS = [lambda: ((0, []), {}), lambda: ((1, []), {}), lambda: ((1, []), {})]
""")


case("""
# an empty tuple, repeated by what is no index
def program(n, *rest):
    try:
        return (rest * n) & 3
    except Exception as error:
        return repr(error)

CALLS = [lambda: ((-1,), {}), lambda: ((2**64,), {}), lambda: ((3,), {})]
""")

case("""
# the type of a number decides on that of the result
import torch
def program(x, n):
    return x ** -0.0, x ** 2.0, x.pow(0.0), x.add(1.0, alpha=1), x.sub(x, alpha=1.0) if n else x.clamp(0.0, 2.0), x * 1.0, x.fmod(2.0)

CALLS = [lambda: ((torch.empty(0, 3), 1), {}), lambda: ((torch.tensor([[1, 2], [-3, 4]]), 0), {}), lambda: ((torch.ones(3), 1), {})]
""")


case("""
# a list that becomes shorter, and longer again, while it is iterated over
import torch
def program(n, more):
    items = [1, 2, 3]
    taken = []
    for item in items:
        taken.append(item)
        if len(taken) > 8:
            break
        if item == 2:
            items.clear()
            if (more * 2).sum().item() > 5:
                taken.append("left")
            items.extend(range(n))
    return taken, items

CALLS = [lambda n=n, more=more: ((n, torch.full((2,), more)), {}) for n, more in
         ((1, 1), (2, 1), (3, 1), (3, 9), (3, 9), (3, 9), (0, 9), (4, 9))]
""")


case("""
# an item of a dict whose order is not known yet is deleted
def program(d, n):
    e = dict(d)
    f = {**e}
    del f['b']
    if n > 1:
        f['c'] = n
    return f, list(f), e

CALLS = [lambda: (({'a': 1, 'b': 2}, 1), {}), lambda: (({'b': 1, 'a': 2}, 1), {}), lambda: (({'a': 1, 'b': 2}, 2), {}),
         lambda: (({'a': 1}, 2), {})]
""")

case("""
# looking at objects and classes runs none of their code
import inspect
log = []
class Meta(type):
    @property
    def __dict__(self):
        log.append("dict")
    @property
    def __mro__(self):
        log.append("mro")
class Thing(metaclass=Meta):
    spam = 4
class Liar:
    spam = 5
    def __getattribute__(self, name):
        log.append(name)
        return int
def program(n):
    found = [inspect.getattr_static(Thing, "spam"), inspect.getattr_static(Thing(), "spam"), inspect.getattr_static(Liar(), "spam")]
    if n > 1:
        found += [type(Thing.spam), super(Thing, Thing).__init__ is not None, repr(type(Liar())), callable(Liar()), n in (Liar(), n)]
    return found, list(log)

CALLS = [lambda: ((1,), {}), lambda: ((2,), {}), lambda: ((3,), {})]
""")


@pytest.mark.parametrize("name", CASES)
def test_found(name: str) -> None:
    assert not check_program(CASES[name]).fault


def test_the_thread_keeps_its_warning_handler() -> None:
    """An operator in a native loop set the handler of C++ warnings anew in each iteration, and left a dangling one behind."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    handler = library._ZN3c1012WarningUtils19get_warning_handlerEv
    handler.restype = ctypes.c_void_p

    def program(x, n):
        i = 0
        while i < n:
            x = x + 1
            i += 1
        return x

    jitted, before = trident.jit(program), handler()
    for n in (3, 5, 9, 4, 20, 30, 7):
        assert torch.equal(jitted(torch.ones(2), n), torch.ones(2) + n)
        assert handler() == before
