"""Operators on Values: arithmetic, comparison, identity, truth, length.

Owns what an operator means for constants (folded), numbers (native ops with Python's exact semantics), sequences whose items
are known, and everything else (opaque). What must hold: a result that does not fit the native form is never written as one.

May import: ir, frontend.{recorder's bases,values,models}.
"""

from __future__ import annotations

import enum
import operator
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trident.frontend import special
from trident.frontend.aborts import UserRaised
from trident.frontend.analysis import analyse
from trident.frontend.guards import fits
from trident.frontend.handlers import build
from trident.frontend.models import NotModelled, registry
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import contents_of, viewed
from trident.ir import NULL
from trident.ir.describing import is_a

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    name: getattr(operator, name if name not in ("and", "or") else name + "_")
    for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor",
                 "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "ilshift", "irshift", "iand", "ior", "ixor")
}
UNARY: dict[str, Callable[[Any], Any]] = {"neg": operator.neg, "pos": operator.pos, "invert": operator.invert}
COMPARE: dict[str, Callable[[Any, Any], Any]] = {name: getattr(operator, name) for name in ("lt", "le", "eq", "ne", "gt", "ge")}
_INT_OPS = {"add": "add_int", "sub": "sub_int", "mul": "mul_int", "floordiv": "floordiv_int", "mod": "mod_int", "and": "and_int",
            "or": "or_int", "xor": "xor_int", "lshift": "shl_int", "rshift": "shr_int", "pow": "pow_int"}
_FLOAT_OPS = {"add": "add_float", "sub": "sub_float", "mul": "mul_float", "truediv": "div_float", "floordiv": "floordiv_float",
              "mod": "mod_float", "pow": "pow_float"}
_SYMBOLS = {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "floordiv": "//", "mod": "%", "pow": "**", "matmul": "@", "lshift": "<<",
            "rshift": ">>", "and": "&", "or": "|", "xor": "^", "lt": "<", "le": "<=", "eq": "==", "ne": "!=", "gt": ">", "ge": ">="}
MAX_REPEATED = 4096  # items of a sequence made by + or * that the trace knows one by one
_EXACT = 2**53  # ints up to here convert to float exactly


def is_foldable(value: Value) -> bool:
    """Whether an operation on this value can be done while recording."""
    return type(value) is Const and is_immutable(value.obj)


def is_immutable(obj: object) -> bool:
    """Whether an object can never change, its parts included."""
    kind = type(obj)
    if kind is tuple or kind is frozenset:
        return all(map(is_immutable, obj))  # type: ignore[call-overload]
    return kind in registry().constant_types


def can_compare(value: Value) -> bool:
    """Whether comparing this constant can be done while recording: also for enum members that compare in C."""
    if type(value) is not Const:
        return False
    cls = type(value.obj)
    return is_immutable(value.obj) or is_a(cls, enum.EnumType) and not is_a(cls.__eq__, types.FunctionType)


def symbol(name: str) -> str:
    """How an operator is written."""
    plain = name.removeprefix("i") if name.startswith("i") and name not in ("invert",) else name
    return _SYMBOLS.get(plain, plain)


# ------------------------------------------------------------------------------------------------------------- binary
def binary(rec: Recorder, name: str, a: Value, b: Value) -> Any:
    """`a op b`; name as in `operator` ("iadd" for +=)."""
    a, b = rec.resolve(a), rec.resolve(b)
    if rec.is_hooked(a) or rec.is_hooked(b):
        answer = registry().try_hooks("binary", rec, name, a, b)
        if answer is not NotModelled:
            return answer
    if is_foldable(a) and is_foldable(b):
        return Const(rec.execute(BINARY[name], a.obj, b.obj))
    plain = name[1:] if name in _INPLACE else name
    answer = _numbers(rec, plain, a, b)
    if answer is NotModelled:
        answer = _sequences(rec, name, plain, a, b)
    if answer is not NotModelled:
        return answer
    if name in _INPLACE and (method := _in_place_method(rec, f"__{name}__", a)) is not None:
        return rec.call(method, [a, b], {})
    if (inlined := _special_method(rec, f"__{plain}__" if name == plain else f"__{name}__", a, b)) is not None:
        return inlined
    return rec.opaque(Const(BINARY[name]), [a, b], {}, f"operator {symbol(name)} of {type(a.obj).__name__} and {type(b.obj).__name__}")


