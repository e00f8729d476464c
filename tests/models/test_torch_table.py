"""Every call of the table, recorded and run natively: values, strides, aliasing, mutation and exceptions are eager's."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

import pytest
import torch

from tests.conformance.harness import check

_spec = importlib.util.spec_from_file_location("torch_call_table", Path(__file__).parent / "torch_call_table.py")
assert _spec is not None and _spec.loader is not None
table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(table)

_ROOTS = {"t": torch, "nn": torch._C._nn, "linalg": torch._C._linalg, "fft": torch._C._fft, "special": torch._C._special}
# Random even where the table makes the distribution a point, or (conj) not comparable as bits.
_LEFT_OUT = ("bernoulli", "random_", "rrelu", "t.conj(")


def _function(expression: str) -> tuple[object, list[str]]:
    used = {node.id for node in ast.walk(ast.parse(expression)) if isinstance(node, ast.Name)}
    names = sorted(used & (set(table.environment()) - {"torch"}))
    space: dict[str, object] = {**_ROOTS, "torch": torch}
    exec(compile(f"def call({', '.join(names)}):\n    return {expression}", f"<{expression}>", "exec"), space)
    return space["call"], names


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("expression", [e for e in table.TABLE if not any(name in e for name in _LEFT_OUT)])
def test_call_four_ways(expression: str) -> None:
    function, names = _function(expression)

    def arguments() -> tuple[object, ...]:
        env = table.environment()
        return tuple(env[name] for name in names)

    try:
        function(*arguments())  # type: ignore[operator]
        raises = False
    except Exception:
        raises = True
    check(function, arguments(), expect_trace=not raises)  # type: ignore[arg-type]
