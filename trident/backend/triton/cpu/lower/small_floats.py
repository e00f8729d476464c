"""Floats of eight bits and fewer: how they are read as f32, and how f32 is rounded to them.

Owns the table of formats. They travel as their bits in an i8 and only ever become f32. What must hold: reading is exact; rounding is to
nearest even (or toward zero where asked), done once, and saturates: what is too large, infinity included, becomes the largest finite
number, as the hardware's conversion that Triton uses does. NaN stays NaN.

May import: core, vmath.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch_mlir import ir

from trident.backend.triton.cpu.lower.core import SSA, Emitter
from trident.backend.triton.cpu.lower.vmath import OLT, UNO


@dataclass(frozen=True, slots=True)
class Format:
    """mantissa: its bits. largest: the bits of the largest finite number. unsigned_zero: 0x80 is NaN, there is no other and no -0."""

    mantissa: int
    bias: int
    largest: int
    nan: int
    unsigned_zero: bool = False


FORMATS: dict[str, Format] = {
    "f8E4M3FN": Format(3, 7, 0x7E, 0x7F),
    "f8E5M2": Format(2, 15, 0x7B, 0x7F),
    "f8E4M3FNUZ": Format(3, 8, 0x7F, 0x80, unsigned_zero=True),
    "f8E5M2FNUZ": Format(2, 16, 0x7F, 0x80, unsigned_zero=True),
}
E2M1 = Format(1, 1, 7, 8)


class _Bits:
    """Integer arithmetic on one shape of i32, with f32 beside it."""

    def __init__(self, em: Emitter, like: SSA) -> None:
        self.em = em
        self.itype, self.ftype, self.btype = (em.like(like, kind) for kind in (em.i32, em.f32, em.i1))

    def k(self, value: int) -> SSA:
        return self.em.const(self.itype, value)

    def f(self, value: float) -> SSA:
        return self.em.const(self.ftype, value)

    def i(self, name: str, a: SSA, b: SSA | int) -> SSA:
        return self.em.op(f"arith.{name}", self.itype, a, self.k(b) if isinstance(b, int) else b)

    def test(self, predicate: int, a: SSA, b: SSA | int) -> SSA:
        return self.em.op("arith.cmpi", self.btype, a, self.k(b) if isinstance(b, int) else b,
                          predicate=ir.IntegerAttr.get(self.em.i64, predicate))

    def select(self, condition: SSA, a: SSA, b: SSA) -> SSA:
        return self.em.op("arith.select", a.type, condition, a, b)

    def as_float(self, bits: SSA) -> SSA:
        return self.em.op("arith.bitcast", self.ftype, bits)

    def as_bits(self, value: SSA) -> SSA:
        return self.em.op("arith.bitcast", self.itype, value)


EQ, UGE, ULT = 0, 9, 6  # arith.cmpi predicates


def widen(em: Emitter, bits: SSA, form: Format, sign_at: int = 7) -> SSA:
    """To f32. sign_at: the position of the sign bit."""
    v = _Bits(em, bits)
    raw = em.op("arith.extui", v.itype, bits)
    magnitude = v.i("andi", raw, (1 << sign_at) - 1)
    normal = v.i("addi", v.i("shli", magnitude, 23 - form.mantissa), (127 - form.bias) << 23)
    step = 2.0 ** (1 - form.bias - form.mantissa)
    small = v.as_bits(em.op("arith.mulf", v.ftype, em.op("arith.sitofp", v.ftype, magnitude), v.f(step)))
    out = v.select(v.test(ULT, magnitude, 1 << form.mantissa), small, normal)
    if form.unsigned_zero:
        nan = v.test(EQ, raw, form.nan)
    elif form is FORMATS["f8E5M2"]:
        out = v.select(v.test(EQ, magnitude, 0x7C), v.k(0x7F800000), out)
        nan = v.test(UGE, magnitude, 0x7D)
    else:
        nan = v.test(EQ, magnitude, form.nan)
    out = v.select(nan, v.k(0x7FC00000), out)
    sign = v.i("shli", v.i("shrui", v.i("andi", raw, 1 << sign_at), sign_at), 31)
    return v.as_float(v.i("ori", out, sign))


def narrow(em: Emitter, value: SSA, form: Format, *, toward_zero: bool = False) -> SSA:
    """From f32, as i8."""
    v = _Bits(em, value)
    raw = v.as_bits(value)
    magnitude = v.i("andi", raw, 0x7FFFFFFF)
    shift = 23 - form.mantissa
    rounded = magnitude
    if not toward_zero:
        odd = v.i("andi", v.i("shrui", magnitude, shift), 1)
        rounded = v.i("addi", v.i("addi", magnitude, (1 << shift - 1) - 1), odd)
    normal = v.i("subi", v.i("shrui", rounded, shift), (127 - form.bias) << form.mantissa)
    least = 1 - form.bias  # the exponent of the smallest normal number
    absolute = v.as_float(magnitude)
    is_small = em.op("arith.cmpf", v.btype, absolute, v.f(2.0 ** least), predicate=ir.IntegerAttr.get(em.i64, OLT))
    bounded = v.select(is_small, absolute, v.f(0.0))
    if toward_zero:
        scaled = em.op("arith.mulf", v.ftype, bounded, v.f(2.0 ** (form.mantissa - least)))
        small = em.op("arith.fptosi", v.itype, scaled)
    else:
        # Added to this, a small number is rounded to a multiple of the smallest one.
        large = v.f(2.0 ** (least - form.mantissa + 23))
        small = v.i("subi", v.as_bits(em.op("arith.addf", v.ftype, bounded, large)), v.as_bits(large))
    out = v.select(is_small, small, v.i("minui", v.select(v.test(UGE, magnitude, 0x7F800000), v.k(form.largest), normal), form.largest))
    sign = v.i("shli", v.i("shrui", raw, 31), 7)
    if form.unsigned_zero:
        sign = v.select(v.test(EQ, out, 0), v.k(0), sign)
    out = v.i("ori", out, sign)
    nan = em.op("arith.cmpf", v.btype, value, value, predicate=ir.IntegerAttr.get(em.i64, UNO))
    out = v.select(nan, v.k(form.nan) if form.unsigned_zero else v.i("ori", sign, form.nan), out)
    return em.op("arith.trunci", em.like(value, em.i8), out)


def value_of(bits: int, form: Format, sign_at: int = 7) -> float:
    """The number that bits stand for; for constants."""
    magnitude = bits & ((1 << sign_at) - 1)
    if (bits == form.nan) if form.unsigned_zero else (magnitude > form.largest):
        infinite = form is FORMATS["f8E5M2"] and magnitude == 0x7C
        return (-1.0) ** (bits >> sign_at) * float("inf") if infinite else float("nan")
    exponent, fraction = magnitude >> form.mantissa, magnitude & ((1 << form.mantissa) - 1)
    size = 2.0 ** -form.mantissa
    number = fraction * size * 2.0 ** (1 - form.bias) if exponent == 0 else (1 + fraction * size) * 2.0 ** (exponent - form.bias)
    return -number if bits >> sign_at else number


def constant_bits(value: float, form: Format) -> int:
    """The bits of a number of this format."""
    import math

    for bits in range(256):
        number = value_of(bits, form)
        if (number != number and value != value) or (number == value and math.copysign(1, number) == math.copysign(1, value)):
            return bits
    raise ValueError(f"{value} is no number of eight bits")
