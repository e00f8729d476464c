"""TraceBuilder: the only way a trace is written.

Owns the numbering of constants, snapshots, guards, pins and launch sites of the trace under construction. What must hold:
every op is created through `op`, `aten` or a helper below (so that it conforms to the op table), at the end of the one block;
`state` precedes any op that can leave the trace once an effect has been emitted.

May import: torch_mlir, ir.*.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch_mlir import ir
from torch_mlir.dialects import func

from trident.ir.dialect import context, kind_of, type_of
from trident.ir.ops import BY_NAME, JUMP, Effect
from trident.ir.trace import GuardInfo, LaunchSite, OpaqueCall, Pin, Replay, Snapshot, Trace

# Registered operators that the torch dialect's own canonicalization replaces by others, drops, or (any.dims) crashes on: they are
# written as `torch.operator`, which no pass looks into. A test runs the canonicalizer on every registered operator.
_REWRITTEN: frozenset[str] = frozenset({
    "__and__.Scalar", "__or__.Tensor", "_adaptive_avg_pool2d", "_cast_Float", "_cast_Long", "_int_mm", "alias", "any.dims", "cat", "detach",
    "max.other", "max_pool2d_with_indices", "meshgrid", "min.other", "sign", "split.sizes", "stft", "to.dtype_layout", "to.other",
    "where.self",
})  # fmt: skip


def _is_valid(op: ir.Operation) -> bool:
    try:
        return bool(op.verify())
    except ir.MLIRError:
        return False

# Ops that pins may wait for: nothing that a pin rests on changes in them, and they do not begin a new state.
_PATIENT: frozenset[str] = frozenset(
    {"trident.guard", "trident.keep", "torch.prim.ListConstruct"}
    | {f"torch.constant.{kind}" for kind in ("int", "float", "bool", "none", "str", "device")}
    | {name for name, spec in BY_NAME.items() if spec.effect in (Effect.PURE, Effect.READ) and spec.name != "pin"}
)


class TraceBuilder:
    """Writes one trace.

    name: of the function, for dumps. n_args: number of `!trident.object` block arguments. parent: the snapshot a bridge
    starts from, None for a root trace.
    """

    def __init__(self, name: str, n_args: int, parent: Snapshot | None = None) -> None:
        self._ctx = context()
        self.file, self.line = "", 0
        self._scalars: dict[tuple[object, ...], ir.Value] = {}
        self._packs: dict[ir.Value, ir.Value] = {}
        self._constant_index: dict[int, int] = {}
        self._constant_values: dict[int, ir.Value] = {}
        self._pin_index: dict[tuple[object, ...], int] = {}
        self._due_pins: dict[int, None] = {}
        self._hoisted_pins: dict[int, None] = {}
        self._locations: dict[tuple[str, int], ir.Location] = {}
        with self._ctx, ir.Location.unknown():
            module = ir.Module.create()
            with ir.InsertionPoint(module.body):
                obj = type_of("object")
                function = func.FuncOp("trace", ([obj] * n_args, [obj]))
                self._block = function.add_entry_block()
            self._at = ir.InsertionPoint(self._block)
        self._hoist_at: ir.InsertionPoint | None = None
        self._hoist_next = False
        self._entry_at: ir.InsertionPoint | None = None
        self._entry_next = False
        self.shadow: Any = None  # follows what is written, see trident.shadow
        self.trace = Trace(name, module, parent=parent)

    def abandon(self) -> None:
        """There will be no trace: let go of the program's objects."""
        self.trace = Trace(self.trace.name, self.trace.module)

    # ------------------------------------------------------------------------------------------------------ basics
    @property
    def args(self) -> list[ir.Value]:
        """The block arguments."""
        return list(self._block.arguments)

    def at(self, file: str, line: int) -> None:
        """Set the user's source position of the ops that follow."""
        self.file, self.line = file, line

    def _location(self) -> ir.Location:
        key = (self.file, self.line)
        if key not in self._locations:
            self._locations[key] = ir.Location.file(self.file, self.line, 0) if self.file else ir.Location.unknown()
        return self._locations[key]

    def _create(self, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type],
                attributes: dict[str, ir.Attribute]) -> list[ir.Value]:
        if self._due_pins and name not in _PATIENT:
            self._write_pins()
        with self._ctx, self._location(), self._at:
            op = ir.Operation.create(name, results=list(results), operands=list(operands), attributes=attributes)
            self._placed(op)
        return list(op.results)

    def _placed(self, op: ir.Operation) -> None:
        """Every new op passes here: the first one after `hoist_here` marks the place."""
        if self._hoist_next:
            self._hoist_at, self._hoist_next = ir.InsertionPoint(op), False
        if self._entry_next:
            self._entry_at, self._entry_next = ir.InsertionPoint(op), False
        if self.shadow is not None:
            self.shadow.op(op)

    def hoist_here(self) -> None:
        """Ops written under `hoisted` go to this place (before the op that is created next) from now on."""
        self._write_hoisted_pins()
        self._hoist_at, self._hoist_next = None, True

    def entry_ends_here(self) -> None:
        """The entry region of a root trace ends before the op that is created next, which is also the place of `hoist_here`."""
        self.hoist_here()
        self._entry_next = True

    @contextmanager
    def hoisted(self, *, to_entry: bool = False) -> Iterator[None]:
        """Write ops at the place of the last `hoist_here` (their operands must be block arguments, or made in here). to_entry: at the
        end of the entry region, where there is one (their operands may be made in there)."""
        saved, pending = self._at, (self._hoist_next, self._entry_next)
        self._hoist_next = self._entry_next = False
        place = self._entry_at if to_entry and self._entry_at is not None else self._hoist_at
        if place is not None:
            self._at = place
        try:
            yield
        finally:
            self._at, (self._hoist_next, self._entry_next) = saved, pending

    def _attribute(self, value: object) -> ir.Attribute:
        match value:
            case bool():
                return ir.BoolAttr.get(value)
            case int():
                return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
            case float():
                return ir.FloatAttr.get(ir.F64Type.get(), value, loc=ir.Location.unknown())
            case str():
                return ir.StringAttr.get(value)
            case list() | tuple():
                return ir.ArrayAttr.get([self._attribute(v) for v in value])
        raise TypeError(f"no MLIR attribute for {value!r}")

    def op(self, name: str, *operands: ir.Value, values: Sequence[ir.Value] = (), **attrs: object) -> ir.Value:
        """Create `trident.<name>`; `values` fills the variadic group (packed here). Returns its result (None without one)."""
        spec = BY_NAME[f"trident.{name}"]
        with self._ctx:
            attributes = {k: self._attribute(v) for k, v in attrs.items()}
        packed = [self.pack(v) for v in values]
        results = self._create(f"trident.{name}", [*operands, *packed], [type_of(r) for r in spec.results], attributes)
        return results[0] if results else None

    def pack(self, value: ir.Value) -> ir.Value:
        """`trident.pack`, one per value."""
        if value not in self._packs:
            self._packs[value] = self._create("trident.pack", [value], [type_of("value")], {})[0]
        return self._packs[value]

    # --------------------------------------------------------------------------------------------------- constants
    def constant_index(self, obj: object) -> int:
        """Index of an object (by identity) in the trace's constants."""
        if id(obj) not in self._constant_index:
            self._constant_index[id(obj)] = len(self.trace.constants)
            self.trace.constants.append(obj)
        return self._constant_index[id(obj)]

    def constant(self, obj: object) -> ir.Value:
        """`trident.constant`: the Python object itself."""
        index = self.constant_index(obj)
        if index not in self._constant_values:
            self._constant_values[index] = self.op("constant", index=index)
        return self._constant_values[index]

    def _scalar(self, key: tuple[object, ...], name: str, type_text: str, attributes: dict[str, ir.Attribute]) -> ir.Value:
        if key not in self._scalars:
            with self._ctx:
                result = ir.Type.parse(type_text)
            self._scalars[key] = self._create(name, [], [result], attributes)[0]
        return self._scalars[key]

    def int(self, value: int) -> ir.Value:
        """`torch.constant.int`; value must fit int64."""
        if not -(2**63) <= value < 2**63:
            raise OverflowError(f"{value} does not fit int64")
        with self._ctx:
            return self._scalar(("int", int(value)), "torch.constant.int", "!torch.int", {"value": self._attribute(int(value))})

    def float(self, value: float) -> ir.Value:
        """`torch.constant.float`, bit-exact."""
        key = ("float", math.copysign(1.0, value), value if value == value else "nan")
        with self._ctx:
            return self._scalar(key, "torch.constant.float", "!torch.float", {"value": self._attribute(float(value))})

    def bool(self, value: bool) -> ir.Value:
        """`torch.constant.bool`."""
        with self._ctx:
            attribute = ir.IntegerAttr.get(ir.IntegerType.get_signless(1), int(value))
            return self._scalar(("bool", value), "torch.constant.bool", "!torch.bool", {"value": attribute})

    def none(self) -> ir.Value:
        """`torch.constant.none`."""
        return self._scalar(("none",), "torch.constant.none", "!torch.none", {})

    def str(self, value: builtins.str) -> ir.Value:
        """`torch.constant.str`."""
        with self._ctx:
            return self._scalar(("str", value), "torch.constant.str", "!torch.str", {"value": self._attribute(value)})

    def device(self, value: builtins.str) -> ir.Value:
        """`torch.constant.device`, e.g. "cpu", "cuda:0", "cuda" (no index)."""
        with self._ctx:
            return self._scalar(("device", value), "torch.constant.device", "!torch.Device", {"value": self._attribute(value)})

    def list(self, items: Sequence[ir.Value], element: builtins.str) -> ir.Value:
        """`torch.prim.ListConstruct`; element: a torch type without the bang, e.g. "int", "tensor", "optional<tensor>"."""
        with self._ctx:
            result = ir.Type.parse(f"!torch.list<{element}>")
        return self._create("torch.prim.ListConstruct", items, [result], {})[0]

    # -------------------------------------------------------------------------------------------------------- ATen
    def aten(self, name: builtins.str, overload: builtins.str, operands: Sequence[ir.Value],
             results: Sequence[builtins.str]) -> Sequence[ir.Value]:
        """An ATen operator, all of its schema's arguments given in order.

        name: without namespace ("add"); overload: "" or e.g. "Tensor"; results: keys of `ops.TYPES` (an in-place or out
        operator has its tensor result too). Registered torch ops are used where their operand types allow it.
        """
        full = f"{name}.{overload}" if overload else name
        types = [type_of(r) for r in results]
        if full not in _REWRITTEN and context().is_registered_operation(f"torch.aten.{full}"):
            with self._ctx, self._location(), self._at:
                op = ir.Operation.create(f"torch.aten.{full}", results=types, operands=list(operands))
            if _is_valid(op):
                self._placed(op)
                return list(op.results)
            op.erase()  # the dialect's operand or result types differ from the schema's: keep the schema's
        with self._ctx:
            attributes = {"name": ir.StringAttr.get(f"aten.{full}")}
        return self._create("torch.operator", operands, types, attributes)

    # --------------------------------------------------------------------------------------------- guards and states
    def guard(self, condition: ir.Value, expected: builtins.bool, info: GuardInfo) -> None:
        """`trident.guard`."""
        self.trace.guards.append(info)
        self.op("guard", condition, expected=expected, kind=info.kind, info=len(self.trace.guards) - 1)

    def pin(self, pin: Pin, *, hoisted: builtins.bool = False) -> None:
        """`trident.pin`; always emitted (the recorder decides whether an earlier one still covers it).

        hoisted: at the place of the last `hoist_here`."""
        if self.shadow is not None:
            self.shadow.pin(pin)
        key = (pin.kind, id(pin.owner), pin.key, id(pin.expected) if type(pin.expected) is not tuple else tuple(map(id, pin.expected)))
        if key not in self._pin_index:
            self._pin_index[key] = len(self.trace.pins)
            self.trace.pins.append(pin)
        (self._hoisted_pins if hoisted else self._due_pins).setdefault(self._pin_index[key])

    def _write_hoisted_pins(self) -> None:
        """One op for the pins that were hoisted to the present place."""
        if self._hoisted_pins:
            self._due_pins, self._hoisted_pins = {**self._due_pins, **self._hoisted_pins}, {}
            with self.hoisted():
                self._write_pins()

    def _write_pins(self) -> None:
        """One op for the pins since the last effect: until then it does not matter when they are checked."""
        due, self._due_pins = list(self._due_pins), {}
        with self._ctx:
            indices = ir.DenseI64ArrayAttr.get(due)
        self._create("trident.pin", [], [], {"indices": indices})

    def state(self, snapshot: Snapshot, operands: Sequence[ir.Value]) -> None:
        """`trident.state`: the operands are the snapshot's slots."""
        self.trace.snapshots.append(snapshot)
        self.op("state", values=operands, snapshot=len(self.trace.snapshots) - 1)

    # ------------------------------------------------------------------------------------------------------- effects
    def call(self, callee: ir.Value, args: Sequence[ir.Value], kwnames: Sequence[builtins.str], info: OpaqueCall, *,
             native: builtins.bool = False) -> ir.Value:
        """`trident.call`: args must all be objects, keyword arguments last. native: see `OpaqueCall`."""
        (self.trace.native_calls if native else self.trace.opaque_calls).append(info)
        return self.op("call", callee, values=args, kwnames=list(kwnames), reason=info.reason)

    def call_raises(self, callee: ir.Value, args: Sequence[ir.Value], kwnames: Sequence[builtins.str],
                    info: OpaqueCall) -> tuple[ir.Value, ir.Value]:
        """`trident.call_raises`: the exception (or the result), and whether it was raised."""
        self.trace.opaque_calls.append(info)
        packed = [self.pack(v) for v in args]
        with self._ctx:
            attributes = {"kwnames": self._attribute(list(kwnames)), "reason": self._attribute(info.reason)}
        found, raised = self._create("trident.call_raises", [callee, *packed], [type_of("object"), type_of("bool")], attributes)
        return found, raised

    # --------------------------------------------------------------------------------------------------------- loops
    def carry(self, value: ir.Value) -> ir.Value:
        """`trident.carry`."""
        return self._create("trident.carry", [value], [value.type], {})[0]

    def back(self, values: Sequence[ir.Value]) -> Trace:
        """`trident.back`, which ends the trace: the carries' next values. A value that never changes is no carry."""
        carries = [view.operation for view in self._block.operations if view.operation.name == "trident.carry"]
        fixed = {carry.results[0]: carry.operands[0] for carry, value in zip(carries, values, strict=True) if value == carry.results[0]}
        self.op("back", values=[fixed.get(value, value) for carry, value in zip(carries, values, strict=True)
                                if carry.results[0] not in fixed])
        for carry in carries:
            if carry.results[0] in fixed:
                carry.results[0].replace_all_uses_with(carry.operands[0])
                carry.erase()
        self._packs.clear()
        self.trace.loops = True
        return self.ret(self.constant(None))

    def jump(self, snapshot: Snapshot, operands: Sequence[ir.Value]) -> Trace:
        """A state and an `exit` from which a bridge goes on; they end the trace."""
        self.state(snapshot, operands)
        self.op("exit", reason=JUMP)
        return self.ret(self.constant(None))

    def launch(self, site: LaunchSite, grid: Sequence[ir.Value], args: Sequence[ir.Value]) -> None:
        """`trident.launch`: grid are three ints."""
        self.trace.launches.append(site)
        self.op("launch", values=[*grid, *args], site=len(self.trace.launches) - 1)

    def replay(self, operands: Sequence[ir.Value], results: builtins.int, site: Replay) -> Sequence[ir.Value]:
        """`trident.replay`: the tensors that it gives."""
        self.trace.replays.append(site)
        packed = [self.pack(value) for value in operands]
        with self._ctx:
            attributes = {"site": self._attribute(len(self.trace.replays) - 1)}
        return self._create("trident.replay", packed, [type_of("tensor")] * results, attributes)

    def copy(self, op: ir.Operation, operands: Sequence[ir.Value]) -> Sequence[ir.Value]:
        """An op of another trace whose tables this one shares, with other operands."""
        with self._ctx, self._at:
            made = op.clone()
            self._placed(made)
        for n, operand in enumerate(operands):
            made.operands[n] = operand
        return list(made.results)

    def ret(self, value: ir.Value) -> Trace:
        """Finish the trace: return an object."""
        assert kind_of(value) == "object"
        self._write_hoisted_pins()
        if self._due_pins:
            self._write_pins()
        with self._ctx, self._location(), self._at:
            func.ReturnOp([value])
        if not self.trace.module.operation.verify():
            raise AssertionError("the recorder wrote an invalid trace:\n" + str(self.trace))
        return self.trace
