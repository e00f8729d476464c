"""One program for each entry of the list of what recorded Python may contain; `order` programs log what is evaluated when.

Owns the programs and the list. Each takes a tensor and an int and returns what can be compared.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import itertools
import operator
import typing
from collections.abc import Callable, Iterator
from typing import Any

import torch

LOG: list[Any] = []
PROGRAMS: dict[str, Callable[[torch.Tensor, int], Any]] = {}
COUNTER = 0


def program(entry: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def keep(function: Callable[..., Any]) -> Callable[..., Any]:
        assert entry not in PROGRAMS
        PROGRAMS[entry] = function
        return function

    return keep


def log(value: Any) -> Any:
    LOG.append(value)
    return value


# ------------------------------------------------------------------------------------------------------------- control
@program("for")
def loops(x, n):
    total, seen = x, []
    for i in range(n):
        if i == 1:
            continue
        total = total + i
        for letter in "ab":
            seen.append((i, letter))
        if i > 4:
            break
    else:
        seen.append("else")
    return total, seen


def _inner(x, n):
    for i in range(n):
        received = yield x + i
        if received:
            return received * 2
    return n


def _outer(x, n):
    result = yield from _inner(x, n)
    yield result
    yield from (x, n)


@program("yield from inside a callee")
def delegates(x, n):
    generator = _outer(x, n)
    first = next(generator)
    return first, generator.send(n), list(generator), list(_outer(x, n))


@program("sum(x for …)")
def sums(x, n):
    return sum(x + i for i in range(n)), sum(i * n for i in range(5) if i % 2), max(len(str(i)) for i in range(n + 1))


@contextlib.contextmanager
def _managed(name: str) -> Iterator[str]:
    log(f"enter {name}")
    try:
        yield name
    except ValueError as error:
        log(str(error))
    finally:
        log(f"exit {name}")


@program("contextmanager")
def contexts(x, n):
    with _managed("a") as a, _managed("b") as b:
        x = x + len(a + b)
    with _managed("c"):
        raise ValueError(f"of {n}")
    with contextlib.suppress(KeyError), contextlib.nullcontext(n) as m:
        x = x * m
        raise KeyError(n)
    return x


@program("exception groups")
def groups(x, n):
    try:
        raise ExceptionGroup("all", [ValueError(n), TypeError("t"), ExceptionGroup("in", [ValueError("v")])])
    except* ValueError as some:
        first = [type(e).__name__ for e in some.exceptions]
    except* TypeError as some:
        first = [str(e) for e in some.exceptions]
    return x + 1, first


@dataclasses.dataclass
class Point:
    a: Any
    b: int = 2
    tags: list[str] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.tags.append(f"b{self.b}")

    @property
    def total(self) -> Any:
        return self.a + self.b


@program("match")
def matches(x, n):
    found = []
    for subject in (n, [n, 2, 3], {"k": n, "other": 1}, Point(x, n), (1, "s"), None, "text"):
        match subject:
            case int() as number if number > 2:
                found.append(("int", number))
            case [first, *rest]:
                found.append(("sequence", first, rest))
            case {"k": value, **others}:
                found.append(("mapping", value, others))
            case Point(b=b):
                found.append(("point", b))
            case None | "text":
                found.append("or")
            case _:
                found.append("else")
    return x * n, found


# ------------------------------------------------------------------------------------------------------------- calls
def _everything(a, /, b, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, sorted(kwargs.items())


@program("star-args, kw-only, pos-only, defaults")
def calls(x, n):
    values, names = (x, n), {"d": n, "f": 6}
    return _everything(*values, **names), _everything(x, b=n, d=1), _everything(*values, 9, 8, *[7], d=0, e=n, a=1)


@program("closures with nonlocal")
def closures(x, n):
    count = n

    def bump(by=2):
        nonlocal count
        count += by
        return lambda y: y + count

    add = bump()
    first = add(x)
    bump(by=n)
    return first, add(x), count


@program("class bodies")
def class_bodies(x, n):
    class Local:
        base = n
        names = [name.upper() for name in ("p", "q")]
        if n > 2:
            extra = base * 2
        else:
            extra = base

        def get(self):
            return x + self.extra

    return Local().get(), Local.names, Local.base, Local.__qualname__.rpartition(".")[2]


class Logged:
    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else log(obj.__dict__.get(self.name, f"no {self.name}"))

    def __set__(self, obj: Any, value: Any) -> None:
        obj.__dict__[self.name] = log(value)

    def __delete__(self, obj: Any) -> None:
        del obj.__dict__[log(self.name)]


class Described:
    field = Logged()


@program("descriptors")
def descriptors(x, n):
    thing = Described()
    before = thing.field
    thing.field = n
    after = thing.field
    del thing.field
    return x + n, before, after, thing.field, Described.field.name


class Square:
    def __init__(self, side: Any) -> None:
        self._side = side

    @property
    def side(self) -> Any:
        return self._side

    @side.setter
    def side(self, value: Any) -> None:
        log(("set", value))
        self._side = value

    @side.deleter
    def side(self) -> None:
        self._side = None

    @classmethod
    def unit(cls) -> Square:
        return cls(1)

    @staticmethod
    def area(side: Any) -> Any:
        return side * side


@program("properties")
def properties(x, n):
    square = Square(x)
    square.side = n
    first = Square.area(square.side)
    del square.side
    return first, square.side, Square.unit().side


class Base:
    def __init__(self, value: Any) -> None:
        self.value = value

    def who(self) -> list[str]:
        return ["base"]

    @classmethod
    def make(cls, value: Any) -> Base:
        return cls(value)


class Left(Base):
    def who(self) -> list[str]:
        return ["left", *super().who()]


class Right(Base):
    def who(self) -> list[str]:
        return ["right", *super(Right, self).who()]  # noqa: UP008


class Both(Left, Right):
    def __init__(self, value: Any) -> None:
        super().__init__(value + 1)

    def who(self) -> list[str]:
        return ["both", *super().who()]

    @classmethod
    def make(cls, value: Any) -> Base:
        return super().make(value)


@program("super()")
def supers(x, n):
    return Both.make(x).value, Both(n).who(), Left(n).who()


class Meta(type):
    def __call__(cls, *args: Any) -> Any:
        made = super().__call__(*args)
        made.made_by = cls.__name__
        return made

    def __getitem__(cls, item: Any) -> Any:
        return cls.__name__, item


class Made(metaclass=Meta):
    def __init__(self, value: Any) -> None:
        self.value = value


@program("metaclasses")
def metaclasses(x, n):
    made = Made(x * n)
    return made.value, made.made_by, Made[n], type(Made) is Meta


@program("comprehensions")
def comprehensions(x, n):
    square = [[i * j for j in range(i)] for i in range(n) if i != 2]
    return [x + i for i in range(3)], square, {i % 3 for i in range(n)}, {str(i): i for i in range(n)}, list(i for i in range(n))  # noqa: C400


@program("f-strings")
def f_strings(x, n):
    return x + 1, f"{n} {n!r:>5} {n:03d} {n / 3:.{n}f} {'q' + 'r'!s} {{}} {n=}"


@program("walrus")
def walrus(x, n):
    found = [y for i in range(n) if (y := i * n) > 3]
    while (n := n - 1) > 0:
        x = x + n
    return x, n, found, y


@program("del")
def deletes(x, n):
    y, items, table = x + 1, list(range(n)), {"a": 1, n: 2}
    del items[0], items[1:2], table[n]
    z = y * 2
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError as error:
        return z, items, table, str(error)


@program("globals writes")
def global_writes(x, n):
    global COUNTER
    COUNTER = n
    COUNTER += 2
    return x + COUNTER, COUNTER


@program("imports inside functions")
def imports(x, n):
    import collections.abc
    import math as m
    from os import path
    from os.path import join as glue

    return x * m.floor(2.5), path.basename("a/b"), glue("a", str(n)), collections.abc.Sized.__name__


# ------------------------------------------------------------------------------------------------------------- libraries
def _wrapped(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        log(("call", function.__name__))
        return function(*args, **kwargs)

    return wrapper


@_wrapped
def _scaled(x, by=2):
    """Doc."""
    return x * by


@functools.lru_cache(maxsize=8)
def _cached(n):
    return log(n) * 3


class Lazy:
    def __init__(self, n: int) -> None:
        self.n = n

    @functools.cached_property
    def value(self) -> int:
        return log(self.n) + 1


@functools.singledispatch
def _kind(value: Any) -> str:
    return "object"


@_kind.register
def _(value: int) -> str:
    return "int"


@program("functools")
def functools_(x, n):
    double = functools.partial(_scaled, by=n)
    _cached.cache_clear()
    lazy = Lazy(n)
    return (double(x), _scaled(x), _scaled.__name__, _scaled.__doc__, _cached(n), _cached(n), _cached.cache_info(), lazy.value, lazy.value,
            vars(lazy), functools.reduce(lambda a, b: a * 2 + b, range(n), 1), _kind(n), _kind("s"),
            sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)))


@program("dataclasses")
def data_classes(x, n):
    point, other = Point(x, n), Point(x, b=n + 1)
    changed = dataclasses.replace(other, b=7, tags=[])
    return point.total, point.tags, other.b, changed.b, Point(1, n) == Point(1, n), repr(Point(1)), len(dataclasses.fields(point))


class Pair(typing.NamedTuple):
    first: Any
    second: int = 4

    @property
    def total(self) -> Any:
        return self.first + self.second


@program("named tuples")
def named_tuples(x, n):
    pair = Pair(x, n)
    first, second = pair
    return pair.total, first, second, pair._replace(second=9).second, Pair(1), Pair._fields, pair[1], Pair(n)._asdict()


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def label(self) -> str:
        return self.name.lower()


class Bits(enum.Flag):
    A = enum.auto()
    B = enum.auto()


@program("enums")
def enums(x, n):
    color = Color.RED if n > 2 else Color.BLUE
    return x + color.value, color.label, Color(2) is Color.BLUE, Color["RED"] is color, [c.name for c in Color], (Bits.A | Bits.B).value


@program("operator")
def operators(x, n):
    get, call = operator.itemgetter(1), operator.methodcaller("sum")
    return operator.add(x, n), get([1, x]), call(x), operator.attrgetter("shape")(x), operator.index(n), operator.concat([1], [n])


@program("itertools")
def itertools_(x, n):
    pairs = [(a + b) for a, b in zip(itertools.count(n), itertools.repeat(2, 3))]
    grouped = [(key, list(items)) for key, items in itertools.groupby([1, 1, 2, n])]
    return ([x + i for i in itertools.chain(range(2), [n])], pairs, list(itertools.islice(itertools.cycle("ab"), n)), grouped,
            list(itertools.product([1, n], "a")), list(itertools.accumulate(range(n))), list(itertools.pairwise([1, n, 3])))


# ------------------------------------------------------------------------------------------------------------- order
class Noisy:
    def __init__(self, name: str) -> None:
        self.name = name

    def __add__(self, other: Any) -> Noisy:
        return Noisy(log(f"{self.name}+{other.name}"))

    def __lt__(self, other: Any) -> bool:
        return bool(log(f"{self.name}<{other.name}"))

    def __getitem__(self, index: Any) -> Any:
        return log(f"{self.name}[{index}]")

    def __setitem__(self, index: Any, value: Any) -> None:
        log(f"{self.name}[{index}]={value}")

    def __bool__(self) -> bool:
        return bool(log(f"bool {self.name}"))


@program("evaluation order")
def order(x, n):
    a, b, c = Noisy("a"), Noisy("b"), Noisy("c")
    (log(a) + log(b) + c).name  # noqa: B018
    {log("k1"): log("v1"), log("k2"): log("v2")}
    _everything(log(1), *[log(2), log(3)], d=log(4), **{"g": log(5)}, h=log(6))
    log(a)[log("i")] = log("value")
    a[log("t1")], b[log("t2")] = log("first"), log("second")
    a < b < c  # noqa: B015
    (a and b) or c  # noqa: B018
    log("then") if log(n) > 100 else log("else")
    [log(i) for i in (log("source"),)]
    assert log(True), log("never")
    a[log("aug")] += log("x")
    f"{log('f1')}{log('f2')}"
    return x + 1


@program("identity")
def identity(x, n):
    y = x
    items = [x, n, None, items_of := (x, y)]
    z = x + 0
    return (y is x, items[0] is x, items_of[0] is items_of[1], z is x, z.view(z.shape) is z, x.T is x.T, items is items, list() is list(),  # noqa: C408
            Color.RED is Color(1), type(x) is torch.Tensor, x, items)
