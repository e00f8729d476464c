"""Continuing frames in CPython from the middle of their code.

Owns the rebuilding of real interpreter frames. What must hold: every rebuilt frame has the user's code and function, exactly the given
locals and operand stack with exact reference counts, and its caller as f_back; an exception finds the user's handlers and lists
the user's lines; whatever cannot be rebuilt is refused before anything was consumed.

How: the function is called with placeholder arguments while a hook sits in the evaluator slot. The hook is entered with the new
frame, takes itself out of the slot, overwrites the frame's locals, stack and instruction, and lets CPython's evaluator go on from
there. A frame that waits for an inner one is linked as the running frame meanwhile, then gets the result (or the exception).

May import: llvmlite through emit, layouts, room, evaluator (its frame counter), tools, errors, ir.trace.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from trident.backend.native import engine, evaluator, layouts, points, room, tools, tracebacks
from trident.backend.native.emit import I1, I32, I64, NULL, PTR, VOID, Function, Module, i32, i64, ir
from trident.errors import ResumeError
from trident.ir.trace import NULL as NO_OBJECT
from trident.ir.trace import Arrival, Frame


class _Record(ctypes.Structure):
    """One frame for the native side; every object in it is borrowed from the `resume` call that made it."""

    _fields_ = (
        ("function", ctypes.c_void_p), ("code", ctypes.c_void_p),
        ("locals", ctypes.c_void_p), ("stack", ctypes.c_void_p),  # lists, emptied when the frame has been filled
        ("start", ctypes.c_void_p),  # the code unit before the one to continue with
        ("error", ctypes.c_void_p),  # the code unit that an exception comes from
        ("pops", ctypes.c_int64), ("push", ctypes.c_int64),  # when the inner frame has returned
        ("result", ctypes.c_void_p),
        ("nargs", ctypes.c_int64), ("kwnames", ctypes.c_void_p), ("placeholders", ctypes.c_void_p),
        ("inner", ctypes.c_void_p),  # the next record
        ("exception", ctypes.c_void_p),
    )


_AT = {name: getattr(_Record, name).offset for name, _ in _Record._fields_}
_CALLS_BELOW = 1  # calls in C that count as frames: that of ctypes

# --------------------------------------------------------------------------------------------------------------- native code


def _define_fill(module: Module) -> None:
    """`void copy(list, target)` moves list items into an array of words; `void fill(frame, record)` makes a frame's state."""
    layout = module.layout
    f = module.function("copy", I64, [PTR, PTR], internal=True)
    source, target = f.args
    none = module.external_variable("trident_no_object")
    count = f.load(source, layouts.OB_SIZE, I64)
    items = f.load(source, layouts.LIST_ITEMS)
    with f.loop(i64(0), count) as i:
        value = f.load(f.item(items, i))
        absent = f.equal(value, none)
        with f.when(f.b.not_(absent)):
            f.incref(value)
        old = f.load(f.item(target, i))
        f.store(f.b.select(absent, NULL, value), f.item(target, i))
        f.xdecref(old)
    failed = f.call("PyList_SetSlice", I32, source, i64(0), count, NULL)
    with f.when(f.differ(failed, i32(0))):
        f.call("PyErr_Clear", VOID)
    f.ret(count)

    f = module.function("fill", VOID, [PTR, PTR], internal=True)
    frame, record = f.args
    slots = f.at(frame, layout.frame_localsplus)
    count = f.call("copy", I64, f.load(record, _AT["locals"]), slots)
    with f.loop(i64(0), f.load(f.load(record, _AT["stack"]), layouts.OB_SIZE, I64)) as i:
        f.store(NULL, f.item(slots, f.b.add(count, i)))
    depth = f.call("copy", I64, f.load(record, _AT["stack"]), f.item(slots, count))
    f.store(f.b.trunc(f.b.add(count, depth), I32), frame, layout.frame_stacktop)
    f.ret()


