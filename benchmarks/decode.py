"""`python -m benchmarks.decode`: host time alone and total time of a decode step of both LLMs, median of interleaved rounds.

A round takes one step of each variant, begun on an idle device. The host's time ends when the step returns, the total when the
device is done. `--reduce-overhead` adds torch.compile with CUDA graphs, the addresses of the cache marked static.
"""

from __future__ import annotations

import sys

from .__main__ import main
from .models import MODELS

if __name__ == "__main__":
    sys.exit(main(kinds=tuple(MODELS), name="decode"))
