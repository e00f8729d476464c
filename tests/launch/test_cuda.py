"""Native launches on CUDA against Triton's own launches of the same kernels."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from kernels import add, ids, scalars
from sites import KeyReader, launcher_of
from triton import knobs

pytestmark = pytest.mark.gpu

SCALE = tl.constexpr(2)


@triton.jit
def typed(out, a: tl.int64, b: tl.float32, c: tl.int1):
    tl.store(out, a + tl.where(c, 1, 0) + (b * 4).to(tl.int64))


@triton.jit
def scaled(out, n):
    tl.store(out, n * SCALE)


@triton.jit
def matmul(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :])
        y = tl.load(b + (start + k)[:, None] * BN + n[None, :])
        acc = tl.dot(x, y, acc)
    tl.store(c + m[:, None] * BN + n[None, :], acc)


def cuda(*values: Any) -> torch.Tensor:
    return torch.tensor(values, device="cuda")


def both(kernel: Any, operands: list[Any], grid: tuple[int, ...], out: torch.Tensor, options: dict[str, Any] | None = None,
         **constants: Any) -> Any:
    """The same result, bit for bit, from Triton, from a first launch and from native ones."""
    compiled = kernel[grid](*operands, **constants, **(options or {}))
    want = out.clone()
    launcher = launcher_of(kernel, operands, options=options, **constants)
    for hits in (0, 1, 2):
        out.fill_(77)
        launcher(grid, *operands)
        assert torch.equal(out, want), hits
        assert launcher.state.hits == hits, launcher.state.reason
    assert launcher.state.entries[-1].compiled is compiled
    return launcher


DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.int8]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 5, 1024, 5000])
def test_add(dtype: torch.dtype, n: int) -> None:
    x, y = ((20 * torch.rand(n, device="cuda")).to(dtype) for _ in range(2))
    out = torch.zeros_like(x)
    both(add, [x, y, out, n], (triton.cdiv(n, 1024),), out, BLOCK=1024)
    assert torch.equal(out, x + y)


def test_specializations_of_one_site() -> None:
    """Alignment, size and dtype vary from launch to launch; each keeps its own kernel."""
    base = [torch.rand(4096, device="cuda") for _ in range(3)]
    launcher = launcher_of(add, [*base, 4096], BLOCK=1024)
    cases = []
    for dtype in (torch.float32, torch.float16):
        for offset in (0, 1, 4):
            for n in (1, 16, 1000):
                cases.append(([t.to(dtype)[offset:] for t in base], n))
    for _ in range(3):
        for (x, y, out), n in cases:
            out.zero_()
            launcher((triton.cdiv(n, 1024),), x, y, out, n)
            assert torch.equal(out[:n], (x + y)[:n]) and not out[n:].any()
    # Three sizes by: float32 aligned (at 0 and at 4), float32 not, float16 aligned, float16 not (at 1 and at 4).
    assert launcher.state.hits == 3 * len(cases) - 12, launcher.state.reason
    assert len(launcher.state.entries) == len({(e.key, e.device) for e in launcher.state.entries})


@pytest.mark.parametrize("grid", [(1,), (7,), (3, 4), (2, 3, 4)])
def test_grids(grid: tuple[int, ...]) -> None:
    x, y, z = (*grid, 1, 1)[:3]
    out = torch.zeros(x * y * z, dtype=torch.int32, device="cuda")
    both(ids, [out], grid, out)


def test_empty_grid() -> None:
    out = torch.full((4,), 5, dtype=torch.int32, device="cuda")
    launcher = launcher_of(ids, [out])
    launcher((4,), out)
    out.fill_(5)
    for grid in ((0,), (4, 0), (1, 1, 0)):
        launcher(grid, out)
    assert out.tolist() == [5, 5, 5, 5]
    launcher((4,), out)
    assert out.tolist() == [0, 1, 2, 3] and launcher.state.hits == 1


def test_too_large_a_grid_is_triton_s_error() -> None:
    out = torch.zeros(4, dtype=torch.int32, device="cuda")
    launcher = launcher_of(ids, [out])
    launcher((1,), out)
    launcher((1,), out)
    grid = (1, 70000)  # the y dimension ends at 65535
    with pytest.raises(RuntimeError, match="Triton Error") as theirs:
        ids[grid](out)
    with pytest.raises(RuntimeError) as ours:
        launcher(grid, out)
    assert str(ours.value) == str(theirs.value) and launcher.state.misses == 1
    launcher((4,), out)
    assert out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("a", [1, 3, 16, 1 << 40, -5])
@pytest.mark.parametrize("flag", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_scalars(a: int, flag: bool, with_bias: bool) -> None:
    out = torch.zeros(1, device="cuda")
    both(scalars, [out, a, 0.5, -3, flag, cuda(2.5) if with_bias else None], (1,), out)


@pytest.mark.parametrize("a", [1, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("c", [True, False, 1, 0])
def test_annotated_scalars(a: int, c: Any) -> None:
    out = torch.zeros(1, dtype=torch.int64, device="cuda")
    both(typed, [out, a, 2.5, c], (1,), out)
    both(typed, [out, a, 3, c], (1,), out)


def test_constants_of_the_site() -> None:
    out = torch.zeros(1, device="cuda")
    both(scalars, [out, 3], (1,), out, b=0.25, c=1, flag=True, bias=None)


@pytest.mark.parametrize("warps", [1, 2, 4, 8])
def test_warps(warps: int) -> None:
    x, y, out = (torch.rand(4096, device="cuda") for _ in range(3))
    launcher = both(add, [x, y, out, 4096], (4,), out, {"num_warps": warps}, BLOCK=1024)
    assert launcher.state.entries[-1].compiled.metadata.num_warps == warps


@pytest.mark.parametrize("stages", [1, 4])
def test_shared_memory(stages: int) -> None:
    """From little dynamic shared memory to more than 48 KiB of it, which takes a function attribute."""
    a, b = torch.randn(128, 256, device="cuda", dtype=torch.float16), torch.randn(256, 128, device="cuda", dtype=torch.float16)
    out = torch.zeros(128, 128, device="cuda")
    launcher = both(matmul, [a, b, out, 256], (1,), out, {"num_warps": 8, "num_stages": stages}, BM=128, BN=128, BK=64)
    assert torch.allclose(out, a.float() @ b.float(), atol=0.1, rtol=0.01)
    assert launcher.state.entries[-1].compiled.metadata.shared > (48 * 1024 if stages == 4 else 0)


@pytest.mark.parametrize("options", [{"num_ctas": 2}, {"launch_cooperative_grid": True}, {"launch_pdl": True}], ids=str)
def test_launch_attributes(options: dict[str, Any]) -> None:
    x, y, out = (torch.rand(4096, device="cuda") for _ in range(3))
    try:
        add[(4,)](x, y, out, 4096, BLOCK=1024, **options)
        torch.cuda.synchronize()
    except Exception as error:
        pytest.skip(f"this GPU or Triton does not take {options}: {error}")
    launcher = both(add, [x, y, out, 4096], (4,), out, options, BLOCK=1024)
    row = launcher.state.entries[-1].words
    from trident.backend.native import launch_layout as layout

    assert row[layout.ENTRY_ATTR_COUNT] == (2 if "num_ctas" in options else 1)


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_hooks(name: str) -> None:
    x, y, out = (torch.rand(64, device="cuda") for _ in range(3))
    launcher = launcher_of(add, [x, y, out, 64], BLOCK=64)
    for _ in range(2):
        launcher((1,), x, y, out, 64)
    assert launcher.state.hits == 1
    seen: list[Any] = []
    hook = seen.append
    getattr(knobs.runtime, name).add(hook)
    try:
        for _ in range(2):
            launcher((1,), x, y, out, 64)
        assert len(seen) == 2 and launcher.state.hits == 1
    finally:
        getattr(knobs.runtime, name).remove(hook)
    launcher((1,), x, y, out, 64)
    assert len(seen) == 2 and launcher.state.hits == 2


def test_changed_global(monkeypatch: pytest.MonkeyPatch) -> None:
    out = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernel = triton.jit(scaled.fn)
    both(kernel, [out, 5], (1,), out)
    launcher = launcher_of(kernel, [out, 5])
    launcher((1,), out, 5)
    for i in range(3):
        globals()["UNRELATED"] = i
        launcher((1,), out, 5)
    assert launcher.state.hits == 3
    monkeypatch.setitem(globals(), "SCALE", tl.constexpr(3))
    with pytest.raises(RuntimeError, match="Global variable SCALE has changed"):
        launcher((1,), out, 5)


def test_a_cpu_tensor_takes_the_way_it_takes_in_triton() -> None:
    x, y, out = (torch.rand(64, device="cuda") for _ in range(3))
    launcher = launcher_of(add, [x, y, out, 64], BLOCK=64)
    for _ in range(2):
        launcher((1,), x, y, out, 64)
    with pytest.raises(Exception) as theirs:
        add[(1,)](x, y.cpu(), out, 64, BLOCK=64)
    for operands in ([x, y.cpu(), out, 64], [x.cpu(), y, out, 64]):
        with pytest.raises(type(theirs.value)):
            launcher((1,), *operands)
    pinned = y.cpu().pin_memory()
    launcher((1,), x, pinned, out, 64)
    assert torch.equal(out, x + y)
    hits = launcher.state.hits
    launcher((1,), x, y, out, 64)
    assert launcher.state.hits == hits + 1


@pytest.mark.parametrize("bad", ["text", object(), 1 << 64], ids=lambda bad: type(bad).__name__)
def test_wrong_arguments(bad: Any) -> None:
    from sites import site_of

    from trident.backend.triton.launcher import NativeLauncher

    x = torch.zeros(64, device="cuda")
    launcher = NativeLauncher(site_of(add, BLOCK=64), ["tensor", "tensor", "tensor", "object"])
    with pytest.raises(Exception) as theirs:
        add[(1,)](x, x, x, bad, BLOCK=64)
    with pytest.raises(type(theirs.value)) as ours:
        launcher((1,), x, x, x, bad)
    assert str(ours.value) == str(theirs.value)


def test_out_of_resources() -> None:
    """More shared memory than there is: Triton's own exception, every time."""
    a, b = torch.randn(128, 512, device="cuda"), torch.randn(512, 128, device="cuda")
    out = torch.zeros(128, 128, device="cuda")
    options, sizes = {"num_stages": 4, "num_warps": 8}, {"BM": 128, "BN": 128, "BK": 128}
    launcher = launcher_of(matmul, [a, b, out, 512], options=options, **sizes)
    for _ in range(2):
        with pytest.raises(triton.runtime.errors.OutOfResources):
            launcher((1,), a, b, out, 512)
    assert launcher.state.hits == 0


