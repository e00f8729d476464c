"""How objects are looked at, and named in guards, misses and explanations.

What must hold: nothing here runs code of the user's, whatever the object is.

May import: the standard library.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

_NAMED = (types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_REPR = frozenset({int, float, str, bytes, bool, type(None)})
_qualname = type.__dict__["__qualname__"].__get__  # not the one that a metaclass may have
_module = type.__dict__["__module__"].__get__
_dict = type.__dict__["__dict__"].__get__
_mro = type.__dict__["__mro__"].__get__


def type_name(cls: type) -> str:
    """The qualified name of a class; runs no code of the user's."""
    return str(_qualname(cls, type(cls)))


def dict_of(cls: type) -> Mapping[str, Any]:
    """The attributes of a class itself, whatever its metaclass calls `__dict__`."""
    return _dict(cls, type(cls))  # type: ignore[no-any-return]


def mro_of(cls: type) -> tuple[type, ...]:
    """The classes along which attributes are looked up, whatever the metaclass calls `__mro__`. Empty while the class is being made."""
    return _mro(cls, type(cls)) or ()


def is_a(obj: Any, classes: Any) -> bool:
    """`isinstance` that asks the object nothing: its `__class__` may be code of the user's, or lie."""
    return issubclass(type(obj), classes)


def describe(obj: object) -> str:
    """How to write an object in a guard's text; runs no code of the user's."""
    if type(obj) in _NAMED:
        return str(obj.__qualname__)  # type: ignore[attr-defined]
    if is_a(obj, type):
        return type_name(obj)  # type: ignore[arg-type]
    if type(obj) is int and abs(obj) >> 200:
        return hex(obj)[:60]  # decimal digits of a huge int are slow to get, or refused
    return repr(obj)[:60] if type(obj) in _REPR else f"<{type_name(type(obj))}>"


def callee_name(obj: object) -> str:
    """`module.name` of something that is called; runs no code of the user's."""
    if is_a(obj, type):
        module, name = _module(obj, type(obj)), type_name(obj)  # type: ignore[arg-type]
    elif type(obj) in _NAMED:
        module, name = getattr(obj, "__module__", None), obj.__qualname__  # type: ignore[attr-defined]
    elif type(obj) is types.MethodType:
        return callee_name(obj.__func__)
    else:
        module, name = _module(type(obj), type), type_name(type(obj))
    return f"{module}.{name}" if isinstance(module, str) and module != "builtins" else str(name)
