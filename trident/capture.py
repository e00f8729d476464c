"""Which frames `frame_hook` captures: a rule that can be read.

Owns the rule. A frame is looked at once per code object: user and library functions are candidates; the standard library's, torch's,
Triton's and Trident's own are not, nor are generators, coroutines, class bodies and module bodies. A candidate is captured when
a tensor or an nn.Module is among its arguments (so code without tensors is left alone), and stays captured while that pays: its traces
have tensor operations, and its hits make up for its recordings (`Account`).

May import: ir, torch, the standard library.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from trident.ir import Trace
from trident.ir.describing import is_a

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
    value: Any
    for value in bound:
        if is_a(value, torch.Tensor | torch.nn.Module):
            return True
        parts = value.values() if is_a(value, dict) else value if is_a(value, tuple | list) else ()
        if any(is_a(part, torch.Tensor | torch.nn.Module) for part in parts):
            return True
    return False


FREE_RECORDINGS: Final = 16
HITS_PER_RECORDING: Final = 32
IDLE: Final = 2  # traces without tensor operations after which a function is left


@dataclass(slots=True)
class Account:
    """Recordings of a function that only the hook has captured: some are free, others are earned by hits.

    Nobody has asked for this very function, so one that is recorded again and again (each call brings new objects) is not to cost
    more than it gains."""

    recordings: int = 0
    idle: int = 0  # traces so far that were not what the hook is for

    def allows(self, hits: int) -> bool:
        """Whether another recording is due to a function with so many hits in all."""
        return self.recordings < FREE_RECORDINGS + hits // HITS_PER_RECORDING


def idle(traces: Iterable[Trace]) -> bool:
    """Whether the traces of a function are not what the hook is for: there is no tensor operation in them."""
    return not any(trace.operators or trace.launches for trace in traces)
