"""A fault of Trident itself never reaches the user: each call has its own result or exception, its side effects happen once, and
`explain` has the reason. Faults are put into every stage, see `STAGES`; `fault_scenarios` says how."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fault_scenarios import SCENARIOS, Injected, fault, plainly

import trident
from trident.api import entry_of

# Function of Trident -> the scenarios in which it is run.
STAGES: dict[str, tuple[str, ...]] = {
    # the entry: what comes before a recording, and after it
    "entry:Entry._answer": ("roots", "modules", "hooked"),
    "entry:Entry._sits_out": ("roots",),
    "entry:Entry._note_miss": ("roots", "exceptions"),
    "varying:Varying.note_miss": ("roots",),
    "varying:Varying.note_exit": ("bridges",),
    "patience:Patience.enough": ("bridges", "exceptions"),
    "patience:further": ("bridges",),
    "backend.misses:first_failure": ("roots",),
    "entry:Entry._generalise": ("roots", "modules"),
    "entry:Entry._is_crowded": ("roots",),
    "entry:Entry._may_record": ("roots", "hooked"),
    "entry:Entry._add": ("roots",),
    "entry:Entry._current": ("roots", "bridges"),
    "entry:Entry._execute": ("roots", "bridges"),
    "entry:Entry._finish": ("roots", "bridges", "exceptions", "modules", "launches", "hooked"),
    "entry:Entry._compile": ("roots", "bridges"),
    "entry:Entry._bridge": ("bridges", "exceptions", "hooked"),
    # recording
    "frontend.recorder:begin": ("roots", "exceptions", "modules", "hooked"),
    "frontend.recorder:begin_bridge": ("bridges", "hooked"),
    "frontend.analysis:analyse": ("roots", "bridges"),
    "ir.builder:TraceBuilder.__init__": ("roots", "bridges"),
    "ir.builder:TraceBuilder.ret": ("roots", "bridges"),
    "ir.builder:TraceBuilder.op": ("roots", "bridges", "exceptions", "launches"),
    "ir.builder:TraceBuilder.call": ("roots", "bridges"),
    "ir.builder:TraceBuilder.guard": ("roots", "bridges"),
    "ir.builder:TraceBuilder.launch": ("launches",),
    "frontend.recorder:Recorder.step": ("roots", "bridges"),
    "frontend.recorder:Recorder._finish": (),
    "frontend.recorder:Recorder.release": ("roots", "bridges", "exceptions"),
    "frontend.recorder:Recorder._blame": ("exceptions",),
    "frontend.core:Core.may_exit": ("roots", "bridges"),
    "frontend.snapshots:SnapshotWriter.take": ("roots", "bridges", "exceptions"),
    "frontend.snapshots:Reviver.frame": ("bridges",),
    "frontend.raising:Raising._catch": ("exceptions",),
    "frontend.raising:Raising._write": ("exceptions",),
    "boundary:describe_error": ("exceptions",),
    # passes, lowering, LLVM, publication
    "backend.passes:run_passes": ("roots", "bridges", "modules"),
    "backend.lowering.lower:lower": ("roots", "bridges", "launches"),
    "backend.scm:HostProgram._build_tables": ("roots", "bridges"),
    "backend.native.engine:compile_ir": ("roots", "bridges"),
    "backend.native.engine:parse": ("roots",),
    "backend.scm:SCM.add": ("roots", "hooked"),
    "backend.scm:SCM.attach_bridge": ("bridges",),
    "backend.scm:SCM._publish": ("roots",),
    "backend.dispatch:Dispatch.publish": ("roots",),
    "backend.selection:Selection.__init__": ("roots",),
    "backend.selection:Selection.text": ("roots",),
    # launch sites
    "backend.triton.launch:make_site_state": ("launches",),
    "backend.triton.launch:SiteState._launch": ("launches",),
    "backend.triton.launch:SiteState._due": ("launches",),
    "backend.triton.launch:SiteState._learn": ("launches",),
    "backend.triton.launch:SiteState._entry": ("launches",),
    "backend.triton.launch:SiteState._refresh": (),
    "backend.triton.launch:SiteState._append": ("launches",),
    "backend.triton.launch:SiteState._publish": ("launches",),
    "backend.triton.launch:SiteState._throttle": (),
    "backend.triton.guards:snapshot": ("launches",),
    "backend.triton.guards:take": ("launches",),
    "backend.triton.specialize:plan_of": ("launches",),
    # the frame hook
    "api:_installed_hook": ("hooked",),
    "entries:of_frame": ("hooked",),
    "entries:wanted": ("hooked",),
    "capture:reaches_tensors": ("hooked",),
    # noting the fault itself
    "log:write": ("roots", "bridges", "exceptions", "launches", "hooked"),
}


@pytest.fixture(scope="module")
def expected() -> dict[str, object]:
    found = {name: scenario(plainly) for name, scenario in SCENARIOS.items()}
    for name, scenario in SCENARIOS.items():
        assert scenario(trident.jit) == found[name], name
    return found


@pytest.mark.filterwarnings("ignore:trident")
@pytest.mark.parametrize("path, name", [(path, name) for path, names in STAGES.items() for name in names])
def test_a_fault_does_not_reach_the_user(path: str, name: str, expected: dict[str, object]) -> None:
    with fault(path) as raised:
        assert SCENARIOS[name](trident.jit) == expected[name]
    assert raised, "the stage was not run"


X = torch.arange(4.0)


@pytest.mark.parametrize("path", ["entry:Entry._note_miss", "frontend.recorder:begin", "frontend.recorder:Recorder.step",
                                  "backend.passes:run_passes", "backend.scm:SCM._publish", "entry:Entry._finish"])
def test_the_reason_is_kept(path: str) -> None:
    function = trident.jit(lambda x: x + 1)
    with fault(path):
        assert function(X).equal(X + 1)
    assert "Injected: injected" in trident.explain(function).aborts[0].text
    assert "injected" in str(trident.explain(function))


def test_faults_end() -> None:
    """After a few faults the function is left to CPython; reset() tries again."""
    function = trident.jit(lambda x: x + 1)
    with fault("entry:Entry._note_miss") as raised:
        for _ in range(10):
            assert function(X).equal(X + 1)
    assert len(raised) == 3 and "left to CPython" in trident.explain(function).status
    function.reset()
    assert function(X).equal(X + 1) and function(X).equal(X + 1) and trident.explain(function).hits == 1


@pytest.mark.parametrize("path", ["entry:Entry._note_miss", "entry:Entry._finish"])
def test_strict_says_so_after_the_call(path: str) -> None:
    journal = []

    @trident.jit(strict=True)
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + len(journal)

    with fault(path), pytest.raises(trident.StrictError, match="injected"):
        function(X)
    assert function(X).equal(X)


def test_the_hooks_decision() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    with fault("entries:wanted"), trident.frame_hook():
        assert function(X).equal(X + 1)
    assert "left to CPython" in trident.explain(function).status and "injected" in trident.explain(function).status


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ZeroDivisionError])
def test_what_the_user_raises_passes(error: type[BaseException]) -> None:
    journal = []

    @trident.jit
    def function(x: torch.Tensor, error: Any) -> torch.Tensor:
        journal.append(1)
        if error is not None:
            raise error("mine")
        return x

    for count in range(1, 6):
        with pytest.raises(error, match="mine"):
            function(X, error)
        assert len(journal) == count


def test_an_exceptions_own_code_is_not_run() -> None:
    journal = []

    class Loud(Exception):
        def __str__(self) -> str:
            journal.append("str")
            raise Injected("in __str__")

    @trident.jit
    def function(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        raise Loud(y)

    for _ in range(3):
        with pytest.raises(Loud):
            function(X)
    assert journal == [] and entry_of(function).aborts[0].text == "Loud"


def test_why_launches_go_through_python() -> None:
    made: list[Any] = []

    def jit(function: Any) -> Any:
        made.append(trident.jit(function))
        return made[-1]

    with fault("backend.triton.launch:SiteState._learn"):
        assert SCENARIOS["launches"](jit) == SCENARIOS["launches"](plainly)
    explanation = trident.explain(made[0])
    assert any("_scaled" in reason and "injected" in reason for s in explanation.specializations for reason in s.launch_reasons)
    assert "launches through Triton" in str(explanation)
