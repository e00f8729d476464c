"""The native callable binds, dispatches, misses and behaves as the function that it stands for."""

from __future__ import annotations

import copy
import ctypes
import gc
import inspect
import pickle
import sys
import threading
import traceback
import typing
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trident.backend.native import engine
from trident.backend.native.callable import DISABLED, MISS_ADDRESS, MISS_SYMBOL, EntryCell, callable_type, make_callable
from trident.backend.native.evaluator import count_frames
from trident.backend.native.tracing import tracing_active

NATIVE = engine.compile_ir("""
declare void @Py_IncRef(ptr)
declare void @PyErr_SetNone(ptr)
declare ptr @PyObject_CallOneArg(ptr, ptr)
@PyExc_ZeroDivisionError = external global ptr
@trident_miss = external global i8

define ptr @first(ptr %bound) {
  %r = load ptr, ptr %bound
  call void @Py_IncRef(ptr %r)
  ret ptr %r
}
define ptr @second(ptr %bound) {
  %at = getelementptr ptr, ptr %bound, i64 1
  %r = load ptr, ptr %at
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
define ptr @call_first_with_second(ptr %bound) {
  %f = load ptr, ptr %bound
  %at = getelementptr ptr, ptr %bound, i64 1
  %x = load ptr, ptr %at
  %r = call ptr @PyObject_CallOneArg(ptr %f, ptr %x)
  ret ptr %r
}
""", name="test_callable").pin()


def made(function: FunctionType, miss: Callable[[tuple[Any, ...]], object] | None = None, dispatch: str = "") -> Any:
    cell = EntryCell(code=id(function.__code__))
    if dispatch:
        cell.dispatch = NATIVE.address(dispatch)
    native = make_callable(function, cell, miss or (lambda bound, code: ("miss", *bound)))
    native.cell = cell
    return native


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


# ------------------------------------------------------------------------------------------------------------------- binding


def simple(a, b):
    return (a, b)


def defaults(a, b=2, c=3):
    return (a, b, c)


def keyword_only(a, *, k, m=5):
    return (a, k, m)


def positional_only(a, b=1, /, c=2, *, d=3):
    return (a, b, c, d)


def starred(a, *rest, k=1, **more):
    return (a, k, rest, more)


def nothing():
    return ()


def only_more(**more):
    return (more,)


def only_rest(*rest):
    return (rest,)


def shadowing(a, /, **more):
    return (a, more)


def wide(a, b, c, d, e, f, g, h, i=1, j=2, *k, l=3, m=4, **n):  # noqa: E741
    return (a, b, c, d, e, f, g, h, i, j, l, m, k, n)


FUNCTIONS = [simple, defaults, keyword_only, positional_only, starred, nothing, only_more, only_rest, shadowing, wide]
NAMES = ["a", "b", "c", "d", "k", "m", "l", "more", "rest", "zzz"]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(FUNCTIONS), st.lists(st.integers(), max_size=11),
       st.dictionaries(st.sampled_from(NAMES), st.integers(), max_size=4))
def test_binds_like_cpython(function: FunctionType, positional: list[int], keywords: dict[str, int]) -> None:
    """The miss callable gets the parameters' values; what does not bind raises CPython's own error."""
    native = made(function, lambda bound, code: bound)
    expected = outcome(lambda: function(*positional, **keywords))
    assert outcome(lambda: native(*positional, **keywords)) == expected
    # names that are equal but not identical to the parameter's
    fresh = {"".join([*name]): value for name, value in keywords.items()}
    assert outcome(lambda: native(*positional, **fresh)) == expected


def test_keyword_that_is_not_a_string() -> None:
    native = made(starred, lambda bound, code: bound)
    assert outcome(lambda: native(1, **{2: 3})) == outcome(lambda: starred(1, **{2: 3}))


def test_string_subclass_as_keyword() -> None:
    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            raise LookupError("compared")

        __hash__ = str.__hash__

    native = made(defaults)
    assert outcome(lambda: native(1, **{Name("b"): 3})) == (LookupError, "compared")


