"""The evaluator captures frames of active threads, leaves everything else to whoever was there before, and leaks nothing."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.storm import storm
from trident.backend.native import engine, evaluator, layouts, verdicts
from trident.backend.native.callable import DISABLED, LEFT, EntryCell, make_callable
from trident.backend.native.evaluator import FrameHook, count_frames, suppressed
from trident.backend.native.resume import resume
from trident.backend.native.verdicts import OPEN, Apart, OfOne, reconsider
from trident.errors import TridentError
from trident.ir.trace import Frame

NATIVE = engine.compile_ir("""
declare void @Py_IncRef(ptr)
declare void @PyErr_SetNone(ptr)
declare ptr @PyObject_CallNoArgs(ptr)
declare ptr @_PyEval_EvalFrameDefault(ptr, ptr, i32)
@PyExc_ZeroDivisionError = external global ptr
@trident_miss = external global i8
@seen = global i64 0
@below = global ptr null

define ptr @first(ptr %bound) {
  %r = load ptr, ptr %bound
  call void @Py_IncRef(ptr %r)
  ret ptr %r
}
define ptr @miss(ptr %bound) {
  ret ptr @trident_miss
}
define ptr @fail(ptr %bound) {
  %e = load ptr, ptr @PyExc_ZeroDivisionError
  call void @PyErr_SetNone(ptr %e)
  ret ptr null
}
define ptr @call_first(ptr %bound) {
  %f = load ptr, ptr %bound
  %r = call ptr @PyObject_CallNoArgs(ptr %f)
  ret ptr %r
}
; another tool's evaluator: counts, and forwards to @below
define ptr @foreign(ptr %tstate, ptr %frame, i32 %throw) {
  %n = load i64, ptr @seen
  %m = add i64 %n, 1
  store i64 %m, ptr @seen
  %next = load ptr, ptr @below
  %r = tail call ptr %next(ptr %tstate, ptr %frame, i32 %throw)
  ret ptr %r
}
""", name="test_evaluator").pin()

DEFAULT = engine.api_address("_PyEval_EvalFrameDefault")
FOREIGN_SEEN = ctypes.c_uint64.from_address(NATIVE.address("seen"))
FOREIGN_BELOW = ctypes.c_uint64.from_address(NATIVE.address("below"))


def slot() -> int:
    return evaluator._slot_get(layouts.interpreter())


def set_slot(address: int) -> None:
    evaluator._slot_set(layouts.interpreter(), address)


@pytest.fixture(autouse=True)
def _slot_is_restored() -> Iterator[None]:
    before = slot()
    yield
    assert slot() == before
    assert not evaluator._entries and not evaluator._stacks and not evaluator._threads.value


class Capture:
    """A hook that captures given functions, with a dispatch of NATIVE or none."""

    def __init__(self, *functions: FunctionType, dispatch: str = "", miss: Callable[[tuple[Any, ...]], object] | None = None) -> None:
        self.cells = {f.__code__: EntryCell(NATIVE.address(dispatch) if dispatch else 0, code=id(f.__code__)) for f in functions}
        self.asked: list[CodeType] = []
        self.miss = miss or (lambda bound, code: ("miss", *bound[:-1]))  # the last one is the function
        self.hook = FrameHook(self.decide)

    def decide(self, code: CodeType, function: FunctionType) -> Any:
        self.asked.append(code)
        assert function.__code__ is code
        return (self.cells[code], self.miss) if code in self.cells else None

    def __enter__(self) -> Capture:
        self.hook.install()
        return self

    def __exit__(self, *_: object) -> None:
        self.hook.remove()

    def cell(self, function: FunctionType) -> EntryCell:
        return self.cells[function.__code__]


def target(a, b=2, *rest, k=3, **more):
    return ("python", a, b, rest, k, more)


def no_value(a):
    a.append(1)


def user(*args, **kwargs):
    return target(*args, **kwargs)


def helper():
    return sys._getframe(1).f_code.co_name


def plain():
    """Looks at nothing that audit hooks, which may be in Python, are told of."""


# ------------------------------------------------------------------------------------------------------------------- capturing


@pytest.mark.usefixtures("no_collections")
def test_hit_runs_no_bytecode() -> None:
    with Capture(target, dispatch="first") as capture:
        assert target(7) == 7
        with count_frames() as frames:
            result = [target(i, 5, 6, k=7, z=8) for i in (1, 2, 3)] if sys.version_info >= (3, 12) else list(map(target, (1, 2, 3)))
    assert result == [1, 2, 3]
    assert frames.count == 0
    assert (capture.cell(target).hits, capture.cell(target).misses) == (4, 0)
    assert target(7)[0] == "python"


def test_miss_gets_the_bound_arguments() -> None:
    with Capture(target, dispatch="miss") as capture:
        assert user(1) == ("miss", 1, 2, 3, (), {})
        assert user(1, 4, 5, 6, k=7, z=8) == ("miss", 1, 4, 7, (5, 6), {"z": 8})
    assert (capture.cell(target).hits, capture.cell(target).misses) == (0, 2)


def test_code_without_return_value() -> None:
    """On 3.12 such code has only RETURN_CONST."""
    with Capture(no_value, dispatch="first"):
        row: list[int] = []
        assert no_value(row) is row and row == []


def test_decided_once_per_code() -> None:
    with Capture(target) as capture:
        for _ in range(5):
            user(1)
    assert sorted(code.co_name for code in capture.asked if code in (user.__code__, target.__code__)) == ["target", "user"]
    with capture:
        user(1)
        assert capture.asked.count(user.__code__) == 1
        capture.hook.forget()
        user(1)
    assert capture.asked.count(user.__code__) == 2


def test_disabled_cell() -> None:
    with Capture(target, dispatch="first") as capture:
        capture.cell(target).flags = DISABLED
        assert target(1)[0] == "python"
        capture.cell(target).flags = 0
        assert target(1) == 1


def test_dispatch_for_other_code() -> None:
    """A cell whose dispatch was compiled for another code object: its dispatch is not entered."""
    with Capture(target, dispatch="first") as capture:
        capture.cell(target).code = id(user.__code__)
        assert target(1) == ("miss", 1, 2, 3, (), {})
        capture.cell(target).code = id(target.__code__)
        assert target(1) == 1


def test_closures_share_the_verdict() -> None:
    def make(n):
        def inner():
            return n
        return inner

    one, two = make(1), make(2)
    with Capture(one, miss=lambda bound, code: "missed"):
        assert (one(), two()) == ("missed", "missed")


def test_methods_properties_and_operators_are_captured() -> None:
    class Owner:
        def method(self, x):
            return x

        @property
        def prop(self):
            return 1

        def __add__(self, other):
            return other

    functions = Owner.method, Owner.prop.fget, Owner.__add__
    with Capture(*functions, dispatch="first"):  # type: ignore[arg-type]
        owner = Owner()
        assert owner.method(3) is owner and owner.prop is owner and owner + 1 is owner


def test_generators_and_class_bodies_are_left_alone() -> None:
    def generator():
        yield 1
        yield 2

    async def coroutine():
        return 3

    namespace: dict[str, Any] = {}
    with Capture(generator, coroutine, dispatch="miss") as capture:  # type: ignore[arg-type]
        assert list(generator()) == [1, 2]
        with pytest.raises(StopIteration, match="3"):
            coroutine().send(None)
        exec("x = 1\nclass A:\n    y = x", namespace)
    assert namespace["A"].y == 1
    assert not {generator.__code__, coroutine.__code__} & set(capture.asked)
    assert all(code.co_name not in ("<module>", "A") for code in capture.asked)


def test_caller_of_what_dispatch_calls() -> None:
    def run(callback):
        raise AssertionError

    with Capture(run, dispatch="call_first"):  # type: ignore[arg-type]
        assert run(helper) == "test_caller_of_what_dispatch_calls"


# ------------------------------------------------------------------------------------------------------------------ exceptions


def test_error_from_dispatch_has_no_entry_of_the_frame() -> None:
    with Capture(target, no_value, dispatch="fail"):
        for _ in range(3):
            with pytest.raises(ZeroDivisionError) as caught:
                user(1)
            assert [f.name for f in traceback.extract_tb(caught.value.__traceback__)][1:] == ["user"]
            with pytest.raises(ZeroDivisionError):
                no_value([])


def test_resumed_frame_is_the_only_entry() -> None:
    """What a side exit does: the function's own line comes from its continued frame, once."""
    source = "def side_exit(bound, code):\n    return resume([Frame(body, body.__code__, 2, [bound[0]], [])], LookupError())\n"

    def body(x):
        return len(x)

    namespace = {"resume": resume, "Frame": Frame, "body": body}
    exec(compile(source, evaluator.__file__, "exec"), namespace)  # a file of the package, like the real one
    with Capture(body, miss=namespace["side_exit"]):  # type: ignore[arg-type]
        with pytest.raises(LookupError) as caught:
            body([1])
    names = [f.name for f in traceback.extract_tb(caught.value.__traceback__)]
    assert names == ["test_resumed_frame_is_the_only_entry", "body"]


