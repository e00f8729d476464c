"""Splits a root trace into what the host does at each call and what a graph of the device's work stands for.

Owns `split`, which gives a `Plan`: a *replay trace* (the host's operations and guards of the root trace, none of them behind an effect,
then one `trident.replay`, then the building of the result) and the list of the *device's part*, which is what is captured. What must
hold: where metadata of the graph's inputs and the host's numbers are those of the capture, everything that the replay trace leaves out
(metadata of intermediates, arithmetic on it, guards on it) comes out as it did then; leaving the replay trace is a miss. A trace for
which that is not certain is `Unfit`, with the reason.

May import: torch_mlir, torch, ir, errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import torch
from torch_mlir import ir as mlir

from trident.errors import TridentError
from trident.ir.builder import TraceBuilder
from trident.ir.dialect import kind_of
from trident.ir.ops import BY_NAME, Effect
from trident.ir.trace import Replay, Trace


class Unfit(TridentError):
    """A trace, or a call, that no graph can stand for; the message says why."""


class Side(Enum):
    """Where a value comes from.

    HOST: the same at each call with these arguments, computed by the host. DEVICE: a tensor that the device's part gives. STATIC: a number
    or list that follows from the metadata of such tensors. RESULT: a Python object with such tensors in it. LOST: an object with
    such numbers in it.
    """

    HOST = "host"
    DEVICE = "device"
    STATIC = "static"
    RESULT = "result"
    LOST = "lost"


_SKIPPED: Final = frozenset({"trident.state", "trident.keep"})
_DEVICE: Final = frozenset({"trident.launch", "trident.wrapped_number", "trident.number_tensor", "trident.set_grad_enabled",
                            "trident.list_size", "trident.list_get", "torch.prim.ListConstruct"})
_BUILDING: Final = frozenset(f"trident.{name}" for name in ("pack", "box", "build_tuple", "build_list", "build_dict", "build_slice"))
REFUSED: Final[dict[str, str]] = {
    "call": "a call of a Python object", "call_raises": "an exception that is caught", "exit": "the trace does not end with the call",
    "carry": "a loop", "loop": "a loop", "back": "a loop", "cell_set": "a variable of a closure is assigned",
    "push_handled": "an exception that is caught", "pop_handled": "an exception that is caught",
    "add_context": "an exception that is caught", "add_traceback": "an exception that is caught",
    "traceback": "an exception that is caught", "replay": "a graph within a graph",
}
"""Why an op keeps a trace from being split, by its name."""

# Operators that change what the host sees of a tensor, besides those with the tag `inplace_view`.
_CHANGES_HOST_STATE: Final = frozenset({"requires_grad_", "_resize_output_", "set_data", "retain_grad", "_backward", "record_stream",
                                        "_fw_primal", "_make_dual", "resize_as_", "resize_as_sparse_", "_version"})
_REFUSED_TAGS: Final = {"data_dependent_output": "it reads a tensor's contents",
                        "dynamic_output_shape": "the shape of its result depends on a tensor's contents",
                        "inplace_view": "it changes a tensor's shape in place",
                        "cudagraph_unsafe": "no graph may hold it"}
_MAY_BE_DYNAMIC: Final = (torch.ops.aten.index.Tensor,)  # with a mask, of which `device` takes care
_HIDES_EFFECTS: Final = ("batch_norm", "instance_norm", "moving_avg", "fake_quant")
_NUMBERS: Final = frozenset({"int", "float", "bool"})
_FIXED: Final = frozenset({"none", "str", "device", "generator"})


@dataclass(slots=True)
class Plan:
    """A root trace in its parts.

    inputs: tensors of the host's that the device's part takes, in the order of the operands of `trident.replay`; numbers: what is no
    constant, and comes after them. results: tensors of the device's part that the call's result has. device: the operations of the
    device's part, in order, guards on its values among them. constant: whether each input is an object that the trace knows.
    reaches_storage: some operator reads a tensor's storage beyond the tensor. draws: some operator takes random numbers.
    """

    trace: Trace
    host: Trace
    inputs: list[mlir.Value]
    numbers: list[mlir.Value]
    results: list[mlir.Value]
    device: list[mlir.Operation]
    constant: list[bool]
    reaches_storage: bool
    draws: bool

    @property
    def replay_op(self) -> mlir.Operation:
        """The one `trident.replay` of the replay trace."""
        return next(view.operation for view in self.host.block.operations if view.operation.name == "trident.replay")


def overload_of(op: mlir.Operation) -> Any:
    """The torch operator of an ATen op; None for other ops."""
    name = str(op.name)
    full = str(op.attributes["name"].value) if name == "torch.operator" else name.removeprefix("torch.")
    if not full.startswith("aten."):
        return None
    _, packet, *overload = full.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload[0] if overload else "default")


def written_operands(op: mlir.Operation) -> list[mlir.Value]:
    """Operands of an ATen op that it may write to: what its schema says, and all where the schema may not say everything."""
    target = overload_of(op)
    tags = {tag.name for tag in target.tags}
    if "maybe_aliasing_or_mutating" in tags or any(part in str(target) for part in _HIDES_EFFECTS):
        return list(op.operands)
    return [operand for operand, argument in zip(op.operands, target._schema.arguments, strict=True)
            if argument.alias_info is not None and argument.alias_info.is_write]


class _Splitter:
    """One splitting."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.sides: dict[mlir.Value, Side] = dict.fromkeys(trace.block.arguments, Side.HOST)
        self.constants: set[mlir.Value] = set()
        self.host: list[mlir.Operation] = []
        self.building: list[mlir.Operation] = []
        self.device: list[mlir.Operation] = []
        self.inputs: dict[mlir.Value, bool] = {}
        self.numbers: dict[mlir.Value, None] = {}
        self.results: dict[mlir.Value, None] = {}
        self.sets_grad_mode = self.reaches_storage = self.draws = False

    def plan(self, site: Replay) -> Plan:
        if self.trace.parent is not None:
            raise Unfit("a bridge")
        operations = [view.operation for view in self.trace.block.operations]
        for op in operations[:-1]:
            if op.name not in _SKIPPED:
                self._place(op)
        returned = operations[-1].operands[0]
        if self.sides[returned] not in (Side.HOST, Side.RESULT):
            raise Unfit("the result has a number that depends on the device's results")
        if not any(op.name.startswith(("torch.aten.", "torch.operator", "trident.launch")) for op in self.device):
            raise Unfit("nothing for the device to do")
        host = self._write(site, returned)
        return Plan(self.trace, host, list(self.inputs), list(self.numbers), list(self.results), self.device,
                    list(self.inputs.values()), self.reaches_storage, self.draws)

    # -------------------------------------------------------------------------------------------------------- placing

    def _place(self, op: mlir.Operation) -> None:
        name = str(op.name)
        sides = {self.sides[operand] for operand in op.operands}
        if (why := REFUSED.get(name.removeprefix("trident."))) is not None:
            raise Unfit(why)
        if name.startswith(("torch.aten.", "torch.operator")):
            self._operator(op)
        elif name in _DEVICE:
            self._on_device(op)
        elif name == "trident.guard":
            self._guard(op, sides)
        elif name in _BUILDING and not sides <= {Side.HOST, Side.STATIC}:
            self._build(op, sides)
        elif sides <= {Side.HOST} and not (name == "trident.grad_enabled" and self.sets_grad_mode):
            self._on_host(op)
        elif Side.RESULT in sides or Side.LOST in sides:
            raise Unfit(f"{name} looks at an object that has the device's results in it")
        elif name == "trident.data_ptr":
            raise Unfit("the address of an intermediate is read")
        elif name in ("trident.build_tuple", "trident.build_list", "trident.build_dict", "trident.build_slice", "trident.box"):
            self._give(op, Side.LOST)
        elif name == "trident.pack":
            self._give(op, self.sides[op.operands[0]])
            self.device.append(op)
        else:
            self._on_device(op)

    def _give(self, op: mlir.Operation, side: Side) -> None:
        for result in op.results:
            self.sides[result] = side

    def _on_host(self, op: mlir.Operation) -> None:
        name = str(op.name)
        spec = BY_NAME.get(name)
        if spec is not None and spec.effect not in (Effect.PURE, Effect.READ):
            raise Unfit(f"{name} on the host")
        self.host.append(op)
        self._give(op, Side.HOST)
        if name == "trident.constant" or name.startswith("torch.constant.") \
                or name in ("trident.unbox_tensor", "trident.pack") and op.operands[0] in self.constants:
            self.constants.update(op.results)

    def _guard(self, op: mlir.Operation, sides: set[Side]) -> None:
        if sides == {Side.HOST}:
            self.host.append(op)
        elif sides == {Side.STATIC}:
            self.device.append(op)
        else:
            raise Unfit("a guard on an object that has the device's results in it")

    def _build(self, op: mlir.Operation, sides: set[Side]) -> None:
        """A part of the result."""
        if Side.LOST in sides or Side.STATIC in sides:
            self._give(op, Side.LOST)
            return
        if op.name == "trident.pack" and self.sides[op.operands[0]] is Side.DEVICE:  # for a launch or a state
            self.device.append(op)
            self._give(op, Side.DEVICE)
            return
        if Side.DEVICE in sides:
            if any(kind_of(unpacked(v)) != "tensor" for v in op.operands if self.sides[v] is Side.DEVICE):
                raise Unfit("the result has a list of tensors that an operator gave")
        self.building.append(op)
        self._give(op, Side.RESULT)

    def _on_device(self, op: mlir.Operation) -> None:
        """An op of the device's part; what it takes from the host becomes an operand of the graph."""
        for operand in op.operands:
            if self.sides[operand] in (Side.RESULT, Side.LOST):
                raise Unfit(f"{op.name} takes an object that has the device's results in it")
            if self.sides[operand] is Side.HOST:
                self._take(op, unpacked(operand))
        self.device.append(op)
        if op.name == "trident.set_grad_enabled":
            self.sets_grad_mode = True
        for result in op.results:
            kind = kind_of(result)
            self.sides[result] = Side.DEVICE if kind in ("tensor", "tensors") else Side.STATIC

    def _take(self, op: mlir.Operation, value: mlir.Value) -> None:
        kind = kind_of(value)
        if kind == "tensor":
            self.inputs.setdefault(value, value in self.constants)
        elif value in self.constants or kind in _FIXED:
            return
        elif kind in _NUMBERS:
            self.numbers.setdefault(value)
        elif kind == "object":
            raise Unfit(f"{op.name} takes an object that varies")
        else:
            raise Unfit(f"{op.name} takes {value.type} from the host")

    def _operator(self, op: mlir.Operation) -> None:
        target = overload_of(op)
        if target is None:
            raise Unfit(f"{op.attributes['name']} is not an aten operator")
        name, tags = target._schema.name.removeprefix("aten::"), {tag.name for tag in target.tags}
        for tag, why in _REFUSED_TAGS.items():
            if tag in tags and target not in _MAY_BE_DYNAMIC:
                raise Unfit(f"aten.{name}: {why}")
        if name in _CHANGES_HOST_STATE:
            raise Unfit(f"aten.{name}: it changes what the host sees of a tensor")
        if any(a.is_out for a in target._schema.arguments):
            raise Unfit(f"aten.{name} writes to a tensor that it is given for its result")
        if any(kind_of(result) not in ("tensor", "tensors") for result in op.results):
            raise Unfit(f"aten.{name} gives the host a number")
        self.reaches_storage |= "strided" in name
        self.draws |= "nondeterministic_seeded" in tags
        self._on_device(op)

    # -------------------------------------------------------------------------------------------------------- writing

    def _write(self, site: Replay, returned: mlir.Value) -> Trace:
        """The replay trace: of the host's ops those that something needs."""
        b = TraceBuilder(f"{self.trace.name}.replay", len(self.trace.block.arguments))
        for name in ("constants", "guards", "pins"):
            setattr(b.trace, name, getattr(self.trace, name))
        known: dict[mlir.Value, mlir.Value] = dict(zip(self.trace.block.arguments, b.args, strict=True))

        def copy(op: mlir.Operation) -> None:
            known.update(zip(op.results, b.copy(op, [known[operand] for operand in op.operands]), strict=True))

        building = self._building_of(returned)
        needed = {returned, *self.inputs, *self.numbers, *(operand for op in building for operand in op.operands)}
        for op in self._needed(needed):
            copy(op)
        operands = [known[value] for value in (*self.inputs, *self.numbers)]
        known.update(zip(self.results, b.replay(operands, len(self.results), site), strict=True))
        for op in building:
            self._copy_building(op, known, b)
        return b.ret(known[returned])

    def _building_of(self, returned: mlir.Value) -> list[mlir.Operation]:
        """What makes the result, in order; the tensors of the device's part that it takes become those of the graph."""
        wanted, kept = {returned}, []
        for op in reversed(self.building):
            if any(result in wanted for result in op.results):
                kept.append(op)
                wanted.update(op.operands)
        kept.reverse()
        self.results = {unpacked(operand): None for op in kept for operand in op.operands if self.sides[operand] is Side.DEVICE}
        return kept

    def _copy_building(self, op: mlir.Operation, known: dict[mlir.Value, mlir.Value], b: TraceBuilder) -> None:
        operands = []
        for operand in op.operands:
            inner = unpacked(operand)
            if operand not in known and inner in known:  # the pack of a device's tensor is in the device's part
                known[operand] = b.pack(known[inner])
            operands.append(known[operand])
        known.update(zip(op.results, b.copy(op, operands), strict=True))

    def _needed(self, needed: set[mlir.Value]) -> Iterator[mlir.Operation]:
        """The host's guards, pins, and what they and the operands rest on, in order."""
        kept = []
        for op in reversed(self.host):
            if not op.results or any(result in needed for result in op.results):
                kept.append(op)
                needed.update(op.operands)
        return reversed(kept)


def unpacked(value: mlir.Value) -> mlir.Value:
    """The value behind a `trident.pack`."""
    owner: Any = value.owner
    owner = getattr(owner, "operation", owner)
    return owner.operands[0] if isinstance(owner, mlir.Operation) and owner.name == "trident.pack" else value


def split(trace: Trace, site: Replay) -> Plan:
    """Split a root trace. site: what the `trident.replay` is to have. Unfit where that cannot be done."""
    return _Splitter(trace).plan(site)
