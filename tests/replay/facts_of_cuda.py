"""`python -m tests.replay.facts_of_cuda`: what replay finds on this GPU, step by step, for whoever looks for a fault of it.

May import: trident, tests.replay.harness.
"""

from __future__ import annotations

import ctypes
import struct
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch

import trident
from llm.config import LLAMA
from llm.model import build
from tests.replay.harness import MISS, Replayed
from trident.api import entry_of
from trident.backend.native import keys, replay_layout, replay_runtime, torch_layouts
from trident.backend.replay import cuda, environment, facts


def attempt(what: str, work: Callable[[], Any]) -> None:
    """Print what some work gives, or how it fails."""
    try:
        print(f"{what}: {work()}", flush=True)
    except BaseException:
        print(f"{what}: FAILED", flush=True)
        traceback.print_exc(file=sys.stdout)


def about_torch() -> None:
    print(sys.version, torch.__version__, torch.version.cuda, torch.cuda.get_device_name(), flush=True)
    attempt("layout", lambda: (replay_layout.current(), torch_layouts.current(), keys.current()))
    attempt("addresses", replay_runtime.cuda_addresses)
    attempt("environment", lambda: list(zip(environment.snapshot(device=True)[1], environment.snapshot(device=True)[0][6::7], strict=True)))
    attempt("current stream", lambda: (torch.cuda.current_stream().stream_id, torch.cuda.current_stream().cuda_stream))
    x = torch.ones(3, device="cuda")
    attempt("a tensor's memory", lambda: (x.data_ptr(), replay_layout.memory_of(x), facts.words_of(x, offset=True)))


def about_graphs() -> None:
    """A graph made by hand, and where its C++ object lies."""
    x = torch.ones(16, 16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x @ x
    graph.replay()
    torch.cuda.synchronize()
    print("pool, exec:", graph.pool(), hex(graph.raw_cuda_graph_exec()), y[0, 0].item())
    words = struct.unpack("<8Q", ctypes.string_at(id(graph), 64))
    print("instance:", list(map(hex, words)))
    attempt("C++ object", lambda: list(map(hex, struct.unpack("<10Q", cuda._memory_at(words[2], 80)))))
    attempt("verified", lambda: hex(cuda._object_of(graph)))
    attempt("own stream", lambda: cuda._new_stream(0))
    attempt("generator", lambda: (cuda._generator_state(0), cuda._generator_words(0)))
    attempt("a snapshot's keys", lambda: sorted(torch.cuda.memory_snapshot()[0]))


def about_a_replay() -> None:
    def step(x: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cache.add_(1)
        return torch.relu(x @ cache)

    x, cache = torch.randn(64, 64, device="cuda"), torch.randn(64, 64, device="cuda")
    program = Replayed(step, x, cache)
    program.capture(x, cache, copied={0})
    other, version = cache.clone(), cache._version
    found = program(x, cache)
    print("replayed:", found is not MISS, program.site.why, "versions", version, cache._version)
    if found is not MISS:
        expected = step(x, other)
        torch.cuda.synchronize()
        print("bits:", torch.equal(found, expected), torch.equal(cache, other), (found - expected).abs().max().item())
    print("pool:", cuda.pool_bytes())


def about_decoding() -> None:
    config = LLAMA["full"] if "--full" in sys.argv else LLAMA["tiny"]
    model = build(config, 256, "cuda", torch.bfloat16, 0)
    token, position, cache = torch.tensor([[5]], device="cuda"), torch.tensor([100], device="cuda"), model.new_cache(1)
    jitted = trident.jit(model, replay="always")
    for _ in range(12):
        started = time.perf_counter()
        jitted(token, position, cache)
        torch.cuda.synchronize()
        print(f"{(time.perf_counter() - started) * 1e3:.2f} ms", end="  ")
    promotion = entry_of(jitted).roots[0].promotion
    assert promotion is not None
    print("\n", promotion, promotion.site.why, trident.explain(jitted).aborts)
    for name, function in (("replay", jitted), ("tier 1", trident.jit(model)), ("eager", model)):
        for _ in range(5):
            function(token, position, cache)
        torch.cuda.synchronize()
        hosts, totals = [], []
        for _ in range(50):
            started = time.perf_counter()
            function(token, position, cache)
            hosts.append(time.perf_counter() - started)
            torch.cuda.synchronize()
            totals.append(time.perf_counter() - started)
        print(f"{name}: host {sorted(hosts)[25] * 1e3:.4f} ms, total {sorted(totals)[25] * 1e3:.3f} ms")
    print(promotion, promotion.site.why)


if __name__ == "__main__":
    with torch.no_grad():
        for part in (about_torch, about_graphs, about_a_replay, about_decoding):
            print(f"---- {part.__name__}", flush=True)
            attempt(part.__name__, part)
