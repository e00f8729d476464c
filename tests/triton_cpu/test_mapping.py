"""tl.map_elementwise: functions of elements with control flow."""

import torch
import triton
import triton.language as tl


@triton.jit
def steps_to_one(x, limit):
    if x <= 0:
        return -1, x
    steps = 0
    while (x != 1) & (steps < limit):
        if x % 2 == 0:
            x = x // 2
        else:
            x = 3 * x + 1
        steps += 1
    return steps, x


@triton.jit
def collatz(out, last, x, limit, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    steps, end = tl.map_elementwise(steps_to_one, tl.load(x + lane), limit)
    tl.store(out + lane, steps)
    tl.store(last + lane, end)


def test_control_flow_of_elements() -> None:
    x = torch.arange(-5, 59, dtype=torch.int32)
    out, last = torch.empty_like(x), torch.empty_like(x)
    collatz[(1,)](out, last, x, 40, 64)
    for value, steps, end in zip(x.tolist(), out.tolist(), last.tolist(), strict=True):
        expected = -1 if value <= 0 else 0
        while value > 1 and expected < 40:
            value = value // 2 if value % 2 == 0 else 3 * value + 1
            expected += 1
        assert (steps, end) == (expected, value)


@triton.jit
def swapped(a, b, x, y):
    if a > b:
        return b + x, a - y
    return a * 1.0, b * 1.0


@triton.jit
def sorted_pairs(out, p, q, R: tl.constexpr, C: tl.constexpr):
    here = tl.arange(0, R)[:, None] * C + tl.arange(0, C)[None, :]
    mapped = tl.map_elementwise(swapped, tl.load(p + here), tl.load(q + here), pack=2)
    tl.store(out + here, mapped[0])


def test_packs_of_neighbours() -> None:
    p, q, out = torch.randn(4, 8), torch.randn(4, 8), torch.empty(4, 8)
    sorted_pairs[(1,)](out, p, q, 4, 8)
    a, b, x, y = p[:, ::2], p[:, 1::2], q[:, ::2], q[:, 1::2]
    expected = torch.stack([torch.where(a > b, b + x, a), torch.where(a > b, a - y, b)], -1).reshape(4, 8)
    assert torch.equal(out, expected)
