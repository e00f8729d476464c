"""The recorder's core: the trace under construction, where states, guards, pins and effects are written, and user code runs.

Owns the rules of the trace (see ir.ops): `may_exit` before any op that can leave, `effect` before any op that changes something
or can raise. What must hold:
 * In the entry region of a root trace (before the first effect) nothing needs a state: a failing guard is a miss.
 * After it, the first op of an instruction that can leave is preceded by a state with the frames before this instruction.
 * After an effect in an instruction no guard is written in it (a side exit would execute the effect again), unless `restate`
   has described the frames after the effect.
 * Every operation that the user's program could notice goes through `execute`.

May import: ir, errors, frontend.{aborts,chunks,frames,snapshots,values}.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Protocol

from torch_mlir import ir as mlir

from trident.frontend import chunks
from trident.frontend.aborts import Leave, PartlyExecuted, RecorderBug, UserRaised
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.snapshots import SnapshotWriter
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import Frame, GuardInfo, Pin, PinKind, TraceBuilder
from trident.ir.describing import describe
from trident.ir.ops import BY_NAME

# Functions of which nobody notices that they run, given arguments of exact plain types.
_FOLDS = frozenset(map(id, (
    int, float, bool, abs, divmod, pow, operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge,
    operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow,
    operator.neg, operator.pos, operator.not_, operator.truth)))
_PLAIN = frozenset({int, float, bool, str, type(None)})
_TYPES = {"int": int, "float": float, "bool": bool}


_OWN_CODE = str(Path(__file__).parents[1]) + "/"


def is_own_code(code: CodeType) -> bool:
    """Whether code belongs to Trident itself."""
    return code.co_filename.startswith(_OWN_CODE)


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of Trident at its beginning."""
    while trace is not None and is_own_code(trace.tb_frame.f_code):
        trace = trace.tb_next
    return trace


