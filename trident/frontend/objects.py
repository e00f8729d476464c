"""Attribute lookup, simulated step by step as CPython does it, so that every step becomes a pin or a guard.

Owns LOAD_ATTR and STORE_ATTR semantics. What must hold: the order is CPython's (data descriptor of the type, instance dict,
other attribute of the type, `__getattr__`); what is not understood exactly is an opaque `getattr` / `setattr`.

May import: ir, frontend.{heap,instances,values,models}.
"""

from __future__ import annotations

import ctypes
import functools
import types
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

from trident.frontend.aborts import Leave
from trident.frontend.frames import Entry
from trident.frontend.guards import is_made_anew
from trident.frontend.heap import is_mutable_type
from trident.frontend.instances import Instances
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Traced, Value, Virtual, own_dict
from trident.ir import NULL, PinKind
from trident.ir.describing import dict_of, is_a, mro_of


@dataclass(slots=True)
class Access:
    """What a lookup found.

    how: "value"; "method" (`value` is a function to be called with `self` first); "call" (the attribute is the result of
    calling `value` with `args`); "absent" (AttributeError); "opaque" (leave it to getattr).
    """

    how: str
    value: Value = None  # type: ignore[assignment]
    self: Value = None  # type: ignore[assignment]
    args: tuple[Value, ...] = ()
    reason: str = ""


_tuplegetter = type(namedtuple("_Example", "field").field)  # type: ignore[attr-defined]
_ABSENT = Access("absent")
_METHOD_TYPES = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
# Exact types without an instance dict, whose attributes all come from the type.
_PLAIN_TYPES = frozenset({list, tuple, dict, set, frozenset, str, bytes, bytearray, int, float, bool, complex, type(None), slice, range})


def _call_fallback(fallback: Any, cls: type, value: Value, name: str) -> Access:
    """A `__getattr__` that is to be called."""
    if not is_a(fallback, types.FunctionType):  # it may be bound by a `__get__` of its own
        return Access("opaque", reason=f"{cls.__qualname__}.__getattr__ is no function")
    return Access("call", Const(fallback, f"{cls.__qualname__}.__getattr__"), args=(value, Const(name)))


