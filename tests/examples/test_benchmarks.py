"""The benchmarks' own machinery: sampling, floors, results files and the README's table; and that a quick run works."""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks import floor, readme, results  # noqa: E402
from benchmarks.__main__ import KINDS, file_name, parse  # noqa: E402
from benchmarks.measure import Case, Row, Sampler, Variant, native_sampler, python_sampler, run_case  # noqa: E402

CPU = torch.device("cpu")


def constant(microseconds: float, log: list[float]) -> Sampler:
    def sample(calls: int) -> float:
        log.append(microseconds)
        return microseconds

    return sample


def test_rounds_are_interleaved_and_rotate() -> None:
    log: list[float] = []
    case = Case("k", "t", [Variant(str(us), lambda us=us: constant(us, log)) for us in (1.0, 2.0, 3.0)])
    rows = run_case(case, rounds=3, sample_ms=0.001)
    assert log[-9:] == [1.0, 2.0, 3.0, 2.0, 3.0, 1.0, 3.0, 1.0, 2.0]
    assert [row.samples for row in rows] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]


def test_a_variant_that_fails_gives_a_row_with_the_reason() -> None:
    def fail() -> Sampler:
        raise RuntimeError("no compiler\nmore")

    rows = run_case(Case("k", "t", [Variant("good", lambda: constant(1.0, [])), Variant("bad", fail)]), rounds=2, sample_ms=0.001)
    assert rows[0].samples == [1.0, 1.0]
    assert rows[1].samples == []
    assert rows[1].reason == "RuntimeError: no compiler"


def test_samplers_time_what_they_run() -> None:
    calls = []
    assert python_sampler("calls.append(1)", {"calls": calls}, CPU)(10) > 0
    assert python_sampler("calls.append(1)", {"calls": calls}, CPU, total=True)(10) > 0
    assert native_sampler(lambda n: calls.extend([1] * n), CPU)(10) > 0
    assert len(calls) == 30


def test_two_op_floor_gives_eagers_result_and_frees_its_tensors() -> None:
    x, y = torch.randn(1 << 18), torch.randn(1 << 18)
    loop = floor.two_op_loop(x, y)  # compares with eager itself
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loop(1000)  # 2 GiB if they were kept
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 * 1024
    with pytest.raises(RuntimeError, match="not eager's"):
        floor.two_op_loop(torch.full((4,), float("nan")), torch.zeros(4))


def test_vectorcall_loop_calls_and_keeps_reference_counts() -> None:
    calls: list[object] = []
    marker = object()
    loop = floor.vectorcall_loop(calls.append, (marker,))
    before = sys.getrefcount(marker)
    loop(5)
    assert calls == [marker] * 6
    assert sys.getrefcount(marker) == before + 5
    before = sys.getrefcount(None)
    loop(1000)
    assert abs(sys.getrefcount(None) - before) < 100

    def fail() -> None:
        raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        floor.vectorcall_loop(fail, ())


def result(device: str, date: str, eager: float, keys: Sequence[str] = ("two-op", "launch", "launches")) -> dict[str, object]:
    machine = {"cpu": "a processor"} | ({"gpu": "a GPU"} if device == "cuda" else {})
    rows = [("eager", eager), ("torch.compile", None), ("Trident", eager / 4), ("floor: native loop", eager / 8)]
    made = [
        {"variant": variant, "reason": "no compiler"}
        if us is None
        else {"variant": variant, "median_us": us, "min_us": us, "calls": 1}
        for variant, us in rows
    ]
    cases = [{"key": key, "title": f"case {key}", "baseline": "eager", "rows": made} for key in keys]
    settings = {"rounds": 35, "quick": False}
    versions = {"python": "3.12", "torch": "2.11", "triton": "3.6"}
    return {"date": f"{date} 10:00 UTC", "command": "python -m benchmarks", "machine": machine, "versions": versions,
            "settings": settings, "cases": cases}  # fmt: skip


def test_readme_shows_the_newest_results_of_each_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "benchmarks" / "results"
    folder.mkdir(parents=True)
    monkeypatch.setattr(readme, "FOLDER", folder)
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    (tmp_path / "README.md").write_text("before\n<!-- results: x -->\nold\n<!-- end of results -->\nafter\n")
    assert readme.main() == 0
    assert "No results file yet." in (tmp_path / "README.md").read_text()
    for name, made in (
        ("2026-01-01-a", result("cpu", "2026-01-01", 999.0)),
        ("2026-01-02-a", result("cpu", "2026-01-02", 8.0)),
        ("2026-01-02-b", result("cuda", "2026-01-02", 4000.0)),
        ("2026-01-03-a-loops", result("cpu", "2026-01-03", 999.0, ("loop-ints", "loop-branch", "loop-tensors"))),
        ("2026-01-03-b-first-call", result("cuda", "2026-01-03", 999.0, ("llama-first-call", "two-op", "launch"))),
    ):
        (folder / f"{name}.json").write_text(json.dumps(made))
    assert readme.main() == 0
    text = (tmp_path / "README.md").read_text()
    assert text.startswith("before\n<!-- results: x -->\n**a GPU, a processor**")
    assert text.endswith("<!-- end of results -->\nafter\n")
    assert "| case two-op | ms | 4.00 | did not run | 1.00 | 0.50 | 4.00x |  |" in text
    assert "| case two-op | us | 8.00 | did not run | 2.00 | 1.00 | 4.00x |  |" in text
    assert "999" not in text
    assert "old" not in text


def test_results_file_names_machine_versions_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "argv", [str(ROOT / "benchmarks" / "__main__.py"), "--only", "two-op"])
    rows = [Row("eager", [1.0, 2.0, 9.0], 10), Row("bad", reason="RuntimeError: a|b")]
    made = results.make(CPU, {"rounds": 3}, [(Case("k", "a case", ()), rows)])
    paths = results.save(made)
    stored, text = json.loads(paths[0].read_text()), paths[1].read_text()
    assert stored["command"] == "python -m benchmarks --only two-op"
    assert stored["machine"]["cpu"]
    assert stored["versions"]["torch"] == torch.__version__
    assert stored["cases"][0]["rows"][0]["median_us"] == 2.0
    assert "| eager | 2.00 us | 1.00 us | 1.00x |" in text
    assert "did not run: RuntimeError: a/b" in text


def test_small_figures_keep_their_digits() -> None:
    assert [results.amount(value) for value in (16843.44, 1000.0, 999.0, 0.5, 0.0672, 0.0029)] == [
        "16843", "1000", "999.00", "0.50", "0.067", "0.0029"
    ]  # fmt: skip


def test_a_quick_or_partial_run_does_not_replace_the_whole_ones_file() -> None:
    for line, name in (
        ([], ""),
        (["--only", "two-op,launch"], ""),
        (["--only", "two-op"], "two-op"),
        (["--quick"], "quick"),
        (["--quick", "--only", "loops"], "loops-quick"),
    ):
        assert file_name(parse(line, KINDS, "benchmarks"), "") == name


@pytest.mark.slow
def test_quick_run_measures_everything_but_torch_compile() -> None:
    command = [sys.executable, "-m", "benchmarks", "--quick", "--no-compile", "--no-save", "--device", "cpu", "--rounds", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    assert "did not" not in done.stdout, done.stdout
