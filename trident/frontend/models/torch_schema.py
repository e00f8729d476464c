"""Which ATen operator and overload a Python-level torch call reaches, and with what for every argument of its schema.

Owns the rules of torch's argument parser (torch/csrc/utils/python_arg_parser.cpp) and of the order in which torchgen lists
the signatures of a name, applied to the schemas of the running dispatcher. What must hold: `bind` returns a binding only when
the parser certainly chooses that overload; anything it is unsure of (number-like objects, tensor subclasses, tensors where a
number is wanted, deprecated signatures, named tensors, `out=`) is None. It is pure: it looks at types and never calls torch.

May import: torch, the standard library.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import torch

TENSOR_TYPES: tuple[type, ...] = (torch.Tensor, torch.nn.Parameter)

# Python types that stand for a dtype (THPPythonScalarType_Check).
PYTHON_DTYPES: dict[type, torch.dtype] = {float: torch.float64, int: torch.int64, bool: torch.bool}

# c10::ScalarType of each dtype: the numbers are part of the serialisation format and do not change.
_SCALAR_TYPES = ("uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool "
                 "qint8 quint8 qint32 bfloat16 quint4x2 quint2x4 bits1x8 bits2x4 bits4x2 bits8 bits16 "
                 "float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64").split()
SCALAR_TYPE: dict[torch.dtype, int] = {
    dtype: number for number, name in enumerate(_SCALAR_TYPES) if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}
LAYOUT: dict[torch.layout, int] = {torch.strided: 0}
MEMORY_FORMAT: dict[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}

# Parameter names that numpy's users know, accepted by the parser for torch's own.
_NUMPY_NAMES: dict[str, tuple[str, ...]] = {"dim": ("axis",), "keepdim": ("keepdims",), "input": ("x", "a", "x1"), "other": ("x2",)}

# Names whose Python binding accepts numbers where the schema has a tensor (should_allow_numbers_as_tensors): it wraps them. The
# overload with a Scalar there is not the same, even where its values are: it may round the number to the tensor's dtype first.
_NUMBERS_AS_TENSORS: frozenset[str] = frozenset(
    name + suffix
    for name in ("add", "div", "divide", "mul", "multiply", "sub", "subtract", "true_divide", "floor_divide")
    for suffix in ("", "_")
)

# Overloads that exist in the dispatcher but not in the Python bindings.
_NOT_BOUND: frozenset[str] = frozenset(
    f"{name}{suffix}.Scalar" for name in ("add", "sub", "mul", "div") for suffix in ("", "_")
) | {"fill.Tensor", "fill.Scalar", "bernoulli.Tensor"}

# Results that can be values of a trace. A Scalar, a dtype and the like are left to the binding.
RETURNED: frozenset[str] = frozenset({"Tensor", "Tensor[]", "bool", "int", "SymInt", "float"})

_OPTIONS = ("dtype", "layout", "device", "pin_memory")


class Match(Enum):
    """Whether the parser accepts an object for a parameter."""

    NO = "no"
    YES = "yes"
    NUMBER = "number"  # a number where a tensor is declared
    UNSURE = "unsure"


@dataclass(frozen=True, slots=True)
class Param:
    """One argument of a schema.

    base: "Tensor", "Scalar", "int", "float", "bool", "str", "ScalarType", "Layout", "MemoryFormat", "Device", "Generator", …;
    is_list with size as in `int[2]`; element_optional as in `Tensor?[]`; optional: None is accepted.
    """

    name: str
    base: str
    symbolic: bool = False
    is_list: bool = False
    size: int | None = None
    optional: bool = False
    element_optional: bool = False
    kw_only: bool = False
    required: bool = True
    default: object = None
    writes: bool = False

    @property
    def type_text(self) -> str:
        """As in native_functions.yaml."""
        text = ("Sym" + self.base.capitalize() if self.symbolic else self.base) + ("?" if self.element_optional else "")
        if self.is_list:
            text += f"[{self.size if self.size is not None else ''}]"
        return text + ("?" if self.optional else "")


@dataclass(frozen=True, slots=True)
class Overload:
    """An operator of the dispatcher: `name.overload`, its parameters in schema order and the types it returns."""

    name: str
    overload: str
    params: tuple[Param, ...]
    returns: tuple[str, ...]

    @property
    def full_name(self) -> str:
        """Name with overload, as in a schema."""
        return f"{self.name}.{self.overload}" if self.overload else self.name


@dataclass(frozen=True, slots=True)
class Source:
    """Where the value of a schema parameter comes from.

    kind: "arg" (positional argument `index`), "kwarg" (`name`), "varargs" (all positional arguments from `index` on), "default"
    (`value`).
    """

    kind: str
    index: int = 0
    name: str = ""
    value: object = None


@dataclass(frozen=True, slots=True)
class Binding:
    """The chosen overload and one source for each of its parameters. broadcast[i]: an int given for an `int[n]`."""

    overload: Overload
    sources: tuple[Source, ...]
    broadcast: tuple[bool, ...]


# ------------------------------------------------------------------------------------------------------------ schemas

_TYPE = re.compile(
    r"(?P<base>\w+)(?P<alias>\([\w!|>* -]+\))?(?P<eopt>\?)?(?P<list>\[(?P<size>\d*)\])?(?P<opt>\?)?$"
)


def _split_top(text: str) -> list[str]:
    """Split at commas that are not inside brackets or quotes."""
    parts, depth, start, quoted = [], 0, 0, False
    for at, char in enumerate(text):
        if char == '"':
            quoted = not quoted
        elif quoted:
            continue
        elif char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    rest = text[start:].strip()
    return [*parts, rest] if rest else parts


def _param(text: str, argument: torch._C.Argument, kw_only: bool) -> Param | None:
    declaration = text.split("=", 1)[0].strip()
    match = _TYPE.match(declaration.rsplit(" ", 1)[0])
    if match is None:
        return None
    base = match["base"]
    symbolic = base in ("SymInt", "SymFloat", "SymBool")
    is_list = match["list"] is not None
    optional = match["opt"] is not None or (match["eopt"] is not None and not is_list)
    return Param(
        name=argument.name, base=base[3:].lower() if symbolic else base, symbolic=symbolic, is_list=is_list,
        size=int(match["size"]) if match["size"] else None, optional=optional,
        element_optional=is_list and match["eopt"] is not None,
        kw_only=kw_only, required=not argument.has_default_value(), default=argument.default_value,
        writes="!" in (match["alias"] or ""),
    )  # fmt: skip


def _overload(schema: torch._C.FunctionSchema) -> Overload | None:
    text = str(schema)
    head, _, tail = text.rpartition(" -> ")
    params, kw_only = [], False
    arguments = iter(schema.arguments)
    for part in _split_top(head[head.index("(") + 1 : -1]):
        if part == "*":
            kw_only = True
            continue
        argument = next(arguments)
        param = _param(part, argument, kw_only)
        if param is None:
            return None
        params.append(param)
    returns = tail[1:-1] if tail.startswith("(") else tail
    types = []
    for part in _split_top(returns):
        match = _TYPE.match(part.split(" ")[0] if not part.startswith("Tensor(") else re.sub(r"(\)\S*) \w+$", r"\1", part))
        if match is None:
            return None
        types.append(match["base"] + ("[]" if match["list"] is not None else "") + ("?" if match["opt"] or match["eopt"] else ""))
    return Overload(schema.name.split("::", 1)[1], schema.overload_name, tuple(params), tuple(types))


@cache
def _operator_names() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


@cache
def find(name: str, overload: str) -> Overload | None:
    """The dispatcher's operator of that exact name, None if there is none or its schema is beyond the parser of this module."""
    full = f"aten::{name}.{overload}" if overload else f"aten::{name}"
    if full not in _operator_names():
        return None
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        if schema.overload_name == overload:
            return _overload(schema)
    return None


