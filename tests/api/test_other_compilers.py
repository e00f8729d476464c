"""Jitted functions and modules under torch's own compilers, and copies of them: what a user of the originals would get."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

import trident
from trident.api import entry_of, is_jitted

X = torch.arange(8.0).reshape(2, 4)


@trident.jit
def function(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.l(x))


class Outer(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


class Calls(nn.Module):
    def forward(self, x):
        return function(x) * 2


@pytest.fixture(params=["cold", "warm"])
def net(request: pytest.FixtureRequest) -> Net:
    net = Net()
    if request.param == "warm":
        function(X), function(X)
    return net


COMPILERS: dict[str, Any] = {
    "script": torch.jit.script,
    "trace": lambda f: torch.jit.trace(f, (X,)),
    "export": lambda f: torch.export.export(f, (X,)).module(),
    "compile": lambda f: torch.compile(f, backend="eager"),
    "fx": torch.fx.symbolic_trace,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", COMPILERS)
def test_compilers(name: str, net: Net) -> None:
    compiled = COMPILERS[name]
    jitted = trident.jit(net)
    jitted(X), jitted(X)
    assert compiled(jitted)(X).equal(net(X))
    assert compiled(Outer(jitted))(X).equal(net(X) + 1)
    if name not in ("export", "fx"):  # export takes modules only, and fx no callable but functions and modules
        assert compiled(function)(X).equal(function.__wrapped__(X))
    if name != "script":  # torch.jit.script looks at no callable but functions inside what it compiles
        assert compiled(Calls())(X).equal(function.__wrapped__(X) * 2)
    assert jitted(X).equal(net(X)) and function(X).equal(function.__wrapped__(X))


def test_copies_of_functions() -> None:
    assert copy.copy(function) is function and copy.deepcopy(function) is function
    assert pickle.loads(pickle.dumps(function)) is function
    local = trident.jit(lambda x: x)
    with pytest.raises((pickle.PicklingError, AttributeError), match="lambda"):
        pickle.dumps(local)


def _saved(module: nn.Module) -> nn.Module:
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), _saved])
def test_copies_of_modules(copied: Any, net: Net) -> None:
    jitted = trident.jit(net, max_specializations=7)
    expected = net(X)
    jitted(X), jitted(X)
    other = copied(jitted)
    assert is_jitted(other) and isinstance(other, Net) and entry_of(other).options.max_specializations == 7
    other.extra = 1
    assert not hasattr(net, "extra")
    assert other(X).equal(expected) and other(X).equal(expected) and trident.explain(other).hits
    with torch.no_grad():
        other.l = nn.Linear(4, 4)
        other.l.weight.zero_()
        other.l.bias.zero_()
    assert other(X).equal(torch.zeros(2, 4))
    if copied is not copy.copy:  # which shares the table of submodules, as with any module
        assert jitted(X).equal(expected)
