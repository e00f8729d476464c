"""Launches natively and through Triton: grids, the GIL, errors, kernels that only Triton can launch, growth and lifetimes."""

import ctypes
import gc
import re
import sys
import threading
import weakref
from typing import Any

import fake
import pytest
import torch
import triton
import triton.language as tl
from sites import launcher_of, site_of

from trident.backend.lowering import launches
from trident.backend.native import engine, launch_ir, launch_runtime
from trident.backend.triton import launch as launch_module
from trident.backend.triton.launcher import NativeLauncher
from trident.errors import NativeError
from trident.ir.trace import LaunchParam, LaunchSite

pytestmark = pytest.mark.usefixtures("recording")


def plain(x, n): pass
def block(x, n, BLOCK: tl.constexpr): pass
def many(a, b, c, d, e): pass
def one(x): pass
def three(n, x, y): pass


def warm(launcher: NativeLauncher, *operands: Any) -> None:
    """Launch once through Triton, so that the next launch is native."""
    launcher((1,), *operands)
    hits = launcher.state.hits
    launcher((1,), *operands)
    assert launcher.state.hits == hits + 1, launcher.state.reason


# ------------------------------------------------------------------------------------------------------------- grids


@pytest.mark.parametrize("grid", [(1,), (7,), (2, 3), (2, 3, 4), ((1 << 31) - 1,), (1 << 15, 1 << 15)])
def test_grid_reaches_the_kernel(grid: tuple[int, ...]) -> None:
    operands = [torch.zeros(8), 5]
    launcher = launcher_of(triton.jit(plain), operands)
    warm(launcher, *operands)
    fake.expect(2)
    launcher(grid, *operands)
    assert fake.native_calls() == 1 and fake.native_grid() == (*grid, 1, 1)[:3]


@pytest.mark.parametrize("grid", [(0,), (3, 0), (3, 4, 0), (0, 0, 0)])
def test_empty_grid_launches_nothing(grid: tuple[int, ...]) -> None:
    operands = [torch.zeros(8), 5]
    launcher = launcher_of(triton.jit(plain), operands)
    warm(launcher, *operands)
    fake.expect(2)
    python = len(fake.python_launches)
    launcher(grid, *operands)
    assert fake.native_calls() == 0 and len(fake.python_launches) == python


@pytest.mark.parametrize("grid", [(-1,), (-1, -1), (1 << 31,), (1 << 16, 1 << 16), (1 << 62, 4), (1 << 16, 1 << 16, 1 << 32)])
def test_odd_grids_are_triton_s(grid: tuple[int, ...]) -> None:
    operands = [torch.zeros(8), 5]
    launcher = launcher_of(triton.jit(plain), operands)
    warm(launcher, *operands)
    fake.expect(2)
    python = len(fake.python_launches)
    launcher(grid, *operands)
    assert fake.native_calls() == 0 and fake.python_launches[python:][0][0] == (*grid, 1, 1)[:3]


# ---------------------------------------------------------------------------------------------------------- the GIL

# Calls launch_0 with the GIL given up, and stores the slot as it is afterwards.
_FREE = """
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
define i32 @free(ptr %launch, ptr %left, i64 %gx, ptr %x, i64 %n) {
entry:
  %slot = alloca ptr
  %state = call ptr @PyEval_SaveThread()
  store ptr %state, ptr %slot
  %r = call i32 %launch(ptr %slot, i64 %gx, i64 1, i64 1, ptr %x, i64 %n)
  %now = load ptr, ptr %slot
  store ptr %now, ptr %left
  %held = icmp eq ptr %now, null
  br i1 %held, label %done, label %take
take:
  call void @PyEval_RestoreThread(ptr %now)
  br label %done
done:
  ret i32 %r
}
"""


class WithoutGil:
    """Launches `plain` from native code that does not hold the GIL."""

    def __init__(self, launcher: NativeLauncher) -> None:
        for name in ("PyEval_SaveThread", "PyEval_RestoreThread"):
            engine.add_symbol(name, engine.api_address(name))
        self.code = engine.compile_ir(_FREE, name="free")
        call = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64]
        self.free = ctypes.PYFUNCTYPE(ctypes.c_int32, *call)(self.code.address("free"))
        self.address = launcher._module.address("launch_0")

    def __call__(self, gx: int, x: torch.Tensor, n: int) -> bool:
        """Launch; whether the GIL was still given up afterwards."""
        left, slot = ctypes.c_void_p(), ctypes.c_uint64(x._cdata)
        self.free(self.address, ctypes.addressof(left), gx, ctypes.addressof(slot), n)
        return bool(left.value)


