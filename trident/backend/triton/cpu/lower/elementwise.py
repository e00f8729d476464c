"""Elementwise operations: one rule per operation name.

Owns the table `RULES`. A rule gets the op (for its attributes and types), one chunk per operand, all of one length, and that
length, and gives the result's chunk; scalars are chunks of length one, so tensor code, scalar code and the regions of reductions
share the rules. What must hold: integer division never traps; results of 16-bit float operations are rounded after each operation.

May import: core, floats, vmath, ttir.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
from torch_mlir import ir

from trident.backend.triton.cpu.lower import floats, libm, vmath
from trident.backend.triton.cpu.lower.core import FLOATS, INTS, SIZES, SSA, Chunk, Emitter
from trident.backend.triton.cpu.ttir import Op

Rule: TypeAlias = Callable[[Emitter, Op, Sequence[Chunk], int], Chunk]
RULES: dict[str, Rule] = {}
COSTS: dict[str, int] = {}  # relative cost per element, 1 where absent


def apply(em: Emitter, elem: str, n: int, chunks: Sequence[Chunk], compute: Callable[..., SSA]) -> Chunk:
    """`compute` on scalars when every operand is uniform, else on vectors."""
    if n == 1 or all(c.uniform for c in chunks):
        return Chunk(n, elem, base=compute(*[c.base for c in chunks]))
    return em.from_vec(n, elem, compute(*[em.vec(c) for c in chunks]))


def _out(op: Op) -> str:
    return op.results[0].type.elem


def _check_float(op: Op, elem: str) -> None:
    if elem not in FLOATS:
        raise op.unsupported(f"the type {elem} has no arithmetic here")


# -- floats ------------------------------------------------------------------------------------------------------------------------


def float_op(target: str) -> Rule:
    """An op that exists for f32 and f64: widen, compute, round."""

    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        elem = _out(op)
        _check_float(op, elem)

        def compute(*args: SSA) -> SSA:
            wide = [floats.widen(em, a, elem) for a in args]
            return floats.narrow(em, em.op(target, wide[0].type, *wide), elem)

        return apply(em, elem, n, chunks, compute)

    return rule


def f32_function(name: str) -> Rule:
    """An elementary function: polynomial for f32, the C library for f64."""

    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        elem = _out(op)
        _check_float(op, elem)

        def compute(x: SSA) -> SSA:
            if elem == "f64":
                return libm.call(em, name, [x])
            return floats.narrow(em, vmath.F32_FUNCTIONS[name](em, floats.widen(em, x, elem)), elem)

        return apply(em, elem, n, chunks, compute)

    return rule


def libm_function(name: str) -> Rule:
    """A function that only the C library has."""

    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        elem = _out(op)
        _check_float(op, elem)

        def compute(*args: SSA) -> SSA:
            wide = [floats.widen(em, a, elem) for a in args]
            return floats.narrow(em, libm.call(em, name, wide), elem)

        return apply(em, elem, n, chunks, compute)

    return rule


def _rsqrt(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    elem = _out(op)
    _check_float(op, elem)

    def compute(x: SSA) -> SSA:
        wide = floats.widen(em, x, elem)
        root = em.op("math.sqrt", wide.type, wide)
        return floats.narrow(em, em.op("arith.divf", wide.type, em.const(wide.type, 1.0), root), elem)

    return apply(em, elem, n, chunks, compute)


def _cmpf(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    elem = chunks[0].elem
    _check_float(op, elem)

    def compute(a: SSA, b: SSA) -> SSA:
        a, b = floats.widen(em, a, elem), floats.widen(em, b, elem)
        return em.op("arith.cmpf", em.like(a, em.i1), a, b, predicate=op.attrs["predicate"])

    return apply(em, "i1", n, chunks, compute)


def _clampf(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    elem = _out(op)
    _check_float(op, elem)
    spread_nan = op.int_attr("propagateNan", 0) != 0
    low, high = ("arith.maximumf", "arith.minimumf") if spread_nan else ("arith.maxnumf", "arith.minnumf")

    def compute(x: SSA, lo: SSA, hi: SSA) -> SSA:
        x, lo, hi = (floats.widen(em, v, elem) for v in (x, lo, hi))
        return floats.narrow(em, em.op(high, x.type, em.op(low, x.type, x, lo), hi), elem)

    return apply(em, elem, n, chunks, compute)


for _name in ("addf", "subf", "mulf", "divf", "maxnumf", "minnumf", "maximumf", "minimumf", "negf"):
    RULES[f"arith.{_name}"] = float_op(f"arith.{_name}")
for _name in ("sqrt", "floor", "ceil", "absf", "fma", "trunc", "round", "roundeven", "copysign"):
    RULES[f"math.{_name}"] = float_op(f"math.{_name}")
for _name in ("exp", "exp2", "log", "log2", "tanh", "erf"):
    RULES[f"math.{_name}"] = f32_function(_name)
    COSTS[f"math.{_name}"] = 20
for _name in ("sin", "cos", "tan", "exp10", "expm1", "log1p", "log10", "sinh", "cosh", "asin", "acos", "atan", "atan2", "cbrt"):
    RULES[f"math.{_name}"] = libm_function(_name)
    COSTS[f"math.{_name}"] = 100
RULES["math.powf"] = libm_function("pow")
RULES["arith.remf"] = libm_function("fmod")
RULES["math.rsqrt"] = _rsqrt
RULES["tt.precise_sqrt"] = float_op("math.sqrt")
RULES["tt.precise_divf"] = RULES["tt.approx_divf"] = float_op("arith.divf")
RULES["arith.cmpf"] = _cmpf
RULES["tt.clampf"] = _clampf
COSTS |= {"math.powf": 100, "arith.remf": 100, "math.rsqrt": 12, "math.sqrt": 8, "arith.divf": 6, "tt.precise_sqrt": 8,
          "tt.precise_divf": 6, "tt.approx_divf": 6, "tt.extern_elementwise": 100}


# -- integers ----------------------------------------------------------------------------------------------------------------------


def _exact(em: Emitter, name: str, a: Chunk, b: Chunk) -> Callable[[], SSA]:
    def make() -> SSA:
        x, y = em.vec(a), em.vec(b)
        return em.op(name, x.type, x, y)

    return make


def _add_like(name: str, sign: int) -> Rule:
    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        a, b = chunks
        elem = _out(op)
        if n > 1 and a.affine and b.affine and not (a.uniform and b.uniform):
            zero = np.zeros(n, np.int64)
            offs = (zero if a.offs is None else a.offs) + sign * (zero if b.offs is None else b.offs)
            make = _exact(em, name, a, b) if a.make or b.make else None
            return Chunk(n, elem, base=em.op(name, a.base.type, a.base, b.base), offs=offs, make=make)
        return apply(em, elem, n, chunks, lambda x, y: em.op(name, x.type, x, y))

    return rule


def _muli(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    a, b = chunks
    elem = _out(op)
    if a.uniform and not b.uniform:
        a, b = b, a
    if n > 1 and a.offs is not None and b.uniform and b.const is not None:
        make = _exact(em, "arith.muli", a, b) if a.make else None
        return Chunk(n, elem, base=em.op("arith.muli", a.base.type, a.base, b.base), offs=a.offs * b.const, make=make)
    return apply(em, elem, n, chunks, lambda x, y: em.op("arith.muli", x.type, x, y))


def _shli(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    a, b = chunks
    if n > 1 and a.offs is not None and b.uniform and b.const is not None and 0 <= b.const < INTS[_out(op)]:
        make = _exact(em, "arith.shli", a, b) if a.make else None
        return Chunk(n, _out(op), base=em.op("arith.shli", a.base.type, a.base, b.base), offs=a.offs << b.const, make=make)
    return apply(em, _out(op), n, chunks, lambda x, y: em.op("arith.shli", x.type, x, y))


def int_op(name: str) -> Rule:
    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        return apply(em, _out(op), n, chunks, lambda *args: em.op(name, args[0].type, *args))

    return rule


def _division(name: str) -> Rule:
    """Division and remainder. A divisor of zero (and the most negative number by -1) is replaced by one: x86 would trap."""
    signed = name.endswith("si")

    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        divisor = chunks[1]
        width = INTS[_out(op)]
        known = divisor.const is not None and divisor.const not in (0, -1)

        def compute(x: SSA, y: SSA) -> SSA:
            if not known:
                y = _safe_divisor(em, x, y, width, signed)
            if isinstance(x.type, ir.VectorType) and width <= 32:
                return _divide_by_f64(em, name, x, y)
            return em.op(name, x.type, x, y)

        return apply(em, _out(op), n, chunks, compute)

    return rule


def _safe_divisor(em: Emitter, x: SSA, y: SSA, width: int, signed: bool) -> SSA:
    def equal(a: SSA, value: int) -> SSA:
        return em.op("arith.cmpi", em.like(a, em.i1), a, em.const(a.type, value), predicate=ir.IntegerAttr.get(em.i64, 0))

    bad = equal(y, 0)
    if signed:
        overflow = em.op("arith.andi", bad.type, equal(y, -1), equal(x, -(1 << (width - 1))))
        bad = em.op("arith.ori", bad.type, bad, overflow)
    return em.op("arith.select", y.type, bad, em.const(y.type, 1), y)


def _divide_by_f64(em: Emitter, name: str, x: SSA, y: SSA) -> SSA:
    """Up to 32 bits, the truncated f64 quotient is exact, and vectors have no integer division."""
    signed = name.endswith("si")
    ftype = em.like(x, em.f64)
    to_float, to_int = ("arith.sitofp", "arith.fptosi") if signed else ("arith.uitofp", "arith.fptoui")
    quotient = em.op("arith.divf", ftype, em.op(to_float, ftype, x), em.op(to_float, ftype, y))
    q = em.op(to_int, x.type, quotient)
    if "div" in name:
        return q
    return em.op("arith.subi", x.type, x, em.op("arith.muli", x.type, q, y))


def _cmpi(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    def compute(a: SSA, b: SSA) -> SSA:
        if em.scalar_type(a) == em.ptr:
            a, b = (em.op("llvm.ptrtoint", em.like(v, em.i64), v) for v in (a, b))
        return em.op("arith.cmpi", em.like(a, em.i1), a, b, predicate=op.attrs["predicate"])

    return apply(em, "i1", n, chunks, compute)


def _select(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    condition, a, b = chunks
    elem = _out(op)
    if condition.uniform and condition.const == 1:
        return a
    if n == 1 or all(c.uniform for c in chunks):
        return Chunk(n, elem, base=em.op("arith.select", a.base.type, condition.base, a.base, b.base))
    x, y = em.vec(a), em.vec(b)
    # A scalar condition selects whole vectors.
    c = condition.base if condition.uniform else em.vec(condition)
    return em.from_vec(n, elem, em.op("arith.select", x.type, c, x, y))


def _absi(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    def compute(x: SSA) -> SSA:
        negative = em.op("arith.cmpi", em.like(x, em.i1), x, em.const(x.type, 0), predicate=ir.IntegerAttr.get(em.i64, 2))
        return em.op("arith.select", x.type, negative, em.op("arith.subi", x.type, em.const(x.type, 0), x), x)

    return apply(em, _out(op), n, chunks, compute)


def _mulhiui(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    width = INTS[_out(op)]
    wide = ir.IntegerType.get_signless(2 * width)

    def compute(x: SSA, y: SSA) -> SSA:
        wtype = em.like(x, wide)
        product = em.op("arith.muli", wtype, em.op("arith.extui", wtype, x), em.op("arith.extui", wtype, y))
        high = em.op("arith.shrui", wtype, product, em.const(wtype, width))
        return em.op("arith.trunci", x.type, high)

    return apply(em, _out(op), n, chunks, compute)


def _andi(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    if _out(op) == "i1":
        for chunk, other in (chunks, reversed(chunks)):
            if chunk.uniform and chunk.const == 1:
                return other
    return apply(em, _out(op), n, chunks, lambda x, y: em.op("arith.andi", x.type, x, y))


for _name in ("ori", "xori", "shrsi", "shrui", "maxsi", "maxui", "minsi", "minui"):
    RULES[f"arith.{_name}"] = int_op(f"arith.{_name}")
for _name in ("divsi", "divui", "remsi", "remui"):
    RULES[f"arith.{_name}"] = _division(f"arith.{_name}")
    COSTS[f"arith.{_name}"] = 12
RULES |= {"arith.addi": _add_like("arith.addi", 1), "arith.subi": _add_like("arith.subi", -1), "arith.muli": _muli,
          "arith.shli": _shli, "arith.cmpi": _cmpi, "arith.andi": _andi, "arith.select": _select, "math.absi": _absi,
          "tt.mulhiui": _mulhiui}
for _name in ("ctpop", "ctlz", "cttz"):
    RULES[f"math.{_name}"] = int_op(f"math.{_name}")


# -- conversions -------------------------------------------------------------------------------------------------------------------


def _extend(name: str) -> Rule:
    def rule(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
        (a,) = chunks
        elem = _out(op)
        target = em.storage[elem]

        def compute(x: SSA) -> SSA:
            return em.op(name, em.like(x, target), x)

        if n > 1 and a.offs is not None and a.elem != "i1":
            # As an address the sum does not wrap; as a value it is extended after wrapping.
            return Chunk(n, elem, base=compute(a.base), offs=a.offs, make=lambda: compute(em.vec(a)))
        out = apply(em, elem, n, chunks, compute)
        if out.uniform and a.const is not None and a.elem != "i1":
            out.const = a.const if name == "arith.extsi" else a.const & ((1 << INTS[a.elem]) - 1)
        return out

    return rule


def _trunci(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    target = em.storage[_out(op)]
    return apply(em, _out(op), n, chunks, lambda x: em.op("arith.trunci", em.like(x, target), x))


def _float_cast(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    source, target = chunks[0].elem, _out(op)
    for elem in (source, target):
        if elem not in floats.COMPUTE:
            raise op.unsupported(f"a conversion of {elem}")
    toward_zero = "rounding" in op.attrs and int(op.attrs["rounding"]) == 0
    return apply(em, target, n, chunks, lambda x: floats.convert(em, x, source, target, toward_zero=toward_zero))


def _int_to_float(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    _check_float(op, _out(op))
    signed = op.name == "arith.sitofp"
    return apply(em, _out(op), n, chunks, lambda x: floats.from_int(em, x, _out(op), signed=signed))


def _float_to_int(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    source = chunks[0].elem
    _check_float(op, source)
    signed = op.name == "arith.fptosi"
    return apply(em, _out(op), n, chunks, lambda x: floats.to_int(em, x, source, INTS[_out(op)], signed=signed))


def _bitcast(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    (a,) = chunks
    elem = _out(op)
    if a.elem == elem or (a.elem == "ptr") != (elem == "ptr") or SIZES[a.elem] != SIZES[elem]:
        if a.elem != elem:
            raise op.unsupported(f"a bitcast from {a.elem} to {elem}")
        return a
    target = em.storage[elem]
    return apply(em, elem, n, chunks, lambda x: x if em.scalar_type(x) == target else
                 em.op("arith.bitcast", em.like(x, target), x))


RULES |= {"arith.extsi": _extend("arith.extsi"), "arith.extui": _extend("arith.extui"), "arith.trunci": _trunci,
          "arith.extf": _float_cast, "arith.truncf": _float_cast, "tt.fp_to_fp": _float_cast,
          "arith.sitofp": _int_to_float, "arith.uitofp": _int_to_float,
          "arith.fptosi": _float_to_int, "arith.fptoui": _float_to_int, "arith.bitcast": _bitcast, "tt.bitcast": _bitcast}


# -- pointers ----------------------------------------------------------------------------------------------------------------------


def pointee_size(op: Op, elem: str) -> int:
    """Bytes that one step of a pointer moves."""
    if elem not in SIZES:
        if elem.startswith("!tt.ptr"):
            return 8
        raise op.unsupported(f"a pointer to {elem}")
    return SIZES[elem]


def _addptr(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    pointer, offset = chunks
    pointee = op.operands[0].type.pointee
    size = pointee_size(op, pointee)
    elem = em.ptr if pointee.startswith("!tt.ptr") else em.memory_type(pointee)
    if n > 1 and pointer.affine and offset.affine and not (pointer.uniform and offset.uniform):
        zero = np.zeros(n, np.int64)
        offs = (zero if pointer.offs is None else pointer.offs) + size * (zero if offset.offs is None else offset.offs)
        make = (lambda: em.gep(em.vec(pointer), em.vec(offset), elem)) if pointer.make or offset.make else None
        return Chunk(n, "ptr", base=em.gep(pointer.base, offset.base, elem), offs=offs, make=make)
    if n > 1 and pointer.uniform:
        # A scalar base with a vector of indices is what the hardware's gathers want.
        return em.from_vec(n, "ptr", em.gep(pointer.base, em.vec(offset), elem))
    return apply(em, "ptr", n, chunks, lambda p, o: em.gep(p, o, elem))


def _ptr_to_int(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    return apply(em, _out(op), n, chunks, lambda x: em.op("llvm.ptrtoint", em.like(x, em.storage[_out(op)]), x))


def _int_to_ptr(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    return apply(em, "ptr", n, chunks, lambda x: em.op("llvm.inttoptr", em.like(x, em.ptr), x))


RULES |= {"tt.addptr": _addptr, "tt.ptr_to_int": _ptr_to_int, "tt.int_to_ptr": _int_to_ptr}

# Cheap to compute again wherever the value is wanted, and addresses lose their structure in memory.
ADDRESS_OPS = frozenset({"arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.extsi", "arith.extui", "arith.trunci",
                         "tt.addptr"})


def _extern(em: Emitter, op: Op, chunks: Sequence[Chunk], n: int) -> Chunk:
    symbol = ir.StringAttr(op.attrs["symbol"]).value
    compute = libm.extern(em, op, symbol, [c.elem for c in chunks], _out(op))
    return apply(em, _out(op), n, chunks, compute)


RULES["tt.extern_elementwise"] = _extern
