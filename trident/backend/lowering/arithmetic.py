"""Lowering of Python's arithmetic on ints, floats and bools.

Owns these rules. What must hold: the result is Python's, bit for bit, or the trace is left before it.

May import: ir, lowering.*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trident.backend.lowering.function import Function, double
from trident.backend.lowering.rules import rule
from trident.backend.lowering.values import Op
from trident.ir.ops import BY_NAME, COMPARISONS

_MIN: Final = -(2**63)
_EXACT: Final = 2**53  # the largest magnitude up to which every int is a float


def _leave_if(f: Function, op: Op, condition: str) -> None:
    f.leave_if(condition, f.site(op.name))


def _int_rule(name: str) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """A rule whose emitter takes the operands' registers and gives the result's."""

    def register(emit: Callable[..., str]) -> Callable[..., str]:
        @rule(f"trident.{name}", leaves=BY_NAME[f"trident.{name}"].may_exit)
        def apply(f: Function, op: Op) -> None:
            f.define(op.results[0], emit(f, op, *(f.scalar(operand) for operand in op.operands)))

        return emit

    return register


# ---------------------------------------------------------------------------------------------------------------------- ints


def _overflowing(name: str, instruction: str) -> None:
    @_int_rule(name)
    def emit(f: Function, op: Op, a: str, b: str) -> str:
        intrinsic = f"llvm.{instruction}.with.overflow.i64"
        f.declare(intrinsic, "{ i64, i1 }", "i64, i64")
        both = f.value(f"call {{ i64, i1 }} @{intrinsic}(i64 {a}, i64 {b})")
        _leave_if(f, op, f.value(f"extractvalue {{ i64, i1 }} {both}, 1"))
        return f.value(f"extractvalue {{ i64, i1 }} {both}, 0")


for _name, _instruction in (("add_int", "sadd"), ("sub_int", "ssub"), ("mul_int", "smul")):
    _overflowing(_name, _instruction)


def _divisible(f: Function, op: Op, a: str, b: str) -> None:
    """Leave for a zero divisor (Python raises) and for the one quotient that does not fit."""
    _leave_if(f, op, f.value(f"icmp eq i64 {b}, 0"))
    least, minus = f.value(f"icmp eq i64 {a}, {_MIN}"), f.value(f"icmp eq i64 {b}, -1")
    _leave_if(f, op, f.value(f"and i1 {least}, {minus}"))


def _needs_fix(f: Function, remainder: str, b: str) -> str:
    """C truncates, Python floors: they differ where the remainder is not zero and has another sign than the divisor."""
    signs = f.value(f"xor i64 {remainder}, {b}")
    differ, inexact = f.value(f"icmp slt i64 {signs}, 0"), f.value(f"icmp ne i64 {remainder}, 0")
    return f.value(f"and i1 {differ}, {inexact}")


@_int_rule("floordiv_int")
def _floordiv(f: Function, op: Op, a: str, b: str) -> str:
    _divisible(f, op, a, b)
    quotient, remainder = f.value(f"sdiv i64 {a}, {b}"), f.value(f"srem i64 {a}, {b}")
    lower = f.value(f"sub i64 {quotient}, 1")
    return f.value(f"select i1 {_needs_fix(f, remainder, b)}, i64 {lower}, i64 {quotient}")


@_int_rule("mod_int")
def _mod(f: Function, op: Op, a: str, b: str) -> str:
    _divisible(f, op, a, b)
    remainder = f.value(f"srem i64 {a}, {b}")
    moved = f.value(f"add i64 {remainder}, {b}")
    return f.value(f"select i1 {_needs_fix(f, remainder, b)}, i64 {moved}, i64 {remainder}")


@_int_rule("neg_int")
def _neg(f: Function, op: Op, a: str) -> str:
    _leave_if(f, op, f.value(f"icmp eq i64 {a}, {_MIN}"))
    return f.value(f"sub i64 0, {a}")


@_int_rule("abs_int")
def _abs(f: Function, op: Op, a: str) -> str:
    _leave_if(f, op, f.value(f"icmp eq i64 {a}, {_MIN}"))
    negative, negated = f.value(f"icmp slt i64 {a}, 0"), f.value(f"sub i64 0, {a}")
    return f.value(f"select i1 {negative}, i64 {negated}, i64 {a}")


@_int_rule("invert_int")
def _invert(f: Function, op: Op, a: str) -> str:
    return f.value(f"xor i64 {a}, -1")


def _plain(name: str, instruction: str) -> None:
    @_int_rule(name)
    def emit(f: Function, op: Op, a: str, b: str) -> str:
        return f.value(f"{instruction} i64 {a}, {b}")


for _name in ("and", "or", "xor"):
    _plain(f"{_name}_int", _name)


@_int_rule("shl_int")
def _shl(f: Function, op: Op, a: str, b: str) -> str:
    _leave_if(f, op, f.value(f"icmp ugt i64 {b}, 62"))  # also negative counts, where Python raises
    shifted = f.value(f"shl i64 {a}, {b}")
    _leave_if(f, op, f.value(f"icmp ne i64 {f.value(f'ashr i64 {shifted}, {b}')}, {a}"))
    return shifted


@_int_rule("shr_int")
def _shr(f: Function, op: Op, a: str, b: str) -> str:
    _leave_if(f, op, f.value(f"icmp slt i64 {b}, 0"))
    large = f.value(f"icmp ugt i64 {b}, 63")
    return f.value(f"ashr i64 {a}, {f.value(f'select i1 {large}, i64 63, i64 {b}')}")


@_int_rule("pow_int")
def _pow(f: Function, op: Op, a: str, b: str) -> str:
    out = f.temporary(1)
    _leave_if(f, op, f.call("trident_pow_int", "i1", f"i64 {a}", f"i64 {b}", f"ptr {out}"))
    return f.load(out, kind="i64")


def _extreme(name: str, predicate: str) -> None:
    @_int_rule(name)
    def emit(f: Function, op: Op, a: str, b: str) -> str:
        return f.value(f"select i1 {f.value(f'icmp {predicate} i64 {b}, {a}')}, i64 {b}, i64 {a}")


_extreme("min_int", "slt")
_extreme("max_int", "sgt")

# -------------------------------------------------------------------------------------------------------------------- floats


def _float_plain(name: str, instruction: str) -> None:
    @_int_rule(name)
    def emit(f: Function, op: Op, a: str, b: str) -> str:
        return f.value(f"{instruction} double {a}, {b}")


for _name in ("add", "sub", "mul"):
    _float_plain(f"{_name}_float", f"f{_name}")


@_int_rule("neg_float")
def _neg_float(f: Function, op: Op, a: str) -> str:
    return f.value(f"fneg double {a}")


@_int_rule("abs_float")
def _abs_float(f: Function, op: Op, a: str) -> str:
    return _call(f, "llvm.fabs.f64", a)


def _call(f: Function, name: str, *arguments: str) -> str:
    return f.call(name, "double", *(f"double {a}" for a in arguments))


def _leave_on_zero(f: Function, op: Op, b: str) -> None:
    _leave_if(f, op, f.value(f"fcmp oeq double {b}, 0.0"))


@_int_rule("div_float")
def _div_float(f: Function, op: Op, a: str, b: str) -> str:
    _leave_on_zero(f, op, b)
    return f.value(f"fdiv double {a}, {b}")


def _signs_differ(f: Function, a: str, b: str) -> str:
    return f.value(f"xor i1 {f.value(f'fcmp olt double {a}, 0.0')}, {f.value(f'fcmp olt double {b}, 0.0')}")


@_int_rule("mod_float")
def _mod_float(f: Function, op: Op, a: str, b: str) -> str:
    """CPython's float_rem."""
    _leave_on_zero(f, op, b)
    remainder = _call(f, "fmod", a, b)
    moved = f.value(f"fadd double {remainder}, {b}")
    fixed = f.value(f"select i1 {_signs_differ(f, remainder, b)}, double {moved}, double {remainder}")
    zero = _call(f, "llvm.copysign.f64", double(0.0), b)
    return f.value(f"select i1 {f.value(f'fcmp une double {remainder}, 0.0')}, double {fixed}, double {zero}")


