"""Where CPython keeps what Trident reads and writes: one table, keyed by minor version, and the check that it is true.

Owns every struct offset of CPython that native code relies on, and the names of API functions that changed between versions.
What must hold: `current()` returns a layout only after each offset that can be probed has been found to hold a planted value in
this very interpreter; everything else in Trident takes offsets from here. A mismatch is UnsupportedPython, never a guess.

May import: errors.
"""

from __future__ import annotations

import ctypes
import dis
import platform
import struct
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from types import CodeType, FrameType, FunctionType
from typing import Any

from trident.errors import UnsupportedPython

WORD = 8

# Common to both versions.
OB_TYPE = 8
TOOL_OBJECT = 16  # in a thread state: from the function of a tracer or profiler to its object
OB_SIZE = 16
TUPLE_ITEMS = 24
LIST_ITEMS = 24  # a pointer to the items
TYPE_FLAGS = 168
FRAME_OBJECT_FRAME = 24  # PyFrameObject.f_frame
UNICODE_SUBCLASS = 1 << 28

LOCAL_EVENTS = 10  # sys.monitoring: one byte per local event, PY_START first and STOP_ITERATION last

CO_OPTIMIZED = 0x1
CO_NEWLOCALS = 0x2
CO_VARARGS = 0x4
CO_VARKEYWORDS = 0x8
CO_GENERATOR_LIKE = 0x20 | 0x80 | 0x200


@dataclass(frozen=True, slots=True)
class Layout:
    """Byte offsets, one attribute per field; -1 where this version has no such field."""

    minor: int
    immortal: bool  # objects whose refcount never changes exist

    # _PyInterpreterFrame
    frame_code: int
    frame_function: int
    frame_globals: int
    frame_builtins: int
    frame_locals: int
    frame_object: int
    frame_previous: int
    frame_prev_instr: int
    frame_stacktop: int
    frame_owner: int
    frame_localsplus: int

    # PyCodeObject
    code_flags: int
    code_argcount: int
    code_posonlyargcount: int
    code_kwonlyargcount: int
    code_stacksize: int
    code_nlocalsplus: int
    code_localsplusnames: int
    code_firsttraceable: int
    code_start: int
    code_monitoring: int

    # PyFunctionObject
    function_globals: int
    function_builtins: int
    function_code: int
    function_defaults: int
    function_kwdefaults: int
    function_closure: int

    # PyThreadState
    tstate_interp: int
    tstate_recursion_remaining: int
    tstate_recursion_limit: int
    tstate_c_recursion_remaining: int  # of calls in C, where these have a limit of their own
    tstate_cframe: int
    tstate_profile: int
    tstate_trace: int
    tstate_id: int

    # _PyCFrame
    cframe_use_tracing: int
    cframe_current_frame: int

    # PyInterpreterState
    interp_monitoring_version: int

    # Whether the caller of an evaluator clears and pops the frame itself (else the default evaluator must do it).
    caller_pops_frame: bool
    request_code_extra_index: str
    get_code_extra: str
    set_code_extra: str


TABLE: dict[int, Layout] = {
    11: Layout(
        minor=11, immortal=False,
        frame_code=32, frame_function=0, frame_globals=8, frame_builtins=16, frame_locals=24, frame_object=40, frame_previous=48,
        frame_prev_instr=56, frame_stacktop=64, frame_owner=69, frame_localsplus=72,
        code_flags=48, code_argcount=56, code_posonlyargcount=60, code_kwonlyargcount=64, code_stacksize=68, code_nlocalsplus=76,
        code_localsplusnames=96, code_firsttraceable=168, code_start=184, code_monitoring=-1,
        function_globals=16, function_builtins=24, function_code=48, function_defaults=56, function_kwdefaults=64,
        function_closure=72,
        tstate_interp=16, tstate_recursion_remaining=32, tstate_recursion_limit=36, tstate_c_recursion_remaining=-1,
        tstate_cframe=56, tstate_profile=64,
        tstate_trace=72, tstate_id=240,
        cframe_use_tracing=0, cframe_current_frame=8,
        interp_monitoring_version=-1,
        caller_pops_frame=True,
        request_code_extra_index="_PyEval_RequestCodeExtraIndex", get_code_extra="_PyCode_GetExtra",
        set_code_extra="_PyCode_SetExtra",
    ),
    12: Layout(
        minor=12, immortal=True,
        frame_code=0, frame_function=16, frame_globals=24, frame_builtins=32, frame_locals=40, frame_object=48, frame_previous=8,
        frame_prev_instr=56, frame_stacktop=64, frame_owner=70, frame_localsplus=72,
        code_flags=48, code_argcount=52, code_posonlyargcount=56, code_kwonlyargcount=60, code_stacksize=64, code_nlocalsplus=72,
        code_localsplusnames=96, code_firsttraceable=176, code_start=192, code_monitoring=168,
        function_globals=16, function_builtins=24, function_code=48, function_defaults=56, function_kwdefaults=64,
        function_closure=72,
        tstate_interp=16, tstate_recursion_remaining=28, tstate_recursion_limit=32, tstate_c_recursion_remaining=36,
        tstate_cframe=56, tstate_profile=64,
        tstate_trace=72, tstate_id=224,
        cframe_use_tracing=-1, cframe_current_frame=0,
        interp_monitoring_version=48,
        caller_pops_frame=False,
        request_code_extra_index="PyUnstable_Eval_RequestCodeExtraIndex", get_code_extra="PyUnstable_Code_GetExtra",
        set_code_extra="PyUnstable_Code_SetExtra",
    ),
}

