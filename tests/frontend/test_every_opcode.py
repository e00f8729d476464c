"""Every instruction that the tables say is handled is executed by the recorder in a program whose trace is complete, is executed
natively, and gives what eager gives. A new opcode, or one whose handler only gives up, fails here."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

import trident
from trident.api import entry_of
from trident.frontend.cpython import opcodes
from trident.frontend.recorder import Recorder

_LISTED = 7
_counter = 0


class _Managed:
    def __enter__(self) -> int:
        return 5

    def __exit__(self, *_: object) -> None:
        pass


class _Swallowing(_Managed):
    def __exit__(self, *_: object) -> bool:  # type: ignore[override]
        return True


class _Base:
    def name(self) -> str:
        return "base"


class _Derived(_Base):
    def name(self) -> str:
        return "derived " + super().name() + super(_Derived, self).name()  # noqa: UP008


def _stack(a: int, b: int) -> Any:
    a, b = b, a
    a, b, c = b, a, a
    x = y = a
    return a, b, c, x, y, (a if a else b), not a


def _operators(a: int, b: int) -> Any:
    c = a
    c += b
    c -= 1
    c *= 2
    return a + b, a - b, a * b, a / b, a // b, a % b, a ** 2, a << 1, a >> 1, a & b, a | b, a ^ b, -a, +a, ~a, c, a < b, a is b, a is not b


def _jumps(a: int, b: int) -> Any:
    seen = []
    if a and b:
        seen.append(1)
    if a or b:
        seen.append(2)
    if a is None:
        seen.append(3)
    if a is not None:
        seen.append(4)
    n = 0
    while n < 3:
        n += 1
        if n == 2:
            continue
        seen.append(n)
    while n is not None:
        n = None if n > 4 else n + 1  # type: ignore[assignment]
    while n is None:
        n = 1
    while not n > 3:
        n += 1
    m = 2
    while True:
        m -= 1
        if not m:
            break
    value = seen and a
    other = b or seen
    assert seen, "never"
    return seen, value, other, 1 < a < 100


def _long_loops(a: int, b: int) -> Any:
    n: Any = 3
    while n:
        n -= 1
    n = 0
    while n != 3:
        n += 1
    first: Any = [1, 2]
    while first is not None:
        first = None if len(first) > 3 else [*first, 3]
    while first is None:
        first = a
    return n, first, b


def _loops(a: int, b: int) -> Any:
    total = 0
    for i in range(a):
        for j in (1, 2, b):
            if j == i:
                break
            total += j
        else:
            total += 100
    return total, [x + 1 for x in range(a)], {x: x for x in range(a)}, {x for x in (a, b)}, list(x for x in [a, b])  # noqa: C400, C416


def _containers(a: int, b: int) -> Any:
    items = [a, b, *range(2)]
    pairs = {"a": a, "b": b}
    merged = {**pairs, "c": 3}
    members = {a, b, *items}
    many = {1: a, 2: b}
    constant = {"x": a, "y": b}
    part = items[1:]
    items[0] = 9
    items[1:2] = [7, 8]
    del items[0]
    first, *rest = items
    left, right = (a, b)
    many[3] = first
    return items, merged, sorted(members), many, constant, part, rest, left, right, (*items, a), 2 in items, 3 not in items, [1, 2, 3, a]


def _strings(a: int, b: int) -> Any:
    return f"{a} {b!r} {a:03d} {'x'!s:>3}", f"{a}"


def _calls(a: int, b: int) -> Any:
    def inner(x: int, y: int = 2, *args: int, z: int = 3, **kwargs: int) -> Any:
        return x, y, args, z, kwargs

    def annotated(x: int = a, *, y: int = b) -> int:
        return x + y + a

    pairs = {"z": 5, "q": 6}
    plain = inner(a), inner(a, b), inner(a, b, 3, z=4), annotated()
    return plain, inner(*(a, b)), inner(*[a], **pairs), inner(a, **pairs, w=1), dict(**pairs, k=1)


def _names(a: int, b: int) -> Any:
    global _counter
    _counter = a
    count = b

    def up() -> int:
        nonlocal count
        count += 1
        return count

    seen = up(), _counter, _LISTED, len([a])
    del a
    gone = 1
    del gone
    return seen


def _deletes(a: int, b: int) -> Any:
    global _counter
    _counter = a
    seen = _counter
    del _counter
    _counter = 0
    cell = b

    def reads() -> int:
        return cell

    got = reads()
    made = SimpleNamespace()
    made.x = a
    made.y = b
    del made.x
    return seen, got, made.y, hasattr(made, "x")


def _deletes_a_cell(a: int, b: int) -> Any:
    cell = b

    def reads() -> int:
        return cell  # noqa: F821

    got = reads()
    del cell
    return got, a


def _objects(a: int, b: int) -> Any:
    import math
    from os.path import join as joined
    with _Managed() as five:
        total = five + a
    return _Derived().name(), total, math.floor(2.5), joined("a", "b"), "x".upper()


def _patterns(a: int, b: int) -> Any:
    seen = []
    for subject in ([a, b], {"k": a, "l": b}, range, a, "text", [1, 2, 3], complex(1, 2)):
        match subject:
            case [x, y]:
                seen.append(("two", x, y))
            case [x, *others]:
                seen.append(("more", x, others))
            case {"k": value, **others}:
                seen.append(("mapping", value, others))
            case int(number):
                seen.append(("int", number))
            case complex(real=r, imag=i):
                seen.append(("complex", r, i))
            case _:
                seen.append("else")
    return seen


def _maybe_unbound(a: int, b: int) -> Any:
    if a:
        x = b
    for i in (1, 2):
        last = i
    return x, last


def _class(a: int, b: int) -> Any:
    class Made:
        field = a

        def get(self) -> int:
            return self.field + b

    return Made().get()


def _long(a: int, b: int) -> Any:
    """More constants and names than one byte can number, so that EXTENDED_ARG occurs."""
    return a


def _conversions(a: int, b: int) -> Any:
    items = [a, b, a]
    return (lambda *xs: xs)(*[a, b]), [*"ab"], (*range(a), b), items[1], items[::2], items[a - 3:]


def _exceptions(a: int, b: int) -> Any:
    seen = []
    try:
        [][a]
    except (KeyError, IndexError) as error:
        seen.append(str(error))
    with _Swallowing():
        {}[b]
    try:
        try:
            raise ValueError(a)
        finally:
            seen.append("finally")
    except ValueError:
        seen.append("handled")
    return seen


def _groups(a: int, b: int) -> Any:
    seen = []
    try:
        raise ExceptionGroup("all", [ValueError(a), TypeError(b)])
    except* ValueError as group:
        seen.append(len(group.exceptions))
    except* TypeError as group:
        seen.append(len(group.exceptions))
    return seen


_PROGRAMS = [_stack, _operators, _jumps, _long_loops, _loops, _containers, _strings, _calls, _names, _deletes, _deletes_a_cell, _objects,
             _patterns, _maybe_unbound, _class, _conversions, _exceptions, _groups]

# Handled opcodes that are not executed by a recording whose trace is complete, each for a reason.
_UNREACHED: dict[str, str] = {
    "END_FOR": "the end of FOR_ITER goes behind it",
    "JUMP_BACKWARD_NO_INTERRUPT": "only in `yield from` and `await`",
    "LOAD_ASSERTION_ERROR": "an exception follows",
}


@pytest.fixture(scope="module")
def recorded() -> Iterator[set[str]]:
    """Names of the instructions that were executed by recordings which gave a trace that was then hit."""
    step, names, all_names = Recorder.step, set[str](), set[str]()

    def counting(self: Any) -> None:
        frame = self.frames[-1]
        names.add(frame.code.instructions[frame.pc].name)
        step(self)

    Recorder.step = counting  # type: ignore[method-assign]
    try:
        for program in _PROGRAMS:
            names.clear()
            jitted = trident.jit(program)
            expected = program(3, 4)
            for _ in range(4):
                assert jitted(3, 4) == expected, program.__name__
            entry = entry_of(jitted)
            assert entry.cell.hits, (program.__name__, [f"{a.reason}: {a.text}:{a.line}" for a in entry.aborts])
            all_names |= names
        yield all_names
    finally:
        Recorder.step = step  # type: ignore[method-assign]


_HANDLED = sorted(name for name in dis.opmap if name not in opcodes.UNSUPPORTED and name not in opcodes.EXCEPTION_OPS
                  and name not in opcodes.FOREIGN_OPS and not name.startswith("INSTRUMENTED_") and dis.opmap[name] < 256
                  and name not in ("EXTENDED_ARG", "CACHE", *opcodes.PREFIXES))


@pytest.mark.parametrize("name", _HANDLED)
def test_a_handled_opcode_is_recorded_and_executed(name: str, recorded: set[str]) -> None:
    assert name in recorded or name in _UNREACHED
