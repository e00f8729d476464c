"""The public functions: jit, frame_hook, explain, stats.

Owns what the user calls and the errors of bad use. Joins frontend and backend (with entry.py). May import: everything.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from trident import entries, locks, log
from trident import options as options_module
from trident.backend.native.callable import callable_type, make_callable
from trident.backend.native.evaluator import FrameHook
from trident.backend.native.verdicts import Apart, Whole
from trident.backend.replay.cuda import pool_bytes
from trident.boundary import answer
from trident.entry import Entry, all_entries
from trident.frontend.recorder import describe_fault
from trident.ir.codes import OfCode
from trident.options import Options
from trident.report import Explanation, nothing_of
from trident.support import unsupported_reason

_REFUSED_FLAGS: dict[int, str] = {
    inspect.CO_GENERATOR: "a generator function",
    inspect.CO_COROUTINE: "a coroutine function (async def)",
    inspect.CO_ASYNC_GENERATOR: "an asynchronous generator function",
    inspect.CO_ITERABLE_COROUTINE: "a generator-based coroutine function",
}


def jit(target: Any = None, /, **options: Any) -> Any:
    """Compile a function, method, class method, static method or `nn.Module` on its first call.

    Use as `@trident.jit`, `@trident.jit(option=…)` or `trident.jit(target, option=…)`. Options: see `trident.options.Options`.
    A function gives a native callable with the same name, doc and signature and `__wrapped__`; a module gives a module that
    shares everything with the original and whose call is native. Raises TypeError for what cannot be jitted.
    """
    if target is None:
        options_module.make(**options)  # a wrong name is told here, not at the decorated function
        return functools.partial(jit, **options)
    chosen = options_module.make(**options)
    why = _off()
    return _jit(target, (lambda function, options: _inert(function, why)) if why else _shared, chosen, why)


def _check(target: Any) -> None:
    """Raise TypeError unless `target` is something `jit` takes."""
    if isinstance(target, torch.nn.Module | staticmethod | classmethod | MethodType) or is_jitted(target):
        return
    if not isinstance(target, FunctionType):
        kind = f"the class {target.__qualname__}" if isinstance(target, type) else f"{type(target).__name__} {target!r:.60}"
        raise TypeError(f"trident.jit takes a Python function, a method or an nn.Module, not {kind}; "
                        "wrap the call in a function (def f(...): ...) and jit that")
    for flag, what in _REFUSED_FLAGS.items():
        if target.__code__.co_flags & flag:
            raise TypeError(f"trident.jit cannot take {target.__qualname__}: it is {what}; "
                            "jit the plain functions that it calls for each step instead")


def _jit(target: Any, make: Callable[[FunctionType, Options], Any], options: Options, why: str) -> Any:
    """Jit a function with `make`, or what holds one. why: Trident is off."""
    _check(target)
    if is_jitted(target):
        return target
    if isinstance(target, staticmethod | classmethod):
        return type(target)(_jit(target.__func__, make, options, why))
    if isinstance(target, MethodType):
        return MethodType(_jit(target.__func__, make, options, why), target.__self__)
    if isinstance(target, torch.nn.Module):
        from trident.modules import inert_module, jit_module

        # Its function is `nn.Module.__call__`, which is not this module's alone: nothing to share.
        name = type(target).__qualname__
        return inert_module(target, options, why) if why else jit_module(target, lambda f: _callable(f, Entry(f, options, name)), options)
    return make(target, options)


def _inert(function: FunctionType, why: str) -> FunctionType:
    """What a jitted function is where Trident is off: the same function once more, with the attributes of a jitted one."""
    made = FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__)
    functools.update_wrapper(made, function)
    made.__kwdefaults__ = function.__kwdefaults__
    made._trident_off = why  # type: ignore[attr-defined]
    made.specializations, made.reset = 0, lambda: None  # type: ignore[attr-defined]
    return made


def _off() -> str:
    """Why everything runs eagerly, "" if it does not."""
    if options_module.disabled():
        return "TRIDENT_DISABLE is set"
    with _first_use:  # what is verified at start may not be disturbed by another thread that verifies it
        return _warn_unsupported()


def _shared(function: FunctionType, options: Options) -> Any:
    """A native callable for a function, with the entry that frame_hook finds for it."""
    return _callable(function, entries.of_callable(function, options))


def _callable(function: FunctionType, entry: Entry) -> Any:
    made = make_callable(function, entry.cell, entry.miss, _callable_type())
    made.__dict__["_trident_entry"] = entry
    return made


_first_use = locks.lock()
"""What all functions share is verified and made once, also where several threads need it first."""


def _callable_type() -> type:
    with _first_use:
        return _made_type()


@functools.cache
def _made_type() -> type:
    return callable_type("trident.Function", {
        "specializations": property(lambda self: len(entry_of(self).roots), doc="number of root traces"),
        "reset": lambda self: entry_of(self).reset(),
    })


def entry_of(target: Any) -> Entry:
    """The entry behind a jitted function, method or module; TypeError if there is none."""
    for candidate in (target, getattr(target, "__func__", None)):
        entry = getattr(candidate, "__dict__", {}).get("_trident_entry")
        if entry is None:
            entry = getattr(type(candidate), "_trident_entry", None)
        if isinstance(entry, Entry):
            return entry
    if isinstance(target, FunctionType):
        entry = entries.of_function(target)
        if entry is not None:
            return entry
    raise TypeError(f"{target!r} is not jitted and no frame_hook has captured it; decorate it with @trident.jit")


def is_jitted(target: Any) -> bool:
    """Whether `target` came from `trident.jit`."""
    if _reason_off(target):
        return True
    try:
        return not isinstance(target, FunctionType) and bool(entry_of(target))
    except TypeError:
        return False


def _reason_off(target: Any) -> str:
    """Why what `jit` made of a function, method or module runs eagerly, "" if it does not, or was not made by it."""
    function = getattr(target, "__func__", target)
    why = getattr(function, "__dict__", {}).get("_trident_off") if isinstance(function, FunctionType) else None
    return str(why or (isinstance(target, torch.nn.Module) and getattr(type(target), "_trident_off", "")) or "")


def explain(target: Any) -> Explanation:
    """What Trident did with a jitted (or captured) function: print the result."""
    function = getattr(target, "__func__", target)
    if isinstance(target, torch.nn.Module):
        function = type(target).forward
    if isinstance(function, FunctionType):
        code = function.__code__
        why = _reason_off(target) or ("" if is_jitted(target) or entries.of_function(function) else _off())
        if why:
            return nothing_of(function.__qualname__, code, f"off, runs eagerly: {why}")
        undecided = _undecided.get(code)
        if undecided is not None:
            return nothing_of(function.__qualname__, code, f"left to CPython: {undecided}")
    return entry_of(target).explain()


def stats() -> dict[str, int]:
    """Totals over all live functions: functions, specializations, bridges, hits, misses, side_exits, aborts, graphs, graph_bytes."""
    entries = all_entries()
    roots = sum(len(e.roots) for e in entries)
    graphs = sum(len(s.promotion.site.graphs) for e in entries for s in list(e.specializations) if s.promotion is not None)
    return {
        "functions": len(entries),
        "specializations": roots,
        "bridges": sum(len(e.specializations) for e in entries) - roots,
        "hits": sum(e.cell.hits for e in entries),
        "misses": sum(e.cell.misses for e in entries),
        "side_exits": sum(e.side_exits for e in entries),
        "aborts": sum(len(e.aborts) for e in entries),
        "graphs": graphs,
        "graph_bytes": pool_bytes() if graphs else 0,
    }


_undecided: OfCode[str] = OfCode()
"""Code objects that frame_hook leaves to CPython because looking at them failed, and why."""


def _decide(code: CodeType, function: FunctionType) -> Whole | Apart:
    """Whether and where a frame that the evaluator sees for the first time is captured."""
    return answer(lambda: entries.of_frame(code, function), None, lambda error: _note_undecided(code, error))  # type: ignore[no-any-return]


def _note_undecided(code: CodeType, error: Exception) -> None:
    text = describe_fault(error)
    _undecided[code] = text
    log.write("aborts", f"{code.co_qualname}: {text}")


@functools.cache
def _hook() -> FrameHook:
    """The one hook of the process: installed per thread, as often as `frame_hook` blocks are active there."""
    return FrameHook(_decide)


@contextmanager
def frame_hook() -> Iterator[None]:
    """Capture frames at entry, undecorated code included, while the block is active in this thread.

    Nests; chains to an evaluator that was installed before and restores it, also when the block raises.
    """
    if _off():
        yield
        return
    hook = answer(_installed_hook, None, lambda error: log.warn(f"trident.frame_hook captures nothing: {describe_fault(error)}"))
    try:
        yield
    finally:
        if hook is not None:
            hook.remove()


def _installed_hook() -> FrameHook:
    with _first_use:
        hook = _hook()
        hook.install()
    return hook


@functools.cache
def _warn_unsupported() -> str:
    """Why this Python or torch cannot be served, "" if it can: one warning, then everything runs eagerly."""
    reason = unsupported_reason()
    if reason:
        log.warn(f"trident is off, everything runs eagerly: {reason}")
    return reason


__all__ = ["entry_of", "explain", "frame_hook", "is_jitted", "jit", "stats"]
