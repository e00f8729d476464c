"""Splitting root traces: what is left out, what becomes an operand, and which traces are refused, each with its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch_mlir import ir as mlir

from tests.replay.harness import root_of
from trident.backend.replay.site import ReplaySite
from trident.backend.replay.split import REFUSED, Plan, Unfit, split
from trident.ir.ops import BY_NAME, Effect

X = torch.ones(2, 3)


def plan_of(function: Callable[..., Any], *args: Any) -> Plan:
    return split(root_of(function, *args)[1], ReplaySite())


def names(operations: Any) -> list[str]:
    return [str(getattr(op, "operation", op).name) for op in operations]


def test_metadata_of_inputs_stays_and_that_of_intermediates_goes() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        if y.shape[0] * 3 > 5:
            y = y + x.shape[1]
        return y, x.shape[0]

    plan = plan_of(f, X)
    host = names(plan.host.block.operations)
    assert host.count("trident.replay") == 1 and not any(name.startswith("torch.aten") for name in host)
    assert "trident.state" not in host
    assert "trident.gt_int" not in host and "trident.lt_int" not in host  # of the intermediate's size
    assert host.index("trident.replay") > max(n for n, name in enumerate(host) if name in ("trident.guard", "trident.pin"))
    assert len(plan.inputs) == 1 and len(plan.numbers) == 1 and len(plan.results) == 1


def test_nothing_of_a_replay_trace_has_an_effect_before_the_replay() -> None:
    def f(x: torch.Tensor, k: float) -> Any:
        return {"a": [x * k, (x, k)], "b": x.add_(1)}

    plan = plan_of(f, X.clone(), 2.5)
    before = names(plan.host.block.operations)
    for name in before[:before.index("trident.replay")]:
        spec = BY_NAME.get(name)
        assert spec is None and name.startswith("torch.constant.") or spec is not None and spec.effect in (Effect.PURE, Effect.READ)
    assert plan.constant == [False] and len(plan.results) == 1  # an in-place operator gives the input itself


def test_constants_are_no_operands_and_known_tensors_are_inputs() -> None:
    weight = torch.ones(3)

    def f(x: torch.Tensor) -> Any:
        return (x * 3 + weight).sum(1)

    plan = plan_of(f, X)
    assert plan.numbers == [] and sorted(plan.constant) == [False, True]


def _item(x: torch.Tensor) -> Any:
    return x * x.sum().item()


def _branch(x: torch.Tensor) -> Any:
    return x + 1 if x.sum() > 0 else x - 1


def _opaque(x: torch.Tensor) -> Any:
    str.__repr__("a").encode("utf-8")
    print(end="")
    return x + 1


def _nonzero(x: torch.Tensor) -> Any:
    return torch.nonzero(x), torch.equal(x, x)


def _resized(x: torch.Tensor) -> Any:
    y = x.clone()
    y.resize_(6)
    return y + 1


def _nothing(x: torch.Tensor) -> Any:
    return x.shape[0] + 1


def _static_number(x: torch.Tensor) -> Any:
    y = x.repeat(x.shape[0], 1)
    return y, y.shape[0]


def _caught(x: torch.Tensor) -> Any:
    try:
        return {}["a"]
    except KeyError:
        return x + 1


def _loop(x: torch.Tensor, n: int) -> Any:
    for _ in range(n):
        x = x + 1
    return x


def _address(x: torch.Tensor) -> Any:
    y = x + 1
    return y + y.data_ptr() % 4


@pytest.mark.parametrize(("function", "args", "reason"), [
    (_item, (X,), "reads a tensor's contents"), (_branch, (X,), "aten."), (_opaque, (X,), "call of a Python object"),
    (_nonzero, (X,), "depends on a tensor's contents"), (_resized, (X.clone(),), "changes a tensor's shape"),
    (_nothing, (X,), "nothing for the device"), (_static_number, (X,), "number that depends on the device"),
    (_caught, (X,), "an exception that is caught"), (_loop, (X, 200), "does not end with the call"),
    (_address, (X,), "address of an intermediate"),
])
def test_what_no_graph_can_stand_for_is_refused_with_its_reason(function: Any, args: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(Unfit) as refused:
        plan_of(function, *args)
    assert reason in str(refused.value)


def test_every_op_is_either_refused_or_known() -> None:
    """An op with an effect is refused, but for those that belong to the device's part."""
    harmless = {"state", "guard", "keep", "launch", "set_grad_enabled"}
    for name, spec in BY_NAME.items():
        if spec.effect in (Effect.WRITE, Effect.OPAQUE):
            assert spec.name in REFUSED or spec.name in harmless, name


def test_a_replay_trace_is_valid_and_shares_the_tables() -> None:
    plan = plan_of(lambda x: x + 1, X)
    assert plan.host.module.operation.verify()
    assert plan.host.constants is plan.trace.constants and plan.host.pins is plan.trace.pins
    assert isinstance(plan.replay_op, mlir.Operation)
