"""Models of builtin functions and types, `operator` and `functools.partial`.

Owns what these do on values of the recorder. What must hold: see frontend.models.

May import: ir, frontend.{operators,iteration,subscripts,values,models}.
"""

from __future__ import annotations

import _lsprof
import abc
import collections
import functools
import inspect
import math
import operator
import sys
import traceback
import types
import typing
import warnings
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from trident.frontend import calls, generators, iteration, operators, subscripts
from trident.frontend.handlers import names
from trident.frontend.models import Answer, Args, Kwargs, Model, NotModelled, Registry
from trident.frontend.models.numbers import fold
from trident.frontend.values import Const, Traced, Value, Virtual, own_dict
from trident.ir import NULL
from trident.ir.describing import is_a, mro_of

if TYPE_CHECKING:
    from trident.frontend.objects import Access
    from trident.frontend.recorder import Recorder

# ---------------------------------------------------------------------------------------------------------- containers
def _len(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return operators.length(rec, args[0]) if len(args) == 1 and not kwargs else NotModelled


def _range(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or not 1 <= len(args) <= 3 or any(type(arg.obj) is not int for arg in args):
        return NotModelled
    if any(rec.number_kind(arg) != "int" for arg in args) or len(args) == 3 and not args[2].obj:
        return NotModelled
    start, stop, step = (Const(0), args[0], Const(1)) if len(args) == 1 else (args[0], args[1], args[2] if len(args) > 2 else Const(1))
    real = range(start.obj, stop.obj, step.obj)  # type: ignore[arg-type]
    if all(type(part) is Const for part in (start, stop, step)):
        return Const(real)
    if type(step) is not Const:  # CPython raises for a step of 0, also where the range is never used
        nonzero = rec.builder.op("ne_int", rec.ssa(step, "int"), rec.builder.int(0))
        rec.guard(nonzero, True, "branch", f"{rec.name_of(step)} != 0")
    return rec.virtual(real, "range", [start, stop, step])


def _slice(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or not 1 <= len(args) <= 3:
        return NotModelled
    parts = [Const(None), args[0], Const(None)] if len(args) == 1 else [*args, Const(None)][:3]
    real = slice(*[part.obj for part in parts])
    return Const(real) if all(operators.is_foldable(part) for part in parts) else rec.virtual(real, "slice", parts)


def _tuple(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) > 1:
        return NotModelled
    if args and type(args[0].obj) is tuple:
        if type(args[0]) is Traced:
            rec.type_of(args[0])
        return args[0]
    items = rec.known_items(args[0]) if args else []
    return NotModelled if items is None else rec.virtual_tuple(items)


def _list(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) > 1:
        return NotModelled
    items = rec.known_items(args[0]) if args else []
    return NotModelled if items is None else rec.virtual_list(items)


def _set(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """A set of constants, added one after another: the order in which they come out again is always the same."""
    if kwargs or len(args) > 1 or args and type(args[0].obj) not in (list, tuple):
        return NotModelled
    items = [rec.resolve(item) for item in rec.known_items(args[0]) or ()] if args else []
    return NotModelled if args and not items and args[0].obj else operators.make_set(rec, items)


def _dict(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) > 1:
        return NotModelled
    made = rec.virtual_dict([], [])
    if args:
        pairs = _pairs(rec, args[0])
        if pairs is None:
            return NotModelled
        for key, item in pairs:
            made.obj[key] = item.obj  # type: ignore[index]
            operators.set_key(made, key, item)
    for key, item in kwargs.items():
        made.obj[key] = item.obj  # type: ignore[index]
        operators.set_key(made, key, item)
    return made


def _ordered_dict(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return NotModelled if args or kwargs else rec.virtual(OrderedDict(), "dict", [], [], cls=OrderedDict)


def _getattribute(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    """object.__getattribute__(self, name), as an own `__getattribute__` calls it."""
    if len(args) != 2 or kwargs or type(args[1].obj) is not str or type(args[0]) is Traced:
        return NotModelled
    if is_a(args[0].obj, type | types.ModuleType):
        return NotModelled
    name = rec.promote(args[1], "attribute name")
    found = rec.lookup_generic(args[0], name, f"{rec.name_of(args[0])}.{name}", fall_back=False)
    return NotModelled if found.how == "opaque" or found.how == "absent" and not rec.pure_base else rec.access(found, args[0], name)


def _pairs(rec: Recorder, source: Value) -> list[tuple[Any, Value]] | None:
    source = rec.resolve(source)
    if type(source) is Virtual and source.kind == "dict":
        rec.fix_order(source)
        return list(zip(source.keys or (), source.items, strict=True))
    if type(source) is Const and type(source.obj) is dict:
        return rec.dict_items(source.obj, rec.name_of(source))
    if type(source) is not Virtual or source.kind not in ("list", "tuple", "iterator", "view", "generator"):
        return None
    if source.kind == "generator":
        items = rec.known_items(source)
        if items is None:
            return None
        source = rec.virtual_list(items)
    if source.kind == "iterator" and source.state["how"] not in ("zip", "enumerate"):
        return None
    pairs = []
    for item in rec.iterate(source):
        parts = rec.known_items(item)
        if parts is None or len(parts) != 2 or not subscripts.can_be_key(rec, parts[0]):
            rec.abort("unsupported", "a dict of pairs that are not known")
        pairs.append((rec.promote(parts[0], "key of a dict"), parts[1]))  # type: ignore[index]
    return pairs


def _enumerate(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if set(kwargs) - {"start"} or not 1 <= len(args) + len(kwargs) <= 2:
        return NotModelled
    start = kwargs.get("start", args[1] if len(args) > 1 else Const(0))
    if type(rec.resolve(start)) is not Const or type(start.obj) is not int:
        return NotModelled
    source = _iterator_of(rec, args[0])
    return NotModelled if source is None else \
        rec.virtual(enumerate(source.obj, start.obj), "iterator", [source], how="enumerate", pos=0, start=start.obj)  # type: ignore[call-overload]


def _iterator_of(rec: Recorder, value: Value) -> Value | None:
    """A virtual iterator over a value, None where there is none (nothing has been executed then)."""
    value = rec.resolve(value)
    if type(value) is Virtual and value.kind == "iterator":
        return value
    kinds: tuple[type, ...] = (tuple, list, dict, range, str, bytes, OrderedDict) if type(value) is Const else (tuple, list, dict)
    known = value.kind in ("tuple", "list", "dict", "set", "range", "view") if type(value) is Virtual else type(value.obj) in kinds
    if type(value) is Traced and type(value.obj) is dict and iteration.traced_pairs(rec, value) is None:
        return None
    if known:
        made = iteration.get_iterator(rec, value)
        assert type(made) is Virtual
        return made
    method = rec.read_type(type(value.obj), "__iter__") if rec.follows_type(value) and not rec.is_hooked(value) else NULL
    if not is_a(method, types.FunctionType) or rec.pure_base:
        return None
    made = rec.try_pure(Const(method), [value])
    return made if type(made) is Virtual and made.kind == "iterator" else None


def _zip(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if set(kwargs) - {"strict"} or type(kwargs.get("strict", Const(False))) is not Const:
        return NotModelled
    strict = bool(kwargs["strict"].obj) if kwargs else False
    sources = [_iterator_of(rec, arg) for arg in args]
    if any(source is None for source in sources):
        return NotModelled
    real = zip(*[source.obj for source in sources], strict=strict)  # type: ignore[union-attr, misc]
    return rec.virtual(real, "iterator", sources, how="zip", pos=0, strict=strict)  # type: ignore[arg-type]


def _reversed(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 1 or kwargs:
        return NotModelled
    source = rec.resolve(args[0])
    if type(source.obj) not in (tuple, list, range):
        return NotModelled
    if type(source) is Const and type(source.obj) is list and rec.list_is_dynamic(source.obj):
        return NotModelled
    return NotModelled if rec.known_items(source) is None else iteration.sequence_iterator(rec, source, "reversed")


def _iter(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    return iteration.get_iterator(rec, args[0]) if len(args) == 1 and not kwargs else NotModelled


def _next(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or not 1 <= len(args) <= 2 or type(args[0]) is not Virtual or args[0].kind != "iterator":
        return NotModelled
    item = iteration.advance(rec, args[0])
    if item is None:
        return NotModelled
    if item is iteration.END:
        if len(args) == 1:
            rec.abort("raised", "StopIteration")
        return args[1]
    return item  # type: ignore[no-any-return]


def _has_plain_truth(rec: Recorder, item: Value) -> bool:
    """Whether the truth of a value is known, or a branch, without a call."""
    item = rec.resolve(item)
    if type(item) is Traced:
        return rec.number_kind(item) is not None
    return operators.is_immutable(item.obj) or type(item) is Virtual and item.kind in ("tuple", "list", "dict")


def _any_all(stop_at: bool) -> Model:
    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if len(args) != 1 or kwargs or type(args[0]) is Virtual and args[0].kind == "iterator":
            return NotModelled
        if type(args[0]) is Virtual and args[0].kind == "generator":
            return _any_all_of(rec, args[0], stop_at)
        items = rec.known_items(args[0])
        if items is None or not all(_has_plain_truth(rec, item) for item in items):
            return NotModelled
        for item in items:
            if operators.decide(rec, operators.truth(rec, item)) is stop_at:
                return Const(stop_at)
        return Const(not stop_at)

    return model


def _any_all_of(rec: Recorder, generator: Virtual, stop_at: bool) -> Answer:
    found: list[bool] = []

    def visit(item: Value) -> bool:
        if not _has_plain_truth(rec, item):
            rec.abort("unsupported", "the truth of an object")
        found.append(operators.decide(rec, operators.truth(rec, item)))
        return found[-1] is stop_at

    if not generators.consume(rec, generator, visit):
        return NotModelled
    return Const(stop_at if found and found[-1] is stop_at else not stop_at)


# -------------------------------------------------------------------------------------------------- types and attributes
def _type(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) == 3:
        rec.named_by_caller(args)
    if len(args) != 1 or kwargs:
        return NotModelled
    value = args[0]
    if type(value) is Const:
        rec.pin_class_of(value.obj, rec.name_of(value))
    return Const(rec.type_of(value))


def _type_new(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) == 4:
        rec.named_by_caller(args[1:])
    return NotModelled


def _isinstance(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 2 or kwargs:
        return NotModelled
    classes = _classes(rec, args[1])
    if classes is None or not all(_plain_check(rec, cls, "__instancecheck__") for cls in classes):
        return NotModelled
    value = args[0]
    cls = rec.type_of(value)
    if type(value) is Const:
        rec.pin_class_of(value.obj, rec.name_of(value))
    if rec.read_type(cls, "__class__") is not object.__dict__["__class__"] and not is_a(value.obj, type):
        return NotModelled
    if not set(classes) & set(mro_of(cls)) and type(rec.read_type(cls, "__getattribute__")) is types.FunctionType:
        return NotModelled  # it may claim another class
    return Const(isinstance(value.obj, tuple(classes)))


def _issubclass(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 2 or kwargs or not is_a(args[0].obj, type):
        return NotModelled
    classes = _classes(rec, args[1])
    if classes is None or not all(_plain_check(rec, cls, "__subclasscheck__") for cls in classes):
        return NotModelled
    cls = rec.promote(args[0], "issubclass")
    return Const(issubclass(cls, tuple(classes)))


def _classes(rec: Recorder, value: Value) -> list[type] | None:
    """The classes of an isinstance check; None if they are not all plain classes."""
    value = rec.resolve(value)
    if is_a(value.obj, types.UnionType):
        items: list[Value] | None = [Const(arg) for arg in value.obj.__args__] if type(value) is Const else None
    elif is_a(value.obj, tuple):
        items = rec.known_items(value)
    else:
        items = [value]
    found: list[type] = []
    for item in items or ():
        if is_a(item.obj, tuple):
            inner = _classes(rec, item)
            if inner is None:
                return None
            found += inner
        elif is_a(item.obj, type):
            found.append(rec.promote(item, "isinstance"))
        else:
            return None
    return found if items is not None else None


# Metaclasses whose check looks at nothing but the classes involved, or is known to be stable for a type.
_CHECKED_BY_TYPE = {"ABCMeta", "_ABCMeta", "_ProtocolMeta", "_TensorMeta", "_ParameterMeta", "_BufferMeta", "EnumType", "EnumMeta"}


def _plain_check(rec: Recorder, cls: type, method: str) -> bool:
    meta = type(cls)
    return rec.read_type(meta, method) is getattr(type, method) or meta.__name__ in _CHECKED_BY_TYPE and meta.__name__ != "_ProtocolMeta"


def _callable(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) != 1 or kwargs:
        return NotModelled
    rec.type_of(args[0])
    return Const(callable(args[0].obj))


def _getattr(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or not 2 <= len(args) <= 3 or type(args[1].obj) is not str:
        return NotModelled
    name = rec.promote(args[1], "attribute name")
    found = rec.lookup(args[0], name)
    if found.how == "absent" and len(args) == 3:
        return args[2]
    if found.how == "call" and len(args) == 3:
        answer = _computed(rec, found, args[0])
        return NotModelled if answer is None else args[2] if answer is NULL else answer
    if found.how == "opaque":
        return rec.opaque(Const(getattr), args, {}, f"attribute {name}: {found.reason}")
    return rec.access(found, args[0], name)


def _hasattr(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) != 2 or type(args[1].obj) is not str:
        return NotModelled
    found = rec.lookup(args[0], rec.promote(args[1], "attribute name"))
    if found.how in ("value", "method", "absent"):
        return Const(found.how != "absent")
    if found.how == "opaque" and _is_bare_tensor(rec, args[0], args[1].obj):
        there = rec.write_call(hasattr, args, f"whether a tensor has the attribute {args[1].obj}")
        rec.mark_type(there, bool)
        return there
    answer = _computed(rec, found, args[0]) if found.how == "call" else None
    return NotModelled if answer is None else Const(answer is not NULL)


def _is_bare_tensor(rec: Recorder, value: Value, name: str) -> bool:
    """Whether only the instance dict of a tensor can have an attribute: looking runs no Python code."""
    cls = type(value.obj)
    if not rec.is_hooked(value) or getattr(cls, "__torch_function__", None) is None or type(value) is Virtual:
        return False
    return all(rec.read_type(rec.type_of(value), part) is NULL for part in (name, "__getattr__")) and \
        rec.read_type(cls, "__getattribute__") is object.__getattribute__


def _computed(rec: Recorder, found: Access, owner: Value) -> Any:
    """An attribute that Python code computes; NULL where that says that there is none; None where it cannot be known."""
    answer = rec.pure_or_raised(AttributeError, found.value, list(found.args))
    if answer is NULL:  # where a property has raised that, `__getattr__` comes next
        fallback = rec.read_type(type(owner.obj), "__getattr__")
        return NULL if fallback is NULL or fallback is found.value.obj else None
    return answer


def _setattr(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) != 3 or type(args[1].obj) is not str:
        return NotModelled
    name = rec.promote(args[1], "attribute name")
    if names.store_known(rec, rec.resolve(args[0]), name, args[2]):
        return Const(None)
    access = rec.store_access(args[0], name)
    if access.how == "call":
        return NotModelled
    names.store_attribute(rec, args[0], name, args[2])
    return Const(None)


def _object_setattr(rec: Recorder, args: Args, kwargs: Kwargs) -> Any:
    """object.__setattr__(self, name, value): into the instance dict of a constant or of a virtual instance."""
    if kwargs or len(args) != 3 or type(args[1]) is not Const or type(args[1].obj) is not str:
        return NotModelled
    owner, name = args[0], args[1].obj
    if type(owner) is Traced and not rec.is_run_time_instance(owner):
        return NotModelled
    if type(owner) is Virtual and owner.kind != "instance" or is_a(owner.obj, type | types.ModuleType):
        return NotModelled
    if name == "__class__":
        rec.abort("unsupported", "an assignment to __class__")
    of_type = rec.read_type(type(owner.obj), name)
    if hasattr(type(of_type), "__set__") or own_dict(owner.obj) is None:
        return NotModelled
    if type(owner) is Const:
        rec.pin_class_of(owner.obj, rec.name_of(owner))
    names.store_instance(rec, owner, name, args[2], object.__setattr__)
    return Const(None)


def _super(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) not in (0, 2):
        return NotModelled
    if args:
        made = make_super(rec, *args)
        return NotModelled if made is None else made
    frame = rec.frames[-1]
    names = frame.code.code.co_freevars
    if "__class__" in names and frame.code.code.co_argcount:
        cell = frame.locals[frame.code.names.index("__class__")]
        owner = frame.locals[0]
        if isinstance(owner, Virtual) and owner.kind == "cell":
            owner = owner.items[0]
        cls = cell.items[0] if isinstance(cell, Virtual) else rec.read_cell(cell.obj, "__class__")  # type: ignore[union-attr, arg-type]
        if isinstance(cls, Value) and isinstance(owner, Value) and (made := make_super(rec, cls, owner)) is not None:
            return made
    rec.abort("frame", "super() reads its caller's frame")
    return NotModelled


def make_super(rec: Recorder, cls: Value, owner: Value) -> Virtual | None:
    """`super(cls, owner)`, which depends on the type of `owner` (or, if that is a class, on itself); None where it cannot be known."""
    cls, owner = rec.resolve(cls), rec.resolve(owner)
    if type(cls) is not Const:
        return None
    try:
        real = super(cls.obj, owner.obj)  # type: ignore[arg-type]
    except TypeError:  # let CPython raise it
        return None
    if type(owner) is Traced and is_a(owner.obj, type):
        owner = rec.traced_owner(owner)
    elif type(owner) is Traced:
        rec.type_of(owner)
        owner = rec.resolve(owner)
    elif type(owner) is Const:
        rec.pin_class_of(owner.obj, rec.name_of(owner))
    return rec.virtual(real, "super", [cls, owner])


def _object_init(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return Const(None) if len(args) == 1 and not kwargs else NotModelled


def _object_new(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not args or type(args[0]) is not Const or not is_a(args[0].obj, type) or not calls.is_plain_class(args[0].obj):
        return NotModelled
    if len(args) > 1 or kwargs:
        return NotModelled
    return rec.virtual(rec.execute(object.__new__, args[0].obj), "instance", [], [], cls=args[0].obj)


def _partial(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if not args or is_a(args[0].obj, functools.partial):
        return NotModelled
    named = {key: value.obj for key, value in kwargs.items()}
    real: Any = functools.partial(args[0].obj, *[arg.obj for arg in args[1:]], **named)
    return rec.virtual(real, "partial", [*args, *kwargs.values()], list(kwargs))


def _globals(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return NotModelled if args or kwargs else Const(rec.frames[-1].globals, "globals()")


def _tuple_new(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    """tuple.__new__(cls, items), as named tuples use it."""
    if kwargs or len(args) != 2 or type(args[0]) is not Const or not hasattr(args[0].obj, "_fields"):
        return NotModelled
    items = rec.known_items(args[1])
    if items is None:
        return NotModelled
    return rec.virtual(tuple.__new__(args[0].obj, [item.obj for item in items]), "tuple", items, cls=args[0].obj)  # type: ignore[type-var]


# ----------------------------------------------------------------------------------------------------------- operator
def _str(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if len(args) == 1 and not kwargs and type(args[0].obj) is str:
        rec.type_of(args[0])
        return args[0]
    answer = fold(str)(rec, args, kwargs)
    rec.mark_type(answer, str)
    return answer


def _operator_models() -> dict[Any, Model]:
    models: dict[Any, Model] = {}

    def binary(name: str) -> Model:
        return lambda rec, args, kwargs: operators.binary(rec, name, *args) if len(args) == 2 and not kwargs else NotModelled

    def compare(name: str) -> Model:
        return lambda rec, args, kwargs: operators.compare(rec, name, *args) if len(args) == 2 and not kwargs else NotModelled

    def unary(name: str) -> Model:
        return lambda rec, args, kwargs: operators.unary(rec, name, args[0]) if len(args) == 1 and not kwargs else NotModelled

    models.update({function: binary(name) for name, function in operators.BINARY.items()})
    models.update({function: compare(name) for name, function in operators.COMPARE.items()})
    models.update({function: unary(name) for name, function in operators.UNARY.items()})
    models[operator.not_] = lambda rec, args, kwargs: operators.logical_not(rec, args[0]) if len(args) == 1 else NotModelled
    models[operator.truth] = lambda rec, args, kwargs: operators.truth(rec, args[0]) if len(args) == 1 else NotModelled
    models[operator.getitem] = lambda rec, args, kwargs: subscripts.subscript(rec, *args) if len(args) == 2 else NotModelled
    models[operator.is_] = lambda rec, args, kwargs: operators.identical(rec, *args) if len(args) == 2 else NotModelled
    models[operator.contains] = lambda rec, args, kwargs: subscripts.contains(rec, *args) if len(args) == 2 else NotModelled
    models[operator.index] = _int_index
    return models


def _int_index(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return args[0] if len(args) == 1 and not kwargs and rec.number_kind(args[0]) == "int" else NotModelled


# ------------------------------------------------------------------------------------------------------------- register
_MODELS: dict[Any, Model] = {
    len: _len, range: _range, slice: _slice, tuple: _tuple, list: _list, dict: _dict, set: _set, str: _str, enumerate: _enumerate,
    zip: _zip,
    reversed: _reversed, iter: _iter, next: _next, any: _any_all(True), all: _any_all(False), type: _type, isinstance: _isinstance,
    issubclass: _issubclass, callable: _callable, getattr: _getattr, hasattr: _hasattr, setattr: _setattr, super: _super,
    OrderedDict: _ordered_dict, object.__getattribute__: _getattribute, object.__init__: _object_init, object.__new__: _object_new,
    object.__setattr__: _object_setattr, tuple.__new__: _tuple_new, functools.partial: _partial, globals: _globals,
}
_FRAME_READERS: tuple[tuple[Any, str], ...] = (
    (locals, "reads the caller's locals"),
    (eval, "runs code in the caller's frame"), (exec, "runs code in the caller's frame"), (breakpoint, "starts a debugger"),
    (sys._getframe, "reads frames"), (inspect.currentframe, "reads frames"), (inspect.stack, "reads frames"),
    (compile, "inherits the future statements of its caller"),
    (sys._current_frames, "reads frames"), (sys._current_exceptions, "reads frames"), (typing.NewType, "names its caller's module"),
    (typing.NamedTuple, "names its caller's module"), (typing.TypedDict, "names its caller's module"),
    (typing.TypeVar, "names its caller's module"), (typing.ParamSpec, "names its caller's module"),
    (typing.TypeVarTuple, "names its caller's module"), (collections.namedtuple, "names its caller's module"),
    *((getattr(sys, name), "reads frames") for name in ("_getframemodulename",) if hasattr(sys, name)),
    *((getattr(typing, name), "names its caller's module") for name in ("TypeAliasType",) if hasattr(typing, name)),
    (sys.settrace, "installs a tracer"), (sys.setprofile, "installs a profiler"), (warnings.warn, "names its caller's line"),
    (_lsprof.Profiler.enable, "installs a profiler"),
    *((getattr(sys.monitoring, name), "installs a tool") for name in ("set_events", "set_local_events") if hasattr(sys, "monitoring")),
)
_BARE_FRAME_READERS: tuple[Any, ...] = (vars, dir)  # with an argument they look at that
_FORMATTERS: tuple[Any, ...] = (traceback.format_exc, traceback.print_exc, traceback.format_exception, traceback.print_exception,
                                traceback.format_exception_only, traceback.format_tb, traceback.print_tb, traceback.extract_tb)
# Protocols that are not made for it allow `issubclass` to these: they look for their frames.
_PROTOCOL_USERS: tuple[Any, ...] = (abc.ABCMeta.__instancecheck__, abc.ABCMeta.__subclasscheck__,
                                    *(getattr(functools, name) for name in ("_find_impl", "_compose_mro") if hasattr(functools, name)))
_CONSTANT_TYPES = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range, slice, types.CodeType)


def register(registry: Registry) -> None:
    """All of the above."""
    registry.constant_type(*_CONSTANT_TYPES)
    for key, model in {**_MODELS, **_operator_models()}.items():
        registry.function(key, model)
    registry.function(type.__new__, _type_new)
    for function, why in _FRAME_READERS:
        registry.frame_reader(function, why)
    for function in _BARE_FRAME_READERS:
        registry.frame_reader(function, "reads the caller's locals", bare=True)
    for function in _FORMATTERS:
        registry.never_inline(function, "formats tracebacks")
    for function in _PROTOCOL_USERS:
        registry.never_inline(function, "typing.Protocol looks whether it is below in the stack")
    registry.harmless_call(math.prod, set, sys.exc_info, sys.exception)
