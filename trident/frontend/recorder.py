"""The recorder: executes a function's bytecode for real, on the real objects, while it writes the trace of what it did.

Owns the interpreter loop, the two entry points and the way out. What must hold: nothing is executed twice; whatever cannot be
recorded is finished by CPython from the exact instruction (`services.resume`), with the right result or exception; an internal
error never changes the result of the call.

May import: ir, errors, boundary, frontend.*.

For models (`frontend/models/`): the methods of Recorder and its bases that make up their interface are
  execute, effect, op, guard, pin, result, const          core.py
  ssa, type_of, number_kind, promote, virtual_tuple, virtual_list, virtual_dict      guards.py
  attribute, call, call_pure, opaque                        objects.py, calls.py
  known_items / iterate, length, abort                      here
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from inspect import CO_VARKEYWORDS
from types import CodeType, FunctionType
from typing import Any, Protocol

from trident.boundary import answer, describe_error, reraise
from trident.errors import TridentError
from trident.frontend import iteration, operators
from trident.frontend.aborts import AbortInfo, Leave, PartlyExecuted, UserRaised
from trident.frontend.analysis import analyse
from trident.frontend.calls import avoid
from trident.frontend.core import Services, users_part
from trident.frontend.cpython import opcodes
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.instances import RUN_TIME
from trident.frontend.loops import Ended, Looping, Onward, Target
from trident.frontend.raising import stack_after
from trident.frontend.snapshots import Reviver
from trident.frontend.values import Const, Traced, Value
from trident.ir import NULL, Snapshot, Trace, TraceBuilder

__all__ = ["INLINE_BLAME", "Outcome", "Options", "Recorder", "Services", "begin", "begin_bridge", "describe_fault", "record",
           "record_bridge"]


class Options(Protocol):
    """What the recorder reads of the options; all have defaults."""

    demoted: set[tuple[int, str]]  # (id(dict or list or cell), key) whose values are read when the trace runs
    generalised: set[Any]  # numbers (or paths to items) of the arguments that are other objects at each call
    max_trace_ops: int
    loops: dict[Any, Any]  # headers of loops by what they are known by (see loops.py); without it, loops are unrolled


MAX_INSTRUCTIONS = 400_000
# Reasons for which the inlined function in which a recording ended is an opaque call in the next one.
INLINE_BLAME = frozenset({"opcode", "unsupported", "promote", "raised", "internal"})


@dataclass(slots=True)
class Outcome:
    """How a recorded call ended.

    result: of the call; `error`: what the call raised instead. trace: None if the recording was given up; `abort` says why.
    overwritten: (id, key) of pinned places that the trace itself changes: a trace that reads them dynamically is needed
    (`options.demoted`), this one would miss at its second execution. blamed: the inlined function that ended the recording,
    "" if it was none; it is an opaque call from now on, so that the next recording gets further. identified: number of an
    argument -> the object that the trace guards it to be. onward: the call is not over: it goes on at the header of a loop (`trace`
    leads there), and there is neither result nor error yet.
    faults: what the shadow check has found.
    """

    result: object = None
    error: BaseException | None = None
    trace: Trace | None = None
    abort: AbortInfo | None = None
    overwritten: set[tuple[int, str]] = field(default_factory=set)
    blamed: str = ""
    identified: dict[Any, object] = field(default_factory=dict)
    onward: Onward | None = None
    faults: list[str] = field(default_factory=list)

    def unwrap(self) -> object:
        """The result, or raise what the call raised."""
        error, self.error = self.error, None  # its traceback will hold this frame
        try:
            if error is not None:
                reraise(error)
            return self.result
        finally:
            del error


class Recorder(Looping):
    """Interprets frames. See the module."""

    step_depth = 0  # number of frames when the current instruction began
    final: Any = None  # the SSA object of the outermost frame's result
    fault: str = ""  # text of an internal error that was survived
    own_keywords: Traced | None = None  # **kwargs of the outermost frame, until it is looked at, where that changes it
    most_opaque: int | None = None  # opaque calls beyond which the trace would not be worth it

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.handled: list[Value] = []

    # --------------------------------------------------------------------------------------------- the loop
    def step(self) -> None:
        """Execute and record one instruction."""
        if self.shadow is not None:
            self.shadow.instruction()
        frame = self.frames[-1]
        ins = frame.code.instructions[frame.pc]
        frame.current = ins
        frame.before = frame.stack.copy()
        if not self.pure_base:
            self.serial += 1
            self.executed = 0
            self.step_depth = len(self.frames)
            self.last_result = None
            if self.undo:
                self.undo.clear()
            self.builder.line = ins.line
            if ins.header:
                self.arrive(frame, ins)
            self.started = True
        frame.pc += 1
        self.call_instruction = False
        self.pending = None
        self.builder.line = ins.line
        ins.handler(self, frame, ins)

    def run_until(self, depth: int) -> None:
        """Interpret until only `depth` frames are left."""
        while len(self.frames) > depth:
            self.step()

    def leave_frame(self, value: Value) -> None:
        """RETURN: from the outermost frame the result must be an object."""
        if len(self.frames) == 1:
            held = self.held_by(self.frames[0])  # without what is made for the result only
            self.final = self.ssa(value, "object")
            self.keep(held)
        self.return_value(value)

    def run(self) -> Outcome:
        """Interpret all frames to the end, or hand them over to CPython."""
        limit = getattr(self.options, "max_trace_ops", MAX_INSTRUCTIONS)
        abort: tuple[str, str] | None = None
        exc: BaseException | None = None
        half_way = unsettled = False
        watched = self.services.watched
        try:
            while self.frames and not self.dead and self.serial < limit and not self._too_opaque() and not answer(watched, False):
                self.advance()
            if self.frames:
                self._stop_before_next()
                abort = ("length", f"{limit} instructions") if self.serial >= limit else ("internal", self.dead)
                if self._too_opaque():
                    abort = ("opaque", f"more than {self.most_opaque} opaque calls")
                if answer(watched, False):
                    abort = ("frame", "a tool that traces or profiles was installed")
        except Ended:
            return self._go_on()
        except Leave as leave:
            abort, unsettled = (leave.reason, leave.text), True
        except UserRaised as raised:
            exc = raised.error
            abort = ("raised", answer(partial(describe_error, exc), ""))
        except KeyboardInterrupt as error:  # between two operations: raised at the next one
            abort, exc = ("interrupt", "KeyboardInterrupt"), error
        except Exception as error:  # an internal fault: the call goes on in CPython
            # The recorder stands deeper in the stack than the code that it executes would.
            reason = "depth" if isinstance(error, RecursionError) else "internal"
            abort, unsettled, half_way = (reason, answer(partial(describe_fault, error), "")), True, isinstance(error, PartlyExecuted)
        if not self.frames:
            return self._finish(abort, exc)
        assert abort is not None
        if half_way:
            raise TridentError(f"{self.builder.file}:{self.builder.line}: an instruction failed half-way: {abort[1]}")
        if unsettled or exc is not None:
            del self.frames[self.step_depth:]
        if unsettled:
            self._settle()
        return self._hand_over(abort, exc)

    def _too_opaque(self) -> bool:
        return self.most_opaque is not None and len(self.builder.trace.opaque_calls) > self.most_opaque

    def _finish(self, abort: tuple[str, str] | None, exc: BaseException | None) -> Outcome:
        """The outermost frame has returned."""
        assert self.returned is not None
        self.identified.pop(-1, None)
        outcome = Outcome(self.returned.obj, exc, overwritten=self.overwritten, identified=self.identified)
        if self.shadow is not None:
            if abort is None:
                self.shadow.finished(outcome.result, self.final)
            outcome.faults = self.shadow.close()
        try:
            if abort is None:
                outcome.trace = self.builder.ret(self.final)
        except Exception as error:
            abort = "internal", answer(partial(describe_fault, error), "")
        if abort is not None:
            outcome.abort = AbortInfo(*abort, self.builder.file, self.builder.line)
        answer(self.release, None)
        return outcome

    def _go_on(self) -> Outcome:
        """The trace has ended at the header of a loop."""
        self.identified.pop(-1, None)
        outcome = Outcome(trace=self.complete, overwritten=self.overwritten, identified=self.identified, onward=self.onward)
        if self.shadow is not None:
            outcome.faults = self.shadow.close()
        answer(self.release, None)
        return outcome

    def release(self) -> None:
        """Drop every reference to the program's objects, and the recorder's own cycle: lifetimes must not wait for the collector."""
        for frame in self.frames:
            frame.clear()
            frame.stack, frame.before = [], []
        self.frames.clear()
        self.undo.clear()
        self.returned = self.last_result = self.final = None
        self.pending = None
        self.handled.clear()
        self.own_frame = self.onward = self.complete = None
        self.forget()
        self.equal_to.clear()
        self.identified = {}
        self.snapshots.close()

    # ----------------------------------------------------------------------------------------------- the way out
    def _stop_before_next(self) -> None:
        """Make the innermost frame stop at its next instruction instead of the current one."""
        frame = self.frames[-1]
        frame.current = frame.code.instructions[frame.pc]
        frame.before = frame.stack

    def _settle(self) -> None:
        """After a fault: complete the current instruction if it was executed, else let CPython begin it anew."""
        if self.executed and not self.harmless:
            self._complete_instruction()
            return
        for undo in reversed(self.undo):
            undo()

    def _complete_instruction(self) -> None:
        """The current instruction has been executed but could not be recorded: its result is what was executed last."""
        if self.executed > 1:
            raise TridentError("an instruction failed half-way; its effects cannot be completed")
        frame, result = self.frames[-1], self.last_result
        ins, before = frame.current, frame.before
        frame.pc = ins.index + 1
        if ins.name.startswith(("POP_JUMP", "JUMP_IF")):
            taken = bool(result) is ("TRUE" in ins.name)
            frame.stack = before if taken and "OR_POP" in ins.name else before[:-1]
            frame.pc = ins.target if taken else frame.pc
        elif ins.name == "FOR_ITER":
            if result is iteration.SENTINEL:
                frame.stack, frame.pc = before[:-1], opcodes.loop_exit(ins)
            else:
                frame.stack = [*before, Const(result)]
        elif ins.name == "BEFORE_WITH":
            manager: Any = before[-1].obj  # type: ignore[union-attr]
            leave = getattr(type(manager), "__exit__")  # noqa: B009 (a special method)
            frame.stack = [*before[:-1], Const(leave.__get__(manager)), Const(result)]
        else:
            if ins.name == "UNARY_NOT" or ins.name == "CONTAINS_OP" and ins.arg:
                result = not result
            frame.stack = stack_after(ins, before, Const(result))
        self._stop_before_next()

    def _hand_over(self, abort: tuple[str, str], exc: BaseException | None) -> Outcome:
        """Continue all frames in CPython."""
        innermost = self.frames[-1]
        reason, text = abort
        info = AbortInfo(reason, text, innermost.code.code.co_filename, innermost.current.line)
        blamed = answer(lambda: self._blame(reason, text), "")
        for frame in self.frames[-1:]:
            frame.no_callee()
        frames = [frame.concrete(frame.current.offset, frame.before) for frame in self.frames]
        outcome = Outcome(abort=info, overwritten=self.overwritten, blamed=blamed)
        if self.shadow is not None:
            outcome.faults = self.shadow.close()
        answer(self.release, None)
        self.builder.abandon()  # what goes on now may take long
        try:
            outcome.result = self.services.leave(frames) if reason == "opaque" else self.services.resume(frames, exc)
        except BaseException as error:
            outcome.error = error.with_traceback(users_part(error.__traceback__))
        return outcome

    def _blame(self, reason: str, text: str) -> str:
        """The inlined function that ended the recording is not followed into the next time."""
        if reason not in INLINE_BLAME:
            return ""
        for frame in reversed(self.frames[1:]):
            if reason != "raised" or frame.code.handler_of(frame.current.index) is not None:
                avoid(frame.code.code, text)
                return frame.code.code.co_qualname
        return ""

    # -------------------------------------------------------------------------------------------------- for models
    def known_items(self, value: Value) -> list[Value] | None:
        """Items of an iterable, with the guards that make their number a constant; None where it cannot be one."""
        return iteration.known_items(self, value)

    def iterate(self, value: Value) -> list[Value]:
        """As `known_items`; where the items are not known the recording ends."""
        items = iteration.known_items(self, value)
        if items is None:
            raise Leave("unsupported", f"the items of a {type(value.obj).__name__} are needed")
        return items

    def length(self, value: Value) -> Value:
        """`len(value)`."""
        return operators.length(self, value)

    def truth(self, value: Value) -> Value:
        """`bool(value)`: a Const, or a Traced of kind bool."""
        return operators.truth(self, value)

    def mark_type(self, entry: Any, cls: type) -> None:
        """The exact type of a result that is known from the operation."""
        if type(entry) is Traced and entry.known_type is None:
            assert type(entry.obj) is cls
            entry.known_type = cls


def describe_fault(error: Exception) -> str:
    """An error of Trident's own: what, and where in Trident."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" at {trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}" if trace is not None else ""
    return describe_error(error) + where