def test_defaults_are_read_live() -> None:
    def function(a, b=1, *, c=2):
        return (a, b, c)

    native = made(function, lambda bound, code: bound)
    assert native(0) == (0, 1, 2)
    function.__defaults__, function.__kwdefaults__ = (10,), {"c": 20}
    assert native(0) == (0, 10, 20)
    function.__defaults__ = None
    assert outcome(lambda: native(0)) == outcome(lambda: function(0))
    native.__defaults__ = (5,)
    assert native(0) == (0, 5, 20)


def test_code_can_be_replaced() -> None:
    def function(a):
        return (a,)

    def other(a, b=7):
        return (a, b)

    native = made(function, lambda bound, code: bound)
    native.__code__ = other.__code__
    assert outcome(lambda: native(1)) == outcome(lambda: function(1))
    function.__defaults__ = (7,)
    assert native(1) == (1, 7)


def test_no_reference_is_lost_or_kept() -> None:
    value, key = object(), object()
    for function, call in ((simple, lambda f: f(value, b=key)), (starred, lambda f: f(value, value, key, k=key, z=value)),
                           (wide, lambda f: outcome(lambda: f(value, key, zzz=value))), (defaults, lambda f: f(value)),
                           (keyword_only, lambda f: outcome(lambda: f(value, value))), (simple, lambda f: f(value, key))):
        for native in (made(function), made(function, dispatch="first"), made(function, dispatch="miss"),
                       made(function, dispatch="fail")):
            outcome(lambda native=native, call=call: call(native))
            before = sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(native), sys.getrefcount(None)
            for _ in range(1000):
                outcome(lambda native=native, call=call: call(native))
            after = sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(native), sys.getrefcount(None)
            assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))


def test_default_value_lives_while_dispatch_runs() -> None:
    """Native code may replace the function's defaults: the bound default must survive that."""
    class Value:
        pass

    def function(clear, value=None):
        raise AssertionError

    function.__defaults__ = (Value(),)

    def clear(value: Value) -> int:
        reference = weakref.ref(value)
        del value
        function.__defaults__ = (None,)
        gc.collect()
        return 1 if reference() is not None else 0

    native = made(function, dispatch="call_first_with_second")
    assert native(clear) == 1


# ------------------------------------------------------------------------------------------------------------------ dispatch


@pytest.mark.usefixtures("no_collections")
def test_hit_counts_and_runs_no_bytecode() -> None:
    native = made(defaults, dispatch="second")
    with count_frames() as frames:
        results = native(1), native(1, 5), native(1, b=6), native(*(1, 7)), native(**{"a": 1, "b": 8})
    assert results == (2, 5, 6, 7, 8)
    assert frames.count == 0
    assert (native.cell.hits, native.cell.misses) == (5, 0)
    with count_frames() as frames:
        defaults(1)
    assert frames.count == 1


def test_miss_counts() -> None:
    native = made(defaults, dispatch="miss")
    assert native(1) == ("miss", 1, 2, 3)
    assert (native.cell.hits, native.cell.misses) == (0, 1)
    assert engine.find_symbol(MISS_SYMBOL) == MISS_ADDRESS


def test_function_is_the_last_bound_object() -> None:
    native = made(nothing, dispatch="first")
    assert native() is nothing
    native = made(keyword_only, dispatch="second")
    assert native(1, k=4) == 4


def test_error_from_dispatch() -> None:
    native = made(simple, dispatch="fail")
    with pytest.raises(ZeroDivisionError) as caught:
        native(1, 2)
    assert [frame.name for frame in caught.traceback] == ["test_error_from_dispatch"]
    assert native.cell.hits == 1


def test_disabled_runs_the_function() -> None:
    native = made(simple, dispatch="first")
    native.cell.flags = DISABLED
    assert native(1, 2) == (1, 2)
    native.cell.flags = 0
    assert native(1, 2) == 1


