"""Guards, misses, states and side exits: what leaves where, with which values."""

from __future__ import annotations

import gc
import sys
from types import CellType

import pytest
import torch

from tests.backend.harness import INFO, MISS, Builder, Left, Native, snapshot
from trident.backend.scm import SCM
from trident.ir.trace import GuardInfo, Trace


class Cell:
    """Stands for an entry cell."""

    def __init__(self) -> None:
        self.dispatch = 0


def test_type_identity_and_value_guards_miss() -> None:
    marker = object()
    b = Builder("guards", 3)
    b.guard(b.op("type_is", b.args[0], index=b.constant_index(int)), True, INFO)
    b.guard(b.op("int_fits", b.args[0]), True, INFO)
    b.guard(b.op("eq_int", b.op("unbox_int", b.args[0]), b.int(5)), False, INFO)
    b.guard(b.op("is_constant", b.args[1], index=b.constant_index(marker)), True, INFO)
    b.guard(b.op("is", b.args[1], b.args[2]), False, INFO)
    n = Native(b.ret(b.args[2]))
    assert n(4, marker, "x") == "x"
    assert n(5, marker, "x") is MISS
    assert n(True, marker, "x") is MISS
    assert n(2**70, marker, "x") is MISS
    assert n(4, object(), "x") is MISS
    assert n(4, marker, marker) is MISS
    assert [site.taken for site in n.program.exits] == [1, 1, 1, 1, 1]
    assert all(site.snapshot is None and not site.is_raise for site in n.program.exits)


def test_constant_conditions() -> None:
    b = Builder("constant", 1)
    b.guard(b.bool(True), True, INFO)
    assert Native(b.ret(b.args[0]))(7) == 7
    b = Builder("constant", 1)
    b.guard(b.bool(True), False, INFO)
    assert Native(b.ret(b.args[0]))(7) is MISS


def test_a_failing_guard_after_a_state_hands_over_every_kind_of_value() -> None:
    constant = object()
    b = Builder("exit", 4)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("add", "Tensor", [x, x, b.int(1)], ["tensor"])
    z, = b.aten("mul_", "Tensor", [y, x], ["tensor"])
    parts, = b.aten("split", "Tensor", [x, b.int(1), b.int(0)], ["tensors"])
    part = b.op("list_get", parts, item=1)
    i, f, t = b.op("unbox_int", b.args[1]), b.op("unbox_float", b.args[2]), b.op("unbox_bool", b.args[3])
    j = b.op("add_int", i, b.int(1))
    made = b.op("build_tuple", values=[i, f])
    values = [x, y, z, part, i, j, f, t, made, b.args[0], b.constant(constant), b.int(3), b.float(2.5), b.none(), b.bool(True)]
    b.state_of(*values, line=7)
    b.guard(t, True, GuardInfo("t", "branch", "user.py", 12))
    seen: list[tuple[object, ...]] = []

    def handler(site: object, values: list[object], error: BaseException | None) -> object:
        seen.append((site, tuple(values), error))
        return "resumed"

    n = Native(b.give(y), handler)
    tensor = torch.tensor([3.0, 4.0])
    assert torch.equal(n(tensor, 41, 1.5, True), tensor * 2 * tensor)
    assert n(tensor, 41, 1.5, False) == "resumed"
    (site, got, error), = seen
    assert error is None
    assert site.guard.text == "t" and site.snapshot.line == 7 and site.taken == 1 and not site.bridged  # type: ignore[attr-defined]
    assert got[0] is tensor and got[9] is tensor and got[10] is constant
    assert got[1] is got[2] and torch.equal(got[1], tensor * 2 * tensor)  # type: ignore[call-overload]
    assert torch.equal(got[3], tensor[1:2]) and got[3]._base is tensor  # type: ignore[call-overload, attr-defined]
    assert got[4:9] == (41, 42, 1.5, False, (41, 1.5)) and got[11:] == (3, 2.5, None, True)
    assert [type(v) for v in got[4:8]] == [int, int, float, bool]


def test_the_latest_state_counts() -> None:
    b = Builder("states", 2)
    i = b.op("unbox_int", b.args[0])
    b.state_of(i, line=1)
    b.guard(b.op("lt_int", i, b.int(10)), True, INFO)
    j = b.op("mul_int", i, i)
    b.state_of(j, b.args[1], line=2)
    b.guard(b.op("lt_int", i, b.int(5)), True, INFO)
    n = Native(b.give(j), lambda site, values, error: (site.snapshot.line, tuple(values)))
    assert n(4, "a") == 16
    assert n(6, "a") == (2, (36, "a"))
    assert n(12, "a") == (1, (12,))


