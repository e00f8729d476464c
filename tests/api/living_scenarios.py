"""Processes that fork, start others and end while functions are jitted and called: `python -m tests.api.living_scenarios NAME`.

Each scenario is a function of this name; it prints "fine" at its end, and the process must end by itself with nothing on stderr.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch


def late() -> None:
    """Registered before Trident is imported: called after everything that Trident does at exit."""
    assert added(X, 2).equal(X + 2) and trident.jit(lambda x: x * 3)(X).equal(X * 3)
    print("late")


if sys.argv[1:2] == ["the_interpreter_ends"]:
    atexit.register(late)

import trident  # noqa: E402

X = torch.arange(4.0)


@trident.jit
def added(x: torch.Tensor, n: int) -> torch.Tensor:
    return x + n


def new_function(number: int, operations: int = 40) -> Any:
    """A function that takes a while to be recorded and compiled."""
    lines = [f"    y = y * {n + 1} + n" for n in range(operations)]
    space: dict[str, Any] = {}
    exec("\n".join(["def made(y, n):", *lines, f"    return y + {number}"]), space)
    return trident.jit(space["made"])


def recording_threads(going: Callable[[], bool]) -> list[threading.Thread]:
    """Threads in which something is always recorded. Of ints: torch itself aborts where a thread in one of its operators is ended."""

    def work() -> None:
        number = 0
        while going():
            number += 1
            new_function(number)(number, 2)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    return threads


def plus_one(number: int) -> list[float]:
    return added(X + number, 1).tolist()  # type: ignore[no-any-return]


class Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return added(torch.full((2,), float(index)), 1)


@trident.jit
def collate(items: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(items) * 2


def _child() -> bool:
    made = new_function(1000)
    expected = made.__wrapped__(3, 2)
    good = [made(3, 2) == expected for _ in range(3)] == [True] * 3 and added(X, 2).equal(X + 2)
    return good and trident.explain(made).hits == 2


def forks() -> None:
    """While other threads record. What is compiled goes on in the child, and it records by itself."""
    going = True
    threads = recording_threads(lambda: going)
    time.sleep(0.1)
    for _ in range(4):
        child = os.fork()
        if not child:
            good = False
            try:
                good = _child()
            finally:
                os._exit(0 if good else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    going = False
    for thread in threads:
        thread.join()


def processes() -> None:
    added(X, 1), added(X, 1)
    for way in ("fork", "spawn"):
        with multiprocessing.get_context(way).Pool(1) as pool:
            assert pool.map(plus_one, range(4)) == [(X + n + 1).tolist() for n in range(4)], way
    for way in ("fork", "forkserver"):
        loader = torch.utils.data.DataLoader(Numbers(), 4, num_workers=1, multiprocessing_context=way, collate_fn=collate)
        assert torch.cat(list(loader))[:, 0].tolist() == [2.0 * (n + 1) for n in range(8)], way


class Last:
    """In a cycle, so that it ends with the interpreter."""

    def __init__(self) -> None:
        self.me, self.call, self.argument = self, added, X

    def __del__(self) -> None:
        self.call(self.argument, 1)


def the_interpreter_ends() -> None:
    """With live functions, exit handlers from before and after, finalizers that call, an open hook, and threads that record."""
    added(X, 1), added(X, 1)
    network = trident.jit(torch.nn.Linear(4, 4))
    network(X), network(X)
    globals().update(network=network, last=Last(), hook=trident.frame_hook())
    globals()["hook"].__enter__()
    atexit.register(lambda: added(X, 1))
    recording_threads(lambda: True)
    time.sleep(0.3)


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[1]]()
    print("fine")
