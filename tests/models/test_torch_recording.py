"""Torch programs, four ways (eager, recorded, reference, native), without opaque calls unless a test names them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

import trident
from tests.conformance.harness import check


def opaque_calls(entry: object) -> list[str]:
    return [call.callee for root in entry.roots for call in root.trace.opaque_calls]  # type: ignore[attr-defined]


def recorded(fn: Callable[..., object], *arguments: tuple[object, ...], opaque: frozenset[str] = frozenset(),
             roots: int | None = None) -> None:
    """Agrees four ways, is compiled and hit, and makes no other opaque calls than these."""
    entry = check(fn, *arguments)
    assert {name.rpartition(".")[2] for name in opaque_calls(entry)} <= opaque, opaque_calls(entry)
    if roots is not None:
        assert len(entry.roots) == roots


def program(body: str, names: str = "x y z w") -> Callable[..., object]:
    """A function that returns the expression."""
    space: dict[str, object] = {"F": F, "torch": torch, "math": math}
    exec(compile(f"def program({', '.join(names.split())}):\n    return {body}", f"<{body}>", "exec"), space)
    return space["program"]  # type: ignore[return-value]


def expressions(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ") if part.strip()]


def tensors() -> tuple[torch.Tensor, ...]:
    g = torch.Generator().manual_seed(1)
    return tuple(torch.rand(*size, generator=g) + 0.1 for size in ((2, 3, 4), (2, 3, 4), (4, 5), (3, 4)))


OPERATORS = """
x + y | x - y | x * y | x / y | x // y | x % y | x ** y | x @ z | z.t() @ w.t() | x + 1 | 1 + x | x - 2.5 | 2.5 - x
x * True | 3 / x | x // 2 | 7 % x | 2 ** x | x ** 0.5
-x | +x | abs(x) | x < y | x >= 0.5 | 0.5 < x | x == y | x != 1 | ~(x > 0.5) | (x > 0.5) & (y > 0.5) | (x > 0.5)|(y > 0.5)
(x > 0.5) ^ (y > 0.5) | True & (x > 0.5) | x.long() << 1 | 1 << x.long()
x.long() & 3 | 5|x.long() | x.long() ^ 1 | x.add(y, alpha=2) | torch.add(x, 2.0, alpha=0.5) | torch.mul(x, 3)
x.clamp(min=0.3) | x.clamp(0.2, 0.7) | torch.where(x > 0.5, x, 0.0) | torch.where(x > y, x, y)
x.softmax(-1) | x.sum() | x.sum(1) | x.sum((0, 2), keepdim=True) | x.mean(-1, keepdim=True) | x.var(-1, unbiased=False)
torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) | x.max() | x.max(dim=-1)
x.max(-1).values | x.sort(1).indices | x.topk(2)[0] | len(x.max(0)) | x.aminmax() | torch.var_mean(x, -1) | x.cumsum(1)
x.argmax(-1) | torch.equal(x, y) | torch.allclose(x, x)
torch.einsum('bij,jk->bik', x, z) | torch.matmul(x, z) | torch.bmm(x, x.mT) | torch.addmm(w @ z, w, z)
torch.baddbmm(x @ x.mT, x, x.mT) | torch.outer(x[0, 0], y[0, 0]) | torch.tensordot(w, z, 1) | torch.cdist(w, w)
torch.ops.aten.add.Tensor(x, y) | torch.ops.aten.relu(x) | torch.ops.aten.sum.dim_IntList(x, [0], True) | x.add_(y).mul_(2)
torch.Tensor.mul(x, 2) | getattr(x, 'sub')(1) | x.masked_fill(x > 0.5, float('-inf'))
"""


# Struct sequences that are returned as they are, are made by calling their classes.
_SEQUENCES = frozenset({"max", "aminmax"})


@pytest.mark.parametrize("body", expressions(OPERATORS))
def test_operators(body: str) -> None:
    recorded(program(body), tensors(), opaque=_SEQUENCES)


SHAPES = """
x.view(6, 4) | x.view(x.shape[0], -1) | x.view(*x.shape[:-1], 2, 2) | x.reshape((-1,)) | x.permute(2, 0, 1)
x.transpose(1, 2).contiguous() | x.flatten(1) | x.unflatten(2, (2, -1)) | x.unsqueeze(-1) | x[:, :1].squeeze(1)
x.expand(5, -1, -1, -1) | x.repeat(2, 1, 1) | x.T if x.dim() == 2 else x.mT | w.T | x.real | x.split(2, 1)
torch.split(x, [1, 2], 1) | x.split(1) | x.chunk(2, -1) | x.unbind() | torch.unbind(x, 1) | torch.cat((x, y), 1)
torch.cat([x, y, x], dim=-1)
torch.stack([x, y]) | torch.stack([r for r in x]) | torch.hstack((x, y)) | torch.meshgrid(w[0], z[0], indexing='ij')
torch.broadcast_tensors(x, y[:, :1]) | torch.where(x > 0.5) | torch.nonzero(x > 0.5) | x.nonzero(as_tuple=True)
x.dim(), x.ndim, len(x), x.size(0), x.size(-1), x.stride(), x.stride(1), x.numel(), x.nelement()
x.shape[-1], x.shape[1:][0], len(x.shape), math.prod(x.shape), max(x.shape), x.shape.numel() | tuple(x.shape) | list(x.shape)
[s * 2 for s in x.shape]
x.shape == y.shape | x.shape == (2, 3, 4) | x.size(0) == y.size(0) and x.size(2) > 3
x.dtype, x.device, x.is_cuda, x.is_floating_point(), x.element_size(), x.itemsize, x.requires_grad | x.dtype == torch.float32
x.dtype in (torch.float16, torch.float32)
x.device == torch.device('cpu') | x.device.type
x.is_contiguous(), x.mT.is_contiguous(), x.storage_offset(), x[1].storage_offset() | x.get_device()
torch.is_tensor(x), isinstance(x, torch.Tensor), type(x), x is x, x is None | x.data_ptr() == x.view(-1).data_ptr()
x.sum().item() | x.long().max().item() | (x.sum() > 0).item()
float(x[0, 0, 0]), int(x.long()[0, 0, 0]), bool(x[0, 0, 0] > 0) | x.sum().item() + 1.5 | [a.sum() for a in x]
torch.arange(x.size(0)) | torch.zeros(x.shape) | torch.zeros(*x.shape[:2])
"""


@pytest.mark.parametrize("body", expressions(SHAPES))
def test_shapes_and_metadata(body: str) -> None:
    recorded(program(body), tensors())


CONVERSIONS = """
x.to(torch.float64) | x.double() | x.half().float() | x.to('cpu') | x.to(y) | x.to(torch.device('cpu'), torch.int32)
x.to(dtype=torch.bool) | x.cpu() | x.to(device='cpu', dtype=torch.float64, copy=True) | x.contiguous() | x.to(float)
x.to(x.dtype)
x.type_as(y.double()) | x.long() | x.bool() | x.to(y, copy=True) | x.to(torch.float64, memory_format=torch.contiguous_format)
x.bfloat16() | x.int() | x.detach() | x.clone() | x.to(y.double()) | x.new_zeros(2, 3) | x.new_full((2,), 1.5)
x.to(torch.float64, True)
torch.zeros(2, 3) | torch.ones((2,), dtype=torch.int32) | torch.full((2,), 3) | torch.full((2,), True) | torch.arange(5)
torch.arange(1, 6, 2) | torch.empty_like(x).fill_(1) | torch.ones_like(x, dtype=torch.float64)
torch.zeros(2, device=x.device, dtype=x.dtype)
torch.linspace(0, 1, 5) | torch.eye(3) | torch.zeros(()) | torch.zeros([2]) | torch.full_like(x, 2)
torch.tril(torch.ones(3, 3)) | x.new_ones(x.size(0)) | torch.scalar_tensor(2.0)
torch.arange(3, dtype=x.dtype, device='cpu')
"""


@pytest.mark.parametrize("body", expressions(CONVERSIONS))
def test_conversions_and_factories(body: str) -> None:
    recorded(program(body), tensors())


FUNCTIONAL = """
F.linear(x, z.t()) | F.linear(x, z.t(), z[0]) | F.embedding(torch.tensor([1, 0]), w, padding_idx=0) | F.softmax(x, -1)
F.softmax(x, dim=1, dtype=torch.float64) | F.log_softmax(x, 1) | F.relu(x) | F.gelu(x) | F.gelu(x, approximate='tanh')
F.silu(x)
F.elu(x) | F.leaky_relu(x, 0.2) | F.hardtanh(x) | F.selu(x) | F.softplus(x) | F.sigmoid(x) | F.tanh(x) | F.logsigmoid(x)
F.glu(x, -1) | F.mish(x) | F.hardswish(x) | F.relu6(x) | F.prelu(x, w[:, 0]) | F.threshold(x, 0.5, 0.0)
F.rms_norm(x, (4,), w[0]) | F.dropout(x, 0.5, False) | F.dropout(x, 0.0) | F.one_hot(torch.tensor([1, 2]), 4)
F.cosine_similarity(x, y) | F.pairwise_distance(w, w) | F.scaled_dot_product_attention(x, y, y)
F.scaled_dot_product_attention(x, y, y, is_causal=True)
F.scaled_dot_product_attention(x, y, y, attn_mask=x @ y.mT, scale=0.3) | F.cross_entropy(w, torch.tensor([1, 2, 0]))
F.cross_entropy(w, torch.tensor([1, 2, 0]), label_smoothing=0.1, reduction='sum')
F.mse_loss(x, y) | F.l1_loss(x, y, reduction='none') | F.smooth_l1_loss(x, y) | F.binary_cross_entropy_with_logits(x, y)
F.kl_div(x, y, reduction='batchmean') | F.nll_loss(w.log_softmax(1), torch.tensor([1, 2, 0])) | F.huber_loss(x, y)
F.conv1d(x, x[:, :, :2]) | F.conv2d(x[None], w[None, None, :2, :2].expand(3, 2, 2, 2), padding=1)
F.adaptive_avg_pool1d(x, 2) | F.conv1d(x, x[:, :, :3], padding='same')
"""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", expressions(FUNCTIONAL))
def test_functional(body: str) -> None:
    recorded(program(body), tensors(), opaque=frozenset({"tensor"}))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("body", expressions("""
