"""The example scripts run as a user runs them, and the README's example and commands are what they claim to be."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.processes import environment

ROOT = Path(__file__).parents[2]
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def start(*command: str) -> subprocess.CompletedProcess[str]:
    """Runs a Python script with this checkout's trident."""
    return subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=280, check=False
    )


def run(*command: str) -> str:
    """Standard output of a Python script, which must succeed."""
    done = start(*command)
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("llama_decode.py", ()),
        ("qwen3_decode.py", ()),
        ("llama_decode.py", ("--batch", "3", "--prompt-length", "5")),
        ("qwen3_decode.py", ("--dtype", "bfloat16", "--prompt-length", "1")),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) or "defaults",
)
def test_decode_is_bit_identical_to_eager(script: str, options: tuple[str, ...], device: str) -> None:
    output = run(f"examples/{script}", "--config", "tiny", "--device", device, "--tokens", "8", "--no-compile", *options)
    batch = int(options[options.index("--batch") + 1]) if "--batch" in options else 1
    assert f"Trident: the tokens and all logits (8 steps, batch {batch}) are bit-identical to eager's." in output
    assert len(re.findall(r"^tokens\[\d+\]:(?: \d+){8}$", output, re.MULTILINE)) == batch
    hits = re.search(r"^Trident .* yes +yes +(\d+) +(\d+) +(\d+)", output, re.MULTILINE)
    assert hits is not None, output
    assert int(hits[1]) >= 5, f"most decode steps must be hits:\n{output}"


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
def test_generate_of_transformers_is_bit_identical_to_eager(device: str) -> None:
    output = run("examples/hf_generate.py", "--model", "GPT-2", "--device", device, "--layers", "1", "--tokens", "4", "--runs", "7")
    assert "trident.jit(model): the output of all 7 runs is bit-identical to eager's." in output
    assert "frame_hook: the output of all 7 runs is bit-identical to eager's." in output
    for way in ("trident.jit", "frame_hook"):  # after a few runs nothing new is recorded
        last = re.search(rf"^{re.escape(way)}.* yes +(\d+) +(\d+) +\d+$", output, re.MULTILINE)
        assert last is not None and int(last[1]) == 0 and int(last[2]) >= 4, output


def test_the_models_of_transformers_are_named() -> None:
    assert set(run("examples/hf_generate.py", "--list").split("\n")) >= {"Llama", "Qwen3-MoE", "Gemma 3", "T5", "Whisper", "Mamba 2"}
    done = start("examples/hf_generate.py", "--model", "ViT")
    assert done.returncode == 2 and "unknown model 'ViT': choose from Llama, " in done.stderr


def test_bad_options_say_what_to_do() -> None:
    for options, message in (
        (["--tokens", "2"], "--tokens must be at least 3"),
        (["--device", "nothing"], "--device nothing cannot be used: RuntimeError: "),
        (["--modes", "eager,fast"], "unknown mode 'fast': choose from eager, compile, trident"),
    ):
        done = start("examples/llama_decode.py", *options)
        assert done.returncode == 2
        assert message in done.stderr


@pytest.mark.slow
def test_quickstart_runs_and_is_short() -> None:
    assert len((ROOT / "examples/quickstart.py").read_text().splitlines()) < 40
    assert "specialization" in run("examples/quickstart.py")


@pytest.mark.slow
def test_readme_example_runs(tmp_path: Path) -> None:
    (example,) = readme_blocks("python")
    script = tmp_path / "example.py"
    script.write_text(example)
    run(str(script))


def test_readme_has_two_commands_of_one_line_each() -> None:
    go, test = (block.splitlines() for block in readme_blocks("sh")[:2])
    assert len(go) == len(test) == 1
    assert "examples/llama_decode.py" in go[0]
    assert "pytest" in test[0]


def test_comparison_is_of_bits() -> None:
    from llm.report import same_bits

    nan = torch.tensor([float("nan"), 1.0])
    assert same_bits(nan, nan.clone())
    assert not same_bits(torch.tensor([0.0]), torch.tensor([-0.0]))
    assert not same_bits(torch.zeros(2), torch.zeros(2, dtype=torch.int32))
    assert not same_bits(torch.zeros(2), torch.zeros(1))
    assert same_bits(torch.zeros(4, 4).t(), torch.zeros(4, 4))
