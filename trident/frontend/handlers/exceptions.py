"""Exceptions: raising, handlers, `with` that is left by one, exception groups.

What must hold: the thread's handled exception changes together with the op that says so, and never before `rec.op` has accepted it.

May import: frontend.*, boundary, ir.
"""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING, Any

from trident.boundary import describe_error
from trident.frontend import iteration
from trident.frontend.aborts import Leave, UserRaised
from trident.frontend.analysis import Instruction
from trident.frontend.calls import INLINED
from trident.frontend.frames import RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import exceptions
from trident.ir.describing import is_a, mro_of

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_cause: Any = BaseException.__cause__
_set_cause = _cause.__set__


@handles("PUSH_EXC_INFO")
def push_exc_info(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """The exception on top becomes the handled one; the one before goes below it."""
    error = frame.pop_value()
    held = rec.op("push_handled", rec.ssa(error, "object"))
    before = exceptions.push(error.obj)
    known = rec.handled[-1] if rec.handled and rec.handled[-1].obj is before else rec.result(before, held)
    rec.handled.append(error)
    frame.stack += [known, error]


@handles("POP_EXCEPT")
def pop_except(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """The handled exception of before."""
    before = frame.pop_value()
    rec.op("pop_handled", rec.ssa(before, "object"))
    exceptions.pop(before.obj)
    if rec.handled:
        rec.drop(rec.handled.pop())


def _classes(rec: Recorder, value: Value) -> list[type]:
    """The exception classes after `except`."""
    value = rec.resolve(value)
    if type(value) is Traced:
        rec.promote(value, "the classes after `except`")
        value = rec.resolve(value)
    items: list[Value] = [value]
    if is_a(value.obj, tuple):
        items = iteration.known_items(rec, value) or []
    found = []
    for item in items:
        cls = rec.promote(item, "a class after `except`")
        if not is_a(cls, type) or not issubclass(cls, BaseException):
            raise Leave("raised", "catching something that is no exception class")
        found.append(cls)
    return found


@handles("CHECK_EXC_MATCH")
def check_exc_match(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace the classes on top by whether the exception below is of one of them."""
    classes = _classes(rec, frame.pop_value())
    error: Any = frame.stack[-1]
    mro = mro_of(rec.type_of(error))
    frame.stack.append(Const(any(cls in mro for cls in classes)))


@handles("CHECK_EG_MATCH")
def check_group_match(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace exception and classes by what an `except*` clause leaves and what it takes."""
    classes = frame.pop_value()
    if any(issubclass(cls, BaseExceptionGroup) for cls in _classes(rec, classes)):
        raise Leave("raised", "except* with an exception group")
    pair = rec.opaque(Const(exceptions.match_group), [frame.pop_value(), classes], {}, "except*")
    assert isinstance(pair, Traced)
    parts = [Traced(obj, rec.builder.op("tuple_item", pair.ssa, item=n), facts={"fresh": True}) for n, obj in enumerate(pair.obj)]
    if parts[1].obj is not None and rec.handled:
        rec.handled[-1] = parts[1]
    frame.stack += parts


@handles("PREP_RERAISE_STAR")
def prepare_reraise(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Replace the original exception and the list of what came of it by what is to be raised, or None."""
    raised, original = frame.pop_value(), frame.pop_value()
    frame.stack.append(rec.opaque(Const(exceptions.prepare_reraise), [original, raised], {}, "except*"))


@handles("WITH_EXCEPT_START")
def with_except_start(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Call `__exit__`, which lies three below the exception, and push what it returns."""
    leave, error = frame.stack[-4], frame.stack[-1]
    assert isinstance(leave, Value) and isinstance(error, Value)
    cls = rec.type_of(error)
    trace = rec.result(error.obj.__traceback__, rec.builder.op("traceback", rec.ssa(error, "object")))  # type: ignore[attr-defined]
    result = rec.call(leave, [Const(cls), error, trace], {})
    if result is not INLINED:
        frame.stack.append(result)


@handles("RERAISE")
def reraise(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """The exception on top goes on, with the traceback that it has."""
    error = frame.stack[-1]
    assert isinstance(error, Value)
    if not rec.is_handled(error.obj):  # type: ignore[arg-type]
        raise Leave("raised", describe_error(error.obj))  # type: ignore[arg-type]
    rec.unwind(error, entry=False)


@handles("RAISE_VARARGS")
def raise_varargs(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`raise`, `raise x`, `raise x from y`."""
    cause = rec.resolve(frame.pop_value()) if ins.arg == 2 else None
    error = rec.resolve(frame.pop_value()) if ins.arg else _handled(rec)
    cls: Any = error.obj if is_a(error.obj, type) else type(error.obj)
    if not issubclass(cls, BaseException) or cause is not None and not is_a(cause.obj, BaseException | None):
        raise Leave("raised", "raise")
    if not rec.is_handled(None if error.obj is cls else error.obj):  # type: ignore[arg-type]
        raise Leave("raised", cls.__name__ if error.obj is cls else describe_error(error.obj))  # type: ignore[arg-type]
    if not ins.arg:
        rec.unwind(error, entry=False)
        return
    given = error.obj
    for value in (error, cause):
        if value is not None:
            rec.type_of(value)
    if error.obj is cls:
        rec.promote(error, "the class that is raised")
        plain = type(rec.read_type(cls, "__new__")) is types.BuiltinFunctionType
        if not plain or rec.read_type(type(cls), "__call__") is not type.__call__:
            raise Leave("unsupported", "a class of exceptions that may make something else")
    try:
        if error.obj is cls:
            error = rec.opaque(error, [], {}, f"makes a {cls.__name__}")
        if cause is not None:
            rec.executed = 0  # making the exception is not what the instruction yields
            rec.opaque(Const(_set_cause), [error, cause], {}, "raise … from …")
        rec.raise_value(error)
    except UserRaised:
        raise
    except Exception:
        made: Any = rec.last_result if error.obj is cls else error.obj
        if not is_a(made, BaseException) or not rec.executed and made is given:
            raise  # nothing of the instruction has been executed
        if cause is not None:
            _set_cause(made, cause.obj)
        exceptions.add_context(made)
        raise UserRaised(made) from None


def _handled(rec: Recorder) -> Value:
    """The exception being handled."""
    error = sys.exception()
    if error is None:
        raise Leave("raised", "no exception to raise again")
    if rec.handled and rec.handled[-1].obj is error:
        return rec.handled[-1]
    for frame in rec.frames:
        for entry in frame.before:
            if isinstance(entry, Value) and not isinstance(entry, Virtual) and entry.obj is error:
                return entry
    raise Leave("unsupported", "raising again what a caller handles")