F.layer_norm(x, (4,)) | F.layer_norm(x, (4,), w[0], w[1], 1e-6) | F.batch_norm(x, w[:, 0], w[:, 1]) | F.pad(x, (1, 1))
F.pad(x, (1, 0, 1, 1), value=2.0) | F.pad(x, (1, 1), mode='reflect') | x.norm() | torch.norm(x, dim=1)
F.group_norm(x, 3) | F.normalize(x, p=1.0, dim=1) | F.max_pool2d(x, 2)
F.avg_pool2d(x, 2) | F.interpolate(x[None], scale_factor=2.0)
F.interpolate(x[None], size=(6, 6), mode='bilinear', align_corners=False) | F.unfold(x[None], 2) | torch.unique(x)
x.requires_grad_(False)
"""))  # fmt: skip
def test_functional_that_asks_torch_for_settings(body: str) -> None:
    check(program(body), tensors())


INDEXING = """
x[0] | x[-1] | x[0, 1] | x[:, 1] | x[:, :2] | x[1:] | x[:, ::2] | x[..., -2:] | x[..., 0] | x[None] | x[:, None] | x[...]
x[()] | x[0, ..., 1] | x[0][1][2] | x[1:, None, ..., 0] | x[:1, 1:, :2] | x[None, None, 0] | x[:, :, 3:100] | x[2:1]
x[x > 0.5] | x[:, torch.arange(2)] | x[torch.arange(2)] | x[torch.arange(2), torch.arange(2)]
x[:, torch.arange(2), torch.arange(2)] | x[torch.arange(2)[:, None], torch.arange(3)] | x[None, torch.arange(2)]
x[1:, torch.arange(2)] | x[..., torch.arange(2)]
x[x[..., 0] > 0.5] | x[0, x[0, :, 0] > 0.3] | x[:, x[0] > 0.5] | x[x.size(0) - 1] | x[:, x.size(1) // 2:] | x[-x.size(0)]
x[slice(0, 1)] | x[0:x.size(1):2]
x[torch.ones((), dtype=torch.int64)] | x[:, x.long().max():] | x[..., -torch.ones((), dtype=torch.int32), 0] | x[torch.ones(1).byte():]
x[1, torch.ones((), dtype=torch.int8), torch.zeros(1, 1).long():2] | x[:, torch.ones((), dtype=torch.int64)[None]]
"""


@pytest.mark.parametrize("body", expressions(INDEXING))
def test_indexing(body: str) -> None:
    recorded(program(body), tensors())


def store(statements: str) -> Callable[..., object]:
    space: dict[str, object] = {"torch": torch}
    exec(compile("def store(x, y, n):\n    " + "; ".join(statements.split(";")) + "\n    return x", f"<{statements}>", "exec"), space)
    return space["store"]  # type: ignore[return-value]


STORES = """
x[0] = 1 | x[1, 1] = 2.5 | x[:, 0] = y[:, 0] | x[n] = True | x[..., 1] = 7 | x[1:, 2:] = 0 | x[x > 0.5] = -1.0
x[torch.arange(2)] = y[torch.arange(2)] | x[:, torch.arange(2)] = 3 | x[:] = x * 2 | x[...] = y | x[0, 0] = y[0, 0]
x[:, 1] = y[0, 1]
x[:, 2:3] = y[:, :1] | x[-1] = y[0, 0].item() | x[0, :n] = y[0, :1] | x[None, 0] = 9 | x[1] += 1 | x[:2] = y[:1]
x[0] = y[0]; x[0, 1:].mul_(2) | v = x[:, 0]; v += 1 | x[:n, n:] = y[:n, n:] | x[0][1] = 5 | x[x[:, 0] > 0.4] = y[0]
x[:, n] = torch.tensor(3.0) | x[torch.ones((), dtype=torch.int64)] = 2.0 | x[:, torch.ones((), dtype=torch.int64):] = y[:, 1:]
x[torch.ones(1).long():] = 4
"""


@pytest.mark.parametrize("statements", expressions(STORES))
def test_stores(statements: str) -> None:
    g = torch.Generator().manual_seed(2)
    recorded(store(statements), *[(torch.rand(rows, 4, generator=g), torch.rand(rows, 4, generator=g), n) for rows, n in ((3, 1), (5, 2))],
             opaque=frozenset({"tensor"}))  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.bool, torch.float16])
@pytest.mark.parametrize("number", [3, -1, 2.7, True, 300])
def test_numbers_are_converted_as_by_eager(dtype: torch.dtype, number: float) -> None:
    def put(x, value):
        x[0] = value
        x[1:3] = value
        return x

    check(put, (torch.zeros(4, dtype=dtype), number), expect_trace=not (dtype is torch.int8 and number == 300))


@pytest.mark.parametrize("index", [0, 2, 3, -3, -4, 7])
def test_errors_of_indexing(index: int) -> None:
    check(lambda x, n: (x[n], x[:, n]), (torch.rand(3, 4), 1), (torch.rand(3, 4), index))
    for other in (torch.tensor(index), torch.tensor([index]), torch.tensor(float(index)), torch.tensor(True)):
        check(lambda x, n: (x[n], x[:, n], x[:, n:]), (torch.rand(3, 4), torch.tensor(1)), (torch.rand(3, 4), other))


def test_error_of_broadcast_in_a_store() -> None:
    def put(x, y):
        x[:, :2] = y
        return x

    check(put, (torch.rand(3, 4), torch.rand(3, 2)), (torch.rand(3, 4), torch.rand(5)), (torch.rand(3, 4), torch.rand(2)))


def test_sizes_stay_run_time_values() -> None:
    def attend(x, w, heads):
        batch, length, width = x.shape
        q = F.linear(x, w).view(batch, length, heads, -1).transpose(1, 2)
        return (q @ q.mT).softmax(-1)[..., length - 1, :].sum(-1) + x.numel() * width

    w = torch.rand(8, 8)
    recorded(attend, *[(torch.rand(b, n, 8), w, 2) for b, n in ((1, 3), (2, 5), (4, 7))], roots=1)


def test_number_arguments_stay_run_time_values() -> None:
    def scale(x, n, f, flag):
        return (x * n + f).clamp(max=f) + n, x.sum(0, keepdim=flag)

    x = torch.rand(2, 3)
    recorded(scale, (x, 2, 0.5, True), (x, 5, -1.5, False), (x, 0, 0.0, True), roots=1)


def test_in_place_operators_keep_identity() -> None:
    def update(x, y, n):
        z = x
        x += y
        x -= 1
        x *= n
        x /= 2
        x //= 0.25
        x **= 2
        x %= 3
        return x is z, x, z.add_(1) is x

    recorded(update, (torch.rand(2, 3), torch.rand(2, 3), 3), (torch.rand(2, 3), torch.rand(2, 3), 2.5))


def test_parameters_and_tensors_are_told_apart() -> None:
    def use(x, p):
        same = p.contiguous()
        return x + p, x < p, p > x, same is p, type(same), type(p.t()), p.to(torch.float32) is p, isinstance(same, torch.nn.Parameter)

    straight, crosswise = torch.nn.Parameter(torch.rand(2, 2)), torch.nn.Parameter(torch.rand(2, 2).t())
    jitted = trident.jit(use)
    for p in (straight, crosswise, straight, crosswise):
        ours, theirs = jitted(torch.ones(2, 2), p), use(torch.ones(2, 2), p)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a is b


def test_grad_mode() -> None:
    def modes(x):
        with torch.no_grad():
            a = x * 2
        b = x * 3
        with torch.enable_grad():
            c = x * 4
        with torch.set_grad_enabled(False):
            d = x * 5
        return a, b, c, d, torch.is_grad_enabled()

    recorded(modes, (torch.rand(3).requires_grad_(),))
    with torch.no_grad():
        recorded(modes, (torch.rand(3).requires_grad_(),))


def test_gradients_are_those_of_eager() -> None:
    def loss(x, w):
        y = F.silu(F.linear(x, w)) * 2
        y = torch.cat([y, y[:, 1:]], 1)
        y[0] = 1
        return (y[:, :2].sum() * x[0].mean()).pow(2)

    def grads(fn):
        torch.manual_seed(0)
        x, w = torch.rand(3, 4, requires_grad=True), torch.rand(5, 4, requires_grad=True)
        fn(x, w).backward()
        return x.grad, w.grad

    jitted = trident.jit(loss)
    for _ in range(3):
        for a, b in zip(grads(jitted), grads(loss), strict=True):
            assert torch.equal(a, b)


def test_exceptions_of_operators_are_caught_by_the_program() -> None:
    def careful(x, n):
        try:
            return x.view(n, -1)
        except RuntimeError as error:
            return str(error)

    check(careful, (torch.rand(6), 2), (torch.rand(6), 5), (torch.rand(6), 3))


def test_branches_and_loops_over_tensors() -> None:
    def walk(x):
        total = torch.zeros(())
        for row in x:
            if row.sum() > 1:
                total = total + row.max()
        a, b, *_ = x
        return total, a + b

    check(walk, (torch.tensor([[0.1, 0.2], [0.9, 0.8], [0.3, 0.9]]),), (torch.tensor([[0.9, 0.9], [0.1, 0.1], [0.2, 0.2]]),))


def test_builtins_over_tensors() -> None:
    check(lambda x: (sum(x), max(x[0]), min(x[0]), list(x)[1], sum(row.sum() for row in x)), (torch.rand(3, 4),))


def test_metadata_is_read_again_after_it_changed() -> None:
    def reshape(x):
        y = x.clone()
        y.unsqueeze_(0)
        first = tuple(y.shape)
        y.squeeze_()
        y.resize_(2)
        z = y
        z.data = torch.ones(3, 3)
        return first, y.dim(), len(y), tuple(y.shape), y + 1

    check(reshape, (torch.rand(4),))


def test_attributes_of_one_tensor() -> None:
    def mark(x):
        x.note = 3
        return x.note + 1, hasattr(x, "other"), getattr(x, "other", 5)

    check(mark, (torch.rand(4),))


def test_random_operators_draw_in_order() -> None:
    def draw(x):
        numbers = torch.rand(3), torch.randn(2, 2), torch.randint(0, 10, (3,)), torch.rand_like(x)
        return *numbers, torch.randperm(4), F.dropout(x, 0.5), x.bernoulli(0.5)

    jitted = trident.jit(draw)
    x = torch.rand(3, 4)
    for _ in range(3):
        torch.manual_seed(5)
        ours = jitted(x)
        torch.manual_seed(5)
        for a, b in zip(ours, draw(x), strict=True):
            assert torch.equal(a, b)


class Seen(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_function_modes_see_every_call() -> None:
    def work(x):
        return torch.add(x, 1) * x.shape[0]

    jitted, x = trident.jit(work), torch.rand(3)
    for _ in range(2):
        jitted(x)
    with Seen() as expected:
        work(x)
    for _ in range(2):
        with Seen() as seen:
            result = jitted(x)
        assert seen.count == expected.count
        assert torch.equal(result, work(x))
        assert torch.equal(jitted(x), work(x))


def test_default_device_mode() -> None:
    jitted = trident.jit(lambda: torch.ones(3) + 1)
    for _ in range(2):
        assert jitted().device.type == "cpu"
        with torch.device("meta"):
            assert jitted().device.type == "meta"


def test_subclasses_keep_their_torch_function() -> None:
    class Sub(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            cls.calls += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    def work(x):
        return F.relu(torch.add(x, 1) * 2)

    jitted, plain = trident.jit(work), torch.rand(3)
    jitted(plain)
    for _ in range(2):
        before = Sub.calls
        assert type(jitted(plain.as_subclass(Sub))) is Sub
        assert Sub.calls > before
        assert type(jitted(plain)) is torch.Tensor


def test_monkey_patched_method_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(x):
        return x.relu()

    jitted, x = trident.jit(work), torch.tensor([-1.0, 1.0])
    jitted(x)
    assert torch.equal(jitted(x), work(x))
    monkeypatch.setattr(torch.Tensor, "relu", lambda self: self * 100, raising=False)
    assert torch.equal(jitted(x), x * 100)


def test_dispatch_modes() -> None:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    first, second = trident.jit(lambda: torch.ones(3) + 1), trident.jit(lambda: torch.ones(3) * 2)
    with FakeTensorMode():  # recorded under the mode, used without, and the other way round
        assert type(first()) is FakeTensor
    for _ in range(2):
        assert type(first()) is torch.Tensor and torch.equal(second(), first())
    with FakeTensorMode():
        assert type(first()) is FakeTensor and type(second()) is FakeTensor
