"""Objects that are others at each execution: their attributes are read when the trace runs.

An object is a constant of the trace by its identity as long as it is always the same one. Where a function is called with another one
each time (the `self` of a layer class, a cache made for each request), the life cycle names that argument in
`options.generalised`: the next recording guards its type alone, and loads what it needs from its instance dict; so also for
the objects found there.

Owns which values are such ("run-time instances") and the loads. What must hold: only instances of Python classes with an ordinary
instance dict are; a load is repeated after anything that may have changed Python objects.

May import: ir, frontend.{heap,values}.
"""

from __future__ import annotations

import types
from typing import Any

from trident.frontend.frames import Entry
from trident.frontend.guards import is_made_anew
from trident.frontend.heap import Heap
from trident.frontend.models import registry
from trident.frontend.values import Const, Traced, Value, Virtual, own_dict
from trident.frontend.virtuals import dict_base
from trident.ir import NULL
from trident.ir.describing import dict_of, mro_of

RUN_TIME = "run-time"
"""The fact of a value that comes from a generalised argument."""
_HEAP_TYPE = 1 << 9


class _Plain:
    pass


PLAIN_SIZE = _Plain.__basicsize__


def has_plain_layout(cls: type) -> bool:
    """Whether instances consist of an instance dict and nothing else."""
    bases = (base for base in mro_of(cls) if base is not object)
    if any(dict_of(base).get("__slots__") or not base.__flags__ & _HEAP_TYPE for base in bases):
        return False
    return bool(cls.__dictoffset__) and cls.__basicsize__ <= PLAIN_SIZE


def has_instance_dict(cls: type) -> bool:
    """Whether attributes of instances live in an ordinary instance dict, and what else there is (the contents of a dict) is apart."""
    base = dict_base(cls)
    if base is None:
        return has_plain_layout(cls)
    own = [part for part in mro_of(cls) if part not in mro_of(base)]
    return bool(own) and bool(cls.__dictoffset__) and not any(
        dict_of(part).get("__slots__") or not part.__flags__ & _HEAP_TYPE for part in own)


class Instances(Heap):
    """See the module."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._stores_to: dict[str, int] = {}  # stores to an attribute of a run-time instance, by its name

    def is_run_time_instance(self, value: Value) -> bool:
        """Whether a value's attributes are to be read when the trace runs; its type is guarded then."""
        if type(value) is not Traced or value.kind != "object" or value.facts.get("constant"):
            return False
        obj: Any = value.obj
        if RUN_TIME not in value.facts and not (value.facts.get("fresh") and is_made_anew(obj)) and not _holds_results(value):
            return False
        if issubclass(type(obj), registry().hooked_types) or not has_instance_dict(type(obj)) or type(own_dict(obj)) is not dict:
            return False
        self.type_of(value)
        return True

    def follows_type(self, value: Value) -> bool:
        """Whether special methods of a value's class may be looked up: makes sure of the class."""
        if type(value) is Const:
            self.pin_class_of(value.obj, self.name_of(value))
            return True
        if type(value) is Virtual:
            return value.kind == "instance"
        return self.is_run_time_instance(value)

    def instance_dict(self, value: Traced) -> Traced:
        """`vars(value)` of a run-time instance."""
        known: Any = value.facts.get("dict")
        if known is None or known[0] != self._now():
            held = Traced(own_dict(value.obj), self.builder.op("instance_dict", value.ssa), f"{self.name_of(value)}.__dict__", dict,
                          facts={RUN_TIME: True})
            known = value.facts["dict"] = (self._now(), held, {})
        return known[1]  # type: ignore[no-any-return]

    def read_instance(self, value: Traced, name: str, text: str) -> Entry:
        """From the instance dict of a run-time instance; NULL if absent."""
        held = self.instance_dict(value)
        loaded: dict[str, tuple[int, Entry]] = value.facts["dict"][2]
        stamp, entry = loaded.get(name, (-1, NULL))
        if stamp != self._stores_to.get(name, 0):
            entry = self.load_key(held, name, text)
            loaded[name] = self._stores_to.get(name, 0), entry
        return entry

    def store_instance_item(self, value: Traced, name: str, item: Value, setter: Any) -> None:
        """`value.name = item` into the instance dict of a run-time instance; nothing of Python's runs."""
        text = f"{self.name_of(value)}.{name}"
        held = self.instance_dict(value)
        self.write_call(setter, [value, Const(name), item], f"{text} = …")
        self.note_run_time_store(name, held)
        count = self._stores_to[name] = self._stores_to.get(name, 0) + 1
        value.facts["dict"][2][name] = count, item

    def load_key(self, held: Traced, key: str, text: str) -> Entry:
        """The value under a str key of a dict of the trace, guarded to be there or not; NULL if it is not."""
        real: Any = held.obj
        index, present = self.builder.constant_index(key), key in real
        said = f"{text} {'exists' if present else 'does not exist'}"
        self.guard(self.builder.op("dict_has", held.ssa, index=index), present, "key", said)
        if not present:
            return NULL
        return self.inherit(Traced(real[key], self.builder.op("dict_item", held.ssa, index=index), text), held)

    def inherit(self, item: Traced, owner: Traced, key: object = None) -> Traced:
        """An item loaded from a container or instance is what that one is. key: its place in the tuple, list or dict `owner`."""
        if self.in_entry:
            item.facts["entry"] = True
        where: Any = owner.facts.get("position")
        if key is not None and where is not None:
            path = (*where, key) if type(where) is tuple else (where, key)
            item.facts["position"] = path
            if path in (getattr(self.options, "generalised", None) or ()):
                item.facts[RUN_TIME] = True
        for fact in ("fresh", RUN_TIME):
            if owner.facts.get(fact):
                item.facts[fact] = True
        return item

    def _now(self) -> tuple[int, int]:
        return self.epoch, self.stores


def _holds_results(value: Traced) -> bool:
    """Whether a value comes from an argument and is an instance of a dict's subclass (what a model returns): data of this call, not
    what the function is made of."""
    return "position" in value.facts and dict_base(type(value.obj)) not in (None, type(value.obj))


def is_generalisable(obj: object) -> bool:
    """Whether an argument may be read at run time instead of being guarded by identity."""
    return not issubclass(type(obj), type | types.ModuleType) and has_instance_dict(type(obj))


def argument_at(arguments: tuple[object, ...], path: Any) -> object:
    """The argument of a number, or the item of a tuple, list or dict among the arguments that a path leads to; None if there is none."""
    first, *rest = path if type(path) is tuple else (path,)
    found: Any = arguments[first]
    for key in rest:
        if type(found) is dict:
            found = found.get(key)
        elif type(found) in (tuple, list) and type(key) is int and key < len(found):
            found = found[key]
        else:
            return None
    return found  # type: ignore[no-any-return]
