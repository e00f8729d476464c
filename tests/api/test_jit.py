"""The public face: what jit takes and refuses, what the callable looks like, options, environment, explain."""

from __future__ import annotations

import copy
import gc
import inspect
import pickle
import subprocess
import sys
import threading
import weakref

import pytest
import torch

import trident
from trident.api import entry_of

X, Y = torch.randn(4), torch.randn(4)


@trident.jit
def documented(x: torch.Tensor, y: torch.Tensor, *, scale: int = 2) -> torch.Tensor:
    """Adds."""
    return (x + y) * scale


def test_it_looks_like_the_function() -> None:
    assert documented.__name__ == "documented" and documented.__doc__ == "Adds." and documented.__module__ == __name__
    assert list(inspect.signature(documented).parameters) == ["x", "y", "scale"]
    assert inspect.signature(documented).parameters["scale"].default == 2
    assert documented.__wrapped__(X, Y).equal(documented(X, Y))
    assert callable(documented) and hash(documented) == hash(documented)
    assert pickle.loads(pickle.dumps(documented)) is documented
    assert copy.deepcopy(documented) is documented
    assert "documented" in repr(documented)


def test_specializations_and_reset() -> None:
    @trident.jit
    def f(x):
        return x + 1

    f(X), f(X), f(X)
    assert f.specializations == 1 and trident.explain(f).hits == 2
    f.reset()
    assert f.specializations == 0
    assert f(X).equal(X + 1)
    assert f.specializations == 1


