"""The `trident` MLIR dialect, made from the op table through IRDL, in one process-wide context.

Owns the MLIR context. What must hold: effects attached to the ops are those of the table, so that MLIR's own passes are safe.

May import: torch_mlir, ir.ops.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType
from typing import Any

from torch_mlir import ir
from torch_mlir._mlir_libs._torchMlir import register_dialect
from torch_mlir.dialects import irdl

from trident.ir.ops import ALLOCATING, OPS, TYPES, Effect, OpSpec


class _Pure(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: ir.Operation, effects: object) -> None:
        """No effects at all."""


class _Read(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: ir.Operation, effects: list[ir.MemoryEffect]) -> None:
        effects.append(ir.MemoryEffect.Read)


class _Allocate(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: ir.Operation, effects: list[ir.MemoryEffect]) -> None:
        """Makes an object: two are never one, though their operands are equal."""
        effects.append(ir.MemoryEffect.Allocate)


class _Write(ir.MemoryEffectsOpInterface):
    @staticmethod
    def get_effects(op: ir.Operation, effects: list[ir.MemoryEffect]) -> None:
        effects.append(ir.MemoryEffect.Write)


def _irdl_operation(op: OpSpec) -> str:
    """IRDL text of one row."""
    lines: list[str] = []

    def group(kinds: tuple[str, ...], prefix: str) -> str:
        parts = []
        for n, kind in enumerate(kinds):
            variadic = kind.endswith("*")
            base = kind.rstrip("s*") if variadic else kind
            constraint = "irdl.any" if base == "any" else f"irdl.is {TYPES[base]}"
            if base in ("object", "value"):
                constraint = f"irdl.base @trident::@{base}"
            lines.append(f"%{prefix}{n} = {constraint}")
            parts.append(f"{prefix}{n}: {'variadic ' if variadic else ''}%{prefix}{n}")
        return ", ".join(parts)

    operands, results = group(op.operands, "o"), group(op.results, "r")
    lines.append(f"irdl.operands({operands})")
    lines.append(f"irdl.results({results})")
    if op.attrs:
        lines += [f"%a{n} = irdl.any" for n in range(len(op.attrs))]
        lines.append("irdl.attributes { " + ", ".join(f'"{a}" = %a{n}' for n, a in enumerate(op.attrs)) + " }")
    return f"irdl.operation @{op.name} {{\n  " + "\n  ".join(lines) + "\n}"


def irdl_text() -> str:
    """The whole dialect as IRDL."""
    body = "\n".join(_irdl_operation(op) for op in OPS)
    return f"irdl.dialect @trident {{\nirdl.type @object\nirdl.type @value\n{body}\n}}"


def _meet_without_op_classes() -> None:
    """The bindings look for a Python module of every dialect when they first meet one of its operations, and remember only a find.
    That of the torch dialect has a class for each of its operations, which takes longer to import than a function takes to
    compile, and nobody here uses them. So they find an empty module; whoever imports the true one later has it."""
    name = "torch_mlir.dialects.torch"
    missing = name not in sys.modules
    if missing:
        sys.modules[name] = ModuleType(name)
    try:
        ir.Operation.create("torch.constant.none", results=[ir.Type.parse("!torch.none")])
    finally:
        if missing:
            del sys.modules[name]


@cache
def context() -> ir.Context:
    """The context that all traces live in, with the torch, func and trident dialects loaded."""
    sys.modules.setdefault("torch_mlir.dialects.trident", ModuleType("torch_mlir.dialects.trident"))
    ctx = ir.Context()
    register_dialect(ctx)
    with ctx, ir.Location.unknown():
        _meet_without_op_classes()
        irdl.load_dialects(ir.Module.parse(irdl_text()))
        interfaces: dict[Effect, Any] = {Effect.PURE: _Pure, Effect.READ: _Read, Effect.WRITE: _Write}
        for op in OPS:
            # A guard has no result: MLIR would delete one that only reads, and an interface-free op is never touched. Neither is
            # an op that exits: that exit may be an exception of the user's program, though nobody uses the result.
            if op.name in ALLOCATING:
                _Allocate.attach(f"trident.{op.name}")
            elif op.effect in interfaces and op.results and not op.may_exit:
                interfaces[op.effect].attach(f"trident.{op.name}")
            elif op.effect is Effect.WRITE:
                _Write.attach(f"trident.{op.name}")
    return ctx


@cache
def type_of(kind: str) -> ir.Type:
    """The MLIR type of a key of `ops.TYPES`."""
    with context():
        return ir.Type.parse(TYPES[kind])


def kind_of(value: ir.Value) -> str:
    """The key of `ops.TYPES` of an SSA value; `none`, `str`, `device`, `list` or `other` for torch types outside it."""
    kind = _kind_of_type.get(value.type)
    if kind is None:
        text = str(value.type)  # slow: a type is printed once
        kind = _kind_of_type[value.type] = _KINDS.get(text) or _other_kind(text)
    return kind


_KINDS = {text: kind for kind, text in TYPES.items()}
_kind_of_type: dict[ir.Type, str] = {}


def _other_kind(text: str) -> str:
    if text.startswith("!torch.list<"):
        return "list"
    return {"!torch.none": "none", "!torch.str": "str", "!torch.Device": "device", "!torch.Generator": "generator"}.get(text, "other")
