"""Lowering of ATen operators: arguments made as the C++ entry wants them, the call, and its results.

Owns one rule for all operators, and one conversion per kind of C++ parameter. What must hold: nothing is passed that the table in
`native.aten_abi` does not describe; an operand that does not fit its parameter is refused at compile time.

May import: lowering.*, native.aten_abi, native.frame, native.keys, native.torch_layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from trident.backend.lowering.arguments import Conversions, unsupported
from trident.backend.lowering.function import Function
from trident.backend.lowering.rules import ATEN, LoweringError, rule
from trident.backend.lowering.values import Op, Place, Value
from trident.backend.native import aten_abi, engine, keys, torch_layouts
from trident.backend.native.aten_abi import AtenSignature, CxxType, Passing, ResultKind, UnsupportedOperator
from trident.backend.native.frame import SlotKind

_INTEGER_REGISTERS: Final = 6
_SSE_REGISTERS: Final = 8
WRAPPED_NUMBER: Final = "trident::wrapped_number"
_SCALAR_TENSOR: Final = "_ZN2at6detail20scalar_tensor_staticERKN3c106ScalarESt8optionalINS1_10ScalarTypeEES5_INS1_6DeviceEE"
_CPU: Final = 0xFF00
_HAS_TYPE, _HAS_DEVICE = 1 << 8, 1 << 16
_NUMBER_TYPES: Final = {"int": 4, "float": 7, "bool": 11}
_RESULT_KINDS: Final = {ResultKind.TENSOR: "tensor", ResultKind.ALIAS: "tensor", ResultKind.TENSORS: "tensors",
                        ResultKind.INT: "int", ResultKind.SMALL: "int", ResultKind.SYMINT: "int", ResultKind.BOOL: "bool",
                        ResultKind.DOUBLE: "float"}


def supports(name: str, overload: str) -> bool:
    """Whether native code can call an ATen operator: `name` is "add" (or "aten::add", "aten.add"), `overload` is "Tensor" or "".

    The name WRAPPED_NUMBER asks for the making of tensors from numbers."""
    if name == WRAPPED_NUMBER:
        return torch_layouts.current().wrapped_mask != 0 and engine.find_symbol(_SCALAR_TENSOR) != 0
    for prefix in ("aten::", "aten."):
        name = name.removeprefix(prefix)
    return aten_abi.supports(name, "" if overload == "default" else overload)


class _Call:
    """The arguments of one call, counted as System V counts registers."""

    def __init__(self, f: Function) -> None:
        self.f = f
        self.arguments: list[str] = []
        self.declared: list[str] = []
        self.integers = 0
        self.floats = 0

    def _add(self, kind: str, value: str) -> None:
        self.arguments.append(f"{kind} {value}")
        self.declared.append(kind)

    def pointer(self, address: str) -> None:
        self.integers += 1
        self._add("ptr", address)

    def words(self, values: list[str]) -> None:
        """INTEGER eightbytes. An aggregate is never split between registers and the stack."""
        if len(values) > 1 and self.integers + len(values) > _INTEGER_REGISTERS:
            self.memory(values)
            return
        self.integers += len(values)
        for value in values:
            self._add("i64", value)

    def memory(self, values: list[str]) -> None:
        """A copy on the stack."""
        base = self.f.temporary(len(values))
        for index, value in enumerate(values):
            self.f.store("i64", value, base, 8 * index)
        self._add(f"ptr byval([{len(values)} x i64]) align 8", base)

    def double(self, value: str) -> None:
        self.floats += 1
        self._add("double", value)

    def optional_double(self, value: str, flag: str) -> None:
        if self.integers + 1 > _INTEGER_REGISTERS or self.floats + 1 > _SSE_REGISTERS:
            self.memory([self.f.value(f"bitcast double {value} to i64"), flag])
            return
        self.floats += 1
        self.integers += 1
        self._add("double", value)
        self._add("i64", flag)


    def argument(self, cxx: CxxType, made: Any) -> None:
        """Pass what a conversion has made."""
        match cxx.passing:
            case Passing.POINTER:
                self.pointer(made)
            case Passing.DOUBLE:
                self.double(made)
            case Passing.OPT_DOUBLE:
                self.optional_double(*made)
            case Passing.MEMORY:
                self.memory(made)
            case Passing.WORDS:
                self.words(made)


class _Invocation:
    """The call of an operator, with its arguments made."""

    def __init__(self, f: Function, op: Op, found: AtenSignature, conversions: Conversions, result: _Result) -> None:
        self.f = f
        self.found = found
        self.result = result
        self.made = [(argument.type, getattr(conversions, f"make_{argument.type.kind}")(argument.name, argument.type, operand))
                     for argument, operand in zip(found.arguments, op.operands, strict=True)]
        self.tensors = [value for argument, value in zip(found.arguments, op.operands, strict=True)
                        if argument.type.kind in keys.TENSORS and value.kind == "tensor"]

    def _call(self, symbol: str, site: int, *key_set: str) -> str:
        call = _Call(self.f)
        if self.found.hidden_result:
            call.pointer(self.result.address)
        call.words(list(key_set))
        for cxx, made in self.made:
            call.argument(cxx, made)
        return self.f.may_throw(symbol, self.result.returned, call.arguments, site, ", ".join(call.declared))

    def through_dispatcher(self, site: int) -> str:
        """The register of the result, "" where it comes through memory."""
        return self._call(self.found.symbol, site)

    def below_autograd(self, site: int, below: keys.BelowAutograd) -> str:
        """The same where the test says at run time that the autograd kernel would do nothing, else through the dispatcher."""
        f = self.f
        fast, slow, on = f.new_label(), f.new_label(), f.new_label()
        tensors = [f"ptr {f.tensor(value)}" for value in self.tensors]
        known = "ptr %frame", f"ptr {f.pointer(below.entry)}", f"ptr {f.pointer(below.slot)}", f"i64 {below.kernel}"
        key_set = f.call(f"trident_below{len(tensors)}", "i64", *known, *tensors)
        f.line(f"br i1 {f.value(f'icmp eq i64 {key_set}, 0')}, label %{slow}, label %{fast}")
        f.block(fast)
        self._call(below.symbol, site, key_set)
        f.call("trident_below_done", "void", "ptr %frame")
        f.line(f"br label %{on}")
        f.block(slow)
        self.through_dispatcher(site)
        f.line(f"br label %{on}")
        f.block(on)
        return ""


@rule(ATEN, leaves=True)
def aten(f: Function, op: Op) -> None:
    try:
        found = aten_abi.signature(*aten_abi.split_name(op.name))
    except UnsupportedOperator as error:
        raise LoweringError(str(error)) from None
    if len(op.operands) != len(found.arguments):
        raise LoweringError(f"{found.name} takes {len(found.arguments)} arguments, not {len(op.operands)}")
    if f.state < 0:
        raise LoweringError(f"{found.name}: no trident.state before it, so there is nowhere to deliver its exceptions")
    _check_results(op, found)
    f.drop_gil()
    conversions = Conversions(f, op, found.name)
    result = _RESULTS[found.result](f, op, found)
    invocation = _Invocation(f, op, found, conversions, result)
    site = f.site(op.name.removeprefix("torch."), is_raise=True, slots=result.slots)
    f.hear_warnings()
    below = keys.below_autograd(found) if invocation.tensors else None
    reg = invocation.through_dispatcher(site) if below is None else invocation.below_autograd(site, below)
    conversions.release()
    result.finish(reg)
    # A warning that a filter makes an error is thrown at the same site, with the results in place.
    f.call("trident_warned", "void", "ptr %frame")


def _check_results(op: Op, found: AtenSignature) -> None:
    kinds = [_RESULT_KINDS.get(kind) for kind in (found.elements or (found.result,))]
    if found.result is ResultKind.VOID:
        kinds = []
    elif found.result is ResultKind.ALIASES:
        kinds = ["tensor"] * len(found.aliases)
    elif found.result is ResultKind.SCALAR:
        kinds = [op.results[0].kind if op.results and op.results[0].kind in ("int", "float", "bool") else "int, float or bool"]
    if [r.kind for r in op.results] != kinds:
        raise LoweringError(f"{found.name} gives ({', '.join(map(str, kinds))}), not ({', '.join(r.kind for r in op.results)})")


# ------------------------------------------------------------------------------------------------------------------- results


class _Result:
    """address: of the hidden result; returned: the LLVM result type; slots: what a throwing call may leave garbage in."""

    def __init__(self, returned: str, finish: Callable[[str], None], address: str = "", slots: tuple[int, int] = (0, 0)) -> None:
        self.returned = returned
        self.finish = finish
        self.address = address
        self.slots = slots


def _void(f: Function, op: Op, found: AtenSignature) -> _Result:
    return _Result("void", lambda reg: None)


def _tensor(f: Function, op: Op, found: AtenSignature) -> _Result:
    result = op.results[0]
    address = f.own(result, SlotKind.TENSOR)
    return _Result("void", lambda reg: None, address, (result.index, 1))


def _tensors(f: Function, op: Op, found: AtenSignature) -> _Result:
    result = op.results[0]
    address = f.own(result, SlotKind.VECTOR)
    return _Result("void", lambda reg: None, address, (result.index, 3))


def _alias(f: Function, op: Op, found: AtenSignature) -> _Result:
    """The results are arguments: nothing new is owned."""
    for result, index in zip(op.results, found.aliases, strict=True):
        operand = op.operands[index]
        result.same_as(operand)
    if found.result is ResultKind.ALIAS:
        return _Result("ptr", lambda reg: None)
    return _Result("void", lambda reg: None, f.temporary(len(found.aliases)))


def _number(f: Function, op: Op, found: AtenSignature) -> _Result:
    result = op.results[0]
    match found.result:
        case ResultKind.INT:
            return _Result("i64", lambda reg: f.define(result, reg))
        case ResultKind.SMALL:
            return _Result("signext i8", lambda reg: f.define(result, f.value(f"sext i8 {reg} to i64")))
        case ResultKind.BOOL:
            return _Result("zeroext i1", lambda reg: f.define(result, reg))
        case ResultKind.DOUBLE:
            return _Result("double", lambda reg: f.define(result, reg))
    address = f.temporary(1)
    return _Result("void", lambda reg: _symint(f, op, result, f.load(address, kind="i64")), address)


def _symint(f: Function, op: Op, result: Value, word: str) -> None:
    f.leave_unless(f.value(f"icmp sgt i64 {word}, {torch_layouts.SYMINT_LIMIT}"), f.site(op.name))
    f.define(result, word)


def _scalar(f: Function, op: Op, found: AtenSignature) -> _Result:
    """A Scalar of the kind that the trace expects; the trace is left for any other."""
    result = op.results[0]
    address = f.temporary(torch_layouts.SCALAR_SIZE // 8, align=2)
    tags = {"int": torch_layouts.SCALAR_INT, "float": torch_layouts.SCALAR_DOUBLE, "bool": torch_layouts.SCALAR_BOOL}

    def finish(reg: str) -> None:
        tag = f.load(address, torch_layouts.SCALAR_TAG, "i32")
        f.leave_unless(f.value(f"icmp eq i32 {tag}, {tags[result.kind]}"), f.site(op.name))
        if result.kind == "bool":
            byte = f.load(address, torch_layouts.SCALAR_VALUE, "i8")
            f.define(result, f.value(f"icmp ne i8 {byte}, 0"))
        else:
            f.define(result, f.load(address, torch_layouts.SCALAR_VALUE, "i64" if result.kind == "int" else "double"))

    return _Result("void", finish, address)


def _tuple(f: Function, op: Op, found: AtenSignature) -> _Result:
    """std::tuple, whose members lie in reverse order in libstdc++. They are moved into their slots."""
    sizes = [3 if kind is ResultKind.TENSORS else 1 for kind in found.elements]
    offsets = [sum(sizes[index + 1:]) for index in range(len(sizes))]
    address = f.temporary(sum(sizes))

    def finish(reg: str) -> None:
        for result, kind, offset in zip(op.results, found.elements, offsets, strict=True):
            if kind in (ResultKind.TENSOR, ResultKind.TENSORS):
                slot = f.own(result, SlotKind.TENSOR if kind is ResultKind.TENSOR else SlotKind.VECTOR)
                for word in range(1 if kind is ResultKind.TENSOR else 3):
                    f.store("i64", f.load(address, 8 * (offset + word), "i64"), slot, 8 * word)
        for result, kind, offset in zip(op.results, found.elements, offsets, strict=True):
            if kind is ResultKind.INT:
                _symint(f, op, result, f.load(address, 8 * offset, "i64"))
            elif kind is ResultKind.BOOL:
                f.define(result, f.value(f"icmp ne i8 {f.load(address, 8 * offset, 'i8')}, 0"))
            elif kind is ResultKind.DOUBLE:
                f.define(result, f.load(address, 8 * offset, "double"))

    return _Result("void", finish, address)


_RESULTS: Final[dict[ResultKind, Callable[[Function, Op, AtenSignature], _Result]]] = {
    ResultKind.VOID: _void, ResultKind.TENSOR: _tensor, ResultKind.TENSORS: _tensors, ResultKind.ALIAS: _alias,
    ResultKind.ALIASES: _alias, ResultKind.SCALAR: _scalar, ResultKind.TUPLE: _tuple, ResultKind.INT: _number,
    ResultKind.SMALL: _number, ResultKind.BOOL: _number, ResultKind.DOUBLE: _number, ResultKind.SYMINT: _number,
}


# ----------------------------------------------------------------------------------------------------- numbers as tensors


def _scalar_tensor(f: Function, op: Op, dtype: int) -> str:
    """Give the result a slot with a new tensor of the operand, a number; the slot's address."""
    if f.state < 0:
        raise LoweringError(f"{op.name}: no trident.state before it, so there is nowhere to deliver its exceptions")
    f.drop_gil()
    result = op.results[0]
    scalar = Conversions(f, op, op.name).make_scalar(
        "number", aten_abi.PARAMETERS["c10::Scalar const&"], op.operands[0])
    address = f.own(result, SlotKind.TENSOR)
    site = f.site(op.name, is_raise=True, slots=(result.index, 1))
    arguments = [f"ptr {address}", f"ptr {scalar}", f"i64 {dtype | _HAS_TYPE}", f"i64 {_CPU | _HAS_DEVICE}"]
    f.may_throw(_SCALAR_TENSOR, "void", arguments, site, "ptr, ptr, i64, i64")
    return address


