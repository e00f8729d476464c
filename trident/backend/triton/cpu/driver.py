"""The run-time half of the Triton backend named `cpu`: loading and launching.

Owns the loaded kernels and the launcher. What must hold: the function handle of a compiled kernel is the address of its native entry
(`void (void** params, int32 gx, int32 gy, int32 gz)`) and stays valid while the kernel lives; a launch hands the kernel exactly the
arguments that its signature calls run-time arguments, in order.

May import: triton, native.kernels, native.pool, native.launch_layout, layout.
"""

from __future__ import annotations

import ctypes
import re
import struct
import time
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.tools.tensor_descriptor import TensorDescriptor

from trident.backend.native import kernels, pool
from trident.backend.native.engine import Compiled
from trident.backend.native.launch_layout import LOWEST_ADDRESS
from trident.backend.triton.cpu import messages
from trident.backend.triton.cpu.errors import UnsupportedKernelError
from trident.backend.triton.cpu.layout import SIGNATURE

# Newer Tritons' descriptors have a second flag.
_TWO_FLAGS = hasattr(TensorDescriptor, "round_f32_to_tf32")

# The "device" under which Triton keeps its caches for this backend: a CUDA device has another number.
DEVICE = -1
MAX_GRID = 2**31 - 1

_ENTRY = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)


class CPUModule:
    """A loaded kernel. Its code is unmapped when the last reference goes."""

    __slots__ = ("name", "code", "function", "packed", "__weakref__")

    def __init__(self, name: str, binary: bytes) -> None:
        self.name = name
        messages.install()
        pool.load()
        self.code: Compiled = kernels.load(binary, name)
        self.function = self.code.address(f"{name}.entry")
        self.packed = _ENTRY(self.code.address(f"{name}.packed"))


# Loaded kernels by the address that Triton passes around as the function handle.
_loaded: dict[int, CPUModule] = {}


class CPUUtils:
    """What Triton asks a driver's `utils` for."""

    @staticmethod
    def load_binary(name: str, kernel: bytes, shared: int, device: int) -> tuple[CPUModule, int, int, int, int]:
        module = CPUModule(name, kernel)
        _loaded[module.function] = module
        return module, module.function, 0, 0, 1 << 30

    @staticmethod
    def unload_module(module: CPUModule) -> None:
        _loaded.pop(module.function, None)

    @staticmethod
    def get_device_properties(device: int) -> dict[str, int]:
        return {"max_shared_mem": 1 << 30, "multiprocessor_count": 1, "warpSize": 1, "max_num_regs": 1 << 16, "sm_clock_rate": 0,
                "mem_clock_rate": 0, "mem_bus_width": 0}


def runtime_arguments(signature: Sequence[Any]) -> list[tuple[tuple[int, ...], str]]:
    """The run-time arguments of a signature: for each the path to its value among the bound arguments, and its type.

    A tuple argument is flattened; what the specialization made a constant is left out.
    """
    found: list[tuple[tuple[int, ...], str]] = []

    def visit(kind: Any, path: tuple[int, ...]) -> None:
        if isinstance(kind, tuple):
            for i, part in enumerate(kind):
                visit(part, (*path, i))
        elif kind != "constexpr":
            found.append((path, kind))

    for i, kind in enumerate(signature):
        visit(kind, (i,))
    return found


