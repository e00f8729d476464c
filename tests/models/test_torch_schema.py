"""The chosen overload and the bound arguments are what eager dispatches, and the order of signatures is torchgen's."""

from __future__ import annotations

import ast
import importlib.util
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from trident.frontend.models import torch_schema as schema
from trident.frontend.models.torch_calls import METHOD_NAMES

_spec = importlib.util.spec_from_file_location("torch_call_table", Path(__file__).parent / "torch_call_table.py")
assert _spec is not None and _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

_ROOTS = {
    "t": torch._C._VariableFunctions, "nn": torch._C._nn, "linalg": torch._C._linalg, "fft": torch._C._fft,
    "special": torch._C._special,
}  # fmt: skip


def parse(expression: str, env: dict[str, object]) -> tuple[str, bool, Callable[..., object], list[object], dict[str, object]] | None:
    """Name, whether a method, callable, arguments (self first for a method)."""
    node = ast.parse(expression, mode="eval").body
    assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)

    def value(tree: ast.expr) -> object:
        return eval(compile(ast.Expression(tree), "case", "eval"), dict(env), {"t": torch, **_ROOTS})

    args = [value(a) for a in node.args]
    kwargs = {k.arg: value(k.value) for k in node.keywords}
    root = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
    name = node.func.attr
    if root in _ROOTS:
        function = getattr(_ROOTS[root], name, None)
        return None if function is None else (name, False, function, args, kwargs)
    function = getattr(torch._C.TensorBase, name, None)
    return None if function is None else (name, True, function, [value(node.func.value), *args], kwargs)


# `__add__` and the like are other names for operators.
_METHODS = METHOD_NAMES


def bind(expression: str, env: dict[str, object]) -> tuple[schema.Binding | None, object]:
    """The binding of a case, and its parts (None where eager has no such callable)."""
    parsed = parse(expression, env)
    if parsed is None:
        return None, None
    name, method, _, args, kwargs = parsed
    return schema.bind(_METHODS.get(name, name), args, kwargs, method), parsed


def overload_object(overload: schema.Overload) -> Callable[..., object]:
    return getattr(getattr(torch.ops.aten, overload.name), overload.overload or "default")


def values(binding: schema.Binding, args: list[object], kwargs: dict[str, object]) -> list[object]:
    """The schema's arguments, as the trace would write them."""
    result = []
    for param, source, broadcast in zip(binding.overload.params, binding.sources, binding.broadcast, strict=True):
        value = schema.value_of(source, args, kwargs)
        if broadcast:
            value = [value] * (param.size or 1)
        result.append(schema.PYTHON_DTYPES.get(value, value) if isinstance(value, type) else value)
    return result


def call(function: Callable[..., object], overload: schema.Overload, arguments: list[object]) -> object:
    positional = [a for p, a in zip(overload.params, arguments, strict=True) if not p.kw_only]
    return function(*positional, **{p.name: a for p, a in zip(overload.params, arguments, strict=True) if p.kw_only})


def flat(value: object) -> list[object]:
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor):
        assert isinstance(other, torch.Tensor)
        if (one.dtype, one.shape, one.stride(), one.requires_grad) != (other.dtype, other.shape, other.stride(), other.requires_grad):
            return False
        if one.is_conj() != other.is_conj() or one.is_neg() != other.is_neg():
            return False
        mine, theirs = one.detach().resolve_conj().contiguous(), other.detach().resolve_conj().contiguous()
        return mine.reshape(-1).view(torch.uint8).equal(theirs.reshape(-1).view(torch.uint8)) if one.numel() else True
    return type(one) is type(other) and one == other


def _bound_cases() -> list[str]:
    env = table.environment()
    return [expression for expression in table.TABLE if bind(expression, env)[0] is not None]


def test_table_is_large_and_mostly_bound() -> None:
    bound = _bound_cases()
    assert len(bound) >= 500
    # What is not bound is an opaque call: correct, but slower. Few of the table's calls should be.
    assert len(table.TABLE) - len(bound) < 60, sorted(set(table.TABLE) - set(bound))