# ------------------------------------------------------------------------------------------------------------- reading memory


def word(address: int) -> int:
    """The 8 bytes at an address, unsigned."""
    return ctypes.c_uint64.from_address(address).value


def int32(address: int) -> int:
    return ctypes.c_int32.from_address(address).value


def uint8(address: int) -> int:
    return ctypes.c_uint8.from_address(address).value


def nlocalsplus(code: CodeType) -> int:
    """Number of entries of localsplus: arguments, locals, cells and free variables."""
    return int32(id(code) + current().code_nlocalsplus)


def code_units(code: CodeType) -> int:
    """Address of the first instruction."""
    return id(code) + current().code_start


def interpreter_frame(frame: FrameType) -> int:
    """Address of the _PyInterpreterFrame of a frame object."""
    return word(id(frame) + FRAME_OBJECT_FRAME)


def thread_state() -> int:
    """Address of this thread's PyThreadState."""
    return _get_thread_state()


def interpreter() -> int:
    """Address of the PyInterpreterState."""
    return _get_interpreter()


_get_thread_state = ctypes.PYFUNCTYPE(ctypes.c_size_t)(("PyThreadState_Get", ctypes.pythonapi))
_get_interpreter = ctypes.PYFUNCTYPE(ctypes.c_size_t)(("PyInterpreterState_Get", ctypes.pythonapi))
_get_thread_state_id = ctypes.PYFUNCTYPE(ctypes.c_uint64, ctypes.c_size_t)(("PyThreadState_GetID", ctypes.pythonapi))

# ------------------------------------------------------------------------------------------------------------------ checking


