"""Models of functions on numbers: constructors, `min`, `max`, `sum`, `divmod`, `math`.

Owns what these write for run-time ints, floats and bools. What must hold: see frontend.models.

May import: ir, frontend.{operators,values,models}.
"""

from __future__ import annotations

import builtins
import math
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trident.frontend import operators
from trident.frontend.guards import fits
from trident.frontend.models import Answer, Args, Kwargs, Model, NotModelled, Registry
from trident.frontend.values import Const, Value, Virtual

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


# ------------------------------------------------------------------------------------------------------------- numbers
def _int(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) > 1:
        return NotModelled
    if not args:
        return Const(0)
    value = args[0]
    if operators.is_foldable(value) or type(value) is Const and type(value.obj) in (int, float, str):
        return Const(rec.execute(int, value.obj))
    if rec.is_hooked(value):
        return NotModelled
    kind = rec.number_kind(value)
    if kind == "int":
        return value
    if kind == "bool":
        return rec.result(int(value.obj), rec.ssa(value, "int"))  # type: ignore[call-overload]
    if kind == "float":
        if not -2.0**63 <= value.obj < 2.0**63:  # type: ignore[operator]
            return NotModelled  # a larger int, or the error of an infinity or a NaN
        real = rec.execute(int, value.obj)
        return rec.result(real, rec.op("float_to_int", rec.ssa(value, "float")))
    return NotModelled


def _float(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) > 1:
        return NotModelled
    if not args:
        return Const(0.0)
    value = args[0]
    if type(value) is Const and type(value.obj) in (int, float, bool, str):
        return Const(rec.execute(float, value.obj))
    if rec.is_hooked(value):
        return NotModelled
    kind = rec.number_kind(value)
    if kind is None or kind != "float" and abs(value.obj) > 2**53:  # type: ignore[arg-type]
        return NotModelled
    return value if kind == "float" else rec.result(float(value.obj), rec.ssa(value, "float"))  # type: ignore[arg-type]


def _bool(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) > 1:
        return NotModelled
    return operators.truth(rec, args[0]) if args else Const(False)


def _abs(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) != 1:
        return NotModelled
    value = args[0]
    if operators.is_foldable(value):
        return Const(rec.execute(abs, value.obj))
    kind = rec.number_kind(value)
    if kind is None or rec.is_hooked(value):
        return NotModelled
    real: Any = abs(value.obj)  # type: ignore[arg-type]
    form = "float" if kind == "float" else "int"
    return rec.result(real, rec.op(f"abs_{form}", rec.ssa(value, form))) if form == "float" or fits(real) else NotModelled


def _extreme(name: str) -> Model:
    """min and max."""
    function = getattr(builtins, name)

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if kwargs or not args:
            return NotModelled
        items = args if len(args) > 1 else rec.known_items(args[0])
        if not items:
            return NotModelled
        items = [rec.resolve(item) for item in items]
        if all(operators.is_foldable(item) for item in items):
            return Const(rec.execute(function, [item.obj for item in items]))
        if not all(type(item.obj) is int and rec.number_kind(item) == "int" for item in items):
            return _extreme_by_comparison(rec, name, items)
        best = items[0]
        for item in items[1:]:
            form = rec.builder.op(f"{name}_int", rec.ssa(best, "int"), rec.ssa(item, "int"))
            best = rec.result(function(best.obj, item.obj), form)
        return best

    return model


def _extreme_by_comparison(rec: Recorder, name: str, items: list[Value]) -> Answer:
    """For numbers of other types: each comparison is a branch."""
    if not all(type(item.obj) in (int, float, bool) and rec.number_kind(item) is not None for item in items):
        return NotModelled
    if any(type(item.obj) is float for item in items) and any(type(item.obj) is int and abs(item.obj) > 2**53 for item in items):
        return NotModelled  # such a comparison is not made on floats
    best = items[0]
    for item in items[1:]:
        if operators.decide(rec, operators.compare(rec, "lt" if name == "min" else "gt", item, best)):
            best = item
    return best


