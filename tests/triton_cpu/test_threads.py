"""The grid shared among the threads that torch is told to use: results, atomics, assertions, forks."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

import trident
from trident.backend.triton.cpu.errors import KernelAssertionError

THREADS = 3
PROGRAMS = 3000


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    torch.set_num_threads(before)


@triton.jit
def places(out, x, n, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    number = tl.program_id(0) + tl.num_programs(0) * (tl.program_id(1) + tl.num_programs(1) * tl.program_id(2))
    offsets = number * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets, mask=offsets < n)
    for _ in range(ROUNDS):
        value = tl.sin(value) + number
    tl.store(out + offsets, value, mask=offsets < n)


@triton.jit
def count(sums, lowest, seen, ROUNDS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    for _ in range(ROUNDS):
        tl.atomic_add(sums + lane, 1.0)
        tl.atomic_min(lowest, pid - 5)
    while tl.atomic_cas(seen, 0, 1) == 1:
        pass
    tl.store(seen + 1, tl.load(seen + 1) + 1)  # guarded by the lock at seen[0]
    tl.atomic_xchg(seen, 0)



@pytest.mark.parametrize("grid", [(PROGRAMS,), (7, 5, 83), (1,), (1, 1, 2999), (2, 1, 1)])
def test_every_program_runs_once(grid: tuple[int, ...]) -> None:
    programs = torch.Size(grid).numel()
    n = programs * 32 - 5
    x, out, again, alone = torch.randn(n), torch.zeros(n), torch.zeros(n), torch.zeros(n)
    places[grid](out, x, n, 4, 32)
    places[grid](again, x, n, 4, 32)
    torch.set_num_threads(1)
    places[grid](alone, x, n, 4, 32)
    assert torch.equal(out, alone)
    assert torch.equal(again, alone)
    expected, number = x.double(), torch.arange(n) // 32
    for _ in range(4):
        expected = torch.sin(expected.float().double()) + number
    torch.testing.assert_close(out.double(), expected, rtol=1e-3, atol=1e-3)


def test_threads_are_used_and_a_small_grid_needs_none() -> None:
    code = """
import os, torch, triton
from trident.backend.triton.cpu import register
register()
torch.set_num_threads(1)
from tests.triton_cpu.test_threads import places

def launch(programs, x, out, threads):
    torch.set_num_threads(threads)
    places[(programs,)](out, x, 32 * programs, 4, 32)
    torch.set_num_threads(1)  # torch starts threads of its own
    return len(os.listdir("/proc/self/task"))

x, out, again = torch.randn(32 * 5000), torch.zeros(32 * 5000), torch.zeros(32 * 5000)
alone = launch(5000, x, out, 1)
for _ in range(10):
    assert launch(2, x, again, 3) == alone, "a small grid has started threads"
for _ in range(3):
    assert launch(5000, x, again, 3) == alone + 2
assert torch.equal(out, again)
again.zero_()
pid = os.fork()
if pid == 0:
    try:
        os._exit(0 if launch(5000, x, again, 3) == 3 and torch.equal(out, again) else 1)
    finally:
        os._exit(2)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print("fine")
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True,
                          text=True, timeout=150)  # fmt: skip
    assert done.stdout.strip() == "fine", done.stderr


def test_atomics_across_threads() -> None:
    sums, lowest, seen = torch.zeros(16), torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    count[(PROGRAMS,)](sums, lowest, seen, 5, 16)
    assert torch.equal(sums, torch.full((16,), 5.0 * PROGRAMS))
    assert lowest.item() == -5
    assert seen.tolist() == [0, PROGRAMS]


@triton.jit
def checked(out, x, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + offsets)
    tl.device_assert(value < 100, "too large")
    tl.store(out + offsets, tl.sin(value))


def test_a_failed_assertion_is_raised_by_its_launch() -> None:
    x, out = torch.randn(64 * 2000), torch.zeros(64 * 2000)
    checked[(2000,)](out, x, 64, debug=True)
    x[64 * 1999 + 3] = 1000
    with pytest.raises(KernelAssertionError, match=r"program \(1999, 0, 0\): too large"):
        checked[(2000,)](out, x, 64, debug=True)
    x[64 * 1999 + 3] = 1
    checked[(2000,)](out, x, 64, debug=True)


def test_launches_in_many_threads_and_from_traces() -> None:
    n = 32 * 2000
    x = torch.randn(n)
    expected = torch.zeros(n)
    places[(2000,)](expected, x, n, 4, 32)

    @trident.jit
    def traced(out: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        places[(2000,)](out, x, x.numel(), 4, 32)
        return out

    for _ in range(4):
        traced(torch.zeros(n), x)
    failures: list[str] = []

    def work() -> None:
        torch.set_num_threads(THREADS)
        for turn in range(6):
            out = torch.zeros(n)
            if turn % 2:
                traced(out, x)
            else:
                places[(2000,)](out, x, n, 4, 32)
            if not torch.equal(out, expected):
                failures.append(f"turn {turn}")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