def _in_place_method(rec: Recorder, method: str, a: Value) -> Value | None:
    """A Python `__iadd__` or the like that can only return its first argument (so never NotImplemented)."""
    if type(a) is Traced or not type(a.obj).__flags__ & 1 << 9:
        return None
    found = rec.read_type(type(a.obj), method)
    if not is_a(found, types.FunctionType) or found.__code__.co_argcount != 2:
        return None
    if type(a) is Const:
        rec.pin_class_of(a.obj, rec.name_of(a))
    instructions = analyse(found.__code__).instructions
    for n, ins in enumerate(instructions):
        if ins.name in ("STORE_FAST", "DELETE_FAST") and ins.arg == 0 or ins.name in ("MAKE_CELL", "RETURN_CONST", "RETURN_GENERATOR"):
            return None
        if ins.name == "RETURN_VALUE" and not (instructions[n - 1].name == "LOAD_FAST" and instructions[n - 1].arg == 0):
            return None
    return Const(found, f"{type(a.obj).__qualname__}.{method}")


def _special_method(rec: Recorder, method: str, a: Value, b: Value) -> Value | None:
    """`a.__op__(b)` of a Python class, followed into where it has no effects and does not decline."""
    cls = type(a.obj)
    if type(a) is Traced or not cls.__flags__ & 1 << 9 or type(b.obj) is not cls and issubclass(type(b.obj), cls):
        return None
    if type(a) is Const:
        rec.pin_class_of(a.obj, rec.name_of(a))
    found = rec.read_type(cls, method)
    if not is_a(found, types.FunctionType):
        return None
    answer = rec.try_pure(Const(found, f"{cls.__qualname__}.{method}"), [a, b])
    if answer is None or answer.obj is NotImplemented:
        return None
    return answer if type(answer) is Const or type(answer.obj) in _NUMBERS else None


_INPLACE = frozenset(name for name in BINARY if name.startswith("i"))


def _numbers(rec: Recorder, name: str, a: Value, b: Value) -> Any:
    kinds = _number_kinds(rec, a, b)
    if kinds is None:
        return NotModelled
    if "float" in kinds:
        return _floats(rec, name, a, b)
    if name == "truediv":
        if abs(a.obj) > _EXACT or abs(b.obj) > _EXACT:  # type: ignore[arg-type]
            return NotModelled
        real = rec.execute(operator.truediv, a.obj, b.obj)
        return rec.result(real, rec.op("truediv_int", rec.ssa(a, "int"), rec.ssa(b, "int")))
    if name not in _INT_OPS:
        return NotModelled
    return _ints(rec, name, a, b, both_bool=kinds == ("bool", "bool"))


def _number_kinds(rec: Recorder, a: Value, b: Value) -> tuple[str, str] | None:
    if type(a.obj) not in _NUMBERS or type(b.obj) not in _NUMBERS:
        return None
    first, second = rec.number_kind(a), rec.number_kind(b)
    return None if first is None or second is None else (first, second)


_NUMBERS = frozenset({int, float, bool})


