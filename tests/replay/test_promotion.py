"""From hits to graphs, through `trident.jit(replay=…)`, with emulated graphs: when, for what, and what happens when they do not fit."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import trident
from llm.config import LLAMA, QWEN3, Config
from llm.model import build
from trident.api import entry_of
from trident.backend.native.evaluator import count_frames
from trident.backend.replay.targets import Emulation, emulated
from trident.entry import StrictError


@pytest.fixture(autouse=True)
def emulation() -> Iterator[Emulation]:
    with torch.no_grad(), emulated() as target:
        yield target


def step(x: torch.Tensor, cache: torch.Tensor, k: Any = 2) -> torch.Tensor:
    cache.add_(1)
    return torch.relu(x @ cache) * k


def promotion_of(jitted: Any, number: int = 0) -> Any:
    return entry_of(jitted).roots[number].promotion


def call_alike(jitted: Any, function: Any, count: int, cache: torch.Tensor, make: Any) -> None:
    """Calls with fresh inputs, each compared with eager's."""
    other = cache.clone()
    for _ in range(count):
        x = make()
        found, expected = jitted(x, cache), function(x, other)
        assert torch.equal(found, expected) and torch.equal(cache, other)


def test_it_is_off_unless_it_is_asked_for() -> None:
    jitted = trident.jit(step)
    cache = torch.randn(4, 4)
    call_alike(jitted, step, 40, cache, lambda: torch.randn(4, 4))
    assert promotion_of(jitted) is None and "graphs" not in str(trident.explain(jitted))
    with pytest.raises(ValueError, match="'replay' takes"):
        trident.jit(step, replay="sometimes")


def test_auto_promotes_after_some_hits_and_every_result_is_eagers(emulation: Emulation) -> None:
    jitted = trident.jit(step, replay="auto")
    cache = torch.randn(4, 4)
    call_alike(jitted, step, 16, cache, lambda: torch.randn(4, 4))
    assert "waits for hits" in str(trident.explain(jitted)) and emulation.launches == 0
    keep = [torch.randn(4, 4) for _ in range(50)]
    call_alike(jitted, step, 50, cache, keep.pop)
    assert emulation.launches > 40
    state = trident.explain(jitted).specializations[0].replay
    assert state == f"replayed {emulation.launches} times, 1 graph"
    assert trident.stats()["graphs"] == 1
    assert trident.explain(jitted).misses == 4, "the recording, and three looks"
    entry_of(jitted).reset()
    assert trident.stats()["graphs"] == 0


@pytest.mark.usefixtures("no_collections")
def test_a_replay_enters_no_frame_of_the_function() -> None:
    jitted = trident.jit(step, replay="always")
    x, cache = torch.randn(4, 4), torch.randn(4, 4)
    for _ in range(8):
        jitted(x, cache)
    replays = promotion_of(jitted).site.replays
    with count_frames() as counted:
        jitted(x, cache)
    assert promotion_of(jitted).site.replays == replays + 1
    launched_in_python = counted.count  # the emulation's own
    assert step.__code__.co_name not in str(counted) and launched_in_python >= 0


def test_a_replaced_cache_gets_a_graph_of_its_own() -> None:
    jitted = trident.jit(step, replay="always")
    caches = [torch.randn(600, 600) for _ in range(3)]  # too large to be copied
    x = torch.randn(2, 600)
    for cache in caches:
        call_alike(jitted, step, 30, cache, lambda: x)
    assert len(promotion_of(jitted).site.graphs) == 3
    for _ in range(5):
        for cache in caches:
            call_alike(jitted, step, 1, cache, lambda: x)
    replays = promotion_of(jitted).site.replays
    call_alike(jitted, step, 3, caches[0], lambda: x)
    assert promotion_of(jitted).site.replays == replays + 3, "all three are in use"


def test_a_small_cache_that_is_written_is_pinned_not_copied() -> None:
    jitted = trident.jit(step, replay="always")
    x = torch.randn(4, 4)
    caches = [torch.randn(4, 4) for _ in range(4)]
    for cache in caches:
        call_alike(jitted, step, 20, cache, lambda: x)
    assert len(promotion_of(jitted).site.graphs) == 4


