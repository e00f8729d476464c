"""Emission: chunks of tensors as MLIR vectors.

Owns `Chunk` (the elements of a tensor that one vector holds), `Tensor` (how to get a chunk at given positions), buffers, loops over
positions, and thin helpers that create MLIR ops. What must hold: a chunk is used only where the code that made it dominates, which
the scopes of `Emitter.memo` guarantee; an affine chunk's base and offsets are meant for addresses, its `vec` is exact.

May import: torch_mlir, index, ttir.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from torch_mlir import ir

from trident.backend.triton.cpu.errors import InternalError
from trident.backend.triton.cpu.lower import index
from trident.backend.triton.cpu.lower.index import COUNTER, LANE, Bits, Offsets

SSA: TypeAlias = Any

# Size in bytes of one element in memory. bfloat16 and the float8 types travel as their bits.
SIZES: dict[str, int] = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8, "ptr": 8,
                         "f8E5M2": 1, "f8E4M3FN": 1, "f8E5M2FNUZ": 1, "f8E4M3FNUZ": 1}
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})  # those that kernels compute with
INTS: dict[str, int] = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}
DYNAMIC = -2147483648  # llvm.getelementptr's marker of an index that is an operand

STACK_LIMIT = 64 << 10  # bytes of buffers on the stack; what is beyond goes to the heap
STACK_ONE = 16 << 10


@dataclass(slots=True, eq=False)
class Chunk:
    """`n` elements of type `elem`.

    base only:      all elements equal it (always so when n is 1)
    base and offs:  element k is base + offs[k] (integers; bytes for pointers)
    make:           builds the exact vector; absent for the uniform form
    const:          the value of a uniform integer known at compile time
    """

    n: int
    elem: str
    base: SSA = None
    offs: Offsets | None = None
    make: Callable[[], SSA] | None = None
    const: int | None = None

    @property
    def uniform(self) -> bool:
        return self.base is not None and self.offs is None

    @property
    def affine(self) -> bool:
        return self.base is not None


@dataclass(slots=True, eq=False)
class Tensor:
    """A tensor in the making: `emit(bits)` gives the chunk at a position.

    buffer: set when the elements are in memory. sources: what `emit` reads while it runs (buffers that a loop overwrites; the
    pointers of loads that are executed where they are used), each with whether it is read at the very position asked for.
    """

    bits: int
    elem: str
    emit: Callable[[Bits], Chunk]
    buffer: Buffer | None = None
    sources: dict[Any, bool] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory for a whole tensor, row-major."""

    pointer: SSA
    bits: int
    elem: str


