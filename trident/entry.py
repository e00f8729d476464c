"""The life of one jitted function: miss, record, compile, publish, side exit, bridge, retire.

Owns `Entry`, the state behind a native callable or a captured code object, and the policy (thresholds, penalties). What must
hold: an internal failure never reaches the user (the call finishes in CPython with the right result and the reason is kept for
`explain`); user exceptions pass through unchanged.

May import: everything below api (it and api.py are where frontend and backend meet).
"""

from __future__ import annotations

import time
import weakref
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

import torch

from trident import locks, log
from trident.backend import passes
from trident.backend.dispatch import sweep
from trident.backend.exits import ExitSite
from trident.backend.native.callable import DISABLED, LEFT, EntryCell
from trident.backend.native.evaluator import LEAVE_FRAME, suppressed
from trident.backend.native.jumps import Jump, run
from trident.backend.native.resume import call_as
from trident.backend.scm import SCM, HostProgram, Retired
from trident.boundary import UsersCall, answer, carry_out, describe_error
from trident.capture import IDLE, Account, idle, reaches_tensors
from trident.errors import TridentError
from trident.frontend.loops import Onward
from trident.frontend.recorder import Outcome, Recorder, begin, begin_bridge, describe_fault
from trident.ir import Snapshot, Trace, rebuild
from trident.ir.ops import JUMP
from trident.misses import Misses
from trident.options import Options
from trident.patience import Patience, Way, further
from trident.promotion import Promotion, promote
from trident.report import Abort, ExitReport, Explanation, SpecializationReport, Timing
from trident.services import services
from trident.shadow import ShadowError
from trident.strangers import Strangers
from trident.varying import Varying

if TYPE_CHECKING:
    from collections.abc import Callable


class StrictError(TridentError):
    """strict=True, and something could not be recorded or stayed opaque."""


@dataclass(slots=True)
class Specialization:
    """A compiled trace with what `explain` tells about it."""

    trace: Trace
    program: HostProgram
    timing: Timing
    identified: dict[Any, object] = field(default_factory=dict)  # number of an argument -> the object that it must be
    way: Way = ()  # that leads there
    promotion: Promotion | None = None  # of a root trace that may be replayed


_LOOKS = 3
"""Frames of a captured function without a tensor among the arguments after which the hook forgets the function."""

_STRANGERS = 8
"""Misses in a row because an argument is another object after which the function is left to CPython."""

_LONGEST_SKIP, _KEPT_ABORTS, _DETOURS = 1024, 64, 16

_all: weakref.WeakSet[Entry] = weakref.WeakSet()
_recording = locks.lock(awaited=0)
"""One recording at a time in the process; another thread that misses meanwhile runs its call in CPython."""


def call_bound(function: FunctionType, code: CodeType, bound: tuple[object, ...]) -> object:
    """Call a function with the arguments that were bound for a code object (localsplus order), as the original call would have.

    It runs that code, whatever the function has by now."""
    n, k = code.co_argcount, code.co_kwonlyargcount
    args, keywords = list(bound[:n]), dict(zip(code.co_varnames[n : n + k], bound[n : n + k], strict=True))
    rest: list[Any] = list(bound[n + k :])
    if code.co_flags & 0x04:
        args += rest.pop(0)
    if code.co_flags & 0x08:
        keywords.update(rest.pop(0))
    return call_as(function, code, (*args, *keywords.values()), tuple(keywords))


def continue_from(snapshot: Snapshot | None, values: list[object], error: BaseException | None) -> object:
    """Go on in CPython where a trace was left."""
    assert snapshot is not None
    frames = rebuild(snapshot, values)
    values.clear()  # the frames alone hold them
    return services.resume(frames, error)


def _continue_uncaptured(snapshot: Snapshot | None, values: list[object]) -> object:
    """The same where a bridge will follow what is called now: the hook leaves it alone."""
    with suppressed():
        return continue_from(snapshot, values, None)


