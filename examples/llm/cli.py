"""The command line of both examples: generates with each mode and reports."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import trident

from .config import Config
from .generate import Step, generate
from .model import Transformer, build
from .peers import no_compiler, torch_compile
from .report import TITLES, Run, describe, print_report

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def parse(configs: Mapping[str, Config], arguments: list[str] | None) -> argparse.Namespace:
    name = configs["full"].name
    parser = argparse.ArgumentParser(
        description=f"Greedy generation with {name} (random weights): eager, torch.compile and Trident."
    )
    parser.add_argument("--config", choices=configs, default="tiny", help=f"full: the published shapes of {name} (default: tiny)")
    here = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", default=here, help=f"cpu, cuda, cuda:1, ... (default: {here})")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32 on the CPU, bfloat16 elsewhere")
    parser.add_argument("--tokens", type=int, default=32, help="number of tokens to generate, at least 3 (default: 32)")
    parser.add_argument("--batch", type=int, default=1, help="number of prompts (default: 1)")
    parser.add_argument("--prompt-length", type=int, default=16, help="number of random tokens in a prompt (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="of the weights and the prompts (default: 0)")
    parser.add_argument("--modes", default=",".join(TITLES), help="comma-separated (default: %(default)s); eager always runs")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out: its first calls take long")
    options = parser.parse_args(arguments)
    asked = [mode.strip() for mode in options.modes.split(",")]
    if unknown := [mode for mode in asked if mode not in TITLES]:
        parser.error(f"unknown mode {unknown[0]!r}: choose from {', '.join(TITLES)}")
    for least, option in ((3, "tokens"), (1, "batch"), (1, "prompt_length")):
        if getattr(options, option) < least:
            parser.error(f"--{option.replace('_', '-')} must be at least {least}")
    try:
        torch.empty(1, device=options.device)
    except (AssertionError, RuntimeError, NotImplementedError) as error:
        parser.error(f"--device {options.device} cannot be used: {describe(error)}")
    options.modes = ["eager"] + [mode for mode in TITLES if mode in asked and mode != "eager"]
    if options.no_compile and "compile" in options.modes:
        options.modes.remove("compile")
    options.dtype = DTYPES[options.dtype or ("float32" if torch.device(options.device).type == "cpu" else "bfloat16")]
    return options


def wrap(mode: str, model: Transformer) -> Step:
    """The step of a mode: the model itself, or what torch.compile or Trident make of it."""
    if mode == "compile":
        return torch_compile(model, model.cos.device)
    if mode == "trident":
        return trident.jit(model)
    return model


def run_mode(mode: str, model: Transformer, prompt: torch.Tensor, count: int, progress: Progress) -> Run:
    """One generation. What a compiler raises (it finds no C++ compiler, say) is kept as the reason why there is no result."""
    run = Run(mode, model)
    task = progress.add_task(TITLES[mode], total=count)
    progress.refresh()
    try:
        run.step = wrap(mode, model)
        run.generation = generate(run.step, model, prompt, count, lambda: progress.advance(task))
    except Exception as error:
        if mode == "eager":
            raise
        on_cpu = mode == "compile" and prompt.device.type == "cpu"
        run.reason = on_cpu and no_compiler() or describe(error)
    return run


def main(configs: Mapping[str, Config], arguments: list[str] | None = None) -> int:
    """Runs the command line; 1 if Trident's result is not eager's."""
    options = parse(configs, arguments)
    console = Console()
    config = configs[options.config]
    # A multiple of 64 keeps the rows of the attention bias aligned, which the fused attention kernels want.
    max_length = -(-(options.prompt_length + options.tokens) // 64) * 64
    model = build(config, max_length, options.device, options.dtype, options.seed)
    generator = torch.Generator().manual_seed(options.seed)
    prompt = torch.randint(config.vocabulary, (options.batch, options.prompt_length), generator=generator).to(options.device)
    # Triton compiles the kernels here, so that no mode's time to the first token contains it.
    generate(model, model, prompt, 3)
    columns = (TextColumn("{task.description:13}"), BarColumn(), MofNCompleteColumn(), TextColumn("tokens"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=5) as progress:
        runs = [run_mode(mode, model, prompt, options.tokens, progress) for mode in options.modes]
    dtype = str(options.dtype).removeprefix("torch.")
    return 0 if print_report(runs, f"{config.name}, {dtype}, batch {options.batch}, {options.device}", console) else 1
