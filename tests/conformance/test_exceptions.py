"""Exceptions that the recorded code handles itself, four ways (see harness): what is caught, its chain and its traceback, what is
handled meanwhile, and that nothing is recorded again."""

from __future__ import annotations

import gc
import operator
import sys

import pytest
import torch

import trident
from tests.conformance import exception_programs as programs
from tests.conformance.exception_programs import NOT_WHOLLY, PROGRAMS, TABLE, X, boom, describe, now, opaque_boom
from tests.conformance.harness import check
from trident.api import entry_of


def _name(program) -> str:
    function, *arguments = program
    return "-".join([function.__name__, *(str(args[1]) for args in arguments if len(args) > 1 and not isinstance(args[1], torch.Tensor))])


@pytest.mark.parametrize("program", PROGRAMS, ids=_name)
def test_program(program) -> None:
    function, *arguments = program
    entry = check(function, *arguments, expect_trace=function.__name__ not in NOT_WHOLLY)
    if function.__name__ not in NOT_WHOLLY:
        assert not entry.aborts, [str(a) for a in entry.aborts]
        recordings = len(entry.specializations)
        jitted = trident.jit(function)
        for args in arguments * 2:
            jitted(*args)
        assert recordings <= 2 * len(arguments)
    assert sys.exception() is None


def hits(jitted) -> int:
    return entry_of(jitted).cell.hits


def test_the_property_falls_back_on_a_hit() -> None:
    class Sometimes:
        def __getattr__(self, name):
            return (name, now())

        @property
        def value(self):
            return operator.call(operator.getitem, BOX, 0).shape

    BOX = [X]
    thing = Sometimes()

    def program(x):
        return x + 1, thing.value

    jitted = trident.jit(program)
    for box in ([X], [X], [3], [X], [3]):
        BOX[:] = box
        assert jitted(X)[1:] == program(X)[1:]
    assert hits(jitted) == 4 and entry_of(jitted).side_exits == 2


def test_another_exception_or_none() -> None:
    """What was recorded as a ValueError is something else on a hit: another exception, an interrupt, no exception."""
    behaviour = []

    def act():
        if behaviour[0] is not None:
            raise behaviour[0]
        return 10

    def program(x):
        seen = []
        try:
            n = operator.call(act)
            seen.append(n)
        except ValueError as error:
            seen.append(describe(error))
            seen.append(now())
        except LookupError as error:
            seen.append(("lookup", describe(error), now()))
        finally:
            seen.append(now())
        return x + 1, seen

    jitted = trident.jit(program)
    for one in (ValueError(1), ValueError(2), KeyError(3), None, ValueError, IndexError, None, KeyError(4), ZeroDivisionError(5),
                KeyboardInterrupt(), None, ValueError(6), KeyError, KeyError, KeyError, None):
        outcomes = []
        for function in (program, jitted):
            behaviour[:] = [type(one)(*one.args) if isinstance(one, BaseException) else one]
            try:
                outcomes.append(function(X)[1:])
            except BaseException as error:
                outcomes.append((programs._describe(error), sys.exception() is error))
        assert outcomes[0] == outcomes[1], one
        assert sys.exception() is None
    assert hits(jitted) == 15 and len(entry_of(jitted).specializations) == 4


