"""From a TTIR kernel to LLVM IR text.

Owns the functions around a kernel's body and the pass pipeline. The module has

    <name>.entry    void (void** params, i32 gx, i32 gy, i32 gz): params[i] points to the value of the i-th argument; runs the grid
    <name>.packed   void (void* packed, i32 gx, i32 gy, i32 gz): the values themselves at the offsets of `packed_layout`
    <name>.launch   private: the whole grid, shared among threads where it is large
    <name>.grid     private: the loop over a range of program instances, with the body inlined

No symbol is a kernel's bare name, which may be that of a C function. What must hold: a program instance sees exactly its own
coordinates; every op is one that the translation to LLVM IR takes, which would otherwise end the process.

May import: torch_mlir, native.pool and messages (their symbols), core, memory, plan, lowering, ttir, llvm_text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch_mlir import ir, passmanager
from torch_mlir.dialects import arith, cf, func, llvm, math, scf, vector  # noqa: F401  (loads the dialects' op classes)

from trident.backend.native import pool
from trident.backend.triton.cpu import messages
from trident.backend.triton.cpu.errors import InternalError, UnsupportedKernelError
from trident.backend.triton.cpu.layout import packed_layout
from trident.backend.triton.cpu.llvm_text import respell_literals
from trident.backend.triton.cpu.lower.control import lower_blocks
from trident.backend.triton.cpu.lower.core import SIZES, SSA, Emitter
from trident.backend.triton.cpu.lower.lowering import Lowering
from trident.backend.triton.cpu.lower.memory import when
from trident.backend.triton.cpu.lower.plan import Plan
from trident.backend.triton.cpu.ttir import Kernel

PASSES = ("canonicalize,cse,convert-scf-to-cf,convert-vector-to-llvm,convert-math-to-llvm,convert-arith-to-llvm,convert-cf-to-llvm,"
          "convert-ub-to-llvm,convert-func-to-llvm,reconcile-unrealized-casts")


def _function(module: ir.Module, name: str, inputs: Sequence[Any], *, private: bool = False, attribute: str = "") -> ir.Operation:
    """func.func with an entry block (none for a declaration)."""
    attributes: dict[str, Any] = {
        "sym_name": ir.StringAttr.get(name),
        "function_type": ir.TypeAttr.get(ir.FunctionType.get(list(inputs), [])),
    }
    if private:
        attributes["llvm.linkage"] = ir.Attribute.parse("#llvm.linkage<internal>")
    if attribute:
        attributes["passthrough"] = ir.ArrayAttr.get([ir.StringAttr.get(attribute)])
    with ir.InsertionPoint(module.body):
        made = ir.Operation.create("func.func", attributes=attributes, regions=1)
    made.regions[0].blocks.append(*inputs)
    return made


def _body(em: Emitter, kernel: Kernel, module: ir.Module, types: Sequence[Any]) -> None:
    """The function of one program instance: arguments, scratch memory, coordinates, grid."""
    made = _function(module, f"{kernel.name}.body", [*types, em.ptr, *[em.i32] * 6], private=True, attribute="alwaysinline")
    entry = made.regions[0].blocks[0]
    *arguments, scratch, x, y, z, gx, gy, gz = entry.arguments
    em.scratch = scratch
    with ir.InsertionPoint(entry):
        first = em.op("arith.constant", em.i32, value=em.i32_attr(0))
    em.entry = ir.InsertionPoint(first.owner)
    low = Lowering(em, Plan(kernel), [x, y, z], [gx, gy, gz])
    for value, argument in zip(kernel.blocks[0].args, arguments, strict=True):
        low.set_scalar(value, argument)
    lower_blocks(low, kernel.blocks, made.regions[0])


def _call(em: Emitter, name: str, arguments: Sequence[SSA]) -> None:
    em.do("func.call", *arguments, callee=ir.FlatSymbolRefAttr.get(name))


def _grid(em: Emitter, name: str, module: ir.Module, types: Sequence[Any]) -> None:
    """The loop over the program instances from `begin` to before `end`; scratch memory for large tensors is allocated once."""
    made = _function(module, f"{name}.grid", [*types, *[em.i32] * 3, *[em.i64] * 2], private=True, attribute="noinline")
    entry = made.regions[0].blocks[0]
    *arguments, gx, gy, gz, begin, end = entry.arguments
    with ir.InsertionPoint(entry):
        if em.scratch_size:
            size = em.const(em.i64, em.scratch_size)
            scratch = em.op("func.call", em.ptr, em.const(em.i64, 64), size,
                            callee=em.declare("aligned_alloc", [em.i64, em.i64], em.ptr))
        else:
            scratch = em.op("llvm.mlir.zero", em.ptr)
        wide_x, wide_y = (em.op("arith.extui", em.i64, size) for size in (gx, gy))
        rows = em.op("arith.divui", em.i64, begin, wide_x)
        first = [em.op("arith.remui", em.i64, begin, wide_x), em.op("arith.remui", em.i64, rows, wide_y),
                 em.op("arith.divui", em.i64, rows, wide_y)]
        starts = [em.op("arith.trunci", em.i32, value) for value in first]
        loop = ir.Operation.create("scf.for", results=[em.i32] * 3, operands=[begin, end, em.const(em.i64, 1), *starts], regions=1)
        block = loop.regions[0].blocks.append(em.i64, *[em.i32] * 3)
        with ir.InsertionPoint(block):
            x, y, z = list(block.arguments)[1:]
            _call(em, f"{name}.body", [*arguments, scratch, x, y, z, gx, gy, gz])
            em.do("scf.yield", *_next_program(em, [x, y, z], [gx, gy]))
        if em.scratch_size:
            em.do("func.call", scratch, callee=em.declare("free", [em.ptr], None))
        em.do("func.return")


def _next_program(em: Emitter, program: Sequence[SSA], sizes: Sequence[SSA]) -> list[SSA]:
    """The coordinates that follow these."""
    out, carry = [], em.const(em.i32, 1)
    for coordinate, size in zip(program[:2], sizes, strict=True):
        value = em.op("arith.addi", em.i32, coordinate, carry)
        over = em.op("arith.cmpi", em.i1, value, size, predicate=ir.IntegerAttr.get(em.i64, 0))
        out.append(em.op("arith.select", em.i32, over, em.const(em.i32, 0), value))
        carry = em.op("arith.extui", em.i32, over)
    return [*out, em.op("arith.addi", em.i32, program[2], carry)]


def _load_argument(em: Emitter, pointer: SSA, elem: str) -> SSA:
    value = em.op("llvm.load", em.memory_type(elem), pointer, alignment=ir.IntegerAttr.get(em.i64, SIZES[elem]))
    if elem == "i1":
        return em.op("arith.cmpi", em.i1, value, em.const(em.i8, 0), predicate=ir.IntegerAttr.get(em.i64, 1))
    return value


def _launch(em: Emitter, name: str, module: ir.Module, elems: Sequence[str]) -> None:
    """The whole grid: by the pool, or here where there is one thread, one program, or a kernel that talks to Python as it runs."""
    types, offsets = [em.storage[e] for e in elems], packed_layout([*elems, "i32", "i32", "i32"])
    task = _function(module, f"{name}.task", [em.ptr, em.i64, em.i64], private=True)
    entry = task.regions[0].blocks[0]
    with ir.InsertionPoint(entry):
        context, begin, end = entry.arguments
        values = [_load_argument(em, em.gep(context, offset, em.i8), elem)
                  for elem, offset in zip([*elems, "i32", "i32", "i32"], offsets, strict=True)]
        _call(em, f"{name}.grid", [*values, begin, end])
        em.do("func.return")
    made = _function(module, f"{name}.launch", [*types, *[em.i32] * 3], private=True, attribute="noinline")
    entry = made.regions[0].blocks[0]
    arguments = list(entry.arguments)
    with ir.InsertionPoint(entry):
        total = em.const(em.i64, 1)
        for size in arguments[-3:]:
            total = em.op("arith.muli", em.i64, total, em.op("arith.extui", em.i64, size))

        def alone() -> list[SSA]:
            _call(em, f"{name}.grid", [*arguments, em.const(em.i64, 0), total])
            return []

        def shared() -> list[SSA]:
            threads = em.op("func.call", em.i32, callee=em.declare(pool.THREADS, [], em.i32))

            def together() -> list[SSA]:
                context = em.op("llvm.alloca", em.ptr, em.const(em.i64, offsets[-1] + 4), elem_type=ir.TypeAttr.get(em.i8),
                                alignment=ir.IntegerAttr.get(em.i64, 16))
                for value, offset in zip(arguments, offsets, strict=True):
                    wide = em.op("arith.extui", em.i8, value) if value.type == em.i1 else value
                    em.do("llvm.store", wide, em.gep(context, offset, em.i8))
                kind = ir.FunctionType.get([em.ptr, em.i64, em.i64], [])
                address = em.op("builtin.unrealized_conversion_cast", em.ptr,
                                em.op("func.constant", kind, value=ir.FlatSymbolRefAttr.get(f"{name}.task")))
                em.do("func.call", address, context, total, threads,
                      callee=em.declare(pool.RUN, [em.ptr, em.ptr, em.i64, em.i32], None))
                return []

            when(em, _greater(em, threads, 1), [], together, alone)
            return []

        if messages.SYMBOL in em.declared:
            alone()
        else:
            when(em, _greater(em, total, 1), [], shared, alone)
        em.do("func.return")


def _greater(em: Emitter, value: SSA, bound: int) -> SSA:
    return em.op("arith.cmpi", em.i1, value, em.const(value.type, bound), predicate=ir.IntegerAttr.get(em.i64, 4))


def _entries(em: Emitter, name: str, module: ir.Module, elems: Sequence[str]) -> None:
    """The two exported functions."""
    for packed in (False, True):
        made = _function(module, f"{name}.packed" if packed else f"{name}.entry", [em.ptr, *[em.i32] * 3])
        entry = made.regions[0].blocks[0]
        with ir.InsertionPoint(entry):
            base, gx, gy, gz = entry.arguments
            values = []
            for i, (elem, offset) in enumerate(zip(elems, packed_layout(elems), strict=True)):
                if packed:
                    pointer = em.gep(base, offset, em.i8)
                else:
                    slot = em.gep(base, 8 * i, em.i8)
                    pointer = em.op("llvm.load", em.ptr, slot, alignment=ir.IntegerAttr.get(em.i64, 8))
                values.append(_load_argument(em, pointer, elem))
            _call(em, f"{name}.launch", [*values, gx, gy, gz])
            em.do("func.return")


def _declarations(em: Emitter, module: ir.Module) -> None:
    for symbol, (inputs, result) in em.declared.items():
        with ir.InsertionPoint.at_block_begin(module.body):
            ir.Operation.create("func.func", attributes={
                "sym_name": ir.StringAttr.get(symbol), "sym_visibility": ir.StringAttr.get("private"),
                "function_type": ir.TypeAttr.get(ir.FunctionType.get(inputs, [] if result is None else [result]))}, regions=1)


# Ops that the translation to LLVM IR is known to take. It ends the process on any other, even some of its own dialect.
TRANSLATABLE = frozenset(f"llvm.{name}" for name in (
    "func return br cond_br switch call mlir.constant mlir.zero mlir.poison mlir.undef mlir.addressof mlir.global alloca load store "
    "getelementptr bitcast inttoptr ptrtoint trunc zext sext fptrunc fpext fptosi fptoui sitofp uitofp add sub mul sdiv udiv srem urem "
    "and or xor shl lshr ashr icmp fcmp select fadd fsub fmul fdiv frem fneg extractelement insertelement shufflevector extractvalue "
    "insertvalue atomicrmw cmpxchg unreachable freeze intr.masked.load intr.masked.store intr.masked.gather intr.masked.scatter "
    "intr.fma intr.fabs intr.sqrt intr.floor intr.ceil intr.trunc intr.round intr.roundeven intr.copysign intr.maxnum intr.minnum "
    "intr.maximum intr.minimum intr.smax intr.smin intr.umax intr.umin intr.ctpop intr.ctlz intr.cttz intr.abs intr.prefetch").split())


def _strings(em: Emitter, module: ir.Module) -> None:
    for text, symbol in em.strings.items():
        data = text.encode() + b"\0"
        with ir.InsertionPoint.at_block_begin(module.body):
            ir.Operation.create("llvm.mlir.global", attributes={
                "sym_name": ir.StringAttr.get(symbol), "value": ir.StringAttr.get(data), "constant": ir.UnitAttr.get(),
                "global_type": ir.TypeAttr.get(ir.Type.parse(f"!llvm.array<{len(data)} x i8>")),
                "linkage": ir.Attribute.parse("#llvm.linkage<internal>")}, regions=1)


def _check_translatable(module: ir.Module) -> None:
    """Every op is one that the translation takes."""
    strange: list[str] = []

    def visit(op: Any) -> Any:
        name = op.name if isinstance(op.name, str) else op.operation.name
        if name not in TRANSLATABLE and name != "builtin.module":
            strange.append(name)
        return ir.WalkResult.ADVANCE

    module.operation.walk(visit)
    if strange:
        raise InternalError(f"not translatable to LLVM IR: {', '.join(sorted(set(strange)))}")


def lower(kernel: Kernel, lanes: int) -> str:
    """LLVM IR text for the kernel. `lanes`: log2 of the elements per vector."""
    with kernel.context, ir.Location.unknown():
        em = Emitter(lanes)
        elems = []
        for i, arg in enumerate(kernel.blocks[0].args):
            if arg.type.ranked or arg.type.elem not in em.storage:
                raise UnsupportedKernelError(f"the cpu backend cannot take argument {i} of {kernel.name}: type {arg.type.elem}")
            elems.append(arg.type.elem)
        module = ir.Module.create()
        types = [em.storage[e] for e in elems]
        _body(em, kernel, module, types)
        _grid(em, kernel.name, module, types)
        _launch(em, kernel.name, module, elems)
        _entries(em, kernel.name, module, elems)
        _declarations(em, module)
        _strings(em, module)
        try:
            if not module.operation.verify():
                raise InternalError(f"{kernel.name}: the lowering made invalid MLIR")
            passmanager.PassManager.parse(f"builtin.module({PASSES})").run(module.operation)
        except ir.MLIRError as error:
            raise InternalError(f"{kernel.name}: MLIR refused the lowered kernel: {str(error)[:2000]}") from error
        _check_translatable(module)
        return respell_literals(llvm.translate_module_to_llvmir(module.operation))