def _define_enter(module: Module) -> None:
    """`ptr enter(record)`: call the record's function with the hook in the evaluator slot."""
    layout = module.layout
    f = module.function("enter", PTR, [PTR])
    (record,) = f.args
    pending, evaluator, collecting, code = (module.variable(n) for n in ("pending", "evaluator", "collecting", "replaced_code"))
    interp = f.load(f.call("PyThreadState_Get", PTR), layout.tstate_interp)
    f.store(f.call("_PyInterpreterState_GetEvalFrameFunc", PTR, interp), evaluator)
    f.store(record, pending)
    # Until the frame is made, the function has the code of the frame: it may have been given another one, also by another thread.
    function = f.load(record, _AT["function"])
    f.store(f.load(function, layout.function_code), code)
    f.store(f.load(record, _AT["code"]), function, layout.function_code)
    # No finalizer may run between here and the hook: its frames would come to the hook first.
    f.store(f.b.inttoptr(f.b.zext(f.call("PyGC_Disable", I32), I64), PTR), collecting)
    hook = module.address_of(module.external("hook", PTR, [PTR, PTR, I32]))
    f.call("_PyInterpreterState_SetEvalFrameFunc", VOID, interp, hook)
    result = f.call("_PyFunction_Vectorcall", PTR, function, f.load(record, _AT["placeholders"]),
                    f.load(record, _AT["nargs"], I64), f.load(record, _AT["kwnames"]))
    with f.when(f.equal(f.load(pending), record), likely=False):  # the frame could not be made
        f.call("disarm", VOID, interp)
    f.ret(result)

    f = module.function("disarm", VOID, [PTR], internal=True)
    f.store(f.load(code), f.load(f.load(pending), _AT["function"]), layout.function_code)
    f.store(NULL, pending)
    f.call("_PyInterpreterState_SetEvalFrameFunc", VOID, f.args[0], f.load(evaluator))
    with f.when(f.not_null(f.load(collecting))):
        f.call("PyGC_Enable", I32)
    f.ret()


def _define_inner(module: Module) -> None:
    """`ptr inner(tstate, frame, record)`: run the inner frames of a frame that waits for them, as its callees."""
    layout = module.layout
    f = module.function("inner", PTR, [PTR, PTR, PTR], internal=True)
    tstate, frame, record = f.args
    cframe = f.load(tstate, layout.tstate_cframe)
    caller = f.load(cframe, layout.cframe_current_frame)
    f.store(f.load(record, _AT["error"]), frame, layout.frame_prev_instr)
    f.store(caller, frame, layout.frame_previous)
    f.store(frame, cframe, layout.cframe_current_frame)
    f.add_to(tstate, layout.tstate_recursion_remaining, -1, I32)
    result = f.call("enter", PTR, f.load(record, _AT["inner"]))
    f.add_to(tstate, layout.tstate_recursion_remaining, 1, I32)
    f.store(caller, cframe, layout.cframe_current_frame)
    f.ret(result)


def _define_settle(module: Module) -> None:
    """`void settle(frame, record, result)`: what the pending instruction does with the inner frame's result."""
    layout = module.layout
    f = module.function("settle", VOID, [PTR, PTR, PTR], internal=True)
    frame, record, result = f.args
    slots = f.at(frame, layout.frame_localsplus)
    top = f.variable(f.int32(frame, layout.frame_stacktop))
    with f.loop(i64(0), f.load(record, _AT["pops"], I64)):
        f.store(f.b.sub(f.load(top, kind=I64), i64(1)), top)
        f.store(f.b.trunc(f.load(top, kind=I64), I32), frame, layout.frame_stacktop)
        f.clear(f.item(slots, f.load(top, kind=I64)))
    push = f.load(record, _AT["push"], I64)
    value = f.variable(result)
    with f.when(f.equal(push, i64(Arrival.GIVEN))):
        given = f.load(record, _AT["result"])
        f.incref(given)
        f.store(given, value)
    with f.when(f.b.or_(f.equal(push, i64(Arrival.GIVEN)), f.equal(push, i64(Arrival.NOTHING)))):
        f.decref(result)
    with f.when(f.differ(push, i64(Arrival.NOTHING))):
        f.store(f.load(value), f.item(slots, f.load(top, kind=I64)))
        f.store(f.b.trunc(f.b.add(f.load(top, kind=I64), i64(1)), I32), frame, layout.frame_stacktop)
    f.ret()


