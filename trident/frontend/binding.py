"""Argument binding of inlined calls: from Values at the call to the entries of the callee's localsplus.

What must hold: exactly CPython's binding; whatever CPython would refuse raises Leave("raised") before anything is changed.

May import: ir, frontend.{analysis,values}.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trident.frontend.aborts import Leave
from trident.frontend.analysis import CodeInfo
from trident.frontend.frames import Entry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

class Keywords(dict[str, Value]):
    """Keyword arguments in the unguarded order of the dict `source`."""

    def __init__(self, pairs: list[tuple[str, Value]], source: Traced) -> None:
        super().__init__(pairs)
        self.source = source

    def fix_order(self, rec: Recorder) -> None:
        """Guard their order."""
        real = {key: value.obj for key, value in self.items()}
        rec.fix_order(rec.virtual(real, "dict", list(self.values()), list(self), source=self.source))


_VARARGS, _VARKEYWORDS = 4, 8


def _defaults(rec: Recorder, callee: Value, pinned: Sequence[Any] | None) -> list[Value]:
    if type(callee) is Virtual and callee.items[0] is not NULL:
        held = rec.resolve(callee.items[0])
        if type(held) is Virtual:
            return held.items
        return [Const(item) for item in held.obj]  # type: ignore[attr-defined]
    function: Any = callee.obj
    return [Const(item) for item in (function.__defaults__ if pinned is None else pinned[0]) or ()]


def _keyword_default(rec: Recorder, callee: Value, name: str, pinned: Sequence[Any] | None) -> Entry:
    if type(callee) is Virtual:
        if callee.items[1] is NULL:
            return NULL
        held = rec.resolve(callee.items[1])
        if type(held) is Virtual:
            keys = held.keys or []
            return held.items[keys.index(name)] if name in keys else NULL
        return rec.read_dict(held.obj, name, f"default of {name}")  # type: ignore[arg-type]
    kwdefaults = callee.obj.__kwdefaults__ if pinned is None else pinned[1]  # type: ignore[attr-defined]
    return rec.read_dict(kwdefaults, name, f"default of {name}") if kwdefaults else NULL


def bind_arguments(rec: Recorder, callee: Value, info: CodeInfo, args: list[Value], kwargs: dict[str, Value],
                   pinned: Sequence[Any] | None = None) -> list[Entry]:
    """localsplus of the new frame, cells not made yet. pinned: the defaults of a function that another thread may assign them to."""
    code = info.code
    entries: list[Entry] = [NULL] * info.n_locals
    count, n_kwonly = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames
    entries[:min(count, len(args))] = args[:count]
    next_slot = count + n_kwonly
    if code.co_flags & _VARARGS:
        entries[next_slot] = rec.virtual_tuple(args[count:])
        next_slot += 1
    elif len(args) > count:
        raise Leave("raised", f"{code.co_name}() takes {count} positional arguments but {len(args)} were given")
    extra: dict[str, Value] = {}
    for key, value in kwargs.items():
        slot = _slot(names, key, code.co_posonlyargcount, count + n_kwonly)
        if slot < 0:
            if not code.co_flags & _VARKEYWORDS:
                raise Leave("raised", f"{code.co_name}() got an unexpected keyword argument {key!r}")
            extra[key] = value
        elif entries[slot] is not NULL:
            raise Leave("raised", f"{code.co_name}() got multiple values for argument {key!r}")
        else:
            entries[slot] = value
    if code.co_flags & _VARKEYWORDS:
        entries[next_slot] = made = rec.virtual_dict(list(extra), list(extra.values()))
        if isinstance(kwargs, Keywords) and len(extra) > 1:
            if len(extra) == len(kwargs):
                made.state["source"] = kwargs.source
            else:
                kwargs.fix_order(rec)
    _fill_defaults(rec, callee, code, entries, pinned)
    return entries


def _slot(names: tuple[str, ...], key: str, first: int, stop: int) -> int:
    for n in range(first, stop):
        if names[n] == key:
            return n
    return -1


def _fill_defaults(rec: Recorder, callee: Value, code: types.CodeType, entries: list[Entry], pinned: Sequence[Any] | None) -> None:
    count = code.co_argcount
    if NULL in entries[:count]:
        defaults = _defaults(rec, callee, pinned)
        first = count - len(defaults)
        for n in range(count):
            if entries[n] is NULL:
                if n < first:
                    raise Leave("raised", f"{code.co_name}() is missing the argument {code.co_varnames[n]!r}")
                entries[n] = defaults[n - first]
    for n in range(count, count + code.co_kwonlyargcount):
        if entries[n] is NULL:
            default = _keyword_default(rec, callee, code.co_varnames[n], pinned)
            if default is NULL:
                raise Leave("raised", f"{code.co_name}() is missing the keyword argument {code.co_varnames[n]!r}")
            entries[n] = default
