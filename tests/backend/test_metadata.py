"""Tensor metadata: plain fields, many dimensions, and tensors that keep their metadata elsewhere."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from tests.backend.harness import MISS, Builder, Native


def program(rank: int, *, after_state: bool = True, handler: Any = None) -> Native:
    b = Builder("metadata", 1)
    x, = b.tensors(0)
    if after_state:
        b.state_of(b.args[0])
    values = [b.op(name, x) for name in ("rank", "numel", "storage_offset", "dtype", "device_type", "device_index", "requires_grad",
                                         "is_contiguous", "data_ptr")]
    values += [b.op(name, x, dim=d) for name in ("size", "stride") for d in range(rank)]
    return Native(b.give_all(values), *([handler] if handler else []))


CODES = {torch.float32: 6, torch.int64: 4, torch.bool: 11, torch.bfloat16: 15, torch.complex64: 9}


def expected(x: torch.Tensor) -> tuple[Any, ...]:
    index = -1 if x.device.index is None else x.device.index
    kind = {"cpu": 0, "meta": 14}[x.device.type]
    return (x.dim(), x.numel(), x.storage_offset(), CODES[x.dtype], kind, index, x.requires_grad, x.is_contiguous(), x.data_ptr(),
            *x.shape, *x.stride())


@pytest.mark.parametrize("tensor", [
    torch.zeros(()), torch.zeros(0, 3), torch.zeros(3, 4).t(), torch.zeros(2, 3, 4, 5, 6)[1:, ::2],
    torch.zeros(1, 2, 1, 2, 3, 2, 2).transpose(1, 4),
    torch.zeros(4, dtype=torch.int64)[2:], torch.zeros(4, dtype=torch.bool), torch.zeros(2, 3, 4, 4).to(memory_format=torch.channels_last),
    torch.zeros(3, dtype=torch.complex64), torch.zeros(3, requires_grad=True), torch.nn.Parameter(torch.zeros(2)),
    torch.zeros(3, 3, dtype=torch.bfloat16).expand(2, 3, 3), torch.zeros(3, requires_grad=True) * 2, torch.empty(4, 2, device="meta"),
], ids=lambda t: f"{t.dtype}{tuple(t.shape)}")
def test_plain_tensors(tensor: torch.Tensor) -> None:
    found = program(tensor.dim())(tensor)
    assert found == expected(tensor)
    assert [type(v) for v in found] == [type(v) for v in expected(tensor)]


def nested() -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.nested.nested_tensor([torch.zeros(2, 3), torch.zeros(4, 3)])


def test_tensors_with_a_policy_are_asked() -> None:
    """Nested and sparse tensors do not have their metadata in the fields, or refuse to give it."""
    b = Builder("policy", 1)
    x, = b.tensors(0)
    b.state_of()
    n = Native(b.give_all([b.op("rank", x), b.op("numel", x), b.op("storage_offset", x)]))
    sparse = torch.eye(3).to_sparse()
    assert n(nested()) == (3, nested().numel(), 0) and n(sparse) == (2, 9, 0)
    b = Builder("size", 1)
    x, = b.tensors(0)
    b.state_of(b.args[0])
    n = Native(b.give(b.op("size", x, dim=1)), lambda site, values, error: (error, values, site.is_raise))
    irregular = nested()
    error, values, is_raise = n(irregular)
    assert isinstance(error, RuntimeError) and values[0] is irregular and is_raise
    with pytest.raises(RuntimeError) as wanted:
        irregular.size(1)
    assert str(error) == str(wanted.value)
    assert n(torch.zeros(3, 4)) == 4


def test_what_cannot_be_read_in_the_entry_region_is_a_miss() -> None:
    b = Builder("size", 1)
    x, = b.tensors(0)
    n = Native(b.give(b.op("size", x, dim=1)))
    assert n(torch.zeros(3, 5)) == 5 and n(nested()) is MISS and n(torch.eye(3).to_sparse()) == 3


def test_metadata_is_read_when_it_is_asked_for() -> None:
    """resize_ between two reads."""
    b = Builder("resize", 1)
    x, = b.tensors(0)
    b.state_of()
    before = b.op("size", x, dim=0)
    b.aten("resize_", "", [x, b.list([b.int(7)], "int"), b.none()], ["tensor"])
    n = Native(b.give_all([before, b.op("size", x, dim=0), b.op("numel", x)]))
    assert n(torch.zeros(3)) == (3, 7, 7)
