"""Which frames `frame_hook` captures: a rule that can be read.

Owns the rule. A frame is looked at once per code object: user and library functions are candidates; the standard library's, torch's,
Triton's and Trident's own are not, nor are generators, coroutines, class bodies and module bodies. A candidate is captured when
a tensor or an nn.Module is among its arguments (so code without tensors is left alone).

May import: torch, the standard library.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from types import CodeType, FunctionType

import torch

_NEVER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
_FOREIGN = ("torch", "triton", "trident", "torch_mlir", "llvmlite", "_pytest", "pluggy", "pytest")


def _directories() -> tuple[str, ...]:
    stdlib = [sysconfig.get_paths()["stdlib"] + os.sep, sysconfig.get_paths()["platstdlib"] + os.sep]
    return tuple(stdlib)


_STDLIB = _directories()


def wanted(code: CodeType, function: FunctionType) -> bool:
    """Whether frames of this code are candidates."""
    if code.co_flags & _NEVER or not code.co_flags & inspect.CO_NEWLOCALS or code.co_name.startswith("<"):
        return False
    module = (function.__globals__.get("__name__") or "").partition(".")[0]
    if module in _FOREIGN:
        return False
    file = code.co_filename
    return not (file.startswith("<frozen") or (file.startswith(_STDLIB) and "site-packages" not in file))


def reaches_tensors(bound: tuple[object, ...]) -> bool:
    """Whether a tensor or module is among the arguments, one level into tuples, lists and dicts."""
    for value in bound:
        if isinstance(value, torch.Tensor | torch.nn.Module):
            return True
        parts = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
        if any(isinstance(part, torch.Tensor | torch.nn.Module) for part in parts):
            return True
    return False
