"""Launching a site directly from Python: for tests and benchmarks, which need no host program for it.

Owns `NativeLauncher`. What must hold: it goes through the same native function that a host program calls.

May import: torch, ir.trace, native.engine, native.launch_runtime, lowering.launches.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from trident.backend.lowering.launches import SiteModule
from trident.ir.trace import LaunchSite

_ARGUMENTS: Final[dict[str, Any]] = {
    "tensor": ctypes.c_void_p, "int": ctypes.c_int64, "float": ctypes.c_double, "bool": ctypes.c_bool, "object": ctypes.py_object,
}


class NativeLauncher:
    """`launcher((gx, gy, gz), *operands)`: the operands are the site's run-time arguments, of these kinds."""

    def __init__(self, site: LaunchSite, kinds: Sequence[str]) -> None:
        self.kinds = tuple(kinds)
        self._module = SiteModule(site, kinds)
        self.state = self._module.state
        types = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64, *(_ARGUMENTS[kind] for kind in kinds)]
        # PYFUNCTYPE: called with the GIL, and an exception that is set afterwards is raised.
        self._launch = ctypes.PYFUNCTYPE(ctypes.c_int32, *types)(self._module.address("launch_0"))
        self._loop = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_int64, *types)(self._module.address("loop"))

    def __call__(self, grid: Sequence[int], *operands: Any) -> None:
        """Launch once."""
        self.launch_loop(None, grid, *operands)

    def launch_loop(self, count: int | None, grid: Sequence[int], *operands: Any) -> None:
        """Launch `count` times in a native loop (None: once, without one)."""
        slots = [ctypes.c_uint64(value._cdata) if kind == "tensor" else None for kind, value in zip(self.kinds, operands)]
        values = [value if slot is None else ctypes.addressof(slot) for slot, value in zip(slots, operands)]
        gil = ctypes.c_void_p(None)
        dims = [*grid, 1, 1][:3]
        if len(values) != len(self.kinds):
            raise TypeError(f"{len(self.kinds)} operands expected, {len(values)} given")
        if count is None:
            result = self._launch(ctypes.addressof(gil), *dims, *values)
        else:
            result = self._loop(count, ctypes.addressof(gil), *dims, *values)
        assert result == 0, "the native launch failed without an exception"

    def floor_loop(self, count: int, grid: Sequence[int], *operands: Any) -> int:
        """The bare driver call (on the CPU: the kernel) `count` times, with the parameters of these operands, and its result.

        What a launch is measured against. The operands, tensors and ints, must be what was launched through Python last.
        """
        slots = (ctypes.c_uint64 * max(len(operands), 1))()
        for i, (kind, value) in enumerate(zip(self.kinds, operands)):
            slots[i] = (value.data_ptr() if kind == "tensor" else int(value)) & ((1 << 64) - 1)
        entry = self.state.entries[-1]
        pointer, dimension = ctypes.c_void_p, ctypes.c_int32
        function = ctypes.CFUNCTYPE(ctypes.c_int32, pointer, pointer, dimension, dimension, dimension, ctypes.c_int64)(
            self._module.floor(entry.compiled.metadata.target.backend))
        address = self.state.entry_address(len(self.state.entries) - 1)
        return function(address, ctypes.addressof(slots), *[*grid, 1, 1][:3], count)
