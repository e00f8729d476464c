"""A short campaign, always of the same programs; and the campaign's own parts: that it finds, keeps and shrinks what is wrong."""

from __future__ import annotations

import os
import signal
from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.conformance.campaign import FOOTER, main
from tests.conformance.generator import programs
from tests.conformance.harness import check_program, load, steady
from tests.conformance.minimise import kind_of, minimise, outcome
from tests.conformance.observing import Painter
from trident.backend import reference

PROGRAMS = 80


def test_generated_programs() -> None:
    counts: Counter[str] = Counter()

    @seed(2026)
    @settings(max_examples=PROGRAMS, database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def run(source: str) -> None:
        # Every fourth under the shadow check, which takes its time.
        report = check_program(source, check=2 if counts["programs"] % 4 == 0 else 0)
        assert not report.fault or not steady(source), f"{report.fault}\n{source}"
        counts.update(report.counts)

    run()
    # The programs are worth something only if many are compiled, hit, left by exits and executed by the reference too.
    assert counts["programs"] == PROGRAMS
    assert counts["compiled"] > PROGRAMS / 3 and counts["hits"] > 2 * PROGRAMS and counts["exits"] > PROGRAMS / 2
    assert counts["by reference"] > PROGRAMS / 2 and counts["bridges"] > PROGRAMS / 8


PLAIN = """
def program(n, x):
    t = 0
    for i in range(3):
        t += n * i
    if n > 1:
        t = t - 1
    print(t)
    return t, x + t

CALLS = [lambda: ((1, torch.ones(2)), {}), lambda: ((2, torch.ones(2)), {}), lambda: ((5, torch.zeros(3)), {})]
"""


def test_wrong_results_are_found_and_made_smaller(monkeypatch) -> None:
    source = "import torch\n" + PLAIN
    assert not check_program(source).fault and steady(source)
    monkeypatch.setitem(reference.RULES, "mul_int", lambda run, op, a, b: a * b + 1)
    fault = check_program(source).fault
    assert fault.startswith("reference, arguments 0: result")
    small = minimise(source, lambda candidate: outcome(lambda: check_program(candidate).fault), 8)
    assert kind_of(check_program(small).fault) == kind_of(fault)
    assert len(small) < len(source) - 20


def test_crashes_are_outcomes() -> None:
    assert outcome(lambda: os.kill(os.getpid(), signal.SIGSEGV) or "") == "crash: SIGSEGV"
    assert outcome(lambda: "a fault") == "a fault"
    assert outcome(lambda: str(1 // 0)) == "broken: ZeroDivisionError"


@pytest.mark.slow
def test_the_command(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["campaign", "--programs", "8", "--seed", "5", "--keep", str(tmp_path), "--check", "1"])
    assert main() == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_worker_that_dies_is_a_finding(tmp_path, monkeypatch) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nread job\necho '{\"program\": \"the source\"}'\nkill -SEGV $$\n")
    python.chmod(0o755)
    keep = str(tmp_path / "kept")
    monkeypatch.setattr("sys.argv", ["campaign", "--programs", "1", "--keep", keep, "--python", str(python), "--minimise", "0"])
    assert main() == 1
    (found,) = (tmp_path / "kept").iterdir()
    assert "crash: SIGSEGV" in found.read_text() and found.read_text().endswith("the source" + FOOTER)


def test_pictures_tell_apart() -> None:
    def same(a: object, b: object) -> bool:
        return bool(Painter("")(a) == Painter("")(b))

    shared, x = [1], torch.zeros(4)
    pairs: list[tuple[object, object]] = [
        (0.0, -0.0), (1, True), (1, 1.0), ([shared, shared], [[1], [1]]), ((x, x[:2]), (x, torch.zeros(2))), (x, x.double()),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}), (x.view(2, 2), x.view(2, 2).t()), (iter([1, 2]), iter([2])), (ValueError(1), ValueError("1")),
        (lambda: shared, lambda: 2), (slice(1), slice(2)), (x, -x)]
    for a, b in pairs:
        assert same(a, a) and same(b, b) and not same(a, b), (a, b)
    assert same(float("nan"), float("nan"))


def test_what_programs_leave_behind_is_compared() -> None:
    source = "G = []\ndef program():\n    G.append(len(G))\nCALLS = [lambda: ((), {})] * 3\n"
    assert load(source)["G"] is not load(source)["G"] and not check_program(source).fault
