"""Lowering of loops: carried values, the header and the back edge, and what is due between iterations.

Owns these rules. A carried number is a phi of the header; a carried object or tensor has a slot that the back edge fills anew. What must
hold: at the back edge the slots hold what they hold where the loop is entered: everything that an iteration has made is released or
carried on, what was made before stays, and the GIL is held.

May import: ir, lowering.{function,rules,values}, native.frame.
"""

from __future__ import annotations

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native.frame import SlotKind
from trident.ir.ops import BY_NAME, Effect

BACK = "trident.back"
_LLVM = {"int": "i64", "float": "double", "bool": "i1"}
_SLOTS = {"object": SlotKind.OBJECT, "tensor": SlotKind.TENSOR}
_POLL_STEPS = 4096  # iterations of a few machine instructions each between two looks at the clock


def poll(f: Function, op: Op) -> None:
    """What the interpreter does between two instructions, every now and then; raises at the current state."""
    f.need_gil()
    last = f.slot_address(f.fixed_slot())
    raised = f.call("trident_poll", "i1", f"ptr {last}")
    f.leave_if(raised, f.site(op.name, is_raise=True), RAISE)


@rule("trident.carry")
def carry(f: Function, op: Op) -> None:
    initial, result = op.operands[0], op.results[0]
    if result.kind in _LLVM:
        f.carried.append((result, f.scalar(initial)))
        return
    f.need_gil()
    reg = _take(f, initial, op)
    f.line(f"store ptr {reg}, ptr {f.own(result, _SLOTS[result.kind])}")
    f.carried.append((result, ""))


@rule("trident.loop")
def loop(f: Function, op: Op) -> None:
    f.need_gil()
    if any(other.name.startswith(("torch.aten.", "torch.operator")) for other in f.ops):
        f.hear_warnings()  # once, not in each iteration
    before, f.header = f.label, f.new_label()
    f.line(f"br label %{f.header}")
    f.block(f.header)
    for result, initial in f.carried:
        if initial:
            reg = f.fresh()
            f.phis.append(len(f.lines))
            f.line(f"{reg} = phi {_LLVM[result.kind]} [{initial}, %{before}]")
            result.set_reg(reg)
    for result, initial in f.carried:
        if initial:
            f.define(result, result.reg)


@rule(BACK, leaves=True)
def back(f: Function, op: Op) -> None:
    f.need_gil()
    _poll_between(f, op)
    following = [value.inner() for value in op.operands]
    regs = [f.scalar(value) if initial else _take(f, value, op, again=following.count(value) > 1)
            for value, (_, initial) in zip(following, f.carried, strict=True)]
    carried = [result for result, _ in f.carried]
    for value in op.dying:  # the end of the iteration
        if value not in carried:
            f.bury(value)
    old = []
    for result, reg in zip(carried, regs, strict=True):
        if result.kind in _SLOTS:
            address = f.slot_address(result.index)
            if result.owned:
                result.owned = False
                old.append((result, f.value(f"load ptr, ptr {address}")))
            f.line(f"store ptr {reg}, ptr {address}")
    for result, reg in old:
        _drop(f, result, reg)
    numbers = [reg for result, reg in zip(carried, regs, strict=True) if result.kind in _LLVM]
    for at, reg in zip(f.phis, numbers, strict=True):
        f.lines[at] += f", [{reg}, %{f.label}]"
    f.line(f"br label %{f.header}")
    f.block(f.new_label())


def _take(f: Function, value: Value, op: Op, *, again: bool = False) -> str:
    """The object or TensorImpl* of a value as a reference of the taker's own: its own one where it dies with this operation.

    again: other takers come."""
    if value.place is Place.SLOT and value.owned and value in op.dying and not again and value.kind in _SLOTS:
        address = f.slot_address(value.index)
        reg = f.value(f"load ptr, ptr {address}")
        f.line(f"store ptr null, ptr {address}")
        f.give_up(value)
        return reg
    if value.kind == "object":
        reg = f.object(value)
        f.call("Py_IncRef", "void", f"ptr {reg}")
        return reg
    if value.kind != "tensor":
        raise LoweringError(f"a loop cannot carry {value!r}")
    reg = f.load(f.tensor(value))
    f.call("trident_keep", "void", f"ptr {reg}")
    return reg


def _drop(f: Function, value: Value, reg: str) -> None:
    """Release what a carry has held in the iteration that ends."""
    if value.kind == "object":
        f.call("Py_DecRef", "void", f"ptr {reg}")
    else:
        f.call("trident_drop", "void", f"ptr {reg}")


def _poll_between(f: Function, op: Op) -> None:
    start = next(other.index for other in f.ops if other.name == "trident.loop")
    if not all(_is_short(other.name) for other in f.ops[start + 1:op.index]):
        poll(f, op)
        return
    left = f.slot_address(f.fixed_slot())
    on, due = f.new_label(), f.new_label()
    steps = f.value(f"load i64, ptr {left}")
    f.line(f"store i64 {f.value(f'sub i64 {steps}, 1')}, ptr {left}")
    f.line(f"br i1 {f.value(f'icmp sgt i64 {steps}, 0')}, label %{on}, label %{due}")
    f.block(due)
    f.line(f"store i64 {_POLL_STEPS}, ptr {left}")
    poll(f, op)
    f.line(f"br label %{on}")
    f.block(on)


def _is_short(name: str) -> bool:
    """Whether an operation takes some machine instructions, and always the same."""
    spec = BY_NAME.get(name)
    if spec is None:
        return name.startswith("torch.constant.")
    return name in ("trident.state", "trident.keep", "trident.guard") or spec.effect is Effect.PURE
