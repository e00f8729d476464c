"""Options: one table, read from keywords of `trident.jit`, scoped with `options.scope`, defaults from the environment.

Owns names, defaults and the four environment variables. What must hold: an option name appears here once; names that users
know from `torch.compile` mean the same.

May import: the standard library.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

ENVIRONMENT: dict[str, str] = {
    "TRIDENT_LOG": "topic,…[:file] — log topics (see trident.log.TOPICS) to stderr or to a file",
    "TRIDENT_DUMP": "directory that receives the IR and LLVM of everything that is compiled",
    "TRIDENT_CHECK": "0, 1 or 2 — 1 verifies the IR after every pass; 2 also compares every recording with its trace (slow)",
    "TRIDENT_DISABLE": "1 — everything runs eagerly, as if Trident were not there",
}


@dataclass(frozen=True, slots=True)
class Options:
    """Options of one jitted function.

    strict: raise where anything is opaque or could not be recorded (torch.compile's fullgraph).
    max_specializations: root traces per function; beyond it the least used makes room, and a function that would thrash runs eagerly
        on a miss, with one warning.
    max_bridges: bridges per function. bridge_threshold: side exits taken at one place before a bridge is recorded there.
    max_aborts: failed recordings before the function is left to CPython. max_trace_ops: instructions that a recording may execute.
    replay: "auto" captures a CUDA graph of what has hit some times, where its work is static, "always" after the first hit, "off" never.
    max_opaque_calls: of the traces of a function that only a frame hook has captured; beyond it the frame is left to CPython, and what
        it calls is captured by itself.
    demoted: (id of a dict, key) of numbers that are read at run time instead of being pinned (filled by Trident itself).
    generalised: numbers of arguments (paths, for items of *args and **kwargs) that are other objects at each call: their attributes
        are read at run time (by itself too).
    loops: what is known of the headers of loops (by itself too).
    """

    strict: bool = False
    max_specializations: int = 64
    max_bridges: int = 256
    bridge_threshold: int = 2
    max_aborts: int = 3
    max_trace_ops: int = 400_000
    max_opaque_calls: int = 16
    replay: str = "off"
    check: int = 0
    dump: str | None = None
    demoted: set[tuple[int, object]] = field(default_factory=set, compare=False)
    generalised: set[Any] = field(default_factory=set, compare=False)
    loops: dict[Any, Any] = field(default_factory=dict, compare=False)

    def chosen(self) -> dict[str, Any]:
        """What differs from the defaults, as keywords of `trident.jit`."""
        plain = Options()
        return {name: getattr(self, name) for name in sorted(self.names()) if getattr(self, name) != getattr(plain, name)}

    @classmethod
    def names(cls) -> frozenset[str]:
        """Names that `trident.jit` accepts."""
        return frozenset(f.name for f in dataclasses.fields(cls)) - {"demoted", "generalised", "loops"}


@dataclass(frozen=True, slots=True)
class _Values:
    """What an option takes: instances of `types`, and numbers from `least` to `most`."""

    types: tuple[type, ...]
    words: str
    least: int | None = None
    most: int | None = None
    choices: tuple[str, ...] = ()


ACCEPTED: dict[str, _Values] = {
    "strict": _Values((bool,), "True or False"),
    "max_specializations": _Values((int,), "an int of at least 1", 1),
    "max_bridges": _Values((int,), "an int of at least 0", 0),
    "bridge_threshold": _Values((int,), "an int of at least 1", 1),
    "max_aborts": _Values((int,), "an int of at least 1", 1),
    "max_trace_ops": _Values((int,), "an int of at least 1", 1),
    "max_opaque_calls": _Values((int,), "an int of at least 0", 0),
    "replay": _Values((str,), '"auto", "off" or "always"', choices=("auto", "off", "always")),
    "check": _Values((bool, int), "0, 1 or 2", 0, 2),
    "dump": _Values((str, os.PathLike, type(None)), "a directory (str or path) or None"),
}


def _checked(name: str, value: object) -> Any:
    """The value of an option as it is kept; TypeError or ValueError where the option does not take it."""
    values = ACCEPTED[name]
    complaint = f"option {name!r} takes {values.words}, not {value!r:.60}"
    if not isinstance(value, values.types) or isinstance(value, bool) and bool not in values.types:
        raise TypeError(f"{complaint} ({type(value).__name__})")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if values.choices and value not in values.choices:
        raise ValueError(complaint)
    number: Any = value
    if values.least is not None and number < values.least or values.most is not None and number > values.most:
        raise ValueError(complaint)
    return value


def _default() -> Options:
    check = os.environ.get("TRIDENT_CHECK") or "0"
    if check not in ("0", "1", "2"):
        raise ValueError(f"TRIDENT_CHECK is {check!r}; it must be {ENVIRONMENT['TRIDENT_CHECK']}")
    return Options(check=int(check), dump=os.environ.get("TRIDENT_DUMP") or None)


_current: list[Options] = [_default()]


def current() -> Options:
    """The options in force for functions that are jitted now."""
    return _current[-1]


def make(**overrides: object) -> Options:
    """Current options with overrides; unknown names raise TypeError with the list of known ones, bad values TypeError or ValueError."""
    unknown = sorted(set(overrides) - Options.names())
    if unknown:
        raise TypeError(f"unknown option {', '.join(map(repr, unknown))}; known options: {', '.join(sorted(Options.names()))}")
    checked = {name: _checked(name, value) for name, value in overrides.items()}
    return dataclasses.replace(current(), demoted=set(), generalised=set(), loops={}, **checked)


@contextmanager
def scope(**overrides: object) -> Iterator[Options]:
    """`with options.scope(strict=True):` — options for functions jitted inside the block."""
    _current.append(make(**overrides))
    try:
        yield _current[-1]
    finally:
        _current.pop()


def disabled() -> bool:
    """Whether TRIDENT_DISABLE is set; read when a function is jitted."""
    return os.environ.get("TRIDENT_DISABLE", "0") not in ("", "0")
