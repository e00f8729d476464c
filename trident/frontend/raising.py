"""Exceptions that the recorded code itself handles: the operation that raises, the way to the handler, tracebacks.

Owns what happens in an instruction that raises. What must hold:
 * An operation that was seen to raise is written as a call of the Python object that does the same (`call_raises`), with a guard
   that it raises again; where it does not, the trace is left behind the instruction, with its result.
 * The exception goes where CPython's exception table says, through the inlined frames; every frame that it passes adds the entry to
   its traceback that CPython adds.
 * The thread's handled exception is the recorded program's, while recording as on a hit: what is called in a handler, and what goes
   on in CPython from the middle of one, finds it.
 * An exception that no frame of the recording handles, or that is not understood, is CPython's (`Recorder.run`).

May import: ir, errors, frontend.{analysis,aborts,calls,cpython,iteration,operators,values}.
"""

from __future__ import annotations

import dis
import operator
from typing import Any

from trident.frontend import iteration
from trident.frontend.aborts import Leave, UserRaised
from trident.frontend.analysis import Instruction
from trident.frontend.calls import Calls
from trident.frontend.cpython import opcodes
from trident.frontend.frames import Entry, RecordedFrame, passes_on
from trident.frontend.handlers.build import dict_pairs
from trident.frontend.handlers.operators import BINARY_OPS, COMPARE_OPS
from trident.frontend.operators import BINARY, COMPARE, UNARY
from trident.frontend.values import Const, Traced, Value
from trident.ir import NULL, OpaqueCall, exceptions

Operation = tuple[Value, list[Value], dict[str, Value]]

_LOCALS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "DELETE_FAST"})
_HANDLED = "an exception that is handled"
_NOT_OURS = (KeyboardInterrupt, MemoryError, RecursionError, GeneratorExit)
"""Exceptions that say more about the moment than about the operation."""


