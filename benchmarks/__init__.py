"""Benchmarks: eager, torch.compile, Trident and the floor (the same calls in a native loop), side by side.

    python -m benchmarks              everything; writes benchmarks/results/<date>-<machine>.json and .md
    python -m benchmarks --only recorder   seconds to record and compile traces of 100 to 20,000 ops
    python -m benchmarks.decode       host time and total time of a decode step, both models
    python -m benchmarks.readme       puts the newest results into the README

What must hold: variants of one case run in one process, in interleaved rounds, after warm-up; a variant that cannot run gives a
row with the reason; every floor is checked against eager's result before it is timed.

May import: trident's public names, the examples' package `llm`, llvmlite (for the floors only).
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "examples"))