class Entry:
    """State and policy of one function. `name` is what users know it by: its qualified name, or that of a module's class."""

    def __init__(self, function: FunctionType, options: Options, name: str = "", *, captured: bool = False) -> None:
        self.function, self.options = function, options
        self.captured = Account() if captured else None  # only the hook has it: nobody has asked for this very function
        self.name = name or function.__qualname__
        self.code: CodeType = function.__code__  # that everything here is about
        self.cell = EntryCell(code=id(self.code))
        self.specializations: list[Specialization] = []
        self.aborts: list[Abort] = []
        self.misses = Misses(self.name)
        self.evicted = 0
        self.side_exits = 0
        self.failed = 0  # recordings in a row that gave no trace
        self.detours = 0  # recordings that ended at a callee which the next one does not follow
        self.skip = 0  # misses that go to CPython before the next recording
        self.raised = 0  # recordings in a row that ended with an exception of the user's
        self.others = Strangers(options.generalised)  # arguments that are other objects at each call
        self.strangers = 0  # misses in a row because an argument was another object
        self.hits_seen = 0  # hits at the last miss
        self.without_tensors = 0  # frames that the hook left alone
        self.serves_others = False  # it has missed for another function of the same code, too
        self.crowded = ""  # why some misses are left to CPython: it would thrash
        self.retired = ""  # why the function is left to CPython, "" while it is not
        # Of the last recording whose trace would not have applied to its own next call: objects by number of the argument, opaque calls.
        self._unpublished: tuple[dict[Any, object], int] = ({}, 0)
        self._scm: SCM | None = None
        self._lock = locks.lock()  # held while it is dropped with all that goes with it, and while something is added to that
        self._visitors: set[object] = set()  # a miss's handling each, which may run programs by itself
        self._patience = Patience(options)
        self._varying = Varying(options.demoted)
        _all.add(self)

    # ------------------------------------------------------------------------------------------------------------ miss
    def _current(self) -> SCM | None:
        """The specialization cache module, made at first need. None: another thread is dropping it right now."""
        if not self._lock.acquire(blocking=False):
            return None
        try:
            if self._scm is None:
                self._scm = SCM(self.name, self.cell, self.on_exit, self._visitors)
            return self._scm
        finally:
            self._lock.release()

    def miss(self, bound: tuple[object, ...], code: CodeType, function: FunctionType | None = None) -> object:
        """No specialization matched: record one while executing the call, or leave the call to CPython.

        code: the one that the arguments were bound for, which the call has to its end, whatever code its function is given meanwhile.
        function: the one that is called, where it is another of the same code (a closure that a frame hook has captured).
        """
        called = function or self.function
        self.serves_others |= called is not self.function
        call = UsersCall(lambda: self._leave(called, code, bound))
        visitor = object()
        self._visitors.add(visitor)
        try:
            result = carry_out(call, lambda: self._answer(call, called, code, bound), lambda error: self._faulted(call, error))
            return run(result) if type(result) is Jump else result
        finally:
            self._visitors.discard(visitor)
            sweep()

    def _leave(self, function: FunctionType, code: CodeType, bound: tuple[object, ...]) -> object:
        """Run a call in CPython."""
        result = call_bound(function, code, bound)
        self.skip //= 2  # it returned: waiting for calls that do not raise was right, and need not last
        return result

    def _promote(self, call: UsersCall, arguments: tuple[object, ...]) -> bool:
        """Whether the call was missed so that a specialization may become a graph. It is left to CPython then."""
        scm = self._scm
        due = scm.due() if scm is not None else []
        if scm is None or not due:
            return False
        promotions = {s.program: s.promotion for s in self.specializations if s.promotion is not None}
        found = promote(scm, [(root, promotions[root]) for root in due if root in promotions], arguments, self.on_exit, _recording)
        if found is not None and found.given_up and self.options.strict and self.options.replay == "always":
            call.complaint = StrictError(f"{self.name} is not replayed: {found.why}")
        return found is not None

    def _answer(self, call: UsersCall, function: FunctionType, code: CodeType, bound: tuple[object, ...]) -> None:
        if code is self.code and self._promote(call, (*bound, function)):
            return
        if self.retired or self._sits_out() or self._is_crowded() or not _recording.acquire(blocking=False):
            return
        try:
            if code is not self.code:  # it has been assigned: nothing that is known holds for it
                self.reset()
                self.cell.code, self.code = id(code), code
            self._note_miss((*bound, function))
            opaque = self._generalise(bound)
            if not self._may_record(call) or (scm := self._current()) is None:
                return
            start = time.perf_counter()
            outcome = self._execute(call, begin(function, code, bound, services, self.options))
            if opaque is not None and outcome.error is None:
                if outcome.trace is not None and len(outcome.trace.opaque_calls) > opaque:
                    self.others.fix(for_good=False)
                    call.complaint = self._opaque_complaint(outcome.trace)
                    return
                if outcome.abort is not None:
                    self.others.fix(for_good=True)
            self._finish(call, outcome, start, scm, lambda trace: self._add(scm, trace, outcome.onward))
        finally:
            _recording.release()

    def _execute(self, call: UsersCall, recorder: Recorder, values: list[object] | None = None) -> Outcome:
        """Let the recorder execute the call. values: those that the recorder continues with; its frames alone are to hold them."""
        if self.captured is not None:
            self.captured.recordings += 1
            recorder.most_opaque = self._opaque_left(bridge=not recorder.in_entry)
        with suppressed():
            call.begin()
            if values is not None:
                values.clear()
            outcome = recorder.run()
            onward = outcome.onward
            call.ended_by(outcome.unwrap if onward is None else lambda: continue_from(onward.target.snapshot, onward.values, None))
        return outcome

    def _opaque_left(self, *, bridge: bool) -> int:
        """How many opaque calls another trace may have."""
        used = sum(len(s.trace.opaque_calls) for s in self.specializations)
        return max(self.options.max_opaque_calls * (len(self.roots) + (not bridge)) - used, 0)

    def _faulted(self, call: UsersCall, error: Exception) -> None:
        """Trident itself failed: the call goes on without it, the reason is kept."""
        call.complaint = self._aborted(self._abort_of_all("internal", describe_fault(error)))

    def _abort_of_all(self, reason: str, text: str) -> Abort:
        """An abort that no line of the function is to blame for."""
        return Abort(reason, text, self.code.co_filename, self.code.co_firstlineno)

    def _generalise(self, arguments: tuple[object, ...]) -> int | None:
        """Where a specialization matches all but an argument's identity, read that argument at run time from now on.

        What was compiled for one object is dropped. How many opaque calls the recording may have, None for any."""
        recorded = *((s.identified, len(s.trace.opaque_calls)) for s in self.roots), self._unpublished
        found, opaque = self.others.generalise(arguments, recorded)
        if found:
            log.write("misses", f"{self.name}: another object each time, read at run time: arguments {sorted(map(str, found))}")
            self.forget()
            self.strangers = 0
        return opaque

    def _sits_out(self) -> bool:
        """Whether this miss is left to CPython: torch.jit.trace is at work, or recordings ended with exceptions lately."""
        if torch._C._get_tracing_state() is not None:
            return True
        if self.skip:
            self.skip -= 1
            return True
        return False

    def _may_record(self, call: UsersCall) -> bool:
        """Whether this miss is to be recorded. A function that would go on missing is left to CPython, a strict one says so each time."""
        if self._is_full and not self.misses.earns_another(self.cell.hits, self.options.max_specializations):
            why = f"more than {self.options.max_specializations} specializations; last miss: {self.misses.latest}"
        elif self.strangers >= _STRANGERS:
            why = f"called with another object each time; last miss: {self.misses.latest}"
            if not self.options.strict:
                self.forget()  # each specialization keeps such an object alive
                self.retired = why
        else:
            return True
        if self.options.strict:
            call.complaint = StrictError(f"{self.name} is not compiled for this call: {why}")
        elif self.captured is not None:
            self._leave_frames(why)
        elif self.retired:
            self.retire(why)
        elif not self.crowded:
            self.crowded = why
            self._warn(why)
        return False

    @property
    def _is_full(self) -> bool:
        return len(self.roots) >= self.options.max_specializations

    def _is_crowded(self) -> bool:
        """Whether this miss is left to CPython, as one before, because the function has all the specializations that it may have."""
        return bool(self.crowded) and self._is_full and not self.misses.has_earned(self.cell.hits, self.options.max_specializations)

    def _add(self, scm: SCM, trace: Trace, onward: Onward | None) -> HostProgram:
        """Publish a root trace; where there are too many, in the place of the one that has been used least."""
        if not self._is_full:
            return scm.add(trace)
        program, dropped = scm.add_for_another(trace, onward.target.program if onward is not None else None)
        gone = set(map(id, dropped))
        self.evicted += 1
        self.specializations = [s for s in self.specializations if id(s.program) not in gone]
        for header in self.options.loops.values():
            header.targets = [target for target in header.targets if id(target.program) not in gone]
        self._patience.drop({site for other in dropped for site in other.exits})
        log.write("record", f"{self.name}: the specialization that was used least makes room")
        return program

    @property
    def roots(self) -> list[Specialization]:
        return [s for s in self.specializations if s.trace.parent is None]

    def miss_of_frame(self, frame: tuple[object, ...], code: CodeType) -> object:
        """The same for a frame that the hook has captured (its bound arguments, then its function): frames without tensors are
        left alone, after a few for ever. So are those of code that their function does not have any more."""
        *arguments, function = frame
        bound = tuple(arguments)
        assert isinstance(function, FunctionType)
        if function.__code__ is not code:
            return LEAVE_FRAME
        if self._scm is not None and self._scm.is_due:
            return self.miss(bound, code, function)
        if self.retired or not answer(lambda: reaches_tensors(bound), False):
            self.without_tensors += 1
            if self.without_tensors >= _LOOKS and not self.specializations:
                self.cell.flags |= LEFT
            return LEAVE_FRAME
        if self.captured is not None and (self._sits_out() or not self._earns_recording(self.captured)):
            return LEAVE_FRAME
        return self.miss(bound, code, function)

    def _earns_recording(self, account: Account) -> bool:
        """Whether a frame that only the hook captures is recorded where it misses. One that hardly ever hits is left for good."""
        if account.allows(self.cell.hits) and not self.crowded:
            return True
        if self.cell.hits < account.recordings:
            self._leave_frames(f"recorded {account.recordings} times for {self.cell.hits} hits")
        return False

    def _leave_frames(self, why: str) -> None:
        """The hook gives a function up for good."""
        self.forget()  # its specializations keep objects alive
        self.retire(f"{why}; what it calls is captured by itself", quiet=True)
        self.cell.flags |= LEFT

    def _note_miss(self, arguments: tuple[object, ...]) -> None:
        roots = self.roots
        kinds = self.misses.note([specialization.trace for specialization in roots], arguments)
        for specialization in roots:
            self._varying.note_miss(specialization.trace)
        self.strangers = self.strangers + 1 if kinds == {"identity"} and self.cell.hits == self.hits_seen else 0
        self.hits_seen = self.cell.hits

    def _finish(self, call: UsersCall, outcome: Outcome, start: float, scm: SCM, publish: Callable[[Trace], HostProgram], *,
                bridge: bool = False, way: Way = ()) -> None:
        """Compile and publish what was recorded, in the SCM that there was when the recording began. A call that has come to a loop goes
        on there."""
        record_ms = (time.perf_counter() - start) * 1e3
        if outcome.faults:
            fault = ShadowError(f"{self.name}: the trace does not say what the recorder did:\n  " + "\n  ".join(outcome.faults))
            self._aborted(self._abort_of_all("internal", str(fault)))
            call.complaint = fault
            return
        complaint: StrictError | None = None
        program: HostProgram | None = None
        if outcome.abort is not None:
            abort = Abort(outcome.abort.reason, outcome.abort.text, outcome.abort.file, outcome.abort.line)
            complaint = self._aborted(abort, progress=bool(outcome.blamed), bridge=bridge)
        elif outcome.overwritten:  # the next call records it with these demoted
            self.options.demoted.update(outcome.overwritten)
            self._unpublished = outcome.identified, len(outcome.trace.opaque_calls) if outcome.trace is not None else 0
            text = "the function changes what its trace would rest on"
            if self.failed:  # once is normal; again and again, with other objects, is not
                complaint = self._aborted(self._abort_of_all("overwritten", text))
            else:
                self.failed = 1
        elif outcome.trace is not None and not (self.captured is not None and self._is_idle(self.captured, outcome, outcome.trace)):
            program, complaint = self._compile(outcome, outcome.trace, record_ms, scm, publish, way)
        call.complaint = call.complaint or complaint
        if outcome.onward is not None and program is not None:
            self._go_on(call, outcome.onward, program, scm)

    def _is_idle(self, account: Account, outcome: Outcome, trace: Trace) -> bool:
        """Whether what a captured frame has executed is not worth its compilation: to its end there was nothing for Trident in it."""
        found = outcome.onward is None and idle([trace, *(specialization.trace for specialization in self.specializations)])
        if found:
            account.idle += 1
            log.write("record", f"{self.name}: no tensor operation in it")
            if account.idle >= IDLE:
                self._leave_frames("no tensor operation in it")
        return found

    def _go_on(self, call: UsersCall, onward: Onward, program: HostProgram, scm: SCM) -> None:
        """The call has arrived at the header of a loop. program: of the trace that leads there, or is the loop."""
        target, values = onward.target, onward.values
        if program.trace.loops:
            address = program.address
        elif target.program is not None:
            address = _jump_of(program).bridge = target.program.address
        else:
            if self._bridges < self.options.max_bridges:
                self._record_loop(call, onward, _jump_of(program), scm)
            return
        jump = Jump((address, values))
        call.ended_by((lambda: jump) if call.complaint is None else lambda: run(jump))

    def _record_loop(self, call: UsersCall, onward: Onward, site: ExitSite, scm: SCM) -> None:
        """Record the loop that the call has come to. site: where the trace before ends."""
        target = onward.target

        def publish(trace: Trace) -> HostProgram:
            target.program = scm.attach_bridge(site, trace)
            onward.header.targets.append(target)
            return target.program  # type: ignore[no-any-return]

        start = time.perf_counter()
        recorder = begin_bridge(target.snapshot, onward.values, services, self.options, loop=target)
        self._finish(call, self._execute(call, recorder, onward.values), start, scm, publish, bridge=True, way=self._way_to(site))

    def _opaque_complaint(self, trace: Trace) -> StrictError | None:
        """What a strict function raises for a trace with opaque calls."""
        if not self.options.strict or not trace.opaque_calls:
            return None
        call = trace.opaque_calls[0]
        return StrictError(f"{self.name}: {call.callee} is called opaquely ({call.reason})\n  at {call.file}:{call.line}\n"
                           "  strict=True allows no opaque calls: rewrite that line, or drop strict=True")

    def _compile(self, outcome: Outcome, trace: Trace, record_ms: float, scm: SCM, publish: Callable[[Trace], HostProgram],
                 way: Way) -> tuple[HostProgram | None, StrictError | None]:
        if (complaint := self._opaque_complaint(trace)) is not None:
            return None, complaint
        label = f"{self.function.__name__}.{len(self.specializations)}"
        try:
            log.dump(self.options.dump, label, "recorded.mlir", trace.__str__)
            start = time.perf_counter()
            passes.run_passes(trace, check=self.options.check > 0)
            passed = time.perf_counter()
            log.dump(self.options.dump, label, "mlir", trace.__str__)
            if log.on("ir"):
                log.write("ir", f"{self.name}\n{trace}")
            begun = time.perf_counter()
            program = publish(trace)
            published = time.perf_counter() - begun - program.compile_seconds
            log.dump(self.options.dump, label, "ll", lambda: program.llvm_ir)
        except Retired:
            return None, None
        except Exception as e:  # never the user's fault, never the user's problem
            return None, self._aborted(self._abort_of_all("compile", describe_fault(e)))
        llvm = program.compile_seconds - program.lowering_seconds
        timing = Timing(record_ms, *(1e3 * seconds for seconds in (passed - start, program.lowering_seconds, llvm, published)))
        self.failed = self.raised = 0
        self._unpublished = {}, 0
        self.cell.flags &= ~LEFT  # calls of the function's callable had tensors
        made = Specialization(trace, program, timing, outcome.identified, further(way, trace))
        with self._lock:
            if self._scm is scm:
                self.specializations.append(made)
                if self.options.replay != "off" and trace.parent is None and not trace.loops:
                    made.promotion = Promotion(trace, self.options.replay)
                    scm.await_hits(program, made.promotion.first)
        log.write("record", f"{self.name}: {'bridge' if trace.parent else 'specialization'} {len(self.specializations) - 1}, "
                            f"record {timing.record:.1f} ms, compile {timing.compile:.1f} ms")
        for guard in trace.guards:
            log.write("guards", f"{self.name}: {guard.kind}: {guard.text} ({guard.file}:{guard.line})")
        for opaque in trace.opaque_calls:
            log.write("opaque", f"{self.name}: {opaque.callee}: {opaque.reason} ({opaque.file}:{opaque.line})")
        return program, None

    def _aborted(self, abort: Abort, *, progress: bool = False, bridge: bool = False) -> StrictError | None:
        """Note an abort and its consequences; what a strict function raises for it.

        progress: the next recording will get further, because what ended this one is an opaque call from now on.
        """
        if len(self.aborts) < _KEPT_ABORTS:
            self.aborts.append(abort)
        log.write("aborts", f"{self.name}: {abort.reason}: {abort.text} ({abort.file}:{abort.line})")
        if abort.reason == "raised":  # no fault of the function as such: record again, but ever more seldom
            if not bridge:
                self.raised += 1
                self.skip = min(2**self.raised, _LONGEST_SKIP)
            return None
        if abort.reason == "opaque":
            self._leave_frames(abort.text)
            return None
        self.detours += progress
        self.failed += not progress or self.detours > _DETOURS
        if self.options.strict:
            return StrictError(f"{self.name} could not be recorded: {abort.reason}: {abort.text}\n  at {abort.file}:{abort.line}")
        if self.failed >= self.options.max_aborts:
            self.retire(f"recording failed {self.failed} times in a row; last: {abort.reason}: {abort.text}", quiet=True)
        return None

    def retire(self, why: str, *, quiet: bool = False) -> None:
        """Leave the function's misses to CPython from now on; what is compiled stays in use."""
        self.retired = why
        if not self.specializations:
            self.cell.flags |= DISABLED
        if not quiet:
            self._warn(why)

    def _warn(self, why: str) -> None:
        log.warn(f"trident: {self.name} runs eagerly where nothing compiled matches: {why}")

    # ------------------------------------------------------------------------------------------------------------ exits
    def on_exit(self, site: ExitSite, values: list[object], error: BaseException | None) -> object:
        """A hit left its trace: record a bridge where that pays, else continue in CPython."""
        call = UsersCall(lambda: continue_from(site.snapshot, values, error))
        return carry_out(call, lambda: self._bridge(call, site, values, error), lambda fault: self._faulted(call, fault))

    def _bridge(self, call: UsersCall, site: ExitSite, values: list[object], error: BaseException | None) -> None:
        assert site.snapshot is not None
        self.side_exits += 1
        if log.on("exits"):
            log.write("exits", f"{self.name}: {site} taken {site.taken} times{f', {describe_error(error)}' if error else ''}")
        way = self._way_to(site)
        if error is not None or self.retired or self._bridges >= self.options.max_bridges:
            return
        if self.captured is not None and not self.captured.allows(self.cell.hits):
            return
        if not self._patience.enough(site, way):
            if self.captured is not None and site.taken < self.options.bridge_threshold:
                call.ended_by(lambda: _continue_uncaptured(site.snapshot, values))
            return
        if not _recording.acquire(blocking=False):
            return
        try:
            scm = self._current()
            program = scm.left_at(site) if scm is not None else None
            if scm is None or program is None:  # it has been dropped: what is left here must not come to programs of another one
                return
            self._varying.note_exit(program, site)
            start = time.perf_counter()
            recorder = begin_bridge(site.snapshot, values, services, self.options)
            outcome = self._execute(call, recorder, values)
            if outcome.abort is not None:
                self._patience.failed(site)
            self._finish(call, outcome, start, scm, lambda trace: scm.attach_bridge(site, trace), bridge=True, way=way)
        finally:
            _recording.release()

    def _way_to(self, site: ExitSite) -> Way:
        return next((s.way for s in self.specializations if s.trace is site.trace), ())

    @property
    def _bridges(self) -> int:
        return len(self.specializations) - len(self.roots)

    # ---------------------------------------------------------------------------------------------------------- explain
    def forget(self) -> None:
        """Drop everything compiled, and the objects that it keeps alive.

        A recording that another thread is in goes on, and is not published; a call that is inside is not disturbed."""
        with self._lock:
            self.cell.dispatch = 0
            scm, self._scm = self._scm, None
            dropped = self.specializations, dict(self.options.loops)  # they die when the lock is free again
            if scm is not None:
                scm.close()
            self.specializations = []
            self.options.loops.clear()  # after the closing: until then a recording may add to it
            self._unpublished = {}, 0
            self._patience.clear()
        del dropped

    def reset(self) -> None:
        """Forget everything compiled and counted."""
        self.forget()
        self.cell.flags &= ~(DISABLED | LEFT)
        self.aborts.clear()
        self.misses.clear()
        self.crowded, self.evicted = "", 0
        self._varying.clear()
        self.others.clear()
        self.failed = self.skip = self.raised = self.strangers = self.side_exits = self.without_tensors = 0
        self.retired = ""
        self.captured = self.captured and Account()
        self.cell.hits = self.cell.misses = self.hits_seen = 0

    def explain(self) -> Explanation:
        """What happened to the function so far."""
        code: CodeType = self.function.__code__
        why = self.retired or self.crowded
        status = f"left to CPython: {why}" if why else "active" if self.specializations else "nothing compiled yet"
        return Explanation(self.name, code.co_filename, code.co_firstlineno, self.cell.hits, self.cell.misses, self.side_exits,
                           tuple(map(_report, self.specializations, range(len(self.specializations)))), tuple(self.aborts),
                           tuple(self.misses.last), status, str(self._scm.selection or "") if self._scm is not None else "",
                           self.misses.totals, self.evicted)


