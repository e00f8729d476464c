"""Globals, attributes and imports.

May import: frontend.*, ir.
"""

from __future__ import annotations

import operator
import sys
import types
from typing import TYPE_CHECKING, Any

from trident.frontend import subscripts
from trident.frontend.aborts import Leave
from trident.frontend.analysis import Instruction
from trident.frontend.calls import INLINED
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.handlers import handles
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Traced, Value, Virtual, own_dict
from trident.ir import NULL, PinKind
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def read_global(rec: Recorder, frame: RecordedFrame, name: str) -> Value:
    """A global, or a builtin."""
    found = rec.read_dict(frame.globals, name, name)
    if found is NULL:
        found = rec.read_dict(frame.builtins, name, name)
    if found is NULL:
        raise Leave("raised", f"name {name} is not defined")
    return found  # type: ignore[return-value]


@handles("LOAD_GLOBAL")
def load_global(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push a global; below it NULL if the low bit of the argument is set."""
    value = read_global(rec, frame, frame.code.code.co_names[ins.arg >> 1])
    if ins.arg & 1:
        frame.stack.append(NULL)
    frame.stack.append(value)


@handles("STORE_GLOBAL")
def store_global(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Set a global."""
    name = frame.code.code.co_names[ins.arg]
    rec.store_dict(frame.globals, name, frame.pop_value(), f"global {name} = …")


@handles("DELETE_GLOBAL")
def delete_global(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Unset a global."""
    name = frame.code.code.co_names[ins.arg]
    if name not in frame.globals:
        raise Leave("raised", f"name {name} is not defined")
    rec.write_call(operator.delitem, [Const(frame.globals), Const(name)], f"del of the global {name}")
    rec.note_store(frame.globals, name, NULL, PinKind.DICT)


@handles("LOAD_ASSERTION_ERROR")
def load_assertion_error(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push AssertionError."""
    frame.stack.append(Const(AssertionError))


@handles("LOAD_BUILD_CLASS")
def load_build_class(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push `__build_class__`."""
    found = rec.read_dict(frame.builtins, "__build_class__", "__build_class__")
    if found is NULL:
        raise Leave("raised", "__build_class__ not found")
    frame.stack.append(found)


# ---------------------------------------------------------------------------------------------------------- attributes
def load_attribute(rec: Recorder, frame: RecordedFrame, owner: Value, name: str) -> None:
    """Push `owner.name`; the owner has been popped."""
    result = rec.access(rec.lookup(owner, name), owner, name)
    if result is not INLINED:
        frame.stack.append(result)


def load_method(rec: Recorder, frame: RecordedFrame, owner: Value, name: str) -> None:
    """Push what a CALL expects: function and self, or NULL and the attribute; the owner has been popped."""
    found = rec.lookup(owner, name)
    if found.how == "method" and not (isinstance(found.self, Const) and is_a(found.self.obj, type) and found.self is not owner):
        frame.stack += [found.value, found.self]
        return
    if found.how == "call":
        rec.pending = ([*frame.stack, NULL, frame.before[-1]], 1)
    result = rec.access(found, owner, name)
    if result is not INLINED:
        frame.stack += [NULL, result]


@handles("LOAD_METHOD")
def load_method_311(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push a method for CALL."""
    load_method(rec, frame, frame.pop_value(), frame.code.code.co_names[ins.arg])


def store_known(rec: Recorder, owner: Value, name: str, item: Value) -> bool:
    """`owner.name = item` by a model, where there is one."""
    return rec.is_hooked(owner) and registry().try_hooks("store_attribute", rec, owner, name, item) is not NotModelled


def store_attribute(rec: Recorder, owner: Value, name: str, item: Value) -> Any:
    """`owner.name = item`: None, or INLINED."""
    owner = rec.resolve(owner)
    if store_known(rec, owner, name, item):
        return None
    access = rec.store_access(owner, name)
    owner = rec.resolve(owner)
    if access.how == "call":
        return rec.call_discard(access.value, [*access.args, item])
    if access.how == "value":
        store_instance(rec, owner, name, item, setattr)
        return None
    rec.opaque(Const(setattr), [owner, Const(name), item], {}, f"store to {rec.name_of(owner)}.{name}: {access.reason}")
    return None


def store_instance(rec: Recorder, owner: Value, name: str, item: Value, setter: Any) -> None:
    """Store into the instance dict of a constant or of a virtual instance, by `setter`."""
    if type(owner) is Virtual and subscripts.reaches(rec, item, owner):
        rec.materialise(owner)
        rec.opaque(Const(setter), [owner, Const(name), item], {}, f"{name} = an object that holds its owner")
        return
    if type(owner) is Virtual:
        assert owner.keys is not None
        rec.mutation(owner)
        rec.execute(setter, owner.obj, name, item.obj)
        if name in owner.keys:
            owner.items[owner.keys.index(name)] = item
        else:
            owner.keys.append(name)
            owner.items.append(item)
        return
    if isinstance(owner, Traced):
        rec.store_instance_item(owner, name, item, setter)
        return
    held = own_dict(owner.obj)
    rec.pin_dict_of(owner.obj, held, rec.name_of(owner))
    rec.write_call(setter, [owner, Const(name), item], f"{rec.name_of(owner)}.{name} = …")
    rec.note_store(held, name, item, PinKind.DICT)


@handles("STORE_ATTR")
def store_attr(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Set an attribute."""
    owner = frame.pop_value()
    item = frame.pop_value()
    store_attribute(rec, owner, frame.code.code.co_names[ins.arg], item)


@handles("DELETE_ATTR")
def delete_attr(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Delete an attribute."""
    owner, name = rec.resolve(frame.pop_value()), frame.code.code.co_names[ins.arg]
    if type(owner) is Virtual and owner.kind == "instance" and rec.read_type(type(owner.obj), "__delattr__") is object.__delattr__ \
            and not hasattr(type(rec.read_type(type(owner.obj), name)), "__delete__"):
        keys = owner.keys
        if keys is None or name not in keys:
            raise Leave("raised", f"no attribute {name}")
        rec.mutation(owner)
        rec.execute(delattr, owner.obj, name)
        where = keys.index(name)
        del keys[where], owner.items[where]
        return
    rec.check_function_part(owner, name)
    rec.opaque(Const(delattr), [owner, Const(name)], {}, f"del of the attribute {name}")


# ------------------------------------------------------------------------------------------------------------- imports
@handles("IMPORT_NAME")
def import_name(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """`import`: a module that is in sys.modules already is pinned there; another one is imported by an opaque call."""
    fromlist, level = frame.pop_value(), frame.pop_value()
    name = frame.code.code.co_names[ins.arg]
    importer = rec.read_dict(frame.builtins, "__import__", "__import__")
    module = None
    if importer is not NULL and importer.obj is __import__ and level.obj == 0:  # type: ignore[union-attr]
        module = _loaded(rec, name, fromlist.obj)
    if module is None:
        arguments = [Const(name), Const(frame.globals), Const(None), fromlist, level]
        module = rec.opaque(importer, arguments, {}, f"import of {name}")  # type: ignore[arg-type]
    frame.stack.append(module)


def _loaded(rec: Recorder, name: str, fromlist: Any) -> Value | None:
    """The module that an absolute import yields, if nothing has to be loaded for it."""
    module = sys.modules.get(name)
    if not is_a(module, types.ModuleType):
        return None
    if fromlist and not all(part in module.__dict__ for part in fromlist):
        return None
    found: Entry = rec.read_dict(sys.modules, name, f"sys.modules[{name!r}]")
    if not fromlist and "." in name:
        found = rec.read_dict(sys.modules, name.partition(".")[0], f"sys.modules[{name.partition('.')[0]!r}]")
    return found if isinstance(found, Value) else None


@handles("IMPORT_FROM")
def import_from(rec: Recorder, frame: RecordedFrame, ins: Instruction) -> None:
    """Push an attribute of the module on top of the stack, which stays."""
    module, name = rec.resolve(frame.stack[-1]), frame.code.code.co_names[ins.arg]  # type: ignore[arg-type]
    found = rec.lookup(module, name)
    if found.how != "value":
        raise Leave("unsupported", f"from … import {name}")
    frame.stack.append(found.value)
