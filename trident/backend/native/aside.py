"""Work of Trident's own that nobody in the caller's thread may notice.

Owns `aside`. What must hold: modes, profilers, grad and autocast state, tracers and other facts of the caller's thread neither see nor
change what is done there.

May import: the standard library.
"""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import TypeVar

Result = TypeVar("Result")


def aside(work: Callable[[], Result]) -> Result:
    """The result of a function, or what it raises, from a thread of its own; from this one where there can be no more threads."""
    results: list[Result] = []
    errors: list[BaseException] = []
    done = _thread.allocate_lock()

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors.append(error)
        done.release()

    done.acquire()
    try:
        _thread.start_new_thread(run, ())  # not threading's: its threads run what threading.settrace and setprofile have been given
    except RuntimeError:  # the interpreter is shutting down, or the system has no room
        return work()
    done.acquire()
    if errors:
        raise errors.pop()
    return results[0]
