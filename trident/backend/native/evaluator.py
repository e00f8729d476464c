"""The evaluator (PEP 523): frames of ordinary functions captured at their entry.

Owns the interpreter's evaluator slot while a hook is installed and the per-thread switch. What must hold:
only frames of threads in which a hook is active are looked at; every frame that is not captured goes on to the evaluator that was
there before; a captured frame runs none of its instructions, and CPython clears and pops it as after any other call.

May import: llvmlite through emit, layouts, callable (entry cells), verdicts, tracebacks.

Chaining. Each evaluator function that we put into the slot has the one that it found there built in, so a chain never turns. The
one exception: a foreign evaluator that we forward to may meanwhile have put itself on top of us and have us as its predecessor;
then the slot holds it, it has seen the frame already, and the frame goes to CPython's own evaluator.

Leaving a captured frame. On 3.11 the evaluator's caller clears and pops the frame, so the result (or NULL) is simply returned. On
3.12 the evaluator must do it, and only CPython's own can: it is entered on the frame with the result on the stack, just before a
RETURN_VALUE of a stand-in code object; or, for an exception, at the frame's start with the throw flag, where no handler and no
traceback entry applies.
"""

from __future__ import annotations

import atexit
import ctypes
import dis
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType, TracebackType
from typing import Any

from trident import locks
from trident.backend.native import binding, engine, layouts, room, tools, tracebacks, tracing, verdicts
from trident.backend.native import callable as native_callable
from trident.backend.native.callable import BUSY, CELL_FLAGS, DISABLED, LEFT, MISS_SYMBOL
from trident.backend.native.emit import I1, I32, I64, NULL, PTR, VOID, Function, Module, i32, i64, ir
from trident.backend.native.verdicts import Decide


class _Thread(ctypes.Structure):
    """A thread that a hook is or was active in; native code walks the list of them."""

    _fields_ = (("next", ctypes.c_void_p), ("tstate", ctypes.c_void_p), ("id", ctypes.c_uint64), ("active", ctypes.c_int64),
                ("suppressed", ctypes.c_int64), ("frames", ctypes.c_uint64), ("consult", ctypes.c_void_p),
                ("hook", ctypes.c_uint64), ("counting", ctypes.c_int64))


class _LeaveFrame:
    """Type of LEAVE_FRAME."""

    def __repr__(self) -> str:
        return "LEAVE_FRAME"


LEAVE_FRAME = _LeaveFrame()
"""What a `miss` of a captured frame returns to say that CPython shall run this very frame; nothing may have happened yet."""

_THREAD = {name: getattr(_Thread, name).offset for name, _ in _Thread._fields_}

_threads = ctypes.c_void_p(0)  # head of the list
_top = ctypes.c_void_p(0)  # the one of our evaluator functions that looks at frames; the others only forward

# --------------------------------------------------------------------------------------------------------------- native code


def _define_find(module: Module) -> None:
    """`ptr find(tstate)`: the thread's entry, or NULL."""
    f = module.function("find", PTR, [PTR], internal=True)
    f.inline()
    (tstate,) = f.args
    identity = f.load(tstate, module.layout.tstate_id, I64)
    node = f.variable(f.load(module.external_variable("trident_threads")))
    head, body, end = (f.b.append_basic_block(n) for n in ("head", "body", "end"))
    f.b.branch(head)
    f.b.position_at_end(head)
    current = f.load(node)
    f.b.cbranch(f.not_null(current), body, end)
    f.b.position_at_end(body)
    same = f.b.and_(f.equal(f.load(current, _THREAD["tstate"]), tstate), f.equal(f.load(current, _THREAD["id"], I64), identity))
    with f.when(same):
        f.ret(current)
    f.store(f.load(current, _THREAD["next"]), node)
    f.b.branch(head)
    f.b.position_at_end(end)
    f.ret(NULL)


