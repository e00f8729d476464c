"""Pins of every kind, natively against `ir.pins.holds`, under every mutation that could matter."""

from __future__ import annotations

import ctypes
import gc
import random
from collections import OrderedDict
from collections.abc import Callable
from types import CellType
from typing import Any

import pytest

import trident
from tests.backend.harness import INFO, MISS, Builder, Native
from trident.backend.native import dict_versions, frame, pin_layout
from trident.ir.pins import holds
from trident.ir.trace import NULL, GuardInfo, Pin, PinKind


def program(*pins: Pin) -> Native:
    b = Builder("pins", 1)
    for pin in pins:
        b.pin(pin)
    return Native(b.ret(b.args[0]))


def agree(n: Native, *pins: Pin) -> bool:
    """The native answer, which must be Python's; asked twice, because the first answer renews tags."""
    wanted = all(holds(pin) for pin in pins)
    for _ in range(2):
        assert (n(1) is not MISS) is wanted
    return wanted


def pin(kind: PinKind, owner: Any, key: str, expected: Any) -> Pin:
    return Pin(kind, owner, key, expected, INFO)


def test_dict() -> None:
    a, c = [1], [2]
    owner = {"a": a, "other": 1}
    pins = [pin(PinKind.DICT, owner, "a", a), pin(PinKind.DICT, owner, "missing", NULL)]
    n = program(*pins)
    assert agree(n, *pins)
    owner["other"] = 2
    assert agree(n, *pins)
    owner["a"] = c
    assert not agree(n, *pins)
    owner["a"] = a
    assert agree(n, *pins)
    owner["missing"] = 1
    assert not agree(n, *pins)
    del owner["missing"]
    assert agree(n, *pins)
    owner.update({f"k{i}": i for i in range(100)})
    assert agree(n, *pins)
    owner.clear()
    assert not agree(n, *pins)
    owner["a"] = [1]
    assert not agree(n, *pins)


def test_module_globals() -> None:
    import types

    module = types.ModuleType("m")
    module.x = object()
    pins = [pin(PinKind.DICT, module.__dict__, "x", module.x), pin(PinKind.DICT, module.__dict__, "y", NULL)]
    n = program(*pins)
    assert agree(n, *pins)
    module.y = 1
    assert not agree(n, *pins)
    del module.y
    assert agree(n, *pins)


def test_instance_dict() -> None:
    class C:
        pass

    instance = C()
    instance.x = object()
    pins = [pin(PinKind.DICT, instance.__dict__, "x", instance.x), pin(PinKind.DICT, instance.__dict__, "f", NULL)]
    n = program(*pins)
    assert agree(n, *pins)
    for _ in range(20):
        instance.counter = object()
        assert agree(n, *pins)
    old = instance.x
    instance.x = 5
    assert not agree(n, *pins)
    instance.x = old
    assert agree(n, *pins)
    instance.f = 5
    assert not agree(n, *pins)


def test_type() -> None:
    class Base:
        def f(self) -> None: ...

    class Derived(Base):
        pass

    pins = [pin(PinKind.TYPE, Derived, "f", Base.__dict__["f"]), pin(PinKind.TYPE, Derived, "__getattr__", NULL)]
    n = program(*pins)
    assert agree(n, *pins)
    old = Base.f
    Derived.unrelated = 1
    assert agree(n, *pins)
    Base.f = lambda self: None
    assert not agree(n, *pins)
    Base.f = old
    assert agree(n, *pins)
    Derived.f = old
    assert agree(n, *pins)
    Derived.__getattr__ = lambda self, name: None
    assert not agree(n, *pins)
    del Derived.__getattr__
    assert agree(n, *pins)
    Derived.__bases__ = (type("Other", (Base,), {"f": 3}),)
    del Derived.f
    assert not agree(n, *pins)


def test_list() -> None:
    a, c = [1], [2]
    owner = [a, c]
    pins = [pin(PinKind.LIST, owner, "", (a, c))]
    n = program(*pins)
    assert agree(n, *pins)
    owner[1] = [2]
    assert not agree(n, *pins)
    owner[1] = c
    assert agree(n, *pins)
    owner.append(1)
    assert not agree(n, *pins)
    owner.pop()
    assert agree(n, *pins)
    owner.clear()
    assert not agree(n, *pins)


