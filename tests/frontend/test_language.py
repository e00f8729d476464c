"""The recorder over the language: each small function is called plainly and through recorded traces, and must agree."""

# ruff: noqa: C400, C416, C417, UP028, UP031 (these functions are written the way programs are)

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import operator
from collections import OrderedDict, namedtuple
from contextlib import contextmanager
from typing import Any

import pytest
from driver import Driver, check

GLOBAL = 3
TABLE = {"a": 1, "b": 2}
ITEMS = [1, 2, 3]


def arithmetic(a, b):
    return a + b, a - b, a * b, a // b, a % b, a / b, a & b, a | b, a ^ b, -a, +a, ~a, a << 2, a >> 1, a**2


def floats(x, y):
    return x + y, x - y, x * y, x / y, x // y, x % y, -x, abs(y), x**2, x < y, x == y, x != y


def mixed(n, x):
    return n + x, x * n, n / 2, x > n, float(n), int(x), n < 2.5


def bools(a, b):
    return a and b, a or b, not a, a & b, a == b, a + b, int(a)


def overflow(a):
    return a * a * a


def branches(n):
    if n > 10:
        return "large"
    elif n > 5:
        return "medium"
    return "small"


def loop(n):
    total = 0
    for i in range(n):
        if i == 3:
            continue
        if i == 6:
            break
        total += i
    else:
        total = -total
    return total


def while_loop(n):
    steps = 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    return steps


def nested_loops(n):
    out = []
    for i in range(n):
        for j in range(i):
            out.append((i, j))
    return out


def chained(a, b, c):
    return a < b < c, a < b > c


def conditional(a):
    return 1 if a else 2


def is_none(a=None):
    return "none" if a is None else a


def stars(*args, **kwargs):
    return args, kwargs, len(args), sorted(kwargs)


def call_stars(a, b):
    return stars(a, *[b, 1], *(2, 3), x=a, **{"y": b})


def positional_only(a, b, /, c, *, d=4):
    return a, b, c, d


def call_positional_only(x):
    return positional_only(x, 2, c=3), positional_only(1, x, 3, d=x)


def defaults(a, b=2, *, c=GLOBAL):
    return a + b + c


def call_defaults(x):
    return defaults(x), defaults(x, 5), defaults(x, c=1), defaults(a=x, b=1)


def closure(x):
    def add(y):
        return x + y

    return add(1) + add(2)


def closure_nonlocal(x):
    count = 0

    def bump(n):
        nonlocal count
        count += n
        return count

    bump(x)
    bump(x)
    return count


def make_adder(n):
    def add(x, k=n):
        return x + n + k

    return add


def returns_closure(n, x):
    return make_adder(n)(x)


def lambdas(x):
    f = lambda a, b=x: a * b  # noqa: E731
    return f(2), f(2, 3), (lambda: x)()


def comprehension(n):
    return [i * i for i in range(n) if i % 2], {i: i + 1 for i in range(n)}, [(a, b) for a in range(2) for b in range(n)]


def set_comprehension(n):
    return sorted({i % 3 for i in range(n)})


def generator_expression(n):
    return sum(i * 2 for i in range(n)), list(i for i in range(n))


def unpacking(t):
    a, b = t
    (c, d), e = (b, a), 5
    first, *rest = [1, 2, a, b]
    *init, last = t
    return a, b, c, d, e, first, rest, init, last


def swap(a, b):
    a, b = b, a
    a, b, c = b, a, a
    return a, b, c


def lists(x):
    items = [1, x]
    items.append(3)
    items.extend([4, 5])
    items.insert(0, x)
    last = items.pop()
    items[1] = 10
    items += [7]
    return items, last, len(items), items[0], items[-1], items[1:3], x in items, items.index(10), items.copy(), items[::-1]


def dicts(x):
    d = {"a": x, "b": 2}
    d["c"] = 3
    d.update(e=5)
    got = d.get("a"), d.get("zz"), d.get("zz", 9), d.pop("b"), d.setdefault("q", 1)
    del d["c"]
    return d, got, len(d), "a" in d, "b" not in d, list(d.keys()), list(d.values()), list(d.items()), {**d, "z": x}


def tuples(x):
    t = (1, x, 3)
    return t[1], t + (x,), t * 2, len(t), t[0:2], x in t, t == (1, 2, 3), t.index(3), t.count(1)


def argument_list(items):
    total = 0
    for item in items:
        total += item
    return total, items[0], len(items)


def argument_tuple(t):
    a, b = t
    return a * b, t[0], len(t)


def argument_dict(d):
    return d["a"] + d.get("b", 0), "c" in d


def mutate_argument(items, d):
    items.append(1)
    items[0] = 5
    d["k"] = 2
    return items[0]


def strings(n, s):
    return f"{n} and {s!r} and {n:03d}", s + "x", s.upper(), "a" in s, s == "hello", "-".join([s, "b"]), "%d" % n


