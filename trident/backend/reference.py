"""The reference executor: runs a trace op by op in plain Python.

Owns the meaning of every op in a form that can be read; the native lowering must agree with it (a test walks the op table).
It is the oracle of the conformance tests and explains misses. What must hold: one rule per op of the table.

May import: torch, ir.
"""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch._C import _is_torch_function_all_disabled, _is_torch_function_enabled, _len_torch_function_stack  # type: ignore
from torch_mlir import ir as mlir

from trident.ir import GuardInfo, Pin, Snapshot, Trace, exceptions
from trident.ir.ops import COMPARISONS, JUMP
from trident.ir.pins import holds

_INT64 = range(-(2**63), 2**63)
_EXACT = 2**53


class Miss(Exception):
    """An exit in the entry region: the specialization does not apply. `reason` says what failed."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class SideExit(Exception):
    """An exit after the entry region. `values` are the boxed operands of the state; `error` what was raised, if anything."""

    def __init__(self, snapshot: Snapshot, values: tuple[object, ...], reason: str, error: BaseException | None = None) -> None:
        super().__init__(reason)
        self.snapshot, self.values, self.reason, self.error = snapshot, values, reason, error


class Onward(SideExit):
    """A trace that ends at the header of a loop, from which another one goes on."""


class Leave(Exception):
    """An op that cannot go on."""


class GuardFailed(Leave):
    """A guard, or a pin, that does not hold."""

    def __init__(self, info: GuardInfo, pin: Pin | None = None) -> None:
        super().__init__(info.text)
        self.info, self.pin = info, pin


@dataclass(slots=True)
class Run:
    """State of one execution."""

    trace: Trace
    env: dict[mlir.Value, object]
    state: tuple[Snapshot, tuple[object, ...]] | None = None


def _attr(op: mlir.Operation, name: str) -> Any:
    """A Python value of an attribute."""

    def value(a: mlir.Attribute) -> Any:
        if isinstance(a, mlir.ArrayAttr):
            return [value(x) for x in a]
        return a.value

    return value(op.attributes[name])


def _int64(value: int) -> int:
    if value not in _INT64:
        raise Leave("the result does not fit int64")
    return value


def _arith(fn: Callable[..., object]) -> Callable[..., object]:
    def rule(run: Run, op: mlir.Operation, *args: object) -> object:
        try:
            result = fn(*args)
        except ArithmeticError as e:
            raise Leave(str(e)) from None
        except ValueError as e:
            raise Leave(str(e)) from None
        if type(result) is int:
            return _int64(result)
        if type(result) is complex:
            raise Leave("the result is complex")
        return result

    return rule


def _shift(fn: Callable[[int, int], int]) -> Callable[[int, int], int]:
    def shift(a: int, b: int) -> int:
        if fn is operator.lshift and not 0 <= b < 64:
            raise Leave("shift count")
        return fn(a, b)

    return shift


def _pow_int(a: int, b: int) -> int:
    if b < 0 or (abs(a) > 1 and b > 64):
        raise Leave("int ** int outside int64")
    return a**b


def _exact(fn: Callable[..., float]) -> Callable[..., float]:
    def checked(*args: int) -> float:
        if any(abs(a) > _EXACT for a in args):
            raise Leave("an int too large to be a float exactly")
        return fn(*args)

    return checked


def _guard(run: Run, op: mlir.Operation, condition: bool) -> None:
    if condition != _attr(op, "expected"):
        raise GuardFailed(run.trace.guards[_attr(op, "info")])


def _pin(run: Run, op: mlir.Operation) -> None:
    for index in mlir.DenseI64ArrayAttr(op.attributes["indices"]):
        if not holds(run.trace.pins[index]):
            raise GuardFailed(run.trace.pins[index].info, run.trace.pins[index])


def _exit(run: Run, op: mlir.Operation) -> None:
    reason = str(_attr(op, "reason"))
    if reason == JUMP and run.state is not None:
        raise Onward(*run.state, reason)
    raise Leave(reason)


def _state(run: Run, op: mlir.Operation, *values: object) -> None:
    run.state = (run.trace.snapshots[_attr(op, "snapshot")], values)


def _constant(run: Run, op: mlir.Operation) -> object:
    return run.trace.constants[_attr(op, "index")]


def _cell_get(run: Run, op: mlir.Operation, cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        raise Leave("the cell is empty") from None


def _cell_set(run: Run, op: mlir.Operation, cell: CellType, value: object) -> None:
    cell.cell_contents = value


def _call(run: Run, op: mlir.Operation, callee: Callable[..., object], *args: object) -> object:
    names = _attr(op, "kwnames")
    split = len(args) - len(names)
    return callee(*args[:split], **dict(zip(names, args[split:], strict=True)))


def _call_raises(run: Run, op: mlir.Operation, callee: Callable[..., object], *args: object) -> tuple[object, bool]:
    try:
        return _call(run, op, callee, *args), False
    except BaseException as e:
        error = e
    entry = error.__traceback__
    while entry is not None and entry.tb_frame.f_code in (_call_raises.__code__, _call.__code__):
        entry = entry.tb_next
    error.__traceback__ = entry
    return error, True


def _add_traceback(run: Run, op: mlir.Operation, error: BaseException) -> None:
    code, globals_ = (run.trace.constants[_attr(op, name)] for name in ("code", "globals"))
    exceptions.add_traceback(error, code, globals_, _attr(op, "lasti"), _attr(op, "line"))  # type: ignore[arg-type]


def _keys_are(keys: tuple[object, ...], expected: Any) -> bool:
    """Whether keys are the expected ones; what is no str is so by identity."""
    return len(keys) == len(expected) and all(a is b or type(a) is str and type(b) is str and a == b
                                              for a, b in zip(keys, expected, strict=True))


def _inside(container: Any, index: int) -> int:
    if not 0 <= index < len(container):
        raise Leave("the index is outside")
    return index


def _back(run: Run, op: mlir.Operation, *values: object) -> None:
    """What `run_trace` then goes back to is the header."""
    carries = [view.operation for view in run.trace.block.operations if view.operation.name == "trident.carry"]
    run.env.update(zip([carry.results[0] for carry in carries], values, strict=True))


def _launch(run: Run, op: mlir.Operation, *values: Any) -> None:
    site = run.trace.launches[_attr(op, "site")]
    grid, rest = values[:3], iter(values[3:])
    kwargs = {p.name: p.value if p.constexpr else next(rest) for p in site.params}
    if min(grid) > 0:
        site.kernel[grid](**kwargs, **dict(site.options))


def _replay(run: Run, op: mlir.Operation, *operands: object) -> object:
    found = run.trace.replays[_attr(op, "site")].run(operands)
    if isinstance(found, str):
        raise Leave(found)
    return found[0] if len(op.results) == 1 else found


def _scalar_type(dtype: torch.dtype) -> int:
    return ctypes.c_int8.from_address(id(dtype) + 16).value


def _device_type(t: torch.Tensor) -> int:
    return {"cpu": 0, "cuda": 1, "meta": 14}.get(t.device.type, 99)


def _function_modes() -> int:
    if torch._C._get_tracing_state() is not None or not _is_torch_function_enabled() or _is_torch_function_all_disabled():
        return -1
    return _len_torch_function_stack()


def _number_tensor(run: Run, op: mlir.Operation, number: float) -> torch.Tensor:
    dtypes = {d for d in vars(torch).values() if isinstance(d, torch.dtype)}
    dtype = next(d for d in dtypes if _scalar_type(d) == _attr(op, "dtype"))
    return torch.scalar_tensor(number, dtype=dtype, device="cpu")


_OBJECT: dict[str, Callable[..., object]] = {
    "str_is": lambda run, op, x: type(x) is str and x == _constant(run, op),
    "device_is": lambda run, op, x: x == _constant(run, op),
    "type_is": lambda run, op, x: type(x) is _constant(run, op),
    "is": lambda run, op, a, b: a is b,
    "is_constant": lambda run, op, x: x is _constant(run, op),
    "int_fits": lambda run, op, x: type(x) is int and x in _INT64,
    "unbox_tensor": lambda run, op, x: x,
    "unbox_int": lambda run, op, x: x,
    "unbox_float": lambda run, op, x: x,
    "unbox_bool": lambda run, op, x: x,
    "box": lambda run, op, x: x,
    "pack": lambda run, op, x: x,
    "build_tuple": lambda run, op, *v: tuple(v),
    "build_list": lambda run, op, *v: list(v),
    "build_dict": lambda run, op, *v: dict(zip(v[::2], v[1::2], strict=True)),
    "build_slice": lambda run, op, a, b, c: slice(a, b, c),
    "tuple_len": lambda run, op, x: tuple.__len__(x),
    "tuple_item": lambda run, op, x: tuple.__getitem__(x, _attr(op, "item")),
    "tuple_at": lambda run, op, x, index: tuple.__getitem__(x, _inside(x, index)),
    "list_at": lambda run, op, x, index: list.__getitem__(x, _inside(x, index)),
    "list_len": lambda run, op, x: len(x),
    "list_item": lambda run, op, x: x[_attr(op, "item")],
    "instance_dict": lambda run, op, x: x.__dict__,
    "dict_len": lambda run, op, x: len(x),
    "dict_has": lambda run, op, x: _constant(run, op) in x,
    "dict_keys_are": lambda run, op, x: tuple(x) == _constant(run, op) and all(type(k) is str for k in x),
    "odict_keys_are": lambda run, op, x: _keys_are(tuple(x), _constant(run, op)),
    "dict_item": lambda run, op, x: x[_constant(run, op)],
}

_TENSOR: dict[str, Callable[..., object]] = {
    "rank": lambda run, op, t: t.dim(),
    "size": lambda run, op, t: t.size(_attr(op, "dim")),
    "stride": lambda run, op, t: t.stride(_attr(op, "dim")),
    "numel": lambda run, op, t: t.numel(),
    "storage_offset": lambda run, op, t: t.storage_offset(),
    "dtype": lambda run, op, t: _scalar_type(t.dtype),
    "device_type": lambda run, op, t: _device_type(t),
    "device_index": lambda run, op, t: -1 if t.device.index is None else t.device.index,
    "requires_grad": lambda run, op, t: t.requires_grad,
    "is_contiguous": lambda run, op, t: t.is_contiguous(),
    "data_ptr": lambda run, op, t: t.data_ptr(),
    "wrapped_number": lambda run, op, number: number,  # torch.ops takes a number for a tensor as the bindings do
    "number_tensor": _number_tensor,
    "list_size": lambda run, op, ts: len(ts),
    "list_get": lambda run, op, ts: ts[_attr(op, "item")],
}

_ENVIRONMENT: dict[str, Callable[..., object]] = {
    "grad_enabled": lambda run, op: torch.is_grad_enabled(),
    "set_grad_enabled": lambda run, op, on: torch._C._set_grad_enabled(on),
    "inference_mode": lambda run, op: torch.is_inference_mode_enabled(),
    "torch_function_modes": lambda run, op: _function_modes(),
}

_BINARY: dict[str, Callable[..., object]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "floordiv": operator.floordiv, "mod": operator.mod,
    "and": operator.and_, "or": operator.or_, "xor": operator.xor, "shl": _shift(operator.lshift), "shr": _shift(operator.rshift),
    "neg": operator.neg, "invert": operator.invert, "abs": abs, "min": min, "max": max, "div": operator.truediv,
}

_ARITHMETIC: dict[str, Callable[..., object]] = {
    **{f"{n}_int": _arith(f) for n, f in _BINARY.items() if n != "div"},
    **{f"{n}_float": _arith(f) for n, f in _BINARY.items() if n in ("add", "sub", "mul", "div", "neg", "abs", "floordiv", "mod")},
    **{f"{c}_{k}": _arith(getattr(operator, c)) for c in COMPARISONS for k in ("int", "float")},
    "pow_int": _arith(_pow_int),
    "pow_float": _arith(operator.pow),
    "truediv_int": _arith(_exact(operator.truediv)),
    "int_to_float": _arith(_exact(float)),
    "float_to_int": _arith(int),
    "bool_to_int": _arith(int),
    "int_to_bool": _arith(bool),
    "float_to_bool": _arith(bool),
    "not": _arith(operator.not_),
}

_EXCEPTIONS: dict[str, Callable[..., object]] = {
    "keep": lambda run, op, x: None,
    "push_handled": lambda run, op, error: exceptions.push(error),
    "pop_handled": lambda run, op, error: exceptions.pop(error),
    "add_context": lambda run, op, error: exceptions.add_context(error),
    "traceback": lambda run, op, error: error.__traceback__,
}

RULES: dict[str, Callable[..., object]] = {
    "carry": lambda run, op, value: value, "loop": lambda run, op: None, "back": _back,
    "constant": _constant, "state": _state, "guard": _guard, "pin": _pin, "exit": _exit, "cell_get": _cell_get,
    "cell_set": _cell_set, "call": _call, "call_raises": _call_raises, "launch": _launch, "replay": _replay,
    "add_traceback": _add_traceback, **_EXCEPTIONS,
    **_OBJECT, **_TENSOR, **_ENVIRONMENT, **_ARITHMETIC,
}


def _torch_op(run: Run, op: mlir.Operation, name: str, args: list[object]) -> object:
    """torch.constant.*, torch.prim.ListConstruct and ATen operators."""
    if name.startswith("torch.constant."):
        if name == "torch.constant.none":
            return None
        value = _attr(op, "value")
        return bool(value) if name.endswith("bool") else torch.device(str(value)) if name.endswith("device") else value
    if name == "torch.prim.ListConstruct":
        return list(args)
    full = str(_attr(op, "name")) if name == "torch.operator" else name.removeprefix("torch.")
    _, packet, *overload = full.split(".")
    target = getattr(getattr(torch.ops.aten, packet), overload[0] if overload else "default")
    declared = target._schema.arguments  # the operands are all of them, in order
    keywords = {a.name: value for a, value in zip(declared, args, strict=True) if a.kwarg_only}
    return target(*args[: len(declared) - len(keywords)], **keywords)


def evaluate(run: Run, op: mlir.Operation, args: list[Any]) -> list[object]:
    """The results of one op with these operands."""
    name, count = op.name, len(op.results)
    if name.startswith("trident."):
        result = RULES[name.removeprefix("trident.")](run, op, *args)
    else:
        result = _torch_op(run, op, name, args)
    return [result] if count == 1 else list(result) if count else []  # type: ignore[call-overload]


def execute(run: Run, op: mlir.Operation) -> None:
    run.env.update(zip(op.results, evaluate(run, op, [run.env[v] for v in op.operands]), strict=True))


def run_trace(trace: Trace, args: tuple[object, ...]) -> object:
    """Execute a trace: args are those of its block. Returns the result; raises Miss or SideExit.

    An exception raised by an op after the entry region is delivered as a SideExit with `error` set.
    """
    run = Run(trace, dict(zip(trace.block.arguments, args, strict=True)))
    operations = [view.operation for view in trace.block.operations]
    at = 0
    while operations[at].name != "func.return":
        operation = operations[at]
        try:
            execute(run, operation)
        except Leave as e:
            if run.state is None:
                raise Miss(str(e)) from None
            raise SideExit(*run.state, str(e)) from None
        except (Miss, SideExit):
            raise
        except Exception as e:
            if run.state is None:
                raise
            raise SideExit(*run.state, "exception", e) from None
        at = at + 1 if operation.name != "trident.back" else next(n for n, op in enumerate(operations) if op.name == "trident.loop")
    return run.env[operations[at].operands[0]]
