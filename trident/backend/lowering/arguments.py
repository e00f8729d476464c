"""Making the bits of each kind of C++ parameter from an operand of the IR.

Owns one method `make_<kind>` per `CxxType.kind`. A method gives what its type's passing needs: an address (POINTER), a register
(DOUBLE), a value and a flag (OPT_DOUBLE), or a list of 64-bit words (WORDS, MEMORY). What must hold: storage is on the program's
stack, borrowed from the operands for the time of the call; what must be destroyed after it is, also where the call throws.

May import: lowering.*, native.aten_abi, native.frame, native.torch_layouts.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from trident.backend.lowering.function import Function, double
from trident.backend.lowering.rules import LoweringError
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import torch_layouts
from trident.backend.native.aten_abi import CxxType
from trident.backend.native.frame import SlotKind

_DEVICE_TYPES: dict[str, int] = {}


def unsupported(operator: str, name: str, cxx: CxxType, value: Value) -> NoReturn:
    raise LoweringError(f"{operator}: argument {name} ({cxx.name}) cannot be made from {value!r}")


def _device_code(device: Any) -> int:
    """c10::DeviceType of a torch.device."""
    if not _DEVICE_TYPES:
        members = torch._C._autograd.DeviceType.__members__
        _DEVICE_TYPES.update({name.lower(): int(member) for name, member in members.items()})
        _DEVICE_TYPES["privateuseone"] = _DEVICE_TYPES.get("privateuse1", _DEVICE_TYPES.get("privateuseone", -1))
    code = _DEVICE_TYPES.get(device.type, -1)
    if code < 0:
        raise LoweringError(f"unknown device type {device.type}")
    return code


class Conversions:
    """The conversions for one call."""

    def __init__(self, f: Function, op: Op, operator: str) -> None:
        self.f = f
        self.op = op
        self.operator = operator
        self._owned: list[Value] = []

    def release(self) -> None:
        """After the call: destroy what was made for it."""
        for value in self._owned:
            self.f.call("trident_release_list", "void", f"ptr {self.f.slot_address(value.index)}")
            self.f.give_up(value)

    # ---------------------------------------------------------------------------------------------------------- numbers

    def _int(self, name: str, cxx: CxxType, value: Value) -> str:
        """An int64 from an int or a bool."""
        if value.kind == "int":
            return self.f.scalar(value)
        if value.kind == "bool":
            if value.place is Place.CONST:
                return str(int(value.const))
            return self.f.value(f"zext i1 {self.f.scalar(value)} to i64")
        unsupported(self.operator, name, cxx, value)

    def _symint(self, name: str, cxx: CxxType, value: Value) -> str:
        reg = self._int(name, cxx, value)
        if value.place is Place.CONST:
            if int(value.const) <= torch_layouts.SYMINT_LIMIT:
                raise LoweringError(f"{self.operator}: argument {name} is {value.const}, which no plain SymInt holds")
            return reg
        return self.f.call("trident_symint", "i64", f"i64 {reg}")

    def _float(self, name: str, cxx: CxxType, value: Value) -> str:
        """A double from a float, an int or a bool."""
        if value.kind == "float":
            return self.f.scalar(value)
        if value.kind in ("int", "bool"):
            if value.place is Place.CONST:
                return double(float(value.const))
            return self.f.value(f"{'sitofp i64' if value.kind == 'int' else 'uitofp i1'} {self.f.scalar(value)} to double")
        unsupported(self.operator, name, cxx, value)

    def make_bool(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        if value.kind != "bool":
            unsupported(self.operator, name, cxx, value)
        return [self._int(name, cxx, value)]

    def make_int(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return [self._int(name, cxx, value)]

    def make_small(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        """One byte; the rest of the register is not looked at."""
        return [self._int(name, cxx, value)]

    def make_double(self, name: str, cxx: CxxType, value: Value) -> str:
        return self._float(name, cxx, value)

    def make_symint(self, name: str, cxx: CxxType, value: Value) -> str:
        """By value, but not trivially: the callee gets the address of a temporary that it may move from."""
        base = self.f.temporary(1)
        self.f.store("i64", self._symint(name, cxx, value), base)
        return base

    # -------------------------------------------------------------------------------------------------------- optionals

    def make_optional_small(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        """Value in the first byte, flag in the second."""
        if value.kind == "none":
            return ["0"]
        if value.place is Place.CONST:
            return [str(int(value.const) & 0xFF | 0x100)]
        byte = self.f.value(f"and i64 {self._int(name, cxx, value)}, 255")
        return [self.f.value(f"or i64 {byte}, 256")]

    def make_optional_int(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return ["0", "0"] if value.kind == "none" else [self._int(name, cxx, value), "1"]

    def make_optional_double(self, name: str, cxx: CxxType, value: Value) -> tuple[str, str]:
        return ("0.0", "0") if value.kind == "none" else (self._float(name, cxx, value), "1")

    def make_optional_symint(self, name: str, cxx: CxxType, value: Value) -> str:
        base = self.f.temporary(2)
        none = value.kind == "none"
        self.f.store("i64", "0" if none else self._symint(name, cxx, value), base)
        self.f.store("i64", "0" if none else "1", base, 8)
        return base

    def make_optional_generator(self, name: str, cxx: CxxType, value: Value) -> str:
        """Only none: the IR has no value for a generator."""
        if value.kind != "none":
            unsupported(self.operator, name, cxx, value)
        base = self.f.temporary(2)
        self.f.store("i64", "0", base)
        self.f.store("i64", "0", base, 8)
        return base

    # ----------------------------------------------------------------------------------------------------------- devices

    def _device(self, name: str, cxx: CxxType, value: Value) -> str:
        """Type in the first byte, index in the second."""
        if value.kind == "device" and value.place is Place.CONST:
            index = -1 if value.const.index is None else value.const.index
            return str(_device_code(value.const) | (index & 0xFF) << 8)
        if value.place is Place.ITEMS and len(value.items) == 2:
            kind, index = (self._int(name, cxx, item) for item in value.items)
            low = self.f.value(f"and i64 {kind}, 255")
            high = self.f.value(f"shl i64 {self.f.value(f'and i64 {index}, 255')}, 8")
            return self.f.value(f"or i64 {low}, {high}")
        unsupported(self.operator, name, cxx, value)

    def make_device(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return [self._device(name, cxx, value)]

    def make_optional_device(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        if value.kind == "none":
            return ["0"]
        return [self.f.value(f"or i64 {self._device(name, cxx, value)}, {1 << 16}")]

    # ----------------------------------------------------------------------------------------------------------- scalars

    def _scalar_words(self, name: str, cxx: CxxType, value: Value) -> tuple[int, str, int | None]:
        """Tag, payload register, and the payload where it is known."""
        if value.kind not in ("int", "float", "bool"):
            unsupported(self.operator, name, cxx, value)
        tag = {"int": torch_layouts.SCALAR_INT, "float": torch_layouts.SCALAR_DOUBLE, "bool": torch_layouts.SCALAR_BOOL}[value.kind]
        if value.place is Place.CONST:
            known = int(double(float(value.const)), 16) if value.kind == "float" else int(value.const) & (1 << 64) - 1
            return tag, "", known
        if value.kind == "float":
            return tag, self.f.value(f"bitcast double {self.f.scalar(value)} to i64"), None
        return tag, self._int(name, cxx, value), None

    def _store_scalar(self, base: str, offset: int, name: str, cxx: CxxType, value: Value) -> None:
        tag, reg, known = self._scalar_words(name, cxx, value)
        self.f.store("i64", str(tag), base, offset + torch_layouts.SCALAR_TAG)
        self.f.store("i64", reg if known is None else str(known - (1 << 64) if known >> 63 else known), base,
                     offset + torch_layouts.SCALAR_VALUE)

    def make_scalar(self, name: str, cxx: CxxType, value: Value) -> str:
        if value.place is Place.CONST:
            tag, _, known = self._scalar_words(name, cxx, value)
            return self.f.constant([tag, 0, known or 0, 0], align=16)
        base = self.f.temporary(4, align=2)
        self._store_scalar(base, 0, name, cxx, value)
        return base

    def make_optional_scalar(self, name: str, cxx: CxxType, value: Value) -> str:
        if value.kind == "none":
            return self.f.constant([0] * 6, align=16)
        base = self.f.temporary(6, align=2)
        self._store_scalar(base, 0, name, cxx, value)
        self.f.store("i64", "1", base, torch_layouts.SCALAR_SIZE)
        return base

    def make_scalar_list(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        items = self._items(name, cxx, value)
        base = self.f.temporary(max(4 * len(items), 1), align=2)
        for index, item in enumerate(items):
            self._store_scalar(base, torch_layouts.SCALAR_SIZE * index, name, cxx, item)
        return [self._word(base), str(len(items))]

    # ------------------------------------------------------------------------------------------------------------- lists

    def _items(self, name: str, cxx: CxxType, value: Value) -> list[Value]:
        if value.place is not Place.ITEMS:
            unsupported(self.operator, name, cxx, value)
        return value.items

    def _word(self, pointer: str) -> str:
        return self.f.value(f"ptrtoint ptr {pointer} to i64")

    def _numbers(self, name: str, cxx: CxxType, value: Value, kind: str) -> list[str]:
        """ArrayRef of int64, SymInt or double: pointer and length. An int stands for a list of one, as in Python."""
        items = [value] if value.kind in ("int", "float", "bool") else self._items(name, cxx, value)
        if not items:
            return ["0", "0"]
        if kind == "int" and all(item.place is Place.CONST and item.kind in ("int", "bool") for item in items):
            if cxx.kind.endswith("symint_list"):
                for item in items:
                    self._symint(name, cxx, item)
            return [self._word(self.f.constant([int(item.const) for item in items])), str(len(items))]
        base = self.f.temporary(len(items))
        for index, item in enumerate(items):
            if kind == "double":
                self.f.store("double", self._float(name, cxx, item), base, 8 * index)
            else:
                convert = self._symint if cxx.kind.endswith("symint_list") else self._int
                self.f.store("i64", convert(name, cxx, item), base, 8 * index)
        return [self._word(base), str(len(items))]

    def make_int_list(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return self._numbers(name, cxx, value, "int")

    make_symint_list = make_int_list

    def make_optional_int_list(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return ["0", "0", "0"] if value.kind == "none" else [*self._numbers(name, cxx, value, "int"), "1"]

    make_optional_symint_list = make_optional_int_list

    def make_optional_double_list(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return ["0", "0", "0"] if value.kind == "none" else [*self._numbers(name, cxx, value, "double"), "1"]

    def make_bool_array(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        items = self._items(name, cxx, value)
        if len(items) != cxx.size or any(item.kind != "bool" for item in items):
            unsupported(self.operator, name, cxx, value)
        word = str(sum(int(item.const) << 8 * n for n, item in enumerate(items) if item.place is Place.CONST))
        for n, item in enumerate(items):
            if item.place is not Place.CONST:
                byte = self.f.value(f"shl i64 {self._int(name, cxx, item)}, {8 * n}")
                word = self.f.value(f"or i64 {word}, {byte}")
        return [word]

    # ----------------------------------------------------------------------------------------------------------- strings

    def make_string(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        if value.kind != "str" or value.place is not Place.CONST:
            unsupported(self.operator, name, cxx, value)
        data = value.const.encode()
        return [str(len(data)), self._word(self.f.constant_bytes(data))]

    def make_optional_string(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        return ["0", "0", "0"] if value.kind == "none" else [*self.make_string(name, cxx, value), "1"]

    # ----------------------------------------------------------------------------------------------------------- tensors

    def make_tensor(self, name: str, cxx: CxxType, value: Value) -> str:
        if value.kind != "tensor":
            unsupported(self.operator, name, cxx, value)
        return self.f.tensor(value)

    def make_optional_tensor(self, name: str, cxx: CxxType, value: Value) -> str:
        if value.kind == "none":
            return self.f.constant([0, 0])
        base = self.f.temporary(2)
        self.f.store("ptr", self.f.load(self.make_tensor(name, cxx, value)), base)
        self.f.store("i64", "1", base, 8)
        return base

    def _tensor_array(self, name: str, cxx: CxxType, value: Value, *, optional: bool = False) -> tuple[str, str]:
        """An array of borrowed TensorImpl* (null for none, where that is allowed), and its length."""
        if value.kind == "tensors" and value.place is Place.SLOT:
            base = self.f.slot_address(value.index)
            begin, end = self.f.load(base), self.f.load(base, 8)
            size = self.f.value(f"sub i64 {self._word(end)}, {self._word(begin)}")
            return begin, self.f.value(f"lshr i64 {size}, 3")
        items = self._items(name, cxx, value)
        base = self.f.temporary(max(len(items), 1))
        for index, item in enumerate(items):
            none = optional and item.kind == "none"
            self.f.store("ptr", "null" if none else self.f.load(self.make_tensor(name, cxx, item)), base, 8 * index)
        return base, str(len(items))

    def make_tensor_list(self, name: str, cxx: CxxType, value: Value) -> list[str]:
        base, count = self._tensor_array(name, cxx, value)
        return [self._word(base), count]

    def make_ilist(self, name: str, cxx: CxxType, value: Value) -> str:
        """IListRef over an ArrayRef: its pointer and length, and the tag."""
        base, count = self._tensor_array(name, cxx, value)
        out = self.f.temporary(torch_layouts.ILIST_SIZE // 8)
        self.f.store("ptr", base, out)
        self.f.store("i64", count, out, 8)
        self.f.store("i64", str(torch_layouts.ILIST_UNBOXED), out, torch_layouts.ILIST_TAG)
        return out

    def make_optional_tensor_list(self, name: str, cxx: CxxType, value: Value) -> str:
        """A c10::List of its own, in a slot."""
        base, count = self._tensor_array(name, cxx, value, optional=True)
        holder = Value("other")
        address = self.f.own(holder, SlotKind.LIST)
        self.f.call("trident_optional_list", "void", f"ptr {address}", f"ptr {base}", f"i64 {count}")
        self._owned.append(holder)
        return address
