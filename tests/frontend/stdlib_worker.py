"""Runs tests of CPython's own `test` package plainly, then with every function of a library module recorded at each call.

`python stdlib_worker.py LIMIT TEST=MODULE[,MODULE] …` prints one line of JSON per TEST. A function is recorded when it is called
from code that is not being recorded; what it calls in these modules is inlined. After LIMIT calls a module runs plainly.
"""

from __future__ import annotations

import functools
import importlib
import json
import sys
import types
import unittest
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from driver import Options, Services

from trident.frontend.models import registry
from trident.frontend.recorder import record
from trident.frontend.values import Const

_NOT_RECORDED = {"__new__", "__del__", "__init_subclass__", "__class_getitem__", "__getattribute__"}


class Recording:
    """Wraps functions; counts."""

    def __init__(self, limit: int) -> None:
        self.limit, self.depth = limit, 0
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.services, self.options = Services(), Options()

    def wrap(self, function: types.FunctionType) -> types.FunctionType:
        if function.__code__.co_flags & (0x20 | 0x80 | 0x200):
            return function

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            bound = None
            if self.depth < 3 and self.counts["calls"] < self.limit:
                bound = bind(function, args, kwargs)
            if bound is None:
                return function(*args, **kwargs)
            self.counts["calls"] += 1
            self.depth += 1
            try:
                outcome = record(function, bound, self.services, self.options)
            finally:
                self.depth -= 1
            self.counts["traces"] += outcome.trace is not None
            if outcome.abort is not None and outcome.abort.reason == "internal":
                self.faults.append(str(outcome.abort))
            return outcome.unwrap()

        registry().function(recorded, lambda rec, args, kwargs: rec.call(Const(function), args, kwargs))
        return recorded  # type: ignore[return-value]

    def instrument(self, module: types.ModuleType) -> None:
        for name, value in list(vars(module).items()):
            if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
                setattr(module, name, self.wrap(value))
            elif isinstance(value, type) and value.__module__ == module.__name__:
                for key, member in list(vars(value).items()):
                    self.instrument_member(value, key, member)

    def instrument_member(self, cls: type, name: str, member: Any) -> None:
        made = None
        if isinstance(member, types.FunctionType):
            made = self.wrap(member)
        elif isinstance(member, classmethod | staticmethod) and isinstance(member.__func__, types.FunctionType):
            made = type(member)(self.wrap(member.__func__))
        elif type(member) is property:
            parts = (member.fget, member.fset, member.fdel)
            made = property(*(self.wrap(p) if isinstance(p, types.FunctionType) else p for p in parts), member.__doc__)
        if made is not None and name not in _NOT_RECORDED:
            try:
                setattr(cls, name, made)
            except (TypeError, AttributeError):
                pass


def bind(function: types.FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
    """Arguments in localsplus order, None where they do not fit."""
    code = function.__code__
    count, keyword_only = code.co_argcount, code.co_kwonlyargcount
    names = code.co_varnames[:count + keyword_only]
    if len(args) > count and not code.co_flags & 4:
        return None
    values = dict(zip(names, args[:count]))
    extra = {}
    for key, value in kwargs.items():
        if key in names[code.co_posonlyargcount:] and key not in values:
            values[key] = value
        elif code.co_flags & 8 and key not in values:
            extra[key] = value
        else:
            return None
    defaults = function.__defaults__ or ()
    known = dict(zip(names[count - len(defaults):count], defaults)) | (function.__kwdefaults__ or {})
    if any(name not in values and name not in known for name in names):
        return None
    bound = [values[name] if name in values else known[name] for name in names]
    if code.co_flags & 4:
        bound.append(tuple(args[count:]))
    if code.co_flags & 8:
        bound.append(extra)
    return tuple(bound)


def failures(test: str) -> tuple[int, set[str]]:
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromName(test).run(result)
    return result.testsRun, {str(case) for case, _ in result.failures + result.errors}


def main() -> None:
    for argument in sys.argv[2:]:
        test, _, modules = argument.partition("=")
        _, plain = failures(test)
        recording = Recording(int(sys.argv[1]))
        for module in modules.split(","):
            recording.instrument(importlib.import_module(module))
        count, seen = failures(test)
        print(json.dumps({"test": test, "tests": count, "new": sorted(seen - plain), "calls": recording.counts["calls"],
                          "traces": recording.counts["traces"], "faults": recording.faults}), flush=True)


if __name__ == "__main__":
    main()