def _define_ask(module: Module) -> None:
    """`ptr ask(entry, code, function)`: the answer of the active hook (see `verdicts.publish`); NULL: it has raised an exception."""
    f = module.function("ask", PTR, [PTR, PTR, PTR], internal=True)
    f.function.attributes.add("noinline")
    entry, code, function = f.args
    frames = f.load(entry, _THREAD["frames"], I64)
    f.add_to(entry, _THREAD["suppressed"], 1)
    answer = f.call("PyObject_CallFunctionObjArgs", PTR, f.load(entry, _THREAD["consult"]), code, function, NULL)
    f.add_to(entry, _THREAD["suppressed"], -1)
    f.store(frames, entry, _THREAD["frames"])  # asking is nobody's frame
    f.ret(answer)


def _unfit(f: Function, frame: ir.Value, throwflag: ir.Value) -> ir.Value:
    """Whether a frame cannot be captured: thrown into, not at its start, or not that of a plain function."""
    layout = f.module.layout
    code = f.load(frame, layout.frame_code)
    needed = layouts.CO_OPTIMIZED | layouts.CO_NEWLOCALS
    flags = f.b.and_(f.load(code, layout.code_flags, I32), i32(needed | layouts.CO_GENERATOR_LIKE))
    started = f.differ(f.load(frame, layout.frame_prev_instr), f.at(code, layout.code_start - 2))
    kind = f.load(f.load(frame, layout.frame_function), layouts.OB_TYPE)
    strange = f.b.or_(f.differ(flags, i32(needed)), f.differ(kind, f.module.external_variable("PyFunction_Type")))
    return f.b.or_(f.b.or_(f.differ(throwflag, i32(0)), started), strange)


def _emit_verdict(f: Function, code: ir.Value, function: ir.Value) -> tuple[ir.Value, ir.Value, Callable[[], None]]:
    """In `capture`: the cell and the miss for a function's frames, and what emits the release of what keeps them. Returns from the
    function where the frame is left to CPython, or asking has raised."""
    tstate, _, entry, _ = f.args
    decline = f.module.external_variable(MISS_SYMBOL)
    verdict = f.variable(f.call(verdicts.KNOWN, PTR, f.load(entry, _THREAD["hook"], I64), code, function))
    asked = f.variable(NULL)
    with f.when(f.is_null(f.load(verdict)), likely=False):
        with f.when(f.call(tracing.CHECK, I1, tstate, code)):
            f.ret(decline)
        answer = f.call("ask", PTR, entry, code, function)
        with f.when(f.is_null(answer)):
            f.ret(NULL)
        f.store(answer, asked)
        f.store(verdicts.emit_answer(f, answer, function), verdict)
        with f.when(f.is_null(f.load(verdict))):
            f.decref(answer)
            f.ret(decline)
    row = f.load(verdict)
    cell, on_miss = f.load(row, verdicts.CELL), f.load(row, verdicts.MISS)
    with f.when(f.is_null(cell), likely=True):
        f.xdecref(f.load(asked))
        f.ret(decline)
    held = verdicts.emit_hold(f, row)  # from here on Python may run, and the verdict be replaced while it is in use
    f.xdecref(f.load(asked))

    def release() -> None:
        for value in held:
            f.decref(value)

    return cell, on_miss, release