def test_gil_is_left_as_it_was_found() -> None:
    x = torch.zeros(8)
    launcher = launcher_of(triton.jit(plain), [x, 5])
    free = WithoutGil(launcher)
    assert free(1, x, 5) and launcher.state.misses == 1, "a launch through Python"
    assert free(1, x, 5) and launcher.state.hits == 1, "a native launch"
    assert free(0, x, 5), "an empty grid"
    assert free(1, x, 16) and launcher.state.misses == 2, "a key that is not known"
    launcher((1,), x, 5)  # with the GIL
    assert launcher.state.hits == 2


def test_gil_is_held_after_a_failure() -> None:
    kernel, x = triton.jit(plain), torch.zeros(8)
    launcher = launcher_of(kernel, [x, 5])
    free = WithoutGil(launcher)
    kernel.add_pre_run_hook(lambda *args, **kwargs: 1 / 0)
    left, slot = ctypes.c_void_p(1), ctypes.c_uint64(x._cdata)
    with pytest.raises(ZeroDivisionError):
        free.free(free.address, ctypes.addressof(left), 1, ctypes.addressof(slot), 5)
    assert left.value is None


STEP = tl.constexpr(4)


def uses_step(x, n):
    tl.store(x, n + STEP)


def test_gil_is_taken_to_look_a_global_up_and_given_back() -> None:
    x = torch.zeros(8, dtype=torch.int32)
    launcher = launcher_of(triton.jit(uses_step), [x, 5])
    warm(launcher, x, 5)
    free = WithoutGil(launcher)
    for i in range(5):
        globals()["UNRELATED"] = i
        hits = launcher.state.hits
        assert free(1, x, 5) and launcher.state.hits == hits + 1


def test_the_gil_is_free_while_a_kernel_runs() -> None:
    """A kernel that waits for another Python thread."""
    text = """
    declare i32 @usleep(i32)
    @flag = global i64 0
    define void @kernel(ptr %params, i32 %gx, i32 %gy, i32 %gz) {
    entry:
      br label %head
    head:
      %i = phi i64 [0, %entry], [%next, %body]
      %v = load atomic i64, ptr @flag acquire, align 8
      %set = icmp ne i64 %v, 0
      %late = icmp uge i64 %i, 20000
      %stop = or i1 %set, %late
      br i1 %stop, label %done, label %body
    body:
      %r = call i32 @usleep(i32 500)
      %next = add i64 %i, 1
      br label %head
    done:
      %sum = add i64 %v, %i
      store atomic i64 %sum, ptr @flag release, align 8
      ret void
    }
    """
    engine.load_library("libc.so.6")
    code = engine.compile_ir(text, name="waits")
    flag = ctypes.c_int64.from_address(code.address("flag"))
    x = torch.zeros(8)
    launcher = launcher_of(triton.jit(plain), [x, 5])
    warm(launcher, x, 5)
    row = (ctypes.c_uint64 * 1).from_address(launcher.state.entry_address(0))
    saved, row[0] = row[0], code.address("kernel")
    timer = threading.Timer(0.05, lambda: setattr(flag, "value", 1))
    timer.start()
    launcher((1,), x, 5)
    row[0] = saved
    assert 1 <= flag.value < 20000, "the other thread ran while the kernel waited"


# ------------------------------------------------------------------------------------------------ errors and exceptions


@pytest.mark.parametrize("bad", ["text", object(), {1: 2}, 1 << 64], ids=lambda bad: type(bad).__name__)
def test_wrong_arguments_raise_what_triton_raises(bad: Any) -> None:
    kernel = triton.jit(plain)
    with pytest.raises(Exception) as theirs:
        kernel[(1,)](torch.zeros(8), bad)
    launcher = NativeLauncher(site_of(kernel), ["tensor", "object"])
    for _ in range(2):
        with pytest.raises(type(theirs.value)) as ours:
            launcher((1,), torch.zeros(8), bad)
        assert str(ours.value) == str(theirs.value)