@cache
def candidates(name: str, method: bool) -> tuple[Overload, ...]:
    """The overloads without `out` that Python reaches under `name`, in the order in which the parser tries them."""
    result = []
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        full = f"{name}.{schema.overload_name}" if schema.overload_name else name
        if f"aten::{full}" not in _operator_names() or full in _NOT_BOUND:
            continue
        if any(a.is_out for a in schema.arguments) or "name" in schema.overload_name.lower():
            continue  # overloads of `out=` and of named tensors
        overload = find(name, schema.overload_name)
        if overload is not None and (not method or any(p.name == "self" and p.type_text == "Tensor" for p in overload.params)):
            result.append(overload)
    return tuple(_in_parser_order(result, method))


# --------------------------------------------------------------------------------------------------- order of signatures


def python_params(overload: Overload, method: bool) -> list[Param]:
    """The parameters as the Python binding lists them: without self for a method, the tensor options last."""
    params = list(overload.params)
    if method:
        params = [p for p in params if p.name != "self"]
    plain = [p for p in params if not (p.kw_only and has_options(overload) and p.name in _OPTIONS)]
    plain.sort(key=lambda p: p.kw_only)
    if not has_options(overload):
        return plain
    options = [
        Param("dtype", "ScalarType", optional=True, kw_only=True, required=False),
        Param("layout", "Layout", optional=True, kw_only=True, required=False),
        Param("device", "Device", optional=True, kw_only=True, required=False),
        Param("pin_memory", "bool", optional=True, kw_only=True, required=False, default=False),
        Param("requires_grad", "bool", optional=True, kw_only=True, required=False, default=False),
    ]
    return plain + options


