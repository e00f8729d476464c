"""Golden traces: what is guarded and what is not, where states stand, which objects are never built.

The expected text stands in each test's docstring, for FileCheck.
"""

from __future__ import annotations

import inspect
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from driver import Driver
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

torch = pytest.importorskip("torch")


def check_text(text: str, checks: str, tmp_path: Path) -> None:
    """Run FileCheck."""
    options = Options("checks")
    parser = Parser(options, io.StringIO(inspect.cleandoc(checks)), *pattern_for_opts(options))
    matcher = Matcher(options, FInput("trace", text), parser)
    assert matcher.run() == 0, text


def traced(fn: Callable[..., Any], *args: Any) -> Any:
    driver = Driver(fn)  # type: ignore[arg-type]
    driver(*args)
    assert driver.traces, driver.outcomes[0].abort
    return driver.traces[0]


def golden(fn: Callable[..., Any], *args: Any) -> Any:
    """Check the trace of a call against the function's docstring."""
    trace = traced(fn, *args)
    assert fn.__doc__
    check_text(str(trace), fn.__doc__, None)  # type: ignore[arg-type]
    return trace


def names(trace: Any) -> list[str]:
    return [op.operation.name for op in trace.block.operations]


def test_an_argument_that_is_passed_through_is_not_guarded() -> None:
    def f(x: Any, y: Any) -> Any:
        """
        CHECK:     func.func @trace(%[[X:.*]]: !trident.object, %[[Y:.*]]: !trident.object, %{{.*}}: !trident.object)
        CHECK-NEXT:  %[[P:.*]] = "trident.pack"(%[[Y]])
        CHECK-NEXT:  %[[Q:.*]] = "trident.pack"(%[[X]])
        CHECK-NEXT:  %[[T:.*]] = "trident.build_tuple"(%[[P]], %[[Q]])
        CHECK-NEXT:  "trident.pin"()
        CHECK-NEXT:  return %[[T]]
        """
        return y, x

    golden(f, 1, torch.ones(2))


def test_an_int_is_a_run_time_value() -> None:
    def f(n: int) -> int:
        """
        CHECK:     %[[F:.*]] = "trident.int_fits"(%[[N:.*]]) : (!trident.object)
        CHECK-NEXT:  "trident.guard"(%[[F]]) {expected = true, info = 0 : i64, kind = "type"}
        CHECK-NEXT:  %[[U:.*]] = "trident.unbox_int"(%[[N]])
        CHECK-NEXT:  %[[ONE:.*]] = torch.constant.int 1
        CHECK-NEXT:  %[[S:.*]] = "trident.add_int"(%[[U]], %[[ONE]])
        CHECK-NOT:   "trident.guard"
        CHECK:       return
        """
        return n + 1

    assert len(golden(f, 5).guards) == 1


def test_a_branch_is_a_guard_on_the_comparison() -> None:
    def f(n: int) -> str:
        """
        CHECK:     %[[C:.*]] = "trident.gt_int"
        CHECK-NEXT:  "trident.guard"(%[[C]]) {expected = false, info = 1 : i64, kind = "branch"}
        CHECK-NOT:   "trident.state"
        CHECK:       return
        """
        return "more" if n > 3 else "less"

    trace = golden(f, 1)
    assert trace.guards[1].text == "not (n > 3)"
    assert trace.guards[1].line == f.__code__.co_firstlineno + 7


def test_only_a_use_as_a_constant_promotes() -> None:
    table = ("a", "b", "c")

    def f(n: int) -> str:
        return table[n]

    trace = traced(f, 1)
    assert [(g.kind, g.text) for g in trace.guards if g.kind == "value"] == [("value", "n == 1 (index of table)")]


def test_a_state_stands_before_the_first_effect_and_covers_the_instruction() -> None:
    def f(x: Any, n: int) -> Any:
        """
        CHECK:     "trident.guard"(%{{.*}}) {{.*}}kind = "type"
        CHECK:       "trident.state"
        CHECK-NOT:   "trident.guard"
        CHECK:       %[[S:.*]] = torch.aten.add
        CHECK-NOT:   torch.aten
        CHECK:       "trident.state"(%{{.*}}, %{{.*}}) {snapshot = 1 : i64}
        CHECK-NOT:   "trident.guard"
        CHECK:       %[[M:.*]] = torch.aten.mul
        """
        y = x + 1
        return y * n

    trace = golden(f, torch.ones(2), 3)
    assert len(trace.snapshots) == 2
    assert trace.snapshots[1].line == f.__code__.co_firstlineno + 12


def test_pins_and_types_of_arguments_are_checked_at_the_entry() -> None:
    def f(x: Any, y: Any) -> Any:
        x = x + 1
        return torch.relu(x) + y

    ops = names(traced(f, torch.ones(2), torch.ones(2)))
    first_state = ops.index("trident.state")
    assert "trident.pin" in ops[:first_state] and "trident.pin" not in ops[first_state:]
    assert "trident.type_is" not in ops[first_state:]


