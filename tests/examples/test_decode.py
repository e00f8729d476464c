"""The main job, end to end: decode steps of both LLMs through `trident.jit`: bits, reuse, frames, leaks, first call."""

from __future__ import annotations

import gc
import resource

import pytest
import torch

import trident
from llm.config import LLAMA, QWEN3, Config
from llm.generate import generate
from llm.model import Transformer, build
from trident.backend.native.evaluator import count_frames

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TINY = [pytest.param(LLAMA["tiny"], id="llama"), pytest.param(QWEN3["tiny"], id="qwen3")]
both = pytest.mark.parametrize("config", TINY)
everywhere = pytest.mark.parametrize("device", DEVICES)


def make(config: Config, device: str, dtype: torch.dtype, length: int = 64) -> Transformer:
    return build(config, length, device, dtype, 0)


def prompt(config: Config, device: str, batch: int, length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(batch * 100 + length)
    return torch.randint(config.vocabulary, (batch, length), generator=generator).to(device)


@everywhere
@both
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_tokens_and_logits_are_eagers(config: Config, device: str, dtype: torch.dtype) -> None:
    model = make(config, device, dtype)
    jitted = trident.jit(model)
    for batch, length in ((1, 16), (1, 7), (3, 16), (2, 1), (1, 16)):
        expected = generate(model, model, prompt(config, device, batch, length), 12)
        seen = generate(jitted, model, prompt(config, device, batch, length), 12)
        assert torch.equal(expected.tokens, seen.tokens)
        assert all(torch.equal(a, b) for a, b in zip(expected.logits, seen.logits, strict=True))
    explanation = trident.explain(jitted)
    assert not explanation.aborts and explanation.hits > 50
    assert not any(s.opaque_calls for s in explanation.specializations)


@pytest.mark.usefixtures("no_collections")
@everywhere
@both
def test_a_decode_step_enters_no_frame(config: Config, device: str) -> None:
    model = make(config, device, torch.float32)
    jitted = trident.jit(model)
    cache, tokens, positions = model.new_cache(1), prompt(config, device, 1, 1), torch.arange(1, device=device)
    with torch.no_grad():
        for _ in range(3):
            jitted(tokens, positions, cache)
        hits = trident.explain(jitted).hits
        with count_frames() as counted:
            jitted(tokens, positions, cache)
    assert counted.count == 0
    assert trident.explain(jitted).hits == hits + 1


@everywhere
@both
@pytest.mark.slow
def test_a_thousand_tokens_leak_nothing(config: Config, device: str) -> None:
    count = 1000
    model = make(config, device, torch.float32, count + 40)
    jitted = trident.jit(model)
    warm = [generate(step, model, prompt(config, device, 1, 16), 20) for step in (jitted, model)]
    assert torch.equal(*[w.logits[-1] for w in warm])  # CUDA loads kernels, also that of `equal`, into memory at their first use
    del warm
    gc.collect()
    objects, rss = len(gc.get_objects()), _rss()
    held = torch.cuda.memory_allocated() if device == "cuda" else 0
    seen = generate(jitted, model, prompt(config, device, 1, 16), count)
    expected = generate(model, model, prompt(config, device, 1, 16), count)
    assert torch.equal(expected.tokens, seen.tokens)
    assert all(torch.equal(a, b) for a, b in zip(expected.logits, seen.logits, strict=True))
    kept = sum(t.numel() * t.element_size() for g in (expected, seen) for t in g.logits)
    del expected, seen
    gc.collect()
    assert len(gc.get_objects()) - objects < 100
    assert _rss() - rss < 2 * kept + (24 << 20)
    if device == "cuda":
        assert torch.cuda.memory_allocated() == held


@everywhere
@both
def test_prefix_lengths_share_a_specialization(config: Config, device: str) -> None:
    model = make(config, device, torch.float32)
    jitted = trident.jit(model)
    for length in (5, 9, 13, 21, 34):
        generate(jitted, model, prompt(config, device, 1, length), 4)
    assert trident.explain(jitted).hits >= 15
    assert jitted.specializations <= 3


def _rss() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * resource.getpagesize()