def _ints(rec: Recorder, name: str, a: Value, b: Value, *, both_bool: bool) -> Any:
    if name == "pow" and (b.obj < 0 or type(b) is not Const):  # type: ignore[operator]
        if b.obj < 0:  # type: ignore[operator]
            return NotModelled
        cond = rec.builder.op("ge_int", rec.ssa(b, "int"), rec.builder.int(0))
        rec.guard(cond, True, "branch", f"{rec.name_of(b)} >= 0")
    if name in ("lshift", "pow") and _too_large(name, a.obj, b.obj):
        return NotModelled
    try:
        real = BINARY[name](a.obj, b.obj)
    except (ZeroDivisionError, ValueError) as error:
        raise UserRaised(error.with_traceback(None)) from None
    if not fits(real):
        return NotModelled
    value = rec.result(int(real), rec.op(_INT_OPS[name], rec.ssa(a, "int"), rec.ssa(b, "int")))
    if both_bool and name in ("and", "or", "xor"):
        return rec.result(bool(real), rec.builder.op("int_to_bool", value.ssa))
    return value


def _too_large(name: str, a: Any, b: Any) -> bool:
    """Whether the result is far outside int64 (not worth computing here)."""
    return b > 64 and name == "lshift" or name == "pow" and b > 64 and abs(a) > 1


def _floats(rec: Recorder, name: str, a: Value, b: Value) -> Any:
    if name not in _FLOAT_OPS:
        return NotModelled
    if any(type(v.obj) is not float and abs(v.obj) > _EXACT for v in (a, b)):  # type: ignore[arg-type]
        return NotModelled
    real = rec.execute(BINARY[name], a.obj, b.obj)
    if type(real) is not float:
        return rec.finish_opaque(BINARY[name], [a, b], real, f"operator {symbol(name)} with a {type(real).__name__} result")
    return rec.result(real, rec.op(_FLOAT_OPS[name], rec.ssa(a, "float"), rec.ssa(b, "float")))


def _sequences(rec: Recorder, name: str, plain: str, a: Value, b: Value) -> Any:
    """Concatenation and repetition of sequences whose items are known, and `list +=`."""
    first, second = type(a.obj), type(b.obj)
    if name == "iadd" and first is list and type(a) is Virtual:
        items = rec.known_items(b)
        if items is None or any(type(item) is Virtual for item in items):  # it might hold itself
            return NotModelled
        rec.mutation(a, len(a.items))
        rec.execute(operator.iadd, a.obj, b.obj)
        a.items.extend(items)
        return a
    if name == "ior" and first is dict and type(a) is Virtual and type(b) is Virtual and b.keys is not None:
        rec.fix_order(b)
        before_set(rec, a, b.keys)
        rec.execute(operator.ior, a.obj, b.obj)
        for key, item in zip(b.keys, b.items, strict=True):
            set_key(a, key, item)
        return a
    if name == "or" and first is second is dict:
        pairs = [iteration_pairs(rec, value) for value in (a, b)]
        if any(found is None for found in pairs):
            return NotModelled
        made = rec.virtual_dict([], [])
        for key, item in (*pairs[0], *pairs[1]):  # type: ignore[misc]
            made.obj[key] = item.obj  # type: ignore[index]
            set_key(made, key, item)
        return made
    if plain == "add" and first is second and first in (tuple, list) and name != "iadd" or name == "iadd" and first is second is tuple:
        left, right = rec.known_items(a), rec.known_items(b)
        if left is None or right is None or len(left) + len(right) > MAX_REPEATED:
            return NotModelled
        if first is tuple and not (left and right):  # the very tuple that is not empty
            return a if left else b
        return rec.virtual_tuple(left + right) if first is tuple else rec.virtual_list(left + right)
    if plain == "mul" and name != "imul" and {first, second} & {tuple, list} and int in (first, second):
        sequence, count = (a, b) if second is int else (b, a)
        known = rec.known_items(sequence)
        if known is None:
            return NotModelled
        if len(known) * count.obj > MAX_REPEATED or not fits(count.obj):  # type: ignore[operator]
            return NotModelled
        times = rec.promote(count, "repetition of a sequence")
        if type(sequence.obj) is tuple and (times == 1 or not known):
            return sequence
        return rec.virtual_tuple(known * times) if type(sequence.obj) is tuple else rec.virtual_list(known * times)
    return NotModelled


