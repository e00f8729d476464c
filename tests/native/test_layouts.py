"""The CPython layout table is verified, and a wrong table is refused."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from trident.backend.native import layouts
from trident.errors import UnsupportedPython

# Fields that are not offsets.
NOT_PROBED = {"minor", "immortal", "caller_pops_frame", "request_code_extra_index", "get_code_extra", "set_code_extra"}
OFFSETS = [f.name for f in dataclasses.fields(layouts.Layout) if f.name not in NOT_PROBED]


def test_this_interpreter_verifies() -> None:
    assert layouts.current().minor == sys.version_info[1]
    assert layouts.verify(layouts.TABLE[sys.version_info[1]]) is layouts.current()


@pytest.mark.parametrize("field", OFFSETS)
def test_each_wrong_offset_is_refused(field: str) -> None:
    good = layouts.current()
    offset = getattr(good, field)
    if offset < 0:
        pytest.skip("this version has no such field")
    delta = 4 if field == "tstate_recursion_remaining" or field.startswith("code_") and offset % 8 else 8
    wrong = dataclasses.replace(good, **{field: offset + delta})
    with pytest.raises(UnsupportedPython):
        layouts.verify(wrong)
    assert layouts.verify(good) is good


def test_unknown_minor_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "TABLE", {99: layouts.TABLE[12]})
    with pytest.raises(UnsupportedPython, match="3.99"):
        layouts._platform()


def test_nlocalsplus_counts_cells_and_free_variables() -> None:
    free = 1

    def function(a: int, b: int) -> object:
        c = a

        def inner() -> int:
            return b + free
        return inner, c

    assert layouts.nlocalsplus(function.__code__) == 2 + 2 + 1  # a b, c inner, free (b is an argument that is a cell)
