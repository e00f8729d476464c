"""Locals, cells, constants and the operand stack.

May import: frontend.*, ir.
"""

from __future__ import annotations

import types
from contextlib import suppress
from typing import TYPE_CHECKING

from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.handlers.build import ordered_pairs
from trident.frontend.heap import CELL_KEY
from trident.frontend.subscripts import reaches
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


@handles("NOP", "RESUME", "CACHE")
def nothing(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """No operation."""


@handles("POP_TOP")
def pop_top(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Drop the top."""
    rec.drop(frame.stack.pop())


@handles("PUSH_NULL")
def push_null(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push NULL."""
    frame.stack.append(NULL)


@handles("SWAP")
def swap(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Exchange the top with the entry `arg` deep."""
    stack = frame.stack
    stack[-1], stack[-ins.arg] = stack[-ins.arg], stack[-1]


@handles("COPY")
def copy(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push the entry `arg` deep once more."""
    frame.stack.append(frame.stack[-ins.arg])


@handles("LOAD_CONST")
def load_const(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push a constant of the code object."""
    value = ins.data
    if value is None:
        value = ins.data = Const(frame.code.code.co_consts[ins.arg])
    frame.stack.append(value)


@handles("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_CLOSURE")
def load_fast(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push a local, or the cell in its place."""
    value = frame.locals[ins.arg]
    if value is NULL:
        raise Leave("raised", f"local variable {frame.code.names[ins.arg]} is not set")
    if value is rec.own_keywords and rec.in_entry:
        value = _own_keywords(rec, frame, ins.arg)
    frame.stack.append(value)


def _own_keywords(rec: Recorder, frame: RecordedFrame, slot: int) -> Entry:
    """The outermost frame's **kwargs, which it is going to change: made anew for each call, so that nobody else sees the changes."""
    value, rec.own_keywords = frame.locals[slot], None
    assert type(value) is Traced
    pairs = ordered_pairs(rec, value)
    if pairs is not None:
        frame.locals[slot] = rec.virtual_dict([key for key, _ in pairs], [item for _, item in pairs])
    return frame.locals[slot]


@handles("LOAD_FAST_AND_CLEAR")
def load_fast_and_clear(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push a local (or NULL) and unset it."""
    frame.stack.append(frame.locals[ins.arg])
    frame.locals[ins.arg] = NULL


@handles("STORE_FAST")
def store_fast(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Set a local."""
    value, before = frame.stack.pop(), frame.locals[ins.arg]
    frame.locals[ins.arg] = value
    if before is not NULL and before is not value:
        rec.drop(before)
    if type(value) is Traced and not value.origin:
        value.origin = frame.code.names[ins.arg]


@handles("DELETE_FAST")
def delete_fast(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Unset a local."""
    if frame.locals[ins.arg] is NULL:
        raise Leave("raised", f"local variable {frame.code.names[ins.arg]} is not set")
    rec.drop(frame.locals[ins.arg])
    frame.locals[ins.arg] = NULL


# --------------------------------------------------------------------------------------------------------------- cells
@handles("MAKE_CELL")
def make_cell(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Put the local into a new cell."""
    value = frame.locals[ins.arg]
    cell = types.CellType() if value is NULL else types.CellType(value.obj)  # type: ignore[union-attr]
    frame.locals[ins.arg] = rec.virtual(cell, "cell", [value])  # type: ignore[list-item]


@handles("COPY_FREE_VARS")
def copy_free_vars(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Copy the function's cells into the last locals."""
    function = rec.resolve(frame.function)
    if type(function) is Virtual:
        cells = function.items[3:]
    elif type(function) is Traced:  # a bridge that begins here
        closure = rec.opaque_getattr(function, "__closure__", "a function that the trace has made")
        cells = []
        for n, cell in enumerate(function.obj.__closure__):
            item = rec.builder.op("tuple_item", rec.ssa(closure, "object"), item=n)
            cells.append(Traced(cell, item, frame.code.code.co_freevars[n], types.CellType, facts={"fresh": True}))
    else:
        names = frame.code.code.co_freevars
        cells = [Const(cell, name) for cell, name in zip(function.obj.__closure__ or (), names, strict=True)]  # type: ignore[attr-defined]
    frame.locals[len(frame.locals) - len(cells):] = cells


def _holder(frame: RecordedFrame, ins: Instruction) -> Value:
    entry = frame.locals[ins.arg]
    assert isinstance(entry, Value)
    return entry


def _cell(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> Value:
    return rec.resolve(_holder(frame, ins))


def _known_content(rec: Recorder, holder: Value) -> Entry | None:
    """What a cell of this trace that has escaped holds, while nobody else can have changed it."""
    known = holder.state.get("content") if type(holder) is Virtual else None
    return known[1] if known is not None and known[0] == rec.epoch else None  # type: ignore[no-any-return]


@handles("LOAD_DEREF")
def load_deref(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push the contents of a cell."""
    cell, name = _cell(rec, frame, ins), frame.code.names[ins.arg]
    if type(cell) is Virtual:
        value = cell.items[0]
    elif type(cell) is Const:
        value = rec.read_cell(cell.obj, name)  # type: ignore[arg-type, assignment]
    elif (known := _known_content(rec, _holder(frame, ins))) is not None:
        value = known  # type: ignore[assignment]
    else:
        value = NULL  # type: ignore[assignment]
        with suppress(ValueError):  # it is empty
            obj = getattr(cell.obj, CELL_KEY)
            value = Traced(obj, rec.op("cell_get", rec.ssa(cell, "object")), name)
            value.facts["fresh"] = True
    if value is NULL:
        raise Leave("raised", f"variable {name} is not set")
    frame.stack.append(value)


@handles("STORE_DEREF")
def store_deref(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Set the contents of a cell."""
    value = frame.pop_value()
    cell = _cell(rec, frame, ins)
    if type(cell) is Virtual and reaches(rec, value, cell):  # a local function that calls itself, for example
        rec.materialise(cell)
        cell = rec.resolve(cell)
    if type(cell) is Virtual:
        rec.mutation(cell)
        cell.obj.cell_contents = value.obj  # type: ignore[attr-defined]
        rec.drop(cell.items[0])
        cell.items[0] = value
    elif type(cell) is Const:
        rec.store_cell(cell.obj, value, frame.code.names[ins.arg])  # type: ignore[arg-type]
    else:
        form = rec.ssa(value, "object")
        rec.op("cell_set", rec.ssa(cell, "object"), form)
        rec.execute(setattr, cell.obj, CELL_KEY, value.obj)
        holder = _holder(frame, ins)
        if type(holder) is Virtual:
            holder.state["content"] = (rec.epoch, value)


@handles("DELETE_DEREF")
def delete_deref(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Empty a cell."""
    cell = _cell(rec, frame, ins)
    if type(cell) is not Virtual or cell.items[0] is NULL:
        raise Leave("unsupported", f"del of the shared variable {frame.code.names[ins.arg]}")
    rec.mutation(cell)
    del cell.obj.cell_contents  # type: ignore[attr-defined]
    rec.drop(cell.items[0])
    cell.items[0] = NULL  # type: ignore[call-overload]
