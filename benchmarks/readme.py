"""`python -m benchmarks.readme`: writes the newest results of each device into the README, between its two markers."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from . import ROOT
from .models import MODELS
from .results import FOLDER, UNITS, amount, unit_for

START, END = "<!-- results:", "<!-- end of results -->"
# Keys of the cases that the table shows; dispatch, loops, first calls and the recorder have files of their own.
KEYS = ("two-op", "launch", "launch-nop", "launches", *(f"{model}-{what}" for model in MODELS for what in ("decode", "host")))
COLUMNS = {"eager": "eager", "torch.compile": "torch.compile", "Trident": "Trident", "floor": "floor"}


def newest() -> list[tuple[Path, dict[str, Any]]]:
    """The newest results file of each kind of device that has the table's cases, and of these no others; GPUs first."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for path in sorted(FOLDER.glob("*.json")):
        result = json.loads(path.read_text())
        result["cases"] = [case for case in result["cases"] if case["key"] in KEYS]
        if not result["settings"]["quick"] and len(result["cases"]) > 2:
            found["gpu" if "gpu" in result["machine"] else "cpu"] = (path, result)
    return [found[kind] for kind in ("gpu", "cpu") if kind in found]


def cell(case: dict[str, Any], column: str, unit: str) -> str:
    rows = [row for row in case["rows"] if row["variant"] == column or (column == "floor" and row["variant"].startswith("floor"))]
    if not rows:
        return ""
    return amount(rows[0]["median_us"] / UNITS[unit]) if "median_us" in rows[0] else "did not run"


def ratio(case: dict[str, Any], over: str) -> str:
    medians = {row["variant"]: row["median_us"] for row in case["rows"] if "median_us" in row}
    if not {over, "Trident"} <= medians.keys():
        return ""
    return f"{amount(medians[over] / medians['Trident'])}x"


def table(path: Path, result: dict[str, Any]) -> str:
    facts, versions = result["machine"], result["versions"]
    where = f"{facts['gpu']}, {facts['cpu']}" if "gpu" in facts else facts["cpu"]
    made_with = f"Python {versions['python']}, torch {versions['torch']}, Triton {versions['triton']}"
    rounds = f"medians of {result['settings']['rounds']} rounds"
    link = f"[all figures]({path.relative_to(ROOT).with_suffix('.md')})"
    text = [
        f"**{where}**, {made_with}; {rounds}; `{result['command']}`; {link}",
        "",
        f"| | | {' | '.join(COLUMNS.values())} | Trident vs eager | vs torch.compile |",
        f"|---|---|{'---:|' * (len(COLUMNS) + 2)}",
    ]
    for case in result["cases"]:
        unit = unit_for(case["rows"])
        cells = [cell(case, column, unit) for column in COLUMNS]
        versus = (ratio(case, "eager"), ratio(case, "torch.compile"))
        text.append(f"| {' | '.join((case['title'], unit, *cells, *versus))} |")
    return "\n".join(text)


def main() -> int:
    readme = ROOT / "README.md"
    body = "\n\n".join(table(path, result) for path, result in newest()) or "No results file yet."
    pattern = re.compile(rf"^({re.escape(START)}[^\n]*-->\n).*?^({re.escape(END)})", re.MULTILINE | re.DOTALL)
    text, count = pattern.subn(lambda match: f"{match[1]}{body}\n{match[2]}", readme.read_text())
    if count != 1:
        print(f"README.md must have one line that begins with {START!r} and one {END!r}", file=sys.stderr)
        return 1
    readme.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
