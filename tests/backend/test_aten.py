"""ATen operators: the ABI of every one is worked out or refused; many are really called, against eager, bit for bit."""

from __future__ import annotations

import collections
import copy
from typing import Any

import pytest
import torch
from torch_mlir import ir as mlir

from tests.backend.cases import CASES, t
from tests.backend.harness import MISS, Builder, Native
from trident.backend import scm
from trident.backend.lowering.aten import supports
from trident.backend.lowering.lower import lower
from trident.backend.lowering.rules import RULES, LoweringError
from trident.backend.native import aten_abi, symbols
from trident.backend.native.aten_abi import UnsupportedOperator
from trident.ir.dialect import type_of
from trident.ir.ops import OPS

SCALAR_TYPES = {torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
                torch.float64: 7, torch.bool: 11, torch.bfloat16: 15}
LAYOUTS = {torch.strided: 0}
FORMATS = {torch.contiguous_format: 0, torch.preserve_format: 1, torch.channels_last: 2}


def test_every_op_has_a_rule() -> None:
    assert {f"trident.{op.name}" for op in OPS} == {name for name in RULES if name.startswith("trident.")}


def test_every_schema_is_supported_or_refused_with_a_reason() -> None:
    entries = symbols.operator_entries()
    reasons: collections.Counter[str] = collections.Counter()
    supported = 0
    for schema in torch._C._jit_get_all_schemas():
        name = schema.name.removeprefix("aten::")
        if not schema.name.startswith("aten::") or symbols.cxx_name(name, schema.overload_name) not in entries:
            continue
        try:
            found = aten_abi.signature(name, schema.overload_name)
        except UnsupportedOperator as error:
            assert str(error)
            reasons[str(error)] += 1
            continue
        supported += 1
        assert len(found.arguments) == len(schema.arguments) and found.returns == len(schema.returns)
    # torch up to 2.12 has named tensors, which Trident does not take: an operator of theirs is an opaque call.
    named = sum(count for reason, count in reasons.items() if "takes a dimension name" in reason or "takes dimension names" in reason)
    total = supported + sum(reasons.values()) - named
    print(f"{supported} of {total} operators can be called; refused: {dict(reasons)}")
    assert total > 3000 and supported / total > 0.97


def test_what_is_refused() -> None:
    assert supports("add", "Tensor") and supports("aten::mm", "") and supports("aten.relu", "default")
    assert not supports("set_", "source_Storage") and not supports("no_such_operator", "") and not supports("add", "no_such_overload")


def test_the_demangler_refuses_what_it_does_not_know() -> None:
    assert symbols.parameter_types("_ZN1a4callEidRKN1b1cES3_") == ("int", "double", "b::c const&", "b::c const&")
    for bad in ("_ZN1a4callEFvvE", "_ZN1a4callES9_", "f", "_ZN1a4callEN1b"):
        with pytest.raises((symbols.MangledError, IndexError)):
            symbols.parameter_types(bad)


class Call:
    """One operator with constant or run-time numbers, as a program."""

    def __init__(self, name: str, overload: str, args: tuple[Any, ...], runtime: bool) -> None:
        self.inputs: list[Any] = []
        self.runtime = runtime
        leaves: list[Any] = []
        self._collect(args, leaves)
        self.b = Builder(name, len(leaves))
        self.b.state_of()
        self._next = 0
        operands = [self._operand(a, t) for a, t in zip(args, self._types(name, overload), strict=True)]
        schema = torch._C._get_schema(f"aten::{name}", overload)
        kinds = [self._kind(str(r.type)) for r in schema.returns]
        results = self.b.aten(name, overload, operands, kinds)
        flat = []
        for kind, result in zip(kinds, results, strict=True):
            flat += [result] if kind != "tensors" else [self.b.op("list_size", result), self.b.op("list_get", result, item=0)]
        self.native = Native(self.b.give_all(flat))
        self.leaves = leaves

    def _types(self, name: str, overload: str) -> list[str]:
        return [str(a.type) for a in torch._C._get_schema(f"aten::{name}", overload).arguments]

    def _kind(self, text: str) -> str:
        return {"Tensor": "tensor", "List[Tensor]": "tensors", "int": "int", "bool": "bool", "float": "float"}[text]

    def _is_leaf(self, value: Any) -> bool:
        return isinstance(value, torch.Tensor) or (self.runtime and type(value) in (int, float, bool))

    def _collect(self, value: Any, leaves: list[Any]) -> None:
        if self._is_leaf(value):
            leaves.append(value)
        elif isinstance(value, list | tuple):
            for item in value:
                self._collect(item, leaves)

    def _operand(self, value: Any, kind: str) -> Any:
        b = self.b
        if self._is_leaf(value):
            arg = b.args[self._next]
            self._next += 1
            name = "tensor" if isinstance(value, torch.Tensor) else type(value).__name__
            return b.op(f"unbox_{name}", arg)
        if isinstance(value, list):
            element = "optional<tensor>" if "Optional[Tensor]" in kind else "tensor" if "Tensor" in kind else (
                "bool" if "bool" in kind else "float" if any(type(v) is float for v in value) else "int")
            return b.list([self._operand(v, kind.replace("List", "")) for v in value], element)
        for table in (SCALAR_TYPES, LAYOUTS, FORMATS):
            if value in table if not isinstance(value, bool | int | float | str) and value is not None else False:
                return b.int(table[value])
        match value:
            case None:
                return b.none()
            case bool():
                return b.bool(value)
            case int():
                return b.int(value)
            case float():
                return b.float(value)
            case str():
                return b.device(value) if "Device" in kind else b.str(value)
        raise AssertionError(value)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return (type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride() and a.device == b.device
                and a.storage_offset() == b.storage_offset() and a.requires_grad == b.requires_grad
                and torch.equal(a.detach().nan_to_num(0.123) if a.is_floating_point() else a, b.detach().nan_to_num(0.123)
                                if b.is_floating_point() else b))
    return type(a) is type(b) and (a == b or a != a)