def test_cell() -> None:
    value = object()
    for contents, other in ((value, 3), (NULL, value)):
        cell = CellType() if contents is NULL else CellType(contents)
        pins = [pin(PinKind.CELL, cell, "", contents)]
        n = program(*pins)
        assert agree(n, *pins)
        cell.cell_contents = other
        assert not agree(n, *pins)
        if contents is NULL:
            del cell.cell_contents
        else:
            cell.cell_contents = contents
        assert agree(n, *pins)


def test_function() -> None:
    def f(a: object = 1, *, b: object = 2) -> object:
        return a, b

    def g() -> None: ...

    for function in (f, g):
        pins = [pin(PinKind.FUNCTION, function, "", (function.__code__, function.__defaults__, function.__kwdefaults__))]
        n = program(*pins)
        assert agree(n, *pins)
        old = function.__defaults__
        function.__defaults__ = (5,)
        assert not agree(n, *pins)
        function.__defaults__ = old
        assert agree(n, *pins)
        function.__kwdefaults__ = {"b": 3}
        assert not agree(n, *pins)
    code = g.__code__
    pins = [pin(PinKind.FUNCTION, g, "", (code, None, g.__kwdefaults__))]
    n = program(*pins)
    assert agree(n, *pins)
    g.__code__ = (lambda: None).__code__
    assert not agree(n, *pins)


def test_dict_keys() -> None:
    a, c = [1], [2]
    owner: dict[Any, Any] = {"a": a, "c": c}
    pins = [pin(PinKind.DICT_KEYS, owner, "", ("a", a, "c", c))]
    n = program(*pins)
    assert agree(n, *pins)
    del owner["a"]
    assert not agree(n, *pins)
    owner["a"] = a  # another order
    assert not agree(n, *pins)
    del owner["c"]
    owner["c"] = c
    assert agree(n, *pins)
    owner["c"] = [2]
    assert not agree(n, *pins)
    owner["c"] = c
    owner[5] = 6
    assert not agree(n, *pins)
    del owner[5]
    assert agree(n, *pins)


def test_order() -> None:
    a, b, c = "a", "b", "c"
    owner = OrderedDict(((a, 1), (b, 2), (c, 3)))
    pins = [pin(PinKind.ORDER, owner, "", (a, b, c)), pin(PinKind.DICT_KEYS, owner, "", (a, 1, b, 2, c, 3))]
    n = program(*pins)
    assert agree(n, *pins)
    owner.move_to_end(a)
    assert not agree(n, *pins)
    owner.move_to_end(a, last=False)
    assert agree(n, *pins)
    owner[c] = owner.pop(c)
    assert agree(n, *pins)
    owner[b] = 5
    assert not agree(n, *pins)
    owner.clear()
    assert not agree(n, *pins)
    owner.update({a: 1, c: 3, b: 2})
    assert not agree(n, *pins)


def test_dicts_are_not_looked_at_while_none_has_changed() -> None:
    """A tag that is not there any more is noticed only after a dict has changed, and then by the next check."""
    owner = {"a": 1}
    n = program(pin(PinKind.DICT, owner, "a", owner["a"]))
    table, = n.program._pins
    words, at = memoryview(table._table).cast("B").cast("Q"), (frame.PINS_START + frame.PIN_EXPECTED) // 8
    call, argument = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(n.program.address), (ctypes.py_object * 1)(1)
    bound = ctypes.addressof(argument)
    assert dict_versions.is_known()
    seen = []
    for change in (False, True):
        call(bound)
        call(bound)
        if change:
            owner["b"] = 2
        words[at] = frame.NEVER
        call(bound)
        seen.append(words[at] == frame.NEVER)
    assert seen == [True, False]


def test_the_dict_that_a_call_makes_itself_is_no_change() -> None:
    held = {"a": 0}

    def f(x: Any, **more: Any) -> Any:
        return x, held["a"]

    jitted = trident.jit(f)
    for _ in range(3):
        jitted(1)
        jitted(1, a=2)
    before = dict_versions.current()
    jitted(1)
    assert dict_versions.current() == before
    held["a"] = 1
    assert dict_versions.current() != before


