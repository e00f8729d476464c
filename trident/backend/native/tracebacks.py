"""Telling Trident's own frames from the user's.

Owns the answer to "is this code ours?" and the removal of our frames from the front of tracebacks. What must hold: a traceback is
never left without a frame of the user's when it had one, and one that has only frames of ours (a fault of Trident) stays whole.

May import: nothing of Trident.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType, TracebackType

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def is_own(code: CodeType) -> bool:
    """Whether this code belongs to Trident."""
    return code.co_filename.startswith(PACKAGE)


def strip(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback without the frames of ours that it starts with; unchanged when there are no others."""
    entry = traceback
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(PACKAGE):
        entry = entry.tb_next
    return traceback if entry is None else entry


def strip_raised(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback of an exception that is about to be raised in a frame of the user's: nothing when all frames are ours."""
    entry = traceback
    while entry is not None and entry.tb_frame.f_code.co_filename.startswith(PACKAGE):
        entry = entry.tb_next
    return entry


def user_frame() -> tuple[FrameType | None, int]:
    """The innermost running frame that is not ours, and the number of our frames above it."""
    frame: FrameType | None = sys._getframe(1)
    count = 1
    while frame is not None and frame.f_code.co_filename.startswith(PACKAGE):
        frame, count = frame.f_back, count + 1
    return frame, count
