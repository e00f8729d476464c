"""Makes a failing program smaller: statements, handlers and definitions are left out, blocks replaced by their contents, expressions by
parts of them, as long as it fails in the same way. Each attempt runs in a forked process: the failure may be a crash.
"""

from __future__ import annotations

import ast
import faulthandler
import os
import re
import select
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import islice

_LIMIT = 20.0  # seconds for one attempt
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def kind_of(fault: str) -> str:
    """What two faults have in common if they are probably the same one."""
    where, _, _ = re.sub(r"call \d+, arguments \d+|reference, arguments \d+", "", fault).partition(": ")[2].partition(": ")
    if where.startswith("error"):  # which part of an exception it is tells more than the values
        return f"{where}: {'class' if where == 'error' else ''}"
    return re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "…", fault)[:60]


def outcome(check: Callable[[], str]) -> str:
    """The fault that a check tells, in a process of its own; "crash: …" where it did not survive."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        faulthandler.disable()
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(writable, check().encode()[:4000])
        except BaseException as error:
            os.write(writable, f"broken: {type(error).__name__}".encode())
        os._exit(0)
    os.close(writable)
    ready, _, _ = select.select([readable], [], [], _LIMIT)
    if not ready:
        os.kill(child, signal.SIGKILL)
    found = os.read(readable, 5000).decode(errors="replace") if ready else ""
    os.close(readable)
    _, status = os.waitpid(child, 0)
    if not ready:
        return "hang"
    return f"crash: {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else found


def minimise(source: str, check: Callable[[str], str], seconds: float) -> str:
    """The smallest program found in that time."""
    wanted, end = kind_of(check(source)), time.monotonic() + seconds
    if not wanted:  # it needs what ran before it in the process
        return source
    number, changed = 0, False
    while time.monotonic() < end:
        candidate = _smaller(source, number)
        if candidate is None:  # all have been tried
            if not changed:
                break
            number, changed = 0, False
        elif candidate and len(candidate) < len(source) and kind_of(check(candidate)) == wanted:
            source, changed = candidate, True
        else:
            number += 1
    return source


def _smaller(source: str, number: int) -> str | None:
    """The program with one thing left out (the large ones come first); None if there are not so many; "" if it is none."""
    tree = ast.parse(source)
    edit = next(islice(_edits(tree), number, None), None)
    if edit is None:
        return None
    edit()
    try:
        made = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(made, "", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return ""
    return made


def _edits(tree: ast.Module) -> Iterator[Callable[[], None]]:
    """What can be done to a tree; only one may be done."""
    nodes = list(ast.walk(tree))
    for node in nodes:
        for field in _BODIES:
            block = getattr(node, field, None)
            if not isinstance(block, list):
                continue
            for n, item in enumerate(block):
                kept = getattr(item, "name", "") == "program" or isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "CALLS"
                if not kept:
                    yield lambda b=block, n=n: _replace(b, n, [])  # type: ignore[misc]
                    inner = getattr(item, "body", None)
                    if isinstance(inner, list) and isinstance(item, ast.If | ast.For | ast.While | ast.With | ast.Try):
                        yield lambda b=block, n=n, i=inner: _replace(b, n, i)  # type: ignore[misc]
    for node in nodes:
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                for part in _parts(value):
                    yield lambda o=node, f=field, p=part: setattr(o, f, p)  # type: ignore[misc]
            elif isinstance(value, list) and field not in _BODIES:
                for n, item in enumerate(value):
                    if isinstance(item, ast.expr):
                        for part in _parts(item):
                            yield lambda v=value, n=n, p=part: v.__setitem__(n, p)  # type: ignore[misc]


def _replace(block: list[ast.AST], n: int, by: list[ast.AST]) -> None:
    block[n:n + 1] = by
    if not block:
        block.append(ast.Pass())


def _parts(value: ast.expr) -> list[ast.expr]:
    """Expressions that may stand for another: what it contains, and a constant."""
    if isinstance(value, ast.Constant | ast.Name) or isinstance(getattr(value, "ctx", None), ast.Store | ast.Del):
        return []
    parts = [child for child in ast.iter_child_nodes(value) if isinstance(child, ast.expr)]
    return [*parts[:4], ast.Constant(1)]
