"""The LLVM engine: text or an llvmlite module in, machine code addresses out.

Owns: initialising LLVM once, the optimisation pipeline, the lifetime of compiled code, and the process-wide table of external
symbols. What must hold: code stays mapped while its `Compiled` lives and is not closed; whoever hands an address to native code
or to CPython keeps the `Compiled` alive for as long as that address can be called (`pin` where that is the life of the process);
no address of a closed engine is given out.

May import: llvmlite, errors, locks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

import llvmlite.binding as llvm
from llvmlite import ir

from trident import locks
from trident.errors import NativeError

_lock: Final = locks.lock(awaited=1)
locks.wait_for(getattr(getattr(llvm.ffi.lib, "_lock", None), "_lock", None), 2)  # llvmlite's own
_symbols: dict[str, int] = {}
_machines: dict[tuple[int, bool], llvm.TargetMachine] = {}
_initialised = False


def _initialise() -> None:
    global _initialised
    if not _initialised:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        # The first engine makes LLVM search this process for symbols; before it, nothing is found but what was added by hand.
        llvm.create_mcjit_compiler(llvm.parse_assembly(""), llvm.Target.from_default_triple().create_target_machine())
        _initialised = True


def machine(opt: int = 2, *, position_independent: bool = False) -> llvm.TargetMachine:
    """The target machine of this host's CPU, with all features that it reports, for one optimisation level."""
    with _lock:
        _initialise()
        key = (opt, position_independent)
        if key not in _machines:
            _machines[key] = _new_machine(opt, position_independent)
        return _machines[key]


def _new_machine(opt: int, position_independent: bool) -> llvm.TargetMachine:
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=opt,
        reloc="pic" if position_independent else "default", codemodel="jitdefault", jit=True)


def triple() -> str:
    """The target triple that every module must carry."""
    return llvm.get_default_triple()


def add_symbol(name: str, address: int) -> None:
    """Make `address` known to all later compilations as the external symbol `name`. Naming it twice differently is an error."""
    if not address:
        raise NativeError(f"symbol {name!r} has no address")
    with _lock:
        if _symbols.setdefault(name, address) != address:
            raise NativeError(f"symbol {name!r} already has another address")
        llvm.add_symbol(name, address)


def load_library(path: str) -> None:
    """Make every exported symbol of a shared library callable."""
    llvm.load_library_permanently(path)


def find_symbol(name: str) -> int:
    """Address of an external symbol (added, of a loaded library, or of the process); 0 when there is none."""
    with _lock:
        _initialise()
        if name in _symbols:
            return _symbols[name]
    return llvm.address_of_symbol(name) or 0


def api_address(name: str) -> int:
    """Address of a function or data symbol of the running CPython; NativeError where it does not export it."""
    try:
        return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0
    except AttributeError:
        raise NativeError(f"this Python does not export {name}") from None


def immortal(obj: object) -> int:
    """Address of a Python object that is never freed from now on, for code that is never unmapped."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
    return id(obj)


class Compiled:
    """Machine code of one module. `name` is for error messages and dumps."""

    __slots__ = ("__weakref__", "_addresses", "_engine", "name")

    def __init__(self, name: str, execution_engine: llvm.ExecutionEngine) -> None:
        self.name = name
        self._engine: llvm.ExecutionEngine | None = execution_engine
        self._addresses: dict[str, int] = {}

    def address(self, symbol: str) -> int:
        """Address of a function or global variable that the module defines."""
        with _lock:
            if self._engine is None:
                raise NativeError(f"{self.name}: closed")
            found = self._addresses.get(symbol)
            if found is None:
                found = self._engine.get_function_address(symbol) or self._engine.get_global_value_address(symbol)
                if not found:
                    raise NativeError(f"{self.name}: no symbol {symbol!r}")
                self._addresses[symbol] = found
            return found

    def pin(self) -> Compiled:
        """Keep this code for the life of the process, interpreter shutdown included: for type slots and evaluators."""
        immortal(self)
        return self

    @property
    def closed(self) -> bool:
        return self._engine is None

    def close(self) -> None:
        """Unmap the code. Nobody may be inside it, and nobody may call it afterwards."""
        with _lock:
            engine, self._engine = self._engine, None  # first: what runs while it is closed (a finalizer) may close it, too
            self._addresses.clear()
            if engine is not None:
                engine.close()

    def __repr__(self) -> str:
        return f"<Compiled {self.name}{' closed' if self.closed else ''}>"


def parse(text_or_module: str | ir.Module, *, name: str) -> llvm.ModuleRef:
    """Parse and verify; the module gets the host's triple and data layout."""
    with _lock:
        _initialise()
        try:
            module = llvm.parse_assembly(str(text_or_module))
            module.name = name
            module.triple = triple()
            module.data_layout = str(machine().target_data)
            module.verify()
        except RuntimeError as error:
            raise NativeError(f"{name}: LLVM refused the module: {error}") from None
        return module


