"""Reductions, scans and products against PyTorch."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def reduce2d(x, o, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, OP: tl.constexpr):
    v = tl.load(x + tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :])
    if OP == "sum":
        r = tl.sum(v, AXIS)
    elif OP == "max":
        r = tl.max(v, AXIS)
    elif OP == "min":
        r = tl.min(v, AXIS)
    elif OP == "argmax":
        r = tl.argmax(v, AXIS)
    elif OP == "argmin":
        r = tl.argmin(v, AXIS)
    elif OP == "xor":
        r = tl.xor_sum(v, AXIS)
    n: tl.constexpr = C if AXIS == 0 else R
    tl.store(o + tl.arange(0, n), r)


SHAPES = [(1, 64), (64, 1), (2, 2), (8, 16), (4, 256), (256, 4), (64, 64)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize(("op", "dtype"), [
    *[(op, torch.float32) for op in ("sum", "max", "min", "argmax", "argmin")], *[(op, torch.int32) for op in ("sum", "max", "argmin")],
    *[(op, torch.bfloat16) for op in ("sum", "argmax")]])
def test_reduce_2d(shape, axis, op, dtype):
    x = torch.randn(shape)
    if dtype == torch.int32:
        x = x * 100
    x = x.to(dtype)
    if op.startswith("arg"):
        x = x.round() if dtype != torch.int32 else x // 40  # ties: the first index wins
    kept = shape[1 - axis]
    o = torch.zeros(kept, dtype=torch.int32 if op.startswith("arg") else dtype)
    reduce2d[(1,)](x, o, *shape, axis, op)
    if op == "sum":
        expected = x.double().sum(axis)
        torch.testing.assert_close(o.double(), expected, rtol=1e-5,
                                   atol=0.5 if dtype == torch.bfloat16 else 1e-4)  # rounded after each addition
    elif op.startswith("arg"):
        values = x.numpy(force=True) if dtype != torch.bfloat16 else x.float().numpy()
        expected = torch.from_numpy(getattr(values, op)(axis))
        assert torch.equal(o.long(), expected)
    else:
        assert torch.equal(o, getattr(x, f"a{op}")(axis))


@triton.jit
def combine_affine(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


@triton.jit
def scans(x, y, o, R: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr, REVERSE: tl.constexpr):
    i = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    v = tl.load(x + i)
    tl.store(o + i, tl.cumsum(v, AXIS, reverse=REVERSE))
    tl.store(o + R * C + i, tl.cumprod(v, AXIS, reverse=REVERSE))
    _, b = tl.associative_scan((v, tl.load(y + i)), AXIS, combine_affine, reverse=REVERSE)
    tl.store(o + 2 * R * C + i, b)


@pytest.mark.parametrize("shape", [(1, 64), (16, 8), (4, 128), (128, 4), (1, 1)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan(shape, axis, reverse):
    x, y = torch.rand(shape, dtype=torch.float64) + 0.5, torch.randn(shape, dtype=torch.float64)
    o = torch.zeros(3, *shape, dtype=torch.float64)
    scans[(1,)](x, y, o, *shape, axis, reverse)
    flip = (lambda t: t.flip(axis)) if reverse else (lambda t: t)
    torch.testing.assert_close(o[0], flip(flip(x).cumsum(axis)))
    torch.testing.assert_close(o[1], flip(flip(x).cumprod(axis)))
    xs, ys = flip(x).unbind(axis), flip(y).unbind(axis)
    h, out = ys[0], [ys[0]]
    for a, b in zip(xs[1:], ys[1:], strict=True):
        h = h * a + b
        out.append(h)
    torch.testing.assert_close(o[2], flip(torch.stack(out, axis)))


@triton.jit
def nan_reductions(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=-float("inf"))
    tl.store(o, tl.max(v, 0))
    tl.store(o + 1, tl.sum(tl.where(i < n, v, 0.0), 0))
    tl.store(o + 2, tl.reduce(v, 0, _nan_max))


@triton.jit
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@pytest.mark.parametrize("where", [0, 17, 99])
def test_nan(where):
    x, o = torch.randn(100), torch.zeros(3)
    x[where] = float("nan")
    nan_reductions[(1,)](x, o, 100, 128)
    assert o[0] == x[~x.isnan()].max() and o[1].isnan() and o[2].isnan()


@triton.jit
def count_true(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    v = tl.load(x + i, mask=i < n, other=0.0)
    tl.store(o, tl.sum((v > 0).to(tl.int32), 0))
    best, at = tl.max(v, 0, return_indices=True)
    tl.store(o + 1, at)
    tl.store(o + 2, tl.max((v > 2.5).to(tl.int1), 0).to(tl.int32))
    tl.store(o + 3, best.to(tl.int32))


def test_counts():
    x = torch.randn(1000)
    o = torch.zeros(4, dtype=torch.int32)
    count_true[(1,)](x, o, 1000, 1024)
    assert o.tolist() == [(x > 0).sum(), x.argmax(), (x > 2.5).any(), int(x.max())]


@triton.jit
def reduce3d(x, o, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, AXIS: tl.constexpr):
    v = tl.reshape(tl.load(x + tl.arange(0, A * B * C)), (A, B, C))
    r = tl.sum(v, AXIS)
    n: tl.constexpr = A * B * C // (A if AXIS == 0 else (B if AXIS == 1 else C))
    tl.store(o + tl.arange(0, n), tl.reshape(r, (n,)))


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(2, 4, 8), (16, 2, 64), (4, 32, 2), (2, 1, 2)])
def test_reduce_3d(shape, axis):
    x = torch.randint(-50, 50, shape).float()
    o = torch.zeros(x.numel() // shape[axis])
    reduce3d[(1,)](x, o, *shape, axis)
    assert torch.equal(o, x.sum(axis).reshape(-1))


@triton.jit
def sort_rows(x, o, R: tl.constexpr, C: tl.constexpr):
    i = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    tl.store(o + i, tl.sort(tl.load(x + i)))


def test_sort():
    x, o = torch.randn(4, 64), torch.zeros(4, 64)
    sort_rows[(1,)](x, o, 4, 64)
    assert torch.equal(o, x.sort(1)[0])


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, ACT: tl.constexpr):
    pid = tl.program_id(0)
    grid_n = tl.cdiv(N, BN)
    om = (pid // grid_n) * BM + tl.arange(0, BM)
    on = (pid % grid_n) * BN + tl.arange(0, BN)
    ok = tl.arange(0, BK)
    ap = a + om[:, None] * sam + ok[None, :] * sak
    bp = b + ok[:, None] * sbk + on[None, :] * sbn
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        x = tl.load(ap, mask=(om[:, None] < M) & (ok[None, :] < K - k * BK), other=0.0)
        y = tl.load(bp, mask=(ok[:, None] < K - k * BK) & (on[None, :] < N), other=0.0)
        acc = tl.dot(x, y, acc, input_precision="ieee")
        ap += BK * sak
        bp += BK * sbk
    if ACT:
        acc = tl.where(acc >= 0, acc, 0.01 * acc)
    tl.store(c + om[:, None] * scm + on[None, :] * scn, acc.to(c.dtype.element_ty), mask=(om[:, None] < M) & (on[None, :] < N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("blocks", [(16, 16, 16), (32, 64, 32), (64, 32, 16), (16, 128, 64)])
@pytest.mark.parametrize("transposed", [False, True])
def test_matmul(dtype, blocks, transposed):
    m, n, k = 77, 93, 130
    a = torch.randn(m, k).to(dtype)
    b = torch.randn(n, k).to(dtype).t() if transposed else torch.randn(k, n).to(dtype)
    c = torch.zeros(m, n, dtype=dtype)
    grid = (triton.cdiv(m, blocks[0]) * triton.cdiv(n, blocks[1]),)
    matmul[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), *blocks, True)
    exact = torch.nn.functional.leaky_relu(a.double() @ b.double(), 0.01)
    torch.testing.assert_close(c.double(), exact, rtol={torch.float32: 1e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype], atol=1e-4)


@triton.jit
def dot_once(a, b, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y, out_dtype=c.dtype.element_ty))


@pytest.mark.parametrize("shape", [(16, 16, 16), (2, 4, 8), (1, 32, 4), (64, 2, 32), (32, 1, 16)])
@pytest.mark.parametrize(("dtype", "out"), [(torch.int8, torch.int32), (torch.float16, torch.float16), (torch.float64, torch.float64)])
def test_dot_types(shape, dtype, out):
    m, n, k = shape
    a = torch.randint(-9, 9, (m, k)).to(dtype)
    b = torch.randint(-9, 9, (k, n)).to(dtype)
    c = torch.zeros(m, n, dtype=out)
    dot_once[(1,)](a, b, c, m, n, k)
    assert torch.equal(c.double(), a.double() @ b.double())


@triton.jit
def batched_dot(a, b, c, Z: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    z = tl.arange(0, Z)[:, None, None]
    m, n = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(a + z * M * K + m[None, :, None] * K + tl.arange(0, K)[None, None, :])
    y = tl.load(b + z * K * N + tl.arange(0, K)[None, :, None] * N + n[None, None, :])
    tl.store(c + z * M * N + m[None, :, None] * N + n[None, None, :], tl.dot(x, y))


def test_batched_dot():
    a, b = torch.randn(4, 16, 32), torch.randn(4, 32, 64)
    c = torch.zeros(4, 16, 64)
    batched_dot[(1,)](a, b, c, 4, 16, 64, 32)
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)