class Objects(Instances):
    """See the module."""

    def known_items(self, value: Value) -> list[Value] | None:
        """See recorder.py."""
        raise NotImplementedError

    def lookup(self, value: Value, name: str) -> Access:
        """Find an attribute; writes pins and guards, executes nothing of the user's."""
        value = self.resolve(value)
        obj = value.obj
        if self.is_hooked(value):
            answer = registry().try_hooks("attribute", self, value, name)
            if answer is not NotModelled:
                return answer if isinstance(answer, Access) else Access("value", answer)
        if type(value) is Traced:
            value = self.traced_owner(value)
            if type(value) is Traced and type(obj) not in _PLAIN_TYPES and not _is_plain_tuple(type(obj)) \
                    and not self.is_run_time_instance(value):
                return Access("opaque", reason=f"attribute of a run-time {type(obj).__name__}")
        if type(value) is Virtual:
            return self._lookup_virtual(value, name)
        if type(value) is Const and issubclass(type(obj), types.ModuleType):
            return self._lookup_module(value, name)
        if issubclass(type(obj), type):
            return self._lookup_class(value, obj, name)
        return self._lookup_instance(value, name)

    def is_hooked(self, value: Value) -> bool:
        """Whether models of a type are to be asked about this operand."""
        known = registry()
        # Not isinstance: that asks an object for its `__class__`, which may run code of the user's, or lie.
        return issubclass(type(value.obj), known.hooked_types) or type(value) is Virtual and value.kind in known.hooked_kinds

    def traced_owner(self, value: Traced) -> Value:
        """A traced object whose attributes are wanted: plain types by type, stable objects by identity."""
        cls = type(value.obj)
        if value.kind != "object" or cls in _PLAIN_TYPES or _is_plain_tuple(cls) or value.facts.get("fresh") and not self.is_stable(value):
            self.type_of(value)
            return self.resolve(value)
        if self.is_run_time_instance(value):
            return value
        self.guard_identity(value, f"{value.origin or 'value'} is the same {cls.__name__}")
        return self.resolve(value)

    def is_stable(self, value: Traced) -> bool:
        """Whether a traced object is probably the same one at the next execution, so that guarding its identity is sensible."""
        if not value.facts.get("fresh"):
            return True
        return not is_made_anew(value.obj)

    # --------------------------------------------------------------------------------------------------- modules
    def _lookup_module(self, value: Const, name: str) -> Access:
        """Modules, also of a subclass of ModuleType (torch.backends has such): as an instance, then the dict's `__getattr__`."""
        module = value.obj
        assert isinstance(module, types.ModuleType)
        if name in _MODULE_DATA:
            return Access("value", Const(module.__dict__)) if name == "__dict__" else Access("opaque", reason=f"module.{name}")
        called, cls = value.origin or str(module.__dict__.get("__name__", "module")), type(module)
        text = f"{called}.{name}"
        if cls is not types.ModuleType:
            self.pin_class_of(module, called)
            if self.read_type(cls, "__getattribute__") is not types.ModuleType.__getattribute__:
                return Access("opaque", reason=f"{cls.__qualname__} has its own __getattribute__")
        of_type = self.read_type(cls, name)
        if of_type is not NULL and _overrides(of_type):
            return self.bind(of_type, value, cls, text)
        found = self.read_dict(module.__dict__, name, text)
        if found is not NULL:
            return Access("value", found)  # type: ignore[arg-type]
        if of_type is not NULL:
            return self.bind(of_type, value, cls, text)
        fallback = self.read_dict(module.__dict__, "__getattr__", f"{called}.__getattr__")
        if fallback is not NULL:
            return Access("call", fallback, args=(Const(name),))  # type: ignore[arg-type]
        of_class = self.read_type(cls, "__getattr__")
        return _ABSENT if of_class is NULL else Access("call", Const(of_class), args=(value, Const(name)))

    # --------------------------------------------------------------------------------------------------- classes
    def _lookup_class(self, value: Value, cls: type, name: str) -> Access:
        meta = type(cls)
        if self.read_type(meta, "__getattribute__") is not type.__getattribute__:
            return Access("opaque", reason=f"metaclass {meta.__qualname__} has its own __getattribute__")
        text = f"{value.origin if isinstance(value, Const) and value.origin else cls.__qualname__}.{name}"
        of_meta = self.read_type(meta, name)
        if of_meta is not NULL and _overrides(of_meta):
            if name == "__dict__":
                return Access("opaque", reason="__dict__ of a class")
            return self.bind(of_meta, value, meta, text)
        found = self.read_type(cls, name)
        if found is not NULL:
            return self._bind_to_class(found, value, cls, text)
        if of_meta is not NULL:
            return self.bind(of_meta, value, meta, text)
        fallback = self.read_type(meta, "__getattr__")
        return _ABSENT if fallback is NULL else _call_fallback(fallback, meta, value, name)

    def _bind_to_class(self, found: Any, owner: Value, cls: type, text: str) -> Access:
        if is_a(found, types.FunctionType | property | types.MemberDescriptorType | types.GetSetDescriptorType
                      | types.MethodDescriptorType | types.WrapperDescriptorType):
            return Access("value", Const(found, text))
        if type(found) is staticmethod:
            return Access("value", Const(found.__func__, text))
        if type(found) is classmethod:
            if hasattr(type(found.__func__), "__get__") and type(found.__func__) is not types.FunctionType:
                return Access("opaque", reason="a class method of a descriptor")
            return Access("method", Const(found.__func__, text), owner)
        if type(found) is types.BuiltinFunctionType or not hasattr(type(found), "__get__"):
            return Access("value", Const(found, text))
        if is_a(found, types.ClassMethodDescriptorType):
            return Access("value", Const(found.__get__(None, cls), text))
        getter = self.read_type(type(found), "__get__")
        if is_a(getter, types.FunctionType):
            return Access("call", Const(getter), args=(Const(found), Const(None), owner))
        return Access("opaque", reason=f"descriptor {type(found).__name__}")

    # ------------------------------------------------------------------------------------------------- instances
    def _lookup_instance(self, value: Value, name: str) -> Access:
        obj = value.obj
        cls = type(obj)
        text = f"{self.name_of(value)}.{name}"
        if type(value) is Const:
            self.pin_class_of(obj, self.name_of(value))
        getter = self.read_type(cls, "__getattribute__")
        if not _is_generic(getter, "__getattribute__"):
            if is_a(getter, types.FunctionType) and self.read_type(cls, "__getattr__") is NULL:
                return Access("call", Const(getter, f"{cls.__qualname__}.__getattribute__"), args=(value, Const(name)))
            return Access("opaque", reason=f"{cls.__qualname__} has its own __getattribute__")
        return self.lookup_generic(value, name, text)

    def lookup_generic(self, value: Value, name: str, text: str, *, fall_back: bool = True) -> Access:
        """`object.__getattribute__`, and (`fall_back`) the type's `__getattr__` where that finds nothing."""
        obj = value.obj
        cls = type(obj)
        of_type = self.read_type(cls, name)
        if of_type is not NULL and _overrides(of_type):
            return self.bind(of_type, value, cls, text)
        held = own_dict(obj)
        if cls.__dictoffset__ or held is not None:
            if type(value) is not Virtual and type(held) is not dict:
                return Access("opaque", reason=f"the instance dict of a {cls.__name__} is not a plain one")
            found = self._read_instance(value, name, text)
            if found is not NULL:
                return Access("value", found)  # type: ignore[arg-type]
        if of_type is not NULL:
            return self.bind(of_type, value, cls, text)
        fallback = self.read_type(cls, "__getattr__") if fall_back else NULL
        if fallback is NULL:
            return _ABSENT
        model = registry().find_getattr(fallback)
        if model is not None:
            found = model(self, value, name)
            return _ABSENT if found is NULL else Access("value", found)
        return _call_fallback(fallback, cls, value, name)

    def _read_instance(self, value: Value, name: str, text: str) -> Entry:
        """From the instance dict."""
        if type(value) is Virtual:
            if value.kind != "instance" or value.keys is None:  # an OrderedDict, for example: nothing was set on it
                return NULL
            return value.items[value.keys.index(name)] if name in value.keys else NULL
        if type(value) is Traced:
            return self.read_instance(value, name, text)
        held = own_dict(value.obj)
        self.pin_dict_of(value.obj, held, self.name_of(value))
        return self.read_dict(held, name, text)

    def bind(self, found: Any, owner: Value, cls: type, text: str) -> Access:
        """An attribute of a type, accessed through an instance."""
        kind = type(found)
        if is_a(found, _METHOD_TYPES):
            return Access("method", Const(found, text), owner)
        if kind is staticmethod:
            return Access("value", Const(found.__func__, text))
        if kind is classmethod:
            if hasattr(type(found.__func__), "__get__") and type(found.__func__) is not types.FunctionType:
                return Access("opaque", reason="a class method of a descriptor")
            return Access("method", Const(found.__func__, text), Const(cls))
        if kind is property:
            return _ABSENT if found.fget is None else Access("call", Const(found.fget, text), args=(owner,))
        if kind in (types.GetSetDescriptorType, types.MemberDescriptorType):
            return self._bind_member(found, owner, text)
        if kind is _tuplegetter:
            items = self.known_items(owner)
            return Access("opaque", reason="field of a named tuple") if items is None else Access("value", items[found.__reduce__()[1][0]])
        if kind is types.BuiltinFunctionType or not hasattr(kind, "__get__"):
            return Access("value", Const(found, text))
        if kind is functools._lru_cache_wrapper:
            return Access("method", Const(found, text), owner)
        if is_a(found, types.ClassMethodDescriptorType):
            return Access("value", Const(found.__get__(None, cls), text))
        getter = self.read_type(kind, "__get__")
        if is_a(getter, types.FunctionType):
            return Access("call", Const(getter), args=(Const(found), owner, Const(cls)))
        return Access("opaque", reason=f"descriptor {kind.__name__}")

    def _bind_member(self, found: Any, owner: Value, text: str) -> Access:
        obj, name = owner.obj, found.__name__
        if name == "__class__" and is_a(found, types.GetSetDescriptorType) and found.__objclass__ is object:
            return Access("value", Const(self.type_of(owner)))
        if name == "__dict__" and type(owner) is Traced and self.is_run_time_instance(owner):
            return Access("value", self.instance_dict(owner))
        if name == "__dict__" and type(owner) is Virtual and owner.kind == "instance" and type(own_dict(obj)) is dict:
            return Access("value", self.virtual(own_dict(obj), "vars", [owner]))
        if type(owner) is not Const:
            return Access("opaque", reason=f"attribute {name} of a run-time object")
        if type(obj) is types.FunctionType and name in _FUNCTION_PARTS:
            parts = dict(zip(_FUNCTION_PARTS, self.pin_function(obj, self.name_of(owner)), strict=True))
            return Access("value", Const(parts[name], text))
        if is_a(obj, types.FunctionType | type) and name in ("__name__", "__qualname__", "__module__"):
            return self._name_of_object(obj, found.__get__(obj), text)
        if name == "__dict__":
            held = found.__get__(obj)
            self.pin_dict_of(obj, held, self.name_of(owner))
            return Access("value", Const(held, text))
        if type(obj) in registry().constant_types:
            return Access("value", Const(getattr(obj, name), text))
        if is_a(found, types.MemberDescriptorType):
            constant = self._slot(found, owner, text)
            if constant is not None:
                return Access("value", constant)
        return Access("opaque", reason=f"attribute {name} of a {type(obj).__name__}")

    def _name_of_object(self, obj: Any, value: Any, text: str) -> Access:
        """`__name__` and the like of a function or class: every word of the object that holds it is pinned."""
        if is_a(obj, type) and not is_mutable_type(obj):
            return Access("value", Const(value, text))
        if is_a(obj, type) and text.endswith(".__module__"):  # it stands in the class's own dict
            if type.__dict__["__dict__"].__get__(obj).get("__module__", NULL) is value and self.read_type(obj, "__module__") is value:  # type: ignore[attr-defined]
                return Access("value", Const(value, text))
        if not self.pin_words(obj, value, text):
            return Access("opaque", reason="a name that is not found in its object")
        return Access("value", Const(value, text))

    def _slot(self, found: Any, owner: Const, text: str) -> Const | None:
        """A `__slots__` value of a constant object, pinned by the word that holds it."""
        try:
            value = found.__get__(owner.obj)
        except AttributeError:
            return None
        definition = ctypes.c_void_p.from_address(id(found) + object.__basicsize__ + 3 * 8).value
        if not definition:
            return None
        address = id(owner.obj) + ctypes.c_ssize_t.from_address(definition + 16).value
        if (id(owner.obj), text) in self._stored or not 16 <= address - id(owner.obj) < type(owner.obj).__basicsize__:
            return None
        if ctypes.c_uint64.from_address(address).value != id(value):
            return None
        self.builder.constant_index(owner.obj)
        self.builder.constant_index(value)
        self.pin(PinKind.WORD, address, "", id(value), f"{text} is the same object")
        return Const(value, text)

    # --------------------------------------------------------------------------------------------------- virtual
    def _lookup_virtual(self, value: Virtual, name: str) -> Access:
        match value.kind:
            case "super":
                return self._lookup_super(value, name)
            case "method" if name in ("__self__", "__func__"):
                return Access("value", value.items[name == "__self__"])
            case "slice" if name in ("start", "stop", "step"):
                return Access("value", value.items[("start", "stop", "step").index(name)])
            case "instance":
                return self._lookup_instance(value, name)
            case "tuple" | "list" | "dict" | "set" | "range" | "view" | "iterator" | "slice" | "vars":
                return self._lookup_instance(value, name)
            case "partial" if name == "func":
                return Access("value", value.items[0])
        return Access("opaque", reason=f"attribute {name} of a new {value.kind}")

    def _lookup_super(self, value: Virtual, name: str) -> Access:
        """`super(cls, self).name`: the search starts behind cls in the MRO of self's type (or of self, a class)."""
        cls, owner = value.items[0].obj, value.items[1]
        start = owner.obj if is_a(owner.obj, type) and cls in mro_of(owner.obj) else type(owner.obj)
        if name == "__class__":
            return Access("value", Const(super))
        mro = mro_of(start)
        if cls not in mro:  # a metaclass with its own mro(), or an object that lies about its class
            return Access("opaque", reason=f"super().{name}")
        for base in mro[mro.index(cls) + 1:]:
            if name in dict_of(base):
                if is_mutable_type(base):
                    self.pin(PinKind.TYPE, base, name, dict_of(base)[name], f"{base.__qualname__}.{name}")
                text = f"super().{name}"
                found = dict_of(base)[name]
                if start is owner.obj and type(found) is not classmethod:
                    return self._bind_to_class(found, owner, start, text)
                if start is owner.obj and type(found.__func__) is not types.FunctionType:
                    return Access("opaque", reason=f"super().{name}")
                return self.bind(found, owner, start, text) if start is not owner.obj else Access("method", Const(found.__func__), owner)
            if is_mutable_type(base):
                self.read_type(base, name)
        return Access("opaque", reason=f"super().{name}")

    # ---------------------------------------------------------------------------------------------------- stores
    def check_function_part(self, value: Value, name: str) -> None:
        """A function that the trace has made is called by its parts: they stay as they are."""
        if type(value) is Virtual and value.kind == "function" and name in _FUNCTION_PARTS:
            raise Leave("unsupported", f"a change of {name} of a new function")

    def store_access(self, value: Value, name: str) -> Access:
        """How `value.name = …` is done: "value" (into the instance dict), "call" (of `value` with args + item) or "opaque"."""
        value = self.resolve(value)
        obj = value.obj
        if name == "__class__":
            raise Leave("unsupported", "an assignment to __class__")
        if type(value) is Traced:
            value = self.traced_owner(value)
            if type(value) is Traced and not self.is_run_time_instance(value):
                return Access("opaque", reason=f"store to a run-time {type(obj).__name__}")
        cls = type(obj)
        self.check_function_part(value, name)
        if is_a(obj, type | types.ModuleType) or type(value) is Virtual and value.kind != "instance":
            return Access("opaque", reason=f"store to a {cls.__name__}")
        if type(value) is Const:
            self.pin_class_of(obj, self.name_of(value))
        setter = self.read_type(cls, "__setattr__")
        if not _is_generic(setter, "__setattr__"):
            if is_a(setter, types.FunctionType):
                return Access("call", Const(setter), args=(value, Const(name)))
            return Access("opaque", reason=f"{cls.__qualname__} has its own __setattr__")
        of_type = self.read_type(cls, name)
        if of_type is not NULL and _is_data_descriptor(of_type):
            if type(of_type) is property and of_type.fset is not None:
                return Access("call", Const(of_type.fset), args=(value,))
            return Access("opaque", reason=f"descriptor {type(of_type).__name__}")
        if own_dict(obj) is None:
            return Access("opaque", reason=f"{cls.__qualname__} has no instance dict")
        return Access("value", value)