class _Finalizer:
    """Garbage in a cycle, whose collection changes a dict."""

    def __init__(self, change: Callable[[], None]) -> None:
        self.me, self.change = self, change

    def __del__(self) -> None:
        self.change()


def test_changes_by_a_collection_that_a_call_starts_are_seen() -> None:
    held: dict[str, Any] = {"a": 1}

    def f(x: Any, **more: Any) -> Any:
        return held["a"]

    jitted = trident.jit(f)
    for _ in range(4):
        assert jitted(0) == 1
    threshold = gc.get_threshold()
    gc.collect()
    gc.freeze()
    try:
        for n in range(300):
            gc.set_threshold(1, 1, 1)
            _Finalizer(lambda n=n: held.__setitem__("a", n))  # type: ignore[misc]
            jitted(0)
            gc.set_threshold(0)
            gc.collect()
            assert held["a"] == n == jitted(0)
            held["a"] = 1
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


class _Plain:
    pass


def _of_instance(change: Callable[[Any], object]) -> tuple[dict[str, Any], Callable[[], object]]:
    made: Any = _Plain()
    made.a = made.b = 1
    return made.__dict__, lambda: change(made)


def _store_often(made: Any) -> None:
    for n in range(200):  # the instruction specialises itself
        made.a = n


_API = ctypes.pythonapi
MUTATIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "__setitem__": lambda d: d.__setitem__("a", 5), "new key": lambda d: d.__setitem__("z", 5), "__delitem__": lambda d: d.__delitem__("a"),
    "pop": lambda d: d.pop("a"), "popitem": lambda d: d.popitem(), "clear": lambda d: d.clear(), "update": lambda d: d.update(a=7),
    "update from pairs": lambda d: d.update([("a", 8)]), "update from a dict": lambda d: d.update({"q": 8}),
    "setdefault": lambda d: d.setdefault("y", 1), "|=": lambda d: d.__ior__({"a": 9}), "__init__": lambda d: d.__init__(a=10),  # type: ignore[misc]
    "PyDict_SetItem": lambda d: _API.PyDict_SetItem(ctypes.py_object(d), ctypes.py_object("a"), ctypes.py_object(11)),
    "PyDict_SetItemString": lambda d: _API.PyDict_SetItemString(ctypes.py_object(d), b"a", ctypes.py_object(12)),
    "PyDict_DelItem": lambda d: _API.PyDict_DelItem(ctypes.py_object(d), ctypes.py_object("a")),
    "PyDict_Clear": lambda d: _API.PyDict_Clear(ctypes.py_object(d)),
    "PyDict_Merge": lambda d: _API.PyDict_Merge(ctypes.py_object(d), ctypes.py_object({"a": 13}), 1),
    "exec": lambda d: exec("a = 14", d), "globals": lambda d: exec("def f():\n    global a\n    a = 15\nf()", d),
}
OF_INSTANCES: dict[str, Callable[[Any], object]] = {
    "setattr": lambda o: setattr(o, "a", 5), "new attribute": lambda o: setattr(o, "z", 5), "delattr": lambda o: delattr(o, "a"),
    "often": _store_often, "object.__setattr__": lambda o: object.__setattr__(o, "a", 6), "vars": lambda o: vars(o).update(a=7),
}


@pytest.mark.parametrize("name", [*MUTATIONS, *OF_INSTANCES])
@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_every_change_of_a_dict_counts(name: str, kind: Any) -> None:
    """Nobody who has seen the word before takes the dict for unchanged."""
    if name in OF_INSTANCES:
        owner, change = _of_instance(OF_INSTANCES[name])
    else:
        owner = kind(a=1, b=2)
        change = lambda: MUTATIONS[name](owner)  # noqa: E731
    dict_versions.watch(owner)
    items, before = list(dict.items(owner)), dict_versions.current()
    change()
    assert list(dict.items(owner)) != items and dict_versions.current() > before


def test_other_dicts_matter_to_no_watcher() -> None:
    if not hasattr(ctypes.pythonapi, "PyDict_AddWatcher"):
        pytest.skip("this Python has no dict watchers")
    before = dict_versions.current()
    {}["a"] = 1
    assert dict_versions.current() == before


class _Calling:
    """Its end calls something."""

    def __init__(self, function: Callable[[], object]) -> None:
        self.function = function

    def __del__(self) -> None:
        self.function()


