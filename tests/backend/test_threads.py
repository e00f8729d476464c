"""Programs in several threads at once, inside themselves, and replaced while they run."""

from __future__ import annotations

import threading
from functools import partial
from typing import Any

import torch

from tests.backend.harness import INFO, MISS, Builder, Native
from tests.storm import storm
from trident.backend.scm import SCM
from trident.ir.trace import OpaqueCall, Trace

CALL = OpaqueCall("f", "test", "t.py", 1)


class Cell:
    dispatch = 0


def test_many_threads_get_their_own_results() -> None:
    b = Builder("threads", 2)
    x, = b.tensors(0)
    i = b.op("unbox_int", b.args[1])
    b.state_of(b.args[0])
    for _ in range(5):
        x, = b.aten("add", "Scalar", [x, i, b.int(1)], ["tensor"])
        first = b.op("box", x)
        b.state_of(first)
    n = Native(b.give_all([x, first]))
    wrong: list[object] = []

    def run(seed: int) -> None:
        a = torch.full((50,), float(seed))
        for k in range(300):
            result, same = n(a, k)
            if result is not same or not torch.equal(result, a + 5 * k):
                wrong.append((seed, k))

    storm(partial(run, seed) for seed in range(6))
    assert not wrong


def test_a_program_inside_itself() -> None:
    b = Builder("recursive", 3)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("add", "Scalar", [x, b.int(1), b.int(1)], ["tensor"])
    n = Native(b.ret(b.call(b.args[1], [b.op("box", y), b.args[1], b.args[2]], [], CALL)))

    def down(t: torch.Tensor, again: Any, left: list[int]) -> torch.Tensor:
        if not left:
            return t
        left.pop()
        return n(t, again, left)

    assert torch.equal(n(torch.zeros(2), down, [0] * 20), torch.full((2,), 21.0))


def test_specializations_are_added_while_others_run() -> None:
    def trace(value: int) -> Trace:
        b = Builder(f"is{value}", 1)
        b.guard(b.op("int_fits", b.args[0]), True, INFO)
        b.guard(b.op("eq_int", b.op("unbox_int", b.args[0]), b.int(value)), True, INFO)
        return b.ret(b.args[0])

    cell = Cell()
    scm = SCM("f", cell, lambda *_: None)
    scm.add(trace(0))
    n = Native(trace(0))
    n.program = type("P", (), {"address": cell.dispatch})()  # type: ignore[assignment]
    stop, wrong = threading.Event(), []

    def run() -> None:
        while not stop.is_set():
            for value in range(12):
                found = n(value)
                if found is not MISS and found != value:
                    wrong.append((value, found))

    thread = threading.Thread(target=run)
    thread.start()
    for value in range(1, 12):
        scm.add(trace(value))
        assert n(value) == value
    stop.set()
    thread.join()
    assert not wrong and [n(v) for v in range(12)] == list(range(12))


def test_grad_mode_reads_and_writes() -> None:
    b = Builder("grad", 2)
    before = b.op("grad_enabled")
    b.state_of()
    b.op("set_grad_enabled", b.op("unbox_bool", b.args[0]))
    inside = b.op("grad_enabled")
    b.op("set_grad_enabled", before)
    n = Native(b.give_all([before, inside, b.op("inference_mode"), b.op("torch_function_modes")]))
    assert n(False, None) == (True, False, False, 0) and torch.is_grad_enabled()
    with torch.no_grad():
        assert n(True, None) == (False, True, False, 0) and not torch.is_grad_enabled()
    with torch.inference_mode():
        assert n(False, None)[2] is True

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return function(*args, **(kwargs or {}))

    with Mode():
        assert n(False, None)[3] == 1
    with torch._C.DisableTorchFunction():
        assert n(False, None)[3] == -1
