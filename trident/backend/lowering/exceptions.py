"""Lowering of exceptions that the trace itself handles.

Owns these rules. What must hold: an exception has a slot before anything can leave the trace.

May import: lowering.*, native.exceptions, ir.exceptions.
"""

from __future__ import annotations

from trident.backend.lowering.function import Function
from trident.backend.lowering.objects import constant_object
from trident.backend.lowering.python import vectorcall
from trident.backend.lowering.rules import rule
from trident.backend.lowering.values import Op
from trident.backend.native import exceptions
from trident.ir.exceptions import free_variables


@rule("trident.call_raises", leaves=True)
def call_raises(f: Function, op: Op) -> None:
    f.need_gil()
    exceptions.load()
    result = vectorcall(f, op)
    f.own_object(op.results[0], f.call("trident_caught", "ptr", f"ptr {result}"))
    f.define(op.results[1], f.value(f"icmp eq ptr {result}, null"))


@rule("trident.keep")
def keep(f: Function, op: Op) -> None:
    """A use of its operand, and no code."""


@rule("trident.push_handled")
def push_handled(f: Function, op: Op) -> None:
    f.need_gil()
    exceptions.load()
    f.own_object(op.results[0], f.call("trident_push_handled", "ptr", f"ptr {f.object(op.operands[0])}"))


def _plain(name: str) -> None:
    @rule(f"trident.{name}")
    def emit(f: Function, op: Op) -> None:
        f.need_gil()
        exceptions.load()
        f.call(f"trident_{name}", "void", f"ptr {f.object(op.operands[0])}")


_plain("pop_handled")
_plain("add_context")


@rule("trident.add_traceback")
def add_traceback(f: Function, op: Op) -> None:
    f.need_gil()
    exceptions.load()
    code, globals_ = (f.pointer(id(f.trace.constants[op.integer(name)])) for name in ("code", "globals"))
    lasti, line = op.integer("lasti"), op.integer("line")
    first, count = free_variables(f.trace.constants[op.integer("code")])  # type: ignore[arg-type]
    f.call("trident_add_traceback", "void", f"ptr {f.object(op.operands[0])}", f"ptr {code}", f"ptr {globals_}", f"i64 {lasti}",
           f"ptr {f.pointer(constant_object(f, lasti))}",
           f"ptr {f.pointer(constant_object(f, line))}", f"i64 {first}", f"i64 {first + count}")


@rule("trident.traceback")
def traceback(f: Function, op: Op) -> None:
    f.need_gil()
    exceptions.load()
    f.own_object(op.results[0], f.call("trident_traceback", "ptr", f"ptr {f.object(op.operands[0])}"))