@_int_rule("floordiv_float")
def _floordiv_float(f: Function, op: Op, a: str, b: str) -> str:
    """CPython's _float_div_mod."""
    _leave_on_zero(f, op, b)
    remainder = _call(f, "fmod", a, b)
    quotient = f.value(f"fdiv double {f.value(f'fsub double {a}, {remainder}')}, {b}")
    inexact = f.value(f"fcmp une double {remainder}, 0.0")
    fix = f.value(f"and i1 {inexact}, {_signs_differ(f, remainder, b)}")
    lower = f.value(f"fsub double {quotient}, 1.0")
    quotient = f.value(f"select i1 {fix}, double {lower}, double {quotient}")
    floor = _call(f, "llvm.floor.f64", quotient)
    above = f.value(f"fcmp ogt double {f.value(f'fsub double {quotient}, {floor}')}, {double(0.5)}")
    rounded = f.value(f"select i1 {above}, double {f.value(f'fadd double {floor}, 1.0')}, double {floor}")
    zero = _call(f, "llvm.copysign.f64", double(0.0), f.value(f"fdiv double {a}, {b}"))
    return f.value(f"select i1 {f.value(f'fcmp une double {quotient}, 0.0')}, double {rounded}, double {zero}")


@_int_rule("pow_float")
def _pow_float(f: Function, op: Op, a: str, b: str) -> str:
    """C's pow for finite operands and normal results; CPython treats everything else case by case."""
    huge = double(float("inf"))
    for operand in (a, b):
        _leave_if(f, op, f.value(f"fcmp ueq double {_call(f, 'llvm.fabs.f64', operand)}, {huge}"))
    # A zero base (an error for negative exponents), and a negative base, which may leave the real numbers.
    _leave_if(f, op, f.value(f"fcmp ole double {a}, 0.0"))
    result = _call(f, "pow", a, b)
    _leave_if(f, op, f.value(f"fcmp ueq double {result}, {huge}"))
    _leave_if(f, op, f.value(f"fcmp ult double {result}, {double(2.2250738585072014e-308)}"))
    return result


