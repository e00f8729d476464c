"""Four-way conformance: the same call eager, recorded, by the reference executor and natively, equal bit for bit.

What is compared: values, types, dtype, shape, strides, requires_grad, identity of results with arguments, mutation of arguments,
exceptions (type and message), printed output.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
from collections.abc import Callable
from dataclasses import dataclass

import torch

import trident
from trident.api import entry_of
from trident.backend.reference import Miss, SideExit, run_trace
from trident.ir import exceptions


@dataclass
class Observed:
    """What one call did."""

    result: object
    error: BaseException | None
    arguments: tuple[object, ...]
    printed: str
    aliases: list[tuple[int, int]]


def _leaves(value: object) -> list[object]:
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in _leaves(item)]
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in _leaves(item)]
    return [value]


def observe(fn: Callable[..., object], args: tuple[object, ...]) -> Observed:
    """Call and note everything."""
    out = io.StringIO()
    result, error = None, None
    with contextlib.redirect_stdout(out):
        try:
            result = fn(*args)
        except Exception as e:
            error = e
    inputs = _leaves(args)
    aliases = [(i, j) for i, r in enumerate(_leaves(result)) for j, a in enumerate(inputs)
               if isinstance(r, torch.Tensor) and (r is a or (isinstance(a, torch.Tensor) and r.numel() and r.data_ptr() == a.data_ptr()))]
    return Observed(result, error, args, out.getvalue(), aliases)


def same(a: object, b: object, where: str = "result") -> None:
    """Assert bit-identity of two values."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        assert type(a) is type(b), where
        assert (a.dtype, a.shape, a.stride(), a.device, a.requires_grad) == (b.dtype, b.shape, b.stride(), b.device, b.requires_grad), (
            where, a.dtype, b.dtype, a.shape, b.shape, a.stride(), b.stride())
        x, y = (t.detach().contiguous().cpu() for t in (a, b))
        if x.dtype.is_complex:
            x, y = torch.view_as_real(x), torch.view_as_real(y)
        assert torch.equal(x.view(torch.uint8) if x.numel() and x.dim() else x.reshape(-1).view(torch.uint8),
                           y.view(torch.uint8) if y.numel() and y.dim() else y.reshape(-1).view(torch.uint8)), (where, a, b)
        return
    assert type(a) is type(b), (where, a, b)
    if isinstance(a, tuple | list):
        assert len(a) == len(b), where  # type: ignore[arg-type]
        for n, (x, y) in enumerate(zip(a, b)):  # type: ignore[call-overload]
            same(x, y, f"{where}[{n}]")
    elif isinstance(a, dict):
        assert list(a) == list(b), where  # type: ignore[call-overload]
        for k in a:
            same(a[k], b[k], f"{where}[{k!r}]")  # type: ignore[index]
    elif isinstance(a, float):
        assert a == b or (a != a and b != b), (where, a, b)
    elif isinstance(a, int | str | bool | type(None) | complex | bytes):
        assert a == b, (where, a, b)


def agree(expected: Observed, seen: Observed, way: str) -> None:
    """Assert that two observations are equal."""
    if expected.error is not None or seen.error is not None:
        assert type(expected.error) is type(seen.error) and str(expected.error) == str(seen.error), (way, expected.error, seen.error)
    else:
        same(expected.result, seen.result, way)
    same(expected.arguments, seen.arguments, f"{way}: arguments")
    assert expected.printed == seen.printed, way
    assert expected.aliases == seen.aliases, (way, expected.aliases, seen.aliases)


def clone(args: tuple[object, ...]) -> tuple[object, ...]:
    """Independent arguments with the same strides and grad flags."""
    def one(value: object) -> object:
        if isinstance(value, torch.nn.Module):
            return value
        if isinstance(value, torch.Tensor):
            made = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
            made.copy_(value.detach())
            return made.requires_grad_(value.requires_grad)
        if isinstance(value, tuple) and type(value) is tuple:
            return tuple(map(one, value))
        if isinstance(value, list):
            return list(map(one, value))
        if isinstance(value, dict):
            return {k: one(v) for k, v in value.items()}
        return copy.deepcopy(value)

    return tuple(one(v) for v in args)


def check(fn: Callable[..., object], *arguments: tuple[object, ...], expect_trace: bool = True, **options: object) -> trident.api.Entry:
    """All four ways over several argument tuples, twice round. Returns the entry, for more asserts.

    expect_trace: also assert that something was compiled and hit.
    """
    jitted = trident.jit(fn, **options)
    entry = entry_of(jitted)
    for round_ in range(3):
        for args in arguments:
            expected = observe(fn, clone(args))
            agree(expected, observe(jitted, clone(args)), f"round {round_}")
    for args in arguments:
        _check_reference(fn, entry, args)
    if expect_trace:
        assert entry.specializations, [a.text for a in entry.aborts]
        assert entry.cell.hits > 0, list(entry.last_misses)
    return entry


def _check_reference(fn: Callable[..., object], entry: trident.api.Entry, args: tuple[object, ...]) -> None:
    if entry.function.__code__.co_flags & 0x0C:
        return
    bound = inspect.signature(fn).bind(*args)
    bound.apply_defaults()
    args = tuple(bound.arguments.values())
    expected = observe(fn, clone(args))
    for specialization in entry.roots:
        try:
            seen = observe(lambda *a, s=specialization: run_trace(s.trace, (*a, entry.function)), clone(args))
            if isinstance(seen.error, Miss | SideExit):
                exceptions.pop(None)  # it may have left from the middle of a handler
                continue
        except (Miss, SideExit):
            continue
        agree(expected, seen, "reference")
