"""Makes a failing program smaller: statements, handlers and definitions are left out, blocks replaced by their contents, expressions by
parts of them, as long as it fails in the same way. Each attempt runs in a forked process: the failure may be a crash.
"""

from __future__ import annotations

import ast
import os
import re
import select
import signal
import time
from collections.abc import Callable, Iterator

_LIMIT = 20.0  # seconds for one attempt
_BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


def kind_of(fault: str) -> str:
    """What two faults have in common if they are probably the same one."""
    return re.sub(r"\d+|'[^']*'|\"[^\"]*\"", "…", fault)[:60]


def outcome(check: Callable[[], str]) -> str:
    """The fault that a check tells, in a process of its own; "crash: …" where it did not survive."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
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
    changed = True
    while changed:
        changed = False
        for candidate in _smaller(source):
            if time.monotonic() > end:
                return source
            if len(candidate) < len(source) and kind_of(check(candidate)) == wanted:
                source, changed = candidate, True
                break
    return source


def _smaller(source: str) -> Iterator[str]:
    """Programs with something left out, the most first."""
    count = sum(1 for _ in _edits(ast.parse(source)))
    for number in range(count):
        tree = ast.parse(source)
        for n, edit in enumerate(_edits(tree)):
            if n == number:
                edit()
                break
        try:
            made = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
            compile(made, "", "exec")
        except (SyntaxError, ValueError, RecursionError):
            continue
        yield made


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
