"""The evaluator forced onto every eligible frame: real entries, with bounds that keep a run short.

Owns `Forced`, a hook whose decision is yes. What must hold: a frame is recorded by the code that users run (`Entry.miss`, passes,
LLVM, dispatch, side exits, bridges); only the policy is another one: a frame needs no tensor to be captured, recordings that give
nothing are tried again, the first side exit records a bridge, and after a number of recordings a function's misses are CPython's.
"""

from __future__ import annotations

from collections import Counter
from types import CodeType, FunctionType
from typing import Any

import trident.entry
from trident.backend.exits import ExitSite
from trident.backend.native import evaluator, points
from trident.backend.native.evaluator import LEAVE_FRAME, FrameHook
from trident.entry import Entry
from trident.options import Options
from trident.services import Services

# Modules whose frames are not eligible: Trident and what it is made of; the machinery that calls the tests (a recording of it would
# swallow every test in one opaque call).
_FOREIGN = ("trident", "torch", "torch_mlir", "llvmlite", "triton", "bytecode", "cpython_worker", "cpython_forced", "faulthandler")
_MACHINERY = {("unittest.case", name) for name in (
    "run", "__call__", "debug", "_callSetUp", "_callTestMethod", "_callTearDown", "_callCleanup", "doCleanups", "doClassCleanups",
    "startTestRun", "_addSkip", "_addError")}
_MACHINERY_MODULES = ("unittest.suite", "unittest.result", "unittest.loader", "doctest")

RECORDINGS = 2
"""Of one code object; bridges are counted apart (`Options.max_bridges`)."""

OPTIONS: dict[str, Any] = {"max_specializations": RECORDINGS, "max_bridges": 2, "bridge_threshold": 1, "max_aborts": 1000,
                           "max_trace_ops": 600}


class _Services(Services):
    """After a recording that was given up the frames that it called are captured again."""

    def resume(self, frames: list[Any], exc: BaseException | None) -> object:
        for frame in frames:
            points.table(frame.code)  # analysed by code that is not the program's
        with evaluator.captured_again():
            return super().resume(frames, exc)


class ForcedEntry(Entry):
    """An entry that is tried a fixed number of times."""

    recordings = 0

    def retire(self, why: str, *, quiet: bool = False) -> None:
        super().retire(why, quiet=True)  # a test must see no warning of ours

    def miss_of_frame(self, frame: tuple[object, ...], code: CodeType) -> object:
        *arguments, function = frame
        if self.recordings >= RECORDINGS or self.retired:
            return LEAVE_FRAME
        self.recordings += 1
        self.skip = self.failed = 0
        assert isinstance(function, FunctionType)
        return self.miss(tuple(arguments), code, function)

    def on_exit(self, site: ExitSite, values: tuple[object, ...], error: BaseException | None) -> object:
        with evaluator.suppressed():  # the compiler's own calls of the standard library are not the program's
            return super().on_exit(site, values, error)


# These stand in the place of methods of Trident's: what looks for its frames must find them to be such.
for _function in (_Services.resume, ForcedEntry.retire, ForcedEntry.miss_of_frame, ForcedEntry.on_exit):
    _function.__code__ = _function.__code__.replace(co_filename=str(trident.entry.__file__))


class Forced:
    """The hook, with what it did."""

    def __init__(self) -> None:
        self.entries: dict[int, ForcedEntry] = {}
        self.hook = FrameHook(self._decide)
        trident.entry.services = _Services()

    def _decide(self, code: CodeType, function: FunctionType) -> tuple[Any, Any] | None:
        module = function.__globals__.get("__name__") or ""
        if not isinstance(module, str) or module.partition(".")[0] in _FOREIGN:
            return None
        if module in _MACHINERY_MODULES or (module, code.co_name) in _MACHINERY:
            return None
        entry = self.entries.get(id(code))
        if entry is None:
            entry = self.entries[id(code)] = ForcedEntry(function, Options(**OPTIONS))
        return entry.cell, entry.miss_of_frame

    def figures(self) -> dict[str, Any]:
        """Totals, and the faults of Trident's own."""
        entries = list(self.entries.values())
        aborts = Counter(abort.reason for entry in entries for abort in entry.aborts)
        faults = sorted({f"{abort.reason}: {abort.text} ({abort.file}:{abort.line})" for entry in entries for abort in entry.aborts
                         if abort.reason in ("internal", "compile")})
        roots = sum(len(entry.roots) for entry in entries)
        return {"functions": len(entries), "recordings": sum(entry.recordings for entry in entries), "traces": roots,
                "bridges": sum(len(entry.specializations) for entry in entries) - roots,
                "hits": sum(entry.cell.hits for entry in entries), "exits": sum(entry.side_exits for entry in entries),
                "aborts": dict(aborts), "faults": faults}


class Declining:
    """A hook that wants no frame."""

    def __init__(self) -> None:
        self.asked = 0
        self.hook = FrameHook(self._decide)

    def _decide(self, code: CodeType, function: FunctionType) -> None:
        self.asked += 1

    def figures(self) -> dict[str, Any]:
        return {"functions": self.asked}
