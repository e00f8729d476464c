"""Triton kernels: `kernel[grid](...)`, `kernel.run(...)`, and the functions of triton that grids are computed with.

Owns the step from a Python launch to a `trident.launch`. What must hold: run-time arguments and the grid stay run-time values,
constexprs and options are promoted; the real launch is executed once, with the grid that the recorder has evaluated (a callable
grid is evaluated once, by following it); whatever Triton would look at besides (hooks, globals that the kernel uses, knobs) is
pinned; anything unusual is an opaque call with the reason.

May import: triton, torch, ir, frontend.{values,models,aborts}.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import triton
from torch_mlir import ir as mlir
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import ConstexprFunction, JITFunction, KernelInterface

from trident.frontend.aborts import Leave
from trident.frontend.models import Answer, NotModelled, Registry
from trident.frontend.models import torch_schema as schema
from trident.frontend.models.tensors import guarded_dtype
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL, LaunchParam, LaunchSite, PinKind
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_KERNELS = (JITFunction, Autotuner, Heuristics)
_NUMBERS = (int, float, bool)
# Types whose instances may be constexprs or options: immutable, compared by value or by identity.
_CONSTANT_TYPES = (
    int, float, bool, str, type(None), triton.language.dtype, triton.language.constexpr, JITFunction, ConstexprFunction,
)  # fmt: skip
# Attributes of triton.knobs.runtime that a launch looks at.
_KNOBS = ("launch_enter_hook", "launch_exit_hook", "debug", "add_stages_inspection_hook")


class _Unusual(Exception):
    """The launch is not modelled, for this reason."""


@dataclass(slots=True)
class _Launch:
    """A launch, bound to the kernel's parameters."""

    kernel: JITFunction
    bound: dict[str, Value]  # every parameter
    options: dict[str, Value]


# ------------------------------------------------------------------------------------------------------------- launcher


def subscript(rec: Recorder, a: Value, index: Value) -> Answer:
    """`kernel[grid]`: a launcher, which is nothing before it is called."""
    a = rec.resolve(a)
    if type(a.obj) not in _KERNELS or type(a) is not Const:
        return NotModelled
    launcher = rec.virtual(a.obj[index.obj], "launcher", [a, index])  # type: ignore[index]
    launcher.make = operator.getitem
    return launcher


