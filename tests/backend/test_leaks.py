"""Reference counts and memory over many calls, on every way out of a program."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.backend.harness import INFO, MISS, Builder, Native, snapshot
from tests.memory import peak_memory, resident
from trident.backend.native import torch_layouts
from trident.backend.scm import SCM
from trident.ir.trace import OpaqueCall, Trace

CALL = OpaqueCall("f", "test", "t.py", 1)


def strong(tensor: torch.Tensor) -> int:
    """Strong references to the TensorImpl."""
    import ctypes

    return ctypes.c_uint64.from_address(tensor._cdata + torch_layouts.REFCOUNT).value & 0xFFFFFFFF


def rich_trace() -> Trace:
    """Every kind of slot: tensors, objects, lists, vectors; arguments tensor, int, callable."""
    b = Builder("rich", 3)
    x, = b.tensors(0)
    b.guard(b.op("int_fits", b.args[1]), True, INFO)
    i = b.op("unbox_int", b.args[1])
    b.state_of(b.args[0], i)
    y, = b.aten("add", "Tensor", [x, x, i], ["tensor"])
    parts, = b.aten("split", "Tensor", [y, b.int(2), b.int(0)], ["tensors"])
    first = b.op("list_get", parts, item=0)
    values, indices = b.aten("sort", "", [y, b.int(0), b.bool(False)], ["tensor", "tensor"])
    picked, = b.aten("index", "Tensor", [y, b.list([indices], "optional<tensor>")], ["tensor"])
    pair = b.op("build_tuple", values=[values, i, picked])
    b.state_of(y, first, pair, i, values)
    result = b.call(b.args[2], [pair, b.op("box", first)], [], CALL)
    b.state_of(result, y, pair)
    b.guard(b.op("lt_int", i, b.int(10)), True, INFO)
    z, = b.aten("matmul", "", [y, first], ["tensor"])
    return b.give_all([result, z, pair])


def ways() -> dict[str, tuple[Any, ...]]:
    two = torch.ones(2)
    return {
        "hit": (two, 3, lambda pair, first: first), "miss": (two, "text", None), "exit": (two, 30, lambda pair, first: pair),
        "raise in a call": (two, 3, lambda pair, first: 1 / 0), "not callable": (two, 3, 5),
        "raise in an operator": (torch.ones(3), 3, lambda *a: None),
        "raise early": (torch.ones(()), 3, lambda *a: None),
    }


def handler(site: Any, values: list[object], error: BaseException | None) -> object:
    return len(values)


@pytest.mark.parametrize("way", ways())
def test_counts_do_not_move(way: str) -> None:
    n = Native(rich_trace(), handler)
    args = ways()[way]
    tensor = args[0]

    def counts() -> tuple[int, ...]:
        return (strong(tensor), *(sys.getrefcount(a) for a in args), sys.getrefcount(None), sys.getrefcount(handler))

    def run(times: int) -> None:
        for _ in range(times):
            n(*args)

    assert (n(*args) is MISS) is (way == "miss")
    run(50)
    gc.collect()
    gc.disable()
    try:
        before, blocks = counts(), sys.getallocatedblocks()
        run(2000)
        assert max(abs(a - b) for a, b in zip(counts(), before, strict=True)) < 100
        assert abs(sys.getallocatedblocks() - blocks) < 100
    finally:
        gc.enable()


def test_exits_through_a_bridge_do_not_leak() -> None:
    class Cell:
        dispatch = address = 0

    scm = SCM("f", Cell(), handler)
    trace = rich_trace()
    n = Native(trace, handler)
    n.program = scm.add(trace)
    args = ways()["exit"]
    assert n(*args) == 3
    bridge = Builder("bridge", 3, snapshot())
    y, = bridge.tensors(1)
    bridge.state_of(*bridge.args)
    z, = bridge.aten("mul", "Tensor", [y, y], ["tensor"])
    site = next(e for e in n.program.exits if e.taken)
    scm.attach_bridge(site, bridge.give(z))
    assert torch.equal(n(*args), torch.full((2,), 31.0 * 31.0))
    _memory_stays(lambda: n(*args))
    assert strong(args[0]) == 1


def _memory_stays(call: Callable[[], object], times: int = 20000, size: int = 4) -> None:
    for _ in range(2000):
        call()
    gc.collect()
    before, blocks = resident(), sys.getallocatedblocks()
    for _ in range(times):
        call()
    # A leaked TensorImpl is 176 bytes and its storage more: a leak of one per call would show as 4 MiB and up.
    assert resident() - before < 2 << 20
    assert abs(sys.getallocatedblocks() - blocks) < 200


@pytest.mark.parametrize("way", ways())
def test_memory_does_not_grow(way: str) -> None:
    n = Native(rich_trace(), handler)
    args = ways()[way]
    _memory_stays(lambda: n(*args))


def test_intermediates_die_at_their_last_use() -> None:
    """Peak memory of a chain of big operators is that of eager: two tensors at a time, not all of them."""
    b = Builder("chain", 1)
    x, = b.tensors(0)
    for _ in range(8):
        b.state_of()
        x, = b.aten("add", "Scalar", [x, b.int(1), b.int(1)], ["tensor"])
    b.state_of()
    n = Native(b.give(b.aten("sum", "", [x, b.none()], ["tensor"])[0]))
    a = torch.zeros(1 << 16)
    n(a)
    assert 2 * a.nbytes <= peak_memory(lambda: n(a)) < 3 * a.nbytes
    assert n.program.slots <= 3  # two tensors and the boxed result


def test_a_stated_value_lives_until_the_next_state() -> None:
    """And not longer: its slot is used again."""
    b = Builder("stated", 1)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("neg", "", [x], ["tensor"])
    b.state_of(y)
    z, = b.aten("neg", "", [x], ["tensor"])
    b.guard(b.op("grad_enabled"), True, INFO)
    b.state_of()
    w, = b.aten("neg", "", [z], ["tensor"])
    n = Native(b.give(w), lambda site, values, error: values)
    a = torch.ones(2)
    assert torch.equal(n(a), a)
    with torch.no_grad():
        value, = n(a)
        assert torch.equal(value, -a)


def test_results_that_nobody_uses_are_released() -> None:
    b = Builder("unused", 1)
    x, = b.tensors(0)
    b.state_of()
    b.aten("neg", "", [x], ["tensor"])
    b.aten("unbind", "int", [x, b.int(0)], ["tensors"])
    b.aten("max", "dim", [x, b.int(0), b.bool(False)], ["tensor", "tensor"])
    b.op("build_list", values=[b.args[0]])
    n = Native(b.ret(b.args[0]))
    a = torch.ones(4)
    before = sys.getrefcount(a), strong(a)
    for _ in range(1000):
        assert n(a) is a
    assert (sys.getrefcount(a), strong(a)) == before


def test_a_tensor_that_python_dropped_keeps_its_object() -> None:
    """PyObject preservation: attributes of a wrapper survive while only native code holds the tensor."""
    kept: list[torch.Tensor] = []

    def keep(x: torch.Tensor) -> None:
        x.tag = "mine"  # type: ignore[attr-defined]

    b = Builder("preserve", 2)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("neg", "", [x], ["tensor"])
    b.call(b.args[1], [b.op("box", y)], [], CALL)
    z, = b.aten("add_", "Tensor", [y, x, b.int(1)], ["tensor"])
    n = Native(b.give(z))
    result = n(torch.ones(2), keep)
    assert result.tag == "mine" and not kept
    for _ in range(1000):
        assert n(torch.ones(2), keep).tag == "mine"
