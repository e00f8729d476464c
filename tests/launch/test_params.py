"""What a kernel gets: each parameter's bytes in a native launch against what Triton's launchers would pass."""

import ctypes
import struct
from typing import Any

import fake
import pytest
import torch
import triton
import triton.language as tl
from sites import launcher_of
from triton.runtime.jit import JITFunction

pytestmark = pytest.mark.usefixtures("recording")

INTEGERS = {"i1": 1, "u1": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "i32": 4, "u32": 4, "i64": 8, "u64": 8}


def packed(value: Any, given: str) -> bytes:
    """A parameter as Triton's CUDA launcher stores it: written anew, as an oracle."""
    if given.startswith("*"):
        return (value.data_ptr() if isinstance(value, torch.Tensor) else value or 0).to_bytes(8, "little")
    if given in INTEGERS:
        return int(value).to_bytes(8, "little", signed=int(value) < 0)[:INTEGERS[given]]
    if given == "fp64":
        return struct.pack("<d", value)
    assert given == "fp32"
    return bytes(ctypes.c_float(float(value)))


def check(kernel: JITFunction, operands: list[Any], **constants: Any) -> list[str]:
    """Launch through Triton once, then natively, and compare all parameters; the types of those that are passed."""
    launcher = launcher_of(kernel, operands, **constants)
    before = len(fake.python_launches)
    launcher((3, 2), *operands)
    assert len(fake.python_launches) == before + 1 and launcher.state.reason == ""
    _, args = fake.python_launches[-1]
    signature = launcher.state.entries[-1].compiled.src.signature
    passed = [(value, given) for value, given in zip(args, signature.values(), strict=True) if given != "constexpr"]
    fake.expect(len(passed))
    launcher((5, 4, 3), *operands)
    assert len(fake.python_launches) == before + 1 and fake.native_calls() == 1
    assert fake.native_grid() == (5, 4, 3)
    for got, (value, given) in zip(fake.native_params(), passed, strict=True):
        want = packed(value, given)
        assert got[:len(want)] == want, (value, given)
    return [given for _, given in passed]


def two(x, n): pass


@pytest.mark.parametrize("n", [0, 2, 3, 16, -1, -(1 << 31), (1 << 31) - 1])
def test_int32(n: int) -> None:
    assert check(triton.jit(two), [torch.zeros(8), n]) == ["*fp32", "i32"]


@pytest.mark.parametrize("n", [1 << 31, -(1 << 31) - 1, (1 << 63) - 1, -(1 << 63), 1 << 40])
def test_int64(n: int) -> None:
    assert check(triton.jit(two), [torch.zeros(8), n]) == ["*fp32", "i64"]


def test_one_is_folded_only_where_triton_folds_it() -> None:
    assert check(triton.jit(two), [torch.zeros(8), 1]) == ["*fp32"]
    assert check(triton.jit(do_not_specialize=["n"])(two), [torch.zeros(8), 1]) == ["*fp32", "i32"]


FLOATS = [0.0, -0.0, 1.0, 0.1, -2.5, 1e-46, float("inf"), float("-inf"), float("nan"), 3.4028235677973362e38]


@pytest.mark.parametrize("value", FLOATS)
def test_float(value: float) -> None:
    assert check(triton.jit(two), [torch.zeros(8), value]) == ["*fp32", "fp32"]


@pytest.mark.parametrize("value", [1e300, -1e39, 3.4028235677973366e38])
def test_a_float_that_becomes_infinite_goes_through_triton(value: float) -> None:
    launcher = launcher_of(triton.jit(two), [torch.zeros(8), value])
    for _ in range(3):
        launcher((1,), torch.zeros(8), value)
    assert launcher.state.hits == 0 and len(fake.python_launches) == 3


@pytest.mark.parametrize("value", [True, False])
def test_bool(value: bool) -> None:
    assert check(triton.jit(two), [torch.zeros(8), value]) == ["*fp32", "u1"]


def test_none_is_folded() -> None:
    assert check(triton.jit(two), [torch.zeros(8), None]) == ["*fp32"]
    assert check(triton.jit(two), [None, 7]) == ["i32"]


