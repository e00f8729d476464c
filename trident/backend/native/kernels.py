"""Machine code of CPU kernels.

Owns how a kernel's LLVM IR becomes code on this host, and the key under which such text may be cached. What must hold: text compiled
for other CPU features is never loaded. May import: engine.
"""

from __future__ import annotations

import functools

import llvmlite
import llvmlite.binding as llvm

from trident.backend.native import engine


def load(text: str, name: str) -> engine.Compiled:
    """Compile a kernel's LLVM IR at -O3 for this host."""
    engine.load_library("libm.so.6")
    return engine.compile_ir(text, opt=3, name=name)


@functools.cache
def host_features() -> frozenset[str]:
    """CPU features that LLVM sees here, such as "avx512f"."""
    return frozenset(name for name, present in llvm.get_host_cpu_features().items() if present)


@functools.cache
def host_key() -> str:
    """Identifies what code is generated for: CPU, features and LLVM."""
    version = ".".join(str(v) for v in llvm.llvm_version_info)
    return f"{llvm.get_host_cpu_name()};{','.join(sorted(host_features()))};llvmlite {llvmlite.__version__};LLVM {version}"
