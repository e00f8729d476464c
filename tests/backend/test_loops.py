"""Loops written by hand: what is carried from one iteration to the next, who owns it, and what passes may do."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import torch

from tests.backend.harness import INFO, Native, snapshot
from trident.backend.native.jumps import Jump, run
from trident.backend.passes import run_passes
from trident.backend.reference import SideExit, run_trace
from trident.ir import TraceBuilder
from trident.ir.trace import OpaqueCall, Trace

CALL = OpaqueCall("f", "because", "f.py", 1)


def rotation(kinds: str) -> Trace:
    """`for i in range(n): a, b, c = b, c, a`, and a value of each iteration; kinds: o(bject), t(ensor), i(nt), f(loat) per value."""
    at = snapshot()
    builder = TraceBuilder("rotation", 1 + len(kinds), parent=at)
    n, *values = builder.args
    names = {"t": "unbox_tensor", "i": "unbox_int", "f": "unbox_float"}
    limit = builder.op("unbox_int", n)
    initial = [builder.op(names[k], v) if k in names else v for k, v in zip(kinds, values, strict=True)]
    i, *carried = [builder.carry(v) for v in (builder.int(0), *initial)]
    builder.op("loop")
    builder.state(at, [i, *carried])
    builder.guard(builder.op("lt_int", i, limit), True, INFO)
    following = builder.op("add_int", i, builder.int(1))
    rotated = [*carried[1:], carried[0]]
    builder.state(at, [following, *rotated])
    return builder.back([following, *rotated])


def handed_over(site: Any, values: list[object], error: BaseException | None) -> object:
    if error is not None:
        raise error
    return list(values)


@pytest.mark.parametrize("kinds", ["ooo", "ttt", "iii", "ff", "o", "t"])
@pytest.mark.parametrize("passes", [False, True])
def test_carried_values_change_places_and_are_released(kinds: str, passes: bool) -> None:
    def made() -> list[Any]:
        make = {"o": lambda n: [n], "t": lambda n: torch.full((2,), float(n)), "i": lambda n: 1000 + n, "f": lambda n: 0.5 + n}
        return [make[k](n) for n, k in enumerate(kinds)]

    trace = rotation(kinds)
    if passes:
        run_passes(trace, check=True)
    program = Native(trace, handed_over).program
    for n in (0, 1, 2, 3, 100):
        values = made()
        with pytest.raises(SideExit) as left:
            run_trace(trace, (n, *values))
        seen: Any = run(Jump((program.address, [n, *values])))
        assert seen[0] == left.value.values[0] == n
        expected = [values[(k + n) % len(kinds)] for k in range(len(kinds))]
        for mine, theirs, wanted in zip(seen[1:], left.value.values[1:], expected, strict=True):
            assert mine is wanted if kinds[0] in "ot" else mine == wanted
            assert theirs is wanted
        del seen, left, expected, mine, theirs, wanted
        gc.collect()
        if kinds[0] in "ot":
            assert [sys.getrefcount(values[k]) for k in range(len(kinds))] == [2] * len(kinds)


def test_what_an_iteration_makes_is_released_by_the_next() -> None:
    at = snapshot()
    builder = TraceBuilder("made", 2, parent=at)
    limit, make = builder.op("unbox_int", builder.args[0]), builder.args[1]
    i, last = builder.carry(builder.int(0)), builder.carry(builder.constant(None))
    builder.op("loop")
    builder.state(at, [i, last])
    builder.guard(builder.op("lt_int", i, limit), True, INFO)
    new = builder.call(make, [], (), CALL)
    following = builder.op("add_int", i, builder.int(1))
    builder.state(at, [following, new])
    program = Native(builder.back([following, new]), handed_over).program
    alive: list[int] = []

    class Counted:
        count = 0

        def __init__(self) -> None:
            Counted.count += 1
            alive.append(Counted.count)

        def __del__(self) -> None:
            Counted.count -= 1

    result: Any = run(Jump((program.address, [50, Counted])))
    assert result[0] == 50 and type(result[1]) is Counted
    assert max(alive) == 2 and Counted.count == 1
    del result
    assert Counted.count == 0

    def fails() -> Counted:
        if Counted.count and len(alive) > 60:
            raise LookupError
        return Counted()

    with pytest.raises(LookupError):
        run(Jump((program.address, [100, fails])))
    gc.collect()  # the exception's traceback has the handler's frame, which has the values
    assert Counted.count == 0


def test_passes_do_not_look_across_the_header() -> None:
    """A read before the loop does not answer for one in it, nor does a guard on another value."""
    at = snapshot()
    builder = TraceBuilder("f", 2, parent=at)
    items, tensor = builder.args
    builder.state(at, [items, tensor])
    builder.guard(builder.op("eq_int", builder.op("list_len", items), builder.int(1)), True, INFO)
    builder.guard(builder.op("eq_int", builder.op("size", builder.op("unbox_tensor", tensor), dim=0), builder.int(2)), True, INFO)
    carried = builder.carry(builder.op("unbox_tensor", tensor))
    builder.op("loop")
    builder.state(at, [items, carried])
    builder.guard(builder.op("eq_int", builder.op("list_len", items), builder.int(1)), True, INFO)
    builder.guard(builder.op("eq_int", builder.op("size", carried, dim=0), builder.int(2)), True, INFO)
    (grown,) = builder.aten("resize_", "", [carried, builder.list([builder.int(3)], "int"), builder.none()], ["tensor"])
    builder.state(at, [items, grown])
    trace = builder.back([grown])
    run_passes(trace, check=True)
    names = [view.operation.name for view in trace.block.operations]
    behind = names[names.index("trident.loop"):]
    assert behind.count("trident.guard") == 2 and behind.count("trident.list_len") == 1 and behind.count("trident.size") == 1
    assert behind[-3:] == ["trident.back", "trident.constant", "func.return"]