DTYPES = [torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64, torch.bool, torch.float8_e5m2]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("offset", [0, 1, 16])
def test_pointers(dtype: torch.dtype, offset: int) -> None:
    base = torch.zeros(64, dtype=dtype)
    (given, _) = check(triton.jit(two), [base[offset:], 5])
    assert given.startswith("*")


def test_empty_tensor_is_a_null_pointer() -> None:
    assert check(triton.jit(two), [torch.zeros(8)[:0], 5]) == ["*fp32", "i32"]


def annotated(p: "*fp32", a: tl.int64, b: tl.int8, c: "u16", d: tl.float64, e: tl.float32,  # noqa: F722, F821
              f: tl.int1, g: tl.uint64): pass


@pytest.mark.parametrize("values", [
    [5, 7, 9, 1.5, 2.5, True, 3], [1, 1, 1, 1.0, 1.0, False, 1], [1 << 40, 127, 65535, 1e300, 3.14159, True, (1 << 63) - 1],
    [-16, 0, 16, 3, 7, 1, 0], [True, False, True, True, False, 0, True],
], ids=str)
@pytest.mark.parametrize("pointer", [torch.zeros(8), None, 4096], ids=["tensor", "none", "int"])
def test_annotated_parameters(pointer: Any, values: list[Any]) -> None:
    types = check(triton.jit(annotated), [pointer, *values])
    assert types == ["*fp32", "i64", "i8", "u16", "fp64", "fp32", "u1", "u64"]


@pytest.mark.parametrize(("position", "value"), [(2, 128), (2, -1), (3, 1 << 16), (3, -1), (6, 2), (7, -1)])
def test_what_a_launcher_may_refuse_or_cut_goes_through_triton(position: int, value: int) -> None:
    operands = [torch.zeros(8), 5, 7, 9, 1.5, 2.5, 1, 3]
    operands[position] = value
    launcher = launcher_of(triton.jit(annotated), operands)
    for _ in range(3):
        launcher((1,), *operands)
    assert launcher.state.hits == 0 and len(fake.python_launches) == 3


def constants(x, n, scale, flag, nothing, p: "*fp32", BLOCK: tl.constexpr): pass  # noqa: F722


def test_constants_of_the_site() -> None:
    kernel = triton.jit(constants)
    x = torch.zeros(8)
    types = check(kernel, [x], n=5, scale=0.1, flag=True, nothing=None, p=None, BLOCK=64)
    assert types == ["*fp32", "i32", "fp32", "u1", "*fp32"]
    assert check(kernel, [x], n=1, scale=2.0, flag=False, nothing=None, p=64, BLOCK=None) == ["*fp32", "fp32", "u1", "*fp32"]
    types = check(kernel, [x], n=1 << 40, scale=-1.5, flag=False, nothing=None, p=64, BLOCK="text")
    assert types == ["*fp32", "i64", "fp32", "u1", "*fp32"]


def many(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s): pass  # noqa: E741


def test_many_operands_of_all_kinds() -> None:
    operands = [torch.zeros(8), 1, 2.5, True, None, torch.zeros(8)[1:], 16, 1 << 40, 0.5, False,
                torch.ones(3, dtype=torch.int8), 3, 4, None, 1, 6, 7.0, torch.zeros(4), 9]
    assert len(check(triton.jit(many), operands)) == 19 - 4


def nothing(): pass


def test_kernel_without_parameters() -> None:
    assert check(triton.jit(nothing), []) == []


def half(a: tl.float16): pass
def brain(a: tl.bfloat16): pass


@pytest.mark.parametrize("function", [half, brain])
@pytest.mark.parametrize("value", [1.5, 2, True])
def test_narrow_scalars_are_left_to_triton(function: Any, value: Any) -> None:
    launcher = launcher_of(triton.jit(function), [value])
    for _ in range(2):
        launcher((1,), value)
    assert "16" in launcher.state.reason and len(fake.python_launches) == 2
