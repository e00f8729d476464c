"""The key that native code computes against the specialization that Triton computes, over an enumeration of arguments.

Equal keys must mean equal specializations. The other way round must hold too where the key is meant to be exactly as fine.
"""

import itertools
from typing import Any

import fake
import pytest
import torch
import triton
import triton.language as tl
from sites import KeyReader, kind_of
from triton.runtime.jit import create_function_from_signature

pytestmark = pytest.mark.usefixtures("recording")

DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.int16, torch.int32, torch.int64,
          torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64]


def tensors() -> list[torch.Tensor]:
    made = []
    for dtype in DTYPES:
        base = torch.zeros(128, dtype=dtype)
        assert base.data_ptr() % 64 == 0
        made += [base[offset:] for offset in (0, 1, 2, 4, 8, 15, 16, 17, 32)]
        made += [base[3:].view(5, 25).t(), base[:0], torch.empty(0, dtype=dtype)]
    made += [torch.nn.Parameter(torch.zeros(8)), torch.zeros(9, requires_grad=True)[1:], torch.zeros(()), torch.zeros(4, 4).t()]
    return made


INTS = [0, 1, 2, 3, 8, 15, 16, 17, 31, 32, 48, 64, 100, 127, 128, 255, 256, -1, -2, -15, -16, -17, -32, 1 << 15, (1 << 15) - 1,
        (1 << 16) - 1, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 31) + 1, (1 << 31) + 16, -(1 << 31), -(1 << 31) - 1,
        -(1 << 31) - 16, (1 << 32) - 1, 1 << 32, 1 << 62, (1 << 63) - 1, (1 << 63) - 16, -(1 << 63), -(1 << 63) + 1]
VALUES: dict[str, list[Any]] = {
    "int": INTS, "float": [0.0, 1.0, -1.0, 16.0, 1e300, 5e-324, float("inf"), float("nan")], "bool": [True, False],
    "object": [None],
}


def plain(a): pass
def to_int32(a: tl.int32): pass
def to_int64(a: tl.int64): pass
def to_int8(a: "i8"): pass  # noqa: F821
def to_int16(a: "i16"): pass  # noqa: F821
def to_uint8(a: "u8"): pass  # noqa: F821
def to_uint16(a: "u16"): pass  # noqa: F821
def to_uint32(a: tl.uint32): pass
def to_uint64(a: tl.uint64): pass
def to_bool(a: tl.int1): pass
def to_float(a: tl.float32): pass
def to_double(a: tl.float64): pass
def to_pointer(a: "*fp32"): pass  # noqa: F722
def to_const(a: tl.const): pass
def to_const_pointer(a: "*kfp32"): pass  # noqa: F722


FUNCTIONS = [plain, to_int32, to_int64, to_int8, to_int16, to_uint8, to_uint16, to_uint32, to_uint64, to_bool, to_float,
             to_double, to_pointer, to_const, to_const_pointer]
RULES = [{}, {"do_not_specialize": ["a"]}, {"do_not_specialize_on_alignment": ["a"]}, {"do_not_specialize": [0]},
         {"do_not_specialize": ["a"], "do_not_specialize_on_alignment": ["a"]}]


def binder(kernel: Any) -> Any:
    backend = fake.FakeCompiler(fake.FakeDriver().get_current_target())
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    return lambda *args: bind(*args)[1]


def readable(values: list[Any], function: Any, kind: str) -> bool:
    """Whether native code takes operands of this kind for this function at all."""
    annotated = triton.jit(function).params[0].annotation_type
    if kind == "tensor":
        return not annotated or annotated.startswith("*")
    if kind == "float":
        return annotated in ("", "fp32", "fp64")
    return kind != "bool" or not annotated.startswith("*")


CASES = [(function, rules, kind) for function, rules, kind in itertools.product(FUNCTIONS, RULES, ["tensor", *VALUES])
         if readable([], function, kind)]


@pytest.mark.parametrize(("function", "rules", "kind"), CASES, ids=lambda v: getattr(v, "__name__", None) or str(v))
def test_key_against_triton(function: Any, rules: dict[str, Any], kind: str) -> None:
    kernel = triton.jit(**rules)(function) if rules else triton.jit(function)
    reader, bind = KeyReader(kernel, [kind]), binder(kernel)
    values = tensors() if kind == "tensor" else VALUES[kind]
    by_key: dict[bytes, set[str]] = {}
    keys: dict[str, set[bytes]] = {}
    for value in values:
        key = reader.key(value)
        specialization = repr(bind(value))
        if not key:  # left to Triton: always right, but only where a launcher may refuse or change the value
            assert value == 1e300 or (kind == "int" and kernel.params[0].annotation_type not in ("", "i64"))
            continue
        by_key.setdefault(key, set()).add(specialization)
        keys.setdefault(specialization, set()).add(key)
    assert all(len(found) == 1 for found in by_key.values()), by_key
    if not (kind == "tensor" and kernel.params[0].annotation_type):  # an annotated pointer's dtype is Triton's business only
        assert all(len(found) == 1 for found in keys.values()), keys
    assert by_key


def three(a, b, c): pass


@pytest.mark.parametrize("rules", [{}, {"do_not_specialize": ["b"]}, {"do_not_specialize_on_alignment": ["a", "c"]}], ids=str)
def test_keys_of_several_operands(rules: dict[str, Any]) -> None:
    kernel = triton.jit(**rules)(three) if rules else triton.jit(three)
    bind = binder(kernel)
    base = torch.zeros(64)
    pools = [[base, base[1:], base.double()], [0, 1, 5, 16, 1 << 40], [base[4:], base[5:], None, 1.5, True, 1, 16, 1 << 33]]
    readers: dict[str, KeyReader] = {}
    pairs = set()
    for values in itertools.product(*pools):
        kinds = [kind_of(value) for value in values]
        reader = readers.setdefault(kinds[2], KeyReader(kernel, kinds))
        pairs.add((kinds[2], reader.key(*values), repr(bind(*values))))
    assert len({(kind, key) for kind, key, _ in pairs}) == len(pairs)
    assert len({(kind, spec) for kind, _, spec in pairs}) == len(pairs)


OBJECTS = ["text", (1, 2), 1 << 63, 1 << 70, object(), torch.float32, 1.5, 2, [3], tl.constexpr(3)]


@pytest.mark.parametrize("value", OBJECTS, ids=lambda value: type(value).__name__)
def test_objects_other_than_none_have_no_key(value: Any) -> None:
    assert KeyReader(triton.jit(plain), ["object"]).key(value) == b""


@pytest.mark.parametrize("make", [
    lambda: torch.eye(3).to_sparse(), lambda: torch.zeros(3).to_mkldnn(), lambda: torch.zeros(3, device="meta"),
], ids=["sparse", "mkldnn", "meta"])
def test_tensors_without_ordinary_memory_have_no_key(make: Any) -> None:
    assert KeyReader(triton.jit(plain), ["tensor"]).key(make()) == b""


def constants(a, n, BLOCK: tl.constexpr, b): pass


def test_constants_take_no_place_in_the_key() -> None:
    kernel = triton.jit(constants)
    base = torch.zeros(64)
    first, second = (KeyReader(kernel, ["tensor", "tensor"], n=n, BLOCK=64) for n in (7, 16))
    assert first.key(base, base[1:]) == second.key(base, base[1:]) != first.key(base, base)
