"""Special methods that return what CPython refuses or converts: every protocol that recorded code may follow into them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

import trident
from trident.api import entry_of


def for_loop(o: Any) -> Any:
    return [(item,) for item in o]


def made_iterator(o: Any) -> Any:
    return type(iter(o)).__name__


def starred(o: Any) -> Any:
    return [*o]


def unpacked(o: Any) -> Any:
    first, = o
    return first


def zipped(o: Any) -> Any:
    return list(zip(o, [1, 2], strict=False))


def through_yield(o: Any) -> Any:
    def generator() -> Any:
        yield from o

    return list(generator())


def branch(o: Any) -> Any:
    return 1 if o else 2


def while_true(o: Any) -> Any:
    n = 0
    while o:
        n += 1
        if n > 2:
            break
    return n


def short_circuit(o: Any) -> Any:
    return (o and 3) == 3, (o or 4) == 4


def negated(o: Any) -> Any:
    return not o


def matched(o: Any) -> Any:
    match o:
        case [a, _]:
            return a
        case _:
            return 3


def contained(o: Any) -> Any:
    return 3 in o, 3 not in o


def entered(o: Any) -> Any:
    with o as it:
        return type(it).__name__


def formatted(o: Any) -> Any:
    return f"{o}", f"{o!r}"


def called(o: Any) -> Any:
    return type(o()).__name__


PROTOCOLS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "__iter__": (for_loop, made_iterator, starred, unpacked, zipped, through_yield, list, sum, contained),
    "__bool__": (branch, while_true, short_circuit, negated, bool),
    "__len__": (branch, negated, len, matched, bool),
    "__index__": (range, operator.index, int, [1, 2, 3].__getitem__),
    "__hash__": (hash, lambda o: {o: 1}[o]),
    "__repr__": (formatted, repr),
    "__format__": (formatted,),
    "__float__": (float,),
    "__contains__": (contained,),
    "__next__": (next,),
    "__length_hint__": (operator.length_hint,),
    "__eq__": (lambda o: o == 3, lambda o: 3 in [o]),
    "__lt__": (lambda o: o < 3, lambda o: 1 > o < 3, lambda o: max(o, o) is o),
    "__add__": (lambda o: o + 3,),
    "__radd__": (lambda o: 3 + o,),
    "__call__": (called,),
    "__getattr__": (lambda o: o.missing,),
    "__init__": (lambda o: type(type(o)()).__name__,),
}
PATTERN = re.compile("ab")
RESULTS = (None, 1, -1, True, 1.5, "a", [], 1 << 70, NotImplemented, "itself")


def outcome(function: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    try:
        result = function(*args)
    except Exception as error:
        return type(error), str(error)
    plain = isinstance(result, (int, float, str, tuple, list, type(None))) and "object at" not in repr(result)
    return type(result), result if plain else None


def cases() -> Any:
    for name, users in PROTOCOLS.items():
        for n, user in enumerate(users):
            yield pytest.param(name, user, id=f"{name.strip('_')}-{n}")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("how", ["constant", "made", "run-time"])
@pytest.mark.parametrize(("name", "user"), list(cases()))
def test_result(name: str, user: Any, how: str) -> None:
    """The object is a constant of the trace, made by the trace, or an argument that is another one at each call."""
    for result in RESULTS:
        method = (lambda self, *args: self) if result == "itself" else (lambda self, *args, result=result: result)
        made = type("Made", (), {name: method})
        own = object.__new__(made)
        if how == "made":
            if name == "__init__":
                continue
            function = lambda cls, user=user: user(cls())  # noqa: E731
            arguments: list[Any] = [made] * 4
        else:
            function = FunctionType(user.__code__, globals()) if isinstance(user, FunctionType) else (lambda o, user=user: user(o))
            arguments = [own] * 4 if how == "constant" else [object.__new__(made) for _ in range(6)]
        expected = [outcome(function, argument) for argument in arguments]
        jitted = trident.jit(function)
        assert [outcome(jitted, argument) for argument in arguments] == expected, result


def test_exit_within_an_iter_that_returns_no_iterator() -> None:
    """CPython goes on in the middle of `__iter__`, and then what comes of it is no iterator."""

    class Source:
        def __init__(self, n: int) -> None:
            self.n = n

        def __iter__(self) -> Any:
            if self.n > 100:
                return [self.n]
            return iter((self.n,))

    def function(n: int) -> Any:
        return [item + 1 for item in Source(n)]

    jitted = trident.jit(function)
    for n in (1, 2, 3, 101, 4, 102, 103, 104, 5):
        assert outcome(jitted, n) == outcome(function, n)
    assert entry_of(jitted).cell.hits >= 3


def methods_of(o: Any) -> Any:
    equal, made = o.__eq__, [o.__hash__, o.__repr__]
    return equal(o), equal(3), made[0]() == hash(o), made[1](), type(equal).__name__, made, getattr(o, "__bool__", bool)()


def length_of_argument(o: Any, n: int) -> Any:
    o.n = n
    return len(o), bool(o), 1 if o else 2


@pytest.mark.parametrize("value", [None, True, 3, "text"])
def test_methods_in_c_are_bound_to_their_owner(value: object) -> None:
    jitted = trident.jit(methods_of)
    expected = methods_of(value)
    for _ in range(4):
        seen = jitted(value)
        assert seen[:5] == expected[:5] and seen[6:] == expected[6:]
        assert [method.__self__ for method in seen[5]] == [value] * 2
    assert entry_of(jitted).cell.hits == 3


def test_a_run_time_length() -> None:
    class Sized:
        n: Any = 0

        def __len__(self) -> Any:
            return self.n

    jitted = trident.jit(length_of_argument)
    for n in (1, 2, 3, 0, 5, -1, 7, True, 1 << 62, 1 << 63, 1 << 70, 1.5, None, 4):
        assert outcome(jitted, Sized(), n) == outcome(length_of_argument, Sized(), n), n
    assert entry_of(jitted).cell.hits >= 2


def test_methods_in_c_that_need_their_class() -> None:
    """Such a method (METH_METHOD) crashes CPython where it is bound without a class."""

    def function(text: str) -> Any:
        match = PATTERN.match
        return match, [PATTERN.search], match(text)

    jitted = trident.jit(function)
    for n in range(4):
        match, (search,), found = jitted("ab" + str(n))
        assert match("ab").span() == search("ab").span() == found.span() == (0, 2) and match.__self__ is PATTERN
    assert entry_of(jitted).cell.hits == 3


class Counted:
    """An index that counts how often it is asked; `what` may be no int."""

    def __init__(self, what: Any) -> None:
        self.what, self.asked = what, 0

    def __index__(self) -> Any:
        self.asked += 1
        return self.what


@pytest.mark.parametrize("what", [1, -1, "x", 1 << 70])
@pytest.mark.parametrize("sequence", [(1, 2, 3), [1, 2, 3], "abc", range(4)])
def test_the_parts_of_a_slice_are_asked_as_often_as_by_cpython(sequence: Any, what: Any) -> None:
    def function(sequence: Any, index: Any) -> Any:
        return sequence[index:], sequence[:index], sequence[index:index]

    jitted = trident.jit(function)
    for _ in range(3):
        ours, theirs = Counted(what), Counted(what)
        assert outcome(jitted, sequence, ours) == outcome(function, sequence, theirs)
        assert ours.asked == theirs.asked
    assert not [abort for abort in entry_of(jitted).aborts if abort.reason == "internal"]


def test_a_set_that_changes_while_it_is_iterated_over() -> None:
    def function(x: int) -> Any:
        made, seen = {1, 2, x}, []
        try:
            for item in made:
                seen.append(item)
                made.update([x + 1])
        except RuntimeError as error:
            return str(error), seen
        return made, seen

    jitted = trident.jit(function)
    for x in (3, 4, 5, 3):
        assert jitted(x) == function(x)
    assert not [abort for abort in entry_of(jitted).aborts if abort.reason == "internal"]
