"""`python -m trident doctor | explain SCRIPT [ARGS…] | bench`.

Owns the command line. May import: everything.
"""

from __future__ import annotations

import argparse
import platform
import runpy
import subprocess
import sys

from rich.console import Console
from rich.table import Table

console = Console()


def doctor() -> int:
    """Print what Trident found on this machine; exit status 1 if it is off."""
    import importlib.metadata as metadata

    import torch

    from trident.support import unsupported_reason

    reason = unsupported_reason()
    table = Table(title="trident doctor", title_justify="left")
    table.add_column("what")
    table.add_column("found")
    table.add_row("python", f"{platform.python_version()} ({sys.executable})")
    for name in ("torch", "triton", "torch-mlir", "llvmlite", "bytecode"):
        try:
            table.add_row(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            table.add_row(name, "[red]not installed[/red]")
    table.add_row("GPU", torch.cuda.get_device_name() if torch.cuda.is_available() else "none (kernels run on the CPU)")
    table.add_row("layouts and symbols", "[red]" + reason + "[/red]" if reason else "[green]verified[/green]")
    if not reason:
        from trident.backend.native.symbols import operator_entries

        table.add_row("ATen operators callable natively", str(len(operator_entries())))
    console.print(table)
    return 1 if reason else 0


def explain_script(script: str, arguments: list[str]) -> int:
    """Run a script, then print the explanation of every jitted or captured function."""
    from trident.entry import all_entries

    sys.argv = [script, *arguments]
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        for entry in all_entries():
            console.print(entry.explain())
    return 0


def main() -> int:
    """Entry point."""
    parser = argparse.ArgumentParser(prog="python -m trident")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="what Trident found on this machine, and whether it is on")
    explain = commands.add_parser("explain", help="run a script and explain what Trident did in it")
    explain.add_argument("script")
    explain.add_argument("arguments", nargs=argparse.REMAINDER)
    bench = commands.add_parser("bench", help="run the benchmarks of a checkout (python -m benchmarks)")
    bench.add_argument("arguments", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if options.command == "doctor":
        return doctor()
    if options.command == "explain":
        return explain_script(options.script, options.arguments)
    return subprocess.call([sys.executable, "-m", "benchmarks", *options.arguments])


if __name__ == "__main__":
    sys.exit(main())
