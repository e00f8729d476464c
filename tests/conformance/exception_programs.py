"""Programs that handle exceptions, for `test_exceptions`. What they return tells what was caught, its chain and its traceback, and
what is handled meanwhile."""

from __future__ import annotations

import contextlib
import operator
import sys
import traceback

import torch

X, Y = torch.arange(6.0).reshape(2, 3), torch.ones(3, 2)
TABLE = {"a": 1, "b": 2}
KEPT = LookupError("kept")


def _describe(error):
    """Everything of an exception that is compared: its class, arguments, chain, and the functions and lines of its traceback."""
    if error is None:
        return None
    lines = [(entry.tb_frame.f_code.co_name, entry.tb_lineno) for entry in _entries(error.__traceback__)]
    inner = [_describe(e) for e in error.exceptions] if isinstance(error, BaseExceptionGroup) else []
    return (type(error).__name__, str(error.args), lines, _describe(error.__cause__), _describe(error.__context__),
            error.__suppress_context__, inner)


def _entries(trace):
    while trace is not None:
        yield trace
        trace = trace.tb_next


def describe(error):
    """Called from C, so that it is an opaque call."""
    return operator.call(_describe, error)


def now():
    """What is being handled."""
    return operator.call(_describe, sys.exception())


def boom(n):
    if n > 2:
        raise ValueError(n)
    return n


def opaque_boom(n):
    return operator.call(boom, n)


class Suppress:
    def __init__(self, *types):
        self.types = types

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        return kind is not None and issubclass(kind, self.types)


class Noted:
    def __init__(self, notes):
        self.notes = notes

    def __enter__(self):
        return self.notes

    def __exit__(self, kind, error, trace):
        self.notes.append((kind, describe(error), trace is not None and trace.tb_lineno))


class Keeps:
    """Keeps the traceback, without a call of anything."""

    def __init__(self, traces):
        self.traces = traces

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.traces.append(trace)


@contextlib.contextmanager
def managed(notes):
    notes.append("in")
    try:
        yield notes
    except ValueError as error:
        notes.append(describe(error))
    finally:
        notes.append("out")


# ------------------------------------------------------------------------------------------------------------------- programs
def key_error(x, key):
    try:
        n = TABLE[key]
    except KeyError as error:
        return x * 2, describe(error), now()
    return x * n


def try_else_finally(x, key):
    notes = []
    try:
        n = TABLE[key]
    except (KeyError, IndexError):
        notes.append("except")
        n = 5
    else:
        notes.append("else")
        n += 1
    finally:
        notes.append("finally")
    return x * n, notes, now()


def shapes(x, y):
    try:
        return x @ y
    except RuntimeError as error:
        return x @ y.t(), describe(error)


def method_of_tensor(x, y):
    try:
        x.add_(y)
    except RuntimeError:
        x.add_(y.t())
    return x + 1


def attribute(x):
    try:
        return x.no_such_attribute
    except AttributeError as error:
        return describe(error), x + 1


def index(x, n):
    items = [1, 2, 3]
    try:
        return x * items[n]
    except IndexError as error:
        return x, describe(error)


def division(x, n):
    try:
        m = 12 // n
    except ZeroDivisionError as error:
        return x, describe(error)
    return x * m


def number(x, text):
    try:
        n = int(text)
    except ValueError as error:
        return x, describe(error)
    return x * n


def stop(x, n):
    iterator = iter((1, 2)[:n])
    total = 0
    try:
        while True:
            total += next(iterator)
    except StopIteration:
        return x * total


def asserts(x, n):
    try:
        assert n < 3, f"too many: {n}"
    except AssertionError as error:
        return x, describe(error)
    return x * n


def type_error(x):
    try:
        return len(5)
    except TypeError as error:
        return x + 1, describe(error)


def wrong_call(x):
    try:
        return boom()
    except TypeError as error:
        return x + 1, describe(error)


