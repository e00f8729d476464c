"""Functions that get another object at each call: one specialization that reads what it needs from the object."""

from __future__ import annotations

import collections
import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import trident
from trident.api import entry_of
from trident.entry import StrictError


class Norm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    kind = "block"

    def __init__(self, size: int, number: int) -> None:
        super().__init__()
        self.number = number
        self.norm = Norm(size, 1e-5 * (number + 1))
        self.inner = nn.ModuleList([nn.Linear(size, size) for _ in range(2)])
        self.activation = torch.nn.functional.silu
        self.register_buffer("scale", torch.tensor(float(number)))

    @property
    def doubled(self) -> torch.Tensor:
        return self.scale * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.norm(x) * self.doubled
        for linear in self.inner:
            h = self.activation(linear(h))
        if self.training:
            h = h + 1
        return x + h + self.number


def blocks(count: int, size: int = 8) -> list[Block]:
    torch.manual_seed(0)
    return [Block(size, n) for n in range(count)]


def same(jitted: Any, *args: Any) -> None:
    assert torch.equal(jitted(*args), jitted.__wrapped__(*args))


@pytest.fixture
def forward() -> Any:
    return trident.jit(Block.forward)


def test_32_layers_share_one_specialization(forward: Any) -> None:
    layers, x = blocks(32), torch.randn(2, 8)
    for _ in range(2):
        for layer in layers:
            same(forward, layer, x)
    told = trident.explain(forward)
    assert forward.specializations == 1 and told.misses == 2 and told.side_exits == 0
    assert not told.specializations[0].opaque_calls


def test_one_object_stays_a_constant(forward: Any) -> None:
    layer, x = blocks(1)[0], torch.randn(2, 8)
    for _ in range(3):
        same(forward, layer, x)
    assert any("the same Block" in guard.text for guard in trident.explain(forward).specializations[0].guards)


def _swap_parameter(layer: Block) -> None:
    layer.norm.weight = nn.Parameter(torch.randn(8))


def _write_parameter(layer: Block) -> None:
    with torch.no_grad():
        layer.norm.weight.mul_(2)


def _swap_module(layer: Block) -> None:
    layer.inner[1] = nn.Linear(8, 8, bias=False)


def _append_module(layer: Block) -> None:
    layer.inner.append(nn.Linear(8, 8))


def _hook(layer: Block) -> None:
    layer.norm.register_forward_hook(lambda module, args, result: result * 3)


def _pre_hook(layer: Block) -> None:
    layer.inner[0].register_forward_pre_hook(lambda module, args: (args[0] - 1,))


def _override(layer: Block) -> None:
    layer.norm.forward = lambda x: x + 5  # type: ignore[method-assign]


