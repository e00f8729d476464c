"""What the examples print: the tokens, whether everything equals eager bit for bit, and the table of times and counters."""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import trident

from .generate import Generation, Step

TITLES = {"eager": "eager", "compile": "torch.compile", "trident": "Trident"}


@dataclass
class Run:
    """One mode's generation, or the reason why there is none."""

    mode: str
    step: Step
    generation: Generation | None = None
    reason: str = ""


def describe(error: BaseException) -> str:
    """An exception in one line. Compilers put what went wrong inside a long message: its last line that names an error counts."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    inner = [line for line in lines[1:] if re.match(r"[\w.]*(Error|Exception): \S", line)]
    return f"{type(error).__name__}: {(inner or lines[:1] or [''])[-1]}"[:300]


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equality bit for bit: NaN equals itself, and 0.0 does not equal -0.0."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    integer = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}[one.element_size()]
    return torch.equal(one.contiguous().view(integer), other.contiguous().view(integer))


def tokens_equal(run: Generation, reference: Generation) -> bool:
    return same_bits(run.tokens, reference.tokens)


def logits_equal(run: Generation, reference: Generation) -> bool:
    return len(run.logits) == len(reference.logits) and all(map(same_bits, run.logits, reference.logits))


def counters(run: Run) -> tuple[str, str, str]:
    """Hits, specializations and side exits of a step that Trident compiled."""
    if run.mode != "trident":
        return "-", "-", "-"
    report = trident.explain(run.step)
    roots = sum(specialization.kind == "root" for specialization in report.specializations)
    return str(report.hits), str(roots), str(report.side_exits)


def result_table(runs: list[Run], title: str) -> Table:
    table = Table(title=title, caption="times in milliseconds", box=box.SIMPLE_HEAVY, padding=0, show_edge=False)
    table.add_column("", no_wrap=True)
    headings = (
        "first\ntoken",
        "first\ndecode",
        "per\ntoken",
        "vs\neager",
        "same\ntokens",
        "same\nlogits",
        "hits",
        "special-\nizations",
        "side\nexits",
    )
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    reference = runs[0].generation
    assert reference is not None
    for run in runs:
        made = run.generation
        if made is None:
            why = ("needs a", "C++ compiler") if "C++ compiler" in run.reason else ("did not", "run")
            table.add_row(TITLES[run.mode], *why, *["-"] * (len(headings) - 2))
            continue
        same = [yes_or_no(equal(made, reference)) for equal in (tokens_equal, logits_equal)] if run is not runs[0] else ["-", "-"]
        table.add_row(
            TITLES[run.mode],
            f"{made.first_token_ms:.1f}",
            f"{made.first_decode_ms:.1f}",
            f"{made.decode_ms:.2f}",
            f"{reference.decode_ms / made.decode_ms:.2f}x",
            *same,
            *counters(run),
        )
    return table


def yes_or_no(value: bool) -> str:
    return "yes" if value else "[red]no"


def print_report(runs: list[Run], title: str, console: Console) -> bool:
    """Prints everything; returns whether Trident, if it ran, gave eager's tokens and logits bit for bit."""
    reference = runs[0].generation
    assert reference is not None
    for index, row in enumerate(reference.tokens.tolist()):
        console.print(f"tokens[{index}]: {' '.join(map(str, row))}", soft_wrap=True, highlight=False)
    console.print(result_table(runs, title))
    for run in runs:
        if run.generation is None:
            console.print(f"{TITLES[run.mode]} did not run: {escape(run.reason)}", style="red", soft_wrap=True)
    console.print(
        "First token and first decode contain what the mode compiles; Triton had compiled the kernels before.", soft_wrap=True
    )
    compiled = [run.generation for run in runs if run.mode == "compile" and run.generation is not None]
    if not all(logits_equal(made, reference) for made in compiled):
        console.print("torch.compile computes in another order than eager, so its logits need not be the same.", soft_wrap=True)
    good = True
    for run in runs:
        if run.mode != "trident":
            continue
        if run.generation is None:
            good = False
            continue
        good = tokens_equal(run.generation, reference) and logits_equal(run.generation, reference)
        count, batch = len(run.generation.logits), run.generation.tokens.shape[0]
        verdict = "are bit-identical to eager's" if good else "DIFFER from eager's"
        console.print(
            f"Trident: the tokens and all logits ({count} steps, batch {batch}) {verdict}.",
            style="bold green" if good else "bold red",
            soft_wrap=True,
        )
    return good