def _define_accepts(module: Module) -> None:
    """`i1 accepts(record, result)`: whether the pending instruction takes the inner frame's result; if not, that is a TypeError."""
    f = module.function("accepts", I1, [PTR, PTR], internal=True)
    record, result = f.args
    push, text = f.load(record, _AT["push"], I64), f.variable(NULL)
    not_none = f.differ(result, module.external_variable("_Py_NoneStruct"))
    with f.when(f.b.and_(f.equal(push, i64(Arrival.GIVEN)), not_none), likely=False):
        f.store(module.external_variable("trident_bad_init"), text)
    with f.when(f.equal(push, i64(Arrival.ITERATOR)), likely=False), f.when(f.equal(f.call("PyIter_Check", I32, result), i32(0))):
        f.store(module.external_variable("trident_bad_iterator"), text)
    with f.when(f.is_null(f.load(text))):
        f.ret(ir.Constant(I1, 1))
    message = f.call("PyObject_CallOneArg", PTR, f.load(text), result)
    f.decref(result)
    with f.when(f.not_null(message)):
        f.call("PyErr_SetObject", VOID, f.load(module.external_variable("PyExc_TypeError")), message)
        f.decref(message)
    f.ret(ir.Constant(I1, 0))


def _define_hook(module: Module) -> None:
    """`ptr hook(tstate, frame, throwflag)`: the evaluator of exactly one frame."""
    layout = module.layout
    f = module.function("hook", PTR, [PTR, PTR, I32])
    tstate, frame, throwflag = f.args
    record = f.load(module.ir.globals["pending"])
    with f.when(f.is_null(record), likely=False):
        f.forward(f.load(module.ir.globals["evaluator"]), PTR)
    same = f.b.and_(f.equal(f.load(frame, layout.frame_function), f.load(record, _AT["function"])),
                    f.equal(f.load(frame, layout.frame_code), f.load(record, _AT["code"])))
    with f.when(f.b.not_(f.b.and_(same, f.equal(throwflag, i32(0)))), likely=False):
        f.forward(f.load(module.ir.globals["evaluator"]), PTR)
    f.call("disarm", VOID, f.load(tstate, layout.tstate_interp))
    f.call("fill", VOID, frame, record)
    raising = f.variable(i32(0))
    f.store(f.load(record, _AT["start"]), frame, layout.frame_prev_instr)
    with f.when(f.not_null(f.load(record, _AT["inner"]))):
        result = f.call("inner", PTR, tstate, frame, record)
        with f.otherwise(f.is_null(result)) as (failed, returned):
            with failed:
                f.store(i32(1), raising)
            with returned:
                with f.otherwise(f.call("accepts", I1, record, result)) as (fine, refused):
                    with refused:
                        f.store(i32(1), raising)
                    with fine:
                        f.call("settle", VOID, frame, record, result)
                        f.store(f.load(record, _AT["start"]), frame, layout.frame_prev_instr)
    with f.when(f.is_null(f.load(record, _AT["inner"]))):
        cframe = f.load(tstate, layout.tstate_cframe)
        running = f.load(cframe, layout.cframe_current_frame)
        f.store(running, frame, layout.frame_previous)
        f.store(frame, cframe, layout.cframe_current_frame)  # 3.12 instruments the code of running frames
        f.call(tools.SHOW, VOID)
        f.store(running, cframe, layout.cframe_current_frame)
    error = f.load(record, _AT["exception"])
    with f.when(f.not_null(error)):
        kind = f.load(error, layouts.OB_TYPE)
        f.incref(kind)
        f.incref(error)
        f.call("PyErr_Restore", VOID, kind, error, f.call("PyException_GetTraceback", PTR, error))
        f.store(f.load(record, _AT["error"]), frame, layout.frame_prev_instr)
        f.store(i32(1), raising)
    with f.when(f.differ(f.load(raising, kind=I32), i32(0))):
        f.call(tools.NO_CALL, VOID)
    f.ret(f.call("_PyEval_EvalFrameDefault", PTR, tstate, frame, f.load(raising, kind=I32)))


