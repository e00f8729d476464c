"""Programs, four ways (see harness)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.conformance.harness import check

torch.manual_seed(0)
X, Y, W = torch.randn(4, 8), torch.randn(4, 8), torch.randn(8, 8)


def two_ops(x, y):
    return (x + y) * x


def scalars(x):
    return 2 * x + 1.5 - x / 3


def reverse_scalars(x):
    return (1 - x) / (2 + x * x) + 2 ** (x * 0.1)


def branch_on_shape(x):
    if x.shape[0] > 3:
        return x.sum(0)
    return x.mean(0)


def branch_on_value(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def branch_on_item(x):
    n = int(x.abs().sum().item())
    return x * n if n % 2 else x + n


def loop_static(x):
    for i in range(4):
        x = x * (i + 1) - 0.5
    return x


def loop_over_list(x, y):
    total = torch.zeros_like(x)
    for n, t in enumerate([x, y, x * y]):
        total = total + t * n
    return total


def while_loop(x):
    n = 0
    while n < 3:
        x = torch.relu(x) - 0.1
        n += 1
    return x, n


def returns_structure(x, y):
    return {"sum": x + y, "parts": [x, (y, 3, None)], "name": "n"}


def passes_through(x, y):
    return y


def in_place(x, y):
    x.add_(y)
    x[0] = 1.0
    x[:, 1] += 2
    return x


def views(x):
    v = x.view(2, 16)[1:, ::2]
    v.mul_(2)
    return v, x.t(), x.unsqueeze(0).expand(3, -1, -1)


def indexing(x):
    return x[0], x[-1, 2:5], x[..., None], x[:, [0, 2]], x[x > 0], x[None, 1], x[1:3, -1]


def unpack_shape(x):
    b, d = x.shape
    return x.reshape(d, b) * d + b, b * d, x.size(-1), x.numel(), x.dim()


def reductions(x):
    values, indices = x.max(dim=1)
    return values, indices, x.sum(), x.mean(-1, keepdim=True), x.argmax(), x.std(0), torch.topk(x, 2)


def named_result(x):
    r = torch.max(x, 0)
    return r.values + r[1]


def multi(x):
    a, b = x.chunk(2, dim=-1)
    p, q, r, s = x.unbind(0)
    return a * b, torch.cat([p, q]), torch.stack((r, s)), x.split([3, 5], dim=1)[1]


def functional(x, w):
    h = F.linear(x, w)
    h = F.silu(h) + F.gelu(h) + F.relu(h)
    h = F.layer_norm(h, (8,))
    return F.softmax(h, dim=-1), F.log_softmax(h, -1), F.normalize(h)


def attention(x, y):
    q, k = x.view(1, 2, 4, 4), y.view(1, 2, 4, 4)
    return F.scaled_dot_product_attention(q, k, k, is_causal=True)


def factories(x):
    n = x.shape[0]
    return (torch.zeros(n, 2), torch.arange(n), torch.full((2, n), 3.5), torch.ones_like(x), x.new_zeros(n, dtype=torch.int64),
            torch.eye(3), torch.empty(2, 2).fill_(1), torch.arange(0, n, 2, dtype=torch.float64), torch.tensor(5))


def dtypes(x):
    return x.to(torch.float16), x.double(), x.int(), x.to(torch.bfloat16).float(), x.bool(), x.dtype is torch.float32


def no_grad(x):
    with torch.no_grad():
        y = x * 2
    return y, torch.is_grad_enabled()


def closure_factory():
    scale, offset = 3, torch.ones(8)

    def closure(x):
        return x * scale + offset

    return closure


def inner_closure(x):
    k = 2

    def inner(t, n=3):
        return t * k + n

    return inner(x) + inner(x, n=1)


def nonlocal_counter(x):
    count = 0

    def bump(t):
        nonlocal count
        count += 1
        return t + count

    x = bump(bump(x))
    return x, count


def star(x, *rest, scale=2, **named):
    for r in rest:
        x = x + r
    return x * scale + named.get("bias", 0)


def calls_star(x, y):
    return star(x, y, y, scale=3, bias=1), star(*[x, y], **{"bias": 2})


def comprehension(x):
    parts = [x * i for i in range(3) if i != 1]
    table = {i: p for i, p in enumerate(parts) if i < 9}
    return sum(parts), table[1], [t.shape[0] for t in parts]


def strings(x, name):
    if name == "double":
        return x * 2, f"{name}-{x.shape[0]}"
    return x, name.upper()


def int_argument(x, n):
    return x * n + (n // 3) - (n % 5), n * 2 + 1, -n, n > 3, n << 1, n & 6


def float_argument(x, e):
    return x * e, e / 2 + 1, e**2, e > 0.5, int(e), round(e, 1)


def bool_argument(x, flag):
    return x if flag else -x


def none_argument(x, mask=None):
    if mask is not None:
        x = x.masked_fill(mask, 0.0)
    return x


def dict_argument(state):
    return state["x"] + state["y"] * len(state)


def list_argument(tensors):
    return torch.stack(tensors).sum(0), len(tensors)


def tuple_argument(pair):
    a, b = pair
    return a - b


def append_argument(out, x):
    out.append(x + 1)
    return len(out)


def try_finally(x):
    try:
        y = x * 2
    finally:
        z = x + 1
    return y + z


def catches(x):
    try:
        return x.view(3, 5)
    except RuntimeError:
        return x + 1


def raises(x, y):
    return x @ y.view(4, 8)


def raises_value_error(x):
    if x.shape[0] == 4:
        raise ValueError("four rows")
    return x


def prints(x):
    print("shape", tuple(x.shape))
    return x * 2


def math_calls(x):
    return x * math.sqrt(x.shape[-1]) + math.pi


def builtin_calls(x, y):
    big = max(x.shape[0], y.shape[1], 3)
    return x * big, min(2, big), abs(-3), isinstance(x, torch.Tensor), len(x), sorted([3, 1, 2]), list(zip([1, 2], "ab"))


def partial_call(x):
    f = functools.partial(torch.add, alpha=2)
    return f(x, x)


def conditional_expression(x):
    return (x + 1 if x.dim() == 2 else x - 1), (x.dim() > 1 and x.shape[0] or 7), not x.dim()


def walrus(x):
    if (n := x.shape[1]) > 4:
        return x[:, : n // 2]
    return x


def chained(x):
    return 2 < x.shape[0] < 6 <= x.shape[1]


def identity(x, y):
    z = x
    return z is x, x is y, x is not y, None is None


def slices_with_ints(x, n):
    return x[:n], x[n:], x[:, n - 1], x[-n:]


def matmuls(x, w):
    return x @ w, torch.matmul(x, w.t()), torch.einsum("ij,jk->ik", x, w), (x[None] @ w).squeeze(0), torch.addmm(x, x, w)


def where_mask(x, y):
    return torch.where(x > y, x, y), (x == y).any(), (x > 0).sum(), torch.clamp(x, min=0), x.masked_fill(x < 0, -1)


def data_dependent_shape(x):
    nz = x[x > 0.5]
    return nz * 2, nz.shape[0]


def gather_scatter(x):
    idx = torch.tensor([0, 2])
    y = x.index_select(0, idx)
    z = x.clone()
    z.index_copy_(0, idx, y * 2)
    z.scatter_(1, torch.zeros(4, 1, dtype=torch.long), 5.0)
    return y, z, torch.gather(x, 1, torch.zeros(4, 2, dtype=torch.long))


def global_list(x, log=[]):  # noqa: B006
    return x + len(log)


def early_returns(x, n):
    if n == 0:
        return x
    if n == 1:
        return x + 1
    for i in range(n):
        if i == 3:
            break
        x = x + i
    else:
        return -x
    return x


def deep(x, n):
    if n <= 0:
        return x
    return deep(x + n, n - 1)


def generator_inside(x):
    return sum(t.sum() for t in (x, x * 2))


def sort_and_set(x):
    return x.sort(dim=1, descending=True)[0], len({1, 2, *[2]}), {"a", "b"} == {"b", "a"}


def tensor_iteration(x):
    total = 0
    for row in x:
        total = total + row
    return total


def cumulative(x):
    return x.cumsum(0), torch.outer(x[0], x[1]), x.roll(1, 0), x.flip(0), torch.tril(x), x.repeat(2, 1), F.pad(x, (1, 1))


def formatted(x):
    return f"{x.shape[0]:>4}|{x.dtype}|{1.5:.2f}"


@dataclass
class Config:
    scale: float = 2.0
    dims: tuple = (0, 1)


CONFIG = Config()


def uses_config(x):
    return x.sum(CONFIG.dims) * CONFIG.scale


def makes_dataclass(x):
    c = Config(scale=3.0)
    return x * c.scale


MASK = X > 0
CASES = [
    (two_ops, (X, Y)), (scalars, (X,)), (reverse_scalars, (X,)), (branch_on_shape, (X,), (X[:2],)),
    (branch_on_value, (X.abs(),), (-X.abs(),)), (branch_on_item, (X,), (Y,)), (loop_static, (X,)), (loop_over_list, (X, Y)),
    (while_loop, (X,)), (returns_structure, (X, Y)), (passes_through, (X, Y)), (in_place, (X, Y)), (views, (X,)), (indexing, (X,)),
    (unpack_shape, (X,), (torch.randn(2, 3),)), (reductions, (X,)), (named_result, (X,)), (multi, (X,)), (functional, (X, W)),
    (attention, (X, Y)), (factories, (X,), (torch.randn(7, 2),)), (dtypes, (X,)), (no_grad, (X,)), (closure_factory(), (X,)),
    (inner_closure, (X,)), (nonlocal_counter, (X,)), (calls_star, (X, Y)), (comprehension, (X,)), (strings, (X, "double"), (X, "other")),
    (int_argument, (X, 1), (X, 2), (X, 17), (X, -4)), (float_argument, (X, 0.25), (X, 1.75), (X, -2.5)),
    (bool_argument, (X, True), (X, False)), (none_argument, (X,), (X, MASK)), (dict_argument, ({"x": X, "y": Y},)),
    (list_argument, ([X, Y],), ([X, Y, X],)), (tuple_argument, ((X, Y),)), (append_argument, ([], X)), (try_finally, (X,)),
    (math_calls, (X,)), (builtin_calls, (X, Y)), (partial_call, (X,)), (conditional_expression, (X,)), (walrus, (X,)), (chained, (X,)),
    (identity, (X, Y)), (slices_with_ints, (X, 2), (X, 3)), (matmuls, (X, W)), (where_mask, (X, Y)), (data_dependent_shape, (X,), (Y,)),
    (gather_scatter, (X,)), (global_list, (X,)), (early_returns, (X, 0), (X, 1), (X, 2), (X, 5)), (deep, (X, 3)), (prints, (X,)),
    (generator_inside, (X,)), (sort_and_set, (X,)), (tensor_iteration, (X,)), (cumulative, (X,)), (formatted, (X,)), (uses_config, (X,)),
    (makes_dataclass, (X,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: getattr(c[0], "__name__", "f"))
def test_program(case):
    fn, *arguments = case
    check(fn, *arguments)


@pytest.mark.parametrize("case", [(raises, (X, Y)), (raises_value_error, (X,)), (catches, (X,))], ids=lambda c: c[0].__name__)
def test_program_that_raises(case):
    fn, *arguments = case
    check(fn, *arguments, expect_trace=False)


def test_raise_on_a_hit_has_the_users_lines():
    def product(x, y):
        z = x + 1
        return z @ y

    entry = check(product, (X, W))
    import trident

    jitted = trident.jit(product)
    jitted(X, W), jitted(X, W)
    with pytest.raises(RuntimeError) as eager:
        product(X, Y)
    with pytest.raises(RuntimeError) as native:
        jitted(X, Y)
    assert str(eager.value) == str(native.value)
    assert native.traceback[-1].lineno == eager.traceback[-1].lineno
    assert entry.specializations


class Block(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)
        self.drop = nn.Dropout(0.0)
        self.scale = 0.5

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x))))) * self.scale


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 16, bias=False))
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, tokens, scale: float = 1.0):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        self.steps += 1
        return self.head(x) * scale


TOKENS = torch.tensor([[1, 2, 3]])


def test_module():
    import trident

    model = Model()
    eager = model(TOKENS)
    jitted = trident.jit(model)
    for _ in range(3):
        assert torch.equal(jitted(TOKENS), eager)
    assert torch.equal(jitted(TOKENS, scale=2.0), model(TOKENS, scale=2.0))
    assert model.steps.item() == 6
    assert isinstance(jitted, Model) and jitted.state_dict().keys() == model.state_dict().keys()
    assert trident.explain(jitted).hits >= 1


def test_module_mutations_are_seen():
    import trident

    model = Model().eval()
    jitted = trident.jit(model)
    jitted(TOKENS), jitted(TOKENS)
    with torch.no_grad():
        model.blocks[0].up.weight.mul_(2)
    assert torch.equal(jitted(TOKENS), model(TOKENS))
    model.blocks[1].up.weight = nn.Parameter(torch.randn(16, 8))
    assert torch.equal(jitted(TOKENS), model(TOKENS))
    model.blocks[1] = Block()
    assert torch.equal(jitted(TOKENS), model(TOKENS))
    model.blocks[2].scale = 3.0
    assert torch.equal(jitted(TOKENS), model(TOKENS))
    seen = []
    handle = model.blocks[0].register_forward_hook(lambda m, i, o: seen.append(1) or o * 2)
    assert torch.equal(jitted(TOKENS), model(TOKENS)) and len(seen) == 2
    handle.remove()
    assert torch.equal(jitted(TOKENS), model(TOKENS)) and len(seen) == 2
    model.blocks[0].forward = lambda x: x * 7
    assert torch.equal(jitted(TOKENS), model(TOKENS))
    del model.blocks[0].forward
    model.train()
    assert torch.equal(jitted(TOKENS), model(TOKENS))


def test_gradients():
    import trident

    def loss(x, w):
        return (torch.tanh(x @ w) ** 2).mean()

    jitted = trident.jit(loss)
    for _ in range(3):
        a, b = X.clone().requires_grad_(), W.clone().requires_grad_()
        c, d = X.clone().requires_grad_(), W.clone().requires_grad_()
        loss(a, b).backward()
        jitted(c, d).backward()
        assert torch.equal(a.grad, c.grad) and torch.equal(b.grad, d.grad)
    assert trident.explain(jitted).hits >= 1


def test_random_numbers_advance_the_generator():
    import trident

    def sample(x):
        return torch.rand(3) + torch.randn_like(x[0, :3]) + F.dropout(x, 0.5)[0, :3]

    jitted = trident.jit(sample)
    for seed in range(4):
        torch.manual_seed(seed)
        expected = sample(X), torch.rand(1)
        torch.manual_seed(seed)
        seen = jitted(X), torch.rand(1)
        assert torch.equal(expected[0], seen[0]) and torch.equal(expected[1], seen[1])


def unused_division(x, a, b):
    q = a // b  # noqa: F841
    return x + 1


def unused_range(x, a, b):
    r = range(a, 10, b)  # noqa: F841
    return x + 1


def folded_by_the_dialect(x, y):
    return torch.cat([x]), torch.where(x > 0, x, x), x.t().t(), (x + 0) * 1


@pytest.mark.parametrize("fn", [unused_division, unused_range])
def test_exceptions_do_not_vanish_with_their_values(fn):
    import trident

    jitted = trident.jit(fn)
    for _ in range(3):
        assert torch.equal(jitted(X, 7, 2), X + 1)
    with pytest.raises((ZeroDivisionError, ValueError)) as expected:
        fn(X, 7, 0)
    with pytest.raises(type(expected.value)) as seen:
        jitted(X, 7, 0)
    assert str(seen.value) == str(expected.value)


def test_folders_of_the_dialect_change_nothing():
    check(folded_by_the_dialect, (X, Y))
