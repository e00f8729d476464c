"""Continuing recorded frames in CPython, with what an instruction does after an inlined callee of its has raised.

Owns one such case: an attribute that is loaded through a property (or a `__getattribute__`) raises AttributeError, and the type has a
`__getattr__`, which comes next. Everything else that waits for a callee passes its exception on, which `native.resume` does.

May import: frontend.analysis, frontend.cpython, backend.native.resume, ir.
"""

from __future__ import annotations

from typing import Any

from trident.backend.native import tracebacks
from trident.backend.native.resume import THREADS, resume
from trident.frontend.analysis import analyse
from trident.frontend.cpython import opcodes
from trident.ir import NULL, Arrival, Frame
from trident.ir.pins import type_lookup

_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def continue_frames(frames: list[Frame], error: BaseException | None) -> object:
    """Continue frames, the outermost first; with `error` raised in the innermost one. Called outside of `except` blocks."""
    where = next((n for n in range(len(frames) - 1) if _falls_back(frames[n], frames[n + 1])), -1)
    if where < 0:
        return resume(frames, error, handled=THREADS)
    outer, failed = frames[where], None
    owner, result = outer.stack[-1], None
    try:
        result = continue_frames(frames[where + 1:], error)
    except BaseException as raised:
        failed = raised
    if isinstance(failed, AttributeError):
        info = analyse(outer.code)
        name = outer.code.co_names[opcodes.attribute_index(info.instructions[info.at[outer.offset]])]
        failed, result = _call_getattr(owner, name)
    try:
        if failed is None:
            stack = [*outer.stack[:len(outer.stack) - outer.pops], result]
            frames[where] = Frame(outer.function, outer.code, outer.next_offset, outer.locals, stack)
        else:
            failed.__traceback__ = tracebacks.strip_raised(failed.__traceback__)
        return resume(frames[:where + 1], failed, handled=THREADS)
    finally:
        del failed, result, owner, outer, frames


def _falls_back(frame: Frame, callee: Frame) -> bool:
    """Whether a frame waits for the value of an attribute that `__getattr__` may still give, which is not what it waits for."""
    if frame.is_call or frame.arrival is not Arrival.RESULT or not frame.stack:
        return False
    info = analyse(frame.code)
    if info.instructions[info.at[frame.offset]].name not in _LOADS:
        return False
    last = type_lookup(type(frame.stack[-1]), "__getattr__")
    return last is not NULL and getattr(last, "__code__", None) is not callee.code


def _call_getattr(owner: Any, name: str) -> tuple[BaseException | None, object]:
    try:
        return None, type(owner).__getattr__(owner, name)
    except BaseException as raised:
        return raised, None
