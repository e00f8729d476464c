"""Calls whose trace once differed from eager: numbers as tensors, stores of numbers, whole slices, modes, promotion by value."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import trident


class Dispatched(TorchDispatchMode):
    """Records the operators and the classes of their arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[str]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((str(func), [type(a).__name__ for a in args]))
        return func(*args, **(kwargs or {}))


def hot(fn: Callable[..., Any], *make: Callable[[], Any]) -> Any:
    """The function, after executions that recorded and compiled it."""
    jitted = trident.jit(fn)
    for _ in range(3):
        jitted(*[m() for m in make])
    return jitted


def same(fn: Callable[..., Any], *make: Callable[[], Any]) -> None:
    """Same bits, same operators (as modes see them) and the same autograd node."""
    jitted = hot(fn, *make)
    hits = trident.explain(jitted).hits
    assert hits > 0
    expected, found = fn(*[m() for m in make]), jitted(*[m() for m in make])
    assert trident.explain(jitted).hits > hits
    assert found.dtype == expected.dtype and torch.allclose(expected, found, rtol=0, atol=0, equal_nan=True)
    assert type(expected.grad_fn) is type(found.grad_fn)
    seen = []
    for f in (fn, jitted):
        arguments = [m() for m in make]
        with Dispatched() as mode:
            f(*arguments)
        seen.append(mode.seen)
    assert seen[0] == seen[1]


def half() -> torch.Tensor:
    return (torch.arange(-9, 10) * 1.37).half()


def leaf() -> torch.Tensor:
    return torch.linspace(-2, 2, 12).reshape(3, 4).requires_grad_()


def imul(x: Any, s: Any) -> Any:
    x *= s
    return x


def iadd_part(x: Any, s: Any) -> Any:
    x[1:] += s
    return x


@pytest.mark.parametrize("number", [0.1, 3, True, -0.0, float("inf"), 65537, 1e-8])
@pytest.mark.parametrize("fn", [imul, iadd_part, lambda x, s: x.mul_(s), lambda x, s: x * s + s, lambda x, s: s / x,
                                lambda x, s: torch.mul(s, x),
                                lambda x, s: x.div(s, rounding_mode="floor"), lambda x, s: s - x],
                         ids=["imul", "iadd_part", "mul_", "mul_add", "rdiv", "number_first", "div_mode", "rsub"])  # fmt: skip
def test_number_at_run_time_is_wrapped(fn: Any, number: Any) -> None:
    if isinstance(number, bool):
        try:
            fn(half(), number)
        except RuntimeError:
            pytest.skip("eager refuses a bool")
    jitted = hot(fn, half, lambda: number)
    assert torch.allclose(fn(half(), number), jitted(half(), number), rtol=0, atol=0, equal_nan=True)
    same(fn, half, lambda: number)


