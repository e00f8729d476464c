"""Floats of eight and four bits: every value, Triton's rounding, products, and products with scales."""

import pytest
import torch
import triton
import triton.language as tl

E8 = [torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
WIDE = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


@triton.jit
def convert(out, x, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask).to(out.dtype.element_ty), mask=mask)


@triton.jit
def toward_zero(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets).to(out.dtype.element_ty, fp_downcast_rounding="rtz"))


def every(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256, dtype=torch.int16).to(torch.uint8).view(dtype)


@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("small", E8)
def test_widening_is_exact(small: torch.dtype, wide: torch.dtype) -> None:
    out = torch.empty(256, dtype=wide)
    convert[(1,)](out, every(small), 256, 256)
    torch.testing.assert_close(out, every(small).to(wide), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(out.nan_to_num()), torch.signbit(every(small).to(wide).nan_to_num()))


def samples(small: torch.dtype) -> torch.Tensor:
    """All values, the points halfway between neighbours, and what lies just beside those."""
    finite = every(small).double()
    finite = finite[torch.isfinite(finite)].unique()
    ties = (finite[1:] + finite[:-1]) / 2
    near = [ties.float(), *(torch.nextafter(ties.float(), torch.tensor(end)) for end in (-9e9, 9e9))]
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-45, 1e-20, 3e38, -3e38, 1e5, -1e5])
    return torch.cat([finite.float(), *near, special])


def nearest(x: torch.Tensor, small: torch.dtype) -> torch.Tensor:
    """torch rounds to nearest even, but overflows: here the largest number is the end."""
    most = torch.finfo(small).max
    return x.clamp(-most, most).to(small)  # a NaN stays one


@pytest.mark.parametrize("small", E8)
def test_narrowing_is_to_nearest_even_and_saturates(small: torch.dtype) -> None:
    x = samples(small)
    out = torch.empty(x.numel(), dtype=small)
    convert[(triton.cdiv(x.numel(), 64),)](out, x, x.numel(), 64)
    torch.testing.assert_close(out.float(), nearest(x, small).float(), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(out.float().nan_to_num()), torch.signbit(nearest(x, small).float().nan_to_num()))
    for wide in (torch.float16, torch.bfloat16, torch.float64):
        convert[(triton.cdiv(x.numel(), 64),)](out, x.to(wide), x.numel(), 64)
        torch.testing.assert_close(out.float(), nearest(x.to(wide).float(), small).float(), rtol=0, atol=0, equal_nan=True)


def test_double_is_rounded_once() -> None:
    x = torch.tensor([1.0625 + 2**-40, 1.0625 - 2**-40, 1.0625, 1.1875], dtype=torch.float64)  # a tie, and what an f32 takes for one
    out = torch.empty(4, dtype=torch.float8_e4m3fn)
    convert[(1,)](out, x, 4, 4)
    assert out.float().tolist() == [1.125, 1.0, 1.0, 1.25]


def test_toward_zero() -> None:
    x = torch.tensor([1.24, -1.24, 0.9999, 300.0, 1e9, -1e9, 2**-16, 2**-17 * 1.9, float("nan"), 0.0, -0.0, 57344.0, 1.75, -7.99, 3.0,
                      1e-9])  # fmt: skip
    out = torch.empty(16, dtype=torch.float8_e5m2)
    toward_zero[(1,)](out, x, 16)
    expected = [1.0, -1.0, 0.875, 256.0, 57344.0, -57344.0, 2**-16, 0.0, float("nan"), 0.0, -0.0, 57344.0, 1.75, -7.0, 3.0, 0.0]
    torch.testing.assert_close(out.float(), torch.tensor(expected), rtol=0, atol=0, equal_nan=True)


@triton.jit
def selected(out, x, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    zero = tl.full([BLOCK], 1.5, tl.float8e4nv)
    tl.store(out + offsets, tl.where(offsets % 3 == 0, zero, value))


def test_constants_and_selection() -> None:
    x, out = torch.randn(64).to(torch.float8_e4m3fn), torch.empty(64, dtype=torch.float8_e4m3fn)
    selected[(1,)](out, x, 64)
    assert torch.equal(out.float(), torch.where(torch.arange(64) % 3 == 0, torch.tensor(1.5), x.float()))


@triton.jit
def product(c, a, b, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :])
    y = tl.load(b + k[:, None] * N + n[None, :])
    tl.store(c + m[:, None] * N + n[None, :], tl.dot(x, y))