def has_options(overload: Overload) -> bool:
    """Whether the schema has dtype, layout, device and pin_memory, which the binding turns into keywords of its own."""
    names = [p.name for p in overload.params if p.kw_only]
    return all(option in names for option in _OPTIONS)


_SIGNATURE_TYPES = {"int": "int64_t", "float": "double", "str": "c10::string_view"}


def _signature_type(param: Param) -> str:
    if not param.is_list:
        text = "SymInt" if param.symbolic else _SIGNATURE_TYPES.get(param.base, param.base)
    elif param.element_optional:
        text = "c10::List<::std::optional<Tensor>>"
    else:
        size = f"[{param.size}]" if param.size is not None else ""
        names = {"int": "SymIntArrayRef" if param.symbolic else "IntArrayRef", "Tensor": "TensorList", "Scalar": "ScalarList"}
        text = names.get(param.base, f"ArrayRef<{_SIGNATURE_TYPES.get(param.base, param.base)}>") + size
    return text + ("?" if param.optional else "")


def _signature_default(param: Param) -> str:
    value = param.default
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, list):
        return str(value[0]) if value and param.size else "{" + ", ".join(map(str, value)) + "}"
    return str(value)


def signature(overload: Overload, method: bool) -> str:
    """The text by which torchgen sorts the signatures of a name."""
    parts, starred = [], False
    for param in python_params(overload, method):
        if param.kw_only and not starred:
            parts.append("*")
            starred = True
        text = _signature_type(param)
        name = "input" if param.name == "self" and text == "Tensor" and not method else param.name
        parts.append(f"{text} {name}" + ("" if param.required else f"={_signature_default(param)}"))
    return f"{overload.name}({', '.join(parts)})"


def _yields_to(one: str, other: str) -> bool:
    """torchgen's is_arg_smaller: a signature with type `one` is tried after one with `other` in its place."""
    return (
        (one == "Scalar" and other == "Tensor")
        or (one == "Scalar?" and other == "Tensor?")
        or (one == "int[]" and other in ("int", "int?"))
        or (one == "Tensor[]" and "[]" in other)
        or (one == "SymInt[]" and other == "int[]")
        or (one in ("SymInt", "int") and other == "Tensor")
    )


def _is_after(one: list[str], other: list[str]) -> bool:
    return len(one) == len(other) and one != other and all(a == b or _yields_to(a, b) for a, b in zip(one, other, strict=True))


def _in_parser_order(overloads: list[Overload], method: bool) -> list[Overload]:
    ordered = sorted(overloads, key=lambda o: signature(o, method))
    types = [[p.type_text for p in python_params(o, method)] for o in ordered]
    after = {i: {j for j in range(len(ordered)) if _is_after(types[i], types[j])} for i in range(len(ordered))}
    result = [i for i in after if not after[i]]
    waiting = {i: before for i, before in after.items() if before}
    for i in result:  # grows while it is walked
        for j in sorted(waiting):
            waiting[j].discard(i)
            if not waiting[j]:
                del waiting[j]
                result.append(j)
    return [ordered[i] for i in result]


# ------------------------------------------------------------------------------------------------------------ matching

# Exact types about which every rule below is certain.
_PLAIN_TYPES: frozenset[type] = frozenset({
    int, float, bool, complex, str, type(None), tuple, list, dict, slice, torch.Size, torch.dtype, torch.device, torch.layout,
    torch.memory_format, torch.Generator, type(...), *TENSOR_TYPES,
})  # fmt: skip


