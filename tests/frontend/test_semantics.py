"""What CPython's own tests found in the recorder, each fault by a small program (eager, recorded, reference and native agree)."""

from __future__ import annotations

import re
import types
import warnings
from collections import OrderedDict
from typing import Any

import numpy
import pytest

import trident
from trident.api import entry_of


def _gives(fn: Any, *calls: tuple[Any, ...], rounds: int = 3) -> Any:
    """Every call gives what eager gives, and no recording ends with a fault of Trident's own. The entry."""
    jitted = trident.jit(fn)
    for _ in range(rounds):
        for args in calls or ((),):
            assert _outcome(jitted, args) == _outcome(fn, args), (args, [a.text for a in entry_of(jitted).aborts])
    assert not [a for a in entry_of(jitted).aborts if a.reason in ("internal", "compile")], entry_of(jitted).aborts
    return entry_of(jitted)


def _outcome(fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        return "returned", fn(*args)
    except Exception as error:
        return "raised", type(error), str(error)


def test_item_of_an_argument_that_is_no_list_later() -> None:
    def f(heap: Any) -> Any:
        return heap[0]

    entry = _gives(f, ([1, 2],), ((3, 4),), (10,), ("ab",))
    assert entry.cell.hits


@pytest.mark.parametrize("view", ["__iter__", "values", "items"])
def test_a_dict_whose_only_key_is_made_anew_while_it_is_iterated_over(view: str) -> None:
    def f() -> int:
        d = {0: 0}
        n = 0
        for _ in getattr(d, view)():
            del d[0]
            d[0] = 0
            n += 1
        return n

    _gives(f)


def test_a_dict_that_changes_under_its_iterator_and_then_the_trace_is_left() -> None:
    def f(x: int) -> int:
        d = {0: 0, 1: 1}
        n = 0
        for key in d:
            if key == 0:
                del d[0]
            if x > 3:
                n += 1
            n += 10
        return n

    _gives(f, (1,), (5,))


def test_a_dict_emptied_by_break_is_fine() -> None:
    def f() -> dict[int, int]:
        d = {0: 0, 1: 1}
        for key in d:
            d.pop(key)
            break
        return d

    _gives(f)


def test_long_sequences_are_not_followed_item_by_item() -> None:
    def f(n: int) -> Any:
        values = [0] * n
        return len(values), range(10**30)[5], (1,) * n == (1,) * n

    entry = _gives(f, (1_000_000,))
    assert all(len(str(s.trace)) < 100_000 for s in entry.specializations)


def test_keyword_arguments_of_any_name() -> None:
    def f() -> Any:
        return "{self} {fn}".format(self=1, fn=2), dict(self=3, fn=4), OrderedDict(self=5, fn=6, args=7)  # noqa: C408, UP032

    entry = _gives(f)
    assert entry.cell.hits


def test_names_of_objects_are_not_asked_from_the_objects() -> None:
    class Meta(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise ZeroDivisionError

    class Number(int):
        def __repr__(self) -> str:
            raise ZeroDivisionError

    class Shy:
        def __getattribute__(self, name: str) -> Any:
            raise ZeroDivisionError(name)

    plain = Meta("Plain", (), {"__slots__": ()})
    number, shy = Number(3), Shy()

    def f(which: int) -> Any:
        if which == 0:
            return type(plain()) is plain
        if which == 1:
            return number + 1, {number: 2}[3]
        return shy is not None and [shy][0] is shy

    _gives(f, (0,), (1,), (2,))


def test_texts_of_huge_numbers() -> None:
    huge = 10**5000

    def f(x: int) -> Any:
        return huge % x, -huge // x

    _gives(f, (7,))


def test_classes_are_named_after_the_module_of_their_maker() -> None:
    class Meta(type):
        pass

    def f(make: Any) -> Any:
        return make("A", (), {}).__module__

    def g() -> Any:
        return type("B", (), {}).__module__, type("C", (), {"__module__": "there"}).__module__, Meta("D", (), {}).__module__

    _gives(f, (type,), (Meta,))
    _gives(g)


def test_compiled_code_inherits_the_future_statements_of_the_function() -> None:
    def f() -> Any:
        made: dict[str, Any] = {"__name__": __name__}
        exec(compile("def g(x: int): pass", "made", "exec"), made)
        return made["g"].__annotations__

    _gives(f)


def test_bool_that_is_blocked() -> None:
    class Blocked:
        __bool__ = None

    def f() -> Any:
        return bool(Blocked())

    def g() -> int:
        return 1 if Blocked() else 2

    _gives(f)
    _gives(g)


@pytest.mark.parametrize("value", [10, None])
def test_init_that_returns_something(value: Any) -> None:
    class Made:
        def __init__(self) -> None:
            return value  # noqa: PLE0101

    def f() -> bool:
        return Made() is None

    _gives(f)


def test_new_that_returns_an_instance_of_a_subclass() -> None:
    class Base:
        def __new__(cls, arg: Any) -> Any:
            return object.__new__(Derived if arg else cls)

    class Derived(Base):
        def __init__(self, arg: Any) -> None:
            self.seen = arg

    def f(arg: Any) -> Any:
        made = Base(arg)
        return type(made).__name__, getattr(made, "seen", "nothing")

    _gives(f, (1,), (0,))


def test_a_descriptor_with_set_and_without_get() -> None:
    class Descriptor:
        def __set__(self, owner: Any, value: Any) -> None:
            owner.__dict__["a"] = value

    class Owner:
        a: Any = Descriptor()

    def f() -> Any:
        owner = Owner()
        before = type(owner.a).__name__
        owner.a = 42
        return before, owner.a

    _gives(f)


def test_class_method_of_a_descriptor() -> None:
    class Bound:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return lambda: ("got", instance if isinstance(instance, str) else getattr(instance, "__name__", None))

    class Owner:
        made = classmethod(Bound())

    class Derived(Owner):
        @classmethod
        def made(cls) -> Any:
            return super().made()

    def f() -> Any:
        return Owner.made(), Owner().made(), Derived.made()

    _gives(f)


def test_defaults_of_a_new_function_change() -> None:
    def f() -> Any:
        def g(a: int = 1, *, b: int = 2) -> int:
            return a + b

        first = g()
        g.__defaults__ = (10,)
        g.__kwdefaults__ = {"b": 20}
        second = g()
        del g.__defaults__
        try:
            g()
        except TypeError as error:
            return first, second, str(error)
        return first, second

    _gives(f)


def test_super_that_cannot_be() -> None:
    def f(a: Any, b: Any) -> Any:
        return super(a, b)  # type: ignore[misc]

    _gives(f, (1, int))
    _gives(f, (int, "x"))


class _A:
    def name(self) -> str:
        return "A"


class _X(_A):
    def name(self) -> str:
        return "X"


class _B(_A):
    def name(self) -> str:
        return "B" + super().name()

    def explicit(self) -> str:
        return super(_B, self).name()  # noqa: UP008


class _D(_B, _X):
    pass


def test_super_depends_on_the_type_of_self() -> None:
    for fn in (_B.name, _B.explicit, lambda made: made.name()):
        entry = _gives(fn, (_B(),), (_D(),), (_B(),))
        assert entry.cell.hits
    _gives(_B.name, (_B(),), (1,), (_D(),))
    many = _gives(_B.name, *[(_B(),) for _ in range(20)])
    assert len(many.roots) == 1, "one specialization for each type, not for each object"


def test_patterns_that_name_something_twice() -> None:
    class Point:
        __match_args__ = ("a", "a")
        a = 1

    class Keys:
        first = second = "k"

    def f(made: Any) -> Any:
        match made:
            case Point(x, a=y):
                return x, y
        return None

    def g(made: Any) -> Any:
        match made:
            case Point(x, y):
                return x, y
        return None

    def h(made: Any) -> Any:
        match made:
            case {Keys.first: x, Keys.second: y}:
                return x, y
        return None

    for fn in (f, g):
        _gives(fn, (Point(),), (1,))
    _gives(h, ({"k": 1},), ({},))


def test_isinstance_of_a_proxy() -> None:
    class Proxy:
        def __init__(self, target: Any) -> None:
            object.__setattr__(self, "target", target)

        def __getattribute__(self, name: str) -> Any:
            return getattr(object.__getattribute__(self, "target"), name)

    proxy = Proxy(3)

    def f() -> Any:
        return isinstance(proxy, int), isinstance(proxy, str), isinstance(proxy, Proxy), type(proxy) is Proxy

    assert f() == (True, False, True, True)
    _gives(f)


def test_a_class_whose_new_was_deleted() -> None:
    class Made:
        def __new__(cls, *args: Any) -> Any:
            raise AssertionError

        def __init__(self, value: Any) -> None:
            self.value = value

    del Made.__new__

    def f() -> Any:
        return Made(3).value

    _gives(f)


def test_truth_of_notimplemented_warns() -> None:
    def f() -> Any:
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            result = bool(NotImplemented), not NotImplemented, 1 if NotImplemented else 2
        return result, [str(w.message)[:14] for w in seen]

    assert f()[1] == ["NotImplemented"] * 3
    _gives(f)


def test_new_containers_are_never_one() -> None:
    def f(x: Any) -> Any:
        a: Any = []
        b: Any = []
        c, d = {"k": x}, {"k": x}
        ids = list(map(id, (a, b, c, d)))
        return len(set(ids)), a, b

    def g(x: Any) -> Any:
        a: Any = []
        b = x[1:]
        for made in map(list.append, [a], [1]):
            assert made is None
        return a, b

    _gives(f, (1,))
    _gives(g, ([1],), ([2, 3],))


def test_objects_with_a_hidden_dict() -> None:
    import asyncio

    async def nothing() -> int:
        return 1

    def f(loop: Any) -> Any:
        task = loop.create_task(nothing())
        return loop.run_until_complete(task), task.done(), task.cancelled()

    loop = asyncio.new_event_loop()
    try:
        _gives(f, (loop,))
    finally:
        loop.close()


def test_list_of_iterators_that_are_guarded_item_by_item() -> None:
    def f(names: Any, defaults: Any) -> Any:
        return dict(reversed(list(zip(reversed(names), reversed(defaults)))))

    _gives(f, (["a", "b", "c"], [1, 2]), (("a", "b"), (3,)), (["a", "b", "c", "d"], [1, 2]))


def test_methods_of_a_builtin_type_called_on_a_subclass() -> None:
    class Loud(dict):  # type: ignore[type-arg]
        def __getitem__(self, key: Any) -> Any:
            return "loud", dict.__getitem__(self, key)

        def __iter__(self) -> Any:
            return iter([*dict.__iter__(self), "end"])

        def __len__(self) -> int:
            return dict.__len__(self) + 1

    loud = Loud(a=1)

    def f() -> Any:
        return loud["a"], list(iter(loud)), len(loud)

    def g() -> Any:
        made = OrderedDict()
        made["a"], made["b"] = 1, 2
        shown = type(dict.keys(made)).__name__, type(made.keys()).__name__
        dict.pop(made, "a")
        return shown, repr(made)

    _gives(f)
    _gives(g)


def test_context_of_exceptions_that_are_raised_while_another_is_handled() -> None:
    def nested(inner: Exception, outer: Exception) -> None:
        try:
            raise inner
        finally:
            raise outer

    def chain(call: Any) -> list[Any]:
        try:
            try:
                raise KeyError(1)
            except KeyError:
                call(KeyError(2), KeyError(3))
        except KeyError as error:
            seen: list[Any] = []
            at: BaseException | None = error
            while at is not None:
                seen.append(at.args[0])
                at = at.__context__
            return seen
        return []

    jitted = trident.jit(nested)
    for _ in range(4):
        assert chain(jitted) == chain(nested) == [3, 2, 1]


def test_which_tuple_it_is() -> None:
    def f(t: Any) -> Any:
        return t[:] is t, t * 1 is t, t + () is t, () + t is t, tuple(t) is t, t * 0 is ()  # noqa: F632

    _gives(f, ((1, 2),), ((),))


def test_module_without_a_name() -> None:
    module = types.ModuleType.__new__(types.ModuleType)
    module.x = 3  # type: ignore[attr-defined]

    def f() -> Any:
        return module.x  # type: ignore[attr-defined]

    _gives(f)


def test_a_deep_recursion_is_a_recursion_error() -> None:
    def f(n: int) -> int:
        return 0 if n == 0 else 1 + f(n - 1)

    assert _gives(f, (5,), (100,))
    with pytest.raises(RecursionError):
        trident.jit(f)(10**6)


def test_unpacking_of_what_has_items_by_key_alone() -> None:
    def pair(x: Any) -> Any:
        a, b = x
        return a, b

    def rest(x: Any) -> Any:
        a, *b = x
        return a, b

    def star(x: Any) -> Any:
        return [*x]

    values = [(re.match("(a)(b)", "ab"),), (numpy.float64(1),), ("ab",), (5,)]
    for f in (pair, rest, star):
        _gives(f, *values)


def test_attributes_are_read_as_often_as_the_program_says() -> None:
    class Watched:
        def __init__(self) -> None:
            object.__setattr__(self, "seen", [])

        def __getattribute__(self, name: str) -> Any:
            object.__getattribute__(self, "seen").append(name)
            return object.__getattribute__(self, name)

        def __setattr__(self, name: str, value: Any) -> None:
            object.__setattr__(self, name, ("set", value))

        def __delattr__(self, name: str) -> None:
            object.__setattr__(self, name, "deleted")

        def __getattr__(self, name: str) -> Any:
            return f"no {name}"

    def f(x: Any) -> Any:
        x.a = 1
        found = x.a
        del x.a
        return found, x.a, x.b, x.seen[:]

    def g(x: Any) -> Any:
        made = Watched()
        made.a = x
        return f(made), made.a

    jitted = trident.jit(f)
    kept, other = Watched(), Watched()
    for _ in range(3):
        assert f(Watched()) == jitted(Watched())
        assert f(kept) == jitted(other)
    _gives(g, (1,))


def test_a_class_that_defines_its_instances_dict() -> None:
    class Odd:
        __dict__ = property(lambda self: {"x": "of the property"})  # type: ignore[assignment]

    def f(o: Any) -> Any:
        o.x = [1]
        return o.x, o.__dict__, hasattr(o, "y")

    def g() -> Any:
        return f(Odd())

    kept = Odd()
    for _ in range(3):
        _gives(f, (kept,), (Odd(),))
        _gives(g)


def test_a_slice_without_a_step() -> None:
    def f(x: Any, step: int) -> Any:
        try:
            return x[::step]
        except ValueError as error:
            return str(error)

    _gives(f, ([1, 2], 2), ((1, 2), 0), ([1, 2], 0), ("ab", 0), (range(3), 0))
    _gives(lambda step: (1, 2, 3)[::step], (0,), (1,))