def _define_start(module: Module) -> None:
    """`ptr start(record, caller, hidden, handled)`: enter, with `caller` (a frame, unless NULL) as the running frame meanwhile.

    hidden: see `room`. handled: NULL, or the exception that the frames are in the middle of handling (None: no exception).
    """
    layout = module.layout
    f = module.function("start", PTR, [PTR, PTR, I32, PTR])
    record, caller, hidden, handled = f.args
    tstate = f.call("PyThreadState_Get", PTR)
    active = f.call(tools.ACTIVE, I32)
    cframe = f.load(tstate, layout.tstate_cframe)
    running = f.load(cframe, layout.cframe_current_frame)
    with f.when(f.not_null(caller)):
        f.store(caller, cframe, layout.cframe_current_frame)
    before = f.variable(NULL)
    with f.when(f.not_null(handled)):
        f.store(f.call("PyErr_GetHandledException", PTR), before)
        _set_handled(f, handled)
    # The host program that has been left still counts as a frame; it is the outermost one of these.
    suspended = f.call(room.SUSPEND, I32, tstate, f.b.add(hidden, i32(_CALLS_BELOW + 1)))
    result = f.call("enter", PTR, record)
    f.call(room.RESUME, VOID, tstate, suspended)
    f.call(tools.HIDE, VOID, active)
    with f.when(f.not_null(handled)):
        _set_handled(f, f.load(before))
        f.xdecref(f.load(before))
    f.store(running, cframe, layout.cframe_current_frame)
    f.ret(result)


@contextmanager
def _called_from(f: Function, caller: ir.Value, hidden: ir.Value) -> Iterator[None]:
    """With `caller` (a frame, unless NULL) as the running frame; hidden: see `room`."""
    layout = f.module.layout
    tstate = f.call("PyThreadState_Get", PTR)
    cframe = f.load(tstate, layout.tstate_cframe)
    running = f.load(cframe, layout.cframe_current_frame)
    active = f.call(tools.ACTIVE, I32)
    with f.when(f.not_null(caller)):
        f.store(caller, cframe, layout.cframe_current_frame)
    suspended = f.call(room.SUSPEND, I32, tstate, f.b.add(hidden, i32(_CALLS_BELOW)))
    yield
    f.call(room.RESUME, VOID, tstate, suspended)
    f.call(tools.HIDE, VOID, active)
    f.store(running, cframe, layout.cframe_current_frame)


def _define_call(module: Module) -> None:
    """`ptr call(function, args, keywords, caller, hidden)`: PyObject_Call with `caller` (unless NULL) as the running
    frame meanwhile; hidden: see `room`."""
    f = module.function("call", PTR, [PTR, PTR, PTR, PTR, I32])
    function, args, keywords, caller, hidden = f.args
    with _called_from(f, caller, hidden):
        result = f.call("PyObject_Call", PTR, function, args, keywords)
    f.ret(result)


def _define_call_as(module: Module) -> None:
    """`ptr call_as(function, code, args, names, caller, hidden)`: call a function with the positional and keyword arguments in a tuple,
    as `call` does. The marker of no object where its code is another one: no Python runs between that look and the frame."""
    layout = module.layout
    f = module.function("call_as", PTR, [PTR, PTR, PTR, PTR, PTR, I32])
    function, code, args, names, caller, hidden = f.args
    with f.when(f.differ(f.load(function, layout.function_code), code), likely=False):
        marker = module.external_variable("trident_no_object")
        f.incref(marker)
        f.ret(marker)
    with _called_from(f, caller, hidden):
        count = f.b.sub(f.load(args, layouts.OB_SIZE, I64), f.load(names, layouts.OB_SIZE, I64))
        f.incref(code)
        result = f.call("PyObject_Vectorcall", PTR, function, f.at(args, layouts.TUPLE_ITEMS), count, names)
        f.decref(code)
    f.ret(result)


def _set_handled(f: Function, value: ir.Value) -> None:
    none = f.module.external_variable("_Py_NoneStruct")
    f.call("PyErr_SetHandledException", VOID, f.b.select(f.equal(value, none), NULL, value))


