"""Lowering of calls into Python and of Python containers.

Owns these rules. What must hold: every new reference has a slot before anything can leave the trace; borrowed items of mutable
containers are made owned at once.

May import: lowering.*, native.frame, native.pin_layout.
"""

from __future__ import annotations

from collections.abc import Sequence

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.objects import new_object
from trident.backend.lowering.rules import rule
from trident.backend.lowering.values import Op, Value
from trident.backend.native import dict_runtime, pin_layout
from trident.backend.native.frame import SlotKind


class _Boxed:
    """Arguments as Python objects; the new ones are in slots until `release`."""

    def __init__(self, f: Function, op: Op, values: Sequence[Value]) -> None:
        self.f = f
        self.regs: list[str] = []
        self.fresh: list[Value] = []
        for value in values:
            reg, fresh = new_object(f, value, op)
            if fresh:
                holder = Value("object")
                f.own_object(holder, reg)
                self.fresh.append(holder)
            self.regs.append(reg)

    def array(self, lead: int = 0) -> str:
        """The objects in an array on the stack, after `lead` free words."""
        base = self.f.temporary(max(len(self.regs) + lead, 1))
        for index, reg in enumerate(self.regs):
            self.f.store("ptr", reg, base, 8 * (index + lead))
        return self.f.at(base, 8 * lead)

    def release(self) -> None:
        for holder in self.fresh:
            address = self.f.slot_address(holder.index)
            reg = self.f.value(f"load ptr, ptr {address}")
            self.f.line(f"store ptr null, ptr {address}")
            self.f.give_up(holder)
            self.f.call("Py_DecRef", "void", f"ptr {reg}")

    def steal(self, index: int) -> str:
        """Item `index` as a reference of the taker's own."""
        reg = self.regs[index]
        self.f.call("Py_IncRef", "void", f"ptr {reg}")
        return reg


def vectorcall(f: Function, op: Op) -> str:
    """Call the first operand with the others; the result (a reference), NULL with an exception set."""
    names = tuple(op.texts("kwnames"))
    callee, arguments = f.object(op.operands[0]), _Boxed(f, op, op.operands[1:])
    array = arguments.array(lead=1)
    kwnames = "null"
    if names:
        f.keep.append(names)
        kwnames = f.pointer(id(names))
    # The word before the array is free for the callee (PY_VECTORCALL_ARGUMENTS_OFFSET).
    count = (len(arguments.regs) - len(names)) | 1 << 63
    result = f.call("PyObject_Vectorcall", "ptr", f"ptr {callee}", f"ptr {array}", f"i64 {count - (1 << 64)}", f"ptr {kwnames}")
    arguments.release()
    return result


@rule("trident.call", leaves=True)
def call(f: Function, op: Op) -> None:
    f.need_gil()
    result = vectorcall(f, op)
    f.raise_if_null(result, op)
    f.own_object(op.results[0], result)


# ---------------------------------------------------------------------------------------------------------------- containers


def _sequence(name: str, new: str, items_pointer: bool) -> None:
    @rule(f"trident.{name}", leaves=True)
    def emit(f: Function, op: Op) -> None:
        f.need_gil()
        items = _Boxed(f, op, op.operands)
        made = f.call(new, "ptr", f"i64 {len(op.operands)}")
        f.raise_if_null(made, op)
        base = f.load(made, pin_layout.LIST_ITEMS) if items_pointer else f.at(made, pin_layout.TUPLE_ITEMS)
        for index in range(len(op.operands)):
            f.store("ptr", items.steal(index), base, 8 * index)
        items.release()
        f.own_object(op.results[0], made)


_sequence("build_tuple", "PyTuple_New", items_pointer=False)
_sequence("build_list", "PyList_New", items_pointer=True)


@rule("trident.build_dict", leaves=True)
def build_dict(f: Function, op: Op) -> None:
    f.need_gil()
    items = _Boxed(f, op, op.operands)
    made = f.call("PyDict_New", "ptr")
    f.raise_if_null(made, op)
    f.own_object(op.results[0], made)
    for index in range(0, len(items.regs), 2):
        status = f.call("PyDict_SetItem", "i32", f"ptr {made}", f"ptr {items.regs[index]}", f"ptr {items.regs[index + 1]}")
        f.leave_if(f.value(f"icmp ne i32 {status}, 0"), f.site(op.name, is_raise=True), RAISE)
    items.release()


@rule("trident.build_slice", leaves=True)
def build_slice(f: Function, op: Op) -> None:
    f.need_gil()
    made = f.call("PySlice_New", "ptr", *(f"ptr {f.object(operand)}" for operand in op.operands))
    f.raise_if_null(made, op)
    f.own_object(op.results[0], made)


@rule("trident.tuple_len", "trident.list_len", "trident.dict_len")
def length(f: Function, op: Op) -> None:
    f.define(op.results[0], f.load(f.object(op.operands[0]), pin_layout.SIZE, "i64"))


