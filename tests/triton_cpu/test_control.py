"""Loops, branches, early returns, calls, and what they carry."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def sum_blocks(x, o, n, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    for start in range(0, n, B):
        i = start + tl.arange(0, B)
        acc += tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o, tl.sum(acc, 0))


@pytest.mark.parametrize("n", [0, 1, 63, 64, 65, 1000])
@pytest.mark.parametrize("block", [16, 64, 256])
def test_for(n, block):
    x, o = torch.randint(-9, 9, (max(n, 1),)).float(), torch.full((1,), 9.0)
    sum_blocks[(1,)](x, o, n, block)
    assert o.item() == x[:n].sum().item()


@triton.jit
def moving(x, o, n, stride, B: tl.constexpr):
    p = x + tl.arange(0, B) * stride
    offs = tl.arange(0, B)
    count = tl.zeros((B,), tl.int64)
    for k in range(n):
        tl.store(o + offs, tl.load(p) + k)
        p += B * stride
        offs += B
        count += k
    tl.store(o + offs, count.to(tl.float32))
    tl.store(o + offs + B, tl.load(p - stride))


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("block", [8, 128])
def test_moving_pointers(stride, block):
    n = 5
    x = torch.randn(block * stride * (n + 1))
    o = torch.zeros((n + 2) * block)
    moving[(1,)](x, o, n, stride, block)
    expected = [x[k * block * stride::stride][:block] + k for k in range(n)]
    last = (torch.arange(block) + n * block) * stride - stride
    assert torch.equal(o, torch.cat([*expected, torch.full((block,), float(sum(range(n)))), x[last]]))


@triton.jit
def fibonacci(o, n, B: tl.constexpr):
    a = tl.arange(0, B).to(tl.int64)
    b = a + 1
    for _ in range(n):
        a, b = b, a + b  # each new value needs the old ones
    tl.store(o + tl.arange(0, B), a)
    tl.store(o + B + tl.arange(0, B), b)


@pytest.mark.parametrize("block", [4, 256])
def test_swapped_carries(block):
    o = torch.zeros(2 * block, dtype=torch.int64)
    fibonacci[(1,)](o, 13, block)
    a = torch.arange(block)
    b = a + 1
    for _ in range(13):
        a, b = b, a + b
    assert torch.equal(o, torch.cat([a, b]))


@triton.jit
def shift(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)[:, None] * B + tl.arange(0, B)[None, :]
    v = tl.load(x + i)
    row = tl.sum(v, 1)
    for _ in range(n):
        v = tl.trans(v) + row[:, None]  # reads the old value elsewhere
        row = row + tl.sum(v, 0)
    tl.store(o + i, v)


@pytest.mark.parametrize("block", [4, 16, 64])
def test_carry_moved(block):
    x = torch.randint(-3, 3, (block, block)).float()
    o = torch.zeros(block, block)
    shift[(1,)](x, o, 3, block)
    v, row = x, x.sum(1)
    for _ in range(3):
        v = v.t() + row[:, None]
        row = row + v.sum(0)
    assert torch.equal(o, v)


@triton.jit
def collatz(x, o, n, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0))
    steps = 0
    acc = tl.zeros((B,), tl.int64)
    while v != 1:
        if v % 2 == 0:
            v = v // 2
        else:
            v = 3 * v + 1
        steps += 1
        acc += v
    tl.store(o + tl.program_id(0) * 2, steps)
    tl.store(o + tl.program_id(0) * 2 + 1, tl.max(acc, 0))


@pytest.mark.parametrize("block", [2, 256])
def test_while(block):
    x = torch.tensor([1, 6, 27, 97], dtype=torch.int64)
    o = torch.zeros(4, 2, dtype=torch.int64)
    collatz[(4,)](x, o, 4, block)
    for start, (steps, total) in zip(x.tolist(), o.tolist(), strict=True):
        count = acc = 0
        while start != 1:
            start = start // 2 if start % 2 == 0 else 3 * start + 1
            count, acc = count + 1, acc + start
        assert (steps, total) == (count, acc)


@triton.jit
def branches(x, o, n, flag, B: tl.constexpr):
    pid = tl.program_id(0)
    if pid >= n:
        return
    i = pid * B + tl.arange(0, B)
    v = tl.load(x + i)
    if flag:
        w = v * 2
    else:
        w = v - 1
    if pid % 2 == 0:
        p = x + i
    else:
        p = x + (n * B - 1) - i
    u = tl.load(p)
    if tl.sum(v, 0) > 0:
        w = w + u
        tl.store(o + i + n * B, w)
    elif flag:
        w = w * u
    tl.store(o + i, w)


@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("block", [8, 128])
def test_if(flag, block):
    n = 6
    x = torch.randn(n * block)
    o = torch.zeros(2, n * block)
    branches[(n + 3,)](x, o, n, flag, block)
    for pid in range(n):
        piece = slice(pid * block, (pid + 1) * block)
        v = x[piece]
        w = v * 2 if flag else v - 1
        u = v if pid % 2 == 0 else x.flip(0)[piece]
        if v.double().sum() > 0:
            w = w + u
            assert torch.equal(o[1, piece], w)
        else:
            assert (o[1, piece] == 0).all()
            w = w * u if flag else w
        assert torch.equal(o[0, piece], w)


@triton.jit
def helper(a, b, SCALE: tl.constexpr):
    if SCALE > 1:
        first = a * SCALE + b
        second = a
    else:
        first = a
        second = b
    return first, second


@triton.jit
def early(v, limit):
    if limit > 3:
        return v * 2
    return v + 1


@triton.jit
def calls(x, o, limit, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    a, b = helper(v, 1.0, 3)
    c, d = helper(a, b, 1)
    tl.store(o + i, c + d)
    tl.store(o + B + i, early(v, limit))


@pytest.mark.parametrize("limit", [2, 7])
def test_calls(limit):
    x, o = torch.randn(128), torch.zeros(2, 128)
    calls[(1,)](x, o, limit, 128)
    assert torch.equal(o[0], x * 3 + 1 + x)
    assert torch.equal(o[1], x * 2 if limit > 3 else x + 1)


@triton.jit(noinline=True)
def separate(v, k):
    return v * k


@triton.jit
def calls_separate(x, o, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + i, tl.load(x + i) * separate(tl.load(x), 3.0) + separate(separate(2.0, 2), 2))


def test_noinline():
    x, o = torch.randn(128), torch.zeros(128)
    calls_separate[(1,)](x, o, 128)
    assert torch.equal(o, x * (x[0] * 3) + 8)


@triton.jit
def nested(x, o, n, m, B: tl.constexpr):
    acc = tl.zeros((B,), tl.float32)
    top = tl.full((B,), -1e30, tl.float32)
    p = x + tl.arange(0, B)
    for i in range(n):
        inner = tl.zeros((B,), tl.float32)
        for j in range(i, m):
            v = tl.load(p)
            if j % 2 == 0:
                inner += v
            else:
                inner -= v
            p += B
        top = tl.maximum(top, inner)
        acc = acc * 0.5 + inner
        p -= B * (m - i) - 1
    tl.store(o + tl.arange(0, B), acc)
    tl.store(o + B + tl.arange(0, B), top)


@pytest.mark.parametrize("block", [16, 128])
def test_nested_loops(block):
    n, m = 4, 6
    x = torch.randn(block * (m + 1) + n)
    o = torch.zeros(2, block)
    nested[(1,)](x, o, n, m, block)
    acc, top, p = torch.zeros(block), torch.full((block,), -1e30), 0
    for i in range(n):
        inner = torch.zeros(block)
        for j in range(i, m):
            v = x[p:p + block]
            inner = inner + v if j % 2 == 0 else inner - v
            p += block
        top = torch.maximum(top, inner)
        acc = acc * 0.5 + inner
        p -= block * (m - i) - 1
    assert torch.equal(o, torch.stack([acc, top]))


@triton.jit
def grid3(o, B: tl.constexpr):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny, nz = tl.num_programs(0), tl.num_programs(1), tl.num_programs(2)
    tl.store(o + (z * ny + y) * nx + x, x + 10 * y + 100 * z + 1000 * nz)


def test_grid_3d():
    o = torch.zeros(4, 3, 2, dtype=torch.int32)
    grid3[(2, 3, 4)](o, 1)
    z, y, x = torch.meshgrid(torch.arange(4), torch.arange(3), torch.arange(2), indexing="ij")
    assert torch.equal(o.long(), x + 10 * y + 100 * z + 4000)


@triton.jit
def static_range(x, o, B: tl.constexpr, STEPS: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i)
    for k in tl.static_range(STEPS):
        v = v * 2 + k
    for k in tl.range(0, 3, num_stages=2):
        v = v + k
    tl.debug_barrier()
    tl.store(o + i, v)


def test_static_range():
    x, o = torch.randn(100), torch.zeros(128)
    x = torch.cat([x, x[:28]])
    static_range[(1,)](x, o, 128, 4)
    v = x
    for k in range(4):
        v = v * 2 + k
    assert torch.equal(o, v + 0 + 1 + 2)
