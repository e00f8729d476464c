"""Models of the standard library's and torch's small helpers: mappings of Python, names of classes, context variables, constants.

Owns what is known about calls that have no effect on anything a trace rests on. What must hold: see frontend.models; an answer that is a
constant is pinned by everything that it was computed from.

May import: torch, ir, frontend.{operators,subscripts,values,models}.
"""

from __future__ import annotations

import _warnings
import contextvars
import functools
import inspect
import os
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend import operators
from trident.frontend.models import Answer, Args, Kwargs, Model, NotModelled, Registry
from trident.frontend.subscripts import hashes_in_c
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


# ------------------------------------------------------------------------------------------------------------ mappings
def _item_of_mapping(rec: Recorder, owner: Value, key: Value) -> Any:
    """`owner[key]` by the class's own `__getitem__`; NULL where that raises KeyError, None where it cannot be known."""
    if type(owner) is Const and type(owner.obj) is _Environ:
        return _environment_variable(rec, owner, key)
    if not rec.follows_type(owner):
        return None
    found = rec.read_type(type(owner.obj), "__getitem__")
    return rec.pure_or_raised(KeyError, Const(found), [owner, key]) if is_a(found, types.FunctionType) else None


_Environ = type(os.environ)
_environ_getitem = _Environ.__getitem__


def _environment_variable(rec: Recorder, owner: Const, key: Value) -> Any:
    """`os.environ[key]`: from the dict of bytes behind it, of which that one key is pinned."""
    held, text = owner.obj.__dict__, rec.name_of(owner)
    if type(key.obj) is not str or rec.read_type(_Environ, "__getitem__") is not _environ_getitem:
        return None
    rec.pin_class_of(owner.obj, text)
    rec.pin_dict_of(owner.obj, held, text)
    parts = [rec.read_dict(held, name, f"{text}.{name}") for name in ("encodekey", "decodevalue", "_data")]
    if not all(type(part) is Const and part.obj is held[name] for part, name in zip(parts, ("encodekey", "decodevalue", "_data"))):
        return None
    if type(held["_data"]) is not dict or any(held[name].__module__ != "os" for name in ("encodekey", "decodevalue")):
        return None
    try:
        encoded = held["encodekey"](rec.promote(key, f"key of {text}"))
    except UnicodeError:
        return None
    found = rec.read_dict(held["_data"], encoded, f"{text}[{key.obj!r}]")
    if found is NULL or type(found) is not Const:
        return found if found is NULL else None
    return Const(held["decodevalue"](found.obj), f"{text}[{key.obj!r}]")