class Emitter:
    """Creates ops at the current insertion point and remembers, per scope, what was already computed."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes  # log2 of the elements per vector
        self.memo: list[dict[Any, Any]] = [{}]
        self.counters: list[tuple[SSA, int]] = []
        self.entry: ir.InsertionPoint | None = None
        self.scratch: SSA = None
        self.scratch_size = 0
        self.stack_size = 0
        self.i1, self.i8, self.i16, self.i32, self.i64 = (ir.IntegerType.get_signless(w) for w in (1, 8, 16, 32, 64))
        self.f16, self.f32, self.f64 = ir.F16Type.get(), ir.F32Type.get(), ir.F64Type.get()
        self.ptr = ir.Type.parse("!llvm.ptr")
        self.storage = {"i1": self.i1, "i8": self.i8, "i16": self.i16, "i32": self.i32, "i64": self.i64, "f16": self.f16,
                        "bf16": self.i16, "f32": self.f32, "f64": self.f64, "ptr": self.ptr,
                        "f8E5M2": self.i8, "f8E4M3FN": self.i8, "f8E5M2FNUZ": self.i8, "f8E4M3FNUZ": self.i8}
        self.no_wrap = ir.Attribute.parse("#arith.overflow<nsw, nuw>")  # of positions
        self._i32_attrs: dict[int, Any] = {}
        self.declared: dict[str, tuple[list[Any], Any]] = {}
        self.strings: dict[str, str] = {}

    # -- ops ---------------------------------------------------------------------------------------------------------------------

    def op(self, name: str, result: Any, *operands: SSA, **attrs: Any) -> SSA:
        """Create an op with one result."""
        return ir.Operation.create(name, results=[result], operands=list(operands), attributes=attrs).result

    def do(self, name: str, *operands: SSA, **attrs: Any) -> None:
        """Create an op without a result."""
        ir.Operation.create(name, results=[], operands=list(operands), attributes=attrs)

    def declare(self, symbol: str, params: list[Any], result: Any) -> Any:
        """A reference to an external function, declared when the module is finished."""
        self.declared.setdefault(symbol, (params, result))
        return ir.FlatSymbolRefAttr.get(symbol)

    def string(self, text: str) -> SSA:
        """The address of a constant string, defined when the module is finished."""
        symbol = self.strings.setdefault(text, f"string.{len(self.strings)}")
        return self.op("llvm.mlir.addressof", self.ptr, global_name=ir.FlatSymbolRefAttr.get(symbol))

    def i32_attr(self, value: int) -> Any:
        found = self._i32_attrs.get(value)
        if found is None:
            found = self._i32_attrs[value] = ir.IntegerAttr.get(self.i32, value)
        return found

    def vector_type(self, n: int, elem: Any) -> Any:
        return elem if n == 1 else ir.VectorType.get([n], elem)

    def type_of(self, n: int, elem: str) -> Any:
        return self.vector_type(n, self.storage[elem])

    def like(self, value: SSA, elem: Any) -> Any:
        """The type with `value`'s shape and another element type."""
        return ir.VectorType.get(value.type.shape, elem) if isinstance(value.type, ir.VectorType) else elem

    @staticmethod
    def scalar_type(value: SSA) -> Any:
        return value.type.element_type if isinstance(value.type, ir.VectorType) else value.type

    def const(self, mlir_type: Any, value: int | float) -> SSA:
        """A constant; of a vector type, with all elements equal. Floats are given by value and may be inf or nan."""
        elem = mlir_type.element_type if isinstance(mlir_type, ir.VectorType) else mlir_type
        attr: Any
        if isinstance(elem, ir.IntegerType):
            width = elem.width
            wrapped = int(value) & ((1 << width) - 1)
            if width > 1 and wrapped >> (width - 1):
                wrapped -= 1 << width
            attr = ir.BoolAttr.get(bool(wrapped)) if width == 1 else ir.IntegerAttr.get(elem, wrapped)
        else:
            attr = ir.FloatAttr.get(elem, float(value))
        if isinstance(mlir_type, ir.VectorType):
            attr = ir.DenseElementsAttr.get_splat(mlir_type, attr)
        return self.op("arith.constant", mlir_type, value=attr)

    def const_ints(self, values: Offsets, elem: Any) -> SSA:
        """A vector of integer constants, wrapped to the element's width."""
        n = len(values)
        if n == 1:
            return self.const(elem, int(values[0]))
        dtype = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[elem.width]
        vector = ir.VectorType.get([n], elem)
        attr = ir.DenseElementsAttr.get(np.ascontiguousarray(values.astype(dtype)), type=vector)
        return self.op("arith.constant", vector, value=attr)

    def f32_bits(self, mlir_type: Any, bits: int) -> SSA:
        """A float constant given by its bits."""
        return self.const(mlir_type, struct.unpack("<f", struct.pack("<I", bits))[0])

    def splat(self, scalar: SSA, n: int) -> SSA:
        return scalar if n == 1 else self.op("vector.broadcast", ir.VectorType.get([n], scalar.type), scalar)

    def gep(self, base: SSA, offset: SSA, elem: Any) -> SSA:
        """base + offset elements; either may be a vector. A constant offset is given as an int."""
        if isinstance(offset, int):
            indices, operands, shape = [offset], [base], base
        else:
            indices, operands = [DYNAMIC], [base, offset]
            shape = base if isinstance(base.type, ir.VectorType) else offset
        return ir.Operation.create(
            "llvm.getelementptr", results=[self.like(shape, self.ptr)], operands=operands,
            attributes={"rawConstantIndices": ir.DenseI32ArrayAttr.get(indices), "elem_type": ir.TypeAttr.get(elem)}).result

    def shuffle_vec(self, value: SSA, picks: Sequence[int], other: SSA = None) -> SSA:
        """Pick elements of one vector, or of two in a row."""
        elem = value.type.element_type
        if len(picks) == 1 and other is None:
            return self.extract(value, int(picks[0]))
        return self.op("llvm.shufflevector", ir.VectorType.get([len(picks)], elem), value,
                       value if other is None else other, mask=ir.DenseI32ArrayAttr.get([int(p) for p in picks]))

    def extract(self, value: SSA, k: int) -> SSA:
        return self.op("llvm.extractelement", value.type.element_type, value, self.const(self.i32, k))

    # -- chunks ------------------------------------------------------------------------------------------------------------------

    def from_vec(self, n: int, elem: str, value: SSA) -> Chunk:
        if n == 1:
            return Chunk(1, elem, base=value)
        return Chunk(n, elem, make=lambda: value)

    def vec(self, chunk: Chunk) -> SSA:
        """The chunk's exact vector (scalar when it has one element)."""
        if chunk.n == 1:
            return chunk.base
        return self.remember(("vec", chunk), lambda: self._vec(chunk))

    def _vec(self, chunk: Chunk) -> SSA:
        if chunk.make is not None:
            return chunk.make()
        splat = self.splat(chunk.base, chunk.n)
        if chunk.offs is None:
            return splat
        if chunk.elem == "ptr":
            return self.gep(splat, self.const_ints(chunk.offs, self.i64), self.i8)
        return self.op("arith.addi", splat.type, splat, self.const_ints(chunk.offs, self.storage[chunk.elem]))

    def shuffle(self, chunk: Chunk, picks: Offsets) -> Chunk:
        """The chunk whose element k is element picks[k] of `chunk`."""
        n = len(picks)
        if chunk.uniform:
            return Chunk(n, chunk.elem, base=chunk.base, const=chunk.const)
        if n == 1:
            return Chunk(1, chunk.elem, base=self.extract(self.vec(chunk), int(picks[0])))

        def make() -> SSA:
            return self.shuffle_vec(self.vec(chunk), [int(p) for p in picks])

        if chunk.offs is not None:
            return Chunk(n, chunk.elem, base=chunk.base, offs=chunk.offs[picks], make=make)
        return self.from_vec(n, chunk.elem, make())

    def remember(self, key: Any, make: Callable[[], Any]) -> Any:
        """What `make` made for this key in this scope or one around it."""
        for scope in reversed(self.memo):
            if key in scope:
                return scope[key]
        value = make()
        self.memo[-1][key] = value
        return value

    @contextmanager
    def scope(self, block: Any = None) -> Iterator[None]:
        """A region of code whose results are not visible outside; with a block, ops go to its end."""
        self.memo.append({})
        try:
            if block is None:
                yield
            else:
                with ir.InsertionPoint(block):
                    yield
        finally:
            self.memo.pop()

    @contextmanager
    def fresh(self, block: Any) -> Iterator[None]:
        """A basic block of the function: nothing computed elsewhere is visible."""
        saved, self.memo = self.memo, [{}]
        try:
            with ir.InsertionPoint(block):
                yield
        finally:
            self.memo = saved

    def at(self, tensor: Tensor, bits: Bits) -> Chunk:
        """The chunk of `tensor` at a position."""
        if len(bits) != tensor.bits:
            raise InternalError(f"a position of {len(bits)} bits in a tensor of {tensor.bits}")
        return self.remember((tensor, bits), lambda: tensor.emit(bits))

    def moved(self, tensor: Tensor, bits: Bits, lanes: int) -> Chunk:
        """The chunk at a position that may use only some of 2**lanes lanes: repeated where it does not."""
        compacted, used = index.compact(bits)
        chunk = self.at(tensor, compacted)
        if len(used) == lanes:
            return chunk
        return self.shuffle(chunk, index.spread(used, lanes))

    # -- positions and loops -------------------------------------------------------------------------------------------------------

    def linear(self, bits: Bits) -> SSA:
        """The part of a position that does not depend on the lane, as i32."""
        key = ("linear", tuple(0 if index.is_lane(b) else b for b in bits))
        return self.remember(key, lambda: self._linear(bits))

    def _linear(self, bits: Bits) -> SSA:
        total: SSA = None
        for counter, first, length, position in index.counter_runs(bits):
            part, width = self.counters[counter]
            if first:
                part = self.op("arith.shrui", self.i32, part, self.const(self.i32, first))
            if first + length < width:
                part = self.op("arith.andi", self.i32, part, self.const(self.i32, (1 << length) - 1))
            if position:
                part = self.op("arith.shli", self.i32, part, self.const(self.i32, position), overflowFlags=self.no_wrap)
            total = part if total is None else self.op("arith.addi", self.i32, total, part, overflowFlags=self.no_wrap)
        constant = index.constant_part(bits)
        if total is None:
            return self.const(self.i32, constant)
        return total if not constant else self.op("arith.addi", self.i32, total, self.const(self.i32, constant), overflowFlags=self.no_wrap)

    def counter(self, value: SSA, width: int) -> int:
        """Register an i32 below 2**width as a loop counter."""
        self.counters.append((value, width))
        return len(self.counters) - 1

    def for_loop(self, start: int, stop: int, inits: Sequence[SSA], body: Callable[[SSA, list[SSA]], Sequence[SSA]]) -> list[SSA]:
        """scf.for over constants; `body` gets the counter and the carried values and returns the new ones."""
        lo, hi, step = (self.const(self.i32, v) for v in (start, stop, 1))
        types = [v.type for v in inits]
        loop = ir.Operation.create("scf.for", results=types, operands=[lo, hi, step, *inits], regions=1)
        block = loop.regions[0].blocks.append(self.i32, *types)
        with self.scope(block):
            results = body(block.arguments[0], list(block.arguments)[1:])
            self.do("scf.yield", *results)
        return list(loop.results)

    def nest(self, ranges: Sequence[tuple[int, int]], bits: list[int], body: Callable[[Bits], None]) -> None:
        """Loops over the position bits in `ranges` (first, width), outermost first; the rest of `bits` is filled in already."""
        if not ranges:
            body(tuple(bits))
            return
        (first, width), rest = ranges[0], ranges[1:]

        def step(value: SSA, _: list[SSA]) -> Sequence[SSA]:
            c = self.counter(value, width)
            for b in range(width):
                bits[first + b] = COUNTER * (c + 1) + b
            self.nest(rest, bits, body)
            return ()

        self.for_loop(0, 1 << width, (), step)

    def each(self, shape: Sequence[int], body: Callable[[Bits], None], lanes: int | None = None) -> None:
        """Run `body` for every chunk of a tensor of this shape: the low bits are lanes, each dimension above them a loop."""
        total = sum(d.bit_length() - 1 for d in shape)
        vector = min(total, self.lanes if lanes is None else lanes)
        bits = [LANE + k if k < vector else 0 for k in range(total)]
        ranges = [(max(first, vector), first + width - max(first, vector))
                  for first, width in index.dim_ranges(tuple(shape)) if first + width > vector]
        with self.scope():
            self.nest(ranges, bits, body)

    # -- buffers -------------------------------------------------------------------------------------------------------------------

    def alloc(self, bits: int, elem: str) -> Buffer:
        """Memory for a tensor, alive for the whole program instance."""
        size = max(SIZES[elem] << bits, 64)
        assert self.entry is not None
        mlir_type = self.memory_type(elem)
        with self.entry:
            if size <= STACK_ONE and self.stack_size + size <= STACK_LIMIT:
                self.stack_size += size
                pointer = self.op("llvm.alloca", self.ptr, self.const(self.i64, 1 << bits), elem_type=ir.TypeAttr.get(mlir_type),
                                  alignment=ir.IntegerAttr.get(self.i64, 64))
            else:
                pointer = self.gep(self.scratch, self.const(self.i64, self.scratch_size), self.i8)
                self.scratch_size += (size + 63) // 64 * 64
        return Buffer(pointer, bits, elem)

    def memory_type(self, elem: str) -> Any:
        return self.i8 if elem == "i1" else self.storage[elem]

    def _place(self, buffer: Buffer, bits: Bits) -> tuple[SSA, Offsets, int, bool]:
        """Address of lane 0, the lanes' offsets in elements, their number, and whether they are consecutive."""
        lanes = len(index.lane_bits(bits))
        offsets = index.lane_offsets(bits, lanes)
        # The constant part by itself: it becomes part of the instruction.
        pointer = self.gep(buffer.pointer, self.linear(tuple(0 if b == 1 else b for b in bits)), self.memory_type(buffer.elem))
        if constant := index.constant_part(bits):
            pointer = self.gep(pointer, constant, self.memory_type(buffer.elem))
        return pointer, offsets, lanes, bool((offsets == np.arange(1 << lanes)).all())

    def _alignment(self, buffer: Buffer, lanes: int) -> Any:
        return ir.IntegerAttr.get(self.i64, min(64, SIZES[buffer.elem] << lanes))

    def read(self, buffer: Buffer, bits: Bits) -> Chunk:
        """A chunk out of a buffer."""
        pointer, offsets, lanes, consecutive = self._place(buffer, bits)
        n, elem = 1 << lanes, self.memory_type(buffer.elem)
        if consecutive:
            value = self.op("llvm.load", self.vector_type(n, elem), pointer, alignment=self._alignment(buffer, lanes))
        else:
            addresses = self.gep(pointer, self.const_ints(offsets, self.i32), elem)
            value = self.gather(addresses, None, None, n, elem)
        if buffer.elem == "i1":
            value = self.op("arith.trunci", self.like(value, self.i1), value)
        return self.from_vec(n, buffer.elem, value)

    def write(self, buffer: Buffer, bits: Bits, chunk: Chunk) -> None:
        """Put a chunk into a buffer. The position must use every lane of the chunk."""
        pointer, offsets, lanes, consecutive = self._place(buffer, bits)
        value = self.vec(chunk)
        if buffer.elem == "i1":
            value = self.op("arith.extui", self.like(value, self.i8), value)
        if consecutive:
            self.do("llvm.store", value, pointer, alignment=self._alignment(buffer, lanes))
        else:
            addresses = self.gep(pointer, self.const_ints(offsets, self.i32), self.memory_type(buffer.elem))
            self.scatter(value, addresses, None, 1 << lanes)

    def gather(self, addresses: SSA, mask: SSA, other: SSA, n: int, elem: Any) -> SSA:
        """Load from a vector of addresses."""
        size = max(elem.width // 8 if hasattr(elem, "width") else 8, 1)
        mask = self.const(ir.VectorType.get([n], self.i1), 1) if mask is None else mask
        other = self.zero(ir.VectorType.get([n], elem)) if other is None else other
        return self.op("llvm.intr.masked.gather", ir.VectorType.get([n], elem), addresses, mask, other,
                       alignment=self.i32_attr(size))

    def scatter(self, value: SSA, addresses: SSA, mask: SSA, n: int) -> None:
        """Store to a vector of addresses, in the order of the lanes."""
        elem = value.type.element_type
        size = max(elem.width // 8 if hasattr(elem, "width") else 8, 1)
        mask = self.const(ir.VectorType.get([n], self.i1), 1) if mask is None else mask
        self.do("llvm.intr.masked.scatter", value, addresses, mask, alignment=self.i32_attr(size))

    def zero(self, mlir_type: Any) -> SSA:
        """All bits zero, of any type including pointers."""
        elem = mlir_type.element_type if isinstance(mlir_type, ir.VectorType) else mlir_type
        if elem == self.ptr:
            return self.op("llvm.mlir.zero", mlir_type)
        return self.const(mlir_type, 0)

    def tensor_of(self, buffer: Buffer, carried: bool = False) -> Tensor:
        """The tensor that a buffer holds."""
        return Tensor(buffer.bits, buffer.elem, lambda bits: self.read(buffer, bits), buffer, {buffer: True} if carried else {})
