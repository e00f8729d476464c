"""Reads and stores of mutable Python state that hangs on constants: dicts, lists, cells, types, functions.

Owns pins and the values that the trace's own stores left behind. What must hold:
 * A read from a constant is covered by a pin that was written after the last call that may have changed anything.
 * After the trace's own store under a key, a read gives the stored value (until such a call), and is dynamic after it.
 * Keys in `options.demoted` are never pinned: their values are read when the trace runs.

May import: ir, frontend.{guards,lifetimes,values}.
"""

from __future__ import annotations

import ctypes
import operator
import types
from collections import OrderedDict
from typing import Any

from trident.frontend.aborts import Leave
from trident.frontend.frames import Entry
from trident.frontend.guards import Guarding
from trident.frontend.lifetimes import Lifetimes
from trident.frontend.values import Const, Traced, Value
from trident.ir import NULL, OpaqueCall, PinKind
from trident.ir.describing import describe, dict_of, is_a, mro_of

_HEAP_TYPE, _IMMUTABLE_TYPE, _MANAGED_DICT = 1 << 9, 1 << 8, 1 << 4  # Py_TPFLAGS_*
CELL_KEY = "cell_contents"
Parts = tuple[types.CodeType, tuple[Any, ...] | None, dict[str, Any] | None]
"""Of a function: code, defaults, keyword-only defaults."""


def is_mutable_type(cls: type) -> bool:
    """Whether attributes of a type can change."""
    return bool(cls.__flags__ & _HEAP_TYPE) and not cls.__flags__ & _IMMUTABLE_TYPE