def _define_capture(module: Module) -> None:
    """`ptr capture(tstate, frame, entry, throwflag)`: run a frame natively. The miss marker: leave it to CPython."""
    layout = module.layout
    f = module.function("capture", PTR, [PTR, PTR, PTR, I32], internal=True)
    f.function.attributes.add("noinline")
    tstate, frame, entry, throwflag = f.args
    decline = module.external_variable(MISS_SYMBOL)
    with f.when(_unfit(f, frame, throwflag)):
        f.ret(decline)
    code, function = f.load(frame, layout.frame_code), f.load(frame, layout.frame_function)
    cell, on_miss, release = _emit_verdict(f, code, function)
    count = f.call(binding.COUNT, I64, code)
    off = f.differ(f.b.and_(f.load(cell, CELL_FLAGS, I64), i64(DISABLED | LEFT)), i64(0))
    wide = f.b.icmp_signed(">", count, i64(binding.MAX_PARAMETERS))
    with f.when(f.b.or_(f.b.or_(off, wide), f.call(tracing.CHECK, I1, tstate, code)), likely=False):
        release()
        f.ret(decline)
    bound = f.words(I64, f.b.add(count, i64(1)))
    with f.loop(i64(0), count) as i:
        f.store(f.load(f.item(f.at(frame, layout.frame_localsplus), i)), f.item(bound, i))
    f.store(function, f.item(bound, count))
    with f.when(f.call(room.FULL, I1, tstate), likely=False):
        release()
        f.ret(NULL)
    answer = native_callable.emit_dispatch(f, cell, code, bound)
    result = f.variable(answer)
    with f.when(f.equal(answer, decline)):
        with f.when(f.call(BUSY, I1, cell, tstate)):  # its callable has missed this call and leaves it to the interpreter
            release()
            f.ret(decline)
        f.add_to(entry, _THREAD["suppressed"], 1)
        missed = f.call(native_callable.MISSED, PTR, cell, on_miss, code, bound, f.b.add(count, i64(1)))
        f.add_to(entry, _THREAD["suppressed"], -1)
        f.store(missed, result)
        with f.when(f.equal(missed, module.external_variable("trident_leave_frame"))):
            f.decref(missed)
            f.store(decline, result)
    final = f.load(result)
    with f.when(f.is_null(final)):
        f.call(native_callable.CLEAN, VOID)
    f.call(tools.SHOW, VOID)
    release()
    f.ret(final)


def _forward(f: Function, previous: int) -> None:
    """Leave the frame to the evaluator before us."""
    default = f.module.address_of(f.module.external("_PyEval_EvalFrameDefault", PTR, [PTR, PTR, I32]))
    if previous == engine.api_address("_PyEval_EvalFrameDefault"):
        f.forward(default, PTR)
        return
    other = i64(previous).inttoptr(PTR)
    slot = f.call("_PyInterpreterState_GetEvalFrameFunc", PTR, f.load(f.args[0], f.module.layout.tstate_interp))
    f.forward(f.b.select(f.equal(slot, other), default, other), PTR)


def _leave(f: Function, result: ir.Value) -> None:
    """Return a captured frame's result, or NULL, from the evaluator."""
    layout = f.module.layout
    tstate, frame, _ = f.args
    if layout.caller_pops_frame:
        f.ret(result)
        return
    with f.when(f.is_null(result), likely=False):
        f.ret(f.call("_PyEval_EvalFrameDefault", PTR, tstate, frame, i32(1)))
    code = f.load(frame, layout.frame_code)
    slots = f.int32(code, layout.code_nlocalsplus)
    f.store(result, f.item(f.at(frame, layout.frame_localsplus), slots))
    f.store(f.b.trunc(f.b.add(slots, i64(1)), I32), frame, layout.frame_stacktop)
    stand_in = f.module.external_variable("trident_return_code")
    f.incref(stand_in)
    f.store(stand_in, frame, layout.frame_code)
    f.store(f.at(stand_in, layout.code_start + _return_offset() - 2), frame, layout.frame_prev_instr)
    f.decref(code)
    f.ret(f.call("_PyEval_EvalFrameDefault", PTR, tstate, frame, i32(0)))


def _identity(value: Any) -> Any:
    return value


@cache
def _return_offset() -> int:
    return next(i.offset for i in dis.get_instructions(_identity) if i.opname == "RETURN_VALUE")