def _mapping_get(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """`Mapping.get`"""
    if not 2 <= len(args) <= 3 or set(kwargs) - {"default"} or len(args) + len(kwargs) > 3:
        return NotModelled
    found = _item_of_mapping(rec, args[0], args[1])
    if found is NULL:
        return kwargs["default"] if kwargs else args[2] if len(args) == 3 else Const(None)
    return NotModelled if found is None else found


def _mapping_contains(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """`Mapping.__contains__`"""
    found = _item_of_mapping(rec, *args) if len(args) == 2 and not kwargs else None
    return NotModelled if found is None else Const(found is not NULL)


def _of_subclass(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    """The value under a str key of a constant dict of a subclass, as dict's own methods find it; None where it cannot be known."""
    if kwargs or not args or type(args[0]) is not Const or type(args[0].obj) in (dict, OrderedDict):
        return None
    if not is_a(args[0].obj, dict) or len(args) < 2 or type(rec.resolve(args[1]).obj) is not str:
        return None
    if type(rec.resolve(args[1])) is not Const:
        rec.promote(args[1], f"key of {rec.name_of(args[0])}")
    key: Any = args[1].obj
    return rec.read_dict(args[0].obj, key, f"{rec.name_of(args[0])}[{key!r}]")


def _dict_get(otherwise: Model) -> Model:
    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        found = _of_subclass(rec, args, kwargs) if len(args) <= 3 else None
        owner = args[0] if args else None
        if type(owner) is Traced and 2 <= len(args) <= 3 and not kwargs and type(owner.obj) not in (dict, OrderedDict) \
                and rec.is_run_time_instance(owner) and hashes_in_c(rec.resolve(args[1])):
            return rec.write_call(dict.get, args, f"item of {rec.name_of(owner)}")
        if found is NULL:
            return args[2] if len(args) == 3 else Const(None)
        return otherwise(rec, args, kwargs) if found is None else found

    return model


def _dict_getitem(otherwise: Model) -> Model:
    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        missing = rec.read_type(type(args[0].obj), "__missing__") if args else NULL
        found = _of_subclass(rec, args, kwargs) if len(args) == 2 and missing is NULL else None
        if found is NULL:
            rec.abort("raised", f"KeyError: {args[1].obj!r}", KeyError)
        return otherwise(rec, args, kwargs) if found is None else found

    return model


def _dict_pop(otherwise: Model) -> Model:
    """Also of a dict of run time. One that the trace has made and that escaped has nothing in it that the trace rests on."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        owner = args[0] if args else None
        if type(owner) is not Traced or type(owner.obj) is not dict or kwargs or len(args) != 3:
            return otherwise(rec, args, kwargs)
        if type(args[1].obj) is not str:
            return NotModelled
        rec.type_of(owner)
        made = rec.write_call(dict.pop, args, "dict.pop")
        owner.facts.pop("pairs", None)
        rec.stores += 1
        if not owner.facts.get("new"):
            rec.changed_anything()  # it may be one of the constants
        return made

    return model


# --------------------------------------------------------------------------------------------------------------- names
def _str_of_class(otherwise: Model) -> Model:
    """`str(cls)` of a class whose metaclass writes it as `type` does: from its module and its qualified name."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        cls: Any = args[0].obj if len(args) == 1 and not kwargs else None
        if type(args[0] if args else None) is not Const or not is_a(cls, type):
            return otherwise(rec, args, kwargs)
        meta = type(cls)
        if rec.read_type(meta, "__str__") is not object.__str__ or rec.read_type(meta, "__repr__") is not type.__repr__:
            return otherwise(rec, args, kwargs)
        for name in ("__module__", "__qualname__"):
            found = rec.lookup(args[0], name)
            if found.how != "value" or type(found.value) is not Const or type(found.value.obj) is not str:
                return otherwise(rec, args, kwargs)
        return Const(rec.execute(str, cls))

    return model


# ----------------------------------------------------------------------------------------------------------- constants
def _made_of_dtype(cls: type) -> Model:
    """`torch.finfo(dtype)` and `torch.iinfo(dtype)`, which are immutable."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        named = [*args, *kwargs.values()]
        if len(named) != 1 or set(kwargs) - {"type"} or type(named[0].obj) is not torch.dtype:
            return NotModelled
        value = rec.resolve(named[0])
        if type(value) is Traced:
            rec.guard_identity(value, f"{rec.name_of(value)} is {value.obj}")
        return Const(rec.execute(cls, value.obj))

    return model


def _cached(rec: Recorder, callee: Value, args: Args, kwargs: Kwargs) -> Answer:
    """A call of what `functools.lru_cache` has made, answered from its cache: C code only, as long as the entry is there."""
    wrapper: Any = callee.obj
    if type(callee) is not Const or not all(map(_is_plain_key, (*args, *kwargs.values()))):
        return NotModelled
    before = wrapper.cache_info().hits
    if rec.pure_base:
        return NotModelled
    made = rec.opaque(callee, args, kwargs, "a cache that was not filled")
    if wrapper.cache_info().hits == before + 1:
        rec.builder.trace.native_calls.append(rec.builder.trace.opaque_calls.pop())
    return made


def _is_plain_key(value: Value) -> bool:
    """Whether a value can be a key without code of Python's."""
    cls: Any = type(value.obj)
    return operators.is_immutable(value.obj) or cls.__hash__ is object.__hash__ and cls.__eq__ is object.__eq__


def _is_known_function(rec: Recorder, value: Value) -> bool:
    """Whether a function, or the one of a method, is a constant."""
    return type(value) is Const or type(value) is Virtual and value.kind == "method" and type(rec.resolve(value.items[0])) is Const


def _signature(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """`inspect.signature` of a plain function or of its method: immutable, and computed from its code, defaults and annotations."""
    function: Any = args[0].obj if len(args) == 1 and not kwargs else None
    if type(function) is types.MethodType:
        function = function.__func__
    if type(function) is not types.FunctionType or not _is_known_function(rec, args[0]):
        return NotModelled
    rec.pin_function(function, function.__qualname__)
    for name, held in (("__dict__", function.__dict__), ("__annotations__", function.__annotations__)):
        if not rec.pin_words(function, held, f"{function.__qualname__}.{name}"):
            return NotModelled
    for name in ("__wrapped__", "__signature__", "__text_signature__", "__partialmethod__", "_partialmethod"):
        if rec.read_dict(function.__dict__, name, f"{function.__qualname__}.{name}") is not NULL:
            return NotModelled
    rec.dict_items(function.__annotations__, f"{function.__qualname__}.__annotations__")
    made = rec.execute(rec.services.call, inspect.signature, (args[0].obj,), {})
    rec.frozen.add(id(made.parameters))
    return Const(made)


# ----------------------------------------------------------------------------------------------------- weak references
def _dereference(rec: Recorder, callee: Value, args: Args, kwargs: Kwargs) -> Answer:
    """The call of a weak reference: C code only, what it gives may be another object each time."""
    if type(callee.obj) is not weakref.ReferenceType or args or kwargs:
        return NotModelled
    if type(callee) is Traced:
        rec.type_of(callee)
    return rec.write_call(weakref.ReferenceType.__call__, [callee], "what a weak reference refers to")


# ------------------------------------------------------------------------------------------------------------- warnings
def _warn(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """`warnings.warn` where the frame that it names is one of the recording: `warn_explicit` of that frame's line."""
    named = {**kwargs, **dict(zip(("message", "category", "stacklevel"), args, strict=False))}
    if len(args) > 3 or len(named) != len(args) + len(kwargs) or set(named) - {"message", "category", "stacklevel"}:
        return NotModelled
    message, category = named.get("message"), named.get("category", Const(None))
    level = rec.resolve(named.get("stacklevel", Const(1)))
    if message is None or type(level) is not Const or type(level.obj) is not int or not 1 <= level.obj <= len(rec.frames):
        return NotModelled
    if is_a(message.obj, Warning):
        category = Const(rec.type_of(message))
    elif type(message.obj) is not str or type(rec.resolve(category)) is not Const:
        return NotModelled
    chosen = UserWarning if category.obj is None else category.obj
    if not is_a(chosen, type) or not issubclass(chosen, Warning):  # type: ignore[arg-type]
        return NotModelled  # raises
    rec.type_of(message)
    frame = rec.frames[-level.obj]
    frame.globals.setdefault("__warningregistry__", {})
    registry = rec.read_dict(frame.globals, "__warningregistry__", "__warningregistry__")
    module = rec.read_dict(frame.globals, "__name__", "__name__")
    if registry is NULL or module is NULL:
        return NotModelled
    where: list[Any] = [Const(chosen), Const(frame.code.code.co_filename), Const(frame.current.line), module, registry]
    return rec.opaque(Const(_warnings.warn_explicit), [message, *where], {}, "a warning")


# -------------------------------------------------------------------------------------------------------------- devices
def _dummy(name: str) -> Model:
    """A class that stands for something that this build of torch lacks: calling it raises."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        rec.abort("raised", f"Tried to instantiate dummy base class {name}", RuntimeError)
        return NotModelled

    return model


def _dummies() -> list[type]:
    """The classes of torch._C that `torch._utils._dummy_type` has made."""
    make: Any = getattr(torch._utils, "_dummy_type", None)
    code = getattr(make("probe").__new__, "__code__", None) if isinstance(make, types.FunctionType) else None
    return [found for found in vars(torch._C).values()
            if is_a(found, type) and code is not None and getattr(found.__dict__.get("__new__"), "__func__", None) is not None
            and found.__dict__["__new__"].__func__.__code__ is code]  # fmt: skip


# C functions that run no Python code and change nothing that a pin or a forwarded value rests on.
_NATIVE: tuple[Any, ...] = (contextvars.ContextVar.get, contextvars.ContextVar.set, contextvars.ContextVar.reset, id)


def register(registry: Registry) -> None:
    """All of the above."""
    registry.function(Mapping.get, _mapping_get)
    registry.function(Mapping.__contains__, _mapping_contains)
    wrapped: dict[Any, Callable[[Model], Model]] = {dict.get: _dict_get, dict.__getitem__: _dict_getitem, dict.pop: _dict_pop,
                                                    str: _str_of_class}
    for function, wrap in wrapped.items():
        otherwise = registry.find(function)
        assert otherwise is not None
        registry.function(function, wrap(otherwise))
    for cls in (torch.finfo, torch.iinfo):
        registry.function(cls, _made_of_dtype(cls))
        registry.constant_type(cls)
    registry.hook_type(functools._lru_cache_wrapper)
    registry.hook("call", lambda rec, callee, args, kwargs:
                  _cached(rec, callee, args, kwargs) if type(callee.obj) is functools._lru_cache_wrapper else NotModelled)
    registry.hook_type(weakref.ReferenceType)
    registry.hook("call", _dereference)
    registry.function(inspect.signature, _signature)
    registry.function(_warnings.warn, _warn)
    for found in _dummies():
        registry.function(found, _dummy(found.__name__))
    registry.native_call(*_NATIVE)

