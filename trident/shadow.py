"""The shadow check (`check=2`): while a call is recorded, the trace is executed as it grows, and compared with what the recorder holds.

Owns `Shadow`, which follows one recording. Every op that has no effect is executed when it is written, by the reference executor's
rules, on the objects of this very call; so is every ATen operator that changes nothing. What must hold, or it is a fault: each result is
the one that the recorder has; each guard and pin holds; before every instruction the frames rebuilt from a snapshot are those of the
recorder (the same objects where identity can be seen, equal ones otherwise), the operand stack is as deep as CPython's would be there,
and the instruction is one that can follow the last one. Effects are not executed twice: of these the recorder's results are taken, and
what can be read back (cells, the grad mode) is. Faults are collected, and raised as `ShadowError` when the call has ended: a recording is
never disturbed.

May import: torch, ir, frontend.{aborts,cpython,frames,recorder,values}, backend.reference, boundary, errors.
"""

from __future__ import annotations

import dis
import functools
import math
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch_mlir import ir as mlir

from trident.backend.reference import Run, evaluate
from trident.boundary import answer
from trident.errors import TridentError
from trident.frontend.aborts import Leave
from trident.frontend.cpython import opcodes
from trident.frontend.frames import Entry, RecordedFrame
from trident.frontend.recorder import Recorder
from trident.ir import NULL, Build, Known, Pin, Recipe, Slot, Snapshot
from trident.ir.describing import dict_of, is_a
from trident.ir.ops import BY_NAME, Effect
from trident.ir.pins import holds


class ShadowError(TridentError):
    """The trace does not say what the recorder did."""


class _Nothing:
    """The value of an op that has not been executed (`why` is empty), or could not be."""

    def __init__(self, why: str = "") -> None:
        self.why = why


_UNKNOWN = _Nothing()
_MOST = 20  # faults that are kept
_UNMADE = ("aten.empty", "aten.new_empty", "aten.resize")  # what is in the memory is anybody's guess
_EQUAL = (int, str, bytes, complex, type(None), frozenset, range, types.CodeType, torch.dtype, torch.device, torch.layout,
          torch.memory_format)


