"""Logging: `TRIDENT_LOG=topic,…[:file]` on top of the standard logging module.

Owns the topics. What must hold: a topic that is off costs one attribute test where it would be written.

May import: the standard library, options' environment names.
"""

from __future__ import annotations

import logging
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

TOPICS: dict[str, str] = {
    "record": "each recording: function, length, time, outcome",
    "misses": "each miss: which specialization failed at which guard",
    "guards": "guards of each new specialization",
    "exits": "side exits taken, and bridges",
    "aborts": "recordings given up, with the reason and line",
    "compile": "lowering and LLVM: sizes and times",
    "opaque": "opaque calls recorded",
    "replay": "graphs captured, and why not",
    "ir": "the trace before and after the passes",
}

_PACKAGE = str(Path(__file__).parent) + os.sep
_logger = logging.getLogger("trident")
_enabled: frozenset[str] = frozenset()


def configure(spec: str | None = None) -> None:
    """Apply a `topic,…[:file]` specification ("all" for every topic); None reads TRIDENT_LOG."""
    global _enabled
    text = os.environ.get("TRIDENT_LOG", "") if spec is None else spec
    topics, _, file = text.partition(":")
    names = {t.strip() for t in topics.split(",") if t.strip()}
    if "all" in names:
        names = set(TOPICS)
    for unknown in sorted(names - set(TOPICS)):
        print(f"trident: unknown log topic {unknown!r}; topics: {', '.join(TOPICS)}", file=sys.stderr)
    _enabled = frozenset(names & set(TOPICS))
    for old in list(_logger.handlers):
        _logger.removeHandler(old)
    if _enabled:
        handler: logging.Handler = logging.StreamHandler()
        if file:
            try:
                handler = logging.FileHandler(file)
            except OSError as error:
                warn(f"trident: TRIDENT_LOG names a file that cannot be written, the log goes to stderr: {error}")
        handler.setFormatter(logging.Formatter("trident %(message)s"))
        _logger.addHandler(handler)
        _logger.setLevel(logging.INFO)
        _logger.propagate = False


def on(topic: str) -> bool:
    """Whether a topic is on."""
    return topic in _enabled


def write(topic: str, message: str) -> None:
    """Log a line under a topic."""
    if topic in _enabled:
        _logger.info("[%s] %s", topic, message)


def warn(message: str) -> None:
    """A RuntimeWarning at the user's line. Where a filter makes it an error it is printed: a call must not be lost for it."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<frozen ")):
        frame = frame.f_back
    where = frame.f_code.co_filename, frame.f_lineno
    try:
        warnings.warn_explicit(message, RuntimeWarning, *where, module=frame.f_globals.get("__name__"),
                               registry=frame.f_globals.setdefault("__warningregistry__", {}))
    except Exception:
        print(warnings.formatwarning(message, RuntimeWarning, *where), end="", file=sys.stderr)


@contextmanager
def timed(topic: str, what: str) -> Iterator[None]:
    """Log how long the block took, in ms."""
    start = time.perf_counter()
    try:
        yield
    finally:
        write(topic, f"{what}: {(time.perf_counter() - start) * 1e3:.1f} ms")


def dump(directory: str | None, name: str, suffix: str, text: Callable[[], str]) -> None:
    """Write a text to directory/name.suffix if a directory is given (TRIDENT_DUMP)."""
    if not directory or directory in _unwritable:
        return
    content, path = text(), Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / f"{name}.{suffix}").write_text(content)
    except OSError as error:
        _unwritable.add(directory)
        warn(f"trident: nothing is dumped to {directory!r} any more, it cannot be written (dump=, TRIDENT_DUMP): {error}")


_unwritable: set[str] = set()
"""Directories to which dumping has failed."""

configure()
