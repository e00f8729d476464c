"""Machine code of CPU kernels.

Owns how a kernel's LLVM IR becomes code on this host (an object file, which Triton keeps on the disk), and the key under which that
may be cached. What must hold: code for other CPU features is never loaded, nor code whose symbols this process lacks.
May import: engine.
"""

from __future__ import annotations

import functools

import llvmlite
import llvmlite.binding as llvm

from trident.backend.native import engine


def build(text: str, name: str) -> bytes:
    """The binary of a kernel's LLVM IR: the names of what it needs, and the object file. The IR has vectors and unrolled loops already."""
    needed, code = engine.object_code(text, opt=2, vectorise=False, name=name)
    return " ".join(needed).encode() + b"\0" + code


def load(binary: bytes, name: str) -> engine.Compiled:
    """Load what `build` made."""
    engine.load_library("libm.so.6")
    needed, _, code = binary.partition(b"\0")
    return engine.load_object(code, needed.decode().split(), name=name)


@functools.cache
def host_features() -> frozenset[str]:
    """CPU features that LLVM sees here, such as "avx512f"."""
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@functools.cache
def host_key() -> str:
    """Identifies what code is generated for: CPU, features and LLVM."""
    version = ".".join(str(v) for v in llvm.llvm_version_info)
    return f"{llvm.get_host_cpu_name()};{','.join(sorted(host_features()))};llvmlite {llvmlite.__version__};LLVM {version}"