# ----------------------------------------------------------------------------------------------- comparisons and conversions

_SIGNED: Final = {"lt": "slt", "le": "sle", "eq": "eq", "ne": "ne", "gt": "sgt", "ge": "sge"}
_ORDERED: Final = {"lt": "olt", "le": "ole", "eq": "oeq", "ne": "une", "gt": "ogt", "ge": "oge"}


def _comparison(name: str) -> None:
    @rule(f"trident.{name}_int")
    def ints(f: Function, op: Op) -> None:
        a, b = (f.scalar(operand) for operand in op.operands)
        f.define(op.results[0], f.value(f"icmp {_SIGNED[name]} i64 {a}, {b}"))

    @rule(f"trident.{name}_float")
    def floats(f: Function, op: Op) -> None:
        a, b = (f.scalar(operand) for operand in op.operands)
        f.define(op.results[0], f.value(f"fcmp {_ORDERED[name]} double {a}, {b}"))


for _name in COMPARISONS:
    _comparison(_name)


def _leave_if_inexact(f: Function, op: Op, a: str) -> None:
    shifted = f.value(f"add i64 {a}, {_EXACT}")
    _leave_if(f, op, f.value(f"icmp ugt i64 {shifted}, {2 * _EXACT}"))


@_int_rule("truediv_int")
def _truediv(f: Function, op: Op, a: str, b: str) -> str:
    _leave_if(f, op, f.value(f"icmp eq i64 {b}, 0"))
    _leave_if_inexact(f, op, a)
    _leave_if_inexact(f, op, b)
    return f.value(f"fdiv double {f.value(f'sitofp i64 {a} to double')}, {f.value(f'sitofp i64 {b} to double')}")


@_int_rule("int_to_float")
def _int_to_float(f: Function, op: Op, a: str) -> str:
    _leave_if_inexact(f, op, a)
    return f.value(f"sitofp i64 {a} to double")


@_int_rule("float_to_int")
def _float_to_int(f: Function, op: Op, a: str) -> str:
    _leave_if(f, op, f.value(f"fcmp ult double {a}, {double(-(2.0**63))}"))
    _leave_if(f, op, f.value(f"fcmp oge double {a}, {double(2.0**63)}"))
    return f.value(f"fptosi double {a} to i64")


@_int_rule("bool_to_int")
def _bool_to_int(f: Function, op: Op, a: str) -> str:
    return f.value(f"zext i1 {a} to i64")


@_int_rule("int_to_bool")
def _int_to_bool(f: Function, op: Op, a: str) -> str:
    return f.value(f"icmp ne i64 {a}, 0")


@_int_rule("float_to_bool")
def _float_to_bool(f: Function, op: Op, a: str) -> str:
    return f.value(f"fcmp une double {a}, 0.0")


@_int_rule("not")
def _not(f: Function, op: Op, a: str) -> str:
    return f.value(f"xor i1 {a}, true")