@cache
def _native() -> tuple[Any, Any, Any]:
    engine.add_symbol("trident_no_object", engine.immortal(NO_OBJECT))
    engine.add_symbol("trident_bad_init", engine.immortal(_bad_init))
    engine.add_symbol("trident_bad_iterator", engine.immortal(_bad_iterator))
    tools.install()
    module = Module("resume")
    room.define(module)
    _define_fill(module)
    _define_enter(module)
    _define_inner(module)
    _define_settle(module)
    _define_accepts(module)
    _define_hook(module)
    _define_start(module)
    _define_call(module)
    _define_call_as(module)
    code, address, any_object = module.compile(), ctypes.c_void_p, ctypes.py_object
    given = [any_object] * 3
    return (ctypes.PYFUNCTYPE(any_object, address, address, ctypes.c_int32, address)(code.address("start")),
            ctypes.PYFUNCTYPE(any_object, *given, address, ctypes.c_int32)(code.address("call")),
            ctypes.PYFUNCTYPE(any_object, *given, any_object, address, ctypes.c_int32)(code.address("call_as")))


# -------------------------------------------------------------------------------------------------------------------- Python

_REFUSED_FLAGS = layouts.CO_GENERATOR_LIKE
_NEEDED_FLAGS = layouts.CO_OPTIMIZED | layouts.CO_NEWLOCALS
UNCHANGED: Any = object()  # `handled`: the thread's handled exception is already what it must be, but for the block that we are in
THREADS: Any = object()  # `handled`: the same, and we are in no `except` block


def _point(frame: Frame, *, enter: bool, raises: bool) -> points.Point:
    """The point of a frame, after checking everything that the native side relies on."""
    code = frame.code
    where = f"{code.co_qualname} at offset {frame.offset}"
    if code.co_flags & _REFUSED_FLAGS or code.co_flags & _NEEDED_FLAGS != _NEEDED_FLAGS:
        raise ResumeError(f"{where}: only plain functions can be continued, not generators, coroutines or class bodies")
    if type(frame.function) is not FunctionType:
        raise ResumeError(f"{where}: its function is a {type(frame.function).__name__}")
    point = points.table(code).get(frame.offset)
    if point is None or enter and not point.enterable:
        raise ResumeError(f"{where}: no instruction to continue with starts there")
    if len(frame.locals) != layouts.nlocalsplus(code):
        raise ResumeError(f"{where}: {len(frame.locals)} locals given, the code has {layouts.nlocalsplus(code)}")
    if len(frame.stack) > code.co_stacksize:
        raise ResumeError(f"{where}: {len(frame.stack)} stack entries given, at most {code.co_stacksize} fit")
    if raises and len(frame.stack) < point.handler_depth:
        raise ResumeError(f"{where}: the exception handler needs {point.handler_depth} stack entries")
    return point


def _arguments(record: _Record, code: CodeType, kept: list[object]) -> None:
    """Placeholder arguments with which the function can be called."""
    count = code.co_argcount
    keyword_only = code.co_varnames[count:count + code.co_kwonlyargcount]
    record.nargs = count
    if keyword_only:
        kept.append(keyword_only)
        record.kwnames = id(keyword_only)
    placeholders = (ctypes.c_void_p * (count + len(keyword_only) + 1))(*[id(None)] * (count + len(keyword_only)))
    kept.append(placeholders)
    record.placeholders = ctypes.addressof(placeholders)


def _complete(record: _Record, frame: Frame, point: points.Point, kept: list[object]) -> None:
    function = frame.function  # whatever code it has by now: see `enter`
    if frame.offset <= points.copies_free_variables_at(frame.code):
        frame.locals[-len(frame.code.co_freevars):] = [NO_OBJECT] * len(frame.code.co_freevars)
    kept.append(function)
    record.function, record.code = id(function), id(frame.code)
    record.locals, record.stack = id(frame.locals), id(frame.stack)
    base = layouts.code_units(frame.code)
    record.start, record.error = base + point.start - 2, base + point.error
    _arguments(record, frame.code, kept)


def _outer(record: _Record, frame: Frame, point: points.Point, kept: list[object]) -> None:
    """What happens in a frame that waits for an inner one once that has returned."""
    pops, following = (point.pops, point.next) if frame.is_call else (frame.pops, frame.next_offset)
    where = f"{frame.code.co_qualname} at offset {frame.offset}"
    if pops < 0:
        raise ResumeError(f"{where}: the instruction is not a call")
    if pops > len(frame.stack):
        raise ResumeError(f"{where}: the call takes {pops} entries off a stack of {len(frame.stack)}")
    after = points.table(frame.code).get(following)
    if after is None or not after.enterable:
        raise ResumeError(f"{where}: no instruction to continue with starts at offset {following}")
    record.pops, record.push = pops, frame.arrival
    if frame.arrival is Arrival.GIVEN:
        kept.append(frame.result)
        record.result = id(frame.result)
    if len(frame.stack) - pops + (frame.arrival is not Arrival.NOTHING) > frame.code.co_stacksize:
        raise ResumeError(f"{where}: the result does not fit on the stack")
    record.start = layouts.code_units(frame.code) + after.start - 2


