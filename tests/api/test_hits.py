"""A hit: no Python frame is entered, nothing leaks."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
from torch import nn

import trident
from tests.memory import peak_memory, resident
from trident.api import entry_of
from trident.backend.native.evaluator import count_frames

X = torch.randn(4, 8)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

    def forward(self, x, scale=1.0):
        for layer in self.layers:
            x = torch.relu(layer(x)) * scale
        return x, {"n": x.shape[0]}


@pytest.mark.usefixtures("no_collections")
def test_a_hit_enters_no_frame() -> None:
    @trident.jit
    def f(x, n, *rest, k=2, **kw):
        with torch.no_grad():
            y = [x * i for i in range(3)]
        return y[2] + n * k, (n + 1, {"a": x.shape[0]})

    net = trident.jit(Net())
    calls = [lambda: f(X, 3), lambda: f(X, 4, k=5), lambda: f(X, 4, 7, z=5), lambda: net(X), lambda: net(X, scale=0.5)]
    for call in calls:
        call(), call(), call()
    entries = entry_of(f), entry_of(net)  # not trident.stats(): that is of the functions that are alive, and the collector may run
    hits = [entry.cell.hits for entry in entries]
    with count_frames() as counted:
        f(X, 3)
        f(X, 4, k=5)
        f(X, 4, 7, z=5)
        net(X)
        net(X, scale=0.5)
    assert counted.count == 0
    assert [entry.cell.hits for entry in entries] == [hits[0] + 3, hits[1] + 2]


def _settle(call, n: int) -> None:
    for _ in range(n):
        call()
    gc.collect()


@pytest.mark.parametrize("name", ["hit", "side exit", "exception", "opaque", "module"])
def test_nothing_leaks(name: str) -> None:
    @trident.jit(bridge_threshold=10**9)
    def f(x, flag):
        y = x + 1
        if y.sum() > 0:
            return [y, (flag, y * 2)]
        return y

    @trident.jit
    def g(x, y):
        return (x + 1) @ y

    @trident.jit
    def h(x):
        return sorted([x.shape[0], 2]), x + 1

    net = trident.jit(Net())
    token = object()

    def failing() -> None:
        try:
            g(X, X)
        except RuntimeError:
            pass

    g(X, X.t()), g(X, X.t())
    call = {"hit": lambda: f(X.abs(), token), "side exit": lambda: f(-X.abs() - 1, token), "exception": failing,
            "opaque": lambda: h(X), "module": lambda: net(X)}[name]
    f(X.abs(), token), f(X.abs(), token)
    _settle(call, 200)
    refs, objects, rss = sys.getrefcount(token), len(gc.get_objects()), resident()
    _settle(call, 3000)
    assert sys.getrefcount(token) == refs
    assert len(gc.get_objects()) - objects < 50
    assert resident() - rss < 6 << 20


def test_intermediates_die_at_their_last_use() -> None:
    """The most memory that a call holds at a time, as the allocator counts it, is that of eager."""
    def f(x):
        for _ in range(20):
            x = x + 1
        return x.sum()

    jitted, x = trident.jit(f), torch.zeros(1 << 16)
    jitted(x), jitted(x)
    expected = peak_memory(lambda: f(x))
    assert 2 * x.nbytes <= expected < 3 * x.nbytes
    assert peak_memory(lambda: jitted(x)) <= expected
    assert entry_of(jitted).cell.hits == 2
