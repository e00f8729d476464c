"""Kernels that are launched on the CPU and on CUDA."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    tl.store(out + i, tl.load(x + i, mask=mask) + tl.load(y + i, mask=mask), mask=mask)


@triton.jit
def ids(out):
    x, y, z = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    nx, ny = tl.num_programs(0), tl.num_programs(1)
    tl.store(out + (z * ny + y) * nx + x, x + 100 * y + 10000 * z)


@triton.jit
def scalars(out, a, b, c, flag, bias):
    value = a + b * c
    if flag:
        value += 1.0
    if bias is not None:
        value += tl.load(bias)
    tl.store(out, value)
