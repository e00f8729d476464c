"""Loops whose number of iterations is a run-time value: native, and the same as eager whatever happens in them."""

from __future__ import annotations

import random
import signal
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch

import trident
from tests.conformance.harness import check
from trident import options
from trident.api import entry_of

X = torch.arange(4.0)


def ints(n: int) -> int:
    total = 0
    for i in range(n):
        total += i * i
    return total


def counted_down(n: int) -> tuple[int, list[int]]:
    seen = []
    for i in range(n, -3, -2):
        seen.append(i)
    return len(seen), seen


def strides(start: int, stop: int, step: int) -> int:
    total = 0
    for i in range(start, stop, step):
        total = total * 3 % 1_000_003 + i
    return total


def floats(n: int) -> tuple[float, int]:
    i, value = 0, 1.5
    while i < n:
        value = value * 1.01 - 0.25
        i += 1
    return value, i


def becomes_float(n: int) -> float:
    total = 0
    for i in range(n):
        total = total + i / 2
    return total


def overflows(n: int) -> int:
    product = 1
    for i in range(1, n + 1):
        product = product * i
    return product


def tensors(n: int, x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(n):
        y = y * 1.5 + x
    return y


def in_place(n: int, x: torch.Tensor) -> torch.Tensor:
    for i in range(n):
        x.add_(i)
    return x


def swapped(n: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    a, b = x, x + 1
    for _ in range(n):
        a, b = b, a + b
    return a, b


def over_a_list(xs: list[torch.Tensor]) -> list[torch.Tensor]:
    made = []
    for x in xs:
        made.append(x * 2)
    return made


def over_a_tuple(xs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    total = torch.zeros(4)
    for k, x in enumerate(xs, 1):
        total = total + x * k
    return total


def zipped(xs: list[torch.Tensor], n: int) -> tuple[Any, list[int]]:
    total, seen = 0, []
    for k, (x, j) in enumerate(zip(xs, range(n)), 3):
        total = total + x * k - j
        seen.append(k * j)
    return total, seen


def branches(n: int) -> tuple[int, int]:
    a = b = 0
    for i in range(n):
        if i % 3 == 0:
            a += i
        elif i % 5 == 0:
            continue
        else:
            b -= 1
    return a, b


def breaks(n: int, limit: int) -> tuple[int, str]:
    i = -1
    for i in range(n):
        if i * i > limit:
            break
    else:
        return i, "all"
    return i, "broken"


def nested(n: int, m: int) -> int:
    total = 0
    for i in range(n):
        for j in range(m):
            total += i * j
            if j > 2 * i + 3:
                break
        total += 1
    return total


def triangle(n: int) -> list[int]:
    rows = []
    for i in range(n):
        row = 0
        j = i
        while j > 0:
            row += j
            j -= 1
        rows.append(row)
    return rows


def while_true(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    steps = 0
    while True:
        x = x * 0.5
        steps += 1
        if x.sum().item() < 1e-3:
            break
    return x, steps


def condition_of_a_tensor(x: torch.Tensor, limit: float) -> torch.Tensor:
    while x.sum() < limit:
        x = x + 1
    return x


def dtype_changes(n: int, x: torch.Tensor) -> torch.Tensor:
    for i in range(n):
        if i == 5:
            x = x.double()
        if i == 9:
            x = torch.cat([x, x])
        x = x + i
    return x


def shape_grows(n: int, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    size = 0
    for _ in range(n):
        x = torch.cat([x, x[:1]])
        size += x.shape[0]
    return x, size


def raises(n: int, at: int) -> int:
    total = 0
    for i in range(n):
        total += 10 // (i - at)
    return total


def catches(n: int, at: int) -> tuple[int, list[str]]:
    total, seen = 0, []
    for i in range(n):
        try:
            total += 10 // (i % at)
        except ZeroDivisionError as error:
            seen.append(str(error))
    return total, seen


def comprehension(n: int, x: torch.Tensor) -> tuple[list[int], torch.Tensor]:
    return [i * i for i in range(n)], sum([x * i for i in range(n)])


def closure(n: int) -> int:
    count = 0

    def add(k: int) -> None:
        nonlocal count
        count += k

    for i in range(n):
        add(i)
    return count


def helper(n: int, x: torch.Tensor) -> torch.Tensor:
    y = _step(n, x)
    return _step(2, y) + y


def _step(n: int, x: torch.Tensor) -> torch.Tensor:
    for i in range(n):
        x = x - i
    return x


def index_used_as_constant(n: int, x: torch.Tensor) -> list[str]:
    names = {0: "a", 1: "b", 2: "c"}
    return [f"{names.get(i)}{i}" for i in range(n)]


def fills_a_dict(n: int) -> dict[int, int]:
    made = {}
    for i in range(n):
        made[i % 7] = i
    return made


def previous(n: int) -> tuple[Any, Any]:
    last, before = None, None
    for i in range(n):
        before, last = last, i * 2
    return last, before


def printed(n: int) -> None:
    for i in range(n):
        print("iteration", i)


def list_grows_while_iterated(n: int) -> list[int]:
    items = [n]
    for item in items:
        if item > 0:
            items.append(item - 1)
    return items


def shapes(x: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(())
    for i in range(x.shape[0]):
        total = total + x[i].sum() * i
    return total


def grad(n: int, x: torch.Tensor) -> torch.Tensor:
    y = x
    for _ in range(n):
        y = torch.tanh(y) * x
    return torch.autograd.grad(y.sum(), x)[0]


N = [(10,), (1000,), (0,), (1,), (2,), (3,)]
NX = [(10, X), (100, X), (0, X), (1, X), (2, X), (3, X + 1)]
CASES: list[tuple[Callable[..., Any], list[tuple[Any, ...]]]] = [
    (ints, N), (counted_down, N),
    (strides, [(0, 9, 1), (9, 0, -1), (0, 100, 7), (5, 5, 1), (100, -100, -3), (0, 50, 1)]),
    (floats, N), (becomes_float, N), (overflows, [(10,), (25,), (70,), (0,)]), (tensors, NX), (in_place, NX),
    (swapped, NX), (over_a_list, [([X] * n,) for n in (5, 40, 0, 1, 2)]), (over_a_tuple, [((X,) * n,) for n in (20, 40, 0, 1, 17)]),
    (zipped, [([X] * 5, 10), ([X] * 30, 40), ([X] * 9, 4), ([], 3)]), (branches, N), (breaks, [(20, 50), (1000, 5000), (5, 100), (0, 1)]),
    (nested, [(5, 7), (40, 50), (0, 5), (5, 0), (1, 1)]), (triangle, [(3,), (30,), (0,)]), (while_true, [(X,), (X * 100,), (X * 0,)]),
    (condition_of_a_tensor, [(X, 50.0), (X, 500.0), (X, 0.0)]), (dtype_changes, NX), (shape_grows, NX),
    (raises, [(10, 20), (10, 5), (300, 400), (300, 100), (3, 0)]), (catches, [(10, 3), (100, 7), (5, 9)]), (comprehension, NX),
    (closure, N), (helper, NX), (index_used_as_constant, NX), (fills_a_dict, N), (previous, N), (printed, [(4,), (30,), (0,)]),
    (list_grows_while_iterated, [(5,), (50,), (0,)]), (shapes, [(torch.ones(n, 3),) for n in (5, 50, 1, 2)]),
    (grad, [(n, torch.ones(3, requires_grad=True)) for n in (5, 30, 1)]),
]


@pytest.mark.parametrize("fn, arguments", CASES, ids=lambda value: getattr(value, "__name__", ""))
def test_is_the_same_as_eager(fn: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> None:
    check(fn, *arguments)


@pytest.mark.parametrize("fn", [ints, becomes_float, branches, triangle], ids=lambda fn: fn.__name__)
def test_a_trace_does_not_grow_with_the_number_of_iterations(fn: Callable[..., Any]) -> None:
    def lengths(n: int) -> list[int]:
        jitted = trident.jit(fn)
        for _ in range(3):
            jitted(n)
        return [len(list(s.trace.block.operations)) for s in entry_of(jitted).specializations]

    short, long = lengths(10), lengths(10_000 if fn is not triangle else 60)
    assert short == long
    assert any(s.trace.loops for s in _after(fn, 20).specializations)


def _after(fn: Callable[..., Any], *counts: int) -> Any:
    jitted = trident.jit(fn)
    for n in counts:
        jitted(n)
    return entry_of(jitted)


@pytest.mark.parametrize("fn", [ints, floats], ids=lambda fn: fn.__name__)
def test_another_number_of_iterations_uses_the_same_traces(fn: Callable[..., Any]) -> None:
    entry = _after(fn, 10, 10)
    made, exits = len(entry.specializations), entry.side_exits
    jitted = trident.jit(fn)
    entry = entry_of(jitted)
    jitted(10), jitted(10)
    for n in (5, 100, 1_000, 12):
        assert jitted(n) == fn(n)
    assert len(entry.specializations) == made and entry.side_exits == exits and entry.cell.misses == 1


def test_the_first_call_is_native_already() -> None:
    jitted = trident.jit(floats)
    start = time.process_time()
    assert jitted(500_000) == floats(500_000)
    assert time.process_time() - start < 10
    assert entry_of(jitted).side_exits == 1


def test_a_short_constant_range_and_modules_are_unrolled() -> None:
    net = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(3)])

    def f(x: torch.Tensor) -> torch.Tensor:
        for i in range(5):
            x = x * i
        for layer in net:
            x = layer(x)
        return x

    jitted = trident.jit(f)
    for _ in range(3):
        jitted(X)
    (only,) = entry_of(jitted).specializations
    assert not only.trace.loops and str(only.trace).count("torch.aten.linear") == 3


def test_a_long_constant_range_is_a_loop() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2000):
            x = x + 1
        return x

    entry = check(f, (X,))
    assert max(len(list(s.trace.block.operations)) for s in entry.specializations) < 100


def test_the_traceback_is_eagers() -> None:
    jitted = trident.jit(raises)
    jitted(10, 20), jitted(10, 20)
    seen = []
    for fn in (raises, jitted):
        with pytest.raises(ZeroDivisionError) as info:
            fn(100, 50)
        seen.append([(entry.name, entry.lineno) for entry in traceback.extract_tb(info.value.__traceback__)][-1])
    assert seen[0] == seen[1]


class Interrupted(BaseException):
    pass


def wait(n: int) -> int:
    i = 0
    while i < n:
        i += 1
    return i


def wait_in_a_tensor(n: int, x: torch.Tensor) -> torch.Tensor:
    for _ in range(n):
        x = x * 1
    return x


def wait_nested(n: int, m: int) -> int:
    i = 0
    for _ in range(n):
        for _ in range(m):
            i += 1
    return i


@pytest.mark.parametrize("fn, args", [(wait, (10**15,)), (wait_in_a_tensor, (10**12, X)), (wait_nested, (10**12, 3))], ids=lambda v: "")
@pytest.mark.parametrize("warm", [False, True])
def test_a_signal_ends_a_loop(fn: Callable[..., Any], args: tuple[Any, ...], warm: bool) -> None:
    def handle(*_: object) -> None:
        raise Interrupted

    trident.jit(ints)(10)  # the runtime is there
    jitted = trident.jit(fn)
    if warm:
        jitted(10, *args[1:]), jitted(10, *args[1:])
    before = signal.signal(signal.SIGALRM, handle)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2 if warm else 1.0)
        with pytest.raises(Interrupted) as info:
            jitted(*args)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    trace = traceback.extract_tb(info.value.__traceback__)
    assert [entry.name for entry in trace[1:]] == [fn.__name__, "handle"], trace


def test_other_threads_run_meanwhile() -> None:
    done = threading.Event()
    ticks: list[float] = []

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    jitted = trident.jit(wait)
    jitted(100)
    thread = threading.Thread(target=tick)
    thread.start()
    start = time.perf_counter()
    while time.perf_counter() - start < 0.5:
        jitted(20_000_000)
    done.set()
    thread.join()
    assert len(ticks) > 10
    assert sys.getswitchinterval() == 0.005


class Watched:
    alive = 0

    def __init__(self) -> None:
        Watched.alive += 1

    def __del__(self) -> None:
        Watched.alive -= 1


@pytest.mark.skipif(options.current().check > 1, reason="the shadow check keeps the objects of a recording alive")
def test_an_iteration_drops_what_the_one_before_has_made() -> None:
    most = []

    def note() -> None:
        most.append(Watched.alive)

    def f(n: int) -> int:
        held = None
        for _ in range(n):
            held = Watched()
            note()
        return n if held is not None else 0

    def counts(fn: Callable[[int], int]) -> list[int]:
        most.clear()
        fn(30)
        return most[:]

    expected = counts(f)
    jitted = trident.jit(f)
    for _ in range(4):
        assert counts(jitted) == expected
    assert Watched.alive == 0


# ------------------------------------------------------------------------------------------------------ random programs
class Programs:
    """Random functions f(n, m, x, items) with loops."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.depth = self.names = 0

    def source(self) -> str:
        body = ["a, b, c, y, out = 0, 1, 0.5, x, []", *self.loop(), *(self.loop() if self.random.random() < 0.4 else [])]
        return "def f(n, m, x, items):\n" + textwrap.indent("\n".join([*body, "return a, b, c, y, out"]), "    ")

    def pick(self, *choices: str) -> str:
        return self.random.choice(choices)

    def loop(self) -> list[str]:
        self.depth += 1
        self.names += 1
        i = f"i{self.names}"
        bound = self.pick("n", "m", "n + 1", "len(items)", "x.shape[0]") if self.depth == 1 else self.pick("m", "m", "3")
        kind = self.random.randrange(6)
        if kind < 3:
            head = [f"for {i} in range({bound}):"]
            step = []
        elif kind == 3:
            head, step = [f"for {i}, z in enumerate(items):"], [f"y = y + z * {i}"]
        elif kind == 4:
            head, step = [f"for z, {i} in zip(items, range({bound})):"], ["y = y - z"]
        else:
            head, step = [f"{i} = 0", f"while {i} < {bound}:"], [f"{i} += 1"]
        body = [*step, *(line for _ in range(self.random.randint(1, 3)) for line in self.statement(i))]
        tail = ["else:", "    b += 7"] if self.random.random() < 0.25 else []
        self.depth -= 1
        return [*head, *("    " + line for line in body), *tail]

    def statement(self, i: str) -> list[str]:
        choice = self.random.randrange(16)
        if choice == 0 and self.depth < 2:
            return self.loop()
        if choice == 1:
            return [f"if {i} % 3 == {self.random.randrange(3)}:", "    " + self.pick("a += 5", "continue", "y = y * 2", "c -= 1")]
        if choice == 2:
            return [f"if {i} > {self.pick('m', '4', '20')}:", "    break"]
        if choice == 3:
            return [f"out.append({self.pick('a', i, 'y', 'c')})"]
        if choice == 4:
            risky = f"    a += 100 // ({i} - {self.pick('3', '8', 'm')})"
            return ["try:", risky, "except ZeroDivisionError:", "    b += 1"]
        if choice == 5:
            return [f"a += 1000 // ({i} - {self.pick('11', '40', '2')})"]
        if choice == 6:
            change = self.pick("y = y.double()", "y = torch.cat([y, y])", "a = 0.25", "x = y")
            return [f"if {i} == {self.pick('2', '6', 'm')}:", "    " + change]
        return [self.pick(
            "a += 1", f"a = a + {i} * b", "b = a % 7 - 3", "c = c * 1.25 + a", "c = c / 2", "y = y + 1", f"y = y * {i} + x[:1]",
            "y = y - c", "a, b = b, a", f"b ^= {i}", "y = torch.relu(y) + b % 5", f"c = float({i})", "a = a * 3 + b",
            "y.add_(1) if y is not x else None", "out = out + [b]", "b = len(out)", "b = y.shape[0]", "z = (a, y); a = z[0] + 1")]


@pytest.mark.parametrize("seed", range(20))
def test_random_loops(seed: int) -> None:
    source = Programs(seed).source()
    scope: dict[str, Any] = {"torch": torch}
    exec(compile(source, f"<loops {seed}>", "exec"), scope)
    items = [X + k for k in range(7)]
    arguments = [(n, m, X.clone(), items[:k]) for n, m, k in ((6, 4, 5), (0, 0, 0), (1, 2, 1), (3, 1, 2), (2, 3, 7), (45, 12, 7))]
    try:
        check(scope["f"], *arguments, expect_trace=False)
    except BaseException:
        print(source)
        raise
