"""`trident.jit(module)`: a module whose call is native.

Owns the class made for a jitted module. What must hold: the jitted module and the original share one `__dict__`, so that
parameters, buffers, hooks, train/eval and state_dict are the same; only the call differs.

May import: torch, entry, options.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from trident.options import Options


def jit_module(module: torch.nn.Module, make: Callable[[FunctionType], Any], options: Options) -> torch.nn.Module:
    """A module of a subclass of type(module) that shares the module's state; `make` jits a function for this module."""
    original: Any = type(module)
    native = make(original.__call__)
    return _sharing(module, options, {
        # A staticmethod: the slot finds a plain native callable with the original module bound, and makes no frame.
        "__call__": staticmethod(MethodType(native, module)),
        "_trident_entry": native.__dict__["_trident_entry"],
        "specializations": property(lambda self: native.specializations),
        "reset": lambda self: native.reset(),
    })


def inert_module(module: torch.nn.Module, options: Options, why: str) -> torch.nn.Module:
    """The same where Trident is off: the call is the original's."""
    return _sharing(module, options, {
        "_trident_off": why, "specializations": property(lambda self: 0), "reset": lambda self: None})


def _sharing(module: torch.nn.Module, options: Options, members: dict[str, Any]) -> torch.nn.Module:
    original: Any = type(module)
    chosen = options.chosen()

    def again(other: torch.nn.Module) -> torch.nn.Module:
        from trident.api import jit

        made: torch.nn.Module = jit(other, **chosen)
        return made

    def reduce(self: torch.nn.Module, protocol: int) -> tuple[Any, ...]:
        from trident.api import jit

        return functools.partial(jit, **chosen), (module,)

    cls = type(original.__name__, (original,), {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        "__reduce_ex__": reduce,
        "__copy__": lambda self: again(copy.copy(module)),
        "__deepcopy__": lambda self, memo: again(copy.deepcopy(module, memo)),
        "__prepare_scriptable__": lambda self: module,  # for torch.jit.script, which compiles source code
        "__wrapped__": property(lambda self: module),
        **members,
    })
    jitted: torch.nn.Module = object.__new__(cls)
    object.__setattr__(jitted, "__dict__", module.__dict__)
    return jitted