def wrong(x, n):
    tl.store(x, n.nothing_like_this)


def test_compile_errors_are_triton_s() -> None:
    launcher = launcher_of(triton.jit(wrong), [torch.zeros(8), 5])
    for _ in range(2):
        with pytest.raises(triton.compiler.errors.CompilationError):
            launcher((1,), torch.zeros(8), 5)
    assert launcher.state.hits == 0


def test_a_failing_launch_does_not_hide_a_known_one() -> None:
    x = torch.zeros(8)
    kernel = triton.jit(plain)
    launcher = NativeLauncher(site_of(kernel), ["tensor", "object"])
    warm(launcher, x, None)
    with pytest.raises(TypeError):
        launcher((1,), x, object())
    hits = launcher.state.hits
    launcher((1,), x, None)
    assert launcher.state.hits == hits + 1


def test_unknown_option_is_triton_s_error() -> None:
    launcher = launcher_of(triton.jit(plain), [torch.zeros(8), 5], options={"no_such_option": 3})
    with pytest.raises(KeyError, match="no_such_option"):
        launcher((1,), torch.zeros(8), 5)


# -------------------------------------------------------------------------------------------- what only Triton launches


@pytest.mark.parametrize("warps", [1, 2, 8])
def test_options_reach_triton(warps: int) -> None:
    operands = [torch.zeros(8), 5]
    launcher = launcher_of(triton.jit(plain), operands, options={"num_warps": warps})
    warm(launcher, *operands)
    assert launcher.state.entries[0].compiled.metadata.num_warps == warps


def test_autotuned_kernels_go_through_the_autotuner() -> None:
    seen = []
    config = triton.Config({"BLOCK": 32}, pre_hook=lambda args: seen.append(args["n"]))
    kernel = triton.autotune(configs=[config], key=["n"])(triton.jit(block))
    site = LaunchSite(kernel, (LaunchParam("x", False), LaunchParam("n", False)), (), __file__, 1)
    launcher = NativeLauncher(site, ["tensor", "int"])
    for n in (5, 6, 7):
        launcher((1,), torch.zeros(8), n)
    assert seen == [5, 6, 7] and launcher.state.hits == 0 and "Autotuner" in launcher.state.reason
    assert fake.python_launches[-1][1][2] == 32


def test_heuristics_go_through_triton() -> None:
    kernel = triton.heuristics({"BLOCK": lambda args: 2 * args["n"]})(triton.jit(block))
    site = LaunchSite(kernel, (LaunchParam("x", False), LaunchParam("n", False)), (), __file__, 1)
    launcher = NativeLauncher(site, ["tensor", "int"])
    launcher((1,), torch.zeros(8), 5)
    assert fake.python_launches[-1][1][2] == 10


def test_a_run_time_value_for_a_constexpr_goes_through_triton() -> None:
    launcher = launcher_of(triton.jit(block), [torch.zeros(8), 5, 64])
    for size in (64, 128):
        launcher((1,), torch.zeros(8), 5, size)
        assert fake.python_launches[-1][1][2] == size
    assert launcher.state.hits == 0 and "BLOCK" in launcher.state.reason


def test_a_constant_that_can_change_goes_through_triton() -> None:
    values = [1, 2]
    launcher = launcher_of(triton.jit(block), [torch.zeros(8), 5], BLOCK=values)
    assert "can change" in launcher.state.reason


def tuples(x, pair): pass


def test_tuples_go_through_triton() -> None:
    x = torch.zeros(8)
    launcher = NativeLauncher(site_of(triton.jit(tuples)), ["tensor", "object"])
    for _ in range(3):
        launcher((1,), x, (x, 5))
    assert len(fake.python_launches) == 3 and launcher.state.hits == 0


