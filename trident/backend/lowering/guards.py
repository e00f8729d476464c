"""Lowering of guards, pins, exits and states.

Owns the rules of the ops that decide whether and where the trace is left. What must hold: a state's operands are described at the
state op, and stay where they are until the next one.

May import: ir, lowering.*, backend.pins.
"""

from __future__ import annotations

from trident.backend.lowering.function import Function, State
from trident.backend.lowering.loops import poll
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native.frame import BoxKind
from trident.backend.pins import PinTable
from trident.ir.ops import BY_NAME, JUMP, Effect

_SCALARS = {"int": BoxKind.INT, "float": BoxKind.FLOAT, "bool": BoxKind.BOOL}


@rule("trident.guard", leaves=True)
def guard(f: Function, op: Op) -> None:
    condition, expected = op.operands[0], op.flag("expected")
    info = f.trace.guards[op.integer("info")]
    if condition.place is Place.CONST:
        if bool(condition.const) is not expected:
            f.leave(f.site(op.name, guard=info))
        return
    leave = f.leave_unless if expected else f.leave_if
    leave(f.scalar(condition), f.site(op.name, guard=info))


@rule("trident.exit", leaves=True)
def leave(f: Function, op: Op) -> None:
    if op.text("reason") == JUMP:
        poll(f, op)
    f.leave(f.site(op.text("reason")))


def passes_pins(f: Function, name: str) -> bool:
    """Whether a pin may be checked on the other side of an op of this name."""
    if name in ("torch.prim.ListConstruct",) or name.startswith("torch.constant."):
        return True
    spec = BY_NAME.get(name)
    if spec is None or name == "trident.state":
        return False
    if spec.effect is Effect.PURE and not spec.may_exit:
        return True
    # Before the first state leaving is a miss wherever it happens, so reads and guards may swap with pins: what a pin is about
    # is a constant of the trace, which stays what it is for the code in between.
    return f.state < 0 and spec.effect in (Effect.PURE, Effect.READ)


@rule("trident.pin", leaves=True)
def pin(f: Function, op: Op) -> None:
    """Pins are checked together: in the entry region after all other guards, which are cheaper; later, at the first of a run."""
    if op.index in f.pinned:
        return
    if f.state < 0:
        f.pending_pins += op.integers("indices")
        return
    for other in f.ops[op.index:]:
        if other.name == op.name:
            f.pinned.add(other.index)
            f.pending_pins += other.integers("indices")
        elif not passes_pins(f, other.name):
            break
    flush_pins(f)


def flush_pins(f: Function) -> None:
    """Check the pins that are due."""
    if not f.pending_pins:
        return
    pins = [f.trace.pins[index] for index in dict.fromkeys(f.pending_pins)]
    f.pending_pins.clear()
    try:
        table = PinTable(pins)
    except NotImplementedError as error:
        raise LoweringError(str(error)) from None
    f.pin_tables.append(table)
    f.need_gil()
    failed = f.call("trident_pins", "i1", f"ptr {f.pointer(table.address)}", f"i64 {table.others}", f"i64 {table.count}")
    f.leave_if(failed, f.site("trident.pin", guard=pins[0].info))


def _entry(f: Function, value: Value) -> tuple[BoxKind, int]:
    value = value.inner()
    match value.place:
        case Place.CONST:
            f.keep.append(value.const)
            return BoxKind.CONST, id(value.const)
        case Place.OBJECT:
            return BoxKind.CONST, value.index
        case Place.ARG:
            return BoxKind.ARG, value.index
        case Place.BOXED:
            return _entry(f, value.const)
        case Place.AT:
            return BoxKind.TENSOR_AT, value.index
        case Place.REG:
            return _SCALARS[value.kind], value.copy
        case Place.SLOT if value.kind in ("object", "tensor"):
            return (BoxKind.OBJECT if value.kind == "object" else BoxKind.TENSOR), value.index
    raise LoweringError(f"a state cannot hold {value!r}")


@rule("trident.state")
def state(f: Function, op: Op) -> None:
    f.snapshot = op.integer("snapshot")
    f.states.append(State(f.snapshot, [_entry(f, operand) for operand in op.operands]))
    f.state = len(f.states) - 1
