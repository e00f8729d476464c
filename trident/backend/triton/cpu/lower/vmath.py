"""Elementary functions on scalars and vectors of f32.

Owns the polynomials. Each function takes and gives an SSA value of type f32 or vector of f32 and works the same for both, so a
kernel's scalar and vector code agree. What must hold: NaN gives NaN, infinities and denormals are right, and the error is below
2 ulp (5 for erf) against the exact function.

May import: core.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_mlir import ir

from trident.backend.triton.cpu.lower.core import SSA, Emitter

# arith.cmpf predicates
OEQ, OGT, OGE, OLT, OLE, ONE, UNO = 1, 2, 3, 4, 5, 6, 14


class _F32:
    """Arithmetic on one shape of f32 values."""

    def __init__(self, em: Emitter, like: SSA) -> None:
        self.em, self.type = em, like.type
        self.itype = em.like(like, em.i32)
        self.btype = em.like(like, em.i1)

    def k(self, value: float) -> SSA:
        return self.em.const(self.type, value)

    def ki(self, value: int) -> SSA:
        return self.em.const(self.itype, value)

    def f(self, name: str, *args: SSA) -> SSA:
        return self.em.op(name, self.type, *args)

    def i(self, name: str, *args: SSA) -> SSA:
        return self.em.op(name, self.itype, *args)

    def add(self, a: SSA, b: SSA) -> SSA:
        return self.f("arith.addf", a, b)

    def sub(self, a: SSA, b: SSA) -> SSA:
        return self.f("arith.subf", a, b)

    def mul(self, a: SSA, b: SSA) -> SSA:
        return self.f("arith.mulf", a, b)

    def div(self, a: SSA, b: SSA) -> SSA:
        return self.f("arith.divf", a, b)

    def fma(self, a: SSA, b: SSA, c: SSA) -> SSA:
        return self.f("math.fma", a, b, c)

    def horner(self, x: SSA, coefficients: Sequence[float]) -> SSA:
        total = self.k(coefficients[0])
        for c in coefficients[1:]:
            total = self.fma(total, x, self.k(c))
        return total

    def less(self, a: SSA, b: SSA, predicate: int = OLT) -> SSA:
        return self.em.op("arith.cmpf", self.btype, a, b, predicate=ir.IntegerAttr.get(self.em.i64, predicate))

    def select(self, c: SSA, a: SSA, b: SSA) -> SSA:
        return self.em.op("arith.select", a.type, c, a, b)

    def bits(self, x: SSA) -> SSA:
        return self.i("arith.bitcast", x)

    def from_bits(self, x: SSA) -> SSA:
        return self.f("arith.bitcast", x)

    def clamp(self, x: SSA, low: float, high: float) -> SSA:
        """Between two numbers; a NaN stays one. Written as the hardware's minimum and maximum are."""
        x = self.select(self.less(self.k(high), x), self.k(high), x)
        return self.select(self.less(x, self.k(low)), self.k(low), x)

    def power(self, n: SSA) -> SSA:
        """2**n for an integer in the normal range."""
        return self.from_bits(self.i("arith.addi", self.i("arith.shli", n, self.ki(23)), self.ki(0x3F800000)))

    def scale(self, y: SSA, shifted: SSA) -> SSA:
        """y * 2**n, in two steps so that n may reach beyond the normal range; `shifted` is MAGIC + n."""
        whole = self.i("arith.subi", self.bits(shifted), self.ki(_MAGIC_BITS))
        half = self.i("arith.shrsi", whole, self.ki(1))
        return self.mul(self.mul(y, self.power(half)), self.power(self.i("arith.subi", whole, half)))