_FUNCTION_PARTS = ("__code__", "__defaults__", "__kwdefaults__")  # as `pin_function` gives them
_MODULE_DATA = frozenset({"__dict__", "__class__", "__annotations__"})


def _is_plain_tuple(cls: type) -> bool:
    """Whether a class is a tuple without an instance dict (a named tuple, for example)."""
    return issubclass(cls, tuple) and not cls.__dictoffset__


# Word of a type object that holds the C function behind a special method (PyTypeObject is laid out so in all of CPython 3).
_SLOT_WORDS = {"__getattribute__": 18, "__setattr__": 19, "__new__": 39}


def type_word(cls: type, name: str) -> int:
    """Address of the C function behind a special method."""
    return ctypes.c_uint64.from_address(id(cls) + 8 * _SLOT_WORDS[name]).value


def _is_generic(found: Any, name: str) -> bool:
    """Whether a special method is the one of `object`; many builtin types have a wrapper of their own around the same C function."""
    if found is getattr(object, name):
        return True
    return type(found) is types.WrapperDescriptorType and type_word(found.__objclass__, name) == type_word(object, name)


def _overrides(found: Any) -> bool:
    """Whether an attribute of the type goes before one of the instance."""
    return _is_data_descriptor(found) and hasattr(type(found), "__get__")


def _is_data_descriptor(found: Any) -> bool:
    kind = type(found)
    return hasattr(kind, "__set__") or hasattr(kind, "__delete__")
