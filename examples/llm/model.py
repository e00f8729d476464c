"""A decoder-only transformer in plain PyTorch around the Triton kernels of `kernels.py`.

One class serves both model families: Llama 3 and Qwen3 differ in their shapes and in Qwen3's normalization of each query
and key head. The key/value cache has a fixed size and positions are a tensor on the device, so a decode step always has
the same shapes and never waits for the device.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from .config import Config
from .kernels import rms_norm, rope, swiglu

Cache = list[tuple[torch.Tensor, torch.Tensor]]


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.q_proj = nn.Linear(config.hidden, config.heads * config.head_dim, bias=False)
        self.k_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(config.hidden, config.kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(config.heads * config.head_dim, config.hidden, bias=False)
        self.qk_norm = config.qk_norm
        if config.qk_norm:
            self.q_norm = RMSNorm(config.head_dim, config.eps)
            self.k_norm = RMSNorm(config.head_dim, config.eps)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        bias: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        batch, length, _ = x.shape
        q = self.q_proj(x).view(batch, length, self.heads, self.head_dim)
        k = self.k_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        v = self.v_proj(x).view(batch, length, self.kv_heads, self.head_dim)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        cos, sin = rotary
        q = rope(q, cos, sin, positions)
        keys.index_copy_(2, positions, rope(k, cos, sin, positions))
        values.index_copy_(2, positions, v.transpose(1, 2))
        # Query heads that share a key/value head are rows of one matrix, so the cache is never repeated per query head.
        q = q.view(batch, self.kv_heads, -1, self.head_dim)
        out = F.scaled_dot_product_attention(q, keys, values, attn_mask=bias)
        out = out.view(batch, self.kv_heads, -1, length, self.head_dim).permute(0, 3, 1, 2, 4).reshape(batch, length, -1)
        return self.o_proj(out)


class MLP(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.up_proj = nn.Linear(config.hidden, config.intermediate, bias=False)
        self.down_proj = nn.Linear(config.intermediate, config.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(config.hidden, config.eps)
        self.attention = Attention(config)
        self.mlp_norm = RMSNorm(config.hidden, config.eps)
        self.mlp = MLP(config)

    def forward(
        self,
        x: torch.Tensor,
        rotary: tuple[torch.Tensor, torch.Tensor],
        positions: torch.Tensor,
        bias: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
    ) -> torch.Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, positions, bias, keys, values)
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    """The whole model. `forward` is the step: a prompt is one step of many tokens, decoding is steps of one token."""

    cos: torch.Tensor
    sin: torch.Tensor

    def __init__(self, config: Config, max_length: int) -> None:
        super().__init__()
        self.config = config
        self.max_length = max_length
        self.groups = config.heads // config.kv_heads
        self.embedding = nn.Embedding(config.vocabulary, config.hidden)
        self.layers = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = RMSNorm(config.hidden, config.eps)
        self.register_buffer("cos", torch.empty(max_length, config.head_dim // 2), persistent=False)
        self.register_buffer("sin", torch.empty(max_length, config.head_dim // 2), persistent=False)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor, cache: Cache) -> torch.Tensor:
        """Logits (batch, vocabulary) after the last of `tokens` (batch, length), which stand at `positions` (length)."""
        x = self.embedding(tokens)
        rotary = (self.cos, self.sin)
        bias = self.attention_bias(positions, x.dtype)
        for layer, (keys, values) in zip(self.layers, cache):
            x = layer(x, rotary, positions, bias, keys, values)
        return F.linear(self.norm(x[:, -1]), self.embedding.weight)

    def attention_bias(self, positions: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """What is added to the attention scores: minus infinity for the slots of the cache after a token's position."""
        slots = torch.arange(self.max_length, device=positions.device)
        bias = torch.zeros((positions.shape[0], self.max_length), dtype=dtype, device=positions.device)
        bias = bias.masked_fill(slots > positions[:, None], float("-inf"))
        return bias.repeat(self.groups, 1)

    def new_cache(self, batch: int) -> Cache:
        """An empty cache: keys and values of each layer, (batch, key/value heads, length, head dimension)."""
        weight, config = self.embedding.weight, self.config
        shape = (batch, config.kv_heads, self.max_length, config.head_dim)
        return [(weight.new_zeros(shape), weight.new_zeros(shape)) for _ in range(config.layers)]


def rotary_frequencies(config: Config) -> torch.Tensor:
    """Angle per position of each pair of dimensions, in float64, with Llama 3's scaling of the low frequencies if asked for."""
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float64) / config.head_dim
    frequencies = config.rope_theta**-exponents
    if config.rope_scaling is None:
        return frequencies
    factor, low, high, context = config.rope_scaling
    rotations = context * frequencies / (2 * math.pi)
    smooth = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return frequencies * (smooth + (1 - smooth) / factor)


def build(config: Config, max_length: int, device: str | torch.device, dtype: torch.dtype, seed: int) -> Transformer:
    """A model with random weights that depend on `seed` (and on the device's generator) only."""
    with torch.device("meta"):
        model = Transformer(config, max_length)
    model = model.to(dtype).to_empty(device=device)
    generator = torch.Generator(device=device).manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() == 1:
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=1.5 * parameter.shape[-1] ** -0.5, generator=generator)
    angles = torch.outer(torch.arange(max_length, dtype=torch.float64), rotary_frequencies(config))
    model.register_buffer("cos", angles.cos().to(device, torch.float32), persistent=False)
    model.register_buffer("sin", angles.sin().to(device, torch.float32), persistent=False)
    return model.requires_grad_(False).eval()
