"""Thread state of torch that Python code reads and sets: grad mode, modes, tracing flags.

Owns the models of those functions of `torch._C`. What must hold: a fact that can differ at the next execution is an op or a
guard; only facts about code that is never in effect inside a trace (TorchScript, tracing by torch.jit) are constants.

May import: torch, frontend.{guards,values,models}.
"""

from __future__ import annotations

from types import BuiltinFunctionType
from typing import TYPE_CHECKING, Any

import torch

from trident.frontend.guards import BY_VALUE
from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.torch_calls import SINGLETONS, environment_allows, guard_environment, promote
from trident.frontend.values import Const, Traced, Value, Virtual

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

# Instances of these have no __torch_function__.
_PLAIN = frozenset({
    int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size,
    torch.Generator, *schema.TENSOR_TYPES,
})  # fmt: skip


def _grad_enabled(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if args or kwargs:
        return NotModelled
    return rec.result(torch.is_grad_enabled(), rec.builder.op("grad_enabled"))


def _inference_mode(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if args or kwargs:
        return NotModelled
    return rec.result(torch.is_inference_mode_enabled(), rec.builder.op("inference_mode"))


def _set_grad_enabled(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if len(args) != 1 or kwargs or type(args[0].obj) is not bool or not environment_allows(rec):
        return NotModelled
    guard_environment(rec)  # a mode would see the call
    mode = rec.ssa(args[0], "bool")
    rec.op("set_grad_enabled", mode)
    rec.execute(torch._C._set_grad_enabled, args[0].obj)
    return Const(None)


def _has_torch_function(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """False for plain tensors and numbers while no mode is active; their exact types are guarded."""
    if kwargs or not environment_allows(rec) or not all(_is_plain(arg.obj) for arg in args):
        return NotModelled
    guard_environment(rec)
    for arg in args:
        _guard_plain(rec, arg)
    return Const(False)


def _is_plain(obj: object) -> bool:
    if type(obj) in (tuple, list):
        return all(_is_plain(item) for item in obj)  # type: ignore[attr-defined]
    return type(obj) in _PLAIN


def _guard_plain(rec: Recorder, value: Value) -> None:
    value = rec.resolve(value)
    if type(value) is Virtual:
        for item in value.items:
            _guard_plain(rec, item)
    elif type(value) is Traced:
        rec.type_of(value)
        if type(value.obj) in (tuple, list):
            for item in rec.iterate(value):
                _guard_plain(rec, item)


def _has_torch_function_iterable(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    if len(args) != 1 or type(args[0].obj) not in (tuple, list):
        return NotModelled
    return _has_torch_function(rec, args, kwargs)


def _constant(function: Any, expected: object) -> Any:
    """A function that gives `expected` wherever a trace runs; not modelled where it does not give it now."""

    def model(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
        return NotModelled if args or kwargs or function() is not expected else Const(expected)

    return model


# Functions whose answer is always this while a trace runs: TorchScript and torch.jit.trace do not run traces.
_CONSTANT: tuple[tuple[str, object], ...] = (("_get_tracing_state", None), ("_is_tracing", False))
# These read the state of torch, change nothing and run no Python code.
_NATIVE: tuple[str, ...] = (
    "is_autocast_enabled", "is_autocast_cpu_enabled", "get_autocast_dtype", "get_autocast_gpu_dtype", "get_autocast_cpu_dtype",
    "is_autocast_cache_enabled", "get_default_dtype", "is_anomaly_enabled", "are_deterministic_algorithms_enabled",
    "get_num_threads", "promote_types",
)  # fmt: skip
_NATIVE_C: tuple[str, ...] = (
    "_get_cudnn_enabled", "_get_flash_sdp_enabled", "_get_math_sdp_enabled", "_get_mem_efficient_sdp_enabled", "_get_cudnn_sdp_enabled",
    "_get_deterministic_algorithms", "_get_deterministic_algorithms_warn_only", "_is_autocast_available", "_cuda_isInBadFork",
    "_cuda_isCurrentStreamCapturing", "_xpu_isCurrentStreamCapturing", "_get_cudnn_benchmark", "_get_cudnn_deterministic",
    "_get_cudnn_allow_tf32", "_get_cublas_allow_tf32", "_log_api_usage_once", "_get_default_device", "_get_privateuse1_backend_name",
)  # fmt: skip


# Python functions of torch that are machinery around a call into C++ (or work on Python frames, files, processes): calling them as
# a whole costs the same and records less. Dotted names; those that this torch lacks are skipped.
_OPAQUE: dict[str, tuple[str, ...]] = {
    "sets the state of random number generators": ("manual_seed", "seed", "random.manual_seed", "random.seed", "cuda.manual_seed",
                                                   "cuda.manual_seed_all", "random.fork_rng", "set_rng_state", "get_rng_state"),
    "runs the autograd engine": ("Tensor.backward", "autograd.backward", "autograd.grad", "utils.checkpoint.checkpoint"),
    "prints a tensor": ("Tensor.__repr__", "Tensor.__format__"),
    "waits for or asks the device": ("cuda.synchronize", "cuda.current_stream", "cuda.current_device", "cuda.is_available",
                                     "cuda.get_device_properties", "cuda.get_device_capability", "cuda.memory_allocated",
                                     "cuda.empty_cache", "cuda._lazy_init"),
    "works on the Python representation of a tensor": ("Tensor.__deepcopy__", "Tensor.__reduce_ex__", "Tensor.register_hook",
                                                       "Tensor.storage", "Tensor.__array__", "Tensor.__dlpack__", "save", "load"),
    "compiles": ("compile", "jit.script", "jit.trace", "jit.freeze", "export.export"),
}


def _find(dotted: str) -> Any:
    found: Any = torch
    for name in dotted.split("."):
        found = getattr(found, name, None)
    return found


def _device(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Answer:
    """`torch.device(...)`: immutable, so a constant once its arguments are."""
    named = {**kwargs, **dict(zip(("type", "index"), args, strict=False))}
    if len(args) > 2 or len(named) != len(args) + len(kwargs):
        return NotModelled
    for value in named.values():
        if type(value) is not Const and not (type(value) is Traced and type(value.obj) in (str, int) and not value.facts.get("fresh")):
            return NotModelled
    made = rec.execute(torch.device, *[arg.obj for arg in args], **{key: value.obj for key, value in kwargs.items()})
    for key, value in named.items():
        rec.promote(value, f"{key} of a device")
    return Const(made, repr(made))


def _compare(rec: Recorder, opname: str, a: Value, b: Value) -> Answer:
    """`==` of dtypes, layouts and memory formats, which are singletons: by identity."""
    a, b = rec.resolve(a), rec.resolve(b)
    if opname not in ("eq", "ne") or not all(type(v.obj) in SINGLETONS and type(v) in (Const, Traced) for v in (a, b)):
        return NotModelled
    for value in (a, b):
        promote(rec, value, "comparison")
    return Const((a.obj is b.obj) is (opname == "eq"))


def _vf_attribute(rec: Recorder, a: Value, name: str) -> Answer:
    """`torch._VF.name` is `torch._C._VariableFunctions.name`."""
    if a.obj is not torch._VF or name.startswith("__") or name in torch._VF.__dict__:
        return NotModelled
    found = getattr(torch._C._VariableFunctions, name, None)
    return NotModelled if found is None else Const(found, f"torch._VF.{name}")


def register(registry: Registry) -> None:
    """Models of the functions above."""
    C = torch._C
    BY_VALUE[torch.device] = "device_is"
    registry.function(torch.is_grad_enabled, _grad_enabled)
    registry.function(torch.is_inference_mode_enabled, _inference_mode)
    registry.function(torch.device, _device)
    registry.function(C._set_grad_enabled, _set_grad_enabled)
    registry.function(C._has_torch_function, _has_torch_function_iterable)
    registry.function(C._has_torch_function_unary, _has_torch_function)
    registry.function(C._has_torch_function_variadic, _has_torch_function)
    for name, expected in _CONSTANT:
        if (function := getattr(C, name, None)) is not None:
            registry.function(function, _constant(function, expected))
    registry.harmless_call(torch.result_type)  # of tensors, whose classes may have a __torch_function__
    for home, names in ((torch, _NATIVE), (C, _NATIVE_C)):
        registry.native_call(*[function for name in names if type(function := getattr(home, name, None)) is BuiltinFunctionType])
    for reason, names in _OPAQUE.items():
        for name in names:
            if (function := _find(name)) is not None:
                registry.never_inline(function, f"torch.{name} {reason}")
    registry.hook_type(type(torch._VF), *SINGLETONS)
    registry.hook("compare", _compare)
    registry.hook("attribute", _vf_attribute)
