"""Resuming frames: nesting, exceptions, identity, lifetimes, refusals. (test_resume_everywhere.py goes through all instructions.)"""

from __future__ import annotations

import ctypes
import dis
import gc
import resource
import sys
import traceback
import warnings
import weakref
from types import CodeType, FunctionType
from typing import Any

import pytest

from tests.storm import storm
from trident.backend.native import layouts
from trident.backend.native.evaluator import count_frames
from trident.backend.native.resume import call, resume
from trident.errors import ResumeError
from trident.ir.trace import NULL, Arrival, Frame


def offset_of(code: CodeType, name: str, argument: object = None, nth: int = 0) -> int:
    """Offset of the nth instruction with this name (or one of these) and argument."""
    found = [i.offset for i in dis.get_instructions(code)
             if i.opname in name.split("|") and (argument is None or i.argval == argument)]
    return found[nth]


def call_offset(code: CodeType, nth: int = 0) -> int:
    """Offset of the nth call, at its first prefix."""
    instructions = list(dis.get_instructions(code))
    calls = [k for k, i in enumerate(instructions) if i.opname in ("CALL", "CALL_FUNCTION_EX")]
    k = calls[nth]
    while instructions[k - 1].opname in ("PRECALL", "KW_NAMES", "EXTENDED_ARG"):
        k -= 1
    return instructions[k].offset


def after(code: CodeType, offset: int) -> int:
    offsets = [i.offset for i in dis.get_instructions(code)]
    return offsets[offsets.index(offset) + 1]


def function_frame(function: FunctionType, offset: int, values: dict[str, object], stack: list[object], **more: Any) -> Frame:
    """A frame whose locals are named."""
    code = function.__code__
    names = [*code.co_varnames, *[c for c in code.co_cellvars if c not in code.co_varnames], *code.co_freevars]
    return Frame(function, code, offset, [values.get(name, NULL) for name in names], stack, **more)


# -------------------------------------------------------------------------------------------------------------------- nesting


def callee(x):
    names = []
    frame = sys._getframe()
    while frame is not None and len(names) < 4:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    y = x + 1
    return y, names


def middle(x):
    value = callee(x)
    return ("middle", value)


def outer(x, *, scale):
    value = middle(x * scale)
    return ("outer", value)


def three_frames() -> list[Frame]:
    return [function_frame(outer, call_offset(outer.__code__), {"x": 2, "scale": 3}, [NULL, middle, 6]),
            function_frame(middle, call_offset(middle.__code__), {"x": 6}, [NULL, callee, 6]),
            function_frame(callee, after(callee.__code__, offset_of(callee.__code__, "RESUME")), {"x": 6}, [])]


def test_frames_nest() -> None:
    result = resume(three_frames())
    assert result == ("outer", ("middle", (7, ["callee", "middle", "outer", "test_frames_nest"])))


def test_frames_of_ours_are_not_in_between() -> None:
    """The resumed frame's caller is the innermost frame of the user's: the package's own are hidden from it."""
    source = "def recorder(frames):\n    return resume(frames)\n"
    namespace = {"resume": resume}
    path = sys.modules[resume.__module__].__file__ or ""
    exec(compile(source, path.replace("resume.py", "recorder.py"), "exec"), namespace)
    before = sys._getframe()
    result = namespace["recorder"](three_frames()[2:])
    assert result == (7, ["callee", "test_frames_of_ours_are_not_in_between",
                          *[f.name for f in reversed(traceback.extract_stack(before.f_back))][:2]])
    assert sys._getframe() is before

    def warner():
        warnings.warn("look", stacklevel=2)

    frame = function_frame(warner, offset_of(warner.__code__, "LOAD_GLOBAL"), {}, [])
    with pytest.warns(UserWarning, match="look") as caught:
        namespace["recorder"]([frame])
    assert caught[0].filename == __file__


def test_call_hides_frames_of_ours() -> None:
    source = "def recorder(*args):\n    return call(*args)\n"
    namespace = {"call": call}
    exec(compile(source, (sys.modules[resume.__module__].__file__ or "").replace("resume.py", "recorder.py"), "exec"), namespace)

    def user(a, *, b=2):
        assert sys._getframe().f_back is here
        if b == 0:
            raise LookupError
        return a, b

    here = sys._getframe()
    assert namespace["recorder"](user, (1,)) == (1, 2)
    assert namespace["recorder"](user, (1,), {"b": 3}) == (1, 3)
    with pytest.raises(LookupError):
        namespace["recorder"](user, (1,), {"b": 0})
    with pytest.raises(TypeError, match="missing 1 required"):
        namespace["recorder"](user)
    assert sys._getframe() is here and namespace["recorder"](sys._getframe) is here