def begin(function: FunctionType, code: CodeType, bound: tuple[object, ...], services: Services, options: Any = None) -> Recorder:
    """A recorder that is about to execute a call: nothing of it has been executed, and `run` never fails to end it.

    bound: the arguments in localsplus order (positional, keyword-only, *args, **kwargs) that were bound for `code`, which the call
    runs, whatever the function has by now."""
    info = analyse(code)
    builder = TraceBuilder(function.__qualname__, len(bound) + 1)
    rec = Recorder(builder, services, options, bridge=False)
    if getattr(options, "check", 0) > 1:
        services.shadow(rec, [*bound, function])
    args = builder.args
    locals_: list[Entry] = [NULL] * info.n_locals
    generalised = getattr(options, "generalised", ())
    for n, obj in enumerate(bound):
        locals_[n] = Traced(obj, args[n], info.names[n], facts={"argument": True, "entry": True, "position": n})
        if n in generalised:
            locals_[n].facts[RUN_TIME] = True  # type: ignore[union-attr]
    own = Traced(function, args[-1], function.__qualname__, FunctionType, facts={"argument": True, "entry": True})
    frame = RecordedFrame(own, info, locals_)
    rec.frames.append(frame)
    rec.step_depth = 1
    rec.enter(frame)
    builder.line = code.co_firstlineno
    for n, obj in enumerate(bound):  # *args and **kwargs are made anew for each call: nobody else can see them
        if n >= code.co_argcount + code.co_kwonlyargcount:
            locals_[n].known_type = type(obj)  # type: ignore[union-attr]
    if code.co_flags & CO_VARKEYWORDS and _changes_items(info):
        rec.own_keywords = locals_[len(bound) - 1]  # type: ignore[assignment]
    if code.co_freevars or _reads_globals(info):
        rec.guard_identity(own, f"the function is {function.__qualname__}")
    rec.pin_function(function, function.__qualname__, code)  # `__code__` can be assigned
    return rec