def walrus(n):
    if (m := n * 2) > 5:
        return m
    return -m


def deletion(x):
    y = x
    del y
    z = x
    return z


def unbound(x):
    if x:
        y = 1
    return y


def builtins_used(n, items):
    return (min(n, 3), max(n, 3), abs(-n), sum(items), len(items), any(items), all(items), divmod(n, 3), pow(n, 2), bool(n),
            list(zip(items, range(10))), list(enumerate(items, 1)), list(reversed(items)), isinstance(n, int), callable(len),
            tuple(items), round(2.5), math.sqrt(4.0), math.floor(n), min(items), max(1.5, n))


def zips(n):
    out = []
    for i, (a, b) in enumerate(zip(range(n), "abc")):
        out.append((i, a, b))
    return out


def isinstance_of(x):
    if isinstance(x, (int, float)):
        return "number"
    if isinstance(x, str):
        return "string"
    if isinstance(x, list | tuple):
        return "sequence"
    return type(x).__name__


def global_table(k):
    return TABLE["a"] + TABLE.get("b") + GLOBAL + ITEMS[0] + len(ITEMS), [v for v in ITEMS]


def operators_module(a, b):
    return operator.add(a, b), operator.lt(a, b), operator.itemgetter(1)((a, b)), functools.reduce(operator.mul, [a, b, 2])


def partials(x):
    f = functools.partial(defaults, x, c=10)
    return f(), f(b=1), f(2)


PARTIAL = functools.partial(defaults, 1, c=2)


def global_partial(x):
    return PARTIAL(x)


def imports(x):
    import math as m
    from os.path import join

    return m.floor(x + 0.5), join("a", "b")


def asserts(x):
    assert x > 0, "positive"
    return x


def raises(x):
    if x > 2:
        raise ValueError(f"too large: {x}")
    return x


def catches(x):
    try:
        if x > 2:
            raise ValueError("too large")
        y = x
    except ValueError as e:
        y = str(e)
    finally:
        z = 1
    return y, z


def divides(a, b):
    try:
        return a // b
    except ZeroDivisionError:
        return "zero"


def finally_returns(x):
    try:
        y = x + 1
    finally:
        y = x * 10
    return y


class Manager:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, *exc):
        self.log.append("exit")
        return False


def with_statement(x):
    log = []
    with Manager(log) as m, Manager(log):
        y = x + len(m.log)
    return y, log


@contextmanager
def managed(n):
    yield n + 1


def with_generator(x):
    with managed(x) as y:
        z = y * 2
    return z


class Point:
    kind = "point"

    def __init__(self, x, y=0):
        self.x, self.y = x, y

    def norm1(self):
        return abs(self.x) + abs(self.y)

    @property
    def double(self):
        return Point(self.x * 2, self.y * 2)

    @double.setter
    def double(self, value):
        self.x = value // 2

    @classmethod
    def origin(cls):
        return cls(0, 0)

    @staticmethod
    def unit(n):
        return n + 1

    def __add__(self, other):
        return Point(self.x + other.x, self.y + other.y)

    def __eq__(self, other):
        return self.x == other.x and self.y == other.y

    def __call__(self, n):
        return self.x + n

    def __getitem__(self, i):
        return (self.x, self.y)[i]

    def __len__(self):
        return 2

    def __bool__(self):
        return self.x != 0


class Point3(Point):
    kind = "point3"

    def __init__(self, x, y, z):
        super().__init__(x, y)
        self.z = z

    def norm1(self):
        return super().norm1() + abs(self.z)

    def __getattr__(self, name):
        if name == "w":
            return 42
        raise AttributeError(name)


def makes_points(x):
    p = Point(x, y=2)
    q = Point3(x, 2, 3)
    return p.x, p.norm1(), q.norm1(), q.w, p.kind, q.kind, p.double.x, Point.origin().x, Point.unit(x), p(3), p[1], len(p), bool(p)


def sets_attributes(x):
    p = Point(x)
    p.y = 7
    p.double = 8
    p.new = x
    del p.y
    return p.x, p.new, hasattr(p, "y"), getattr(p, "y", "gone"), p.__dict__ == {"x": p.x, "new": x}


def returns_object(x):
    p = Point(x, x)
    p.me = p
    return p.x


def returns_point(x):
    return Point(x, [x, Point(1)])


GLOBAL_POINT = Point(4, 5)


def global_point(n):
    return GLOBAL_POINT.x + n, GLOBAL_POINT.norm1(), GLOBAL_POINT[0], GLOBAL_POINT(n), GLOBAL_POINT.kind


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


SLOTTED = Slotted(1, 2)


def slots(n):
    s = Slotted(n, 2)
    return SLOTTED.a + n, s.a, s.b


