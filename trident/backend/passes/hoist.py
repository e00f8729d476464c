"""Pass: guards of a root trace that depend only on its arguments move into the entry region.

There a failing guard is a miss (another specialization is tried, or a new one recorded) and needs no snapshot. A guard can
move when everything it depends on is computable before the first `trident.state`: pure ops of arguments, and reads of state
that nothing before them has changed.

May import: torch_mlir, ir, passes.effects.
"""

from __future__ import annotations

from torch_mlir import ir as mlir

from trident.backend.passes.effects import State, clobbers, reads
from trident.ir import Trace

_LEAVING = ("trident.guard", "trident.pin")


class _Hoister:
    """Walks the block once, remembering which ops could run at entry."""

    def __init__(self, first_state: mlir.Operation, arguments: list[mlir.Value]) -> None:
        self.first_state = first_state
        self.entry: set[mlir.Value] = set(arguments)  # computed in the entry region
        self.movable: dict[mlir.Value, mlir.Operation] = {}  # result -> op that could be moved there
        self.clobbered = State.NONE

    def see_entry(self, op: mlir.Operation) -> None:
        self.entry.update(op.results)

    def see(self, op: mlir.Operation) -> None:
        depends = reads(op.name)
        if depends is None:
            self.clobbered |= clobbers(op)
            return
        if depends & self.clobbered or not all(v in self.entry or v in self.movable for v in op.operands):
            return
        if op.name in _LEAVING:
            self.move(op)
        else:
            for result in op.results:
                self.movable[result] = op

    def move(self, op: mlir.Operation) -> None:
        """Move an op and what it needs to the end of the entry region."""
        for operand in op.operands:
            if operand not in self.entry:
                self.move(self.movable[operand])
        op.move_before(self.first_state)
        for result in op.results:
            self.entry.add(result)
            self.movable.pop(result, None)


def hoist_guards(trace: Trace) -> None:
    """Run the pass in place; bridges have no entry region and are left alone."""
    if trace.parent is not None:
        return
    operations = [view.operation for view in trace.block.operations]
    first = next((n for n, op in enumerate(operations) if op.name == "trident.state"), None)
    if first is None:
        return
    hoister = _Hoister(operations[first], list(trace.block.arguments))
    for op in operations[:first]:
        hoister.see_entry(op)
    for op in operations[first + 1 :]:
        hoister.see(op)
