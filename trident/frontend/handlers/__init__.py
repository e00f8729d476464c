"""Instruction handlers, one file per family.

Owns the table `COMMON`: opcode name -> handler, for what is the same in every CPython minor version. A handler is
`(rec, frame, instruction) -> None`; it pops its operands, and pushes the result or enters a frame. The tables of
`frontend.cpython` choose from `COMMON` and add what differs.

May import: frontend.*, ir.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trident.frontend.analysis import Instruction
from trident.frontend.frames import RecordedFrame

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

Handler = Callable[["Recorder", RecordedFrame, Instruction], None]
COMMON: dict[str, Handler] = {}


def handles(*names: str) -> Callable[[Handler], Handler]:
    """Register a handler for opcodes."""

    def register(handler: Handler) -> Handler:
        for name in names:
            assert name not in COMMON, name
            COMMON[name] = handler
        return handler

    return register