class Heap(Lifetimes, Guarding):
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pinned: dict[tuple[PinKind, int, str], int] = {}  # -> epoch in which it was written
        self._forward: dict[tuple[int, str], Entry] = {}  # what this trace stored, since the last call that may change anything
        self._stored: set[tuple[int, str]] = set()  # keys that this trace stores to: not to be pinned any more
        self._functions: dict[types.FunctionType, tuple[int, Parts]] = {}  # what was pinned of each in the epoch
        self._constants: dict[tuple[int, str], Const] = {}  # so that one read of a key gives one Value
        self._run_time_stored: set[str] = set()  # names of attributes stored to objects that may be any constant
        self._run_time_dicts: list[Traced] = []  # the instance dicts that these went to
        self._apart: set[tuple[int, int]] = set()  # (number of such a dict, id of a constant dict): guarded to be two
        self._instance_dicts: set[int] = set()  # ids of dicts that are known to be instance dicts
        self.overwritten: set[tuple[int, str]] = set()  # pinned keys that the trace itself changes: to be demoted
        self.demoted: set[tuple[int, str]] = getattr(self.options, "demoted", None) or set()

    # ------------------------------------------------------------------------------------------------------ pins
    def pin(self, kind: PinKind, owner: Any, key: str, expected: Any, text: str) -> None:
        """A fact about a constant object, unless it is covered already."""
        identity = (kind, owner if kind is PinKind.WORD else id(owner), key)
        if self._pinned.get(identity) == self.epoch:
            return
        self.write_pin(kind, owner, key, expected, text)
        self._pinned[identity] = self.epoch

    def forget(self) -> None:
        """The recording is over."""
        self._forward.clear()
        self._constants.clear()
        self._functions.clear()

    def changed_anything(self) -> None:
        """After a call that may have changed any Python object."""
        self.epoch += 1
        self._forward.clear()
        self._constants.clear()

    # ----------------------------------------------------------------------------------------------------- dicts
    def read_dict(self, owner: dict[Any, Any], key: str, text: str) -> Entry:
        """The value under a str key of a constant dict; NULL if absent."""
        place = (id(owner), key)
        if place in self._forward:
            return self._forward[place]
        if place in self.demoted or place in self._stored or key in self._run_time_stored:
            return self._read_dynamic(owner, key, text)
        known = self._constants.get(place)
        if known is not None:
            return known
        value = dict.get(owner, key, NULL)
        self.pin(PinKind.DICT, owner, key, value, f"{text} is {_describe(value)}")
        if value is NULL:
            return NULL
        constant = self._constants[place] = Const(value, text)
        return constant

    def _read_dynamic(self, owner: dict[Any, Any], key: str, text: str) -> Entry:
        builder, index = self.builder, self.builder.constant_index(key)
        held = builder.constant(owner)
        present = key in owner
        self.guard(builder.op("dict_has", held, index=index), present, "key", f"{text} {'exists' if present else 'does not exist'}")
        if not present:
            return NULL
        value = self._varying(dict.__getitem__(owner, key), builder.op("dict_item", held, index=index), text, (id(owner), key))
        self._forward[(id(owner), key)] = value
        return value

    def _varying(self, obj: object, ssa: Any, text: str, place: tuple[int, str]) -> Traced:
        """A value that is read when the trace runs; where it has turned out to vary it is taken for another object each time."""
        value = Traced(obj, ssa, text)
        if place in self.demoted:
            value.facts["fresh"] = True
        return value

    def note_store(self, owner: dict[Any, Any] | list[Any] | types.CellType, key: str, value: Entry, pin_kind: PinKind) -> None:
        """The trace has stored (or, with NULL, deleted) under a key of a constant."""
        place = (id(owner), key)
        self.stores += 1
        if (pin_kind, id(owner), key) in self._pinned:
            self.overwritten.add(place)
        self._pinned.pop((PinKind.DICT_KEYS, id(owner), ""), None)
        self._pinned.pop((PinKind.ORDER, id(owner), ""), None)
        self._pinned.pop((PinKind.EMPTY, id(owner), ""), None)
        self._stored.add(place)
        self._constants.pop(place, None)
        self._forward[place] = value
        self.builder.constant_index(owner)  # keep alive: it is known by its id

    def store_dict(self, owner: dict[Any, Any], key: str, value: Value, text: str) -> None:
        """`owner[key] = value` on a constant dict, str key."""
        self.write_call(operator.setitem, [Const(owner), Const(key), value], text)
        self.note_store(owner, key, value, PinKind.DICT)

    def write_call(self, fn: Any, args: list[Value], what: str, keywords: dict[str, Value] | None = None) -> Traced:
        """Execute a C function that runs no Python code and write it as a call that changes only what the caller notes."""
        named = keywords or {}
        forms = [self.ssa(arg, "object") for arg in (*args, *named.values())]
        self.effect()
        obj = self.execute(fn, *[arg.obj for arg in args], **{key: value.obj for key, value in named.items()})
        info = OpaqueCall(getattr(fn, "__qualname__", str(fn)), what, self.builder.file, self.builder.line)
        return self.result(obj, self.builder.call(self.builder.constant(fn), forms, tuple(named), info, native=True))

    def dict_items(self, owner: dict[Any, Any], text: str) -> list[tuple[Any, Value]]:
        """All keys and values of a constant dict, in order."""
        if self.is_changed(owner):
            raise Leave("unsupported", f"iteration over {text or 'a dict'} that the trace itself changes")
        flat = tuple(part for item in dict.items(owner) for part in item)
        self.pin(PinKind.DICT_KEYS, owner, "", flat, f"items of {text or 'a dict'}")
        pairs = list(dict.items(owner))
        if is_a(owner, OrderedDict):
            order = {id(key): n for n, key in enumerate(OrderedDict.__iter__(owner))}
            pairs.sort(key=lambda pair: order[id(pair[0])])
            self.pin(PinKind.ORDER, owner, "", tuple(key for key, _ in pairs), f"order of {text or 'an OrderedDict'}")
        return [(key, Const(value, f"{text}[{key!r}]")) for key, value in pairs]

    def is_changed(self, owner: dict[Any, Any]) -> bool:
        """Whether the trace itself may change a constant dict."""
        return any(place[0] == id(owner) for place in (*self._stored, *self.demoted)) or self._may_be_stored_to(owner)

    def _may_be_stored_to(self, owner: Any) -> bool:
        """Whether a constant may be the instance dict of an object that is another one each time, and that the trace stores to."""
        if not self._run_time_stored or not is_a(owner, dict):
            return False
        if id(owner) in self._instance_dicts:
            return True
        return not self._run_time_stored.isdisjoint(owner) and not self._is_apart(owner)

    def _is_apart(self, owner: Any) -> bool:
        """Whether a constant dict can be guarded to be none of the instance dicts that the trace has stored to."""
        if any(held.obj is owner for held in self._run_time_dicts) or self.effect_serial == self.serial:
            return False
        for n, held in enumerate(self._run_time_dicts):
            if (n, id(owner)) not in self._apart:
                same = self.builder.op("is_constant", held.ssa, index=self.builder.constant_index(owner))
                self.guard(same, False, "identity", f"{held.origin} is another dict")
                self._apart.add((n, id(owner)))
        return True

    def note_run_time_store(self, name: str, held: Traced) -> None:
        """The trace has stored to an attribute of an object that may be any of the constants. held: its instance dict."""
        if held not in self._run_time_dicts:
            self._run_time_dicts.append(held)
        self.run_time_stores += 1
        self._run_time_stored.add(name)
        for known in (self._forward, self._constants):
            for place in [place for place in known if place[1] == name]:
                del known[place]  # type: ignore[attr-defined]

    def container_is_empty(self, owner: Any, text: str) -> bool:
        """Whether a constant dict, list or set is empty."""
        if any(place[0] == id(owner) for place in self._stored) or self._may_be_stored_to(owner):
            raise Leave("unsupported", f"length of {text or 'a container'} that the trace itself changes")
        empty = len(owner) == 0
        self.pin(PinKind.EMPTY, owner, "", empty, f"{text or 'a container'} is {'empty' if empty else 'not empty'}")
        return empty

    # ----------------------------------------------------------------------------------------------------- lists
    def list_is_dynamic(self, owner: list[Any]) -> bool:
        """Whether a constant list's items must be read when the trace runs."""
        return (id(owner), "") in self.demoted or (id(owner), "") in self._stored

    def dynamic_list(self, value: Const) -> Traced:
        """A constant list whose items are read when the trace runs."""
        text = self.name_of(value)
        made = self._varying(value.obj, self.builder.constant(value.obj), text, (id(value.obj), ""))
        made.known_type = list
        return made

    def list_items(self, owner: list[Any], text: str) -> list[Value]:
        """The items of a constant list that is not dynamic."""
        self.pin(PinKind.LIST, owner, "", tuple(owner), f"items of {text or 'a list'}")
        return [Const(item, f"{text}[{n}]") for n, item in enumerate(owner)]

    # ----------------------------------------------------------------------------------------------------- cells
    def read_cell(self, cell: types.CellType, text: str) -> Entry:
        """Contents of a constant cell; NULL if empty."""
        place = (id(cell), CELL_KEY)
        if place in self._forward:
            return self._forward[place]
        if place in self.demoted or place in self._stored:
            try:
                obj = cell.cell_contents
            except ValueError:
                raise Leave("raised", f"{text} is not set") from None
            self.may_exit()
            value = self._varying(obj, self.builder.op("cell_get", self.builder.constant(cell)), text, place)
            self._forward[place] = value
            return value
        known = self._constants.get(place)
        if known is not None:
            return known
        try:
            obj = cell.cell_contents
        except ValueError:
            obj = NULL
        self.pin(PinKind.CELL, cell, "", obj, f"{text} is {_describe(obj)}")
        if obj is NULL:
            return NULL
        constant = self._constants[place] = Const(obj, text)
        return constant

    def store_cell(self, cell: types.CellType, value: Value, text: str) -> None:
        """Store to a constant cell."""
        form = self.ssa(value, "object")
        self.op("cell_set", self.builder.constant(cell), form)
        self.execute(setattr, cell, CELL_KEY, value.obj)
        if (PinKind.CELL, id(cell), "") in self._pinned:
            self.overwritten.add((id(cell), CELL_KEY))
        self.note_store(cell, CELL_KEY, value, PinKind.CELL)

    # ----------------------------------------------------------------------------------------------------- types
    def read_type(self, cls: type, name: str) -> Any:
        """`_PyType_Lookup`: the attribute along the MRO, unbound; NULL if absent."""
        mutable = False
        found: Any = NULL
        for base in mro_of(cls):
            mutable = mutable or is_mutable_type(base)
            if name in dict_of(base):
                found = dict_of(base)[name]
                break
        if mutable:
            self.pin(PinKind.TYPE, cls, name, found, f"{cls.__qualname__}.{name} is {_describe(found)}")
        return found

    def pin_class_of(self, obj: Any, text: str) -> None:
        """That a constant's type is still the one of now, and its instance dict still the same object.

        `__class__` and `__dict__` of an instance of a Python class can be assigned."""
        cls = type(obj)
        if not is_mutable_type(cls) or is_a(obj, type):
            return
        word = _word(id(obj) + 8)
        if word == id(cls):
            self.builder.constant_index(obj)
            self.pin(PinKind.WORD, id(obj) + 8, "", word, f"type({text}) is {cls.__qualname__}")

    def pin_dict_of(self, obj: Any, held: dict[str, Any], text: str) -> None:
        """That `obj.__dict__` is still this dict, where its address is in the object's header."""
        self._instance_dicts.add(id(held))
        if not is_mutable_type(type(obj)):
            return
        cls = type(obj)
        offset = -24 if cls.__flags__ & _MANAGED_DICT else cls.__dictoffset__
        if (offset > 0 or offset == -24) and _word(id(obj) + offset) == id(held):
            self.builder.constant_index(obj)
            self.pin(PinKind.WORD, id(obj) + offset, "", id(held), f"{text}.__dict__ is the same dict")

    def pin_words(self, obj: Any, value: Any, text: str) -> bool:
        """That every word of a constant that holds an object still does; False if there is none."""
        places = [at for at in range(16, type(obj).__basicsize__, 8) if _word(id(obj) + at) == id(value)]
        self.builder.constant_index(obj)
        self.builder.constant_index(value)
        for at in places:
            self.pin(PinKind.WORD, id(obj) + at, "", id(value), f"{text} is the same object")
        return bool(places)

    def pin_function(self, function: types.FunctionType, text: str, code: types.CodeType | None = None) -> Parts:
        """That a constant function still has its code (this one, if it is given) and defaults. What was pinned: another thread may
        assign them at any time, so the recording goes on with these and reads none of them again."""
        parts = code or function.__code__, function.__defaults__, function.__kwdefaults__
        epoch, before = self._functions.get(function, (-1, parts))
        if epoch == self.epoch and any(now is not old for now, old in zip(parts, before, strict=True)):
            raise Leave("unsupported", f"{text or function.__qualname__} is given other code or defaults meanwhile")
        self._functions[function] = self.epoch, parts
        self.pin(PinKind.FUNCTION, function, "", parts, f"code and defaults of {text or function.__qualname__}")
        return parts


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _describe(obj: object) -> str:
    return "absent" if obj is NULL else describe(obj)
