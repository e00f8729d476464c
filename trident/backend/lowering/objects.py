"""Lowering of constants, facts about objects, boxing and unboxing, and the return.

Owns these rules. What must hold: `box` of an unboxed tensor is the very object it came from.

May import: ir, lowering.*, native.frame, native.pin_layout, native.runtime.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import dict_runtime, pin_layout, runtime, torch_layouts
from trident.backend.native.frame import SlotKind


@rule("torch.constant.int")
def constant_int(f: Function, op: Op) -> None:
    op.results[0].set_const(op.integer("value"))


@rule("torch.constant.float")
def constant_float(f: Function, op: Op) -> None:
    op.results[0].set_const(op.number("value"))


@rule("torch.constant.bool")
def constant_bool(f: Function, op: Op) -> None:
    op.results[0].set_const(op.flag("value"))


@rule("torch.constant.str")
def constant_str(f: Function, op: Op) -> None:
    op.results[0].set_const(op.text("value"))


@rule("torch.constant.none")
def constant_none(f: Function, op: Op) -> None:
    op.results[0].set_const(None)


@rule("torch.constant.device")
def constant_device(f: Function, op: Op) -> None:
    op.results[0].set_const(torch.device(op.text("value")))


@rule("trident.constant")
def constant(f: Function, op: Op) -> None:
    op.results[0].set_object(id(f.trace.constants[op.integer("index")]))


@rule("trident.pack", anchored=True)
def pack(f: Function, op: Op) -> None:
    op.results[0].same_as(op.operands[0])


@rule("torch.prim.ListConstruct", anchored=True)
def list_construct(f: Function, op: Op) -> None:
    op.results[0].place, op.results[0].items = Place.ITEMS, op.operands


@rule("func.return")
def leave(f: Function, op: Op) -> None:
    value = op.operands[0]
    f.need_gil()
    reg = f.object(value)
    if value.owned:
        f.line(f"store ptr null, ptr {f.slot_address(value.index)}")
        f.give_up(value)
    else:
        f.call("Py_IncRef", "void", f"ptr {reg}")
    for operand in value.anchors:
        if operand.owned:
            raise LoweringError("the result borrows from a value that the program owns")
    if f.warns:
        f.call("trident_warnings_end", "void", "ptr %frame")
    f.line(f"ret ptr {reg}")


# ------------------------------------------------------------------------------------------------------ facts about objects


def _is(f: Function, op: Op, left: str, right: str) -> None:
    f.define(op.results[0], f.value(f"icmp eq ptr {left}, {right}"))


@rule("trident.type_is")
def type_is(f: Function, op: Op) -> None:
    kind = f.load(f.object(op.operands[0]), pin_layout.OB_TYPE)
    _is(f, op, kind, f.pointer(id(f.trace.constants[op.integer("index")])))


@rule("trident.is")
def same(f: Function, op: Op) -> None:
    _is(f, op, f.object(op.operands[0]), f.object(op.operands[1]))


@rule("trident.is_constant")
def is_constant(f: Function, op: Op) -> None:
    _is(f, op, f.object(op.operands[0]), f.pointer(id(f.trace.constants[op.integer("index")])))


@rule("trident.str_is")
def str_is(f: Function, op: Op) -> None:
    """Mostly it is the very object."""
    expected = f.pointer(id(f.trace.constants[op.integer("index")]))
    f.need_gil()
    dict_runtime.load()
    f.define(op.results[0], f.call(dict_runtime.STR_IS, "i1", f"ptr {f.object(op.operands[0])}", f"ptr {expected}"))


@rule("trident.device_is")
def device_is(f: Function, op: Op) -> None:
    torch_layouts.check_device_object()
    expected = ctypes.c_int16.from_address(id(f.trace.constants[op.integer("index")]) + torch_layouts.DEVICE_PAYLOAD).value
    held = f.load(f.object(op.operands[0]), torch_layouts.DEVICE_PAYLOAD, "i16")
    f.define(op.results[0], f.value(f"icmp eq i16 {held}, {expected}"))


@rule("trident.int_fits")
def int_fits(f: Function, op: Op) -> None:
    f.define(op.results[0], f.call("trident_int_fits", "i1", f"ptr {f.object(op.operands[0])}"))


# ------------------------------------------------------------------------------------------------------------------ unboxing


@rule("trident.unbox_tensor", anchored=True)
def unbox_tensor(f: Function, op: Op) -> None:
    op.results[0].place, op.results[0].const = Place.BOXED, op.operands[0]


@rule("trident.unbox_int")
def unbox_int(f: Function, op: Op) -> None:
    f.define(op.results[0], f.call("trident_unbox_int", "i64", f"ptr {f.object(op.operands[0])}"))


@rule("trident.unbox_float")
def unbox_float(f: Function, op: Op) -> None:
    f.define(op.results[0], f.load(f.object(op.operands[0]), pin_layout.FLOAT_VALUE, "double"))


@rule("trident.unbox_bool")
def unbox_bool(f: Function, op: Op) -> None:
    f.define(op.results[0], f.value(f"icmp eq ptr {f.object(op.operands[0])}, {f.extern('_Py_TrueStruct')}"))


# -------------------------------------------------------------------------------------------------------------------- boxing


def constant_object(f: Function, value: Any) -> int:
    """Address of the Python object of a compile-time constant, kept alive by the program."""
    f.keep.append(value)
    return id(value)


def new_object(f: Function, value: Value, op: Op) -> tuple[str, bool]:
    """The Python object of any value, and whether it is a new reference. The GIL must be held."""
    value = value.inner()
    if value.kind == "object":
        return f.object(value), False
    if value.place is Place.CONST:
        return f.pointer(constant_object(f, value.const)), False
    if value.place is Place.BOXED:
        return f.object(value.const), False
    match value.kind:
        case "tensor":
            return _wrap(f, value, op), True
        case "int":
            reg = f.call("PyLong_FromLongLong", "ptr", f"i64 {f.scalar(value)}")
        case "float":
            reg = f.call("PyFloat_FromDouble", "ptr", f"double {f.scalar(value)}")
        case "bool":
            true, false = f.extern("_Py_TrueStruct"), f.extern("_Py_FalseStruct")
            return f.value(f"select i1 {f.scalar(value)}, ptr {true}, ptr {false}"), False
        case _:
            raise LoweringError(f"cannot make a Python object of {value!r}")
    f.raise_if_null(reg, op)
    return reg, True


def _wrap(f: Function, value: Value, op: Op) -> str:
    moves = value.owned and value.last <= op.index and not value.stated
    site = f.site(op.name, is_raise=True)
    address = f.tensor(value)
    reg = f.may_throw(runtime.WRAP_MOVE if moves else runtime.WRAP, "ptr", [f"ptr {address}"], site, "ptr")
    if moves:
        f.line(f"store ptr null, ptr {address}")
        f.give_up(value)
    failed = f.value(f"icmp eq ptr {reg}, null")
    f.leave_if(failed, site, RAISE)
    return reg


@rule("trident.box", leaves=True)
def box(f: Function, op: Op) -> None:
    value, result = op.operands[0], op.results[0]
    if value.place is Place.BOXED:
        result.same_as(value.const)
        return
    if value.kind == "object":
        raise LoweringError("box of an object")
    if value.place is Place.CONST:
        result.set_object(constant_object(f, value.const))
        return
    f.need_gil()
    reg, fresh = new_object(f, value, op)
    if fresh:
        f.own_object(result, reg)
    else:
        f.borrow_object(result, reg)


__all__ = ["SlotKind", "new_object"]
