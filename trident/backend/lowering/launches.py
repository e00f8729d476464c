"""Lowering of `trident.launch`: the function of one launch site, for the host program that calls it.

Owns the compiled functions of operand shapes (shared by all sites of a shape), `launch_of` and `emit_launch`, which are all that
host programs need of Triton launches, and `SiteModule`, a module with one site. What must hold: the site's state is made before
the code that holds its address, and kept until it is released; shapes stay for the life of the process.

May import: ir.trace, native.engine, native.launch_ir, native.launch_runtime, triton.launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from trident import locks
from trident.backend.native import engine, launch_ir, launch_runtime
from trident.backend.triton.launch import SiteState, make_site_state
from trident.ir.trace import LaunchSite

LLVM_TYPES: Final[dict[str, str]] = {"tensor": "ptr", "int": "i64", "float": "double", "bool": "i1", "object": "ptr"}
_shapes: dict[tuple[Any, ...], str] = {}
_lock = locks.lock()


@dataclass(frozen=True, slots=True)
class Launch:
    """How a host program in LLVM text launches a site.

    i32 @<symbol>(ptr state, ptr gil_slot, i64 gx, i64 gy, i64 gz, <one argument per run-time operand, in order>): tensor ->
    pointer to the at::Tensor, int -> i64, float -> double, bool -> i1, object -> borrowed PyObject*. It returns 0, with the GIL
    held exactly if it was at entry; or 1, with a Python exception set and the GIL held. `*gil_slot` is null while the GIL is
    held, else the saved PyThreadState*, and is kept up to date. `state` is kept alive until its `release()`, to be called when
    the code that has its address has been unmapped.
    """

    symbol: str
    state: SiteState

    @property
    def declaration(self) -> str:
        """The declaration of the symbol. Several sites may have the same symbol: a module declares it once."""
        operands = [LLVM_TYPES[kind] for kind in self.state.kinds]
        return f"declare i32 @{self.symbol}({', '.join(['ptr', 'ptr', 'i64', 'i64', 'i64', *operands])})"

    def call(self, gil: str, grid: Sequence[str], operands: Sequence[str]) -> str:
        """The call, as an LLVM expression; gil, grid and operands are names or literals without types."""
        typed = [f"ptr inttoptr (i64 {self.state.address} to ptr)", f"ptr {gil}", *(f"i64 {value}" for value in grid)]
        typed += [f"{LLVM_TYPES[kind]} {value}" for kind, value in zip(self.state.kinds, operands, strict=True)]
        return f"call i32 @{self.symbol}({', '.join(typed)})"


def launch_of(site: LaunchSite, kinds: Sequence[str]) -> Launch:
    """The native launch of a site whose run-time operands have these kinds (launch_layout.KINDS)."""
    state = make_site_state(site, kinds)
    return Launch(_shape(state), state)


def _shape(state: SiteState) -> str:
    """The symbol of the function for the state's operands, compiled if it is the first of its kind."""
    key = (state.kinds, state.operands, state.targets)
    with _lock:
        symbol = _shapes.get(key)
        if symbol is None:
            symbol = f"trident_launch_shape_{len(_shapes)}"
            module = launch_ir.new_module(symbol)
            launch_ir.emit_shape(module, symbol, state.kinds, state.operands, state.targets, id(None))
            engine.add_symbol(symbol, engine.compile_ir(module, name=symbol).pin().address(symbol))
            _shapes[key] = symbol
        return symbol


def emit_launch(module: Any, site: LaunchSite, kinds: Sequence[str], *, name: str | None = None) -> Any:
    """Define, in an llvmlite module, the function that launches `site`, and return it.

    i32 @launch_<n>(ptr gil_slot, i64 gx, i64 gy, i64 gz, <operands>): as `Launch` says, without the state, which is the result's
    `site_state` attribute.
    """
    launch = launch_of(site, kinds)
    if name is None:
        name = f"launch_{sum(function.name.startswith('launch_') for function in module.functions)}"
    function = launch_ir.emit_site(module, name, launch.state.kinds, launch.symbol, launch.state.address)
    function.site_state = launch.state
    return function


class SiteModule:
    """A compiled module with one site's function `launch_0` and a loop around it, `loop`."""

    def __init__(self, site: LaunchSite, kinds: Sequence[str]) -> None:
        module = launch_ir.new_module("launch")
        function = emit_launch(module, site, kinds)
        self.state: SiteState = function.site_state
        launch_ir.emit_loop(module, "loop", function)
        self._compiled = engine.compile_ir(module, name="launch")

    def address(self, name: str) -> int:
        """Address of a function of the module."""
        return self._compiled.address(name)

    @staticmethod
    def floor(target: str) -> int:
        """Address of the bare loop of a target."""
        return launch_runtime.install(target).address(f"trident_launch_{target}_floor")

    def close(self) -> None:
        """Unmap the code and let the state go."""
        self._compiled.close()
        self.state.release()
