"""The quick part of CPython's own tests under the recorder; the whole of it is `python tests/cpython` (see there)."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def test_quick_part(tmp_path: Path) -> None:
    if importlib.util.find_spec("test") is None or importlib.util.find_spec("test.test_dict") is None:
        pytest.skip("this Python comes without CPython's test modules")
    out = tmp_path / "results.json"
    done = subprocess.run([sys.executable, str(HERE), "--quick", "--json", str(out)], capture_output=True, text=True, timeout=280,
                          cwd=HERE.parents[1])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    results = json.loads(out.read_text())
    recorded = [modes["recorded"] for modes in results.values()]
    assert len(recorded) >= 8 and all(any(r["rounds"]) for r in recorded)
    assert all(r["traces"] > 0 and r["hits"] > 0 for r in recorded), "nothing was compiled, or nothing that was compiled was executed"
