"""Locks across forks and the end of the interpreter.

Owns how Trident's locks are made. What must hold: a child process finds every lock free; no thread is in the midst of a recording, or in
LLVM, when the process forks or the interpreter is taken down (such a thread does not come back, and what it holds would be held for ever).

May import: nothing of trident.
"""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Any, Final

_PATIENCE: Final = 10.0
"""Seconds for which a fork, or the end of the interpreter, waits for another thread's recording."""

_all: weakref.WeakSet[Any] = weakref.WeakSet()
_awaited: list[tuple[int, Any]] = []
_here = threading.local()


def lock(awaited: int | None = None) -> Any:
    """A reentrant lock. awaited: forks wait until it is free; the lock of a lower number is taken first."""
    made = threading.RLock()
    _all.add(made)
    if awaited is not None:
        wait_for(made, awaited)
    return made


def wait_for(made: Any, awaited: int) -> None:
    """Let forks wait for somebody else's lock, too (None: there is none)."""
    if made is not None:
        _awaited.append((awaited, made))
        _awaited.sort(key=lambda item: item[0])


def _take() -> None:
    _here.taken = [made for _, made in _awaited if made.acquire(timeout=_PATIENCE)]


def _give_back() -> None:
    taken, _here.taken = getattr(_here, "taken", []), []
    for made in reversed(taken):
        made.release()


def _in_child() -> None:
    """The threads that held the other locks are not in this process."""
    taken = {id(made) for made in getattr(_here, "taken", [])}
    for made in {id(made): made for made in (*_all, *(made for _, made in _awaited))}.values():
        if id(made) not in taken:
            made._at_fork_reinit()
    _give_back()


os.register_at_fork(before=_take, after_in_parent=_give_back, after_in_child=_in_child)
atexit.register(_take)  # for good: the thread that ends the interpreter may record and compile all the same

__all__ = ["lock"]
