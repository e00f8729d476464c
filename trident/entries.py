"""Which entry serves which function: one for a decorated function and for the frames of it that a hook captures.

Owns the tables from functions and code objects to entries. What must hold: a callable and the hook share an entry exactly where
they stand for the same function object with equal options; an entry that a callable has is that callable's, and nothing here or in
the evaluator's verdicts keeps it alive; functions of one code object that are not decorated share an entry of the hook's, which
decorated ones never run in; neither the hook's verdicts nor other functions' calls disable the entry of a decorated function.

May import: capture, entry, locks, options, ir.codes, native.{evaluator,verdicts}.
"""

from __future__ import annotations

import itertools
import weakref
from types import CodeType, FunctionType
from typing import Any

from trident import locks
from trident import options as options_module
from trident.backend.native.evaluator import LEAVE_FRAME
from trident.backend.native.verdicts import OPEN, Apart, OfOne, Whole, reconsider
from trident.capture import wanted
from trident.entry import Entry
from trident.ir.codes import OfCode
from trident.options import Options

_decorated: OfCode[weakref.WeakValueDictionary[int, Entry]] = OfCode()
"""Entries of decorated functions, in the order in which they were made, by the code object that the function had then."""
_captured: OfCode[Entry] = OfCode()
"""Entries that only the hook has. An entry keeps its code object, so they stay."""
_numbers = itertools.count()
_lock = locks.lock()  # what is done under it may run finalizers


def of_callable(function: FunctionType, options: Options) -> Entry:
    """The entry of a new callable: the one in which the hook has captured this function so far, or a new one."""
    code = function.__code__
    with _lock:
        entry = _taken_over(function, options) or Entry(function, options)
        entries = _decorated.get(code)
        if entries is None:
            entries = _decorated[code] = weakref.WeakValueDictionary()
        entries[next(_numbers)] = entry
        reconsider(code)
    return entry


def _taken_over(function: FunctionType, options: Options) -> Entry | None:
    """The hook's entry of a code object, if it has served this function alone and is as good as new."""
    code = function.__code__
    entry = _captured.get(code)
    if entry is None or entry.function is not function or entry.code is not code or entry.options != options:
        return None
    if entry.serves_others or entry.retired:
        return None
    entry.captured = None
    return _captured.pop(code)


def of_frame(code: CodeType, function: FunctionType) -> Whole | Apart:
    """The hook's verdict on a code object, of which it has come across a frame of this function."""
    if not wanted(code, function):
        return None
    if function.__code__ is not code:  # assigned since the frame was made
        return Apart((), OPEN)
    options = options_module.make()
    with _lock:
        decorated = _decorated_functions(code, options)
        entry = _captured.get(code)
        if entry is None and function not in decorated:
            entry = _captured[code] = Entry(function, options, captured=True)
    others = OPEN if entry is None else (entry.cell, entry.miss_of_frame)
    return Apart([_borrowed(entry) for entry in decorated.values()], others)


def _borrowed(entry: Entry) -> OfOne:
    """The verdict on a decorated function: its callable's entry, as long as there is one."""
    owner = weakref.ref(entry)

    def miss(frame: tuple[Any, ...], code: CodeType) -> object:
        entry = owner()
        return LEAVE_FRAME if entry is None else entry.miss_of_frame(frame, code)

    return OfOne(entry.function, owner, entry.cell, miss)


def _decorated_functions(code: CodeType, options: Options) -> dict[FunctionType, Entry]:
    """The decorated functions of a code object, each with the oldest of its entries that has the hook's options."""
    found: dict[FunctionType, Entry] = {}
    entries = _decorated.get(code)
    for reference in entries.valuerefs() if entries is not None else ():
        entry = reference()
        if entry is not None and entry.options == options:
            found.setdefault(entry.function, entry)
    return found


def of_function(function: FunctionType) -> Entry | None:
    """The entry in which the hook captures a function, if there is one."""
    code = function.__code__
    with _lock:
        return _decorated_functions(code, options_module.make()).get(function) or _captured.get(code)