def test_addresses_that_go_on_changing_end_the_captures() -> None:
    def large(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    jitted = trident.jit(large, replay="always")
    keep = [torch.ones(600, 600) * n for n in range(20)]
    for n in range(20):
        assert torch.equal(jitted(keep[n]), keep[n] + 1)
    assert "another address each time" in str(promotion_of(jitted)) and not promotion_of(jitted).site.graphs
    first, others = torch.ones(600, 600), [torch.ones(600, 600) * n for n in range(40)]
    again = trident.jit(large, replay="always")
    for _ in range(8):
        again(first)
    assert promotion_of(again).site.replays > 0
    for n in range(200):
        again(others[n % 40])
    assert torch.equal(again(others[3]), others[3] + 1)
    assert promotion_of(again).given_up and len(promotion_of(again).site.graphs) <= 8
    assert "hardly used" in str(promotion_of(again))


def test_numbers_that_differ_from_call_to_call_stay_in_tier_1() -> None:
    jitted = trident.jit(step, replay="always")
    x, cache = torch.randn(4, 4), torch.randn(4, 4)
    other = cache.clone()
    for n in range(30):
        assert torch.equal(jitted(x, cache, n), step(x, other, n))
    assert "number" in str(promotion_of(jitted)) and not promotion_of(jitted).site.graphs


def test_shapes_that_vary_have_graphs_of_their_own() -> None:
    jitted = trident.jit(lambda x: x * 2 + 1, replay="always")
    inputs = [torch.randn(n + 2) for n in range(3)]
    for x in inputs * 30:
        assert torch.equal(jitted(x), x * 2 + 1)
    assert entry_of(jitted).roots[0].program.replay is not None and len(promotion_of(jitted).site.graphs) == 3
    assert jitted.specializations == 1


def test_strict_complains_where_always_cannot_be() -> None:
    def reads(x: torch.Tensor) -> Any:
        return x * float(x.sum().item())

    x = torch.ones(3)
    jitted = trident.jit(reads, replay="always", strict=True)
    with pytest.raises(StrictError, match=r"not replayed: .*contents"):
        for _ in range(5):
            jitted(x)
    assert torch.equal(jitted(x), reads(x)), "it goes on in tier 1"
    assert "not replayed" in str(trident.explain(jitted))


@pytest.mark.parametrize("count", [2, 5])
def test_many_specializations_each_find_their_graphs(count: int) -> None:
    def f(x: torch.Tensor, mode: str) -> Any:
        return x * {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}[mode]

    jitted = trident.jit(f, replay="always")
    x = torch.randn(3)
    for mode in "abcde"[:count] * 12:
        assert torch.equal(jitted(x, mode), f(x, mode))
    assert jitted.specializations == count
    replays = [promotion_of(jitted, n).site.replays for n in range(count)]
    assert all(found > 0 for found in replays)
    for mode in "abcde"[:count]:
        jitted(x, mode)
    assert [promotion_of(jitted, n).site.replays for n in range(count)] == [found + 1 for found in replays]


def test_a_root_that_has_answered_in_between_does_not_keep_the_graph_from_being_tried() -> None:
    jitted = trident.jit(step, replay="always")
    x, cache = torch.randn(4, 4), torch.randn(4, 4)
    call_alike(jitted, step, 8, cache, lambda: x)
    replays = promotion_of(jitted).site.replays
    jitted(x, cache.clone())  # tier 1
    jitted(x, cache)
    assert promotion_of(jitted).site.replays == replays + 1


def test_an_evicted_specialization_takes_its_graphs_with_it() -> None:
    def f(x: torch.Tensor, n: str) -> torch.Tensor:
        return x + {"a": 1, "bb": 2, "ccc": 3}[n]

    jitted = trident.jit(f, replay="always", max_specializations=2)
    x = torch.randn(3)
    for n in ("a", "bb"):
        for _ in range(80):
            jitted(x, n)
    sites = [promotion_of(jitted, n).site for n in range(2)]
    assert [len(site.graphs) for site in sites] == [1, 1]
    for _ in range(8):
        assert torch.equal(jitted(x, "ccc"), x + 3)
    assert jitted.specializations == 2 and sorted(len(site.graphs) for site in sites) == [0, 1]
    assert torch.equal(jitted(x, "a"), x + 1) and torch.equal(jitted(x, "bb"), x + 2)


def test_threads_that_replay_at_once_have_their_own_results() -> None:
    jitted = trident.jit(lambda x, w: torch.relu(x @ w), replay="always")
    weight = torch.randn(16, 16)
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for n in range(200):
                x = torch.randn(8, 16, generator=generator)
                if not torch.equal(jitted(x, weight), torch.relu(x @ weight)):
                    wrong.append(n)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and promotion_of(jitted).site.replays > 100


def test_a_graph_keeps_no_argument_alive_and_leaks_nothing() -> None:
    jitted = trident.jit(step, replay="always")
    cache = torch.randn(4, 4)
    for _ in range(10):
        jitted(torch.randn(4, 4), cache)
    gc.collect()
    before = len(gc.get_objects())
    for _ in range(200):
        jitted(torch.randn(4, 4), cache)
    gc.collect()
    assert len(gc.get_objects()) - before < 20
    assert cache._version == 210


@pytest.mark.parametrize("config", [pytest.param(LLAMA["tiny"], id="llama"), pytest.param(QWEN3["tiny"], id="qwen3")])
def test_decoding_is_replayed_with_eagers_bits(config: Config, emulation: Emulation) -> None:
    model = build(config, 48, "cpu", torch.float32, 0)
    jitted = trident.jit(model, replay="auto")
    caches = model.new_cache(1), model.new_cache(1)
    for n in range(40):
        arguments = torch.tensor([[n * 5]]), torch.tensor([n])
        assert torch.equal(jitted(*arguments, caches[0]), model(*arguments, caches[1]))
    assert all(torch.equal(a, b) for one, other in zip(*caches, strict=True) for a, b in zip(one, other, strict=True))
    assert emulation.launches > 15, str(promotion_of(jitted))


def test_a_fault_of_the_promotion_leaves_the_call_to_cpython(monkeypatch: pytest.MonkeyPatch) -> None:
    jitted = trident.jit(step, replay="always")
    monkeypatch.setattr("trident.promotion.capture", lambda *args: 1 // 0)
    cache = torch.randn(4, 4)
    call_alike(jitted, step, 20, cache, lambda: torch.randn(4, 4))
    assert any("ZeroDivisionError" in abort.text for abort in trident.explain(jitted).aborts)
