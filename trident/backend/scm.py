"""The specialization cache module of one function: its host programs, and the dispatch that picks one.

Owns `HostProgram` (the machine code of one trace with its tables) and `SCM`. What must hold: a program is published only when it is
complete; code and tables stay until nobody can be inside them.

May import: ir, backend.*, native.*.
"""

from __future__ import annotations

import ctypes
import gc
import struct
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final, Protocol

from trident import locks
from trident.backend.dispatch import Dispatch, Entry
from trident.backend.exits import ExitSite
from trident.backend.lowering.function import Function
from trident.backend.lowering.lower import lower
from trident.backend.native import engine, frame
from trident.backend.native.fast import compile_fast
from trident.backend.pins import PinTable
from trident.backend.selection import Selection, Test, tests_of
from trident.ir.trace import Pin, Trace

Handler = Callable[[ExitSite, list[object], BaseException | None], object]
"""handler(site, values, error): goes on after a side exit, and may empty the list. Its result is the call's result, or a
`native.jumps.Jump` to the program that goes on."""

_LINEAR: Final = 2  # roots up to which they are simply tried one after the other
_SMALL: Final = 150  # lines of LLVM text up to which the optimiser is worth its time


@contextmanager
def _no_collection() -> Iterator[None]:
    """Lowering makes many objects and no cycles; a full collection in the middle of it takes longer than the lowering."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class Retired(Exception):
    """What was to be published here is not: the SCM has been closed meanwhile."""


class Cell(Protocol):
    """What an SCM publishes to: `native.callable.EntryCell`. Only the dispatch address is written here."""

    dispatch: Any


class HostProgram:
    """The native code of one trace. `address` is that of `PyObject* program(PyObject** args)`."""

    def __init__(self, trace: Trace, handler: Handler) -> None:
        start = time.perf_counter()
        self.trace = trace
        self._handler = handler
        with _no_collection():
            lowered = lower(trace)
        self._keep: list[Any] = [lowered.keep]
        self._pins: list[PinTable] = lowered.pin_tables
        self._launches: list[Any] = lowered.launches
        self._table = self._build_tables(lowered)
        text = lowered.text(ctypes.addressof(self._table))
        self._text: str = text
        lowering_done = time.perf_counter()
        name = f"trident.{trace.name}"
        small = len(lowered.lines) <= _SMALL
        self._compiled = engine.compile_ir(text, opt=1, name=name) if small else compile_fast(text, name=name)
        self.address = self._compiled.address("program")
        self.lowering_seconds = lowering_done - start
        self.compile_seconds = time.perf_counter() - start
        """Seconds for lowering and LLVM together."""
        self.slots = len(lowered.slot_kinds)
        self.uses = 0.0  # hits, those of long ago counting less
        self.wait: int | None = None  # hits until it is passed over, so that something is done about it; None for never
        self.replay: HostProgram | None = None  # the graphs of the same trace, which are tried first

    def _words(self, values: list[int]) -> Any:
        array = (ctypes.c_uint64 * max(len(values), 1))(*[v & 0xFFFFFFFFFFFFFFFF for v in values])
        self._keep.append(array)
        return array

    def _build_tables(self, lowered: Function) -> Any:
        kinds = ctypes.create_string_buffer(bytes(lowered.slot_kinds) + b"\0")
        self._keep.append(kinds)
        self._sites = (ctypes.c_uint8 * (frame.SITE_SIZE * max(len(lowered.sites), 1)))()
        base = ctypes.addressof(self._sites)
        self.exits: list[ExitSite] = []
        """Every way out, in program order."""
        for number, site in enumerate(lowered.sites):
            snapshot = self.trace.snapshots[site.snapshot] if site.state >= 0 else None
            made = ExitSite(self.trace, snapshot, site.guard, site.is_raise, number, site.what, self._sites,
                            base + frame.SITE_SIZE * number)
            struct.pack_into("<QQqqqQ", self._sites, frame.SITE_SIZE * number, 0, 0, site.state, site.result_start,
                             site.result_words, id(made))
            self.exits.append(made)
        states: list[int] = []
        for state in lowered.states:
            entries = self._words([word for entry in state.entries for word in entry])
            states += [ctypes.addressof(entries), len(state.entries)]
        return self._words([len(lowered.slot_kinds), ctypes.addressof(kinds), base, ctypes.addressof(self._words(states)),
                            id(self._handler), int(self.trace.parent is not None)])

    @cached_property
    def tests(self) -> list[Test]:
        """What a decision tree may ask before this program is tried."""
        return tests_of(self.trace)

    @property
    def llvm_ir(self) -> str:
        """The LLVM IR as it was given to LLVM."""
        return self._text

    @property
    def assembly(self) -> str:
        """The machine code as text."""
        return engine.assembly(self._text, opt=0, name=self._compiled.name)

    def pin_failures(self) -> list[tuple[Pin, int]]:
        """The pins of entries that failed, with how often."""
        return [failure for table in self._pins for failure in table.failures()]

    def launch_reasons(self) -> list[str]:
        """Why launches go through Triton's Python, where they do."""
        return [f"{site.name}: {site.reason}" for site in self._launches if site.reason]

    def close(self) -> None:
        """Unmap the code. Nobody may be inside."""
        self._compiled.close()
        for state in self._launches:
            state.release()
        for site in self.trace.replays:
            site.close()
        self._launches = []


