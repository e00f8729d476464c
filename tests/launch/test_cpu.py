"""Native launches of real kernels on CPU tensors, through the `cpu` backend, against Triton's own launches of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from kernels import add, ids, scalars
from sites import launcher_of
from torch._subclasses.fake_tensor import FakeTensorMode

from trident.backend.triton import cpu


@pytest.fixture(autouse=True, scope="module")
def backend(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    cpu.register()
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        yield folder


def both(kernel: Any, operands: list[Any], grid: tuple[int, ...], out: torch.Tensor, **constants: Any) -> None:
    """The same result, bit for bit, from Triton, from a first launch and from a native one."""
    kernel[grid](*operands, **constants)
    want = out.clone()
    launcher = launcher_of(kernel, operands, **constants)
    for hits in (0, 1, 2):
        out.fill_(77)
        launcher(grid, *operands)
        assert torch.equal(out, want) and launcher.state.hits == hits, launcher.state.reason


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int32, torch.int64])
@pytest.mark.parametrize("n", [1, 5, 64, 1000])
@pytest.mark.parametrize("offset", [0, 1])
def test_add(dtype: torch.dtype, n: int, offset: int) -> None:
    x, y, out = ((100 * torch.rand(n + offset)).to(dtype)[offset:] for _ in range(3))
    out.copy_(torch.zeros_like(out))
    both(add, [x, y, out, n], (triton.cdiv(n, 64),), out, BLOCK=64)
    assert torch.equal(out, x + y)


@pytest.mark.parametrize("grid", [(1,), (7,), (3, 4), (2, 3, 4)])
def test_grids(grid: tuple[int, ...]) -> None:
    x, y, z = (*grid, 1, 1)[:3]
    out = torch.zeros(x * y * z, dtype=torch.int32)
    both(ids, [out], grid, out)


def test_empty_grid() -> None:
    out = torch.full((4,), 5, dtype=torch.int32)
    launcher = launcher_of(ids, [out])
    for grid in ((4,), (0,), (4, 0)):
        launcher(grid, out)
    assert out.tolist() == [0, 1, 2, 3] and launcher.state.hits == 0


@pytest.mark.parametrize("a", [1, 3, 16, 1 << 40])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("bias", [None, torch.tensor([2.5])], ids=["none", "tensor"])
def test_scalars(a: int, flag: bool, bias: torch.Tensor | None) -> None:
    out = torch.zeros(1)
    both(scalars, [out, a, 0.5, -3, flag, bias], (1,), out)


def test_a_tensor_elsewhere_is_triton_s_business() -> None:
    x = torch.zeros(64)
    launcher = launcher_of(add, [x, x, x, 64], BLOCK=64)
    meta = torch.zeros(64, device="meta")
    with pytest.raises(Exception) as theirs:
        add[(1,)](meta, x, x, 64, BLOCK=64)
    with pytest.raises(type(theirs.value)) as ours:
        launcher((1,), meta, x, x, 64)
    assert str(ours.value) == str(theirs.value)


def test_the_kernel_s_code_lives_as_long_as_the_site() -> None:
    """Dropping Triton's own caches leaves a known launch right."""
    out = torch.zeros(4, dtype=torch.int32)
    kernel = triton.jit(ids.fn)
    launcher = launcher_of(kernel, [out])
    launcher((4,), out)
    launcher((4,), out)
    kernel.device_caches.clear()
    for _ in range(3):
        out.zero_()
        launcher((4,), out)
        assert out.tolist() == [0, 1, 2, 3]


def test_autotuned_kernel() -> None:
    kernel = triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])(triton.jit(add.fn))
    from trident.backend.triton.launcher import NativeLauncher
    from trident.ir.trace import LaunchParam, LaunchSite

    site = LaunchSite(kernel, tuple(LaunchParam(name, False) for name in ("x", "y", "out", "n")), (), __file__, 1)
    launcher = NativeLauncher(site, ["tensor", "tensor", "tensor", "int"])
    x, y, out = torch.rand(32), torch.rand(32), torch.zeros(32)
    for _ in range(3):
        launcher((1,), x, y, out, 32)
        assert torch.equal(out, x + y)


def test_launch_cost(capsys: pytest.CaptureFixture[str]) -> None:
    """A native launch costs well under a microsecond more than the call of the kernel itself, and far less than Triton's."""
    import time

    x, y, out = torch.rand(64), torch.rand(64), torch.zeros(64)
    launcher = launcher_of(add, [x, y, out, 64], BLOCK=64)
    launcher((1,), x, y, out, 64)

    def best(run: Any, count: int) -> float:
        times = []
        for _ in range(5):
            start = time.perf_counter()
            run(count)
            times.append((time.perf_counter() - start) / count * 1e9)
        return min(times)

    native = best(lambda n: launcher.launch_loop(n, (1,), x, y, out, 64), 20000)
    floor = best(lambda n: launcher.floor_loop(n, (1,), x, y, out, 64), 20000)
    triton_own = best(lambda n: [add[(1,)](x, y, out, 64, BLOCK=64) for _ in range(n)], 300)
    with capsys.disabled():
        print(f"\nlaunch on the CPU, ns: native {native:.0f}, kernel alone {floor:.0f}, Triton {triton_own:.0f}")
    assert native - floor < 1000 and native < triton_own / 4


def _without_memory(kind: str) -> torch.Tensor:
    if kind == "zero":
        return torch._efficientzerotensor((4,))
    if kind == "fake":
        with FakeTensorMode():
            return torch.empty(4)
    tensor = {"freed": torch.ones(4), "view": torch.ones(8)[4:], "deep": torch.ones(1 << 16)[-4:]}[kind]
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("kind", ["freed", "view", "deep", "zero", "fake"])
def test_a_tensor_without_memory_is_refused(kind: str) -> None:
    """From Triton's own launcher, and from a site that has launched natively before."""
    x, y, out = torch.ones(4), torch.ones(4), torch.zeros(4)
    launcher = launcher_of(add, [x, y, out, 4], BLOCK=4)
    for _ in range(3):
        launcher((1,), x, y, out, 4)
    assert launcher.state.hits == 2
    bad = _without_memory(kind)
    for launch in (lambda: add[(1,)](x, bad, out, 4, BLOCK=4), lambda: launcher((1,), x, bad, out, 4)):
        with pytest.raises(ValueError, match="Pointer argument y cannot be accessed .* without memory"):
            launch()
    launcher((1,), x, y, out, 4)
    assert launcher.state.hits == 3


def test_an_empty_tensor_is_launched_natively() -> None:
    x, out = torch.ones(0), torch.zeros(4)
    launcher = launcher_of(add, [x, x, out, 0], BLOCK=4)
    for _ in range(3):
        launcher((1,), x, x, out, 0)
    assert launcher.state.hits == 2
