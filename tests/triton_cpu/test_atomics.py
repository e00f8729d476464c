"""Atomic loads, stores and polls, and the operations that need no code."""

import pytest
import torch
import triton
import triton.language as tl

pytestmark = pytest.mark.skipif(not hasattr(tl, "atomic_poll"), reason="this Triton has no atomic loads")


@triton.jit
def copied(out, x, n, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    value = tl.atomic_load(x + lane, mask=lane < n)
    tl.atomic_store(out + lane, value, mask=lane < n)
    tl.atomic_store(out + BLOCK, tl.atomic_load(x, sem="relaxed"), sem="relaxed")


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.float32, torch.float16, torch.bfloat16])
def test_loads_and_stores(dtype: torch.dtype) -> None:
    x, out = torch.arange(1, 17).to(dtype), torch.full((17,), 99).to(dtype)
    copied[(1,)](out, x, 11, 16)
    assert torch.equal(out[:11], x[:11])
    assert (out[11:16] == 99).all()
    assert out[16] == x[0]


@triton.jit
def chain(flags, order):
    """Each program waits for the one before it."""
    pid = tl.program_id(0)
    tl.atomic_poll(flags + pid, 1)
    tl.store(order + pid, tl.atomic_add(order + tl.num_programs(0), 1))
    tl.atomic_store(flags + pid + 1, 1)


@triton.jit
def polled(out, flags, expected, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, tl.atomic_poll(flags + lane, expected, timeout_ns=1000).to(tl.int32))


def test_polls() -> None:
    programs = 300
    flags, order = torch.zeros(programs + 1, dtype=torch.int32), torch.zeros(programs + 1, dtype=torch.int32)
    flags[0] = 1
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    chain[(programs,)](flags, order)
    torch.set_num_threads(before)
    assert order.tolist() == [*range(programs), programs]
    flags, out = torch.tensor([5, 4, 5, 0, 5, 5, 1, 5], dtype=torch.int32), torch.empty(8, dtype=torch.int32)
    polled[(1,)](out, flags, 5, 8)
    assert out.tolist() == [1, 0, 1, 0, 1, 1, 0, 1]


@triton.jit
def hinted(out, x, n, BLOCK: tl.constexpr):
    tl.assume(n > 0)
    tl.extra.cuda.gdc_wait()
    lane = tl.max_contiguous(tl.multiple_of(tl.arange(0, BLOCK), BLOCK), BLOCK)
    tl.debug_barrier()
    tl.store(out + lane, tl.load(x + lane, mask=lane < n, cache_modifier=".cg", eviction_policy="evict_last", volatile=True))
    tl.extra.cuda.gdc_launch_dependents()


def test_hints() -> None:
    x, out = torch.randn(64), torch.zeros(64)
    hinted[(1,)](out, x, 64, 64)
    assert torch.equal(out, x)
