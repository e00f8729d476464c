"""Launching: arguments, grids, decorators, hooks, caches, and the native entry."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.driver import DriverBase

import trident.backend
from trident.backend.triton.cpu import UnsupportedKernelError, driver, register, route
from trident.backend.triton.cpu.driver import CPUModule, runtime_arguments


@triton.jit
def args(o, i32, i64, f, flag, none, one, sixteen, u64):
    v = tl.load(o)
    tl.store(o, v + i32)
    tl.store(o + 1, i64)
    tl.store(o + 2, (f * 1000).to(tl.int64))
    if flag:
        tl.store(o + 3, 1)
    if none is None:
        tl.store(o + 4, 1)
    tl.store(o + 5, one)
    tl.store(o + 6, sixteen)
    tl.store(o + 7, (u64 >> 32).to(tl.int64))


@pytest.mark.parametrize("flag", [True, False])
def test_argument_kinds(flag):
    o = torch.zeros(8, dtype=torch.int64)
    args[(1,)](o, -5, 2**40 + 3, 1.5, flag, None, 1, 64, 2**63 + 2**40)
    assert o.tolist() == [-5, 2**40 + 3, 1500, int(flag), 1, 1, 64, (2**63 + 2**40) >> 32]
    o = torch.zeros(8, dtype=torch.int64)
    args[(1,)](o, 17, -(2**40), -2.25, flag, o, 2, 63, 2**63)
    assert o.tolist() == [17, -(2**40), -2250, int(flag), 0, 2, 63, 2**31]


@triton.jit
def fill(o, value, n, B: tl.constexpr = 32):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, value, mask=i < n)


def test_keyword_and_default_arguments():
    o = torch.zeros(70)
    fill[(3,)](o, n=70, value=2.0)
    assert (o == 2).all()
    fill[lambda meta: (triton.cdiv(70, meta["B"]),)](o, 3.0, 70, B=16, num_warps=2, num_stages=1)
    assert (o == 3).all()


def test_grids():
    o = torch.zeros(70)
    fill[(0,)](o, 1.0, 70)
    fill[(0, 5)](o, 1.0, 70)
    fill[(3, 1, 0)](o, 1.0, 70)
    assert (o == 0).all()
    fill[[3]](o, 1.0, 70)
    assert (o == 1).all()


def test_unaligned_pointer():
    o = torch.zeros(70)
    fill[(2,)](o[3:], 4.0, 40)
    assert (o[3:43] == 4).all() and o.sum() == 160


@triton.autotune(configs=[triton.Config({"B": b}) for b in (16, 64)], key=["n"])
@triton.jit
def tuned(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def test_autotune():
    x, o = torch.randn(100), torch.zeros(100)
    tuned[lambda meta: (triton.cdiv(100, meta["B"]),)](x, o, 100)
    assert torch.equal(o, x * 2)
    assert tuned.best_config.kwargs["B"] in (16, 64)


@triton.heuristics({"B": lambda a: triton.next_power_of_2(a["n"]), "EVEN": lambda a: a["n"] % a["B"] == 0})
@triton.jit
def heuristic(x, o, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.arange(0, B)
    if EVEN:
        v = tl.load(x + i)
    else:
        v = tl.load(x + i, mask=i < n)
    tl.store(o + i, v + 1, mask=i < n)


@pytest.mark.parametrize("n", [64, 70])
def test_heuristics(n):
    x, o = torch.randn(n), torch.zeros(n)
    heuristic[(1,)](x, o, n)
    assert torch.equal(o, x + 1)


@triton.jit
def tuple_arg(pair, o, scale):
    i = tl.arange(0, 16)
    tl.store(o + i, (tl.load(pair[0] + i) + tl.load(pair[1] + i)) * scale[0] + scale[1])


def test_tuple_arguments():
    x, y, o = torch.randn(16), torch.randn(16), torch.zeros(16)
    tuple_arg[(1,)]((x, y), o, (2, 3.5))
    assert torch.equal(o, (x + y) * 2 + 3.5)


def test_hooks():
    seen = []
    enter, leave = triton.knobs.runtime.launch_enter_hook, triton.knobs.runtime.launch_exit_hook
    enter.add(lambda meta: seen.append(("enter", meta.get()["name"])))
    leave.add(lambda meta: seen.append(("exit", meta.get()["name"])))
    try:
        fill[(1,)](torch.zeros(8), 1.0, 8)
    finally:
        enter.calls.clear()
        leave.calls.clear()
    assert seen == [("enter", "fill"), ("exit", "fill")]


def test_native_entry():
    """Another native program calls the kernel through an array of pointers to its run-time arguments."""
    o = torch.zeros(100)
    kernel = fill[(4,)](o, 2.5, 100)
    signature = list(kernel.src.signature.values())
    assert [kind for _, kind in runtime_arguments(signature)] == ["*fp32", "fp32", "i32"]
    assert isinstance(kernel.module, CPUModule) and kernel.function == kernel.module.function
    o.zero_()
    values = (ctypes.c_void_p(o.data_ptr()), ctypes.c_float(7.5), ctypes.c_int32(90))
    params = (ctypes.c_void_p * 3)(*[ctypes.addressof(v) for v in values])
    entry = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)(kernel.function)
    entry(ctypes.addressof(params), 4, 1, 1)
    assert (o[:90] == 7.5).all() and (o[90:] == 0).all()


def test_constant_arguments_are_absent():
    """An integer 1, None and constexprs are no run-time arguments; tuples are flattened."""
    o = torch.zeros(8, dtype=torch.int64)
    kernel = args[(1,)](o, 3, 2**40, 0.5, True, None, 1, 16, 2**63)
    kinds = [kind for _, kind in runtime_arguments(list(kernel.src.signature.values()))]
    assert kinds == ["*i64", "i32", "i64", "fp32", "u1", "i32", "u64"]


def test_determinism():
    x = torch.randn(3000)
    outs = []
    for _ in range(3):
        o = torch.zeros(1)
        total[(1,)](x, o, 3000, 4096)
        outs.append(o.item())
    assert len(set(outs)) == 1


@triton.jit
def total(x, o, n, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(o, tl.sum(tl.load(x + i, mask=i < n, other=0.0), 0))


def test_launch_overhead():
    o = torch.zeros(16)
    call = lambda: fill[(1,)](o, 1.0, 16)  # noqa: E731
    call()
    times = []
    for _ in range(300):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    assert sorted(times)[30] < 60e-6  # the target is 15 us; loaded machines are slower


@triton.jit
def unsupported_asm(x):
    v = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [tl.load(x)], dtype=tl.int32, is_pure=True, pack=1)
    tl.store(x, v)


def test_unsupported_operation_names_op_and_line():
    x = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(UnsupportedKernelError) as caught:
        unsupported_asm[(1,)](x)
    assert "elementwise_inline_asm" in str(caught.value)
    line = unsupported_asm.starting_line_number + 2 if hasattr(unsupported_asm, "starting_line_number") else None
    assert "test_launch.py:" in str(caught.value)
    if line is not None:
        assert abs(int(caught.value.location.rsplit(":", 1)[1]) - line) <= 1
    fill[(1,)](torch.zeros(4), 1.0, 4)  # the process goes on


@triton.jit
def wrong(x):
    tl.store(x, tl.load(x) + undefined_name)  # noqa: F821


def test_compilation_error_is_tritons():
    with pytest.raises(triton.CompilationError, match="undefined_name"):
        wrong[(1,)](torch.zeros(1))


@pytest.mark.skipif(torch.cuda.is_available(), reason="a launch with a tensor of another device is that of the GPU's driver")
def test_wrong_device_argument():
    x = torch.zeros(4, device="meta")
    with pytest.raises((ValueError, RuntimeError)):
        fill[(1,)](x, 1.0, 4)


def test_unloading():
    x = torch.zeros(4)
    with route.on_cpu():
        kernel = fill.warmup(x, 1.0, 4, B=4, grid=(1,))
    with route.on_cpu():
        kernel.run  # noqa: B018 - loads it
    address = kernel.function
    assert address in driver._loaded
    fill.device_caches.clear()
    del kernel
    gc.collect()
    assert address not in driver._loaded


class OtherDriver(DriverBase):
    """Stands for the driver of a GPU: active, and used for nothing but what it should be."""

    used: list[str] = []

    def __init__(self):
        self.launcher_cls = None

    @classmethod
    def is_active(cls):
        return True

    def map_python_to_cpp_type(self, ty):
        return ty

    def get_current_target(self):
        self.used.append("target")
        raise RuntimeError("the other driver was asked")

    def get_current_device(self):
        return 0

    def get_current_stream(self, device):
        return 0

    def get_active_torch_device(self):
        return torch.device("meta")

    def get_benchmarker(self):
        raise RuntimeError("the other driver was asked")


def test_coexistence_with_another_driver():
    """Where a GPU's driver is the active one it stays so; launches on CPU tensors still come here, in every thread."""
    config = triton.runtime.driver
    before = config._active
    other = OtherDriver()
    config.set_active(other)
    try:
        o = torch.zeros(70)
        fill[(3,)](o, 5.0, 70)
        assert (o == 5).all()
        fill[(3,)](o=o, value=6.0, n=70)
        assert (o == 6).all()
        x, doubled = torch.randn(100), torch.zeros(100)
        tuned.cache.clear()
        tuned[lambda meta: (triton.cdiv(100, meta["B"]),)](x, doubled, 100)
        assert torch.equal(doubled, x * 2)
        assert tuned.cache == {}  # what was measured here does not count for the other driver
        assert not other.used
        assert config.active is other
        with pytest.raises(RuntimeError, match="the other driver was asked"):
            fill[(3,)](torch.zeros(70, device="meta"), 5.0, 70)
        pair = (torch.randn(16), torch.randn(16))
        result = torch.zeros(16)
        tuple_arg[(1,)](pair, result, (2, 3.5))
        assert torch.equal(result, (pair[0] + pair[1]) * 2 + 3.5)
    finally:
        config.set_active(before)


