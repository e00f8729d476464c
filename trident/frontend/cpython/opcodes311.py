"""Opcode table of CPython 3.11.

May import: frontend.cpython.shared, frontend.handlers.
"""

from __future__ import annotations

from typing import Any

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
from trident.frontend.handlers import Handler, control, names, operators

# Instructions that are executed together with the CALL that follows them.
PREFIXES = frozenset({"KW_NAMES", "PRECALL"})
ATTRIBUTE_PUSHES_TWO = False  # whether the low bit of LOAD_ATTR's argument makes it push what CALL expects


def _load_attr(rec: Any, frame: Any, ins: Any) -> None:
    names.load_attribute(rec, frame, frame.pop_value(), frame.code.code.co_names[ins.arg])


def _compare(rec: Any, frame: Any, ins: Any) -> None:
    operators.compare_op(rec, frame, ins, ins.arg)


def _for_iter(rec: Any, frame: Any, ins: Any) -> None:
    control.for_iter(rec, frame, ins, loop_exit(ins))


_JUMPS: dict[str, Handler] = {
    f"POP_JUMP_{way}_IF_{what}": control.pop_jump if what in ("TRUE", "FALSE") else control.pop_jump_none
    for way in ("FORWARD", "BACKWARD")
    for what in ("TRUE", "FALSE", "NONE", "NOT_NONE")
}
HANDLERS: dict[str, Handler] = handlers_of({"LOAD_ATTR": _load_attr, "COMPARE_OP": _compare, "FOR_ITER": _for_iter, **_JUMPS})
UNSUPPORTED = frozenset(name for name, handler in HANDLERS.items() if handler is leave) - EXCEPTION_OPS


def loop_exit(ins: Any) -> int:
    """Index of the instruction after a FOR_ITER that has ended."""
    return ins.target  # type: ignore[no-any-return]


def attribute_index(ins: Any) -> int:
    """Index in co_names of the attribute of a LOAD_ATTR or LOAD_METHOD."""
    return ins.arg  # type: ignore[no-any-return]


def comparison(ins: Any) -> int:
    """Index in COMPARE_OPS of a COMPARE_OP."""
    return ins.arg  # type: ignore[no-any-return]


def handler(name: str) -> Handler:
    """The handler of an opcode."""
    return HANDLERS[name]
