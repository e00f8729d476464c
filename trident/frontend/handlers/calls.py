"""Calls.

May import: frontend.*, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trident.frontend import iteration
from trident.frontend.analysis import Instruction
from trident.frontend.binding import Keywords
from trident.frontend.calls import INLINED
from trident.frontend.frames import RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.handlers.build import dict_pairs, take
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


@handles("CALL")
def call(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Call with positional and keyword arguments; the method's self lies below them."""
    args: list[Value] = take(frame, ins.arg)
    callee, below = frame.pop_value(), frame.pop()
    if below is not NULL:
        args.insert(0, callee)
        callee = below  # type: ignore[assignment]
    kwargs: dict[str, Value] = {}
    if ins.kwnames:
        split = len(args) - len(ins.kwnames)
        kwargs = dict(zip(ins.kwnames, args[split:], strict=True))
        del args[split:]
    rec.call_instruction = True
    result = rec.call(callee, args, kwargs)
    if result is not INLINED:
        frame.stack.append(result)


@handles("CALL_FUNCTION_EX")
def call_function_ex(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`f(*args, **kwargs)`."""
    mapping = rec.resolve(frame.pop_value()) if ins.arg & 1 else None
    sequence = rec.resolve(frame.pop_value())
    callee = frame.pop_value()
    frame.pop()  # NULL
    rec.call_instruction = True
    pairs: Any = [] if mapping is None else dict_pairs(rec, mapping)
    items = iteration.known_items(rec, sequence) if pairs is not None else None
    if items is None or not all(type(key) is str for key, _ in pairs):
        arguments = [callee, sequence] if mapping is None else [callee, sequence, mapping]
        frame.stack.append(rec.opaque(Const(apply), arguments, {}, "the number of its arguments is not known"))
        return
    result = rec.call(callee, items, keywords(pairs, mapping))
    if result is not INLINED:
        frame.stack.append(result)


def keywords(pairs: list[tuple[str, Value]], mapping: Value | None) -> dict[str, Value]:
    """Keyword arguments; those of a dict of unguarded order remember it."""
    source = mapping.state.get("source") if type(mapping) is Virtual else mapping if type(mapping) is Traced else None
    return Keywords(pairs, source) if source is not None and len(pairs) > 1 else dict(pairs)  # type: ignore[arg-type]


def apply(function: Any, args: Any, kwargs: Any = None) -> object:
    """`function(*args, **kwargs)`."""
    return function(*args) if kwargs is None else function(*args, **kwargs)