def _change_class(layer: Block) -> None:
    class Other(Norm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x - self.weight

    layer.norm.__class__ = Other


def _shadow_number(layer: Block) -> None:
    layer.number = 2.5  # type: ignore[assignment]


def _shadow_buffer(layer: Block) -> None:
    layer.scale = torch.tensor(7.0)


def _delete_and_replace(layer: Block) -> None:
    del layer.norm
    layer.norm = Norm(8, 0.5)


def _replace_dict(layer: Block) -> None:
    layer.__dict__ = {**layer.__dict__, "number": 11}


def _train(layer: Block) -> None:
    layer.train(not layer.training)


def _another_activation(layer: Block) -> None:
    layer.activation = torch.tanh  # type: ignore[assignment]


def _count(layer: Block) -> None:
    layer.counter = 1  # type: ignore[assignment]


@pytest.mark.parametrize("change", [
    _swap_parameter, _write_parameter, _swap_module, _append_module, _hook, _pre_hook, _override, _change_class, _shadow_number,
    _shadow_buffer, _delete_and_replace, _replace_dict, _train, _another_activation, _count], ids=lambda f: f.__name__.strip("_"))
def test_changes_of_one_object_are_seen_at_once(forward: Any, change: Callable[[Block], None]) -> None:
    layers, x = blocks(4), torch.randn(2, 8)
    for _ in range(2):
        for layer in layers:
            same(forward, layer, x)
    change(layers[2])
    for _ in range(3):
        for layer in layers:
            same(forward, layer, x)


def test_changes_of_the_class_are_seen_at_once(forward: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    layers, x = blocks(3), torch.randn(2, 8)
    for layer in layers * 2:
        same(forward, layer, x)
    monkeypatch.setattr(Norm, "forward", lambda self, x: x * self.eps)
    for layer in layers * 2:
        same(forward, layer, x)
    monkeypatch.setattr(Block, "doubled", property(lambda self: self.scale + 100))
    for layer in layers * 2:
        same(forward, layer, x)


class Cache:
    """As a library would write one: made for each request, filled in place and by rebinding."""

    def __init__(self) -> None:
        self.keys: torch.Tensor | None = None
        self.length = 0
        self.seen: list[int] = []

    def update(self, new: torch.Tensor) -> torch.Tensor:
        self.keys = new if self.keys is None else torch.cat([self.keys, new], dim=0)
        self.length += new.shape[0]
        self.seen.append(self.length)
        return self.keys


def _attend(x: torch.Tensor, cache: Cache) -> torch.Tensor:
    keys = cache.update(x * 2)
    return torch.softmax(x @ keys.T, -1) @ keys + cache.length


def test_a_cache_made_for_each_request() -> None:
    attend = trident.jit(_attend)
    for request in range(6):
        mine, eager = Cache(), Cache()
        for step in range(4):
            x = torch.randn(1 + step % 2, 8)
            assert torch.equal(attend(x, mine), _attend(x, eager))
            assert mine.length == eager.length and mine.seen == eager.seen and torch.equal(mine.keys, eager.keys)  # type: ignore[arg-type]
        if request == 2:
            known = attend.specializations
    assert attend.specializations == known <= 3


def test_objects_are_not_kept_alive() -> None:
    attend = trident.jit(_attend)
    watched = []
    for _ in range(6):
        cache = Cache()
        for _ in range(3):
            attend(torch.randn(1, 8), cache)
        watched.append(weakref.ref(cache))
    del cache
    gc.collect()
    assert sum(ref() is not None for ref in watched[2:]) == 0


class Slotted:
    __slots__ = ("weight",)

    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight


class Dynamic:
    def __init__(self, weight: torch.Tensor) -> None:
        self._weight = weight

    def __getattr__(self, name: str) -> Any:
        if name == "weight":
            return self._weight + 1
        raise AttributeError(name)


class Holder:
    def __init__(self, weight: torch.Tensor) -> None:
        self.weight = weight
        self.parts = {"a": weight + 1, "b": [weight, (weight * 2,)]}
        self.me = self

    def __len__(self) -> int:
        return self.weight.shape[0]

    def __bool__(self) -> bool:
        return bool(self.weight.shape[0] > 1)

    def __getitem__(self, key: str) -> torch.Tensor:
        return self.parts[key]  # type: ignore[return-value]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.weight

    def __iter__(self) -> Any:
        return iter((self.weight, self.parts["a"]))


def _use(x: torch.Tensor, held: Any) -> torch.Tensor:
    return x * held.weight


def _use_all(x: torch.Tensor, held: Any) -> torch.Tensor:
    if not held or getattr(held, "absent", None) is not None or not hasattr(held, "parts") or not isinstance(held, Holder):
        return x
    first, second = held
    more = held.parts["b"][1][0] + len(held) + (held.me is held) + vars(held)["weight"]
    return held(x) + held["a"] + first + second + more + type(held).__len__(held)


@pytest.mark.parametrize("cls", [Slotted, Dynamic, Holder])
@pytest.mark.parametrize("function", [_use, _use_all])
def test_all_kinds_of_objects(cls: Any, function: Any) -> None:
    jitted = trident.jit(function)
    for n in range(12):
        held, x = cls(torch.randn(2 + n % 2)), torch.randn(2 + n % 2)
        same(jitted, x, held)
    if cls is Holder:
        assert jitted.specializations <= 2


def test_two_models_through_one_function() -> None:
    step = trident.jit(lambda model, x: model(x).argmax(-1))
    models = [nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))]
    x = torch.randn(5, 4)
    for model in models * 4:
        same(step, model, x)
    assert step.specializations <= 2 and trident.explain(step).misses <= 3


