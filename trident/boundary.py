"""The boundary between a call of the user's and Trident's own work on it.

Owns `UsersCall` and `carry_out`. Every call that native code hands to Python goes through them: a miss, a frame that a hook has
captured, a side exit, a launch that goes through Triton. What must hold: the call is executed exactly once and ends with its own
result or exception, whatever fails in Trident meanwhile. KeyboardInterrupt and its like are not faults of Trident: they pass.

Outside of the boundary, because nothing could take their place: `native.resume` and the frames that it is given.

May import: the standard library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def reraise(error: BaseException) -> None:
    """Raise an exception that was caught before, as it is: `raise` would set its context anew."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context  # which `raise` takes to be the exception that our caller is handling
        del error, context


def describe_error(error: BaseException) -> str:
    """Type and message of an exception; no code of the user's runs for it."""
    name = type(error).__name__
    plain = all(type(arg) in (str, int, float, bool, type(None)) for arg in error.args)
    written = type(error).__str__
    if not plain or getattr(written, "__code__", None) is not None or not hasattr(written, "__objclass__"):
        return name
    return f"{name}: {error}"


class UsersCall:
    """A call that is in Trident's hands. ending: ends it (its result is the call's): executes it, or tells how it ended.

    Whoever executes the call by other means first calls `begin`, and then `ended_by` with the new ending.
    complaint: raised after a call that has returned (strict=True). raised: whether `execute` ended with an exception.
    """

    __slots__ = ("complaint", "ending", "raised")

    def __init__(self, ending: Callable[[], object]) -> None:
        self.ending: Callable[[], object] | None = ending
        self.complaint: Exception | None = None
        self.raised = False

    def begin(self) -> None:
        """From here on the call is being executed: the ending so far must not be used any more."""
        self.ending = None

    def ended_by(self, ending: Callable[[], object]) -> None:
        """The call has been executed."""
        self.ending = ending

    def execute(self) -> Any:
        """Execute the call now and remember how it ended. Its result; None where it has raised."""
        ending = self.ending
        assert ending is not None
        self.begin()
        try:
            result = ending()
        except BaseException as error:
            self.raised, outcome = True, [error]
            self.ended_by(lambda: reraise(outcome.pop()))
            return None
        self.ended_by(lambda: result)
        return result


def carry_out(call: UsersCall, work: Callable[[], None], note: Callable[[Exception], None]) -> object:
    """Do Trident's work on a call, end the call, and give its result.

    work: what Trident does; it may execute the call. An exception from it is a fault of Trident, of which `note` is told.
    """
    try:
        work()
    except Exception as error:
        if call.ending is None:  # in the middle of it: nobody knows how to go on
            raise
        answer(partial(note, error), None)
    ending = call.ending
    assert ending is not None
    result = ending()
    if call.complaint is not None:
        raise call.complaint
    return result


def answer(question: Callable[[], Any], otherwise: Any, note: Callable[[Exception], None] | None = None) -> Any:
    """The answer to a question that only Trident has; `otherwise` where finding it fails."""
    try:
        return question()
    except Exception as error:
        if note is not None:
            answer(partial(note, error), None)
        return otherwise
