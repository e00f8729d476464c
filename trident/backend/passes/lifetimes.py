"""Pass: a `trident.keep` that another use of its object makes needless is removed.

A later use keeps the object anyway. Right behind the op that made the object there is nothing to wait for: it dies there.

May import: torch_mlir, ir, passes.effects.
"""

from __future__ import annotations

from torch_mlir import ir as mlir

from trident.backend.passes.effects import reads
from trident.ir import Trace

KEEP = "trident.keep"


def remove_needless_keeps(trace: Trace) -> None:
    """Run the pass in place."""
    operations = [view.operation for view in trace.block.operations]
    if not any(op.name == KEEP for op in operations):
        return
    used: set[mlir.Value] = set()
    for op in reversed(operations):
        if op.name == KEEP and op.operands[0] in used:
            op.erase()
            continue
        for operand in op.operands:
            while operand not in used:
                used.add(operand)
                maker = operand.owner
                if not isinstance(maker, mlir.Operation) or maker.name != "trident.pack":
                    break
                operand = maker.operands[0]
    last: mlir.Operation | None = None  # the last op that does something
    for view in list(trace.block.operations):
        op = view.operation
        if op.name == KEEP:
            if last is not None and op.operands[0] in list(last.results):
                op.erase()
            else:
                last = None
        elif op.name != "trident.state" and reads(op.name) is None:
            last = op