@pytest.mark.parametrize("expression", table.TABLE)
def test_bound_operator_computes_what_eager_does(expression: str) -> None:
    env, other_env = table.environment(), table.environment()
    binding, parsed = bind(expression, env)
    if binding is None:
        pytest.skip("not bound: an opaque call")
    _, _, function, args, kwargs = parsed
    again = bind(expression, other_env)
    assert again[0] is not None
    _, _, _, other_args, other_kwargs = again[1]
    torch.manual_seed(0)
    try:
        expected = function(*args, **kwargs)
    except (RuntimeError, TypeError, IndexError, ValueError) as error:
        with pytest.raises(type(error)):
            call(overload_object(binding.overload), binding.overload, values(binding, other_args, other_kwargs))
        return
    torch.manual_seed(0)
    got = call(overload_object(binding.overload), binding.overload, values(binding, other_args, other_kwargs))
    ours, theirs = flat(got), flat(expected)
    assert len(ours) == len(theirs)
    for one, two in zip(ours, theirs, strict=True):
        assert same(one, two)
    for name, tensor in env.items():  # the same mutations
        if isinstance(tensor, torch.Tensor):
            assert same(tensor, other_env[name]), name
    _check_aliasing(env, theirs, other_env, ours)


def _check_aliasing(env: dict[str, object], results: list[object], other_env: dict[str, object], others: list[object]) -> None:
    for name, tensor in env.items():
        if not isinstance(tensor, torch.Tensor):
            continue
        twin = other_env[name]
        assert isinstance(twin, torch.Tensor)
        for one, two in zip(results, others, strict=True):
            if isinstance(one, torch.Tensor):
                shares = one.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
                assert shares == (two.untyped_storage().data_ptr() == twin.untyped_storage().data_ptr()), name
                assert (one is tensor) == (two is twin), name


def _dispatched() -> dict[str, str]:
    """The first operator that eager dispatches for each case, by profiling."""
    config = torch._C._profiler._ExperimentalConfig(capture_overload_names=True)
    env = table.environment
    ready = []
    for expression in table.TABLE:
        parsed = parse(expression, env())
        if parsed is not None:
            ready.append((expression, parsed))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], experimental_config=config) as profile:
        for expression, (_, _, function, args, kwargs) in ready:
            with torch.profiler.record_function(f"case {expression}"):
                try:
                    function(*args, **kwargs)
                except Exception:
                    continue
    found = {}
    for event in profile.events():
        if event.name.startswith("case "):
            first = min((e for e in event.cpu_children if e.name.startswith("aten::")), key=lambda e: e.time_range.start, default=None)
            if first is not None:
                overload = first.overload_name
                found[event.name[5:]] = first.name[6:] + (f".{overload}" if overload else "")
    return found


# Methods of at::Tensor that do not go through the dispatcher themselves: what the operator does is in a header.
_INLINE_IN_CPP = {("conj", "_conj")}


def test_overload_is_the_one_that_eager_dispatches() -> None:
    if "capture_overload_names" not in str(torch._C._profiler._ExperimentalConfig.__init__.__doc__):
        pytest.skip("this torch's profiler does not record overloads")
    dispatched = _dispatched()
    assert len(dispatched) > 500
    checked = 0
    for expression, actual in dispatched.items():
        binding, _ = bind(expression, table.environment())
        if binding is None:
            continue
        chosen = binding.overload
        assert chosen.full_name == actual or (chosen.full_name, actual) in _INLINE_IN_CPP, (expression, chosen.full_name, actual)
        checked += 1
    assert checked > 450