def test_error_in_a_handler_of_the_caller() -> None:
    def careful():
        try:
            target(1)
        except ZeroDivisionError as error:
            return type(error).__name__, sys.exception() is error
        finally:
            gc.collect()

    with Capture(target, dispatch="fail"):
        assert careful() == ("ZeroDivisionError", True)
    assert sys.exception() is None


def test_error_from_decide_is_raised() -> None:
    def decide(code: CodeType, function: FunctionType) -> None:
        if code is fresh.__code__:
            raise TridentError("strict")

    def fresh():
        return 1

    with FrameHook(decide):
        with pytest.raises(TridentError, match="strict"):
            fresh()
    assert fresh() == 1


def test_hook_goes_with_an_exception() -> None:
    with pytest.raises(LookupError):
        with Capture(target, dispatch="first"):
            raise LookupError
    assert target(1)[0] == "python"


def test_wrong_verdict() -> None:
    def fresh():
        return 1

    with FrameHook(lambda code, function: (1, 2) if code is fresh.__code__ else None):  # type: ignore[arg-type, return-value]
        with pytest.raises(TypeError, match="EntryCell"):
            fresh()


# -------------------------------------------------------------------------------------------------------- switching on and off


def test_nothing_is_captured_during_a_miss() -> None:
    def inner():
        return "inner in Python"

    with Capture(target, inner, miss=lambda bound, code: (inner(), user(1))) as capture:  # type: ignore[arg-type]
        assert target(1) == ("inner in Python", ("python", 1, 2, (), 3, {}))
        assert inner()[0] == "inner in Python"
        assert capture.cell(inner).misses == 1