def _define_evaluator(module: Module, previous: int) -> None:
    """`ptr evaluator(tstate, frame, throwflag)`: what lies in the interpreter's slot."""
    f = module.function("evaluator", PTR, [PTR, PTR, I32])
    tstate, frame, throwflag = f.args
    me = module.address_of(f.function)
    with f.when(f.equal(f.load(module.external_variable("trident_evaluator")), me), likely=True):
        entry = f.call("find", PTR, tstate)
        with f.when(f.not_null(entry)):
            on = f.b.and_(f.b.icmp_signed(">", f.load(entry, _THREAD["active"], I64), i64(0)),
                          f.equal(f.load(entry, _THREAD["suppressed"], I64), i64(0)))
            with f.when(on):
                result = f.call("capture", PTR, tstate, frame, entry, throwflag)
                with f.when(f.differ(result, module.external_variable(MISS_SYMBOL))):
                    _leave(f, result)
            f.add_to(entry, _THREAD["frames"], 1)
    _forward(f, previous)


@cache
def _export() -> None:
    verdicts.code_extra_index()
    for name, cell in (("trident_threads", _threads), ("trident_evaluator", _top)):
        engine.add_symbol(name, ctypes.addressof(cell))
    engine.add_symbol("trident_return_code", engine.immortal(_identity.__code__))
    engine.add_symbol("trident_leave_frame", engine.immortal(LEAVE_FRAME))


@cache
def _evaluator(previous: int) -> int:
    """Address of an evaluator function that forwards to `previous`."""
    _export()
    module = Module("evaluator")
    binding.define_binding(module)
    tracing.define_check(module)
    native_callable.define_clean(module)
    room.define(module)
    room.define_stack(module)
    native_callable.define_missed(module)
    _define_find(module)
    verdicts.define_known(module)
    _define_ask(module)
    _define_capture(module)
    _define_evaluator(module, previous)
    address = module.compile().address("evaluator")
    _previous[address] = previous
    return address


# ------------------------------------------------------------------------------------------------------------------ the slot

_previous: dict[int, int] = {}  # our evaluator functions, and what each forwards to
_lock = locks.lock()
_installed = 0
_slot_get = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(("_PyInterpreterState_GetEvalFrameFunc", ctypes.pythonapi))
_slot_set = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(("_PyInterpreterState_SetEvalFrameFunc", ctypes.pythonapi))


def _occupy() -> None:
    """Have one of our functions in the slot, or somewhere in the chain that starts there."""
    global _installed
    with _lock:
        interpreter = layouts.interpreter()
        slot = _slot_get(interpreter)
        if slot not in _previous:
            slot = _evaluator(slot)
            _slot_set(interpreter, slot)
        _top.value = slot
        _installed += 1


def _vacate() -> None:
    """Undo one `_occupy`. What others have put on top of us stays, and goes on forwarding to us."""
    global _installed
    with _lock:
        _installed -= 1
        if _installed:
            return
        interpreter = layouts.interpreter()
        while (slot := _slot_get(interpreter)) in _previous:
            _slot_set(interpreter, _previous[slot])


@atexit.register
def _shut_down() -> None:
    """From here on Python takes modules apart: no frame is looked at any more."""
    _threads.value = None
    _kept_at_exit.extend(_entries.values())  # whoever still holds one may go on counting in it
    _entries.clear()


# --------------------------------------------------------------------------------------------------------------- the threads

_entries: dict[int, _Thread] = {}  # by thread state id
_kept_at_exit: list[_Thread] = []


def _thread_entry() -> _Thread:
    """This thread's entry, made when there is none."""
    tstate = layouts.thread_state()
    identity = layouts.word(tstate + layouts.current().tstate_id)
    entry = _entries.get(identity)
    if entry is None:
        with _lock:
            entry = _entries[identity] = _Thread(_threads.value, tstate, identity)
            _threads.value = ctypes.addressof(entry)
    return entry


def _release(entry: _Thread) -> None:
    """Take an entry that nobody needs any more off the list."""
    with _lock:
        if entry.active or entry.suppressed or entry.counting or _entries.get(entry.id) is not entry:
            return
        at, address = _threads, ctypes.addressof(entry)
        while at.value != address:
            at = ctypes.c_void_p.from_address(at.value or 0)  # `next` is the first field
        at.value = entry.next
        del _entries[entry.id]


class suppressed:
    """Context manager: while it lasts, no frame of this thread is captured."""

    def __enter__(self) -> None:
        self._entry = _thread_entry()
        self._entry.suppressed += 1

    def __exit__(self, *_: object) -> None:
        self._entry.suppressed -= 1
        _release(self._entry)