def test_exception_crosses_frames_with_the_users_lines() -> None:
    error = LookupError("inside")
    with pytest.raises(LookupError) as caught:
        resume(three_frames(), error)
    assert caught.value is error
    names = [f.name for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    assert names == ["test_exception_crosses_frames_with_the_users_lines", "outer", "middle", "callee"]
    lines = [f.line for f in traceback.extract_tb(error.__traceback__) if f.filename == __file__]
    assert lines[1:] == ["value = middle(x * scale)", "value = callee(x)", "names = []"]


def test_exception_keeps_the_users_own_traceback() -> None:
    """An exception that came from a call keeps the entries of the callee."""
    def user():
        raise LookupError("called")

    source = "def recorder(user):\n    try:\n        user()\n    except LookupError as e:\n        return e\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, (sys.modules[resume.__module__].__file__ or "").replace("resume.py", "recorder.py"), "exec"), namespace)
    error = namespace["recorder"](user)
    with pytest.raises(LookupError):
        resume(three_frames()[1:2], error)
    assert [f.name for f in traceback.extract_tb(error.__traceback__)][-2:] == ["middle", "user"]
    assert "recorder" not in [f.name for f in traceback.extract_tb(error.__traceback__)]


def catching(log):
    try:
        value = callee(1)
    except LookupError as e:
        log.append(e)
        return "caught", sys.exception() is e
    finally:
        log.append("finally")
    return value


def test_outer_frame_catches() -> None:
    log: list[object] = []
    error = LookupError()
    frames = [function_frame(catching, call_offset(catching.__code__), {"log": log}, [NULL, callee, 1]),
              function_frame(callee, offset_of(callee.__code__, "STORE_FAST", "names"), {"x": 1}, [[]])]
    assert resume(frames, error) == ("caught", True)
    assert log == [error, "finally"]
    assert sys.exception() is None


def keywords(**kw):
    return callee(*(1,), **kw), callee(x=3)


def test_other_call_instructions() -> None:
    """CALL_FUNCTION_EX with keywords, and a CALL with KW_NAMES, give their result to the right stack."""
    code = keywords.__code__
    inner = three_frames()[2]
    kw: dict[str, object] = {"x": 1}
    result = resume([function_frame(keywords, call_offset(code), {"kw": kw}, [NULL, callee, (), kw]), inner])
    assert (result[0][0], result[1][0]) == (7, 4)
    result = resume([function_frame(keywords, call_offset(code, 1), {"kw": kw}, ["first", NULL, callee, 3]), three_frames()[2]])
    assert (result[0], result[1][0]) == ("first", 7)


# ----------------------------------------------------------------------------------------------- instructions that are not calls


class Thing:
    def __init__(self, n):
        self.n = n
        self.seen = running()

    @property
    def prop(self):
        return self.n, running()

    @prop.setter
    def prop(self, value):
        self.n = value

    def __add__(self, other):
        return self.n + other


def running() -> list[str]:
    """Names of the caller's function and of its caller's."""
    frame = sys._getframe(1)
    assert frame.f_back is not None
    return [frame.f_code.co_name, frame.f_back.f_code.co_name]


def uses_property(thing):
    return thing.prop, "end"


def sets_property(thing):
    thing.prop = 3
    return thing.n


def adds(thing):
    return [thing + 4]


def makes():
    return Thing(5), "made"


def start_of(function: FunctionType) -> int:
    return after(function.__code__, offset_of(function.__code__, "RESUME"))


def test_property_getter() -> None:
    thing, getter = Thing(9), Thing.prop.fget
    offset = offset_of(uses_property.__code__, "LOAD_ATTR")
    waiting = function_frame(uses_property, offset, {"thing": thing}, [thing], is_call=False, pops=1,
                             next_offset=after(uses_property.__code__, offset))
    (value, names), end = resume([waiting, function_frame(getter, start_of(getter), {"self": thing}, [])])
    assert (value, end, names) == (9, "end", ["prop", "uses_property"])


def test_property_setter_result_is_dropped() -> None:
    thing, setter = Thing(9), Thing.prop.fset
    offset = offset_of(sets_property.__code__, "STORE_ATTR")
    waiting = function_frame(sets_property, offset, {"thing": thing}, [3, thing], is_call=False, pops=2, arrival=Arrival.NOTHING,
                             next_offset=after(sets_property.__code__, offset))
    assert resume([waiting, function_frame(setter, start_of(setter), {"self": thing, "value": 3}, [])]) == 3


def test_operator() -> None:
    thing = Thing(9)
    offset = offset_of(adds.__code__, "BINARY_OP")
    waiting = function_frame(adds, offset, {"thing": thing}, [thing, 4], is_call=False, pops=2,
                             next_offset=after(adds.__code__, offset))
    assert resume([waiting, function_frame(Thing.__add__, start_of(Thing.__add__), {"self": thing, "other": 4}, [])]) == [13]


def test_init_gives_its_instance() -> None:
    thing, init = object.__new__(Thing), Thing.__init__
    waiting = function_frame(makes, call_offset(makes.__code__), {}, [NULL, Thing, 5], arrival=Arrival.GIVEN,
                             result=thing)
    made, _ = resume([waiting, function_frame(init, start_of(init), {"self": thing, "n": 5}, [])])
    assert made is thing and (thing.n, thing.seen) == (5, ["__init__", "makes"])


def iterates(source):
    made = iter(source)
    return next(made)


def gives_its_argument(source):
    return source


@pytest.mark.parametrize(("source", "outcome"), [(iter((1, 2)), 1), ([1, 2], TypeError)])
def test_a_result_that_must_be_an_iterator(source, outcome) -> None:
    waiting = function_frame(iterates, call_offset(iterates.__code__), {"source": source}, [NULL, iter, source], arrival=Arrival.ITERATOR)
    inner = function_frame(gives_its_argument, start_of(gives_its_argument), {"source": source}, [])
    if outcome is TypeError:
        with pytest.raises(TypeError, match=r"iter\(\) returned non-iterator of type 'list'"):
            resume([waiting, inner])
    else:
        assert resume([waiting, inner]) == outcome


def test_exception_in_a_property() -> None:
    thing, getter = Thing(9), Thing.prop.fget
    offset = offset_of(uses_property.__code__, "LOAD_ATTR")
    waiting = function_frame(uses_property, offset, {"thing": thing}, [thing], is_call=False, pops=1,
                             next_offset=after(uses_property.__code__, offset))
    with pytest.raises(LookupError) as caught:
        resume([waiting, function_frame(getter, start_of(getter), {"self": thing}, [])], LookupError())
    assert [e.name for e in caught.traceback if e.path.name == "test_resume.py"][1:] == ["uses_property", "prop"]


# ------------------------------------------------------------------------------------------------------------ what frames share


def test_cells_are_the_same_objects() -> None:
    def function(n):
        def bump():
            nonlocal n
            n += 1
            return n
        before = n
        return before, bump(), n

    code = function.__code__
    shared = (lambda value: lambda: value)(10).__closure__[0]  # type: ignore[index]
    bump = FunctionType(code.co_consts[1], globals(), "bump", None, (shared,))
    frame = function_frame(function, offset_of(code, "LOAD_DEREF"), {"n": shared, "bump": bump}, [])
    assert resume([frame]) == (10, 11, 11)
    assert shared.cell_contents == 11


def test_function_is_the_users() -> None:
    class Base:
        def method(self):
            return "base"

    class Derived(Base):
        def method(self):
            here = sys._getframe()
            return super().method(), here

    method = Derived.__dict__["method"]
    cell = method.__closure__[0]
    result, frame = resume([function_frame(method, start_of(method), {"self": Derived(), "__class__": cell}, [])])
    assert result == "base"
    assert frame.f_code is method.__code__ and frame.f_globals is globals()


def test_free_variables_at_the_very_start() -> None:
    """The first instruction copies the free variables itself."""
    value = object()

    def function():
        return value

    cell = function.__closure__[0]  # type: ignore[index]
    before = sys.getrefcount(cell)
    results = [resume([function_frame(function, 0, {"value": cell}, [])]) for _ in range(100)]
    count = sys.getrefcount(cell)
    assert all(result is value for result in results)
    assert count == before


def test_code_replaced_while_the_frame_ran() -> None:
    def function(a):
        b = a
        return b, 1

    old = function.__code__
    frame = function_frame(function, offset_of(old, "LOAD_FAST", "b"), {"a": 1, "b": 2}, [])
    function.__code__ = (lambda a: a).__code__
    assert resume([frame]) == (2, 1)
    assert function(5) == 5


def test_handled_exception() -> None:
    def function():
        try:
            raise ValueError("first")
        except ValueError:
            seen = sys.exception()
            raise LookupError("second") from None
        return seen

    first = ValueError("first")
    frame = function_frame(function, offset_of(function.__code__, "STORE_FAST", "seen") + 2, {"seen": None}, [None])
    with pytest.raises(LookupError) as caught:
        resume([frame], handled=first)
    assert caught.value.__context__ is first
    assert sys.exception() is None


def test_called_inside_the_except_block_that_caught_it() -> None:
    def function():
        try:
            len(1)  # type: ignore[arg-type]
        except LookupError:
            pass
        return sys.exception()

    try:
        raise LookupError
    except LookupError as error:
        frame = function_frame(function, call_offset(function.__code__), {}, [NULL, len, 1])
        assert resume([frame], error) is None
        assert sys.exception() is error


# --------------------------------------------------------------------------------------------------------- counting and limits


def test_locals_live_as_long_as_in_cpython() -> None:
    class Value:
        pass

    def function(value, log):
        del value
        log.append("deleted")
        return log

    log: list[str] = []
    value = Value()
    weakref.finalize(value, log.append, "gone")
    frame = function_frame(function, offset_of(function.__code__, "DELETE_FAST"), {"value": value, "log": log}, [])
    del value
    assert resume([frame]) == ["gone", "deleted"]


@pytest.mark.parametrize("count", [5_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_nothing_leaks(count: int) -> None:
    thing = Thing(1)

    def function(a, b, *rest, k, **more):
        for item in a:
            if item:
                raise_(b, item)
        return rest

    def raise_(error, item):
        if isinstance(error, Exception):
            raise error
        return item

    values = [1, 0]
    code = function.__code__
    watched = (thing, values, function, code, raise_, None)
    cell = function.__closure__[0]  # type: ignore[index]

    def once(fail: bool) -> None:
        iterator = iter(values)
        next(iterator)
        given = {"a": values, "b": LookupError() if fail else thing, "k": thing, "rest": (thing,), "more": {"x": thing},
                 "item": 1, "raise_": cell}
        frames = [function_frame(function, call_offset(code), given, [iterator, NULL, raise_, given["b"], 1]),
                  function_frame(raise_, start_of(raise_), {"error": given["b"], "item": 1}, [])]
        try:
            assert resume(frames) == (thing,)
        except LookupError:
            assert fail

    for fail in (False, True):
        for _ in range(200):
            once(fail)
        gc.collect()
        before, memory = [sys.getrefcount(w) for w in watched], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(count):
            once(fail)
        gc.collect()
        counts = [sys.getrefcount(w) for w in watched]
        assert counts[:-1] == before[:-1]
        assert abs(counts[-1] - before[-1]) < 50
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 4096  # KiB


def test_exceptions_are_freed_at_once() -> None:
    class Error(Exception):
        pass

    gc.disable()
    try:
        error = Error()
        reference = weakref.ref(error)
        try:
            resume(three_frames(), error)
        except Error:
            del error
        assert reference() is None
    finally:
        gc.enable()


def test_collector_in_the_way() -> None:
    """Finalizers that run while a frame is being made do not disturb it."""
    ran = []

    class Garbage:
        def __init__(self) -> None:
            self.me = self

        def __del__(self) -> None:
            ran.append(callee(1))

    def starred(*rest, **more):
        return rest, more

    before = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for i in range(300):
            Garbage()
            frame = function_frame(starred, start_of(starred), {"rest": (i,), "more": {"k": i}}, [])
            assert resume([frame]) == ((i,), {"k": i})
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert len(ran) == 300 and gc.isenabled()


def test_resume_within_resume() -> None:
    def function(n):
        return n if n == 0 else (n, again(n - 1))

    def again(n):
        return resume([function_frame(function, start_of(function), {"n": n, "again": cell}, [])])

    cell = function.__closure__[0]  # type: ignore[index]
    assert again(3) == (3, (2, (1, 0)))
    with pytest.raises(RecursionError):
        again(100_000)
    assert again(1) == (1, 0)


def test_recursion_depth_is_as_in_plain_calls() -> None:
    def remaining():
        layout = layouts.current()
        return ctypes.c_int32.from_address(layouts.thread_state() + layout.tstate_recursion_remaining).value

    def function():
        return remaining()

    def depth(waiting):
        frames = [function_frame(function, call_offset(function.__code__), {"remaining": cell}, [NULL, function])
                  for _ in range(waiting)]
        return resume([*frames, function_frame(function, start_of(function), {"remaining": cell}, [])])

    before = remaining()
    cell = function.__closure__[0]  # type: ignore[index]
    assert depth(0) - depth(5) == 5
    assert remaining() == before


def test_threads() -> None:
    wrong: list[object] = []

    def work() -> None:
        for _ in range(500):
            result = resume(three_frames())
            if result[1][1][0] != 7:
                wrong.append(result)

    storm([work] * 4, interval=1e-6)
    assert not wrong


@pytest.mark.usefixtures("no_collections")
def test_resumed_frames_are_counted() -> None:
    with count_frames() as innermost:  # it looks at frames, which audit hooks in Python that others have installed are told
        callee(6)
    with count_frames() as plain:
        outer(2, scale=3)
    with count_frames() as nothing:
        pass
    frames = three_frames()
    with count_frames() as resumed:
        resume(frames)
    assert innermost.count >= 1
    assert (plain.count, nothing.count) == (innermost.count + 2, 0)
    assert resumed.count >= 3


# ------------------------------------------------------------------------------------------------------------------- refusals


def generator(x):
    yield x


async def coroutine(x):
    return x


def plain(x):
    y = len(x)
    return y


def with_keywords(x):
    return dict(x, a=1)


REFUSED: list[tuple[str, list[Frame]]] = [
    ("no frame", []),
    ("generators", [Frame(generator, generator.__code__, 2, [1], [])]),
    ("coroutines", [Frame(coroutine, coroutine.__code__, 2, [1], [])]),
    ("class bodies", [Frame(plain, compile("x = 1", "m", "exec"), 2, [], [])]),
    ("its function is a", [Frame(len, plain.__code__, 2, [1, NULL], [])]),  # type: ignore[arg-type]
    ("no instruction", [Frame(plain, plain.__code__, 3, [1, NULL], [])]),
    ("no instruction", [Frame(plain, plain.__code__, 6, [1, NULL], [])]),  # inside an inline cache
    ("no instruction", [Frame(plain, plain.__code__, 9998, [1, NULL], [])]),
    ("no instruction", [Frame(with_keywords, with_keywords.__code__, offset_of(with_keywords.__code__, "CALL"), [1],
                              [NULL, dict, 1, 2])] if sys.version_info >= (3, 12) else []),
    ("locals given", [Frame(plain, plain.__code__, 2, [1], [])]),
    ("stack entries given", [Frame(plain, plain.__code__, 2, [1, NULL], [1] * 50)]),
    ("is not a call", [Frame(plain, plain.__code__, 2, [1, NULL], []), Frame(plain, plain.__code__, 2, [1, NULL], [])]),
    ("takes 3 entries", [Frame(plain, plain.__code__, call_offset(plain.__code__), [1, NULL], []),
                         Frame(plain, plain.__code__, 2, [1, NULL], [])]),
    ("starts at offset 3", [Frame(plain, plain.__code__, 2, [1, NULL], [], is_call=False, pops=0, next_offset=3),
                            Frame(plain, plain.__code__, 2, [1, NULL], [])]),
]


@pytest.mark.parametrize(("message", "frames"), [case for case in REFUSED if case[1] or case[0] == "no frame"])
def test_refused(message: str, frames: list[Frame]) -> None:
    before = [(list(f.locals), list(f.stack)) for f in frames]
    with pytest.raises(ResumeError, match=message):
        resume(frames)
    assert [(f.locals, f.stack) for f in frames] == before


def test_refused_where_the_handler_needs_more_stack() -> None:
    def function(items):
        for _ in items:
            try:
                len(items)
            except LookupError:
                pass

    frame = function_frame(function, call_offset(function.__code__), {"items": []}, [])
    with pytest.raises(ResumeError, match="handler needs 1"):
        resume([frame], LookupError())
