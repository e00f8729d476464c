"""Jumps, loops, returns, with, unpacking.

May import: frontend.*, ir.
"""

from __future__ import annotations

import types
from itertools import islice
from typing import TYPE_CHECKING, Any

from trident.frontend import iteration, operators
from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.calls import INLINED
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import bind_method
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


@handles("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Continue at the target."""
    frame.pc = ins.target


def branch(rec: Recorder, frame: RecordedFrame, ins: Instruction, cond: Value, *, jump_if: bool, kept: Value | None = None) -> None:
    """Jump if `cond` is `jump_if`; `kept` is pushed where the jump is taken (JUMP_IF_…_OR_POP)."""
    cond = rec.resolve(cond)
    outcome = bool(cond.obj)
    taken = outcome is jump_if
    if type(cond) is Traced:
        form = rec.ssa(cond, "bool")
        if rec.effect_serial == rec.serial:  # evaluating it had an effect: a failing guard goes on behind this instruction
            other = ins.index + 1 if taken else ins.target
            stack: list[Entry] = [*frame.stack, kept] if kept is not None and not taken else list(frame.stack)
            target = frame.code.instructions[other]
            rec.restate(target.offset, stack, target.live)
        text = cond.origin or "condition"
        rec.guard(form, outcome, "branch", text if outcome else f"not ({text})")
        cond.facts["constant"] = Const(outcome)
    if taken:
        frame.pc = ins.target
        if kept is not None:
            frame.stack.append(kept)


def pop_jump(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """POP_JUMP_IF_TRUE / FALSE, in all their spellings."""
    branch(rec, frame, ins, operators.truth(rec, frame.pop_value()), jump_if="TRUE" in ins.name)


def pop_jump_none(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """POP_JUMP_IF_NONE / NOT_NONE, in all their spellings."""
    branch(rec, frame, ins, operators.identical(rec, frame.pop_value(), Const(None)), jump_if="NOT" not in ins.name)


@handles("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`and` / `or`."""
    value = frame.pop_value()
    branch(rec, frame, ins, operators.truth(rec, value), jump_if="TRUE" in ins.name, kept=value)


@handles("RETURN_VALUE")
def return_value(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Return the top."""
    rec.leave_frame(frame.pop_value())


@handles("RETURN_CONST")
def return_const(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Return a constant."""
    rec.leave_frame(Const(frame.code.code.co_consts[ins.arg]))


# --------------------------------------------------------------------------------------------------------------- loops
@handles("GET_ITER")
def get_iter(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace the top by its iterator."""
    result = iteration.get_iterator(rec, frame.pop_value())
    if result is not INLINED:
        frame.stack.append(result)


def for_iter(rec: Recorder, frame: RecordedFrame, ins: Instruction, exit_index: int) -> None:
    """Push the next item, or pop the iterator and go to `exit_index`."""
    iterator = rec.resolve(frame.stack[-1])  # type: ignore[arg-type]
    item: Any = None
    if type(iterator) is Virtual and iterator.kind == "iterator":
        item = iteration.advance(rec, iterator)
    if item is None:
        item = _next_of_opaque(rec, frame, ins, iterator, exit_index)
    if item is iteration.END:
        frame.stack.pop()
        frame.pc = exit_index
    else:
        frame.stack.append(item)


def _next_of_opaque(rec: Recorder, frame: RecordedFrame, ins: Instruction, iterator: Value, exit_index: int) -> Any:
    """`next` of a real iterator; the guard that it goes on (or ends) exits to where the other outcome continues."""
    kind = type(iterator.obj).__name__
    item = rec.opaque(Const(next), [iterator, Const(iteration.SENTINEL)], {}, f"next item of a {kind}")
    ended = item.obj is iteration.SENTINEL
    instructions = frame.code.instructions
    target = instructions[ins.index + 1 if ended else exit_index]
    rec.restate(target.offset, [*frame.stack, item] if ended else frame.stack[:-1], target.live)
    assert isinstance(item, Traced)
    cond = rec.builder.op("is_constant", item.ssa, index=rec.builder.constant_index(iteration.SENTINEL))
    rec.guard(cond, ended, "branch", f"the {kind} {'has ended' if ended else 'goes on'}")
    return iteration.END if ended else item


# ----------------------------------------------------------------------------------------------------------- unpacking
def _first(iterable: Any, count: int) -> tuple[object, ...]:
    """Items of an iterable: so many, and one more to see whether there are too many."""
    return tuple(islice(iterable, count + 1))


def unpack_items(rec: Recorder, frame: RecordedFrame, ins: Instruction, value: Value) -> list[Value]:
    """The items of an iterable to unpack; one of unknown items becomes a tuple first."""
    items = iteration.known_items(rec, value)
    if items is not None:
        return items
    if not iteration.is_iterable(rec, value):
        raise Leave("raised", f"cannot unpack non-iterable {type(value.obj).__name__} object")
    function, count = (_first, [Const(ins.arg)]) if ins.name == "UNPACK_SEQUENCE" else (tuple, [])
    made = rec.opaque(Const(function), [value, *count], {}, f"unpacking of a {type(value.obj).__name__}")
    assert isinstance(made, Traced)
    made.known_type = tuple
    rec.restate(ins.offset, [*frame.stack, made], ins.live)
    frame.before[-1] = made
    rec.executed = 0
    items = iteration.known_items(rec, made)
    assert items is not None
    return items


@handles("UNPACK_SEQUENCE")
def unpack_sequence(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push the items, the first on top."""
    items = unpack_items(rec, frame, ins, frame.pop_value())
    if len(items) != ins.arg:
        raise Leave("raised", f"{ins.arg} values to unpack, {len(items)} given")
    frame.stack += reversed(items)


@handles("UNPACK_EX")
def unpack_ex(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`a, *b, c = …`."""
    before, after = ins.arg & 0xFF, ins.arg >> 8
    items = unpack_items(rec, frame, ins, frame.pop_value())
    if len(items) < before + after:
        raise Leave("raised", "not enough values to unpack")
    middle = rec.virtual_list(items[before:len(items) - after])
    frame.stack += [*reversed(items[len(items) - after:]), middle, *reversed(items[:before])]


# ---------------------------------------------------------------------------------------------------------------- with
@handles("BEFORE_WITH")
def before_with(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace the manager by its bound `__exit__` and push what `__enter__` returns."""
    manager = rec.resolve(frame.pop_value())
    cls = rec.type_of(manager)
    manager = rec.resolve(manager)
    if type(manager) is Const:
        rec.pin_class_of(manager.obj, rec.name_of(manager))
    enter, leave = rec.read_type(cls, "__enter__"), rec.read_type(cls, "__exit__")
    if enter is NULL or leave is NULL:
        raise Leave("raised", f"{cls.__qualname__} is no context manager")
    exit_method = _bound(rec, leave, manager, "__exit__")
    rec.pending = ([*frame.before[:-1], exit_method], 0)
    result = rec.call(_bound(rec, enter, manager, "__enter__"), [], {})
    if result is not INLINED:
        frame.stack += [exit_method, result]


def _bound(rec: Recorder, found: Any, owner: Value, name: str) -> Value:
    """A special method of a type, bound."""
    if is_a(found, types.FunctionType | types.MethodDescriptorType | types.WrapperDescriptorType):
        real = bind_method(found, owner.obj)
        return rec.virtual(real, "method", [Const(found, f"{type(owner.obj).__qualname__}.{name}"), owner])
    if type(owner) is not Const:
        raise Leave("unsupported", f"{name} of {type(owner.obj).__qualname__} is a {type(found).__name__}")
    return Const(found.__get__(owner.obj, type(owner.obj)) if hasattr(type(found), "__get__") else found)
