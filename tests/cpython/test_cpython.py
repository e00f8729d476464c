"""The quick part of CPython's own tests under the recorder; the whole of it is `python tests/cpython` (see there)."""

from __future__ import annotations

import importlib.util
import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(HERE), *arguments], capture_output=True, text=True, timeout=280, cwd=HERE.parents[1])


def _has_tests() -> bool:
    return importlib.util.find_spec("test") is not None and importlib.util.find_spec("test.test_dict") is not None


def test_what_is_not_there_is_said() -> None:
    done = _command("no_such_module")
    assert done.returncode == 5 and "none of these test modules" in done.stdout


def test_a_run_is_judged() -> None:
    judge: Any = runpy.run_path(str(HERE / "__main__.py"))["judge"]

    def result(*seen: tuple[str, str, str], **more: Any) -> dict[str, Any]:
        return {"rounds": [list(seen)], **more}

    ok, failed = ("test.test_scope.T.test_x", "ok", ""), ("test.test_scope.T.test_x", "failed", "why")
    known = ("test.test_scope.ScopeTests.testLeaks", "failed", "leak")
    assert judge("scope", {"plain": result(ok), "recorded": result(ok)}) == ([], [])
    assert judge("scope", {"plain": result(ok), "recorded": result(failed)})[0]
    assert judge("scope", {"plain": result(ok), "declined": result(failed)})[0]
    assert judge("scope", {"plain": result(ok), "recorded": result()})[0], "a test that did not run"
    assert judge("scope", {"plain": result(), "recorded": result()})[0], "no test at all"
    assert judge("scope", {"plain": result(ok), "recorded": {"error": "crash"}})[0]
    assert judge("scope", {"plain": result(ok), "recorded": result(ok, faults=["internal"])})[0]
    bad, expected = judge("scope", {"plain": result(ok), "recorded": result(ok, known)})
    assert expected and not bad
    assert judge("scope", {"plain": result(ok), "declined": result(ok, known)})[0], "harmlessness knows no such excuse"


def test_every_entry_has_a_reason_and_is_of_a_module_that_runs() -> None:
    tables = runpy.run_path(str(HERE / "cpython_modules.py"))
    reasons = {entry.reason for entry in tables["EXPECTED"]}
    for module, tests in tables["OMITTED"].items():
        assert module in tables["MODULES"]
        reasons.update(tests.values())
    assert reasons == set(tables["REASONS"])
    assert {entry.module for entry in tables["EXPECTED"]} | set(tables["QUICK"]) <= set(tables["MODULES"])
    assert len(set(tables["EXPECTED"])) == len(tables["EXPECTED"])


def test_entries_that_no_difference_needed_are_found() -> None:
    unmatched: Any = runpy.run_path(str(HERE / "__main__.py"))["unmatched"]
    test = "test.test_scope.ScopeTests.testLeaks"
    ok, failed = {"rounds": [[(test, "ok", "")]]}, {"rounds": [[(test, "failed", "leak")]]}
    assert [entry.test for entry in unmatched({"scope": {"plain": ok, "recorded": ok}})] == ["ScopeTests.testLeaks"]
    assert not unmatched({"scope": {"plain": ok, "recorded": failed}})
    assert not unmatched({"scope": {"plain": ok, "declined": ok}}), "it may be seen in the recorded mode only"


@pytest.mark.skipif(not _has_tests(), reason="this Python comes without CPython's test modules")
def test_quick_part(tmp_path: Path) -> None:
    out = tmp_path / "results.json"
    done = _command("--quick", "-j", "2", "--json", str(out))
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    results = json.loads(out.read_text())
    recorded = [modes["recorded"] for modes in results.values()]
    assert len(recorded) >= 8 and all(any(r["rounds"]) for r in recorded)
    assert all(r["traces"] > 0 and r["hits"] > 0 for r in recorded), "nothing was compiled, or nothing that was compiled was executed"
