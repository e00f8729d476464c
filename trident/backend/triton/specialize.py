"""What of an argument Triton specializes a kernel on, told ahead of the launch, and how the argument reaches the kernel.

Owns the rules of Triton 3.6 to 3.9 (`JITFunction.create_binder`, `native_specialize_impl`, and the launchers' conversions). What
must hold: two launches whose operands have equal classes get the same specialization from Triton; a conversion on which a
launcher could raise, or on which the launchers of these versions differ, is not made natively (the operand's `low`/`high`
exclude it, or `operands_of` gives a reason and Python launches).

May import: triton, ir.trace, native.launch_layout.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

import torch

from trident.backend.native.launch_layout import INT_ONE, INT_WIDE, Operand
from trident.ir.trace import LaunchSite

# Ranges in which every launcher stores an int as it is, by the parameter's type.
INT_RANGES: Final[dict[str, tuple[int, int]]] = {
    "i1": (0, 1), "u1": (0, 1),
    "i8": (0, 127), "i16": (-(1 << 15), (1 << 15) - 1), "i32": (-(1 << 31), (1 << 31) - 1), "i64": (-(1 << 63), (1 << 63) - 1),
    "u8": (0, 255), "u16": (0, (1 << 16) - 1), "u32": (0, (1 << 32) - 1), "u64": (0, (1 << 63) - 1),
}
FLOAT_STORES: Final[dict[str, str]] = {"fp32": "fp32", "f32": "fp32", "fp64": "fp64"}
FLOATS: Final = (*FLOAT_STORES, "fp16", "bf16")  # narrow ones are rounded in more than one way
NULL: Final = (ctypes.c_uint64 * 1)(0)  # what a null pointer parameter points to


class Unsuitable(Exception):
    """Why a site or a launch stays with Python. The text is shown by `explain`."""


def _floats(kind: str, store: str) -> Operand:
    if store not in FLOAT_STORES:
        raise Unsuitable(f"a scalar of type {store} is converted by Triton only")
    return Operand(kind, store=FLOAT_STORES[store])


def _tensor(param: Any, annotated: str) -> Operand:
    if annotated and not annotated.startswith("*"):
        raise Unsuitable(f"a tensor for parameter {param.name}: {annotated}")
    return Operand("tensor", align=not (param.do_not_specialize or param.do_not_specialize_on_alignment))


def _int(param: Any, annotated: str) -> Operand:
    if annotated in FLOATS:
        return _floats("int", annotated)
    special = not param.do_not_specialize and annotated != "u1"
    one, align = special, special and not param.do_not_specialize_on_alignment
    if not annotated:
        return Operand("int", wide=True, one=one, align=align)
    if annotated.startswith("*"):
        return Operand("int", low=0, one=one, align=align)
    if annotated not in INT_RANGES:
        raise Unsuitable(f"an int for parameter {param.name}: {annotated}")
    low, high = INT_RANGES[annotated]
    return Operand("int", low=low, high=high, one=one, align=align)


def _float(param: Any, annotated: str) -> Operand:
    return _floats("float", annotated or "fp32")


def _bool(param: Any, annotated: str) -> Operand:
    if annotated in FLOATS:
        return _floats("bool", annotated)
    if annotated and annotated not in INT_RANGES:
        raise Unsuitable(f"a bool for parameter {param.name}: {annotated}")
    return Operand("bool")


def _object(param: Any, annotated: str) -> Operand:
    return Operand("object")  # None, or Python


_RULES: Final[dict[str, Callable[[Any, str], Operand]]] = {
    "tensor": _tensor, "int": _int, "float": _float, "bool": _bool, "object": _object,
}


def immutable(value: object) -> bool:
    """Whether a constant cannot change behind the site's back (a JITFunction can, and is guarded)."""
    from triton.language import constexpr, dtype
    from triton.runtime.jit import JITCallable

    if isinstance(value, constexpr):
        return immutable(value.value)
    if type(value) is tuple:
        return all(immutable(item) for item in value)
    plain = (type(None), bool, int, float, complex, str, bytes, type, Enum, dtype, torch.dtype, JITCallable)
    return isinstance(value, plain)


