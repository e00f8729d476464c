"""What CPython does with exceptions in flight: the handled exception of the thread, the context of a raised one, tracebacks.

Owns these steps as Python functions, for whoever executes a trace in Python (the recorder, the reference executor); native code has
its own of the same meaning. What must hold: `push` and `pop` change the thread's exception state itself, as PUSH_EXC_INFO and
POP_EXCEPT do, so they are called outside of `except` blocks only; a frame made for a traceback has the user's code and globals and
no locals.

May import: the standard library.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from functools import cache
from types import CellType, CodeType, FrameType, TracebackType
from typing import Any, NamedTuple

from trident.ir.describing import mro_of

_WORDS = 64  # of a PyThreadState that are searched
FRAME_OF_OBJECT = 24  # PyFrameObject.f_frame
_api: Any = ctypes.pythonapi
_api.PyThreadState_Get.restype = ctypes.c_void_p
_set_handled: Any = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("PyErr_SetHandledException", ctypes.pythonapi))
_new_frame: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object, ctypes.c_void_p)(
    ("PyFrame_New", ctypes.pythonapi))


@cache
def state_offset() -> int:
    """Offset in PyThreadState of the pointer to the exception state in use, found with a planted exception; LookupError if it is
    not where it is expected (the start-up verification asks first).

    Looked for in a thread of its own: there no generator runs, whose state would be the one in use."""
    found: list[int] = []

    def look() -> None:
        base = _api.PyThreadState_Get()
        try:
            raise LookupError
        except LookupError as error:
            words = list((ctypes.c_uint64 * _WORDS).from_address(base))
            planted = {base + 8 * n for n, word in enumerate(words) if word == id(error)}
        found.extend(8 * n for n, word in enumerate(words) if word in planted)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    if len(found) != 1:
        raise LookupError("the exception state of a thread is not where it is expected")
    return found[0]


def push(error: BaseException | None) -> BaseException | None:
    """Make an exception the handled one; the one before, None if there was none (in the running generator, if one runs)."""
    state = ctypes.c_uint64.from_address(_api.PyThreadState_Get() + state_offset()).value
    before = ctypes.c_uint64.from_address(state).value
    held: Any = ctypes.cast(before, ctypes.py_object).value if before else None
    _set_handled(None if error is None else id(error))
    return held  # type: ignore[no-any-return]


def pop(error: BaseException | None) -> None:
    """Make what `push` returned the handled exception again."""
    _set_handled(None if error is None else id(error))


def add_context(error: BaseException) -> None:
    """What `raise` does: the handled exception becomes the context."""
    traceback = error.__traceback__
    try:
        raise error
    except BaseException as caught:
        assert caught is error
    error.__traceback__ = traceback


def add_traceback(error: BaseException, code: CodeType, globals_: dict[str, Any], lasti: int, line: int) -> None:
    """An entry for a frame that the exception passes; lasti: byte offset of the instruction."""
    frame: FrameType = _new_frame(_api.PyThreadState_Get(), code, globals_, None)
    offsets = frame_offsets()
    at = ctypes.c_uint64.from_address(id(frame) + FRAME_OF_OBJECT).value
    ctypes.c_uint64.from_address(at + offsets.previous).value = id(code) + offsets.start + lasti
    first, count = free_variables(code)
    for n in range(first, first + count):
        _new_cell(at + offsets.slots + 8 * n)
    error.__traceback__ = TracebackType(error.__traceback__, frame, lasti, line)


def is_group(error: object) -> bool:
    """Whether it is an exception group."""
    return isinstance(error, BaseExceptionGroup)


def match_group(error: Any, types: Any) -> tuple[object, object]:
    """What CHECK_EG_MATCH pushes (the rest, the match); a match becomes the handled exception."""
    if error is None:
        return None, None
    rest, match = None, error
    if _matches(error, types):
        if not is_group(error):
            match = BaseExceptionGroup("", (error,))
    elif is_group(error):
        match, rest = error.split(types)[:2]
    else:
        rest, match = error, None
    if match is not None:
        push(match)
    return rest, match


def _matches(error: BaseException, types: Any) -> bool:
    classes = types if type(types) is tuple else (types,)
    return any(_matches(error, c) if type(c) is tuple else c in mro_of(type(error)) for c in classes)


def prepare_reraise(original: Any, raised: list[Any]) -> object:
    """What an `except*` statement raises in the end: what its clauses raised, and what they left or raised again (None: nothing)."""
    errors = [error for error in raised if error is not None]
    if not is_group(original):
        return errors[0] if errors else None
    again = [error for error in errors if _metadata(error) == _metadata(original)]
    new = [error for error in errors if _metadata(error) != _metadata(original)]
    if again:
        leaves = {id(leaf) for error in again for leaf in _leaves(error)}
        kept = original.subgroup(lambda error: id(error) in leaves)
        if kept is not None:
            new.append(kept)
    if len(new) > 1:
        return BaseExceptionGroup("", new)
    return new[0] if new else None


def _metadata(error: BaseException) -> tuple[int, ...]:
    return tuple(map(id, (error.__traceback__, error.__cause__, error.__context__, getattr(error, "__notes__", None))))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]


class FrameOffsets(NamedTuple):
    """previous: of prev_instr in an interpreter frame; slots: of localsplus in one; start: of the first instruction in a code object."""

    previous: int
    start: int
    slots: int


@cache
def frame_offsets() -> FrameOffsets:
    """LookupError if one is not found."""
    code: Any = push.__code__
    start = ctypes.string_at(id(code), 512).find(code._co_code_adaptive[:32])
    frame = _new_frame(_api.PyThreadState_Get(), code, globals(), None)
    base = ctypes.c_uint64.from_address(id(frame) + FRAME_OF_OBJECT).value
    inside = [8 * n for n in range(9) if 0 <= ctypes.c_uint64.from_address(base + 8 * n).value - id(code) - start < 32]
    slots = _find_argument(object())
    if start < 0 or len(inside) != 1 or len(slots) != 1:
        raise LookupError("a new frame does not have the expected fields")
    return FrameOffsets(inside[0], start, slots[0])


def _find_argument(planted: object) -> list[int]:
    """Offsets of this frame's first local in its interpreter frame."""
    base = ctypes.c_uint64.from_address(id(sys._getframe()) + FRAME_OF_OBJECT).value
    address = id(planted)  # `planted` in the comprehension would make a cell of it
    return [8 * n for n in range(12) if ctypes.c_uint64.from_address(base + 8 * n).value == address]


def free_variables(code: CodeType) -> tuple[int, int]:
    """Where in localsplus the free variables begin, and how many there are."""
    return len(code.co_varnames) + sum(name not in code.co_varnames for name in code.co_cellvars), len(code.co_freevars)


def _new_cell(address: int) -> None:
    """What reads a frame's locals expects a cell for each free variable."""
    cell: Any = CellType()
    _api.Py_IncRef(ctypes.py_object(cell))
    ctypes.c_uint64.from_address(address).value = id(cell)