_KEYS = frozenset({str, int, float, bool, bytes, type(None)})
"""Types of keys that can be looked up without anybody noticing."""


def before_set(rec: Recorder, virtual: Virtual, keys: list[Any]) -> None:
    """To be called before keys of a virtual dict are set: new ones come behind the others."""
    new = all(type(key) in _KEYS and key not in virtual.obj for key in keys)
    rec.mutation(virtual, len(virtual.items) if new else 0)


def iteration_pairs(rec: Recorder, value: Value) -> list[tuple[Any, Value]] | None:
    """Keys, in a guarded order, and values of an exact dict; None where they are not known."""
    return build.ordered_pairs(rec, value)


def set_key(virtual: Virtual, key: object, item: Value) -> None:
    """`d[key] = item` on the parts of a virtual dict."""
    assert virtual.keys is not None
    for n, known in enumerate(virtual.keys):
        if known is key or known == key:
            virtual.items[n] = item
            return
    virtual.keys.append(key)
    virtual.items.append(item)


# -------------------------------------------------------------------------------------------------------------- unary
def unary(rec: Recorder, name: str, a: Value) -> Any:
    """`op a`."""
    a = rec.resolve(a)
    if rec.is_hooked(a):
        answer = registry().try_hooks("unary", rec, name, a)
        if answer is not NotModelled:
            return answer
    if is_foldable(a):
        return Const(rec.execute(UNARY[name], a.obj))
    kind = rec.number_kind(a)
    if kind is not None and not (kind == "float" and name == "invert"):
        real = UNARY[name](a.obj)
        if kind == "float" or fits(real):
            form = "float" if kind == "float" else "int"
            if name == "pos":
                return rec.result(real, rec.ssa(a, form))
            return rec.result(real, rec.op(f"{name}_{form}", rec.ssa(a, form)))
    return rec.opaque(Const(UNARY[name]), [a], {}, f"operator {name} of {type(a.obj).__name__}")


def logical_not(rec: Recorder, a: Value) -> Value:
    """`not a`."""
    cond = truth(rec, a)
    if type(cond) is Const:
        return Const(not cond.obj)
    return rec.result(not cond.obj, rec.builder.op("not", rec.ssa(cond, "bool")))


# ------------------------------------------------------------------------------------------------------------ compare
def compare(rec: Recorder, name: str, a: Value, b: Value) -> Any:
    """`a op b` with a rich comparison."""
    a, b = rec.resolve(a), rec.resolve(b)
    if rec.is_hooked(a) or rec.is_hooked(b):
        answer = registry().try_hooks("compare", rec, name, a, b)
        if answer is not NotModelled:
            return answer
    if can_compare(a) and can_compare(b):
        return Const(rec.execute(COMPARE[name], a.obj, b.obj))
    kinds = _number_kinds(rec, a, b)
    if kinds is not None:
        return _compare_numbers(rec, name, a, b, kinds)
    if name in ("eq", "ne"):
        outcome = equal(rec, a, b)
        if outcome is not None:
            return Const(outcome == (name == "eq"))
    if (inlined := _special_method(rec, f"__{name}__", a, b)) is not None:
        return inlined
    return rec.opaque(Const(COMPARE[name]), [a, b], {},
                      f"comparison {symbol(name)} of {type(a.obj).__name__} and {type(b.obj).__name__}")


def _compare_numbers(rec: Recorder, name: str, a: Value, b: Value, kinds: tuple[str, str]) -> Any:
    form = "float" if "float" in kinds else "int"
    if form == "float" and any(type(v.obj) is not float and abs(v.obj) > _EXACT for v in (a, b)):  # type: ignore[arg-type]
        return rec.opaque(Const(COMPARE[name]), [a, b], {}, "comparison of a float and a large int")
    cond = rec.builder.op(f"{name}_{form}", rec.ssa(a, form), rec.ssa(b, form))
    value = rec.result(COMPARE[name](a.obj, b.obj), cond)
    value.origin = f"{rec.name_of(a)} {symbol(name)} {rec.name_of(b)}"
    return value


