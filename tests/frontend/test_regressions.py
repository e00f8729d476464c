"""Programs that once gave another result than CPython: each function is the smallest that did."""

from __future__ import annotations

import functools
import gc
import sys
import typing
import weakref
from typing import Any

import torch
from driver import Driver, check

import trident
import trident.api
from trident.api import entry_of
from trident.backend.native import points
from trident.frontend import analysis, calls

ONE = torch.ones(1)
HELD = {"a": 1}
NAN = float("nan")


class Base:
    def name(self) -> str:
        return "base"


class Other(Base):
    def name(self) -> str:
        return "other"


class Dynamic:
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> str:
        return f"dynamic {name}"


DYNAMIC = Dynamic()


def test_int_of_a_large_float() -> None:
    def f(a: float) -> int:
        return int(a)

    check(f, (1e20,), (2.5,), (-2.0**63,), (2.0**63,), (float("inf"),), (NAN,), recorded=False)


def test_min_of_a_float_and_a_large_int() -> None:
    def f(a: float, b: int) -> Any:
        return min(a, b), max(a, b)

    check(f, (0.0, 2**53 + 1), (0.0, 1), (2.0, 1), recorded=False)


def test_code_of_the_function_assigned() -> None:
    def f(x: Any) -> Any:
        return x + 1

    def g(x: Any) -> Any:
        return x - 1

    jitted = trident.jit(f)
    assert [float(jitted(ONE)) for _ in range(3)] == [2.0] * 3
    f.__code__ = g.__code__
    assert [float(jitted(ONE)) for _ in range(3)] == [0.0] * 3


def test_reversed_list_that_grows() -> None:
    def f(n: int) -> Any:
        items, seen = [1, 2, n], []
        for item in reversed(items):
            seen.append(item)
            if len(items) < 6:
                items.append(item * 10)
        return items, seen

    def escaping(n: int) -> Any:
        items = [1, n]
        backwards = reversed(items)
        items.append(9)
        return backwards

    check(f, (3,), (4,), recorded=False)
    driver = Driver(escaping)
    assert [list(driver(2)) for _ in range(3)] == [[2, 1]] * 3


def test_zip_takes_an_item_of_the_first() -> None:
    def f(n: int) -> Any:
        first, total = iter([n, 2, 3, 4, 5]), 0
        for a, _ in zip(first, [7], strict=False):
            total += a
        return total, next(first), sorted(first)

    check(f, (1,), (4,))


def test_dict_that_shrinks_while_it_is_iterated() -> None:
    def f(n: int) -> None:
        made = {"a": n, "b": 2}
        for key in made:
            del made[key]

    check(f, (1,), recorded=False)


def test_getattr_behind_getattribute() -> None:
    def f(n: int) -> Any:
        return DYNAMIC.absent, n + 1

    driver = check(f, (1,), (2,))
    assert all(outcome.abort is None for outcome in driver.outcomes)


def test_class_assigned() -> None:
    def f(n: int) -> Any:
        made = Base()
        made.__class__ = Other
        return type(made).__name__, isinstance(made, Other), made.name(), n

    def by_object(n: int) -> Any:
        made = Base()
        object.__setattr__(made, "__class__", Other)
        return type(made).__name__, isinstance(made, Other), made.name(), n

    check(f, (1,), recorded=False)
    check(by_object, (1,), recorded=False)


def test_argument_that_is_a_constant_dict() -> None:
    def f(given: dict[str, int]) -> Any:
        before = list(given)
        HELD["new"] = 1
        after, values = list(given), list(given.values())
        del HELD["new"]
        return before, after, values, len(given)

    jitted = trident.jit(f)
    for _ in range(3):
        assert jitted({"a": 1}) == f({"a": 1})
    for _ in range(3):
        assert jitted(HELD) == f(HELD) == (["a"], ["a", "new"], [1, 1], 1)


def test_bound_c_methods() -> None:
    def f(x: Any) -> Any:
        return [1].append, x.add

    jitted = trident.jit(f)
    for _ in range(3):
        assert [type(method) for method in jitted(ONE)] == [type(method) for method in f(ONE)]


def test_the_same_nan() -> None:
    def among(a: float, b: float) -> Any:
        return a in (b,)

    def equal(a: float, b: float) -> Any:
        return (a,) == (b,)

    def count(a: float, b: float) -> Any:
        return (a, b).count(a)

    for function in (among, equal, count):
        for first in ((1.0, 2.0), (1.0, 1.0), (NAN, NAN)):
            jitted = trident.jit(function)
            for args in (first, first, first, (NAN, NAN), (3.0, NAN), (NAN, 3.0), (NAN, NAN), (2.0, 2.0)):
                assert jitted(*args) == function(*args), (function, first, args)


def test_helper_that_reads_frames() -> None:
    def where() -> str:
        return sys._getframe(1).f_code.co_name

    def f(x: Any) -> Any:
        return where(), x + 1

    calls._avoided.clear()
    jitted = trident.jit(f)
    assert [jitted(ONE)[0] for _ in range(4)] == ["f"] * 4