def _match_number(param: Param, kind: type) -> Match:
    """A Scalar, int, float or bool parameter."""
    exact = {"Scalar": (int, float, bool), "int": (int,), "float": (float, int), "bool": (bool,)}[param.base]
    if kind in exact:
        return Match.YES
    if kind in TENSOR_TYPES:
        return Match.UNSURE  # one element without requires_grad is read
    if kind is bool or kind is complex:
        return Match.UNSURE
    return Match.NO


_OBJECT_TYPES: dict[str, type] = {
    "Layout": torch.layout, "MemoryFormat": torch.memory_format, "Generator": torch.Generator, "str": str,
}  # fmt: skip


def _match_item(param: Param, obj: object) -> Match:
    kind = type(obj)
    if kind not in _PLAIN_TYPES and not (param.base == "ScalarType" and kind is type):
        return Match.UNSURE
    match param.base:
        case "Tensor":
            return Match.YES if kind in TENSOR_TYPES else Match.NUMBER if kind in (int, float, bool) else Match.NO
        case "Scalar" | "int" | "float" | "bool":
            return _match_number(param, kind)
        case "ScalarType":
            if kind is torch.dtype:
                return Match.YES
            return Match.NO if kind is not type else Match.YES if obj in PYTHON_DTYPES else Match.UNSURE
        case "Device":
            return Match.YES if kind in (torch.device, str) else Match.UNSURE if kind is int else Match.NO
        case "Layout" | "MemoryFormat" | "Generator" | "str":
            return Match.YES if kind is _OBJECT_TYPES[param.base] else Match.NO
    return Match.UNSURE


def _match_list(param: Param, obj: object) -> Match:
    kind = type(obj)
    if kind not in (tuple, list, torch.Size):
        if param.size is not None and param.base == "int" and kind is int:
            return Match.YES
        if param.base == "Tensor" and kind in TENSOR_TYPES:
            return Match.NO if param.size is None else Match.UNSURE
        return Match.NO if kind in _PLAIN_TYPES and kind not in TENSOR_TYPES and kind is not bool else Match.UNSURE
    matches = []
    for item in obj:  # type: ignore[attr-defined]
        if item is None and param.element_optional:
            matches.append(Match.YES)
        else:
            matches.append(_match_item(param, item))
    if param.base == "Tensor":
        matches = [Match.NO if m is Match.NUMBER else m for m in matches]
    if all(m is Match.YES for m in matches):
        return Match.YES
    # The parser may look at the first item only.
    return Match.NO if matches[0] is Match.NO else Match.UNSURE


def _match(param: Param, obj: object, numbers: bool) -> Match:
    if obj is None and (param.optional or (not param.required and param.default is None)):
        return Match.YES
    found = _match_list(param, obj) if param.is_list else _match_item(param, obj)
    if found is Match.NUMBER:
        return Match.NUMBER if numbers else Match.NO
    return found


def _keyword(param: Param, kwargs: Mapping[str, object], method: bool) -> str | None:
    name = "input" if param.name == "self" and param.type_text == "Tensor" and not method else param.name
    return next((key for key in (name, *_NUMPY_NAMES.get(name, ())) if key in kwargs), None)


def _is_varargs(params: list[Param], args: Sequence[object]) -> bool:
    """`x.view(2, 3)`: all positional arguments make the one positional parameter, which is a list of ints."""
    positional = [p for p in params if not p.kw_only]
    return len(positional) == 1 and positional[0].is_list and positional[0].base == "int" and bool(args) and type(args[0]) is int


@dataclass(slots=True)
class _Attempt:
    match: Match
    sources: dict[str, Source]


def _attempt(overload: Overload, args: Sequence[object], kwargs: Mapping[str, object], method: bool, offset: int) -> _Attempt:
    """Match one signature. offset: number of arguments before `args` (1 for a method's self)."""
    numbers_allowed = overload.name in _NUMBERS_AS_TENSORS
    params = python_params(overload, method)
    attempt = _Attempt(Match.YES, {})
    used: set[str] = set()
    position, varargs = 0, False
    for param in params:
        key = _keyword(param, kwargs, method)
        if not param.kw_only and position < len(args):
            obj, source = args[position], Source("arg", offset + position)
            if _match(param, obj, numbers_allowed) is Match.NO and position == 0 and _is_varargs(params, args):
                obj, source, varargs = tuple(args), Source("varargs", offset), True
                position = len(args) - 1
            position += 1
            if key is not None:
                return _Attempt(Match.NO, {})
        elif key is not None:
            obj, source = kwargs[key], Source("kwarg", name=key)
            used.add(key)
        elif param.required:
            return _Attempt(Match.NO, {})
        else:
            attempt.sources[param.name] = Source("default", value=param.default)
            continue
        found = _match(param, obj, numbers_allowed)
        if found is Match.NO:
            return _Attempt(Match.NO, {})
        if found is Match.UNSURE:
            attempt.match = Match.UNSURE
        attempt.sources[param.name] = source
    if (position < len(args) and not varargs) or len(used) != len(kwargs):
        return _Attempt(Match.NO, {})
    return attempt