REFUSED = """
t.add(x, y, out=x) | t.pow(x, 1j) | x.add(1j) | t.zeros(2, requires_grad=True) | t.zeros(s) | x.view(k)
x.sum(True) | t.mul(x, i8.numpy()) | x.add(torch.nn.Linear)
t.add(x) | t.add(x, y, y, y) | t.add(x, y, beta=2) | x.view() | t.sum(x, dim='a') | t.clamp(x, 'a') | t.cat(x)
t.cat((x, 2)) | x.masked_fill(b, 1j) | t.arange(s) | t.full((2,), s)
"""


@pytest.mark.parametrize("expression", [e.strip() for line in REFUSED.strip().splitlines() for e in line.split(" | ")])
def test_what_is_not_certain_is_not_bound(expression: str) -> None:
    binding, _ = bind(expression, table.environment())
    assert binding is None


def test_subclasses_are_not_bound() -> None:
    class Sub(torch.Tensor):
        pass

    x = torch.ones(2)
    assert schema.bind("add", [x, x.as_subclass(Sub)], {}, False) is None
    assert schema.bind("add", [x.as_subclass(Sub), x], {}, True) is None
    assert schema.bind("cat", [[x, x.as_subclass(Sub)]], {}, False) is None
    assert schema.bind("add", [x, torch.nn.Parameter(x)], {}, False) is not None


def test_scalar_types_are_those_of_torchscript() -> None:
    for dtype, number in schema.SCALAR_TYPE.items():
        if dtype in (torch.bool, torch.float32, torch.int64, torch.bfloat16, torch.float16, torch.uint8, torch.complex64, torch.float64):
            made = torch.ops.aten.zeros([1], dtype=number)
            assert made.dtype is dtype
    import ctypes

    for dtype, number in schema.SCALAR_TYPE.items():  # the field that torch itself reads
        assert ctypes.c_int8.from_address(id(dtype) + object.__basicsize__).value == number, dtype


def test_signature_order_is_that_of_torchgen() -> None:
    """Against the generator and the operator list that this torch was built with."""
    pytest.importorskip("yaml")
    torchgen = pytest.importorskip("torchgen")
    from torchgen.gen import parse_native_yaml
    from torchgen.packaged.autograd import gen_python_functions as gen

    root = Path(torchgen.__file__).parent / "packaged"
    functions = parse_native_yaml(str(root / "ATen/native/native_functions.yaml"), str(root / "ATen/native/tags.yaml")).native_functions
    functions = [f for f in functions if gen.should_generate_py_binding(f)]
    only_functions = {"mm.dtype", "bmm.dtype", "addmm.dtype", "baddbmm.dtype"}  # not methods; x.mm(y, torch.float32) is a TypeError
    names = 0
    for method in (False, True):
        by_name = defaultdict(list)
        for pair in gen.load_signatures(functions, str(root / "autograd/deprecated.yaml"), method=method):
            f = pair.function
            if gen.is_py_variable_method(f) if method else f.python_module is not None or gen.is_py_torch_function(f):
                by_name[str(f.func.name.name)].append(pair)
        for name, pairs in by_name.items():
            groups = [g for g in gen.sort_overloads(gen.group_overloads(pairs)) if not g.signature.deprecated]
            groups = [g for g in groups if "name" not in str(g.base.func.name.overload_name).lower()]
            wanted = [str(g.base.func.name) for g in groups]
            ours = [o.full_name for o in schema.candidates(name, method) if not (method and o.full_name in only_functions)]
            if name == "fill":  # bound, but only for the functionalization pass
                continue
            assert ours == wanted, (name, method)
            for group, overload in zip(groups, [o for o in schema.candidates(name, method) if o.full_name in wanted], strict=True):
                listed = group.signature.arguments(skip_outputs=True)
                theirs = [(a.name, str(a.type).replace("Dimname", "str"), a.default is None) for a in listed]
                mine = [(p.name, p.type_text, p.required) for p in schema.python_params(overload, method)]
                if not name.startswith(("_cufft", "_test")):
                    assert mine == theirs, overload.full_name
            names += 1
    assert names > 1600
