"""Lowers one trace: reads it, applies the rule of each op, and gives the text with the tables that the program needs.

Owns `lower`. What must hold: rules are applied in program order.

May import: ir, lowering.*, native.runtime, native.torch_layouts.
"""

from __future__ import annotations

# Importing the families registers their rules.
from trident.backend.lowering import arithmetic, aten, exceptions, guards, kernels, loops, metadata, objects, python, replay  # noqa: F401
from trident.backend.lowering.analysis import read
from trident.backend.lowering.function import Function
from trident.backend.lowering.rules import rule_of
from trident.backend.lowering.values import Place
from trident.backend.native import keys, runtime, torch_layouts
from trident.ir.trace import Trace


def lower(trace: Trace) -> Function:
    """The lowered trace; LoweringError where native code cannot be made for it."""
    runtime.load()
    keys.note_devices()
    f = Function(trace, torch_layouts.current().tensor)
    arguments, f.ops = read(trace)
    for index, argument in enumerate(arguments):
        if trace.parent is None:
            argument.place, argument.index, argument.steady = Place.ARG, index, True
        else:  # a bridge takes its arguments over, and lets go of each in time
            f.own_object(argument, f.load("%args", 8 * index))
            f.store("ptr", "null", "%args", 8 * index)
    for op in f.ops:
        if f.pending_pins and not guards.passes_pins(f, op.name):
            guards.flush_pins(f)
        rule_of(op.name).emit(f, op)
        f.finish(op)
    return f
