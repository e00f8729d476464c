"""Graphs on the GPU: capture, replay, bits, results that are kept, faults, streams, threads and random numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import trident
from llm.config import LLAMA, QWEN3, Config
from llm.generate import generate
from llm.model import build
from tests.replay.harness import MISS, Replayed
from trident.api import entry_of
from trident.backend.native.replay_layout import Mismatch
from trident.backend.replay.split import Unfit

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def without_gradients() -> Iterator[None]:
    with torch.no_grad():
        yield


def step(x: torch.Tensor, cache: torch.Tensor, k: Any = 2) -> torch.Tensor:
    cache.add_(1)
    return torch.relu(x @ cache) * k


def on_gpu(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def promotion_of(jitted: Any) -> Any:
    return entry_of(jitted).roots[0].promotion


def replays_of(jitted: Any) -> int:
    return int(promotion_of(jitted).site.replays)


def warm(jitted: Any, *args: Any) -> None:
    """Call it until it is replayed."""
    for _ in range(12):
        jitted(*args)
    assert replays_of(jitted) > 0, f"{promotion_of(jitted)}; {promotion_of(jitted).site.why}; {trident.explain(jitted).aborts}"


def test_a_graph_is_captured_and_replayed_with_eagers_bits() -> None:
    x, cache = on_gpu(64, 64), on_gpu(64, 64)
    program = Replayed(step, x, cache, 3)
    assert program(x, cache, 3) is MISS
    before = cache.clone()
    version = cache._version
    program.capture(x, cache, 3)
    assert torch.equal(cache, before) and cache._version == version, "a capture executes nothing"
    other = before.clone()
    for n in range(1, 4):
        found = program(x, cache, 3)
        assert found is not MISS, program.site.why
        assert torch.equal(found, step(x, other, 3)) and torch.equal(cache, other) and cache._version == version + n
    program.site.close()


def test_copied_inputs_and_what_does_not_fit() -> None:
    x, cache = on_gpu(64, 64), on_gpu(64, 64)
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3, copied={0})
    other = cache.clone()
    for _ in range(3):
        x = on_gpu(64, 64)
        found = program(x, cache, 3)
        assert found is not MISS, program.site.why
        assert torch.equal(found, step(x, other, 3)) and torch.equal(cache, other)
    for args, why in (((x, cache.clone(), 3), Mismatch.ADDRESS), ((x, cache, 4), Mismatch.NUMBER), ((x.t(), cache, 3), Mismatch.METADATA),
                      ((cache, cache, 3), Mismatch.OVERLAP)):
        assert program(*args) is MISS and program.site.why[0] is why
    memory = on_gpu(64 * 64 + 1)
    assert program(memory[1:].view(64, 64), cache, 3) is MISS
    with pytest.raises(Unfit):
        Replayed(step, x, cache, 3).capture(x, cache, 3, copied={0, 1})


def test_a_replaced_cache_and_an_aliased_or_strided_input() -> None:
    jitted = trident.jit(step, replay="always")
    x, caches = on_gpu(8, 600), [on_gpu(600, 600) for _ in range(2)]
    for cache in caches:
        other = cache.clone()
        for _ in range(30):
            assert torch.equal(jitted(x, cache), step(x, other)) and torch.equal(cache, other)
    assert len(promotion_of(jitted).site.graphs) == 2, str(promotion_of(jitted))
    square = on_gpu(600, 600)
    other = square.clone()
    for _ in range(30):
        assert torch.equal(jitted(square, square), step(other, other)) and torch.equal(square, other)
        square.copy_(other.sin_())
    strided = on_gpu(600, 16).t()[::2]
    for _ in range(30):
        other = caches[0].clone()
        assert torch.equal(jitted(strided, caches[0]), step(strided, other))


def test_a_kept_result_stays() -> None:
    jitted = trident.jit(step, replay="always")
    x, cache = on_gpu(16, 16), on_gpu(16, 16)
    warm(jitted, x, cache)
    kept, copies = [], []
    for _ in range(100):
        kept.append(jitted(x, cache))
        copies.append(kept[-1].clone())
    torch.cuda.synchronize()
    assert all(map(torch.equal, kept, copies)) and len({result.data_ptr() for result in kept}) == 100


def test_inside_a_capture_of_the_users_it_is_tier_1() -> None:
    jitted = trident.jit(step, replay="always")
    x, cache = on_gpu(16, 16), on_gpu(16, 16)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):  # promoted on the very stream that is captured then
        warm(jitted, x, cache)
        replays = replays_of(jitted)
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, stream=side):
            result = jitted(x, cache)
        assert replays_of(jitted) == replays
        other = cache.clone()
        for _ in range(3):
            graph.replay()
            assert torch.equal(result, step(x, other)) and torch.equal(cache, other)


def test_a_capture_that_fails_leaves_everything_intact() -> None:
    def moves(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.add_(1)
        return x + cache.cpu().cuda()

    jitted = trident.jit(moves, replay="always")
    x, cache = on_gpu(4), on_gpu(4)
    other = cache.clone()
    for _ in range(10):
        assert torch.equal(jitted(x, cache), moves(x, other)) and torch.equal(cache, other)
    assert "cpu" in str(promotion_of(jitted)), str(promotion_of(jitted))


def test_what_torch_refuses_while_it_captures_leaves_everything_intact(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation that waits for the device in the middle of a capture, which torch itself does not clean up after."""
    from trident.backend.replay.device import DevicePart

    run = DevicePart.run

    def waits(self: Any, tensors: Any, numbers: Any, look: Any) -> Any:
        found = run(self, tensors, numbers, look)
        tensors[0].cpu()
        return found

    monkeypatch.setattr(DevicePart, "run", waits)
    jitted = trident.jit(step, replay="always")
    x, cache = on_gpu(16, 16), on_gpu(16, 16)
    other = cache.clone()
    for _ in range(8):
        assert torch.equal(jitted(x, cache), step(x, other)) and torch.equal(cache, other)
    assert "cannot be captured" in str(promotion_of(jitted)), str(promotion_of(jitted))
    monkeypatch.undo()
    torch.manual_seed(0)
    first = torch.rand(5, device="cuda")
    torch.manual_seed(0)
    assert torch.equal(torch.rand(5, device="cuda"), first), "the generator is not left in the state of a capture"
    again = trident.jit(lambda a: a.relu() * 3, replay="always")
    warm(again, x)
    torch.cuda.empty_cache()
    torch.cuda.synchronize()


