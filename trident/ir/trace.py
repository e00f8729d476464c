"""The trace: an MLIR module and the Python objects that it refers to by index.

Owns the data that travels between the frontend (which writes it) and the backend (which compiles or executes it). What must
hold: a trace is complete in itself (its constants keep alive every object whose address the native code will hold), and
immutable once `TraceBuilder.finish` has returned it.

May import: torch_mlir, ir.ops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from types import CodeType, FunctionType
from typing import Any, Protocol

from torch_mlir import ir

# ---------------------------------------------------------------------------------------------------------- snapshots


@dataclass(frozen=True, slots=True)
class Slot:
    """Recipe: the operand `index` of the `trident.state` op, boxed to a Python object."""

    index: int


@dataclass(frozen=True, slots=True)
class Known:
    """Recipe: an object that is the same at every execution of the trace."""

    obj: object


@dataclass(frozen=True, slots=True, eq=False)
class Build:
    """Recipe: an object that the trace never built ("virtual"), to be made when the frame state is rebuilt.

    `make(*items)` makes it. Identity counts: one Build used twice in a snapshot is one object. For mutable containers that
    may contain themselves the recorder must not use a Build.
    """

    make: Callable[..., object]
    items: tuple[Recipe, ...]
    kind: str = ""


class Null:
    """Recipe (and value): an empty local, or the NULL that PUSH_NULL and friends leave on the operand stack."""

    _instance: Null | None = None

    def __new__(cls) -> Null:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()
Recipe = Slot | Known | Build | Null


class Arrival(IntEnum):
    """What a pending instruction makes of the result of the frame that it waits for."""

    RESULT = 0
    """It is pushed."""
    NOTHING = 1
    """It is dropped (a store through a property, `__setitem__`)."""
    GIVEN = 2
    """An instance is pushed; the result, of its `__init__`, must be None."""
    ITERATOR = 3
    """It is pushed, and must be an iterator (`__iter__`)."""


@dataclass(frozen=True, slots=True)
class FrameState:
    """One Python frame, stopped before the instruction at `offset`.

    function: recipe of the function object (its code is `code`). offset: byte offset in co_code of the instruction to
    execute next, including its EXTENDED_ARG (and KW_NAMES) prefixes; for every frame but the innermost it is the call that
    is in progress. locals: one recipe per entry of localsplus (arguments, locals, cells, free variables: `len(co_varnames)
    + cells + frees`, CPython's order). stack: the operand stack from the bottom. is_call: the pending instruction of an
    outer frame is a CALL-like instruction whose callable can be replaced (else: `pops` entries go when the inner frame has
    returned, and execution continues at `next_offset`). arrival: what comes in their place.
    """

    function: Recipe
    code: CodeType
    offset: int
    locals: tuple[Recipe, ...]
    stack: tuple[Recipe, ...]
    is_call: bool = True
    pops: int = 0
    next_offset: int = -1
    arrival: Arrival = Arrival.RESULT
    result: Recipe | None = None  # of Arrival.GIVEN


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Frames from the outermost to the innermost.

    types: per operand of the state, the exact type that the trace has established for it (for an int also that it fits
    int64), None where it has not: a bridge need not guard these again. fresh: the operands that calls of the trace have made, and
    that are likely to be other objects next time.
    """

    frames: tuple[FrameState, ...]
    line: int
    file: str
    types: tuple[type | None, ...] = ()
    fresh: frozenset[int] = frozenset()


# ------------------------------------------------------------------------------------------------------------- guards


@dataclass(frozen=True, slots=True)
class GuardInfo:
    """Why a guard exists, for `explain`: `text` is a Python-like condition, `file`/`line` the code that depended on it."""

    text: str
    kind: str
    file: str
    line: int


class PinKind(Enum):
    """What a pin compares. `owner` and `key` are the Pin's fields.

    WORD   the 8 bytes at the address `owner` (an int) equal the int `expected`; a failing word is a failing pin
    DICT   dict `owner`: value under str `key` is the object `expected` (NULL: absent). Checked through the dict's version
           tag: while the tag is the one seen last, nothing else is looked at; otherwise the keys are looked up and the tag renewed
    TYPE   `_PyType_Lookup(owner, key)` is the object `expected` (NULL: absent), through tp_version_tag in the same way
    LIST   list `owner` still has exactly the items of the tuple `expected`, by identity
    CELL   cell `owner` holds the object `expected` (NULL: empty)
    FUNCTION  function `owner` still has code, defaults and kwdefaults of the tuple `expected`, by identity
    DICT_KEYS dict `owner` has exactly the keys (in order, by identity) and values (by identity) of the tuple `expected`
              of alternating keys and values; checked through the version tag first. Of an OrderedDict in the order of the dict below
    ORDER  OrderedDict `owner`, whose DICT_KEYS are pinned too, has the keys of the tuple `expected` in this order, by identity
    EMPTY  dict, list or set `owner` is empty (`expected` True) or is not (False)
    """

    WORD = "word"
    DICT = "dict"
    TYPE = "type"
    LIST = "list"
    CELL = "cell"
    FUNCTION = "function"
    DICT_KEYS = "dict_keys"
    ORDER = "order"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class Pin:
    """A fact about an object that is a constant of the trace: it holds until somebody mutates that object."""

    kind: PinKind
    owner: Any
    key: str
    expected: Any
    info: GuardInfo


# ------------------------------------------------------------------------------------------------------------ launches


@dataclass(frozen=True, slots=True)
class LaunchParam:
    """One parameter of a Triton kernel: `constexpr` parameters carry `value`; the others are run-time operands in order."""

    name: str
    constexpr: bool
    value: object = None


@dataclass(frozen=True, slots=True)
class LaunchSite:
    """A `kernel[grid](...)` in the trace.

    kernel: the triton JITFunction. params: all of its parameters in order. options: keywords that are not parameters
    (num_warps, num_stages, …), constants. The run-time operands are tensors, ints, floats, bools or objects.
    """

    kernel: Any
    params: tuple[LaunchParam, ...]
    options: tuple[tuple[str, object], ...]
    file: str
    line: int


# ------------------------------------------------------------------------------------------------------------- replays


class Replay(Protocol):
    """What a `trident.replay` has for its site: graphs, of which one may fit the operands of this call."""

    def run(self, operands: Sequence[Any]) -> Sequence[Any] | str:
        """Replay it: its results, or why none fits."""
        ...

    def close(self) -> None:
        """Let the graphs go: nobody replays them any more."""
        ...


# --------------------------------------------------------------------------------------------------------------- trace


@dataclass(frozen=True, slots=True)
class OpaqueCall:
    """A call of a Python object that the trace makes, for `explain` and `strict`.

    One in `Trace.opaque_calls` was not looked into. One in `Trace.native_calls` runs a C function that executes no Python code, and
    whose effects the trace knows (it makes an object that escapes, for example)."""

    callee: str
    reason: str
    file: str
    line: int


@dataclass(slots=True)
class Trace:
    """A recorded path through one function (root) or onward from a side exit (bridge).

    module: one `func.func @trace` whose block arguments are `!trident.object` and whose terminator returns one. Arguments of a
    root trace are the frame's bound arguments in localsplus order followed by the function object itself; those of a bridge are the boxed
    operands of the `trident.state` that it starts from. `parent`: None for a root, else the exit's snapshot. `loops`: it ends with a
    `trident.back`, and is left at the guards in between only.
    """

    name: str
    module: ir.Module
    constants: list[object] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    guards: list[GuardInfo] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    launches: list[LaunchSite] = field(default_factory=list)
    replays: list[Replay] = field(default_factory=list)
    opaque_calls: list[OpaqueCall] = field(default_factory=list)
    native_calls: list[OpaqueCall] = field(default_factory=list)
    parent: Snapshot | None = None
    loops: bool = False

    @property
    def function(self) -> ir.Operation:
        """The `func.func` operation."""
        return self.module.body.operations[0].operation

    @property
    def block(self) -> ir.Block:
        """Its only block."""
        return self.function.regions[0].blocks[0]

    @property
    def operators(self) -> int:
        """Number of calls of ATen operators."""
        names = (op.operation.name for op in self.block.operations)
        return sum(name.startswith(("torch.aten.", "torch.operator")) for name in names)

    def __str__(self) -> str:
        return self.module.operation.get_asm(enable_debug_info=False)


@dataclass(slots=True)
class Frame:
    """A frame to be continued by CPython: the concrete counterpart of FrameState. Entries are objects or NULL."""

    function: FunctionType
    code: CodeType
    offset: int
    locals: list[object]
    stack: list[object]
    is_call: bool = True
    pops: int = 0
    next_offset: int = -1
    arrival: Arrival = Arrival.RESULT
    result: object = NULL


def rebuild(snapshot: Snapshot, values: tuple[object, ...] | list[object]) -> list[Frame]:
    """The frames of a snapshot, with the boxed operands of its state op filled in."""
    made: dict[int, object] = {}

    def value(recipe: Recipe) -> object:
        match recipe:
            case Slot(index):
                return values[index]
            case Known(obj):
                return obj
            case Build():
                if id(recipe) not in made:
                    made[id(recipe)] = recipe.make(*[value(item) for item in recipe.items])
                return made[id(recipe)]
        return recipe  # NULL

    frames = []
    for f in snapshot.frames:
        function = value(f.function)
        assert isinstance(function, FunctionType)
        result = NULL if f.result is None else value(f.result)
        frames.append(Frame(function, f.code, f.offset, [value(v) for v in f.locals], [value(v) for v in f.stack],
                            f.is_call, f.pops, f.next_offset, f.arrival, result))
    return frames