def test_pins_are_checked_again_after_a_call_that_may_change_anything() -> None:
    def f(x: Any) -> Any:
        a = LIMIT
        print(x)
        return a + LIMIT

    trace = traced(f, 1)
    ops = names(trace)
    call = ops.index("trident.call")
    assert "trident.pin" in ops[:call] and "trident.pin" in ops[call:]
    assert sum(p.key == "LIMIT" for p in trace.pins) == 1, "one pin, checked twice"


LIMIT = 4
CONFIG = {"eps": 1e-5, "names": ["a"]}


def test_what_was_read_is_pinned_once() -> None:
    def f(x: Any) -> Any:
        return CONFIG["eps"] + CONFIG["eps"] + len(CONFIG["names"]), x

    pins = traced(f, 1).pins
    places = [(pin.kind, id(pin.owner), pin.key) for pin in pins]
    assert len(places) == len(set(places))
    assert [pin.key for pin in pins] == ["", "CONFIG", "eps", "len", "len", "names", ""], "len: absent in the globals"


def test_containers_that_do_not_escape_are_never_built() -> None:
    def f(a: int, b: int) -> int:
        pairs = [(a, 1), (b, 2)]
        pairs.append((a + b, 3))
        table = {"x": pairs, "y": [v for v, _ in pairs]}
        total = 0
        for value, weight in table["x"]:
            total += value * weight
        return total + len(table["y"]) + max(table["y"])

    ops = names(traced(f, 3, 4))
    assert not [op for op in ops if "build" in op or op == "trident.call"], ops


def test_closures_and_instances_are_never_built() -> None:
    class Scale:
        def __init__(self, by: int) -> None:
            self.by = by

        def __call__(self, n: int) -> int:
            return n * self.by

    def f(n: int) -> int:
        scale = Scale(n)
        twice = lambda g, v: g(g(v))  # noqa: E731
        return twice(scale, 3) + (lambda: n)()

    assert "trident.call" not in names(traced(f, 3))


def test_inlined_frames_are_in_the_snapshot() -> None:
    def inner(x: Any, k: int) -> Any:
        y = x * k
        return y + 1

    def f(x: Any, n: int) -> Any:
        z = inner(x, n)
        return z + n

    trace = traced(f, torch.ones(2), 3)
    deepest = trace.snapshots[1]
    assert [frame.code.co_name for frame in deepest.frames] == ["f", "inner"]
    outer = deepest.frames[0]
    assert outer.is_call and outer.pops == 4 and outer.next_offset > outer.offset
    assert len(outer.stack) == 4
    assert deepest.types[-1] is torch.Tensor


def test_dead_locals_are_not_in_the_snapshot() -> None:
    def f(x: Any, big: Any) -> Any:
        y = x + 1
        z = y * 2
        return z - 1

    trace = traced(f, torch.ones(2), torch.ones(3))
    last = trace.snapshots[-1].frames[0]
    assert [repr(entry) for entry in last.locals] == ["NULL"] * 4


def test_a_store_is_forwarded_to_the_reads_that_follow() -> None:
    class Holder:
        value = 0

    holder = Holder()
    holder.value = 1

    def f(n: int) -> int:
        holder.value = n
        return holder.value + 1

    ops = names(traced(f, 3))
    assert ops.count("trident.call") == 1 and "trident.dict_item" not in ops


def test_reasons_of_opaque_calls() -> None:
    def f(items: list[int]) -> Any:
        return sorted(items)

    calls = traced(f, [2, 1]).opaque_calls
    assert [(c.callee, c.reason, c.line) for c in calls] == [("sorted", "a C function without a model", f.__code__.co_firstlineno + 1)]


def test_the_trace_is_linear_in_what_it_does() -> None:
    def f(x: Any, n: int) -> Any:
        for _ in range(n):
            x = x + 1
        return x

    sizes = [len(names(traced(f, torch.ones(1), n))) for n in (50, 100, 200)]
    assert sizes[2] - sizes[1] == 2 * (sizes[1] - sizes[0])


def test_source_lines_are_locations() -> None:
    def f(x: Any) -> Any:
        return x + 1

    trace = traced(f, torch.ones(1))
    op = next(op.operation for op in trace.block.operations if "aten.add" in str(op))
    assert f"test_trace.py:{f.__code__.co_firstlineno + 1}" in str(op.location).replace('"', "")


def test_a_string_is_compared_by_value() -> None:
    def f(mode: str, x: int) -> int:
        """
        CHECK:     %[[C:.*]] = "trident.str_is"
        CHECK-NEXT:  "trident.guard"(%[[C]]) {expected = true, info = 0 : i64, kind = "value"}
        """
        return x + 1 if mode == "up" else x - 1

    golden(f, "up", 1)
    driver = Driver(f)
    assert driver("up", 1) == driver("".join(["u", "p"]), 1) == 2
    assert driver.hits == 1
    assert driver("down", 1) == 0


def test_a_string_that_was_compared_is_still_the_callers_own() -> None:
    def f(mode: str) -> Any:
        if mode == "up":
            return mode, mode is MODE
        return None

    driver = Driver(f)
    for mode in (MODE, "".join(["u", "p"])):
        for _ in range(2):
            result = driver(mode)
            assert result[0] is mode and result[1] is (mode is MODE)
    assert driver.hits >= 1


MODE = "up"
