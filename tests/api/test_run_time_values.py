"""Numbers and shapes that vary are run-time values: one specialization, unless a branch or a constant really depended on them; then as
many as there are outcomes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import trident

X = torch.linspace(-1, 1, 24).reshape(2, 3, 4)
WEIGHT = torch.linspace(0, 1, 16).reshape(4, 4)
ROWS = torch.linspace(0, 1, 800).reshape(200, 4)
NAMES = {n: f"name {n}" for n in range(300)}
INTS = range(100)
FLOATS = [0.01 * n - 0.3 for n in range(100)]
LENGTHS = range(1, 101)


def step(p: torch.Tensor, lr: float) -> torch.Tensor:
    return p - lr * p.sign()


def normed(x: torch.Tensor, eps: float) -> torch.Tensor:
    return F.layer_norm(x, (4,), eps=abs(eps)) + x / (x.norm() + eps)


def rms(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def tempered(x: torch.Tensor, temperature: float) -> torch.Tensor:
    return torch.softmax(x / (temperature + 2), -1)


def adam(p: torch.Tensor, n: int) -> torch.Tensor:
    correction = 1 - 0.9 ** (n + 1)
    return p - 0.01 / correction * p / (math.sqrt(1 - 0.999 ** (n + 1)) + 1e-8)


def at_position(x: torch.Tensor, position: int) -> torch.Tensor:
    return ROWS[position] + ROWS[position:position + 2].sum(0) + ROWS.narrow(0, position, 1)[0] + x


def masked(x: torch.Tensor, n: int) -> torch.Tensor:
    keep = torch.arange(120) <= n
    return torch.where(keep, 1.0, -math.inf).softmax(-1)[: n + 1].sum() + x


def made(x: torch.Tensor, n: int) -> torch.Tensor:
    return torch.zeros(n, 4) + torch.full((n, 1), float(n)) + torch.arange(n, n + 4)


def counted(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n + (n // 3) * (n % 7) - n ** 2 + max(n, 5) + float(n) + int(n / 2) + (n << 1)


def formatted(x: torch.Tensor, n: int) -> tuple[torch.Tensor, str]:
    return x + n, f"{n} of {x.shape[0]}"


def stored(x: torch.Tensor, n: int) -> torch.Tensor:
    held = {"n": n, "list": [n, n + 1]}
    held["n"] += 1
    return x * held["n"] + held["list"][1]  # type: ignore[operator, index]


def summed(x: torch.Tensor, n: int) -> torch.Tensor:
    for k in range(n):
        x = x + k
    return x


NUMBERS: list[tuple[Callable[..., Any], Any]] = [
    (step, FLOATS), (normed, FLOATS), (rms, [abs(f) for f in FLOATS]), (tempered, FLOATS), (adam, INTS), (at_position, INTS),
    (masked, INTS), (made, INTS), (counted, INTS), (formatted, INTS), (stored, INTS),
]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and torch.equal(a.nan_to_num(7), b.nan_to_num(7))
    return all(map(same, a, b)) if isinstance(a, tuple) else bool(a == b)


def specializations(function: Callable[..., Any], calls: list[tuple[Any, ...]]) -> int:
    """Of the function after these calls, none of which may differ from eager, and all of which are hits when they come again."""
    jitted = trident.jit(function)
    for arguments in calls:
        assert same(jitted(*arguments), function(*arguments)), arguments
    misses = trident.explain(jitted).misses
    for arguments in calls[:10]:
        jitted(*arguments)
    assert trident.explain(jitted).misses == misses
    told = trident.explain(jitted)
    return sum(found.kind == "root" for found in told.specializations)


@pytest.mark.parametrize("function, values", NUMBERS, ids=lambda value: getattr(value, "__name__", ""))
def test_100_numbers_are_one_specialization(function: Any, values: Any) -> None:
    assert specializations(function, [(X[0], value) for value in values]) == 1


def test_the_length_of_a_loop_is_no_constant() -> None:
    assert specializations(summed, [(X[0], n) for n in range(70, 100)]) == 1


def projected(x: torch.Tensor) -> torch.Tensor:
    return F.silu(x @ WEIGHT) * x.shape[0]


def split(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[0]
    heads = x.view(n, 2, 2).transpose(0, 1)
    weights = torch.softmax(heads @ heads.transpose(1, 2) / math.sqrt(heads.shape[-1]), -1)
    return (weights @ heads).transpose(0, 1).reshape(n, -1)


def attended(x: torch.Tensor) -> torch.Tensor:
    q = x.reshape(1, -1, 2, 2).transpose(1, 2)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True).transpose(1, 2).flatten(2)[0]


def causal(x: torch.Tensor) -> torch.Tensor:
    n = x.size(0)
    mask = torch.triu(torch.full((n, n), float("-inf")), diagonal=1)
    return (x @ x.T + mask).softmax(-1) @ x


def halves(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1) + x[..., : x.shape[-1] // 2].repeat(1, 2)


def padded(x: torch.Tensor) -> torch.Tensor:
    return F.pad(x, (0, 0, 0, 128 - x.shape[0]))[: len(x)] + x.new_zeros(x.shape) + torch.empty_like(x).fill_(1)


@pytest.mark.parametrize("function", [projected, split, attended, causal, halves, padded], ids=lambda f: f.__name__)
def test_100_lengths_are_one_specialization(function: Any) -> None:
    """Length 1 among them."""
    assert specializations(function, [(ROWS[:n],) for n in LENGTHS]) == 1


def test_batches_of_one_and_none_are_not_special() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return (x.transpose(0, 1) @ WEIGHT).sum(0) + x.shape[0] * x.mean()

    assert specializations(f, [(torch.ones(b, n, 4),) for b in (1, 2, 0, 3, 1) for n in (1, 5, 2)]) == 1


def test_a_branch_gives_as_many_as_there_are_outcomes() -> None:
    def f(x: torch.Tensor, n: int) -> torch.Tensor:
        if n > 50:
            return x * n
        return x - n if n % 2 else x + n

    assert specializations(f, [(X, n) for n in INTS]) == 3

    def of_length(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 10 else x + 1

    assert specializations(of_length, [(ROWS[:n],) for n in LENGTHS]) == 2


def test_a_constant_gives_as_many_as_there_are_values() -> None:
    def f(x: torch.Tensor, n: int) -> tuple[torch.Tensor, str]:
        return x + n, NAMES[n % 5]

    assert specializations(f, [(X, n) for n in INTS]) == 5


def test_bools() -> None:
    def f(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x.sum(-1, keepdim=flag) if x.dim() else x

    def g(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x * flag + flag

    def h(x: torch.Tensor, flag: bool) -> torch.Tensor:
        return x * 2 if flag else x

    calls = [(X, bool(n % 2)) for n in range(10)]
    assert specializations(f, calls) <= 2 and specializations(g, calls) == 1 and specializations(h, calls) == 2


def test_int_and_float_are_two_types() -> None:
    assert specializations(step, [(X, 1), (X, 1.0), (X, 2), (X, 2.5), (X, 3)]) == 2


TENSORS = {
    "contiguous": ROWS, "transposed": WEIGHT.T, "strided": ROWS[::3], "offset": ROWS[5:], "expanded": ROWS[:1].expand(7, 4),
    "empty": ROWS[:0], "double": ROWS.double(), "half": ROWS.half(), "brain float": ROWS.bfloat16(), "int": (ROWS * 9).int(),
    "requires grad": ROWS.clone().requires_grad_(), "meta": ROWS.to("meta"),
}


def plain(x: torch.Tensor) -> torch.Tensor:
    return (x + x) * 3 - x.transpose(0, 1).flatten()[-1:].sum()


def test_what_is_not_used_is_not_guarded() -> None:
    """Strides, offset, dtype, device and requires_grad."""
    jitted = trident.jit(plain)
    for x in (*TENSORS.values(), *TENSORS.values()):
        ours, theirs = jitted(x), plain(x)
        assert (ours.dtype, ours.device, ours.stride(), ours.requires_grad) == (
            theirs.dtype, theirs.device, theirs.stride(), theirs.requires_grad)
        assert ours.is_meta or torch.equal(ours, theirs)
    assert jitted.specializations == 1, trident.explain(jitted)


USES: dict[str, Callable[[torch.Tensor], Any]] = {
    "stride": lambda x: x * 2 if x.stride(0) == 4 else x,
    "contiguity": lambda x: x * 2 if x.is_contiguous() else x,
    "offset": lambda x: x * 2 if x.storage_offset() else x,
    "dtype": lambda x: x * 2 if x.dtype == torch.float32 else x,
    "device": lambda x: x * 2 if x.device.type == "meta" else x,
    "requires_grad": lambda x: x * 2 if x.requires_grad else x,
    "floating point": lambda x: x * 2 if x.is_floating_point() else x,
}


@pytest.mark.parametrize("name", USES)
def test_what_is_used_is_guarded(name: str) -> None:
    function = USES[name]
    jitted = trident.jit(function)
    for x in (*TENSORS.values(), *TENSORS.values()):
        ours, theirs = jitted(x), function(x)
        assert (ours.dtype, ours.device, ours.shape) == (theirs.dtype, theirs.device, theirs.shape)
        assert ours.is_meta or torch.equal(ours, theirs)
    outcomes = len({x.dtype for x in TENSORS.values()}) if name in ("dtype", "floating point") else 2  # a dtype is a constant
    assert 2 <= jitted.specializations <= outcomes, trident.explain(jitted)
