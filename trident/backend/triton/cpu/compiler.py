"""The compiler half of the Triton backend named `cpu`.

Owns the options, the stages (TTIR, LLVM IR text, object code) and the cache key. What must hold: the key changes whenever the code that
generates a kernel, the host CPU or LLVM does; everything that cannot run is refused here, at compile time, naming the user's line.

May import: triton, native.kernels, ttir; torch_mlir only when something is compiled.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from triton._C.libtriton import ir, passes
from triton.backends.compiler import BaseBackend, GPUTarget, Language

from trident.backend.native import kernels
from trident.backend.triton.cpu.errors import UnsupportedKernelError

TEXT_EXT, BINARY_EXT = "llir", "cpuobj"


@dataclass(frozen=True)
class CPUOptions:
    """Launch options. Those that only tune a GPU are accepted, so unmodified launches work, and change nothing."""

    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 3
    warp_size: int = 1
    maxnreg: int | None = None
    enable_fp_fusion: bool = False
    launch_cooperative_grid: bool = False
    launch_pdl: bool = False
    supported_fp8_dtypes: tuple[str, ...] = ("fp8e4b8", "fp8e4nv", "fp8e5", "fp8e5b16")
    deprecated_fp8_dot_operand_dtypes: tuple[str, ...] = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple[str, ...] = ("ieee", "tf32", "tf32x3", "bf16x3", "bf16x6")
    max_num_imprecise_acc_default: int = 0
    extern_libs: tuple[Any, ...] = ()
    debug: bool = False
    backend_name: str = "cpu"
    sanitize_overflow: bool = False
    arch: str = "host"
    instrumentation_mode: str = ""
    fpsan_homomorphic_casts: bool = False
    ir_override: str | None = None

    def hash(self) -> str:
        return hashlib.sha256(repr(self).encode()).hexdigest()


@functools.cache
def _sources_hash() -> str:
    """Hash of this package: a change of the lowering is a change of its version."""
    digest = hashlib.sha256()
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(str(path.relative_to(root)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def vector_lanes() -> int:
    """log2 of the elements per vector: two of the host's registers of f32."""
    features = kernels.host_features()
    return 5 if "avx512f" in features else 4


def _allow_inlining(module: Any) -> None:
    """Clear the mark of functions that ask not to be inlined: a kernel is lowered as one function."""
    marked: list[str] = []

    def visit(op: Any) -> None:
        if op.get_name() == "tt.func" and op.get_bool_attr("noinline"):
            marked.append(op.get_str_attr("sym_name"))

    module.walk(visit)
    if marked:
        off = ir.builder(module.context).get_bool_attr(False)
        for name in marked:
            module.get_function(name).set_attr("noinline", off)


class CPUBackend(BaseBackend):
    """Compiles kernels for GPUTarget("cpu", …)."""

    binary_ext = BINARY_EXT

    @staticmethod
    def supports_target(target: GPUTarget) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return f"trident-cpu-{_sources_hash()}-{kernels.host_key()}"

    def parse_options(self, opts: dict[str, Any]) -> CPUOptions:
        fields = CPUOptions.__dataclass_fields__
        given = {k: v for k, v in opts.items() if k in fields and v is not None}
        # These belong to the backend or to GPUs; a launch cannot change them.
        for name in ("backend_name", "arch", "warp_size", "sanitize_overflow", "enable_fp_fusion"):
            given.pop(name, None)
        if given.get("extern_libs"):
            given["extern_libs"] = tuple(dict(given["extern_libs"]).items())
        return CPUOptions(**given)

    def pack_metadata(self, metadata: Any) -> tuple[int, ...]:
        return (metadata.num_warps, metadata.num_ctas, metadata.shared)

    def get_codegen_implementation(self, options: CPUOptions) -> dict[str, Any]:
        def no_custom_types(*args: Any, **kwargs: Any) -> Any:
            raise UnsupportedKernelError("the cpu backend has no 8-bit floats of this kind")

        return {"min_dot_size": lambda lhs, rhs: (1, 1, 1), "convert_custom_types": no_custom_types}

    def get_module_map(self) -> dict[str, ModuleType]:
        from triton.language.extra.cuda import libdevice

        return {"triton.language.extra.libdevice": libdevice}

    def load_dialects(self, ctx: Any) -> None:
        """Triton's own dialects are all that TTIR needs."""

    def add_stages(self, stages: dict[str, Any], options: CPUOptions, language: Language) -> None:
        if language != Language.TRITON:
            raise UnsupportedKernelError("the cpu backend runs Triton kernels, not Gluon ones")
        stages["ttir"] = lambda module, metadata: self.make_ttir(module)
        stages[TEXT_EXT] = lambda module, metadata: self.make_llvm(module, metadata)
        stages[BINARY_EXT] = lambda text, metadata: kernels.build(text, metadata["name"])

    @staticmethod
    def make_ttir(module: Any) -> Any:
        """Inline (functions marked noinline too) and simplify, as Triton's own backends do."""
        _allow_inlining(module)
        pm = ir.pass_manager(module.context)
        passes.common.add_inliner(pm)
        if hasattr(passes.ttir, "add_rewrite_tensor_pointer"):
            passes.ttir.add_rewrite_tensor_pointer(pm)
        passes.ttir.add_rewrite_tensor_descriptor_to_pointer(pm)
        passes.common.add_canonicalizer(pm)
        passes.ttir.add_combine(pm)
        passes.ttir.add_reorder_broadcast(pm)
        passes.common.add_cse(pm)
        passes.common.add_symbol_dce(pm)
        passes.ttir.add_loop_unroll(pm)
        pm.run(module, "make_ttir")
        return module

    @staticmethod
    def make_llvm(module: Any, metadata: dict[str, Any]) -> str:
        """LLVM IR text for the host."""
        from trident.backend.triton.cpu import ttir
        from trident.backend.triton.cpu.lower import kernel as lowering

        text = ttir.generic_form(module)
        if "f16" in text and "f16c" not in kernels.host_features():
            raise UnsupportedKernelError("the cpu backend needs a CPU with F16C for 16-bit floats")
        kernel = ttir.read(text)
        metadata["name"] = kernel.name
        metadata["shared"] = 0
        return lowering.lower(kernel, vector_lanes())