def equal(rec: Recorder, a: Value, b: Value) -> bool | None:
    """`a == b` as a constant, with the guards that make it one; None where it cannot be decided this way."""
    a, b = rec.resolve(a), rec.resolve(b)
    if a is b and type(a.obj) in (int, str, bool, type(None), tuple):
        return True
    if can_compare(a) and can_compare(b):
        return bool(a.obj == b.obj)
    first, second = type(a.obj), type(b.obj)
    if first in _NUMBERS and second in _NUMBERS:
        if float in (first, second) and any(type(v.obj) is not float and abs(v.obj) > _EXACT for v in (a, b)):
            return None
        if _number_kinds(rec, a, b) is None:
            return None
        cond = compare(rec, "eq", a, b)
        return decide(rec, cond)
    if not _is_comparable(first) or not _is_comparable(second):
        return _equal_by_identity(rec, a, b)
    if first is not second and not (issubclass(first, tuple) and issubclass(second, tuple)):
        rec.type_of(a)
        rec.type_of(b)
        return False
    if first is str or first in (bytes, type(None)):
        for value in (a, b):
            if type(value.obj) is bytes and type(value) is Traced and value.facts.get("fresh"):
                return None
            rec.promote(value, "a comparison of strings")
        return bool(a.obj == b.obj)
    left, right = rec.known_items(a), rec.known_items(b)
    if left is None or right is None:
        return None
    return _equal_items(rec, left, right)


def _equal_by_identity(rec: Recorder, a: Value, b: Value) -> bool | None:
    """Equality of objects whose classes do not define it."""
    for value in (a, b):
        if type(value) is Traced and value.known_type is None and not rec.is_stable(value):
            return None
        if rec.is_hooked(value):
            return None
    for value in (a, b):
        if rec.read_type(rec.type_of(value), "__eq__") is not object.__eq__:
            return None
        if type(value) is Const:
            rec.pin_class_of(value.obj, rec.name_of(value))
    return decide(rec, identical(rec, a, b))


def _is_comparable(cls: type) -> bool:
    return cls in _COMPARABLE or issubclass(cls, tuple) and cls.__eq__ is tuple.__eq__


_COMPARABLE = frozenset({int, float, bool, str, bytes, type(None), tuple, list})


def _equal_items(rec: Recorder, left: list[Value], right: list[Value]) -> bool | None:
    if len(left) != len(right):
        return False
    for one, other in zip(left, right, strict=True):
        same = equal_item(rec, one, other)
        if same is not True:
            return same
    return True


def equal_item(rec: Recorder, a: Value, b: Value) -> bool | None:
    """`a is b or a == b` as containers compare their items; None where it cannot be decided."""
    a, b = rec.resolve(a), rec.resolve(b)
    if a is b or type(a) is type(b) is Const and a.obj is b.obj:
        return True
    if not (type(a.obj) is type(b.obj) is float) or any(type(v) is Traced and v.kind != "object" for v in (a, b)):
        return equal(rec, a, b)
    if a.obj != a.obj or b.obj != b.obj:
        return None  # the same NaN is equal to itself
    same = equal(rec, a, b)
    if same is False and type(a) is type(b) is Traced:
        decide(rec, compare(rec, "eq", a, a))
    return same


def decide(rec: Recorder, cond: Value) -> bool:
    """A truth value as a constant, guarded."""
    cond = rec.resolve(cond)
    if type(cond) is Traced:
        outcome = bool(cond.obj)
        rec.guard(rec.ssa(cond, "bool"), outcome, "branch", cond.origin if outcome else f"not ({cond.origin or 'condition'})")
        cond.facts["constant"] = Const(outcome)
        return outcome
    return bool(cond.obj)