def optimise(module: llvm.ModuleRef, opt: int, *, vectorise: bool = True) -> None:
    """Run LLVM's standard pipeline of level `opt` (0..3) over the module, vectorisers and unrolling included if wanted."""
    if opt <= 0:
        return
    options = llvm.create_pipeline_tuning_options(speed_level=opt)
    options.loop_vectorization = options.slp_vectorization = opt >= 2 and vectorise
    options.loop_unrolling = options.loop_interleaving = vectorise
    builder = llvm.create_pass_builder(machine(opt), options)
    builder.getModulePassManager().run(module, builder)


def undefined_symbols(module: llvm.ModuleRef) -> list[str]:
    """External functions and variables that the module uses and nothing known to the engine defines."""
    declared: Iterable[llvm.ValueRef] = [*module.functions, *module.global_variables]
    return [v.name for v in declared
            if v.is_declaration and not v.name.startswith("llvm.") and not find_symbol(v.name)]


def compile_ir(text_or_module: str | ir.Module, *, opt: int = 2, name: str = "trident") -> Compiled:
    """Compile LLVM IR (text or an llvmlite module) for this host's CPU.

    An external symbol that nothing defines is a NativeError here: MCJIT would end the process instead.
    """
    with _lock:
        module = parse(text_or_module, name=name)
        missing = undefined_symbols(module)
        if missing:
            raise NativeError(f"{name}: undefined symbols: {', '.join(sorted(missing)[:8])}")
        optimise(module, opt)
        return load(module, opt=max(opt, 1), name=name)


def load(module: llvm.ModuleRef, *, opt: int, name: str) -> Compiled:
    """Machine code for a module, and an engine that holds it.

    The code is generated by the shared target machine. One of the engine's own, which it takes over, would build tables of 700 KB to
    generate code: the engine only loads and links here."""
    with _lock:
        return load_object(machine(opt).emit_object(module), name=name)


def object_code(text: str, *, opt: int, vectorise: bool, name: str) -> tuple[list[str], bytes]:
    """An object file for this host's CPU, which can be kept, and the external symbols that loading it needs."""
    with _lock:
        module = parse(text, name=name)
        optimise(module, opt, vectorise=vectorise)
        needed = [v.name for v in (*module.functions, *module.global_variables) if v.is_declaration and not v.name.startswith("llvm.")]
        return needed, machine(opt).emit_object(module)


def load_object(code: bytes, needed: Iterable[str] = (), *, name: str) -> Compiled:
    """Load an object file. An external symbol of those needed that nothing defines is a NativeError."""
    with _lock:
        if missing := [symbol for symbol in needed if not find_symbol(symbol)]:
            raise NativeError(f"{name}: undefined symbols: {', '.join(sorted(missing)[:8])}")
        _initialise()
        nothing = llvm.parse_assembly("")
        execution_engine = llvm.create_mcjit_compiler(nothing, _new_machine(2, position_independent=False))
        execution_engine.remove_module(nothing)
        execution_engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(code))
        execution_engine.finalize_object()
        return Compiled(name, execution_engine)


def assembly(text_or_module: str | ir.Module, *, opt: int = 2, name: str = "trident") -> str:
    """The optimised machine code as assembly text, for dumps."""
    with _lock:
        module = parse(text_or_module, name=name)
        optimise(module, opt)
        return machine(max(opt, 1)).emit_assembly(module)
