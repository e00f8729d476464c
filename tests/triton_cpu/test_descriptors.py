"""Tensor descriptors and block pointers, which become plain addresses here."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def copy_by_descriptor(x, o, M, N, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_tensor_descriptor(x, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    target = tl.make_tensor_descriptor(o, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([m, n], source.load([m, n]) * 2)


def test_descriptor_in_kernel():
    x, o = torch.randn(70, 48), torch.zeros(70, 48)
    copy_by_descriptor[(5, 3)](x, o, 70, 48, 16, 16)
    assert torch.equal(o, x * 2)


@triton.jit
def copy_from_host_descriptor(source, target, BM: tl.constexpr, BN: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    target.store([m, n], source.load([m, n]) + 1)


def test_host_descriptor():
    x, o = torch.randn(70, 48), torch.zeros(70, 48)
    a, b = TensorDescriptor.from_tensor(x, [16, 16]), TensorDescriptor.from_tensor(o, [16, 16])
    copy_from_host_descriptor[(5, 3)](a, b, 16, 16)
    assert torch.equal(o, x + 1)


@triton.jit
def copy_by_block_pointer(x, o, M, N, sm, sn, BM: tl.constexpr, BN: tl.constexpr):
    source = tl.make_block_ptr(x, (M, N), (sm, sn), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    target = tl.make_block_ptr(o, (M, N), (sm, sn), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    for _ in range(0, N, BN):
        tl.store(target, tl.load(source, boundary_check=(0, 1)) * 3, boundary_check=(0, 1))
        source = tl.advance(source, (0, BN))
        target = tl.advance(target, (0, BN))


@pytest.mark.skipif(not hasattr(triton._C.libtriton.passes.ttir, "add_rewrite_tensor_pointer"), reason="this Triton has no block pointers")
def test_block_pointer():
    x, o = torch.randn(70, 50), torch.zeros(70, 50)
    copy_by_block_pointer[(5,)](x, o, 70, 50, 50, 1, 16, 16)
    assert torch.equal(o, x * 3)
