"""Resuming at every instruction: each function of a corpus is stopped before each instruction it executes, and continued.

The oracle is CPython: an opcode trace stops the real frames, their memory gives the state, and the continued copy must end like an
undisturbed run. The same with an exception: raised by the trace function in the real frame, and by `resume` in the copy.
"""

from __future__ import annotations

import copy
import ctypes
import dis
import sys
import traceback
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import pytest

from trident.backend.native import layouts, points
from trident.backend.native.resume import resume
from trident.ir.trace import NULL, Frame
from trident.shadow import stack_depths

# ------------------------------------------------------------------------------------------------------------ reading frames


def read(address: int) -> Any:
    """The object in a word of memory, or NULL."""
    word = layouts.word(address)
    return ctypes.cast(word, ctypes.py_object).value if word else NULL


def capture(frame: FrameType, depths: dict[CodeType, dict[int, int]]) -> Frame:
    """The state of a frame that an opcode trace has stopped."""
    layout, code = layouts.current(), frame.f_code
    at = layouts.interpreter_frame(frame)
    if code not in depths:
        depths[code] = stack_depths(code)
    count = layouts.nlocalsplus(code)
    depth = layouts.int32(at + layout.frame_stacktop) - count
    if depth < 0:  # 3.12 does not say
        depth = depths[code][frame.f_lasti]
    slots = [read(at + layout.frame_localsplus + 8 * i) for i in range(count + depth)]
    return Frame(read(at + layout.frame_function), code, frame.f_lasti, slots[:count], slots[count:])


class Stop:
    """A trace function that acts once, at the k-th instruction executed in frames of the corpus."""

    def __init__(self, k: int, action: Callable[[list[Frame]], None]) -> None:
        self.k, self.action = k, action
        self.count = 0
        self.pending: dict[FrameType, Frame] = {}  # state at the last call instruction of each frame
        self.prefixed: dict[FrameType, bool] = {}  # a KW_NAMES has been executed and its CALL has not
        self.depths: dict[CodeType, dict[int, int]] = {}
        self.base = sys._getframe(1)

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if not frame.f_code.co_name.startswith("c_"):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event != "opcode":
            return self
        name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        prefixed = self.prefixed.get(frame, False)
        self.prefixed[frame] = name == "KW_NAMES" or prefixed and name == "PRECALL"
        if prefixed or not points.table(frame.f_code).get(frame.f_lasti):
            return self
        if name in ("KW_NAMES", "PRECALL", "CALL", "CALL_FUNCTION_EX"):
            self.pending[frame] = capture(frame, self.depths)
        self.count += 1
        if self.count - 1 == self.k:
            self.action(self.frames(frame))
        return self

    def frames(self, frame: FrameType) -> list[Frame]:
        """The states of this frame and of the frames of the corpus that wait for it, outermost first."""
        found = [capture(frame, self.depths)]
        outer = frame.f_back
        while outer is not None and outer is not self.base:
            if outer.f_code.co_name.startswith("c_"):
                found.insert(0, self.pending[outer])
            outer = outer.f_back
        return found


def outcome(call: Callable[[], Any]) -> tuple[Any, ...]:
    """What a call did: its value, or the exception with the user's lines."""
    try:
        return ("value", call())
    except Exception as error:
        where = [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.name.startswith("c_")]
        context = type(error.__context__).__name__, type(error.__cause__).__name__
        return ("raised", type(error).__name__, str(error), where, context)


def traced(stop: Stop, call: Callable[[], Any]) -> tuple[Any, ...]:
    sys._getframe().f_trace_opcodes = True  # 3.12 looks at this when the trace function is set
    before = sys.gettrace()
    stop.base = sys._getframe()

    def run() -> Any:
        sys.settrace(stop)
        try:
            return call()
        finally:
            sys.settrace(None)

    try:
        return outcome(run)
    finally:
        sys.settrace(before)
        # An exception at an instruction that cannot raise by itself (POP_EXCEPT) leaves its frame's exception as the handled one.
        ctypes.pythonapi.PyErr_SetHandledException(None)


# ------------------------------------------------------------------------------------------------------------------ the corpus
# Names start with c_: that is how the trace function knows them. Each takes a list to log to.


class Boom(Exception):
    pass


class Manager:
    def __init__(self, log: list[Any], swallow: bool = False) -> None:
        self.log, self.swallow = log, swallow

    def __enter__(self) -> int:
        self.log.append("enter")
        return 7

    def __exit__(self, kind: Any, *_: Any) -> bool:
        self.log.append(("exit", kind and kind.__name__))
        return self.swallow


def c_straight(log):
    a = 3
    b = a * 2
    log.append(b)
    return a + b


def c_none(log):
    log.append(1)


def c_branches(log, n=5):
    if n > 3 and n < 10 or n == 12:
        log.append("in")
        return "x" if n else "y"
    return None


def c_for(log):
    total = 0
    for i in range(4):
        if i == 1:
            continue
        total += i
        log.append(total)
    else:
        total *= 10
    return total


