"""Masks that are mostly true and remainders that mostly only shift: right where they are not, integers that wrap included."""

import pytest
import torch
import triton
import triton.language as tl

BLOCK = 256
TOP = 2**31 - 1


@triton.jit(do_not_specialize=["start", "bound"])
def masked(out, x, start, bound, COMPARE: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    position = start + STEP * lane
    if COMPARE == "<":
        mask = position < bound
    elif COMPARE == "<=":
        mask = position <= bound
    elif COMPARE == ">":
        mask = position > bound
    elif COMPARE == ">=":
        mask = bound <= position
    elif COMPARE == "u<":
        mask = position.to(tl.uint32) < bound.to(tl.uint32)
    else:
        mask = (position.to(tl.int64) + 5 < bound) & (lane < 1000)
    tl.store(out + lane, tl.load(x + lane, mask=mask, other=-1.0))


@triton.jit(do_not_specialize=["n"])
def masked_store(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n) * 2, mask=offsets < n)


COMPARES = {"<": torch.lt, "<=": torch.le, ">": torch.gt, ">=": torch.ge}


@pytest.mark.parametrize("step", [1, -3, 16_000_000])
@pytest.mark.parametrize("compare", [*COMPARES, "u<", "i64"])
def test_masks(compare: str, step: int) -> None:
    x = torch.randn(BLOCK)
    for start in (0, 7, -300, TOP - 100, -TOP):
        position = (start + step * torch.arange(BLOCK, dtype=torch.int64)).to(torch.int32)
        for bound in (0, int(position[-1]), int(position[-1]) + 1 if position[-1] < TOP else TOP, int(position[3]), TOP, -TOP):
            if compare in COMPARES:
                mask = COMPARES[compare](position, bound)
            elif compare == "u<":
                mask = (position.to(torch.int64) & 0xFFFFFFFF) < (bound & 0xFFFFFFFF)
            else:
                mask = position.to(torch.int64) + 5 < bound
            out = torch.zeros(BLOCK)
            masked[(1,)](out, x, start, bound, compare, step, BLOCK)
            assert torch.equal(out, torch.where(mask, x, torch.tensor(-1.0))), (start, bound)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8, torch.float64])
def test_stores_leave_what_is_masked(dtype: torch.dtype) -> None:
    x = torch.randint(-50, 50, (1024,)).to(dtype)
    for n in (1, 255, 256, 257, 511, 768):
        out = torch.full((1024,), 7, dtype=dtype)
        masked_store[(4,)](out, x, n, BLOCK)
        assert torch.equal(out[:n], (x * 2)[:n])
        assert (out[n:] == 7).all()


@triton.jit(do_not_specialize=["start", "n"])
def wrapped(out, x, start, n, STEP: tl.constexpr, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    tl.store(out + lane, tl.load(x + (start + STEP * lane) % n))


@pytest.mark.parametrize("step", [1, -1, 2, 16_000_000])
def test_remainders(step: int) -> None:
    memory = torch.arange(4096, dtype=torch.float32)
    x = memory[2048:]
    for start in (0, 5, 100, 1000, 1024, -1, -255, -256, -1000, TOP - 255, TOP - 254, TOP, -TOP - 1):
        for n in (1024, 256, 255, 1, 7, -1024):
            position = (start + step * torch.arange(BLOCK, dtype=torch.int64)).to(torch.int32).to(torch.int64)
            out = torch.empty(BLOCK)
            wrapped[(1,)](out, x, start, n, step, BLOCK)
            assert torch.equal(out, memory[2048 + torch.fmod(position, n)]), (start, n)


@triton.jit
def strided_tile(out, x, rows, columns, M, N, R: tl.constexpr, C: tl.constexpr):
    r = (rows + tl.arange(0, R)) % M
    c = (columns + tl.arange(0, C)) % N
    here = r[:, None] * N + c[None, :]
    there = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    total = tl.zeros([R, C], dtype=tl.float32)
    for k in range(3):
        total += tl.load(x + here, mask=(r[:, None] < M - k) & (c[None, :] < N), other=1.0)
    tl.store(out + there, total)


def test_tiles_at_the_edge() -> None:
    x = torch.randn(40, 50)
    for rows, columns in ((0, 0), (30, 0), (8, 40), (39, 49)):
        out = torch.empty(16, 32)
        strided_tile[(1,)](out, x, rows, columns, 40, 50, 16, 32)
        r, c = (rows + torch.arange(16)) % 40, (columns + torch.arange(32)) % 50
        expected = torch.zeros(16, 32)
        for k in range(3):
            expected += torch.where((r < 40 - k)[:, None], x[r][:, c], torch.tensor(1.0))
        assert torch.equal(out, expected)
