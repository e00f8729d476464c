"""Python's arithmetic: every op natively against Python, over operands that sit on the edges."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.backend.harness import MISS, Builder, Native
from trident.ir.ops import COMPARISONS, FLOAT_ARITHMETIC, FLOAT_UNARY, INT_ARITHMETIC, INT_UNARY

INT_OPS: dict[str, Callable[..., object]] = {
    "add_int": operator.add, "sub_int": operator.sub, "mul_int": operator.mul, "floordiv_int": operator.floordiv,
    "mod_int": operator.mod, "neg_int": operator.neg, "and_int": operator.and_, "or_int": operator.or_, "xor_int": operator.xor,
    "shl_int": operator.lshift, "shr_int": operator.rshift, "invert_int": operator.invert, "abs_int": abs,
    "pow_int": lambda a, b: a**b if b < 200 or a in (-1, 0, 1) else None, "min_int": min, "max_int": max,
    "truediv_int": operator.truediv,
    "int_to_float": float, "int_to_bool": bool, **{f"{c}_int": getattr(operator, c) for c in COMPARISONS},
}
FLOAT_OPS: dict[str, Callable[..., object]] = {
    "add_float": operator.add, "sub_float": operator.sub, "mul_float": operator.mul, "div_float": operator.truediv,
    "neg_float": operator.neg, "abs_float": abs, "pow_float": operator.pow, "floordiv_float": operator.floordiv,
    "mod_float": operator.mod, "float_to_int": int, "float_to_bool": bool,
    **{f"{c}_float": getattr(operator, c) for c in COMPARISONS},
}
UNARY = {*INT_UNARY, *FLOAT_UNARY, "int_to_float", "int_to_bool", "float_to_int", "float_to_bool"}

edges = [0, 1, -1, 2, -2, 3, -3, 7, -7, 62, 63, 64, 65, -63, 2**31, -(2**31), 2**53, 2**53 + 1, -(2**53), 2**62, -(2**62),
         2**63 - 1, -(2**63)]
ints = st.one_of(st.sampled_from(edges), st.integers(-100, 100), st.integers(-(2**63), 2**63 - 1))
floats = st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -3.5, 1e308, -1e308, 5e-324, math.inf,
                                                 -math.inf, math.nan, 2.0**63, -(2.0**63), 9.2e18]), st.integers(-20, 20).map(float))


def test_every_op_is_covered() -> None:
    assert set(INT_ARITHMETIC) <= set(INT_OPS)
    assert set(FLOAT_ARITHMETIC) <= set(FLOAT_OPS)


@cache
def native(name: str, kind: str) -> Native:
    b = Builder(name, 1 if name in UNARY else 2)
    return Native(b.give(b.op(name, *(b.op(f"unbox_{kind}", a) for a in b.args))))


def bits(value: object) -> object:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("<d", value)
    return value


def expected(function: Callable[..., object], args: tuple[object, ...]) -> object:
    """What Python gives; None where it raises or leaves the native types."""
    try:
        result = function(*args)
    except (ArithmeticError, ValueError):
        return None
    if isinstance(result, complex) or (isinstance(result, int) and not -(2**63) <= result < 2**63):
        return None
    return result


def check(name: str, kind: str, function: Callable[..., object], args: tuple[object, ...], *, may_leave: bool) -> None:
    found, wanted = native(name, kind)(*args), expected(function, args)
    if found is MISS:
        assert wanted is None or may_leave, (name, args, wanted)
    else:
        assert type(found) is type(wanted) and bits(found) == bits(wanted), (name, args, found, wanted)


@pytest.mark.parametrize("name", INT_OPS)
@settings(max_examples=150, deadline=None)
@given(a=ints, b=ints)
def test_ints(name: str, a: int, b: int) -> None:
    args = (a,) if name in UNARY else (a, b)
    # These leave for some operands that Python manages: large magnitudes, and shifts of zero by much.
    large = name in ("truediv_int", "int_to_float") and any(abs(x) > 2**53 for x in args)
    wide = (name == "shl_int" and b > 62) or (name in ("floordiv_int", "mod_int") and a == -(2**63) and b == -1)
    if name == "pow_int" and b > 200 and a not in (-1, 0, 1):
        b = b % 200
        args = (a, b)
    negative_power = name == "pow_int" and b < 0
    if name == "shl_int" and b > 10000:
        return
    check(name, "int", INT_OPS[name], args, may_leave=large or wide or negative_power)


@pytest.mark.parametrize("name", FLOAT_OPS)
@settings(max_examples=200, deadline=None)
@given(a=floats, b=floats)
def test_floats(name: str, a: float, b: float) -> None:
    args = (a,) if name in UNARY else (a, b)
    odd_power = name == "pow_float" and (not math.isfinite(a) or not math.isfinite(b) or a <= 0 or _tiny(a, b))
    check(name, "float", FLOAT_OPS[name], args, may_leave=odd_power)


def _tiny(a: float, b: float) -> bool:
    try:
        return not abs(a**b) > 2.3e-308
    except ArithmeticError:
        return True


@pytest.mark.parametrize("value", [True, False])
def test_bools(value: bool) -> None:
    b = Builder("bools", 1)
    x = b.op("unbox_bool", b.args[0])
    result = Native(b.give_all([b.op("not", x), b.op("bool_to_int", x), x]))(value)
    assert result == (not value, int(value), value)
    assert [type(r) for r in result] == [bool, int, bool]