def call(rec: Recorder, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """`kernel[grid](*args, **kwargs)`, and functions of triton on ints."""
    callee = rec.resolve(callee)
    if type(callee) is Virtual and callee.kind == "launcher":
        return _launch(rec, callee.items[0], callee.items[1], args, kwargs)
    if type(callee) is not Const or type(callee.obj) is not ConstexprFunction:
        return NotModelled
    if not all(type(arg.obj) in _NUMBERS for arg in (*args, *kwargs.values())):
        return NotModelled
    # On plain numbers a constexpr_function is the Python function that it wraps.
    function: Any = callee.obj
    rec.pin(PinKind.DICT, function.__dict__, "fn", function.fn, f"{rec.name_of(callee)}.fn")
    return rec.call(Const(function.fn, rec.name_of(callee)), args, kwargs)


def run(rec: Recorder, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """`kernel.run(*args, grid=grid, warmup=False, **kwargs)`"""
    rest = dict(kwargs)
    grid, warmup = rest.pop("grid", None), rest.pop("warmup", None)
    if grid is None or warmup is None or not args or type(args[0].obj) not in _KERNELS:
        return NotModelled
    if type(warmup) is not Const or warmup.obj is not False:
        return rec.opaque(Const(type(args[0].obj).run), args, kwargs, "a warm-up of a Triton kernel")  # type: ignore[attr-defined]
    return _launch(rec, args[0], grid, args[1:], rest)


def _launch(rec: Recorder, kernel: Value, grid: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
    kernel = rec.resolve(kernel)
    try:
        if type(kernel) is not Const:
            raise _Unusual("the kernel is a run-time object")
        if not _result_is_dropped(rec):
            raise _Unusual("the result of the launch is used")
        inner, chosen = kernel.obj, {"grid": grid, "warmup": Const(False), **kwargs}
        while type(inner) is not JITFunction:
            inner, chosen = _unwrap(rec, inner, args, chosen)
        launch = _plan(rec, inner, args, {name: value for name, value in chosen.items() if name not in ("grid", "warmup")})
        axes = _grid(rec, launch, grid)
    except _Unusual as found:
        unusual = str(found)
    else:
        return _emit(rec, launch, axes)
    # KernelInterface.__getitem__ gives a function that calls exactly this. (Here, so that what it raises has no context of Trident's.)
    everything: dict[str, Value] = {"grid": grid, "warmup": Const(False), **kwargs}
    return rec.opaque(Const(type(kernel.obj).run), [kernel, *args], everything, f"Triton kernel: {unusual}")  # type: ignore[attr-defined]


# ----------------------------------------------------------------------------------------- autotuned and heuristic kernels


def _unwrap(rec: Recorder, kernel: Any, args: list[Value], kwargs: dict[str, Value]) -> tuple[Any, dict[str, Value]]:
    """What an Autotuner or Heuristics calls with these arguments: the next kernel inside, and its keywords."""
    if type(kernel) is Heuristics:
        for name, function in kernel.values.items():
            named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
            meta = rec.virtual_dict(list(named), list(named.values()))
            kwargs = {**kwargs, name: _follow(rec, Const(function, f"heuristic {name}"), meta, f"its heuristic {name}")}
        return kernel.fn, kwargs
    if type(kernel) is not Autotuner:
        raise _Unusual(f"it is wrapped in a {type(kernel).__name__}")
    config = _tuned(rec, kernel, args, kwargs)
    if config.pre_hook is not None:
        raise _Unusual("its configuration has a pre-hook")
    chosen = config.all_kwargs()
    if any(name in kwargs for name in chosen):
        raise _Unusual("an argument is given that tuning decides")
    return kernel.fn, {**kwargs, **{name: Const(value) for name, value in chosen.items()}}


def _tuned(rec: Recorder, kernel: Autotuner, args: list[Value], kwargs: dict[str, Value]) -> Any:
    """The configuration that tuning has chosen for these arguments; what the choice depends on is guarded."""
    if len(kernel.configs) == 1:
        return kernel.configs[0]
    named = {**dict(zip(kernel.arg_names, args, strict=False)), **kwargs}
    named = {name: rec.resolve(value) for name, value in named.items() if name in kernel.arg_names}
    keys = [named[name] for name in kernel.keys if name in named]
    tensors = [value for value in named.values() if type(value.obj) in schema.TENSOR_TYPES]
    if not all(_can_be_constant(value) for value in keys):
        raise _Unusual("a key of its tuning is not a plain constant")
    if any(hasattr(value.obj, "dtype") and value not in tensors for value in named.values()):
        raise _Unusual("an argument of it is not a plain tensor")
    key = (*(value.obj for value in keys), *(str(value.obj.dtype) for value in tensors))  # type: ignore[attr-defined]
    if key not in kernel.cache:  # tuned by this very call: what is recorded here serves until then
        flat = tuple(part for item in kernel.cache.items() for part in item)
        rec.pin(PinKind.DICT_KEYS, kernel.cache, "", flat, f"what has been tuned of {kernel.base_fn.__name__}")
        raise _Unusual("it is still to be tuned for these arguments")
    for value in keys:
        rec.promote(value, f"key of the tuning of {kernel.base_fn.__name__}")
    for value in tensors:
        guarded_dtype(rec, value)
    return kernel.cache[key]


# ------------------------------------------------------------------------------------------------------------- planning


def _plan(rec: Recorder, obj: JITFunction, args: list[Value], kwargs: dict[str, Value]) -> _Launch:
    """Bind, and decide that the launch can be written. Pure."""
    _check_environment(obj)
    names = [param.name for param in obj.params]
    if len(args) > len(names) or any(name in kwargs for name in names[:len(args)]):
        raise _Unusual("the arguments do not bind")
    bound = {**dict(zip(names, args, strict=False)), **{name: value for name, value in kwargs.items() if name in names}}
    for param in obj.params:
        if param.name not in bound:
            if not param.has_default:
                raise _Unusual(f"no argument for {param.name}")
            bound[param.name] = Const(param.default)
    bound = {name: rec.resolve(bound[name]) for name in names}
    options = {name: rec.resolve(value) for name, value in kwargs.items() if name not in names}
    for param in obj.params:
        _check_argument(param, bound[param.name])
    for name, value in options.items():
        if not _can_be_constant(value):
            raise _Unusual(f"the option {name} is not a plain constant")
    return _Launch(obj, bound, options)


def _check_environment(kernel: JITFunction) -> None:
    """What makes Triton run Python at each launch."""
    runtime = triton.knobs.runtime
    if kernel.pre_run_hooks:
        raise _Unusual("it has pre-run hooks")
    if runtime.add_stages_inspection_hook is not None:
        raise _Unusual("an inspection hook is set")
    for name in ("launch_enter_hook", "launch_exit_hook"):
        hook = getattr(runtime, name)
        if hook is not None and (not hasattr(hook, "calls") or hook.calls):
            raise _Unusual(f"a {name} is set")
    try:
        kernel.cache_key  # noqa: B018 (finds out which globals the kernel uses)
    except Exception as error:
        raise _Unusual(f"it cannot be compiled ({type(error).__name__})") from None


def _result_is_dropped(rec: Recorder) -> bool:
    """Whether the statement is the launch alone: which compiled kernel it yields is then of no interest."""
    for frame in reversed(rec.frames):
        following = frame.code.instructions[frame.current.index + 1].name
        if following != "RETURN_VALUE":
            return following == "POP_TOP"
    return False


def _check_argument(param: Any, value: Value) -> None:
    obj = value.obj
    if param.is_constexpr:
        if not _can_be_constant(value):
            raise _Unusual(f"the constexpr {param.name} is a {type(obj).__name__}")
    elif type(obj) is int:
        if not -(2**63) <= obj < 2**63:
            raise _Unusual(f"{param.name} does not fit int64")
    elif obj is not None and type(obj) not in (float, bool, *schema.TENSOR_TYPES):
        raise _Unusual(f"the argument {param.name} is a {type(obj).__name__}")


def _can_be_constant(value: Value) -> bool:
    """Whether a value can be promoted and then stand for itself in a key."""
    if type(value) is Virtual:
        return value.kind == "tuple" and type(value.obj) in (tuple,) and all(map(_can_be_constant, value.items))
    if type(value.obj) is tuple and type(value) is Const:
        return all(_can_be_constant(Const(item)) for item in value.obj)
    if type(value) is Traced and type(value.obj) is float:
        return value.obj == value.obj and value.obj != 0.0
    if type(value) is Traced and value.facts.get("fresh"):
        return type(value.obj) in _NUMBERS or value.obj is None
    return is_a(value.obj, _CONSTANT_TYPES)


# ----------------------------------------------------------------------------------------------------------------- grid


def _grid(rec: Recorder, launch: _Launch, grid: Value) -> list[Value]:
    """The ints of the grid, one to three; a callable one is followed."""
    grid = rec.resolve(grid)
    if callable(grid.obj):
        meta = rec.virtual_dict(list(launch.bound), list(launch.bound.values()))  # as the binder of Triton passes them
        grid = _follow(rec, grid, meta, "its grid function")
    if type(grid.obj) not in (tuple, list):
        raise _Unusual(f"its grid is a {type(grid.obj).__name__}")
    if type(grid) is Virtual and grid.kind in ("tuple", "list"):
        axes = [rec.resolve(axis) for axis in grid.items]
    else:
        axes = [rec.resolve(axis) for axis in rec.iterate(grid)]
    if not 1 <= len(axes) <= 3 or not all(type(axis.obj) is int and -(2**31) <= axis.obj < 2**31 for axis in axes):
        raise _Unusual("its grid is not one to three ints")
    return axes


def _follow(rec: Recorder, function: Value, meta: Value, what: str) -> Value:
    """`function(meta)`, without effects."""
    depth, frame = len(rec.frames), rec.frames[-1]
    try:
        return rec.resolve(rec.call_pure(function, [meta], {}))
    except Leave as leave:
        if leave.reason not in ("impure", "unsupported", "promote", "opcode", "depth"):
            raise
        del rec.frames[depth:]
        rec.enter(frame)
        raise _Unusual(f"{what} cannot be followed: {leave.text}") from None


# -------------------------------------------------------------------------------------------------------------- emission


def _emit(rec: Recorder, launch: _Launch, axes: list[Value]) -> Value:
    kernel = launch.kernel
    _pin_environment(rec, kernel)
    forms = [rec.ssa(axis, "int") for axis in axes]
    forms += [rec.builder.int(1)] * (3 - len(forms))
    params, operands = [], []
    for param in kernel.params:
        value = launch.bound[param.name]
        if param.is_constexpr or value.obj is None:
            constant = rec.promote(value, f"constexpr {param.name} of {kernel.__name__}")
            params.append(LaunchParam(param.name, True, constant))
        else:
            params.append(LaunchParam(param.name, False))
            operands.append(_operand(rec, value))
    options = tuple((name, rec.promote(value, f"option {name} of {kernel.__name__}")) for name, value in launch.options.items())
    site = LaunchSite(kernel, tuple(params), options, rec.builder.file, rec.builder.line)
    rec.effect()
    concrete = {name: value.obj for name, value in launch.bound.items()}
    options_now = {name: value.obj for name, value in launch.options.items()}
    result = rec.execute(kernel.run, grid=tuple(axis.obj for axis in axes), warmup=False, **concrete, **options_now)
    rec.builder.launch(site, forms, operands)
    return Const(result)  # dropped by the next instruction


def _operand(rec: Recorder, value: Value) -> mlir.Value:
    kind = type(value.obj).__name__ if type(value.obj) in _NUMBERS else "tensor"
    if kind != "tensor":
        rec.number_kind(value)
    return rec.ssa(value, kind)


def _pin_environment(rec: Recorder, kernel: JITFunction) -> None:
    """Facts that Triton checks at each launch, or that would make it run Python."""
    runtime = triton.knobs.runtime
    for name in _KNOBS:
        rec.pin(PinKind.DICT, runtime.__dict__, name, runtime.__dict__.get(name, NULL), f"triton.knobs.runtime.{name}")
    for name in ("launch_enter_hook", "launch_exit_hook"):
        hook = getattr(runtime, name)
        if hook is not None:
            rec.pin(PinKind.EMPTY, hook.calls, "", True, f"triton.knobs.runtime.{name} is empty")
    rec.pin(PinKind.EMPTY, kernel.pre_run_hooks, "", True, f"{kernel.__name__} has no pre-run hooks")
    rec.pin(PinKind.DICT, kernel.__dict__, "debug", kernel.__dict__.get("debug", NULL), f"{kernel.__name__}.debug")
    for (name, _), (_, names) in kernel.used_global_vals.items():
        rec.pin(PinKind.DICT, names, name, names.get(name, NULL), f"global {name} of {kernel.__name__}")


def register(registry: Registry) -> None:
    """Hooks and models."""
    registry.hook_type(*_KERNELS, ConstexprFunction)
    registry.hook_kind("launcher")
    registry.hook("subscript", subscript)
    registry.hook("call", call)
    for cls in _KERNELS:
        registry.function(cls.run, run)
        registry.never_inline(cls.run, "a Triton launch")
    registry.never_inline(KernelInterface.warmup, "a warm-up of a Triton kernel")
    _refuse_interpreter(registry)


def _refuse_interpreter(registry: Registry) -> None:
    """Kernels under TRITON_INTERPRET=1 are Python that runs other Python."""
    try:
        from triton.runtime import interpreter
    except ImportError:
        return
    for cls in (interpreter.InterpretedFunction, interpreter.GridExecutor):
        for name in ("run", "__call__", "__getitem__"):
            if name in cls.__dict__:
                registry.never_inline(cls.__dict__[name], "the Triton interpreter")
