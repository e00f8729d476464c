"""The recorder's own speed: seconds to record and to compile, by stage, for traces of 100 to 20,000 ops; a process for each.

    python -m benchmarks.recorder "tensor ops" 1000 trident

prints one line of JSON. A program gets its number of ops from the number of copies of its body. What is measured is the first call:
the program's own work is part of "record" (and of torch.compile's time). The process has compiled a small trace of the same program
before, so that nothing is initialized meanwhile; caches of torch.compile are off.
"""

from __future__ import annotations

import json
import linecache
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass
from typing import Any

import torch

from llm.report import describe

from . import ROOT
from .measure import Grid

SIZES = (100, 300, 1_000, 3_000, 10_000, 20_000)
QUICK = (100, 300)
COMPILE_SECONDS = 60  # torch.compile gets so long for a size; where it needs longer, larger ones are not tried
COLUMNS = ("trace ops", "record s", "passes s", "lowering s", "LLVM s", "publication s", "CPU s", "s per 1,000 ops", "peak MB",
           "torch.compile s")


class Counter:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def scaled(self, value: int) -> int:
        return value * self.factor + 1


def mixed(a: int, b: int = 2, *, c: int = 1) -> int:
    return a % 1_000_003 + b * c


COUNTER = Counter(3)


@dataclass(frozen=True)
class Program:
    """Straight code: after `first`, `body` again and again, with the number of its copy in the place of `{n}`."""

    head: str
    first: str
    body: str
    tail: str
    arguments: Callable[[], tuple[Any, ...]]

    def function(self, copies: int) -> Callable[..., object]:
        """The function with so many copies of the body."""
        body = [line.format(n=n) for n in range(copies) for line in self.body.splitlines()]
        lines = [f"def program{self.head}:", *(f"    {line}" for line in (self.first, *body, f"return {self.tail}"))]
        text, name = "\n".join(lines), f"<{copies} copies>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        scope: dict[str, Any] = {"torch": torch, "COUNTER": COUNTER, "mixed": mixed, "__name__": "program"}
        exec(compile(text, name, "exec"), scope)
        made: Callable[..., object] = scope["program"]
        return made


def _tensors() -> tuple[Any, ...]:
    return torch.full((4, 4), 0.5), torch.eye(4)


PROGRAMS: dict[str, Program] = {
    # Pointwise operators, a view, shapes, a matrix product.
    "tensor ops": Program("(x, w)", "pass", """y = torch.relu(x @ w + {n})
y = y.view(x.shape[0], -1)
x = (y * 0.5 - x) / 3""", "x", _tensors),
    # Ints, comparisons, calls with keywords and defaults, attributes, methods, tuples, lists and dicts.
    "Python code": Program("(a, b)", 'table = {"low": 1, "high": 2}', """a = COUNTER.scaled(a) & 0xFFFFFF
first, second = pair = (a, b)
if first > second: table["high"] = first
else: table["low"] = second
items = [a, b, {n}]
items.append(mixed(second, c=table["high"] & 7) + {n})
a, b = a ^ items[-1] ^ len(pair), items[3] & 0xFFFF""", "a, b, table", lambda: (5, 7)),
    # A list that grows with the trace, as the outputs of steps in time do.
    "growing list": Program("(x, w)", "outputs = []", """x = torch.tanh(x * w)
outputs.append(x)""", "outputs", _tensors),
}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def first_call(name: str, copies: int) -> tuple[Any, float]:
    """The specialization of a new function's first call, and its CPU seconds."""
    import trident
    from trident.api import entry_of

    program = PROGRAMS[name]
    jitted = trident.jit(program.function(copies), max_trace_ops=400_000)
    arguments = program.arguments()
    start = time.process_time()
    jitted(*arguments)
    seconds = time.process_time() - start
    entry = entry_of(jitted)
    if not entry.specializations:
        raise RuntimeError(f"nothing was compiled: {[str(abort) for abort in entry.aborts]}")
    return entry.specializations[0], seconds


def copies_for(name: str, ops: int) -> int:
    """How many copies make a trace of so many ops, from two small traces."""
    few, more = (len(first_call(name, copies)[0].trace.block.operations) for copies in (4, 8))
    return max(1, round((ops - few) * 4 / (more - few)) + 4)


def measure(name: str, ops: int) -> dict[str, float]:
    """Of one trace, in this process."""
    copies = copies_for(name, ops)
    before = peak_mb()
    specialization, cpu = first_call(name, copies)
    names = ("record", "passes", "lowering", "llvm", "publication")
    stages = {stage: ms / 1e3 for stage, ms in zip(names, astuple(specialization.timing), strict=True)}
    return {"copies": copies, "ops": len(specialization.trace.block.operations), "cpu": cpu, "peak_mb": peak_mb() - before, **stages}


def measure_compile(name: str, copies: int) -> float:
    """Seconds of torch.compile's first call of the same program."""
    from llm.peers import torch_compile

    program = PROGRAMS[name]
    warm = torch_compile(lambda x: x + 1, torch.device("cpu"))
    warm(torch.ones(4))
    torch._dynamo.reset()
    compiled = torch_compile(program.function(copies), torch.device("cpu"))
    arguments = program.arguments()
    start = time.perf_counter()
    compiled(*arguments)
    return time.perf_counter() - start


def run(name: str, size: int, mode: str, seconds: float) -> Any:
    """`measure` (of so many ops) or `measure_compile` (of so many copies) in a new process."""
    environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [sys.executable, "-m", "benchmarks.recorder", name, str(size), mode]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if "Error" in line.split(":")[0]]
        raise RuntimeError((lines or [f"exit status {done.returncode}"])[-1][:200])
    return json.loads(done.stdout.strip().splitlines()[-1])


def grid(name: str, sizes: tuple[int, ...], compile_too: bool, repeats: int, progress: Callable[[], None]) -> Grid:
    """One row for each size: the best of `repeats` (one for long traces)."""
    rows: list[tuple[object, ...]] = []
    for size in sizes:
        try:
            found = [run(name, size, "trident", 900) for _ in range(repeats if size <= 1_000 else 1)]
            best = min(found, key=lambda one: one["cpu"])
            stages = [best[stage] for stage in ("record", "passes", "lowering", "llvm", "publication")]
            cells = [round(seconds, 3) for seconds in (*stages, best["cpu"], best["cpu"] / best["ops"] * 1e3)]
            theirs: object = "not measured"
            if compile_too:
                theirs, compile_too = _their_time(name, best["copies"])
            rows.append((best["ops"], *cells, round(best["peak_mb"]), theirs))
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            rows.append((size, *[""] * (len(COLUMNS) - 2), f"did not run: {describe(error)}"))
        progress()
    return Grid(f"recorder-{name.replace(' ', '-').lower()}", f"To record and compile one trace: {name}", COLUMNS, rows)


def _their_time(name: str, copies: int) -> tuple[object, bool]:
    """torch.compile's seconds or why there are none, and whether to go on."""
    try:
        return round(run(name, copies, "compile", COMPILE_SECONDS), 2), True
    except subprocess.TimeoutExpired:
        return f"more than {COMPILE_SECONDS}", False
    except RuntimeError as error:
        return f"did not run: {describe(error)}", False


if __name__ == "__main__":
    which, count, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    print(json.dumps(measure(which, count) if how == "trident" else measure_compile(which, count)))