def test_frames_during_a_hit_are_captured() -> None:
    def inner():
        raise AssertionError

    def run(callback):
        raise AssertionError

    inner_cell, run_cell = EntryCell(), EntryCell(NATIVE.address("call_first"), code=id(run.__code__))
    verdicts = {inner.__code__: (inner_cell, lambda bound, code: "missed"), run.__code__: (run_cell, len)}
    with FrameHook(lambda code, function: verdicts.get(code)):
        assert run(inner) == "missed"


def test_suppressed() -> None:
    with Capture(target, dispatch="first"):
        with suppressed():
            assert target(1)[0] == "python"
            with suppressed():
                pass
            assert target(1)[0] == "python"
        assert target(1) == 1


def test_only_the_installing_thread() -> None:
    results: dict[str, object] = {}

    def other() -> None:
        results["other"] = target(1)
        with Capture(target, dispatch="miss"):
            results["own hook"] = target(1)
            ready.set()
            done.wait(10)
        results["after"] = target(1)

    ready, done = threading.Event(), threading.Event()
    with Capture(target, dispatch="first"):
        thread = threading.Thread(target=other)
        thread.start()
        ready.wait(10)
        assert target(1) == 1
        done.set()
        thread.join()
        assert target(2) == 2
    assert results == {"other": ("python", 1, 2, (), 3, {}), "own hook": ("miss", 1, 2, 3, (), {}),
                       "after": ("python", 1, 2, (), 3, {})}


def test_many_threads() -> None:
    wrong: list[object] = []

    def work(capture: Capture, expected: Any) -> None:
        for _ in range(60):
            with capture:
                for _ in range(20):
                    if target(1) != expected:
                        wrong.append(expected)

    jobs = [(Capture(target, dispatch="first"), 1), (Capture(target, dispatch="miss"), ("miss", 1, 2, 3, (), {}))]
    storm(partial(work, *job) for job in jobs * 2)
    assert not wrong


