"""The cases of loops whose number of iterations is an argument: ints, a branch that is unpredictable, an operator in each iteration.

A call goes through two numbers of iterations in turn, so what is compiled for one alone does not pass for a loop. Trident and
torch.compile must give eager's result before they are timed. Times are per iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import trident
from llm.peers import torch_compile

from .measure import Case, Sampler, Variant, python_sampler

COUNTS, QUICK = (100, 150), (10, 15)


def add_ints(n: int, x: torch.Tensor) -> tuple[int, torch.Tensor]:
    total = 0
    for i in range(n):
        total += i
    return total, x


def branch(n: int, x: torch.Tensor) -> tuple[int, torch.Tensor]:
    total = 0
    for i in range(n):
        if i % 3 == 0:
            total += i
        else:
            total -= 1
    return total, x


def add_tensors(n: int, x: torch.Tensor) -> tuple[int, torch.Tensor]:
    total = x
    for _ in range(n):
        total = total + x
    return n, total


PROGRAMS: dict[str, tuple[str, Callable[..., Any]]] = {
    "ints": ("int additions", add_ints), "branch": ("int additions behind a branch", branch), "tensors": ("tensor additions", add_tensors),
}


def loop_cases(device: torch.device, compile_too: bool, quick: bool = False) -> list[Case]:
    """All of them."""
    counts = QUICK if quick else COUNTS
    x = torch.randn(4, generator=torch.Generator().manual_seed(0)).to(device)

    def prepare(eager: Callable[..., Any], wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], Sampler]:
        def prepared() -> Sampler:
            function = wrap(eager)
            for _ in range(4):
                for n in counts:
                    (number, tensor), (wanted, other) = function(n, x), eager(n, x)
                    if number != wanted or not torch.equal(tensor, other):
                        raise RuntimeError("the result is not eager's")
            sampler = python_sampler("for n in counts: function(n, x)", {"function": function, "counts": counts, "x": x}, device)
            return lambda calls: sampler(calls) / sum(counts)

        return prepared

    cases = []
    for key, (title, eager) in PROGRAMS.items():
        variants = [Variant("eager", prepare(eager, lambda function: function))]
        if compile_too:
            variants.append(Variant("torch.compile", prepare(eager, lambda function: torch_compile(function, device))))
        variants.append(Variant("Trident", prepare(eager, trident.jit)))
        cases.append(Case(f"loop-{key}", f"loops of {title}, {' and '.join(map(str, counts))} iterations (per iteration)", variants,
                          max_calls=16 if device.type == "cuda" else 10_000))
    return cases
