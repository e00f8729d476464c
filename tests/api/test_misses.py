"""What `explain` and the log say of a miss: the guard, the value that it saw, and the line that made it."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import trident
from trident import log
from trident.api import entry_of

X = torch.arange(4.0)
STEP = types.SimpleNamespace(scale=2.0, sizes=[1, 2], table={1: "a"}, name="first")
WEIGHTS = {"first": 1.0, "second": 2.0, 3: 3.0, 4: 4.0}


def _scaled(x: torch.Tensor, n: Any) -> torch.Tensor:
    if n > 2:
        return x * n
    return x + n


def _called(x: torch.Tensor, function: Any) -> torch.Tensor:
    return function(x)  # type: ignore[no-any-return]


def _by_name(x: torch.Tensor, name: Any) -> torch.Tensor:
    return x * WEIGHTS[name]


def _by_rank(x: torch.Tensor) -> torch.Tensor:
    return x.T if x.dim() == 2 else x


def _by_state(x: torch.Tensor) -> torch.Tensor:
    if STEP.name == "first":
        return x * sum(STEP.sizes)
    return x - sum(STEP.sizes)


def _helper(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    return x * factor


def _of_helper(x: torch.Tensor) -> torch.Tensor:
    return _helper(x)


def _line(function: Callable[..., Any], words: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(n for n, line in enumerate(lines) if words in line)


# The function; its first and second arguments; words of its line; the condition, and the value seen.
TOLD: list[tuple[Any, tuple[Any, ...], tuple[Any, ...], str, str, str]] = [
    (_scaled, (X, 5), (X, 1), "n > 2", r"n > 2", "1"),
    (_scaled, (X, 5), (X, 5.5), "n > 2", r"type\(n\) is int", "float"),
    (_called, (X, torch.sin), (X, torch.cos), "function(x)", r"function is ", "_VariableFunctionsClass.cos"),
    (_by_name, (X, "first"), (X, "second"), "WEIGHTS[name]", r"name == 'first' \(key of WEIGHTS\)", "'second'"),
    (_by_name, (X, 3), (X, 4), "WEIGHTS[name]", r"name == 3 \(key of WEIGHTS\)", "4"),
    (_by_rank, (torch.ones(2, 2),), (X,), "x.dim()", r"x\.dim\(\) == 2", "1"),
]


@pytest.mark.parametrize("row", TOLD, ids=lambda row: f"{row[0].__name__}-{row[5]}")
def test_a_guard_says_what_it_saw(row: Any) -> None:
    function, first, second, words, condition, seen = row
    jitted = trident.jit(function)
    for arguments in (first, second):
        assert torch.equal(jitted(*arguments), function(*arguments))
    (miss,) = trident.explain(jitted).last_misses
    assert re.search(condition, miss.text), miss
    assert (miss.seen, miss.file, miss.line) == (seen, __file__, _line(function, words)), miss
    assert f"{miss.text}, seen {seen} ({__file__}:{miss.line})" in str(miss)


CHANGES: dict[str, tuple[Any, Callable[[pytest.MonkeyPatch], object], str, str, str]] = {
    "attribute": (_by_state, lambda m: m.setattr(STEP, "name", "last"), "STEP.name ==", "STEP.name is 'first'", "'last'"),
    "attribute deleted": (_by_state, lambda m: m.delattr(STEP, "name"), "STEP.name ==", "STEP.name is 'first'", "absent"),
    "list": (_by_state, lambda m: m.setattr(STEP, "sizes", [3]), "x * sum", "STEP.sizes is <list>", "<list>"),
    "list grown": (_by_state, lambda m: STEP.sizes.append(5), "x * sum", "items of STEP.sizes", "3 instead of 2"),
    "list item": (_by_state, lambda m: STEP.sizes.__setitem__(0, 7), "x * sum", "items of STEP.sizes", "7 instead of 1"),
    "default": (_of_helper, lambda m: m.setattr(_helper, "__defaults__", (3.0,)), "_helper(x)", "code and defaults of _helper", "<tuple>"),
    "global": (_of_helper, lambda m: m.setitem(globals(), "_helper", torch.neg), "_helper(x)", "_helper is _helper",
               "_VariableFunctionsClass.neg"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_pin_says_what_it_saw(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, change, words, condition, seen = CHANGES[name]
    line = _line(function, words)
    monkeypatch.setattr(STEP, "sizes", [1, 2])
    jitted = trident.jit(function)
    jitted(X)
    change(monkeypatch)
    try:
        jitted(X)
    except AttributeError:
        assert name == "attribute deleted"
    (miss,) = trident.explain(jitted).last_misses
    assert miss.text.startswith(condition) and (miss.seen, miss.file, miss.line) == (seen, __file__, line), miss


def test_totals_and_what_is_printed() -> None:
    jitted = trident.jit(_by_name)
    for name in ("first", "second", 3, 4):
        jitted(X, name)
    told = trident.explain(jitted)
    assert len(told.last_misses) == 1 + 2 + 3 and told.misses == 4
    assert sum(total.count for total in told.missed_guards) == 6
    top = told.missed_guards[0]
    assert (top.count, top.kind, top.file, top.line) == (6, "value", __file__, _line(_by_name, "WEIGHTS[name]"))
    text = " ".join(str(told).split())
    for words in ("last misses", "misses in total", "name == 'first' (key of WEIGHTS)"):
        assert words in text, str(told)
    assert "text in: name ==" in told.selection and "value in: name ==" in told.selection and "try root 3" in told.selection


def test_the_log_says_it_too(tmp_path: Any) -> None:
    file = tmp_path / "log"
    try:
        log.configure(f"guards,misses:{file}")
        jitted = trident.jit(_by_name)
        jitted(X, "first")
        jitted(X, "second")
    finally:
        log.configure("")
    text, line = file.read_text(), _line(_by_name, "WEIGHTS[name]")
    assert f"[misses] _by_name: specialization 0: name == 'first' (key of WEIGHTS), seen 'second' ({__file__}:{line})" in text
    assert f"[guards] _by_name: value: name == 'second' (key of WEIGHTS) ({__file__}:{line})" in text


def test_misses_keep_nothing_alive_and_are_bounded() -> None:
    jitted = trident.jit(_by_name, max_specializations=30)
    for n in range(30):
        WEIGHTS[f"name {n}"] = 1.0
        jitted(X, f"name {n}")
    assert len(trident.explain(jitted).last_misses) == 64
    jitted.reset()
    assert not trident.explain(jitted).last_misses and not trident.explain(jitted).missed_guards
    assert not entry_of(jitted).misses.last