@rule("trident.number_tensor", leaves=True)
def number_tensor(f: Function, op: Op) -> None:
    _scalar_tensor(f, op, op.integer("dtype"))


@rule("trident.wrapped_number", leaves=True)
def wrapped_number(f: Function, op: Op) -> None:
    """That of a constant is made once: nothing ever writes to it."""
    number, result = op.operands[0], op.results[0]
    if number.place is Place.CONST:
        tensor = torch_layouts.wrapped_number({"int": int, "float": float, "bool": bool}[number.kind](number.const))
        f.keep.append(tensor)
        holder = Value("object")
        holder.set_object(id(tensor))
        result.place, result.const = Place.BOXED, holder
        return
    layout = torch_layouts.current()
    if not layout.wrapped_mask:
        raise LoweringError("this torch keeps the mark of wrapped numbers at an unknown place")
    impl = f.load(_scalar_tensor(f, op, _NUMBER_TYPES[number.kind]))
    bits = f.load(impl, layout.wrapped, "i8")
    f.store("i8", f.value(f"or i8 {bits}, {layout.wrapped_mask - 256 if layout.wrapped_mask > 127 else layout.wrapped_mask}"), impl,
            layout.wrapped)


# ------------------------------------------------------------------------------------------------------- lists of results


@rule("trident.list_size")
def list_size(f: Function, op: Op) -> None:
    value = op.operands[0]
    if value.place is Place.ITEMS:
        op.results[0].set_const(len(value.items))
        return
    base = f.slot_address(value.index)
    begin, end = (f.value(f"ptrtoint ptr {f.load(base, offset)} to i64") for offset in (0, 8))
    f.define(op.results[0], f.value(f"lshr i64 {f.value(f'sub i64 {end}, {begin}')}, 3"))


@rule("trident.list_get", anchored=True)
def list_get(f: Function, op: Op) -> None:
    """The tensor stays in the list, which lives as long as it is used."""
    value, result, item = op.operands[0], op.results[0], op.integer("item")
    if value.place is Place.ITEMS:
        result.same_as(value.items[item])
        return
    element = f.at(f.load(f.slot_address(value.index)), 8 * item)
    result.place, result.index = Place.AT, f.new_slot(SlotKind.RAW)
    result.copy = result.index
    f.line(f"store ptr {element}, ptr {f.slot_address(result.index)}")


__all__ = ["aten", "supports", "unsupported"]