def _sum(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if set(kwargs) - {"start"} or not 1 <= len(args) + len(kwargs) <= 2:
        return NotModelled
    start = kwargs.get("start", args[1] if len(args) > 1 else Const(0))
    if type(args[0]) is Virtual and args[0].kind == "iterator":
        return NotModelled
    items = rec.known_items(args[0])
    if items is None or not all(type(item.obj) in (int, float, bool) for item in (start, *items)):
        return NotModelled
    if any(type(item.obj) is float for item in (start, *items)) and sys.version_info >= (3, 12):
        return NotModelled  # compensated summation
    total: Any = start
    for item in items:
        pair = rec.resolve(total), rec.resolve(item)
        if all(map(operators.is_foldable, pair)):
            total = Const(pair[0].obj + pair[1].obj)  # type: ignore[operator]
            continue
        if not fits_number(pair[0].obj + pair[1].obj):  # type: ignore[operator]
            rec.abort("unsupported", "a sum that does not fit int64")
        rec.executed = 0  # each addition is harmless by itself
        total = operators.binary(rec, "add", *pair)
    return total  # type: ignore[no-any-return]


def fits_number(obj: Any) -> bool:
    """Whether a number has an unboxed form."""
    return type(obj) is float or fits(obj)


def _pow(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    return operators.binary(rec, "pow", *args) if len(args) == 2 and not kwargs else NotModelled


def _divmod(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    if kwargs or len(args) != 2:
        return NotModelled
    a, b = args
    if all(operators.is_foldable(value) for value in args):
        return Const(rec.execute(divmod, a.obj, b.obj))
    if not all(type(value.obj) is int and rec.number_kind(value) == "int" for value in args) or not b.obj:
        return NotModelled
    quotient = operators.binary(rec, "floordiv", a, b)
    return rec.virtual_tuple([quotient, operators.binary(rec, "mod", a, b)])


# --------------------------------------------------------------------------------------------------------- math
def fold(function: Callable[..., Any]) -> Model:
    """A pure C function: computed where all arguments are constants, else a call that changes nothing."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if not kwargs and all(operators.is_foldable(arg) for arg in args):
            return Const(rec.execute(function, *[arg.obj for arg in args]))
        if kwargs or not all(type(arg.obj) in (int, float, bool) and rec.number_kind(arg) for arg in args):
            return NotModelled
        return rec.write_call(function, args, f"{function.__name__} has no native form")

    return model


def _math_operator(name: str) -> Model:
    """math.sqrt and the like have no native op; floor and ceil of an int are the int."""

    def model(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
        if len(args) == 1 and not kwargs and rec.number_kind(args[0]) == "int" and not operators.is_foldable(args[0]):
            return args[0]
        return fold(getattr(math, name))(rec, args, kwargs)

    return model


def _prod(rec: Recorder, args: Args, kwargs: Kwargs) -> Answer:
    items = rec.known_items(args[0]) if len(args) == 1 and not kwargs else None
    if items is None or not all(type(item.obj) is int and rec.number_kind(item) for item in items):
        return NotModelled
    if not fits(math.prod(item.obj for item in items)):  # type: ignore[misc]
        return NotModelled
    total: Any = Const(1)
    for item in items:
        rec.executed = 0  # each multiplication is harmless by itself
        total = operators.binary(rec, "mul", total, item)
    return total  # type: ignore[no-any-return]


# ------------------------------------------------------------------------------------------------------------- register
_MODELS: dict[Any, Model] = {
    int: _int, float: _float, bool: _bool, abs: _abs, min: _extreme("min"), max: _extreme("max"), sum: _sum, pow: _pow, divmod: _divmod,
    math.prod: _prod, math.floor: _math_operator("floor"), math.ceil: _math_operator("ceil"), math.trunc: _math_operator("trunc"),
    **{function: fold(function) for function in (round, repr, format, ascii, hex, oct, bin, chr, ord, complex)},
}


def register(registry: Registry) -> None:
    """All of the above, and every other function of `math`."""
    for key, model in _MODELS.items():
        registry.function(key, model)
    for name in dir(math):
        function = getattr(math, name)
        if isinstance(function, types.BuiltinFunctionType) and registry.find(function) is None:
            registry.function(function, fold(function))
