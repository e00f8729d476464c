"""Calls into Python, containers, boxing, exceptions."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from typing import Any

import pytest
import torch

from tests.backend.harness import Builder, Native
from trident.ir.trace import OpaqueCall

CALL = OpaqueCall("f", "test", "t.py", 1)


def test_vectorcall_with_positional_and_keyword_arguments() -> None:
    b = Builder("call", 3)
    b.state_of()
    result = b.call(b.args[0], [b.args[1], b.op("box", b.int(7)), b.args[2]], ["second"], CALL)
    n = Native(b.ret(result))
    assert n(lambda a, b, *, second: (a, b, second), "x", [1]) == ("x", 7, [1])
    assert n(lambda *args, **kwargs: (args, kwargs), None, 0) == ((None, 7), {"second": 0})


def test_unboxed_values_are_boxed_for_containers() -> None:
    b = Builder("containers", 2)
    x, = b.tensors(0)
    i = b.op("unbox_int", b.args[1])
    b.state_of()
    y, = b.aten("neg", "", [x], ["tensor"])
    f = b.op("int_to_float", i)
    t = b.op("build_tuple", values=[i, f, x, y, b.none()])
    lst = b.op("build_list", values=[t, t])
    d = b.op("build_dict", values=[b.constant("k"), lst, b.constant("y"), y])
    s = b.op("build_slice", b.constant(None), b.args[1], b.constant(None))
    n = Native(b.give_all([t, lst, d, s, b.op("build_tuple")]))
    tensor = torch.randn(3)
    t, lst, d, s, empty = n(tensor, 6)
    assert t[:2] == (6, 6.0) and t[2] is tensor and torch.equal(t[3], -tensor) and t[4] is None
    assert lst[0] is t and lst[1] is t and type(lst) is list
    assert d["k"] is lst and d["y"] is t[3]  # one tensor, one object
    assert s == slice(None, 6, None) and empty == ()


def test_a_dict_with_an_unhashable_key_raises() -> None:
    b = Builder("unhashable", 1)
    b.state_of()
    n = Native(b.ret(b.op("build_dict", values=[b.args[0], b.args[0]])))
    assert n("a") == {"a": "a"}
    with pytest.raises(TypeError, match="unhashable"):
        n([])


def test_reading_containers() -> None:
    b = Builder("read", 3)
    t, lst, d = b.args
    key = b.constant_index("key")
    n = Native(b.give_all([b.op("tuple_len", t), b.op("tuple_item", t, item=1), b.op("list_len", lst), b.op("list_item", lst, item=0),
                           b.op("dict_len", d), b.op("dict_has", d, index=key), b.op("dict_item", d, index=key),
                           b.op("tuple_item", b.op("tuple_item", t, item=0), item=0)]))
    a, c, v = [1], [2], [3]
    result = n(((a,), c), [v, 1, 2], {"key": a, "other": 0})
    assert result == (2, [2], 3, [3], 2, True, [1], [1])
    assert result[1] is c and result[3] is v and result[6] is a and result[7] is a


def test_keys_of_an_ordered_dict_in_its_own_order() -> None:
    b = Builder("odict", 1)
    n = Native(b.give_all([b.op("odict_keys_are", b.args[0], index=b.constant_index(("a", "b")))]))
    reordered = OrderedDict(a=1, b=2)
    reordered.move_to_end("a")
    found = [n(v)[0] for v in (OrderedDict(a=1, b=2), reordered, OrderedDict(a=1), OrderedDict(a=1, b=2, c=3), OrderedDict({"a": 1, 2: 2}))]
    assert found == [True, False, False, False, False]


def test_items_of_a_new_tuple_outlive_it() -> None:
    b = Builder("outlive", 1)
    b.state_of()
    made = b.call(b.args[0], [], [], CALL)
    item = b.op("tuple_item", made, item=0)
    other = b.call(b.args[0], [], [], CALL)
    n = Native(b.give_all([item, other]))
    assert n(lambda: ([5], 6)) == ([5], ([5], 6))


def test_exceptions_of_opaque_calls_are_handed_over_with_their_traceback() -> None:
    def raises() -> None:
        raise KeyError("gone")

    seen: list[Any] = []

    def handler(site: Any, values: list[object], error: BaseException | None) -> object:
        seen.append((site, tuple(values), error))
        return "handled"

    b = Builder("raise", 2)
    b.state_of(b.args[1], line=3)
    n = Native(b.ret(b.call(b.args[0], [], [], CALL)), handler)
    assert n(raises, "v") == "handled"
    (site, values, error), = seen
    assert isinstance(error, KeyError) and error.args == ("gone",) and values == ("v",) and site.is_raise
    assert error.__traceback__ is not None and error.__traceback__.tb_frame.f_code.co_name == "raises"
    with pytest.raises(TypeError):
        Native(b.trace)(3, "v")


def test_operator_errors_are_those_of_eager() -> None:
    b = Builder("error", 2)
    x, y = b.tensors(0, 1)
    b.state_of(b.args[0])
    z, = b.aten("matmul", "", [x, y], ["tensor"])
    n = Native(b.give(z))
    for a, c in ((torch.randn(2, 3), torch.randn(4, 5)), (torch.randn(2, 3), torch.randn(3, 5, dtype=torch.float64))):
        with pytest.raises(RuntimeError) as wanted:
            torch.matmul(a, c)
        with pytest.raises(RuntimeError) as found:
            n(a, c)
        assert type(found.value) is type(wanted.value) and str(found.value) == str(wanted.value)
    index = Builder("index", 1)
    x, = index.tensors(0)
    index.state_of()
    n = Native(index.give(index.aten("select", "int", [x, index.int(0), index.int(9)], ["tensor"])[0]))
    with pytest.raises(IndexError) as found_index:
        n(torch.zeros(3))
    with pytest.raises(IndexError) as wanted_index:
        torch.select(torch.zeros(3), 0, 9)
    assert str(found_index.value) == str(wanted_index.value)


def _warning_program() -> Native:
    b = Builder("warn", 1)
    x, = b.tensors(0)
    b.state_of(b.args[0])
    # An output of the wrong size is resized with a warning.
    out, = b.aten("zeros", "", [b.list([b.int(1)], "int"), b.none(), b.none(), b.none(), b.none()], ["tensor"])
    y, = b.aten("add", "out", [x, x, b.int(1), out], ["tensor"])
    return Native(b.give(y))


def test_warnings_of_operators_are_python_warnings() -> None:
    n = _warning_program()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert torch.equal(n(torch.ones(3)), torch.full((3,), 2.0))
    assert len(caught) == 1 and caught[0].category is UserWarning and "resized" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="resized"):
            n(torch.ones(3))


def test_the_gil_is_free_during_operators() -> None:
    """Another thread runs while a long operator does."""
    import threading

    b = Builder("long", 1)
    x, = b.tensors(0)
    b.state_of()
    for _ in range(6):
        x, = b.aten("matmul", "", [x, x], ["tensor"])
    n = Native(b.give(x))
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    big = torch.randn(500, 500) * 1e-3
    thread.start()
    try:
        before = ticks[0]
        n(big)
        during = ticks[0] - before
    finally:
        stop.set()
        thread.join()
    assert during > 10


def test_a_handler_sees_the_warning_handler_closed() -> None:
    """Warnings of operators that a side exit goes on with reach Python too."""
    b = Builder("exit", 1)
    x, = b.tensors(0)
    b.state_of()
    y, = b.aten("neg", "", [x], ["tensor"])
    b.state_of(y)
    b.op("exit", reason="test")

    def handler(site: Any, values: list[Any], error: BaseException | None) -> object:
        torch.add(values[0], values[0], out=torch.zeros(1))
        return "done"

    n = Native(b.give(y), handler)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert n(torch.ones(3)) == "done"
    assert len(caught) == 1


def test_containers_that_code_changed_after_their_guard_are_left() -> None:
    for name, container, change in (("list_item", [1, [2]], lambda c: c.clear()), ("dict_item", {"k": [2]}, lambda c: c.clear())):
        b = Builder("changed", 2)
        b.state_of(b.args[1])
        b.call(b.args[0], [b.args[1]], [], CALL)
        b.state_of(b.args[1])
        item = b.op(name, b.args[1], **({"item": 1} if name == "list_item" else {"index": b.constant_index("k")}))
        n = Native(b.ret(item), lambda site, values, error: ("left", tuple(values)))
        assert n(lambda c: None, container) == [2]
        assert n(change, container) == ("left", (container,))