def test_a_side_exit_in_a_handler() -> None:
    """An exit, a bridge and an exception in the middle of nested handlers find what is being handled."""

    def program(x, n):
        try:
            opaque_boom(9)
        except ValueError:
            try:
                TABLE["none"]
            except KeyError as error:
                seen = [now()]
                m = operator.call(abs, n)  # of unknown value from here on
                if m > 2:
                    seen.append((m, now()))
                if m > 4:
                    seen.append(1 // (m - 7))
                if m > 5:
                    error.held = x @ x[:m - 4]
                seen.append(now())
                return x + n, seen

    jitted = trident.jit(program)
    square = torch.eye(3)
    for n in (1, 3, 5, 7, 6, 1, 3, 5, 7, 6, 8, 5, 3, 1, 7, 6):
        outcomes = []
        for function in (program, jitted):
            try:
                outcomes.append(function(square, n)[1:])
            except Exception as error:
                outcomes.append(programs._describe(error))
            assert sys.exception() is None
        assert outcomes[0] == outcomes[1], n
    assert hits(jitted) > 10 and entry_of(jitted).side_exits > 3


def test_within_a_generator_and_a_handler_of_its_caller() -> None:
    """A generator has an exception state of its own, which is empty while its caller handles something."""
    jitted = trident.jit(programs.handled_in_handler)

    def generate(function):
        while True:
            yield function(X)[1]
            yield now()

    for _ in range(3):
        seen = []
        for function in (programs.handled_in_handler, jitted):
            made = generate(function)
            seen.append([next(made)])
            try:
                boom(8)
            except ValueError:
                seen[-1] += [next(made), next(made), next(made)]
            seen[-1] += [next(made), next(made)]
        assert seen[0] == seen[1]
    assert hits(jitted) == 8


def test_raising_calls_do_not_keep_others_from_a_trace() -> None:
    """A function that raises uncaught on some calls: the others are recorded soon, and raising costs no recordings for ever."""

    def program(x, n):
        if n < 0:
            raise ValueError(n)
        return x + n

    jitted = trident.jit(program)
    entry = entry_of(jitted)
    for _ in range(300):
        with pytest.raises(ValueError, match="-1"):
            jitted(X, -1)
    recordings = len(entry.aborts)
    assert 2 <= recordings < 10 and not entry.retired
    calls = 0
    while not entry.specializations:
        assert torch.equal(jitted(X, 2), X + 2)
        calls += 1
    assert calls < 12
    jitted(X, 2)
    assert hits(jitted) == 1
    for _ in range(100):
        with pytest.raises(ValueError, match="-1"):
            jitted(X, -1)
    assert len(entry.aborts) < recordings + 8


LEAKING = [(programs.key_error, "z"), (programs.shapes, X), (programs.raise_from, None), (programs.reraise, None),
           (programs.crosses_frames, 5), (programs.handled_in_handler, None), (programs.with_generator, 5),
           (programs.with_stack, 5), (programs.groups, 1), (programs.group_goes_on, None), (programs.implicit_context, 0)]


def test_nothing_leaks() -> None:
    programs = [(trident.jit(function), (X,) if argument is None else (X, argument)) for function, argument in LEAKING]

    def run(times: int) -> None:
        for jitted, arguments in programs:
            for _ in range(times):
                jitted(*arguments)

    def counts() -> list[int]:
        watched = (None, ValueError, X, *(function.__code__ for function, _ in LEAKING))
        return [sys.getrefcount(obj) for obj in watched]

    run(20)
    gc.collect()
    gc.disable()
    try:
        growth = []
        for _ in range(3):  # something else may allocate meanwhile; what leaks does so each time
            before, blocks = counts(), sys.getallocatedblocks()
            run(200)
            gc.collect()  # handlers make cycles of their own
            assert max(abs(a - b) for a, b in zip(before, counts(), strict=True)) < 30
            growth.append(sys.getallocatedblocks() - blocks)
        assert min(growth) < 150, growth
    finally:
        gc.enable()
    for jitted, _ in programs:
        assert hits(jitted) >= 217 and entry_of(jitted).side_exits == 0


def test_inside_a_handler_of_the_caller() -> None:
    """The chain of what is raised in a jitted function goes on with what its caller handles, recorded or hit."""
    jitted = trident.jit(programs.raise_from)
    plain = []
    for function in (programs.raise_from, jitted, jitted, jitted):
        try:
            boom(5)
        except ValueError:
            plain.append(function(X)[1:])
            assert sys.exception().args == (5,)
    assert plain[0][0][4] is not None
    assert plain[1:] == [plain[0]] * 3
    assert entry_of(jitted).cell.hits == 2


def test_frames_of_functions_with_free_variables_can_be_looked_into() -> None:
    limit = torch.tensor(3.0)

    def inner(x):
        def innermost():
            raise ValueError(x, limit)

        return innermost()

    def program(x):
        y = x + 1
        try:
            inner(y)
        except ValueError as error:
            return y, error
        return y, None

    jitted = trident.jit(program)
    for _ in range(4):
        error = jitted(X)[1]
        names, trace = [], error.__traceback__
        while trace is not None:
            names.append((trace.tb_frame.f_code.co_name, sorted(trace.tb_frame.f_locals)))
            trace.tb_frame.clear()
            trace = trace.tb_next
        assert [name for name, _ in names] == ["program", "inner", "innermost"]
    assert hits(jitted) == 3
    for _, found in names:  # of a hit
        assert found == [], "no locals, as the limits say"