@pytest.mark.parametrize("target, words", [
    (len, "builtin"), (3, "int"), (torch.add, "builtin"), (type("C", (), {}), "class"), ("f", "str"), (None.__class__, "class"),
])
def test_refuses_what_is_no_function(target: object, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        trident.jit(target)


def test_refuses_generators_and_coroutines() -> None:
    def generator():
        yield 1

    async def coroutine():
        return 1

    async def agen():
        yield 1

    for target, words in ((generator, "generator"), (coroutine, "coroutine"), (agen, "asynchronous")):
        with pytest.raises(TypeError, match=words):
            trident.jit(target)


def test_refuses_unknown_options() -> None:
    with pytest.raises(TypeError, match="known options"):
        trident.jit(lambda x: x, dynamic=True)
    with pytest.raises(TypeError, match="known options"):
        trident.jit(fast=True)


@pytest.mark.parametrize("args, kwargs", [
    ((), {}), ((1,), {}), ((1, 2, 3), {}), ((1, 2), {"z": 1}), ((1, 2), {"y": 1}), ((), {"y": 1}), ((1, 2), {"scale": 1, "q": 2}),
])
def test_wrong_arguments_raise_cpythons_error(args: tuple, kwargs: dict) -> None:
    def f(x, y, *, scale=1):
        return x

    jitted = trident.jit(f)
    for _ in range(3):
        with pytest.raises(TypeError) as expected:
            f(*args, **kwargs)
        with pytest.raises(TypeError) as seen:
            jitted(*args, **kwargs)
        assert str(seen.value) == str(expected.value)
        jitted(X, Y)


def test_binding_forms() -> None:
    def f(a, b=2, /, c=3, *args, d, e=5, **kw):
        return a, b, c, args, d, e, kw

    jitted = trident.jit(f)
    calls = [((1,), {"d": 4}), ((1, 2, 3, 4, 5), {"d": 6}), ((1,), {"c": 9, "d": 1, "e": 2, "z": 3}), ((1, 2), {"d": 0, "b": 7})]
    for _ in range(3):
        for args, kwargs in calls:
            assert jitted(*args, **kwargs) == f(*args, **kwargs)


def test_defaults_are_read_live() -> None:
    def f(x, n=1):
        return x + n

    jitted = trident.jit(f)
    assert jitted(X).equal(X + 1) and jitted(X).equal(X + 1)
    f.__defaults__ = (5,)
    assert jitted(X).equal(X + 5)


class Thing:
    def __init__(self, k: float) -> None:
        self.k = k

    @trident.jit
    def scaled(self, x):
        """Scales."""
        return x * self.k

    @staticmethod
    @trident.jit
    def static(x):
        return x + 1

    @classmethod
    @trident.jit
    def made(cls, x):
        return cls.__name__, x + 2


def test_methods_bind() -> None:
    a, b = Thing(2.0), Thing(3.0)
    for _ in range(3):
        assert a.scaled(X).equal(X * 2.0) and b.scaled(X).equal(X * 3.0)
        assert Thing.scaled(a, X).equal(X * 2.0)
        assert Thing.static(X).equal(X + 1) and a.static(X).equal(X + 1)
        assert Thing.made(X)[0] == "Thing" and Thing.made(X)[1].equal(X + 2)
    assert Thing.scaled.__doc__ == "Scales." and a.scaled.__self__ is a
    bound = trident.jit(Thing(4.0).scaled)
    assert bound(X).equal(X * 4.0)


def test_attribute_of_self_that_varies() -> None:
    thing = Thing(1.0)
    for n in range(20):
        thing.k = n / 4
        assert thing.scaled(X).equal(X * (n / 4))


def test_recursion_works_and_its_limit_holds() -> None:
    @trident.jit
    def down(x, n):
        return x if n == 0 else down(x + 1, n - 1)

    assert down(X, 5).equal(X + 1 + 1 + 1 + 1 + 1)

    @trident.jit
    def forever(x):
        return forever(x + 1)

    with pytest.raises(RecursionError):
        forever(X)


def test_strict_names_the_line() -> None:
    @trident.jit(strict=True)
    def f(x):
        print("x")
        return x

    with pytest.raises(trident.StrictError, match=r"print.*\n.*test_jit.py:\d+"):
        f(X)


def test_explain_tells() -> None:
    def f(x, flag):
        print("hello")
        return x + 1 if flag else x - 1

    jitted = trident.jit(f)
    for flag in (True, True, False, False):
        jitted(X, flag)
    explanation = trident.explain(jitted)
    text = str(explanation)
    assert "print" in text and "test_jit.py" in text and explanation.hits >= 1
    assert any(c.callee for s in explanation.specializations for c in s.opaque_calls)
    assert "trident.guard" in explanation.specializations[0].ir and "define" in explanation.specializations[0].llvm
    with pytest.raises(TypeError, match="not jitted"):
        trident.explain(lambda: 0)


def test_explain_fits_a_terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    def a_function_with_a_name_that_is_rather_long(x, flag):
        print(end="")
        y = x + 1 if x.sum() > 0 else x - 1
        return y * 2 if flag else y

    jitted = trident.jit(a_function_with_a_name_that_is_rather_long)
    for n in range(12):
        jitted(X if n % 3 else -X, n % 2 == 0)
    monkeypatch.setenv("COLUMNS", "80")
    lines = str(trident.explain(jitted)).splitlines()
    assert max(map(len, lines)) <= 80
    kinds = [line.split()[:2] for line in lines if line.startswith("#")]
    assert ["#0", "root"] in kinds and any(kind == "bridge" for _, kind in kinds), lines


def test_stats_count() -> None:
    before = trident.stats()
    jitted = trident.jit(lambda x: x * 2)
    jitted(X), jitted(X)
    after = trident.stats()
    assert after["hits"] == before["hits"] + 1 and after["specializations"] == before["specializations"] + 1


def test_a_dropped_function_frees_everything() -> None:
    big: torch.Tensor | None = torch.zeros(4)
    gone = weakref.ref(big)

    def f(x):
        return x + big

    jitted = trident.jit(f)
    jitted(X), jitted(X)
    entry = weakref.ref(entry_of(jitted))
    big = None
    del jitted, f
    gc.collect()
    assert entry() is None and gone() is None


def test_threads() -> None:
    @trident.jit
    def f(x, n):
        return (x + n) * x.shape[0]

    wrong: list[object] = []

    def work(seed: int) -> None:
        for i in range(300):
            x = torch.full((seed + 2,), float(i))
            if not f(x, i).equal((x + i) * (seed + 2)):
                wrong.append((seed, i))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def _python(code: str, **env: str) -> str:
    import os

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_log_and_dump(tmp_path) -> None:
    code = "import torch, trident\nf = trident.jit(lambda x: x + 1)\nf(torch.ones(2)); f(torch.ones(2))"
    out = _python(code, TRIDENT_LOG=f"record,guards:{tmp_path}/log", TRIDENT_DUMP=str(tmp_path / "dump"))
    assert "unknown" not in out
    assert "[record]" in (tmp_path / "log").read_text()
    names = [p.name for p in (tmp_path / "dump").iterdir()]
    assert any(n.endswith(".mlir") for n in names) and any(n.endswith(".ll") for n in names)


def test_tracing_tools_see_plain_python() -> None:
    @trident.jit
    def f(x):
        return x + 1

    f(X), f(X)
    hits = trident.explain(f).hits
    lines: list[int] = []

    def tracer(frame, event, arg):
        if frame.f_code is f.__wrapped__.__code__:
            lines.append(frame.f_lineno)
        return tracer

    sys.settrace(tracer)
    try:
        f(X)
    finally:
        sys.settrace(None)
    assert lines and trident.explain(f).hits == hits
    assert f(X).equal(X + 1) and trident.explain(f).hits == hits + 1


def test_interpreter_shuts_down_quietly() -> None:
    out = _python("import torch, trident\nf = trident.jit(lambda x: x + 1)\nfor _ in range(3): f(torch.ones(2))\nh = trident.frame_hook()\n"
                  "h.__enter__()\nprint('end')")
    assert out.strip() == "end"


def test_strict_lets_the_users_exception_through() -> None:
    @trident.jit(strict=True)
    def f(x):
        raise ValueError("user error")

    for _ in range(3):
        with pytest.raises(ValueError, match="user error"):
            f(X)


def test_exceptions_do_not_retire_a_function() -> None:
    def f(x, d):
        try:
            return x * d["a"]
        except KeyError:
            return x

    jitted = trident.jit(f)
    for _ in range(20):
        assert jitted(X, {}).equal(X)
    for _ in range(2100):
        assert jitted(X, {"a": 2}).equal(X * 2)
    assert trident.explain(jitted).hits > 0


def test_objects_that_never_come_again_are_not_kept() -> None:
    class Cache:
        k = 1

    @trident.jit
    def f(x, cache):
        return x + cache.k

    kept = []
    for _ in range(30):
        cache = Cache()
        kept.append(weakref.ref(cache))
        assert f(X, cache).equal(X + 1)
    del cache
    gc.collect()
    assert sum(ref() is not None for ref in kept) <= 1


def test_jit_trace_sees_the_function() -> None:
    @trident.jit
    def f(x):
        return x.relu() + x.shape[0]

    f(X), f(X)
    traced = torch.jit.trace(f, torch.ones(2))
    assert torch.equal(traced(torch.zeros(5)), torch.full((5,), 5.0))


def test_graph_modules() -> None:
    module = torch.fx.symbolic_trace(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()))
    jitted = trident.jit(module)
    for _ in range(3):
        assert torch.equal(jitted(X), module(X))
    assert trident.explain(jitted).hits >= 1


