"""Greedy generation with a step function, timed. Knows nothing of who compiled the step."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from .model import Cache, Transformer

Step = Callable[[torch.Tensor, torch.Tensor, Cache], torch.Tensor]


@dataclass
class Generation:
    """What a run produced and how long it took, in milliseconds."""

    tokens: torch.Tensor
    logits: list[torch.Tensor] = field(repr=False)
    first_token_ms: float
    first_decode_ms: float
    decode_ms: float


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@torch.no_grad()
def generate(
    step: Step, model: Transformer, prompt: torch.Tensor, count: int, progress: Callable[[], None] = lambda: None
) -> Generation:
    """`count` >= 3 tokens after `prompt` (batch, length). The device is waited for only where a time is taken.

    first_token_ms covers the step of the whole prompt, first_decode_ms the first step of one token; both contain whatever is
    compiled for them. decode_ms is the mean of the steps after those.
    """
    device, length = prompt.device, prompt.shape[1]
    cache = model.new_cache(prompt.shape[0])
    positions = torch.arange(length, device=device)
    current = prompt
    tokens, all_logits, marks = [], [], []
    synchronize(device)
    marks.append(time.perf_counter())
    for index in range(count):
        logits = step(current, positions, cache)
        current = logits.argmax(-1, keepdim=True)
        positions = positions[-1:] + 1
        tokens.append(current)
        all_logits.append(logits)
        if index in (0, 1, count - 1):
            synchronize(device)
            marks.append(time.perf_counter())
        progress()
    start, first, second, end = marks
    return Generation(
        tokens=torch.cat(tokens, dim=1),
        logits=all_logits,
        first_token_ms=(first - start) * 1e3,
        first_decode_ms=(second - first) * 1e3,
        decode_ms=(end - second) * 1e3 / (count - 2),
    )
