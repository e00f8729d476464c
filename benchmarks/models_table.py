"""`python -m benchmarks.models_table --out docs/models.md`: models of `transformers`, eager against Trident, bit for bit.

Owns the measurement of one case (what is compared, and which counts are shown) and the table. Every model runs in a process of its
own, so that one that fails, or ends its process, is a row with its error and nothing more. What must hold: a case is called
bit-identical only if every output and every tensor of every cache was compared in every step of both rounds.

May import: benchmarks.transformers_models, trident's public names, trident.entry.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import trident
from trident.entry import Entry, all_entries
from trident.report import Explanation

from .transformers_models import ARCHITECTURES, NEW_TOKENS, PROMPTS, Case, Step, cases, session

STEPS, TIMED = 6, 12  # steps of a round, and of what is measured behind them
RUNS = 3  # whole generations of a round


@dataclass(slots=True)
class Result:
    """What a case gave. `error`: why it did not run to its end. Counts are of the timed steps, unless they say otherwise."""

    identical: bool = False
    differs: str = ""
    specializations: int = 0
    calls: int = 0  # calls that entered Trident
    hits: int = 0
    exits: int = 0
    recorded: int = 0  # misses before the timed steps: what was recorded, or left to CPython
    steps: int = 0
    opaque: dict[str, int] = field(default_factory=dict)  # of what the last call of the second round executed -> how often
    aborts: list[str] = field(default_factory=list)  # reasons, over everything
    eager_ms: float = 0.0
    trident_ms: float = 0.0
    error: str = ""


# ----------------------------------------------------------------------------------------------------------- comparison


def _parts(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every tensor and plain object inside a result, with its path."""
    if isinstance(value, dict):
        yield f"{path}.keys", (type(value).__name__, list(value))
        for key, item in value.items():
            yield from _parts(item, f"{path}[{key!r}]")
    elif isinstance(value, list | tuple):
        yield f"{path}.length", (type(value).__name__, len(value))
        for n, item in enumerate(value):
            yield from _parts(item, f"{path}[{n}]")
    elif type(value).__module__.startswith("transformers.") and hasattr(value, "__dict__"):
        yield f"{path}.type", type(value).__name__
        for name, item in sorted(vars(value).items()):
            yield from _parts(item, f"{path}.{name}")
    else:
        yield path, value


def _same(a: Any, b: Any) -> bool:
    if not isinstance(a, torch.Tensor):
        return type(a) is type(b) and (a is b or bool(a == b))
    if type(a) is not type(b) or a.dtype != b.dtype or a.shape != b.shape or a.stride() != b.stride() or a.device != b.device:
        return False
    return torch.equal(a.contiguous().reshape(-1).view(torch.uint8), b.contiguous().reshape(-1).view(torch.uint8))


def difference(expected: Any, got: Any) -> str:
    """Where two results differ, "" if they are equal bit for bit."""
    mine, theirs = list(_parts(expected, "result")), list(_parts(got, "result"))
    for (path, a), (other, b) in zip(mine, theirs):
        if path != other or not _same(a, b):
            return path
    return "" if len(mine) == len(theirs) else "number of parts"


# ---------------------------------------------------------------------------------------------------------- measurement


def _opaque(explanation: Explanation) -> Counter[str]:
    """Opaque calls of the newest specialization, and of the bridges that were recorded after it."""
    newest: Counter[str] = Counter()
    for report in reversed(explanation.specializations):
        newest.update(f"{call.callee}: {call.reason} ({Path(call.file).name}:{call.line})" for call in report.opaque_calls)
        if report.kind == "root":
            break
    return newest


def _timed(step: Step, model: Any) -> tuple[Any, float]:
    start = time.perf_counter()
    result = step(model)
    return result, (time.perf_counter() - start) * 1e3


def _both(
    case: Case, result: Result, steps: int, eager: tuple[Step, Any], compiled: tuple[Step, Any]
) -> tuple[list[float], list[float]]:
    """Call the two sessions side by side, compare what they give, and say what each step took (ms)."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(steps):
        pairs = [_timed(step, model) for step, model in (eager, compiled)]
        for taken, (_, ms) in zip(times, pairs):
            taken.append(ms)
        result.differs = result.differs or difference(pairs[0][0], pairs[1][0])
    return times


def measure_steps(case: Case, result: Result) -> None:
    """A forward pass or decode step, by `trident.jit(model)`."""
    model = case.architecture.build(case.attention)
    jitted = trident.jit(model)
    for length in PROMPTS:
        for seed in (0, 1):
            eager, compiled = ((session(case, model, length, seed), called) for called in (model, jitted))
            _both(case, result, STEPS, eager, compiled)
    before = trident.explain(jitted)
    result.recorded = before.misses
    taken = _both(case, result, TIMED, eager, compiled)
    after = trident.explain(jitted)
    result.steps, result.hits = TIMED, after.hits - before.hits
    result.calls, result.exits = result.hits + after.misses - before.misses, after.side_exits - before.side_exits
    result.specializations = sum(report.kind == "root" for report in after.specializations)
    result.opaque, result.aborts = dict(_opaque(after)), [f"{abort.reason}: {abort.text}" for abort in after.aborts]
    result.eager_ms, result.trident_ms = map(statistics.median, taken)
    if not jitted.specializations and not result.aborts:
        result.error = after.status


class Hooked:
    """A model whose `generate` runs inside a frame hook."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def generate(self, **arguments: Any) -> Any:
        with trident.frame_hook():
            return self.model.generate(**arguments)


