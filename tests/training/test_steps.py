"""Training steps: forward, loss, backward, optimizer, clipping, autocast, GradScaler, checkpointing, accumulation, schedules.

Those whose recordings grow with the number of parameters train a Llama of one layer once and otherwise a network of two.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.training.harness import VOCABULARY, WIDTH, Llama, Scenario, compare, next_token_loss

STEPS = 50
OPTIMIZERS: dict[str, Any] = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "sgd foreach": partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True),
    "adamw": partial(torch.optim.AdamW, lr=1e-2, foreach=False),
    "adamw foreach": partial(torch.optim.AdamW, lr=1e-2, foreach=True),
    "adamw fused": partial(torch.optim.AdamW, lr=1e-2, fused=True),
    "adamw capturable lr": partial(torch.optim.AdamW, lr=torch.tensor(1e-2), amsgrad=True),
}


class Tiny(nn.Module):
    """Logits of the next token from one embedding; `around` as in Llama."""

    def __init__(self, around: Any = lambda block, x: block(x)) -> None:
        super().__init__()
        self.embedding, self.around = nn.Embedding(VOCABULARY, WIDTH), around
        self.block = nn.Sequential(nn.Linear(WIDTH, VOCABULARY, bias=False), nn.Tanh())

    def forward(self, tokens):
        return self.around(self.block, self.embedding(tokens))


def made(optimizer: Any = OPTIMIZERS["sgd"], model: Any = Tiny, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    network = model(**options)
    return network, optimizer(network.parameters())


def test_a_llama() -> None:
    """All of it at once, as a training loop has it."""

    def scenario() -> Scenario:
        def build():
            model, optimizer = made(OPTIMIZERS["adamw foreach"], Llama)
            return model, optimizer, torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)

        def step(model, optimizer, schedule, tokens):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = next_token_loss(model, tokens)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            schedule.step()
            return loss, norm, schedule.get_last_lr()

        return build, step

    compare(scenario, STEPS)


@pytest.mark.parametrize(("name", "set_to_none"), [
    ("sgd", True), ("adamw", False), ("adamw foreach", True),
    *(pytest.param(name, none, marks=pytest.mark.full) for name in OPTIMIZERS for none in (True, False)),
])
def test_optimizers(name: str, set_to_none: bool) -> None:
    def scenario() -> Scenario:
        def step(model, optimizer, tokens):
            optimizer.zero_grad(set_to_none)
            loss = next_token_loss(model, tokens)
            loss.backward()
            optimizer.step()
            return loss

        return partial(made, OPTIMIZERS[name]), step

    compare(scenario, STEPS)


@pytest.mark.parametrize("foreach", [None, pytest.param(False, marks=pytest.mark.full)])
def test_clipping(foreach: bool | None) -> None:
    def scenario() -> Scenario:
        def step(model, optimizer, tokens):
            optimizer.zero_grad()
            loss = next_token_loss(model, tokens)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5, foreach=foreach)
            nn.utils.clip_grad_value_(model.parameters(), 0.01, foreach=foreach)
            optimizer.step()
            return loss, norm

        return made, step

    compare(scenario, STEPS)


@pytest.mark.parametrize("scaled", [True, pytest.param(False, marks=pytest.mark.full)])
def test_autocast(scaled: bool) -> None:
    def scenario() -> Scenario:
        def build():
            return *made(), torch.amp.GradScaler("cpu", init_scale=2.0**40, growth_interval=3, enabled=scaled)

        def step(model, optimizer, scaler, tokens):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = next_token_loss(model, tokens)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)  # not where a gradient is infinite
            scaler.update()
            return loss, scaler.get_scale()

        return build, step

    compare(scenario, STEPS)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    def scenario() -> Scenario:
        def around(block, x):
            return nn.functional.dropout(checkpoint(block, x, use_reentrant=reentrant), 0.1)

        def step(model, optimizer, tokens):
            optimizer.zero_grad()
            loss = next_token_loss(model, tokens)
            loss.backward()
            optimizer.step()
            return loss

        return partial(made, around=around), step

    compare(scenario, STEPS)


def test_accumulation_and_a_schedule() -> None:
    def scenario() -> Scenario:
        def build():
            model, optimizer = made(OPTIMIZERS["adamw"])
            schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
            return model, optimizer, schedule, [p.detach().clone() for p in model.parameters()]

        def step(model, optimizer, schedule, averages, tokens):
            total = 0.0
            for part in tokens.split(1):
                loss = next_token_loss(model, part) / 2
                loss.backward()
                total += loss.item()
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            with torch.no_grad():
                for average, parameter in zip(averages, model.parameters()):
                    average.lerp_(parameter, 0.1)
            return total, optimizer.param_groups[0]["lr"], averages

        return build, step

    compare(scenario, STEPS)


@pytest.mark.full
def test_a_closure() -> None:
    def scenario() -> Scenario:
        def step(model, optimizer, tokens):
            def closure():
                optimizer.zero_grad()
                loss = next_token_loss(model, tokens)
                loss.backward()
                return loss

            return optimizer.step(closure)

        return made, step

    compare(scenario, STEPS)
