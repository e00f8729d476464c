"""The floor: native loops over the same ATen calls and kernel launches, with nothing around them.

Owns the machine code of the loops, made with llvmlite here and independently of Trident. Symbols of libtorch are taken by their
mangled names. Each loop's result is compared with eager's before it is timed, here or by the case.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding as llvm
import torch
from llvmlite import ir

NativeLoop = Callable[[int], None]

VOID, I8, I32, I64, PTR = ir.VoidType(), ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.PointerType()

LIBRARIES: dict[str, Callable[[], ctypes.CDLL]] = {
    "torch": lambda: ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")),
    "c++": lambda: ctypes.CDLL("libstdc++.so.6"),
    "cuda": lambda: ctypes.CDLL("libcuda.so.1"),
    "python": lambda: ctypes.pythonapi,
}
# name: (library, symbol, result, arguments). A Tensor is passed as the address of 8 bytes that hold its TensorImpl's address.
SYMBOLS: dict[str, tuple[str, str, ir.Type, tuple[ir.Type, ...]]] = {
    "new": ("c++", "_Znwm", PTR, (I64,)),
    "delete_tensor": ("torch", "aoti_torch_delete_tensor_object", I32, (PTR,)),
    "add": ("torch", "_ZN2at4_ops10add_Tensor4callERKNS_6TensorES4_RKN3c106ScalarE", VOID, (PTR, PTR, PTR, PTR)),
    "mul": ("torch", "_ZN2at4_ops10mul_Tensor4callERKNS_6TensorES4_", VOID, (PTR, PTR, PTR)),
    "copy_": ("torch", "_ZN2at4_ops5copy_4callERNS_6TensorERKS2_b", PTR, (PTR, PTR, ir.IntType(1))),
    "launch": ("cuda", "cuLaunchKernel", I32, (PTR, I32, I32, I32, I32, I32, I32, I32, PTR, PTR, PTR)),
    "vectorcall": ("python", "PyObject_Vectorcall", PTR, (PTR, PTR, I64, PTR)),
    "decref": ("python", "Py_DecRef", VOID, (PTR,)),
}

_kept: list[Any] = []  # engines, and what their code points to


class Loop:
    """Builds `void loop(i64 n)`: construct it, emit the body with `call`, then `finish`."""

    def __init__(self) -> None:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        self.module = ir.Module("floor")
        self.module.triple = llvm.get_default_triple()
        self.function = ir.Function(self.module, ir.FunctionType(VOID, [I64]), "loop")
        entry, self.body, self.end = (self.function.append_basic_block(name) for name in ("entry", "body", "end"))
        ir.IRBuilder(entry).branch(self.body)
        self.builder = ir.IRBuilder(self.body)
        self.counter = self.builder.phi(I64)
        self.counter.add_incoming(ir.Constant(I64, 0), entry)
        self.declared: dict[str, ir.Function] = {}

    def call(self, name: str, arguments: Sequence[ir.Value]) -> ir.Value:
        """Calls an entry of SYMBOLS."""
        if name not in self.declared:
            library, symbol, result, kinds = SYMBOLS[name]
            llvm.add_symbol(symbol, ctypes.cast(getattr(LIBRARIES[library](), symbol), ctypes.c_void_p).value)
            self.declared[name] = ir.Function(self.module, ir.FunctionType(result, kinds), symbol)
        return self.builder.call(self.declared[name], arguments)

    def call_kernel(self, address: int, arguments: Sequence[ir.Value]) -> None:
        """Calls the code of a kernel on the CPU."""
        symbol = f"kernel_at_{address:x}"
        llvm.add_symbol(symbol, address)
        kernel = ir.Function(self.module, ir.FunctionType(VOID, [argument.type for argument in arguments]), symbol)
        self.builder.call(kernel, arguments)

    def finish(self, keep: object, *, holds_gil: bool = False) -> NativeLoop:
        after = self.builder.add(self.counter, ir.Constant(I64, 1))
        self.counter.add_incoming(after, self.builder.block)
        self.builder.cbranch(self.builder.icmp_signed("<", after, self.function.args[0]), self.body, self.end)
        ir.IRBuilder(self.end).ret_void()
        module = llvm.parse_assembly(str(self.module))
        module.verify()
        engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine(opt=3))
        engine.finalize_object()
        _kept.append((engine, keep))
        kind = ctypes.PYFUNCTYPE if holds_gil else ctypes.CFUNCTYPE
        return kind(None, ctypes.c_int64)(engine.get_function_address("loop"))


def pointer(address: int) -> ir.Value:
    return ir.Constant(I64, address).inttoptr(PTR)


def two_op_loop(x: torch.Tensor, y: torch.Tensor) -> NativeLoop:
    """`(x + y) * y` through at::_ops, each result freed at its last use. Checked against eager here."""

    def build(out: torch.Tensor | None) -> NativeLoop:
        tensors = [x, y] if out is None else [x, y, out]
        handles = (ctypes.c_uint64 * 3)(*(tensor._cdata for tensor in tensors))
        one = (ctypes.c_uint64 * 6)()  # a Scalar of 32 bytes, aligned to 16: the tag of an integer at 0, its value at 16
        start = -ctypes.addressof(one) % 16 // 8
        one[start], one[start + 2] = 1, 1
        loop = Loop()
        a, b, c = (pointer(ctypes.addressof(handles) + 8 * index) for index in range(3))
        scalar = pointer(ctypes.addressof(one) + 8 * start)
        total = loop.call("new", [ir.Constant(I64, 8)])
        loop.call("add", [total, a, b, scalar])
        product = loop.call("new", [ir.Constant(I64, 8)])
        loop.call("mul", [product, total, b])
        loop.call("delete_tensor", [total])
        if out is not None:
            loop.call("copy_", [c, product, ir.Constant(ir.IntType(1), 0)])
        loop.call("delete_tensor", [product])
        return loop.finish((tensors, handles, one))

    result = torch.empty_like(x)
    build(result)(1)
    if not torch.equal(result, (x + y) * y):
        raise RuntimeError("the native loop's result is not eager's: this torch lays out at::Scalar differently")
    return build(None)


def parameters(arguments: Sequence[object]) -> tuple[Any, object]:
    """The table of addresses of a kernel's parameters, and what must stay alive with it.

    arguments: tensors and ints, the run-time arguments that the compiled kernel really takes: no constexpr, none that Triton
    specialized to a constant. Triton's scratch pointers, which follow them on CUDA, are null.
    """
    slots = [ctypes.c_uint64(a.data_ptr() if isinstance(a, torch.Tensor) else int(a)) for a in arguments]  # type: ignore[call-overload]
    slots += [ctypes.c_uint64(0) for _ in range(4)]
    return (ctypes.c_void_p * len(slots))(*(ctypes.addressof(slot) for slot in slots)), (slots, arguments)


def cuda_launch_loop(kernel: Any, grid: tuple[int, int, int], arguments: Sequence[object]) -> NativeLoop:
    """cuLaunchKernel of a kernel that Triton compiled, on the current stream, with prepared parameters."""
    kernel._init_handles()
    table, kept = parameters(arguments)
    numbers = (*grid, 32 * kernel.metadata.num_warps, 1, 1, kernel.metadata.shared)
    stream = torch.cuda.current_stream().cuda_stream
    status = ctypes.c_int32(0)
    loop = Loop()
    words = [pointer(kernel.function), *(ir.Constant(I32, number) for number in numbers)]
    error = loop.call("launch", [*words, pointer(stream), pointer(ctypes.addressof(table)), pointer(0)])
    loop.builder.store(error, pointer(ctypes.addressof(status)))
    native = loop.finish((kernel, table, kept, status))
    native(1)
    torch.cuda.synchronize()
    if status.value:
        raise RuntimeError(f"cuLaunchKernel failed with error {status.value}")
    return native


def cpu_launch_loop(kernel: Any, grid: tuple[int, int, int], arguments: Sequence[object]) -> NativeLoop:
    """The code of a kernel that Trident's `cpu` backend compiled, which loops over the grid itself."""
    kernel._init_handles()
    table, kept = parameters(arguments)
    loop = Loop()
    loop.call_kernel(kernel.function, [pointer(ctypes.addressof(table)), *(ir.Constant(I32, size) for size in grid)])
    return loop.finish((kernel, table, kept))


def vectorcall_loop(function: Callable[..., object], arguments: Sequence[object]) -> NativeLoop:
    """Calls a Python callable from native code and drops its result: a native callable's cost without the interpreter's."""
    function(*arguments)
    objects = (ctypes.c_uint64 * len(arguments))(*map(id, arguments))
    loop = Loop()
    result = loop.call("vectorcall", [pointer(id(function)), pointer(ctypes.addressof(objects)),
                                      ir.Constant(I64, len(arguments)), pointer(0)])  # fmt: skip
    loop.call("decref", [result])
    return loop.finish((function, list(arguments), objects), holds_gil=True)
