"""Pass: a read that an earlier one still answers, and a guard that an earlier one still implies, are removed.

MLIR's CSE merges pure ops; this pass adds what only Trident knows: which effects leave a read's answer alone, and that a guard
passed once holds as long as its condition is the same SSA value.

May import: torch_mlir, ir, passes.effects.
"""

from __future__ import annotations

from torch_mlir import ir as mlir

from trident.backend.passes.effects import State, clobbers, reads
from trident.ir import Trace


def _key(op: mlir.Operation) -> tuple[object, ...]:
    attributes = tuple((name, str(op.attributes[name])) for name in op.attributes)
    return (op.name, attributes, *op.operands)


def deduplicate(trace: Trace) -> None:
    """Run the pass in place."""
    known: dict[State, dict[tuple[object, ...], mlir.Operation]] = {}
    passed: set[tuple[mlir.Value, bool]] = set()
    for view in list(trace.block.operations):
        op = view.operation
        name = op.name
        if name == "trident.guard":
            key = (op.operands[0], mlir.BoolAttr(op.attributes["expected"]).value)
            if key in passed:
                op.erase()
            else:
                passed.add(key)
            continue
        depends = reads(name)
        if depends is None or name == "trident.pack":
            changed = clobbers(op)
            for state in [state for state in known if state & changed]:
                del known[state]
            continue
        if depends is State.NONE:
            continue  # MLIR's CSE has merged these
        answers = known.setdefault(depends, {})
        earlier = answers.setdefault(_key(op), op)
        if earlier is not op:
            for mine, theirs in zip(op.results, earlier.results, strict=True):
                mine.replace_all_uses_with(theirs)
            op.erase()