def _jump_of(program: HostProgram) -> ExitSite:
    """The way out at the end of a trace that leads to the header of a loop."""
    return next(site for site in reversed(program.exits) if site.what == JUMP and not site.is_raise)


def _exit_report(site: ExitSite) -> ExitReport:
    if site.guard is not None:
        return ExitReport(site.guard.text, "guard", site.guard.file, site.guard.line, site.taken, site.bridged)
    file, line = (site.snapshot.file, site.snapshot.line) if site.snapshot else ("", 0)
    return ExitReport(site.what, "exception" if site.is_raise else "exit", file, line, site.taken, site.bridged)


def _report(specialization: Specialization, number: int) -> SpecializationReport:
    trace = specialization.trace
    exits = tuple(_exit_report(site) for site in specialization.program.exits)
    return SpecializationReport(
        f"{trace.name}#{number}", "bridge" if trace.parent else "root", tuple(trace.guards), len(trace.pins),
        trace.operators, len(trace.launches), tuple(trace.opaque_calls),
        len(trace.native_calls), exits, specialization.timing, str(trace), specialization.program.llvm_ir,
        tuple(specialization.program.launch_reasons()), str(specialization.promotion or ""))


def all_entries() -> list[Entry]:
    """Every live entry."""
    return list(_all)


__all__ = ["Entry", "StrictError", "all_entries", "call_bound", "services"]
