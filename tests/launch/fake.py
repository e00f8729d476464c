"""A Triton backend whose kernels only record what they are launched with: a native function notes its parameters.

It stands where the `cpu` backend stands (target name `cpu`), so everything of Triton is real but the machine code.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import triton
from triton.backends import Backend, backends
from triton.backends.compiler import BaseBackend, GPUTarget

from trident.backend.native import engine
from trident.backend.triton.cpu.driver import CPUDriver

MAX_PARAMS = 64
# record: calls, params (set by the test), gx, gy, gz, values...
_TEXT = f"""
@record = global [{MAX_PARAMS + 8} x i64] zeroinitializer
define void @kernel(ptr %params, i32 %gx, i32 %gy, i32 %gz) {{
entry:
  %calls = load i64, ptr @record
  %more = add i64 %calls, 1
  store i64 %more, ptr @record
  %n.at = getelementptr i64, ptr @record, i64 1
  %n = load i64, ptr %n.at
  %x.at = getelementptr i64, ptr @record, i64 2
  %y.at = getelementptr i64, ptr @record, i64 3
  %z.at = getelementptr i64, ptr @record, i64 4
  %x = zext i32 %gx to i64
  %y = zext i32 %gy to i64
  %z = zext i32 %gz to i64
  store i64 %x, ptr %x.at
  store i64 %y, ptr %y.at
  store i64 %z, ptr %z.at
  br label %head
head:
  %i = phi i64 [0, %entry], [%next, %body]
  %go = icmp ult i64 %i, %n
  br i1 %go, label %body, label %done
body:
  %p.at = getelementptr ptr, ptr %params, i64 %i
  %p = load ptr, ptr %p.at
  %v = load i64, ptr %p
  %o = add i64 %i, 8
  %to = getelementptr [{MAX_PARAMS + 8} x i64], ptr @record, i64 0, i64 %o
  store i64 %v, ptr %to
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}}
"""
_compiled = engine.compile_ir(_TEXT, name="recording kernel")
KERNEL = _compiled.address("kernel")
record = (ctypes.c_int64 * (MAX_PARAMS + 8)).from_address(_compiled.address("record"))


def expect(params: int) -> None:
    """Forget what was recorded; the next kernels have so many parameters."""
    ctypes.memset(record, 0, ctypes.sizeof(record))
    record[1] = params


def native_calls() -> int:
    return record[0]


def native_params() -> list[bytes]:
    """The 8 bytes at each parameter of the last native launch."""
    return [record[8 + i].to_bytes(8, "little", signed=True) for i in range(record[1])]


def native_grid() -> tuple[int, int, int]:
    return record[2], record[3], record[4]


@dataclass(frozen=True)
class Options:
    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 3
    warp_size: int = 1
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    debug: bool = False
    sanitize_overflow: bool = False
    backend_name: str = "cpu"
    arch: str = "host"
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e5", "fp8e4nv")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee",)
    max_num_imprecise_acc_default: int = 0
    extern_libs: tuple[tuple[str, str], ...] = ()
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False
    ir_override: str | None = None

    def hash(self) -> str:
        return str(self)


class FakeCompiler(BaseBackend):
    """Stops at TTIR."""

    binary_ext = "bin"

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return target.backend == "cpu"

    def hash(self) -> str:
        return "fake"

    def parse_options(self, options: dict[str, Any]) -> Options:
        return Options(**{k: v for k, v in options.items() if k in Options.__dataclass_fields__})

    def pack_metadata(self, metadata: Any) -> tuple[int, int, int]:
        return metadata.num_warps, metadata.num_ctas, metadata.shared

    def get_codegen_implementation(self, options: Options) -> dict[str, Any]:
        return {"min_dot_size": lambda a, b: (1, 1, 1)}

    def get_module_map(self) -> dict[str, Any]:
        return {}

    def load_dialects(self, context: Any) -> None:
        pass

    def add_stages(self, stages: dict[str, Any], options: Options, language: Any = None) -> None:
        def finish(source: Any, metadata: dict[str, Any]) -> bytes:
            metadata["name"], metadata["shared"] = "kernel", 0
            return b"nothing"

        stages["ttir"] = lambda source, metadata: source
        stages["bin"] = finish


class Utils:
    def load_binary(self, name: str, kernel: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        return object(), KERNEL, 0, 0, 1 << 30

    def unload_module(self, module: object) -> None:
        pass

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {"max_shared_mem": 1 << 30, "multiprocessor_count": 1, "warpSize": 1}


python_launches: list[tuple[tuple[int, int, int], tuple[Any, ...]]] = []


class Launcher:
    """What Triton calls: notes the launch, with the hooks a real launcher calls."""

    def __init__(self, source: Any, metadata: Any) -> None:
        pass

    def __call__(self, gx: int, gy: int, gz: int, stream: Any, function: int, packed: Any, metadata: Any, enter: Any, leave: Any,
                 *args: Any) -> None:
        if enter is not None:
            enter(metadata)
        python_launches.append(((gx, gy, gz), args))
        if leave is not None:
            leave(metadata)


class FakeDriver(CPUDriver):
    """A CPUDriver, so that the cpu backend, if it is registered, routes no launch away from it."""

    def __init__(self) -> None:
        self.utils = Utils()
        self.launcher_cls = Launcher

    @classmethod
    def is_active(cls) -> bool:
        return True


@contextmanager
def active() -> Iterator[None]:
    """Triton uses this backend, and no other, in the block."""
    saved, config = dict(backends), triton.runtime.driver
    before = dict(vars(config))
    backends.clear()
    backends["fake"] = Backend(FakeCompiler, FakeDriver)
    config.set_active(FakeDriver())
    python_launches.clear()
    expect(0)
    try:
        yield
    finally:
        backends.clear()
        backends.update(saved)
        vars(config).clear()
        vars(config).update(before)
