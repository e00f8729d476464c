"""The CUDA launch code, on the CPU: with a driver that only records what it is called with."""

import ctypes
import re
from typing import Any

import pytest
import torch
import triton
from sites import site_of

from trident.backend.native import engine, launch_runtime
from trident.backend.native import launch_layout as layout
from trident.backend.triton import configs, guards
from trident.backend.triton.launch import SiteState, words

pytestmark = pytest.mark.usefixtures("recording")

_DRIVER = """
@result = global i32 0
@device = global i8 3
@calls = global [2 x i64] zeroinitializer
@plain = global [16 x i64] zeroinitializer
@config = global [8 x i64] zeroinitializer
@values = global [4 x i64] zeroinitializer
@text = internal constant [9 x i8] c"it broke\\00"

define i32 @_ZN3c104cuda9GetDeviceEPa(ptr %out) {
  %d = load i8, ptr @device
  store i8 %d, ptr %out
  ret i32 0
}
define i32 @aoti_torch_get_current_cuda_stream(i32 %device, ptr %out) {
  %wide = sext i32 %device to i64
  %stream = add i64 %wide, 1000
  store i64 %stream, ptr %out
  ret i32 0
}
define i32 @cuGetErrorString(i32 %code, ptr %out) {
entry:
  %known = icmp eq i32 %code, 1
  br i1 %known, label %yes, label %no
yes:
  store ptr @text, ptr %out
  ret i32 0
no:
  store ptr null, ptr %out
  ret i32 1
}
define internal void @note(ptr %params) {
  %p0 = load ptr, ptr %params
  %v0 = load i64, ptr %p0
  store i64 %v0, ptr @values
  %p1.at = getelementptr ptr, ptr %params, i64 1
  %p1 = load ptr, ptr %p1.at
  %v1 = load i64, ptr %p1
  %v1.at = getelementptr i64, ptr @values, i64 1
  store i64 %v1, ptr %v1.at
  ret void
}
define i32 @cuLaunchKernel(ptr %f, i32 %gx, i32 %gy, i32 %gz, i32 %bx, i32 %by, i32 %bz, i32 %shared, ptr %stream,
                           ptr %params, ptr %extra) {
  %n = load i64, ptr @calls
  %n1 = add i64 %n, 1
  store i64 %n1, ptr @calls
  STORES
  call void @note(ptr %params)
  %r = load i32, ptr @result
  ret i32 %r
}
define i32 @cuLaunchKernelEx(ptr %config, ptr %f, ptr %params, ptr %extra) {
  %n.at = getelementptr i64, ptr @calls, i64 1
  %n = load i64, ptr %n.at
  %n1 = add i64 %n, 1
  store i64 %n1, ptr %n.at
  call void @llvm.memcpy.p0.p0.i64(ptr @config, ptr %config, i64 52, i1 false)
  %a = ptrtoint ptr %f to i64
  store i64 %a, ptr @plain
  call void @note(ptr %params)
  %r = load i32, ptr @result
  ret i32 %r
}
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
"""


def _driver() -> str:
    stores = []
    for i, name in enumerate(["f", "gx", "gy", "gz", "bx", "by", "bz", "shared", "stream", "params", "extra"]):
        wide = f"ptrtoint ptr %{name} to i64" if name in ("f", "stream", "params", "extra") else f"zext i32 %{name} to i64"
        stores += [f"%w{i} = {wide}", f"%a{i} = getelementptr i64, ptr @plain, i64 {i}", f"store i64 %w{i}, ptr %a{i}"]
    return _DRIVER.replace("STORES", "\n  ".join(stores))


class Cuda:
    """A site with one entry, launched through the recording driver."""

    def __init__(self, *, ctas: int = 1, attrs: bytes = b"", device: int = 3) -> None:
        def two(x, n): pass

        own = r"declare i32 @(cu\w+|_ZN3c10\w+|aoti_torch_get_current_cuda_stream)\([^)]*\)"
        text = re.sub(own, "", launch_runtime.text_of("cuda"))
        for name in set(re.findall(r"@(_?Py\w+)", text)):
            engine.add_symbol(name, engine.api_address(name))
        self.code = engine.compile_ir(text + _driver(), name="cuda with a recording driver")
        self.state = SiteState(site_of(triton.jit(two)), ["tensor", "int"])
        self.key = bytes([1, 2, 0, 0, 0, 0, 0, 0])
        config = configs.LaunchConfig(function=0x1234, block=128, shared=4096, ctas=ctas, attrs=attrs)
        plan = words([8, 0])  # the second operand first
        self.attrs = ctypes.create_string_buffer(attrs, max(len(attrs), 1))
        entry = self.state.entry(config, self.key, device, None, plan, 2, self.attrs, (plan,))
        self.state._publish([entry], guards.Guards(), ())
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        call = [pointer, pointer, number, number, number, pointer, pointer]
        self.launch = ctypes.PYFUNCTYPE(ctypes.c_int32, *call)(self.code.address("trident_launch_cuda"))

    def variable(self, name: str, kind: Any = ctypes.c_uint64, count: int = 1) -> Any:
        return (kind * count).from_address(self.code.address(name))

    def __call__(self, *grid: int) -> int:
        gil = ctypes.c_void_p()
        keys, slots = words([int.from_bytes(self.key, "little")]), words([111, 222])
        try:
            return self.launch(self.state.address, ctypes.addressof(gil), *[*grid, 1, 1][:3], ctypes.addressof(keys),
                               ctypes.addressof(slots))
        finally:
            assert gil.value is None