def test_random_numbers_are_those_of_eager() -> None:
    def draws(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, True) + torch.rand_like(x) + torch.multinomial(x.softmax(0), 1)

    jitted = trident.jit(draws, replay="always")
    x = on_gpu(1000).abs()
    warm(jitted, x)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = [draws(x) for _ in range(4)]
        state = torch.cuda.get_rng_state()
        torch.manual_seed(seed)
        replays = replays_of(jitted)
        assert all(map(torch.equal, [jitted(x) for _ in range(4)], expected))
        assert replays_of(jitted) == replays + 4 and torch.equal(torch.cuda.get_rng_state(), state)


def test_other_streams_have_graphs_of_their_own() -> None:
    jitted = trident.jit(step, replay="always")
    x = on_gpu(64, 64)
    streams = [torch.cuda.Stream() for _ in range(2)]
    caches = [on_gpu(64, 64) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(3):
        for stream, cache in zip(streams, caches, strict=True):
            with torch.cuda.stream(stream):
                other = cache.clone()
                for _ in range(12):
                    assert torch.equal(jitted(x, cache), step(x, other)) and torch.equal(cache, other)
            stream.synchronize()


def test_two_threads_on_two_streams() -> None:
    jitted = trident.jit(lambda x, w: torch.relu(x @ w) @ w, replay="always")
    weight, wrong = on_gpu(256, 256) / 16, list[int]()

    def work(seed: int) -> None:
        generator = torch.Generator("cuda").manual_seed(seed)
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
            for n in range(300):
                x = torch.randn(64, 256, generator=generator, device="cuda")
                if not torch.equal(jitted(x, weight), torch.relu(x @ weight) @ weight):
                    wrong.append(n)

    torch.cuda.synchronize()
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    print(promotion_of(jitted))


def test_settings_that_change_kernels_are_looked_at() -> None:
    jitted = trident.jit(lambda x, w: x @ w, replay="always")
    x, weight = on_gpu(256, 256), on_gpu(256, 256)
    warm(jitted, x, weight)
    exact = jitted(x, weight)
    allowed = torch.backends.cuda.matmul.allow_tf32
    try:
        torch.backends.cuda.matmul.allow_tf32 = not allowed
        assert torch.equal(jitted(x, weight), x @ weight)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = allowed
    assert torch.equal(jitted(x, weight), exact)
    with torch.autocast("cuda", torch.bfloat16):
        assert jitted(x, weight).dtype is torch.bfloat16


def test_memory_is_bounded_and_given_back() -> None:
    jitted = trident.jit(lambda x: (x * 2).sin().cos().exp() + 1, replay="always")
    inputs = [torch.full((1 << 20,), float(n), device="cuda") for n in range(12)]
    for x in inputs:
        for _ in range(30):
            jitted(x)
    held = torch.cuda.memory_reserved()
    for x in inputs * 20:
        assert torch.equal(jitted(x), (x * 2).sin().cos().exp() + 1)
    assert torch.cuda.memory_reserved() <= held + (64 << 20)
    assert trident.stats()["graphs"] >= 1 and trident.stats()["graph_bytes"] > 0
    junk = [torch.empty(1 << 26, device="cuda") for _ in range(4)]  # allocator pressure
    del junk
    torch.cuda.empty_cache()
    assert torch.equal(jitted(inputs[-1]), (inputs[-1] * 2).sin().cos().exp() + 1)
    entry_of(jitted).reset()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    assert trident.stats()["graphs"] == 0


def test_without_memory_to_capture_it_is_tier_1(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Any, *args: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory (planted)")

    from trident.backend.replay.device import DevicePart

    monkeypatch.setattr(DevicePart, "run", full)
    jitted = trident.jit(step, replay="always")
    x, cache = on_gpu(16, 16), on_gpu(16, 16)
    other = cache.clone()
    for _ in range(8):
        assert torch.equal(jitted(x, cache), step(x, other))
    assert "out of memory" in str(promotion_of(jitted))


@pytest.mark.parametrize("config", [pytest.param(LLAMA["tiny"], id="llama"), pytest.param(QWEN3["tiny"], id="qwen3")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_and_logits_of_a_generation_are_eagers(config: Config, dtype: torch.dtype) -> None:
    model = build(config, 128, "cuda", dtype, 0)
    jitted = trident.jit(model, replay="auto")
    prompt = torch.randint(config.vocabulary, (1, 16), generator=torch.Generator().manual_seed(1)).cuda()
    for _ in range(2):  # each with a new cache
        expected, seen = generate(model, model, prompt, 100), generate(jitted, model, prompt, 100)
        assert torch.equal(expected.tokens, seen.tokens)
        assert all(torch.equal(a, b) for a, b in zip(expected.logits, seen.logits, strict=True))
    states = [(str(root.promotion), root.promotion.site.why) for root in entry_of(jitted).roots]
    assert sum(root.promotion.site.replays for root in entry_of(jitted).roots) > 80, states
