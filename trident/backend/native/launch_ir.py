"""Builds the functions that launch kernels: one per shape of operands, shared by all sites of that shape.

Owns `emit_shape`, and around it `emit_site` (one site's function for a host program) and `emit_loop` (a benchmark's loop). What
must hold: the function classifies its operands exactly as the `Operand`s say, into one byte each of the key; whatever it cannot
classify goes to Python. Its result is 0, or 1 with a Python exception set and the GIL held.

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
# (state, gil slot, grid x, y, z, keys, slots) of a target; with (…, raw operands, keys) of the way to Python.
_GO: Final = ir.FunctionType(I32, [PTR, PTR, I64, I64, I64, PTR, PTR])
_TENSOR: Final = ir.FunctionType(I32, [PTR, I32, PTR])


def site_type(kinds: Sequence[str]) -> ir.FunctionType:
    """i32 (ptr gil_slot, i64 gx, i64 gy, i64 gz, one argument per operand)."""
    return ir.FunctionType(I32, [PTR, I64, I64, I64, *(ARGUMENT_TYPES[kind] for kind in kinds)])


def shape_type(kinds: Sequence[str]) -> ir.FunctionType:
    """The same behind the site's state."""
    return ir.FunctionType(I32, [PTR, *site_type(kinds).args])


def new_module(name: str) -> ir.Module:
    """An empty module, for callers that may not import llvmlite."""
    return ir.Module(name)


def _declare(module: ir.Module, name: str, kind: ir.FunctionType) -> ir.Function:
    found = module.globals.get(name)
    return found if found is not None else ir.Function(module, kind, name)


def _address(value: int) -> ir.Constant:
    return ir.Constant(I64, value).inttoptr(PTR)


