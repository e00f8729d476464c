"""The examples' models against the same mathematics written again without Triton, without a cache and without views."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

import trident  # noqa: F401  (lets Triton kernels run on the CPU)
from llm.config import LLAMA, QWEN3, Config
from llm.generate import generate
from llm.kernels import rms_norm, rope, swiglu
from llm.model import Transformer, build, rotary_frequencies

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TINY = [pytest.param(LLAMA["tiny"], id="llama"), pytest.param(QWEN3["tiny"], id="qwen3")]
TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def reference_rope(x: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Rotation as a complex product; x is (batch, length, heads, dim), angles (length, dim / 2)."""
    first, second = x.double().chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)[None, :, None, :]
    return torch.cat([turned.real, turned.imag], dim=-1)


def reference_logits(model: Transformer, tokens: torch.Tensor) -> torch.Tensor:
    """Logits after the last token: the whole sequence at once, in float64."""
    config = model.config
    weights = {name: parameter.double() for name, parameter in model.named_parameters()}
    length = tokens.shape[1]
    positions = torch.arange(length, dtype=torch.float64, device=tokens.device)
    angles = torch.outer(positions, rotary_frequencies(config).to(tokens.device))
    causal = torch.full((length, length), -math.inf, dtype=torch.float64, device=tokens.device).triu(1)
    x = weights["embedding.weight"][tokens]
    for index in range(config.layers):
        layer = {name.removeprefix(f"layers.{index}."): w for name, w in weights.items() if name.startswith(f"layers.{index}.")}
        h = F.rms_norm(x, (config.hidden,), layer["attention_norm.weight"], config.eps)
        q, k, v = (
            (h @ layer[f"attention.{name}_proj.weight"].T).unflatten(-1, (heads, config.head_dim))
            for name, heads in (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads))
        )
        if config.qk_norm:
            q = F.rms_norm(q, (config.head_dim,), layer["attention.q_norm.weight"], config.eps)
            k = F.rms_norm(k, (config.head_dim,), layer["attention.k_norm.weight"], config.eps)
        q, k = reference_rope(q, angles), reference_rope(k, angles)
        k, v = (t.repeat_interleave(config.heads // config.kv_heads, dim=2) for t in (k, v))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / math.sqrt(config.head_dim) + causal
        out = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(2)
        x = x + out @ layer["attention.o_proj.weight"].T
        h = F.rms_norm(x, (config.hidden,), layer["mlp_norm.weight"], config.eps)
        gated = F.silu(h @ layer["mlp.gate_proj.weight"].T) * (h @ layer["mlp.up_proj.weight"].T)
        x = x + gated @ layer["mlp.down_proj.weight"].T
    return F.rms_norm(x[:, -1], (config.hidden,), weights["norm.weight"], config.eps) @ weights["embedding.weight"].T


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("config", TINY)
@pytest.mark.parametrize(("batch", "prompt_length"), [(1, 1), (1, 7), (3, 5)])
def test_every_step_agrees_with_the_whole_sequence_at_once(config: Config, device: str, batch: int, prompt_length: int) -> None:
    model = build(config, 64, device, torch.float32, seed=1)
    prompt = torch.randint(config.vocabulary, (batch, prompt_length), generator=torch.Generator().manual_seed(2)).to(device)
    made = generate(model, model, prompt, 4)
    sequence = prompt
    for step, logits in enumerate(made.logits):
        torch.testing.assert_close(logits.double(), reference_logits(model, sequence), rtol=1e-3, atol=2e-3)
        assert torch.equal(made.tokens[:, step], logits.argmax(-1))
        sequence = torch.cat([sequence, made.tokens[:, step : step + 1]], dim=1)


def test_generation_depends_on_the_seed_only() -> None:
    config = QWEN3["tiny"]
    prompt = torch.tensor([[1, 2, 3]])
    runs = [generate(model := build(config, 64, "cpu", torch.float32, seed), model, prompt, 4) for seed in (0, 0, 1)]
    assert all(map(torch.equal, runs[0].logits, runs[1].logits))
    assert not torch.equal(runs[0].logits[0], runs[2].logits[0])


@pytest.mark.parametrize(("config", "parameters"), [(LLAMA["full"], 1_235_814_400), (QWEN3["full"], 596_049_920)])
def test_full_configurations_have_the_published_number_of_parameters(config: Config, parameters: int) -> None:
    with torch.device("meta"):
        model = Transformer(config, 64)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_scaling_of_rotary_frequencies_leaves_the_fast_ones_and_slows_the_slow_ones() -> None:
    scaled = rotary_frequencies(LLAMA["full"])
    plain = LLAMA["full"].rope_theta ** -(torch.arange(0, 64, 2, dtype=torch.float64) / 64)
    assert torch.equal(scaled[0], plain[0])
    assert math.isclose(scaled[-1], plain[-1] / 32, rel_tol=1e-12)
    assert ((scaled[1:] < scaled[:-1]) & (scaled[1:] <= plain[1:])).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("size", [1, 96, 128, 1000])
def test_rms_norm(device: str, dtype: torch.dtype, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    wide = torch.randn(3, 2, size, generator=generator).to(device, dtype)
    weight = torch.randn(size, generator=generator).to(device, dtype)
    for x in (wide, wide[:, -1]):
        expected = F.rms_norm(x.double(), (size,), weight.double(), 1e-5)
        torch.testing.assert_close(rms_norm(x, weight, 1e-5).double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("half", [4, 12, 64])
def test_rope_rotates_and_moves_the_heads_forward(device: str, dtype: torch.dtype, half: int) -> None:
    generator = torch.Generator().manual_seed(half)
    x = torch.randn(2, 3, 5, 2 * half, generator=generator).to(device, dtype)
    table = torch.rand(10, half, dtype=torch.float64, generator=generator).to(device) * 6
    positions = torch.tensor([7, 0, 9], device=device)
    made = rope(x, table.cos().float(), table.sin().float(), positions)
    expected = reference_rope(x, table[positions]).transpose(1, 2)
    assert made.is_contiguous()
    torch.testing.assert_close(made.double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("shape", [(1,), (5, 7), (3, 1024), (1025,)], ids=str)
def test_swiglu(device: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(len(shape))
    gate, up = (torch.randn(shape, generator=generator).to(device, dtype) for _ in range(2))
    expected = F.silu(gate.double()) * up.double()
    torch.testing.assert_close(swiglu(gate, up).double(), expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
