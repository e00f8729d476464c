"""The recorder over tensor functions and modules."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from driver import Driver, check, same  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def pointwise(x, y):
    return (x + y) * 2 - x / 3, torch.relu(x).sum()


def shapes(x):
    b, n = x.shape
    return x.view(b * n), x.reshape(n, b), x[0], x[:, 1:], x.size(0) + x.dim()


def branch_on_shape(x):
    if x.shape[0] > 2:
        return x + 1
    return x - 1


def branch_on_value(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


def scalar(x, n, alpha):
    return x * n + alpha, x.add(1, alpha=2)


def in_place(x):
    x.add_(1)
    x[0] = 5
    return x


def accumulate(x, n):
    for i in range(n):
        x = x + i
    return x


def grad_mode(x):
    with torch.no_grad():
        y = x * 2
    return y, torch.is_grad_enabled()


def lists_of_tensors(xs):
    return torch.cat(xs), torch.stack([x * 2 for x in xs])


def item(x):
    return x.sum().item() + 1


def unpacks(x):
    a, b = x.chunk(2)
    return a + b, [t.sum() for t in x.unbind(0)]


@pytest.mark.parametrize(
    ("fn", "calls"),
    [
        (pointwise, [(torch.ones(3), torch.arange(3.0)), (torch.ones(5), torch.ones(5))]),
        (shapes, [(torch.arange(6.0).view(2, 3),), (torch.arange(20.0).view(4, 5),)]),
        (branch_on_shape, [(torch.ones(2),), (torch.ones(3),), (torch.ones(4),)]),
        (branch_on_value, [(torch.ones(2),), (-torch.ones(3),)]),
        (scalar, [(torch.ones(2), 3, 0.5), (torch.ones(2), 4, 1.5)]),
        (in_place, [(torch.zeros(3),)]),
        (accumulate, [(torch.ones(2), 3), (torch.ones(2), 4)]),
        (grad_mode, [(torch.ones(2, requires_grad=True),)]),
        (lists_of_tensors, [([torch.ones(2), torch.zeros(2)],)]),
        (item, [(torch.ones(3),), (torch.ones(4),)]),
        (unpacks, [(torch.arange(4.0),)]),
    ],
)
def test_tensor_functions(fn, calls):
    check(fn, *calls)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = 0.5
        self.register_buffer("offset", torch.ones(width))

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x)))) * self.scale + self.offset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block(4) for _ in range(3))
        self.head = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Dropout(0.5))
        self.table = nn.ParameterList([nn.Parameter(torch.ones(4))])
        self.calls = 0

    def forward(self, x, *, flag=True):
        for n, block in enumerate(self.blocks):
            x = block(x)
            if flag and n == 0:
                x = x + self.table[0]
        return self.head(x)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


NET = Net().eval()


def run_net(x):
    return NET(x)


def run_blocks(x):
    for block in reversed(list(NET.blocks)):
        x = block(x)
    return x, len(NET.blocks), NET.blocks[1] is NET.blocks[-2], NET.training


def test_module_tree():
    driver = check(run_net, (torch.ones(2, 4),), (torch.ones(3, 4),), rounds=3)
    assert len(driver.traces) == 1, driver.misses
    calls = [call.callee for call in driver.traces[0].opaque_calls]
    assert set(calls) <= {"torch._C._get_cudnn_enabled"}


def test_module_list():
    check(run_blocks, (torch.ones(2, 4),))


def test_module_state_changes():
    x = torch.ones(2, 4)
    net = Net().eval()

    def run(x):
        return net(x)

    driver = Driver(run)
    for change in (lambda: None, lambda: setattr(net.blocks[1], "scale", 2.0), lambda: net.blocks.append(Block(4)), lambda: None,
                   lambda: setattr(net.blocks[0].up, "weight", nn.Parameter(torch.zeros(8, 4))), lambda: None,
                   lambda: net.blocks[0].register_forward_hook(lambda module, args, out: out * 2), lambda: None):
        change()
        assert same(driver(x), net(x))
    assert driver.hits == 3


def test_forward_methods():
    x = torch.ones(2, 4)
    driver = Driver(NET.forward.__func__)
    for _ in range(2):
        assert same(driver(NET, x), NET(x))
    assert driver.hits == 1
    assert same(driver(NET, x, flag=False), NET(x, flag=False))


def test_counter_is_demoted():
    net = Counting()

    def run(x):
        return net(x)

    driver = Driver(run)
    results = [driver(torch.ones(1)).item() for _ in range(6)]
    assert results == [1, 2, 3, 4, 5, 6]
    assert driver.hits >= 4


def test_training_records_autograd():
    net = Net().train()
    net.head[2].p = 0.0

    def loss(x):
        return net(x).sum()

    driver = Driver(loss)
    grads = []
    for _ in range(3):
        net.zero_grad()
        driver(torch.ones(2, 4)).backward()
        grads.append(net.blocks[0].up.weight.grad.clone())
    assert driver.hits == 2
    assert torch.equal(grads[0], grads[2])
    net.zero_grad()
    loss(torch.ones(2, 4)).backward()
    assert torch.equal(grads[0], net.blocks[0].up.weight.grad)


def test_hooks_that_change_places():
    module = nn.ReLU()
    first = module.register_forward_hook(lambda module, args, out: out * 2)

    def called(x):
        return module(x), list(module._forward_hooks)

    driver, x = Driver(called), torch.ones(2)
    for n in range(3):
        assert same(driver(x), called(x))
        module.register_forward_hook(lambda module, args, out, n=n: out + n, prepend=True)
        assert same(driver(x), called(x))
    hits = driver.hits
    assert same(driver(x), called(x)) and driver.hits == hits + 1
    module._forward_hooks.move_to_end(first.id)  # as it is
    assert same(driver(x), called(x)) and driver.hits == hits + 2
    module._forward_hooks.move_to_end(first.id, last=False)
    for _ in range(2):
        assert same(driver(x), called(x))
    assert driver.hits == hits + 3