@pytest.mark.parametrize("fn", [lambda x: (x + 1) * 2.5, lambda x: x // 3, lambda x: 2 / x, lambda x: torch.add(2, x), lambda x: x - 1],
                         ids=["add_mul", "floor", "rdiv", "number_first", "sub"])  # fmt: skip
@pytest.mark.parametrize("make", [half, leaf, lambda: torch.arange(5), lambda: torch.tensor(3.0).half()],
                         ids=["half", "leaf", "int", "scalar"])  # fmt: skip
def test_constant_number_is_wrapped(fn: Any, make: Any) -> None:
    same(fn, make)


def test_constant_number_serves_inference_mode_and_autograd() -> None:
    def fn(x: Any) -> Any:
        return x * 2.0

    jitted = trident.jit(fn)
    with torch.inference_mode():
        for _ in range(3):
            jitted(torch.ones(2))
    for _ in range(3):
        x = leaf()
        jitted(x).sum().backward()
        assert torch.equal(x.grad, torch.full((3, 4), 2.0))  # type: ignore[arg-type]
        with torch.inference_mode():
            assert jitted(torch.ones(2)).is_inference()


def store(x: Any, v: Any) -> Any:
    x[0] = v
    return x


def store_item(x: Any, v: Any) -> Any:
    x[1, 2] = v
    return x


def store_mask(x: Any, v: Any) -> Any:
    x[x > 0] = v
    return x


@pytest.mark.parametrize("fn", [store, store_item, store_mask])
@pytest.mark.parametrize("number", [-1e9, 7, True, float("nan"), 300])
def test_stored_number_is_cast_as_eager_does(fn: Any, number: Any) -> None:
    jitted = hot(fn, lambda: torch.ones(3, 4), lambda: number)
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.bool):
        outcomes = []
        for f in (fn, jitted, jitted, jitted):
            try:
                outcomes.append(f(torch.ones(3, 4, dtype=dtype), number).double().nan_to_num(12345.0).tolist())
            except RuntimeError as error:
                outcomes.append(str(error).split("\n")[0])
        assert outcomes[1:] == outcomes[:1] * 3
    if number == number:
        same(fn, lambda: torch.ones(3, 4), lambda: number)


def test_stored_number_checks_overlap() -> None:
    def fn(x: Any) -> Any:
        x[:, 1] = 0
        return x

    jitted = hot(fn, lambda: torch.ones(3, 4))
    for f in (fn, jitted):
        with pytest.raises(RuntimeError, match="more than one element"):
            f(torch.ones(1, 4).expand(3, 4))


def store_whole(x: Any, y: Any) -> Any:
    x[:] = y
    return x


def store_bounds(x: Any, y: Any) -> Any:
    x[0:3, :] = y
    return x


def store_part(x: Any, y: Any) -> Any:
    x[1:, -3:-1] = y
    return x


@pytest.mark.parametrize("fn", [store_whole, store_bounds])
@pytest.mark.parametrize("other", [lambda: torch.zeros(3, 4), lambda: torch.zeros(4), lambda: torch.zeros(())],
                         ids=["equal", "expanded", "scalar"])  # fmt: skip
def test_whole_slice_makes_no_view_in_a_store(fn: Any, other: Any) -> None:
    same(fn, lambda: leaf() * 2, other)


@pytest.mark.parametrize("other", [lambda: leaf()[1:, 1:3], lambda: leaf()[0, :2], lambda: leaf()[:2, :1], lambda: leaf()[:1, 1:3]],
                         ids=["equal", "row", "column", "leading_one"])  # fmt: skip
def test_store_to_a_part(other: Any) -> None:
    same(store_part, lambda: leaf() * 2, other)


def test_store_to_a_part_of_another_size() -> None:
    jitted = hot(store_part, lambda: leaf() * 2, lambda: leaf()[1:, 1:3])
    for make in (lambda: leaf()[0, :2], lambda: leaf()[1:, 1:2], lambda: leaf()[1:2, 1:3], lambda: leaf()[1:, 1:3]):
        for _ in range(3):
            expected, found = store_part(leaf() * 2, make()), jitted(leaf() * 2, make())
            assert torch.equal(expected, found)
            assert [type(f[0]) for f in expected.grad_fn.next_functions] == [type(f[0]) for f in found.grad_fn.next_functions]


@pytest.mark.parametrize("fn", [lambda x, n: x[:, None, :], lambda x, n: x[0:n, 1], lambda x, n: x[:n], lambda x, n: x[:, :],
                                lambda x, n: x[0:n, :]],
                         ids=["none", "bounds", "bare", "all", "both"])  # fmt: skip
def test_whole_slice_makes_no_view_in_a_tuple(fn: Any) -> None:
    jitted = hot(fn, leaf, lambda: 3)
    for n in (3, 5, 2, -1, 3, 0):
        for _ in range(3):
            expected, found = fn(leaf(), n), jitted(leaf(), n)
            assert torch.equal(expected, found) and type(expected.grad_fn) is type(found.grad_fn)
        same(fn, leaf, lambda n=n: n)