class Raising(Calls):
    """See the module."""

    step_depth: int
    handled: list[Value]  # the exceptions that handlers of this recording handle now, the innermost last

    def step(self) -> None:
        """See recorder.py."""
        raise NotImplementedError

    def advance(self) -> None:
        """One instruction. An exception that the frames themselves handle is recorded, any other way out is raised."""
        leaving: Leave | UserRaised
        try:
            self.step()
            return
        except UserRaised as raised:
            leaving = raised
        except Leave as leave:
            if leave.reason != "raised":
                raise
            leaving = leave
        # Outside of the `except` blocks: their end would restore the handled exception.
        try:
            error = leaving.error if isinstance(leaving, UserRaised) else None
            again = self._catch(error, leaving if isinstance(leaving, Leave) else None)
            if again is None:
                return
            raise again if isinstance(again, UserRaised) else leaving
        finally:
            del leaving

    def _catch(self, error: BaseException | None, leave: Leave | None) -> UserRaised | bool | None:
        """Record that the current instruction raises (`error`: already raised by it). None: done; False: not possible; or what it has
        raised when it was executed here."""
        frame = self.frames[-1]
        if len(self.frames) != self.step_depth or self.executed and not self.harmless or not self.is_handled(error):
            return False
        ins = frame.current
        try:
            made: Any = self._interpreters_own(frame, ins) if error is None else None
            if leave is not None and leave.error is RuntimeError:  # a model that knows the message
                made = RuntimeError, leave.text, ""
            if made is not None:
                cls, text, name = made
                forms = [self.builder.constant(text), *([self.builder.constant(name)] if name else [])]
                info = OpaqueCall(cls.__name__, _HANDLED, self.builder.file, self.builder.line)
                self.effect()
                error = self.execute(cls, text, **({"name": name} if name else {}))
                made_here = self.builder.call(self.builder.constant(cls), forms, ("name",) if name else (), info, native=True)
                self.raise_value(self.result(error, made_here))
                return None
            operation = self._operation(frame, ins)
            if operation is None:
                return False
            if self.undo:  # what the instruction changed is as it was before it
                for undo in reversed(self.undo):
                    undo()
                self.undo.clear()
                self.mutation_serial = 0
            callee, args, kwargs = operation
            function = self.ssa(callee, "object")
            forms = [self.ssa(arg, "object") for arg in (*args, *kwargs.values())]
            self.effect()
        except Exception:  # nothing has been done yet
            return False
        self.changed_anything()
        info = OpaqueCall(getattr(callee.obj, "__qualname__", type(callee.obj).__name__), _HANDLED,
                          self.builder.file, self.builder.line)
        if error is None:
            try:
                obj = self.execute(callee.obj, *[arg.obj for arg in args], **{key: value.obj for key, value in kwargs.items()})
            except UserRaised as raised:
                error = raised.error
            if error is None:  # it does not raise after all
                entry = self.result(obj, self.builder.call(function, forms, tuple(kwargs), info))
                frame.stack, frame.pc = stack_after(ins, frame.before, entry), ins.index + 1
                return None
            if not self.is_handled(error):
                return UserRaised(error)
        try:
            value = self._write(frame, ins, function, forms, tuple(kwargs), info, error)
        except Exception:
            return UserRaised(error)
        try:
            self.unwind(value, entry=True)
        except Exception:  # it has been raised, and goes on in CPython
            return UserRaised(error)
        return None

    def _write(self, frame: RecordedFrame, ins: Instruction, function: Any, forms: list[Any], names: tuple[str, ...], info: OpaqueCall,
               error: BaseException) -> Value:
        """The call, and the guard that it raises."""
        found, raised = self.builder.call_raises(function, forms, names, info)
        value = self.result(error, found)
        following = frame.code.instructions[ins.index + 1]
        self.restate(following.offset, stack_after(ins, frame.before, value), following.live)
        self.guard(raised, True, "raises", f"{info.callee} raises")
        return value

    def _interpreters_own(self, frame: RecordedFrame, ins: Instruction) -> tuple[type[Exception], str, str] | None:
        """Class and message of an exception that the interpreter itself raises, and the name that it is about (NameError only)."""
        if ins.name == "LOAD_GLOBAL":
            name = frame.code.code.co_names[ins.arg >> 1]
            return NameError, f"name {name!r} is not defined", name
        if ins.name in _LOCALS:
            text = f"cannot access local variable '{frame.code.names[ins.arg]}' where it is not associated with a value"
            return UnboundLocalError, text, ""
        items = iteration.known_items(self, self.resolve(frame.before[-1])) if ins.name == "UNPACK_SEQUENCE" else None  # type: ignore[arg-type]
        if items is None or len(items) == ins.arg:
            return None
        what = "too many values to unpack (expected {})" if len(items) > ins.arg else "not enough values to unpack (expected {}, got {})"
        return ValueError, what.format(ins.arg, len(items)), ""

    def _operation(self, frame: RecordedFrame, ins: Instruction) -> Operation | None:
        """A callable and arguments that do what the instruction does."""
        stack: list[Any] = frame.before
        match ins.name:
            case "CALL":
                split = len(stack) - ins.arg
                args, callee, below = stack[split:], stack[split - 1], stack[split - 2]
                if below is not NULL:
                    callee, args = below, [callee, *args]
                named = len(args) - len(ins.kwnames)
                return callee, args[:named], dict(zip(ins.kwnames, args[named:], strict=True))
            case "CALL_FUNCTION_EX":
                mapping = self.resolve(stack[-1]) if ins.arg & 1 else None
                callee, sequence = stack[-2 - (mapping is not None)], stack[-1 - (mapping is not None)]
                items: Any = iteration.known_items(self, self.resolve(sequence))  # type: ignore[arg-type]
                pairs: Any = [] if mapping is None else dict_pairs(self, mapping)  # type: ignore[arg-type]
                return None if items is None or pairs is None else (callee, items, dict(pairs))
            case "BINARY_SLICE" | "STORE_SLICE":
                *item, owner, start, stop = stack[-3 - (ins.name == "STORE_SLICE"):]
                made = self.virtual(slice(start.obj, stop.obj), "slice", [start, stop, Const(None)])
                return Const(operator.setitem if item else operator.getitem), [owner, made, *item], {}
            case "LOAD_ATTR" | "LOAD_METHOD":
                return Const(getattr), [stack[-1], Const(frame.code.code.co_names[opcodes.attribute_index(ins)])], {}
            case "WITH_EXCEPT_START":
                raised = stack[-1]
                trace = self.builder.op("traceback", self.ssa(raised, "object"))
                return stack[-4], [Const(self.type_of(raised)), raised, self.result(raised.obj.__traceback__, trace)], {}
            case "STORE_ATTR":
                return Const(setattr), [stack[-1], Const(frame.code.code.co_names[ins.arg]), stack[-2]], {}
            case "DELETE_ATTR":
                return Const(delattr), [stack[-1], Const(frame.code.code.co_names[ins.arg])], {}
            case "STORE_SUBSCR":
                return Const(operator.setitem), [stack[-2], stack[-1], stack[-3]], {}
            case "IMPORT_NAME":
                if frame.builtins.get("__import__") is not __import__:
                    return None
                name = Const(frame.code.code.co_names[ins.arg])
                return Const(__import__), [name, Const(frame.globals), Const(None), stack[-1], stack[-2]], {}
        function = _function_of(ins)
        if function is None:
            return None
        operands = stack[-_OPERANDS[ins.name]:]
        return Const(function), operands[::-1] if ins.name == "CONTAINS_OP" else operands, {}

    # ---------------------------------------------------------------------------------------------------- raising
    def is_handled(self, error: BaseException | None) -> bool:
        """Whether what the current instruction raises (None: not known yet) is handled by a frame of this recording."""
        if self.pure_base or isinstance(error, _NOT_OURS):
            return False
        for frame in reversed(self.frames):
            if frame is not self.frames[-1] and not passes_on(frame, error):
                return False
            if frame.code.handler_of(frame.current.index) is not None:
                return True
        return False

    def raise_value(self, value: Value) -> None:
        """`raise value`, an exception object; `is_handled` holds."""
        self.op("add_context", self.ssa(value, "object"))
        exceptions.add_context(value.obj)
        self.unwind(value, entry=True)

    def unwind(self, value: Value, *, entry: bool) -> None:
        """Continue at the handler. entry: the current instruction adds an entry to the traceback (RERAISE does not)."""
        depth = len(self.frames)
        try:
            self._unwind(value, entry)
        except Exception:
            if len(self.frames) == depth:
                raise
            raise UserRaised(value.obj) from None  # type: ignore[arg-type]  # the frames that it has passed are gone

    def _unwind(self, value: Value, entry: bool) -> None:
        while True:
            frame = self.frames[-1]
            if entry:
                self._add_traceback(value, frame)
            target = frame.code.handler_of(frame.current.index)
            if target is not None:
                break
            self.drop_frame(frame, value)
            self.frames.pop()
            self.enter(self.frames[-1])
            self.frames[-1].no_callee()
            entry = True
        frame.stack = frame.before[:target.depth]
        self.drop(*reversed(frame.before[target.depth:]))
        if target.push_lasti:
            frame.stack.append(Const(frame.current.at // 2))
        frame.stack.append(value)
        frame.pc = target.target

    def _add_traceback(self, value: Value, frame: RecordedFrame) -> None:
        code, ins = frame.code.code, frame.current
        index = self.builder.constant_index
        self.op("add_traceback", self.ssa(value, "object"), code=index(code), globals=index(frame.globals), lasti=ins.at, line=ins.line)
        exceptions.add_traceback(value.obj, code, frame.globals, ins.at, ins.line)


_OPERANDS = {"BINARY_OP": 2, "COMPARE_OP": 2, "BINARY_SUBSCR": 2, "DELETE_SUBSCR": 2, "CONTAINS_OP": 2, "UNARY_NEGATIVE": 1,
             "UNARY_POSITIVE": 1, "UNARY_INVERT": 1, "GET_ITER": 1}


def _function_of(ins: Instruction) -> Any:
    """The C function of an operator instruction."""
    match ins.name:
        case "BINARY_OP":
            return BINARY[BINARY_OPS[ins.arg]]
        case "COMPARE_OP":
            return COMPARE[COMPARE_OPS[opcodes.comparison(ins)]]
        case "CONTAINS_OP":
            return None if ins.arg else operator.contains
    return {"BINARY_SUBSCR": operator.getitem, "DELETE_SUBSCR": operator.delitem, "GET_ITER": iter, "UNARY_NEGATIVE": UNARY["neg"],
            "UNARY_POSITIVE": UNARY["pos"], "UNARY_INVERT": UNARY["invert"]}.get(ins.name)


def stack_after(ins: Instruction, before: list[Entry], result: Entry) -> list[Entry]:
    """The stack after an instruction that pops its operands and leaves at most one result."""
    opcode = dis.opmap[ins.name]
    effect = dis.stack_effect(opcode, ins.arg if opcode >= dis.HAVE_ARGUMENT else None, jump=False)
    if ins.name == "CALL":  # on 3.11 the PRECALL counts too
        effect = -ins.arg - 1
    pushed: list[Entry] = [] if ins.name in opcodes.NO_RESULT else [result]
    if ins.name == "LOAD_METHOD" or ins.name in ("LOAD_ATTR", "LOAD_SUPER_ATTR") and ins.arg & 1 and opcodes.ATTRIBUTE_PUSHES_TWO:
        pushed.insert(0, NULL)
    return before[:len(before) + effect - len(pushed)] + pushed


__all__ = ["Raising", "Traced", "stack_after"]
