"""Builds the function that launches one site's kernel, into the LLVM module of the host program that calls it.

Owns `emit_site` and `emit_loop` (a benchmark's loop around it). What must hold: the function classifies its operands exactly as the site's `Operand`s say, into one byte each
of the key; whatever it cannot classify goes to Python. Its result is 0, or 1 with a Python exception set and the GIL held.

May import: llvmlite, launch_layout.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from llvmlite import ir

from trident.backend.native.launch_layout import DEVICE_TYPES, INT_ALIGNED, INT_ONE, INT_WIDE, LAUNCHED, MISS, Operand

I1, I8, I16, I32, I64 = (ir.IntType(n) for n in (1, 8, 16, 32, 64))
FLOAT, DOUBLE, PTR = ir.FloatType(), ir.DoubleType(), ir.PointerType()
ARGUMENT_TYPES: Final[dict[str, ir.Type]] = {"tensor": PTR, "int": I64, "float": DOUBLE, "bool": I1, "object": PTR}
_GO: Final = ir.FunctionType(I32, [PTR, PTR, I64, I64, I64, PTR, PTR])
_MISS: Final = ir.FunctionType(I32, [PTR, PTR, I64, I64, I64, PTR, PTR])
_TENSOR: Final = ir.FunctionType(I32, [PTR, I32, PTR])


def site_type(kinds: Sequence[str]) -> ir.FunctionType:
    """i32 (ptr gil_slot, i64 gx, i64 gy, i64 gz, one argument per operand)."""
    return ir.FunctionType(I32, [PTR, I64, I64, I64, *(ARGUMENT_TYPES[kind] for kind in kinds)])


def _declare(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, kind, name)


def _address(value: int) -> ir.Constant:
    return ir.Constant(I64, value).inttoptr(PTR)


class _Site:
    """State of one `emit_site`: the builder, the arrays on the stack, and the block where Python takes over."""

    def __init__(self, function: ir.Function, none: int) -> None:
        self.function = function
        self.none = none
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.slow = function.append_basic_block("slow")

    def at(self, array: ir.Value, index: int, kind: ir.Type = I64) -> ir.Value:
        return self.builder.gep(array, [ir.Constant(I64, index)], source_etype=kind)

    def require(self, condition: ir.Value) -> None:
        """Leave to Python unless the condition holds."""
        on = self.function.append_basic_block("on")
        self.builder.cbranch(condition, on, self.slow)
        self.builder.position_at_end(on)

    def classify(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        """The operand's class as an i8, its value stored in the slot."""
        return getattr(self, f"_{operand.kind}")(operand, value, slot, device_type)

    def _tensor(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        b = self.builder
        helper = _declare(self.function.module, "trident_launch_tensor", _TENSOR)
        code = b.call(helper, [value, ir.Constant(I32, device_type), slot])
        self.require(b.icmp_signed(">=", code, ir.Constant(I32, 0)))
        return b.trunc(code if operand.align else b.and_(code, ir.Constant(I32, ~1 & 0xFFFFFFFF)), I8)

    def _int(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        b = self.builder
        if operand.low > -(1 << 63):
            self.require(b.icmp_signed(">=", value, ir.Constant(I64, operand.low)))
        if operand.high < (1 << 63) - 1:
            self.require(b.icmp_signed("<=", value, ir.Constant(I64, operand.high)))
        code: ir.Value = ir.Constant(I8, 0)
        if operand.wide:
            same = b.icmp_signed("==", b.sext(b.trunc(value, I32), I64), value)
            code = b.select(same, ir.Constant(I8, 0), ir.Constant(I8, INT_WIDE))
        if operand.align:
            aligned = b.icmp_signed("==", b.and_(value, ir.Constant(I64, 15)), ir.Constant(I64, 0))
            code = b.or_(code, b.select(aligned, ir.Constant(I8, INT_ALIGNED), ir.Constant(I8, 0)))
        if operand.one:
            one = b.icmp_signed("==", value, ir.Constant(I64, 1))
            code = b.or_(code, b.select(one, ir.Constant(I8, INT_ONE), ir.Constant(I8, 0)))
        self._store_number(operand, b.sitofp(value, DOUBLE) if operand.store != "word" else value, slot)
        return code

    def _float(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        self._store_number(operand, value, slot)
        return ir.Constant(I8, 0)

    def _bool(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        b = self.builder
        self._store_number(operand, b.uitofp(value, DOUBLE) if operand.store != "word" else b.zext(value, I64), slot)
        return ir.Constant(I8, 0)

    def _object(self, operand: Operand, value: ir.Value, slot: ir.Value, device_type: int) -> ir.Value:
        b = self.builder
        self.require(b.icmp_unsigned("==", value, _address(self.none)))
        b.store(ir.Constant(I64, 0), slot)  # None for a pointer is a null pointer
        return ir.Constant(I8, 0)

    def _store_number(self, operand: Operand, value: ir.Value, slot: ir.Value) -> None:
        b = self.builder
        if operand.store == "fp32":
            value = b.fptrunc(value, FLOAT)
        elif operand.store == "bf16":  # truncated, as Triton's launchers do
            bits = b.bitcast(b.fptrunc(value, FLOAT), I32)
            value = b.trunc(b.lshr(bits, ir.Constant(I32, 16)), I16)
        b.store(value, slot)


def emit_site(
    module: ir.Module, name: str, kinds: Sequence[str], operands: Sequence[Operand] | None, state: int, target: str, none: int
) -> ir.Function:
    """Define the launch function of a site.

    operands: None where every launch has to go through Python. state: address of the site's state. target: of
    launch_layout.DEVICE_TYPES. none: address of None.
    """
    function = ir.Function(module, site_type(kinds), name)
    gil, *grid = function.args[:4]
    values = function.args[4:]
    site = _Site(function, none)
    b = site.builder
    count, words = max(len(kinds), 1), max((len(kinds) + 7) // 8, 1)
    raw, key_at = b.alloca(ir.ArrayType(I64, count), name="raw"), b.alloca(PTR, name="key.at")
    b.store(ir.Constant(PTR, None), key_at)
    if operands is None:
        b.branch(site.slow)
    else:
        slots, keys = b.alloca(ir.ArrayType(I64, count), name="slots"), b.alloca(ir.ArrayType(I64, words), name="keys")
        b.store(ir.Constant(I64, 0), site.at(keys, words - 1))
        for i, (operand, value) in enumerate(zip(operands, values, strict=True)):
            b.store(site.classify(operand, value, site.at(slots, i), DEVICE_TYPES[target]), site.at(keys, i, I8))
        go = _declare(module, f"trident_launch_{target}", _GO)
        result = b.call(go, [_address(state), gil, *grid, keys, slots])
        b.store(keys, key_at)
        site.require(b.icmp_unsigned("!=", result, ir.Constant(I32, MISS)))
        b.ret(b.zext(b.icmp_unsigned("!=", result, ir.Constant(I32, LAUNCHED)), I32))
    b.position_at_end(site.slow)
    for i, (kind, value) in enumerate(zip(kinds, values)):
        b.store(b.zext(value, I64) if kind == "bool" else value, site.at(raw, i))
    miss = _declare(module, "trident_launch_miss", _MISS)
    result = b.call(miss, [_address(state), gil, *grid, raw, b.load(key_at, typ=PTR)])
    b.ret(b.zext(b.icmp_unsigned("!=", result, ir.Constant(I32, LAUNCHED)), I32))
    return function


def emit_loop(module: ir.Module, name: str, site: ir.Function) -> ir.Function:
    """i32 (i64 count, <arguments of the site's function>): call it `count` times, stopping at the first failure."""
    function = ir.Function(module, ir.FunctionType(I32, [I64, *site.function_type.args]), name)
    entry, head, body, done, failed = (function.append_basic_block(n) for n in ("entry", "head", "body", "done", "failed"))
    b = ir.IRBuilder(entry)
    b.branch(head)
    b.position_at_end(head)
    index = b.phi(I64, name="index")
    index.add_incoming(ir.Constant(I64, 0), entry)
    b.cbranch(b.icmp_unsigned("<", index, function.args[0]), body, done)
    b.position_at_end(body)
    result = b.call(site, function.args[1:])
    index.add_incoming(b.add(index, ir.Constant(I64, 1)), body)
    b.cbranch(b.icmp_unsigned("==", result, ir.Constant(I32, 0)), head, failed)
    b.position_at_end(done)
    b.ret(ir.Constant(I32, 0))
    b.position_at_end(failed)
    b.ret(ir.Constant(I32, 1))
    return function