class Services(Protocol):
    """What the recorder needs of the rest of the system."""

    def resume(self, frames: list[Frame], exc: BaseException | None) -> object:
        """Continue frames in CPython, the innermost first; with `exc` raised at its instruction. The outermost's result."""

    def leave(self, frames: list[Frame]) -> object:
        """Continue frames in CPython whose callees the hook may capture."""

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call something of the user's that must not find the recorder's frames below it."""

    def watched(self) -> bool:
        """Whether what was called has installed a tool (settrace, setprofile): it is to see the frames from here on."""

    def shadow(self, recorder: Any, values: list[Any]) -> None:
        """Follow a recording that begins with these arguments (`check=2`)."""

    def supports_operator(self, name: str, overload: str) -> bool:
        """Whether the lowering can call this ATen operator."""


class Core:
    """See the module. `options` may have: demoted (set of (id(dict), key)), max_ops."""

    def __init__(self, builder: TraceBuilder, services: Services, options: Any, *, bridge: bool) -> None:
        self.builder, self.services, self.options = builder, services, options
        self.frames: list[RecordedFrame] = []
        self.in_entry = not bridge
        self.serial = 1  # of the instruction being executed
        self.state_serial = 0  # of the instruction that the last state describes
        self.effect_serial = 0  # of the last instruction with an effect
        self.mutation_serial = 0  # of the last instruction that changed a virtual object
        self.epoch = 0  # number of calls so far that may have changed anything
        self.stores = 0  # number of stores to constants so far: a dict of the trace may be one of them
        self.run_time_stores = 0  # number of stores so far to attributes of objects that are others at each execution
        self.frozen: set[int] = set()  # ids of constants that never change, though their types say nothing about that
        self.dead = ""  # why the trace cannot be used, once that is known
        self.executed = 0  # operations executed in this instruction
        self.harmless = False  # whether nobody could notice what was executed in this instruction: it may be executed again
        self.last_result: object = None
        self.undo: list[Callable[[], None]] = []  # takes back what this instruction did to virtual iterators
        self.pure_base = 0  # while > 0: number of frames outside the effect-free code being inlined
        self.births = 0  # virtual objects made
        self.pure_births = 0  # its value when the effect-free code began
        self.guard_count = 0
        self.branches = 0  # guards on the outcomes of conditions
        self.identified: dict[Any, object] = {}  # number of an argument (-1: something else) -> the object it is guarded to be
        self.equal_to: dict[int, Traced] = {}  # id of a Const that stands for an object that is only equal to it -> that object
        self.hoist_epoch = 0 if not bridge else -1  # epoch for which the builder has a place to hoist to
        self.snapshots = SnapshotWriter(self)
        self.shadow: Any = None  # follows the recording, see trident.shadow

    # ------------------------------------------------------------------------------------------------- user code
    def execute(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        """Run an operation of the user's program, once. At most once per instruction, and as a whole: its result is what the
        instruction yields if the recorder fails afterwards. What it raises becomes UserRaised."""
        if self.executed and self.harmless:
            self.executed = 0
        if self.executed and not self.pure_base:
            raise PartlyExecuted("a second operation in one instruction")
        return self.execute_part(fn, *args, **kwargs)

    def execute_part(self, fn: Callable[..., Any], /, *args: object, **kwargs: object) -> Any:
        """As `execute`, where more than one operation makes up an instruction."""
        try:
            result = fn(*args, **kwargs)
        except BaseException as error:
            error.__traceback__ = users_part(error.__traceback__)
            raise UserRaised(error) from None
        self.harmless = (self.harmless or not self.executed) and id(fn) in _FOLDS and all(type(arg) in _PLAIN for arg in args)
        self.executed += 1
        self.last_result = result
        return result

    # ---------------------------------------------------------------------------------------------------- states
    def may_exit(self) -> None:
        """To be called before writing an op that can leave the trace without raising (guards, pins, `*_int` arithmetic)."""
        if self.in_entry or self.state_serial == self.serial and self.effect_serial != self.serial:
            return
        if self.effect_serial == self.serial:
            raise RecorderBug("a guard after an effect of the same instruction")
        if self.mutation_serial == self.serial:
            raise RecorderBug("a guard after a change to a virtual object in the same instruction")
        self._write_state()

    def effect(self) -> None:
        """To be called before writing an op that changes something or can raise (ATen, launch, call, store)."""
        if self.pure_base:
            raise Leave("impure", "an effect in code that is evaluated as part of one operation")
        if self.effect_serial == self.serial and self.state_serial == self.serial:
            return
        if self.state_serial != self.serial:
            if self.mutation_serial == self.serial and not self.in_entry:
                raise RecorderBug("an effect after a change to a virtual object in the same instruction")
            if self.in_entry:
                self.builder.entry_ends_here()
            self._write_state()
        self.in_entry = False
        self.effect_serial = self.serial

    def mutation(self, virtual: Virtual, kept: int = 0) -> None:
        """To be called before a virtual object changes. kept: number of its first items that stay."""
        if self.pure_base and virtual.state.get("birth", 0) <= self.pure_births:
            raise Leave("impure", "a container is changed in code that is evaluated as part of one operation")
        if "source" in virtual.state:
            self.fix_order(virtual)
        chunks.keep_first(virtual, kept)
        self.snapshots.invalidate()
        if not self.pure_base:
            self.mutation_serial = self.serial

    def fix_order(self, virtual: Virtual) -> None:
        """See guards.py."""
        raise NotImplementedError

    def ssa(self, value: Value, kind: str) -> mlir.Value:
        """See guards.py."""
        raise NotImplementedError

    def _write_state(self) -> None:
        snapshot, operands = self.snapshots.take()
        if self.shadow is not None and not self.pure_base:
            self.shadow.state(snapshot, operands, self.frames[-1].before)
        self.builder.state(snapshot, operands)
        self.state_serial = self.serial

    def restate(self, offset: int, stack: list[Entry], live: int) -> None:
        """Write a state for the innermost frame with this offset and stack: what follows in this instruction exits there.

        For guards that must follow an effect of the same instruction (a branch on a result, a for loop's end)."""
        snapshot, operands = self.snapshots.take(offset, stack, live)
        if self.shadow is not None:
            self.shadow.state(snapshot, operands, stack)
        self.builder.state(snapshot, operands)
        self.state_serial = self.serial
        self.effect_serial = 0
        self.mutation_serial = 0

    # ---------------------------------------------------------------------------------------------------- guards
    def info(self, text: str, kind: str) -> GuardInfo:
        """A GuardInfo at the current source line."""
        return GuardInfo(text, kind, self.builder.file, self.builder.line)

    def guard(self, cond: mlir.Value, expected: bool, kind: str, text: str) -> None:
        """`trident.guard` (kind: key of ops.GUARD_KINDS; text: a Python-like condition that held)."""
        self.may_exit()
        self.guard_count += 1
        self.branches += kind == "branch"
        self.builder.guard(cond, expected, self.info(text, kind))

    def write_pin(self, kind: PinKind, owner: object, key: str, expected: object, text: str) -> None:
        """`trident.pin`, unconditionally (`pin` of heap.py writes only what is not covered).

        It is written where the present epoch began (for the first one: in the entry region), because nothing since can have
        changed what it checks."""
        pin = Pin(kind, owner, key, expected, self.info(text, "key" if kind is PinKind.DICT else "identity"))
        if self.in_entry:
            self.builder.pin(pin)
            return
        if self.hoist_epoch != self.epoch:
            self.may_exit()
            self.builder.hoist_here()
            self.hoist_epoch = self.epoch
        self.builder.pin(pin, hoisted=True)

    def guard_argument(self, op: str, value: Traced, kind: str, text: str, **attrs: Any) -> None:
        """A guard on an immutable fact of an object (its type, its identity): for an argument, and for what was loaded in the entry
        region, it is written there, so that it chooses among the specializations instead of leaving one half-way."""
        early = bool(value.facts.get("entry"))
        if self.in_entry or not (early or value.facts.get("argument")) or self.hoist_epoch < 0:
            self.guard(self.builder.op(op, value.ssa, **attrs), True, kind, text)
            return
        self.guard_count += 1
        with self.builder.hoisted(to_entry=early):
            self.builder.guard(self.builder.op(op, value.ssa, **attrs), True, self.info(text, kind))

    # ------------------------------------------------------------------------------------------------------- ops
    def op(self, name: str, *operands: mlir.Value, values: list[mlir.Value] | tuple[()] = (), **attrs: Any) -> mlir.Value:
        """`builder.op` after what its row in the op table demands."""
        spec = BY_NAME[f"trident.{name}"]
        if spec.may_raise or spec.effect.name in ("WRITE", "OPAQUE"):
            self.effect()
        elif spec.may_exit:
            self.may_exit()
        return self.builder.op(name, *operands, values=values, **attrs)

    # ---------------------------------------------------------------------------------------------------- values
    def const(self, obj: object, origin: str = "") -> Const:
        """A constant of the trace."""
        return Const(obj, origin)

    def result(self, obj: object, ssa: mlir.Value, origin: str = "") -> Traced:
        """The Value of an op's result: `obj` is what the real execution gave. Exact types of unboxed kinds follow."""
        if self.shadow is not None:
            self.shadow.result(obj, ssa)
        value = Traced(obj, ssa, origin)
        kind = value.kind
        if kind == "tensor":
            value.known_type = type(obj)
        else:
            value.known_type = _TYPES.get(kind)
        value.facts["fresh"] = True
        return value

    def resolve(self, value: Value) -> Value:
        """The form in which a value is to be looked at now: promoted values are constants; containers that escaped are traced."""
        if type(value) is Traced:
            if value.facts and (constant := value.facts.get("constant")) is not None:
                return constant  # type: ignore[return-value]
        elif type(value) is Virtual and value.escaped is not None and "traced" in value.state:
            return value.state["traced"]  # type: ignore[return-value]
        return value

    def name_of(self, value: Value) -> str:
        """How to call a value in a guard's text."""
        value = self.resolve(value)
        if isinstance(value, Const):
            return value.origin or describe(value.obj)
        if isinstance(value, Traced):
            return value.origin or f"<{type(value.obj).__name__}>"
        return f"<{getattr(value, 'kind', 'value')}>"

    def abort(self, reason: str, text: str, error: type[BaseException] | None = None) -> None:
        """Give up the recording before the current instruction (nothing of it may have been executed)."""
        raise Leave(reason, text, error)
