"""Who may import whom inside the package, read from the sources (every import statement counts, wherever it stands).

The contract `trident.ir` knows neither half, the halves know the contract but not each other, `trident.api` joins them, and
llvmlite is used in one place only.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

SHARED = ("trident.options", "trident.log", "trident.errors", "trident.boundary", "trident.locks")
# Longest matching prefix decides. What a module may import of trident, besides what has the same prefix as itself.
ALLOWED: dict[str, tuple[str, ...]] = {
    "trident": ("trident",),  # __init__, __main__: the outer face
    "trident.api": ("trident",),  # joins the halves
    "trident.options": SHARED,
    "trident.log": SHARED,
    "trident.errors": SHARED,
    "trident.boundary": SHARED,
    "trident.locks": (),
    "trident.ir": (),
    "trident.frontend": ("trident.ir", *SHARED),
    "trident.backend": ("trident.ir", *SHARED),
}
# Third-party packages that only one part of trident may import.
HOMES: dict[str, str] = {"llvmlite": "trident.backend.native"}
OUTSIDE = ("tests", "examples", "benchmarks", "llm")


def within(module: str, prefix: str) -> bool:
    return module == prefix or module.startswith(prefix + ".")


def imported(source: str, module: str, is_package: bool) -> Iterator[tuple[int, str]]:
    """Line and full name of everything that a module's source imports. `from a import b` counts as a.b."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*base, *(node.module.split(".") if node.module else [])])
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def violations(source: str, module: str, is_package: bool = False) -> list[str]:
    rule = max((prefix for prefix in ALLOWED if within(module, prefix)), key=len)
    found = []
    for line, name in imported(source, module, is_package):
        top = name.split(".")[0]
        if top == "trident":
            good = within(name, rule) or any(within(name, prefix) for prefix in ALLOWED[rule])
        elif top in HOMES:
            good = within(module, HOMES[top])
        else:
            good = top not in OUTSIDE
        if not good:
            found.append(f"{module}:{line} imports {name}")
    return found


def test_package_follows_the_rule() -> None:
    files = sorted((ROOT / "trident").rglob("*.py"))
    assert files
    found = []
    for file in files:
        parts = file.relative_to(ROOT).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        found += violations(file.read_text(), ".".join(parts[:-1] if is_package else parts), is_package)
    assert found == []


@pytest.mark.parametrize(
    ("module", "source", "good"),
    [
        ("trident.api", "from trident.frontend import recorder\nfrom .backend import scm", True),
        ("trident.ir.trace", "from . import ops\nfrom .ops import OPS\nimport torch", True),
        ("trident.ir.trace", "from ..errors import TridentError", False),
        ("trident.ir.trace", "import trident.backend", False),
        ("trident.frontend.recorder", "from trident import ir, log, options\nfrom ..ir import ops", True),
        ("trident.frontend.recorder", "from ..backend import scm", False),
        ("trident.frontend.recorder", "from trident import api", False),
        ("trident.frontend.recorder", "def f():\n    from trident.backend.scm import Scm", False),
        ("trident.backend.scm", "from trident.frontend.guards import Guard", False),
        ("trident.backend.scm", "from .native import engine\nfrom ..ir.ops import OPS\nfrom ..log import log", True),
        ("trident.backend.scm", "import llvmlite.ir", False),
        ("trident.backend.native.engine", "from llvmlite import binding", True),
        ("trident.frontend.hook", "import llvmlite", False),
        ("trident.log", "from .options import OPTIONS", True),
        ("trident.log", "from .ir import ops", False),
        ("trident.api", "import benchmarks", False),
    ],
)
def test_checker(module: str, source: str, good: bool) -> None:
    assert (violations(source, module) == []) is good


def test_checker_resolves_relative_imports_of_packages() -> None:
    assert violations("from .recorder import record\nfrom ..ir import ops", "trident.frontend", is_package=True) == []
    assert violations("from ..backend import scm", "trident.frontend", is_package=True) == [
        "trident.frontend:1 imports trident.backend.scm"
    ]
