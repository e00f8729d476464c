"""Side exits: where a host program can be left, how often it was, and where it then goes.

Owns `ExitSite`, the Python face of one entry of a host program's table of sites. What must hold: the table outlives every
ExitSite of it; a bridge address is stored only after its program is complete.

May import: ir, native.frame.
"""

from __future__ import annotations

import ctypes
from typing import Any

from trident.backend.native import frame
from trident.ir.trace import GuardInfo, Snapshot, Trace


class ExitSite:
    """One way out of a host program.

    trace: the trace that is left. snapshot: the state to continue from; None where leaving is a miss (the entry region of a root
    trace). guard: what failed; None where it is not a guard. is_raise: an exception leaves here. what: the op, for display.
    """

    __slots__ = ("trace", "snapshot", "guard", "is_raise", "number", "what", "_address", "_table")

    def __init__(self, trace: Trace, snapshot: Snapshot | None, guard: GuardInfo | None, is_raise: bool, number: int, what: str,
                 table: Any, address: int) -> None:
        self.trace = trace
        self.snapshot = snapshot
        self.guard = guard
        self.is_raise = is_raise
        self.number = number
        self.what = what
        self._table = table
        self._address = address

    def _word(self, offset: int) -> ctypes.c_uint64:
        return ctypes.c_uint64.from_address(self._address + offset)

    @property
    def taken(self) -> int:
        """How often the program was left here."""
        return self._word(frame.TAKEN).value

    @property
    def bridge(self) -> int:
        """Address of the program that continues here, 0 while there is none."""
        return self._word(frame.BRIDGE).value

    @bridge.setter
    def bridge(self, address: int) -> None:
        self._word(frame.BRIDGE).value = address

    @property
    def bridged(self) -> bool:
        """Whether a bridge continues here."""
        return self.bridge != 0

    def __repr__(self) -> str:
        if self.guard is not None:
            return f"<exit {self.number} of {self.trace.name}: {self.guard.text} ({self.guard.file}:{self.guard.line})>"
        where = f" ({self.snapshot.file}:{self.snapshot.line})" if self.snapshot else ""
        return f"<exit {self.number} of {self.trace.name}: {'exception in ' if self.is_raise else ''}{self.what}{where}>"
