"""The first call of a decode step, in a process of its own: what a user waits for.

    python -m benchmarks.first_call llama tiny cpu float32 trident

prints milliseconds. The process has run the step eagerly before, so that Triton has compiled the kernels and the device is
initialized; caches of torch.compile are off.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch

from llm.peers import torch_compile
from llm.report import describe

from . import ROOT
from .measure import Case, Row, synchronize

MODES = {"torch.compile": "compile", "Trident": "trident"}


def measure(model: str, size: str, device: str, dtype: str, mode: str) -> float:
    """Milliseconds of the first call, wrapping included, in this process."""
    from .models import MODELS, Steps

    steps = Steps(MODELS[model][size], torch.device(device), getattr(torch, dtype))
    with torch.no_grad():
        for _ in range(3):
            steps.model(*steps.arguments)
        synchronize(steps.device)
        start = time.perf_counter()
        if mode == "compile":
            step = torch_compile(steps.model, steps.device)
        else:
            import trident

            step = trident.jit(steps.model)
        step(*steps.arguments)
        synchronize(steps.device)
        return (time.perf_counter() - start) * 1e3


def run(variant: str, *arguments: str) -> float:
    """`measure` in a new process."""
    environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    command = [sys.executable, "-m", "benchmarks.first_call", *arguments, MODES[variant]]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        lines = [line for line in done.stderr.strip().splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        errors = [line for line in lines if "Error" in line.split(":")[0]]
        raise RuntimeError((errors or lines or [f"exit status {done.returncode}"])[-1][:300])
    return float(done.stdout.strip().splitlines()[-1])


def first_call_rows(model: str, size: str, device: str, dtype: str, compile_too: bool, repeats: int) -> tuple[Case, list[Row]]:
    case = Case(
        f"{model}-first-call", f"{model} {size}: first call of the decode step in a new process", (), baseline="torch.compile"
    )
    rows = []
    for variant in MODES:
        if variant == "torch.compile" and not compile_too:
            continue
        row = Row(variant, calls=1)
        rows.append(row)
        try:
            for _ in range(1 if variant == "torch.compile" else repeats):
                row.samples.append(run(variant, model, size, device, dtype) * 1e3)
        except Exception as error:
            row.samples.clear()
            row.reason = describe(error)
    return case, rows


if __name__ == "__main__":
    print(measure(*sys.argv[1:]))
