"""frame_hook: undecorated code, the same SCM, chaining, nesting, exceptions."""

from __future__ import annotations

import inspect
import threading
from types import FunctionType

import pytest
import torch
from torch import nn

import trident
from trident import capture, options

X = torch.randn(4, 8)


def plain(x, k=2):
    return torch.relu(x) * k + 1


def outer(x):
    return plain(x) + plain(x, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.up(x))


def test_captures_undecorated_functions() -> None:
    expected = outer(X)
    with trident.frame_hook():
        for _ in range(4):
            assert torch.equal(outer(X), expected)
    assert trident.explain(outer).hits >= 2
    hits = trident.explain(outer).hits
    assert torch.equal(outer(X), expected)
    assert trident.explain(outer).hits == hits


def test_captures_modules() -> None:
    net = Net()
    expected = net(X)
    with trident.frame_hook():
        for _ in range(4):
            assert torch.equal(net(X), expected)
    assert trident.explain(Net.forward).hits >= 2


def test_code_without_tensors_is_left_alone() -> None:
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    with trident.frame_hook():
        assert fib(15) == 610
    with pytest.raises(TypeError):
        assert trident.explain(fib).specializations == ()
        raise TypeError


def test_exceptions_pass_and_the_hook_goes() -> None:
    def bad(x):
        y = x + 1
        return y @ y

    for _ in range(3):
        with pytest.raises(RuntimeError) as caught, trident.frame_hook():
            bad(X)
        assert caught.traceback[-1].name == "bad"
        assert sum(entry.name == "bad" for entry in caught.traceback) == 1
    before = trident.stats()["hits"]
    plain(X)
    assert trident.stats()["hits"] == before


def test_nests() -> None:
    with trident.frame_hook():
        with trident.frame_hook():
            a = outer(X)
        b = outer(X)
    assert torch.equal(a, b)


def test_only_this_thread() -> None:
    def elsewhere(x):
        return x * 5

    seen = []
    with trident.frame_hook():
        thread = threading.Thread(target=lambda: seen.append([elsewhere(X) for _ in range(3)]))
        thread.start()
        thread.join()
    assert torch.equal(seen[0][0], X * 5)
    with pytest.raises(TypeError):
        trident.explain(elsewhere)


def test_generators_run() -> None:
    def rows(x):
        yield from (r * 2 for r in x)

    def total(x):
        return sum(r.sum() for r in rows(x))

    expected = total(X)
    with trident.frame_hook():
        for _ in range(3):
            assert torch.equal(total(X), expected)


def test_functions_that_share_a_code_object() -> None:
    def make(k):
        def add(x):
            return x + k

        return add

    one, hundred = make(1), make(100)
    with trident.frame_hook():
        for _ in range(4):
            assert torch.equal(one(X), X + 1)
            assert torch.equal(hundred(X), X + 100)


def drive(net, x, seen):
    """Mostly what the recorder cannot look into, around a model: not what the hook is for."""
    for step in range(12):
        seen.update(x.new_tensor([step]).tolist())
        seen.add(str(Odd(step)))
        x = net(x)
    return x


class Odd(tuple):  # its instances are made opaquely
    def __new__(cls, n):
        return tuple.__new__(cls, (n,))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.up(x))


@pytest.mark.parametrize("few", [False, True])
def test_a_frame_of_opaque_calls_is_left_and_what_it_calls_is_captured(few: bool) -> None:
    namespace = {"Odd": Odd}
    exec(compile(inspect.getsource(drive), __file__, "exec"), namespace)  # a code object that the hook has not seen
    driver, net = namespace["drive"], Layers()
    net_class = type("Layers", (Layers,), {"forward": copy_of(Layers.forward)})
    net.__class__ = net_class
    expected_seen, seen = set(), set()
    expected = drive(net, X, expected_seen)
    with options.scope(max_opaque_calls=2 if few else 1000), trident.frame_hook():
        for _ in range(4):
            assert torch.equal(driver(net, X, seen), expected) and seen == expected_seen
    told = trident.explain(driver)
    assert ("what it calls is captured by itself" in told.status) is few
    assert bool(told.specializations) is not few
    assert [abort.reason for abort in told.aborts] == ["opaque"] * few
    if few:
        assert told.misses == 1 and trident.explain(net_class.forward).hits >= 30
        jitted = trident.jit(driver)  # asked for: no limit
        for _ in range(3):
            assert torch.equal(jitted(net, X, seen), expected)
        assert trident.explain(jitted).specializations and not trident.explain(jitted).aborts


def test_frames_without_tensor_operations_are_left() -> None:
    def inner(x):
        return torch.relu(x) + 1

    def length(x):
        return x.shape[0] * 2

    with trident.frame_hook():
        for n in range(8):
            x = torch.randn(3 + n, 2)
            assert length(x) == 2 * (3 + n) and torch.equal(inner(x), x.relu() + 1)
    told = trident.explain(length)
    assert "no tensor operation" in told.status and not told.specializations and told.misses <= 2
    assert trident.explain(inner).hits >= 6


def test_a_frame_that_is_recorded_again_and_again_is_left() -> None:
    """Each call brings another constant: nobody has asked for all these specializations."""
    factors = {f"by {n}": n for n in range(64)}

    def scale(x, name):
        return x * factors[name] + torch.ones(2)

    most = capture.FREE_RECORDINGS
    with trident.frame_hook():
        for n in range(2 * most):
            assert torch.equal(scale(X[:, :2], f"by {n}"), X[:, :2] * n + 1)
    told = trident.explain(scale)
    assert f"recorded {most} times for 0 hits; what it calls is captured by itself" in told.status and not told.specializations
    fast = trident.jit(scale)  # asked for
    for n in range(most + 4):
        assert torch.equal(fast(X[:, :2], f"by {n}"), X[:, :2] * n + 1)
    assert len(trident.explain(fast).specializations) > most


def test_what_a_given_up_frame_calls_is_captured_in_the_same_call() -> None:
    net = type("Layers", (Layers,), {"forward": copy_of(Layers.forward)})()
    driver = copy_of(drive)
    driver.__globals__["Odd"] = Odd
    with options.scope(max_opaque_calls=2), trident.frame_hook():
        driver(net, X, set())
    assert trident.explain(driver).misses == 1
    assert trident.explain(type(net).forward).hits >= 8


def test_what_follows_an_exit_becomes_a_part_of_the_bridge() -> None:
    def rare(x):
        return torch.tanh(x)

    def step(x):
        y = torch.relu(x)
        return rare(y) + 1 if y.sum() > 100 else y

    small, large = torch.ones(3), torch.full((3,), 50.0)
    with trident.frame_hook():
        for x in (small, small, large, large, large, small):
            assert torch.equal(step(x), torch.tanh(x) + 1 if x is large else x)
    told = trident.explain(step)
    assert told.side_exits == 2 and told.hits == 5 and [made.kind for made in told.specializations] == ["root", "bridge"]
    with pytest.raises(TypeError):  # the hook has left it alone
        trident.explain(rare)
    trident.api.entry_of(step).reset()
    with trident.frame_hook():
        step(small)
    assert len(trident.explain(step).specializations) == 1


def copy_of(function):
    """A function with a code object of its own."""
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