def record(function: FunctionType, bound: tuple[object, ...], services: Services, options: Any = None) -> Outcome:
    """Execute a call and record it."""
    return begin(function, function.__code__, bound, services, options).run()


def _reads_globals(info: Any) -> bool:
    return any(ins.name in ("LOAD_GLOBAL", "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "MAKE_FUNCTION", "LOAD_BUILD_CLASS")
               for ins in info.instructions)


def _changes_items(info: Any) -> bool:
    """Whether code looks as if it changed the items of a dict."""
    return not _CHANGING.isdisjoint(info.code.co_names) or any(ins.name in ("STORE_SUBSCR", "DELETE_SUBSCR") for ins in info.instructions)


_CHANGING = frozenset({"pop", "popitem", "update", "setdefault", "clear"})


def begin_bridge(snapshot: Snapshot, values: list[object], services: Services, options: Any = None, *,
                 loop: Target | None = None) -> Recorder:
    """A recorder that is about to continue from a side exit; see `begin`. values: the boxed operands of the exit's state. Whoever
    runs it empties the list before, so that the frames alone hold them. loop: what the trace is to be, if the snapshot is of a header."""
    builder = TraceBuilder(f"bridge of {snapshot.frames[0].code.co_qualname}", len(values), parent=snapshot)
    rec = Recorder(builder, services, options, bridge=True)
    if getattr(options, "check", 0) > 1:
        services.shadow(rec, values)
    reviver = Reviver(snapshot, values, builder, rec.begin_loop(loop) if loop is not None else None)
    rec.frames = [reviver.frame(state, analyse, innermost=state is snapshot.frames[-1]) for state in snapshot.frames]
    if getattr(options, "generalised", ()):
        reviver.mark(RUN_TIME)
    rec.step_depth = len(rec.frames)
    rec.enter(rec.frames[-1])
    builder.line = snapshot.line
    rec.serial += 1
    rec.may_exit()  # the state of the bridge's start
    builder.hoist_here()
    rec.hoist_epoch = 0
    return rec


def record_bridge(snapshot: Snapshot, values: list[object], services: Services, options: Any = None) -> Outcome:
    """Continue from a side exit and record the way on. The list of values is emptied."""
    recorder = begin_bridge(snapshot, values, services, options)
    values.clear()
    return recorder.run()
