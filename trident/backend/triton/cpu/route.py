"""Which driver a launch uses when a machine has more than one.

Owns the registration with Triton and the routing of launches. What must hold: a launch with a CUDA tensor takes exactly the way it
took before registration, for a fraction of a microsecond more; a launch whose tensors are all on the CPU runs on the cpu backend; the
choice is per thread, so launches in other threads are not disturbed.

May import: triton, compiler, driver.
"""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import triton
from triton.backends import Backend, backends
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from trident import locks
from trident.backend.triton.cpu.compiler import CPUBackend
from trident.backend.triton.cpu.driver import CPUDriver, CPUModule, CPUUtils

_lock = locks.lock()
_chosen = threading.local()
_driver: CPUDriver | None = None


def cpu_driver() -> CPUDriver:
    """The one driver object."""
    global _driver
    if _driver is None:
        _driver = CPUDriver()
    return _driver


def _routed_config(base: type) -> type:
    """A class of driver configuration with a choice per thread before the process-wide one."""

    def default(self: Any) -> Any:
        wanted = os.environ.get("TRITON_DEFAULT_BACKEND") == "cpu"
        if self._default is None and (wanted or not _other_driver_active()):
            self._default = cpu_driver()
        return base.default.fget(self)  # type: ignore[attr-defined]

    def active(self: Any) -> Any:
        chosen = getattr(_chosen, "driver", None)
        if chosen is not None:
            return chosen
        current = self._active
        return current if current is not None else base.active.fget(self)  # type: ignore[attr-defined]

    return type("RoutedDriverConfig", (base,), {"default": property(default), "active": property(active)})


def _other_driver_active() -> bool:
    """Whether some other backend finds its hardware."""
    return any(b.driver.is_active() for name, b in backends.items() if name != "cpu")


@contextmanager
def on_cpu() -> Iterator[None]:
    """Make the cpu driver the active one in this thread."""
    previous = getattr(_chosen, "driver", None)
    _chosen.driver = cpu_driver()
    try:
        yield
    finally:
        _chosen.driver = previous


def _wants_cpu(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the launch has tensors and all are on the CPU. The first tensor on another device decides at once."""
    found = False
    for group in (args, kwargs.values()):
        for value in group:
            if isinstance(value, torch.Tensor):
                if not value.is_cpu:
                    return False
                found = True
            elif type(value) is tuple or hasattr(value, "base"):
                inner = value if type(value) is tuple else (value.base,)
                answer = _wants_cpu(inner, {})
                if not answer and any(isinstance(v, torch.Tensor) for v in inner):
                    return False
                found = found or answer
    return found


def _routed(run: Callable[..., Any]) -> Callable[..., Any]:
    """JITFunction.run, on the cpu driver where the arguments ask for it."""

    @functools.wraps(run)
    def routed_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_chosen, "driver", None) is None and _needs_routing() and _wants_cpu(args, kwargs):
            with on_cpu():
                return run(self, *args, **kwargs)
        return run(self, *args, **kwargs)

    return routed_run


def _needs_routing() -> bool:
    """Not where the cpu driver is the process-wide one anyway."""
    return not isinstance(triton.runtime.driver._active, CPUDriver)


def _routed_autotuner(run: Callable[..., Any]) -> Callable[..., Any]:
    """Autotuner.run with results and timing method of its own for the CPU."""

    @functools.wraps(run)
    def routed_run(self: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(_chosen, "driver", None) is None and _needs_routing() and _wants_cpu(args, kwargs):
            other = self.__dict__.setdefault("_trident_cpu_state", {"cache": {}})
            mine = {k: self.__dict__.pop(k) for k in ("cache", "do_bench") if k in self.__dict__}
            self.__dict__.update(other)
            try:
                with on_cpu():
                    return run(self, *args, **kwargs)
            finally:
                for k in ("cache", "do_bench"):
                    if k in self.__dict__:
                        other[k] = self.__dict__.pop(k)
                self.__dict__.update(mine)
        return run(self, *args, **kwargs)

    return routed_run


def _careful_del(original: Callable[[Any], None] | None) -> Callable[[Any], None]:
    """CompiledKernel.__del__: a CPU module goes to the cpu driver, whichever is active by then."""

    def __del__(self: Any) -> None:
        module = getattr(self, "module", None)
        if isinstance(module, CPUModule):
            CPUUtils.unload_module(module)
            self.module = None
        elif original is not None:
            original(self)

    return __del__


def registered() -> bool:
    """Whether `register` was called."""
    return "cpu" in backends and backends["cpu"].compiler is CPUBackend


def register() -> None:
    """Make Triton know the cpu backend. CPU tensors then run on it; everything else is as before. Calling it again does nothing."""
    with _lock:
        if registered():
            return
        backends["cpu"] = Backend(CPUBackend, CPUDriver)
        config = triton.runtime.driver
        config.__class__ = _routed_config(type(config))
        JITFunction.run = _routed(JITFunction.run)
        Autotuner.run = _routed_autotuner(Autotuner.run)
        compiled_kernel = triton.compiler.CompiledKernel
        compiled_kernel.__del__ = _careful_del(getattr(compiled_kernel, "__del__", None))