def test_hooks_nest() -> None:
    first, second = Capture(target, dispatch="first"), Capture(target, dispatch="miss")
    with first:
        assert target(1) == 1
        with second:
            assert target(1)[0] == "miss"
            with first:
                assert target(1) == 1
            assert target(1)[0] == "miss"
        assert target(1) == 1
    with pytest.raises(RuntimeError, match="not installed"):
        first.hook.remove()


# -------------------------------------------------------------------------------------------------------------- other evaluators


def test_on_top_of_another_evaluator() -> None:
    FOREIGN_BELOW.value = DEFAULT
    set_slot(NATIVE.address("foreign"))
    try:
        with Capture(target, dispatch="first"):
            target(1)
            seen = FOREIGN_SEEN.value
            assert target(1) == 1
            assert FOREIGN_SEEN.value == seen  # captured: nobody else saw it
            assert helper() == "test_on_top_of_another_evaluator"
            assert FOREIGN_SEEN.value > seen  # declined: the one below saw it
        assert slot() == NATIVE.address("foreign")
    finally:
        set_slot(DEFAULT)


@pytest.mark.usefixtures("no_collections")
def test_below_another_evaluator() -> None:
    with Capture(target, dispatch="first"):
        FOREIGN_BELOW.value = slot()
        set_slot(NATIVE.address("foreign"))
        assert target(1) == 1
    assert slot() == NATIVE.address("foreign")  # it came later, so it stays
    assert target(1)[0] == "python"
    with Capture(target, dispatch="first"):  # on top of it, with our old function still below
        assert target(1) == 1
        assert helper() == "test_below_another_evaluator"
        with count_frames() as frames:
            plain()
        assert frames.count == 1
    assert slot() == NATIVE.address("foreign")
    set_slot(DEFAULT)


def test_another_evaluator_above_and_below() -> None:
    """The foreign one is put on top of us while we forward to it: the chain must not turn."""
    foreign = NATIVE.address("foreign")
    FOREIGN_BELOW.value = DEFAULT
    set_slot(foreign)
    with Capture(target, dispatch="first"):
        interpreter, ours = layouts.interpreter(), slot()
        FOREIGN_BELOW.value = ours  # no Python frame between these two lines
        evaluator._slot_set(interpreter, foreign)
        assert target(1) == 1
        assert helper() == "test_another_evaluator_above_and_below"
        FOREIGN_BELOW.value = DEFAULT
    set_slot(DEFAULT)


def test_resume_below_other_evaluators() -> None:
    """A continued frame is nobody else's to look at, and the slot is as before."""
    FOREIGN_BELOW.value = DEFAULT
    set_slot(NATIVE.address("foreign"))
    try:
        with Capture(target, dispatch="first"):
            before = slot()
            assert resume([Frame(target, target.__code__, 2, [1, 2, 3, (), {}], [])])[0] == "python"
            assert slot() == before
    finally:
        set_slot(DEFAULT)


# ------------------------------------------------------------------------------------------------------------ verdicts by function


class Owner:
    """Stands for what serves one function."""

    def __init__(self, function: FunctionType, dispatch: str = "") -> None:
        self.function = function
        self.cell = EntryCell(NATIVE.address(dispatch) if dispatch else 0, code=id(function.__code__))

    def verdict(self, answer: object) -> OfOne:
        return OfOne(self.function, weakref.ref(self), self.cell, lambda frame, code: answer)


def closures(count: int) -> list[Any]:
    def make(n):
        def inner(a):
            return n
        return inner

    return [make(n) for n in range(count)]


def test_verdicts_by_function() -> None:
    one, two, three, four = closures(4)
    owners = [Owner(one), Owner(two, dispatch="first")]
    others: list[Any] = [OPEN]
    asked: list[Any] = []

    def decide(code: CodeType, function: FunctionType) -> Any:
        if code is not one.__code__:
            return None
        asked.append(function)
        if function is three:
            others[0] = EntryCell(), lambda frame, code: "others"
        return Apart([owner.verdict(n) for n, owner in enumerate(owners)], others[0])

    with FrameHook(decide):
        assert [one(5), two(5), one(6)] == [0, 5, 0] and asked == [one], "one question answers for all that have a verdict"
        assert [three(5), four(5), one(5), two(6)] == ["others", "others", 0, 6] and asked == [one, three]
        owners[0].cell.flags = LEFT
        assert one(5) == 0 and owners[0].cell.misses == 3
        del owners[0]
        gc.collect()
        assert one(5) == "others" and asked == [one, three, one], "its owner is gone, so the hook was asked again"
        assert two(5) == 5 and asked == [one, three, one]


