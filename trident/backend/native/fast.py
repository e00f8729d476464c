"""Compiles long host programs: no optimisation passes, and the instruction selection that is linear in the size of a function.

Owns `compile_fast`. Host programs are long rows of calls between which everything lies in memory: LLVM's optimising code generator
needs ten times longer for them than this one, for code that is no faster.

May import: errors, native.engine.
"""

from __future__ import annotations

from trident.backend.native import engine
from trident.errors import NativeError


def compile_fast(text: str, *, name: str) -> engine.Compiled:
    """Compile LLVM IR text; like `engine.compile_ir`, but fast."""
    with engine._lock:
        module = engine.parse(text, name=name)
        missing = engine.undefined_symbols(module)
        if missing:
            raise NativeError(f"{name}: undefined symbols: {', '.join(sorted(missing)[:8])}")
        return engine.load(module, opt=0, name=name)
