"""Launches of Triton kernels: grids, constexprs, options, None, wrappers; eager, recorded, reference and native agree."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import trident
from tests.conformance.harness import check
from trident.ir import LaunchSite


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask=mask) + tl.load(y + offsets, mask=mask), mask=mask)


@triton.jit
def bias_kernel(x, bias, out, n, scale, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr = 64):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask) * scale
    if HAS_BIAS:
        value += tl.load(bias + offsets, mask=mask)
    tl.store(out + offsets, value, mask=mask)


@triton.jit
def store_kernel(out, n):
    tl.store(out, n * 2)


def make_heuristic():
    return triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["n"])})(add_kernel)


def make_autotuned(configs):
    return triton.autotune(configs=configs, key=["n"])(add_kernel)


DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # of Triton's own driver, which an autotuner asks


def pair(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(n)
    return torch.rand(n, generator=g).to(DEVICE), torch.rand(n, generator=g).to(DEVICE)


def sites(entry: object) -> list[LaunchSite]:
    return [site for root in entry.roots for site in root.trace.launches]  # type: ignore[attr-defined]


def reasons(entry: object) -> list[str]:
    return [call.reason for root in entry.roots for call in root.trace.opaque_calls]  # type: ignore[attr-defined]


def lambda_grid(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=64)
    return out


def meta_grid(x, y):
    out = torch.empty_like(x)
    add_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]), 1, 1)](x, y, out, n=x.numel(), BLOCK=32)
    return out


def tuple_grid(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel[(triton.cdiv(n, 128),)](x, y, out, n, BLOCK=128, num_warps=2)
    return out


def list_grid_of_a_kept_launcher(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    launch = add_kernel[[(n + 127) // 128, 1]]
    launch(x, y, out, n, BLOCK=128)
    launch(out, y, out, n, BLOCK=128)
    return out


def run_method(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    add_kernel.run(x, y, out, n, grid=(triton.cdiv(n, 128),), warmup=False, BLOCK=128)
    return out


@pytest.mark.parametrize("program", [lambda_grid, meta_grid, tuple_grid, list_grid_of_a_kept_launcher, run_method])
def test_grids_stay_run_time_values(program) -> None:
    entry = check(program, pair(100), pair(300), pair(16))
    assert len(entry.roots) == 1 and sites(entry) and not reasons(entry)


def test_options_and_constexprs_are_constants() -> None:
    site = sites(check(tuple_grid, pair(50)))[0]
    assert site.options == (("num_warps", 2),)
    assert [(p.name, p.constexpr, p.value) for p in site.params] == [
        ("x", False, None), ("y", False, None), ("out", False, None), ("n", False, None), ("BLOCK", True, 128)]


def test_promoted_constexpr_distinguishes_specializations() -> None:
    def run(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        add_kernel[(1,)](x, y, out, n, triton.next_power_of_2(n))
        return out

    entry = check(run, pair(100), pair(300), pair(120))
    assert len(entry.roots) == 2 and not reasons(entry)


def test_none_float_and_default_arguments() -> None:
    def run(x, bias, scale):
        out = torch.empty_like(x)
        bias_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, bias, out, x.numel(), scale, HAS_BIAS=bias is not None)
        return out

    x, bias = pair(100)
    entry = check(run, (x, None, 2.0), (x, bias, 0.5), (x[:70], None, 3.0))
    assert len(entry.roots) == 2 and not reasons(entry)


def test_every_width_of_int() -> None:
    def run(out, n):
        store_kernel[(1,)](out, n)
        return out

    out = torch.zeros(1, dtype=torch.int64)
    check(run, *[(out, n) for n in (3, 1, 0, -7, 16, 2**31, 2**40)])


def test_launch_in_tail_position_of_an_inlined_function() -> None:
    def inner(out, n):
        return store_kernel[(1,)](out, n)

    def outer(out, n):
        inner(out, n)
        return out

    assert not reasons(check(outer, (torch.zeros(1, dtype=torch.int64), 5)))


def test_result_of_a_launch() -> None:
    def run(out, n):
        compiled = store_kernel[(1,)](out, n)
        return out, compiled is None

    assert any("result of the launch" in reason for reason in reasons(check(run, (torch.zeros(1, dtype=torch.int64), 5))))


def test_grid_function_with_an_effect_runs_once_per_launch() -> None:
    def run(x, y, log):
        out = torch.empty_like(x)
        n = x.numel()

        def grid(meta):
            log.append(n)
            return (triton.cdiv(n, meta["BLOCK"]),)

        add_kernel[grid](x, y, out, n, BLOCK=64)
        return out, log

    entry = check(run, (*pair(100), []), (*pair(200), []))
    assert any("cannot be followed" in reason for reason in reasons(entry))


def test_wrong_arguments_raise_as_in_eager() -> None:
    check(lambda x: add_kernel[(1,)](x, BLOCK=16), (torch.rand(4),), expect_trace=False)
    check(lambda x: add_kernel[3](x, x, x, 4, BLOCK=16), (torch.rand(4),), expect_trace=False)


HEURISTIC = make_heuristic()


def test_heuristics_are_followed() -> None:
    def run(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        HEURISTIC[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        return out

    entry = check(run, pair(100), pair(30))
    assert not reasons(entry) and {site.params[-1].value for site in sites(entry)} == {128, 32}


def test_autotuned_kernel_is_launched_natively_once_it_is_tuned() -> None:
    tuned = make_autotuned([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 128}, num_warps=2)])

    def run(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        return out

    jitted = trident.jit(run)
    for n in (100, 100, 100, 260, 260, 260):
        x, y = pair(n)
        assert torch.equal(jitted(x, y), x + y)
    from trident.api import entry_of

    entry = entry_of(jitted)
    assert {root.trace.launches[0].params[-1].value for root in entry.roots if root.trace.launches} <= {64, 128}
    assert sum(bool(root.trace.launches) for root in entry.roots) == 2  # one for each tuned n


def test_single_configuration_needs_no_tuning() -> None:
    single = make_autotuned([triton.Config({"BLOCK": 64})])

    def run(x, y):
        out = torch.empty_like(x)
        n = x.numel()
        single[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n)
        return out

    entry = check(run, pair(100), pair(40))
    assert len(entry.roots) == 1 and not reasons(entry)


def test_hook_that_is_set_later_is_called() -> None:
    seen: list[object] = []

    def run(out, n):
        store_kernel[(1,)](out, n)
        return out

    jitted, out = trident.jit(run), torch.zeros(1, dtype=torch.int64)
    for _ in range(2):
        jitted(out, 3)
    chain = triton.knobs.runtime.launch_enter_hook
    hook = seen.append
    chain.add(hook)
    try:
        for _ in range(2):
            jitted(out, 3)
    finally:
        chain.remove(hook)
    jitted(out, 3)
    before = len(seen)
    chain.add(hook)
    try:
        run(out, 3)
        per_launch = len(seen) - before
    finally:
        chain.remove(hook)
    assert before == 2 * per_launch


def test_cdiv_and_next_power_of_2_on_run_time_ints() -> None:
    def compute(x, n):
        return triton.cdiv(x.numel(), n), triton.next_power_of_2(x.numel()), triton.cdiv(7, 2)

    entry = check(compute, (torch.rand(10), 3), (torch.rand(129), 64), (torch.rand(1), 1))
    assert len(entry.roots) == 1 and not reasons(entry)
