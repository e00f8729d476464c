"""Calls: which callee is followed into (inlined as a real frame), which has a model, and which is an opaque call.

Owns the decision. What must hold: arguments bind exactly as CPython binds them (an error in binding is left to CPython);
an inlined callee is a frame of its own in every snapshot; an opaque call is executed exactly once, while recording.

May import: ir, frontend.{analysis,objects,subscripts,values,models}.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from trident.boundary import describe_error
from trident.frontend import subscripts
from trident.frontend.aborts import Leave, UserRaised
from trident.frontend.analysis import CodeInfo, analyse
from trident.frontend.binding import Keywords, bind_arguments
from trident.frontend.core import is_own_code
from trident.frontend.frames import Entry, RecordedFrame, passes_on
from trident.frontend.instances import has_instance_dict, has_plain_layout
from trident.frontend.models import NotModelled, registry
from trident.frontend.objects import Access, Objects, type_word
from trident.frontend.special import is_iterator
from trident.frontend.values import Const, Traced, Value, Virtual
from trident.frontend.virtuals import CONTENTS, dict_base
from trident.ir import NULL, Arrival, OpaqueCall
from trident.ir.codes import OfCode
from trident.ir.describing import callee_name, is_a

MAX_INLINE_DEPTH = 60
MAX_PURE_DEPTH = 8  # of frames in code that is evaluated within one instruction
_GENERATOR_FLAGS = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR


class _Inlined:
    """The answer of `call` where a frame was pushed: its result arrives when that frame returns."""

    def __repr__(self) -> str:
        return "INLINED"


INLINED = _Inlined()

# Code objects in which a recording ended: called opaquely from then on. The value says why.
_avoided: OfCode[str] = OfCode()


def avoid(code: types.CodeType, why: str) -> None:
    """Do not inline this code any more."""
    _avoided[code] = why


class Calls(Objects):
    """See the module."""

    returned: Value | None = None  # by the frame at which `run_until` stopped
    stop_depth = 0  # number of frames below those that the innermost `run_until` interprets

    # ------------------------------------------------------------------------------------------------------ call
    def call(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
        """As a CALL instruction would: a Value, or INLINED where a frame was pushed (only for handlers, in tail position)."""
        callee = self.resolve(callee)
        if type(callee) is Virtual:
            return self._call_virtual(callee, args, kwargs)
        if type(callee) is Traced:
            if self.is_hooked(callee):
                answer = registry().try_hooks("call", self, callee, args, kwargs)
                if answer is not NotModelled:
                    return answer
            if callee.kind != "object" or not self.is_stable(callee):
                return self.opaque(callee, args, kwargs, "the callee is a run-time object")
            if self.is_run_time_instance(callee):
                return self._call_object(callee, args, kwargs)
            self.guard_identity(callee, f"{callee.origin or 'callee'} is {callee_name(callee.obj)}")
            callee = self.resolve(callee)
        return self._call_constant(callee, callee.obj, args, kwargs)

    def _call_virtual(self, callee: Virtual, args: list[Value], kwargs: dict[str, Value]) -> Any:
        if self.is_hooked(callee):
            answer = registry().try_hooks("call", self, callee, args, kwargs)
            if answer is not NotModelled:
                return answer
        match callee.kind:
            case "method":
                return self.call(callee.items[0], [callee.items[1], *args], kwargs)
            case "function":
                return self._call_function(callee, args, kwargs)
            case "partial":
                split = len(callee.items) - len(callee.keys or ())
                fixed = dict(zip(callee.keys or (), callee.items[split:], strict=True))
                return self.call(callee.items[0], [*callee.items[1:split], *args], {**fixed, **kwargs})  # type: ignore[dict-item]
            case "instance":
                return self._call_object(callee, args, kwargs)
        return self.opaque(callee, args, kwargs, f"call of a new {callee.kind}")

    def _call_constant(self, callee: Value, obj: Any, args: list[Value], kwargs: dict[str, Value]) -> Any:
        known = registry()
        model = known.find(obj)
        if model is not None:
            args = [self.resolve(arg) for arg in args]
            undone, mutated = len(self.undo), self.mutation_serial
            answer = model(self, args, kwargs)  # type: ignore[arg-type]
            if answer is not NotModelled:
                return answer
            if len(self.undo) > undone:  # it has looked at the items of an iterator
                while len(self.undo) > undone:
                    self.undo.pop()()
                self.mutation_serial = mutated
                self.snapshots.invalidate()
        _leave_to_frame(obj, args)
        if self.is_hooked(callee):
            answer = known.try_hooks("call", self, callee, args, kwargs)
            if answer is not NotModelled:
                return answer
        kind = type(obj)
        if kind is types.FunctionType:
            return self._call_function(callee, args, kwargs)
        if kind is types.MethodType:
            return self.call(Const(obj.__func__, _origin(callee)), [Const(obj.__self__, _self_origin(callee)), *args], kwargs)
        if kind is functools.partial:
            return self._call_partial(callee, args, kwargs)
        if kind is types.BuiltinFunctionType:
            return self._call_builtin(callee, args, kwargs)
        if is_a(obj, type):
            return self._call_class(callee, obj, args, kwargs)
        unwrap = getattr(self.services, "unwrap", None)
        target = unwrap(obj) if unwrap is not None else None
        if target is not None:
            return self.call(Const(target, _origin(callee)), args, kwargs)
        if kind in (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType, types.ClassMethodDescriptorType):
            return self.opaque(callee, args, kwargs, "a C function without a model")
        return self._call_object(callee, args, kwargs)

    def _call_partial(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
        made: functools.partial[Any] = callee.obj  # type: ignore[assignment]
        name = self.name_of(callee)
        for part in ("func", "args", "keywords"):  # `__setstate__` replaces them
            if not self.pin_words(made, getattr(made, part), f"{name}.{part}"):
                return self.opaque(callee, args, kwargs, "a partial object whose parts are not found in it")
        fixed: dict[str, Value] = dict(self.dict_items(made.keywords, f"{name}.keywords"))
        first = [Const(item, f"{name}.args[{n}]") for n, item in enumerate(made.args)]
        return self.call(Const(made.func, f"{name}.func"), [*first, *args], {**fixed, **kwargs})

    def _call_builtin(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
        """A C function; a bound one is its descriptor with self first, if that has a model."""
        obj: Any = callee.obj
        owner = obj.__self__
        if owner is not None and not is_a(owner, types.ModuleType | type):
            descriptor = self.read_type(type(owner), obj.__name__)
            _leave_to_frame(descriptor, args)
            if descriptor is not NULL and registry().find(descriptor) is not None:
                return self._call_constant(Const(descriptor), descriptor, [Const(owner, _self_origin(callee)), *args], kwargs)
        return self.opaque(callee, args, kwargs, "a C function without a model")

    def _call_object(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
        """An instance: its type's `__call__`."""
        cls = type(callee.obj)
        if type(callee) is Const:
            self.pin_class_of(callee.obj, self.name_of(callee))
        function = self.read_type(cls, "__call__")
        if is_a(function, types.FunctionType):
            return self.call(Const(function, f"{cls.__qualname__}.__call__"), [callee, *args], kwargs)
        return self.opaque(callee, args, kwargs, f"call of a {cls.__qualname__}")

    # --------------------------------------------------------------------------------------------------- classes
    def named_by_caller(self, args: list[Value]) -> None:
        """`type(name, bases, namespace)` takes `__module__` from the running frame where the namespace has none."""
        if type(args[2].obj) is dict and subscripts.dict_get(self, args[2], Const("__module__")) in (NULL, NotModelled):  # type: ignore[arg-type]
            raise Leave("frame", "a class is made that is named after its caller's module")

    def _call_class(self, callee: Value, cls: type, args: list[Value], kwargs: dict[str, Value]) -> Any:
        """`cls(...)`: plain classes are made as virtual instances and their `__init__` is inlined."""
        meta_call = self.read_type(type(cls), "__call__")
        if meta_call is not type.__call__:
            if is_a(meta_call, types.FunctionType):
                return self.call(Const(meta_call), [callee, *args], kwargs)
            return self.opaque(callee, args, kwargs, "a metaclass with its own __call__")
        new, init = self.read_type(cls, "__new__"), self.read_type(cls, "__init__")
        if new is type.__new__ and len(args) == 3:
            self.named_by_caller(args)
        own_new = new.__func__ if is_a(new, staticmethod) and is_a(new.__func__, types.FunctionType) else None
        if own_new is not None and init is object.__init__ and not _subclass_has_init(cls):
            return self.call(Const(own_new, f"{cls.__qualname__}.__new__"), [callee, *args], kwargs)
        if new is object.__new__ and type_word(cls, "__new__") != type_word(object, "__new__"):
            return self.opaque(callee, args, kwargs, "a class whose __new__ was deleted")
        can_init = init is object.__init__ or is_a(init, types.FunctionType) and self._can_inline(init.__code__, init)
        base: Any = dict_base(cls)
        if base is not None and new is dict.__dict__["__new__"] and is_plain_dict_class(cls) \
                and (can_init or init is base.__init__ and not args and not kwargs):
            return self._make_dict_instance(cls, base, None if init is base.__init__ else init, args, kwargs)
        if new is not object.__new__ and own_new is None or not is_plain_class(cls) or not can_init:
            return self.opaque(callee, args, kwargs, f"makes a {cls.__qualname__}")
        if init is object.__init__ and (args or kwargs):
            raise Leave("raised", f"{cls.__qualname__}() takes no arguments")
        made: Value | None = None
        if own_new is None:
            made = self.virtual(object.__new__(cls), "instance", [], [], cls=cls)
        else:  # within this instruction: it must have no effects
            made = self.try_pure(Const(own_new, f"{cls.__qualname__}.__new__"), [callee, *args], kwargs)
        if type(made) is not Virtual or made.state.get("cls") is not cls:
            return self.opaque(callee, args, kwargs, f"makes a {cls.__qualname__}")
        if init is object.__init__:
            return made
        return self._inline(Const(init, f"{cls.__qualname__}.__init__"), [made, *args], kwargs, arrival=Arrival.GIVEN, result=made)

    def _make_dict_instance(self, cls: type, base: Any, init: Any, args: list[Value], kwargs: dict[str, Value]) -> Any:
        """An instance of a subclass of dict or OrderedDict: its contents are a virtual dict among its attributes."""
        contents = self.virtual(base(), "dict", [], [], cls=base, part=True)
        made = self.virtual(base.__new__(cls), "instance", [contents], [CONTENTS], cls=cls)
        if init is None:
            return made
        return self._inline(Const(init, f"{cls.__qualname__}.__init__"), [made, *args], kwargs, arrival=Arrival.GIVEN, result=made)

    # ------------------------------------------------------------------------------------------------- functions
    def _call_function(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Any:
        function = callee.obj
        assert isinstance(function, types.FunctionType)
        reason = self._not_inlined(function.__code__, function)
        if reason:
            if is_expression(function.__code__) and len(args) == 1 and not kwargs:
                return self.make_generator(callee, args[0])
            return self.opaque(callee, args, kwargs, reason)
        return self._inline(callee, args, kwargs)

    def make_generator(self, function: Value, source: Value) -> Value:
        """What calling the function of a generator expression makes (no code of it runs yet)."""
        return self.virtual(function.obj(source.obj), "generator", [function, source])

    def _not_inlined(self, code: types.CodeType, function: types.FunctionType) -> str:
        if code.co_flags & _GENERATOR_FLAGS:
            return "a generator or coroutine"
        if id(function) in registry().opaque:
            return registry().opaque[id(function)][1]
        if is_own_code(code):
            return "code of Trident"
        why = _avoided.get(code)
        if why is not None:
            return f"not followed: {why}"
        if len(self.frames) >= MAX_INLINE_DEPTH or self.pure_base and len(self.frames) - self.pure_base >= 2 * MAX_PURE_DEPTH:
            return "inlining went too deep"
        unsupported = analyse(code).unsupported
        return f"it has the instruction {unsupported}" if unsupported else ""

    def _can_inline(self, code: types.CodeType, function: types.FunctionType) -> bool:
        return not self._not_inlined(code, function)

    def _inline(self, callee: Value, args: list[Value], kwargs: dict[str, Value], *, arrival: Arrival = Arrival.RESULT,
                result: Value | None = None) -> _Inlined:
        function = callee.obj
        assert isinstance(function, types.FunctionType)
        code, defaults = function.__code__, None
        if type(callee) is Const:
            code, *defaults = self.pin_function(function, callee.origin)
        why = self._not_inlined(code, function)
        if why:  # it was another code that was found fit
            raise Leave("unsupported", why)
        info = analyse(code)
        frame = RecordedFrame(callee, info, bind_arguments(self, callee, info, args, kwargs, defaults))  # type: ignore[arg-type]
        self.push_frame(frame, is_call=self.call_instruction, arrival=arrival, result=result)
        return INLINED

    call_instruction = False  # whether the current instruction is a CALL (else an attribute, an operator, …)
    # (stack, pops) for the caller of a frame that is pushed now, where these are not what the handler's popping says.
    pending: tuple[list[Entry], int] | None = None

    def push_frame(self, frame: RecordedFrame, *, is_call: bool, arrival: Arrival = Arrival.RESULT,
                   result: Value | None = None) -> None:
        """Enter an inlined callee. The handler has popped the operands of the current instruction and nothing else."""
        caller = self.frames[-1]
        if len(self.frames) > self.stop_depth:
            caller.is_call, caller.arrival, caller.result = is_call, arrival, result
            if self.pending is not None:
                caller.before, caller.pops = self.pending
            else:
                caller.pops = len(caller.before) - len(caller.stack)
            caller.resume_at = caller.current.next_offset
            caller.stack = caller.before
            caller.cached_state = None
        self.frames.append(frame)
        self.enter(frame)

    def enter(self, frame: RecordedFrame) -> None:
        """Source position of a frame."""
        self.builder.file = frame.code.code.co_filename

    def return_value(self, value: Value) -> None:
        """The innermost frame returns."""
        caller = self.frames[-2] if len(self.frames) > 1 else None
        if caller is not None:
            self._check_arrival(caller.arrival, value)
        ended = self.frames[-1]
        inlined = len(self.frames) - 1 != self.stop_depth
        if inlined:
            self.keep(self.held_by(ended))  # now: it may fail, and then this instruction has not begun
        self.frames.pop()
        if not inlined:
            self.returned = value
            ended.clear()
            if self.frames:
                self.enter(self.frames[-1])
            return
        assert caller is not None
        ended.clear()
        self.enter(caller)
        del caller.stack[len(caller.stack) - caller.pops:]
        if caller.arrival is not Arrival.NOTHING:
            caller.stack.append(value if caller.result is None else caller.result)
        caller.no_callee()

    def _check_arrival(self, arrival: Arrival, value: Value) -> None:
        """What CPython demands of the result; where it is not that, CPython raises the error when it goes on from here."""
        value = self.resolve(value)
        if arrival is Arrival.GIVEN and value.obj is not None:
            raise Leave("raised", "__init__() should return None")
        if arrival is Arrival.ITERATOR and not is_iterator(self, value):  # type: ignore[arg-type]
            raise Leave("raised", "__iter__ returned no iterator")

    def call_discard(self, callee: Value, args: list[Value]) -> Any:
        """A call by an instruction that drops the result (a store): None, or INLINED."""
        callee = self.resolve(callee)
        if is_a(callee.obj, types.FunctionType) and self._can_inline(callee.obj.__code__, callee.obj) \
                and registry().find(callee.obj) is None:
            return self._inline(callee, args, {}, arrival=Arrival.NOTHING)
        self.opaque(callee, args, {}, "a store that is not followed")
        return None

    def call_for_iterator(self, method: Value, owner: Value) -> Any:
        """A class's `__iter__`: a Value, or INLINED; a result that is no iterator is CPython's error."""
        function = method.obj
        if is_a(function, types.FunctionType) and registry().find(function) is None \
                and self._can_inline(function.__code__, function):  # type: ignore[attr-defined]
            return self._inline(method, [owner], {}, arrival=Arrival.ITERATOR)
        return self.opaque(Const(iter), [owner], {}, f"iteration over a {type(owner.obj).__name__}")

    def finish_opaque(self, fn: Any, args: list[Value], real: object, reason: str) -> Value:
        """Write an opaque call of a harmless C function that has been executed already."""
        forms = [self.ssa(arg, "object") for arg in args]
        self.effect()
        info = OpaqueCall(callee_name(fn), reason, self.builder.file, self.builder.line)
        return self.result(real, self.builder.call(self.builder.constant(fn), forms, (), info))

    # ------------------------------------------------------------------------------------------------- pure code
    def call_pure(self, callee: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call within the current instruction; the code called must have no effects (guards in it exit at this instruction)."""
        saved = (self.pure_base, self.pure_births, self.stop_depth, self.builder.line, self.call_instruction, self.executed,
                 self.harmless, self.last_result)
        depth = len(self.frames)
        if not self.pure_base:
            self.pure_base, self.pure_births = depth, self.births
        self.stop_depth = depth
        try:
            answer = self.call(callee, args, kwargs)
            if answer is INLINED:
                self.run_until(depth)
                answer = self.returned
        except UserRaised as raised:  # nothing has happened yet: the instruction can be executed anew, as a whole
            raise Leave("raised", describe_error(raised.error)) from None
        finally:
            self.pending = None
            (self.pure_base, self.pure_births, self.stop_depth, self.builder.line, self.call_instruction, self.executed,
             self.harmless, self.last_result) = saved
        assert isinstance(answer, Value)
        return answer

    def try_pure(self, callee: Value, args: list[Value], kwargs: dict[str, Value] | None = None) -> Value | None:
        """`call_pure`, or None where that is impossible (nothing has been changed then)."""
        depth = len(self.frames)
        if depth - self.pure_base >= MAX_PURE_DEPTH and self.pure_base:
            return None
        try:
            return self.call_pure(callee, args, kwargs or {})
        except (Leave, UserRaised):
            del self.frames[depth:]
            self.enter(self.frames[-1])
            return None

    def pure_or_raised(self, error: type[Exception], callee: Value, args: list[Value]) -> Value | Any | None:
        """`try_pure`, or NULL where the call raises an `error` (and so it does whenever the guards hold)."""
        depth = len(self.frames)
        if depth - self.pure_base >= MAX_PURE_DEPTH and self.pure_base:
            return None
        try:
            return self.call_pure(callee, args, {})
        except Leave as leave:
            entered = self.frames[depth:]
            raises = leave.error is not None and issubclass(leave.error, error) and entered and not any(
                frame.code.handler_of(frame.current.index) for frame in entered) and all(
                passes_on(frame, leave.error()) for frame in entered[:-1])
        except UserRaised:
            raises = False
        del self.frames[depth:]
        self.enter(self.frames[-1])
        return NULL if raises else None

    def run_until(self, depth: int) -> None:
        """Interpret until only `depth` frames are left."""
        raise NotImplementedError

    # ---------------------------------------------------------------------------------------------------- opaque
    def opaque(self, callee: Value, args: list[Value], kwargs: dict[str, Value], reason: str) -> Value:
        """Call the object from native code, without looking into it. Executed now, for real."""
        callee = self.resolve(callee)
        obj: Any = callee.obj
        _leave_to_frame(obj, args)
        if isinstance(kwargs, Keywords):
            kwargs.fix_order(self)  # type: ignore[arg-type]
        function = self.ssa(callee, "object")
        forms = [self.ssa(arg, "object") for arg in (*args, *kwargs.values())]
        self.effect()
        harmless = id(obj) in registry().harmless
        if not harmless:
            self.changed_anything()
        real = self.execute(self.services.call, obj, tuple([arg.obj for arg in args]), {k: value.obj for k, value in kwargs.items()})
        info = OpaqueCall(callee_name(obj), reason, self.builder.file, self.builder.line)
        return self.result(real, self.builder.call(function, forms, tuple(kwargs), info, native=id(obj) in registry().native))

    # ------------------------------------------------------------------------------------------------ attributes
    def access(self, found: Access, owner: Value, name: str) -> Any:
        """Carry out what `lookup` found: a Value, or INLINED (tail position)."""
        match found.how:
            case "value":
                return found.value
            case "method":
                method = types.MethodType(found.value.obj, found.self.obj) if is_a(found.value.obj, types.FunctionType) \
                    else getattr(owner.obj, name)
                return self.virtual(method, "method", [found.value, found.self])
            case "call":
                return self.call(found.value, list(found.args), {})
            case "absent":
                raise Leave("raised", f"no attribute {name}", AttributeError)
        return self.opaque_getattr(owner, name, found.reason)

    def opaque_getattr(self, owner: Value, name: str, reason: str) -> Value:
        """`getattr(owner, name)` as an opaque call."""
        return self.opaque(Const(getattr), [owner, Const(name)], {}, f"attribute {name}: {reason}")

    def attribute(self, value: Value, name: str) -> Value:
        """`value.name` for models; a property's code must be free of effects."""
        found = self.lookup(value, name)
        if found.how == "call":
            return self.call_pure(found.value, list(found.args), {})
        return self.access(found, value, name)  # type: ignore[no-any-return]


def _leave_to_frame(callee: object, args: list[Value]) -> None:
    """End the recording where a callee looks at the frame that calls it."""
    why = registry().reads_frame(callee, bare=not args)
    if why:
        raise Leave("frame", f"{callee_name(callee)}: {why}")


def is_expression(code: types.CodeType) -> bool:
    """Whether code is that of a generator expression."""
    return code.co_name == "<genexpr>" and code.co_flags & _GENERATOR_FLAGS == 0x20 and code.co_argcount == 1


def is_plain_class(cls: type) -> bool:
    """Whether instances consist of an instance dict and nothing else, and may be made and dropped unseen."""
    return has_plain_layout(cls) and not hasattr(cls, "__del__") and not getattr(cls, "__abstractmethods__", None)


def is_plain_dict_class(cls: type) -> bool:
    """The same of a subclass of dict or OrderedDict, beside the contents."""
    return has_instance_dict(cls) and not hasattr(cls, "__del__") and not getattr(cls, "__abstractmethods__", None)


def _origin(value: Value) -> str:
    return value.origin if isinstance(value, Const | Traced) else ""


def _self_origin(callee: Value) -> str:
    return _origin(callee).rpartition(".")[0]


def _subclass_has_init(cls: type) -> bool:
    """Whether `__new__` could return an instance of a subclass whose `__init__` then runs."""
    known: list[type] = type.__subclasses__(cls)
    return any("__init__" in sub.__dict__ or _subclass_has_init(sub) for sub in known)


def code_of(function: types.FunctionType) -> CodeInfo:
    """Analysis of a function."""
    return analyse(function.__code__)
