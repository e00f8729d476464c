"""Facts about values: exact types, constants by promotion, forms (boxed, unboxed, converted) and materialised virtual objects.

Owns which guard establishes which fact. What must hold: a fact is established once and kept on the Value; a constant's facts
need no guard; nothing here executes user code except the making of virtual objects that escape.

May import: ir, frontend.{core,values,virtuals}.
"""

from __future__ import annotations

import functools
import types
from collections import OrderedDict
from typing import Any

from torch_mlir import ir as mlir

from trident.frontend.aborts import Leave, RecorderBug
from trident.frontend.core import Core
from trident.frontend.frames import Entry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import C_METHODS, CONTENTS, MUTABLE, contents_of, dict_base, make_function, maker_of
from trident.ir import NULL, OpaqueCall
from trident.ir.describing import describe, is_a

# Immutable classes whose instances are promoted by value, and the op that compares; models add theirs.
BY_VALUE: dict[type, str] = {str: "str_is"}
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


def fits(number: int) -> bool:
    """Whether an int fits int64."""
    return _INT_MIN <= number <= _INT_MAX


class Guarding(Core):
    """See the module."""

    # ----------------------------------------------------------------------------------------------------- types
    def type_of(self, value: Value) -> type:
        """The exact type; guarded once where the trace does not know it."""
        value = self.resolve(value)
        if type(value) is not Traced:
            return type(value.obj)
        if value.known_type is None:
            self._guard_type(value)
        return value.known_type  # type: ignore[return-value]

    def _guard_type(self, value: Traced) -> None:
        obj, cls, name = value.obj, type(value.obj), value.origin or "value"
        if cls is int and fits(obj):  # type: ignore[arg-type]
            self.guard_argument("int_fits", value, "type", f"type({name}) is int")
            value.facts["fits"] = True
        elif obj is None:
            index = self.builder.constant_index(None)
            self.guard_argument("is_constant", value, "identity", f"{name} is None", index=index)
            value.facts["constant"] = Const(None, value.origin)
        else:
            index = self.builder.constant_index(cls)
            self.guard_argument("type_is", value, "type", f"type({name}) is {cls.__qualname__}", index=index)
        value.known_type = cls

    def number_kind(self, value: Value) -> str | None:
        """"int", "float" or "bool" if the value is an exact number that has an unboxed form (guarded), else None."""
        value = self.resolve(value)
        obj = value.obj
        cls = type(obj)
        if cls is not int and cls is not float and cls is not bool:
            return None
        if cls is int and not fits(obj):  # type: ignore[arg-type]
            return None
        if type(value) is Traced and value.known_type is None:
            self._guard_type(value)
        if type(value) is Traced and cls is int and value.kind == "object" and not value.facts.get("fits"):
            self.guard(self.builder.op("int_fits", value.ssa), True, "type", f"{value.origin or 'value'} fits int64")
            value.facts["fits"] = True
        return cls.__name__

    # ----------------------------------------------------------------------------------------------------- forms
    def ssa(self, value: Value, kind: str) -> mlir.Value:
        """The value as an SSA value of kind tensor, int, float, bool or object: guarded, unboxed, boxed, materialised as needed."""
        value = self.resolve(value)
        if type(value) is Const:
            if kind == "object" and id(value) in self.equal_to:
                return self.equal_to[id(value)].ssa
            return self._const_ssa(value.obj, kind)
        if type(value) is Virtual:
            if kind != "object":
                raise RecorderBug(f"a virtual {value.kind} has no form {kind}")
            return self.materialise(value)
        assert type(value) is Traced
        own = value.kind
        if own == kind:
            return value.ssa
        if kind == "object":
            if value.boxed is None:
                value.boxed = self.builder.op("box", value.ssa)
            return value.boxed
        found = value.unboxed.get(kind)
        if found is None:
            found = value.unboxed[kind] = self._convert(value, own, kind)
        return found

    def _convert(self, value: Traced, own: str, kind: str) -> mlir.Value:
        if own == "object":
            if kind == "tensor":
                self.type_of(value)
                return self.builder.op("unbox_tensor", value.ssa)
            natural = self.number_kind(value)
            if natural is None:
                raise RecorderBug(f"{type(value.obj).__name__} has no form {kind}")
            if natural == kind:
                return self.builder.op(f"unbox_{kind}", value.ssa)
            own = natural
        source = value.ssa if value.kind == own else self.ssa(value, own)
        match own, kind:
            case "bool", "int":
                return self.builder.op("bool_to_int", source)
            case "int", "float":
                self.may_exit()
                return self.builder.op("int_to_float", source)
            case "bool", "float":
                self.may_exit()
                return self.builder.op("int_to_float", self.ssa(value, "int"))
        raise RecorderBug(f"no conversion from {own} to {kind}")

    def _const_ssa(self, obj: Any, kind: str) -> mlir.Value:
        match kind:
            case "object":
                return self.builder.constant(obj)
            case "int" if is_a(obj, int):
                return self.builder.int(int(obj))
            case "float" if is_a(obj, float | int):
                return self.builder.float(float(obj))
            case "bool" if is_a(obj, bool):
                return self.builder.bool(obj)
            case "tensor":
                return self._const_tensor(obj)
        raise RecorderBug(f"{type(obj).__name__} has no form {kind}")

    def _const_tensor(self, obj: object) -> mlir.Value:
        cache: dict[int, mlir.Value] = self.__dict__.setdefault("_const_tensors", {})
        if id(obj) not in cache:
            cache[id(obj)] = self.builder.op("unbox_tensor", self.builder.constant(obj))
        return cache[id(obj)]

    # ------------------------------------------------------------------------------------------------- promotion
    def promote(self, value: Value, why: str) -> Any:
        """The value as a constant of the trace: guards it if it is traced."""
        value = self.resolve(value)
        if type(value) is Const:
            return value.obj
        if type(value) is Virtual:
            if value.kind in MUTABLE and value.kind != "dict":
                raise Leave("promote", f"{why}: a new {value.kind} is needed as a constant")
            for item in value.items:
                self.promote(item, why)
            return value.obj
        assert type(value) is Traced
        self._guard_value(value, why)
        constant = value.facts["constant"] = Const(value.obj, value.origin)
        if value.kind == "object" and type(value.obj) in BY_VALUE:
            self.equal_to[id(constant)] = value
        return value.obj

    def _guard_value(self, value: Traced, why: str) -> None:
        obj, name = value.obj, value.origin or "value"
        natural = self.number_kind(value) if value.kind != "tensor" else None
        if natural == "bool":
            self.guard(self.ssa(value, "bool"), bool(obj), "value", f"{name} is {obj} ({why})")
        elif natural == "int":
            cond = self.builder.op("eq_int", self.ssa(value, "int"), self.builder.int(obj))  # type: ignore[arg-type]
            self.guard(cond, True, "value", f"{name} == {obj} ({why})")
        elif natural == "float" and obj == obj and obj != 0.0:  # NaN and the two zeros have no guard by value
            cond = self.builder.op("eq_float", self.ssa(value, "float"), self.builder.float(obj))  # type: ignore[arg-type]
            self.guard(cond, True, "value", f"{name} == {obj} ({why})")
        elif value.kind == "object" and type(obj) in BY_VALUE:
            if type(obj) is not str:  # that op compares the type too
                self.type_of(value)
            text = f"{name} == {describe(obj)} ({why})"
            self.guard_argument(BY_VALUE[type(obj)], value, "value", text, index=self.builder.constant_index(obj))
            value.known_type = type(obj)
        elif value.kind == "object" and not (value.facts.get("fresh") and is_made_anew(obj)):
            text = f"{name} is {describe(obj)} ({why})"
            self.guard_argument("is_constant", value, "identity", text, index=self.builder.constant_index(obj))
            self.identified.setdefault(value.facts.get("position", -1), obj)
        else:
            raise Leave("promote", f"{why}: {name} ({type(obj).__name__}) cannot be a constant")

    def guard_identity(self, value: Traced, text: str) -> None:
        """Guard that an object value is the object of this execution."""
        self.guard_argument("is_constant", value, "identity", text, index=self.builder.constant_index(value.obj))
        self.identified.setdefault(value.facts.get("position", -1), value.obj)
        value.facts["constant"] = Const(value.obj, value.origin)
        value.known_type = type(value.obj)

    # --------------------------------------------------------------------------------------------------- virtual
    def virtual(self, obj: object, kind: str, items: list[Value], keys: list[object] | None = None, **state: object) -> Virtual:
        """A new virtual object of one of the recorder's own kinds (see virtuals.KINDS)."""
        self.births += 1
        state["birth"] = self.births
        return Virtual(obj, kind, items, keys=keys, state=state)

    def virtual_tuple(self, items: list[Value]) -> Value:
        """A tuple; a constant if all items are constants of immutable types."""
        return self.virtual(tuple(item.obj for item in items), "tuple", list(items))

    def virtual_list(self, items: list[Value]) -> Virtual:
        """A new list."""
        return self.virtual([item.obj for item in items], "list", list(items))

    def virtual_dict(self, keys: list[object], items: list[Value]) -> Virtual:
        """A new dict of constant keys."""
        return self.virtual(dict(zip(keys, (item.obj for item in items), strict=True)), "dict", list(items), list(keys))

    def fix_order(self, virtual: Virtual) -> None:
        """Guard that the dict that an unchanged copy was made of (state "source") has its keys in this order.

        Keyword arguments are the same call in any order, so their order is guarded only where it can be seen."""
        source = virtual.state.get("source")
        if type(source) is not Traced or len(virtual.items) < 2:
            virtual.state.pop("source", None)
            return
        keys: list[object] = list(source.obj)  # type: ignore[call-overload]
        if set(keys) != set(virtual.keys or ()):
            raise Leave("unsupported", "the order of keyword arguments that were changed meanwhile")
        virtual.items = [virtual.items[virtual.keys.index(key)] for key in keys]  # type: ignore[union-attr]
        virtual.keys = keys
        cond = self.builder.op("dict_keys_are", self.ssa(source, "object"), index=self.builder.constant_index(tuple(keys)))
        self.guard(cond, True, "key", f"keys of {source.origin or 'the keyword arguments'} are {', '.join(map(str, keys))}")
        del virtual.state["source"]
        self.snapshots.invalidate()

    def virtualise(self, obj: Any) -> Value:
        """The Value of an object that has just been made from constants: containers and plain instances by their parts."""
        if type(obj) in (dict, OrderedDict):
            return self.virtual(obj, "dict", [self.virtualise(item) for item in obj.values()], list(obj), cls=type(obj))
        if type(obj) is list:
            return self.virtual(obj, "list", [self.virtualise(item) for item in obj])
        if type(obj) is set:
            return self.virtual(obj, "set", [Const(item) for item in obj])
        return Const(obj)

    def materialise(self, virtual: Virtual) -> mlir.Value:
        """The SSA object of a virtual object, which escapes by this: mutable kinds are traced objects from here on."""
        if virtual.escaped is None:
            if "source" in virtual.state:
                self.fix_order(virtual)
            virtual.escaped = self._make(virtual)
            if self.shadow is not None:
                self.shadow.result(virtual.obj, virtual.escaped)
            self.snapshots.invalidate()
            self._after_escape(virtual)
        return virtual.escaped

    def _after_escape(self, virtual: Virtual) -> None:
        if virtual.kind in MUTABLE:
            traced = Traced(virtual.obj, virtual.escaped, "", type(virtual.obj))
            traced.facts["fresh"] = traced.facts["new"] = True
            virtual.state["traced"] = traced
            if virtual.kind == "cell":
                virtual.state["content"] = (self.epoch, virtual.items[0])

    def _make(self, virtual: Virtual) -> mlir.Value:
        builder, kind = self.builder, virtual.kind
        if kind == "function":
            return self._make_function(virtual)
        if kind == "instance":
            return self._make_instance(virtual)
        if "part" in virtual.state:
            raise Leave("unsupported", "the contents of an object escape without it")
        items = [self.item_ssa(item) for item in virtual.items]
        if kind == "tuple":
            made, cls = builder.op("build_tuple", values=items), virtual.state.get("cls", tuple)
            if cls is tuple:
                return made
            if hasattr(cls, "_fields"):  # a named tuple, whose own __new__ may do anything
                return self.make_call(tuple.__new__, [builder.constant(cls), made], (), "named tuple")
            return self.make_call(cls, [made], (), getattr(cls, "__name__", "tuple"))
        if kind == "generator":
            return self.make_call(types.FunctionType.__call__, items, (), "generator")
        if kind == "vars":
            return self.make_call(getattr, [*items, builder.constant("__dict__")], (), "instance dict")
        if kind == "iterator" and virtual.state["pos"] == 0 and virtual.state["how"] in ("seq", "reversed") \
                and virtual.state.get("start") in (None, len(virtual.items[0].obj)):  # type: ignore[union-attr, arg-type]
            return self.make_call(iter if virtual.state["how"] == "seq" else reversed, items, (), "iterator")
        if kind == "list":
            return builder.op("build_list", values=items)
        if kind == "set":
            return self.make_call(set, [builder.op("build_tuple", values=items)] if items else [], (), "set")
        if kind == "slice":
            return builder.op("build_slice", *items)
        if kind == "dict":
            flat = [part for key, item in zip(virtual.keys or (), items, strict=True) for part in (builder.constant(key), item)]
            made, cls = builder.op("build_dict", values=flat), virtual.state.get("cls", dict)
            return made if cls is dict else self.make_call(cls, [made], (), cls.__name__)  # type: ignore[attr-defined]
        maker = _C_MAKERS.get(kind)
        if kind == "method" and type(virtual.items[0].obj) in C_METHODS:  # type: ignore[union-attr]
            found: Any = virtual.items[0].obj  # type: ignore[union-attr]
            if virtual.items[1].obj is None:  # type: ignore[union-attr]  # which `__get__` takes for no owner
                return self.make_call(getattr, [items[1], builder.constant(found.__name__)], (), kind)
            # CPython looks into the class that it is given, also where none is.
            return self.make_call(type(found).__get__, [*items, builder.constant(found.__objclass__)], (), kind)
        kwnames: tuple[str, ...] = ()
        if maker is None or any(item is None for item in items):
            present = [item for item in items if item is not None]
            if len(present) != len(items):
                if kind != "cell":
                    raise RecorderBug(f"a virtual {kind} with a missing item")
                return self.make_call(types.CellType, [], (), "cell")
            return self.make_call(maker_of(virtual), items, (), kind, native=False)
        if kind == "partial":
            kwnames = tuple(virtual.keys or ())  # type: ignore[arg-type]
        return self.make_call(maker, items, kwnames, kind)

    def _make_instance(self, virtual: Virtual) -> mlir.Value:
        """An instance of a plain class, or of a subclass of a dict."""
        builder, cls = self.builder, virtual.state["cls"]
        base: Any = dict_base(cls) or object  # type: ignore[arg-type]
        held = contents_of(virtual)
        pairs = [] if held is None else [(key, self.item_ssa(item)) for key, item in zip(held.keys or (), held.items, strict=True)]
        named = [pair for pair in zip(virtual.keys or (), virtual.items, strict=True) if pair[0] is not CONTENTS]
        attributes = [(name, self.item_ssa(item)) for name, item in named]
        made = self.make_call(base.__new__, [builder.constant(cls)], (), "instance")
        for key, item in pairs:
            self.make_call(base.__setitem__, [made, builder.constant(key), item], (), "instance")
        for name, item in attributes:
            self.make_call(object.__setattr__, [made, builder.constant(name), item], (), "instance")
        return made

    def _make_function(self, virtual: Virtual) -> mlir.Value:
        """A function from MAKE_FUNCTION; its cells escape with it."""
        code, globals_ = virtual.state["code"], virtual.state["globals"]
        defaults, kwdefaults, annotations = virtual.items[:3]
        cells = [self.item_ssa(cell) for cell in virtual.items[3:]]
        builder = self.builder
        if annotations is not NULL and not (type(annotations) is Virtual and annotations.kind == "tuple"):
            parts = [builder.constant(code), builder.constant(globals_)]
            parts += [builder.constant(NULL) if item is NULL else self.item_ssa(item) for item in (defaults, kwdefaults, annotations)]
            return self.make_call(make_function, [*parts, builder.op("build_tuple", values=cells)], (), "function", native=False)
        parts = [builder.constant(code), builder.constant(globals_), builder.constant(code.co_name),  # type: ignore[attr-defined]
                 builder.constant(None) if defaults is NULL else self.item_ssa(defaults),
                 builder.op("build_tuple", values=cells) if cells else builder.constant(None)]
        noted: dict[str, mlir.Value] = {}
        if kwdefaults is not NULL:
            noted["__kwdefaults__"] = self.item_ssa(kwdefaults)
        if annotations is not NULL:
            noted["__annotations__"] = builder.op("build_dict", values=[self.item_ssa(item) for item in annotations.items])  # type: ignore[union-attr]
        made = self.make_call(types.FunctionType, parts, (), "function")
        for name, item in noted.items():
            self.make_call(object.__setattr__, [made, builder.constant(name), item], (), "function")
        return made

    def item_ssa(self, item: Entry) -> Any:
        """The SSA object of an item, None for an empty one."""
        return None if item is NULL else self.ssa(item, "object")  # type: ignore[arg-type]

    def make_call(self, fn: Any, args: list[mlir.Value], kwnames: tuple[str, ...], what: str, *, native: bool = True) -> mlir.Value:
        """A call that only makes an object; not executed here, because the object exists already. native: it runs no Python code."""
        self.effect()
        info = OpaqueCall(getattr(fn, "__qualname__", type(fn).__name__), f"makes a {what} that escapes",
                          self.builder.file, self.builder.line)
        made = self.builder.call(self.builder.constant(fn), args, kwnames, info, native=native)
        # Nothing that counts was changed: exits may follow, and the next state must hold the object instead of a recipe for it.
        self.state_serial = self.effect_serial = 0
        return made


_C_MAKERS: dict[str, Any] = {
    "method": types.MethodType,
    "range": range,
    "cell": types.CellType,
    "super": super,
    "partial": functools.partial,
}


def is_made_anew(obj: Any) -> bool:
    """Whether a result of a call is likely to be another object next time (then guarding its identity makes no sense)."""
    if obj is None or is_a(obj, type | types.ModuleType | bool | str):
        return False
    if is_a(obj, types.FunctionType):
        return "<locals>" in obj.__qualname__
    if is_a(obj, types.BuiltinFunctionType):
        return not (obj.__self__ is None or is_a(obj.__self__, types.ModuleType))
    return True
