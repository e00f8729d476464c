"""The cases of dispatch: what finding the right specialization costs, by number of modules, of specializations and of arguments.

The work that a call does is kept as small as its question allows: models whose leaf modules do no tensor operation, one operator in
the others. So a time is nearly that of guards and dispatch, and grows only with them. Trident and torch.compile must give eager's
result before they are timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from types import FunctionType
from typing import Any

import torch
from torch import nn

import trident
from llm.peers import torch_compile

from .measure import Case, Sampler, Variant, python_sampler

MODULES = (14, 56, 504, 2000)
SPECIALIZATIONS = (1, 2, 4, 8, 16, 32, 64)
ARGUMENTS = (1, 2, 4, 8, 16, 32)
MARGIN = 8  # more specializations allowed than there are, for both compilers

Arguments = tuple[object, ...]


def fresh(function: Any) -> Any:
    """A function of the same code that no compiler has seen: what torch.compile made for another variant is not looked through."""
    return FunctionType(function.__code__.replace(), function.__globals__, function.__name__, function.__defaults__, function.__closure__)


class Leaf(nn.Module):
    """Reads attributes and decides by them, as layers do; computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if self.scale == 1.0 else x * self.scale


def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    for block in self.blocks:
        x = block(x)
    return x + 1


class Blocks(nn.Module):
    """`count` leaves in blocks of seven."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(*(Leaf() for _ in range(min(7, count - start)))) for start in range(0, count, 7))


def model(count: int) -> nn.Module:
    """`count` leaves and one operator."""
    return type("Model", (Blocks,), {"forward": fresh(forward)})(count)  # type: ignore[no-any-return]


SCALES = {f"scale {index}": 1.0 + index for index in range(max(SPECIALIZATIONS))}


def scaled(x: torch.Tensor, name: str) -> torch.Tensor:
    return x * SCALES[name]


def stacked(*tensors: torch.Tensor) -> torch.Tensor:
    return torch.stack(tensors)


def compiled(function: Callable[..., Any], device: torch.device, **settings: Any) -> Callable[..., Any]:
    """`torch.compile(function)` whose frames are compiled and called under these settings of Dynamo's."""
    import torch._dynamo.config as config

    peer = torch_compile(function, device)
    # Read when guards are built, that is in the first calls; a call that is timed must not pay for a context.
    for name, value in settings.items():
        setattr(config, name, value)
    return peer


def _case(key: str, title: str, make: Callable[[], Callable[..., Any]], calls: Sequence[Arguments], device: torch.device,
          compile_too: bool, before: str = "pass", **settings: Any) -> Case:
    """A case whose sample goes through `calls` in turn; times are per call. before: a statement before each call, which may use `seen`, a
    dict, and `numbers`. settings: Dynamo's, for every variant of it."""

    def prepare(wrap: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[[], Sampler]:
        def prepared() -> Sampler:
            eager, function = make(), wrap(make())
            for _ in range(3):
                for arguments in calls:
                    if not torch.equal(function(*arguments), eager(*arguments)):
                        raise RuntimeError("the result is not eager's")
            statement = f"for arguments in calls:\n    {before}\n    function(*arguments)"
            sampler = python_sampler(statement, {"function": function, "calls": calls, "seen": {}, "numbers": itertools.count()}, device)
            return lambda count: sampler(count) / len(calls)

        return prepared

    def traced(function: Callable[..., Any]) -> Callable[..., Any]:
        return trident.jit(function, max_specializations=len(calls) + MARGIN)

    def dynamo(function: Callable[..., Any], **more: Any) -> Callable[..., Any]:
        return compiled(function, device, recompile_limit=len(calls) + MARGIN, **settings, **more)

    variants = [Variant("eager", prepare(lambda function: function))]
    if compile_too:
        tags = "use_recursive_dict_tags_for_guards"
        variants += [
            Variant("torch.compile", prepare(lambda function: dynamo(function, **{tags: False}))),
            Variant("torch.compile, recursive dict tags", prepare(lambda function: dynamo(function, **{tags: True}))),
        ]
    variants.append(Variant("Trident", prepare(traced)))
    return Case(key, title, variants, max_calls=256 if device.type == "cuda" else 100_000)


def dispatch_cases(device: torch.device, compile_too: bool, quick: bool = False) -> list[Case]:
    """All of them; quick: those of the first two sizes."""
    limit = 2 if quick else None
    x = torch.randn(4, generator=torch.Generator().manual_seed(0)).to(device)
    cases: list[Case] = []

    def add(key: str, title: str, make: Callable[[], Callable[..., Any]], calls: Sequence[Arguments], before: str = "pass") -> None:
        cases.append(_case(key, title, make, calls, device, compile_too, before))

    for size in MODULES[:limit]:
        add(f"modules-{size}", f"a model of {size} leaf modules", partial(model, size), [(x,)])
    for size in MODULES[:limit]:  # then a dict has changed somewhere, so that those of the model are looked at
        title = f"a model of {size} leaf modules, an item of some dict stored before each call"
        add(f"modules-{size}-stored", title, partial(model, size), [(x,)], "seen['call'] = next(numbers)")
    for size in SPECIALIZATIONS[:limit]:
        calls = [(x, name) for name in list(SCALES)[:size]]
        add(f"specializations-{size}", f"one of {size} specializations, in turn", partial(fresh, scaled), calls)
    for size in ARGUMENTS[:limit]:
        add(f"arguments-{size}", f"{size} tensor arguments", partial(fresh, stacked), [(x,) * size])
    return cases