def test_fewer_parameters_than_the_kernel_has() -> None:
    kernel = triton.jit(plain)
    launcher = NativeLauncher(LaunchSite(kernel, (LaunchParam("x", False),), (), __file__, 1), ["tensor"])
    with pytest.raises(TypeError, match="n"):
        launcher((1,), torch.zeros(3))


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton.backends import backends
    from triton.runtime.driver import DriverConfig

    with monkeypatch.context() as patched:  # undone before the backend of these tests is taken away
        patched.setattr(triton.runtime.driver, "_active", None)
        patched.setattr(triton.runtime.driver, "_default", None)
        patched.setattr(triton.runtime.driver, "__class__", DriverConfig)  # not the one that the cpu backend installs
        patched.delitem(backends, "fake")
        launcher = launcher_of(triton.jit(plain), [3, 5])
        assert "active drivers" in launcher.state.reason
        with pytest.raises(RuntimeError, match="active drivers"):
            launcher((1,), 3, 5)
        launcher = launcher_of(triton.jit(plain), [torch.zeros(8), 5])
        with pytest.raises(RuntimeError, match="active drivers"):
            launcher((1,), torch.zeros(8), 5)


# ---------------------------------------------------------------------------------------------- growth and lifetimes


def test_many_specializations() -> None:
    """More than a table's first capacity; each is launched with its own parameters afterwards."""
    tensors = [torch.zeros(8, dtype=dtype)[offset:] for dtype in (torch.float32, torch.float64, torch.int32, torch.int8)
               for offset in (0, 1)]
    operands = [(x, n) for x in tensors for n in (1, 5, 16, 1 << 40)]
    launcher = launcher_of(triton.jit(plain), operands[0])
    for x, n in operands:
        launcher((1,), x, n)
    assert len(launcher.state.entries) == len(operands) == len(fake.python_launches)
    for x, n in operands * 2:
        fake.expect(1 if n == 1 else 2)
        launcher((1,), x, n)
        assert fake.native_calls() == 1
        wanted = [x.data_ptr().to_bytes(8, "little"), n.to_bytes(8, "little")]
        assert fake.native_params() == wanted[:1 if n == 1 else 2]
    assert len(fake.python_launches) == len(operands)


def test_nothing_leaks() -> None:
    x, marker = torch.zeros(8), object()
    kernel = triton.jit(tuples)
    launcher = NativeLauncher(site_of(kernel), ["tensor", "object"])
    pair = (x, 5)

    def counts() -> list[int]:
        gc.collect()
        return [sys.getrefcount(o) for o in (x, marker, pair, None if sys.version_info >= (3, 12) else marker, launcher.state)]

    for _ in range(3):
        launcher((1,), x, pair)
    fake.python_launches.clear()
    before = counts()
    for _ in range(50):
        launcher((1,), x, pair)
        with pytest.raises(TypeError):
            launcher((1,), x, marker)
    fake.python_launches.clear()
    assert counts() == before


def test_a_tensor_without_a_python_object_is_boxed() -> None:
    """An at::Tensor that Python has not seen, or whose object is gone: its own reference stays with the caller."""
    x = torch.zeros(8)
    slot = ctypes.c_uint64(x._cdata)
    launcher = launcher_of(triton.jit(plain), [x, 5])
    gil = ctypes.c_void_p()
    for _ in range(2):
        assert launcher._launch(ctypes.addressof(gil), 1, 1, 1, ctypes.addressof(slot), 5) == 0
    assert fake.python_launches[0][1][0] is x


def test_states_live_until_they_are_released() -> None:
    launcher = launcher_of(triton.jit(plain), [torch.zeros(8), 5])
    state = weakref.ref(launcher.state)
    module = launcher._module
    del launcher
    gc.collect()
    assert state() is not None and state().number in launch_module._alive
    module.close()
    assert state().number not in launch_module._alive
    del module
    gc.collect()
    assert state() is None


def test_several_sites_in_one_module() -> None:
    module = launch_ir.new_module("two sites")
    kernels = [triton.jit(plain), triton.jit(tuples)]
    functions = [launches.emit_launch(module, site_of(kernel), ["tensor", kind])
                 for kernel, kind in zip(kernels, ["int", "float"])]
    assert [function.name for function in functions] == ["launch_0", "launch_1"]
    code = engine.compile_ir(module, name="two sites")
    x, gil = torch.zeros(8), ctypes.c_void_p()
    slot = ctypes.c_uint64(x._cdata)
    for name, kind, value in (("launch_0", ctypes.c_int64, 7), ("launch_1", ctypes.c_double, 0.5)):
        types = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p, kind]
        call = ctypes.PYFUNCTYPE(ctypes.c_int32, *types)(code.address(name))
        for _ in range(2):
            assert call(ctypes.addressof(gil), 1, 1, 1, ctypes.addressof(slot), value) == 0
        assert fake.python_launches[-1][1] == (x, value)
    assert [function.site_state.hits for function in functions] == [1, 1]
    code.close()
    for function in functions:
        function.site_state.release()


