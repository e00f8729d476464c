"""Float formats: how each is held and converted.

Owns widening, rounding and conversion between f64, f32, f16 and bf16. What must hold: every rounding is to nearest even (or toward
zero where asked), done once; bf16 is held as its bits in an i16 and never meets an LLVM bfloat, whose helper functions a process
may lack.

May import: core, small_floats, vmath.
"""

from __future__ import annotations

from torch_mlir import ir

from trident.backend.triton.cpu.lower import small_floats
from trident.backend.triton.cpu.lower.core import SSA, Emitter
from trident.backend.triton.cpu.lower.vmath import OGE, OGT, OLE, OLT, UNO

COMPUTE = {"f16": "f32", "bf16": "f32", "f32": "f32", "f64": "f64", **dict.fromkeys(small_floats.FORMATS, "f32")}


def _predicate(em: Emitter, value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(em.i64, value)


def widen(em: Emitter, value: SSA, elem: str) -> SSA:
    """To the type in which `elem` computes."""
    if elem in small_floats.FORMATS:
        return small_floats.widen(em, value, small_floats.FORMATS[elem])
    if elem == "bf16":
        bits = em.op("arith.extui", em.like(value, em.i32), value)
        bits = em.op("arith.shli", bits.type, bits, em.const(bits.type, 16))
        return em.op("arith.bitcast", em.like(value, em.f32), bits)
    if elem == "f16":
        return em.op("arith.extf", em.like(value, em.f32), value)
    return value


def narrow(em: Emitter, value: SSA, elem: str) -> SSA:
    """From the type in which `elem` computes, rounding to nearest even."""
    if elem in small_floats.FORMATS:
        return small_floats.narrow(em, value, small_floats.FORMATS[elem])
    if elem == "bf16":
        return _to_bf16(em, value)
    if elem == "f16":
        return em.op("arith.truncf", em.like(value, em.f16), value)
    return value


def _to_bf16(em: Emitter, value: SSA) -> SSA:
    itype = em.like(value, em.i32)
    bits = em.op("arith.bitcast", itype, value)
    upper = em.op("arith.shrui", itype, bits, em.const(itype, 16))
    odd = em.op("arith.andi", itype, upper, em.const(itype, 1))
    bias = em.op("arith.addi", itype, odd, em.const(itype, 0x7FFF))
    rounded = em.op("arith.shrui", itype, em.op("arith.addi", itype, bits, bias), em.const(itype, 16))
    nan = em.op("arith.cmpf", em.like(value, em.i1), value, value, predicate=_predicate(em, UNO))
    rounded = em.op("arith.select", itype, nan, em.const(itype, 0x7FC0), rounded)
    return em.op("arith.trunci", em.like(value, em.i16), rounded)


def _f64_to_odd_f32(em: Emitter, value: SSA) -> SSA:
    """f64 to f32 rounded to odd: a later rounding to fewer bits is then as if done once."""
    single = em.op("arith.truncf", em.like(value, em.f32), value)
    back = em.op("arith.extf", value.type, single)
    itype = em.like(value, em.i32)
    btype = em.like(value, em.i1)
    bits = em.op("arith.bitcast", itype, single)
    larger = em.op("arith.cmpf", btype, em.op("math.absf", value.type, back), em.op("math.absf", value.type, value),
                   predicate=_predicate(em, OGT))
    inexact = em.op("arith.cmpf", btype, back, value, predicate=_predicate(em, 6))
    down = em.op("arith.subi", itype, bits, em.op("arith.extui", itype, larger))
    odd = em.op("arith.ori", itype, down, em.const(itype, 1))
    return em.op("arith.bitcast", single.type, em.op("arith.select", itype, inexact, odd, bits))


def _toward_zero(em: Emitter, value: SSA, target: str) -> SSA:
    """f32 to fewer bits, truncating."""
    itype = em.like(value, em.i32)
    if target in small_floats.FORMATS:
        return small_floats.narrow(em, value, small_floats.FORMATS[target], toward_zero=True)
    if target == "bf16":
        bits = em.op("arith.bitcast", itype, value)
        upper = em.op("arith.shrui", itype, bits, em.const(itype, 16))
        nan = em.op("arith.cmpf", em.like(value, em.i1), value, value, predicate=_predicate(em, UNO))
        upper = em.op("arith.select", itype, nan, em.const(itype, 0x7FC0), upper)
        return em.op("arith.trunci", em.like(value, em.i16), upper)
    half = em.op("arith.truncf", em.like(value, em.f16), value)
    back = em.op("arith.extf", value.type, half)
    larger = em.op("arith.cmpf", em.like(value, em.i1), em.op("math.absf", value.type, back),
                   em.op("math.absf", value.type, value), predicate=_predicate(em, OGT))
    stype = em.like(value, em.i16)
    bits = em.op("arith.bitcast", stype, half)
    bits = em.op("arith.subi", stype, bits, em.op("arith.extui", stype, larger))
    return em.op("arith.bitcast", half.type, bits)


def convert(em: Emitter, value: SSA, source: str, target: str, *, toward_zero: bool = False) -> SSA:
    """Between any two float types."""
    if source == target:
        return value
    wide = widen(em, value, source)
    kind = COMPUTE[source]
    if target == "f64":
        return wide if kind == "f64" else em.op("arith.extf", em.like(wide, em.f64), wide)
    if kind == "f64":
        if target == "f32":
            return em.op("arith.truncf", em.like(wide, em.f32), wide)
        wide = _f64_to_odd_f32(em, wide)
    if target == "f32":
        return wide
    return _toward_zero(em, wide, target) if toward_zero else narrow(em, wide, target)


def from_int(em: Emitter, value: SSA, target: str, *, signed: bool) -> SSA:
    """An integer to a float; to the 16-bit types by way of f32, as PyTorch does."""
    kind = em.f64 if target == "f64" else em.f32
    wide = em.op("arith.sitofp" if signed else "arith.uitofp", em.like(value, kind), value)
    return narrow(em, wide, target)


def to_int(em: Emitter, value: SSA, source: str, width: int, *, signed: bool) -> SSA:
    """A float to an integer, toward zero. Out of range saturates to 32 (or 64) bits, then wraps; NaN gives 0."""
    wide = widen(em, value, source)
    through = max(width, 32)
    itype = em.like(wide, ir.IntegerType.get_signless(through))
    btype = em.like(wide, em.i1)
    low, high = (-(2.0 ** (through - 1)), 2.0 ** (through - 1)) if signed else (0.0, 2.0 ** through)
    least, most = (-(1 << (through - 1)), (1 << (through - 1)) - 1) if signed else (0, -1)

    def compare(predicate: int, bound: float) -> SSA:
        return em.op("arith.cmpf", btype, wide, em.const(wide.type, bound), predicate=_predicate(em, predicate))

    # Outside its range LLVM's conversion is poison; a NaN is in no range.
    above, inside = compare(OGE, high), em.op("arith.andi", btype, compare(OGT, low), compare(OLT, high))
    below = compare(OLE, low)
    safe = em.op("arith.select", wide.type, inside, wide, em.const(wide.type, 0.0))
    result = em.op("arith.fptosi" if signed else "arith.fptoui", itype, safe)
    result = em.op("arith.select", itype, above, em.const(itype, most), result)
    result = em.op("arith.select", itype, below, em.const(itype, least), result)
    if width < through:
        result = em.op("arith.trunci", em.like(wide, ir.IntegerType.get_signless(width)), result)
    return result