class SCM:
    """The specializations of one function.

    cell: where the native callable finds the dispatch. handler: see `Handler`. visitors: see `Dispatch`.
    """

    def __init__(self, name: str, cell: Cell, handler: Handler, visitors: Collection[object] = ()) -> None:
        self.name = name
        self.cell = cell
        self.roots: list[HostProgram] = []
        self.bridges: list[HostProgram] = []
        self._handler, self._visitors = handler, visitors
        self._dispatch: Dispatch | None = None
        self.selection: Selection | None = None  # the tree in force, None while all are tried
        self.closed = False
        self._lock = locks.lock()

    def left_at(self, site: ExitSite) -> HostProgram | None:
        """The program that a way out is one of; None if it is none of these."""
        return next((program for program in self.programs if program.trace is site.trace), None)

    @contextmanager
    def _open(self, program: HostProgram) -> Iterator[None]:
        """To publish a program. Retired if the SCM is closed."""
        with self._lock:
            if not self.closed:
                yield
                return
        program.close()
        raise Retired

    @property
    def programs(self) -> list[HostProgram]:
        """Roots, their graphs, and bridges."""
        return [*self._in_order(self.roots), *self.bridges]

    @staticmethod
    def _in_order(roots: Sequence[HostProgram]) -> list[HostProgram]:
        """As they are tried: the graphs of a root before it."""
        return [program for root in roots for program in (root.replay, root) if program is not None]

    def add_replay(self, root: HostProgram, program: HostProgram) -> None:
        """Publish the program that replays the graphs of a root trace."""
        with self._open(program):
            self._count_uses()
            root.replay = program
            self._publish(self.roots)

    def await_hits(self, root: HostProgram, wait: int | None) -> None:
        """Pass a root over when it has that many more hits; None: never."""
        with self._lock:
            if self._dispatch is not None and root in self.roots:
                root.wait = wait
                self._dispatch.await_hits(self._in_order(self.roots[::-1]).index(root), wait)

    @property
    def is_due(self) -> bool:
        """Whether roots are passed over now."""
        return self._dispatch is not None and bool(self._dispatch.due)

    def due(self) -> list[HostProgram]:
        """The roots that are passed over now; they are not any more."""
        with self._lock:
            if self._dispatch is None:
                return []
            order = self._in_order(self.roots[::-1])
            found = [order[n] for n in self._dispatch.due]
            for root in found:
                self.await_hits(root, None)
            return found

    def add(self, trace: Trace) -> HostProgram:
        """Compile a root trace and publish it: from now on the dispatch tries it."""
        program = HostProgram(trace, self._handler)
        with self._open(program):
            self._count_uses()
            self._publish([*self.roots, program])
        return program

    def add_for_another(self, trace: Trace, keep: HostProgram | None = None) -> tuple[HostProgram, list[HostProgram]]:
        """The same in the place of the root that has been used least: what is dropped is that one, with what only it leads to.

        keep: a program that is about to be led to."""
        program = HostProgram(trace, self._handler)
        with self._open(program):
            before, dispatch = self.programs, self._dispatch
            self._count_uses()
            least = min(self.roots, key=lambda root: root.uses + (root.replay.uses if root.replay is not None else 0))
            self._publish([*(root for root in self.roots if root is not least), program])
            stay = self._led_to([*self.roots, *([keep] if keep is not None else [])])
            self.bridges = [bridge for bridge in self.bridges if bridge in stay]
            dropped = [other for other in before if other not in stay]
            if dispatch is not None:
                dispatch.drop(dropped)
        return program, dropped

    def _led_to(self, programs: list[HostProgram]) -> set[HostProgram]:
        """These programs and all that their exits lead to."""
        by_address = {bridge.address: bridge for bridge in self.bridges}
        found: set[HostProgram] = set()
        while programs:
            program = programs.pop()
            if program not in found:
                found.add(program)
                programs += [by_address[site.bridge] for site in program.exits if site.bridge in by_address]
                programs += [program.replay] if program.replay is not None else []
        return found

    def _count_uses(self) -> None:
        """Into the programs; the next table counts anew."""
        if self._dispatch is not None:
            order = self._in_order(self.roots[::-1])
            for program, hits, wait in zip(order, self._dispatch.hits, self._dispatch.waits, strict=True):
                program.uses, program.wait = program.uses / 2 + hits, wait

    def attach_bridge(self, site: ExitSite, trace: Trace) -> HostProgram:
        """Compile a bridge and let the exit, which is one of this SCM's, continue in it."""
        program = HostProgram(trace, self._handler)
        with self._open(program):
            self.bridges.append(program)
            site.bridge = program.address
        return program

    def _publish(self, roots: list[HostProgram]) -> None:
        """From now on these answer. The newest one is tried first: what was just missed is likely to come again."""
        dispatch = self._dispatch or Dispatch(self.name, self._visitors)
        newest_first = self._in_order(roots[::-1])
        selection, code = None, None
        if len(roots) > _LINEAR:
            numbers = {root: n for n, root in enumerate(roots)}
            names = [f"root {numbers[program]}" if program in numbers else "graphs" for program in newest_first]
            selection = Selection([program.tests for program in newest_first], names)
            code = engine.compile_ir(selection.text(), opt=1, name=f"trident.selection.{self.name}")
        dispatch.publish([Entry(program.address, program.wait, int(program.replay is not None)) for program in newest_first], code)
        self.roots, self.selection, self._dispatch = roots, selection, dispatch
        self.cell.dispatch = dispatch.address

    def close(self) -> None:
        """Stop dispatching here; code and tables are freed when nobody is inside."""
        with self._lock:
            self.closed = True
            if self._dispatch is not None:
                if self.cell.dispatch == self._dispatch.address:
                    self.cell.dispatch = 0
                self._dispatch.retire(self.programs)
                self._dispatch = None

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter may be half gone
            pass