@dataclasses.dataclass
class Config:
    width: int
    depth: int = 2
    names: list = dataclasses.field(default_factory=list)

    def area(self):
        return self.width * self.depth


def data_classes(n):
    c = Config(n)
    return c.area(), c.names, Config(1, depth=n).area(), c == Config(n), dataclasses.replace(c, depth=5).depth


Pair = namedtuple("Pair", "left right")


def named_tuples(n):
    p = Pair(n, right=2)
    return p.left, p[1], p, p._replace(left=3), p == (n, 2), [*p]


class Color(enum.Enum):
    RED = 1
    BLUE = 2


def enums(n):
    c = Color.RED if n > 2 else Color.BLUE
    return c.value, c is Color.RED, c.name, c == Color.BLUE


def ordered(n):
    d = OrderedDict()
    d["a"] = n
    return list(d.items())


def matches(x):
    match x:
        case 1:
            return "one"
        case (a, b):
            return a, b
        case {"k": v}:
            return v
        case str():
            return "string"
        case _:
            return "other"


def matches_classes(x):
    match x:
        case Point(x=0, y=0):
            return "origin"
        case Config(w, d) if w > 100:
            return w, d
        case int(n):
            return n + 1
        case [1, *rest]:
            return rest
        case {"a": 1, **rest}:
            return rest
    p = Config(5, 6)
    match p:
        case Config(a, depth=b):
            return a, b


def recursion(n):
    return 1 if n <= 1 else n * recursion(n - 1)


def generators(n):
    def count(k):
        for i in range(k):
            yield i

    total = 0
    for v in count(n):
        total += v
    return total, list(count(n)), next(count(1))


def maps(n):
    return list(map(lambda v: v + n, [1, 2])), sorted([3, 1, 2], key=lambda v: -v), list(filter(None, [0, n]))


def escape_list(n):
    items = [n]
    holder = {"items": items}
    copied = sorted(items)
    items.append(2)
    return items is holder["items"], copied, items, holder


def aliasing(n):
    a = [n]
    b = a
    b.append(1)
    c = (a, b)
    return a is b, c[0] is c[1], c


def identity(a, b):
    return a is b, a is not b, a is True, b is None


def shared_cell(n):
    items = []

    def push(v):
        items.append(v)
        return len(items)

    push(n)
    return push(n + 1), items


def global_write(n):
    global GLOBAL
    old = GLOBAL
    GLOBAL = n
    new = GLOBAL
    GLOBAL = old
    return old, new


def iterators(n):
    it = iter([1, 2, n])
    first = next(it)
    rest = list(it)
    return first, rest, next(iter([]), "end")


def ternaries(a, b):
    return (a or b) and (b or a), a if b else b, not (a and b)


def ellipsis_and_slices(n):
    s = slice(1, n)
    return list(range(10))[s], (1, 2, 3)[:n], "abcdef"[n:], s.start, ...


def nested_inline(n):
    def level1(a):
        def level2(b):
            return a + b + n

        return level2(a) * 2

    return level1(1) + level1(n)


def recursive_closure(n):
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    def even(k):
        return k == 0 or odd(k - 1)

    def odd(k):
        return k != 0 and even(k - 1)

    return fact(n), even(n), odd(n)


def escaping_recursive_closure(n):
    def walk(k):
        return [k, *(walk(k - 1) if k else [])]

    first = walk(n)
    print(end="")
    return first, walk(n), sorted([2, 1], key=lambda k: walk(k))


class Node:
    def __init__(self, value, parent=None):
        self.value, self.parent, self.children = value, parent, []
        if parent is not None:
            parent.children.append(self)


def cyclic_objects(n):
    root = Node(n)
    child = Node(n + 1, root)
    return child.parent is root, root.children[0] is child, root.children[0].value, len(root.children)


def cyclic_containers(n):
    items = [n]
    items.append(items)
    table = {"n": n}
    table["self"] = table
    return items[1] is items, table["self"]["n"], len(items)


def early_exit(n, flag):
    for i in range(n):
        if flag:
            return i
    return -1


def string_keys(key):
    return TABLE[key]


def list_of_lists(n):
    grid = [[0] * n for _ in range(n)]
    grid[0][n - 1] = 1
    return grid


def keyword_arguments(a, *args, **kwargs):
    return stars(a, *args, **kwargs), positional_only(1, 2, c=3, **{"d": kwargs.get("x")}), defaults(
        1, **{k: v for k, v in kwargs.items() if k == "b"})


def forwards(*args, **kwargs):
    return defaults(*args, **kwargs)


def forwards_unordered(**kwargs):
    return forwards_again(**kwargs)


def forwards_again(**kwargs):
    return list(kwargs.items())


