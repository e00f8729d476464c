"""CPython's own tests, plainly, with an evaluator that declines every frame, and with every eligible frame recorded.

`python tests/cpython [--quick] [-j N] [--python PATH] [--json FILE] [MODULE …]` runs the modules of `cpython_modules.py` (or those
named, without "test_"), each in a process of its own for each mode, and compares what came out test by test, in each of the rounds.
Exit status 1: a difference that is not listed, a fault of Trident's own, a crash, or a module in which no test ran; 5: this Python
has no test modules.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from cpython_modules import EXPECTED, MODULES, OMITTED, QUICK, Expected, expected  # noqa: E402

MODES = ("plain", "declined", "recorded")
Results = dict[str, dict[str, dict[str, Any]]]


class Servers:
    """Worker processes, each fed by a thread of its own from one list of jobs."""

    def __init__(self, python: str, jobs: list[dict[str, Any]], count: int, done: Any) -> None:
        self._jobs, self._done, self._python, self._lock = jobs[::-1], done, python, threading.Lock()
        self.threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _next(self) -> dict[str, Any] | None:
        with self._lock:
            return self._jobs.pop() if self._jobs else None

    def _serve(self) -> None:
        path = os.pathsep.join([str(HERE.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
        command = [self._python, str(HERE / "cpython_worker.py")]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              env=env) as server:
            assert server.stdin is not None and server.stdout is not None
            while (job := self._next()) is not None:
                server.stdin.write(json.dumps(job) + "\n")
                server.stdin.flush()
                line = server.stdout.readline()
                self._done(job, json.loads(line) if line else {**job, "error": "the worker did not start, or ended"})
                if not line:
                    return


def differences(module: str, mode: str, plain: dict[str, Any], other: dict[str, Any]) -> list[tuple[str, Expected | None]]:
    """What came out differently, and the entry that knows it."""
    found = []
    for number, (ours, theirs) in enumerate(zip(plain["rounds"], other["rounds"], strict=True)):
        a, b = Counter(map(tuple, ours)), Counter(map(tuple, theirs))
        for sign, part in (("-", a - b), ("+", b - a)):
            found += [(f"{sign} round {number}: {test}: {outcome} {why[:600]}", expected(module, test, mode))
                      for test, outcome, why in part]
    return found


def judge(module: str, results: dict[str, dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Complaints about a module, and its expected differences."""
    bad, known = [], []
    for mode, result in results.items():
        if "error" in result:
            bad.append(f"{module}, {mode}: {result['error']}\n{result.get('trace', '')}{result.get('output', '')}")
        elif not any(result["rounds"]):
            bad.append(f"{module}, {mode}: no test ran")
        bad += [f"{module}, {mode}: a fault of Trident's own: {fault}" for fault in result.get("faults", ())]
        if mode == "plain" or "rounds" not in result or "rounds" not in results["plain"]:
            continue
        for text, entry in differences(module, mode, results["plain"], result):
            (known if entry else bad).append(f"{module}, {mode}{f' ({entry.reason})' if entry else ''}: {text}")
    return bad, known


def unmatched(results: Results) -> list[Expected]:
    """Entries that no difference needed, of the modules that ran in every mode in which they may be seen."""
    needed: set[Expected | None] = set()
    for module, modes in results.items():
        for mode, result in modes.items():
            if "rounds" in result and "rounds" in modes["plain"]:
                needed.update(entry for _, entry in differences(module, mode, modes["plain"], result))
    return [entry for entry in EXPECTED if entry not in needed
            and all("rounds" in results.get(entry.module, {}).get(mode, {}) for mode in ("plain", *entry.modes))]


def table_of(results: Results, verdicts: dict[str, tuple[list[str], list[str]]]) -> Table:
    """One row per module."""
    table = Table(title="CPython's tests")
    names = ("module", "tests", "recorded", "traces", "bridges", "hits", "exits", "given up", "expected", "wrong",
             "plain s", "declined s", "recorded s")
    for name in names:
        table.add_column(name, justify="left" if name == "module" else "right")
    total: Counter[str] = Counter()
    for module, modes in results.items():
        recorded = modes.get("recorded", {})
        row: dict[str, float] = {
            "tests": len((modes["plain"].get("rounds") or [[]])[0]), "recorded": recorded.get("recordings", 0),
            "traces": recorded.get("traces", 0), "bridges": recorded.get("bridges", 0), "hits": recorded.get("hits", 0),
            "exits": recorded.get("exits", 0), "given up": sum(recorded.get("aborts", {}).values()),
            "expected": len(verdicts[module][1]), "wrong": len(verdicts[module][0]),
            **{f"{mode} s": sum(modes.get(mode, {}).get("seconds", ())) for mode in MODES}}
        total.update(row)  # type: ignore[arg-type]
        table.add_row(module, *_cells(row, names), style="red" if row["wrong"] else "")
    table.add_section()
    table.add_row(f"{len(results)} modules", *_cells(dict(total), names))
    return table


def _cells(row: dict[str, float], names: tuple[str, ...]) -> list[str]:
    return [f"{row.get(name, 0):,.2f}" if name.endswith(" s") else f"{row.get(name, 0):,.0f}" for name in names[1:]]


def run(args: argparse.Namespace, console: Console) -> Results:
    """All jobs; what came of each."""
    chosen = args.modules or (QUICK if args.quick else MODULES)
    jobs = [{"test": f"test.test_{module}", "mode": mode, "omit": list(OMITTED.get(module, ())), "limit": args.limit}
            for module in chosen for mode in MODES if mode == "plain" or mode in args.modes]
    results: Results = {module: {} for module in chosen}
    columns = (TextColumn("{task.description:40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("", total=len(jobs))

        def done(job: dict[str, Any], result: dict[str, Any]) -> None:
            module = job["test"].removeprefix("test.test_")
            results[module][job["mode"]] = result
            progress.update(task, advance=1, description=f"{module}: {job['mode']}")
            if args.json:  # as it grows: a long run can be looked into, and is not lost
                args.json.write_text(json.dumps(results))

        for thread in Servers(args.python, jobs, args.jobs, done).threads:
            thread.join()
    return {module: modes for module, modes in results.items() if modes and not any(m.get("missing") for m in modes.values())}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python tests/cpython", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("modules", nargs="*", metavar="MODULE", help='without "test_"; all that are listed if none is named')
    parser.add_argument("--quick", action="store_true", help="the short part that runs in CI")
    parser.add_argument("--modes", default="declined,recorded", type=lambda text: text.split(","), help="beside plain")
    parser.add_argument("--python", default=sys.executable, help="the interpreter whose tests are run")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=900, help="seconds for one module in one mode")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--show-expected", action="store_true", help="print the expected differences too")
    args = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 180)
    results = run(args, console)
    if not results:
        console.print("this Python has none of these test modules (Linux distributions leave them out)")
        return 5
    verdicts = {module: judge(module, modes) for module, modes in results.items()}
    console.print(table_of(results, verdicts))
    for bad, known in verdicts.values():
        for line in (*bad, *(known if args.show_expected else ())):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for entry in unmatched(results):
        line = f"expected, but not seen on this Python: {entry.module}, {entry.test} ({entry.reason})"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return int(any(bad for bad, _ in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
