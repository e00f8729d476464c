"""Helpers of the replay tests: a traced function as its root trace, its replay program, and calls of it.

Owns `Replayed`: a function whose root trace is split, captured for one call's arguments and compiled. May import: trident.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection
from typing import Any

import trident
from tests.backend.harness import MISS, _call, default_handler
from trident.api import entry_of
from trident.backend.reference import Run, evaluate
from trident.backend.replay.graph import Graph, capture
from trident.backend.replay.site import ReplaySite
from trident.backend.replay.split import Plan, split
from trident.backend.scm import HostProgram
from trident.ir.trace import Trace

__all__ = ["MISS", "Replayed", "root_of"]


def root_of(function: Callable[..., Any], *args: Any) -> tuple[Any, Trace]:
    """The jitted function after two calls, and its root trace."""
    jitted = trident.jit(function)
    for _ in range(2):
        jitted(*args)
    entry = entry_of(jitted)
    assert len(entry.roots) == 1, [abort.text for abort in entry.aborts]
    return jitted, entry.roots[0].trace


class Replayed:
    """The replay program of a function, made for a call with `args`. Called, it gives its result or MISS."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.function = function
        self.jitted, self.trace = root_of(function, *args)
        self.site = ReplaySite()
        self.plan: Plan = split(self.trace, self.site)
        self.site.plan = self.plan
        self.program = HostProgram(self.plan.host, default_handler)

    def bound(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        return (*args, self.function)

    def operands(self, *args: Any) -> tuple[list[Any], list[Any]]:
        """The tensors and numbers that the graph gets of a call."""
        trace = self.plan.host
        run = Run(trace, dict(zip(trace.block.arguments, self.bound(args), strict=True)))
        for view in trace.block.operations:
            op = view.operation
            given = [run.env[operand] for operand in op.operands]
            if op.name == "trident.replay":
                return given[:len(self.plan.inputs)], given[len(self.plan.inputs):]
            run.env.update(zip(op.results, evaluate(run, op, given), strict=True))
        raise AssertionError

    def capture(self, *args: Any, copied: Collection[int] = ()) -> Graph:
        graph = capture(self.plan, *self.operands(*args), copied)
        self.site.add(graph)
        return graph

    def __call__(self, *args: Any) -> Any:
        bound = self.bound(args)
        array = (ctypes.py_object * len(bound))(*bound)
        return _call(self.program.address, ctypes.addressof(array))
