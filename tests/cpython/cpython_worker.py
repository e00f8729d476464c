"""Runs modules of CPython's `test` package, each in a fork of its own, and prints one line of JSON for each.

`python cpython_worker.py` reads jobs from stdin: `{"test": "test.test_dict", "mode": "plain" | "declined" | "recorded"}`, with
"only" and "omit" (parts of tests' names) and "limit" (seconds) if wanted. Every mode does the same in the same kind of process: load
the module, run all its tests ROUNDS times (the same instances, so that what the first round has compiled is executed in the next),
write what came out of each. Only the hook is another one.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROUNDS = 2
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


class Observed(unittest.TestResult):
    """What came out of each test: (test, outcome, why)."""

    def __init__(self, at: Path) -> None:
        super().__init__()
        self.seen: list[tuple[str, str, str]] = []
        self._at = at

    def startTest(self, test: Any) -> None:
        super().startTest(test)
        self._at.write_text(_name(test))  # for a process that crashes in it

    def _note(self, test: Any, outcome: str, why: str = "") -> None:
        self.seen.append((_name(test), outcome, _ADDRESS.sub("0x…", why)[:2000]))

    def addSuccess(self, test: Any) -> None:
        self._note(test, "ok")

    def addFailure(self, test: Any, err: Any) -> None:
        self._note(test, "failed", _why(err))

    def addError(self, test: Any, err: Any) -> None:
        self._note(test, "error", _why(err))

    def addSkip(self, test: Any, reason: str) -> None:
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self._note(test, "expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self._note(test, "unexpected success")

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._note(subtest, "failed", _why(err))


def _name(test: Any) -> str:
    return _ADDRESS.sub("0x…", test.id())


def _why(err: Any) -> str:
    try:
        text = str(err[1])
    except Exception as error:
        text = f"<{type(error).__name__} in str()>"
    where = traceback.extract_tb(err[2])
    last = [frame for frame in where if "unittest" not in frame.filename]
    return f"{err[0].__name__}: {text}" + (f" at {Path(last[-1].filename).name}:{last[-1].lineno}" if last else "")


def _hook(mode: str) -> Any:
    if mode == "plain":
        return None
    import cpython_forced

    return cpython_forced.Forced() if mode == "recorded" else cpython_forced.Declining()


def _run(job: dict[str, Any], at: Path) -> dict[str, Any]:
    name = job["test"]
    if importlib.util.find_spec("test") is None or importlib.util.find_spec(name) is None:
        return {"missing": f"this Python has no {name}"}
    from test import support

    support.verbose, support.use_resources = 0, []
    made = _hook(job["mode"])
    tests = unittest.defaultTestLoader.loadTestsFromName(name)
    suite = unittest.TestSuite([_filtered(tests, job.get("only") or [""], job.get("omit", []))])
    rounds, seconds = [], []
    for _ in range(ROUNDS):
        _make_ready(suite)
        result = Observed(at)
        if made is not None:
            made.hook.install()
        start = time.perf_counter()
        try:
            suite.run(result)
        finally:
            seconds.append(round(time.perf_counter() - start, 3))
            if made is not None:
                made.hook.remove()
        rounds.append(result.seen)
    return {"rounds": rounds, "seconds": seconds, **(made.figures() if made is not None else {})}


def _make_ready(suite: unittest.TestSuite) -> None:
    """For another round with the same tests."""
    suite._cleanup = False  # type: ignore[attr-defined]
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            _make_ready(test)
        elif isinstance(test, unittest.IsolatedAsyncioTestCase):
            test._asyncioRunner = None  # type: ignore[attr-defined]


def _filtered(suite: unittest.TestSuite, only: list[str], omit: list[str]) -> unittest.TestSuite:
    made = unittest.TestSuite()
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            made.addTest(_filtered(test, only, omit))
        elif any(part in test.id() for part in only) and not any(part in test.id() for part in omit):
            made.addTest(test)
    return made


def _child(job: dict[str, Any], out: Path) -> None:
    """In the fork: run the job, leave its result in a file, and end."""
    os.setsid()
    with open(out / "output", "wb") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    faulthandler.enable(open(out / "crash", "w"))
    os.mkdir(out / "cwd")
    os.chdir(out / "cwd")
    try:
        result = _run(job, out / "at")
    except BaseException as error:
        result = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()[-3000:]}
    (out / "result").write_text(json.dumps(result))
    sys.stdout.flush()
    os._exit(0)


def _wait(pid: int, limit: float) -> int | None:
    end = time.monotonic() + limit
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def _serve(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="trident-cpython-", ignore_cleanup_errors=True) as directory:
        out = Path(directory)
        pid = os.fork()
        if pid == 0:
            try:
                _child(job, out)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        status = _wait(pid, job.get("limit", 600))
        if (out / "result").exists():
            result = json.loads((out / "result").read_text())
        elif status is None:
            result = {"error": "it did not end in time"}
        else:
            crash = (out / "crash").read_text() if (out / "crash").exists() else ""
            result = {"error": f"the process ended with status {status}", "trace": crash[:3000]}
        if "error" in result and (out / "at").exists():
            result["error"] += f", in {(out / 'at').read_text()}"
        if "error" in result and (out / "output").exists():
            result["output"] = (out / "output").read_bytes()[-2000:].decode(errors="replace")
        return {**job, **result}


def main() -> None:
    sys.path[:] = [str(HERE.parents[1]), str(HERE), *[entry for entry in sys.path[1:] if entry]]
    import cpython_forced  # noqa: F401 (everything that the forks share)

    from trident.frontend.models import registry
    from trident.support import unsupported_reason

    assert not unsupported_reason(), unsupported_reason()
    registry()
    gc.collect()
    gc.freeze()  # collections in the forks look at the tests' objects, not at ours
    for line in sys.stdin:
        print(json.dumps(_serve(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
