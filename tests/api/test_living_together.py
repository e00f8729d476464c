"""Beside other threads, processes and tools: what works with plain functions works with jitted ones."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import trident
from tests.processes import ROOT, environment
from tests.storm import storm

X = torch.arange(8.0).reshape(2, 4) - 3


@pytest.mark.parametrize("name", ["forks", "processes", "the_interpreter_ends"])
def test_processes(name: str) -> None:
    done = subprocess.run([sys.executable, "-m", "tests.api.living_scenarios", name], cwd=ROOT, env=environment(),
                          capture_output=True, text=True, timeout=240, check=False)  # fmt: skip
    said = "fine\nlate\n" if name == "the_interpreter_ends" else "fine\n"
    assert (done.returncode, done.stdout, done.stderr) == (0, said, ""), done


# -------------------------------------------------------------------------------------------------------------- threads
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


def branches(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def of_many(tensors, n):
    return torch.stack(tensors).sum(0) + n


def test_a_server_of_eight_threads() -> None:
    """10,000 calls of the same and of different functions, with arguments that need other specializations and bridges."""
    net = Net()
    plain = (net, branches, of_many)
    jitted: tuple[Any, ...] = tuple(trident.jit(f) for f in plain)
    inputs = [torch.randn(n % 3 + 1, 4) - n % 2 for n in range(12)]
    expected = [(net(x), branches(x), of_many([x] * (n % 3 + 1), n)) for n, x in enumerate(inputs)]

    def request(number: int) -> None:
        n = number % len(inputs)
        x = inputs[n]
        which = number % 3
        seen = jitted[which](*((x,) if which < 2 else ([x] * (n % 3 + 1), n)))
        assert seen.equal(expected[n][which])

    with torch.no_grad(), ThreadPoolExecutor(8) as pool:
        for number in range(60):
            request(number)
        assert len(list(pool.map(request, range(10_000)))) == 10_000
    assert sum(trident.explain(f).hits for f in jitted) > 5_000


def test_training_in_threads() -> None:
    """A model for each thread, one function: gradients are those of a run by itself."""

    def step(model, optimizer, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    def losses(call: Any, seed: int) -> list[float]:
        generator = torch.Generator().manual_seed(seed)
        model = Net()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        return [call(model, optimizer, torch.randn(2, 4, generator=generator)) for _ in range(20)]

    jitted = trident.jit(step)
    seen: dict[int, list[float]] = {}
    storm((lambda seed=seed: seen.update({seed: losses(jitted, seed)})) for seed in range(4))
    assert seen == {seed: losses(step, seed) for seed in range(4)}


# ---------------------------------------------------------------------------------------------------------------- tools
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_before_and_after() -> None:
    expected = torch.relu(X) * 2

    def function(x):
        return torch.relu(x) * 2

    before = torch.compile(lambda x: torch.relu(x) * 2, backend="eager")
    assert before(X).equal(expected)
    jitted = trident.jit(function)
    after = torch.compile(function, backend="aot_eager")
    both = trident.jit(lambda x: before(x) + after(x))
    for _ in range(3):
        assert all(call(X).equal(expected) for call in (jitted, before, after))
        assert both(X).equal(2 * expected)
    with trident.frame_hook():
        for _ in range(4):
            assert all(call(X).equal(expected) for call in (function, jitted, before, after))
    torch._dynamo.reset()
    assert all(call(X).equal(expected) for call in (jitted, before, after))
    failed: list[bool] = []
    threads = [threading.Thread(target=lambda: failed.extend(not call(X).equal(expected) for call in (jitted, before, after) * 50))
               for _ in range(4)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(failed) == 600 and not any(failed)
    assert trident.explain(jitted).hits > 200


def test_the_profiler_sees_operators() -> None:
    net = Net()
    jitted = trident.jit(net)
    expected = net(X)

    def events(call: Any) -> list[tuple[str, int]]:
        with profile(activities=[ProfilerActivity.CPU]) as found:
            assert call(X).equal(expected)
        return sorted((event.key, event.count) for event in found.key_averages() if event.key.startswith("aten::"))

    with torch.no_grad():
        jitted(X), jitted(X)
        hits = trident.explain(jitted).hits
        assert events(jitted) == events(net) and trident.explain(jitted).hits == hits + 1
        assert jitted(X).equal(expected)


def test_reload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "import trident\nFACTOR = {}\n@trident.jit\ndef function(x):\n    return x * FACTOR\n"
    file = tmp_path / "reloaded_module.py"
    file.write_text(text.format(2))
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("reloaded_module")
    try:
        old = module.function
        assert all(old(X).equal(X * 2) for _ in range(3))
        file.write_text(text.format(3) + "# and more\n")
        importlib.reload(module)
        assert module.function is not old
        assert all(module.function(X).equal(X * 3) and old(X).equal(X * 3) for _ in range(3))  # both read the module's FACTOR
    finally:
        del sys.modules["reloaded_module"]
