"""Static analysis of a code object, once per code object: instructions, jumps, exception table, liveness, loops.

Owns the decoded form that the recorder interprets. What must hold: offsets are byte offsets in `co_code`; an instruction starts
at its first prefix (EXTENDED_ARG, KW_NAMES, PRECALL), so that a frame can be resumed there; `live` over-approximates the locals
that any path from the instruction (exceptional ones included) reads before writing.

May import: bytecode, frontend.cpython, ir.codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import CodeType
from typing import Any

from bytecode import ConcreteBytecode

from trident.frontend.cpython import opcodes
from trident.ir.codes import OfCode


@dataclass(slots=True, eq=False)
class Instruction:
    """One logical instruction: prefixes, the instruction and its inline caches.

    target: index of the jump target, -1 without one. live: bit i set if localsplus[i] may be read from here on. kwnames: of a
    CALL. at: byte offset of the instruction itself, behind its prefixes. index: its own position. header: an instruction behind it
    jumps here.
    """

    name: str
    arg: int
    offset: int
    next_offset: int
    line: int
    index: int
    handler: Callable[..., None] = None  # type: ignore[assignment]
    target: int = -1
    live: int = -1
    kwnames: tuple[str, ...] = ()
    data: Any = None
    at: int = 0
    header: bool = False


@dataclass(slots=True, eq=False)
class ExceptionRange:
    """Instructions [start, stop) (indices) whose exceptions go to the instruction `target`."""

    start: int
    stop: int
    target: int
    depth: int
    push_lasti: bool


@dataclass(slots=True, eq=False)
class CodeInfo:
    """The analysis of one code object."""

    code: CodeType
    instructions: list[Instruction]
    at: dict[int, int]  # byte offset (of the first prefix) -> index
    ranges: list[ExceptionRange]
    names: tuple[str, ...]  # of localsplus
    n_locals: int
    loops: list[tuple[int, int]] = field(default_factory=list)  # (header index, index of the backward jump)
    unsupported: str = ""  # an instruction that cannot be recorded at all, "" if there is none

    def stored_around(self, index: int, headers: Any) -> set[int]:
        """Numbers of the locals that are stored in those loops around an instruction that have one of these headers."""
        found: set[int] = set()
        for header, back in self.loops:
            if header in headers and header <= index <= back:
                found |= {i.arg for i in self.instructions[header:back + 1] if "w" in (opcodes.LOCAL_ACCESS.get(i.name) or "")}
        return found

    def handler_of(self, index: int) -> ExceptionRange | None:
        """The innermost exception range that covers an instruction."""
        found = None
        for entry in self.ranges:
            if entry.start <= index < entry.stop and (found is None or entry.stop - entry.start <= found.stop - found.start):
                found = entry
        return found


def localsplus_names(code: CodeType) -> tuple[str, ...]:
    """Names of the entries of localsplus: locals, then cells that are not arguments, then free variables."""
    cells = tuple(name for name in code.co_cellvars if name not in code.co_varnames)
    return code.co_varnames + cells + code.co_freevars


_NO_CODE: CodeType = (lambda: None).__code__
_analyses: OfCode[CodeInfo] = OfCode()


def analyse(code: CodeType) -> CodeInfo:
    """The (cached) analysis of a code object."""
    known = _analyses.get(code)
    if known is None:
        info = _analyse(code)
        _analyses[code] = replace(info, code=_NO_CODE)  # else the code would live for ever
        return info
    return replace(known, code=code)


def _analyse(code: CodeType) -> CodeInfo:
    instructions, unit_index = _decode(code)
    ranges = []
    for entry in _exception_entries(code):
        start, stop, target, depth, lasti = entry
        last = max(unit_index)
        stop_index = next((unit_index[u] for u in range(stop, last + 1) if u in unit_index), len(instructions))
        start_index = next(unit_index[u] for u in range(start, last + 1) if u in unit_index)
        if start_index < stop_index:
            ranges.append(ExceptionRange(start_index, stop_index, unit_index[target], depth, lasti))
    names = localsplus_names(code)
    info = CodeInfo(code, instructions, {i.offset: i.index for i in instructions}, ranges, names, len(names))
    info.loops = [(i.target, i.index) for i in instructions if 0 <= i.target <= i.index]
    for header, _ in info.loops:
        instructions[header].header = True
    info.unsupported = next((i.name for i in instructions if i.name in opcodes.UNSUPPORTED), "")
    _liveness(info)
    return info


def _exception_entries(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    """(start, stop, target, depth, push_lasti) in code units, stop exclusive."""
    table = ConcreteBytecode.from_code(code, extended_arg=True).exception_table
    return [(e.start_offset, e.stop_offset + 1, e.target, e.stack_depth, e.push_lasti) for e in table]


def _decode(code: CodeType) -> tuple[list[Instruction], dict[int, int]]:
    """Logical instructions, and the index of the instruction that each first code unit (or prefix unit) belongs to."""
    result: list[Instruction] = []
    unit_index: dict[int, int] = {}
    targets: list[tuple[Instruction, int]] = []
    unit, start, extended, kwnames, line = 0, -1, 0, (), code.co_firstlineno
    for raw in ConcreteBytecode.from_code(code, extended_arg=True):
        if raw.name == "CACHE":
            unit += 1
            if result:
                result[-1].next_offset = 2 * unit
            continue
        start = unit if start < 0 else start
        unit_index[unit] = len(result)
        line = raw.lineno if isinstance(raw.lineno, int) else line
        arg = (extended << 8) | (raw.arg if isinstance(raw.arg, int) else 0)
        if raw.name == "EXTENDED_ARG":
            extended, unit = arg, unit + 1
            continue
        if raw.name in opcodes.PREFIXES:
            if raw.name == "KW_NAMES":
                kwnames = code.co_consts[arg]
            extended, unit = 0, unit + 1
            continue
        instruction = Instruction(raw.name, arg, 2 * start, 2 * (unit + 1), line, len(result), kwnames=kwnames, at=2 * unit)
        instruction.handler = opcodes.handler(raw.name)
        if opcodes.is_jump(raw.name):
            targets.append((instruction, opcodes.jump_target(raw.name, unit, arg)))
        result.append(instruction)
        unit, start, extended, kwnames = unit + 1, -1, 0, ()
    # PRECALL has caches of its own: the CACHE units before the CALL were credited to the instruction before it.
    for before, after in zip(result, result[1:], strict=False):
        before.next_offset = after.offset
    for instruction, target_unit in targets:
        instruction.target = unit_index[target_unit]
    return result, unit_index


def _uses(info: CodeInfo, instruction: Instruction) -> tuple[int, int]:
    """(read, written) bits of localsplus."""
    kind = opcodes.LOCAL_ACCESS.get(instruction.name)
    if kind is None:
        return 0, 0
    bit = 1 << instruction.arg
    return (bit if "r" in kind else 0), (bit if "w" in kind else 0)


def _always_live(code: CodeType, names: tuple[str, ...]) -> int:
    """Locals that something other than the bytecode may read."""
    if not _FRAME_NAMES.isdisjoint(code.co_names):
        return (1 << len(names)) - 1
    if "__class__" in code.co_freevars:  # super() without arguments reads the first argument and this cell
        return 1 | 1 << names.index("__class__")
    return 0


_FRAME_NAMES = frozenset({"locals", "vars", "eval", "exec", "dir", "_getframe", "currentframe", "stack", "breakpoint"})


def _liveness(info: CodeInfo) -> None:
    """Backward data flow over the instructions, exceptional edges included."""
    instructions = info.instructions
    count = len(instructions)
    uses = [_uses(info, i) for i in instructions]
    handler = [entry.target if (entry := info.handler_of(n)) is not None else -1 for n in range(count)]
    live = [0] * (count + 1)
    changed = True
    while changed:
        changed = False
        for n in range(count - 1, -1, -1):
            instruction = instructions[n]
            out = 0 if instruction.name in opcodes.NO_FALL_THROUGH else live[n + 1]
            if instruction.target >= 0:
                out |= live[instruction.target]
            read, written = uses[n]
            new = read | (out & ~written)
            if handler[n] >= 0:
                new |= live[handler[n]]
            if new != live[n]:
                live[n], changed = new, True
    always = _always_live(info.code, info.names)
    for n, instruction in enumerate(instructions):
        instruction.live = live[n] | always
