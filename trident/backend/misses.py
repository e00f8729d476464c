"""Why a root trace does not apply to a call: the first guard or pin of its entry region that fails, and what was seen instead.

Owns that answer. What must hold: it agrees with the native code, whose rules in plain Python it uses; it runs no code of the user's but
what a guard itself runs.

May import: ir, backend.reference.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any, Final

from torch_mlir import ir as mlir

from trident.backend.reference import GuardFailed, Run, execute
from trident.boundary import describe_error
from trident.ir import NULL, GuardInfo, Pin, PinKind, Trace
from trident.ir.describing import describe, type_name
from trident.ir.ops import COMPARISONS
from trident.ir.pins import type_lookup

_LONGEST: Final = 80
_CONSTANTS: Final = ("trident.constant", "torch.constant.")
_TYPES: Final = frozenset({"trident.type_is", "trident.int_fits"})
_COMPARED: Final = frozenset(f"trident.{name}" for name in (
    "is", "is_constant", "str_is", "device_is", *(f"{c}_{kind}" for c in COMPARISONS for kind in ("int", "float"))))


def first_failure(trace: Trace, args: tuple[object, ...]) -> tuple[GuardInfo, str] | None:
    """What fails, and the value seen there ("" where the condition says it all); None where the trace applies."""
    run = Run(trace, dict(zip(trace.block.arguments, args, strict=True)))
    for view in trace.block.operations:
        op = view.operation
        if op.name in ("trident.state", "func.return"):
            return None
        try:
            execute(run, op)
        except GuardFailed as failed:
            if failed.pin is not None:
                return failed.info, _of_pin(failed.pin)
            return failed.info, _of_guard(run, op) if op.name == "trident.guard" else ""
        except Exception as e:
            return GuardInfo(describe_error(e), "error", "", 0), ""
    return None


def _of_guard(run: Run, guard: mlir.Operation) -> str:
    condition: Any = guard.operands[0].owner
    if not isinstance(condition, mlir.Operation):
        condition = getattr(condition, "operation", None)
    if condition is None:
        return ""
    values = [run.env[operand] for operand in condition.operands if not _is_constant(operand)]
    if condition.name in _TYPES and values:
        return type_name(type(values[0])) + (" beyond int64" if type(values[0]) is int else "")
    if condition.name in _COMPARED:
        return " and ".join(map(_short, values))
    return ""


def _is_constant(value: mlir.Value) -> bool:
    owner: Any = value.owner
    return str(getattr(owner, "name", "")).startswith(_CONSTANTS)


def _of_pin(pin: Pin) -> str:
    seen = _SEEN.get(pin.kind)
    try:
        return "" if seen is None else _short(seen(pin))
    except Exception:  # the owner is no more what it was
        return ""


def _contents(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return NULL


def _parts(pin: Pin) -> object:
    function: FunctionType = pin.owner
    names = ("__code__", "__defaults__", "__kwdefaults__")
    return next((getattr(function, name) for name, known in zip(names, pin.expected, strict=True)
                 if getattr(function, name) is not known), NULL)


def _difference(now: tuple[object, ...], known: tuple[object, ...]) -> object:
    """The first item that is another one, or how many there are."""
    if len(now) != len(known):
        return _Text(f"{len(now)} instead of {len(known)}")
    return next((_Text(f"{_short(a)} instead of {_short(b)}") for a, b in zip(now, known, strict=True) if a is not b), NULL)


class _Text(str):
    """What is to be said as it stands."""

    __slots__ = ()


_SEEN: Final[dict[PinKind, Callable[[Pin], object]]] = {
    PinKind.DICT: lambda pin: dict.get(pin.owner, pin.key, NULL),
    PinKind.TYPE: lambda pin: type_lookup(pin.owner, pin.key),
    PinKind.CELL: lambda pin: _contents(pin.owner),
    PinKind.FUNCTION: _parts,
    PinKind.LIST: lambda pin: _difference(tuple(list.__iter__(pin.owner)), pin.expected),
    PinKind.DICT_KEYS: lambda pin: _difference(tuple(part for item in dict.items(pin.owner) for part in item), pin.expected),
    PinKind.ORDER: lambda pin: _difference(tuple(pin.owner), pin.expected),
    PinKind.EMPTY: lambda pin: _Text(f"{len(pin.owner)} items"),
}


def _short(obj: object) -> str:
    text = "absent" if obj is NULL else str(obj) if type(obj) is _Text else describe(obj)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