def test_a_protocol_that_functools_may_ask() -> None:
    class Proto(typing.Protocol):
        def method(self) -> None: ...

    class Implementation(Proto):
        pass

    @functools.singledispatch
    def kind(x: object) -> str:
        return "object"

    kind.register(Proto)(lambda x: "protocol")

    def f(x: Any, o: Any) -> Any:
        return x + 1, kind(o)

    jitted = trident.jit(f)
    for _ in range(4):
        kind._clear_cache()  # type: ignore[attr-defined]
        assert [jitted(ONE, o)[1] for o in (Implementation(), 3, "s")] == ["protocol", "object", "object"]


def test_code_objects_are_given_back() -> None:
    """What is known of a code object goes with it: 1,000 functions that were made at run time, recorded or given up, leave nothing."""
    gc.collect()
    sizes = len(analysis._analyses), len(calls._avoided), len(points._tables)
    refs = []
    for n in range(1000):
        space: dict[str, Any] = {}
        exec(f"def f(x, y={n}):\n    return [x + y, {n}]", space)
        code = space.pop("f").__code__
        assert analysis.analyse(code).code is code is analysis.analyse(code).code
        assert points.table(code)
        calls.avoid(code, "a test")
        refs.append(weakref.ref(code))
    del code, space
    gc.collect()
    assert not any(ref() for ref in refs)
    assert (len(analysis._analyses), len(calls._avoided), len(points._tables)) == sizes


def test_a_jitted_function_that_was_made_at_run_time_is_given_back() -> None:
    refs = []
    for n in range(3):
        space: dict[str, Any] = {}
        exec(f"def g(x):\n    return x * {n}\ndef f(x):\n    return g(x) + {n}", space)
        jitted = trident.jit(space["f"])
        for _ in range(3):
            assert jitted(3) == 4 * n
        assert entry_of(jitted).cell.hits == 2
        refs += [weakref.ref(space[name].__code__) for name in "fg"]
        del jitted, space
    gc.collect()
    assert not any(ref() for ref in refs)


class Getter:
    def __get__(self, owner: Any, cls: Any = None) -> Any:
        return lambda name: (type(owner).__name__, name)


class Bound:
    __getattr__ = Getter()  # no function: it is bound as any descriptor


class Meta(type):
    __getattr__ = Getter()


class OfMeta(metaclass=Meta):
    pass


def test_a_getattr_that_is_no_function_is_bound() -> None:
    def f(x: Any, o: Any) -> Any:
        return x + 1, o.anything, OfMeta.other, Bound().third

    jitted = trident.jit(f)
    thing = Bound()
    for _ in range(4):
        assert jitted(ONE, thing)[1:] == (("Bound", "anything"), ("Meta", "other"), ("Bound", "third"))


def test_a_cell_that_foreign_code_has_emptied() -> None:
    def f(x: Any) -> Any:
        held = 3

        def inner() -> Any:
            return held

        inner.__closure__[0].cell_contents = 9  # type: ignore[index]
        first = inner(), held
        del inner.__closure__[0].cell_contents  # type: ignore[index]
        try:
            inner()
        except NameError as error:
            return x + 1, first, str(error)

    check(f, (ONE,), recorded=False)


class Removed:
    @property
    def side(self) -> int:
        return 1

    @side.deleter
    def side(self) -> None:
        HELD["removed"] = HELD.get("removed", 0) + 1


def test_del_of_a_property_of_a_new_object() -> None:
    def f(x: Any) -> Any:
        new = Removed()
        new.__dict__["side"] = 3
        del new.side
        return x + 1, new.__dict__

    def g(x: Any) -> Any:
        new = Removed()
        del new.side
        return x + 1

    for function, result in ((f, {"side": 3}), (g, None)):
        jitted = trident.jit(function)
        HELD.pop("removed", None)
        for n in range(1, 5):
            found = jitted(ONE)
            assert HELD["removed"] == n
            assert result is None or found[1] == result
        assert trident.api.entry_of(jitted).cell.hits


class Mapping(dict):  # type: ignore[type-arg]
    def keys(self) -> Any:
        return ["own", *super().keys()]


def test_views_of_a_new_instance_show_the_instance() -> None:
    def f(x: Any, late: Any) -> Any:
        d = Mapping()
        d["a"] = 1
        keys, values, items, through = dict.keys(d), d.values(), d.items(), iter(d)
        first = next(through), len(values), "a" in keys, list(items)
        if x.sum() > 3:  # an exit with the views
            late.append(1)
            locals()
        proxy = values.mapping
        d["b"] = 2
        return x + 1, first, list(keys), list(values), list(items), "b" in proxy, proxy == d, d.keys()

    jitted = trident.jit(f)
    for x in (ONE, ONE, ONE * 5, ONE * 5, ONE * 5, ONE):
        expected = f(x, [])
        assert jitted(x, [])[1:] == expected[1:]


TENSOR_KEYED: dict[Any, int] = {torch.ones(2): 1, "a": 2, torch.ones(3): 3, 7: 4}


def test_a_dict_with_keys_that_do_not_compare() -> None:
    """A lookup compares keys of the same hash only."""
    def lookup(key: Any) -> int:
        return TENSOR_KEYED[key] + len(str(TENSOR_KEYED.get(None)))

    jitted = trident.jit(lookup)
    for key in (7, 7, "a", "a", next(iter(TENSOR_KEYED)), 7):
        assert jitted(key) == lookup(key)
    assert not trident.explain(jitted).aborts and entry_of(jitted).cell.hits >= 3
