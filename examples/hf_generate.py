"""`generate` of a model of the `transformers` package (random weights, nothing is downloaded), which knows nothing of Trident.

    python examples/hf_generate.py                       # a small Llama, on the CPU if there is no GPU
    python examples/hf_generate.py --model Whisper --sample --layers 8
    python examples/hf_generate.py --list                # the models that there are

Two ways: `trident.jit(model)`, and the plain model inside `with trident.frame_hook():`. Prints what each run of `generate` takes beside
eager's, and whether all tokens and logits equal eager's bit for bit.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import trident
from benchmarks.models_table import Hooked, difference
from benchmarks.transformers_models import GENERATING, PROMPTS, Case, generation
from trident.entry import all_entries

WAYS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "jit": ("trident.jit(model)", trident.jit),
    "hook": ("frame_hook", Hooked),
}


@dataclass
class Run:
    """What one way took, a time for each run (ms); `differs`: where a result was not eager's."""

    title: str
    eager: list[float] = field(default_factory=list)
    mine: list[float] = field(default_factory=list)
    differs: str = ""
    recorded: list[int] = field(default_factory=list)  # specializations and bridges that each run has added
    hits: int = 0  # of the last run
    opaque: int = 0


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="generate of models of transformers (random weights): eager and Trident.")
    parser.add_argument("--list", action="store_true", help="name the models, and do nothing else")
    parser.add_argument("--model", default="Llama", help="one of --list (default: Llama)")
    parser.add_argument("--layers", type=int, default=2, help="number of layers (default: 2)")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=here, help=f"cpu, cuda, cuda:1, ... (default: {here})")
    parser.add_argument("--attention", choices=("sdpa", "eager"), default="sdpa")
    parser.add_argument("--tokens", type=int, default=16, help="new tokens of each run, at least 2 (default: 16)")
    parser.add_argument("--batch", type=int, default=1, help="number of prompts; more than one are padded (default: 1)")
    parser.add_argument("--runs", type=int, default=12, help="runs of each way, at least 2 (default: 12)")
    parser.add_argument("--sample", action="store_true", help="sample instead of taking the most likely token")
    parser.add_argument("--static-cache", action="store_true", help="a cache of a fixed size")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated (default: %(default)s)")
    options = parser.parse_args(arguments)
    if options.model not in GENERATING:
        parser.error(f"unknown model {options.model!r}: choose from {', '.join(GENERATING)}")
    if unknown := [way for way in options.ways.split(",") if way not in WAYS]:
        parser.error(f"unknown way {unknown[0]!r}: choose from {', '.join(WAYS)}")
    for least, option in ((1, "layers"), (2, "tokens"), (1, "batch"), (2, "runs")):
        if getattr(options, option) < least:
            parser.error(f"--{option} must be at least {least}")
    return options


def timed(step: Callable[[Any], Any], model: Any, device: torch.device) -> tuple[Any, float]:
    """What a step gives, and how long it took (ms)."""
    start = time.perf_counter()
    result = step(model)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return result, (time.perf_counter() - start) * 1e3


def counts() -> tuple[int, int]:
    """What has been recorded so far, and hits."""
    entries = all_entries()
    return sum(len(entry.specializations) for entry in entries), sum(entry.cell.hits for entry in entries)


def run_way(way: str, case: Case, options: argparse.Namespace, progress: Progress) -> Run:
    """All runs of one way on a model of its own, each beside one of eager's with the same seed."""
    title, wrap = WAYS[way]
    run = Run(title)
    device = torch.device(options.device)
    before = set(all_entries())
    model = case.architecture.build(options.attention, layers=options.layers).to(device)
    called = wrap(model)
    task = progress.add_task(title, total=options.runs)
    with torch.no_grad():
        for n in range(options.runs):
            prompts = torch.Generator().manual_seed(n)
            step = generation(case, PROMPTS[n % 2], prompts, options.tokens, device)
            expected, took = timed(step, model, device)
            run.eager.append(took)
            recorded, hits = counts()
            got, took = timed(step, called, device)
            run.mine.append(took)
            now = counts()
            run.recorded.append(now[0] - recorded)
            run.hits = now[1] - hits
            run.differs = run.differs or difference(expected, got)
            progress.advance(task)
    newest = [entry.explain() for entry in all_entries() if entry not in before]
    run.opaque = sum(len(report.opaque_calls) for told in newest for report in told.specializations)
    return run


def result_table(runs: list[Run], options: argparse.Namespace) -> Table:
    title = f"{options.model}, {options.layers} layers, batch {options.batch}, {options.tokens} tokens, {options.device}"
    table = Table(title=title, caption="times in milliseconds", box=box.SIMPLE_HEAVY, padding=0, show_edge=False)
    table.add_column("", no_wrap=True)
    headings = ("first\nrun", "later\nruns", "eager", "vs\neager", "same\nbits", "recorded,\nlast run", "hits,\nlast run", "opaque\ncalls")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for run in runs:
        half = len(run.mine) // 2
        mine, eager = statistics.median(run.mine[half:]), statistics.median(run.eager[half:])
        table.add_row(run.title, f"{run.mine[0]:.0f}", f"{mine:.1f}", f"{eager:.1f}", f"{eager / mine:.2f}x",
                      "[red]no" if run.differs else "yes", str(run.recorded[-1]), str(run.hits), str(run.opaque))  # fmt: skip
    return table


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line; 1 if a result is not eager's."""
    if "--list" in (sys.argv[1:] if arguments is None else arguments):
        print("\n".join(GENERATING))
        return 0
    options = parse(arguments)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # at these sizes more threads only wait for one another
    how = "sampled" if options.sample else "greedy"
    case = Case(options.model, f"generate, {how}{', static cache' * options.static_cache}", options.attention, options.batch)
    console = Console()
    columns = (TextColumn("{task.description:18}"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        runs = [run_way(way, case, options, progress) for way in options.ways.split(",")]
    console.print(result_table(runs, options))
    for run in runs:
        verdict = f"DIFFERS from eager's at {run.differs}" if run.differs else "is bit-identical to eager's"
        console.print(f"{run.title}: the output of all {options.runs} runs {verdict}.", style="red" if run.differs else "green")
    return 1 if any(run.differs for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
