"""Generator expressions that are consumed where they are made: `all(… for …)`, `tuple(… for …)`.

Owns the virtual "generator" kind: items are the function of the expression and the iterator that it runs over. What must hold: the body is
interpreted within the instruction that consumes it, so it must have no effects; where it has, or where anything is not known, nothing
has been changed, and the generator is made and run by CPython.

May import: ir, frontend.{aborts,analysis,binding,calls,frames,iteration,values}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from trident.frontend import iteration, subscripts
from trident.frontend.aborts import Leave, UserRaised
from trident.frontend.analysis import analyse
from trident.frontend.binding import bind_arguments
from trident.frontend.frames import RecordedFrame
from trident.frontend.values import Const, Value, Virtual

if TYPE_CHECKING:
    from trident.frontend.recorder import Recorder


def items_of(rec: Recorder, generator: Virtual) -> list[Value] | None:
    """All that a generator yields; None where that is not known (nothing has been changed then)."""
    items: list[Value] = []
    return items if consume(rec, generator, lambda item: bool(items.append(item))) else None  # type: ignore[func-returns-value]


def consume(rec: Recorder, generator: Virtual, visit: Callable[[Value], bool]) -> bool:
    """Run a generator until `visit` says to stop, or to its end; whether that was possible."""
    if generator.state.get("stopped"):
        rec.abort("unsupported", "a generator that was left in the middle")
    undone, mutated = len(rec.undo), rec.mutation_serial
    source = rec.resolve(generator.items[1])
    items = iteration.known_items(rec, source)
    stopped = None if items is None else _run(rec, generator.items[0], items, visit)
    if stopped and _is_held(rec, source, generator):  # somebody may go on where this stopped
        stopped = None
    if stopped is None:
        while len(rec.undo) > undone:
            rec.undo.pop()()
        rec.mutation_serial = mutated
        return False
    before = generator.obj, generator.items

    def undo() -> None:
        generator.obj, generator.items = before
        generator.state.pop("stopped", None)

    rec.undo.append(undo)
    rec.snapshots.invalidate()
    if stopped:
        generator.state["stopped"] = True
    generator.items = [generator.items[0], iteration.sequence_iterator(rec, Const(()))]
    generator.obj = generator.items[0].obj(generator.items[1].obj)
    return True


def _is_held(rec: Recorder, source: Value, generator: Virtual) -> bool:
    """Whether something besides the generator holds the iterator that it runs over, or one from which that draws."""
    if type(source) is not Virtual:
        return True
    parts = [part for part in iteration.parts_of(rec, source) if part.kind in ("iterator", "generator")]
    entries = [entry for frame in rec.frames for entry in (*frame.locals, *frame.before)]
    return any(isinstance(entry, Virtual) and entry is not generator and any(subscripts.reaches(rec, entry, part) for part in parts)
               for entry in entries)


def _run(rec: Recorder, function: Value, items: list[Value], visit: Callable[[Value], bool]) -> bool | None:
    """Whether `visit` stopped it; None: not possible."""
    depth = len(rec.frames)
    saved = (rec.pure_base, rec.pure_births, rec.stop_depth, rec.builder.line, rec.call_instruction, rec.executed, rec.harmless,
             rec.last_result)
    if not rec.pure_base:
        rec.pure_base, rec.pure_births = depth, rec.births
    rec.stop_depth = depth
    try:
        iterator = iteration.sequence_iterator(rec, rec.virtual_tuple(items))
        info = analyse(function.obj.__code__)  # type: ignore[attr-defined]
        frame = RecordedFrame(function, info, bind_arguments(rec, function, info, [iterator], {}))
        rec.push_frame(frame, is_call=True)
        while len(rec.frames) > depth:
            name = frame.code.instructions[frame.pc].name if rec.frames[-1] is frame else ""
            if name == "RETURN_GENERATOR":  # the generator, which POP_TOP drops
                frame.pc += 1
                frame.stack.append(Const(None))
            elif name == "YIELD_VALUE":
                frame.pc += 1
                item = frame.pop_value()
                frame.stack.append(Const(None))  # what `next` sends
                if visit(item):
                    return True
            else:
                rec.step()
        return False
    except (Leave, UserRaised):
        return None
    finally:
        rec.pending = None
        (rec.pure_base, rec.pure_births, rec.stop_depth, rec.builder.line, rec.call_instruction, rec.executed, rec.harmless,
         rec.last_result) = saved
        del rec.frames[depth:]
        rec.enter(rec.frames[-1])
