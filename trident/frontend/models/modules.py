"""Models of `torch.nn.Module` and of what the standard library wraps around calls.

Owns the lookup of parameters, buffers and submodules, and which library functions are not followed into.

May import: torch, ir, frontend.{values,models}.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend.models import Registry
from trident.frontend.values import Const, Value, Virtual
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def _module_getattr(rec: Recorder, owner: Value, name: str) -> Any:
    """`nn.Module.__getattr__`: _parameters, _buffers, _modules, in this order."""
    if type(owner) is Virtual:
        rec.abort("unsupported", "a module that is made in the function")
    held = owner.obj.__dict__
    text = rec.name_of(owner)
    for table in ("_parameters", "_buffers", "_modules"):
        entry = rec.read_dict(held, table, f"{text}.{table}")
        if entry is NULL:
            continue
        if type(entry) is not Const or not isinstance(entry.obj, dict):
            rec.abort("unsupported", f"{text}.{table} is no dict")
        found = rec.read_dict(entry.obj, name, f"{text}.{name}")  # type: ignore[union-attr, arg-type]
        if found is not NULL:
            return found
    return NULL


def register(registry: Registry) -> None:
    """All of the above."""
    registry.constant_type(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size)
    registry.getattr_model(torch.nn.Module.__getattr__, _module_getattr)
    manager = contextlib._GeneratorContextManager
    registry.never_inline(manager.__enter__, "a generator context manager")
    registry.never_inline(manager.__exit__, "a generator context manager")
    for name in ("_compile", "compiler"):
        module = getattr(torch, name, None)
        for attribute in ("_disable_dynamo", "disable"):
            function = getattr(module, attribute, None)
            if function is not None:
                registry.never_inline(function, "a torch.compile directive")