@pytest.mark.parametrize("types", [(torch.float8_e4m3fn, torch.float8_e4m3fn), (torch.float8_e5m2, torch.float8_e5m2)])
def test_dot(types: tuple[torch.dtype, torch.dtype]) -> None:
    a, b, c = torch.randn(32, 64).to(types[0]), torch.randn(64, 32).to(types[1]), torch.empty(32, 32)
    product[(1,)](c, a, b, 32, 32, 64)
    torch.testing.assert_close(c, a.float() @ b.float(), rtol=1e-5, atol=1e-5)


@triton.jit
def scaled_product(c, a, a_scale, b, b_scale, A: tl.constexpr, B: tl.constexpr, SCALES: tl.constexpr, ALONG_K: tl.constexpr,
                   M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
    m, n = tl.arange(0, M), tl.arange(0, N)
    a_k: tl.constexpr = K // 2 if A == "e2m1" else K
    b_k: tl.constexpr = K // 2 if B == "e2m1" and ALONG_K else K
    b_n: tl.constexpr = N if B != "e2m1" or ALONG_K else N // 2
    x = tl.load(a + m[:, None] * a_k + tl.arange(0, a_k)[None, :])
    y = tl.load(b + tl.arange(0, b_k)[:, None] * b_n + tl.arange(0, b_n)[None, :])
    group = tl.arange(0, K // 32)
    x_scale = tl.load(a_scale + m[:, None] * (K // 32) + group[None, :])
    y_scale = None
    if SCALES == 2:
        y_scale = tl.load(b_scale + n[:, None] * (K // 32) + group[None, :])
    z = tl.dot_scaled(x, x_scale, A, y, y_scale, B, rhs_k_pack=ALONG_K)
    tl.store(c + m[:, None] * N + n[None, :], z)


FOUR_BITS = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
ELEMENTS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2, "bf16": torch.bfloat16, "fp16": torch.float16}


def matrix(kind: str, rows: int, columns: int, packed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A matrix as it is stored, with its numbers. packed: the dimension along which two elements share a byte."""
    if kind != "e2m1":
        stored = torch.randn(rows, columns).to(ELEMENTS[kind])
        return stored, stored.float()
    nibbles = torch.randint(0, 16, (rows, columns))
    even, odd = nibbles.unfold(packed, 2, 2).unbind(-1)
    return (even | odd << 4).to(torch.uint8), FOUR_BITS[nibbles & 7] * torch.where(nibbles > 7, -1.0, 1.0)


@pytest.mark.parametrize(("left", "right", "scales", "along_k"), [
    ("e2m1", "e2m1", 2, True), ("e4m3", "e5m2", 2, True), ("e5m2", "bf16", 1, True), ("e2m1", "e4m3", 2, True), ("fp16", "e2m1", 2, False),
])  # fmt: skip
def test_dot_scaled(left: str, right: str, scales: int, along_k: bool) -> None:
    m, n, k = 32, 64, 128
    a, a_numbers = matrix(left, m, k, 1)
    b, b_numbers = matrix(right, k, n, 0 if along_k else 1)
    a_scale, b_scale = (torch.randint(124, 131, (rows, k // 32), dtype=torch.uint8) for rows in (m, n))
    c = torch.empty(m, n)
    scaled_product[(1,)](c, a, a_scale, b, b_scale, left, right, scales, along_k, m, n, k)

    def factors(scale: torch.Tensor) -> torch.Tensor:
        return (2.0 ** (scale.double() - 127)).repeat_interleave(32, 1)

    right_numbers = b_numbers.double() * factors(b_scale).T if scales == 2 else b_numbers.double()
    torch.testing.assert_close(c.double(), (a_numbers.double() * factors(a_scale)) @ right_numbers, rtol=1e-4, atol=1e-3)
