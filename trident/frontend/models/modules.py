"""Models of `torch.nn.Module` and of what the standard library wraps around calls.

Owns the lookup of parameters, buffers and submodules, and which library functions are not followed into.

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.values import Const, Traced, Value, Virtual, own_dict
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def _module_getattr(rec: Recorder, owner: Value, name: str) -> Any:
    """`nn.Module.__getattr__`: _parameters, _buffers, _modules, in this order."""
    if type(owner) is Virtual:
        return _virtual_getattr(rec, owner, name)
    if type(owner) is Traced:
        return _run_time_getattr(rec, owner, name)
    held = own_dict(owner.obj)
    text = rec.name_of(owner)
    for table in ("_parameters", "_buffers", "_modules"):
        entry = rec.read_dict(held, table, f"{text}.{table}")
        if entry is NULL:
            continue
        if type(entry) is not Const or not is_a(entry.obj, dict):
            rec.abort("unsupported", f"{text}.{table} is no dict")
        found = rec.read_dict(entry.obj, name, f"{text}.{name}")  # type: ignore[union-attr, arg-type]
        if found is not NULL:
            return found
    return NULL


def _run_time_getattr(rec: Recorder, owner: Traced, name: str) -> Any:
    """The same on a module that is another one each time."""
    text = rec.name_of(owner)
    for table in ("_parameters", "_buffers", "_modules"):
        held = rec.read_instance(owner, table, f"{text}.{table}")
        if held is NULL:
            continue
        if type(held) is not Traced or type(held.obj) not in (dict, OrderedDict):
            rec.abort("unsupported", f"{text}.{table} is no dict")
        rec.type_of(held)  # type: ignore[arg-type]
        found = rec.load_key(held, name, f"{text}.{name}")  # type: ignore[arg-type]
        if found is not NULL:
            return found
    return NULL


def _virtual_getattr(rec: Recorder, owner: Virtual, name: str) -> Any:
    """The same on a module that the function itself has made."""
    parts = dict(zip(owner.keys or (), owner.items, strict=True))
    for table in ("_parameters", "_buffers", "_modules"):
        entry = rec.resolve(parts[table]) if table in parts else None
        if type(entry) is not Virtual or entry.kind != "dict" or entry.keys is None:
            rec.abort("unsupported", "a module that is made in the function and escapes from it")
        if name in entry.keys:  # type: ignore[union-attr]
            return entry.items[entry.keys.index(name)]  # type: ignore[union-attr]
    return NULL


def _slice_of_modules(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`ModuleList.__getitem__` and `Sequential.__getitem__` with a slice: a new container of the same modules."""
    if len(args) != 2 or kwargs or type(args[0]) is not Const or type(args[1].obj) is not slice:
        return NotModelled
    owner: Any = args[0].obj
    if type(owner) not in (torch.nn.ModuleList, torch.nn.Sequential):
        return NotModelled
    where = rec.promote(args[1], f"slice of {rec.name_of(args[0])}")
    modules = rec.read_dict(owner.__dict__, "_modules", f"{rec.name_of(args[0])}._modules")
    if type(modules) is not Const:
        return NotModelled
    rec.dict_items(modules.obj, f"{rec.name_of(args[0])}._modules")  # type: ignore[arg-type]
    made = rec.execute(type(owner).__getitem__, owner, where)
    parts = made.__dict__
    return rec.virtual(made, "instance", [rec.virtualise(part) for part in parts.values()], list(parts), cls=type(owner))


def register(registry: Registry) -> None:
    """All of the above."""
    registry.constant_type(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
    registry.getattr_model(torch.nn.Module.__getattr__, _module_getattr)
    for cls in (torch.nn.ModuleList, torch.nn.Sequential):
        registry.function(cls.__getitem__, _slice_of_modules)
    manager = contextlib._GeneratorContextManager
    registry.never_inline(manager.__enter__, "a generator context manager")
    registry.never_inline(manager.__exit__, "a generator context manager")
    catching: tuple[Any, ...] = (os.getenv, Mapping.get, Mapping.__contains__, type(os.environ).__getitem__)
    for function in catching:
        registry.never_inline(function, "it catches an exception where a key is absent")
    for name in ("_compile", "compiler"):
        module = getattr(torch, name, None)
        for attribute in ("_disable_dynamo", "disable"):
            function = getattr(module, attribute, None)
            if function is not None:
                registry.never_inline(function, "a torch.compile directive")
