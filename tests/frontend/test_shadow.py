"""The shadow check (`check=2`): what it finds when the trace says something else than what the recorder did, and that it finds nothing
in good recordings."""

from __future__ import annotations

import dis

import pytest
import torch

import trident
from trident.api import entry_of
from trident.frontend import virtuals
from trident.frontend.analysis import analyse
from trident.frontend.core import Core
from trident.frontend.values import Const
from trident.ir import TraceBuilder
from trident.shadow import ShadowError, stack_depths

X = torch.arange(6.0).reshape(2, 3)
SCALE = 3


def program(x, n):
    count = 0

    def bump(by):
        nonlocal count
        count += by
        return count

    parts = [n, n + 1]
    if bump(n) > 1:
        parts.append(n * SCALE)
    with torch.no_grad():
        y = x.mul(n)[0] - parts[-1]
    try:
        parts[7]
    except IndexError as error:
        y = y + len(error.args)
    return y.sum().item(), [*parts, count], {"n": n, "y": y}


def recorded(check: int = 2):
    jitted = trident.jit(program, check=check)
    for n in (1, 2, 5, 1, 2, -3):
        expected = program(X, n)
        seen = jitted(X, n)
        assert expected[:2] == seen[:2] and torch.equal(expected[2]["y"], seen[2]["y"])
    return entry_of(jitted)


def test_good_recordings_have_no_faults() -> None:
    entry = recorded()
    assert entry.specializations and not entry.aborts and entry.cell.hits


def written_as(method: str, wrong: dict[str, str]):
    real = getattr(TraceBuilder, method)
    return lambda self, name, *args, **kwargs: real(self, wrong.get(name, name), *args, **kwargs)


def wrong_guard(self, cond, expected, kind, text, real=Core.guard):
    real(self, cond, expected is not (kind == "branch"), kind, text)


def wrong_pin(self, kind, owner, key, expected, text, real=Core.write_pin):
    real(self, kind, owner, key, 7 if key == "SCALE" else expected, text)


SABOTAGE = {
    "another operation": (TraceBuilder, "op", written_as("op", {"add_int": "sub_int"}), "sub_int gives something else"),
    "another operator": (TraceBuilder, "aten", written_as("aten", {"mul": "div"}), "a tensor with other contents"),
    "a guard the wrong way": (Core, "guard", wrong_guard, "does not hold"),
    "a pin of something else": (Core, "write_pin", wrong_pin, "does not hold"),
    "a snapshot in another order": (
        virtuals, "KINDS", {**virtuals.KINDS, "list": lambda items, keys, state: [*items][::-1]}, "in the snapshot"),
}


@pytest.mark.parametrize("what", SABOTAGE)
def test_faults_are_found(what: str, monkeypatch) -> None:
    owner, name, wrong, text = SABOTAGE[what]
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises(ShadowError, match="does not say what the recorder did") as raised:
        recorded()
    assert text in str(raised.value) and "test_shadow.py:" in str(raised.value)


def test_faults_of_a_call_that_raises_are_kept(monkeypatch) -> None:
    owner, name, wrong, text = SABOTAGE["another operation"]
    monkeypatch.setattr(owner, name, wrong)

    def fails(n):
        n = n + 1
        return [n][n]

    jitted = trident.jit(fails, check=2)
    with pytest.raises(IndexError):
        jitted(5)
    (abort,) = entry_of(jitted).aborts
    assert abort.reason == "internal" and text in abort.text


def test_an_operand_stack_of_another_depth(monkeypatch) -> None:
    """A handler that leaves an entry too many; what the entry is does not matter to what the program does."""
    code = analyse(program.__code__)
    leaving = [ins for ins in code.instructions if ins.name == "POP_EXCEPT"]
    real = leaving[0].handler

    def handler(rec, frame, ins):
        real(rec, frame, ins)
        frame.stack.append(Const(None))

    for ins in leaving:
        monkeypatch.setattr(ins, "handler", handler)
    with pytest.raises(ShadowError, match=r"entries on the operand stack before \w+, CPython has"):
        recorded()


def test_depths_are_those_of_cpython() -> None:
    for function in (program, recorded, test_faults_are_found, stack_depths.__wrapped__):
        code = function.__code__
        depths = stack_depths(code)
        reached = [ins.offset for ins in dis.get_instructions(code) if ins.offset in depths]
        assert max(depths.values()) <= code.co_stacksize and len(reached) > 10
        assert all(depths[ins.offset] >= 1 for ins in dis.get_instructions(code) if ins.opname == "RETURN_VALUE" and ins.offset in depths)