# Added to a number that is not large, it leaves the nearest integer in the low bits of the sum.
_MAGIC, _MAGIC_BITS = 12582912.0, 0x4B400000

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def exp(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    # Beyond these the scaling overflows to infinity, or underflows to zero, by itself. A NaN comes through as the remainder.
    x = v.clamp(x, -104.0, 89.0)
    shifted = v.fma(x, v.k(1.4426950408889634), v.k(_MAGIC))
    n = v.sub(shifted, v.k(_MAGIC))
    r = v.fma(n, v.k(-0.693359375), x)
    r = v.fma(n, v.k(2.12194440e-4), r)
    y = v.add(v.fma(v.horner(r, _EXP), v.mul(r, r), r), v.k(1.0))
    return v.scale(y, shifted)


_EXP2 = (1.535336188319500e-4, 1.339887440266574e-3, 9.618437357674640e-3, 5.550332471162809e-2, 2.402264791363012e-1,
         6.931472028550421e-1)


def exp2(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    x = v.clamp(x, -151.0, 129.0)
    shifted = v.add(x, v.k(_MAGIC))
    r = v.sub(x, v.sub(shifted, v.k(_MAGIC)))
    return v.scale(v.fma(v.horner(r, _EXP2), r, v.k(1.0)), shifted)


_LOG = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1, 2.0000714765e-1,
        -2.4999993993e-1, 3.3333331174e-1)


def _log_parts(v: _F32, x: SSA) -> tuple[SSA, SSA, SSA, Callable[[SSA], SSA]]:
    """m - 1 with m in [sqrt(1/2), sqrt(2)), the exponent as f32, the tail of log(m), and what to do with special inputs."""
    tiny = v.less(x, v.k(1.17549435e-38))
    scaled = v.select(tiny, v.mul(x, v.k(8388608.0)), x)
    raw = v.bits(scaled)
    # Adding the distance from sqrt(1/2) to 1 moves the range of the mantissa to the one wanted.
    shifted = v.i("arith.addi", raw, v.ki(0x3F800000 - 0x3F3504F3))
    e = v.i("arith.subi", v.i("arith.shrui", shifted, v.ki(23)), v.ki(127))
    e = v.i("arith.subi", e, v.em.op("arith.select", v.itype, tiny, v.ki(23), v.ki(0)))
    m = v.from_bits(v.i("arith.addi", v.i("arith.andi", shifted, v.ki(0x007FFFFF)), v.ki(0x3F3504F3)))
    f = v.sub(m, v.k(1.0))
    z = v.mul(f, f)
    tail = v.mul(v.mul(v.horner(f, _LOG), f), z)
    tail = v.fma(z, v.k(-0.5), tail)

    def finish(y: SSA) -> SSA:
        y = v.select(v.less(x, v.k(0.0)), v.k(float("nan")), y)
        y = v.select(v.less(x, v.k(0.0), OEQ), v.k(float("-inf")), y)
        y = v.select(v.less(x, v.k(float("inf")), OEQ), x, y)
        return v.select(v.less(x, x, UNO), x, y)

    return f, v.f("arith.sitofp", e), tail, finish


def log(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    f, e, tail, finish = _log_parts(v, x)
    tail = v.fma(e, v.k(-2.12194440e-4), tail)
    return finish(v.fma(e, v.k(0.693359375), v.add(f, tail)))


def log2(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    f, e, tail, finish = _log_parts(v, x)
    # log2(e) - 1 keeps the leading product exact.
    extra = v.k(0.44269504088896340735992)
    y = v.mul(tail, extra)
    y = v.fma(f, extra, y)
    y = v.add(v.add(y, tail), f)
    return finish(v.add(y, e))


def tanh(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    a = v.f("math.absf", x)
    z = v.mul(x, x)
    small = v.horner(z, (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1))
    small = v.fma(v.mul(small, z), x, x)
    big = v.sub(v.k(1.0), v.div(v.k(2.0), v.add(exp(em, v.add(a, a)), v.k(1.0))))
    big = v.f("math.copysign", big, x)
    return v.select(v.less(a, v.k(0.625)), small, big)


_ERF_P = (-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05, -7.34990630326855e-04,
          -2.95459980854025e-03, -1.60960333262415e-02)
_ERF_Q = (-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03, -1.42647390514189e-02)


def erf(em: Emitter, x: SSA) -> SSA:
    v = _F32(em, x)
    c = v.f("arith.maximumf", v.f("arith.minimumf", x, v.k(4.0)), v.k(-4.0))
    z = v.mul(c, c)
    return v.mul(c, v.div(v.horner(z, _ERF_P), v.horner(z, _ERF_Q)))


F32_FUNCTIONS: dict[str, Callable[[Emitter, SSA], SSA]] = {
    "exp": exp, "exp2": exp2, "log": log, "log2": log2, "tanh": tanh, "erf": erf,
}
