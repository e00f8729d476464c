"""Results files: what was measured, where, with what and by which command; as JSON, as Markdown and on the terminal."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import ROOT
from .measure import Case, Grid, Row

FOLDER = ROOT / "benchmarks" / "results"
PACKAGES = ("torch", "triton", "torch-mlir", "llvmlite", "bytecode")
UNITS = {"us": 1.0, "ms": 1e3, "s": 1e6}


def processor() -> str:
    """Model name of the CPU."""
    try:
        match = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.machine()


def driver() -> str | None:
    try:
        command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()[0].strip()
    except (OSError, subprocess.SubprocessError, IndexError):
        return None


def machine(device: torch.device) -> dict[str, Any]:
    facts: dict[str, Any] = {"cpu": processor(), "cores": len(os.sched_getaffinity(0)), "threads": torch.get_num_threads()}
    if device.type == "cuda":
        facts |= {"gpu": torch.cuda.get_device_name(device), "driver": driver(), "cuda": torch.version.cuda}
    return facts


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = torch.__version__ if package == "torch" else importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "unknown"
    return found


def command() -> str:
    """The command line of this process, as one would type it in the repository."""
    script = sys.argv[0]
    name = "benchmarks" if script.endswith("__main__.py") else f"benchmarks.{Path(script).stem}"
    return shlex.join(["python", "-m", name, *sys.argv[1:]])


def make(
    device: torch.device, settings: dict[str, Any], measured: list[tuple[Case, list[Row]]], grids: Sequence[Grid] = ()
) -> dict[str, Any]:
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "command": command(),
        "machine": machine(device),
        "versions": versions(),
        "settings": settings,
        "cases": [
            {
                "key": case.key,
                "title": case.title,
                "baseline": case.baseline,
                "rows": [
                    {"variant": row.variant, "reason": row.reason}
                    if row.reason or not row.samples
                    else {
                        "variant": row.variant,
                        "median_us": row.median,
                        "min_us": row.best,
                        "calls": row.calls,
                        "samples_us": row.samples,
                    }
                    for row in rows
                ],
            }
            for case, rows in measured
        ],
        "grids": [{"key": grid.key, "title": grid.title, "columns": grid.columns, "rows": grid.rows} for grid in grids],
    }


def unit_for(rows: list[dict[str, Any]]) -> str:
    largest = max((row["median_us"] for row in rows if "median_us" in row), default=0.0)
    return "us" if largest < 200 else "ms" if largest < 2e6 else "s"


def amount(value: float) -> str:
    """A number with two decimals, more where these would not show it, none from a thousand on."""
    return f"{value:.{0 if value >= 1000 else 2 if value >= 0.1 else 3 if value >= 0.01 else 4}f}"


def lines(case: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Variant, median, minimum and ratio to the baseline, as text. A variant without times has its reason as the median."""
    unit = unit_for(case["rows"])
    scale = UNITS[unit]
    base = next((row.get("median_us") for row in case["rows"] if row["variant"] == case["baseline"]), None)
    made = []
    for row in case["rows"]:
        if "median_us" not in row:
            made.append((row["variant"], f"did not run: {row['reason']}", "", ""))
            continue
        median, best = (f"{amount(row[key] / scale)} {unit}" for key in ("median_us", "min_us"))
        made.append((row["variant"], median, best, f"{amount(base / row['median_us'])}x" if base else ""))
    return made


def show(result: dict[str, Any], console: Console) -> None:
    for case in result["cases"]:
        table = Table(title=case["title"], title_justify="left", box=box.SIMPLE_HEAVY)
        table.add_column("")
        for heading in ("median", "min", f"vs {case['baseline']}"):
            table.add_column(heading, justify="right")
        for variant, median, best, ratio in lines(case):
            table.add_row(variant, escape(median), best, ratio)
        console.print(table)
    for grid in result["grids"]:
        table = Table(title=grid["title"], title_justify="left", box=box.SIMPLE_HEAVY)
        for heading in grid["columns"]:
            table.add_column(heading, justify="right")
        for row in grid["rows"]:
            table.add_row(*(escape(figure(cell)) for cell in row))
        console.print(table)


def figure(value: object) -> str:
    """A cell of a grid as text."""
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3f}" if isinstance(value, float) else str(value)


def markdown(result: dict[str, Any]) -> str:
    describe = lambda facts: ", ".join(f"{name} {value}" for name, value in facts.items())  # noqa: E731
    text = [
        f"# Benchmarks, {result['date']}",
        "",
        f"- command: `{result['command']}`",
        f"- machine: {describe(result['machine'])}",
        f"- versions: {describe(result['versions'])}",
        f"- settings: {describe(result['settings'])}",
        "",
        *(["Ratios are how many times faster than the baseline named in the heading; times are per call."] if result["cases"] else []),
    ]
    for case in result["cases"]:
        text += ["", f"## {case['title']}", "", f"| | median | min | vs {case['baseline']} |", "|---|---:|---:|---:|"]
        text += [f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines(case)]
    for grid in result["grids"]:
        text += ["", f"## {grid['title']}", "", f"| {' | '.join(grid['columns'])} |", f"|{'---:|' * len(grid['columns'])}"]
        text += [f"| {' | '.join(figure(cell).replace('|', '/') for cell in row)} |" for row in grid["rows"]]
    return "\n".join(text) + "\n"


def save(result: dict[str, Any], name: str = "") -> list[Path]:
    """Writes <date>-<machine>[-name].json and .md; an older file of that name is replaced."""
    facts = result["machine"]
    label = re.sub(r"[^a-z0-9]+", "-", facts.get("gpu", facts["cpu"]).lower()).strip("-")
    stem = "-".join(filter(None, (result["date"].split()[0], label, name)))
    FOLDER.mkdir(exist_ok=True)
    paths = [FOLDER / f"{stem}.json", FOLDER / f"{stem}.md"]
    paths[0].write_text(json.dumps(result, indent=1) + "\n")
    paths[1].write_text(markdown(result))
    return paths
