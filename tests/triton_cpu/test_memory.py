"""Loads, stores, addresses, masks, shapes and atomics."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


@pytest.mark.parametrize("block", [1, 2, 8, 16, 32, 64, 128, 1024])
def test_add_sizes(block):
    for n in [1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 129, 255, 500, 777, 1000]:
        x, y, o = torch.randn(n), torch.randn(n), torch.full((n + 3,), 5.0)
        add[(triton.cdiv(n, block),)](x, y, o, n, block)
        assert torch.equal(o[:n], x + y)
        assert (o[n:] == 5.0).all()


def test_in_place_and_overlap():
    x = torch.randn(256)
    expected = x + x
    add[(1,)](x, x, x, 256, 256)
    assert torch.equal(x, expected)
    base = torch.randn(300)
    expected = base[:256] + base[10:266]
    add[(1,)](base[:256], base[10:266], base[1:257], 256, 256)  # the output overlaps both inputs, shifted
    assert torch.equal(base[1:257], expected)


@triton.jit
def reverse(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    v = tl.load(x + (n - 1 - i), mask=m)
    tl.store(x + i, v, mask=m)


def test_reverse_in_place():
    for n in (1, 5, 64, 100, 256):
        x = torch.randn(n)
        expected = x.flip(0)
        reverse[(1,)](x, n, 256)
        assert torch.equal(x, expected)


@triton.jit
def swap(x, y, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    a = tl.load(x + i, mask=m)
    b = tl.load(y + i, mask=m)
    tl.store(x + i, b, mask=m)
    tl.store(y + i, a, mask=m)


def test_loads_before_stores():
    x, y = torch.randn(200), torch.randn(200)
    a, b = x.clone(), y.clone()
    swap[(1,)](x, y, 200, 256)
    assert torch.equal(x, b) and torch.equal(y, a)


@triton.jit
def load_other(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=(i < n) & (i % 3 != 0), other=-7)
    tl.store(o + i, v)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int8, torch.int64, torch.float64])
def test_other(dtype):
    x = torch.arange(100).to(dtype)
    o = torch.zeros(128, dtype=dtype)
    load_other[(1,)](x, o, 100, 128)
    i = torch.arange(128)
    expected = torch.full((128,), -7).to(dtype)
    keep = (i < 100) & (i % 3 != 0)
    expected[keep] = x[i[keep]]
    assert torch.equal(o, expected)


@triton.jit
def copy2d(x, o, rows, cols, sxr, sxc, sor, soc, R: tl.constexpr, C: tl.constexpr, TRANS: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    c = tl.program_id(1) * C + tl.arange(0, C)
    m = (r[:, None] < rows) & (c[None, :] < cols)
    v = tl.load(x + r[:, None] * sxr + c[None, :] * sxc, mask=m)
    if TRANS:
        tl.store(o + c[:, None] * sor + r[None, :] * soc, tl.trans(v), mask=tl.trans(m))
    else:
        tl.store(o + r[:, None] * sor + c[None, :] * soc, v, mask=m)


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("block", [(1, 64), (16, 16), (64, 4), (4, 128), (32, 64), (2, 2), (64, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_copy_2d(trans, block, dtype):
    rows, cols = 70, 90
    for x in (torch.randn(rows, cols).to(dtype), torch.randn(cols, rows).to(dtype).t(), torch.randn(rows, 2 * cols).to(dtype)[:, ::2]):
        o = torch.zeros((cols, rows) if trans else (rows, cols), dtype=dtype)
        grid = (triton.cdiv(rows, block[0]), triton.cdiv(cols, block[1]))
        copy2d[grid](x, o, rows, cols, *x.stride(), *o.stride(), *block, trans)
        assert torch.equal(o, x.t() if trans else x)


def test_negative_stride():
    x = torch.randn(40, 50)
    o = torch.empty(40, 50)
    last = x.flatten()[-1:]  # a pointer to the last element, walked backwards
    copy2d[(3, 2)](last, o, 40, 50, -50, -1, 50, 1, 16, 32, False)
    assert torch.equal(o, x.flip(0, 1))


@triton.jit
def gather_rows(x, index, o, n, stride, C: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    row = tl.load(index + i, mask=m, other=0)
    c = tl.arange(0, C)
    v = tl.load(x + row[:, None] * stride + c[None, :], mask=m[:, None])
    tl.store(o + i[:, None] * C + c[None, :], v, mask=m[:, None])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_gather(dtype, index):
    x = (torch.randn(50, 32) * 20).to(dtype)
    for n in (1, 13, 64):
        which = torch.randint(0, 50, (n,), dtype=index)
        o = torch.zeros(n, 32, dtype=dtype)
        gather_rows[(1,)](x, which, o, n, 32, 32, 64)
        assert torch.equal(o, x[which.long()])


@triton.jit
def scatter(x, index, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    tl.store(o + tl.load(index + i, mask=m), tl.load(x + i, mask=m), mask=m)


def test_scatter():
    x, index = torch.randn(100), torch.randperm(100)
    o = torch.zeros(100)
    scatter[(1,)](x, index, o, 100, 128)
    expected = torch.zeros(100)
    expected[index] = x
    assert torch.equal(o, expected)


@triton.jit
def scalars(x, o, n):
    pid = tl.program_id(0)
    v = tl.load(x + pid)
    w = tl.load(x + pid + 1, mask=pid + 1 < n, other=100.0)
    tl.store(o + pid, v * w)
    tl.store(o + pid + n, v, mask=v > 0)


def test_scalar_memory():
    x = torch.randn(20)
    o = torch.zeros(40)
    scalars[(20,)](x, o, 20)
    assert torch.equal(o[:20], x * torch.cat([x[1:], torch.tensor([100.0])]))
    assert torch.equal(o[20:], x.clamp(min=0))


@triton.jit
def shapes(x, o, A: tl.constexpr, B: tl.constexpr):
    i = tl.arange(0, A * B)
    v = tl.load(x + i)
    q = tl.reshape(v, (A, B))
    t = tl.trans(q)
    tl.store(o + i, tl.reshape(t, (A * B,)))
    p = tl.permute(tl.reshape(v, (2, A // 2, B)), (2, 0, 1))
    tl.store(o + A * B + i, tl.reshape(p, (A * B,)))
    a, b = tl.split(tl.reshape(v, (A * B // 2, 2)))
    half = tl.arange(0, A * B // 2)
    tl.store(o + 2 * A * B + half, a)
    tl.store(o + 2 * A * B + A * B // 2 + half, b)
    j = tl.join(b, a)
    tl.store(o + 3 * A * B + i, tl.reshape(j, (A * B,)))
    tl.store(o + 4 * A * B + i, tl.interleave(a, b))
    tl.store(o + 5 * A * B + i, tl.cat(a, b, can_reorder=True))
    f = tl.flip(v, 0)
    tl.store(o + 6 * A * B + i, f)


@pytest.mark.parametrize("shape", [(2, 2), (4, 8), (8, 64), (64, 8), (32, 32)])
def test_shapes(shape):
    a, b = shape
    x = torch.randn(a * b)
    o = torch.zeros(7, a * b)
    shapes[(1,)](x, o, a, b)
    assert torch.equal(o[0], x.view(a, b).t().reshape(-1))
    assert torch.equal(o[1], x.view(2, a // 2, b).permute(2, 0, 1).reshape(-1))
    assert torch.equal(o[2], torch.cat([x[::2], x[1::2]]))
    assert torch.equal(o[3], torch.stack([x[1::2], x[::2]], 1).reshape(-1))
    assert torch.equal(o[4], x)
    assert torch.equal(o[5].sort()[0], x.sort()[0])
    assert torch.equal(o[6], x.flip(0))


@triton.jit
def atomics(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.atomic_add(o + i % 10, tl.load(x + i, mask=m), mask=m)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64, torch.float64, torch.float16, torch.bfloat16])
def test_atomic_add(dtype):
    x = torch.randint(0, 5, (500,)).to(dtype)
    o = torch.zeros(10, dtype=dtype)
    atomics[(8,)](x, o, 500, 64)
    expected = torch.zeros(10, dtype=torch.float64).index_add_(0, torch.arange(500) % 10, x.double())
    assert torch.equal(o.double(), expected)


@triton.jit
def atomic_shift(x, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    tl.atomic_add(x + (i + 1) % n, tl.load(x + i, mask=m), mask=m)


def test_atomic_reads_first():
    for n in (5, 64, 200):
        x = torch.randint(0, 9, (n,)).float()
        expected = x + x.roll(1)
        atomic_shift[(1,)](x, n, 256)
        assert torch.equal(x, expected)


@triton.jit
def counter(c, o, m):
    old = tl.atomic_add(c, 2)
    tl.store(o + tl.program_id(0), old)
    tl.atomic_max(m, tl.program_id(0))
    tl.atomic_min(m + 1, -tl.program_id(0))
    tl.atomic_xchg(m + 2, 5)
    tl.atomic_cas(m + 3, 0, 9)
    tl.atomic_or(m + 4, 1 << tl.program_id(0))


def test_atomic_scalars():
    c, o, m = torch.zeros(1, dtype=torch.int32), torch.zeros(6, dtype=torch.int32), torch.zeros(5, dtype=torch.int32)
    counter[(6,)](c, o, m)
    assert c.item() == 12 and o.tolist() == [0, 2, 4, 6, 8, 10] and m.tolist() == [5, -5, 5, 9, 63]


@triton.jit
def atomic_float_max(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.atomic_max(o + i % 2, tl.load(x + i, mask=i < n, other=0.0), mask=i < n)


def test_atomic_float_max():
    x = torch.randn(20)
    o = torch.full((2,), -100.0)
    atomic_float_max[(1,)](x, o, 20, 32)
    assert torch.equal(o, torch.stack([x[::2].max(), x[1::2].max()]))


@triton.jit
def gather_op(x, i, o, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    r = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(o + r, tl.gather(tl.load(x + r), tl.load(i + r), AXIS))


@pytest.mark.parametrize("axis", [0, 1])
def test_tensor_gather(axis):
    x = torch.randn(16, 32)
    i = torch.randint(0, (16, 32)[axis], (16, 32), dtype=torch.int32)
    o = torch.zeros(16, 32)
    gather_op[(1,)](x, i, o, 16, 32, axis)
    assert torch.equal(o, torch.gather(x, axis, i.long()))


@triton.jit
def histogram(x, o, n, B: tl.constexpr, BINS: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o + tl.arange(0, BINS), tl.histogram(tl.load(x + i, mask=i < n, other=0), BINS, mask=i < n))


def test_histogram():
    x = torch.randint(0, 16, (100,), dtype=torch.int32)
    o = torch.zeros(16, dtype=torch.int32)
    histogram[(1,)](x, o, 100, 128, 16)
    assert torch.equal(o.long(), torch.bincount(x, minlength=16))
