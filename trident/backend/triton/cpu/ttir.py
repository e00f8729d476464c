"""TTIR as plain Python objects.

Owns the way from Triton's in-memory module to a small IR of dataclasses (`Kernel`, `Block`, `Op`, `Value`) that the lowering
reads: Triton's printer writes the generic form, torch-mlir parses it with `tt` as an unregistered dialect. What must hold: the
result keeps every operation, its properties and its location, in program order; shapes are powers of two.

May import: torch_mlir and Triton's libtriton (both lazily), errors.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from trident import locks
from trident.backend.triton.cpu.errors import InternalError, UnsupportedKernelError

_MARK = 'llvm.data_layout = "x"'
_stderr_lock = locks.lock()


@dataclass(frozen=True, slots=True)
class Type:
    """A TTIR type: `shape` is () for a scalar, `elem` a builtin name ("f32", "i1") or "ptr", `pointee` what a ptr points to."""

    shape: tuple[int, ...]
    elem: str
    pointee: str = ""
    ranked: bool = False

    @property
    def bits(self) -> int:
        """log2 of the number of elements."""
        return sum(d.bit_length() - 1 for d in self.shape)

    @property
    def numel(self) -> int:
        return 1 << self.bits


@dataclass(eq=False, slots=True)
class Value:
    """An SSA value. `owner` is the defining op, or the block whose argument it is."""

    type: Type
    owner: Op | Block
    index: int
    uses: list[tuple[Op, int]] = field(default_factory=list)

    @property
    def op(self) -> Op | None:
        return self.owner if isinstance(self.owner, Op) else None


@dataclass(eq=False, slots=True)
class Op:
    """An operation; `position` is its index in its block."""

    name: str
    operands: list[Value]
    results: list[Value]
    attrs: dict[str, Any]
    regions: list[list[Block]]
    successors: list[Block]
    block: Block
    position: int
    location: Any

    @property
    def result(self) -> Value:
        return self.results[0]

    def int_attr(self, name: str, default: int | None = None) -> int:
        """An integer (or enum) attribute's value."""
        attr = self.attrs.get(name)
        if attr is None:
            if default is None:
                raise self.unsupported(f"attribute {name} is missing")
            return default
        return int(attr.value if hasattr(attr, "value") else attr)

    def unsupported(self, why: str) -> UnsupportedKernelError:
        """The error to raise when this op cannot be lowered."""
        where = describe_location(str(self.location))
        return UnsupportedKernelError(f"the cpu backend cannot run {self.name}: {why} (at {where})", self.name, where)


@dataclass(eq=False, slots=True)
class Block:
    """A basic block; `parent` is None for a block of the kernel itself."""

    args: list[Value]
    ops: list[Op]
    parent: Op | None


@dataclass(slots=True)
class Kernel:
    """The one function of a module after inlining."""

    name: str
    blocks: list[Block]
    mlir: Any  # the parsed module: keeps attributes and locations alive
    context: Any


def describe_location(text: str) -> str:
    """The user's line out of an MLIR location: the outermost frame of inlined calls, then the innermost if it differs."""
    places = re.findall(r'"([^"]+)":(\d+):\d+', text)
    if not places:
        return "an unknown line"
    shown = [f"{f}:{n}" for f, n in places]
    return shown[0] if shown[0] == shown[-1] else f"{shown[-1]}, inside {shown[0]}"


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """Keep the verifier's diagnostic (the printer's trigger, see `generic_form`) from the terminal."""
    with _stderr_lock:
        sys.stderr.flush()
        saved, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            os.close(null)


def generic_form(module: Any) -> str:
    """Print a Triton module in MLIR's generic form, with locations.

    MLIR falls back to the generic form when an op does not verify; an ill-formed data layout makes the top module, and nothing
    else, fail.
    """
    from triton._C.libtriton import ir as triton_ir

    builder = triton_ir.builder(module.context)
    with _quiet_stderr():
        module.set_attr("llvm.data_layout", builder.get_string_attr("x"))
        try:
            text: str = module.str()
        finally:
            module.set_attr("llvm.data_layout", builder.get_string_attr(""))
    if '"builtin.module"' not in text or _MARK not in text:
        raise InternalError("this Triton's printer does not write the generic form")
    return text.replace(_MARK, "trident.ttir")


_HEADER = re.compile(r'^\s*(?:%\S+(?:, %\S+)* = )?"(tt\.[\w.]+)"')


def strip_properties(text: str) -> tuple[str, list[str]]:
    """Take the properties `<{...}>` off the `tt` ops (unregistered ops hide them); they are returned in textual order."""
    lines, found = [], []
    for line in text.split("\n"):
        if _HEADER.match(line):
            start = line.find(" <{")
            if start >= 0:
                end = _closing(line, start + 2)
                found.append(line[start + 2:end + 1])
                line = line[:start] + line[end + 2:]
            else:
                found.append("{}")
        lines.append(line)
    return "\n".join(lines), found


