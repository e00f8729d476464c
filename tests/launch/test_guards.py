"""What Triton re-reads at every launch: while it is as it was, native code launches; once it differs, Triton does."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import fake
import pytest
import torch
import triton
import triton.language as tl
from sites import launcher_of
from triton import knobs
from triton.runtime.jit import JITFunction

pytestmark = pytest.mark.usefixtures("recording")

LIMIT = tl.constexpr(7)
OTHER = 0
MARGIN = tl.constexpr(3)


def plain(x, n): pass


def uses_global(x, n):
    tl.store(x, n + LIMIT)


@triton.jit
def inner(n):
    return n + MARGIN


def uses_inner(x, n):
    tl.store(x, inner(n))


class Site:
    """A launcher and how its launches were made."""

    def __init__(self, function: Callable[..., Any], n: Any = 5, **options: Any) -> None:
        self.kernel = triton.jit(function)
        self.operands = [torch.zeros(32, dtype=torch.int32), n]
        self.launcher = launcher_of(self.kernel, self.operands, options=options)
        self.state = self.launcher.state
        self.native_then_python()

    def native_then_python(self) -> None:
        assert [self.way(), self.way(), self.way()] == ["python", "native", "native"], self.state.reason

    def way(self, *operands: Any) -> str:
        python, hits = len(fake.python_launches), self.state.hits
        self.launcher((1,), *(operands or self.operands))
        ways = ["python"] * (len(fake.python_launches) - python) + ["native"] * (self.state.hits - hits)
        assert len(ways) == 1, ways
        return ways[0]


@pytest.fixture(autouse=True)
def restored_knobs() -> Iterator[None]:
    with knobs.runtime.scope(), knobs.compilation.scope():
        yield


@pytest.mark.parametrize("name", ["launch_enter_hook", "launch_exit_hook"])
def test_launch_hooks(name: str) -> None:
    site, seen = Site(plain), []
    hook = seen.append
    getattr(knobs.runtime, name).add(hook)
    try:
        assert [site.way(), site.way()] == ["python", "python"]
        assert [entry.get()["name"] for entry in seen] == ["kernel", "kernel"]
    finally:
        getattr(knobs.runtime, name).remove(hook)
    assert site.way() == "native"


def test_a_hook_of_another_kind() -> None:
    site, seen = Site(plain), []
    knobs.runtime.launch_enter_hook = seen.append
    assert [site.way(), site.way()] == ["python", "python"] and len(seen) == 2
    knobs.runtime.launch_enter_hook = None
    assert site.way() == "python"
    assert site.way() == "native"


def test_a_hook_set_before_the_first_launch() -> None:
    seen: list[Any] = []
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        kernel = triton.jit(plain)
        launcher = launcher_of(kernel, [torch.zeros(3), 5])
        for _ in range(3):
            launcher((1,), torch.zeros(3), 5)
        assert len(seen) == 3 and launcher.state.hits == 0 and "launch_enter_hook" in launcher.state.reason
    finally:
        knobs.runtime.launch_enter_hook.calls.clear()


def test_pre_run_hooks() -> None:
    site, seen = Site(plain), []
    site.kernel.add_pre_run_hook(lambda *args, **kwargs: seen.append(args))
    assert [site.way(), site.way()] == ["python", "python"]
    assert len(seen) == 2 and seen[0][0] is site.operands[0]
    site.kernel.pre_run_hooks.clear()
    assert site.way() == "native"


def test_debug_knob() -> None:
    site = Site(plain)
    first = site.state.entries[0].compiled
    knobs.runtime.debug = True
    assert [site.way(), site.way()] == ["python", "native"]
    (entry,) = site.state.entries
    assert entry.compiled is not first and entry.compiled.metadata.debug
    knobs.runtime.debug = False
    assert [site.way(), site.way()] == ["python", "native"]
    assert site.state.entries[0].compiled is first


def test_instrumentation_mode() -> None:
    site = Site(plain)
    knobs.compilation.instrumentation_mode = "consan"
    assert [site.way(), site.way()] == ["python", "python"]
    assert "instrumentation" in site.state.reason


@pytest.mark.skipif(not hasattr(knobs.runtime, "add_stages_inspection_hook"), reason="this Triton has no such hook")
def test_stages_hook() -> None:
    site = Site(plain)
    knobs.runtime.add_stages_inspection_hook = lambda *args: ("key", "hash")
    assert [site.way(), site.way()] == ["python", "python"]


def test_an_unrelated_knob_costs_one_launch_through_python() -> None:
    site = Site(plain)
    entries = site.state.entries
    knobs.runtime.unrelated = 1
    site.native_then_python()
    assert site.state.entries is entries, "the same guards are renewed in place"
    del knobs.runtime.unrelated


def test_changed_global_is_triton_s_error(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(uses_global)
    monkeypatch.setitem(globals(), "LIMIT", tl.constexpr(8))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Global variable LIMIT has changed since we compiled this kernel"):
            site.launcher((1,), *site.operands)


def test_changed_global_of_a_called_function(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(uses_inner)
    monkeypatch.setitem(globals(), "MARGIN", tl.constexpr(4))
    if not any(name == "MARGIN" for name, _ in site.kernel.used_global_vals):
        site.kernel[(1,)](*site.operands)  # before 3.8 Triton itself does not notice
        assert site.way() == "native"
        return
    with pytest.raises(RuntimeError, match="Global variable MARGIN has changed"):
        site.launcher((1,), *site.operands)


def test_changed_value_of_a_constexpr(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(uses_global)
    monkeypatch.setattr(LIMIT, "value", 9)
    with pytest.raises(RuntimeError, match="Global variable LIMIT has changed"):
        site.launcher((1,), *site.operands)


def test_deleted_global(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(uses_global)
    monkeypatch.delitem(globals(), "LIMIT")
    with pytest.raises(RuntimeError, match="Global variable LIMIT has changed"):
        site.launcher((1,), *site.operands)


def test_an_equal_global_is_learnt_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(uses_global)
    monkeypatch.setitem(globals(), "LIMIT", tl.constexpr(7))
    assert [site.way(), site.way()] == ["python", "native"]


def test_other_globals_do_not_matter() -> None:
    site = Site(uses_global)
    for step in range(20):
        globals()["OTHER"] = step
        globals()[f"NEW_{step}"] = step
        assert site.way() == "native"
        del globals()[f"NEW_{step}"]


def test_cleared_kernel_cache() -> None:
    site = Site(plain)
    first = site.state.entries[0].compiled
    site.kernel.device_caches.clear()
    assert [site.way(), site.way()] == ["python", "native"]
    assert len(site.state.entries) == 1 and site.state.entries[0].compiled is not first


def test_emptied_kernel_cache() -> None:
    site = Site(plain)
    first = site.state.entries[0].compiled
    for caches in site.kernel.device_caches.values():
        caches[0].clear()
    assert [site.way(), site.way()] == ["python", "native"]
    assert len(site.state.entries) == 1 and site.state.entries[0].compiled is not first


def test_two_sites_of_one_kernel() -> None:
    """A specialization that one site compiles costs the other one launch through Python, and nothing else."""
    site = Site(plain)
    other = launcher_of(site.kernel, site.operands)
    x = site.operands[0]
    other((1,), x, 5)
    assert site.way() == "native", "the kernel was there already"
    other((1,), x, 16)
    assert [site.way(), site.way()] == ["python", "native"]
    assert len(site.state.entries) == 1


def test_kernel_attribute() -> None:
    site = Site(plain)
    site.kernel.debug = True
    assert [site.way(), site.way()] == ["python", "native"]
    assert site.state.entries[0].compiled.metadata.debug


def test_patched_run(monkeypatch: pytest.MonkeyPatch) -> None:
    site, seen, original = Site(plain), [], JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(JITFunction, "run", run)
    assert [site.way(), site.way()] == ["python", "python"]
    assert len(seen) == 2
    monkeypatch.undo()


def test_patched_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    site, original = Site(plain), fake.Launcher.__call__
    monkeypatch.setattr(fake.Launcher, "__call__", lambda *args: original(*args))
    assert [site.way(), site.way()] == ["python", "python"]
    monkeypatch.undo()
    assert [site.way(), site.way()] == ["python", "native"]


def test_another_driver() -> None:
    site, config = Site(plain), triton.runtime.driver
    mine = config.active
    config.set_active(fake.FakeDriver())
    assert [site.way(), site.way()] == ["python", "native"]
    config.set_active(mine)
    assert [site.way(), site.way()] == ["python", "native"]


def test_other_specializations_stay_through_a_refresh() -> None:
    site = Site(plain)
    x = site.operands[0]
    for n in (16, 1, 1 << 40):
        assert [site.way(x, n), site.way(x, n)] == ["python", "native"]
    knobs.runtime.unrelated = 1
    assert site.way(x, 16) == "python"
    assert [site.way(x, n) for n in (5, 16, 1, 1 << 40)] == ["native"] * 4
    del knobs.runtime.unrelated


def test_guards_that_never_hold_are_not_rebuilt_at_each_launch() -> None:
    site = Site(plain)
    learnt = []
    original, site.state._learn = site.state._learn, lambda *args: (learnt.append(1), original(*args))
    for step in range(200):
        knobs.runtime.unrelated = step
        assert site.way() == "python"
    assert len(learnt) < 20
    del knobs.runtime.unrelated
    for _ in range(2000):
        site.launcher((1,), *site.operands)
    assert site.way() == "native"


def test_what_cannot_be_learnt_is_not_tried_at_each_launch() -> None:
    site, seen, learnt = Site(plain), [], []
    original, site.state._learn = site.state._learn, lambda *args: (learnt.append(1), original(*args))
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        for _ in range(200):
            assert site.way() == "python"
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
        knobs.runtime.launch_enter_hook.calls.clear()
    assert len(seen) == 200 and len(learnt) < 20
    assert site.way() == "native"


def test_threads() -> None:
    """Several threads launch while another changes what is guarded: each launch is made once, by one or the other."""
    site = Site(uses_global)
    x = site.operands[0]
    before = site.state.hits + len(fake.python_launches)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for i in range(300):
                site.launcher((1,), x, (5, 16, 1, 1 << 40)[(i + seed) % 4])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for i in range(50):
        knobs.runtime.unrelated = i
    for thread in threads:
        thread.join()
    del knobs.runtime.unrelated
    assert not errors
    # The counter of native launches is not atomic: it may miss some, never invent any.
    assert 0 < site.state.hits + len(fake.python_launches) - before <= 1200
