"""Containers that grow in a trace: states stay small, and what leaves the trace has every item."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.conformance.harness import check
from tests.frontend.driver import Driver

X = torch.randn(3)


def _largest_state(entry: object) -> int:
    return max(len(view.operation.operands) for s in entry.specializations  # type: ignore[attr-defined]
               for view in s.trace.block.operations if view.operation.name == "trident.state")


def grows(x, n):
    found = []
    for i in range(n):
        x = x + i
        found.append(x)
    if x.sum() > 1e5:  # an exit with the whole list
        found.append(x * 2)
    return found


def grows_by_two_kinds(x, n, k):
    found = []
    for i in range(n):
        x = x + 1
        found.append((x, k + i, i, "s"))
        found.extend([i * 0.5, k])
    if x.sum() > 1e5:
        return found[0], found[-1], len(found)
    return found


def keeps_identity(x, n):
    first = x + 1
    found = [first]
    for _ in range(n):
        x = x * 1.5
        found.append(x)
    if x.sum() > 1e5:
        return found[0] is first, found[-1] is x, found
    return found[0] is first, found[-1] is x


def changes_early_items(x, n):
    found = []
    for i in range(n):
        x = x + 1
        found.append(x)
        if i % 30 == 29:
            found[i // 2] = x * 2
            found[-i] = None
    if x.sum() > 1e5:
        found.reverse()
    return found


def stack_and_queue(x, n):
    found, popped = [], []
    for i in range(n):
        x = x - 1
        found.append(x)
        found.append(x * 2)
        popped.append(found.pop())
        if i % 40 == 39:
            popped.append(found.pop(0))
            found.insert(5, i)
            del found[7]
            found[2:4] = []
    if x.sum() < -1e5:
        found.clear()
    return found, popped


def dict_grows(x, n):
    found = {}
    for i in range(n):
        x = x + 1
        found[f"k{i}"] = x
        found.setdefault(i, (i, x))
        if i % 35 == 34:
            found["k3"] = x * 3
            del found[2 * i // 3]
    if x.sum() > 1e5:
        found.update(k1=x, new=1)
    return found


def nested(x, n):
    found = []
    for i in range(n):
        x = x + 1
        found.append([x, {"i": i}])
    if x.sum() > 1e5:
        found[3][1]["i"] = 7
        found[3].append(1)
    return found


def comprehension(x, n):
    found = [x + i for i in range(n)]
    total = found[0]
    for part in found:
        total = total + part
        if total.sum() > 1e6:
            return [part.shape for part in found], total
    return torch.stack(found), total


def pairs_as_a_tuple(x, n):
    found = tuple((x + i, i) for i in range(n))
    wide = tuple([x * i for i in range(n)]) + (n,)
    if wide[1].sum() > 1e5:
        return found[2], wide
    return found, wide[3]


PROGRAMS = (grows, keeps_identity, changes_early_items, stack_and_queue, dict_grows, nested, comprehension, pairs_as_a_tuple)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_four_ways(program: Callable[..., object]) -> None:
    check(program, (X, 90), (X + 1e6, 90), (X - 1e6, 90))


def test_mixed_items() -> None:
    check(grows_by_two_kinds, (X, 60, 5), (X + 1e6, 60, 2**40), (X + 1e6, 60, 2**70))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_a_bridge_knows_the_items(program: Callable[..., object]) -> None:
    driver = Driver(program)  # type: ignore[arg-type]
    for x in (X, X + 1e6, X + 1e6, X, X - 1e6, X - 1e6):
        expected, seen = program(x, 90), driver(x, 90)
        torch.testing.assert_close(seen, expected, rtol=0, atol=0)
    assert not [o.abort for o in driver.outcomes if o.abort is not None and o.abort.reason == "internal"]


def test_states_stay_small_and_nothing_becomes_opaque() -> None:
    entry = check(grows, (X, 300), strict=True)
    assert _largest_state(entry) < 110
    entry = check(dict_grows, (X, 60))
    assert _largest_state(entry) < 110