def test_traceback_of_a_miss_has_no_frames_of_ours() -> None:
    source = "def miss(bound, code):\n    return bound[0]()\n"
    namespace: dict[str, Any] = {}
    exec(compile(source, engine.__file__.replace("engine", "recorder"), "exec"), namespace)

    def user() -> None:
        raise LookupError("user")

    native = made(simple, namespace["miss"])
    with pytest.raises(LookupError) as caught:
        native(user, 0)
    assert [f.name for f in traceback.extract_tb(caught.value.__traceback__)] == [
        "test_traceback_of_a_miss_has_no_frames_of_ours", "user"]
    with pytest.raises(TypeError) as fault:  # nothing but our own frames: a fault of ours stays visible
        native(1, 0)
    assert traceback.extract_tb(fault.value.__traceback__)[-1].name == "miss"


def test_recursion_is_limited() -> None:
    def function(f, n):
        raise AssertionError

    native = made(function, dispatch="call_first_with_second")
    with pytest.raises(RecursionError):
        native(_Again(native), 0)
    assert made(simple, dispatch="first")(3, 4) == 3


class _Again:
    def __init__(self, native: Any) -> None:
        self.native = native

    def __call__(self, value: int) -> Any:
        return self.native(self, value)


def test_threads() -> None:
    native = made(defaults, lambda bound, code: bound, dispatch="")
    errors: list[object] = []

    def work(k: int) -> None:
        for i in range(3000):
            if native(i, c=k) != (i, 2, k):
                errors.append((i, k))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert native.cell.misses == 12000


# ------------------------------------------------------------------------------------------------------------------- tracing


def test_tracing_tools_see_the_function() -> None:
    native = made(simple, dispatch="first")
    seen: list[str] = []

    def tool(frame: Any, event: str, _: Any) -> None:
        seen.append(frame.f_code.co_name)

    assert not tracing_active()
    for setter, before in ((sys.setprofile, sys.getprofile()), (sys.settrace, sys.gettrace())):
        seen.clear()
        setter(tool)
        try:
            assert native(1, 2) == (1, 2)
            active = tracing_active()
        finally:
            setter(before)
        assert active
        assert "simple" in seen
        assert native(1, 2) == 1
    assert not tracing_active()


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
@pytest.mark.parametrize("local", [False, True])
def test_monitoring_tools_see_the_function(local: bool) -> None:
    def function(a, b):
        return (a, b)

    monitoring = sys.monitoring  # type: ignore[attr-defined]
    native = made(function, dispatch="first")
    seen: list[object] = []
    monitoring.use_tool_id(3, "test")
    monitoring.register_callback(3, monitoring.events.PY_START, lambda code, offset: seen.append(code))
    try:
        for _ in range(2):
            if local:
                monitoring.set_local_events(3, function.__code__, monitoring.events.PY_START)
            else:
                monitoring.set_events(3, monitoring.events.PY_START)
            seen.clear()
            assert native(1, 2) == (1, 2)
            assert function.__code__ in seen
            assert tracing_active(function.__code__)
            if local:
                monitoring.set_local_events(3, function.__code__, 0)
            else:
                monitoring.set_events(3, 0)
            assert native(1, 2) == 1
            assert not tracing_active(function.__code__)
    finally:
        monitoring.free_tool_id(3)


# ---------------------------------------------------------------------------------------------------------------- the object


def documented(x: int, *, y: str = "s") -> float:
    """What it does."""
    return 0.0


wrapped = made(documented)
documented_function, documented = documented, wrapped  # as a decorator leaves it


def test_looks_like_the_function() -> None:
    assert wrapped.__wrapped__ is documented_function
    for name in ("__name__", "__qualname__", "__doc__", "__module__", "__annotations__", "__defaults__", "__kwdefaults__",
                 "__code__", "__globals__", "__closure__"):
        assert getattr(wrapped, name) == getattr(documented_function, name)
    assert inspect.signature(wrapped) == inspect.signature(documented_function)
    assert typing.get_type_hints(wrapped) == {"x": int, "y": str, "return": float}
    assert callable(wrapped)
    assert repr(wrapped).startswith("<trident function documented at 0x")
    with pytest.raises(AttributeError):
        wrapped.no_such_attribute  # noqa: B018


