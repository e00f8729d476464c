"""A Triton kernel, a function that launches it, and Trident: the first call records, the others run native code only."""

import torch
import triton
import triton.language as tl

import trident


@triton.jit
def scaled_add_kernel(x_ptr, y_ptr, out_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x, y = tl.load(x_ptr + offsets, mask=mask), tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + scale * y, mask=mask)


@trident.jit
def step(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    scaled_add_kernel[(triton.cdiv(x.numel(), 256),)](x, y, out, x.numel(), 0.5, BLOCK=256)
    return torch.relu(out)


device = "cuda" if torch.cuda.is_available() else "cpu"
for size in (1000, 1000, 5000):
    x, y = torch.randn(size, device=device), torch.randn(size, device=device)
    torch.testing.assert_close(step(x, y), torch.relu(x + 0.5 * y))
print(trident.explain(step))