def identical(rec: Recorder, a: Value, b: Value) -> Value:
    """`a is b`, a bool."""
    a, b = rec.resolve(a), rec.resolve(b)
    if a is b:
        return Const(True)
    a, b = rec.equal_to.get(id(a), a), rec.equal_to.get(id(b), b)
    if a is b:
        return Const(True)
    if type(a) is Const and type(b) is Const:
        return Const(a.obj is b.obj)
    if type(a) is Const:
        a, b = b, a
    same = a.obj is b.obj
    if type(a) is Virtual or type(b) is Virtual:
        if type(a.obj) is not type(b.obj) and not (type(a) is Traced or type(b) is Traced):
            return Const(False)
        # A new object is nothing that existed before; the empty tuple, a method and small strings are not made anew always.
        if type(a) is Virtual and a.kind not in _IDENTITY_KINDS or type(b) is Virtual and b.kind not in _IDENTITY_KINDS:
            rec.abort("unsupported", "identity of an object that is made anew")
        return Const(same)
    assert type(a) is Traced
    if type(b) is Const and a.known_type is not None and a.known_type is not type(b.obj):
        return Const(False)
    if type(a.obj) in _NUMBERS and a.kind != "object" and not (type(b) is Const and type(b.obj) is bool):
        rec.abort("unsupported", "identity of a computed number")
    if type(b) is Const:
        if a.kind == "bool":
            return rec.result(same, a.ssa if b.obj is True else rec.builder.op("not", a.ssa))
        cond = rec.builder.op("is_constant", rec.ssa(a, "object"), index=rec.builder.constant_index(b.obj))
    else:
        cond = rec.builder.op("is", rec.ssa(a, "object"), rec.ssa(b, "object"))
    value = rec.result(same, cond)
    value.origin = f"{rec.name_of(a)} is {rec.name_of(b)}"
    return value


_IDENTITY_KINDS = frozenset({"list", "dict", "set", "cell", "function", "instance"})


# ----------------------------------------------------------------------------------------------------- truth and length
def truth(rec: Recorder, a: Value) -> Value:
    """`bool(a)`: a Const, or a Traced of kind bool."""
    a = rec.resolve(a)
    obj: Any = a.obj
    if rec.is_hooked(a):
        answer = registry().try_hooks("truth", rec, a)
        if answer is not NotModelled:
            return answer  # type: ignore[no-any-return]
    if type(a) is Const:
        return _truth_constant(rec, a, obj)
    if type(a) is Virtual:
        if a.kind in ("tuple", "list", "dict", "set"):
            return Const(bool(a.obj))
        if a.kind in ("range", "view"):
            return truth(rec, length(rec, a))
        if a.kind == "vars":
            return opaque_truth(rec, a)
        return Const(True) if a.kind != "instance" else _truth_object(rec, a)
    assert type(a) is Traced
    kind = rec.number_kind(a)
    if kind == "bool":
        return a if a.kind == "bool" else _named(rec.result(obj, rec.ssa(a, "bool")), a)
    if kind is not None:
        return _named(rec.result(bool(obj), rec.builder.op(f"{kind}_to_bool", rec.ssa(a, kind))), a)
    cls = rec.type_of(a)
    a = rec.resolve(a)
    if isinstance(a, Const):
        return _truth_constant(rec, a, obj)
    if cls in (tuple, list, dict, OrderedDict):
        return truth(rec, length(rec, a))
    if type(a) is Traced and rec.is_run_time_instance(a):
        return _truth_object(rec, a)
    if type(a) is Traced and rec.is_stable(a):
        rec.guard_identity(a, f"{a.origin or 'value'} is the same {cls.__name__}")
        return truth(rec, a)
    return opaque_truth(rec, a)


def opaque_truth(rec: Recorder, a: Value) -> Value:
    """`bool(a)` as an opaque call; its result needs no type guard."""
    answer = rec.opaque(Const(bool), [a], {}, f"truth of a {type(a.obj).__name__}")
    rec.mark_type(answer, bool)
    return answer


def _named(value: Traced, source: Traced) -> Traced:
    value.origin = source.origin
    return value


