"""What the opcode tables of all supported versions share.

May import: the standard library, frontend.handlers.
"""

from __future__ import annotations

import dis
from typing import Any

from trident.frontend.aborts import Leave
from trident.frontend.handlers import COMMON, Handler, build, calls, control, exceptions, matching, names, operators, stack  # noqa: F401 (they register)

# How an instruction accesses localsplus[arg]: r(ead), w(ritten).
LOCAL_ACCESS: dict[str, str] = {
    "LOAD_FAST": "r",
    "LOAD_FAST_CHECK": "r",
    "LOAD_FAST_AND_CLEAR": "rw",
    "STORE_FAST": "w",
    "DELETE_FAST": "rw",
    "LOAD_CLOSURE": "r",
    "MAKE_CELL": "rw",
    "LOAD_DEREF": "r",
    "STORE_DEREF": "r",
    "DELETE_DEREF": "r",
    "LOAD_CLASSDEREF": "r",
    "LOAD_FROM_DICT_OR_DEREF": "r",
}
NO_FALL_THROUGH = frozenset({"RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
                             "JUMP_BACKWARD_NO_INTERRUPT"})
# Only reached with an exception in flight, in code that is not recorded.
EXCEPTION_OPS = frozenset({"CLEANUP_THROW", "END_ASYNC_FOR"})
# Only in generators, coroutines, class bodies and modules, which are not recorded.
FOREIGN_OPS = frozenset({"RETURN_GENERATOR", "YIELD_VALUE", "SEND", "END_SEND", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH",
                         "GET_AWAITABLE", "GET_YIELD_FROM_ITER", "ASYNC_GEN_WRAP", "PRINT_EXPR", "IMPORT_STAR", "SETUP_ANNOTATIONS",
                         "LOAD_NAME", "STORE_NAME", "DELETE_NAME", "LOAD_CLASSDEREF", "LOAD_LOCALS", "LOAD_FROM_DICT_OR_DEREF",
                         "LOAD_FROM_DICT_OR_GLOBALS", "INTERPRETER_EXIT", "RESERVED"})
# Instructions that leave no result on the stack; every other one leaves one (what `Recorder` needs to finish after a fault).
NO_RESULT = frozenset({"STORE_ATTR", "STORE_SUBSCR", "STORE_SLICE", "STORE_GLOBAL", "STORE_DEREF", "DELETE_ATTR", "DELETE_SUBSCR",
                       "DELETE_GLOBAL", "LIST_APPEND", "SET_ADD", "MAP_ADD", "LIST_EXTEND", "SET_UPDATE", "DICT_UPDATE", "DICT_MERGE"})


def leave(rec: Any, frame: Any, ins: Any) -> None:
    """An instruction that CPython must execute."""
    raise Leave("opcode", ins.name)


def is_jump(name: str) -> bool:
    """Whether the argument of an opcode is a relative jump."""
    return dis.opmap[name] in dis.hasjrel


def jump_target(name: str, unit: int, arg: int) -> int:
    """The code unit that a jump at `unit` goes to."""
    caches: int = dis._inline_cache_entries[dis.opmap[name]]  # type: ignore[attr-defined]
    return unit + 1 + caches + (-arg if "BACKWARD" in name else arg)


def handlers_of(own: dict[str, Handler]) -> dict[str, Handler]:
    """The handlers of a version: its own ones, then the common ones; those of other versions do not occur."""
    return {name: own.get(name) or COMMON.get(name, leave) for name in dis.opmap}
