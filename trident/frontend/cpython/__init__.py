"""What differs between CPython minor versions: opcode tables.

Owns the only version test of the package: `opcodes` is the table module of the running interpreter.
May import: frontend.handlers (through the table modules).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from trident.errors import UnsupportedPython


class _Opcodes:
    """The table module of the running interpreter, imported at first use (handlers import the recorder's modules)."""

    _module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self._module is None:
            version = f"{sys.version_info[0]}{sys.version_info[1]}"
            try:
                self._module = import_module(f"trident.frontend.cpython.opcodes{version}")
            except ModuleNotFoundError:
                raise UnsupportedPython(f"no opcode table for CPython {sys.version_info[0]}.{sys.version_info[1]}") from None
        return getattr(self._module, name)


opcodes = _Opcodes()
