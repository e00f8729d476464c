"""Replay programs with an emulated graph: what fits, what does not, aliasing, versions, and results that are the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.replay.harness import MISS, Replayed
from trident.backend.native.replay_layout import Mismatch
from trident.backend.replay.split import Unfit
from trident.backend.replay.targets import Emulation, emulated


@pytest.fixture(autouse=True)
def emulation() -> Iterator[Emulation]:
    with torch.no_grad(), emulated() as target:
        yield target


def step(x: torch.Tensor, cache: torch.Tensor, k: Any) -> Any:
    y = torch.relu(x @ cache) * k
    cache.add_(1)
    return y, x.shape[0]


def made() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(4, 4), torch.randn(4, 4)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b) and a.stride() == b.stride() and a.dtype == b.dtype
    if isinstance(a, tuple | list):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def eager(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


def test_it_misses_until_there_is_a_graph_and_then_replays(emulation: Emulation) -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    assert program(x, cache, 3) is MISS and program.site.why[0] is Mismatch.NO_GRAPH
    before = cache.clone()
    graph = program.capture(x, cache, 3)
    assert torch.equal(cache, before) and emulation.launches == 0, "a capture executes nothing"
    other = before.clone()
    for n in range(1, 5):
        assert same(program(x, cache, 3), step(x, other, 3))
        assert torch.equal(cache, other) and graph.replays == n == emulation.launches
    assert program.site.why[0] is Mismatch.NONE


def test_contents_of_pinned_inputs_may_change() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3)
    x.copy_(torch.randn(4, 4))
    cache.zero_()
    other = cache.clone()
    assert same(program(x, cache, 3), step(x, other, 3))


def test_copied_inputs_come_from_anywhere() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3, copied={0})
    for _ in range(3):
        x, other = torch.randn(4, 4), cache.clone()
        kept = x.clone()
        assert same(program(x, cache, 3), step(x, other, 3))
        assert torch.equal(x, kept)


def moved(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x.clone(), cache, 3


def cache_replaced(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x, cache.clone(), 3


def other_number(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x, cache, 4


def transposed(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x.t(), cache, 3


def larger(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return torch.randn(5, 4), cache, 3


def other_dtype(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x.double(), cache.double(), 3


def set_elsewhere(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    cache.data = cache.clone()
    return x, cache, 3


def resized(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    x.resize_(2, 4)
    return x, cache, 3


def a_float(x: torch.Tensor, cache: torch.Tensor) -> tuple[Any, ...]:
    return x, cache, 3.0


@pytest.mark.parametrize("change", [moved, cache_replaced, other_number, transposed, larger, other_dtype, set_elsewhere, resized, a_float])
def test_what_is_not_as_it_was_at_the_capture_misses_and_nothing_has_happened(change: Any, emulation: Emulation) -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3)
    args = change(x, cache)
    before, version = args[1].clone(), args[1]._version
    assert program(*args) is MISS
    assert emulation.launches == 0 and torch.equal(args[1], before) and args[1]._version == version


def test_a_copied_input_that_is_written_is_refused_and_one_that_overlaps_misses() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    with pytest.raises(Unfit, match="writes to an input"):
        program.capture(x, cache, 3, copied={0, 1})
    program.capture(x, cache, 3, copied={0})
    assert program(cache, cache, 3) is MISS and program.site.why[0] is Mismatch.OVERLAP
    large = torch.randn(9, 4)
    inside = Replayed(step, large[:4], large[2:6], 3)  # both are views, made without gradients
    with pytest.raises(Unfit):
        inside.capture(large[:4], large[2:6], 3, copied={0})


def test_a_copied_input_may_have_any_dense_strides_and_only_them() -> None:
    x, cache = torch.randn(4, 4).t().clone(memory_format=torch.preserve_format), torch.randn(4, 4)
    assert x.stride() == (1, 4)
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3, copied={0})
    other, again = cache.clone(), torch.randn(4, 4)
    assert program(again, cache, 3) is MISS and program.site.why[0] is Mismatch.METADATA
    turned = torch.empty_strided((4, 4), (1, 4)).copy_(again)
    assert same(program(turned, cache, 3), step(turned, other, 3))
    gaps = torch.empty_strided((4, 4), (8, 1)).copy_(again)
    spread = Replayed(step, gaps, cache, 3)
    with pytest.raises(Unfit, match="gaps"):
        spread.capture(gaps, cache, 3, copied={0})


def test_an_input_that_is_not_aligned_as_at_the_capture_misses() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3, copied={0})
    memory = torch.frombuffer(bytearray(4 * 20), dtype=torch.float32)
    start = next(n for n in range(4) if (memory.data_ptr() + 4 * n) % 16 == 4)
    odd = torch.tensor([]).set_(memory.untyped_storage(), start, (4, 4), (4, 1))
    assert program(odd, cache, 3) is MISS and program.site.why[0] is Mismatch.ALIGNMENT


def test_a_result_is_never_overwritten() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    program.capture(x, cache, 3)
    kept, copies = [], []
    for n in range(100):
        x.fill_(n % 7 - 3)
        kept.append(program(x, cache, 3)[0])
        copies.append(kept[-1].clone())
        kept[-1].untyped_storage()
    assert all(map(torch.equal, kept, copies))
    assert len({result.data_ptr() for result in kept}) == 100
    kept[0].add_(1)
    assert same(program(x, cache, 3)[0].shape, kept[0].shape) and not torch.equal(kept[0], copies[0])


def test_versions_are_those_of_eager() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    version = cache._version, x._version
    program.capture(x, cache, 3)
    assert (cache._version, x._version) == version
    program(x, cache, 3)
    program(x, cache, 3)
    assert (cache._version, x._version) == (version[0] + 2, version[1])


def twice(a: torch.Tensor, b: torch.Tensor) -> Any:
    a.add_(1)
    b.mul_(2)
    return a + b


def test_inputs_with_one_version_are_counted_once() -> None:
    a = torch.randn(4)
    b = a.detach()
    program = Replayed(twice, a, b)
    program.capture(a, b)
    before = a._version
    twice(a, b)
    step_of_eager = a._version - before
    program(a, b)
    assert a._version - before == 2 * step_of_eager == b._version - before
    apart = torch.Tensor(a.data)  # the same memory, with a version of its own
    assert program(a, apart) is MISS


def identity(x: torch.Tensor, y: torch.Tensor) -> Any:
    z = x + y
    return {"x": x, "z": z, "again": [z, y.add_(1)]}


def test_results_that_are_inputs_or_one_another_are_so() -> None:
    x, y = torch.randn(3), torch.randn(3)
    program = Replayed(identity, x, y)
    program.capture(x, y)
    other = y.clone()
    found, expected = program(x, y), identity(x, other)
    assert found["x"] is x and found["again"][1] is y and found["again"][0] is found["z"]
    assert torch.equal(found["z"], expected["z"]) and torch.equal(y, other)


@pytest.mark.parametrize(("function", "reason"), [
    (lambda x: (x + 1)[1:], "part of a larger"), (lambda x: x[1:], "shares memory"),
    (lambda x: (lambda y: (y, y.view(-1)))(x + 1), "shares memory"), (lambda x: (x + 1).expand(2, 4, 4), "gaps"),
])
def test_results_that_are_no_tensors_of_their_own_are_refused(function: Any, reason: str) -> None:
    x = torch.randn(4, 4)
    program = Replayed(function, x)
    with pytest.raises(Unfit, match=reason):
        program.capture(x)


def test_inputs_that_autograd_or_torch_keeps_track_of_are_refused() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.randn(4, 4)
    program = Replayed(f, x)
    for odd, reason in ((torch.randn(4, 4, dtype=torch.complex64).conj(), "conjugate"), (torch.randn(1, 1, 1, 1, 1, 4), "6 dimensions"),
                        (torch.randn(4, 4).to_sparse(), "layout"), (torch.randn(4, device="meta"), "meta")):
        with pytest.raises(Unfit, match=reason):
            program.capture(odd)
    with torch.enable_grad():
        with pytest.raises(Unfit, match="autograd"):
            program.capture(x.clone().requires_grad_())
        with pytest.raises(Unfit, match="view"):
            program.capture((x.clone().requires_grad_() * 1).view(-1).detach().view(4, 4)[1:])


def test_gradients_wanted_later_miss() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    x = torch.randn(4, 4)
    with torch.enable_grad():
        program = Replayed(f, x)
        program.capture(x)
        assert torch.equal(program(x), x * 2)
        x.requires_grad_()
        assert program(x) is MISS and program.site.why[0] in (Mismatch.AUTOGRAD, Mismatch.METADATA)
        x.requires_grad_(False)
        assert torch.equal(program(x), x * 2)
    assert program(x) is MISS and program.site.why[0] is Mismatch.THREAD


def test_a_failed_capture_leaves_everything_as_it_was(emulation: Emulation) -> None:
    def f(x: torch.Tensor, cache: torch.Tensor) -> Any:
        cache.add_(1)
        return (x * cache)[1:]

    x, cache = made()
    program = Replayed(f, x, cache)
    before, version, random = cache.clone(), cache._version, torch.get_rng_state()
    with pytest.raises(Unfit):
        program.capture(x, cache)
    assert torch.equal(cache, before) and cache._version == version and torch.equal(torch.get_rng_state(), random)
    assert program.site.graphs == [] and program(x, cache) is MISS


def test_random_numbers_go_on_as_in_eager() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, 0.5, True) + torch.rand(4)

    x = torch.ones(4)
    program = Replayed(f, x)
    assert program.plan.draws
    torch.manual_seed(3)
    expected = [f(x) for _ in range(3)]
    torch.manual_seed(3)
    program.capture(x)
    assert all(map(torch.equal, [program(x) for _ in range(3)], expected))


def test_a_reference_run_is_what_a_graph_does() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    other = cache.clone()
    tensors, numbers = program.operands(x, cache, 3)
    (found,) = program.site.run([*tensors, *numbers])
    assert torch.equal(found, step(x, other, 3)[0]) and torch.equal(cache, other)


def test_an_exception_in_a_replay_is_the_calls() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    graph = program.capture(x, cache, 3)
    before = cache.clone()
    graph.capture.results[0].resize_(1, 4)  # the emulation notices
    with pytest.raises(RuntimeError, match="another shape"):
        program(x, cache, 3)
    assert torch.equal(before + 1, cache)


def test_the_least_used_graph_makes_room() -> None:
    x, cache = made()
    program = Replayed(step, x, cache, 3)
    inputs = [torch.randn(4, 4) for _ in range(10)]
    for n, other in enumerate(inputs):
        program.capture(other, cache, 3)
        assert program(other, cache, 3) is not MISS
        assert n == 0 or program(inputs[0], cache, 3) is not MISS  # which is used all the time
    assert len(program.site.graphs) == 8
    assert [program(other, cache, 3) is not MISS for other in inputs].count(True) == 8
    assert program.site.replays == 10 + 9 + 8
