"""Where Trident is off (TRIDENT_DISABLE, an unsupported Python or torch) everything exists, runs eagerly, and says why."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

import trident
from tests.processes import environment
from trident import api, support

ROOT = Path(__file__).parents[2]
X = torch.arange(4.0)


@pytest.fixture(params=["disabled", "unsupported"])
def why(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Trident is off; what explanations say of it."""
    api._warn_unsupported.cache_clear()
    if request.param == "disabled":
        monkeypatch.setenv("TRIDENT_DISABLE", "1")
        yield "TRIDENT_DISABLE"
    else:
        monkeypatch.setattr(api, "unsupported_reason", lambda: "Python 3.99 is not one of 3.11, 3.12")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            yield "Python 3.99"
    api._warn_unsupported.cache_clear()


def module_level(x: torch.Tensor, n: int = 2, *, k: int = 3) -> torch.Tensor:
    """Doc."""
    return x * n + k


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.up(x)


def test_functions(why: str) -> None:
    jitted = trident.jit(module_level)
    assert jitted(X).equal(module_level(X)) and jitted(X, 5, k=1).equal(module_level(X, 5, k=1))
    assert jitted.specializations == 0 and jitted.reset() is None and jitted.__wrapped__ is module_level
    assert jitted.__name__ == "module_level" and jitted.__doc__ == "Doc."
    assert inspect.signature(jitted) == inspect.signature(module_level)
    explanation = trident.explain(jitted)
    assert why in explanation.status and why in " ".join(str(explanation).split())  # a long path breaks its lines elsewhere
    assert trident.explain(jitted).specializations == () and trident.explain(jitted).hits == 0
    assert trident.jit(jitted) is jitted and copy.deepcopy(jitted) is jitted
    with pytest.raises(TypeError, match="positional argument"):
        jitted()


def test_closures_and_decorators(why: str) -> None:
    count = 0

    @trident.jit(max_specializations=3)
    def step(x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return x + count

    assert step(X).equal(X + 1) and step(X).equal(X + 2) and count == 2
    assert why in trident.explain(step).status


def test_methods(why: str) -> None:
    class Thing:
        @trident.jit
        def scaled(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @trident.jit
        @staticmethod
        def static(x: torch.Tensor) -> torch.Tensor:
            return x * 3

    thing = Thing()
    assert thing.scaled(X).equal(X * 2) and thing.static(X).equal(X * 3) and Thing.static(X).equal(X * 3)
    assert why in trident.explain(thing.scaled).status and why in trident.explain(Thing.static).status
    assert why in trident.explain(trident.jit(thing.scaled)).status


def test_modules(why: str) -> None:
    net = Net()
    jitted = trident.jit(net)
    assert jitted(X).equal(net(X)) and isinstance(jitted, Net) and jitted.__wrapped__ is net
    assert jitted.specializations == 0 and jitted.reset() is None and trident.jit(jitted) is jitted
    assert why in trident.explain(jitted).status
    assert [p.data_ptr() for p in jitted.parameters()] == [p.data_ptr() for p in net.parameters()]
    assert copy.deepcopy(jitted)(X).equal(net(X)) and pickle.loads(pickle.dumps(jitted))(X).equal(net(X))
    jitted.eval()
    assert not net.training


def test_the_hook_and_stats(why: str) -> None:
    with trident.frame_hook():
        assert module_level(X).equal(X * 2 + 3)
    assert why in trident.explain(module_level).status and why in trident.explain(Net()).status
    assert set(trident.stats()) >= {"functions", "specializations", "hits", "misses"}
    with pytest.raises(TypeError):
        trident.explain(3)


def test_bad_use_is_told_all_the_same(why: str) -> None:
    async def coroutine() -> None: ...

    for target in (len, 3, coroutine):
        with pytest.raises(TypeError):
            trident.jit(target)
    with pytest.raises(TypeError, match="known options"):
        trident.jit(module_level, dynamic=True)


def test_one_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    api._warn_unsupported.cache_clear()
    monkeypatch.setattr(api, "unsupported_reason", lambda: "no")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            trident.jit(module_level)(X)
    api._warn_unsupported.cache_clear()
    assert [(str(w.message), w.filename) for w in caught] == [("trident is off, everything runs eagerly: no", __file__)]


@pytest.mark.parametrize("version, good", [
    ("2.11.0a0+git123", True), ("2.13.0.dev20260101", True), ("2.12", True), ("2.13.0+cu130", True), ("2.12.0rc1", True),
    ("2.14.0a0", False), ("3", False), ("1.13.1", False), ("unknown", False), ("", False), ("2.x", False),
])
def test_versions_of_torch(version: str, good: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", version)
    reason = support.unsupported_reason.__wrapped__()
    assert (reason == "") is good, reason
    assert good or version in reason


def _run(*command: str, **variables: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment(**variables), timeout=250, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_readmes_example_runs_when_disabled(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (tmp_path / "example.py").write_text(text.split("```python\n", 1)[1].split("```", 1)[0])
    assert "TRIDENT_DISABLE" in _run(str(tmp_path / "example.py"), TRIDENT_DISABLE="1")


_FOREIGN = """
import torch, trident
compiled = torch.compile(lambda x: x + 1, backend="eager")
def boom(graph, inputs):
    raise RuntimeError("no compiler")
try:
    torch.compile(lambda x: x * 2, backend=boom)(torch.ones(2))
except Exception as error:
    print(type(error).__name__)
compiled(torch.ones(2))
f = trident.jit(lambda x: (x + 1) * 2)
print([f(torch.ones(2)).tolist() for _ in range(3)], trident.explain(f).hits, trident.explain(f).status)
"""


def test_a_foreign_evaluator_does_not_turn_trident_off() -> None:
    """A compilation of torch.compile's that failed leaves Dynamo's evaluator installed."""
    out = _run("-c", _FOREIGN)
    assert "[[4.0, 4.0], [4.0, 4.0], [4.0, 4.0]] 2 active" in out and "Warning" not in out, out


@pytest.mark.slow
def test_the_readmes_first_command_without_a_compiler(tmp_path: Path) -> None:
    out = _run("examples/llama_decode.py", "--config", "tiny", "--device", "cpu", "--tokens", "4", PATH=str(tmp_path), CXX="")
    assert "needs a C++ compiler" in out and "bit-identical to eager's" in out