def test_others_are_left_to_cpython() -> None:
    one, two = closures(2)
    owner = Owner(one, dispatch="first")
    with FrameHook(lambda code, function: Apart([owner.verdict(0)], None) if code is one.__code__ else None):
        assert [one("a"), two("b")] == ["a", 1]


def test_a_verdict_keeps_neither_the_function_nor_its_owner() -> None:
    (one,) = closures(1)
    owners = [Owner(one, dispatch="first")]
    gone = weakref.ref(one), weakref.ref(owners[0])
    with FrameHook(lambda code, function: Apart([o.verdict(0) for o in owners], OPEN) if code.co_name == "inner" else None):
        assert one("a") == "a"
        owners.clear()
        del one
        gc.collect()
        assert [reference() for reference in gone] == [None, None]


def test_the_owner_stays_while_a_frame_is_in_native_code() -> None:
    def run(callback):
        raise AssertionError

    owners = [Owner(run, dispatch="call_first")]
    gone = weakref.ref(owners[0])

    def callback():
        owners.clear()
        reconsider(run.__code__)
        gc.collect()
        return gone() is not None

    with FrameHook(lambda code, function: Apart([owner.verdict(0) for owner in owners], OPEN) if code is run.__code__ else None):
        assert run(callback)
        assert gone() is None


def test_the_owner_stays_while_its_miss_runs() -> None:
    (one,) = closures(1)
    owners = [Owner(one)]
    gone = weakref.ref(owners[0])

    def miss(frame, code):
        owners.clear()
        gc.collect()
        return gone() is not None

    def decide(code: CodeType, function: FunctionType) -> Any:
        return Apart([OfOne(one, weakref.ref(o), o.cell, miss) for o in owners], None) if code is one.__code__ else None

    with FrameHook(decide):
        assert one(1) is True
        assert gone() is None and one(1) == 0


def test_a_frame_that_its_callable_leaves_to_the_interpreter() -> None:
    """A callable and a hook share a cell: a call that the callable has missed does not miss again as a frame."""
    (one,) = closures(1)
    cell = EntryCell()
    native = make_callable(one, cell, lambda bound, code: one(*bound))
    with FrameHook(lambda code, function: (cell, lambda bound, code: "captured") if code is one.__code__ else None):
        assert native(1) == 0 and cell.misses == 1
        assert one(1) == "captured" and cell.misses == 2
        cell.flags = LEFT
        assert native(1) == 0 and cell.misses == 3 and one(1) == 0 and cell.misses == 3


def test_reconsidered_while_it_is_decided() -> None:
    (one,) = closures(1)
    answers = [(EntryCell(), lambda bound, code: "old"), (EntryCell(), lambda bound, code: "new")]

    def decide(code: CodeType, function: FunctionType) -> Any:
        if code is not one.__code__:
            return None
        answer = answers.pop(0)
        if answers:
            reconsider(code)
        return answer

    with FrameHook(decide):
        assert [one(1), one(1), one(1)] == ["old", "new", "new"], "what was changed meanwhile holds for this frame only"
    assert not answers


def test_reconsidering_costs_nothing_where_nobody_has_looked() -> None:
    code = compile("1", "never seen", "eval")
    reconsider(code)
    reference = weakref.ref(code)
    del code
    assert reference() is None


# --------------------------------------------------------------------------------------------------------------------- tools


def test_tracing_tools_see_the_frame() -> None:
    events = []

    def tool(frame: Any, event: str, _: Any) -> None:
        events.append((event, frame.f_code.co_name))

    with Capture(target, dispatch="first"):
        for setter, before in ((sys.setprofile, sys.getprofile()), (sys.settrace, sys.gettrace())):
            events.clear()
            setter(tool)
            try:
                result = target(1)
            finally:
                setter(before)
            assert result[0] == "python" and ("call", "target") in events
            assert target(1) == 1


