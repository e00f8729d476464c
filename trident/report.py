"""Explanations and statistics: what a user sees of a jitted function's life.

Owns the data that `trident.explain` returns and its printed form. May import: ir, rich (where something is printed).
"""

from __future__ import annotations

import io
import os
import shutil
import sys
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING

from trident.ir import GuardInfo, OpaqueCall

_SHOWN = 60

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Abort:
    """A recording or compilation that was given up: reason (a key of the recorder's table), text, and where."""

    reason: str
    text: str
    file: str
    line: int


@dataclass(frozen=True, slots=True)
class ExitReport:
    """A place where a hit can leave its trace, and how often it did. `kind`: guard or exception."""

    text: str
    kind: str
    file: str
    line: int
    taken: int
    bridged: bool


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds that went into a trace. record: the call's own work included."""

    record: float
    passes: float
    lowering: float
    llvm: float
    publication: float

    @property
    def compile(self) -> float:
        """Everything after the recording."""
        return self.passes + self.lowering + self.llvm + self.publication


@dataclass(frozen=True, slots=True)
class SpecializationReport:
    """One root trace or bridge."""

    name: str
    kind: str
    guards: tuple[GuardInfo, ...]
    pins: int
    operators: int
    launches: int
    opaque_calls: tuple[OpaqueCall, ...]
    native_calls: int
    exits: tuple[ExitReport, ...]
    timing: Timing
    ir: str = field(repr=False, default="")
    llvm: str = field(repr=False, default="")
    launch_reasons: tuple[str, ...] = ()  # why launches go through Triton's Python, where they do
    replay: str = ""  # how often it was replayed as a graph, or why it is not; "" where that was not asked for


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a specialization did not answer a call. text: the condition that did not hold; seen: the value that there was instead, ""
    where the condition says it; file, line: the code of the user's that made the specialization depend on it."""

    specialization: int
    text: str
    seen: str
    kind: str
    file: str
    line: int

    def __str__(self) -> str:
        seen = f", seen {self.seen}" if self.seen else ""
        where = f" ({self.file}:{self.line})" if self.file else ""
        return f"specialization {self.specialization}: {self.text}{seen}{where}"


@dataclass(frozen=True, slots=True)
class MissTotal:
    """How often guards of one kind, which one line of the user's made, failed. text: the last one's condition."""

    text: str
    kind: str
    file: str
    line: int
    count: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `trident.explain(fn)` returns; print it. `last_misses`: why the last calls that nothing answered were missed, by each
    specialization that there was; `missed_guards`: the same in total. evicted: specializations that made room for others.
    `selection`: the decision tree that says which specializations are tried, "" while there are so few that all are."""

    function: str
    file: str
    line: int
    hits: int
    misses: int
    side_exits: int
    specializations: tuple[SpecializationReport, ...]
    aborts: tuple[Abort, ...]
    last_misses: tuple[Miss, ...]
    status: str
    selection: str = field(repr=False, default="")
    missed_guards: tuple[MissTotal, ...] = ()
    evicted: int = 0

    def __str__(self) -> str:
        from rich.console import Console

        width = min(max(shutil.get_terminal_size((140, 24)).columns, 80), 140)  # the terminal's, where there is one
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(self)
        return "\n".join(line.rstrip() for line in console.export_text().rstrip().splitlines())

    def __rich_console__(self, console: Console, options: object) -> object:
        yield f"[bold]{self.function}[/bold]  {self.file}:{self.line}  — {self.status}"
        evicted = f", evicted specializations {self.evicted}" if self.evicted else ""
        yield f"hits {self.hits}, misses {self.misses}, side exits {self.side_exits}{evicted}"
        if self.specializations:
            yield _specialization_table(self.specializations)
        opaque = [(_number(s), c) for s in self.specializations for c in s.opaque_calls]
        if opaque:
            yield _table("opaque calls", ("in", "callee", "why", "where"),
                         [(n, c.callee, c.reason, _place(c.file, c.line)) for n, c in opaque])
        launches = [(_number(s), reason) for s in self.specializations for reason in s.launch_reasons]
        if launches:
            yield _table("launches through Triton's Python", ("in", "why"), [(n, reason) for n, reason in launches])
        replays = [(_number(s), s.replay) for s in self.specializations if s.replay]
        if replays:
            yield _table("graphs", ("of", "state"), list(replays))
        exits = [(_number(s), e) for s in self.specializations for e in s.exits if e.taken]
        if exits:
            yield _table("side exits taken", ("in", "condition", "times", "bridge", "where"),
                         [(n, e.text, str(e.taken), "yes" if e.bridged else "no", _place(e.file, e.line)) for n, e in exits])
        guards = [(_number(s), g) for s in self.specializations for g in s.guards]
        if guards:
            yield _table("guards", ("in", "kind", "condition", "where"),
                         [(n, g.kind, g.text, _place(g.file, g.line)) for n, g in guards[:_SHOWN]])
        if self.aborts:
            yield _table("recordings given up", ("reason", "what", "where"),
                         [(a.reason, a.text, _place(a.file, a.line)) for a in self.aborts])
        if self.last_misses:
            yield _table("last misses", ("in", "condition", "seen", "where"),
                         [(f"#{m.specialization}", m.text, m.seen, _place(m.file, m.line)) for m in self.last_misses])
            yield _table("misses in total", ("times", "kind", "condition", "where"),
                         [(str(m.count), m.kind, m.text, _place(m.file, m.line)) for m in self.missed_guards[:_SHOWN]])


def nothing_of(function: str, code: CodeType, status: str) -> Explanation:
    """The explanation of a function that Trident has nothing to do with; `status` says why."""
    return Explanation(function, code.co_filename, code.co_firstlineno, 0, 0, 0, (), (), (), status)


def _number(specialization: SpecializationReport) -> str:
    """Which one it is, within the explanation of one function."""
    return "#" + specialization.name.rpartition("#")[2]


def _place(file: str, line: int) -> str:
    """file:line; a file below the working directory, or of a package on the path, without the folder that it is found in."""
    if not file:
        return ""
    known = [folder + os.sep for folder in (os.getcwd(), *sys.path) if folder and file.startswith(folder + os.sep)]
    return f"{file[len(max(known, key=len, default='')):]}:{line}"


def _specialization_table(rows: tuple[SpecializationReport, ...]) -> Table:
    headings = ("", "kind", "guards", "pins", "ATen\ncalls", "launches", "opaque", "C\ncalls", "exits", "record\nms", "compile\nms")
    return _table("specializations", headings,
                  [(_number(s), s.kind, str(len(s.guards)), str(s.pins), str(s.operators), str(s.launches), str(len(s.opaque_calls)),
                    str(s.native_calls),
                    str(len(s.exits)), f"{s.timing.record:.0f}", f"{s.timing.compile:.0f}") for s in rows], numbers_from=2)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[str, ...]], numbers_from: int | None = None) -> Table:
    """A table that 80 columns have room for. numbers_from: the first of the columns that are numbers."""
    from rich import box
    from rich.table import Table

    padding = (0, 1 if numbers_from is None else 0, 0, 0)
    table = Table(title=f"\n{title}", title_justify="left", box=box.SIMPLE_HEAVY, padding=padding, show_edge=False)
    for n, column in enumerate(columns):
        number = numbers_from is not None and n >= numbers_from
        table.add_column(column, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        table.add_row(*[cell.replace("[", "\\[") for cell in row])
    return table