class Functions(TorchFunctionMode):
    """Records the names of the functions that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


def test_function_mode_sees_no_recorder() -> None:
    def fn(x: Any) -> list[str]:
        with Functions() as mode:
            y = x + 1
            len(y)
            y.dim(), y.shape, y[0], y.dtype, bool(y[1] > 0), float(y[0])
            y[0] = 2
            for _ in y:
                pass
        return mode.seen

    jitted = trident.jit(fn)
    expected = fn(torch.ones(2))
    assert [jitted(torch.ones(2)) for _ in range(4)] == [expected] * 4


def test_length_under_an_outer_mode() -> None:
    def fn(x: Any) -> int:
        return len(x)

    jitted = hot(fn, lambda: torch.ones(2))
    for _ in range(3):
        x = torch.ones(2)
        with Functions() as mode:
            assert jitted(x) == 2
        assert mode.seen == ["__len__"]


@pytest.mark.parametrize("fn, make, other", [
    (lambda x, d: x.to(d), lambda n: torch.device("cpu"), torch.device("meta")),
    (lambda x, d: torch.zeros(2, device=d), lambda n: torch.ones(1).device, torch.device("meta")),
    (lambda x, m: x * 2 if m == "ab" else x, lambda n: "a" + chr(98), "a" + chr(99)),
], ids=["device", "made_device", "str"])  # fmt: skip
def test_promotion_by_value(fn: Any, make: Any, other: Any) -> None:
    jitted = trident.jit(fn)
    for n in range(6):
        jitted(torch.ones(3), make(n))
    report = trident.explain(jitted)
    assert jitted.specializations == 1 and report.hits >= 4
    for _ in range(3):
        expected, found = fn(torch.ones(3), other), jitted(torch.ones(3), other)
        assert expected.device == found.device
        assert expected.device.type == "meta" or torch.equal(expected, found)


def test_str_of_another_kind() -> None:
    class Text(str):
        def __eq__(self, other: object) -> bool:
            return False

        __hash__ = str.__hash__

    def fn(x: Any, m: Any) -> Any:
        return 1 if m == "äb" else 2

    jitted = hot(fn, lambda: 0, lambda: "ä" + chr(98))
    for value in ("äb", "ab", "ä", Text("äb"), 3, "äb"):
        assert jitted(0, value) == fn(0, value)


def test_conversion_that_warns_is_left_to_the_binding() -> None:
    def fn(x: Any) -> float:
        return float(x[0])

    jitted = hot(fn, lambda: torch.ones(2))
    state = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        for _ in range(3):
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                assert jitted(torch.ones(2, requires_grad=True)) == 1.0
            assert ["requires_grad=True" in str(w.message) for w in seen] == [True]
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                assert jitted(torch.ones(2)) == 1.0
            assert not seen
    finally:
        torch.set_warn_always(state)


@pytest.mark.parametrize("dtype, good, bad", [(torch.int8, 7, 300), (torch.uint8, 1.5, -3.0), (torch.int64, 1.0, float("inf"))])
@pytest.mark.parametrize("fn", [store, store_item, store_mask])
def test_stored_number_that_does_not_fit_raises_in_a_hit(fn: Any, dtype: torch.dtype, good: float, bad: float) -> None:
    jitted = hot(fn, lambda: torch.ones(3, 4, dtype=dtype), lambda: good)
    hits = trident.explain(jitted).hits
    outcomes = []
    for f in (fn, jitted):
        x = torch.ones(3, 4, dtype=dtype)
        try:
            f(x, bad)
            outcomes.append(("no error", x.tolist()))
        except RuntimeError as error:
            outcomes.append((str(error).split("\n")[0], x.tolist()))
    assert outcomes[0] == outcomes[1]
    assert trident.explain(jitted).hits > hits
