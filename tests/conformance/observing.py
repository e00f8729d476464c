"""What one call did, in a form that can be compared bit by bit: results, arguments, globals, printed text, exceptions.

Owns `Painter` (objects as nested tuples of plain values) and `observe`. What must hold: two pictures are equal exactly if no program
could tell the objects apart: bits of numbers and tensors, types, identity among mutable objects, shared storage among tensors, order of
dicts and sets, and of exceptions the class, message, notes, chain, and the functions and source positions of the traceback. Addresses in
texts are left out; NaNs are all alike (which sign the sum of two has is up to the compiler of CPython).
"""

from __future__ import annotations

import contextlib
import io
import re
import struct
import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import torch

from trident.ir.describing import dict_of

Picture = Any
_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}")
_PLAIN = (bool, int, str, bytes, type(None), type(...), type(NotImplemented), torch.dtype, torch.device, torch.layout,
          torch.memory_format, range, types.CodeType)
_ITERATORS = frozenset(map(type, (
    iter([]), iter(()), iter(""), iter({}), iter({}.items()), iter({}.values()), iter(set()), iter(range(0)), reversed([]), zip(),
    map(abs, []), enumerate([]), filter(None, []))))


def _position(code: types.CodeType, offset: int) -> tuple[int | None, ...]:
    return next(islice(code.co_positions(), offset // 2, None))


def text(value: object) -> str:
    """A text without addresses."""
    return _ADDRESS.sub("0x…", str(value))


class Painter:
    """Makes pictures; objects and storages have one number each, in the order in which they are met.

    file: of the program; of tracebacks, only the entries of its code are looked at (Trident and torch's Python wrappers have frames
    of their own)."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._numbers: dict[int, int] = {}
        self._storages: dict[int, int] = {}
        self._alive: list[object] = []

    def __call__(self, value: Any) -> Picture:
        """The picture of one object."""
        cls = type(value)
        if cls is float:
            return "float", "nan" if value != value else struct.pack("<d", value).hex(), repr(value)
        if cls is complex:
            return "complex", self(value.real), self(value.imag)
        if cls in _PLAIN:
            return cls.__name__, hex(value) if cls is int else text(value)
        if isinstance(value, types.ModuleType | torch.nn.Module):
            return cls.__qualname__, getattr(value, "__name__", "")
        if isinstance(value, tuple):
            return (cls.__qualname__, *map(self, value))
        if cls is slice:
            return "slice", self(value.start), self(value.stop), self(value.step)
        known = self._numbers.get(id(value))
        if known is not None:
            return cls.__qualname__, "met before", known
        self._alive.append(value)
        number = self._numbers[id(value)] = len(self._numbers)
        if isinstance(value, torch.Tensor):
            return cls.__qualname__, number, *self._tensor(value)
        if isinstance(value, BaseException):
            return cls.__qualname__, number, *self._error(value)
        return cls.__qualname__, number, *self._object(value)

    def _tensor(self, t: torch.Tensor) -> Picture:
        storage = self._storages.setdefault(t.untyped_storage().data_ptr(), len(self._storages)) if t.numel() else -1
        plain = t.detach().cpu()
        if plain.is_floating_point():
            plain = plain.masked_fill(plain.isnan(), float("nan"))
        data = (plain.view(torch.int16) if plain.dtype is torch.bfloat16 else plain).resolve_conj().resolve_neg().numpy().tobytes().hex()
        node = t.grad_fn
        return (str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset(), str(t.device), t.requires_grad, t.is_leaf, t.is_inference(),
                storage, data, type(node).__name__, repr(plain.tolist()), self(t.grad) if t.is_leaf else None)

    def _error(self, error: BaseException) -> Picture:
        entries = []
        vague = isinstance(error, UnboundLocalError)  # CPython 3.11 may name the instruction before: once warm, the two are one
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            if code.co_filename == self._file:
                entries.append((code.co_qualname, None if vague else _position(code, trace.tb_lasti)))
            trace = trace.tb_next
        return (text(error), tuple(map(self, error.args)), tuple(entries), getattr(error, "__notes__", None), self(error.__cause__),
                self(error.__context__), error.__suppress_context__)

    def _object(self, value: Any) -> Picture:
        """Of everything with an identity: what it holds."""
        match value:
            case list() | set() | frozenset() | bytearray():
                held: list[Any] = [list.__iter__(value)] if isinstance(value, list) else [iter(value)]
                return *map(self, held[0]), self._attributes(value)
            case dict():
                return *((self(k), self(v)) for k, v in dict.items(value)), self._attributes(value)
            case types.FunctionType():
                code, cells = value.__code__, tuple(map(self, value.__closure__ or ()))
                return code.co_qualname, code.co_firstlineno, self(value.__defaults__), self(value.__kwdefaults__), cells
            case types.CellType():
                try:
                    return (self(value.cell_contents),)
                except ValueError:
                    return ("empty",)
            case types.MethodType():
                return self(value.__func__), self(value.__self__)
            case partial():
                return self(value.func), self(value.args), self(value.keywords)
            case types.BuiltinFunctionType() | types.MethodWrapperType():
                owner = value.__self__
                return value.__qualname__, None if isinstance(owner, types.ModuleType | None) else self(owner)
            case types.GeneratorType():
                return value.__qualname__, value.gi_frame is None, value.gi_frame and value.gi_frame.f_lineno
            case type():
                return self._class(value)
        if type(value) in _ITERATORS:
            return (self(value.__reduce__()),)
        attributes = self._attributes(value)
        return (attributes,) if attributes is not None else (text(repr(value)),)

    def _class(self, cls: type) -> Picture:
        """Of a class of the program: the data among its attributes."""
        if cls.__module__ != "program":
            return (cls.__module__,)
        return tuple((name, self(v)) for name, v in dict_of(cls).items()
                     if not name.startswith("__") and not callable(v) and not hasattr(type(v), "__get__"))

    def _attributes(self, value: Any) -> Picture:
        found = getattr(value, "__dict__", None)
        slots = [(s, self(getattr(value, s))) for s in getattr(type(value), "__slots__", ()) if hasattr(value, s)]
        if not isinstance(found, dict):
            return slots or None
        return [*((k, self(v)) for k, v in found.items()), *slots]


@dataclass
class Observed:
    """What one call did; all of it is compared."""

    result: Picture
    error: Picture
    arguments: Picture
    printed: str
    surroundings: Picture = None


def observe(fn: Callable[[], object], arguments: object, file: str, surroundings: Callable[[], object] = lambda: None) -> Observed:
    """Call and note everything. arguments: what the call may change; surroundings: gives what else it may change (globals)."""
    out = io.StringIO()
    result: object = None
    error: BaseException | None = None
    with contextlib.redirect_stdout(out), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = fn()
        except Exception as raised:
            error = raised
    paint = Painter(file)
    return Observed(paint(result), paint(error), paint(arguments), text(out.getvalue()), paint(surroundings()))


def first_difference(a: Picture, b: Picture, where: str) -> str:
    """Where two pictures differ first; "" if they do not."""
    if a == b:
        return ""
    if isinstance(a, tuple | list) and isinstance(b, tuple | list) and len(a) == len(b):
        for n, (x, y) in enumerate(zip(a, b)):
            found = first_difference(x, y, f"{where}.{n}")
            if found:
                return found
    return f"{where}: {a!r:.700} != {b!r:.700}"


def difference(expected: Observed, seen: Observed) -> str:
    """The first difference between two calls; "" if there is none."""
    for name in ("error", "result", "arguments", "printed", "surroundings"):
        found = first_difference(getattr(expected, name), getattr(seen, name), name)
        if found:
            return found
    return ""
