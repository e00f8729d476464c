"""`python -m trident`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import trident
import trident.__main__ as command
from tests.processes import environment
from trident.options import ENVIRONMENT

ROOT = Path(__file__).parents[2]

SCRIPT = """
import json, sys, pickle
import beside
class Held: pass
pickle.loads(pickle.dumps(Held()))
main = sys.modules["__main__"]
facts = [__name__, __file__, sys.argv, sys.path[0], main.__dict__ is globals(), main.__spec__ is None, beside.VALUE, __builtins__.__name__]
print(json.dumps(facts))
if "trident" in sys.modules:
    f = sys.modules["trident"].jit(lambda x: x + 1)
    f(1)
sys.exit(7)
"""


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120)


def test_explain_runs_a_script_as_python_does(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "folder", tmp_path / "elsewhere"
    folder.mkdir(), elsewhere.mkdir()
    (folder / "beside.py").write_text("VALUE = 5")
    (folder / "script.py").write_text(SCRIPT)
    call = ("../folder/script.py", "--help", "a")
    plain, explained = _run(*call, cwd=elsewhere), _run("-m", "trident", "explain", *call, cwd=elsewhere)
    assert plain.returncode == explained.returncode == 7, explained.stderr
    assert explained.stdout.splitlines()[0] == plain.stdout.splitlines()[0]
    assert "specializations" in explained.stdout


def test_bench_passes_its_arguments_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(command.subprocess, "call", lambda line: called.append(line) or 3)
    assert command.main(["bench", "--quick", "--only", "two-op", "-h"]) == 3
    assert command.main(["bench"]) == 3
    assert [line[1:] for line in called] == [["-m", "benchmarks", "--quick", "--only", "two-op", "-h"], ["-m", "benchmarks"]]


def test_doctor_prints_what_a_report_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIDENT_LOG", "misses")
    assert command.main(["doctor"]) == 0
    out = capsys.readouterr().out
    for what in ("python", "platform", f"{trident.__version__}, at ", *command._PACKAGES, "torch build", "GPU", *ENVIRONMENT, "misses",
                 "verified", "ATen operators", "calls below autograd", "native Triton launches"):
        assert what in out, what


def test_explain_without_a_script_says_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    for line, message in ((["explain"], "required: script\n"), (["explain", "no such.py", "-x"], "no file 'no such.py'\n")):
        with pytest.raises(SystemExit) as ended:
            command.main(line)
        assert ended.value.code == 2
        assert capsys.readouterr().err.endswith(message)
