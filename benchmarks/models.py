"""The decode step of both LLMs of the examples: host time, total time, and the first call.

A step is `model(token, position, cache)` with static shapes; the same token and position again and again, which costs what any
other does. Steps are compiled once and shared by the cases of a model. Trident's logits are compared with eager's bit for bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from llm.config import LLAMA, QWEN3, Config
from llm.model import Transformer, build
from llm.peers import torch_compile
from llm.report import same_bits

from . import floor
from .cases import jitted
from .measure import Case, Sampler, Variant, native_sampler, python_sampler

MODELS: dict[str, dict[str, Config]] = {"llama": LLAMA, "qwen3": QWEN3}
CACHE_LENGTH, POSITION = 256, 100


class Steps:
    """One model and everything that runs its decode step. Each is made when first asked for."""

    def __init__(self, config: Config, device: torch.device, dtype: torch.dtype) -> None:
        self.config, self.device = config, device
        self.dtype = dtype

    @functools.cached_property
    def model(self) -> Transformer:
        torch._dynamo.reset()  # what was compiled for another model must not be looked at here
        return build(self.config, CACHE_LENGTH, self.device, self.dtype, seed=0)

    @functools.cached_property
    def arguments(self) -> tuple[torch.Tensor, torch.Tensor, Any]:
        """A token, its position and a cache that a prompt of random tokens has filled up to there."""
        generator = torch.Generator().manual_seed(0)
        prompt = torch.randint(self.config.vocabulary, (1, POSITION), generator=generator).to(self.device)
        cache = self.model.new_cache(1)
        with torch.no_grad():
            token = self.model(prompt, torch.arange(POSITION, device=self.device), cache).argmax(-1, keepdim=True)
        return token, torch.tensor([POSITION], device=self.device), cache

    @functools.cached_property
    def compiled(self) -> Callable[..., torch.Tensor]:
        return self.checked(torch_compile(self.model, self.device), exactly=False)

    @functools.cached_property
    def reduce_overhead(self) -> Callable[..., torch.Tensor]:
        for pair in self.arguments[2]:
            for tensor in pair:
                torch._dynamo.mark_static_address(tensor)
        return self.checked(torch_compile(self.model, self.device, "reduce-overhead"), exactly=False)

    @functools.cached_property
    def trident(self) -> Callable[..., torch.Tensor]:
        return self.checked(jitted(self.model, self.arguments), exactly=True)

    @functools.cached_property
    def replayed(self) -> Callable[..., torch.Tensor]:
        return self.checked(jitted(self.model, self.arguments, replay=True), exactly=True)

    @functools.cached_property
    def graph(self) -> torch.cuda.CUDAGraph:
        """The eager step, captured by hand."""
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(3):
                self.model(*self.arguments)
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            logits = self.model(*self.arguments)
        graph.replay()
        if not same_bits(logits, self.model(*self.arguments)):
            raise RuntimeError("the graph's logits are not eager's")
        return graph

    def checked(self, step: Callable[..., torch.Tensor], *, exactly: bool) -> Callable[..., torch.Tensor]:
        expected = self.model(*self.arguments)
        for _ in range(4):
            made = step(*self.arguments)
        if exactly and not same_bits(made, expected):
            raise RuntimeError("the logits are not eager's")
        if not exactly:
            difference = (made.float() - expected.float()).abs().max() / expected.float().abs().max()
            if not difference < 0.1:
                raise RuntimeError(f"the logits are far from eager's: {difference:.3f} of the largest")
        return step


def decode_cases(
    key: str, config: Config, device: torch.device, dtype: torch.dtype, compile_too: bool, reduce_overhead: bool = False
) -> list[Case]:
    """On CUDA: until the device is done, and until the host is; on the CPU these are the same."""
    steps = Steps(config, device, dtype)

    def variants(total: bool) -> list[Variant]:
        def python(get: Callable[[], Callable[..., torch.Tensor]]) -> Callable[[], Sampler]:
            def prepare() -> Sampler:
                names = {"step": get(), **dict(zip(("token", "position", "cache"), steps.arguments))}
                return python_sampler("step(token, position, cache)", names, device, total=total)

            return prepare

        def host_program() -> Sampler:
            return native_sampler(floor.vectorcall_loop(steps.trident, steps.arguments), device, total=total)

        def graph() -> Sampler:
            return python_sampler("replay()", {"replay": steps.graph.replay}, device, total=total)

        made = [Variant("eager", python(lambda: steps.model))]
        if compile_too:
            made.append(Variant("torch.compile", python(lambda: steps.compiled)))
        if reduce_overhead and device.type == "cuda":
            made.append(Variant("torch.compile, reduce-overhead, static cache", python(lambda: steps.reduce_overhead)))
        made.append(Variant("Trident", python(lambda: steps.trident)))
        if device.type == "cuda":
            made.append(Variant("Trident, replay", python(lambda: steps.replayed)))
        made.append(Variant("floor: Trident's host program in a native loop", host_program))
        if device.type == "cuda":
            made.append(Variant("floor: CUDA graph of eager, by hand", graph))
        return made

    what = f"{config.name}, {str(dtype).removeprefix('torch.')}, batch 1: decode step"
    # One step at a time on a device: it is idle when a step begins, as when the next token depends on this one's result.
    limit = 1 if device.type == "cuda" else 100_000
    cases = [Case(f"{key}-decode", what, variants(total=True), max_calls=limit)]
    if device.type == "cuda":
        cases.append(Case(f"{key}-host", f"{what}, host time alone", variants(total=False), max_calls=limit))
    return cases