def bind(name: str, args: Sequence[object], kwargs: Mapping[str, object], method: bool) -> Binding | None:
    """What `torch.<name>(*args, **kwargs)`, or with `method` `args[0].<name>(*args[1:], **kwargs)`, dispatches.

    Only the types of the arguments (and of the items of lists and tuples) decide. None: not certain, or not an operator. A number
    where the overload has a tensor is wrapped by the binding.
    """
    if "out" in kwargs:
        if kwargs["out"] is not None:
            return None
        kwargs = {key: value for key, value in kwargs.items() if key != "out"}
    if method and (not args or type(args[0]) not in TENSOR_TYPES):
        return None
    offset = 1 if method else 0
    for overload in candidates(name, method):
        attempt = _attempt(overload, args[offset:], kwargs, method, offset)
        if attempt.match is Match.NO:
            continue
        if attempt.match is Match.UNSURE:
            return None
        sources = attempt.sources
        if method:
            sources["self"] = Source("arg", 0)
        if not _options_hold(overload, sources, args, kwargs) or _has_odd_default(overload, sources):
            return None
        return None if not RETURNED.issuperset(overload.returns) else _finish(overload, sources, args, kwargs)
    return None


def _options_hold(overload: Overload, sources: dict[str, Source], args: Sequence[object], kwargs: Mapping[str, object]) -> bool:
    """Drop requires_grad, which is no argument of the operator; false if it was asked for."""
    source = sources.pop("requires_grad", None) if has_options(overload) else None
    return source is None or not value_of(source, args, kwargs)


def _has_odd_default(overload: Overload, sources: dict[str, Source]) -> bool:
    """`reduction=Mean` of the losses: the parser does not read that default as the schema does."""
    return any(p.name == "reduction" and p.base == "int" and sources[p.name].kind == "default" for p in overload.params)


def value_of(source: Source, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The concrete object of a source."""
    match source.kind:
        case "arg":
            return args[source.index]
        case "kwarg":
            return kwargs[source.name]
        case "varargs":
            return tuple(args[source.index :])
    return source.value


def _finish(overload: Overload, sources: dict[str, Source], args: Sequence[object], kwargs: Mapping[str, object]) -> Binding:
    ordered = [sources[p.name] for p in overload.params]
    # The binding turns an absent dtype, layout or device into the schema's own default.
    for at, param in enumerate(overload.params):
        given = value_of(ordered[at], args, kwargs)
        if given is None and not param.required and param.default is not None and param.name in _OPTIONS:
            ordered[at] = Source("default", value=param.default)
    broadcast = tuple(
        p.is_list and type(value_of(s, args, kwargs)) is int for p, s in zip(overload.params, ordered, strict=True)
    )
    return Binding(overload, tuple(ordered), broadcast)


def bind_overload(overload: Overload, args: Sequence[object], kwargs: Mapping[str, object]) -> Binding | None:
    """`torch.ops.aten.<name>.<overload>(*args, **kwargs)`: no choice, the schema's own names, no conversions."""
    if len(args) > sum(not p.kw_only for p in overload.params) or not kwargs.keys() <= {p.name for p in overload.params}:
        return None
    if not RETURNED.issuperset(overload.returns):
        return None
    sources = []
    for at, param in enumerate(overload.params):
        if not param.kw_only and at < len(args):
            if param.name in kwargs:
                return None
            source = Source("arg", at)
        elif param.name in kwargs:
            source = Source("kwarg", name=param.name)
        elif param.required:
            return None
        else:
            source = Source("default", value=param.default)
        if source.kind != "default" and _match(param, value_of(source, args, kwargs), False) is not Match.YES:
            return None
        sources.append(source)
    return Binding(overload, tuple(sources),
                   tuple(p.is_list and type(value_of(s, args, kwargs)) is int for p, s in zip(overload.params, sources, strict=True)))
