"""`python -m trident doctor | explain SCRIPT [ARGS…] | bench [ARGS…]`.

Owns the command line. What must hold: `explain` runs a script as `python SCRIPT` does (its directory on the path, `sys.argv`,
`__main__`, its exit status); what follows `explain SCRIPT` and `bench` is passed on untouched.

May import: everything.
"""

from __future__ import annotations

import argparse
import os
import platform
import runpy
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

from rich.console import Console
from rich.table import Table

from trident import __version__
from trident.options import ENVIRONMENT

console = Console()

_PACKAGES = ("torch", "triton", "torch-mlir", "llvmlite", "bytecode", "numpy")


def doctor() -> int:
    """Print what a report of a fault needs; exit status 1 if Trident is off."""
    from trident.support import unsupported_reason

    reason = unsupported_reason()
    table = Table(title="trident doctor", title_justify="left")
    table.add_column("what", no_wrap=True)
    table.add_column("found", overflow="fold")
    for what, found in _facts():
        table.add_row(what, found)
    table.add_row("layouts and symbols", f"[red]{reason}[/red]" if reason else "[green]verified[/green]")
    if not reason:
        for what, found in _native_facts():
            table.add_row(what, found)
    console.print(table)
    return 1 if reason else 0


def _facts() -> Iterator[tuple[str, str]]:
    """What can be told of any machine."""
    import importlib.metadata as metadata

    import torch

    yield "trident", f"{__version__}, at {os.path.dirname(__file__)}"
    yield "python", f"{platform.python_version()} ({platform.python_compiler()}; {sys.executable})"
    yield "platform", f"{platform.platform()}, {os.cpu_count()} CPUs, {torch.get_num_threads()} threads"
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, "[red]not installed[/red]"
    yield "torch build", f"{torch.version.git_version}, CUDA {torch.version.cuda}, debug {torch.version.debug}"
    if torch.cuda.is_available():
        for n in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(n)
            yield f"GPU {n}", f"{torch.cuda.get_device_name(n)}, compute capability {major}.{minor}"
    else:
        yield "GPU", "none (kernels run on the CPU)"
    for name in ENVIRONMENT:
        yield name, os.environ.get(name, "not set")


def _native_facts() -> Iterator[tuple[str, str]]:
    """What is known once everything has been verified."""
    from trident.backend.native import keys
    from trident.backend.native.symbols import operator_entries
    from trident.backend.triton import configs

    yield "ATen operators callable natively", str(len(operator_entries()))
    yield "calls below autograd", "verified" if keys.current() is not None else "[red]off: the layout of dispatch keys did not verify[/red]"
    known = configs.TRITON_FROM <= configs.triton_version() < configs.TRITON_BEFORE
    yield "native Triton launches", f"for {', '.join(configs.available())}" if known else "[red]off: unknown version of Triton[/red]"


def explain_script(script: str, arguments: list[str]) -> int:
    """Run a script, then print the explanation of every jitted or captured function."""
    from trident.entry import all_entries

    sys.argv = [script, *arguments]
    try:
        if os.path.isdir(script) or script.endswith((".zip", ".pyz", ".pyc")):
            runpy.run_path(script, run_name="__main__")
        else:
            _run_source(script)
    finally:
        for entry in all_entries():
            console.print(entry.explain())
    return 0


def _run_source(script: str) -> None:
    """A file of Python, as the main module that stays."""
    with open(script, "rb") as file:
        path = os.path.join(os.getcwd(), script)  # as CPython: absolute, otherwise as it was given
        code = compile(file.read(), path, "exec", dont_inherit=True)
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    module = ModuleType("__main__")
    module.__file__ = path
    module.__dict__.update(__builtins__=sys.modules["builtins"], __cached__=None)
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def main(arguments: list[str] | None = None) -> int:
    """Entry point."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["bench"]:  # argparse would take the options that follow for its own
        return subprocess.call([sys.executable, "-m", "benchmarks", *arguments[1:]])
    parser = argparse.ArgumentParser(prog="python -m trident")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what Trident found on this machine, and whether it is on")
    explain = commands.add_parser("explain", help="run a script and explain what Trident did in it")
    explain.add_argument("script")
    explain.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own").required = False
    commands.add_parser("bench", help="run the benchmarks of a checkout (python -m benchmarks)")
    options = parser.parse_args(arguments)
    if options.command == "doctor":
        return doctor()
    if not os.path.exists(options.script):
        parser.error(f"no file {options.script!r}")
    return explain_script(options.script, options.arguments)


if __name__ == "__main__":
    sys.exit(main())