def measure_generation(case: Case, result: Result) -> None:
    """Whole `generate`s: of the jitted model, whose forward passes enter Trident, or of the model in a frame hook."""
    first = _counts()
    aborts = {entry: len(entry.aborts) for entry in first}
    model = case.architecture.build(case.attention)
    called = Hooked(model) if case.hooked else trident.jit(model)
    for length in (PROMPTS[0], *PROMPTS):
        eager, compiled = ((session(case, model, length), which) for which in (model, called))
        _both(case, result, RUNS, eager, compiled)
    before = _counts()
    taken = _both(case, result, RUNS, eager, compiled)
    after = _counts()
    result.recorded = sum(_gain(first, before, entry)[1] for entry in before)
    gains = {entry: _gain(before, after, entry) for entry in after}
    hits, misses, result.exits = (sum(gain[n] for gain in gains.values()) for n in range(3))
    result.steps, result.hits, result.calls = RUNS * NEW_TOKENS, hits, hits + misses
    opaque: Counter[str] = Counter()
    for entry in after:
        explanation = entry.explain()
        if gains[entry][0]:
            result.specializations += len(entry.roots)
            opaque.update(_opaque(explanation))
        result.aborts += [f"{explanation.function}: {abort.reason}: {abort.text}" for abort in explanation.aborts[aborts.get(entry, 0) :]]
    result.opaque = dict(opaque)
    result.eager_ms, result.trident_ms = map(statistics.median, taken)


def _counts() -> dict[Entry, tuple[int, int, int]]:
    """Hits, misses and side exits of each function so far."""
    return {entry: (entry.cell.hits, entry.cell.misses, entry.side_exits) for entry in all_entries()}


def _gain(before: dict[Entry, tuple[int, int, int]], after: dict[Entry, tuple[int, int, int]], entry: Entry) -> list[int]:
    return [now - then for now, then in zip(after[entry], before.get(entry, (0, 0, 0)))]


def measure(case: Case) -> Result:
    """Everything about one case; never raises."""
    result = Result()
    try:
        with torch.no_grad():
            (measure_generation if case.generates else measure_steps)(case, result)
    except Exception as error:
        result.error = f"{type(error).__name__}: {error}"[:300]
    result.identical = not result.differs and not result.error
    return result


def work(arguments: list[str]) -> None:
    """The process of one model: a line of JSON for each of its cases. arguments: the model, and what a step's name must contain."""
    import warnings

    import transformers

    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    model, wanted = arguments
    for case in cases(model):
        if matches(case, wanted):
            print(json.dumps([asdict(case), asdict(measure(case))]), flush=True)


def matches(case: Case, wanted: str) -> bool:
    """Whether a case is asked for: all words of `wanted` occur in its description, and none that follows a "no:"."""
    text = f"{case.step} {case.attention} batch{case.batch}"
    return all((word.removeprefix("no:") in text) != word.startswith("no:") for word in wanted.split())


# ------------------------------------------------------------------------------------------------------------ the table


