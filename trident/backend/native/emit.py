"""Writing native functions with structure: loops, conditions, struct fields and reference counts over llvmlite's IRBuilder.

Owns how the hand-written native code (callable, evaluator, resume) is spelled. What must hold: references counted here follow the
running version's rule for immortal objects; every block that a `when` or `loop` opens is closed by it.

May import: llvmlite, layouts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir

from trident.backend.native import engine, layouts

I1 = ir.IntType(1)
I8 = ir.IntType(8)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
PTR = ir.PointerType()
VOID = ir.VoidType()
NULL = ir.Constant(PTR, None)


def i64(value: int) -> ir.Constant:
    return ir.Constant(I64, value)


def i32(value: int) -> ir.Constant:
    return ir.Constant(I32, value)


def pointer(address: int) -> ir.Constant:
    """A fixed address. Whoever uses it keeps what lies there alive."""
    return i64(address).inttoptr(PTR)


class _Callee:
    """A pointer that is called. llvmlite's call takes the signature from its callee, which an opaque pointer does not have."""

    calling_convention = ""

    def __init__(self, address: ir.Value, function_type: ir.FunctionType) -> None:
        self.type = PTR
        self.function_type = function_type
        self.get_reference = address.get_reference


class Module:
    """An LLVM module under construction."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ir = ir.Module(name)
        self.layout = layouts.current()
        self._define_counts()

    def function(self, name: str, result: ir.Type, arguments: Sequence[ir.Type], *, internal: bool = False) -> Function:
        """Start the definition of a function, which may have been declared by a call already."""
        made = self.external(name, result, arguments)
        if internal:
            made.linkage = "internal"
        return Function(self, made)

    def variable(self, name: str, kind: ir.Type = PTR) -> ir.GlobalVariable:
        """A zero-initialised global variable, made when there is none of this name."""
        if name in self.ir.globals:
            return self.ir.globals[name]
        made = ir.GlobalVariable(self.ir, kind, name)
        made.initializer = ir.Constant(kind, None)
        made.type = PTR  # llvmlite would give it a typed pointer, which no call accepts where it expects an opaque one
        return made

    def external(self, name: str, result: ir.Type, arguments: Sequence[ir.Type]) -> ir.Function:
        """Declare (once) a function that this module does not define, or the one that it does."""
        if name in self.ir.globals:
            return self.ir.globals[name]
        return ir.Function(self.ir, ir.FunctionType(result, arguments), name)

    def external_variable(self, name: str) -> ir.GlobalVariable:
        """Declare (once) a variable, or a Python object, that lies at an external symbol."""
        if name in self.ir.globals:
            return self.ir.globals[name]
        made = ir.GlobalVariable(self.ir, I8, name)
        made.type = PTR
        return made

    def address_of(self, function: ir.Function) -> ir.Constant:
        """A function as a value."""
        return function.bitcast(PTR)

    def compile(self, *, opt: int = 2) -> engine.Compiled:
        """Machine code that stays for the life of the process."""
        return engine.compile_ir(self.ir, opt=opt, name=self.name).pin()

    def _define_counts(self) -> None:
        incref = self.function("trident.incref", VOID, [PTR], internal=True)
        incref.inline()
        incref.count(1)
        decref = self.function("trident.decref", VOID, [PTR], internal=True)
        decref.inline()
        decref.count(-1)


class Function:
    """A function under construction; `b` is its IRBuilder."""

    def __init__(self, module: Module, function: ir.Function) -> None:
        self.module = module
        self.function = function
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.args = function.args

    # ------------------------------------------------------------------------------------------------------ memory

    def at(self, base: ir.Value, offset: int | ir.Value) -> ir.Value:
        """The address `offset` bytes after `base`."""
        if isinstance(offset, int):
            offset = i64(offset)
        return self.b.gep(base, [offset], source_etype=I8)

    def item(self, base: ir.Value, index: ir.Value) -> ir.Value:
        """The address of word `index` of an array of words."""
        return self.b.gep(base, [index], source_etype=I64)

    def load(self, base: ir.Value, offset: int = 0, kind: ir.Type = PTR) -> ir.Value:
        return self.b.load(self.at(base, offset) if offset else base, typ=kind)

    def store(self, value: ir.Value, base: ir.Value, offset: int = 0) -> None:
        self.b.store(value, self.at(base, offset) if offset else base)

    def int32(self, base: ir.Value, offset: int) -> ir.Value:
        """A 32-bit field, sign-extended to 64."""
        return self.b.sext(self.load(base, offset, I32), I64)

    def add_to(self, base: ir.Value, offset: int, amount: int, kind: ir.Type = I64) -> None:
        """`*(base + offset) += amount`."""
        self.store(self.b.add(self.load(base, offset, kind), ir.Constant(kind, amount)), base, offset)

    def variable(self, value: ir.Value) -> ir.Value:
        """A local variable that starts with `value`: a stack slot that the optimiser turns into a register."""
        with self.b.goto_entry_block():
            slot = self.words(value.type)
        self.b.store(value, slot)
        return slot

    def words(self, kind: ir.Type = I64, count: ir.Value | None = None) -> ir.Value:
        """Stack space for `count` values, here; it lives until the function returns."""
        slot = self.b.alloca(kind, count)
        slot.type = PTR
        return slot

    # ----------------------------------------------------------------------------------------------------- control

    @contextmanager
    def when(self, condition: ir.Value, likely: bool | None = None) -> Iterator[None]:
        with self.b.if_then(condition, likely=likely):
            yield

    @contextmanager
    def otherwise(self, condition: ir.Value) -> Iterator[tuple[Any, Any]]:
        with self.b.if_else(condition) as both:
            yield both

    @contextmanager
    def loop(self, start: ir.Value, stop: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """`for i in range(start, stop, step)` over 64-bit signed numbers."""
        index = self.variable(start)
        head, body, end = (self.b.append_basic_block(n) for n in ("head", "body", "end"))
        self.b.branch(head)
        self.b.position_at_end(head)
        current = self.load(index, kind=I64)
        self.b.cbranch(self.b.icmp_signed("<", current, stop), body, end)
        self.b.position_at_end(body)
        yield current
        if not self.b.block.is_terminated:
            self.b.store(self.b.add(current, i64(step)), index)
            self.b.branch(head)
        self.b.position_at_end(end)

    def ret(self, value: ir.Value | None = None) -> None:
        if value is None:
            self.b.ret_void()
        else:
            self.b.ret(value)

    def equal(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("==", left, right)

    def differ(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return self.b.icmp_unsigned("!=", left, right)

    def is_null(self, value: ir.Value) -> ir.Value:
        return self.equal(value, NULL)

    def not_null(self, value: ir.Value) -> ir.Value:
        return self.differ(value, NULL)

    # ------------------------------------------------------------------------------------------------------- calls

    def call(self, name: str, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call a function by name: one of this module, or an external symbol."""
        return self.b.call(self.module.external(name, result, [a.type for a in arguments]), arguments)

    def call_address(self, address: ir.Value, result: ir.Type, *arguments: ir.Value) -> ir.Value:
        """Call through a pointer."""
        return self.b.call(_Callee(address, ir.FunctionType(result, [a.type for a in arguments])), arguments)

    def forward(self, address: ir.Value, result: ir.Type) -> None:
        """Return what the function at `address` returns for this function's own arguments, without a stack frame."""
        callee = _Callee(address, ir.FunctionType(result, [a.type for a in self.args]))
        self.b.ret(self.b.call(callee, self.args, tail="musttail"))

    # -------------------------------------------------------------------------------------------------- references

    def inline(self) -> None:
        self.function.attributes.add("alwaysinline")

    def incref(self, value: ir.Value) -> None:
        self.call("trident.incref", VOID, value)

    def decref(self, value: ir.Value) -> None:
        self.call("trident.decref", VOID, value)

    def xdecref(self, value: ir.Value) -> None:
        with self.when(self.not_null(value)):
            self.decref(value)

    def clear(self, base: ir.Value, offset: int = 0) -> None:
        """Set a field to NULL and release what it held, in this order."""
        old = self.load(base, offset)
        self.store(NULL, base, offset)
        self.xdecref(old)

    def count(self, step: int) -> None:
        """Body of incref and decref: `ob_refcnt += step`, deallocate at zero, leave immortal objects alone."""
        target = self.args[0]
        if self.module.layout.immortal:
            low = self.load(target, kind=I32)  # immortal: the low half, as a signed number, is negative
            with self.when(self.b.icmp_signed("<", low, i32(0))):
                self.ret()
        new = self.b.add(self.load(target, kind=I64), i64(step))
        self.store(new, target)
        if step < 0:
            with self.when(self.equal(new, i64(0))):
                self.call("_Py_Dealloc", VOID, target)
        self.ret()