class captured_again:
    """Context manager within `suppressed`: frames of this thread are captured as if it had ended."""

    def __enter__(self) -> None:
        self._entry = _thread_entry()
        self._before, self._entry.suppressed = self._entry.suppressed, 0

    def __exit__(self, *_: object) -> None:
        self._entry.suppressed += self._before


class count_frames:
    """Context manager that counts the Python frames that this thread runs: `with count_frames() as c: ...; c.count`.

    A captured frame runs no bytecode and does not count; frames that `resume` rebuilds do. Those that CPython 3.11 enters
    without asking any evaluator (`__getitem__` in Python that has become a specialised instruction) do not.
    """

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> count_frames:
        self._entry = _thread_entry()
        self._entry.counting += 1
        _occupy()
        self._before = self._entry.frames
        return self

    def __exit__(self, *_: object) -> None:
        self.count = self._entry.frames - self._before - 1  # this call is one
        _vacate()
        self._entry.counting -= 1
        _release(self._entry)


def note_frames(count: int) -> None:
    """Count frames of this thread that were entered without the evaluator."""
    entry = _entries.get(layouts.word(layouts.thread_state() + layouts.current().tstate_id)) if _entries else None
    if entry is not None:
        entry.frames += count


# ------------------------------------------------------------------------------------------------------------------- the hook


class FrameHook:
    """Captures frames of ordinary functions in the threads where it is installed.

    `decide(code, function)` is asked once per code object: None leaves its frames to CPython for ever; `(cell, miss)`, or an
    object with these attributes, captures them: `cell.dispatch` is called with the bound arguments, as for a native callable,
    and `miss((*bound, function), code)` where it does not answer; it may return LEAVE_FRAME. An `Apart` has verdicts by function, and it
    is asked again where one of them is missing or its owner is gone. No frame of the thread is captured while `decide` or `miss` runs. An
    exception from `decide` is raised by the call.

    `install` and `remove` (or `with`) concern the calling thread and nest, also with other hooks: the last one installed decides.
    """

    _ids = iter(range(1, 1 << 62))

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self._consult_method = self._consult
        self._id = next(FrameHook._ids)

    def install(self) -> None:
        """Start capturing in this thread."""
        entry = _thread_entry()
        _occupy()  # first: it may fail
        _stacks.setdefault(entry.id, []).append(self)
        self._activate(entry)
        entry.active += 1

    def remove(self) -> None:
        """Undo the last `install` of this hook in this thread."""
        if _kept_at_exit:  # the interpreter shuts down: there is nothing left to undo
            return
        identity = layouts.word(layouts.thread_state() + layouts.current().tstate_id)
        stack = _stacks.get(identity, [])
        if self not in stack:
            raise RuntimeError("this hook is not installed in this thread")
        entry = _entries[identity]
        _vacate()
        entry.active -= 1
        stack.reverse()
        stack.remove(self)
        stack.reverse()
        if stack:
            stack[-1]._activate(entry)
        else:
            entry.consult, entry.hook = None, 0
            del _stacks[entry.id]
        _release(entry)

    def forget(self) -> None:
        """Ask `decide` again about every code object."""
        old, self._id = self._id, next(FrameHook._ids)
        with _lock:
            for entry in _entries.values():
                if entry.hook == old:
                    entry.hook = self._id

    def __enter__(self) -> FrameHook:
        self.install()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.remove()

    def _activate(self, entry: _Thread) -> None:
        entry.consult, entry.hook = id(self._consult_method), self._id

    def _consult(self, code: CodeType, function: FunctionType) -> tuple[int, object]:
        asked = verdicts.changes()
        verdict = None if tracebacks.is_own(code) else self._decide(code, function)
        return verdicts.publish(code, self._id, verdict, asked)


_stacks: dict[int, list[FrameHook]] = {}  # the hooks installed in each thread, by thread state id
