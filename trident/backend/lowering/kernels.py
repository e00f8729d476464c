"""Lowering of kernel launches: a call of the native launch of the site.

Owns the rule of `trident.launch`. What must hold: the state of a launch is kept until the program's code is unmapped.

May import: lowering.*.
"""

from __future__ import annotations

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op

_KINDS = frozenset({"tensor", "int", "float", "bool", "object"})


@rule("trident.launch", leaves=True)
def launch(f: Function, op: Op) -> None:
    from trident.backend.lowering.launches import launch_of

    if f.state < 0:
        raise LoweringError("a kernel launch before the first trident.state")
    operands = [operand.inner() for operand in op.operands]
    grid, rest = operands[:3], operands[3:]
    for value in rest:
        if value.kind not in _KINDS:
            raise LoweringError(f"a launch cannot take {value!r}")
    native = launch_of(f.trace.launches[op.integer("site")], [value.kind for value in rest])
    f.launches.append(native.state)
    f.declarations.setdefault(native.symbol, native.declaration)
    f.drop_gil()
    read = {"tensor": f.tensor, "object": f.object}
    arguments = [read.get(value.kind, f.scalar)(value) for value in rest]
    failed = f.value(native.call("%gil", [f.scalar(value) for value in grid], arguments))
    f.leave_if(f.value(f"icmp ne i32 {failed}, 0"), f.site("a kernel launch", is_raise=True), RAISE)