_OBSERVED = """
import contextlib, torch, trident
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

seen = []

class Operators(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))

class Functions(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(func.__name__)
        return func(*args, **(kwargs or {}))

def f(x, y):
    z = torch.relu(x @ y) * 2.5 + 1
    return z.view(-1)[0], [z.shape[0]], z.sum().item()

def watched(call):
    seen.clear()
    if MODES:
        with Operators(), Functions():
            call()
        return seen[:]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return sorted(event.name for event in profile.events())

x, y = torch.randn(3, 4), torch.randn(4, 4)
expected = watched(lambda: f(x, y))
assert expected
with contextlib.nullcontext() if MODES else torch.autograd.forward_ad.dual_level():
    jitted = []
    assert watched(lambda: jitted.append(trident.jit(f)) or jitted[0](x, y)) == expected
    assert watched(lambda: jitted[0](x, y)) == expected
print("layout", __import__("trident.backend.native.keys").backend.native.keys.current() is not None)
"""


@pytest.mark.parametrize("modes", [True, False])
def test_nobody_sees_what_trident_tries_out(modes: bool) -> None:
    """The first function of a process is jitted and called where somebody watches, or inside of a forward-AD level."""
    assert "layout True" in _python(f"MODES = {modes}\n{_OBSERVED}")


def test_code_that_is_assigned() -> None:
    """With fewer parameters, more of them and other kinds; what was compiled for the old code reads none of the new one's arguments."""

    def f(x, unused, y, *rest):  # type: ignore[no-untyped-def]
        return x + y[0] + rest[0].sum()

    codes = [f.__code__, (lambda x: x * 2).__code__, (lambda x, y: x - y).__code__, (lambda: 3).__code__,
             (lambda x, unused, y, rest: (x, y, rest)).__code__, f.__code__]
    jitted, x = trident.jit(f), torch.ones(2)
    for code in codes:
        jitted.__code__ = code
        count = 3 if code is codes[0] else code.co_argcount
        arguments = [x, 1, (x, x), x][: count + bool(code.co_flags & 4)]
        for _ in range(3):
            assert repr(jitted(*arguments)) == repr(f(*arguments))
        told = trident.explain(jitted)
        assert told.hits == 2 and not told.aborts