def test_current_stream() -> None:
    """A launch goes to the current stream: it waits for what was put there before it, and the default stream does not."""
    x, y = torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    out = torch.full((1 << 20,), -1.0, device="cuda")
    n = out.numel()
    launcher = launcher_of(add, [x, y, out, n], BLOCK=1024)
    grid = (triton.cdiv(n, 1024),)
    for _ in range(2):
        launcher(grid, x, y, out, n)
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    hits = launcher.state.hits
    with torch.cuda.stream(side):
        torch.cuda._sleep(200_000_000)
        x.fill_(3.0)
        launcher(grid, x, y, out, n)
        done = torch.cuda.Event()
        done.record()
    assert launcher.state.hits == hits + 1
    assert not done.query(), "the launch came behind the sleep"
    side.synchronize()
    assert bool((out == 3.0).all())


def test_capture_into_a_graph() -> None:
    x, y, out = (torch.rand(4096, device="cuda") for _ in range(3))
    launcher = launcher_of(add, [x, y, out, 4096], BLOCK=1024)
    for _ in range(2):
        launcher((4,), x, y, out, 4096)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    hits = launcher.state.hits
    with torch.cuda.graph(graph):
        launcher((4,), x, y, out, 4096)
    assert launcher.state.hits == hits + 1
    x.fill_(1.0)
    y.fill_(2.0)
    out.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert bool((out == 3.0).all())