def name_error(x):
    try:
        return undefined_name
    except NameError as error:
        return x + 1, describe(error), error.name


def imports(x):
    try:
        import no_such_module_anywhere  # noqa: F401
    except ImportError as error:
        return x + 1, error.name
    return x


def raise_class(x):
    try:
        raise LookupError
    except LookupError as error:
        return x + 1, describe(error)


def raise_from(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError as error:
            raise ValueError("outer") from error
    except ValueError as error:
        return x + 1, describe(error), describe(error.__cause__)


def raise_from_none(x):
    try:
        try:
            raise KeyError("inner")
        except KeyError:
            raise ValueError("outer") from None
    except ValueError as error:
        return x + 1, describe(error)


def implicit_context(x, n):
    try:
        try:
            x = x @ x
        except RuntimeError:
            x = x * (1 // n)
    except ZeroDivisionError as error:
        return x + 1, describe(error)
    return x


def reraise(x):
    try:
        try:
            opaque_boom(7)
        except ValueError:
            x = x + 1
            raise
    except ValueError as error:
        return x, describe(error)


def reraise_by_name(x):
    try:
        try:
            opaque_boom(7)
        except ValueError as error:
            x = x + 1
            raise error
    except ValueError as again:
        return x, describe(again)


def no_match(x):
    try:
        try:
            opaque_boom(7)
        except KeyError:
            return x
        finally:
            x = x + 1
    except ValueError as error:
        return x, describe(error), now()


def inner(x, n):
    y = x * 2
    return y + boom(n)


def crosses_frames(x, n):
    try:
        return inner(x, n)
    except ValueError as error:
        return x, describe(error), now()


def crosses_operator(x, n):
    class Adds:
        def __add__(self, other):
            return boom(other)

    try:
        return x * (Adds() + n)
    except ValueError as error:
        return x, describe(error)


def handled_in_handler(x):
    seen = [now()]
    try:
        opaque_boom(7)
    except ValueError:
        seen.append(now())
        try:
            TABLE["none"]
        except KeyError:
            seen.append(now())
        seen.append(now())
    seen.append(now())
    return x + 1, seen


def exc_info(x):
    try:
        opaque_boom(9)
    except ValueError as error:
        return x, sys.exc_info()[1] is error, sys.exc_info()[0], traceback.format_exc()


def name_is_deleted(x):
    try:
        opaque_boom(9)
    except ValueError as error:
        x = x + len(error.args)
    try:
        return error
    except NameError as unbound:
        return x, str(unbound)


def loop(x):
    caught = 0
    for n in range(6):
        try:
            x = x + boom(n)
        except ValueError:
            caught += 1
            continue
    return x, caught


def with_suppress(x, n):
    with contextlib.suppress(ValueError, KeyError):
        x = x + boom(n)
        x = x * 2
    return x, now()


def with_own(x, n):
    with Suppress(ValueError):
        x = x + boom(n)
    return x + 1


def with_notes(x, n):
    notes = []
    try:
        with Noted(notes) as held:
            held.append("body")
            x = x + boom(n)
    except ValueError as error:
        notes.append(describe(error))
    return x, notes


def with_generator(x, n):
    notes = []
    with managed(notes):
        x = x + boom(n)
        notes.append("body")
    return x, notes


def with_stack(x, n):
    notes = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Suppress(ValueError))
        stack.callback(notes.append, "callback")
        x = x + boom(n)
    return x, notes


def with_two(x, n):
    notes = []
    with Suppress(ValueError), Noted(notes):
        x = x + boom(n)
    return x, notes


def with_in_two_frames(x, n):
    traces = []

    def inside():
        with Keeps(traces):
            return boom(n)

    try:
        with Keeps(traces):
            inside()
    except ValueError:
        return x, [operator.call(getattr, trace, "tb_lineno") for trace in traces]
    return x, len(traces)


def groups(x, n):
    seen = []
    try:
        raise ExceptionGroup("both", [ValueError(n), KeyError("k"), TypeError("t")])
    except* ValueError as error:
        seen.append(describe(error))
    except* (KeyError, TypeError) as error:
        seen.append(describe(error))
        seen.append(now())
    return x + 1, seen, now()


def naked_in_group(x, n):
    seen = []
    try:
        x = x + boom(n)
    except* ValueError as error:
        seen.append(error.message)
        seen.append([str(e) for e in error.exceptions])
    return x + 1, seen


def group_goes_on(x):
    try:
        try:
            raise ExceptionGroup("both", [ValueError(1), KeyError("k")])
        except* ValueError:
            x = x + 1
    except ExceptionGroup as rest:
        return x, describe(rest)


def group_raises(x):
    try:
        try:
            raise ExceptionGroup("both", [ValueError(1), KeyError("k")])
        except* ValueError:
            raise LookupError("new") from None
    except ExceptionGroup as both:
        return x, [type(e).__name__ for e in both.exceptions]


def returns_in_finally(x, n):
    try:
        return x + boom(n)
    except ValueError:
        return x
    finally:
        x.add_(1)


def escapes(x, n):
    try:
        return x + boom(n)
    except ValueError as error:
        return error.args, error.__traceback__ is not None


def kept_object(x):
    try:
        raise KEPT
    except LookupError as error:
        return x + 1, error is KEPT, error.args


class Lazy:
    """A property that raises AttributeError, beside a `__getattr__`."""

    def __getattr__(self, name):
        return 40

    @property
    def broken(self):
        return self.__dict__["nothing"] if len(TABLE) == 0 else operator.call(getattr, TABLE, "nothing")


LAZY = Lazy()


def falls_back(x):
    return x * LAZY.broken


def property_in_try(x):
    try:
        return x * LAZY.broken
    except AttributeError:
        return x


def finally_return(x, n):
    def inner():
        try:
            return x + boom(n)
        finally:
            if n == 4:
                return x  # noqa: B012 (meant)
    try:
        return inner(), now()
    except ValueError as e:
        return describe(e), now()


def raise_in_callee(x, n):
    def again():
        raise  # noqa: PLE0704 (the caller handles something)

    try:
        try:
            boom(n)
        except ValueError:
            x = x + 1
            again()
    except ValueError as e:
        return x, describe(e)
    return x


def with_in_loop(x, n):
    notes = []
    for i in range(5):
        with Suppress(ValueError), Noted(notes):
            if i == 1:
                continue
            if i == 4:
                break
            x = x + boom(i)
            notes.append(i)
    return x, [str(q) for q in notes]


def exit_raises(x):
    class M:
        def __enter__(self):
            return self

        def __exit__(self, *rest):
            raise KeyError("exit")

    try:
        with M():
            boom(8)
    except KeyError as e:
        return x, describe(e)


@contextlib.contextmanager
def translate():
    try:
        yield 5
    except ValueError as e:
        raise LookupError("translated") from e


def cm_raises(x, n):
    try:
        with translate() as v:
            x = x + v
            x = x + boom(n)
    except LookupError as e:
        return x, describe(e), describe(e.__cause__)
    return x


class Custom(Exception):
    def __init__(self, code, *rest):
        super().__init__(code, *rest)
        self.code = code
    def __str__(self):
        return f"custom {self.code}"


def custom(x, n):
    try:
        if n > 2:
            raise Custom(n, "r")
    except Custom as e:
        return x * e.code, str(e), describe(e)
    return x


def index_tensor(x, n):
    try:
        return x[n]
    except IndexError as e:
        return x, describe(e)


def star_raise(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [KeyError(2), ValueError(3)])])
        except* ValueError:
            raise
        except* KeyError as g:
            x = x + len(g.exceptions)
    except ExceptionGroup as g:
        return x, describe(g)