def _bf16_bits(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", value))[0]
    if value != value:
        return 0x7FC0
    return (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16


def _has_memory(tensor: torch.Tensor) -> bool:
    try:
        return tensor.untyped_storage().data_ptr() != 0
    except RuntimeError:  # a storage that says so itself
        return False


def _address(value: Any, name: str) -> int:
    """What the pointer argument called `name` points to."""
    if isinstance(value, torch.Tensor) and value.is_cpu:
        address: int = value.data_ptr()
        if address < LOWEST_ADDRESS and value.numel() and not _has_memory(value):
            shape = tuple(value.shape)
            raise ValueError(f"Pointer argument {name} cannot be accessed from Triton (a {type(value).__name__} of shape {shape} "
                             "without memory: its storage was freed, or it never had one)")
        return address
    if value is None:
        return 0
    if isinstance(value, int):
        return value
    device = getattr(value, "device", None)
    if device is not None and getattr(device, "type", "cpu") != "cpu":
        raise ValueError(f"Pointer argument {name} cannot be accessed from Triton (cpu tensor expected, got one on {device})")
    return int(value.data_ptr())


_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<([^[>]*)\[([^\]]*)\]")


def _descriptor_format(kind: str) -> str:
    """How a host tensor descriptor is passed: what it describes, then shape and strides once more."""
    match = _DESCRIPTOR.match(kind)
    if match is None:
        raise UnsupportedKernelError(f"the cpu backend cannot pass an argument of type {kind}")
    rank = match.group(2).count(",") + 1
    return "Q" + "q" * 2 * rank + ("??" if _TWO_FLAGS else "?") + "i" * rank + "q" * rank


def _describe(arg: Any, name: str) -> list[Any]:
    """The parts of a host tensor descriptor in the order that the lowered kernel takes them."""
    flags = [arg.padding == "nan"]
    if _TWO_FLAGS:
        flags.append(bool(arg.round_f32_to_tf32))
    return [_address(arg.base, name), *arg.shape, *arg.strides, *flags, *arg.shape, *arg.strides]


def _shown(path: tuple[int, ...], names: Sequence[str]) -> str:
    """An argument, or an item of one, as a user would write it."""
    return names[path[0]] + "".join(f"[{index}]" for index in path[1:])


def _packer(arguments: Sequence[tuple[tuple[int, ...], str]], names: Sequence[str]) -> Callable[[tuple[Any, ...]], bytes]:
    """A function from the bound arguments to the packed bytes, generated for this signature of parameters called `names`."""
    formats, terms = [], []
    for path, kind in arguments:
        value = "a" + "".join(f"[{i}]" for i in path)
        if kind.startswith("*"):
            formats.append("Q")
            terms.append(f"pointer({value}, {_shown(path, names)!r})")
        elif kind in SIGNATURE:
            formats.append(SIGNATURE[kind][0])
            terms.append(f"bf16({value})" if kind == "bf16" else value)
        elif kind.startswith("tensordesc"):
            formats.append(_descriptor_format(kind))
            terms.append(f"*describe({value}, {_shown(path, names)!r})")
        else:
            raise UnsupportedKernelError(f"the cpu backend cannot pass an argument of type {kind}")
    source = f"def pack(a):\n    return packed({', '.join(terms)})\n"
    namespace: dict[str, Any] = {"packed": struct.Struct("@" + "".join(formats)).pack, "pointer": _address, "bf16": _bf16_bits,
                                 "describe": _describe}
    exec(source, namespace)
    result: Callable[[tuple[Any, ...]], bytes] = namespace["pack"]
    return result


class CPULauncher:
    """Triton's launcher: called with the grid, the handles, the hooks and all bound arguments."""

    def __init__(self, src: Any, metadata: Any) -> None:
        self.pack = _packer(runtime_arguments(list(src.signature.values())), [str(name) for name in src.signature])
        self.function = 0
        self.entry: Any = None

    def __call__(self, grid_x: int, grid_y: int, grid_z: int, stream: Any, function: int, packed_metadata: Any, launch_metadata: Any,
                 enter_hook: Any, exit_hook: Any, *args: Any) -> None:
        if function != self.function:
            self.entry, self.function = _loaded[function].packed, function
        if enter_hook is not None:
            enter_hook(launch_metadata)
        grid_x, grid_y, grid_z = index(grid_x), index(grid_y), index(grid_z)
        if 0 < grid_x <= MAX_GRID and 0 < grid_y <= MAX_GRID and 0 < grid_z <= MAX_GRID:
            self.entry(self.pack(args), grid_x, grid_y, grid_z)
            if messages.failures:
                messages.raise_failure()
        elif max(grid_x, grid_y, grid_z) > MAX_GRID:
            raise ValueError(f"a grid of ({grid_x}, {grid_y}, {grid_z}) programs is too large")
        if exit_hook is not None:
            exit_hook(launch_metadata)


class _Event:
    """A point in time, like torch.cuda.Event."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.time = 0.0

    def record(self) -> None:
        self.time = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        return (end.time - self.time) * 1e3


class _HostInterface:
    """The little of torch.cuda's interface that Triton's benchmarking helpers use."""

    Event = _Event

    @staticmethod
    def synchronize(device: Any = None) -> None:
        """Launches are finished when they return."""


def host_bench(call: Callable[[], Any], *, quantiles: Sequence[float] | None = None, warmup: float = 5, rep: float = 20,
               return_mode: str = "mean", **_: Any) -> Any:
    """Time a call on the host, in milliseconds; the counterpart of triton.testing.do_bench."""
    call()
    start = time.perf_counter()
    call()
    once = max((time.perf_counter() - start) * 1e3, 1e-4)
    for _i in range(min(int(warmup / once), 100)):
        call()
    times = []
    for _i in range(max(1, min(int(rep / once), 200))):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    times.sort()
    if quantiles is not None:
        picked = [times[min(int(q * (len(times) - 1) + 0.5), len(times) - 1)] for q in quantiles]
        return picked[0] if len(picked) == 1 else picked
    if return_mode == "all":
        return times
    return {"min": times[0], "max": times[-1], "median": times[len(times) // 2]}.get(return_mode, sum(times) / len(times))


class CPUDriver(DriverBase):
    """Triton's view of the host."""

    def __init__(self) -> None:
        self.utils = CPUUtils()
        self.launcher_cls = CPULauncher

    @staticmethod
    def is_active() -> bool:
        """Never by discovery: another driver would then make two. `register` selects this one where it is needed."""
        return False

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cpu", "host", 1)

    def get_current_device(self) -> int:
        return DEVICE

    def set_current_device(self, device: int) -> None:
        """There is one host."""

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> Any:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return _HostInterface

    def get_benchmarker(self) -> Any:
        return host_bench

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.empty(1 << 20, dtype=torch.int8)

    def clear_cache(self, cache: Any) -> None:
        cache.zero_()