def test_a_thread_of_its_own() -> None:
    """A thread that has not used CUDA before has no current context: the first launch there gets one."""
    x, y, out = (torch.rand(64, device="cuda") for _ in range(3))
    launcher = launcher_of(add, [x, y, out, 64], BLOCK=64)
    for _ in range(2):
        launcher((1,), x, y, out, 64)
    out.zero_()
    torch.cuda.synchronize()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(10):
                launcher((1,), x, y, out, 64)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert not errors and torch.equal(out, x + y)
    assert launcher.state.hits >= 10


def test_keys_of_cuda_tensors() -> None:
    reader = KeyReader(triton.jit(ids.fn), ["tensor"])
    base = torch.zeros(64, device="cuda")
    assert reader.key(base) == reader.key(base[4:]) != reader.key(base[1:]) == reader.key(base[2:])
    assert reader.key(base[:0]) == reader.key(base) != reader.key(base.double())


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_two_devices() -> None:
    launcher = None
    for _ in range(3):
        for index in range(2):
            with torch.cuda.device(index):
                x, y = torch.rand(64, device="cuda"), torch.rand(64, device="cuda")
                out = torch.zeros_like(x)
                launcher = launcher or launcher_of(add, [x, y, out, 64], BLOCK=64)
                launcher((1,), x, y, out, 64)
                assert torch.equal(out, x + y)
    assert launcher is not None and launcher.state.hits == 4