CASES: list[tuple[Any, ...]] = [
    (arithmetic, (7, 3), (-7, 3), (100, 9)),
    (floats, (1.5, 2.0), (-3.25, 0.5)),
    (mixed, (3, 2.5), (7, 0.5)),
    (bools, (True, False), (True, True)),
    (overflow, (3,), (2**40,), (-(2**30),)),
    (branches, (11,), (7,), (1,), (12,)),
    (loop, (2,), (5,), (9,)),
    (while_loop, (6,), (7,)),
    (nested_loops, (3,)),
    (chained, (1, 2, 3), (3, 2, 1)),
    (conditional, (0,), (5,), ("",), ([],), ([1],)),
    (is_none, (), (1,)),
    (stars, (), (1, 2)),
    (call_stars, (1, 2)),
    (call_positional_only, (5,)),
    (call_defaults, (5,)),
    (closure, (1,)),
    (closure_nonlocal, (4,)),
    (returns_closure, (1, 2)),
    (lambdas, (4,)),
    (comprehension, (4,)),
    (set_comprehension, (5,)),
    (generator_expression, (4,)),
    (unpacking, ((1, 2),)),
    (swap, (1, 2)),
    (lists, (2,)),
    (dicts, (2,)),
    (tuples, (2,), (5,)),
    (argument_list, ([1, 2, 3],), ([4, 5, 6],), ([1],)),
    (argument_tuple, ((1, 2),)),
    (argument_dict, ({"a": 1, "b": 2},), ({"a": 1},)),
    (mutate_argument, ([9], {})),
    (strings, (3, "hello")),
    (walrus, (1,), (5,)),
    (deletion, (1,)),
    (builtins_used, (5, [1, 2, 3])),
    (zips, (3,)),
    (isinstance_of, (1,), (1.5,), ("s",), ([],), (None,)),
    (global_table, (1,)),
    (operators_module, (2, 3)),
    (partials, (1,)),
    (global_partial, (3,)),
    (imports, (2.25,)),
    (asserts, (1,)),
    (finally_returns, (2,)),
    (with_statement, (3,)),
    (with_generator, (3,)),
    (makes_points, (3,), (-2,)),
    (sets_attributes, (3,)),
    (returns_object, (3,)),
    (returns_point, (3,)),
    (global_point, (3,)),
    (slots, (3,)),
    (data_classes, (3,)),
    (named_tuples, (3,)),
    (enums, (3,), (1,)),
    (ordered, (1,)),
    (matches, (1,), ((1, 2),), ({"k": 5},), ("s",)),
    (matches_classes, (3,), (2.5,), ([1, 2, 3],), ("s",)),
    (recursion, (5,)),
    (generators, (3,)),
    (maps, (3,)),
    (escape_list, (3,)),
    (aliasing, (3,)),
    (identity, (True, None), (None, False)),
    (shared_cell, (3,)),
    (global_write, (9,)),
    (iterators, (3,)),
    (ternaries, (1, 0), (0, 2)),
    (ellipsis_and_slices, (3,)),
    (nested_inline, (3,)),
    (recursive_closure, (4,)),
    (escaping_recursive_closure, (3,)),
    (cyclic_objects, (3,)),
    (cyclic_containers, (3,)),
    (early_exit, (3, False), (3, True)),
    (string_keys, ("a",), ("b",)),
    (list_of_lists, (3,)),
]
RAISING: list[tuple[Any, ...]] = [
    (unbound, (1,), (0,)),
    (asserts, (1,), (-1,)),
    (raises, (1,), (3,)),
    (catches, (1,), (3,)),
    (divides, (4, 2), (1, 0)),
    (arithmetic, (7, 0)),
    (matches_classes, ({"a": 1, "b": 2},)),
    (argument_dict, ({},),),
    (argument_list, ([],),),
    (string_keys, ("zz",)),
    (unpacking, ((1,),)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0].__name__)
def test_recorded(case: tuple[Any, ...]) -> None:
    check(*case)


@pytest.mark.parametrize("case", RAISING, ids=lambda case: case[0].__name__)
def test_finished_by_cpython(case: tuple[Any, ...]) -> None:
    check(*case, recorded=False)


def test_keyword_arguments() -> None:
    check(keyword_arguments, (1,), (1, 2), x=5, b=7)
    check(keyword_arguments, (1,))
    check(forwards, (1,), b=2)
    check(forwards, (1,), c=2, b=3)


def test_order_of_keyword_arguments() -> None:
    driver = Driver(forwards_unordered)
    for _ in range(2):
        assert driver(a=1, b=2) == [("a", 1), ("b", 2)]
        assert driver(b=3, a=4) == [("b", 3), ("a", 4)]
    assert driver.hits == 2


def test_order_of_keyword_arguments_is_not_guarded_where_it_cannot_be_seen() -> None:
    driver = Driver(forwards)
    assert driver(1, b=2, c=3) == driver(1, c=3, b=2) == 6
    assert driver.hits == 1
