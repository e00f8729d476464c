"""Bad values and places that cannot be written: one clear error or warning, and no call is lost."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import trident
from tests.processes import environment
from trident import options

ROOT = Path(__file__).parents[2]
X = torch.arange(4.0)


def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@pytest.mark.parametrize("name, value, error", [
    ("strict", 1, TypeError), ("strict", "yes", TypeError), ("max_specializations", "x", TypeError),
    ("max_specializations", 0, ValueError), ("max_specializations", True, TypeError), ("max_specializations", 1.5, TypeError),
    ("max_bridges", -1, ValueError), ("bridge_threshold", 0, ValueError), ("max_aborts", None, TypeError),
    ("max_trace_ops", 0, ValueError), ("max_opaque_calls", -1, ValueError),
    ("check", 3, ValueError), ("check", "1", TypeError), ("dump", 3, TypeError),
])
def test_values_of_options(name: str, value: Any, error: type[Exception]) -> None:
    for use in (lambda: trident.jit(plus, **{name: value}), lambda: trident.jit(**{name: value}),
                lambda: options.scope(**{name: value}).__enter__()):
        with pytest.raises(error, match=f"option '{name}' takes .*, not") as raised:
            use()
        assert options.ACCEPTED[name].words in str(raised.value)


def test_every_option_has_its_values() -> None:
    assert set(options.ACCEPTED) == options.Options.names()
    for name in options.ACCEPTED:
        options.make(**{name: getattr(options.Options(), name)})
    assert options.make(dump=Path("a") / "b").dump == os.path.join("a", "b")


@pytest.mark.parametrize("action", ["error", "default"])
def test_a_warning_that_is_an_error_loses_no_call(action: Any, capsys: pytest.CaptureFixture[str]) -> None:
    journal: list[int] = []

    @trident.jit(max_specializations=1)
    def function(x: torch.Tensor, mode: str) -> torch.Tensor:
        journal.append(1)
        return x + {"a": 1, "bb": 2, "ccc": 3}[mode]

    with warnings.catch_warnings(record=action == "default") as caught:
        warnings.simplefilter(action)
        for count, mode in enumerate(("a", "bb", "ccc", "bb", "a"), 1):
            assert function(X, mode).equal(X + len(mode)) and len(journal) == count
    text = "runs eagerly where nothing compiled matches"
    if action == "error":
        assert capsys.readouterr().err.count(text) == 1
    else:
        assert [text in str(w.message) for w in caught or ()] == [True] and caught[0].filename == __file__
    assert "left to CPython" in trident.explain(function).status


def _run(code: str, **variables: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment(**variables), timeout=250)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code = "import torch, trident\nf = trident.jit(lambda x: x + 1)\n"
    code += "print([f(torch.ones(n)).sum().item() for n in (2, 2, 3)], f.specializations)"
    out, err = _run(code, TRIDENT_LOG=f"record:{tmp_path}/no/log", TRIDENT_DUMP=str(tmp_path / "file"))
    assert out.strip() == "[4.0, 4.0, 6.0] 1"
    assert err.count("RuntimeWarning") == 2 and "TRIDENT_LOG names a file" in err and "nothing is dumped to" in err
    assert "[record]" in err