@rule("trident.tuple_item")
def tuple_item(f: Function, op: Op) -> None:
    container = op.operands[0]
    item = f.load(f.object(container), pin_layout.TUPLE_ITEMS + 8 * op.integer("item"))
    if container.steady:
        # A tuple never changes: its items live as long as it does.
        f.borrow_object(op.results[0], item)
    else:
        _keep(f, op, item)


def _keep(f: Function, op: Op, reg: str) -> None:
    """Own a borrowed object."""
    f.need_gil()
    f.call("Py_IncRef", "void", f"ptr {reg}")
    f.own_object(op.results[0], reg)


@rule("trident.list_item", leaves=True)
def list_item(f: Function, op: Op) -> None:
    """The length was guarded, but code may have run since: memory is not read on trust."""
    f.need_gil()
    size = f.load(f.object(op.operands[0]), pin_layout.SIZE, "i64")
    f.leave_unless(f.value(f"icmp ugt i64 {size}, {op.integer('item')}"), f.site(op.name))
    _keep(f, op, f.load(f.load(f.object(op.operands[0]), pin_layout.LIST_ITEMS), 8 * op.integer("item")))


@rule("trident.tuple_at", "trident.list_at", leaves=True)
def item_at(f: Function, op: Op) -> None:
    """An item at a run-time index."""
    f.need_gil()
    container, index = f.object(op.operands[0]), f.scalar(op.operands[1])
    size = f.load(container, pin_layout.SIZE, "i64")
    f.leave_unless(f.value(f"icmp ugt i64 {size}, {index}"), f.site(op.name))
    is_list = op.name == "trident.list_at"
    items = f.load(container, pin_layout.LIST_ITEMS) if is_list else f.at(container, pin_layout.TUPLE_ITEMS)
    _keep(f, op, f.load(f.value(f"getelementptr i64, ptr {items}, i64 {index}")))


def _lookup(f: Function, op: Op) -> str:
    """The value under a str key, borrowed, or NULL. Errors in foreign keys' comparisons count as absence."""
    f.need_gil()
    key = f.pointer(id(f.trace.constants[op.integer("index")]))
    return f.call("PyDict_GetItem", "ptr", f"ptr {f.object(op.operands[0])}", f"ptr {key}")


@rule("trident.instance_dict", leaves=True)
def instance_dict(f: Function, op: Op) -> None:
    f.need_gil()
    found = f.call("PyObject_GenericGetDict", "ptr", f"ptr {f.object(op.operands[0])}", "ptr null")
    failed = f.call("trident_forget_error", "i1", f"i1 {f.value(f'icmp eq ptr {found}, null')}")
    f.leave_if(failed, f.site(op.name))
    f.own_object(op.results[0], found)


@rule("trident.dict_has")
def dict_has(f: Function, op: Op) -> None:
    f.define(op.results[0], f.value(f"icmp ne ptr {_lookup(f, op)}, null"))


@rule("trident.dict_keys_are")
def dict_keys_are(f: Function, op: Op) -> None:
    f.need_gil()
    dict_runtime.load()
    keys = f.pointer(id(f.trace.constants[op.integer("index")]))
    f.define(op.results[0], f.call(dict_runtime.KEYS_ARE, "i1", f"ptr {f.object(op.operands[0])}", f"ptr {keys}"))


@rule("trident.odict_keys_are", leaves=True)
def odict_keys_are(f: Function, op: Op) -> None:
    f.need_gil()
    dict_runtime.load()
    keys = f.pointer(id(f.trace.constants[op.integer("index")]))
    found = f.call("PySequence_Tuple", "ptr", f"ptr {f.object(op.operands[0])}")
    failed = f.call("trident_forget_error", "i1", f"i1 {f.value(f'icmp eq ptr {found}, null')}")
    f.leave_if(failed, f.site(op.name))
    f.define(op.results[0], f.call(dict_runtime.STRINGS_ARE, "i1", f"ptr {found}", f"ptr {keys}"))


@rule("trident.dict_item", leaves=True)
def dict_item(f: Function, op: Op) -> None:
    """Its presence was guarded, but code may have run since."""
    found = _lookup(f, op)
    f.leave_if(f.value(f"icmp eq ptr {found}, null"), f.site(op.name))
    _keep(f, op, found)


@rule("trident.cell_get", leaves=True)
def cell_get(f: Function, op: Op) -> None:
    f.need_gil()
    contents = f.load(f.object(op.operands[0]), pin_layout.CELL_CONTENTS)
    f.leave_if(f.value(f"icmp eq ptr {contents}, null"), f.site(op.name))
    _keep(f, op, contents)


@rule("trident.cell_set")
def cell_set(f: Function, op: Op) -> None:
    f.need_gil()
    f.call("PyCell_Set", "i32", f"ptr {f.object(op.operands[0])}", f"ptr {f.object(op.operands[1])}")


__all__ = ["SlotKind", "call"]
