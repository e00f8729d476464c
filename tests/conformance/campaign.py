"""Many generated programs, four ways: `python -m tests.conformance.campaign --programs 20000 --seed 1 --keep DIR`.

Programs are made and checked in worker processes; a crash or a hang of one is a finding like any other. What is found is made smaller and
written to DIR as a file that can be run. Exit status 1 if anything was found. The same seed and number give the same programs with the
same Python and Hypothesis.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from tests.conformance.minimise import kind_of
from tests.processes import environment

ROOT = Path(__file__).resolve().parents[2]
CHUNK = 50  # programs of one job
JOBS_OF_A_WORKER = 8  # then a new process: what was compiled stays in memory
LIMIT = 120.0  # seconds for one program
ALIKE = 3  # findings of one kind that are kept
FOOTER = '\n\nif __name__ == "__main__":\n    from tests.conformance.campaign import replay\n\n    replay(__file__)\n'


class Worker:
    """A worker process."""

    def __init__(self, python: str) -> None:
        self._process = subprocess.Popen([python, "-m", "tests.conformance.worker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=subprocess.DEVNULL, text=True,
                                         env=environment(OMP_NUM_THREADS="1", PYTHONHASHSEED="0"))
        self.jobs = 0
        self.hung = False

    def send(self, job: dict[str, Any]) -> None:
        """Give it something to do."""
        assert self._process.stdin is not None
        self.jobs += 1
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()

    def receive(self, limit: float = LIMIT) -> dict[str, Any] | None:
        """Its next message; None if it has ended, or hung and was ended."""
        assert self._process.stdout is not None
        timer = threading.Timer(limit, self._kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        return json.loads(line) if line else None

    def _kill(self) -> None:
        self.hung = True
        self._process.kill()

    def close(self) -> str:
        """End it; how it ended."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            status = self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        return "hang" if self.hung else f"crash: {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"


@dataclass
class Campaign:
    """What is to be done, and what was found."""

    args: argparse.Namespace
    console: Console
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    kept: list[Path] = field(default_factory=list)
    done: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks = list(range(-(-self.args.programs // CHUNK)))[::-1]

    @property
    def options(self) -> dict[str, object]:
        """Of `trident.jit`."""
        return {"check": self.args.check}

    def next_chunk(self) -> int | None:
        """The number of a chunk nobody works on."""
        with self._lock:
            return self._chunks.pop() if self._chunks else None

    def serve(self, progress: Progress, task: Any) -> None:
        """Feed one worker after the other."""
        worker = Worker(self.args.python)
        while (chunk := self.next_chunk()) is not None:
            if worker.jobs >= JOBS_OF_A_WORKER:
                worker.close()
                worker = Worker(self.args.python)
            if not self._chunk(worker, chunk, progress, task):
                worker = Worker(self.args.python)
        worker.close()

    def _chunk(self, worker: Worker, chunk: int, progress: Progress, task: Any) -> bool:
        """One chunk; whether the worker survived. The rest of a chunk after a crash is lost, and not counted."""
        count = min(CHUNK, self.args.programs - chunk * CHUNK)
        source = ""
        worker.send({"seed": self.args.seed * 1_000_003 + chunk, "programs": count, "options": self.options})
        while True:
            message = worker.receive()
            if message is None:
                self.found(worker.close(), source, f"seed {self.args.seed}, chunk {chunk}")
                return False
            if "program" in message:
                source = message["program"]
            elif "fault" in message:
                with self._lock:
                    self.counts.update(message["counts"])
                    self.done += 1
                speed = self.done / max(progress.tasks[0].elapsed or 0, 1)
                progress.update(task, advance=1, description=f"{speed:.1f} programs/s, {sum(self.kinds.values())} found")
                if not self.console.is_terminal and self.done % 250 == 0:
                    self.console.print(f"{self.done} programs, {speed:.1f}/s")
                if message["fault"]:
                    self.found(message["fault"], source, f"seed {self.args.seed}, chunk {chunk}")
            else:
                return True

    def found(self, fault: str, source: str, where: str) -> None:
        """Keep a failing program."""
        kind = kind_of(fault)
        with self._lock:
            self.kinds[kind] += 1
            number = len(self.kept) + 1
            if self.kinds[kind] > ALIKE:
                return
            path = self.args.keep / f"found_{self.args.seed}_{number:03}.py"
            self.kept.append(path)
        path.write_text(self._file(fault, where, source))
        self.console.print(f"[red]{path.name}[/red]: {fault[:200]}", markup=True, highlight=False)
        small = self._smaller(source)
        if small != source:
            path.write_text(self._file(fault, where, small))

    @staticmethod
    def _file(fault: str, where: str, source: str) -> str:
        head = "".join(f"# {line}\n" for line in [where, *fault[:900].splitlines()])
        return head + source + FOOTER

    def _smaller(self, source: str) -> str:
        seconds = self.args.minimise
        if not source or not seconds:
            return source
        worker = Worker(self.args.python)
        worker.send({"minimise": source, "options": self.options, "seconds": seconds})
        message = worker.receive(seconds + 90)
        worker.close()
        return str(message["small"]) if message else source

    def run(self) -> None:
        """All programs."""
        columns = (TextColumn("{task.description:30}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self.console, refresh_per_second=1) as progress:
            task = progress.add_task("starting", total=self.args.programs)
            threads = [threading.Thread(target=self.serve, args=(progress, task), daemon=True) for _ in range(self.args.jobs)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()


def replay(path: str) -> None:
    """Check a kept program again."""
    from tests.conformance.harness import check_program

    source = Path(path).read_text().removesuffix(FOOTER)
    report = check_program(source)
    sys.exit(report.fault or f"no difference: {dict(report.counts)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.campaign", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("found"), help="folder for the programs that fail")
    parser.add_argument("--check", type=int, default=0, choices=(0, 1, 2), help="the option of trident.jit")
    parser.add_argument("--jobs", "-j", type=int, default=1, help="processes at a time")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the workers")
    parser.add_argument("--minimise", type=float, default=60, metavar="SECONDS", help="time to make one finding smaller, 0: not at all")
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if sys.stdout.isatty() else 140)
    campaign, start = Campaign(args, console), time.monotonic()
    campaign.run()
    console.print(dict(sorted(campaign.counts.items())))
    seconds = time.monotonic() - start
    console.print(f"{campaign.done} programs in {seconds:.0f} s, seed {args.seed}, {sum(campaign.kinds.values())} found:")
    for kind, count in campaign.kinds.most_common():
        console.print(f"{count:6} {kind}", markup=False, highlight=False)
    return 1 if campaign.kinds or not campaign.done else 0


if __name__ == "__main__":
    sys.exit(main())
