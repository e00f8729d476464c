"""What operators ask of torch's state when they run: a graph has the answers of its capture built in.

Owns the table of questions (C++ functions of torch by their symbols) and `snapshot`, their answers now as rows that native code compares.
What must hold: whatever an operator of ATen may ask is here, or is compared elsewhere (this thread's dispatch keys and modes, profilers,
the current stream), or cannot change.

May import: native.{engine,replay_layout,symbols}. Uses torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trident.backend.native import engine, symbols
from trident.backend.native.replay_layout import ARRAY_BYTES, FOLD, RowKind
from trident.backend.replay.split import Unfit

_BYTE: Final = 0xFF
_CONTEXT: Final = "_ZN2at13globalContextEv"


@dataclass(frozen=True, slots=True)
class Question:
    """symbol: of a function, of at::Context where `context`, with these arguments behind. mask: of its answer. optional: not every torch
    that is supported has it."""

    what: str
    symbol: str
    context: bool = True
    arguments: tuple[int, ...] = ()
    mask: int = _BYTE
    kind: RowKind = RowKind.FIRST
    optional: bool = False


def _flag(what: str, name: str, *, const: bool = True, optional: bool = False) -> Question:
    return Question(what, f"_ZN{'K' if const else ''}2at7Context{len(name)}{name}Ev", optional=optional)


_PRECISION: Final = "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE"
_GENERIC, _CUDA, _ALL, _OPERATIONS = 0, 1, 0, {1: "convolutions", 2: "recurrent layers", 3: "matrix products"}

QUESTIONS: Final[tuple[Question, ...]] = (
    _flag("deterministic algorithms", "deterministicAlgorithms"),
    _flag("deterministic algorithms, warnings only", "deterministicAlgorithmsWarnOnly"),
    _flag("deterministic algorithms, filling of new memory", "deterministicFillUninitializedMemory"),
    Question("precision of float32", _PRECISION, arguments=(_GENERIC, _ALL)),
    Question("precision of float32 on CUDA", _PRECISION, arguments=(_CUDA, _ALL)),
    *(Question(f"precision of float32 on CUDA, {what}", _PRECISION, arguments=(_CUDA, op)) for op, what in _OPERATIONS.items()),
    _flag("fp16 reductions in cuBLAS", "allowFP16ReductionCuBLAS"),
    _flag("bf16 reductions in cuBLAS", "allowBF16ReductionCuBLAS"),
    _flag("fp16 accumulation in cuBLAS", "allowFP16AccumulationCuBLAS"),
    _flag("preferred BLAS library", "blasPreferredBackend", const=False),
    _flag("preferred linear algebra library", "linalgPreferredBackend"),
    Question("multiprocessors left to others", "_ZNK2at7Context24_SMCarveout_EXPERIMENTALEv", mask=_BYTE << 32 | 0xFFFFFFFF),
    _flag("cuDNN", "userEnabledCuDNN"),
    _flag("cuDNN, benchmarking", "benchmarkCuDNN"),
    _flag("cuDNN, deterministic", "deterministicCuDNN"),
    Question("cuDNN, limit of benchmarking", "_ZNK2at7Context19benchmarkLimitCuDNNEv", mask=0xFFFFFFFF),
    _flag("cuDNN, depthwise kernels", "cudnnDepthwiseKernel", optional=True),
    _flag("attention: flash", "userEnabledFlashSDP"),
    _flag("attention: flash 3", "userEnabledFA3SDP", optional=True),
    _flag("attention: memory efficient", "userEnabledMemEfficientSDP"),
    _flag("attention: math", "userEnabledMathSDP"),
    _flag("attention: cuDNN", "userEnabledCuDNNSDP"),
    _flag("attention: overridable", "userEnabledOverrideableSDP"),
    _flag("attention: reduced precision of math", "allowFP16BF16ReductionMathSDP"),
    Question("attention: order", "_ZN2at7Context16sDPPriorityOrderEv", mask=(1 << 64) - 1, kind=RowKind.ARRAY),
    _flag("MKLDNN", "userEnabledMkldnn"),
    _flag("MKLDNN, deterministic", "deterministicMkldnn"),
    Question("checks of sparse tensors", "_ZNK2at7Context27checkSparseTensorInvariantsEb"),
    Question("default dtype", "_ZN3c1031get_default_dtype_as_scalartypeEv", context=False),
)

DEVICE_QUESTIONS: Final[tuple[Question, ...]] = (
    Question("current device", "_ZN3c104cuda14current_deviceEv", context=False),
    Question("current stream", "_ZN3c104cuda20getCurrentCUDAStreamEa", context=False, arguments=(-1,), mask=(1 << 64) - 1,
             kind=RowKind.SECOND),
)
"""The same for CUDA."""


class _Pair(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint64), ("second", ctypes.c_uint64))


def _address(question: Question) -> int:
    address = engine.find_symbol(question.symbol)
    if not address and not question.optional:
        raise Unfit(f"this torch has no {question.symbol}, which tells its state ({question.what})")
    return address


def _array(address: int, arguments: Sequence[int]) -> int:
    """Folded as native code does it."""
    words = (ctypes.c_uint64 * (ARRAY_BYTES // 8))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_uint64] * 3)(address)(ctypes.addressof(words), *arguments)
    found = 0
    for word in words:
        found = ((found ^ word) * FOLD) & (1 << 64) - 1
    return found


def _answer(question: Question, address: int, arguments: Sequence[int]) -> int:
    if question.kind is RowKind.ARRAY:
        return _array(address, arguments)
    found: Any = ctypes.CFUNCTYPE(_Pair, *[ctypes.c_uint64] * 3)(address)(*arguments)
    return int(found.second if question.kind is RowKind.SECOND else found.first)


def snapshot(*, device: bool) -> tuple[list[int], list[str]]:
    """The words of the rows, with the answers as they are now, and what each row asks."""
    symbols.load_libraries()
    context = engine.find_symbol(_CONTEXT)
    if not context:
        raise Unfit(f"this torch has no {_CONTEXT}")
    here = ctypes.CFUNCTYPE(ctypes.c_void_p)(context)() or 0
    words: list[int] = []
    asked: list[str] = []
    for question in (*QUESTIONS, *(DEVICE_QUESTIONS if device else ())):
        address = _address(question)
        if not address:
            continue
        given = [*([here] if question.context else []), *question.arguments]
        arguments = [a & (1 << 64) - 1 for a in (*given, 0, 0, 0)][:3]
        words += [address, *arguments, question.kind, question.mask, _answer(question, address, arguments) & question.mask]
        asked.append(question.what)
    return words, asked