class Shadow:
    """Follows one recording. See the module."""

    def __init__(self, recorder: Recorder, values: list[Any]) -> None:
        self._recorder = recorder
        self._run = Run(recorder.builder.trace, dict(zip(recorder.builder.args, values, strict=True)))
        self._written: list[Callable[[], str]] = []  # what to read back before the next instruction
        self._last: dict[int, tuple[RecordedFrame, Any]] = {}  # the last instruction of each frame
        self.faults: list[str] = []
        recorder.builder.shadow = recorder.shadow = self

    def fault(self, text: str) -> None:
        """Something is wrong at the current instruction."""
        builder = self._recorder.builder
        if len(self.faults) < _MOST:
            self.faults.append(f"{text}, at {builder.file}:{builder.line}")

    # ------------------------------------------------------------------------------------------------------------ ops
    def op(self, op: mlir.Operation) -> None:
        """An op has been written."""
        name, env = op.name, self._run.env
        if name in ("trident.state", "trident.pin"):
            return
        args = [env.get(operand, _UNKNOWN) for operand in op.operands]
        missing = next((arg for arg in args if type(arg) is _Nothing), None)
        if name == "trident.guard":
            self._guard(op, args[0])
            return
        for result in op.results:
            env[result] = missing or _UNKNOWN
        if missing is not None or not self._is_harmless(name, op):
            if missing is None:
                self._note_effect(name, args)
            return
        try:
            made = evaluate(self._run, op, args)
        except Exception as error:
            made = [_Nothing(f"{name} cannot be executed: {type(error).__name__}: {error}")] * len(op.results)
        env.update(zip(op.results, made, strict=True))

    def _guard(self, op: mlir.Operation, condition: Any) -> None:
        info = self._run.trace.guards[op.attributes["info"].value]
        if type(condition) is _Nothing:
            if condition.why:
                self.fault(f"the guard {info.text!r} rests on an op: {condition.why}")
        elif bool(condition) is not bool(op.attributes["expected"].value):
            self.fault(f"the guard {info.text!r} does not hold")

    @staticmethod
    def _is_harmless(name: str, op: mlir.Operation) -> bool:
        """Whether an op can be executed once more."""
        spec = BY_NAME.get(name)
        if spec is not None:
            return spec.effect in (Effect.PURE, Effect.READ) or name == "trident.carry"
        if name.startswith(("torch.constant.", "torch.prim.")):
            return True
        full = _operator(name, op)
        _, packet, *overload = full.split(".")
        target = getattr(getattr(torch.ops.aten, packet), overload[0] if overload else "default")
        return not target._schema.is_mutable and torch.Tag.nondeterministic_seeded not in target.tags

    def _note_effect(self, name: str, args: list[Any]) -> None:
        if name == "trident.cell_set":
            cell, value = args
            self._written.append(lambda: "" if cell.cell_contents is value else "a cell was not set to what the trace sets it to")
        elif name == "trident.set_grad_enabled":
            on = args[0]
            self._written.append(lambda: "" if torch.is_grad_enabled() is on else f"the grad mode was not set to {on}")

    def pin(self, pin: Pin) -> None:
        """A pin has been asked for."""
        if not holds(pin):
            self.fault(f"the pin {pin.info.text!r} does not hold")

    def result(self, obj: object, ssa: mlir.Value) -> None:
        """The recorder has got this object for that SSA value."""
        found = self._run.env.get(ssa, _UNKNOWN)
        if type(found) is _Nothing:
            if found.why:
                self.fault(found.why)
        else:
            op = ssa.owner
            name = getattr(op, "name", "")
            bits = not _operator(name, op).startswith(_UNMADE) if name.startswith("torch.") else True
            why = _Comparison(bits=bits, fresh=True).unlike(found, obj)
            if why:
                self.fault(f"{name} gives something else than the recorder has: {why}")
        self._run.env[ssa] = obj

    # --------------------------------------------------------------------------------------------------------- frames
    def instruction(self) -> None:
        """An instruction comes next."""
        recorder = self._recorder
        if recorder.pure_base or not recorder.frames:
            return
        for check in self._written:
            why = check()
            if why:
                self.fault(why)
        self._written.clear()
        frame = recorder.frames[-1]
        ins = frame.code.instructions[frame.pc]
        depth = stack_depths(frame.code.code).get(ins.offset)
        if depth is not None and depth != len(frame.stack):
            self.fault(f"{len(frame.stack)} entries on the operand stack before {ins.name}, CPython has {depth}")
        self._follow(frame, ins)
        try:
            snapshot, operands = recorder.snapshots.take(ins.offset, frame.stack, ins.live)
        except Leave:
            return
        self.state(snapshot, operands, frame.stack)

    def _follow(self, frame: RecordedFrame, ins: Any) -> None:
        """Whether CPython could come to this instruction from the last one of the frame."""
        known = self._last.get(id(frame))
        self._last[id(frame)] = frame, ins
        if known is None or known[0] is not frame:
            return
        last = known[1]
        following = {last.target} if last.name in opcodes.NO_FALL_THROUGH else {last.index + 1, last.target}
        if last.name == "FOR_ITER":
            following.add(opcodes.loop_exit(last))
        handler = frame.code.handler_of(last.index)
        if ins.index not in following and (handler is None or handler.target != ins.index):
            self.fault(f"{ins.name} cannot follow {last.name}")

    def state(self, snapshot: Snapshot, operands: list[mlir.Value], stack: list[Entry]) -> None:
        """The recorder's frames, the innermost with this operand stack, must be those of the snapshot."""
        rebuilt = _Rebuilt([self._run.env.get(operand, _UNKNOWN) for operand in operands])
        frames = self._recorder.frames
        for n, (state, frame) in enumerate(zip(snapshot.frames, frames, strict=False)):
            where = f"in the snapshot, {state.code.co_qualname}: "
            if state.code is not frame.code.code:
                self.fault(where + f"the code is that of {frame.code.code.co_qualname}")
                continue
            held = stack if n == len(snapshot.frames) - 1 else frame.before
            if len(held) != len(state.stack):
                self.fault(where + f"{len(state.stack)} entries on the operand stack, not {len(held)}")
            pairs: list[tuple[str, Recipe, Any]] = [("the function", state.function, frame.function)]
            pairs += [(f"stack[{k}]", recipe, entry) for k, (recipe, entry) in enumerate(zip(state.stack, held))]
            pairs += [(f"local {name}", recipe, entry) for name, recipe, entry in zip(frame.code.names, state.locals, frame.locals)
                      if recipe is not NULL]
            if state.result is not None:
                pairs.append(("the result", state.result, frame.result or NULL))
            for what, recipe, entry in pairs:
                why = rebuilt.unlike(recipe, entry)
                if why:
                    self.fault(f"{where}{what}: {why}")

    def finished(self, obj: object, ssa: mlir.Value) -> None:
        """The call has returned this object; the trace returns that value."""
        why = _Rebuilt([self._run.env.get(ssa, _UNKNOWN)]).unlike_object(Slot(0), obj)
        if why:
            self.fault(f"the result: {why}")

    def close(self) -> list[str]:
        """Let go of everything; the faults."""
        self._recorder.builder.shadow = None
        self._run.env.clear()
        self._written.clear()
        self._last.clear()
        del self._recorder
        return self.faults