def c_nested_for(log):
    out = []
    for i in (1, 2):
        for j in [10, 20]:
            if j > i * 15:
                break
            out.append((i, j))
    log.extend(out)
    return out


def c_while(log):
    n = 3
    while n:
        n -= 1
        log.append(n)
        if n == 1:
            break
    return n


def c_try(log):
    try:
        log.append("try")
        raise Boom("a")
    except Boom as e:
        log.append(str(e))
        value = 1
    else:
        value = 2
    finally:
        log.append("finally")
    return value


def c_try_else(log):
    try:
        value = len(log)
    except TypeError:
        return "never"
    else:
        log.append("else")
    return value


def c_finally_return(log):
    for i in range(3):
        try:
            if i == 1:
                return i
            log.append(i)
        finally:
            log.append("f")
    return None


def c_reraise(log):
    try:
        try:
            raise Boom("inner")
        except Boom:
            log.append("first")
            raise
    except Boom as e:
        log.append(repr(e))
        return "caught"


def c_chained(log):
    try:
        try:
            raise Boom("one")
        except Boom as e:
            log.append(1)
            raise ValueError("two") from e
    except ValueError as e:
        return type(e.__cause__).__name__, type(e.__context__).__name__


def c_context(log):
    try:
        raise Boom("outer")
    except Boom:
        try:
            {}["missing"]
        except KeyError as e:
            log.append(type(e.__context__).__name__)
            return str(e)


def c_escapes(log):
    log.append(0)
    try:
        raise Boom("first")
    except Boom:
        raise ValueError("escapes")  # noqa: B904


def c_divides(log):
    x = 0
    log.append(x)
    return 1 / x


def c_with(log):
    with Manager(log) as value:
        log.append(value)
        x = value + 1
    return x


def c_with_swallow(log):
    with Manager(log, swallow=True):
        log.append("body")
        raise Boom("swallowed")
    return "after"


def c_with_two(log):
    with Manager(log) as a, Manager(log) as b:
        return a + b


def c_with_in_loop(log):
    for i in range(2):
        with Manager(log):
            if i:
                continue
            log.append(i)
    return i


def c_closure(log):
    count = 0

    def bump():
        nonlocal count
        count += 1
        return count
    log.append(bump())
    first = count
    bump()
    return first, count, bump.__closure__[0].cell_contents


def c_free(log, _seen=(1,)):
    base = 10

    def c_inner(x):
        y = x + base
        return y * 2
    return c_inner(1) + c_inner(2)


def c_lambda(log):
    f = lambda a, b=2, *, c=3: a + b + c  # noqa: E731
    return f(1), f(1, c=5), f(*[1], **{"b": 9})


def c_star(log, *args, **kwargs):
    log.append((args, kwargs))
    first, *rest = range(4)
    return first, rest, args, kwargs


def c_callee(a, b=2, *args, c, **more):
    total = a + b + c
    for x in args:
        total += x
    return total, more


def c_calls(log):
    one = c_callee(1, c=3)
    two = c_callee(1, 2, 3, 4, c=5, d=6)
    three = c_callee(*(1, 2), **{"c": 4, "e": 5})
    log.append(one)
    return one, two, three


def c_add(a, b):
    return a + b


def c_deep(log, n=2):
    if n == 0:
        log.append("bottom")
        return c_add(1, 2)
    return c_deep(log, n - 1) + c_add(n, n)


def c_raises(log):
    log.append("r")
    raise Boom("deep")


def c_catches_inner(log):
    try:
        c_raises(log)
    except Boom as e:
        log.append("caught")
        return [f.name for f in traceback.extract_tb(e.__traceback__) if f.name.startswith("c_")]


def c_through(log):
    for _ in range(1):
        c_raises(log)


class Thing:
    size = 4

    def __init__(self, n):
        self.n = n

    def c_method(self, k, *, scale=1):
        return (self.n + k) * scale

    @property
    def c_property(self):
        return self.n

    def __add__(self, other):
        return Thing(self.n + other)

    def __getitem__(self, key):
        return key * 2


class Derived(Thing):
    def c_method(self, k, *, scale=1):
        return super().c_method(k, scale=scale) + 100


def c_methods(log):
    thing = Thing(5)
    bound = thing.c_method
    log.append(thing.size)
    return thing.c_method(1), bound(2), thing.c_method(1, scale=3), (thing + 2).n, thing[3]


def c_super(log):
    return Derived(1).c_method(2, scale=3)


def c_comprehension(log):
    k = 3
    out = [i * k for i in range(4) if i != 2]
    table = {i: [j + 1 for j in range(i)] for i in range(3)}
    return out, table, {x % 2 for x in out}


def c_generator_expression(log):
    return sum(x * x for x in range(4))


def c_unpack(log):
    (a, b), c = (1, 2), 3
    a, b = b, a
    log.append([a, b, c])
    more = {"a": a}
    return {**more, "b": [*range(b), c]}


