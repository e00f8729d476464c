"""The C library's functions, and the names that Triton's libdevice gives them.

Owns the tables of functions by name. What must hold: a function is called only when the process exports it; a name that is in no
table is refused, never guessed.

May import: core, vmath, ttir.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence

from torch_mlir import ir

from trident.backend.triton.cpu.errors import UnsupportedKernelError
from trident.backend.triton.cpu.lower import vmath
from trident.backend.triton.cpu.lower.core import SSA, Emitter
from trident.backend.triton.cpu.ttir import Op

UNARY = frozenset({"acos", "acosh", "asin", "asinh", "atan", "atanh", "cbrt", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2",
                   "expm1", "j0", "j1", "y0", "y1", "lgamma", "log", "log10", "log1p", "log2", "logb", "sin", "sinh", "tan", "tanh",
                   "tgamma"})
BINARY = frozenset({"atan2", "fdim", "fmod", "hypot", "nextafter", "pow", "remainder"})


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL("libm.so.6", mode=ctypes.RTLD_GLOBAL)


def call(em: Emitter, name: str, args: Sequence[SSA]) -> SSA:
    """Call `name` (its f32 variant for f32) on scalars, or element by element on vectors."""
    elem = em.scalar_type(args[0])
    symbol = name if elem == em.f64 else name + "f"
    if not hasattr(_library(), symbol):
        raise UnsupportedKernelError(f"the cpu backend needs {symbol}, which this C library lacks", symbol)
    return per_element(em, symbol, elem, args)


def per_element(em: Emitter, symbol: str, result: ir.Type, args: Sequence[SSA]) -> SSA:
    callee = em.declare(symbol, [em.scalar_type(a) for a in args], result)

    def scalar_call(*scalars: SSA) -> SSA:
        return em.op("func.call", result, *scalars, callee=callee)

    if not isinstance(args[0].type, ir.VectorType):
        return scalar_call(*args)
    n = args[0].type.shape[0]
    vector = em.zero(ir.VectorType.get([n], result))

    def step(i: SSA, carried: list[SSA]) -> Sequence[SSA]:
        value = scalar_call(*[em.op("llvm.extractelement", em.scalar_type(a), a, i) for a in args])
        return [em.op("llvm.insertelement", vector.type, carried[0], value, i)]

    return em.for_loop(0, n, [vector], step)[0]


# libdevice functions that are a single operation of the arith or math dialect.
_DIALECT = {"sqrt": "math.sqrt", "fabs": "math.absf", "floor": "math.floor", "ceil": "math.ceil", "trunc": "math.trunc",
            "rint": "math.roundeven", "nearbyint": "math.roundeven", "round": "math.round", "fma": "math.fma",
            "copysign": "math.copysign", "fmax": "arith.maxnumf", "fmin": "arith.minnumf", "div_rn": "arith.divf",
            "fdiv_rn": "arith.divf", "fdividef": "arith.divf", "dadd_rn": "arith.addf", "fadd_rn": "arith.addf",
            "dmul_rn": "arith.mulf", "fmul_rn": "arith.mulf", "dsub_rn": "arith.subf", "fsub_rn": "arith.subf",
            "ddiv_rn": "arith.divf", "dsqrt_rn": "math.sqrt", "fsqrt_rn": "math.sqrt", "fmaf_rn": "math.fma", "fma_rn": "math.fma"}


def _rsqrt(em: Emitter, x: SSA) -> SSA:
    return em.op("arith.divf", x.type, em.const(x.type, 1.0), em.op("math.sqrt", x.type, x))


def _classify(em: Emitter, x: SSA, name: str) -> SSA:
    """isnan, isinf, isfinited, signbit as an i32."""
    btype = em.like(x, em.i1)

    def compare(a: SSA, b: SSA, predicate: int) -> SSA:
        return em.op("arith.cmpf", btype, a, b, predicate=ir.IntegerAttr.get(em.i64, predicate))

    infinity = em.const(x.type, float("inf"))
    if name == "isnan":
        answer = compare(x, x, vmath.UNO)
    elif name == "isinf":
        answer = compare(em.op("math.absf", x.type, x), infinity, vmath.OEQ)
    elif name == "finite":
        answer = compare(em.op("math.absf", x.type, x), infinity, vmath.OLT)
    else:
        width = 64 if em.scalar_type(x) == em.f64 else 32
        itype = em.like(x, ir.IntegerType.get_signless(width))
        bits = em.op("arith.bitcast", itype, x)
        answer = em.op("arith.cmpi", btype, bits, em.const(itype, 0), predicate=ir.IntegerAttr.get(em.i64, 2))
    return em.op("arith.extui", em.like(x, em.i32), answer)


_CLASSIFY = {"isnan": "isnan", "isinf": "isinf", "finite": "finite", "isfinited": "finite", "signbit": "signbit"}


def extern(em: Emitter, op: Op, symbol: str, operands: Sequence[str], result: str) -> Callable[..., SSA]:
    """What a libdevice symbol (`__nv_tanhf`) computes."""
    name = symbol.removeprefix("__nv_")
    if name == symbol or not set(operands) <= {"f32", "f64"} or len(set(operands)) != 1:
        raise op.unsupported(f"the external function {symbol}")
    single = operands[0] == "f32"
    if name.startswith("fast_"):
        name = name.removeprefix("fast_")
    bases = [name.removesuffix("f"), name] if single else [name.removesuffix("d") if name.endswith("d") else name, name]
    for base in bases:
        base = base.removesuffix("f") if single and base.endswith("ff") else base
        if base in _CLASSIFY and result == "i32":
            return lambda x: _classify(em, x, _CLASSIFY[base])
        if result not in ("f32", "f64"):
            continue
        if base in _DIALECT:
            return lambda *args: em.op(_DIALECT[base], args[0].type, *args)
        if base == "rsqrt" and len(operands) == 1:
            return lambda x: _rsqrt(em, x)
        if single and base in vmath.F32_FUNCTIONS:
            return lambda x: vmath.F32_FUNCTIONS[base](em, x)
        if base in (UNARY if len(operands) == 1 else BINARY if len(operands) == 2 else ()):
            return lambda *args: call(em, base, args)
    raise op.unsupported(f"the external function {symbol}")
