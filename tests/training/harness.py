"""Runs a training step eagerly and jitted from the same seed and compares everything that training changes, bit for bit.

A scenario is a function that gives the arguments of the step (models, optimizers, …) anew, and the step, which gets a batch of token
ids besides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import trident
from trident.report import Explanation

VOCABULARY, WIDTH = 32, 16
Scenario = tuple[Callable[[], tuple[Any, ...]], Callable[..., Any]]


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = RMSNorm(width), RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 2 * width, bias=False), nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """around: what calls a block (checkpointing, for example)."""

    def __init__(self, layers: int = 1, around: Callable[..., torch.Tensor] = lambda block, x: block(x)) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Block(WIDTH, 2) for _ in range(layers))
        self.norm, self.head = RMSNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.around = around

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = self.around(layer, x)
        return self.head(self.norm(x))


def next_token_loss(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def flat(found: Any) -> list[Any]:
    """Everything in nested containers, tensors as copies."""
    if isinstance(found, torch.Tensor):
        return [found.detach().clone()]
    if isinstance(found, tuple | list):
        return [part for item in found for part in flat(item)]
    return [part for item in found.values() for part in flat(item)] if isinstance(found, dict) else [found]


def observed(arguments: tuple[Any, ...], result: Any) -> list[Any]:
    """What a step may have changed: parameters, gradients, buffers, the optimizer's state, random numbers; and what it gave."""
    seen = flat(result)
    for argument in arguments:
        if isinstance(argument, nn.Module):
            seen += flat([*argument.parameters(), *(p.grad for p in argument.parameters()), *argument.buffers()])
        elif isinstance(argument, torch.optim.Optimizer):
            seen += flat([*argument.state.values(), *({**group, "params": ()} for group in argument.param_groups)])
    return [*seen, torch.get_rng_state(), torch.is_grad_enabled()]


def same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return type(a) is type(b) and a == b
    if not isinstance(b, torch.Tensor) or (a.dtype, a.shape, a.stride()) != (b.dtype, b.shape, b.stride()):
        return False
    return torch.equal(a.contiguous().flatten().view(torch.uint8), b.contiguous().flatten().view(torch.uint8))


@dataclass
class Run:
    steps: list[list[Any]]
    recordings: list[int]  # that there were after each step


def run(scenario: Callable[[], Scenario], steps: int, *, jit: bool) -> tuple[Run, Any]:
    torch.manual_seed(0)
    build, step = scenario()
    arguments = build()
    call = trident.jit(step) if jit else step
    batches = torch.Generator().manual_seed(1)
    made = Run([], [])
    for _ in range(steps):
        result = call(*arguments, torch.randint(VOCABULARY, (2, 9), generator=batches))
        made.steps.append(observed(arguments, result))
        made.recordings.append(len(trident.explain(call).specializations) if jit else 0)
    return made, call


def compare(scenario: Callable[[], Scenario], steps: int) -> Explanation:
    """Asserts that a jitted step does what the eager one does, that it hits, and that it ends recording."""
    before = torch.get_rng_state()
    try:
        eager, _ = run(scenario, steps, jit=False)
        jitted, call = run(scenario, steps, jit=True)
    finally:
        torch.set_rng_state(before)
    for number, (expected, seen) in enumerate(zip(eager.steps, jitted.steps, strict=True)):
        assert len(expected) == len(seen), f"step {number}"
        different = [n for n, (a, b) in enumerate(zip(expected, seen, strict=True)) if not same(a, b)]
        assert not different, f"step {number}: {different} of {len(expected)}"
    explanation = trident.explain(call)
    assert explanation.status == "active" and not explanation.aborts, explanation
    assert explanation.misses <= 3 and jitted.recordings[-1] == jitted.recordings[-steps // 4], jitted.recordings
    return explanation
