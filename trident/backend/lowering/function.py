"""One host program under construction: LLVM text, slots, the GIL, sites and states.

Owns the code shape. A program is one long function with one frame on the stack (`native.frame`). Every value that must
be released has a slot, which is NULL while it owns nothing; so an exit only needs the number of its site, and one loop over the
slots releases whatever there is. All exits share one block, all raised Python errors another. C++ exceptions pass through: the frame
belongs to a small function around, which catches them.

What must hold: a value is released after its last use, Python objects only while the GIL is held; whether the GIL is held is known
at every point of the text.

May import: ir, lowering.*, native.frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from trident.backend.lowering.rules import LoweringError
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import frame
from trident.backend.native.frame import BoxKind, SlotKind
from trident.backend.pins import PinTable
from trident.ir.trace import GuardInfo, Trace

EXIT, RAISE = "exit", "raise"


@dataclass(slots=True)
class Site:
    """A way out, as `exits.ExitSite` and the site table will have it."""

    state: int
    snapshot: int
    guard: GuardInfo | None
    is_raise: bool
    what: str
    result_start: int = 0
    result_words: int = 0


@dataclass(slots=True)
class State:
    """The operands of a `trident.state`, each as (BoxKind, value)."""

    snapshot: int
    entries: list[tuple[BoxKind, int]]


@dataclass
class Function:
    """State of the lowering of one trace."""

    trace: Trace
    tensor_offset: int
    lines: list[str] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    pinned: set[int] = field(default_factory=set)
    pending_pins: list[int] = field(default_factory=list)
    pin_tables: list[PinTable] = field(default_factory=list)
    declarations: dict[str, str] = field(default_factory=dict)
    globals: list[str] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    states: list[State] = field(default_factory=list)
    slot_kinds: list[SlotKind] = field(default_factory=list)
    keep: list[object] = field(default_factory=list)
    launches: list[Any] = field(default_factory=list)
    scratch: int = 0
    warns: bool = False
    gil_held: bool = True
    state: int = -1
    snapshot: int = -1
    label: str = "b0"
    header: str = ""  # of the loop
    carried: list[tuple[Value, str]] = field(default_factory=list)  # with the initial value of a number
    phis: list[int] = field(default_factory=list)  # numbers of the lines of those of the header
    _fresh: int = 0
    _free: dict[SlotKind, list[int]] = field(default_factory=dict)
    _edges: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: {EXIT: [], RAISE: []})
    _delayed: list[Value] = field(default_factory=list)
    _constants: dict[tuple[str, int], str] = field(default_factory=dict)
    _scratch_used: int = 0

    # ------------------------------------------------------------------------------------------------------------ text

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self) -> str:
        self._fresh += 1
        return f"%v{self._fresh}"

    def value(self, text: str) -> str:
        """Emit `%new = text`."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def new_label(self) -> str:
        self._fresh += 1
        return f"b{self._fresh}"

    def block(self, label: str) -> None:
        """Continue in a new block."""
        self.lines.append(f"{label}:")
        self.label = label

    def declare(self, name: str, result: str, parameters: str) -> str:
        """Declare an external function; returns how to name it."""
        if name not in self.declarations:
            self.declarations[name] = f"declare {result} @{name}({parameters})"
        return f"@{name}"

    def extern(self, name: str) -> str:
        """An external variable."""
        if name not in self.declarations:
            self.declarations[name] = f"@{name} = external global i8"
        return f"@{name}"

    def call(self, name: str, result: str, *arguments: str) -> str:
        """Call a C function that does not throw; arguments are `type value`. Returns the result's name ("" for void)."""
        self.declare(name, result, ", ".join(a.partition(" ")[0] for a in arguments))
        text = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    def at(self, base: str, offset: int) -> str:
        """The address `offset` bytes after a pointer."""
        return base if offset == 0 else self.value(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load(self, base: str, offset: int = 0, kind: str = "ptr") -> str:
        return self.value(f"load {kind}, ptr {self.at(base, offset)}")

    def store(self, kind: str, what: str, base: str, offset: int = 0) -> None:
        self.line(f"store {kind} {what}, ptr {self.at(base, offset)}")

    def constant(self, words: Iterable[int], align: int = 8) -> str:
        """A constant array of 64-bit words."""
        items = [w & 0xFFFFFFFFFFFFFFFF for w in words]
        text = f"[{len(items)} x i64] [{', '.join(f'i64 {w}' for w in items)}]"
        key = (text, align)
        if key not in self._constants:
            name = self._constants[key] = f"@c{len(self._constants)}"
            self.globals.append(f"{name} = private unnamed_addr constant {text}, align {align}")
        return self._constants[key]

    def constant_bytes(self, data: bytes) -> str:
        """A constant array of bytes (at least one)."""
        padded = data + b"\0" * (8 - len(data) % 8)
        return self.constant(struct.unpack(f"<{len(padded) // 8}Q", padded))

    # ---------------------------------------------------------------------------------------------------------- scratch

    def temporary(self, words: int, align: int = 1) -> str:
        """Stack space that stays until the end of the current operation."""
        self._scratch_used = -(-self._scratch_used // align) * align
        offset = self._scratch_used
        self._scratch_used += words
        self.scratch = max(self.scratch, self._scratch_used)
        return self.at("%scratch", offset * 8)

    # ------------------------------------------------------------------------------------------------------------ slots

    def new_slot(self, kind: SlotKind) -> int:
        free = self._free.setdefault(kind, [])
        if free:
            return free.pop()
        self.slot_kinds.append(kind)
        extra = 2 if kind is SlotKind.VECTOR else 0
        self.slot_kinds += [SlotKind.RAW] * extra
        return len(self.slot_kinds) - 1 - extra

    def fixed_slot(self) -> int:
        """A slot of nobody else, zero at first, for a word that stays from one iteration to the next."""
        self.slot_kinds.append(SlotKind.RAW)
        return len(self.slot_kinds) - 1

    def slot_address(self, slot: int) -> str:
        return self.value(f"getelementptr i8, ptr %frame, i64 {frame.SLOTS + 8 * slot}")

    def own(self, value: Value, kind: SlotKind) -> str:
        """Give a value a slot that will be released; returns the slot's address."""
        value.place, value.index, value.owned = Place.SLOT, self.new_slot(kind), True
        return self.slot_address(value.index)

    def own_object(self, value: Value, reg: str) -> None:
        """Place a new reference."""
        self.line(f"store ptr {reg}, ptr {self.own(value, SlotKind.OBJECT)}")

    def borrow_object(self, value: Value, reg: str) -> None:
        """Place a reference that something steady owns."""
        slot = self.new_slot(SlotKind.RAW)
        value.place, value.index, value.copy, value.steady = Place.SLOT, slot, slot, True
        self.line(f"store ptr {reg}, ptr {self.slot_address(slot)}")

    def define(self, value: Value, reg: str) -> None:
        """Place a scalar: a register, and a copy in a slot where a state needs it."""
        value.set_reg(reg)
        if value.stated:
            value.copy = self.new_slot(SlotKind.RAW)
            if value.kind == "bool":
                reg = self.value(f"zext i1 {reg} to i64")
            kind = "double" if value.kind == "float" else "i64"
            self.line(f"store {kind} {reg}, ptr {self.slot_address(value.copy)}")

    def finish(self, op: Op) -> None:
        """After an operation: release what dies with it."""
        self._scratch_used = 0
        for value in op.dying:
            self.bury(value)

    def bury(self, value: Value) -> None:
        """A value dies."""
        if value.owned:
            value.owned = False
            kind = self.slot_kinds[value.index]
            if kind is SlotKind.OBJECT and not self.gil_held:
                self._delayed.append(value)
            else:
                self._release(value, kind)
        elif value.copy >= 0 and value.kind != "value":
            self._free.setdefault(SlotKind.RAW, []).append(value.copy)
            value.copy = -1

    def _release(self, value: Value, kind: SlotKind) -> None:
        address = self.slot_address(value.index)
        if kind is SlotKind.OBJECT:
            reg = self.value(f"load ptr, ptr {address}")
            self.line(f"store ptr null, ptr {address}")
            self.call("Py_DecRef", "void", f"ptr {reg}")
        else:
            name = {SlotKind.TENSOR: "tensor", SlotKind.VECTOR: "vector", SlotKind.LIST: "list"}[kind]
            self.call(f"trident_release_{name}", "void", f"ptr {address}")
        self._free.setdefault(kind, []).append(value.index)

    def give_up(self, value: Value) -> None:
        """A value whose slot was emptied by its last user."""
        value.owned = False
        self._free.setdefault(self.slot_kinds[value.index], []).append(value.index)

    # -------------------------------------------------------------------------------------------------------------- GIL

    def hear_warnings(self) -> None:
        """From here on the warnings of operators become Python's: once in a program, outside of its loop."""
        if not self.warns:
            self.warns = True
            self.call("trident_warnings_begin", "void", "ptr %frame")

    def need_gil(self) -> None:
        if not self.gil_held:
            self.gil_held = True
            self.call("trident_gil_acquire", "void", "ptr %gil")
            for value in self._delayed:
                self._release(value, SlotKind.OBJECT)
            self._delayed.clear()

    def drop_gil(self) -> None:
        if self.gil_held:
            self.gil_held = False
            self.call("trident_gil_release", "void", "ptr %gil")

    # ----------------------------------------------------------------------------------------------------------- values

    def object(self, value: Value) -> str:
        """A PyObject*, borrowed."""
        match value.place:
            case Place.ARG:
                return self.load("%args", 8 * value.index)
            case Place.OBJECT:
                return self.pointer(value.index)
            case Place.SLOT:
                return self.value(f"load ptr, ptr {self.slot_address(value.index)}")
        raise LoweringError(f"{value!r} is no object")

    def pointer(self, address: int) -> str:
        return f"inttoptr (i64 {address} to ptr)"

    def tensor(self, value: Value) -> str:
        """An at::Tensor*."""
        match value.place:
            case Place.SLOT:
                return self.slot_address(value.index)
            case Place.BOXED:
                return self.at(self.object(value.const), self.tensor_offset)
            case Place.AT:
                return self.value(f"load ptr, ptr {self.slot_address(value.index)}")
        raise LoweringError(f"{value!r} is no tensor")

    def scalar(self, value: Value) -> str:
        """The register or literal of an int, float or bool."""
        if value.place is Place.REG:
            return value.reg
        if value.place is Place.CONST:
            return literal(value)
        raise LoweringError(f"{value!r} is no number")

    # ------------------------------------------------------------------------------------------------------------ leaving

    def site(self, what: str, *, guard: GuardInfo | None = None, is_raise: bool = False, slots: tuple[int, int] = (0, 0)) -> int:
        """A new way out at the current state."""
        self.sites.append(Site(self.state, self.snapshot, guard, is_raise, what, *slots))
        return len(self.sites) - 1

    def leave_if(self, condition: str, site: int, way: str = EXIT) -> None:
        """Leave where an i1 is true."""
        on = self.new_label()
        self.line(f"br i1 {condition}, label %{way}, label %{on}")
        self._edges[way].append((site, self.label))
        self.block(on)

    def leave_unless(self, condition: str, site: int, way: str = EXIT) -> None:
        """Leave where an i1 is false."""
        on = self.new_label()
        self.line(f"br i1 {condition}, label %{on}, label %{way}")
        self._edges[way].append((site, self.label))
        self.block(on)

    def leave(self, site: int) -> None:
        """Leave in any case; what follows is never executed."""
        self.line(f"br label %{EXIT}")
        self._edges[EXIT].append((site, self.label))
        self.block(self.new_label())

    def raise_if_null(self, reg: str, op: Op) -> None:
        """A Python API call that failed where it returned NULL."""
        failed = self.value(f"icmp eq ptr {reg}, null")
        self.leave_if(failed, self.site(op.name, is_raise=True), RAISE)

    def may_throw(self, name: str, result: str, arguments: list[str], site: int, declared: str) -> str:
        """Call a C++ function that may throw: the exception goes through this function to `program`, which catches it."""
        self.declare(name, result, declared)
        self.line(f"store i64 {site}, ptr %site")
        text = f"call {result} @{name}({', '.join(arguments)})"
        if result == "void":
            self.line(text)
            return ""
        return self.value(text)

    # ------------------------------------------------------------------------------------------------------------ the end

    def text(self, program: int) -> str:
        """The module; `program` is the address of the program table."""
        words = frame.SLOTS // 8 + len(self.slot_kinds)
        self.declare("trident_catch", "ptr", "ptr, i64, ptr")
        outer = [
            "define ptr @program(ptr %args) uwtable personality ptr @__gxx_personality_v0 {", "entry:",
            f"%frame = alloca [{words} x i64], align 16",
            f"call void @llvm.memset.p0.i64(ptr align 16 %frame, i8 0, i64 {8 * words}, i1 false)",
            f"store ptr {self.pointer(program)}, ptr %frame", f"%argsat = getelementptr i8, ptr %frame, i64 {frame.ARGS}",
            "store ptr %args, ptr %argsat", "%r = invoke ptr @body(ptr %args, ptr %frame) to label %done unwind label %pad",
            "done:", "ret ptr %r", "pad:", "%lp = landingpad { ptr, i32 } catch ptr null",
            "%exn = extractvalue { ptr, i32 } %lp, 0", f"%siteat = getelementptr i8, ptr %frame, i64 {frame.SITE}",
            "%site = load i64, ptr %siteat", "%caught = call ptr @trident_catch(ptr %frame, i64 %site, ptr %exn)",
            "ret ptr %caught", "}",
        ]
        head = [
            "define internal ptr @body(ptr %args, ptr %frame) noinline uwtable {", "entry:",
            f"%scratch = alloca [{max(self.scratch, 1)} x i64], align 16",
            f"%gil = getelementptr i8, ptr %frame, i64 {frame.GIL}", f"%site = getelementptr i8, ptr %frame, i64 {frame.SITE}",
            "br label %b0", "b0:",
        ]
        tail = [*self._ways_out(), "}"]
        declarations = [*self.declarations.values(), "declare i32 @__gxx_personality_v0(...)",
                        "declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)"]
        return "\n".join([*self.globals, *declarations, *outer, *head, *self.lines, *tail, ""])

    def _ways_out(self) -> list[str]:
        lines: list[str] = []
        for way, edges in self._edges.items():
            if edges:
                name = f"trident_{way}"
                self.declare(name, "ptr", "ptr, i64")
                incoming = ", ".join(f"[{site}, %{label}]" for site, label in edges)
                lines += [f"{way}:", f"%{way}site = phi i64 {incoming}", f"%{way}result = call ptr @{name}(ptr %frame, i64 %{way}site)",
                          f"ret ptr %{way}result"]
        return lines


def literal(value: Value) -> str:
    """A constant int, float or bool as LLVM writes it."""
    if value.kind == "float":
        return double(float(value.const))
    if value.kind == "bool":
        return "true" if value.const else "false"
    return str(int(value.const))


def double(value: float) -> str:
    """Bit-exact."""
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
