"""How to call an ATen operator from native code: its symbol, its C++ parameter types, how each is passed, and its results.

Owns: the table of C++ parameter types (`PARAMETERS`) and what schema types each may stand for. What must hold: the mangled
symbol is the truth about the parameters and the schema the truth about the results; an operator whose symbol and schema do
not agree, or which has a type outside the table, is refused with a reason.

May import: errors, native.symbols. Uses torch for schemas.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

import torch

from trident.backend.native import symbols
from trident.errors import TridentError


class UnsupportedOperator(TridentError, NotImplementedError):
    """An operator (or one of its operands) that native code cannot call; the message says why."""


class Passing(Enum):
    """How System V x86-64 passes a parameter.

    WORDS  in registers, `words` eightbytes, all INTEGER class (one eightbyte for anything up to 8 bytes)
    DOUBLE one SSE register
    OPT_DOUBLE an SSE register (value) and an INTEGER register (flag)
    MEMORY a copy of `size` bytes on the stack (LLVM `byval`)
    POINTER a pointer to storage of the caller
    """

    WORDS = "words"
    DOUBLE = "double"
    OPT_DOUBLE = "optional double"
    MEMORY = "memory"
    POINTER = "pointer"


@dataclass(frozen=True, slots=True)
class CxxType:
    """One C++ parameter type. kind: name of the rule that makes its bits; schema: the schema types it may stand for."""

    name: str
    kind: str
    passing: Passing
    size: int
    schema: tuple[str, ...]

    @property
    def words(self) -> int:
        return (self.size + 7) // 8


_STRING = "std::basic_string_view<char, std::char_traits<char>>"
_W, _M, _P = Passing.WORDS, Passing.MEMORY, Passing.POINTER

_ROWS: Final = (
    CxxType("at::Tensor const&", "tensor", _P, 8, ("Tensor",)),
    CxxType("at::Tensor&", "tensor", _P, 8, ("Tensor",)),
    CxxType("std::optional<at::Tensor> const&", "optional_tensor", _P, 16, ("Optional[Tensor]",)),
    CxxType("c10::ArrayRef<at::Tensor>", "tensor_list", _W, 16, ("List[Tensor]",)),
    CxxType("c10::IListRef<at::Tensor> const&", "ilist", _P, 24, ("List[Tensor]",)),
    CxxType("c10::List<std::optional<at::Tensor>> const&", "optional_tensor_list", _P, 8, ("List[Optional[Tensor]]",)),
    CxxType("c10::Scalar const&", "scalar", _P, 32, ("number",)),
    CxxType("std::optional<c10::Scalar> const&", "optional_scalar", _P, 48, ("Optional[number]",)),
    CxxType("c10::ArrayRef<c10::Scalar>", "scalar_list", _W, 16, ("List[number]",)),
    CxxType("bool", "bool", _W, 1, ("bool",)),
    CxxType("long", "int", _W, 8, ("int",)),
    CxxType("c10::SymInt", "symint", _P, 8, ("int",)),
    CxxType("double", "double", Passing.DOUBLE, 8, ("float",)),
    CxxType("signed char", "small", _W, 1, ("int",)),
    CxxType("c10::ScalarType", "small", _W, 1, ("int",)),
    CxxType("c10::Layout", "small", _W, 1, ("int",)),
    CxxType("c10::MemoryFormat", "small", _W, 1, ("int",)),
    CxxType("c10::Device", "device", _W, 2, ("Device",)),
    CxxType("std::optional<bool>", "optional_small", _W, 2, ("Optional[bool]",)),
    CxxType("std::optional<c10::ScalarType>", "optional_small", _W, 2, ("Optional[int]",)),
    CxxType("std::optional<c10::Layout>", "optional_small", _W, 2, ("Optional[int]",)),
    CxxType("std::optional<c10::MemoryFormat>", "optional_small", _W, 2, ("Optional[int]",)),
    CxxType("std::optional<c10::Device>", "optional_device", _W, 3, ("Optional[Device]",)),
    CxxType("std::optional<long>", "optional_int", _W, 16, ("Optional[int]",)),
    CxxType("std::optional<c10::SymInt>", "optional_symint", _P, 16, ("Optional[int]",)),
    CxxType("std::optional<double>", "optional_double", Passing.OPT_DOUBLE, 16, ("Optional[float]",)),
    CxxType("c10::ArrayRef<long>", "int_list", _W, 16, ("List[int]",)),
    CxxType("c10::ArrayRef<c10::SymInt>", "symint_list", _W, 16, ("List[int]",)),
    CxxType("c10::OptionalArrayRef<long>", "optional_int_list", _M, 24, ("Optional[List[int]]",)),
    CxxType("c10::OptionalArrayRef<c10::SymInt>", "optional_symint_list", _M, 24, ("Optional[List[int]]",)),
    CxxType("std::optional<c10::ArrayRef<double>>", "optional_double_list", _M, 24, ("Optional[List[float]]",)),
    CxxType("std::array<bool, 2ul>", "bool_array", _W, 2, ("List[bool]",)),
    CxxType("std::array<bool, 3ul>", "bool_array", _W, 3, ("List[bool]",)),
    CxxType("std::array<bool, 4ul>", "bool_array", _W, 4, ("List[bool]",)),
    CxxType(_STRING, "string", _W, 16, ("str",)),
    CxxType(f"std::optional<{_STRING}>", "optional_string", _M, 24, ("Optional[str]",)),
    CxxType("std::optional<at::Generator>", "optional_generator", _P, 16, ("Optional[Generator]",)),
)

PARAMETERS: Final[dict[str, CxxType]] = {row.name: row for row in _ROWS}

REFUSED: Final[dict[str, str]] = {
    "c10::Storage": "takes a Storage",
    "c10::Stream": "takes a Stream",
    "at::Dimname": "takes a dimension name",
    "c10::ArrayRef<at::Dimname>": "takes dimension names",
    "std::optional<c10::ArrayRef<at::Dimname>>": "takes dimension names",
}


class ResultKind(Enum):
    """What a call gives back.

    TENSOR, SCALAR, TENSORS, TUPLE come through a hidden first pointer; ALIAS is a reference to an argument; INT, BOOL and
    DOUBLE are in a register, SMALL (an enumeration of one byte) too; SYMINT is an int64 through a hidden first pointer;
    ALIASES is a tuple of references, through a hidden first pointer and not needed.
    """

    VOID = "void"
    TENSOR = "tensor"
    ALIAS = "alias"
    TENSORS = "tensors"
    SCALAR = "scalar"
    INT = "int"
    BOOL = "bool"
    DOUBLE = "double"
    SMALL = "small"
    SYMINT = "symint"
    TUPLE = "tuple"
    ALIASES = "aliases"


@dataclass(frozen=True, slots=True)
class Argument:
    """A parameter with its schema name."""

    name: str
    type: CxxType


@dataclass(frozen=True, slots=True)
class AtenSignature:
    """One operator.

    result: kind of the whole result; elements: kinds of the members of a TUPLE; aliases: for ALIAS and ALIASES the index of
    the argument that each result is. returns: number of IR results.
    """

    name: str
    symbol: str
    arguments: tuple[Argument, ...]
    result: ResultKind
    elements: tuple[ResultKind, ...] = ()
    aliases: tuple[int, ...] = ()

    @property
    def returns(self) -> int:
        match self.result:
            case ResultKind.VOID:
                return 0
            case ResultKind.TUPLE:
                return len(self.elements)
            case ResultKind.ALIASES:
                return len(self.aliases)
        return 1

    @property
    def hidden_result(self) -> bool:
        return self.result in _HIDDEN


_HIDDEN: Final = frozenset({ResultKind.TENSOR, ResultKind.TENSORS, ResultKind.SCALAR, ResultKind.TUPLE, ResultKind.ALIASES,
                            ResultKind.SYMINT})

_RESULTS: Final[dict[str, ResultKind]] = {
    "Tensor": ResultKind.TENSOR, "List[Tensor]": ResultKind.TENSORS, "number": ResultKind.SCALAR, "int": ResultKind.INT,
    "bool": ResultKind.BOOL, "float": ResultKind.DOUBLE,
}
# A single int result whose printed schema type differs: `str(type)` calls all of them int.
_PRINTED_RESULTS: Final = {"SymInt": ResultKind.SYMINT, "ScalarType": ResultKind.SMALL, "Layout": ResultKind.SMALL,
                           "MemoryFormat": ResultKind.SMALL}
_TUPLE_ELEMENTS: Final = frozenset({ResultKind.TENSOR, ResultKind.INT, ResultKind.DOUBLE, ResultKind.BOOL, ResultKind.TENSORS})

# Names that the frontend may put before the operator.
_NAMESPACES: Final = ("aten::", "aten.", "torch.aten.")


def split_name(full: str) -> tuple[str, str]:
    """`aten.add.Tensor` or `torch.aten.add.Tensor` -> (`add`, `Tensor`)."""
    for prefix in _NAMESPACES:
        if full.startswith(prefix):
            op, _, overload = full[len(prefix):].partition(".")
            return op, overload
    raise UnsupportedOperator(f"{full} is not an aten operator")


@cache
def signature(op: str, overload: str) -> AtenSignature:
    """How to call `aten::<op>.<overload>`; UnsupportedOperator with the reason where native code cannot."""
    full = f"aten::{op}.{overload}" if overload else f"aten::{op}"
    symbol = symbols.operator_entries().get(symbols.cxx_name(op, overload))
    if symbol is None:
        raise UnsupportedOperator(f"{full} has no dispatcher entry in libtorch_cpu")
    try:
        schema = torch._C._get_schema(f"aten::{op}", overload)
        cxx = symbols.parameter_types(symbol)
    except (RuntimeError, symbols.MangledError) as error:
        raise UnsupportedOperator(f"{full}: {error}") from None
    if len(schema.arguments) != len(cxx):
        raise UnsupportedOperator(f"{full}: the schema has {len(schema.arguments)} arguments, the C++ entry {len(cxx)}")
    arguments = tuple(_argument(full, a, c) for a, c in zip(schema.arguments, cxx, strict=True))
    result, elements, aliases = _results(full, schema)
    return AtenSignature(full, symbol, arguments, result, elements, aliases)


def _argument(full: str, argument: object, cxx: str) -> Argument:
    name = argument.name  # type: ignore[attr-defined]
    if cxx in REFUSED:
        raise UnsupportedOperator(f"{full}: argument {name} {REFUSED[cxx]}")
    row = PARAMETERS.get(cxx)
    if row is None:
        raise UnsupportedOperator(f"{full}: argument {name} has the unknown C++ type {cxx}")
    kind = str(argument.type)  # type: ignore[attr-defined]
    if _plain(kind) not in row.schema:
        raise UnsupportedOperator(f"{full}: argument {name} is {kind} in the schema and {cxx} in C++")
    return Argument(name, row)


def _plain(schema_type: str) -> str:
    """A schema type as `torch._C` prints it, with the enumerations that it prints as int (or by name) made one."""
    for name in ("ScalarType", "Layout", "MemoryFormat", "SymInt"):
        schema_type = schema_type.replace(name, "int")
    return schema_type.replace("Scalar", "number")


def _results(full: str, schema: object) -> tuple[ResultKind, tuple[ResultKind, ...], tuple[int, ...]]:
    returns = schema.returns  # type: ignore[attr-defined]
    written = [r.alias_info is not None and r.alias_info.is_write for r in returns]
    if not returns:
        return ResultKind.VOID, (), ()
    if any(written):
        if not all(written):
            raise UnsupportedOperator(f"{full} returns both new and given tensors")
        aliases = tuple(_aliased(full, schema, r) for r in returns)
        return (ResultKind.ALIAS if len(aliases) == 1 else ResultKind.ALIASES), (), aliases
    kinds = tuple(_RESULTS.get(_plain(str(r.type)), ResultKind.VOID) for r in returns)
    if ResultKind.VOID in kinds:
        raise UnsupportedOperator(f"{full} returns {', '.join(str(r.type) for r in returns)}")
    if len(kinds) == 1:
        return _PRINTED_RESULTS.get(str(schema).rpartition(" -> ")[2], kinds[0]), (), ()
    if not _TUPLE_ELEMENTS.issuperset(kinds):
        raise UnsupportedOperator(f"{full} returns {', '.join(str(r.type) for r in returns)}")
    return ResultKind.TUPLE, kinds, ()


def _aliased(full: str, schema: object, result: object) -> int:
    """Index of the argument that a written result is."""
    names = set(result.alias_info.before_set)  # type: ignore[attr-defined]
    found = [n for n, a in enumerate(schema.arguments)  # type: ignore[attr-defined]
             if a.alias_info is not None and a.alias_info.is_write and set(a.alias_info.before_set) == names]
    if len(found) != 1:
        raise UnsupportedOperator(f"{full}: cannot tell which argument a result is")
    return found[0]


@cache
def supports(op: str, overload: str) -> bool:
    """Whether native code can call `aten::<op>.<overload>` (with operands of the kinds that the lowering knows)."""
    try:
        signature(op, overload)
    except UnsupportedOperator:
        return False
    return True
