"""A process of the campaign: makes and checks programs, or makes a failing one smaller.

`python -m tests.conformance.worker` reads one JSON job a line and answers with JSON lines. Before each program its source is written
out, so that what made the process crash is known.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings

from tests.conformance.generator import programs
from tests.conformance.harness import Report, check_program, load, steady
from tests.conformance.minimise import minimise, outcome


def say(**message: object) -> None:
    """One line to the campaign."""
    sys.__stdout__.write(json.dumps(message) + "\n")  # type: ignore[union-attr]
    sys.__stdout__.flush()  # type: ignore[union-attr]


def _has_arguments(source: str) -> bool:
    """Whether the arguments of all calls can be made."""
    for make in load(source)["CALLS"]:
        try:
            make()
        except Exception:
            return False
    return True


def verdict(source: str, options: dict[str, Any]) -> Report:
    """What `check_program` tells; programs that differ from run to run by themselves are no faults, nor those without arguments."""
    try:
        if not _has_arguments(source):
            return Report(counts=Counter({"without arguments": 1}))
        report = check_program(source, **options)
    except Exception as error:  # the program, or the check of it, is broken
        return Report(f"broken: {type(error).__name__}: {error}")
    if report.fault and not steady(source):
        return Report(counts=report.counts)
    return report


def make_and_check(job: dict[str, Any]) -> None:
    """A chunk of programs."""
    start, number = time.monotonic(), 0

    @seed(job["seed"])
    @settings(max_examples=job["programs"], database=None, phases=[Phase.generate], deadline=None, suppress_health_check=list(HealthCheck))
    @given(programs())
    def run(source: str) -> None:
        nonlocal number
        if number >= job["programs"]:
            return
        number += 1
        say(program=source)
        report = verdict(source, job["options"])
        say(fault=report.fault, counts=report.counts)

    run()
    say(done=True, seconds=time.monotonic() - start)


def make_smaller(job: dict[str, Any]) -> str:
    """A smaller program that fails in the same way."""
    return minimise(job["minimise"], lambda source: outcome(lambda: verdict(source, job["options"]).fault), job["seconds"])


def main() -> None:
    load("program = None\nCALLS = []\n")  # before the first job, so that its time is not counted
    for line in sys.stdin:
        job = json.loads(line)
        if "minimise" in job:
            say(small=make_smaller(job))
        else:
            make_and_check(job)


if __name__ == "__main__":
    main()