def collect(models: list[str], wanted: str, console: Console) -> list[tuple[Case, Result]]:
    """Run a process for each model; the rows in order."""
    rows: list[tuple[Case, Result]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        for model in models:
            asked = [case for case in cases(model) if matches(case, wanted)]
            task = progress.add_task(model, total=len(asked))
            command = [sys.executable, "-m", "benchmarks.models_table", "--work", model, wanted]
            with (
                TemporaryFile("w+") as errors,
                subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
            ):
                assert process.stdout is not None
                done = []
                for line in process.stdout:
                    case, result = json.loads(line)
                    done.append((Case(**case), Result(**result)))
                    progress.update(task, advance=1)
                status = process.wait()
                errors.seek(0)
                why = f"the process ended with {status}: {''.join(errors.read().strip().splitlines()[-1:])}"[:300]
            rows += done + [(case, Result(error=why)) for case in asked[len(done) :]]
    return rows


def _yes(result: Result) -> str:
    return "error" if result.error else "yes" if result.identical else "NO"


_COLUMNS: dict[str, Callable[[Case, Result], object]] = {
    "step": lambda case, result: case.step,
    "attention": lambda case, result: case.attention,
    "batch": lambda case, result: case.batch,
    "bit-identical": lambda case, result: _yes(result),
    "specializations": lambda case, result: result.specializations,
    "misses before": lambda case, result: result.recorded,
    "calls per step": lambda case, result: f"{result.calls / result.steps:.3g}" if result.steps else "",
    "hits": lambda case, result: f"{100 * result.hits / result.calls:.0f}%" if result.calls else "",
    "opaque calls": lambda case, result: sum(result.opaque.values()),
    "side exits": lambda case, result: result.exits,
    "eager ms": lambda case, result: f"{result.eager_ms:.2f}",
    "Trident ms": lambda case, result: f"{result.trident_ms:.2f}",
    "speed-up": lambda case, result: f"{result.eager_ms / result.trident_ms:.2f}x" if result.trident_ms else "",
}


def markdown(rows: list[tuple[Case, Result]], command: str) -> str:
    """The document."""
    import transformers

    versions = {"Python": platform.python_version(), "torch": torch.__version__, "transformers": transformers.__version__}
    steps = [row for row in rows if not row[0].generates]
    lines = [
        "# Models of `transformers`",
        "",
        f"Written by `{command}` with {', '.join(f'{name} {version}' for name, version in versions.items())}, one thread.",
        "",
        __doc_of_table__.strip(),
        "",
        f"{sum(r.identical for _, r in rows)} of {len(rows)} cases are bit-identical to eager; of the {len(steps)} forward passes and "
        f"decode steps {sum(r.identical and not r.opaque for _, r in steps)} have no opaque call on a hit.",
        "",
    ]
    for model in dict.fromkeys(case.model for case, _ in rows):
        mine = [(case, result) for case, result in rows if case.model == model]
        lines += [f"## {model}", "", f"| {' | '.join(_COLUMNS)} |", f"|{'---|' * 3}{'---:|' * (len(_COLUMNS) - 3)}"]
        lines += [f"| {' | '.join(str(show(case, result)) for show in _COLUMNS.values())} |" for case, result in mine]
        lines += ["", *_remarks(mine)]
    return "\n".join(lines).rstrip() + "\n"


__doc_of_table__ = """
Toy sizes with random weights; a batch of 4 is padded on the left (not for images, audio and Mamba 2). Forward passes and
decode steps are called through `trident.jit(model)`, each with two sequence lengths and, a decode step, with new caches that grow;
`generate` is that of `trident.jit(model)`, whose forward passes are calls of the jitted model, or ("hook:") of the plain model
inside `trident.frame_hook()`, which captures what it finds; it runs several times with prompts of two lengths. Every output (logits
and tokens) and every tensor of the caches is compared with eager's. "Misses before" are the calls that were recorded, or left to
CPython, while all that came for the first time; calls, hits and side exits are those of the last steps, where nothing is new. Calls
are those that enter Trident, for each step or new token. Opaque calls are those in the newest trace with its bridges (for a hook: of
every function that hits in the last steps; what one case has captured is there for the next one of that model). At these sizes the
time is host time.
"""


def _remarks(rows: list[tuple[Case, Result]]) -> list[str]:
    """What went wrong, what is opaque and why, over all cases of a model."""
    lines = [
        f"* {case.step}, {case.attention}, batch {case.batch}: {result.error or 'differs at ' + result.differs}"
        for case, result in rows
        if result.error or result.differs
    ]
    for title, count in (("opaque", lambda r: r.opaque), ("given up", lambda r: dict(Counter(r.aborts)))):
        seen: Counter[str] = Counter()
        where: dict[str, list[str]] = {}
        for case, result in rows:
            for text, number in count(result).items():
                seen[text] = max(seen[text], number)
                where.setdefault(text, []).append(f"{case.step} {case.attention} {case.batch}")
        lines += [f"* {title}: {number} x {text} in {len(where[text])} cases" for text, number in seen.most_common()]
    return [*lines, ""] if lines else []


def _quoted(argument: str) -> str:
    return f'"{argument}"' if " " in argument else argument


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2:])
        return 0
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.models_table", description="Models of transformers: eager against Trident, bit for bit."
    )
    parser.add_argument("--only", default="", help=f"comma-separated models, of {', '.join(ARCHITECTURES)}")
    parser.add_argument(
        "--cases", default="", help="words of the cases to measure: forward, decode, generate, sdpa, batch4, …; no:hook leaves out"
    )
    parser.add_argument("--out", type=Path, help="the file to write (default: print the table)")
    parser.add_argument("--json", type=Path, help="also write the results as JSON")
    options = parser.parse_args()
    models = [name.strip() for name in options.only.split(",") if name.strip()] or list(ARCHITECTURES)
    if unknown := [name for name in models if name not in ARCHITECTURES]:
        parser.error(f"unknown model {unknown[0]!r}: choose from {', '.join(ARCHITECTURES)}")
    console = Console(stderr=True)
    rows = collect(models, options.cases, console)
    said = {"--only": options.only, "--cases": options.cases, "--out": options.out}  # what the document depends on
    command = "python -m benchmarks.models_table " + " ".join(f"{name} {_quoted(str(given))}" for name, given in said.items() if given)
    text = markdown(rows, command.strip())
    if options.json:
        options.json.write_text(json.dumps([[asdict(case), asdict(result)] for case, result in rows], indent=1))
    if options.out:
        options.out.write_text(text)
        console.print(f"written: {options.out}")
    else:
        print(text)
    return 0 if all(result.identical for _, result in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
