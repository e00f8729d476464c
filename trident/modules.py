"""`trident.jit(module)`: a module whose call is native.

Owns the class made for a jitted module. What must hold: the jitted module and the original share one `__dict__`, so that
parameters, buffers, hooks, train/eval and state_dict are the same; only the call differs.

May import: torch, entry, options.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import FunctionType, MethodType
from typing import Any

import torch

from trident.options import Options


def jit_module(module: torch.nn.Module, options: Options, make: Callable[[FunctionType, Options], Any]) -> torch.nn.Module:
    """A module of a subclass of type(module) that shares the module's state; `make` jits a function."""
    original: Any = type(module)
    native = make(original.__call__, options)

    def reduce(self: torch.nn.Module) -> tuple[Any, ...]:
        from trident.api import jit

        return jit, (module,)

    def deepcopy(self: torch.nn.Module, memo: dict[int, Any]) -> torch.nn.Module:
        from trident.api import jit

        return jit(copy.deepcopy(module, memo))

    cls = type(original.__name__, (original,), {
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
        "__doc__": original.__doc__,
        # A staticmethod: the slot finds a plain native callable with the original module bound, and makes no frame.
        "__call__": staticmethod(MethodType(native, module)),
        "__reduce_ex__": lambda self, protocol: reduce(self),
        "__deepcopy__": deepcopy,
        "__wrapped__": property(lambda self: module),
        "_trident_entry": native.__dict__["_trident_entry"],
        "specializations": property(lambda self: native.specializations),
        "reset": lambda self: native.reset(),
    })
    jitted: torch.nn.Module = object.__new__(cls)
    object.__setattr__(jitted, "__dict__", module.__dict__)
    return jitted