def test_names_are_shared_with_the_function() -> None:
    def function():
        pass

    function.tag = 4  # type: ignore[attr-defined]
    native = made(function)
    native.__name__, native.__qualname__ = "renamed", "outer.renamed"
    assert (function.__name__, function.__qualname__) == ("renamed", "outer.renamed")
    assert native.tag == 4
    native.extra = 1
    assert native.__dict__["extra"] == 1
    with pytest.raises(AttributeError):
        native.__wrapped__ = None


def test_copies_and_pickles_by_reference() -> None:
    assert copy.copy(wrapped) is wrapped
    assert copy.deepcopy([wrapped])[0] is wrapped
    assert hash(wrapped) == hash(wrapped) and wrapped == wrapped and wrapped != made(nothing)
    assert wrapped.__reduce__() == "documented"
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(made(lambda: None))
    module = type(sys)("test_callable_pickles")
    module.documented = wrapped  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    before, wrapped.__module__ = wrapped.__module__, module.__name__
    try:
        assert pickle.loads(pickle.dumps(wrapped)) is wrapped
    finally:
        wrapped.__module__ = before
        del sys.modules[module.__name__]


def test_binds_as_a_method() -> None:
    def method(self, x, y=2):
        """Doc."""
        return (self, x, y)

    class Owner:
        plain = made(method, lambda bound, code: bound)
        static = staticmethod(made(simple, lambda bound, code: bound))
        of_class = classmethod(made(method, lambda bound, code: bound))

    owner = Owner()
    assert owner.plain(1) == (owner, 1, 2)
    assert Owner.plain(owner, 1) == (owner, 1, 2)
    assert Owner.__dict__["plain"] is Owner.plain
    bound = owner.plain
    assert bound(3, y=4) == (owner, 3, 4)
    assert bound.__self__ is owner and bound.__func__ is Owner.plain and bound.__doc__ == "Doc."
    assert str(inspect.signature(bound)) == "(x, y=2)"
    assert owner.static(1, 2) == (1, 2)
    assert owner.of_class(1) == (Owner, 1, 2)


def test_extra_members() -> None:
    kind = callable_type("trident.Special", {"reset": lambda self: self.__name__, "twice": property(lambda self: 2)})
    native = make_callable(simple, EntryCell(), lambda bound, code: bound, kind)
    assert type(native) is kind and kind.__module__ == "trident" and kind.__name__ == "Special"
    assert native.reset() == "simple" and native.twice == 2 and native(1, 2) == (1, 2)


def test_wrong_arguments_of_make_callable() -> None:
    with pytest.raises(TypeError, match="Python function"):
        make_callable(len, EntryCell(), lambda bound, code: bound)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not callable"):
        make_callable(simple, EntryCell(), None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot create"):
        type(wrapped)()


def test_weak_references_and_cycles() -> None:
    native = made(nothing)
    reference = weakref.ref(native)
    del native
    assert reference() is None

    def cycle() -> tuple[Any, Any]:
        def function():
            return holder

        native = made(function, lambda bound, code: holder)
        holder = [native]  # a cycle through both closures
        native.me = native
        assert gc.is_tracked(native) and function in gc.get_referents(native)
        return weakref.ref(native), weakref.ref(native.cell)

    reference, cell = cycle()
    gc.collect()
    assert reference() is None and cell() is None


def test_cell_by_address() -> None:
    cell = EntryCell(NATIVE.address("first"), code=id(simple.__code__))
    native = make_callable(simple, cell.address, lambda bound, code: bound)
    assert native(1, 2) == 1
    assert (native._entry_address, cell.hits, ctypes.sizeof(cell)) == (cell.address, 1, 48)


def test_many_callables_do_not_leak() -> None:
    def create() -> None:
        for _ in range(2000):
            made(simple)(1, 2)

    create()
    gc.collect()
    before = sys.getrefcount(simple), len(gc.get_objects())
    create()
    gc.collect()
    after = sys.getrefcount(simple), len(gc.get_objects())
    assert after[0] == before[0] and after[1] - before[1] < 50
