"""Elementwise arithmetic, conversions and mathematical functions against PyTorch."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

N = 1000


@triton.jit
def binary(x, y, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    a = tl.load(x + i, mask=m)
    b = tl.load(y + i, mask=m)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "div":
        c = a / b
    elif OP == "floordiv":
        c = a // b
    elif OP == "mod":
        c = a % b
    elif OP == "max":
        c = tl.maximum(a, b)
    elif OP == "maxnan":
        c = tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
    elif OP == "min":
        c = tl.minimum(a, b)
    elif OP == "and":
        c = a & b
    elif OP == "or":
        c = a | b
    elif OP == "xor":
        c = a ^ b
    elif OP == "shl":
        c = a << (b & 7)
    elif OP == "shr":
        c = a >> (b & 7)
    elif OP == "lt":
        c = (a < b).to(tl.int8)
    elif OP == "where":
        c = tl.where(a > b, a, b)
    tl.store(o + i, c, mask=m)


FLOAT_BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.fmax, "min": torch.fmin,
                "maxnan": torch.maximum, "where": lambda a, b: torch.where(a > b, a, b)}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("op", FLOAT_BINARY)
def test_float_binary(op, dtype):
    x, y = torch.randn(N).to(dtype), torch.randn(N).to(dtype)
    x[3] = float("nan")
    y[5] = float("nan")
    x[7] = float("inf")
    o = torch.empty(N, dtype=dtype)
    binary[(triton.cdiv(N, 128),)](x, y, o, N, op, 128)
    torch.testing.assert_close(o, FLOAT_BINARY[op](x, y), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_divide(dtype):
    x, y = torch.randn(N, dtype=dtype), torch.randn(N, dtype=dtype)
    y[4] = 0
    o = torch.empty_like(x)
    binary[(triton.cdiv(N, 128),)](x, y, o, N, "div", 128)
    torch.testing.assert_close(o, x / y, rtol=0, atol=0, equal_nan=True)


INT_BINARY = {"add": torch.add, "sub": torch.sub, "mul": torch.mul, "max": torch.maximum, "min": torch.minimum,
              "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor,
              "floordiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "mod": torch.fmod,
              "shl": lambda a, b: a << (b & 7), "shr": lambda a, b: a >> (b & 7)}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
@pytest.mark.parametrize("op", INT_BINARY)
def test_int_binary(op, dtype):
    info = torch.iinfo(dtype)
    x = torch.randint(info.min, info.max, (N,), dtype=dtype)
    y = torch.randint(max(info.min, -50), min(info.max, 50), (N,), dtype=dtype)
    if op in ("floordiv", "mod"):
        y[y == 0] = 3
    o = torch.empty_like(x)
    binary[(triton.cdiv(N, 128),)](x, y, o, N, op, 128)
    # uint8 shifts: PyTorch computes in uint8 as well
    assert torch.equal(o, INT_BINARY[op](x, y))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
@pytest.mark.parametrize("op", ["floordiv", "mod"])
def test_division_never_traps(op, dtype):
    low = torch.iinfo(dtype).min
    x = torch.tensor([5, low, 7, low], dtype=dtype)
    y = torch.tensor([0, -1, 2, 3], dtype=dtype)
    o = torch.empty_like(x)
    binary[(1,)](x, y, o, 4, op, 4)
    expected = (INT_BINARY[op](x[2:], y[2:]))
    assert torch.equal(o[2:], expected)
    assert o[1] == (low if op == "floordiv" else 0)


@triton.jit
def cast(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    tl.store(o + i, tl.load(x + i, mask=m).to(o.dtype.element_ty), mask=m)


CASTS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16, torch.int32, torch.int64]


@pytest.mark.parametrize("source", CASTS)
@pytest.mark.parametrize("target", CASTS)
def test_cast(source, target):
    x = torch.randn(N) * 50
    if source.is_floating_point and target.is_floating_point:
        x = torch.cat([torch.randn(400), torch.randn(300) * 1e-6, torch.randn(300) * 1e4])
        if source == torch.float32 and target == torch.bfloat16:
            bits = torch.randint(-2**31, 2**31 - 1, (N,), dtype=torch.int64).to(torch.int32)
            x = bits.view(torch.float32)  # every kind of value, NaN and denormals included
    x = x.to(source)
    o = torch.empty(N, dtype=target)
    cast[(triton.cdiv(N, 128),)](x, o, N, 128)
    expected = x.to(target)
    if source == torch.float64 and target in (torch.float16, torch.bfloat16):
        # rounded once here, twice in PyTorch
        assert (o.double() - x).abs().le((expected.double() - x).abs()).all()
    else:
        torch.testing.assert_close(o, expected, rtol=0, atol=0, equal_nan=True)


def test_bool_memory():
    x = torch.rand(N) > 0.5
    o = torch.zeros(N, dtype=torch.bool)
    cast[(triton.cdiv(N, 128),)](x, o, N, 128)
    assert torch.equal(x, o)
    f = torch.empty(N)
    cast[(triton.cdiv(N, 128),)](x, f, N, 128)
    assert torch.equal(f, x.float())


@triton.jit
def unary(x, o, n, OP: tl.constexpr, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    m = i < n
    a = tl.load(x + i, mask=m, other=1.0)
    if OP == "exp":
        c = tl.exp(a)
    elif OP == "exp2":
        c = tl.exp2(a)
    elif OP == "log":
        c = tl.log(a)
    elif OP == "log2":
        c = tl.log2(a)
    elif OP == "sin":
        c = tl.sin(a)
    elif OP == "cos":
        c = tl.cos(a)
    elif OP == "sqrt":
        c = tl.sqrt(a)
    elif OP == "sqrt_rn":
        c = tl.sqrt_rn(a)
    elif OP == "rsqrt":
        c = tl.rsqrt(a)
    elif OP == "abs":
        c = tl.abs(a)
    elif OP == "floor":
        c = tl.floor(a)
    elif OP == "ceil":
        c = tl.ceil(a)
    elif OP == "erf":
        c = tl.erf(a)
    elif OP == "sigmoid":
        c = tl.sigmoid(a)
    elif OP == "tanh":
        c = libdevice.tanh(a)
    elif OP == "log1p":
        c = libdevice.log1p(a)
    elif OP == "expm1":
        c = libdevice.expm1(a)
    elif OP == "atan":
        c = libdevice.atan(a)
    elif OP == "round":
        c = libdevice.rint(a)
    elif OP == "trunc":
        c = libdevice.trunc(a)
    elif OP == "neg":
        c = -a
    tl.store(o + i, c, mask=m)


UNARY = {"exp": (torch.exp, -110, 95), "exp2": (torch.exp2, -155, 130), "log": (torch.log, 0, 1e6), "log2": (torch.log2, 0, 1e6),
         "sin": (torch.sin, -100, 100), "cos": (torch.cos, -100, 100), "sqrt": (torch.sqrt, -1, 1e3),
         "sqrt_rn": (torch.sqrt, -1, 1e3), "rsqrt": (torch.rsqrt, 0, 100),
         "abs": (torch.abs, -5, 5), "floor": (torch.floor, -50, 50), "ceil": (torch.ceil, -50, 50), "erf": (torch.erf, -6, 6),
         "sigmoid": (torch.sigmoid, -80, 100), "tanh": (torch.tanh, -12, 12), "log1p": (torch.log1p, -1, 10),
         "expm1": (torch.expm1, -5, 5), "atan": (torch.atan, -50, 50), "round": (torch.round, -50, 50),
         "trunc": (torch.trunc, -50, 50), "neg": (torch.neg, -1, 1)}


@pytest.mark.parametrize(("op", "dtype"), [(op, d) for op in UNARY for d in (torch.float32, torch.float64)
                                           if not (op == "sqrt_rn" and d == torch.float64)])
def test_unary(op, dtype):
    reference, low, high = UNARY[op]
    n = 4000
    x = torch.rand(n, dtype=dtype) * (high - low) + low
    x[:8] = torch.tensor([0.0, -0.0, 1.0, float("inf"), float("-inf"), float("nan"), 1e-40, 0.5])
    o = torch.empty_like(x)
    unary[(triton.cdiv(n, 256),)](x, o, n, op, 256)
    exact = reference(x.double())
    if dtype == torch.float64:
        torch.testing.assert_close(o, exact, rtol=1e-13, atol=1e-300, equal_nan=True)
        return
    expected = exact.float()
    finite = expected.isfinite()
    assert torch.equal(o.isnan(), expected.isnan())
    assert torch.equal(o[~finite & ~o.isnan()], expected[~finite & ~o.isnan()])
    ulp = (torch.nextafter(expected.abs(), torch.tensor(float("inf"))) - expected.abs()).double()
    error = ((o.double() - exact).abs() / ulp)[finite]
    limit = {"erf": 6.0, "sigmoid": 4.0, "rsqrt": 1.5, "sin": 1.1, "cos": 1.1, "log1p": 1.5, "expm1": 1.5}.get(op, 2.5)
    assert error.max() < limit, f"{error.max():.2f} ulp at {x[finite][error.argmax()]}"


@triton.jit
def atan2(x, y, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    tl.store(o + i, libdevice.atan2(tl.load(x + i, mask=m), tl.load(y + i, mask=m)), mask=m)
    tl.store(o + n + i, libdevice.pow(tl.abs(tl.load(x + i, mask=m)), tl.load(y + i, mask=m)), mask=m)


def test_libdevice_binary():
    x, y = torch.randn(100), torch.randn(100)
    o = torch.empty(200)
    atan2[(1,)](x, y, o, 100, 128)
    torch.testing.assert_close(o[:100], torch.atan2(x, y), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(o[100:], x.abs() ** y, rtol=1e-5, atol=1e-6)


@triton.jit
def mixed(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    m = i < n
    a = tl.load(x + i, mask=m)
    bits = a.to(tl.int32, bitcast=True)
    back = (bits ^ 0).to(tl.float32, bitcast=True)
    u = tl.umulhi(bits.to(tl.uint32), bits.to(tl.uint32) * 3)
    tl.store(o + i, back + tl.where(u > 1000, 1.0, 0.0) + tl.fma(a, a, a) + tl.clamp(a, -0.5, 0.5), mask=m)


def test_bits_and_ternary():
    x = torch.randn(300)
    o = torch.empty(300)
    mixed[(1,)](x, o, 300, 512)
    u = x.view(torch.int32).long() & 0xFFFFFFFF
    high = ((u.numpy().astype(object) * ((u.numpy().astype(object) * 3) % 2**32)) >> 32)
    step = torch.tensor([1.0 if h > 1000 else 0.0 for h in high])
    torch.testing.assert_close(o, x + step + (x * x + x) + x.clamp(-0.5, 0.5), rtol=1e-6, atol=1e-6)