def _truth_constant(rec: Recorder, a: Const, obj: Any) -> Value:
    kind = type(obj)
    if obj is NotImplemented:  # warns
        return opaque_truth(rec, a)
    if kind in (bool, type(None), int, str, float, bytes, tuple, complex, range) or kind in registry().constant_types:
        return Const(bool(obj))
    if kind in (dict, list, set, OrderedDict):
        return Const(not rec.container_is_empty(obj, rec.name_of(a)))
    if is_a(obj, types.FunctionType | types.MethodType | types.BuiltinFunctionType | types.ModuleType):
        return Const(True)
    return _truth_object(rec, a)


def _truth_object(rec: Recorder, a: Value) -> Value:
    cls = type(a.obj)
    if type(a) is Const:
        rec.pin_class_of(a.obj, rec.name_of(a))
    for name in ("__bool__", "__len__"):
        found = rec.read_type(cls, name)
        if found is NULL:
            continue
        if is_a(found, types.FunctionType):
            answer = rec.try_pure(Const(found), [a])
            checked = None if answer is None else (special.truth_of if name == "__bool__" else special.length_of)(rec, answer)
            if checked is not None:
                return truth(rec, checked)
        if (contents := contents_of(a)) is not None and name == "__len__" and found in C_LENGTHS:
            return Const(bool(contents.items))
        return opaque_truth(rec, a)
    return Const(True)


def length(rec: Recorder, a: Value) -> Value:
    """`len(a)`."""
    a = rec.resolve(a)
    obj: Any = a.obj
    if rec.is_hooked(a):
        answer = registry().try_hooks("length", rec, a)
        if answer is not NotModelled:
            return answer  # type: ignore[no-any-return]
    if is_foldable(a) or type(a) is Const and (type(obj) in (tuple, frozenset, range) or id(obj) in rec.frozen):
        return Const(rec.execute(len, obj))
    if type(a) is Virtual and a.kind in ("tuple", "list", "dict", "set"):
        return Const(len(obj))
    if type(a) is Virtual and a.kind == "range" and all(type(rec.resolve(item)) is Const for item in a.items):
        return Const(len(obj))
    if type(a) is Virtual and a.kind == "view":
        return length(rec, viewed(rec.resolve(a.items[0])))
    if type(a) is Const and type(obj) is list and not rec.list_is_dynamic(obj):
        return Const(len(rec.list_items(obj, rec.name_of(a))))
    if type(a) is Const and type(obj) in (dict, OrderedDict):
        return Const(len(rec.dict_items(obj, rec.name_of(a))))
    cls = rec.type_of(a)
    if cls in (tuple, list, dict, OrderedDict) and (type(a) is Traced or cls is list):
        kind = cls.__name__ if cls in (tuple, list) else "dict"
        value = rec.result(len(obj), rec.builder.op(f"{kind}_len", rec.ssa(a, "object")))
        value.origin = f"len({rec.name_of(a)})"
        return value
    if rec.follows_type(a):
        found = rec.read_type(cls, "__len__")
        if is_a(found, types.FunctionType) and (answer := rec.try_pure(Const(found), [a])) is not None \
                and (checked := special.length_of(rec, answer)) is not None:
            return checked
        if (contents := contents_of(a)) is not None and found in C_LENGTHS:
            return Const(len(contents.items))
        if type(a) is Traced and found in C_LENGTHS:
            return rec.result(dict.__len__(obj), rec.builder.op("dict_len", rec.ssa(a, "object")), f"len({rec.name_of(a)})")
    return rec.opaque(Const(len), [a], {}, f"length of a {cls.__name__}")


def make_set(rec: Recorder, items: list[Value]) -> Any:
    """A virtual set of constants, in the order in which they were added; NotModelled where one is no constant."""
    if not all(is_foldable(item) for item in items):
        return NotModelled
    return rec.virtual({item.obj for item in items}, "set", list(items))


C_LENGTHS = (dict.__len__, OrderedDict.__len__)