def split_case(case: str) -> tuple[str, str]:
    """"index.Tensor two" -> ("index", "Tensor"); "index boolean.Tensor" -> the same."""
    name, _, overload = case.partition(".")
    return name.split(" ")[0], overload.split(" ")[0]


def eager(name: str, overload: str, args: tuple[Any, ...]) -> Any:
    schema = torch._C._get_schema(f"aten::{name}", overload)
    positional = [a for a, s in zip(args, schema.arguments, strict=True) if not s.kwarg_only]
    keyword = {s.name: a for a, s in zip(args, schema.arguments, strict=True) if s.kwarg_only}
    result = getattr(getattr(torch.ops.aten, name), overload or "default")(*positional, **keyword)
    results = result if isinstance(result, tuple) else () if result is None else (result,)
    flat: list[Any] = []
    for item in results:
        flat += [len(item), item[0]] if isinstance(item, list) else [item]
    return [SCALAR_TYPES[v] if isinstance(v, torch.dtype) else v for v in flat]


def complete(name: str, overload: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with the schema's defaults for those that are missing."""
    schema = torch._C._get_schema(f"aten::{name}", overload)
    return (*args, *(a.default_value for a in schema.arguments[len(args):]))


@pytest.mark.parametrize("way", ["constant", "runtime", "fast"])
@pytest.mark.parametrize("case", CASES)
def test_operator(case: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers as constants or read at run time; `fast` goes through the code generator that is meant for long programs."""
    name, overload = split_case(case)
    runtime = way != "constant"
    if way == "fast":
        monkeypatch.setattr(scm, "_SMALL", 0)
    args = complete(name, overload, CASES[case])
    call = Call(name, overload, copy.deepcopy(args), runtime)
    mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
    leaves: list[Any] = []
    call._collect(mine, leaves)
    for _ in range(2):  # the second run also shows what the first one left behind
        found = call.native(*leaves)
        wanted = eager(name, overload, theirs)
        assert found is not MISS and len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            assert same(a, b), (case, a, b)
    expected_leaves: list[Any] = []
    call._collect(theirs, expected_leaves)
    assert all(same(a, b) for a, b in zip(leaves, expected_leaves, strict=True)), "arguments were changed differently"


def test_a_long_program() -> None:
    b = Builder("long", 2)
    x, y = b.tensors(0, 1)
    z = x
    for i in range(400):
        b.state_of(z, b.args[0])
        z, = b.aten("add", "Tensor", [z, y, b.int(i % 3)], ["tensor"]) if i % 2 else b.aten("mul", "Scalar", [z, b.float(0.5)], ["tensor"])
    n = Native(b.give(z))
    a, c = t(3), t(3)
    wanted = a
    for i in range(400):
        wanted = torch.add(wanted, c, alpha=i % 3) if i % 2 else wanted * 0.5
    assert same(n(a, c), wanted) and n.program.slots <= 4


def test_most_kinds_of_parameters_are_exercised() -> None:
    used = {a.type.name for case in CASES for a in aten_abi.signature(*split_case(case)).arguments}
    missing = set(aten_abi.PARAMETERS) - used
    # Of operators that no user calls, or covered by another test.
    covered = {"std::optional<at::Generator>", "signed char", "c10::Layout", "std::array<bool, 2ul>", "std::array<bool, 4ul>"}
    assert missing <= covered, missing


def test_a_result_that_is_an_argument_is_that_object() -> None:
    b = Builder("alias", 1)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("add_", "Tensor", [x, x, b.int(1)], ["tensor"])
    n = Native(b.give(y))
    a = torch.ones(3)
    assert n(a) is a and torch.equal(a, torch.full((3,), 2.0))


@pytest.mark.parametrize("value", [7, 2.5, True])
def test_item(value: Any) -> None:
    b = Builder("item", 1)
    x, = b.tensors(0)
    b.state_of()
    with b._ctx:
        attributes = {"name": mlir.StringAttr.get("aten.item")}  # the registered op knows no bool result
    y, = b._create("torch.operator", [x], [type_of(type(value).__name__)], attributes)
    n = Native(b.give(y), lambda site, values, error: "left" if error is None else error)
    found = n(torch.tensor(value))
    assert type(found) is type(value) and found == value
    assert n(torch.tensor(2j)) == "left"
    assert isinstance(n(torch.zeros(2)), RuntimeError)


def test_random_operators_use_the_default_generator() -> None:
    b = Builder("random", 1)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("bernoulli", "p", [x, b.float(0.5), b.none()], ["tensor"])
    z, = b.aten("randn", "generator", [b.list([b.int(3)], "int"), b.none(), b.none(), b.none(), b.none(), b.none()], ["tensor"])
    w, = b.aten("dropout", "", [x, b.float(0.3), b.bool(True)], ["tensor"])
    n = Native(b.give_all([y, z, w]))
    a = t(7)
    torch.manual_seed(5)
    found = n(a)
    torch.manual_seed(5)
    wanted = torch.ops.aten.bernoulli.p(a, 0.5), torch.randn(3), torch.dropout(a, 0.3, True)
    assert all(map(same, found, wanted))


def test_backward_runs() -> None:
    b = Builder("train", 2)
    x, w = b.tensors(0, 1)
    b.state_of()
    y, = b.aten("mm", "", [x, w], ["tensor"])
    z, = b.aten("sum", "", [b.aten("relu", "", [y], ["tensor"])[0], b.none()], ["tensor"])
    b.aten("_backward", "", [z, b.list([], "tensor"), b.none(), b.bool(False), b.bool(False)], [])
    n = Native(b.give(z))
    a, c = t(2, 3), t(3, 4)
    mine, theirs = c.clone().requires_grad_(), c.clone().requires_grad_()
    out = (a @ theirs).relu().sum()
    assert same(n(a, mine), out) and out.requires_grad
    out.backward()
    assert torch.equal(mine.grad, theirs.grad)  # type: ignore[arg-type]


def test_refusals_name_the_reason() -> None:
    def program(name: str, overload: str, results: list[str], *make: Any) -> Builder:
        b = Builder("refused", 1)
        x, = b.tensors(0)
        b.state_of()
        with b._ctx:
            attributes = {"name": mlir.StringAttr.get(f"aten.{name}.{overload}" if overload else f"aten.{name}")}
        operands = [x if m is None else m(b) for m in make]
        result = b._create("torch.operator", operands, [type_of(r) for r in results], attributes)
        b.give_all(result)
        return b

    with pytest.raises(LoweringError, match="takes 3 arguments"):
        lower(program("add", "Tensor", ["tensor"], None, None).trace)
    with pytest.raises(LoweringError, match="other"):
        lower(program("add", "Tensor", ["tensor"], None, lambda b: b.none(), lambda b: b.int(1)).trace)
    with pytest.raises(LoweringError, match="gives"):
        lower(program("relu", "", ["int"], None).trace)
    with pytest.raises(LoweringError, match="no dispatcher entry"):
        lower(program("no_such", "", ["tensor"], None).trace)
    with pytest.raises(LoweringError, match="SymInt"):
        lower(program("narrow", "", ["tensor"], None, lambda b: b.int(0), lambda b: b.int(-(2**63)), lambda b: b.int(1)).trace)
    b = Builder("no state", 1)
    x, = b.tensors(0)
    b.give(b.aten("relu", "", [x], ["tensor"])[0])
    with pytest.raises(LoweringError, match="no trident.state"):
        lower(b.trace)


def test_a_huge_negative_run_time_size_is_passed_on_rightly() -> None:
    b = Builder("slice", 2)
    x, = b.tensors(0)
    start = b.op("unbox_int", b.args[1])
    b.state_of()
    n = Native(b.give(b.aten("slice", "Tensor", [x, b.int(0), start, b.none(), b.int(1)], ["tensor"])[0]))
    a = t(5)
    for value in (-(2**62) - 1, -(2**62) + 1, -(2**63) + 1, 2, -2, 2**63 - 1):
        assert torch.equal(n(a, value), torch.ops.aten.slice.Tensor(a, 0, value, None, 1))