# ----------------------------------------------------------------------------------------------------------------------- leaks


def test_nothing_leaks() -> None:
    class Value:
        pass

    def fresh(a, *rest, **more):
        return a

    value = Value()
    for dispatch in ("first", "miss", "fail", ""):
        with Capture(fresh, dispatch=dispatch):  # type: ignore[arg-type]
            def once() -> None:
                try:
                    fresh(value, value, k=value)
                except ZeroDivisionError:
                    pass

            once()
            code = fresh.__code__
            before = [sys.getrefcount(o) for o in (value, fresh, code)]
            for _ in range(5000):
                once()
            after = [sys.getrefcount(o) for o in (value, fresh, code)]
        assert after == before


def test_arguments_die_with_the_call() -> None:
    class Value:
        pass

    with Capture(target, dispatch="first"):
        value = target(Value(), Value())
        reference = weakref.ref(value)
        del value
        assert reference() is None


def test_verdict_is_freed_with_the_code() -> None:
    namespace: dict[str, Any] = {}
    exec("def fresh():\n    return 1\n", namespace)
    fresh = namespace.pop("fresh")
    cell = EntryCell()
    reference = weakref.ref(cell)
    verdicts = {fresh.__code__: (cell, lambda bound, code: "missed")}
    del cell
    with FrameHook(lambda code, function: verdicts.pop(code, None)):
        assert fresh() == "missed"
        assert reference() is not None
        del fresh
        gc.collect()
        assert reference() is None


def test_verdict_can_be_replaced_while_in_use() -> None:
    def run(callback):
        raise AssertionError

    def renew():
        capture.hook.forget()
        capture.cells.clear()
        run(renew_inner)
        gc.collect()
        return "renewed"

    def renew_inner():
        return "unused"

    capture = Capture(run, dispatch="call_first")  # type: ignore[arg-type]
    with capture:
        with pytest.raises(AssertionError):  # the second verdict is to leave `run` to CPython
            run(renew)


def test_code_with_extra_data_of_others_only() -> None:
    """CPython calls every tool's free function for a code object that has extra data of any of them."""
    layout = layouts.current()
    request = getattr(ctypes.pythonapi, layout.request_code_extra_index)
    request.restype, request.argtypes = ctypes.c_ssize_t, [ctypes.c_void_p]
    set_extra = getattr(ctypes.pythonapi, layout.set_code_extra)
    set_extra.restype, set_extra.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_ssize_t, ctypes.c_void_p]
    verdicts.code_extra_index()
    other = request(None)
    assert other > verdicts.code_extra_index()
    code = compile("1", "other", "eval")
    assert set_extra(code, other, 1) == 0
    reference = weakref.ref(code)
    del code
    assert reference() is None


def test_interpreter_can_end_with_a_hook_installed() -> None:
    program = """
import sys
from trident.backend.native.callable import EntryCell, make_callable
from trident.backend.native.evaluator import FrameHook
def f(a): return a
class Last:
    def __del__(self, call=make_callable(f, EntryCell(), lambda bound, code: "missed")):
        print(call(1))
sys.last = [Last()]
FrameHook(lambda code, function: None).install()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("missed\n", "")


@pytest.mark.slow
def test_with_dynamo() -> None:
    """torch.compile puts its own evaluator into the slot, above and below ours."""
    torch = pytest.importorskip("torch")
    compiled = []

    def backend(module: Any, _: Any) -> Any:
        compiled.append(module)
        return module.forward

    def body(x):
        return torch.relu(x) + 1

    def inside(x):
        with Capture(target, dispatch="first"):
            return fast(x + target(1))

    fast = torch.compile(body, backend=backend)
    whole = torch.compile(lambda x: torch._dynamo.disable(inside)(x * 2) + 1, backend=backend)
    x = torch.ones(2)
    with Capture(target, dispatch="first"):
        for _ in range(3):
            assert torch.equal(fast(x), x * 2)
            assert target(x) is x
    assert len(compiled) == 1
    assert torch.equal(whole(x), x * 5)
    assert torch.equal(whole(x), x * 5)
    assert slot() == DEFAULT
