"""What programs take for granted: classes, context managers, helper functions, global variables. A program carries those it uses.

Each item is a piece of source; it may need others (found by name). The holes are filled with drawn numbers, so that the same
class behaves differently in different programs.
"""

from __future__ import annotations

import re

IMPORTS = "import contextlib\nimport functools\nimport math\nimport operator\nimport torch\n"

ITEMS: dict[str, str] = {
    "G1": "G1 = {0}",
    "G2": "G2 = [{0}, {1}]",
    "G3": "G3 = {{'a': {0}, 'b': {1}}}",
    "G4": "G4 = 'g{0}'",
    "G5": "G5 = torch.arange(3.0) - {0}",
    "Err": '''
class Err(Exception):
    def __init__(self, code=0, *rest):
        super().__init__(code, *rest)
        self.code = code
''',
    "Sub": '''
class Sub(Err, LookupError):
    pass
''',
    "Point": '''
class Point:
    count = {0}

    def __init__(self, a, b={1}):
        self.a = a
        self.b = b

    @property
    def total(self):
        if self.a == {0}:
            raise Err(self.a)
        return self.a + self.b

    @total.setter
    def total(self, value):
        self.b = value - self.a

    def __getattr__(self, name):
        if name == "ghost":
            return {1}
        raise AttributeError("no " + name)

    def __add__(self, other):
        if isinstance(other, Point):
            return Point(self.a + other.a, self.b + other.b)
        if isinstance(other, int):
            return Point(self.a + other, self.b)
        return NotImplemented

    def __radd__(self, other):
        return Point(other + self.a, self.b)

    def __iadd__(self, other):
        self.a += other if isinstance(other, int) else 1
        return self

    def __eq__(self, other):
        return isinstance(other, Point) and (self.a, self.b) == (other.a, other.b)

    def __lt__(self, other):
        return self.a < (other.a if isinstance(other, Point) else other)

    def __neg__(self):
        return Point(-self.a, -self.b)

    def __bool__(self):
        return self.a != {1}

    def __len__(self):
        return self.a & 3

    def __getitem__(self, key):
        if isinstance(key, slice):
            return (key.start, key.stop)
        if key > 2:
            raise IndexError(key)
        return self.a * key + self.b

    def __setitem__(self, key, value):
        self.b = self.b + key + value

    def __delitem__(self, key):
        self.a = key

    def __contains__(self, item):
        return item == self.a or item == self.b

    def __iter__(self):
        yield self.a
        yield self.b

    def __call__(self, x, *, k=1):
        return self.a + x * k

    def __repr__(self):
        return f"Point({{self.a!r}}, {{self.b!r}})"

    def __format__(self, spec):
        return f"<{{self.a}}:{{spec}}>"

    def method(self, x, y=2):
        self.a = self.a + x if x < {1} else self.a - y
        return self.a

    @staticmethod
    def fixed(x):
        return x * 2

    @classmethod
    def make(cls, x):
        cls.count += 1
        return cls(x, cls.count)
''',
    "Child": '''
class Child(Point):
    extra = Noted()

    def method(self, x, y=2):
        return super().method(x, y) + {0}

    @property
    def total(self):
        return super().total * 2
''',
    "Noted": '''
class Noted:
    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, cls=None):
        if obj is None:
            return self
        return obj.__dict__.get(self.name, {0})

    def __set__(self, obj, value):
        if value == {1}:
            raise ValueError("not", value)
        obj.__dict__[self.name] = value
''',
    "Manager": '''
class Manager:
    def __init__(self, log, swallow=()):
        self.log = log
        self.swallow = swallow

    def __enter__(self):
        self.log.append({0})
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(0 if kind is None else len(error.args))
        return kind is not None and issubclass(kind, self.swallow)
''',
    "manager": '''
@contextlib.contextmanager
def manager(log, again=True):
    log.append({0})
    try:
        yield len(log)
    except ValueError:
        log.append(-{1})
        if again:
            raise
    finally:
        log.append({1})
''',
    "helper": '''
def helper(a, b={0}, *rest, k=1, **more):
    if a == {1} + 3:
        raise ValueError("helper", a)
    return a + b * k + len(rest) - len(more)
''',
    "down": '''
def down(n, acc=0):
    if n <= 0 or n > 9:
        return acc
    return down(n - 1, acc + n * {0})
''',
    "checked": '''
def checked(x, limit={0}):
    try:
        if x > limit:
            raise Err(x)
        return x + 1
    except LookupError:
        return -1
    finally:
        G2.append(limit) if len(G2) < 5 else G2.clear()
''',
    "counting": '''
def counting(n):
    for i in range(n):
        if i == {1}:
            raise KeyError(i)
        yield i * {0}
''',
    "gate": '''
def gate(t, n):
    if t.sum() > n:
        return t * {0}
    return t - {1}
''',
    "bump": '''
def bump(by=1):
    global G1
    G1 = G1 + by
    return G1
''',
}


def needed(names: set[str]) -> list[str]:
    """These items and those that they mention, in an order in which they can be executed."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        for other in ITEMS:
            if other != name and re.search(rf"\b{other}\b", ITEMS[name]):
                visit(other)
        order.append(name)

    for name in ITEMS:
        if name in names:
            visit(name)
    return order
