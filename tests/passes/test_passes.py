"""Each pass on a trace written by hand."""

from __future__ import annotations

import pytest
from filecheck.finput import FInput  # noqa: F401  (the package that the golden tests of the recorder use)

from trident.backend.passes import run_passes
from trident.backend.passes.effects import State, clobbers
from trident.ir import GuardInfo, Snapshot, Trace, TraceBuilder
from trident.ir.trace import OpaqueCall, Pin, PinKind

EMPTY = Snapshot((), 1, "f.py")
INFO = GuardInfo("x", "type", "f.py", 1)
CALL = OpaqueCall("f", "because", "f.py", 1)


def names(trace: Trace) -> list[str]:
    return [op.operation.name.removeprefix("trident.") for op in trace.block.operations]


def guarded(b: TraceBuilder, arg: int, cls: type) -> None:
    b.guard(b.op("type_is", b.args[arg], index=b.constant_index(cls)), True, INFO)


def test_guards_are_deduplicated() -> None:
    b = TraceBuilder("f", 1)
    guarded(b, 0, int)
    guarded(b, 0, int)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    assert names(trace).count("guard") == 1


def test_guards_on_arguments_move_into_the_entry_region() -> None:
    b = TraceBuilder("f", 2)
    t = b.op("unbox_tensor", b.args[0])
    b.state(EMPTY, [b.args[1]])
    b.aten("relu", "", [t], ["tensor"])
    b.guard(b.op("lt_int", b.op("size", t, dim=0), b.int(4)), True, INFO)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    order = names(trace)
    assert order.index("guard") < order.index("state")


def test_guards_on_results_stay() -> None:
    b = TraceBuilder("f", 1)
    b.state(EMPTY, [])
    (r,) = b.aten("relu", "", [b.op("unbox_tensor", b.args[0])], ["tensor"])
    b.guard(b.op("lt_int", b.op("size", r, dim=0), b.int(4)), True, INFO)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    order = names(trace)
    assert order.index("torch.aten.relu") < order.index("guard")


@pytest.mark.parametrize("operator, moves", [("relu_", True), ("squeeze_", False)])
def test_reads_do_not_cross_what_changes_them(operator: str, moves: bool) -> None:
    b = TraceBuilder("f", 1)
    t = b.op("unbox_tensor", b.args[0])
    b.state(EMPTY, [])
    b.aten(operator, "", [t], ["tensor"])
    b.guard(b.op("eq_int", b.op("rank", t), b.int(2)), True, INFO)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    order = names(trace)
    assert (order.index("guard") < order.index("state")) is moves


def test_pins_do_not_cross_opaque_calls() -> None:
    b = TraceBuilder("f", 1)
    pin = Pin(PinKind.DICT, {}, "k", 1, INFO)
    b.pin(pin)
    b.pin(pin)
    b.state(EMPTY, [])
    b.call(b.args[0], [], [], CALL)
    b.state(EMPTY, [])
    b.pin(pin)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    order = names(trace)
    assert order.count("pin") == 2
    assert order.index("call") < len(order) - 1 - order[::-1].index("pin")


def test_states_that_nothing_leaves_through_go() -> None:
    b = TraceBuilder("f", 2)
    b.state(EMPTY, [])
    b.call(b.args[0], [], [], CALL)
    b.state(EMPTY, [b.args[1]])
    b.state(EMPTY, [b.args[1]])
    b.call(b.args[0], [], [], CALL)
    b.state(EMPTY, [])
    trace = b.ret(b.args[1])
    run_passes(trace, check=True)
    assert names(trace).count("state") == 2


def test_dead_pure_code_goes_and_aten_calls_stay() -> None:
    b = TraceBuilder("f", 1)
    t = b.op("unbox_tensor", b.args[0])
    b.op("lt_int", b.op("size", t, dim=0), b.int(1))
    b.op("floordiv_int", b.int(1), b.int(0))
    b.state(EMPTY, [])
    b.aten("relu", "", [t], ["tensor"])
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    assert "lt_int" not in names(trace) and "size" not in names(trace) and "torch.aten.relu" in names(trace)
    assert "floordiv_int" in names(trace)  # its exit is an exception of the user's program


def test_bridges_have_no_entry_region() -> None:
    b = TraceBuilder("f", 1, parent=EMPTY)
    b.state(EMPTY, [])
    guarded(b, 0, int)
    trace = b.ret(b.args[0])
    run_passes(trace, check=True)
    assert names(trace).index("state") < names(trace).index("guard")


def test_unknown_operators_clobber_everything() -> None:
    b = TraceBuilder("f", 1)
    with b._ctx:
        from torch_mlir import ir

        name = {"name": ir.StringAttr.get("mylib.op.default")}
    b._create("torch.operator", [], [], name)
    ops = [op.operation for op in b._block.operations]
    assert clobbers(ops[-1]) == State.ALL
