"""The opcode tables and the static analysis."""

from __future__ import annotations

import ast
import dis
import functools
import json
import types
from typing import Any

import pytest

from trident.frontend.analysis import CodeInfo, analyse, localsplus_names
from trident.frontend.cpython import opcodes

# Never in the co_code of a function that is executed: pseudo instructions, prefixes, what tracing tools write.
_NOT_EXECUTED = {"EXTENDED_ARG", "KW_NAMES", "PRECALL", "JUMP", "JUMP_NO_INTERRUPT", "LOAD_SUPER_METHOD", "LOAD_ZERO_SUPER_ATTR",
                 "LOAD_ZERO_SUPER_METHOD", "POP_BLOCK", "SETUP_CLEANUP", "SETUP_FINALLY", "SETUP_WITH", "STORE_FAST_MAYBE_NULL"}
# Left to CPython, each for a reason: none now.
_DECLINED: dict[str, str] = {}


@pytest.mark.parametrize("name", sorted(dis.opmap))
def test_every_opcode_has_a_place(name: str) -> None:
    handled = name not in opcodes.UNSUPPORTED and name not in opcodes.EXCEPTION_OPS
    places = [handled, name in opcodes.FOREIGN_OPS, name in opcodes.EXCEPTION_OPS, name in _NOT_EXECUTED, name in _DECLINED,
              name.startswith("INSTRUMENTED_")]
    assert sum(places) == 1, places


def _codes(code: types.CodeType) -> list[types.CodeType]:
    return [code, *[inner for const in code.co_consts if isinstance(const, types.CodeType) for inner in _codes(const)]]


def _corpus() -> list[types.CodeType]:
    modules = (ast, dis, functools, json.decoder, json.encoder, pytest.importorskip("argparse"), types)
    return [code for module in modules for code in _codes(compile(open(module.__file__).read(), module.__file__, "exec"))]


def test_decoding_agrees_with_dis() -> None:
    for code in _corpus():
        info = analyse(code)
        plain = {i.offset: i for i in dis.get_instructions(code) if i.opname not in ("EXTENDED_ARG", "KW_NAMES", "PRECALL", "CACHE")}
        assert [i.name for i in info.instructions] == [i.opname for i in plain.values()]
        for ours, theirs in zip(info.instructions, plain.values(), strict=True):
            assert ours.arg == (theirs.arg or 0)
            assert ours.offset <= theirs.offset < ours.next_offset
            if ours.target >= 0:
                target = info.instructions[ours.target]
                assert target.offset <= theirs.argval < target.next_offset
        for before, after in zip(info.instructions, info.instructions[1:], strict=False):
            assert before.next_offset == after.offset


def test_exception_ranges_agree_with_dis() -> None:
    for code in _corpus():
        info = analyse(code)
        for ours in info.instructions:
            found = info.handler_of(ours.index)
            theirs = [e for e in dis._parse_exception_table(code) if e.start <= ours.offset < e.end]  # type: ignore[attr-defined]
            assert (found is None) == (not theirs)
            if found is not None:
                assert info.instructions[found.target].offset == theirs[0].target
                assert (found.depth, found.push_lasti) == (theirs[0].depth, theirs[0].lasti)


def _live(info: CodeInfo, name: str, line: int) -> bool:
    at = next(i for i in info.instructions if i.line == line + info.code.co_firstlineno)
    return bool(at.live >> info.names.index(name) & 1)


def test_liveness() -> None:
    def f(a: Any, b: Any) -> Any:
        c = a + 1
        d = c * b
        while d > 0:
            d -= a
        try:
            e = d.x
        except AttributeError:
            e = b
        return e

    info = analyse(f.__code__)
    assert _live(info, "a", 1) and _live(info, "a", 4) and not _live(info, "a", 6)
    assert not _live(info, "c", 1) and _live(info, "c", 2) and not _live(info, "c", 3)
    assert _live(info, "b", 6), "the handler reads it"
    assert not _live(info, "e", 6) and _live(info, "e", 9)


def test_names_of_localsplus() -> None:
    def f(a: int, b: int) -> Any:
        c = d = 0

        def g() -> int:
            return a + c

        return g, d

    code = f.__code__
    assert localsplus_names(code) == ("a", "b", "d", "g", "c")
    assert localsplus_names(f(1, 2)[0].__code__) == ("a", "c")


def test_calls_start_at_their_prefix() -> None:
    def f(g: Any) -> Any:
        return g(1, x=2)

    call = next(i for i in analyse(f.__code__).instructions if i.name == "CALL")
    assert call.kwnames == ("x",)
    assert f.__code__.co_code[call.offset] == dis.opmap["KW_NAMES"]


def test_loops_are_found() -> None:
    def f(n: int) -> int:
        for i in range(n):
            while i:
                i -= 1
        return n

    info = analyse(f.__code__)
    assert len(info.loops) >= 2
    assert all(header <= end for header, end in info.loops)


def test_code_that_is_not_recorded_says_why() -> None:
    def generator() -> Any:
        yield 1

    async def coroutine() -> None:
        pass

    assert analyse(generator.__code__).unsupported
    assert analyse(coroutine.__code__).unsupported
    assert not analyse(test_liveness.__code__).unsupported
