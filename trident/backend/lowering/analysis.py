"""Reads a trace's block once: its operations, its values, and the last use of each.

Owns liveness. What must hold: the operands of a `trident.state` stay alive up to the last op before the next state that can leave
the trace; everything else dies at its last use, as in eager.

May import: torch_mlir, ir, lowering.rules, lowering.values.
"""

from __future__ import annotations

from torch_mlir import ir

from trident.backend.lowering.rules import LoweringError, rule_of
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native.aten_abi import ResultKind, UnsupportedOperator, signature, split_name
from trident.ir.dialect import kind_of
from trident.ir.trace import Trace

RETURN = "func.return"
STATE = "trident.state"
_ALIASING = frozenset({ResultKind.ALIAS, ResultKind.ALIASES})


def _full_name(op: ir.Operation) -> str:
    name = op.name
    if name != "torch.operator":
        return str(name)
    full = str(ir.StringAttr(op.attributes["name"]).value)
    if not full.startswith("aten."):
        raise LoweringError(f"torch.operator {full!r} is not an aten operator")
    return f"torch.{full}"


def _anchor(op: Op) -> None:
    """Tie results to what they borrow from."""
    if op.name.startswith("torch.aten."):
        try:
            found = signature(*split_name(op.name))
        except UnsupportedOperator as error:
            raise LoweringError(str(error)) from None
        if found.result in _ALIASING:
            for result, argument in zip(op.results, found.aliases, strict=True):
                if argument < len(op.operands):
                    result.anchors.append(op.operands[argument])
                    result.place = op.operands[argument].place
    elif op.name == "trident.box" and op.operands[0].place is Place.BOXED:
        # The object of an unboxed tensor is the object that it was unboxed from.
        op.results[0].anchors.append(op.operands[0])
        op.results[0].place = Place.BOXED
    elif rule_of(op.name).anchored:
        for result in op.results:
            result.anchors.extend(op.operands)
        if op.name == "trident.unbox_tensor":
            op.results[0].place = Place.BOXED
        elif op.name == "trident.pack":
            op.results[0].place = op.operands[0].place


def _kind(value: ir.Value, known: dict[ir.Type, str]) -> str:
    found = known.get(value.type)
    if found is None:
        found = known[value.type] = kind_of(value)
    return found


def read(trace: Trace) -> tuple[list[Value], list[Op]]:
    """The block's arguments and operations, with last uses filled in. `place` is BOXED for what must be, else NOWHERE."""
    kinds: dict[ir.Type, str] = {}
    values: dict[ir.Value, Value] = {}
    block = trace.block
    arguments = []
    for argument in block.arguments:
        value = values[argument] = Value(_kind(argument, kinds))
        arguments.append(value)
    ops: list[Op] = []
    for index, view in enumerate(block.operations):
        mlir = view.operation
        results = []
        for result in mlir.results:
            value = values[result] = Value(_kind(result, kinds))
            results.append(value)
        op = Op(_full_name(mlir), [values[operand] for operand in mlir.operands], results, mlir, index)
        _anchor(op)
        ops.append(op)
    if not ops or ops[-1].name != RETURN or len(ops[-1].operands) != 1:
        raise LoweringError(f"{trace.name}: the trace does not end with the return of one object")
    _last_uses(ops)
    if trace.loops:
        _outlive_iterations(arguments, ops)
    for op in ops:
        for value in op.results:
            _bury_at(max(value.last, op.index), value, ops)
    if trace.parent is not None:  # the arguments of a bridge are its own
        for value in arguments:
            _bury_at(max(value.last, 0), value, ops)
    return arguments, ops


def _bury_at(index: int, value: Value, ops: list[Op]) -> None:
    if index < len(ops):
        ops[index].dying.append(value)


def _use(value: Value, index: int) -> None:
    if value.last < index:
        value.last = index
        for anchor in value.anchors:
            _use(anchor, index)


def _last_uses(ops: list[Op]) -> None:
    """Walk backwards, so that each state knows the last op that can leave while it is the current one."""
    end = -1
    for op in reversed(ops):
        if op.name == STATE:
            for operand in op.operands:
                _use(operand, max(end, op.index))
                _mark_stated(operand)
            end = -1
        else:
            for operand in op.operands:
                _use(operand, op.index)
            if end < 0 and op.name != RETURN and rule_of(op.name).leaves:
                end = op.index


def _outlive_iterations(arguments: list[Value], ops: list[Op]) -> None:
    """What a loop uses and does not make is there for every iteration: it lives until the loop is left."""
    header = next(op.index for op in ops if op.name == "trident.loop")
    made_before = [*arguments, *(value for op in ops[:header] if op.name != "trident.carry" for value in op.results)]
    for value in made_before:
        if value.last > header:
            _use(value, len(ops))


def _mark_stated(value: Value) -> None:
    value.stated = True
    for anchor in value.anchors:
        _mark_stated(anchor)