def _operator(name: str, op: mlir.Operation) -> str:
    """The ATen operator of an op, with "aten."."""
    return str(op.attributes["name"].value) if name == "torch.operator" else name.removeprefix("torch.")


class _Rebuilt:
    """Objects of a snapshot, compared with those that the recorder has."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values
        self._made: dict[int, Any] = {}
        self._new: dict[int, Any] = {}
        self._comparison = _Comparison(new=self._new)

    def unlike(self, recipe: Recipe, entry: Entry) -> str:
        """Why an entry is not what the recipe makes; "" if it is."""
        if recipe is NULL or entry is NULL:
            return "" if recipe is entry else f"{'NULL' if recipe is NULL else 'something'} for {'NULL' if entry is NULL else 'something'}"
        return self.unlike_object(recipe, entry.obj)  # type: ignore[union-attr]

    def unlike_object(self, recipe: Recipe, obj: object) -> str:
        """The same of an object."""
        try:
            made = self._make(recipe)
        except Exception as error:
            return f"cannot be rebuilt: {type(error).__name__}: {error}"
        if type(made) is _Nothing:
            return made.why or "no op has computed it"
        return self._comparison.unlike(made, obj)

    def _make(self, recipe: Recipe) -> Any:
        match recipe:
            case Slot(index):
                return self._values[index]
            case Known(obj):
                return obj
            case Build():
                if id(recipe) not in self._made:
                    parts = [self._make(item) for item in recipe.items]
                    missing = next((part for part in parts if type(part) is _Nothing), None)
                    made = self._made[id(recipe)] = missing or recipe.make(*parts)
                    self._new[id(made)] = made
                return self._made[id(recipe)]
        return recipe


class _Comparison:
    """Compares what a trace makes with what the recorder has.

    new: objects that have just been made from a snapshot, by id: they stand for others of the same contents. fresh: everything
    may be new (the result of an op that was executed once more). bits: compare the contents of tensors."""

    def __init__(self, *, new: dict[int, Any] | None = None, fresh: bool = False, bits: bool = True) -> None:
        self._new, self._fresh, self._bits = {} if new is None else new, fresh, bits
        self._partner: dict[int, tuple[Any, Any]] = {}  # id of an object that the recorder has -> it, and what stands for it

    def unlike(self, made: Any, held: Any) -> str:
        """Why the two are not the same; "" if they are."""
        if made is held:
            return ""
        cls: Any = type(held)
        if type(made) is not cls:
            return f"a {type(made).__name__}, not a {cls.__name__}"
        if cls is bool or cls in _EQUAL:
            return "" if made == held else f"{made!r:.60}, not {held!r:.60}"
        if cls is float:
            same = made == held and math.copysign(1, made) == math.copysign(1, held) or made != made and held != held
            return "" if same else f"{made}, not {held}"
        if is_a(held, tuple):
            return self._each(tuple.__iter__(made), tuple.__iter__(held))
        if cls is slice:
            return self._each((made.start, made.stop, made.step), (held.start, held.stop, held.step))
        if cls in (types.MethodType, types.BuiltinMethodType, types.MethodWrapperType):
            return self.unlike(made.__self__, held.__self__) or ("" if made.__name__ == held.__name__ else "another method")
        if not self._fresh and id(made) not in self._new:
            return f"another {cls.__name__}"
        known = self._partner.setdefault(id(held), (held, made))
        if known[1] is not made:
            return f"one {cls.__name__} becomes two"
        return self._contents(cls, made, held)

    def _each(self, made: Iterable[Any], held: Iterable[Any]) -> str:
        made, held = tuple(made), tuple(held)
        if len(made) != len(held):
            return f"{len(made)} items, not {len(held)}"
        return next((why for why in map(self.unlike, made, held) if why), "")

    def _contents(self, cls: Any, made: Any, held: Any) -> str:
        """Of objects with an identity, of which one stands for the other."""
        if is_a(held, torch.Tensor):
            return self._tensors(made, held)
        if is_a(held, list):
            return self._each(list.__iter__(made), list.__iter__(held))
        if is_a(held, dict):
            return self._each([x for pair in dict.items(made) for x in pair], [x for pair in dict.items(held) for x in pair])
        if cls is set:
            return "" if made == held else f"{made!r:.60}, not {held!r:.60}"
        if cls is types.CellType:
            return self._cells(made, held)
        if cls is types.FunctionType:
            if made.__code__ is not held.__code__ or made.__globals__ is not held.__globals__ or made.__qualname__ != held.__qualname__:
                return "another function"
            parts = [(f.__defaults__, f.__kwdefaults__ and tuple(f.__kwdefaults__.items()), f.__closure__) for f in (made, held)]
            return _Comparison(new=self._new, fresh=True).unlike(*parts)
        if cls is functools.partial:
            return self._each((made.func, made.args, *made.keywords.values()), (held.func, held.args, *held.keywords.values()))
        if cls in _RANGE_ITERATORS:  # what is left counts, not where it began
            return "" if _left(made) == _left(held) else f"{_left(made)}, not {_left(held)}"
        if hasattr(cls, "__next__") and "__reduce__" in dict_of(cls):
            return _Comparison(new=self._new, fresh=True).unlike(made.__reduce__(), held.__reduce__())
        parts = [answer(lambda obj=obj: object.__getattribute__(obj, "__dict__"), None) for obj in (made, held)]  # type: ignore[misc]
        return "" if parts[0] is None else self._contents(dict, *parts)

    def _cells(self, made: types.CellType, held: types.CellType) -> str:
        contents: list[Any] = []
        for cell in (made, held):
            try:
                contents.append(cell.cell_contents)
            except ValueError:
                contents.append(NULL)
        return self.unlike(*contents)

    def _tensors(self, made: torch.Tensor, held: torch.Tensor) -> str:
        facts = [(t.dtype, t.shape, t.stride() if t.layout is torch.strided else (), t.device, t.requires_grad) for t in (made, held)]
        if facts[0] != facts[1]:
            return f"a tensor with {facts[0]}, not {facts[1]}"
        if not self._bits or held.device.type == "meta" or held.layout is not torch.strided:
            return ""
        same = torch.equal(made, held) or bool(torch.all((made == held) | (made != made) & (held != held)))
        return "" if same else "a tensor with other contents"


@functools.cache
def stack_depths(code: types.CodeType) -> dict[int, int]:
    """Depth of the operand stack before each instruction that can be reached, by byte offset."""
    instructions = {ins.offset: ins for ins in dis.get_instructions(code)}
    following = dict(zip(instructions, list(instructions)[1:]))
    depths: dict[int, int] = {}
    todo = [(0, 0)]
    handlers = [(entry.target, entry.depth + entry.lasti + 1) for entry in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
    for start in (todo, handlers):
        todo = start
        while todo:
            offset, depth = todo.pop()
            if offset in depths:
                continue
            depths[offset] = depth
            ins = instructions[offset]
            arg = ins.arg if ins.opcode >= dis.HAVE_ARGUMENT else None
            if ins.opcode in dis.hasjrel or ins.opcode in dis.hasjabs:
                todo.append((ins.argval, depth + dis.stack_effect(ins.opcode, arg, jump=True)))
            if ins.opname not in opcodes.NO_FALL_THROUGH and offset in following:
                todo.append((following[offset], depth + dis.stack_effect(ins.opcode, arg, jump=False)))
    return depths


_RANGE_ITERATORS = (type(iter(range(0))), type(iter(range(2**70, 2**70 + 1))))


def _left(iterator: Any) -> range:
    """What an iterator over a range has not given yet."""
    _, (whole,), *at = iterator.__reduce__()
    return whole[at[0] if at and at[0] is not None else 0:]  # type: ignore[no-any-return]
