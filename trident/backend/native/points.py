"""Where in a code object execution can stop and continue.

Owns the static facts of bytecode that resuming needs: instruction boundaries, what a pending call takes off the stack, which handler
an exception would go to. What must hold: an offset that is not in the table is never resumed at.

May import: ir.codes.
"""

from __future__ import annotations

import dis
import opcode
from dataclasses import dataclass
from types import CodeType

from trident.ir.codes import OfCode

_CACHES: list[int] = opcode._inline_cache_entries  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True)
class Point:
    """An instruction with its prefixes (EXTENDED_ARG; for a call also KW_NAMES and PRECALL).

    start: byte offset of the first prefix. error: of the instruction itself, where an exception that it raises is located.
    pops, next: for calls, what the call takes off the stack (-1: not a call) and where execution goes on.
    enterable: execution may start here (not between KW_NAMES and its CALL: the names would be lost).
    handler_depth: the operand stack must be at least this deep for the handler of an exception here.
    """

    start: int
    error: int
    pops: int
    next: int
    enterable: bool
    handler_depth: int


@dataclass(frozen=True, slots=True)
class _Instruction:
    start: int
    at: int
    name: str
    argument: int
    next: int


def _decode(code: CodeType) -> list[_Instruction]:
    raw = code.co_code
    found = []
    at, start, high = 0, 0, 0
    while at < len(raw):
        op, argument = raw[at], raw[at + 1] | high
        if op == dis.EXTENDED_ARG:
            at, high = at + 2, argument << 8
            continue
        following = at + 2 + 2 * _CACHES[op]
        found.append(_Instruction(start, at, dis.opname[op], argument, following))
        at, start, high = following, following, 0
    return found


def _analyse(code: CodeType) -> dict[int, Point]:
    handlers = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def depth(offset: int) -> int:
        return max((h.depth for h in handlers if h.start <= offset < h.end), default=0)

    points: dict[int, Point] = {}
    instructions = _decode(code)
    named = False  # a KW_NAMES waits for its CALL
    for index, i in enumerate(instructions):
        last = index
        while instructions[last].name in ("KW_NAMES", "PRECALL"):
            last += 1
        real = instructions[last]
        pops = {"CALL": real.argument + 2, "CALL_FUNCTION_EX": 3 + (real.argument & 1)}.get(real.name, -1)
        points[i.start] = Point(i.start, real.at, pops, real.next, not named, depth(real.at))
        named = i.name == "KW_NAMES" or named and i.name == "PRECALL"
    return points


_tables: OfCode[dict[int, Point]] = OfCode()


def table(code: CodeType) -> dict[int, Point]:
    """The points of a code object by the offset that they start at."""
    found = _tables.get(code)
    if found is None:
        found = _tables[code] = _analyse(code)
    return found


def copies_free_variables_at(code: CodeType) -> int:
    """Offset of the instruction that copies free variables from the function into the frame; -1 where there is none."""
    return next((i.start for i in _decode(code) if i.name == "COPY_FREE_VARS"), -1) if code.co_freevars else -1
