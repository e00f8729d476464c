"""Which pointers a Triton kernel may store to, and that the decode step of the models replays."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

from llm.config import LLAMA, QWEN3, Config
from llm.kernels import rms_norm_kernel, rope_kernel, swiglu_kernel
from llm.model import build
from tests.replay.harness import MISS, Replayed
from trident.backend.replay.stores import stored
from trident.backend.replay.targets import emulated


@triton.jit
def through_a_loop(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    a, c = a_ptr + offsets, c_ptr + offsets
    for _ in range(n):
        tl.store(c, tl.load(a) + tl.load(b_ptr + offsets))
        a += BLOCK
        c += BLOCK


@triton.jit
def either(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    target = a_ptr if n > 3 else b_ptr
    tl.store(target + tl.arange(0, BLOCK), tl.load(c_ptr + tl.arange(0, BLOCK)))


@triton.jit
def atomically(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(a_ptr + tl.load(c_ptr + offsets).to(tl.int32), tl.load(b_ptr + offsets))


@triton.jit
def early(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    if tl.program_id(0) > n:
        return
    tl.store(a_ptr + tl.arange(0, BLOCK), tl.load(b_ptr + tl.arange(0, BLOCK)) + tl.load(c_ptr + tl.arange(0, BLOCK)))


@triton.jit
def as_numbers(a_ptr, b_ptr, c_ptr, n, BLOCK: tl.constexpr):
    address = a_ptr.to(tl.int64) + n
    tl.store(address.to(tl.pointer_type(tl.float32)), tl.load(b_ptr) + tl.load(c_ptr))


@pytest.mark.parametrize(("kernel", "expected"), [
    (through_a_loop, ({2}, {0, 2})), (either, ({0, 1},)), (atomically, ({0},)), (early, (None, {0})), (as_numbers, (None,)),
])
def test_what_kernels_store_to(kernel: Any, expected: tuple[Any, ...]) -> None:
    tensors = [torch.zeros(64) for _ in range(3)]
    text = kernel.warmup(*tensors, 2, BLOCK=16, grid=(1,)).asm["ttir"]
    assert stored(text, 3) in expected
    assert stored(text, 2) is None, "as many pointers as tensors, or nothing is known"


def test_what_the_models_kernels_store_to() -> None:
    x, positions = torch.zeros(64), torch.zeros(2, dtype=torch.int64)
    assert stored(rms_norm_kernel.warmup(x, x, x, 64, 64, 1e-5, BLOCK=64, grid=(1,)).asm["ttir"], 3) == {2}
    assert stored(rope_kernel.warmup(x, x, x, x, positions, 1, 1, HALF=16, BLOCK=16, grid=(1,)).asm["ttir"], 5) == {1}
    assert stored(swiglu_kernel.warmup(x, x, x, 64, BLOCK=64, grid=(1,)).asm["ttir"], 3) == {2}


def test_unknown_text_gives_no_answer() -> None:
    assert stored("", 0) is None and stored("nonsense", 1) is None
    header = "tt.func public @f(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>) {\n"
    assert stored(header + "%0 = tt.new_operation %a : !tt.ptr<f32>\n}", 2) is None
    assert stored(header + "tt.store %a, %c : !tt.ptr<f32>\n}", 2) == {0}
    assert stored(header + "^bb1(%p: !tt.ptr<f32>):\ntt.store %p, %c : !tt.ptr<f32>\n}", 2) is None


@pytest.mark.parametrize("config", [pytest.param(LLAMA["tiny"], id="llama"), pytest.param(QWEN3["tiny"], id="qwen3")])
def test_a_decode_step_replays_with_eagers_bits(config: Config) -> None:
    model = build(config, 32, "cpu", torch.float32, 0)
    with torch.no_grad(), emulated():
        caches = [model.new_cache(1) for _ in range(2)]
        token, position = torch.tensor([[1]]), torch.tensor([0])

        def step(tokens: torch.Tensor, positions: torch.Tensor, cache: Any) -> torch.Tensor:
            return model(tokens, positions, cache)

        program = Replayed(step, token, position, caches[0])
        varying = [n for n, known in enumerate(program.plan.constant) if not known][:2]
        assert {program.operands(token, position, caches[0])[0][n].dtype for n in varying} == {torch.int64}
        program.capture(token, position, caches[0], copied=varying)
        for n in range(3, 8):
            arguments = torch.tensor([[n * 7]]), torch.tensor([n])
            found, expected = program(*arguments, caches[0]), model(*arguments, caches[1] if n > 3 else clone_of(caches))
            assert found is not MISS and torch.equal(found, expected)
            assert all(torch.equal(a, b) for one, other in zip(*caches, strict=True) for a, b in zip(one, other, strict=True))
        assert program(*arguments, model.new_cache(1)) is MISS


def clone_of(caches: list[Any]) -> Any:
    """The second one, as the first was when it was captured, but for this step's row, which both write now."""
    for one, other in zip(*caches, strict=True):
        for a, b in zip(one, other, strict=True):
            b.copy_(a)
    return caches[1]