def _bad_init(result: object) -> str:
    """What CPython says of an `__init__` that returns something."""
    return f"__init__() should return None, not '{type(result).__name__}'"


def _bad_iterator(result: object) -> str:
    """What CPython says of an `__iter__` that returns no iterator."""
    return f"iter() returned non-iterator of type '{type(result).__name__}'"


def _hidden_below() -> tuple[int | None, int]:
    """Address of the innermost running frame that is not Trident's, and the number of Trident's frames above it."""
    frame, count = tracebacks.user_frame()
    return None if frame is None else layouts.interpreter_frame(frame), count


def call(function: Any, args: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None) -> Any:
    """Call something of the user's so that it does not find Trident's frames below it (`sys._getframe`, `warnings`, `logging`)."""
    try:
        return _native()[1](function, args, keywords or {}, *_hidden_below())
    finally:
        del function, args, keywords


def call_as(function: FunctionType, code: CodeType, args: tuple[Any, ...], names: tuple[str, ...]) -> Any:
    """The same for a function, with a code object that it has now or had when its arguments were bound; the last arguments have names."""
    try:
        result = _native()[2](function, code, args, names, *_hidden_below())
        if result is NO_OBJECT:  # it has another code by now
            function = FunctionType(code, function.__globals__, function.__name__, None, function.__closure__)
            result = _native()[2](function, code, args, names, *_hidden_below())
        return result
    finally:
        del function, args


def resume(frames: Sequence[Frame], exc: BaseException | None = None, *, handled: Any = UNCHANGED) -> Any:
    """Continue frames, the outermost first, in CPython; the result is what the outermost one returns or raises.

    Consumes them: their `locals` and `stack` lists are empty afterwards, so that objects live exactly as long as in CPython.
    The innermost frame continues with the instruction at its offset, or, where `exc` is given, with that exception raised by
    that instruction. Its traceback loses the frames of Trident that it starts with. Every other frame waits for the inner one:
    with `is_call` the call at its offset takes the result; else `pops` entries go, and it continues at `next_offset`. What is
    pushed is said by `arrival`.

    handled: the exception that the innermost frame is in the middle of handling (None: no exception). Left out, the thread's
    state counts, so call this outside of `except` blocks; inside one that has caught `exc`, its `__context__` counts. With THREADS
    the thread's state counts in any case (code that handles `exc` may well raise it again).

    The frames have as f_back the innermost running frame that is not Trident's. A frame state that cannot be right is a
    ResumeError, and then nothing was consumed or run.
    """
    if not frames:
        raise ResumeError("no frame to continue")
    layouts.current()
    kept: list[object] = []
    records = (_Record * len(frames))()
    last = len(frames) - 1
    checked = [_point(frame, enter=index == last and exc is None, raises=index < last or exc is not None)
               for index, frame in enumerate(frames)]
    for index, (frame, point) in enumerate(zip(frames, checked, strict=True)):
        _complete(records[index], frame, point, kept)
        if index < last:
            _outer(records[index], frame, point, kept)
            records[index].inner = ctypes.addressof(records[index + 1])
    if exc is not None:
        exc.__traceback__ = tracebacks.strip_raised(exc.__traceback__)
        records[last].exception = id(exc)
        if handled is UNCHANGED and sys.exception() is exc:
            handled = exc.__context__
    if handled is THREADS:
        handled = UNCHANGED
    evaluator.note_frames(len(frames))
    below, hidden = _hidden_below()
    try:
        return _native()[0](ctypes.addressof(records), below, hidden, None if handled is UNCHANGED else id(handled))
    finally:
        del exc, frames, frame, handled  # an exception that passes here must not keep them alive
