"""Calls below the autograd kernel: taken only where that kernel would do nothing, and indistinguishable from eager's."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import trident
from trident.backend.native import aten_abi, engine, frame, keys, runtime

pytestmark = pytest.mark.skipif(keys.current() is None, reason="this torch's dispatch keys are not where they are looked for")


def _tested(name: str, overload: str, *tensors: torch.Tensor) -> int:
    """What the native test says for an operator and tensors; the thread's keys are as before."""
    runtime.load()
    keys.note_devices()
    below = keys.below_autograd(aten_abi.signature(name, overload))
    assert below is not None
    base = (ctypes.c_uint64 * (frame.SLOTS // 8))()
    handles = (ctypes.c_uint64 * len(tensors))(*[t._cdata for t in tensors])
    addresses = [ctypes.addressof(handles) + 8 * n for n in range(len(tensors))]
    test = ctypes.PYFUNCTYPE(ctypes.c_uint64, *[ctypes.c_void_p] * 3, ctypes.c_uint64, *[ctypes.c_void_p] * len(tensors))(
        engine.find_symbol(f"trident_below{len(tensors)}"))
    thread = keys.thread_keys()
    before = ctypes.string_at(thread, 16)
    found = test(ctypes.addressof(base), below.entry, below.slot, below.kernel, *addresses)
    if found:
        assert ctypes.string_at(thread, 16) != before
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(engine.find_symbol("trident_below_done"))(ctypes.addressof(base))
    assert ctypes.string_at(thread, 16) == before
    return found


def test_plain_tensors_are_taken() -> None:
    cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU).raw_repr()
    plain, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    assert _tested("add", "Tensor", plain, plain) == cpu
    with torch.no_grad():
        assert _tested("add", "Tensor", plain, leaf) == cpu
        assert _tested("add", "Tensor", leaf, torch.nn.Parameter(plain)) == cpu
        assert _tested("add", "Tensor", leaf.view(3), plain) == 0


def test_the_callers_modes_do_not_matter() -> None:
    """The first function of a process may be compiled in inference mode, in a dual level, under vmap, or with a mode active."""
    script = """
import sys, torch, trident
from trident.backend.native import keys
f = trident.jit(lambda x: x + 1)
with {context}:
    [f(torch.ones(2)) for _ in range(2)]
plain = torch._C._dispatch_keys(torch.ones(2)).raw_repr()
assert keys.current() is not None and keys.KEY_WORDS[0] == plain, (keys.current(), list(keys.KEY_WORDS), plain)
"""
    for context in ("torch.inference_mode()", "torch.autocast('cpu')", "torch.device('meta')", "torch.no_grad()"):
        done = subprocess.run([sys.executable, "-c", script.format(context=context)], capture_output=True, text=True, check=False,
                              env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])})
        assert done.returncode == 0, (context, done.stderr)


@contextmanager
def _autocast() -> Iterator[None]:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield


class _Mode(TorchDispatchMode):
    seen: int = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("context", [_autocast, torch.inference_mode, _Mode, torch.profiler.profile,
                                     torch._C._AutoDispatchBelowADInplaceOrView], ids=lambda c: c.__name__)
def test_states_in_which_the_dispatcher_is_asked(context: Callable[[], Any]) -> None:
    plain = torch.ones(3)
    with context():
        assert _tested("add", "Tensor", plain, plain) == 0


def test_tensors_for_which_the_dispatcher_is_asked() -> None:
    plain, leaf = torch.ones(3), torch.ones(3, requires_grad=True)
    with torch.inference_mode():
        inference = torch.ones(3)
    others = [leaf, leaf * 2, inference, torch.empty(3, device="meta"), plain.to_sparse(), torch.view_as_complex(torch.ones(3, 2)).conj(),
              torch._neg_view(plain)]
    for other in others:
        assert _tested("mul", "Tensor", other, other) == 0, other
    assert _tested("mul", "Tensor", plain, torch.empty(3, device="meta")) == 0
    with torch.autograd.forward_ad.dual_level(), torch.no_grad():
        dual = torch.autograd.forward_ad.make_dual(plain, plain)
        assert _tested("mul", "Tensor", plain, dual) == 0


def test_views_and_in_place_operators_are_never_taken() -> None:
    for name, overload in (("view", ""), ("add_", "Tensor"), ("add", "out"), ("linear", ""), ("reshape", ""), ("zeros", ""), ("cat", ""),
                           ("detach", ""), ("copy_", "")):
        assert keys.below_autograd(aten_abi.signature(name, overload)) is None, name
    for name, overload in (("add", "Tensor"), ("mm", ""), ("_softmax", ""), ("native_layer_norm", ""), ("sum", "dim_IntList"),
                           ("clone", "")):
        assert keys.below_autograd(aten_abi.signature(name, overload)) is not None, name


def _program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    z = x * y
    return z + y, torch.nn.functional.layer_norm(z, (z.shape[-1],)).sum(-1)


def _facts(t: torch.Tensor) -> tuple[Any, ...]:
    version = None if t.is_inference() else t._version
    return (t.dtype, t.shape, t.stride(), t.requires_grad, t.is_leaf, type(t.grad_fn), version, t._is_view(), t.is_inference(),
            t.detach().view(torch.uint8).tolist())


@pytest.fixture
def jitted() -> Any:
    made = trident.jit(_program)
    for _ in range(3):
        made(torch.ones(2, 3), torch.ones(2, 3))
    return made


def _same(jitted: Any, x: torch.Tensor, y: torch.Tensor) -> None:
    for mine, eager in zip(jitted(x, y), _program(x, y), strict=True):
        assert _facts(mine) == _facts(eager)


