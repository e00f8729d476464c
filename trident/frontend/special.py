"""What CPython demands of the results of special methods that are followed into: `__iter__`, `__bool__`, `__len__`.

Owns these checks. What must hold: a result that CPython refuses is left to CPython, which raises its own error; what the check depends
on is guarded. (That `__init__` returns None is checked where its frame ends, in calls.py.)

May import: frontend.{operators,values}, ir.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trident.frontend import operators
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.ir import NULL

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder

_LONGEST = 1 << 63


def is_iterator(rec: Recorder, value: Value) -> bool:
    """`PyIter_Check`: whether a result of `__iter__` has `__next__`."""
    value = rec.resolve(value)
    if type(value) is Virtual and value.kind != "instance":
        return value.kind in ("iterator", "generator")
    if type(value) is Const:
        rec.pin_class_of(value.obj, rec.name_of(value))
    return rec.read_type(rec.type_of(value), "__next__") is not NULL


def truth_of(rec: Recorder, answer: Value) -> Value | None:
    """A result of `__bool__`; None where it is no bool."""
    answer = rec.resolve(answer)
    return answer if type(answer.obj) is bool and rec.type_of(answer) is bool else None


def length_of(rec: Recorder, answer: Value) -> Value | None:
    """A result of `__len__` as the int that `len` makes of it; None where it is refused or has an `__index__` of its own."""
    answer = rec.resolve(answer)
    number = answer.obj
    if type(number) not in (int, bool) or not 0 <= number < _LONGEST or rec.type_of(answer) is not type(number):  # type: ignore[operator]
        return None
    if type(answer) is not Traced:
        return Const(int(number))  # type: ignore[call-overload]
    if type(number) is bool:
        return Const(int(operators.decide(rec, answer)))
    operators.decide(rec, operators.compare(rec, "ge", answer, Const(0)))
    return answer
