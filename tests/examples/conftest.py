"""Makes the examples' shared package `llm` importable, as it is when an example runs as a script."""

from __future__ import annotations

import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"
if str(EXAMPLES) not in sys.path:
    sys.path.insert(0, str(EXAMPLES))
