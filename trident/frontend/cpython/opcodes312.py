"""Opcode table of CPython 3.12.

May import: frontend.cpython.shared, frontend.handlers.
"""

from __future__ import annotations

from typing import Any

from trident.frontend.aborts import Leave
from trident.frontend.cpython.shared import (  # noqa: F401 (read through `frontend.cpython.opcodes`)
    EXCEPTION_OPS,
    FOREIGN_OPS,
    LOCAL_ACCESS,
    NO_FALL_THROUGH,
    NO_RESULT,
    handlers_of,
    is_jump,
    jump_target,
    leave,
)
from trident.frontend.handlers import Handler, build, control, exceptions, names, operators, stack
from trident.frontend.models.builtins import make_super

# Instructions that are executed together with the CALL that follows them.
PREFIXES = frozenset({"KW_NAMES"})
ATTRIBUTE_PUSHES_TWO = True  # whether the low bit of LOAD_ATTR's argument makes it push what CALL expects


def _load_attr(rec: Any, frame: Any, ins: Any) -> None:
    """LOAD_ATTR; with the low bit of the argument what LOAD_METHOD was."""
    load = names.load_method if ins.arg & 1 else names.load_attribute
    load(rec, frame, frame.pop_value(), frame.code.code.co_names[ins.arg >> 1])


def _load_super_attr(rec: Any, frame: Any, ins: Any) -> None:
    """`super().name` without a super object, unless `super` is not the builtin."""
    owner, cls, function = frame.pop_value(), frame.pop_value(), frame.pop_value()
    if rec.resolve(function).obj is not super:
        raise Leave("unsupported", "super is not the builtin")
    made = make_super(rec, cls, owner)
    if made is None:
        raise Leave("unsupported", "a super() that is not known")
    load = names.load_method if ins.arg & 1 else names.load_attribute
    load(rec, frame, made, frame.code.code.co_names[ins.arg >> 2])


def _compare(rec: Any, frame: Any, ins: Any) -> None:
    operators.compare_op(rec, frame, ins, ins.arg >> 4)


def _for_iter(rec: Any, frame: Any, ins: Any) -> None:
    control.for_iter(rec, frame, ins, loop_exit(ins))


def _end_for(rec: Any, frame: Any, ins: Any) -> None:
    del frame.stack[-2:]


def _intrinsic_1(rec: Any, frame: Any, ins: Any) -> None:
    """CALL_INTRINSIC_1: of those in functions, UNARY_POSITIVE (5) and LIST_TO_TUPLE (6)."""
    if ins.arg == 5:
        frame.stack.append(operators.operators.unary(rec, "pos", frame.pop_value()))
    elif ins.arg == 6:
        build.push_tuple_of(rec, frame, frame.pop_value())
    else:
        raise Leave("opcode", f"CALL_INTRINSIC_1 {ins.arg}")


def _intrinsic_2(rec: Any, frame: Any, ins: Any) -> None:
    """CALL_INTRINSIC_2: of those in functions, PREP_RERAISE_STAR (1)."""
    if ins.arg != 1:
        raise Leave("opcode", f"CALL_INTRINSIC_2 {ins.arg}")
    exceptions.prepare_reraise(rec, frame, ins)


_JUMPS: dict[str, Handler] = {
    f"POP_JUMP_IF_{what}": control.pop_jump if what in ("TRUE", "FALSE") else control.pop_jump_none
    for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
}
_OWN: dict[str, Handler] = {
    "LOAD_ATTR": _load_attr,
    "LOAD_SUPER_ATTR": _load_super_attr,
    "COMPARE_OP": _compare,
    "FOR_ITER": _for_iter,
    "END_FOR": _end_for,
    "CALL_INTRINSIC_1": _intrinsic_1,
    "CALL_INTRINSIC_2": _intrinsic_2,
    "MAKE_CELL": stack.make_cell,
    **_JUMPS,
}
HANDLERS: dict[str, Handler] = handlers_of(_OWN)
UNSUPPORTED = frozenset(name for name, handler in HANDLERS.items() if handler is leave) - EXCEPTION_OPS


def loop_exit(ins: Any) -> int:
    """Index of the instruction after a FOR_ITER that has ended: END_FOR, at the target, is skipped."""
    return ins.target + 1  # type: ignore[no-any-return]


def attribute_index(ins: Any) -> int:
    """Index in co_names of the attribute of a LOAD_ATTR or LOAD_METHOD."""
    return ins.arg >> 1  # type: ignore[no-any-return]


def comparison(ins: Any) -> int:
    """Index in COMPARE_OPS of a COMPARE_OP."""
    return ins.arg >> 4  # type: ignore[no-any-return]


def handler(name: str) -> Handler:
    """The handler of an opcode."""
    return HANDLERS[name]