def test_checks_within_the_end_of_keyword_arguments() -> None:
    """Code that runs while a call's own dict ends sees no version that comes again."""
    held: dict[str, Any] = {"a": 1}
    at_end: list[Callable[[], object]] = [lambda: None]

    def add(more: dict[str, object]) -> None:
        more["dies with it"] = _Calling(at_end[0])

    opaque = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(add)

    def outer(x: int, **more: object) -> int:
        opaque(more)
        return x

    inner, jitted = trident.jit(lambda x: held["a"]), trident.jit(outer)
    for _ in range(3):
        assert inner(0) == 1
        jitted(0)
    seen: list[object] = []
    for n in range(50):
        at_end[0] = lambda: seen.append(inner(0))
        jitted(0)
        assert seen.pop() == held["a"] and not seen
        held["a"] = n
        assert inner(0) == n
        at_end[0] = lambda n=n: held.__setitem__("a", -n)  # type: ignore[misc]
        jitted(0)
        assert inner(0) == -n


@pytest.mark.parametrize("make", [dict, list, set])
@pytest.mark.parametrize("empty", [True, False])
def test_empty(make: Callable[[], Any], empty: bool) -> None:
    owner = make()
    pins = [pin(PinKind.EMPTY, owner, "", empty)]
    n = program(*pins)

    def add(k: int) -> None:
        if make is dict:
            owner[k] = k
        elif make is list:
            owner.append(k)
        else:
            owner.add(k)

    assert agree(n, *pins) is empty
    for k in range(20):
        add(k)
        assert agree(n, *pins) is not empty
    owner.clear()
    assert agree(n, *pins) is empty


def test_word() -> None:
    word = ctypes.c_uint64(2**64 - 5)
    pins = [pin(PinKind.WORD, ctypes.addressof(word), "", 2**64 - 5)]
    n = program(*pins)
    assert agree(n, *pins)
    word.value = 1
    assert not agree(n, *pins)


def test_pins_of_one_owner_share_an_entry_and_failures_are_counted() -> None:
    owner = {f"k{i}": object() for i in range(50)}
    pins = [Pin(PinKind.DICT, owner, k, v, GuardInfo(f"{k} is it", "identity", "t.py", 1)) for k, v in owner.items()]
    n = program(*pins, pin(PinKind.EMPTY, owner, "", False))
    table, = n.program._pins
    assert table.count == 2
    assert n(1) == 1
    owner["k7"] = 0
    assert n(1) is MISS and n(1) is MISS
    assert (pins[7], 2) in n.program.pin_failures()


def test_the_fast_path_is_one_word() -> None:
    """An unchanged dict is not looked into: plant a wrong expectation behind a right tag."""
    owner = {"a": 1}
    n = program(pin(PinKind.DICT, owner, "a", owner["a"]))
    assert n(1) == 1
    table, = n.program._pins
    assert table._table[(frame.PINS_START + frame.PIN_EXPECTED) // 8] == ctypes.c_uint64.from_address(id(owner) + pin_layout.DICT_TAG).value
    assert table._table[(frame.PINS_START + frame.PIN_EXPECTED) // 8] != frame.NEVER


def test_random_mutations_agree() -> None:
    rng = random.Random(0)
    objects = [object() for _ in range(3)]
    owner: dict[str, Any] = {"a": objects[0], "b": objects[1]}
    listed, cell = [objects[0]], CellType(objects[0])
    pins = [pin(PinKind.DICT, owner, "a", objects[0]), pin(PinKind.DICT, owner, "c", NULL),
            pin(PinKind.LIST, listed, "", (objects[0],)), pin(PinKind.CELL, cell, "", objects[0])]
    n = program(*pins)
    answers = set()
    for _ in range(600):
        match rng.randrange(6):
            case 0:
                owner["a"] = objects[rng.randrange(2)]
            case 1:
                owner.pop("c", None)
            case 2:
                if rng.random() < 0.3:
                    owner["c"] = 1
            case 3:
                listed[0] = objects[0] if rng.random() < 0.8 else objects[1]
            case 4:
                cell.cell_contents = objects[0] if rng.random() < 0.8 else objects[2]
            case 5:
                owner["b"] = rng.random()
        answers.add(agree(n, *pins))
    assert answers == {True, False}
