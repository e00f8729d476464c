"""The pass pipeline: an ordered list, run on every trace before it is lowered.

Owns the order. What must hold for a pass: a valid trace in, a valid trace out, same observable behaviour; effects of ops are
those of the op table. ATen ops have unknown effects to MLIR (they may raise), so none is ever merged, moved or deleted.

May import: torch_mlir, ir, log, options.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from torch_mlir import ir, passmanager

from trident import log
from trident.backend.passes.dead_states import remove_dead_states
from trident.backend.passes.deduplicate import deduplicate
from trident.backend.passes.hoist import hoist_guards
from trident.backend.passes.lifetimes import remove_needless_keeps
from trident.ir import Trace
from trident.ir.dialect import context


@dataclass(frozen=True, slots=True)
class Pass:
    """A named pass over a trace."""

    name: str
    run: Callable[[Trace], None]


def _mlir(pipeline: str) -> Pass:
    def run(trace: Trace) -> None:
        with context():
            passmanager.PassManager.parse(f"builtin.module({pipeline})").run(trace.module.operation)

    return Pass(pipeline, run)


PIPELINE: tuple[Pass, ...] = (
    _mlir("canonicalize,cse"),
    Pass("trident-deduplicate", deduplicate),
    Pass("trident-hoist-guards", hoist_guards),
    Pass("trident-dead-states", remove_dead_states),
    Pass("trident-lifetimes", remove_needless_keeps),
    _mlir("canonicalize,cse"),
)


def _constant(value: ir.Value) -> str:
    """The text of a value that is a constant or a list with constants, else nothing."""
    owner = value.owner
    if isinstance(owner, ir.Block):
        return ""
    name = owner.name
    if name.startswith("torch.constant."):
        return f"{name} {owner.attributes['value']}" if "value" in owner.attributes else name
    return ",".join(map(_constant, owner.operands)) if name == "torch.prim.ListConstruct" else ""


def _aten_calls(trace: Trace) -> list[tuple[str, ...]]:
    """Every ATen call: its name and those of its operands that are constants."""
    operations = (op.operation for op in trace.block.operations)
    return [(op.name, *map(_constant, op.operands)) for op in operations if op.name.startswith(("torch.aten.", "torch.operator"))]


def run_passes(trace: Trace, *, check: bool = False, between: Callable[[str, Trace], None] | None = None) -> dict[str, float]:
    """Run the pipeline in place; returns ms per pass.

    check: verify the module, and that no ATen call was touched, after every pass. between: called with (pass name, trace) after every pass.
    """
    times: dict[str, float] = {}
    calls = _aten_calls(trace)
    with context():
        saved = trace.module.operation.clone()
    try:
        _run(PIPELINE, trace, times, check, between)
        if _aten_calls(trace) == calls:
            return times
    finally:
        log.write("compile", f"passes of {trace.name}: {sum(times.values()):.1f} ms")
    # A folder of the torch dialect has touched an ATen call, which may raise or alias (or the type of a number, which decides on that of
    # the result): start again without the folders.
    trace.module = ir.Module.parse(saved.get_asm(enable_debug_info=True), context())
    _run(tuple(_mlir("cse") if "canonicalize" in step.name else step for step in PIPELINE), trace, times, check, between)
    if _aten_calls(trace) != calls:
        raise AssertionError("a pass changed the ATen calls")
    return times


def _run(steps: tuple[Pass, ...], trace: Trace, times: dict[str, float], check: bool, between: Callable[[str, Trace], None] | None) -> None:
    """Run passes in place, adding ms per pass to `times`."""
    for number, step in enumerate(steps):
        start = time.perf_counter()
        step.run(trace)
        times[f"{number}:{step.name}"] = (time.perf_counter() - start) * 1e3
        if check and not trace.module.operation.verify():
            raise AssertionError(f"{step.name} left an invalid trace")
        if between is not None:
            between(step.name, trace)
