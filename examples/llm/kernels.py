"""The user-written Triton kernels of both models, each with the plain PyTorch function that launches it.

Statistics and products are computed in float32 and stored in the dtype of the output.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, stride, n, eps, BLOCK: tl.constexpr):
    """One row per program: out = x / sqrt(mean(x^2) + eps) * weight."""
    row = tl.program_id(0)
    columns = tl.arange(0, BLOCK)
    mask = columns < n
    x = tl.load(x_ptr + row * stride + columns, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + columns, mask=mask, other=0.0).to(tl.float32)
    scale = tl.rsqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(out_ptr + row * n + columns, (x * scale * weight).to(out_ptr.dtype.element_ty), mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Root mean square normalization over the last dimension, which is contiguous; rows may be apart."""
    n = x.shape[-1]
    out = torch.empty_like(x)
    block = triton.next_power_of_2(n)
    rms_norm_kernel[(x.numel() // n,)](x, weight, out, x.stride(-2), n, eps, BLOCK=block, num_warps=8 if block > 1024 else 4)
    return out


@triton.jit
def rope_kernel(x_ptr, out_ptr, cos_ptr, sin_ptr, positions_ptr, length, heads, HALF: tl.constexpr, BLOCK: tl.constexpr):
    """One head of one token per program: rotates (batch, length, heads, dim) into (batch, heads, length, dim)."""
    token = tl.program_id(0)
    head = tl.program_id(1)
    batch = token // length
    time = token % length
    columns = tl.arange(0, BLOCK)
    mask = columns < HALF
    angle = tl.load(positions_ptr + time) * HALF + columns
    cos = tl.load(cos_ptr + angle, mask=mask, other=0.0)
    sin = tl.load(sin_ptr + angle, mask=mask, other=0.0)
    source = x_ptr + (token * heads + head) * 2 * HALF + columns
    first = tl.load(source, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(source + HALF, mask=mask, other=0.0).to(tl.float32)
    target = out_ptr + ((batch * heads + head) * length + time) * 2 * HALF + columns
    tl.store(target, (first * cos - second * sin).to(out_ptr.dtype.element_ty), mask=mask)
    tl.store(target + HALF, (second * cos + first * sin).to(out_ptr.dtype.element_ty), mask=mask)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of a contiguous (batch, length, heads, dim); the result is (batch, heads, length, dim)."""
    batch, length, heads, dim = x.shape
    out = x.new_empty((batch, heads, length, dim))
    half = dim // 2
    rope_kernel[(batch * length, heads)](
        x, out, cos, sin, positions, length, heads, HALF=half, BLOCK=triton.next_power_of_2(half), num_warps=1
    )
    return out


@triton.jit
def swiglu_kernel(gate_ptr, up_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """out = silu(gate) * up, BLOCK elements per program."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    gate = tl.load(gate_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(up_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, (gate * tl.sigmoid(gate) * up).to(out_ptr.dtype.element_ty), mask=mask)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """silu(gate) * up of two contiguous tensors of one shape."""
    out = torch.empty_like(gate)
    n = gate.numel()
    grid = lambda meta: (triton.cdiv(n, meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate, up, out, n, BLOCK=1024)
    return out