@triton.jit
def nop3(a, b, c, n, BLOCK: tl.constexpr):
    pass


@triton.jit
def nop19(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s):  # noqa: E741
    pass


def best(run: Callable[[int], Any], count: int, rounds: int = 15) -> float:
    """Microseconds per call, the best of several rounds; the queue is empty at the start of each."""
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        run(count)
        times.append((time.perf_counter() - start) / count * 1e6)
    return min(times)


@pytest.mark.parametrize("case", ["3 tensors", "19 arguments"])
def test_launch_cost(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A launch costs at most 1.25 times a bare cuLaunchKernel of the same kernel in a native loop."""
    x = torch.zeros(64, device="cuda")
    if case == "3 tensors":
        kernel, operands, constants = nop3, [x, x, x, 64], {"BLOCK": 64}
    else:
        kernel, operands, constants = nop19, [x] * 5 + [7, 16, 1 << 40] * 4 + [3, 4], {}
    launcher = launcher_of(kernel, operands, **constants)
    for _ in range(3):
        launcher((1,), *operands)
    assert launcher.state.hits == 2, launcher.state.reason
    count = 500  # less than the depth of the queue, so that no call waits for the GPU
    native, floor = float("inf"), float("inf")
    for _ in range(12):  # interleaved; the best of each, which other processes on the machine can only delay
        native = min(native, best(lambda n: launcher.launch_loop(n, (1,), *operands), count))
        floor = min(floor, best(lambda n: launcher.floor_loop(n, (1,), *operands), count))
        if native <= 1.25 * floor:
            break
    triton_own = best(lambda n: [kernel[(1,)](*operands, **constants) for _ in range(n)], count)
    with capsys.disabled():
        print(f"\nlaunch, {case}, us: native {native:.2f}, cuLaunchKernel {floor:.2f} ({native / floor:.3f}x), "
              f"Triton {triton_own:.2f}")
    assert native <= 1.25 * floor
