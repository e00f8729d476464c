"""Dispatch keys: where torch keeps them, and which operators may be called below their autograd kernels.

What eager does for a functional operator on plain tensors of which none is differentiated: the autograd kernel that torch generates
(VariableType) finds nothing to do, excludes the autograd keys from this thread's dispatch, and dispatches again to the backend. The
fast path does that last step alone, where native code sees in a few loads that the first would find nothing to do.

Owns these offsets and constants, each found by planting, and the table `below_autograd` of operators. What must hold: an
operator is in it only if its autograd kernel is the generated one, nothing stands between that and the backend, and its
schema gives fresh tensors; the kernel is compared again at each call, for anyone may register another. Where a fact cannot be
verified there is no fast path (None), and every call goes through the dispatcher.

May import: errors, native.{engine,symbols,aten_abi,aside}. Uses torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import torch

from trident.backend.native import aten_abi, engine, symbols
from trident.backend.native.aside import aside
from trident.backend.native.aten_abi import AtenSignature, ResultKind
from trident.errors import UnsupportedTorch

EXCLUDE_GUARD: Final = "_ZN3c104impl23ExcludeDispatchKeyGuardC1ENS_14DispatchKeySetE"
"""The constructor. Given an empty set it only notes the address of the thread's keys: its first word."""
AUTOGRAD_STATE: Final = "_ZN3c1013AutogradState13get_tls_stateEv"
HAS_CALLBACKS: Final = "_ZN2at12hasCallbacksEv"
_FIND_SCHEMA: Final = "_ZNK3c1010Dispatcher10findSchemaERKNS_12OperatorNameE", "_ZN3c1010Dispatcher10findSchemaERKNS_12OperatorNameE"
_SINGLETON: Final = "_ZN3c1010Dispatcher13realSingletonEv"
GRAD_MODE: Final = 1  # bit of its byte
INCLUDED, EXCLUDED = 0, 8
"""The thread's keys, as differences from the default sets: zero where nothing special is active."""
_LIST_NODE: Final = 16  # std::list's links before an element
_FRESH_RESULTS: Final = (ResultKind.TENSOR, ResultKind.TUPLE, ResultKind.TENSORS)
MAX_TENSORS: Final = 4
TENSORS: Final = ("tensor", "optional_tensor")
"""Kinds of parameters that are one tensor."""


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """key_set, autograd_meta: words of a TensorImpl. forward_grad: word of an AutogradMeta. grad_mode: byte of the thread's
    c10::AutogradState. excluded: what the autograd kernels
    exclude while they dispatch again. autograd_cpu: offset in an operator's entry of its unboxed kernel for
    AutogradCPU; autograd_cuda likewise. between: offsets of the boxed kernels for the keys between autograd and the backends, of
    which all must be `fallthrough`. leaf_meta: the vtable of the AutogradMeta of a tensor that is no view."""

    key_set: int
    autograd_meta: int
    forward_grad: int
    grad_mode: int
    excluded: int
    autograd_cpu: int
    autograd_cuda: int
    between: tuple[int, int]
    fallthrough: int
    leaf_meta: int


@dataclass(frozen=True, slots=True)
class BelowAutograd:
    """symbol: of `at::_ops::…::redispatch`, whose parameters are a DispatchKeySet and then those of `call`. entry: address of the
    operator's entry. slot: address of the word in it that holds the operator's kernel for AutogradCPU; kernel: what it held when the
    operator was looked at."""

    symbol: str
    entry: int
    slot: int
    kernel: int


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _only(what: str, found: list[int]) -> int:
    if len(found) != 1:
        raise UnsupportedTorch(f"cannot locate {what}: {len(found)} places fit")
    return found[0]


def _check(what: str, holds: bool) -> None:
    if not holds:
        raise UnsupportedTorch(f"{what} of this torch is not the known one")


