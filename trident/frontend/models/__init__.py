"""What the recorder knows about particular callables and types: the registry of models.

Owns the registry. A *model* writes native operations for a call instead of an opaque call. What must hold: a model executes
the real operation exactly once, as a whole, through `rec.execute`; guards come before the first effect of the instruction;
where it cannot model a call it returns `NotModelled` before it has executed, guarded or emitted anything that matters.

May import: ir, frontend.values, frontend.models.* (lazily, in `registry`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from trident.frontend.values import Value

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


class _NotModelled:
    """The answer of a model that does not apply to its operands."""

    def __repr__(self) -> str:
        return "NotModelled"


NotModelled = _NotModelled()
Answer = Value | _NotModelled
Args = list[Value]
Kwargs = dict[str, Value]
Model = Callable[["Recorder", list[Value], dict[str, Value]], Answer]

# Names of the hooks that are tried first where an operand is an instance of a hooked type, with their signatures.
HOOKS: dict[str, str] = {
    "binary": "(rec, opname: str, a: Value, b: Value) -> Answer; opname as in operator.*: 'add', 'iadd', 'matmul', ...",
    "unary": "(rec, opname: str, a: Value) -> Answer; opname: 'neg', 'pos', 'invert'",
    "compare": "(rec, opname: str, a: Value, b: Value) -> Answer; opname: 'lt', 'le', 'eq', 'ne', 'gt', 'ge'",
    "subscript": "(rec, a: Value, index: Value) -> Answer",
    "index_numbers": "(rec, a: Value, index: Value) -> Value | NotModelled (an index with numbers in the place of what is read for it)",
    "store_subscript": "(rec, a: Value, index: Value, item: Value) -> None | NotModelled",
    "attribute": "(rec, a: Value, name: str) -> Answer",
    "store_attribute": "(rec, a: Value, name: str, item: Value) -> None | NotModelled",
    "truth": "(rec, a: Value) -> Answer: a bool (Const or Traced of kind bool)",
    "length": "(rec, a: Value) -> Answer: an int",
    "iterate": "(rec, a: Value) -> list[Value] | NotModelled",
    "call": "(rec, callee: Value, args, kwargs) -> Answer: callee is an instance of a hooked type, or a Virtual of a hooked kind",
}


class Registry:
    """All models. Callables are found by identity."""

    def __init__(self) -> None:
        self._functions: dict[int, tuple[object, Model]] = {}
        self.hooked_types: tuple[type, ...] = ()
        self.hooked_kinds: set[str] = set()
        self.hooks: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}
        self.opaque: dict[int, tuple[object, str]] = {}
        self._frame_readers: dict[int, tuple[object, str, bool]] = {}
        self.constant_types: set[type] = set()
        self.tensor_types: set[type] = set()  # exact types of objects that a loop may carry as a tensor alone
        self.harmless: dict[int, object] = {}
        self.native: dict[int, object] = {}
        self._getattr: dict[int, tuple[object, Callable[..., Any]]] = {}

    def function(self, key: object, model: Model) -> None:
        """Use `model` where `key` (a function, type, method descriptor, …) is called; method descriptors get self first."""
        self._functions[id(key)] = (key, model)

    def find(self, key: object) -> Model | None:
        """The model of a callable."""
        entry = self._functions.get(id(key))
        return entry[1] if entry is not None else None

    def hook(self, name: str, function: Callable[..., Any]) -> None:
        """Add a hook (see HOOKS); the first whose answer is not NotModelled wins."""
        self.hooks[name].append(function)

    def hook_type(self, *types: type) -> None:
        """Operands that are instances of these types (subclasses too) are offered to the hooks."""
        self.hooked_types += types

    def hook_kind(self, *kinds: str) -> None:
        """Virtual operands of these kinds are offered to the hooks."""
        self.hooked_kinds.update(kinds)

    def never_inline(self, key: object, reason: str) -> None:
        """Calls of this Python function are opaque calls."""
        self.opaque[id(key)] = (key, reason)

    def frame_reader(self, key: object, reason: str, *, bare: bool = False) -> None:
        """Calls of this callable end the recording: it looks at Python frames. bare: only where it is called without arguments."""
        self._frame_readers[id(key)] = (key, reason, bare)

    def reads_frame(self, key: object, *, bare: bool) -> str:
        """Why a call of this callable ends the recording, "" if it does not. bare: it has no arguments."""
        _, reason, only_bare = self._frame_readers.get(id(key), (None, "", False))
        return "" if only_bare and not bare else reason

    def harmless_call(self, *keys: object) -> None:
        """Opaque calls of these callables change nothing that a pin or a forwarded value rests on."""
        for key in keys:
            self.harmless[id(key)] = key

    def native_call(self, *keys: object) -> None:
        """The same, of C functions that run no Python code: not opaque calls."""
        for key in keys:
            self.harmless[id(key)] = self.native[id(key)] = key

    def constant_type(self, *types: type) -> None:
        """Exact instances of these types are immutable: operations on constants of them may be folded."""
        self.constant_types.update(types)

    def getattr_model(self, function: object, model: Callable[..., Any]) -> None:
        """`model(rec, owner, name) -> Value | NULL` replaces the Python function `function` as a type's `__getattr__`."""
        self._getattr[id(function)] = (function, model)

    def find_getattr(self, function: object) -> Callable[..., Any] | None:
        """The model of a `__getattr__` function."""
        entry = self._getattr.get(id(function))
        return entry[1] if entry is not None else None

    def try_hooks(self, name: str, *args: object) -> Any:
        """First answer of the hooks of this name."""
        for function in self.hooks[name]:
            answer = function(*args)
            if answer is not NotModelled:
                return answer
        return NotModelled


# In the order in which they register: (module, needs this importable package).
_FAMILIES: tuple[tuple[str, str], ...] = (
    ("numbers", ""),
    ("builtins", ""),
    ("containers", ""),
    ("modules", "torch"),
    ("torch_calls", "torch"),
    ("library", "torch"),
    ("mappings", ""),
    ("triton", "triton"),
)


@cache
def registry() -> Registry:
    """The registry with every family that this installation can have."""
    made = Registry()
    for name, needs in _FAMILIES:
        full = f"trident.frontend.models.{name}"
        if (needs and find_spec(needs) is None) or find_spec(full) is None:
            continue
        import_module(full).register(made)
    return made