def test_plain_launch() -> None:
    cuda = Cuda()
    assert cuda(5, 6, 7) == layout.LAUNCHED and cuda.state.hits == 1
    assert list(cuda.variable("plain", count=9)) == [0x1234, 5, 6, 7, 128, 1, 1, 4096, 1003]
    assert list(cuda.variable("values", count=2)) == [222, 111]
    assert list(cuda.variable("calls", count=2)) == [1, 0]


def test_launch_with_attributes() -> None:
    cuda = Cuda(ctas=2, attrs=b"a" * (2 * configs.CU_ATTRIBUTE_SIZE))
    assert cuda(5, 6, 7) == layout.LAUNCHED
    assert list(cuda.variable("calls", count=2)) == [0, 1]
    config = cuda.variable("config", ctypes.c_uint32, 13)
    assert list(config[:7]) == [10, 6, 7, 128, 1, 1, 4096]
    assert list(cuda.variable("config", count=6)[4:6]) == [1003, ctypes.addressof(cuda.attrs)] and config[12] == 2
    assert cuda.variable("plain")[0] == 0x1234


def test_attribute_records() -> None:
    """CUlaunchAttribute: id, padding to 8, a union of 64 bytes."""
    record = configs._attribute(4, 2, 1, 1)
    assert len(record) == configs.CU_ATTRIBUTE_SIZE
    assert record[:20] == b"\x04\0\0\0" + b"\0" * 4 + b"\x02\0\0\0" + b"\x01\0\0\0" * 2 and not any(record[20:])


def test_other_device_and_other_key() -> None:
    cuda = Cuda()
    cuda.variable("device", ctypes.c_int8)[0] = 4
    assert cuda(5) == layout.MISS
    cuda.variable("device", ctypes.c_int8)[0] = 3
    cuda.key = bytes([1, 3, 0, 0, 0, 0, 0, 0])
    assert cuda(5) == layout.MISS
    assert list(cuda.variable("calls", count=2)) == [0, 0]


def test_empty_grid_and_overflow_of_the_cluster() -> None:
    cuda = Cuda(ctas=2)
    assert cuda(0, 5) == layout.LAUNCHED
    assert cuda(1 << 30) == layout.MISS  # times two CTAs: more than an int holds
    assert list(cuda.variable("calls", count=2)) == [0, 0]
    assert cuda(1 << 29) == layout.LAUNCHED


@pytest.mark.parametrize(("code", "text"), [(1, "Triton Error [CUDA]: it broke"), (77, "Triton Error [CUDA]: unknown error")])
def test_errors_of_the_driver(code: int, text: str) -> None:
    cuda = Cuda()
    cuda.variable("result", ctypes.c_int32)[0] = code
    with pytest.raises(RuntimeError) as error:
        cuda(5)
    assert str(error.value) == text and cuda.state.hits == 0


def test_no_current_context_is_left_to_triton() -> None:
    cuda = Cuda()
    cuda.variable("result", ctypes.c_int32)[0] = layout.CUDA_ERROR_INVALID_CONTEXT
    assert cuda(5) == layout.MISS


def test_configs_of_triton_s_launcher() -> None:
    """What `CudaLauncher` would be asked for, from an object of that class."""
    from triton.backends.nvidia import driver as nvidia

    class Kernel:
        function = 99
        packed_metadata = (8, 1, 1024)
        run = object.__new__(nvidia.CudaLauncher)

    for name in ("global_scratch_size", "profile_scratch_size", "launch_pdl", "launch_cooperative_grid", "gsan_enabled"):
        setattr(Kernel.run, name, 0)
    assert configs.cuda_config(Kernel) == configs.LaunchConfig(99, 256, 1024, 1, b"", 2)
    Kernel.packed_metadata = (4, 2, 0)
    Kernel.run.launch_pdl = Kernel.run.launch_cooperative_grid = True
    config = configs.cuda_config(Kernel)
    ids = [config.attrs[i] for i in range(0, len(config.attrs), configs.CU_ATTRIBUTE_SIZE)]
    assert (config.block, config.ctas, ids) == (128, 2, [6, 2, 4, 5])
    for name in ("global_scratch_size", "profile_scratch_size", "gsan_enabled"):
        setattr(Kernel.run, name, 16)
        with pytest.raises(configs.Unsuitable):
            configs.cuda_config(Kernel)
        setattr(Kernel.run, name, 0)
    Kernel.run = torch.nn.Module()
    with pytest.raises(configs.Unsuitable, match="Module"):
        configs.cuda_config(Kernel)