class _Shape:
    """State of one `emit_shape`: the builder, the arrays on the stack, and the block where Python takes over.

    device: the device type that tensors must have, as an i32; None before the first tensor where any will do.
    """

    def __init__(self, function: ir.Function, none: int, device: ir.Value | None) -> None:
        self.function = function
        self.none = none
        self.device = device
        self.builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.slow = function.append_basic_block("slow")

    def space(self, words: int, name: str) -> ir.Value:
        """8-byte words on the stack, at an opaque pointer."""
        slot = self.builder.alloca(ir.ArrayType(I64, max(words, 1)), name=name)
        slot.type = PTR
        return slot

    def at(self, array: ir.Value, index: int, kind: ir.Type = I64) -> ir.Value:
        return self.builder.gep(array, [ir.Constant(I64, index)], source_etype=kind)

    def require(self, condition: ir.Value) -> None:
        """Leave to Python unless the condition holds."""
        on = self.function.append_basic_block("on")
        self.builder.cbranch(condition, on, self.slow)
        self.builder.position_at_end(on)

    def classify(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
        """The operand's class as an i8, its value stored in the slot."""
        return getattr(self, f"_{operand.kind}")(operand, value, slot)

    def _tensor(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
        b = self.builder
        helper = _declare(self.function.module, "trident_launch_tensor", _TENSOR)
        wanted = ir.Constant(I32, -1) if self.device is None else self.device
        code = b.call(helper, [value, wanted, slot])
        self.require(b.icmp_signed(">=", code, ir.Constant(I32, 0)))
        if self.device is None:
            self.device = b.lshr(code, ir.Constant(I32, 16))
        return b.trunc(code if operand.align else b.and_(code, ir.Constant(I32, 0xFFFE)), I8)

    def _int(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
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

    def _float(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
        self._store_number(operand, value, slot)
        return ir.Constant(I8, 0)

    def _bool(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
        b = self.builder
        self._store_number(operand, b.uitofp(value, DOUBLE) if operand.store != "word" else b.zext(value, I64), slot)
        return ir.Constant(I8, 0)

    def _object(self, operand: Operand, value: ir.Value, slot: ir.Value) -> ir.Value:
        b = self.builder
        self.require(b.icmp_unsigned("==", value, _address(self.none)))
        b.store(ir.Constant(I64, 0), slot)  # None for a pointer is a null pointer
        return ir.Constant(I8, 0)

    def _store_number(self, operand: Operand, value: ir.Value, slot: ir.Value) -> None:
        b = self.builder
        if operand.store == "fp32":
            single = b.fptrunc(value, FLOAT)
            # What does not fit becomes infinite on CUDA and is an error on the CPU: that is for Python.
            finite = [b.fcmp_unordered("!=", single, ir.Constant(FLOAT, sign * float("inf"))) for sign in (1, -1)]
            infinite = [b.fcmp_ordered("==", value, ir.Constant(DOUBLE, sign * float("inf"))) for sign in (1, -1)]
            self.require(b.or_(b.and_(*finite), b.or_(*infinite)))
            value = single
        b.store(value, slot)


def emit_shape(module: ir.Module, name: str, kinds: Sequence[str], operands: Sequence[Operand] | None, targets: Sequence[str],
               none: int) -> ir.Function:
    """Define the launch function of all sites with these operands.

    operands: None where every launch has to go through Python. targets: of launch_layout.DEVICE_TYPES; the tensors' device
    decides among several, and without tensors there must be one. none: address of None.
    """
    function = ir.Function(module, shape_type(kinds), name)
    state, gil, *grid = function.args[:5]
    values = function.args[5:]
    shape = _Shape(function, none, ir.Constant(I32, DEVICE_TYPES[targets[0]]) if len(targets) == 1 else None)
    b = shape.builder
    raw, key_at = shape.space(len(kinds), "raw"), shape.space(1, "key.at")
    b.store(ir.Constant(PTR, None), key_at)
    if operands is None:
        b.branch(shape.slow)
    else:
        words = (len(kinds) + 7) // 8
        slots, keys = shape.space(len(kinds), "slots"), shape.space(words, "keys")
        b.store(ir.Constant(I64, 0), shape.at(keys, max(words, 1) - 1))  # the last word may be filled in part only
        for i, (operand, value) in enumerate(zip(operands, values, strict=True)):
            b.store(shape.classify(operand, value, shape.at(slots, i)), shape.at(keys, i, I8))
        result = _dispatch(shape, targets, [state, gil, *grid, keys, slots])
        b.store(keys, key_at)
        shape.require(b.icmp_unsigned("!=", result, ir.Constant(I32, MISS)))
        b.ret(b.zext(b.icmp_unsigned("!=", result, ir.Constant(I32, LAUNCHED)), I32))
    b.position_at_end(shape.slow)
    for i, (kind, value) in enumerate(zip(kinds, values)):
        b.store(b.zext(value, I64) if kind == "bool" else value, shape.at(raw, i))
    miss = _declare(module, "trident_launch_miss", _GO)
    result = b.call(miss, [state, gil, *grid, raw, b.load(key_at, typ=PTR)])
    b.ret(b.zext(b.icmp_unsigned("!=", result, ir.Constant(I32, LAUNCHED)), I32))
    return function


def _dispatch(shape: _Shape, targets: Sequence[str], arguments: Sequence[ir.Value]) -> ir.Value:
    """Call the target that the tensors' device stands for."""
    b = shape.builder
    if len(targets) == 1:
        return b.call(_declare(shape.function.module, f"trident_launch_{targets[0]}", _GO), arguments)
    if shape.device is None:
        raise ValueError("without a tensor there must be one target")
    done = ir.Block(shape.function, "launched")
    switch = b.switch(shape.device, shape.slow)
    results = []
    for target in targets:
        block = shape.function.append_basic_block(target)
        switch.add_case(ir.Constant(I32, DEVICE_TYPES[target]), block)
        b.position_at_end(block)
        results.append((b.call(_declare(shape.function.module, f"trident_launch_{target}", _GO), arguments), block))
        b.branch(done)
    shape.function.blocks.append(done)
    b.position_at_end(done)
    result = b.phi(I32)
    for value, block in results:
        result.add_incoming(value, block)
    return result


def emit_site(module: ir.Module, name: str, kinds: Sequence[str], shape: str, state: int) -> ir.Function:
    """Define the launch function of one site: the symbol `shape` with the address of the site's state."""
    function = ir.Function(module, site_type(kinds), name)
    b = ir.IRBuilder(function.append_basic_block("entry"))
    b.ret(b.call(_declare(module, shape, shape_type(kinds)), [_address(state), *function.args]))
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
