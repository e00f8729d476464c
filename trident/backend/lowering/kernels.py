"""Lowering of kernel launches: a call of the function that the launch emitter wrote for the site.

Owns the rule of `trident.launch` and the hook for the emitter. What must hold: without an emitter a trace with launches is refused.

May import: lowering.*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op

LaunchEmitter = Callable[[Any, Any, list[str]], Any]
"""(llvmlite module, LaunchSite, kinds of the run-time operands) -> an llvmlite function
`i32 (ptr gil_slot, i64 gx, i64 gy, i64 gz, operands…)`: 0, or 1 with a Python exception set and the GIL held."""

_ARGUMENTS = {"tensor": "ptr", "int": "i64", "float": "double", "bool": "i1", "object": "ptr"}
_emitter: list[LaunchEmitter] = []


def set_launch_emitter(emitter: LaunchEmitter) -> None:
    """Plug in the launch emitter."""
    _emitter[:] = [emitter]


def _emit(f: Function, site: Any, kinds: list[str]) -> str:
    if not _emitter:
        try:
            from trident.backend.lowering.launches import emit_launch
        except ImportError:
            raise LoweringError("this build cannot launch kernels") from None
        set_launch_emitter(emit_launch)
    return f.launches.add(lambda module: _emitter[0](module, site, kinds))


@rule("trident.launch", leaves=True)
def launch(f: Function, op: Op) -> None:
    if f.state < 0:
        raise LoweringError("a kernel launch before the first trident.state")
    site = f.trace.launches[op.integer("site")]
    operands = [operand.inner() for operand in op.operands]
    grid, rest = operands[:3], operands[3:]
    kinds = []
    for value in rest:
        kind = "tensor" if value.kind == "tensor" else value.kind
        if kind not in _ARGUMENTS:
            raise LoweringError(f"a launch cannot take {value!r}")
        kinds.append(kind)
    name = _emit(f, site, kinds)
    f.drop_gil()
    arguments = ["ptr %gil", *(f"i64 {f.scalar(value)}" for value in grid)]
    for value, kind in zip(rest, kinds, strict=True):
        text = f.tensor(value) if kind == "tensor" else f.object(value) if kind == "object" else f.scalar(value)
        arguments.append(f"{_ARGUMENTS[kind]} {text}")
    failed = f.call(name, "i32", *arguments)
    f.leave_if(f.value(f"icmp ne i32 {failed}, 0"), f.site("a kernel launch", is_raise=True), RAISE)