def with_note(x):
    try:
        try:
            boom(9)
        except ValueError as e:
            e.add_note("note")
            raise
    except ValueError as e:
        return x, e.__notes__, describe(e)


def reraise_kept(x):
    saved = None
    try:
        boom(5)
    except ValueError as e:
        saved = e
    try:
        raise saved
    except ValueError as e:
        return x, describe(e)


def nested_finally(x, n):
    log = []
    try:
        try:
            try:
                log.append(boom(n))
            finally:
                log.append(describe(sys.exception()))
        finally:
            log.append("f2")
    except ValueError:
        log.append("caught")
    else:
        log.append("else")
    return x, log


def context_chain(x):
    try:
        try:
            boom(5)
        except ValueError:
            try:
                TABLE["q"]
            except KeyError:
                x = 1 // 0
    except ZeroDivisionError as e:
        return x, describe(e)


def same_context(x):
    try:
        boom(5)
    except ValueError as e:
        try:
            raise e
        except ValueError as f:
            return x, f is e, describe(f)


def unpack(x):
    try:
        a, b = (1, 2, 3)
    except ValueError as e:
        return x, describe(e)
    return a, b


def comp(x):
    def safe(v):
        try:
            return boom(v)
        except ValueError:
            return -1

    return x + sum([safe(i) for i in range(5)])