def operands_of(site: LaunchSite, kinds: Sequence[str]) -> tuple[Operand, ...]:
    """The rule of every run-time operand, in order. Unsuitable where this site cannot be launched natively."""
    params = {param.name: param for param in site.kernel.params}
    names = run_time_names(site)
    if len(names) != len(kinds):
        raise ValueError(f"{len(kinds)} operands for {len(names)} run-time parameters of {site.kernel}")
    if [param.name for param in site.params] != list(params):
        raise Unsuitable("not every parameter of the kernel is given")
    for what, value in [(p.name, p.value) for p in site.params if p.constexpr] + list(site.options):
        if not immutable(value):
            raise Unsuitable(f"{what} is a {type(value).__name__}, which can change")
    found = []
    for name, kind in zip(names, kinds):
        param = params[name]
        if param.is_constexpr:
            raise Unsuitable(f"constexpr parameter {name} is a run-time value")
        found.append(_RULES[kind](param, param.annotation_type))
    return tuple(found)


def run_time_names(site: LaunchSite) -> list[str]:
    """Names of the parameters that are operands."""
    return [param.name for param in site.params if not param.constexpr]


def expected_type(operand: Operand, annotated: str, code: int, given: str) -> bool:
    """Whether `given`, a type in the signature of the kernel that Triton chose, is what this operand's class leads to.

    This is the check of the rules above against Triton itself, made whenever a launch is about to be repeated natively.
    """
    if annotated:
        return given == annotated
    if operand.kind == "tensor":
        return given.startswith("*")
    if operand.kind == "int":
        if operand.one and code & INT_ONE:
            return given == "constexpr"
        return given == ("i64" if code & INT_WIDE else "i32")
    return given == {"float": "fp32", "bool": "u1", "object": "constexpr"}[operand.kind]


def pack_constant(value: object, given: str) -> bytes:
    """The 8 bytes of a parameter that has the same value at every launch of the site."""
    if given.startswith("*") and value is None:
        return bytes(8)
    if isinstance(value, (bool, int)) and (given in INT_RANGES or given.startswith("*")):
        low, high = INT_RANGES.get(given, (0, (1 << 63) - 1))
        if low <= value <= high:
            return struct.pack("<q", int(value))
    if isinstance(value, (bool, int, float)) and given in FLOAT_STORES:
        if FLOAT_STORES[given] == "fp64":
            return struct.pack("<d", value)
        single = ctypes.c_float(value)
        if math.isinf(single.value) == math.isinf(value):
            return bytes(single).ljust(8, b"\0")
    raise Unsuitable(f"a constant {type(value).__name__} for a parameter of type {given}")


def plan_of(
    site: LaunchSite, operands: Sequence[Operand], codes: bytes, signature: Mapping[str, object]
) -> tuple[list[int], list[Any]]:
    """Where each kernel parameter lies at a launch: byte offsets into the operand slots, or addresses; and what to keep alive.

    signature: types by parameter name, as Triton chose them; `constexpr` ones are not passed.
    """
    annotations = {param.name: param.annotation_type for param in site.kernel.params}
    plan: list[int] = []
    alive: list[Any] = []
    index = 0
    for param in site.params:
        given = signature[param.name]
        if not isinstance(given, str) or given.startswith("tensordesc") or given == "nvTmaDesc":
            raise Unsuitable(f"parameter {param.name} is a tuple or descriptor")
        if param.constexpr:
            if given != "constexpr":
                cell = ctypes.create_string_buffer(pack_constant(param.value, given), 8)
                alive.append(cell)
                plan.append(ctypes.addressof(cell))
            continue
        if not expected_type(operands[index], annotations[param.name], codes[index], given):
            raise Unsuitable(f"Triton gave parameter {param.name} the type {given}")
        if given != "constexpr":
            plan.append(8 * index)
        index += 1
    return plan, alive