def _closing(line: str, start: int) -> int:
    """Index of the brace that closes the one at `start`, strings skipped."""
    depth, quoted, i = 0, False, start
    while i < len(line):
        c = line[i]
        if quoted:
            if c == "\\":
                i += 1
            elif c == '"':
                quoted = False
        elif c == '"':
            quoted = True
        elif c in "{}":
            depth += 1 if c == "{" else -1
            if depth == 0:
                return i
        i += 1
    raise InternalError(f"unbalanced properties: {line[:200]}")


_TENSOR = re.compile(r"^tensor<((?:\d+x)*)(.*)>$")


def parse_type(text: str) -> Type:
    """`tensor<64x!tt.ptr<f32>>` and the like."""
    shape: tuple[int, ...] = ()
    elem, ranked = text, False
    if m := _TENSOR.match(text):
        shape, elem, ranked = tuple(int(d) for d in m.group(1).split("x")[:-1]), m.group(2), True
        if elem.startswith("!") is False and "," in elem:
            elem = elem.split(",", 1)[0]
        if any(d & (d - 1) for d in shape):
            raise UnsupportedKernelError(f"the cpu backend needs power-of-two shapes, not {text}")
    if elem.startswith("!tt.ptr<"):
        return Type(shape, "ptr", elem[8:].rsplit(">", 1)[0].rsplit(",", 1)[0].strip(), ranked)
    return Type(shape, elem, "", ranked)


class _Reader:
    """Builds the dataclasses from torch-mlir's view of the module."""

    def __init__(self, ir: Any, properties: list[str]) -> None:
        self.ir = ir
        self.properties = iter(properties)
        self.values: dict[Any, Value] = {}
        self.types: dict[str, Type] = {}

    def type(self, mlir_type: Any) -> Type:
        text = str(mlir_type)
        found = self.types.get(text)
        if found is None:
            found = self.types[text] = parse_type(text)
        return found

    def attrs(self, op: Any, name: str) -> dict[str, Any]:
        if name.startswith("tt."):
            listed = self.ir.DictAttr(self.ir.Attribute.parse(next(self.properties)))
            return {a.name: a.attr for a in listed}
        return {a: op.attributes[a] for a in op.attributes}

    def blocks(self, region: Any, parent: Op | None) -> list[Block]:
        listed = [(Block([], [], parent), b) for b in region.blocks]
        by_block = {b: mine for mine, b in listed}
        for mine, b in listed:
            for i, arg in enumerate(b.arguments):
                value = Value(self.type(arg.type), mine, i)
                self.values[arg] = value
                mine.args.append(value)
        # Blocks of Triton's functions are printed in dominance order, which the graph of early returns guarantees.
        for mine, b in listed:
            for op in b.operations:
                self.op(op.operation, mine, by_block)
        return [mine for mine, _ in listed]

    def op(self, op: Any, block: Block, by_block: dict[Any, Block]) -> None:
        name = op.name
        made = Op(name, [], [], self.attrs(op, name), [], [by_block[s] for s in op.successors], block, len(block.ops), op.location)
        for i, operand in enumerate(op.operands):
            value = self.values.get(operand)
            if value is None:
                raise made.unsupported("a value is used in a block before the one that defines it")
            value.uses.append((made, i))
            made.operands.append(value)
        block.ops.append(made)
        for i, result in enumerate(op.results):
            value = Value(self.type(result.type), made, i)
            self.values[result] = value
            made.results.append(value)
        made.regions.extend(self.blocks(r, made) for r in op.regions)


def read(text: str) -> Kernel:
    """Parse the generic form of a TTIR module that holds one function."""
    from torch_mlir import ir

    stripped, properties = strip_properties(text)
    context = ir.Context()
    context.allow_unregistered_dialects = True
    with context:
        try:
            module = ir.Module.parse(stripped)
        except Exception as error:
            raise InternalError(f"torch-mlir cannot read this Triton's TTIR: {str(error)[:500]}") from error
        reader = _Reader(ir, properties)
        holder = Block([], [], None)
        for op in module.body.operations:
            reader.op(op.operation, holder, {})
        functions = [o for o in holder.ops if o.name == "tt.func"]
        public = [f for f in functions if str(f.attrs.get("sym_visibility", '"public"')) == '"public"']
        if len(functions) != 1 or len(public) != 1:
            extra = next((f for f in functions if f not in public), functions[-1] if functions else None)
            if extra is None:
                raise InternalError("a TTIR module without a function")
            raise extra.unsupported(f"the call of {extra.attrs['sym_name']} was not inlined (noinline functions are not supported)")
        kernel = public[0]
        blocks = kernel.regions[0]
        for block in blocks:
            block.parent = None
        return Kernel(ir.StringAttr(kernel.attrs["sym_name"]).value, blocks, module, context)
