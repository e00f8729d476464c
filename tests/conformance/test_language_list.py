"""The list of what recorded Python may contain, program by program: eager, recorded and on hits, with what is logged in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import trident
from tests.conformance import language_programs
from tests.conformance.harness import agree
from tests.conformance.language_programs import LOG, PROGRAMS
from tests.conformance.observing import Observed, observe
from trident.api import entry_of

X = torch.randn(3, 4)


def _observed(function: Callable[..., object], n: int) -> Observed:
    LOG.clear()
    language_programs.COUNTER = -1
    return observe(lambda: function(X, n), (X,), language_programs.__file__, lambda: (list(LOG), language_programs.COUNTER))


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    function = PROGRAMS[name]
    jitted = trident.jit(function)
    entry = entry_of(jitted)
    for round_ in range(4):
        for n in (5, 2, 7):
            expected = _observed(function, n)
            agree(expected, _observed(jitted, n), f"{name}, round {round_}, {n}")
    internal = [str(abort) for abort in entry.aborts if abort.reason in ("internal", "compile")]
    assert not internal
    assert entry.cell.hits, [str(abort) for abort in entry.aborts]
