"""Frames of the interpreter that records: what CPython keeps in `_PyInterpreterFrame`, with Values instead of objects.

Owns the frame class and its conversion into the concrete frames that CPython continues. What must hold: `before` is the operand
stack as CPython would have it before the current instruction (for a frame with an inlined callee: before the pending one).

May import: ir, frontend.values, frontend.analysis.
"""

from __future__ import annotations

from types import BuiltinFunctionType, FunctionType
from typing import Any

from trident.frontend.analysis import CodeInfo, Instruction
from trident.frontend.values import Value
from trident.ir import NULL, Arrival, Frame
from trident.ir.trace import Null

Entry = Value | Null


class RecordedFrame:
    """One frame. locals: localsplus. pc: index of the next instruction in `code.instructions`."""

    __slots__ = ("arrival", "before", "builtins", "cached_state", "code", "current", "function", "globals", "is_call", "locals",
                 "pc", "pops", "resume_at", "result", "stack", "visits")

    def __init__(self, function: Value, code: CodeInfo, locals_: list[Entry]) -> None:
        obj = function.obj
        assert isinstance(obj, FunctionType)
        self.function, self.code, self.locals = function, code, locals_
        self.globals: dict[str, Any] = obj.__globals__
        builtins: Any = obj.__builtins__  # type: ignore[attr-defined]
        self.builtins: dict[str, Any] = builtins if isinstance(builtins, dict) else vars(builtins)
        self.stack: list[Entry] = []
        self.before: list[Entry] = []
        self.pc = 0
        self.current: Instruction = code.instructions[0]
        # How the result of an inlined callee arrives (meaningful only while there is one).
        self.is_call, self.pops, self.arrival = True, 0, Arrival.RESULT
        self.resume_at = -1
        self.result: Value | None = None
        self.cached_state: Any = None
        self.visits: dict[int, Any] = {}  # by index of a loop's header (see loops.py)

    def pop(self) -> Entry:
        """The top of the operand stack."""
        return self.stack.pop()

    def pop_value(self) -> Value:
        """The top of the operand stack, which cannot be NULL."""
        top = self.stack.pop()
        assert top is not NULL
        return top  # type: ignore[return-value]

    def push(self, value: Entry) -> None:
        """Push."""
        self.stack.append(value)

    def clear(self) -> None:
        """Let go of the locals, in CPython's order."""
        for n in range(len(self.locals)):
            self.locals[n] = NULL

    def no_callee(self) -> None:
        """The inlined callee is gone."""
        self.is_call, self.pops, self.arrival, self.result, self.resume_at = True, 0, Arrival.RESULT, None, -1
        self.cached_state = None

    def concrete(self, offset: int, stack: list[Entry]) -> Frame:
        """The frame for CPython, stopped before the instruction at `offset`."""
        function = self.function.obj
        assert isinstance(function, FunctionType)
        return Frame(function, self.code.code, offset, [_object(v) for v in self.locals], [_object(v) for v in stack],
                     self.is_call, self.pops, self.resume_at, self.arrival, NULL if self.result is None else self.result.obj)


def _object(entry: Entry) -> object:
    return NULL if entry is NULL else entry.obj  # type: ignore[union-attr]


_PASSING = frozenset({"CALL", "CALL_FUNCTION_EX", "BINARY_OP", "BINARY_SUBSCR", "STORE_SUBSCR", "DELETE_SUBSCR", "STORE_ATTR",
                      "DELETE_ATTR", "BEFORE_WITH", "WITH_EXCEPT_START"})
"""Instructions that only pass on what an inlined callee raises."""
_LOADS = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})


def passes_on(frame: RecordedFrame, error: BaseException | None) -> bool:
    """Whether the pending instruction of a frame passes on what its inlined callee raises."""
    name = frame.current.name
    if name in _LOADS:  # `__getattr__` may come next
        return error is not None and not isinstance(error, AttributeError)
    if name == "CALL":
        stack: list[Any] = frame.before
        callee = next((entry for entry in stack[-frame.current.arg - 2:][:2] if entry is not NULL), None)
        if callee is not None and type(callee.obj) is BuiltinFunctionType:  # getattr, next: some exceptions mean something to them
            return error is not None and not isinstance(error, AttributeError | StopIteration)
    return name in _PASSING