def _function(name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
    address = engine.find_symbol(name)
    _check(f"the function {name}", address != 0)
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


# ------------------------------------------------------------------------------------------------------------------- tensors


def _raw(keys: Any) -> int:
    return int(keys.raw_repr())


def _key_set(torch: Any) -> int:
    planted = [torch.zeros(2), torch.zeros(2).to_sparse(), torch.empty(2, device="meta")]
    with torch.inference_mode():
        planted.append(torch.zeros(3))
    return _only("a tensor's keys", [at for at in range(16, 200, 8)
                                     if all(_word(t._cdata + at) == _raw(torch._C._dispatch_keys(t)) for t in planted)])


def _autograd_meta(torch: Any) -> int:
    plain = [torch.zeros(n) for n in (2, 3, 4)]
    leaves = [torch.zeros(n, requires_grad=True) for n in (2, 3, 4)]
    return _only("the autograd data", [at for at in range(16, 200, 8) if all(_word(t._cdata + at) == 0 for t in plain)
                                       and all(_word(t._cdata + at) != 0 for t in leaves)])


@contextmanager
def _dual_level(torch: Any) -> Iterator[int]:
    """A level of forward-mode differentiation. There is one in a process: the program's is used where that is inside of it."""
    try:
        level = torch._C._enter_dual_level()  # torch.autograd.forward_ad would load all decompositions
    except RuntimeError:
        yield 0
        return
    try:
        yield level
    finally:
        torch._C._exit_dual_level(level=level)


def _forward_grad(torch: Any, autograd_meta: int) -> int:
    """A dual tensor beside an ordinary view: the first word that is empty only in the latter is the tangent's."""
    with torch.enable_grad():
        view, leaf = torch.zeros(3).view(3), torch.zeros(3, requires_grad=True)
        result = leaf * 2
        with _dual_level(torch) as level:
            dual = torch._VF._make_dual(torch.zeros(3), torch.ones(3), level=level)
            metas = [_word(t._cdata + autograd_meta) for t in (dual, view, leaf, result)]
            _check("the autograd data", all(metas))
            found = [at for at in range(40, 112, 8)
                     if _word(metas[0] + at) and _word(metas[0] + at + 8) and not any(_word(meta + at) for meta in metas[1:])]
    _check("the forward gradient", bool(found))
    return found[0]


# -------------------------------------------------------------------------------------------------------------------- thread


@contextmanager
def _below(torch: Any) -> Iterator[None]:
    with torch._C._AutoDispatchBelowADInplaceOrView():
        yield


def thread_keys() -> int:
    """Address of this thread's included and excluded keys."""
    guard = (ctypes.c_uint64 * 2)()
    _function(EXCLUDE_GUARD, None, ctypes.c_void_p, ctypes.c_uint64)(ctypes.addressof(guard), 0)
    return guard[0]


def autograd_state() -> int:
    """Address of this thread's c10::AutogradState."""
    return int(_function(AUTOGRAD_STATE, ctypes.c_void_p)())


def _excluded(torch: Any) -> int:
    tls = thread_keys()
    default = _raw(torch._C._dispatch_tls_local_exclude_set())
    _check("the thread's keys", (_word(tls + INCLUDED), _word(tls + EXCLUDED)) == (0, 0))
    with _below(torch):
        excluded = _raw(torch._C._dispatch_tls_local_exclude_set()) ^ default
        _check("the thread's keys", (_word(tls + INCLUDED), _word(tls + EXCLUDED)) == (0, excluded) and excluded != 0)
    with torch.inference_mode():
        _check("the thread's keys", _word(tls + INCLUDED) != 0)
    _check("the thread's keys", (_word(tls + INCLUDED), _word(tls + EXCLUDED)) == (0, 0))
    return excluded


def _grad_mode(torch: Any) -> int:
    """The byte of c10::AutogradState whose lowest bit is the grad mode, while its others stay."""
    state, seen = _function(AUTOGRAD_STATE, ctypes.c_void_p)(), []
    for on in (True, False, True):
        with torch.set_grad_enabled(on):
            seen.append(ctypes.string_at(state, 32))
    return _only("the grad mode", [at for at in range(32) if [now[at] & GRAD_MODE for now in seen] == [1, 0, 1]
                                   and len({now[at] & ~GRAD_MODE for now in seen}) == 1])


# ----------------------------------------------------------------------------------------------------------------- operators


def _entry(name: str, overload: str) -> int:
    """Address of the dispatcher's entry of an operator, whose place never changes; 0 where there is none."""
    find = next((symbol for symbol in _FIND_SCHEMA if engine.find_symbol(symbol)), _FIND_SCHEMA[0])
    texts = [ctypes.create_string_buffer(text.encode()) for text in (name, overload)]
    strings = (ctypes.c_uint64 * 8)()  # two std::string of libstdc++: address, length, capacity
    for index, text in enumerate(texts):
        strings[4 * index: 4 * index + 3] = [ctypes.addressof(text), len(text) - 1, len(text) - 1]
    out = (ctypes.c_uint64 * 4)()  # std::optional<OperatorHandle>: the definition, a list's iterator, a flag
    singleton = _function(_SINGLETON, ctypes.c_void_p)()
    _function(find, ctypes.c_void_p, *[ctypes.c_void_p] * 3)(ctypes.addressof(out), singleton, ctypes.addressof(strings))
    if not out[2] & 0xFF:
        return 0
    _check("an operator's handle", out[0] == out[1] + _LIST_NODE)
    return out[0]


def _table_slots(torch: Any) -> tuple[int, int, tuple[int, int]]:
    """Register a Python kernel for an operator of our own at one key after the other. The word that gets the same value each
    time is the boxed function of the key's KernelFunction, and the unboxed one follows it."""
    usable = ctypes.CDLL(None).malloc_usable_size
    usable.restype, usable.argtypes = ctypes.c_size_t, [ctypes.c_void_p]
    definition = torch.library.Library("trident_probe", "DEF")
    try:
        definition.define("kernel(Tensor x) -> Tensor")
        entry = _entry("trident_probe::kernel", "")
        _check("an operator's entry", entry != 0)
        words = (ctypes.c_uint64 * ((usable(entry - _LIST_NODE) - _LIST_NODE) // 8)).from_address(entry)
        before, after = list(words), []
        for key in ("CPU", "AutogradCPU", "AutogradCUDA", "ADInplaceOrView", "BackendSelect"):
            registration = torch.library.Library("trident_probe", "IMPL")
            registration.impl("kernel", lambda x: x, key)
            after.append(list(words))
            registration._destroy()
        boxed = {value for n, value in enumerate(after[0]) if value > 4096 and value != before[n]}.intersection(*after[1:])
        places = [[n for n, value in enumerate(now) if value in boxed and before[n] != value] for now in after]
        # A word at the same place each time belongs to something else.
        common = set(places[0]).intersection(*places[1:])
        places = [[n for n in found if n not in common] for found in places]
        _check("an operator's kernels", all(found and found[-1] - found[0] == len(found) - 1 <= 1 for found in places))
        slots = [8 * found[-1] + 8 for found in places]
    finally:
        definition._destroy()
    _check("an operator's kernels", len(set(slots)) == 5 and slots[2] > slots[1])
    return slots[1], slots[2], (slots[3] - 8, slots[4] - 8)


def _plant() -> KeyLayout | None:
    try:
        _function(HAS_CALLBACKS, ctypes.c_bool)
        key_set, meta = _key_set(torch), _autograd_meta(torch)
        slots = _table_slots(torch)
        add = _entry("aten::add", "Tensor")
        fallthrough = {_word(add + offset) for offset in slots[2]}
        _check("a kernel that falls through", add != 0 and len(fallthrough) == 1)
        leaf = torch.zeros(2, requires_grad=True)
        vtable = _word(_word(leaf._cdata + meta))
        _check("the autograd data of a view", vtable != _word(_word(leaf.view(2)._cdata + meta)))
        return KeyLayout(key_set, meta, _forward_grad(torch, meta), _grad_mode(torch), _excluded(torch), *slots, fallthrough.pop(), vtable)
    except (UnsupportedTorch, RuntimeError, AttributeError):
        return None


@cache
def current() -> KeyLayout | None:
    """The verified layout; None where one fact does not hold, and then there is no fast path."""
    symbols.load_libraries()
    return aside(_plant)


# The keys of a plain tensor on the CPU and on CUDA (0 until CUDA is in use), and those to dispatch to below autograd. Native code
# reads them here.
KEY_WORDS: Final = (ctypes.c_uint64 * 4)()


def note_devices() -> None:
    """Fill KEY_WORDS with what can be known by now: to be called before an operator is compiled."""
    for n, (device, ready) in enumerate((("cpu", True), ("cuda", torch.cuda.is_initialized()))):
        if ready and not KEY_WORDS[2 * n]:
            KEY_WORDS[2 * n + 1] = _raw(torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, device.upper())))
            KEY_WORDS[2 * n] = aside(lambda: _raw(torch._C._dispatch_keys(torch.empty(0, device=device))))  # noqa: B023


def _is_functional(found: AtenSignature) -> bool:
    """Fresh tensors out, one to MAX_TENSORS single tensors in, and no lists of tensors."""
    op, overload = aten_abi.split_name(found.name)
    schema = torch._C._get_schema(f"aten::{op}", overload)
    if found.result not in _FRESH_RESULTS or any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        return False
    kinds = [argument.type.kind for argument in found.arguments]
    return 1 <= sum(kind in TENSORS for kind in kinds) <= MAX_TENSORS and not any("tensor_list" in k or k == "ilist" for k in kinds)


@cache
def below_autograd(found: AtenSignature) -> BelowAutograd | None:
    """How to call an operator below its autograd kernel; None where only the dispatcher may."""
    layout = current()
    if layout is None or not _is_functional(found):
        return None
    op, overload = aten_abi.split_name(found.name)
    symbol = symbols.operator_entries("redispatch").get(symbols.cxx_name(op, overload))
    if symbol is None or symbols.parameter_types(symbol) != ("c10::DispatchKeySet", *symbols.parameter_types(found.symbol)):
        return None
    full = f"aten::{op}.{overload}" if overload else f"aten::{op}"
    table = dict(line.partition(": ")[::2] for line in torch._C._dispatch_dump_table(full).splitlines())
    if "/autograd/generated/VariableType" not in table.get("AutogradCPU", "") \
            or not table.get("ADInplaceOrView", "").startswith("fallthrough") or "[math kernel]" in table.get("CPU", "[math kernel]"):
        return None
    entry = _entry(f"aten::{op}", overload)
    if not entry:
        return None
    # A kernel that takes SymInts is in the word behind the one of a kernel that does not.
    if any(_word(entry + offset) != layout.fallthrough for offset in layout.between):
        return None
    slots = [slot for slot in (entry + layout.autograd_cpu, entry + layout.autograd_cpu + 8) if _word(slot)]
    return BelowAutograd(symbol, entry, slots[0], _word(slots[0])) if slots else None