def test_stores_to_the_object_are_read_back() -> None:
    class State:
        def __init__(self) -> None:
            self.total = torch.zeros(3)
            self.steps = 0

    def step(state: State, x: torch.Tensor) -> torch.Tensor:
        state.total = state.total + x
        state.steps += 1
        return state.total * state.steps

    jitted = trident.jit(step)
    for _ in range(5):
        mine, eager = State(), State()
        for _ in range(3):
            x = torch.randn(3)
            assert torch.equal(jitted(mine, x), step(eager, x))
        assert mine.steps == eager.steps and torch.equal(mine.total, eager.total)
    assert jitted.specializations <= 2


class Counter:
    def __init__(self, n: int) -> None:
        self.n, self.value = n, torch.full((2,), float(n))


def test_new_objects_whose_attributes_are_overwritten() -> None:
    """What the first recordings rest on they overwrite themselves: they are never published, yet the object is read at run time."""
    def step(counter: Counter, x: torch.Tensor) -> torch.Tensor:
        y = counter.value * x
        counter.n = counter.n + 1
        counter.value = y
        return y + counter.n

    jitted, x = trident.jit(step), torch.ones(2)
    for n in range(10):
        ours, theirs = Counter(n), Counter(n)
        assert torch.equal(jitted(ours, x), step(theirs, x))
        assert ours.n == theirs.n and torch.equal(ours.value, theirs.value)
    entry = entry_of(jitted)
    assert entry.cell.hits == 8 and len(entry.specializations) == 1 and not entry.aborts


class Holder:
    def __init__(self, held: Any) -> None:
        self.held = held


def test_strict_says_what_is_opaque_in_a_recording_that_is_dropped() -> None:
    jitted = trident.jit(lambda holder: holder.held.upper(), strict=True)
    assert jitted(Holder("a")) == "A"
    with pytest.raises(StrictError, match="upper is called opaquely"):
        jitted(Holder("b"))


class Slotted:
    __slots__ = ("n",)

    def __init__(self, n: int) -> None:
        self.n = n


@pytest.mark.filterwarnings("error")
def test_strict_functions_are_never_left_to_cpython_in_silence() -> None:
    jitted = trident.jit(lambda held, x: x + held.n, strict=True)
    held = [Slotted(n) for n in range(16)]
    for one in held[:8]:
        assert jitted(one, 1) == one.n + 1
    for one in held[9:]:
        with pytest.raises(StrictError, match="another object each time"):
            jitted(one, 1)
    assert jitted(held[0], 1) == 1  # compiled before

    few = trident.jit(lambda x: type(x).__name__, strict=True, max_specializations=2)
    assert few(1) + few("b") == "intstr"
    with pytest.raises(StrictError, match="more than 2 specializations"):
        few(1.5)
    assert few("c") == "str"


def test_setattr_of_grad_is_no_constant() -> None:
    def f(t: torch.Tensor) -> torch.Tensor:
        setattr(t, "grad", None)  # noqa: B010
        return t * 2

    jitted = trident.jit(f)
    for _ in range(4):
        t = torch.ones(2, requires_grad=True)
        t.grad = torch.ones(2)
        jitted(t)
        assert t.grad is None
    assert entry_of(jitted).cell.hits == 3


@dataclasses.dataclass
class Output:
    first: Any = None
    second: Any = None


def test_a_store_to_an_object_leaves_tables_with_a_key_of_that_name_alone() -> None:
    def f(output: Output, x: torch.Tensor) -> Any:
        output.first = x + 1
        return [getattr(output, field.name) for field in dataclasses.fields(output)]

    jitted = trident.jit(f)
    for n in range(5):
        first, second = jitted(Output(None, n), torch.ones(2))
        assert torch.equal(first, torch.full((2,), 2.0)) and second == n
    told = trident.explain(jitted)
    assert told.hits >= 3 and not told.aborts and not told.specializations[-1].opaque_calls