def test_an_exit_continues_in_its_bridge() -> None:
    b = Builder("root", 1)
    i = b.op("unbox_int", b.args[0])
    b.state_of(i, b.args[0])
    b.guard(b.op("lt_int", i, b.int(10)), True, INFO)
    trace = b.give(i)
    calls: list[object] = []

    def handler(site: object, values: list[object], error: BaseException | None) -> object:
        calls.append(tuple(values))
        return "handler"

    scm = SCM("f", Cell(), handler)
    program = scm.add(trace)
    n = Native(trace, handler)
    n.program = program
    assert n(3) == 3 and n(11) == "handler"
    site = next(e for e in program.exits if e.guard)
    bridge = Builder("bridge", 2, snapshot())
    k = bridge.op("unbox_int", bridge.args[0])
    bridge.state_of(*bridge.args)
    bridge.guard(bridge.op("lt_int", k, bridge.int(100)), True, INFO)
    made = scm.attach_bridge(site, bridge.give(bridge.op("add_int", k, bridge.int(1000))))
    assert site.bridged and made.trace.parent is not None
    before = sys.getrefcount(calls)
    for _ in range(100):
        assert n(11) == 1011
    assert n(500) == "handler" and calls[-1] == (500, 500)
    assert site.taken == 102 and [e.taken for e in made.exits if e.guard] == [1]
    assert sys.getrefcount(calls) == before


def test_dispatch_tries_all_and_counts() -> None:
    def trace(value: int) -> Trace:
        b = Builder(f"is{value}", 1)
        b.guard(b.op("int_fits", b.args[0]), True, INFO)
        b.guard(b.op("eq_int", b.op("unbox_int", b.args[0]), b.int(value)), True, INFO)
        return b.ret(b.constant(f"got {value}"))

    cell = Cell()
    scm = SCM("f", cell, lambda *_: None)
    n = Native(trace(0))
    for value in (1, 2, 3):
        scm.add(trace(value))
    n.program = type("P", (), {"address": cell.dispatch})()  # type: ignore[assignment]
    assert [n(v) for v in (1, 2, 3)] == ["got 1", "got 2", "got 3"]
    assert n(4) is MISS
    assert scm._dispatch is not None and scm._dispatch.hits == [1, 1, 1] and scm._dispatch.inside == 0
    scm.close()
    assert cell.dispatch == 0 and scm.programs[0]._compiled.closed


def test_code_is_kept_while_somebody_is_inside() -> None:
    b = Builder("opaque", 1)
    b.state_of()
    from trident.ir.trace import OpaqueCall

    result = b.call(b.args[0], [], [], OpaqueCall("f", "test", "t.py", 1))
    trace = b.ret(result)
    cell = Cell()
    scm = SCM("f", cell, lambda *_: None)
    program = scm.add(trace)
    n = Native(trace)
    n.program = type("P", (), {"address": cell.dispatch})()  # type: ignore[assignment]
    seen = []

    def inside() -> str:
        scm.close()
        seen.append(program._compiled.closed)
        return "done"

    assert n(inside) == "done" and seen == [False]
    from trident.backend.dispatch import sweep

    sweep()
    assert program._compiled.closed


def test_a_bridge_may_not_miss() -> None:
    b = Builder("root", 1)
    b.state_of(b.args[0])
    b.guard(b.op("int_fits", b.args[0]), True, INFO)
    scm = SCM("f", Cell(), lambda *_: None)
    n = Native(b.ret(b.args[0]))
    n.program = scm.add(b.trace)
    bridge = Builder("bridge", 1, snapshot())
    bridge.guard(bridge.op("int_fits", bridge.args[0]), True, INFO)
    scm.attach_bridge(n.program.exits[0], bridge.ret(bridge.args[0]))
    with pytest.raises(SystemError):
        n("text")


def test_the_exit_op_leaves_always() -> None:
    b = Builder("exit", 1)
    b.op("exit", reason="nothing to do")
    n = Native(b.ret(b.args[0]))
    assert n(1) is MISS
    assert n.program.exits[0].what == "nothing to do"


def test_cells_and_their_exit() -> None:
    b = Builder("cell", 2)
    b.state_of()
    old = b.op("cell_get", b.args[0])
    b.op("cell_set", b.args[0], b.args[1])
    n = Native(b.ret(old), lambda site, values, error: "empty")
    cell = CellType([1])
    assert n(cell, 5) == [1] and cell.cell_contents == 5
    assert n(CellType(), 5) == "empty"


def test_no_handler_result_without_an_exception_is_hidden() -> None:
    def handler(*_: object) -> object:
        raise Left("refused")

    b = Builder("refused", 1)
    b.state_of(b.args[0])
    b.guard(b.op("int_fits", b.args[0]), True, INFO)
    n = Native(b.ret(b.args[0]), handler)
    with pytest.raises(Left):
        n("text")
    gc.collect()