def c_strings(log):
    x = 1.5
    text = f"{x!r:>5}|{log}|{x:.3f}"
    return text.upper().join(["<", ">"]) % ()


def c_slices(log):
    row = list(range(6))
    row[1:3] = "ab"
    del row[0]
    row[-1] += 10
    return row[::2], row[1:], (1 < 2 < 3), not row


def c_globals(log):
    global _made
    _made = [1]
    _made.append(2)
    return _made, len, Boom


def c_import(log):
    import math
    from os import path as p
    return math.floor(2.5), p.join("a", "b")


def c_match(log):
    seen = []
    for value in ({"k": 1, "z": 2}, [1, 2, 3], "text", Thing(3)):
        match value:
            case {"k": k, **rest}:
                seen.append((k, rest))
            case [first, *others]:
                seen.append((first, others))
            case Thing(n=n) if n > 2:
                seen.append(n)
            case _:
                seen.append(None)
    log.extend(seen)
    return seen


def c_delete(log):
    a = 1
    b = [a]
    del a
    try:
        a  # noqa: B018, F821
    except UnboundLocalError as e:
        log.append(str(e))
    return b


def c_assert(log):
    x = 2
    assert x == 2, "never"
    try:
        assert x == 3, "said"
    except AssertionError as e:
        return str(e)


def c_exception_group(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as group:
        log.append(len(group.exceptions))
    except* TypeError:
        log.append("type")
    return log


def c_walrus(log):
    if (n := len(log)) < 5:
        log.append(n)
    return n


def c_class(log):
    class Local:
        field = 3

        def get(self):
            return self.field
    return Local().get()


def c_lock(log):
    x = object()
    y = x
    same = x is y and x is not None and x in [y]
    return same


def c_large(log):
    values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    exec("pass")
    return sum(values[:5]) ** 2 // 3 % 7 << 2 >> 1 & 0xFF | 1 ^ 2


c_wide: Any = None
exec("def c_wide(log):\n    x = 0\n" + "".join(f"    v{i} = {i}\n" for i in range(300))  # EXTENDED_ARG prefixes
     + "    for i in range(2):\n        x += v299 + v298\n    log.append(x)\n    return x\n")

layouts.current()  # now, not under a trace

CORPUS = [value for name, value in list(globals().items()) if name.startswith("c_") and callable(value)
          and value.__code__.co_varnames[:1] == ("log",) and name != "c_wide"]
ARGUMENTS: dict[str, tuple[Any, ...]] = {"c_star": (1, 2)}


def clean(function: Callable[..., Any]) -> tuple[tuple[Any, ...], list[Any]]:
    log: list[Any] = []
    return outcome(lambda: function(log, *ARGUMENTS.get(function.__name__, ()))), log


def count_points(function: Callable[..., Any]) -> int:
    stop = Stop(-1, lambda frames: None)
    assert traced(stop, lambda: function([], *ARGUMENTS.get(function.__name__, ()))) == clean(function)[0]
    assert stop.count > 3
    return stop.count


def injected() -> Boom:
    """An exception that has been raised here: its context is what is being handled now."""
    try:
        raise Boom("injected")
    except Boom as error:
        return error


def resumed_at(function: Callable[..., Any], k: int, raising: bool = False) -> tuple[tuple[Any, ...], list[Any]] | None:
    """Stop a run before its k-th instruction, continue a copy of its frames, and forget the run itself."""
    log: list[Any] = []
    found: list[tuple[tuple[Any, ...], list[Any]]] = []

    def action(frames: list[Frame]) -> None:
        error = injected() if raising else None
        result = outcome(lambda: resume(frames, error))
        found.append(copy.deepcopy((result, log)))  # the run that was stopped goes on and shares objects with this
        assert all(not frame.locals and not frame.stack for frame in frames)

    traced(Stop(k, action), lambda: function(log, *ARGUMENTS.get(function.__name__, ())))
    return found[0] if found else None


@pytest.mark.parametrize("function", CORPUS, ids=lambda f: f.__name__)
def test_continues_from_every_instruction(function: Callable[..., Any]) -> None:
    expected, log = clean(function)
    count = count_points(function)
    for k in range(count):
        assert resumed_at(function, k) == (expected, log), f"instruction {k} of {count}"


@pytest.mark.parametrize("function", CORPUS, ids=lambda f: f.__name__)
def test_exception_at_every_instruction(function: Callable[..., Any]) -> None:
    for k in range(count_points(function)):
        log: list[Any] = []

        def action(_: list[Frame]) -> None:
            raise Boom("injected")

        expected = traced(Stop(k, action), lambda log=log: function(log, *ARGUMENTS.get(function.__name__, ())))
        found = resumed_at(function, k, raising=True)
        assert found == (expected, log), f"instruction {k}"


def test_extended_arguments() -> None:
    expected, log = clean(c_wide)
    for k in range(0, count_points(c_wide), 41):
        assert resumed_at(c_wide, k) == (expected, log)
