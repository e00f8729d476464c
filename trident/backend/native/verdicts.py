"""What a hook has decided on the frames of a code object, where native code finds it: in the code's extra data.

Owns the verdicts, their native form and the index of the extra data. What must hold: they are replaced as a whole, so native code,
which holds the GIL, never sees half of them; across Python code, native code owns what it uses (a row names its owners); a function
that has a verdict of its own is only compared, so the row counts as long as there is its weakly referenced owner, which has the function.

May import: llvmlite through emit, layouts, callable (entry cells).
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from types import CodeType, FunctionType
from typing import Any, Final, Protocol

from trident import locks
from trident.backend.native import engine, layouts
from trident.backend.native.callable import EntryCell
from trident.backend.native.emit import I32, I64, NULL, PTR, VOID, Function, Module, i64, ir

Miss = Callable[[tuple[Any, ...], CodeType], object]


class Captured(Protocol):
    """What captures frames; kept alive as long as it does."""

    @property
    def cell(self) -> EntryCell: ...

    @property
    def miss(self) -> Miss: ...


class _Open:
    """Type of OPEN."""


OPEN: Final = _Open()
"""In place of a verdict: the hook has not looked at these frames yet."""

Whole = Captured | tuple[EntryCell, Miss] | None  # the verdict on all functions of a code object


@dataclass(frozen=True, slots=True)
class OfOne:
    """A verdict on one function. owner: keeps the function alive, and is what the cell serves; it must stay while the frame is in
    native code, and may go at any other time: then the hook is asked again. Neither `cell` nor `miss` may keep it alive."""

    function: FunctionType
    owner: weakref.ref[Any]
    cell: EntryCell
    miss: Miss


@dataclass(frozen=True, slots=True)
class Apart:
    """Verdicts on functions of a code object that have one of their own, and the one on all others."""

    each: Sequence[OfOne]
    others: Whole | _Open


Decide = Callable[[CodeType, FunctionType], Whole | Apart]


class _Verdicts:
    """The verdicts on the frames of a code object: `words` lie in its extra data, which keeps this object alive.

    The head, then a row for the functions without a row of their own, then one for each of the others. No cell: left to CPython.
    """

    __slots__ = ("_kept", "words")

    def __init__(self, hook: int, verdict: Apart) -> None:
        self._kept: list[object] = []
        words = [hook, id(self), verdict.others is not OPEN, len(verdict.each), 0, *self._keep(verdict.others), id(self), 0]
        for one in verdict.each:
            words += [id(one.function), *self._keep((one.cell, one.miss)), id(self), id(one.owner)]
            self._kept.append(one.owner)
        self.words = (ctypes.c_uint64 * len(words))(*words)

    def _keep(self, captured: Whole | _Open) -> tuple[int, int]:
        """The words for a cell and a miss, which live as long as this object, with whatever else `captured` keeps."""
        if captured is None or isinstance(captured, _Open):
            return 0, 0
        cell, miss = captured if isinstance(captured, tuple) else (captured.cell, captured.miss)
        if not (isinstance(cell, EntryCell) and callable(miss)):
            raise TypeError("decide returns None, (EntryCell, callable), an object with these attributes, or an Apart of such")
        self._kept += captured, cell, miss
        return cell.address, id(miss)


_WORD = 8
_HOOK, _HEAD_OWNER, _DECIDED, _COUNT, _ROWS = (n * _WORD for n in range(5))
_FUNCTION, CELL, MISS, _KEEPER, _REFERENCE, _ROW = (n * _WORD for n in range(6))

# --------------------------------------------------------------------------------------------------------------- native code

INDEX_SYMBOL = "trident_code_extra_index"
KNOWN = "trident.known_verdict"


def define_known(module: Module) -> None:
    """Add `ptr trident.known_verdict(hook, code, function)` to a module: the row of a hook's verdict on a function's frames, or NULL."""
    _define_row(module)
    f = module.function(KNOWN, PTR, [I64, PTR, PTR], internal=True)
    f.inline()
    hook, code, function = f.args
    slot = f.variable(NULL)
    index = f.load(module.external_variable(INDEX_SYMBOL), kind=I64)
    f.call(module.layout.get_code_extra, I32, code, index, slot)
    verdicts = f.load(slot)
    with f.when(f.is_null(verdicts), likely=False):
        f.ret(NULL)
    with f.when(f.differ(f.load(verdicts, _HOOK, I64), hook), likely=False):
        f.ret(NULL)
    f.ret(f.call("row", PTR, verdicts, function))


def _define_row(module: Module) -> None:
    """`ptr row(verdicts, function)`: the one for a function, or NULL."""
    f = module.function("row", PTR, [PTR, PTR], internal=True)
    f.inline()
    verdicts, function = f.args
    others = f.at(verdicts, _ROWS)
    with f.loop(i64(0), f.load(verdicts, _COUNT, I64)) as i:
        row = f.at(others, f.b.mul(f.b.add(i, i64(1)), i64(_ROW)))
        with f.when(f.equal(f.load(row, _FUNCTION), function)):
            owner = f.call("PyWeakref_GetObject", PTR, f.load(row, _REFERENCE))
            gone = f.equal(owner, module.external_variable("_Py_NoneStruct"))
            f.ret(f.b.select(gone, NULL, row))
    f.ret(f.b.select(f.equal(f.load(verdicts, _DECIDED, I64), i64(0)), NULL, others))


def emit_answer(f: Function, answer: ir.Value, function: ir.Value) -> ir.Value:
    """The row for a function in what `publish` has returned, or NULL."""
    return f.call("row", PTR, f.call("PyLong_AsVoidPtr", PTR, f.load(answer, layouts.TUPLE_ITEMS)), function)


def emit_hold(f: Function, row: ir.Value) -> tuple[ir.Value, ir.Value]:
    """Own what a row that was just found is made of. What to release afterwards."""
    keeper, reference = f.load(row, _KEEPER), f.load(row, _REFERENCE)
    owner = f.variable(keeper)
    with f.when(f.not_null(reference), likely=False):
        f.store(f.call("PyWeakref_GetObject", PTR, reference), owner)
    held = keeper, f.load(owner)
    for value in held:
        f.incref(value)
    return held


@cache
def _shared() -> engine.Compiled:
    """Code that does not depend on what is in the slot."""
    module = Module("evaluator.shared")
    f = module.function("free_verdicts", VOID, [PTR])
    (verdicts,) = f.args
    with f.when(f.not_null(verdicts)):  # else a code object that only others have given extra data to
        f.decref(f.load(verdicts, _HEAD_OWNER))
    f.ret()
    return module.compile()


_index = ctypes.c_int64(-1)


@cache
def code_extra_index() -> int:
    """Our index in the extra data of code objects."""
    request = getattr(ctypes.pythonapi, layouts.current().request_code_extra_index)
    request.restype, request.argtypes = ctypes.c_ssize_t, [ctypes.c_void_p]
    index = int(request(_shared().address("free_verdicts")))
    if index < 0:
        raise RuntimeError("CPython has no room for more extra data on code objects")
    _index.value = index
    engine.add_symbol(INDEX_SYMBOL, ctypes.addressof(_index))
    return index


# --------------------------------------------------------------------------------------------------------------- from Python

_lock = locks.lock()
_changes = 0  # how often what hooks would say of some code has changed


def changes() -> int:
    """A number that is another one after each `reconsider`."""
    return _changes


def reconsider(code: CodeType) -> None:
    """Have hooks asked again about a code object: what they would say of its functions has changed."""
    global _changes
    replaced: list[object] = []
    with _lock:
        _changes += 1
        if _index.value >= 0:
            replaced.append(_replace(code, None))


def publish(code: CodeType, hook: int, verdict: Whole | Apart, asked: int) -> tuple[int, object]:
    """Keep what a hook has said of a code object, unless `changes()` is no longer what it was when the hook was asked, and tell it to
    native code all the same, which has a frame waiting: the address of the verdicts, and what owns them."""
    made = _left_alone(hook) if verdict is None else _Verdicts(hook, verdict if isinstance(verdict, Apart) else Apart((), verdict))
    replaced: list[object] = []  # dies when the lock is free again
    with _lock:
        if asked == _changes:
            replaced.append(_replace(code, made))
    return ctypes.addressof(made.words), made


@lru_cache(maxsize=8)
def _left_alone(hook: int) -> _Verdicts:
    """The verdicts on all code that a hook leaves to CPython."""
    return _Verdicts(hook, Apart((), None))


def _replace(code: CodeType, verdicts: _Verdicts | None) -> object:
    """Set the extra data of a code object. What was there, for the caller to keep until this is done: CPython frees it before the new
    data are in place, and what dies with it may run Python."""
    get, put = _code_extra()
    address = ctypes.c_void_p()
    get(code, _index.value, ctypes.byref(address))
    old = ctypes.cast(layouts.word(address.value + _HEAD_OWNER), ctypes.py_object).value if address.value else None
    if verdicts is None and old is None:
        return None
    if verdicts is not None:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(verdicts))
    if put(code, _index.value, ctypes.addressof(verdicts.words) if verdicts is not None else None) < 0:
        raise MemoryError("no room for the extra data of a code object")
    return old


@cache
def _code_extra() -> tuple[Any, Any]:
    """CPython's functions that read and write the extra data of code objects."""
    layout, index = layouts.current(), ctypes.c_ssize_t
    kind = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, index, ctypes.c_void_p)
    return kind((layout.get_code_extra, ctypes.pythonapi)), kind((layout.set_code_extra, ctypes.pythonapi))