def test_results_are_those_of_eager_in_every_mode(jitted: Any) -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    leaf = torch.randn(2, 3, requires_grad=True)
    known = jitted.specializations
    for pair in ((x, y), (leaf, y), (x, leaf), (x.view(2, 3), y)):
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode, _autocast):
            with context():
                _same(jitted, *pair)
    assert jitted.specializations == known


def test_gradients_and_tangents_flow(jitted: Any) -> None:
    from torch.autograd import forward_ad

    leaf, y = torch.randn(2, 3, requires_grad=True), torch.randn(2, 3)
    grads = [torch.autograd.grad(sum(part.sum() for part in f(leaf, y)), leaf)[0] for f in (jitted, _program)]
    assert torch.equal(*grads)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.randn(2, 3), torch.randn(2, 3))
        for mine, eager in zip(jitted(dual, y), _program(dual, y), strict=True):
            tangents = [forward_ad.unpack_dual(t).tangent for t in (mine, eager)]
            assert tangents[1] is not None and torch.equal(*tangents)


def test_profilers_and_modes_see_every_operator(jitted: Any) -> None:
    x = torch.randn(2, 3)
    with torch.profiler.profile() as seen:
        jitted(x, x)
    names = {event.key for event in seen.key_averages()}
    assert {"aten::mul", "aten::add", "aten::sum"} <= names
    with _Mode() as eager:
        _program(x, x)
    with _Mode() as mine:
        jitted(x, x)
    assert mine.seen == eager.seen > 0


def test_a_view_has_the_tangent_of_its_base() -> None:
    from torch.autograd import forward_ad

    jitted = trident.jit(lambda x, y: x * y)
    x = torch.ones(3)
    with torch.no_grad():
        for _ in range(3):
            jitted(x, x)
        with forward_ad.dual_level():
            base = torch.ones(3)
            view = base.view(3)
            base.copy_(forward_ad.make_dual(torch.ones(3), torch.full((3,), 4.0)))
            assert forward_ad.unpack_dual(jitted(view, x)).tangent.tolist() == [4, 4, 4]


@pytest.mark.parametrize("key", ["AutogradCPU", "CPU", "ADInplaceOrView", "BackendSelect"])
@pytest.mark.filterwarnings("ignore")
def test_a_kernel_registered_later_is_called(key: str) -> None:
    jitted = trident.jit(lambda x: torch.special.bessel_j0(x))
    x = torch.randn(3)
    for _ in range(3):
        jitted(x)
    assert _tested("special_bessel_j0", "", x)
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("special_bessel_j0", lambda x: torch.full_like(x, 7), key)
        assert jitted(x).tolist() == [7, 7, 7]
    finally:
        library._destroy()
    assert torch.equal(jitted(x), torch.special.bessel_j0(x))
    assert _tested("special_bessel_j0", "", x)


def test_an_exception_leaves_the_thread_as_it_was() -> None:
    jitted = trident.jit(lambda x, y: (x * 2) @ y)
    good, bad = torch.randn(2, 3), torch.randn(4, 3)
    for _ in range(3):
        jitted(good, good.t())
    before = ctypes.string_at(keys.thread_keys(), 16)
    for _ in range(3):
        with pytest.raises(RuntimeError):
            jitted(good, bad)
        assert ctypes.string_at(keys.thread_keys(), 16) == before
    leaf = torch.randn(2, 3, requires_grad=True)
    assert jitted(leaf, good.t()).grad_fn is not None


def test_every_operator_of_the_table_is_functional() -> None:
    """Walks all operators: what may be called below autograd has an autograd kernel, no aliases, and one set of parameters."""
    from trident.backend.native import symbols

    taken = 0
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        try:
            found = aten_abi.signature(schema.name.removeprefix("aten::"), schema.overload_name)
        except aten_abi.UnsupportedOperator:
            continue
        below = keys.below_autograd(found)
        if below is not None:
            taken += 1
            assert not any(a.alias_info for a in (*schema.arguments, *schema.returns))
            assert not schema.name.endswith("_") or schema.name.endswith("__")
            assert symbols.parameter_types(below.symbol)[1:] == symbols.parameter_types(found.symbol)
    assert taken > 500


@pytest.mark.gpu
def test_cuda_tensors_are_taken() -> None:
    cuda = torch._C.DispatchKeySet(torch._C.DispatchKey.CUDA).raw_repr()
    plain, host = torch.ones(3, device="cuda"), torch.ones(())
    assert _tested("add", "Tensor", plain, plain) == cuda
    assert _tested("add", "Tensor", plain, host) == 0
    with torch.no_grad():
        assert _tested("mul", "Tensor", plain, torch.nn.Parameter(plain)) == cuda
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert _tested("mm", "", torch.ones(3, 3, device="cuda"), torch.ones(3, 3, device="cuda")) == 0


@pytest.mark.gpu
def test_cuda_results_are_those_of_eager_in_every_mode(jitted: Any) -> None:
    x, y = torch.randn(2, 3, device="cuda"), torch.randn(2, 3, device="cuda")
    leaf = torch.randn(2, 3, device="cuda", requires_grad=True)
    for pair in ((x, y), (leaf, y), (x, leaf), (x.view(2, 3), y), (x.cpu(), y.cpu())) * 2:
        for context in (torch.enable_grad, torch.no_grad, torch.inference_mode, lambda: torch.autocast("cuda", dtype=torch.float16)):
            with context():
                _same(jitted, *pair)
