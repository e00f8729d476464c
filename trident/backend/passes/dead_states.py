"""Pass: a state that nothing leaves through is removed, and with it the last uses that kept its operands alive.

May import: torch_mlir, ir.
"""

from __future__ import annotations

from torch_mlir import ir as mlir

from trident.ir import Trace
from trident.ir.ops import may_leave


def remove_dead_states(trace: Trace) -> None:
    """Run the pass in place. The first state of a trace stays: it ends the entry region."""
    pending: mlir.Operation | None = None
    first = True
    for view in list(trace.block.operations):
        op = view.operation
        if op.name == "trident.state":
            if pending is not None:
                pending.erase()
            pending, first = (None if first else op), False
        elif may_leave(op.name):
            pending = None
    if pending is not None:
        pending.erase()
