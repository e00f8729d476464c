"""Calls that are known: mappings, instances of dict's subclasses, generator expressions, sets, names of classes, context variables.

Every function is called several times and compared with eager, and what its answer depends on is changed in between.
"""

from __future__ import annotations

import contextvars
import functools
import os
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch

import trident
from trident.report import Explanation


def outcome(function: Callable[..., Any], *args: Any) -> Any:
    try:
        return "returned", function(*args)
    except Exception as error:
        return "raised", type(error), str(error)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(same, a.values(), b.values())) and same(getattr(a, "__dict__", 0), getattr(b, "__dict__", 0))
    if isinstance(a, tuple | list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


class Checked:
    """A function and its jitted twin; every call is compared."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.jitted = function, trident.jit(function)

    def __call__(self, *args: Any, times: int = 3) -> Any:
        for _ in range(times):
            expected = outcome(self.function, *args)
            got = outcome(self.jitted, *args)
            assert same(expected, got), (expected, got)
        return got[1]

    @property
    def explained(self) -> Explanation:
        return trident.explain(self.jitted)

    def nothing_opaque(self) -> None:
        """The newest specialization is hit, and calls nothing opaquely."""
        report = self.explained.specializations[-1]
        assert self.explained.hits >= 2, self.explained.last_misses
        assert not report.opaque_calls, report.opaque_calls
        assert not self.explained.aborts


X = torch.arange(4.0)


# ------------------------------------------------------------------------------------------ attributes that Python computes
class Config:
    attribute_map = {"width": "hidden_size"}

    def __init__(self) -> None:
        self.hidden_size = 3

    def __getattribute__(self, key: str) -> Any:
        if key != "attribute_map" and key in super().__getattribute__("attribute_map"):
            key = super().__getattribute__("attribute_map")[key]
        return super().__getattribute__(key)


def test_an_absent_attribute_behind_a_getattribute_is_the_default_until_it_comes() -> None:
    config = Config()
    f = Checked(lambda x: x * getattr(config, "factor", 2) * getattr(config, "width", 5) + hasattr(config, "factor"))
    assert torch.equal(f(X), X * 6)
    f.nothing_opaque()
    config.factor = 4  # type: ignore[attr-defined]
    assert torch.equal(f(X), X * 12 + 1)
    del config.factor  # type: ignore[attr-defined]
    f(X)
    Config.factor = 7  # type: ignore[attr-defined]
    try:
        assert torch.equal(f(X), X * 21 + 1)
    finally:
        del Config.factor  # type: ignore[attr-defined]
    f(X)


def test_a_property_that_raises_gives_way_to_getattr() -> None:
    class Owner:
        @property
        def lost(self) -> int:
            return self.absent  # type: ignore[attr-defined, no-any-return]

    class Falling(Owner):
        def __getattr__(self, name: str) -> int:
            return len(name)

    for owner in (Owner(), Falling()):
        f = Checked(lambda x, owner=owner: x + getattr(owner, "lost", 100))
        f(X)


def test_a_caught_attribute_error_inside_is_no_default() -> None:
    class Owner:
        @property
        def kept(self) -> int:
            try:
                return self.absent  # type: ignore[attr-defined, no-any-return]
            except AttributeError:
                return 5

    owner = Owner()
    f = Checked(lambda x: x + getattr(owner, "kept", 100))
    assert torch.equal(f(X), X + 5)


# ---------------------------------------------------------------------------------------------------------------- mappings
class Registry(MutableMapping[str, Any]):
    everywhere: dict[str, Any] = {"plain": 2}

    def __init__(self) -> None:
        self.own: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        if key in self.own:
            return self.own[key]
        return self.everywhere[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.own[key] = value

    def __delitem__(self, key: str) -> None:
        del self.own[key]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.everywhere, **self.own})

    def __len__(self) -> int:
        return len({**self.everywhere, **self.own})


def test_get_of_a_mapping_of_python() -> None:
    registry = Registry()
    f = Checked(lambda x: x * registry.get("plain", 9) + registry.get("other", 10) + ("other" in registry) + (registry.get("no") is None))
    assert torch.equal(f(X), X * 2 + 11)
    f.nothing_opaque()
    registry["other"] = 1
    assert torch.equal(f(X), X * 2 + 3)
    registry["plain"] = 3
    f(X)
    del registry["other"]
    f(X)
    Registry.everywhere["other"] = 6
    try:
        assert torch.equal(f(X), X * 3 + 8)
    finally:
        del Registry.everywhere["other"]


def test_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRIDENT_TEST_VARIABLE", raising=False)
    checked = Checked(lambda x: (x + ("TRIDENT_TEST_VARIABLE" in os.environ), os.environ.get("TRIDENT_TEST_VARIABLE", "0"),
                                 os.environ.get("PATH"), os.getenv("TRIDENT_TEST_VARIABLE")))
    assert checked(X)[1] == "0"
    monkeypatch.setenv("TRIDENT_TEST_VARIABLE", "é")
    assert checked(X)[1] == "é"
    monkeypatch.setenv("TRIDENT_TEST_VARIABLE", "2")
    monkeypatch.setenv("TRIDENT_TEST_OTHER", "2")
    assert checked(X)[1] == "2"
    monkeypatch.setenv("TRIDENT_TEST_OTHER", "3")
    hits = checked.explained.hits
    checked(X)
    assert checked.explained.hits == hits + 3
    os.environ.pop("TRIDENT_TEST_VARIABLE")
    assert checked(X)[1] == "0"
    checked(X)


class Table(dict[str, int]):
    def get(self, key: object) -> int:  # type: ignore[override]
        return super().get(str(key)) or 0

    def __getitem__(self, key: str) -> int:
        return super().__getitem__(key) + 1


class Forgiving(dict[str, int]):
    def __missing__(self, key: str) -> int:
        return len(key)


def test_methods_of_dict_on_a_constant_of_a_subclass() -> None:
    table, forgiving = Table({"<class 'int'>": 5, "a": 2}), Forgiving({"a": 1})
    f = Checked(lambda x, key: x + table.get(int) + table["a"] + dict.__getitem__(forgiving, key))
    assert torch.equal(f(X, "a"), X + 9)
    assert torch.equal(f(X, "absent"), X + 14)
    table["<class 'int'>"] = 7
    f(X, "a")
    table.clear()
    assert f(X, "a") is KeyError


# ------------------------------------------------------------------------------------------------- subclasses of dict, made here
class Output(OrderedDict[str, Any]):
    """Like the outputs of models: a dataclass whose fields that are not None are items too."""

    def __post_init__(self) -> None:
        if not all(field.default is None for field in fields(self)[1:]):  # type: ignore[arg-type]
            raise ValueError("defaults")
        for field in fields(self):  # type: ignore[arg-type]
            value = self.__dict__.get(field.name)
            if value is not None:
                self[field.name] = value

    def __setattr__(self, name: str, value: Any) -> None:
        if name in {field.name for field in fields(self)} and value is not None:  # type: ignore[arg-type]
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setattr__(key, value)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[k] for k in self.keys())


@dataclass
class Three(Output):
    first: Any = None
    second: Any = None
    third: Any = None


def test_an_output_is_not_built_until_it_escapes() -> None:
    def inner(x: torch.Tensor) -> Three:
        return Three(first=x * 2, third=x + 1)

    def f(x: torch.Tensor) -> torch.Tensor:
        made = inner(x)
        assert len(made) == 2 and "second" not in made and made and made.second is None and list(made) == ["first", "third"]
        return made[0] + made["third"] + made.first + made[-1]  # type: ignore[no-any-return]

    checked = Checked(f)
    checked(X)
    checked.nothing_opaque()
    assert checked.explained.specializations[-1].native_calls == 0


def test_an_output_that_escapes_is_eagers() -> None:
    checked = Checked(lambda x: [Three(x, None, x + 1), Three(third=x), Three()])
    first, *_ = checked(X)
    checked.nothing_opaque()
    assert type(first) is Three and first.second is None and first["third"] is first.third
    first["second"] = 1
    assert list(first.items())[-1] == ("second", 1) and first.second == 1


def test_an_output_lives_through_an_exit() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        made = Three(x, None, n)
        if n > 3:
            made["second"] = x + n
        return made, list(made.values())

    checked = Checked(f)
    for n in (1, 5, 2, 7, 9, 1):
        checked(X, n)


def test_plain_subclasses_of_dict() -> None:
    class Bag(dict[str, Any]):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.size = size

    def f(x: torch.Tensor) -> Any:
        bag = Bag(3)
        empty = not bag
        bag["a"] = x
        bag["b"] = bag["a"] + bag.size
        return empty, len(bag), "a" in bag, "c" in bag, bag.get("c", 4), bag.__dict__.get("size"), bag.__dict__.get("nothing"), bag

    checked = Checked(f)
    checked(X)
    checked.nothing_opaque()


def test_a_class_that_changes_is_noticed() -> None:
    class Bag(dict[str, Any]):
        pass

    def f(x: torch.Tensor) -> Any:
        bag = Bag()
        bag["a"] = x
        return bag["a"], len(bag)

    checked = Checked(f)
    checked(X)
    Bag.__len__ = lambda self: 17  # type: ignore[method-assign]
    assert checked(X)[1] == 17
    Bag.__getitem__ = lambda self, key: key  # type: ignore[method-assign]
    assert checked(X)[0] == "a"
    Bag.__setitem__ = lambda self, key, value: None  # type: ignore[method-assign]
    checked(X)


# ------------------------------------------------------------------------------------------------------ generator expressions
ITEMS = [3, 1, 2]


def test_generator_expressions_are_interpreted() -> None:
    def f(x: torch.Tensor, n: int, *functions: Any) -> Any:
        indices = list(i for i, k in enumerate(ITEMS) for _ in range(k))  # noqa: C400
        return (all(callable(function) for function in functions), any(k > n for k in ITEMS), tuple(k + n for k in ITEMS),
                sum(k * n for k in ITEMS if k != 2), indices, x * max(k for k in ITEMS))

    checked = Checked(f)
    checked(X, 1, len, print)
    checked.nothing_opaque()
    checked(X, 5, len, 3)
    ITEMS.append(6)
    checked(X, 5, len)
    ITEMS.pop()


def test_a_generator_that_somebody_goes_on_with() -> None:
    def f(x: torch.Tensor) -> Any:
        numbers = (k for k in ITEMS)
        found = any(k == 1 for k in numbers)
        rest = list(numbers)
        iterator = iter(ITEMS)
        again = any(k == 3 for k in iterator)
        named = (k for k in ITEMS)
        stopped = all(named), any(named)
        return x + len(rest), found, rest, again, list(iterator), stopped, list(named), list(named)

    Checked(f)(X)


def test_a_generator_with_effects_is_cpythons() -> None:
    seen: list[float] = []

    def note(value: float) -> bool:
        seen.append(value)
        return value < 2

    def f(x: torch.Tensor) -> Any:
        before = len(seen)
        answer = all(note(k) for k in ITEMS[::-1])
        sums = [t.sum() for t in (x * k for k in ITEMS)]
        return answer, seen[before:], sums

    checked = Checked(f)
    checked(X)


def test_a_generator_that_raises() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        return x + sum(6 // (k - n) for k in ITEMS)

    checked = Checked(f)
    checked(X, 0)
    assert checked(X, 2) is ZeroDivisionError
    checked(X, 4)


# --------------------------------------------------------------------------------------------------------------------- sets
def test_sets_of_constants() -> None:
    kinds = ["sliding", "full", "sliding", "linear"]

    def f(x: torch.Tensor) -> Any:
        made = {}
        for kind in set(kinds):
            made[kind] = x + len(kind)
        letters = {letter for letter in "abracadabra"}  # noqa: C416
        return made, list(letters), "a" in letters, "z" in letters, len(letters), letters

    checked = Checked(f)
    checked(X)
    checked.nothing_opaque()
    kinds.append("other")
    checked(X)
    Checked(lambda x: (x + 1, {1, 2, 3}, list({"a", "b", "c"}), set(x.shape), set({4, 5})))(X)


def test_membership_in_a_set_that_changes() -> None:
    known: set[type] = {int}
    checked = Checked(lambda x: x + (float in known) + 2 * (int in known))
    assert torch.equal(checked(X), X + 2)
    checked.nothing_opaque()
    known.add(float)
    assert torch.equal(checked(X), X + 3)
    known.clear()
    assert torch.equal(checked(X), X)


# ------------------------------------------------------------------------------------------------------------------- others
def test_the_name_of_a_class() -> None:
    class Named:
        pass

    class Meta(type):
        def __repr__(cls) -> str:
            return "meta"

    class Own(metaclass=Meta):
        pass

    checked = Checked(lambda x: (x + 1, str(Named), str(Own), str(torch.nn.Linear), str(int)))
    checked(X)
    Named.__qualname__ = "Renamed"
    assert "Renamed" in checked(X)[1]
    Named.__module__ = "elsewhere"
    assert "elsewhere" in checked(X)[1]


VARIABLE: contextvars.ContextVar[Any] = contextvars.ContextVar("variable", default=None)


def test_context_variables() -> None:
    def f(x: torch.Tensor, inside: bool) -> Any:
        held: dict[str, Any] = {"a": 1}
        token = VARIABLE.set(held)
        try:
            found = VARIABLE.get()
            if inside:
                found["seen"] = x
            total = x + 1
        finally:
            VARIABLE.reset(token)
        held.pop("nothing", None)
        return total, held.pop("a", 0), held, VARIABLE.get()

    checked = Checked(f)
    checked(X, False)
    checked.nothing_opaque()
    checked(X, True)
    token = VARIABLE.set(5)
    checked(X, True)
    VARIABLE.reset(token)


POPPED: dict[str, Any] = {"factor": 2}


def test_pop_of_a_dict_of_run_time() -> None:
    def f(x: torch.Tensor, held: dict[str, Any]) -> Any:
        before = x * POPPED.get("factor", 1)
        return before, held.pop("factor", 7), held.pop("nothing", None), x * POPPED.get("factor", 1), len(held)

    jitted = trident.jit(f)
    for n in range(4):  # a dict of its own, then the one that the trace reads
        assert same(f(X, {"factor": 3 + n, "other": 1}), jitted(X, {"factor": 3 + n, "other": 1}))
    assert trident.explain(jitted).hits >= 2
    assert not trident.explain(jitted).specializations[-1].opaque_calls
    for _ in range(3):
        expected = f(X, POPPED)
        POPPED["factor"] = 2
        assert same(expected, jitted(X, POPPED)) and "factor" not in POPPED
        POPPED["factor"] = 2


def test_pop_in_a_bridge_of_a_dict_that_the_trace_has_made() -> None:
    def f(x: torch.Tensor) -> Any:
        held: dict[str, Any] = {"a": 1}
        token = VARIABLE.set(held)
        y = x + 1 if float(x.sum()) > 100.0 else x - 1
        VARIABLE.reset(token)
        held.pop("nothing", None)
        return y, held

    checked = Checked(f)
    checked(X)
    checked(X + 100, times=6)
    assert [report.kind for report in checked.explained.specializations] == ["root", "bridge"]
    checked.nothing_opaque()


def test_a_cached_function_is_asked_again() -> None:
    calls = []

    @functools.lru_cache
    def cached(n: int) -> int:
        calls.append(n)
        return n + len(calls)

    jitted = trident.jit(lambda x: x + cached(1))
    assert [float(jitted(X)[0]) for _ in range(3)] == [2.0, 2.0, 2.0]
    assert calls == [1]
    cached.cache_clear()
    assert float(jitted(X)[0]) == 3.0 and calls == [1, 1]
    assert float(jitted(X)[0]) == 3.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_limits_of_dtypes(dtype: torch.dtype) -> None:
    checked = Checked(lambda x: (x.clamp(min=torch.finfo(x.dtype).eps), torch.finfo(x.dtype).min, torch.iinfo(torch.int8).max))
    checked(X.to(dtype))
    checked.nothing_opaque()
    checked(X.half())


def test_attributes_of_tensors_that_are_set_later() -> None:
    checked = Checked(lambda x: x + hasattr(x, "jax") + getattr(x, "scale", 3))
    x = torch.ones(2)
    assert torch.equal(checked(x), x + 3)
    x.jax = True  # type: ignore[attr-defined]
    assert torch.equal(checked(x), x + 4)
    x.scale = 5  # type: ignore[attr-defined]
    assert torch.equal(checked(x), x + 6)


# ----------------------------------------------------------------------------------------- objects that are others at each call
class Layer:
    def __init__(self) -> None:
        self.keys = torch.zeros(2)
        self.length = 0
        self.known: dict[int, bool] = {}

    def update(self, x: torch.Tensor) -> torch.Tensor:
        self.keys = self.keys + x
        self.length += 1
        self.known[7] = True
        return self.keys


class Cache:
    def __init__(self, count: int) -> None:
        self.layers = [Layer() for _ in range(count)]


def test_stores_to_objects_that_are_others_at_each_call() -> None:
    def f(x: torch.Tensor, cache: Cache) -> Any:
        for layer in cache.layers:
            x = layer.update(x)
            x = x + layer.keys * layer.length + layer.known.get(7, 0) + layer.known[7] + (8 in layer.known)
        return x, [layer.length for layer in cache.layers]

    jitted = trident.jit(f)
    for _ in range(4):
        mine, theirs = Cache(2), Cache(2)
        for _ in range(3):
            assert same(f(X[:2], mine), jitted(X[:2], theirs))
            assert all(same(vars(a), vars(b)) for a, b in zip(mine.layers, theirs.layers))
    explained = trident.explain(jitted)
    assert explained.hits >= 6 and not explained.specializations[-1].opaque_calls, explained.specializations[-1].opaque_calls


def test_a_store_may_be_to_an_object_that_is_a_constant_too() -> None:
    """The same object comes in as an argument and is known as a global: the trace must see what it has stored."""
    shared = Layer()

    def f(x: torch.Tensor, layer: Layer) -> Any:
        before = shared.length
        layer.length = before + 5
        names = sorted(shared.__dict__)
        return x + shared.length, before, shared.length, names, [n for n in shared.__dict__.values() if type(n) is int]

    jitted = trident.jit(f)
    for layer in (Layer(), Layer(), shared, Layer(), shared, shared, Layer()):
        shared.length = 1
        expected = f(X, layer)
        shared.length = 1
        assert same(expected, jitted(X, layer))


def test_signatures_of_functions() -> None:
    import inspect

    def forward(a: int, b: int = 2) -> int:
        return a + b

    class Owner:
        def method(self, a: int, *, c: int = 3) -> int:
            return a + c

    owner = Owner()
    checked = Checked(lambda x: x + len(inspect.signature(owner.method).parameters) * 10 + len(inspect.signature(forward).parameters))
    assert torch.equal(checked(X), X + 22)
    checked.nothing_opaque()
    forward.__wrapped__ = lambda a: a  # type: ignore[attr-defined]
    assert torch.equal(checked(X), X + 21)
    del forward.__wrapped__  # type: ignore[attr-defined]
    Owner.method = lambda self: 0  # type: ignore[assignment, method-assign]
    assert torch.equal(checked(X), X + 2)
    forward.__code__ = (lambda a, b, c: 0).__code__
    assert torch.equal(checked(X), X + 3)


class Ordered(OrderedDict[str, Any]):
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return dict(self.items())[key]
        return tuple(self[name] for name in self.keys())[key]


def test_items_of_keyword_arguments_that_are_others_at_each_call() -> None:
    def f(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        made, cache = kwargs["made"], args[0]
        cache.length += 1
        return x + made[0] * len(made) + made.extra, made["a"], made.get("nothing", 3), list(made.keys()), cache.length

    def made(n: int) -> Ordered:
        result = Ordered(a=torch.ones(4) * n, b=n)
        result.extra = n  # type: ignore[attr-defined]
        return result

    jitted = trident.jit(f)
    for n in range(6):
        assert same(f(X, Layer(), made=made(n)), jitted(X, Layer(), made=made(n)))
    explained = trident.explain(jitted)
    assert explained.hits >= 4 and not explained.specializations[-1].opaque_calls
    reordered = made(3)
    reordered.move_to_end("a")
    assert same(f(X, Layer(), made=reordered), jitted(X, Layer(), made=reordered))
    reordered["c"] = 4
    assert same(f(X, Layer(), made=reordered), jitted(X, Layer(), made=reordered))


def test_tensors_of_numbers() -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        return (x + torch.tensor([-1], dtype=int, device=x.device), torch.tensor(n), torch.tensor([n, 2.5], dtype=x.dtype),  # type: ignore[call-overload]
                torch.tensor(True), torch.tensor([], dtype=x.dtype), torch.tensor([[n, 1], [2, 3]]))

    checked = Checked(f)
    for n in (1, 2, 3):
        checked(X, n)
    checked.nothing_opaque()
    checked(X.double(), 2)
    with torch.device("cpu"):  # a TorchFunctionMode
        checked(X, 1, times=1)


def test_a_default_dtype_that_changes() -> None:
    checked = Checked(lambda x, n: torch.tensor(n))
    assert checked(X, 1.5).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert checked(X, 1.5).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def _deprecated(name: str, level: int) -> str:
    warnings.warn(
        f"{name} is deprecated",
        FutureWarning,
        stacklevel=level,
    )
    return name


class Notice(UserWarning):
    pass


@pytest.mark.parametrize("action", ["always", "once", "default", "error", "ignore"])
def test_warnings_name_a_frame_of_the_recording(action: Any) -> None:
    def f(x: torch.Tensor, n: int) -> Any:
        warnings.warn(Notice(f"about {n}"))  # noqa: B028
        warnings.warn("plain", stacklevel=1)
        name = _deprecated("past",
                           2)
        return x + len(name), _deprecated("here", 1)

    def caught(function: Any, n: int) -> Any:
        globals().pop("__warningregistry__", None)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter(action)
            result = outcome(function, X, n)
            outcome(function, X, n)
        return result, [(str(w.message), w.category, w.filename, w.lineno) for w in seen]

    jitted = trident.jit(f)
    for n in (1, 1, 2, 1):
        expected, got = caught(f, n), caught(jitted, n)
        assert same(expected[0], got[0]) and expected[1] == got[1], (expected, got)
    if action == "ignore":
        explained = trident.explain(jitted)
        assert explained.hits and not explained.aborts


class Sack(dict[str, Any]):
    pass


class OrderedSack(OrderedDict[str, Any]):
    pass


def _take(**named: Any) -> Any:
    return list(named.items())


def _matched(sack: Any) -> Any:
    match sack:
        case {"a": x, **rest}:
            return x, rest
    return None


def _no_more(sack: Any) -> Any:
    del sack["a"]
    return list(sack), sack


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "keywords": lambda sack: _take(**sack),
    "merged": lambda sack: {**sack, "z": 1},
    "dict": lambda sack: dict(sack),
    "or": lambda sack: sack | {"z": 1},
    "equal": lambda sack: (sack == {"b": 2, "a": 1}, sack != {}, sack == OrderedSack(b=2, a=1)),
    "sorted": lambda sack: (sorted(sack), list(sack.values()), list(reversed(sack))),
    "pop": lambda sack: (sack.pop("a"), sack.pop("nothing", 3), len(sack), sack),
    "setdefault": lambda sack: (sack.setdefault("a", 5), sack.setdefault("q", 6), list(sack.items())),
    "update": lambda sack: (sack.update(b=3, c=4), sack),
    "delete": _no_more,
    "copy": lambda sack: (sack.copy(), type(sack.copy())),
    "popitem": lambda sack: (sack.popitem(), sack),
    "clear": lambda sack: (sack.clear(), bool(sack), sack),
    "match": _matched,
    "vars": lambda sack: (bool(sack.__dict__), len(vars(sack)), list(sack.__dict__.items()), "a" in sack.__dict__, sack.__dict__),
    "set vars": lambda sack: (sack.__dict__.update(k=3), sack.k, sack.__dict__["k"], setattr(sack, "k", 4), vars(sack)["k"]),
    "loop": lambda sack: [(k, v) for k, v in sack.items()] + [k for k in sack] + [v for v in sack.values()],  # noqa: C416
    "nested": lambda sack: (sack.__setitem__("own", [sack["a"]]), sack["own"][0], sack),
    "repr": lambda sack: (repr(sack), f"{sack}", str(sack.keys())),
    "missing": lambda sack: sack["nothing"],
    "isinstance": lambda sack: (isinstance(sack, dict), isinstance(sack, OrderedDict), type(sack).__name__, callable(sack)),
}


@pytest.mark.parametrize("cls", [Sack, OrderedSack])
@pytest.mark.parametrize("name", OPERATIONS)
def test_operations_on_an_instance_of_a_dicts_subclass(name: str, cls: type[dict[str, Any]]) -> None:
    operation = OPERATIONS[name]

    def f(x: torch.Tensor) -> Any:
        sack = cls()
        sack["a"] = 1
        sack["b"] = 2
        y = x + 1
        return y, operation(sack)

    Checked(f)(X)


def test_stores_to_attributes_of_tensors_that_their_class_does_not_know() -> None:
    constant = torch.ones(2)

    def f(x: torch.Tensor, mark: Any) -> Any:
        y = x + 1
        y.mark = mark  # type: ignore[attr-defined]
        y.mark = constant.mark = y.mark * 2  # type: ignore[attr-defined]
        return y, constant.mark, hasattr(x, "mark"), constant  # type: ignore[attr-defined]

    jitted = trident.jit(f)
    for n in range(4):
        marked, mark, there, same_one = jitted(X, n)
        assert torch.equal(marked, X + 1) and marked.mark == mark == constant.mark == 2 * n
        assert not there and same_one is constant
    x = X.clone()
    x.mark = 0  # type: ignore[attr-defined]
    assert jitted(x, 5)[1:3] == (10, True)
    assert trident.explain(jitted).hits >= 2
    stores = [call for call in trident.explain(jitted).specializations[0].opaque_calls if "store" in call.reason]
    assert not stores

    def moved(x: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
        x.data = tensor
        return x.sum()

    assert float(trident.jit(moved)(torch.ones(2), torch.ones(3))) == 3.0


def test_an_attribute_of_a_tensor_that_the_class_gets_later() -> None:

    def f(x: torch.Tensor) -> Any:
        x.later = 1  # type: ignore[attr-defined]
        return x

    jitted, seen = trident.jit(f), []
    for _ in range(3):
        assert jitted(torch.ones(2)).later == 1
    torch.Tensor.later = property(lambda self: seen[-1], lambda self, value: seen.append(value))  # type: ignore[attr-defined]
    try:
        for n in range(3):
            jitted(torch.ones(2))
            assert len(seen) == n + 1
    finally:
        del torch.Tensor.later  # type: ignore[attr-defined]
    assert jitted(torch.ones(2)).__dict__ == {"later": 1}
