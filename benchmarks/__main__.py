"""`python -m benchmarks`: measures everything and writes a results file."""

from __future__ import annotations

import argparse
import sys

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from . import recorder, results
from .cases import launch_cases, two_op_case
from .dispatch import dispatch_cases
from .first_call import first_call_rows
from .loops import loop_cases
from .measure import Case, Grid, Row, run_case, steps
from .models import MODELS, decode_cases
from .triton_cpu import compile_grid, triton_cpu_cases

KINDS = ("two-op", "launch", "dispatch", "loops", "llama", "qwen3", "first-call", "recorder", "triton-cpu")


def parse(arguments: list[str] | None, kinds: tuple[str, ...], prog: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=prog, description="Eager, torch.compile, Trident and the floor, side by side in one process."
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--config", choices=("tiny", "full"), help="of the LLMs (default: full on CUDA, tiny on the CPU)")
    parser.add_argument(
        "--dtype", choices=("float32", "bfloat16", "float16"), help="default: bfloat16 on CUDA, float32 on the CPU"
    )
    parser.add_argument("--rounds", type=int, default=35, help="interleaved samples per variant (default: 35)")
    parser.add_argument(
        "--quick", action="store_true", help="5 rounds of short samples: shows that everything runs, not how fast"
    )
    parser.add_argument("--only", default=",".join(kinds), help=f"comma-separated, of {', '.join(kinds)}")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out (its first calls take long)")
    parser.add_argument("--reduce-overhead", action="store_true", help="also torch.compile with CUDA graphs and a static cache")
    parser.add_argument("--no-save", action="store_true", help="only print, write no results file")
    options = parser.parse_args(arguments)
    options.only = options.only.split(",")
    if unknown := [kind for kind in options.only if kind not in kinds]:
        parser.error(f"unknown benchmark {unknown[0]!r}: choose from {', '.join(kinds)}")
    on_cuda = torch.device(options.device).type == "cuda"
    options.config = options.config or ("full" if on_cuda else "tiny")
    options.dtype = options.dtype or ("bfloat16" if on_cuda else "float32")
    if options.quick:
        options.rounds = min(options.rounds, 5)
    return options


def cases(options: argparse.Namespace) -> list[Case]:
    device, compile_too = torch.device(options.device), not options.no_compile
    made: list[Case] = []
    if "two-op" in options.only:
        made.append(two_op_case(device, compile_too))
    if "launch" in options.only:
        made += launch_cases(device, compile_too)
    if "dispatch" in options.only:
        made += dispatch_cases(device, compile_too, options.quick)
    if "loops" in options.only:
        made += loop_cases(device, compile_too, options.quick)
    if "triton-cpu" in options.only and device.type == "cpu":
        made += triton_cpu_cases(options.quick)
    for model, configs in MODELS.items():
        if model in options.only:
            dtype = getattr(torch, options.dtype)
            made += decode_cases(model, configs[options.config], device, dtype, compile_too, options.reduce_overhead)
    return made


def measure(options: argparse.Namespace, console: Console) -> list[tuple[Case, list[Row]]]:
    """Runs the chosen cases with a progress bar each."""
    measured: list[tuple[Case, list[Row]]] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    # The bar is drawn between samples only: a thread that draws would take time from what is measured.
    with Progress(*columns, console=console, auto_refresh=False) as progress, torch.no_grad():
        if "first-call" in options.only:
            repeats = 1 if options.quick else 3
            task = progress.add_task("first calls of the decode steps", total=len(MODELS))
            progress.refresh()
            for model in MODELS:
                row = first_call_rows(model, options.config, options.device, options.dtype, not options.no_compile, repeats)
                measured.append(row)
                progress.update(task, advance=1, refresh=True)
        for case in cases(options):
            task = progress.add_task(case.title, total=steps(case, options.rounds))
            progress.refresh()
            advance = lambda task=task: progress.update(task, advance=1, refresh=True)  # noqa: E731
            measured.append((case, run_case(case, options.rounds, 2 if options.quick else 20, advance)))
    return measured


def grids(options: argparse.Namespace, console: Console) -> list[Grid]:
    """What is no variant of one thing: the recorder's speed, which is that of the host alone, and that of the cpu backend's compiler."""
    made: list[Grid] = []
    if "triton-cpu" in options.only and torch.device(options.device).type == "cpu":
        made.append(compile_grid(1 if options.quick else 5))
    if "recorder" not in options.only:
        return made
    sizes, repeats = (recorder.QUICK, 1) if options.quick else (recorder.SIZES, 3)
    with Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task("recording and compiling", total=len(recorder.PROGRAMS) * len(sizes))
        return made + [recorder.grid(name, sizes, not options.no_compile, repeats, lambda: progress.update(task, advance=1))
                       for name in recorder.PROGRAMS]


def file_name(options: argparse.Namespace, name: str) -> str:
    """What is added to the results file's name: runs of one kind alone, and quick ones, must not replace the file of many kinds."""
    name = name or (options.only[0] if len(options.only) == 1 else "")
    return "-".join(filter(None, (name, "quick" if options.quick else "")))


def main(arguments: list[str] | None = None, kinds: tuple[str, ...] = KINDS, name: str = "") -> int:
    options = parse(arguments, kinds, f"python -m benchmarks{name and '.' + name}")
    console = Console()
    measured = measure(options, console)
    settings = {
        "rounds": options.rounds,
        "device": options.device,
        "config": options.config,
        "dtype": options.dtype,
        "quick": options.quick,
    }
    result = results.make(torch.device(options.device), settings, measured, grids(options, console))
    results.show(result, console)
    if not options.no_save:
        for path in results.save(result, file_name(options, name)):
            console.print(f"written: {path.relative_to(results.ROOT)}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