def _check(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise UnsupportedPython(f"CPython {platform.python_version()}: {what} is not where Trident's table says "
                                f"(found {found!r}, expected {expected!r})")


def peek(address: int, size: int = WORD) -> int:
    """A number in memory that may not be there: a table that is wrong must end in an error, not in a crash."""
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory:
            memory.seek(address)
            return int.from_bytes(memory.read(size), sys.byteorder)
    except PermissionError:
        return int.from_bytes(ctypes.string_at(address, size), sys.byteorder)
    except (OSError, ValueError, OverflowError) as error:
        raise UnsupportedPython(f"CPython {platform.python_version()}: a pointer in Trident's table points nowhere") from error


def _platform() -> Layout:
    if sys.implementation.name != "cpython":
        raise UnsupportedPython(f"{sys.implementation.name} is not CPython")
    if sys.version_info[0] != 3 or sys.version_info[1] not in TABLE:
        known = ", ".join(f"3.{minor}" for minor in TABLE)
        raise UnsupportedPython(f"CPython {platform.python_version()} is not one of {known}")
    if platform.machine() not in ("x86_64", "AMD64") or struct.calcsize("P") != WORD or sys.platform != "linux":
        raise UnsupportedPython(f"{sys.platform} on {platform.machine()}: only 64-bit x86 Linux is known")
    if hasattr(sys, "gettotalrefcount") or hasattr(sys, "getobjects"):
        raise UnsupportedPython("debug builds of CPython have other object layouts")
    return TABLE[sys.version_info[1]]


def _planted(a: Any, b: Any, /, c: Any, d: Any, e: Any, *rest: Any, f: Any, g: Any, h: Any, **more: Any) -> tuple[Any, ...]:
    """Every count of the code object is another number: 5 arguments, 2 positional-only, 3 keyword-only, one cell."""
    local = [a, b, c, d]
    return _frame_facts(sys._getframe(), _planted_layout[0], (a, b, c, d, e, f, g, h, rest, more)), lambda: local


def _suspended(a: int, b: int) -> Generator[int, None, None]:
    for c in (a, b):
        yield c + 1


_planted_layout: list[Layout] = []


def _check_code(t: Layout) -> None:
    code = _planted.__code__
    at = id(code)
    for field, expected in (("code_flags", code.co_flags), ("code_argcount", 5), ("code_posonlyargcount", 2),
                            ("code_kwonlyargcount", 3), ("code_stacksize", code.co_stacksize),
                            ("code_nlocalsplus", len(code.co_varnames) + 1)):
        _check(field, int32(at + getattr(t, field)), expected)
    names = word(at + t.code_localsplusnames)
    _check("code_localsplusnames", peek(names + OB_TYPE), id(tuple))
    _check("code_localsplusnames", ctypes.cast(names, ctypes.py_object).value, (*code.co_varnames, "local"))
    adaptive = code._co_code_adaptive  # type: ignore[attr-defined]
    _check("code_start", ctypes.string_at(at + t.code_start, len(adaptive)), adaptive)
    resume = dis.opmap["RESUME"]
    _check("code_firsttraceable", int32(at + t.code_firsttraceable), code.co_code.index(bytes((resume, 0))) // 2)


def _check_function(t: Layout) -> None:
    def closed() -> object:
        return t

    closed.__defaults__, closed.__kwdefaults__ = (), {}
    at = id(closed)
    for field, value in (("function_globals", closed.__globals__), ("function_builtins", closed.__builtins__),  # type: ignore[attr-defined]
                         ("function_code", closed.__code__), ("function_defaults", closed.__defaults__),
                         ("function_kwdefaults", closed.__kwdefaults__), ("function_closure", closed.__closure__)):
        _check(field, word(at + getattr(t, field)), id(value))
    _check("tp_flags", word(id(str) + TYPE_FLAGS) & UNICODE_SUBCLASS, UNICODE_SUBCLASS)
    _check("tp_flags", word(id(int) + TYPE_FLAGS), int.__flags__)
    pair = (t, closed)
    _check("tuple items", [word(id(pair) + OB_SIZE), word(id(pair) + TUPLE_ITEMS + WORD)], [2, id(closed)])
    row = [t, closed]
    _check("list items", [word(id(row) + OB_SIZE), word(word(id(row) + LIST_ITEMS) + WORD)], [2, id(closed)])


def _frame_facts(frame: FrameType, t: Layout, values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Compare the interpreter's frame of `_planted`, which called this, with what it must hold; and the thread state."""
    at = interpreter_frame(frame)
    function = _planted
    for field, value in (("frame_code", id(frame.f_code)), ("frame_function", id(function)),
                         ("frame_globals", id(frame.f_globals)), ("frame_builtins", id(frame.f_builtins)),
                         ("frame_object", id(frame)), ("frame_locals", 0)):
        _check(field, word(at + getattr(t, field)), value)
    _check("frame_owner", uint8(at + t.frame_owner), 0)
    _check("frame_prev_instr", word(at + t.frame_prev_instr) - id(frame.f_code) - t.code_start, frame.f_lasti)
    for index, value in enumerate(values):
        _check("frame_localsplus", word(at + t.frame_localsplus + WORD * index), id(value))
    suspended: Any = _suspended(1, 2)
    next(suspended)
    _check("frame_owner", uint8(interpreter_frame(suspended.gi_frame) + t.frame_owner), 1)
    _check("frame_stacktop", int32(interpreter_frame(suspended.gi_frame) + t.frame_stacktop), 3 + 1)
    # The frame of this function is the running one, and that one is its caller.
    mine = interpreter_frame(sys._getframe())
    _check("frame_previous", word(mine + t.frame_previous), at)
    tstate = thread_state()
    cframe = word(tstate + t.tstate_cframe)
    peek(cframe + t.cframe_current_frame)
    running = ctypes.c_uint64.from_address(cframe + t.cframe_current_frame).value  # not word(): that would be the running frame
    _check("tstate_cframe", running, mine)
    return values


def _recursion_remaining(t: Layout, depth: int) -> int:
    return _recursion_remaining(t, depth - 1) if depth else int32(thread_state() + t.tstate_recursion_remaining)


def _c_recursion_remaining(t: Layout) -> int:
    return int32(thread_state() + t.tstate_c_recursion_remaining)


def _check_thread(t: Layout) -> None:
    tstate = thread_state()
    _check("tstate_interp", word(tstate + t.tstate_interp), _get_interpreter())
    _check("tstate_id", word(tstate + t.tstate_id), _get_thread_state_id(tstate))
    _check("tstate_recursion_limit", int32(tstate + t.tstate_recursion_limit), sys.getrecursionlimit())
    _check("tstate_recursion_remaining", _recursion_remaining(t, 1) - _recursion_remaining(t, 4), 3)
    if t.tstate_c_recursion_remaining >= 0:
        nested = partial(_c_recursion_remaining, t)  # a call in C
        _check("tstate_c_recursion_remaining", 0 < _c_recursion_remaining(t) - nested() <= 4, True)
    for field, get, set_ in (("tstate_profile", sys.getprofile, sys.setprofile), ("tstate_trace", sys.gettrace, sys.settrace)):
        _check_tracing(t, field, get, set_, tstate)


def _check_tracing(t: Layout, field: str, get: Callable[[], object], set_: Callable[[Any], None], tstate: int) -> None:
    """A tool that is already active is left alone: then its word must not be zero."""
    at = tstate + getattr(t, field)
    tracing = t.cframe_use_tracing
    if get() is not None:
        _check(field, word(at) != 0, True)
        return
    _check(field, word(at), 0)
    other = sys.getprofile() is not None or sys.gettrace() is not None  # this may run inside a tool's own function
    set_(_no_trace)
    try:
        during = word(at) != 0 and word(at + TOOL_OBJECT) == id(_no_trace)
        flag = 255 if tracing < 0 else peek(word(tstate + t.tstate_cframe) + tracing, 1)
    finally:
        set_(None)
    _check(field, during, True)
    _check("cframe_use_tracing", flag == 255 or other and flag == 0, True)


def _no_trace(*_: object) -> None:
    return None


def _check_monitoring(t: Layout) -> None:
    """Global events change a version number of the interpreter, local ones give the code object a table (3.12)."""
    if t.interp_monitoring_version < 0:
        return
    monitoring = sys.monitoring  # type: ignore[attr-defined]
    free = next((tool for tool in (4, 3, 5, 2, 1, 0) if monitoring.get_tool(tool) is None), None)
    if free is None:
        raise UnsupportedPython("all sys.monitoring tools are taken: the layout check needs one for a moment")
    version = _get_interpreter() + t.interp_monitoring_version
    probe = FunctionType(_no_trace.__code__.replace(co_name="probe"), {}).__code__
    monitoring.use_tool_id(free, "trident")
    try:
        before = word(version)
        _check("code_monitoring", word(id(probe) + t.code_monitoring), 0)
        monitoring.set_local_events(free, probe, monitoring.events.PY_START)
        FunctionType(probe, {})()
        table = word(id(probe) + t.code_monitoring)
        _check("code_monitoring", peek(table, LOCAL_EVENTS), 1 << free)
        monitoring.set_local_events(free, probe, monitoring.events.STOP_ITERATION)
        _check("code_monitoring", peek(table, LOCAL_EVENTS), 1 << free + 8 * (LOCAL_EVENTS - 1))
        monitoring.set_local_events(free, probe, 0)
        _check("code_monitoring", peek(table, LOCAL_EVENTS), 0)
        middle = word(version)
        monitoring.set_events(free, monitoring.events.PY_UNWIND)
        during = word(version)
        monitoring.set_events(free, 0)
        after = word(version)
    finally:
        monitoring.free_tool_id(free)
    _check("interp_monitoring_version", before <= middle < during < after < 1 << 32, True)


def verify(t: Layout) -> Layout:
    """Probe every field of a layout in the running interpreter; UnsupportedPython where one is wrong."""
    _planted_layout[:] = [t]
    try:
        _check_code(t)
        _check_function(t)
        _planted(object(), "b", 3.5, "d", 5, 6, 7, f=object(), g=8, h=9, extra=1)
        _check_thread(t)
        _check_monitoring(t)
    finally:
        _planted_layout.clear()
    for name in (t.request_code_extra_index, t.get_code_extra, t.set_code_extra):
        _check(name, hasattr(ctypes.pythonapi, name), True)
    return t


@contextmanager
def plain_evaluator() -> Iterator[None]:
    """Frames that are entered meanwhile run as in a program without an evaluator: one that somebody else has installed (Dynamo's
    stays when a compilation of its has failed) takes Python calls apart differently, and looks at the frames of the checks."""
    interpreter, default = _get_interpreter(), ctypes.cast(ctypes.pythonapi._PyEval_EvalFrameDefault, ctypes.c_void_p)
    before = _get_evaluator(interpreter)
    if before == default.value:
        yield
        return
    _set_evaluator(interpreter, default)
    try:
        yield
    finally:
        _set_evaluator(interpreter, before)


_get_evaluator = ctypes.PYFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p)(("_PyInterpreterState_GetEvalFrameFunc", ctypes.pythonapi))
_set_evaluator = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(("_PyInterpreterState_SetEvalFrameFunc", ctypes.pythonapi))


@cache
def current() -> Layout:
    """The verified layout of the running interpreter; UnsupportedPython where it is unknown."""
    table = _platform()
    with plain_evaluator():
        return verify(table)
