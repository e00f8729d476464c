"""The device's part of a split trace, executed: when it is captured, and by the emulation of a graph.

Owns `DevicePart`. What must hold: it is executed with the reference executor's rules, in the order of the trace; each tensor that an
operation is given or gives is looked at, and what no graph may hold is `Unfit`; a tensor dies at its last use.

May import: torch, ir, backend.reference, replay.{split,stores}.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import torch
from torch_mlir import ir as mlir

from trident.backend import reference
from trident.backend.reference import GuardFailed, Run
from trident.backend.replay.split import Plan, Unfit, unpacked, written_operands
from trident.backend.replay.stores import stored
from trident.ir.trace import LaunchSite

Look = Callable[[torch.Tensor], None]
_MASKS: Final = (torch.bool, torch.uint8)


class DevicePart:
    """See the module. written: storages (addresses of their StorageImpls) that it wrote to when it was executed last; launched: the sites
    of its kernels with what Triton launched for them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.written: set[int] = set()
        self.launched: list[tuple[LaunchSite, Any]] = []
        self._fixed = self._constants()
        self._steps = list(self._with_deaths())

    def _constants(self) -> dict[mlir.Value, object]:
        """Operands that are constants of the trace."""
        run = Run(self.plan.trace, {})
        given = {*self.plan.inputs, *self.plan.numbers, *(result for op in self.plan.device for result in op.results)}
        for op in self.plan.device:
            for operand in map(unpacked, op.operands):
                if operand not in given and operand not in run.env:
                    reference.execute(run, _owner(operand))
        return run.env

    def _with_deaths(self) -> Iterator[tuple[mlir.Operation, list[mlir.Value], list[mlir.Value]]]:
        """Each operation with its operands, and with the values that nobody needs after it."""
        last: dict[mlir.Value, int] = {}
        for n, op in enumerate(self.plan.device):
            for value in (*op.results, *map(unpacked, op.operands)):
                last[value] = n
        kept = {*self.plan.results, *self._fixed}
        for n, op in enumerate(self.plan.device):
            operands = [unpacked(operand) for operand in op.operands]
            yield op, operands, [value for value in {*operands, *op.results} if last[value] == n and value not in kept]

    def run(self, tensors: Sequence[torch.Tensor], numbers: Sequence[object], look: Look) -> list[torch.Tensor]:
        """Execute it: the results."""
        plan = self.plan
        run = Run(plan.trace, {**self._fixed, **dict(zip(plan.inputs, tensors, strict=True)),
                               **dict(zip(plan.numbers, numbers, strict=True))})
        self.written.clear()
        self.launched.clear()
        grad_mode = torch.is_grad_enabled()
        try:
            for op, operands, dying in self._steps:
                if op.name != "trident.pack":
                    self._step(run, op, operands, look)
                for value in dying:
                    run.env.pop(value, None)
            if torch.is_grad_enabled() is not grad_mode:
                raise Unfit("it leaves gradients switched on or off")
        finally:
            torch._C._set_grad_enabled(grad_mode)
        return [run.env[value] for value in plan.results]  # type: ignore[misc]

    def _step(self, run: Run, op: mlir.Operation, operands: Sequence[mlir.Value], look: Look) -> None:
        given = [run.env[operand] for operand in operands]
        for tensor in _tensors(given):
            look(tensor)
        for value in given:
            if isinstance(value, torch.device):
                look(torch.empty(0, device=value))
        if op.name == "trident.launch":
            self._launch(run, op, given)
            return
        if op.name.startswith(("torch.aten.", "torch.operator")):
            self._refuse_masks(op, given)
            self._note_written([run.env[unpacked(operand)] for operand in written_operands(op)])
        try:
            results = reference.evaluate(run, op, given)
        except GuardFailed as error:
            raise Unfit(f"{error.info.text} did not hold when it was captured") from None
        for tensor in _tensors(results):
            look(tensor)
        run.env.update(zip(op.results, results, strict=True))

    def _note_written(self, values: Sequence[object]) -> None:
        self.written.update(tensor.untyped_storage()._cdata for tensor in _tensors(values))

    def _refuse_masks(self, op: mlir.Operation, given: Sequence[object]) -> None:
        """Indexing with a mask gives what the mask's contents say."""
        name = str(op.attributes["name"].value) if op.name == "torch.operator" else str(op.name)
        if ".index" in name and any(isinstance(value, list) and any(t.dtype in _MASKS for t in _tensors(value)) for value in given):
            raise Unfit("an index is a mask")

    def _launch(self, run: Run, op: mlir.Operation, given: Sequence[Any]) -> None:
        """As the reference executor does it; which tensors it writes to."""
        site = run.trace.launches[int(op.attributes["site"].value)]
        grid, rest = given[:3], iter(given[3:])
        arguments = {p.name: p.value if p.constexpr else next(rest) for p in site.params}
        if min(grid) <= 0:
            return
        compiled = site.kernel[tuple(grid)](**arguments, **dict(site.options))
        self.launched.append((site, compiled))
        tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
        found = stored(str(getattr(compiled, "asm", {}).get("ttir", "")), len(tensors))
        self._note_written(tensors if found is None else [tensors[n] for n in found])


def _owner(value: mlir.Value) -> mlir.Operation:
    owner: Any = value.owner
    operation: mlir.Operation = getattr(owner, "operation", owner)
    return operation


def _tensors(values: Sequence[object]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)