def uncaught_finally(x, n):
    try:
        return x + boom(n)
    finally:
        x.add_(1)


PROGRAMS = [
    (finally_return, (X, 1), (X, 4), (X, 5)), (raise_in_callee, (X, 1), (X, 5)), (with_in_loop, (X, 0)), (exit_raises, (X,)),
    (cm_raises, (X, 1), (X, 5)), (custom, (X, 1), (X, 5)), (index_tensor, (X, 1), (X, 9)), (star_raise, (X,)), (with_note, (X,)),
    (reraise_kept, (X,)), (nested_finally, (X, 1), (X, 5)), (context_chain, (X,)), (same_context, (X,)), (unpack, (X,)), (comp, (X,)),
    (uncaught_finally, (X, 1), (X, 5)),
    (key_error, (X, "a")), (key_error, (X, "z")), (key_error, (X, "z"), (X, "a")), (try_else_finally, (X, "a"), (X, "z")),
    (shapes, (X, Y)), (shapes, (X, X)), (shapes, (X, X), (X, Y)), (method_of_tensor, (X, Y)), (attribute, (X,)), (index, (X, 1), (X, 7)),
    (division, (X, 0)), (division, (X, 0), (X, 4)), (number, (X, "12"), (X, "twelve")), (stop, (X, 2)), (asserts, (X, 1), (X, 5)),
    (type_error, (X,)), (wrong_call, (X,)), (name_error, (X,)), (imports, (X,)), (raise_class, (X,)), (raise_from, (X,)),
    (raise_from_none, (X,)), (implicit_context, (X, 0)), (implicit_context, (X, 1), (X, 0)), (reraise, (X,)), (reraise_by_name, (X,)),
    (no_match, (X,)), (crosses_frames, (X, 1), (X, 5)), (crosses_operator, (X, 1), (X, 5)), (handled_in_handler, (X,)), (exc_info, (X,)),
    (loop, (X,)), (with_suppress, (X, 1), (X, 5)), (with_own, (X, 1), (X, 5)), (with_notes, (X, 1), (X, 5)),
    (with_generator, (X, 1), (X, 5)), (with_stack, (X, 1), (X, 5)), (with_two, (X, 5)), (with_in_two_frames, (X, 5)),
    (groups, (X, 1)), (naked_in_group, (X, 1), (X, 5)),
    (group_goes_on, (X,)), (group_raises, (X,)), (returns_in_finally, (X, 1), (X, 5)), (escapes, (X, 5)), (kept_object, (X,)),
    (falls_back, (X,)), (property_in_try, (X,)), (name_is_deleted, (X,)),
]
NOT_WHOLLY = {"uncaught_finally", "falls_back", "property_in_try"}
"""Programs that contain something else which is left to CPython."""
