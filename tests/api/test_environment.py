"""The environment of a call: what torch looks at beside the arguments. A traced function follows it as eager does, at the very next call,
and where Trident cannot honour it CPython gives the right result."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import trident

X, WEIGHT = torch.linspace(-1, 1, 8).reshape(2, 4), torch.linspace(0, 1, 16).reshape(4, 4)


def plain(x: torch.Tensor) -> torch.Tensor:
    return (x @ WEIGHT).relu() * 2 + torch.ones(4)


def factories(x: torch.Tensor) -> torch.Tensor:
    return x + torch.zeros(4) + torch.tensor(0.5) + torch.arange(4.0) + torch.full((4,), 2.0) + torch.empty(4).fill_(1)


def asks(x: torch.Tensor) -> Any:
    if not torch.is_grad_enabled():
        x = x + 1
    if torch.is_inference_mode_enabled():
        x = x + 2
    if torch.is_autocast_enabled("cpu"):
        x = x + 4
    if torch.get_default_dtype() == torch.float64:
        x = x + 8
    if torch.are_deterministic_algorithms_enabled():
        x = x + 16
    return x * 2


def sets(x: torch.Tensor) -> Any:
    with torch.no_grad():
        inner = x * 2
    with torch.enable_grad():
        return inner.requires_grad, (x * 3).requires_grad, torch.is_grad_enabled()


def scattered(x: torch.Tensor) -> torch.Tensor:
    return x.clone().index_add_(0, torch.tensor([0, 0, 1]), torch.ones(3, 4)) + torch.empty(2, 4).fill_(0)


def in_place(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y += 1
    y[0] = 3
    return F.dropout(y, 0.0).view(-1)


FUNCTIONS = [plain, factories, asks, sets, scattered, in_place]


class Doubling(TorchFunctionMode):
    """Sees every function."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return result * 2 if func in (torch.Tensor.mul, torch.Tensor.add, torch.add, torch.mul) else result


class Negating(TorchDispatchMode):
    """Sees every operator."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        return -result if func in (torch.ops.aten.mul.Tensor, torch.ops.aten.add.Tensor) else result


class Logged(torch.Tensor):
    """A subclass with its own `__torch_function__`."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result + 1 if func in (torch.Tensor.mul, torch.Tensor.matmul) else result


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def default_device(device: str) -> Any:
    torch.set_default_device(device)
    try:
        yield
    finally:
        torch.set_default_device(None)


@contextlib.contextmanager
def deterministic(warn_only: bool = False) -> Any:
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


ENVIRONMENTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "autocast off": lambda: torch.autocast("cpu", enabled=False),
    "default dtype": lambda: default_dtype(torch.float64),
    "default device": lambda: default_device("meta"),
    "device context": lambda: torch.device("meta"),
    "deterministic": deterministic,
    "deterministic, warnings": lambda: deterministic(warn_only=True),
    "function mode": Doubling,
    "two function modes": lambda: _both(Doubling, Doubling),
    "dispatch mode": Negating,
    "both modes": lambda: _both(Negating, Doubling),
    "anomaly detection": torch.autograd.detect_anomaly,
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "no function overrides": torch._C.DisableTorchFunction,
}


@contextlib.contextmanager
def _both(first: Any, second: Any) -> Any:
    with first(), second():
        yield


def told(result: Any) -> Any:
    """Everything about a result."""
    if isinstance(result, torch.Tensor):
        dense = result.detach().to_dense() if result.is_sparse else result.detach()
        values = None if result.is_meta else dense.as_subclass(torch.Tensor).double().tolist()
        return (type(result), result.dtype, result.device, result.shape, result.requires_grad, result.is_inference(),
                type(result.grad_fn).__name__, values)
    return tuple(map(told, result)) if isinstance(result, tuple) else result


def outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        result = function(*arguments)
    except Exception as error:
        return type(error), str(error)
    with torch.no_grad():
        return told(result)


@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:.*deterministic")
@pytest.mark.parametrize("name", ENVIRONMENTS)
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_next_call_follows_the_environment(function: Any, name: str) -> None:
    """Compiled outside of it, called in it, and outside again; and the other way round."""
    for x in (X, X.clone().requires_grad_()) if function is plain else (X,):
        jitted = trident.jit(function)
        outside = outcome(function, x)
        for _ in range(3):
            assert outcome(jitted, x) == outside
        for _ in range(2):
            with ENVIRONMENTS[name]():
                inside = outcome(function, x)
                for _ in range(3):
                    assert outcome(jitted, x) == inside
            assert outcome(jitted, x) == outside
        misses = trident.explain(jitted).misses
        assert outcome(jitted, x) == outside and trident.explain(jitted).misses == misses

        jitted = trident.jit(function)
        with ENVIRONMENTS[name]():
            for _ in range(3):
                assert outcome(jitted, x) == inside
        for _ in range(2):
            assert outcome(jitted, x) == outside


@pytest.mark.parametrize("function", FUNCTIONS[:5], ids=lambda f: f.__name__)
def test_the_environment_of_another_thread_is_its_own(function: Any) -> None:
    jitted = trident.jit(function)
    for _ in range(3):
        outside = outcome(jitted, X)
    found: list[Any] = []

    def work() -> None:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            found.extend((outcome(jitted, X), outcome(function, X)))

    with torch.inference_mode():
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found[0] == found[1] and outcome(jitted, X) == outside == outcome(function, X)


def by_rank(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x.shape[0] if x.dim() == 1 else x.sum(0) * 3


TRANSFORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "vmap": lambda f: torch.func.vmap(f),
    "nested vmap": lambda f: torch.func.vmap(torch.func.vmap(f)),
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum()),
    "jacrev": lambda f: torch.func.jacrev(f),
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "functionalize": lambda f: torch.func.functionalize(f),
    "forward mode": lambda f: lambda x: _dual(f, x),
}


def _dual(function: Any, x: torch.Tensor) -> Any:
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        return tuple(torch.autograd.forward_ad.unpack_dual(function(dual)))


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("function", [by_rank, in_place, asks], ids=lambda f: f.__name__)
def test_transforms(function: Any, name: str) -> None:
    jitted, transform = trident.jit(function), TRANSFORMS[name]
    outside = outcome(function, X)
    for _ in range(3):
        assert outcome(jitted, X) == outside
    for _ in range(3):
        assert outcome(transform(jitted), X) == outcome(transform(function), X)
        assert outcome(jitted, X) == outside


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("make", [lambda x: x.as_subclass(Logged), torch.nn.Parameter, lambda x: x.to_sparse(), lambda x: x.to("meta")],
                         ids=["subclass", "parameter", "sparse", "meta"])
def test_other_tensors(function: Any, make: Any) -> None:
    jitted, other = trident.jit(function), make(X)
    for x in (X, X, other, other, X, other):
        assert outcome(jitted, x) == outcome(function, x)


@pytest.mark.gpu
def test_the_current_device_and_stream() -> None:
    def f(x: torch.Tensor) -> Any:
        return (x * 2 + torch.ones(4, device="cuda")), torch.cuda.current_stream().cuda_stream, torch.cuda.current_device()

    jitted, x = trident.jit(f), torch.ones(4, device="cuda")
    for _ in range(3):
        outside = jitted(x)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        inside = jitted(x)
        assert inside[1] == f(x)[1] == side.cuda_stream
        assert torch.cuda.current_stream() == side
    side.synchronize()
    assert torch.equal(inside[0], outside[0]) and jitted(x)[1:] == outside[1:] == f(x)[1:]
