"""CPython's own tests of pure Python modules, with the functions of those modules recorded: nothing may come out differently."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = os.environ.get("TRIDENT_TEST_STDLIB_CALLS", "150")
QUICK = ["textwrap=textwrap", "shlex=shlex", "string=string", "fractions=fractions", "dataclasses=dataclasses", "enum=enum",
         "json=json,json.decoder,json.encoder,json.scanner", "difflib=difflib", "configparser=configparser", "abc=abc"]
MORE = ["copy=copy", "statistics=statistics", "random=random", "calendar=calendar", "types=types", "ast=ast", "tokenize=tokenize",
        "pprint=pprint", "reprlib=reprlib", "cmd=cmd", "urlparse=urllib.parse", "ipaddress=ipaddress", "html=html",
        "htmlparser=html.parser", "fnmatch=fnmatch", "graphlib=graphlib", "optparse=optparse", "getopt=getopt", "posixpath=posixpath",
        "argparse=argparse", "contextlib=contextlib"]
# Not the recorder's doing: the wrapper's own frame is in the traceback that the test compares.
EXPECTED = {"test_exit_exception_traceback"}


def _run(tests: list[str]) -> None:
    pytest.importorskip("test.support")
    worker = Path(__file__).with_name("stdlib_worker.py")
    command = [sys.executable, str(worker), LIMIT, *(f"test.test_{test}" for test in tests)]
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500, cwd=root,
                          env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    results = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"test"')]
    assert done.returncode == 0 and len(results) == len(tests), done.stderr[-3000:]
    for result in results:
        assert not [name for name in result["new"] if name.split()[0] not in EXPECTED], result
        assert not result["faults"], result
    assert sum(result["traces"] for result in results) > 0.4 * sum(result["calls"] for result in results), "few calls were recorded"


def test_some_modules() -> None:
    _run(QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("test", MORE, ids=lambda test: test.partition("=")[0])
def test_more_modules(test: str) -> None:
    _run([test])
