"""Why a recording ends early, and the exceptions that end it inside the recorder.

Owns the table of abort reasons. What must hold: these exceptions never leave `frontend.recorder.record`; a user's exception
is always carried in `UserRaised`, never raised bare through recorder code.

May import: nothing of trident.
"""

from __future__ import annotations

from dataclasses import dataclass

ABORT_REASONS: dict[str, str] = {
    "raised": "the code raised an exception",
    "opcode": "an instruction that the recorder does not handle",
    "frame": "a call that reads or changes Python frames",
    "unsupported": "a construct that the recorder does not follow",
    "impure": "an effect in code that must have none (a grid function, for example)",
    "length": "the trace grew too long",
    "opaque": "more opaque calls than a frame that the hook captures may have",
    "depth": "inlining went too deep",
    "promote": "a run-time value was needed as a constant and cannot be guarded as one",
    "internal": "an error in Trident itself",
    "interrupt": "the recording was interrupted",
}


@dataclass(frozen=True, slots=True)
class AbortInfo:
    """Why and where a recording was given up. reason: key of `ABORT_REASONS`."""

    reason: str
    text: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{ABORT_REASONS[self.reason]}: {self.text} ({self.file}:{self.line})"


class Leave(Exception):
    """Give the live frames to CPython before the current instruction; it is executed there."""

    def __init__(self, reason: str, text: str, error: type[BaseException] | None = None) -> None:
        assert reason in ABORT_REASONS, reason
        super().__init__(reason, text)
        self.reason, self.text = reason, text
        self.error = error  # the class of what the instruction raises, where the guards written so far say that it does


class UserRaised(Exception):
    """An operation of the user's program raised `error` during the current instruction."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(error)
        self.error = error


class PartlyExecuted(Exception):
    """An instruction executed one operation and needs another one: what it executed is not its result."""


class RecorderBug(Exception):
    """A rule of the recorder was broken (a guard after an effect of the same instruction, for example)."""
