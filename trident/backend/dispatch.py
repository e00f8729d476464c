"""Dispatch: the native function that tries the specializations of a function in order.

Owns its code and the count of threads inside. What must hold: it is entered and left with the GIL held, so the count is exact; an old
dispatch stays callable until its SCM is retired and the count is zero.

May import: native.fast, native.callable.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, Protocol

from trident.backend.native.engine import Compiled
from trident.backend.native.fast import compile_fast


class _Closable(Protocol):
    def close(self) -> None: ...


_graveyard: Final[list[tuple[ctypes.c_uint64, list[_Closable]]]] = []
"""Code of retired SCMs that somebody was still inside of, with the count of who is."""


def _text(addresses: Sequence[int], inside: int, hits: int) -> str:
    lines = ["@trident_miss = external global i8", "define ptr @dispatch(ptr %bound) {", "entry:",
             f"%inside = inttoptr i64 {inside} to ptr", "%in0 = load i64, ptr %inside", "%in1 = add i64 %in0, 1",
             "store i64 %in1, ptr %inside", "br label %try0"]
    for n, address in enumerate(addresses):
        lines += [f"try{n}:", f"%r{n} = call ptr inttoptr (i64 {address} to ptr)(ptr %bound)",
                  f"%m{n} = icmp eq ptr %r{n}, @trident_miss", f"br i1 %m{n}, label %try{n + 1}, label %hit{n}", f"hit{n}:",
                  f"%h{n} = inttoptr i64 {hits + 8 * n} to ptr", f"%a{n} = load i64, ptr %h{n}", f"%b{n} = add i64 %a{n}, 1",
                  f"store i64 %b{n}, ptr %h{n}", "br label %done"]
    results = ", ".join([*(f"[%r{n}, %hit{n}]" for n in range(len(addresses))), f"[@trident_miss, %try{len(addresses)}]"])
    lines += [f"try{len(addresses)}:", "br label %done", "done:", f"%result = phi ptr {results}", "%out0 = load i64, ptr %inside",
              "%out1 = sub i64 %out0, 1", "store i64 %out1, ptr %inside", "ret ptr %result", "}", ""]
    return "\n".join(lines)


class Dispatch:
    """One version of an SCM's dispatch. `address` is that of `ptr dispatch(ptr bound)`: a result, or the miss marker."""

    def __init__(self, name: str, addresses: Sequence[int], previous: Dispatch | None) -> None:
        # Its import names the miss marker to the engine.
        from trident.backend.native import callable as _callable  # noqa: F401

        sweep()
        self._inside: ctypes.c_uint64 = previous._inside if previous else ctypes.c_uint64(0)
        self._older: list[_Closable] = [*previous._older, previous._compiled] if previous else []
        self._hits: Any = (ctypes.c_uint64 * max(len(addresses), 1))()
        self._keep: list[Any] = [*previous._keep, previous._hits] if previous else []
        text = _text(addresses, ctypes.addressof(self._inside), ctypes.addressof(self._hits))
        self._compiled: Compiled = compile_fast(text, name=f"trident.dispatch.{name}")
        self.address = self._compiled.address("dispatch")

    @property
    def hits(self) -> list[int]:
        """How often each program answered since this version was published, in the order of the dispatch."""
        return list(self._hits)

    @property
    def inside(self) -> int:
        """How many calls are in progress."""
        return self._inside.value

    def retire(self, programs: Sequence[_Closable]) -> None:
        """Free everything as soon as nobody is inside. Nobody may enter any more."""
        _graveyard.append((self._inside, [*self._older, self._compiled, *programs]))
        self._older = []
        sweep()


def sweep() -> None:
    """Free what nobody is inside of any more."""
    for entry in list(_graveyard):
        if entry[0].value == 0:
            _graveyard.remove(entry)
            for code in entry[1]:
                code.close()