def test_a_host_program_in_text() -> None:
    launch = launches.launch_of(site_of(triton.jit(many)), ["tensor", "int", "float", "bool", "object"])
    other = launches.launch_of(site_of(triton.jit(many)), ["tensor", "int", "float", "bool", "object"])
    assert launch.symbol == other.symbol and launch.state is not other.state
    call = launch.call("%gil", ("2", "%gy", "1"), ("%x", "-7", "2.5", "true", "%o"))
    text = f"""
    {launch.declaration}
    define i32 @program(ptr %gil, i64 %gy, ptr %x, ptr %o) {{
      %r = {call}
      ret i32 %r
    }}
    """
    code = engine.compile_ir(text, name="host program")
    program = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.py_object)(
        code.address("program"))
    x, gil = torch.zeros(8), ctypes.c_void_p()
    slot = ctypes.c_uint64(x._cdata)
    for _ in range(2):
        assert program(ctypes.addressof(gil), 3, ctypes.addressof(slot), None) == 0
    assert fake.python_launches == [((2, 3, 1), (x, -7, 2.5, True, None))] and launch.state.hits == 1
    code.close()
    launch.state.release()
    other.state.release()


@pytest.mark.parametrize("kinds", [["tensor"], ["int", "tensor", "tensor"]], ids=str)
def test_the_tensors_device_chooses_among_targets(kinds: list[str]) -> None:
    """With a stand-in for the launch on CUDA: CPU tensors go to the CPU, other devices to Python."""
    state = launch_module.SiteState(site_of(triton.jit(one if len(kinds) == 1 else three)), kinds)
    module = launch_ir.new_module("targets")
    launch_ir.emit_shape(module, "shape", kinds, state.operands, ("cpu", "cuda"), id(None))
    text, count = re.subn(r'declare i32 @"trident_launch_cuda"\(([^)]*)\)', r"define i32 @trident_launch_cuda(\1) { ret i32 99 }",
                          str(module))
    assert count == 1
    code = engine.compile_ir(text, name="targets")
    types = [ctypes.c_int64 if kind == "int" else ctypes.c_void_p for kind in kinds]
    call = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, *[ctypes.c_int64] * 3, *types)(code.address("shape"))
    gil = ctypes.c_void_p()

    def launch(*tensors: torch.Tensor) -> None:
        slots = [ctypes.c_uint64(t._cdata) for t in tensors]
        rest = iter(slots)
        values = [5 if kind == "int" else ctypes.addressof(next(rest)) for kind in kinds]
        assert call(state.address, ctypes.addressof(gil), 1, 1, 1, *values) == 0

    number = kinds.count("tensor")
    for hits in range(3):
        launch(*[torch.zeros(8)] * number)
        assert state.hits == hits
    python = len(fake.python_launches)
    launch(*[torch.zeros(8, device="meta")] * number)
    assert state.hits == 2 and len(fake.python_launches) == python + 1
    if number > 1:
        launch(torch.zeros(8), torch.zeros(8, device="meta"))
        assert state.hits == 2 and len(fake.python_launches) == python + 2


def test_kinds_must_fit_the_site() -> None:
    with pytest.raises(ValueError, match="3 operands for 2"):
        launches.emit_launch(launch_ir.new_module("m"), site_of(triton.jit(plain)), ["tensor", "int", "int"])


def test_layout_check_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_runtime, "DICT_VERSION_TAG", 16)
    with pytest.raises(NativeError, match="version tags"):
        launch_runtime.verify.__wrapped__()


def test_loop_stops_at_the_first_failure() -> None:
    kernel = triton.jit(plain)
    operands = [torch.zeros(8), 5]
    launcher = launcher_of(kernel, operands)
    launcher.launch_loop(10, (1,), *operands)
    assert (launcher.state.misses, launcher.state.hits) == (1, 9)
    seen = []
    kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(1) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        launcher.launch_loop(10, (1,), *operands)
    assert len(seen) == 1
