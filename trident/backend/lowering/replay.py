"""Lowering of `trident.replay`: a call of the native function that finds the graph that fits.

Owns its rule. What must hold: the site's tables live as long as the program.

May import: lowering.*, native.frame, native.replay_layout, native.replay_runtime.
"""

from __future__ import annotations

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import LoweringError, rule
from trident.backend.lowering.values import Op, Value
from trident.backend.native import replay_layout, replay_runtime
from trident.backend.native.frame import SlotKind


@rule("trident.replay", leaves=True)
def replay(f: Function, op: Op) -> None:
    if f.state >= 0:
        raise LoweringError("a graph is replayed before the first trident.state or not at all")
    site = f.trace.replays[op.integer("site")]
    address = getattr(site, "address", 0)
    if not address:
        raise LoweringError(f"{type(site).__name__} has no tables to replay from")
    replay_runtime.load()
    f.keep.append(site)
    f.need_gil()
    operands = [operand.inner() for operand in op.operands]
    tensors = [f.tensor(value) for value in operands if value.kind == "tensor"]
    numbers = [_word(f, value) for value in operands if value.kind != "tensor"]
    outs = [f.own(result, SlotKind.TENSOR) for result in op.results]
    arrays = [_array(f, kind, words) for kind, words in (("ptr", tensors), ("i64", numbers), ("ptr", outs))]
    way_out = f.site(op.name, is_raise=True)
    arguments = [f"ptr {f.pointer(address)}", *(f"ptr {array}" for array in arrays)]
    status = f.may_throw(replay_runtime.REPLAY, "i32", arguments, way_out, "ptr, ptr, ptr, ptr")
    f.leave_if(f.value(f"icmp eq i32 {status}, {replay_layout.RAISED}"), way_out, RAISE)
    f.leave_if(f.value(f"icmp ne i32 {status}, {replay_layout.DONE}"), f.site(op.name))


def _word(f: Function, value: Value) -> str:
    """A number as the 64 bits that are compared."""
    match value.kind:
        case "int":
            return f.scalar(value)
        case "float":
            return f.value(f"bitcast double {f.scalar(value)} to i64")
        case "bool":
            return f.value(f"zext i1 {f.scalar(value)} to i64")
    raise LoweringError(f"a graph cannot take {value!r}")


def _array(f: Function, kind: str, words: list[str]) -> str:
    base = f.temporary(max(len(words), 1))
    for index, word in enumerate(words):
        f.store(kind, word, base, 8 * index)
    return base