def test_the_table_may_be_the_objects_own_dict() -> None:
    table: dict[str, Any] = {"first": 1, "second": 2}

    def f(output: Output) -> Any:
        output.first = output.second
        return list(table.items())

    jitted = trident.jit(f)
    for n in range(4):
        assert jitted(Output(None, n)) == [("first", 1), ("second", 2)]
    assert trident.explain(jitted).hits >= 2
    alias = Output()
    alias.__dict__ = table
    for n in range(4):
        table.update(first=n, second=7)
        assert jitted(alias) == [("first", 7), ("second", 7)]
    table.update(first=1, second=2)
    assert jitted(Output(None, 5)) == [("first", 1), ("second", 2)]


class Request:
    """Its first use does more than the others, and opaquely."""

    def __init__(self) -> None:
        self.name = b""
        self.count = 0


def test_objects_that_go_on_coming_are_read_at_run_time_in_spite_of_opaque_calls() -> None:
    def f(request: Request, x: torch.Tensor) -> torch.Tensor:
        if not request.name:
            request.name = str(x.dim()).encode()
        request.count += 1
        return x + request.count

    jitted = trident.jit(f)

    def serve() -> None:
        request, x = Request(), torch.ones(2)
        for n in range(4):
            assert torch.equal(jitted(request, x), x + n + 1)

    for _ in range(10):
        serve()
    entry = entry_of(jitted)
    misses, hits = entry.cell.misses, entry.cell.hits
    for _ in range(4):
        serve()
    assert entry.cell.misses == misses and entry.cell.hits == hits + 16


def _pops(x: torch.Tensor, **kwargs: Any) -> Any:
    """What is popped is gone, then comes an effect, then the first use of an object that is another one at each call."""
    twice = kwargs.pop("twice", False)
    y = torch.relu(x) * (2 if twice else 1)
    return y + kwargs["held"].weight, kwargs


def test_items_of_changed_keyword_arguments_are_read_at_run_time() -> None:
    jitted, x = trident.jit(_pops), torch.randn(4, 8)
    for n in range(8):
        given = {"twice": True, "held": _Held(float(n)), "more": n}
        expected, rest = _pops(x, **given)
        result, left = jitted(x, **given)
        assert torch.equal(result, expected) and left == rest == {"held": given["held"], "more": n} and list(left) == ["held", "more"]
        assert len(given) == 3
    told = trident.explain(jitted)
    assert len(told.specializations) == 1 and told.misses <= 3 and told.side_exits == 0
    turned = {"more": 3, "held": _Held(1.5)}
    assert torch.equal(jitted(x, **turned)[0], _pops(x, **turned)[0]) and list(jitted(x, **turned)[1]) == ["more", "held"]


class _Held:
    def __init__(self, weight: float) -> None:
        self.weight = weight


class _Output(collections.OrderedDict):
    """As the outputs of models: a dict whose `[]` takes numbers, too."""

    def __getitem__(self, key: Any) -> Any:
        return dict(self.items())[key] if isinstance(key, str) else self.to_tuple()[key]

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[key] for key in self.keys())


def _decode(x: torch.Tensor, encoded: Any = None) -> torch.Tensor:
    return x + encoded[0] * len(encoded) + encoded["last"]


def test_outputs_of_a_model_as_arguments() -> None:
    jitted = trident.jit(_decode)
    for n in range(6):
        encoded = _Output(first=torch.full((3,), float(n)), last=torch.ones(3))
        for _ in range(2):
            same(jitted, torch.ones(3), encoded)
    told = trident.explain(jitted)
    assert len(told.specializations) == 1 and told.hits == 11 and not told.specializations[0].opaque_calls
    same(jitted, torch.ones(3), _Output(first=torch.ones(3), middle=None, last=torch.ones(3)))
    same(jitted, torch.ones(3), {0: torch.ones(3), "last": torch.ones(3)})