def test_register_twice():
    run = triton.runtime.jit.JITFunction.run
    register()
    assert triton.runtime.jit.JITFunction.run is run


def test_threads():
    """Launches from several threads at once."""
    outs = [torch.zeros(1000) for _ in range(4)]

    def work(k):
        for _ in range(50):
            fill[(32,)](outs[k], float(k), 1000)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all((o == k).all() for k, o in enumerate(outs))


def test_cached_compilation_in_a_new_process(tmp_path):
    script = tmp_path / "use.py"
    script.write_text(
        "import torch, triton, triton.language as tl, time, sys\n"
        "from trident.backend.triton.cpu import register\n"
        "register()\n"
        "@triton.jit\n"
        "def k(o, B: tl.constexpr):\n"
        "    tl.store(o + tl.arange(0, B), tl.arange(0, B) * 3)\n"
        "o = torch.zeros(32, dtype=torch.int32)\n"
        "k[(1,)](o, 32)\n"
        "assert o.tolist() == [3 * i for i in range(32)]\n"
        "print('trident.backend.triton.cpu.lower' in sys.modules)\n")
    root = str(Path(trident.backend.__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = dict(os.environ, TRITON_CACHE_DIR=str(tmp_path / "cache"), PYTHONPATH=path)
    out = [subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True).stdout.strip()
           for _ in range(2)]
    assert out == ["True", "False"]  # the second process compiles nothing and does not load the lowering


@triton.jit
def talkative(x, u, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.device_print("start")
    tl.device_print("value", v, u)
    tl.device_print("bits", v.to(tl.int32, bitcast=True), hex=True)


def test_device_print(capsys):
    talkative[(1,)](torch.tensor([1.5, -2.0]), -3, 2)
    assert capsys.readouterr().out.splitlines() == [
        "pid (0, 0, 0) start", "pid (0, 0, 0) idx (0) value: 1.500000", "pid (0, 0, 0) idx (1) value: -2.000000",
        "pid (0, 0, 0) value: -3", "pid (0, 0, 0) idx (0) bits: 0x3fc00000", "pid (0, 0, 0) idx (1) bits: 0xc0000000"]


@triton.jit
def careful(x, B: tl.constexpr):
    v = tl.load(x + tl.arange(0, B))
    tl.device_assert(v > 0, "must be positive")
    tl.device_assert(tl.sum(v, 0) < 100, "sum")


def test_device_assert():
    good, bad = torch.ones(64), torch.ones(64)
    bad[50] = -1
    careful[(1,)](bad, 64)  # without debug nothing is checked
    careful[(2,)](good, 64, debug=True)
    with pytest.raises(RuntimeError, match="must be positive.*test_launch.py"):
        careful[(1,)](bad, 64, debug=True)
    careful[(2,)](good, 64, debug=True)
    with pytest.raises(RuntimeError, match="sum"):
        careful[(1,)](good * 2, 64, debug=True)


@triton.jit
def exp(x, o, B: tl.constexpr):  # the name of a C function that it calls
    i = tl.arange(0, B)
    tl.store(o + i, tl.exp(tl.load(x + i)))


def test_name_of_a_c_function():
    x, o = torch.randn(8, dtype=torch.float64), torch.zeros(8, dtype=torch.float64)
    exp[(1,)](x, o, 8)
    torch.testing.assert_close(o, x.exp())


def test_grid_too_large():
    with pytest.raises(ValueError, match="too large"):
        fill[(2**33 + 1,)](torch.zeros(4), 1.0, 4)


@pytest.mark.parametrize("grid", [(1.0,), ("a",), (1, None), lambda meta: ("a", 1)])
def test_grid_of_what_is_no_int(grid):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        fill[grid](torch.zeros(4), 1.0, 4)


def test_do_bench():
    o = torch.zeros(64)
    assert 0 < triton.testing.do_bench(lambda: fill[(2,)](o, 1.0, 64), warmup=1, rep=2) < 1000
