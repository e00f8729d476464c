"""The cases of Triton's kernels on the CPU: each beside torch's own operator, in one thread, on the same tensors.

What is measured: the kernel called eagerly through Triton, and from a function that Trident has compiled. Every variant's result is
checked against torch's before it is timed. `compile_grid` says how long it takes to compile a kernel, and to load it from the disk.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F

from . import kernels
from .cases import jitted
from .floor import vectorcall_loop
from .measure import Case, Grid, Sampler, Variant, native_sampler, python_sampler

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Work:
    """One kernel's work. reference: torch's way to do it. launch: the kernel's, which returns what it has written."""

    key: str
    title: str
    reference: Callable[[], torch.Tensor]
    launch: Callable[..., torch.Tensor]
    tensors: tuple[torch.Tensor, ...]
    tolerance: float = 1e-5


def _random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _add(n: int, title: str, key: str) -> Work:
    x, y, out, expected = _random(n), _random(n, seed=1), torch.empty(n), torch.empty(n)
    block = min(n, 4096) if n & (n - 1) == 0 else 1024

    def launch(x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        kernels.vector_add[((n + block - 1) // block,)](x, y, out, n, BLOCK=block)
        return out

    return Work(key, title, lambda: torch.add(x, y, out=expected), launch, (x, y, out), 0.0)


def _softmax(rows: int, columns: int) -> Work:
    x, out, expected = _random(rows, columns), torch.empty(rows, columns), torch.empty(rows, columns)

    def launch(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        kernels.row_softmax[(rows,)](x, out, columns, columns, columns, BLOCK=1024)
        return out

    return Work("triton-cpu-softmax", f"row softmax, {rows}x{columns}", lambda: torch.softmax(x, 1, out=expected), launch, (x, out))


def _layer_norm(rows: int, columns: int) -> Work:
    x, weight, bias = _random(rows, columns), _random(columns, seed=1), _random(columns, seed=2)
    out, mean, rstd = torch.empty_like(x), torch.empty(rows), torch.empty(rows)

    def launch(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, out: torch.Tensor, mean: torch.Tensor,
               rstd: torch.Tensor) -> torch.Tensor:  # fmt: skip
        kernels.layer_norm[(rows,)](x, out, weight, bias, mean, rstd, columns, columns, 1e-5, BLOCK=1024)
        return out

    return Work("triton-cpu-layer-norm", f"layer norm, {rows}x{columns}", lambda: F.layer_norm(x, (columns,), weight, bias, 1e-5),
                launch, (x, weight, bias, out, mean, rstd))


def _rms_norm(rows: int, columns: int) -> Work:
    x, weight, out = _random(rows, columns), _random(columns, seed=1), torch.empty(rows, columns)

    def launch(x: torch.Tensor, weight: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        kernels.rms_norm[(rows,)](x, out, weight, columns, columns, 1e-5, BLOCK=1024)
        return out

    return Work("triton-cpu-rms-norm", f"rms norm, {rows}x{columns}", lambda: F.rms_norm(x, (columns,), weight, 1e-5), launch,
                (x, weight, out))  # fmt: skip


def _matmul(n: int, dtype: torch.dtype = torch.float32) -> Work:
    a, b = _random(n, n).to(dtype), _random(n, n, seed=1).to(dtype)
    c, expected = torch.empty(n, n), torch.empty(n, n, dtype=dtype)

    def launch(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        grid = ((n // 128) * (n // 128),)
        kernels.matmul[grid](a, b, c, n, n, n, n, 1, n, 1, n, 1, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64, GROUP_M=8)
        return c

    return Work(f"triton-cpu-matmul-{n}", f"matmul, {n}", lambda: torch.mm(a, b, out=expected), launch, (a, b, c), 1e-3)


def _attention(heads: int, length: int, head: int, causal: bool) -> Work:
    q, k, v = (_random(1, heads, length, head, seed=seed) for seed in range(3))
    out = torch.empty_like(q)
    scale = head**-0.5

    def launch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        kernels.attention[(length // 64, heads)](q, k, v, out, scale, length * head, head, length, HEAD=head, BLOCK_M=64,
                                                 BLOCK_N=64, CAUSAL=causal)  # fmt: skip
        return out

    kind = "causal attention" if causal else "attention"
    return Work(f"triton-cpu-{kind.replace(' ', '-')}", f"flash {kind}, {heads} heads of {head}, {length} positions",
                lambda: F.scaled_dot_product_attention(q, k, v, is_causal=causal), launch, (q, k, v, out), 1e-4)


def works(quick: bool) -> list[Work]:
    rows, large = (256, 1 << 16) if quick else (4096, 1 << 23)
    return [
        _add(1000, "vector add, 1,000 elements", "triton-cpu-add-1000"), _add(large, f"vector add, {large:,} elements", "triton-cpu-add"),
        _softmax(rows, 1024), _layer_norm(rows, 1024), _rms_norm(rows, 1024),
        *(_matmul(n) for n in ((256,) if quick else (512, 768, 1024))),
        _attention(4, 256 if quick else 1024, 64, False), _attention(4, 256 if quick else 1024, 64, True),
    ]  # fmt: skip


def _case(work: Work) -> Case:
    names = {f"a{index}": tensor for index, tensor in enumerate(work.tensors)}
    statement = f"function({', '.join(names)})"

    def check(result: torch.Tensor) -> None:
        torch.testing.assert_close(result, work.reference(), rtol=work.tolerance, atol=work.tolerance, check_dtype=False)

    def python(make: Callable[[], Callable[..., Any]]) -> Callable[[], Sampler]:
        def prepare() -> Sampler:
            function = make()
            check(function(*work.tensors))
            return python_sampler(statement, {"function": function, **names}, CPU)

        return prepare

    def native() -> Sampler:
        function = jitted(work.launch, work.tensors)
        check(function(*work.tensors))
        return native_sampler(vectorcall_loop(function, work.tensors), CPU)

    def by_torch() -> Sampler:
        return python_sampler("function()", {"function": work.reference}, CPU)

    variants = [Variant("torch", by_torch), Variant("Triton, eager", python(lambda: work.launch)),
                Variant("Trident", python(lambda: jitted(work.launch, work.tensors)))]  # fmt: skip
    if work.key.endswith("1000"):
        variants.append(Variant("Trident, called from native code", native))
    return Case(work.key, f"{work.title} (one thread)", variants, baseline="torch")


def triton_cpu_cases(quick: bool = False) -> list[Case]:
    """All of them. They are of one thread: torch is told so here."""
    torch.set_num_threads(1)
    return [_case(work) for work in works(quick)]


def compile_grid(repeats: int = 5) -> Grid:
    """Milliseconds of a kernel's first launch: with nothing on the disk, and with its compilation there. Medians."""
    torch.set_num_threads(1)
    rows: list[tuple[object, ...]] = []
    for work in works(quick=True):
        times: dict[str, list[float]] = {"compiled": [], "loaded": []}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as folder:
                for kind in times:
                    times[kind].append(_first_launch(work, folder))
        rows.append((work.title, *(f"{statistics.median(t):.1f}" for t in times.values())))
    return Grid("triton-cpu-compile", "the first launch of a kernel, ms", ("kernel", "compiled", "from the disk"), rows)


def _first_launch(work: Work, folder: str) -> float:
    for value in vars(kernels).values():
        if hasattr(value, "device_caches"):
            value.device_caches.clear()
    saved = os.environ.get("TRITON_CACHE_DIR")
    os.environ["TRITON_CACHE_DIR"] = folder
    try:
        start = time.perf_counter()
        work.launch(*work.tensors)
        return (time.perf_counter() - start) * 1e3
    finally:
        if saved is None:
            del os.environ["TRITON_CACHE_DIR"]
        else:
            os.environ["TRITON_CACHE_DIR"] = saved
