"""The native callable: what `trident.jit` returns.

Owns the entry cell, the type `trident.Function` and the way of a call through it. What must hold: a call that dispatch answers runs
no Python bytecode and makes no frame; a call that does not bind, or that a tracing tool watches, is the wrapped function's own call;
the object behaves as the function wherever a program looks at it.

May import: llvmlite through emit, layouts, room, errors.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from llvmlite import ir

from trident.backend.native import binding, engine, layouts, room, tools, tracebacks, tracing
from trident.backend.native.emit import I1, I32, I64, NULL, PTR, VOID, Function, Module, i32, i64, pointer
from trident.backend.native.marker import MISS_ADDRESS


class EntryCell(ctypes.Structure):
    """What an entry (callable or evaluator) shares with the compiler of a function.

    dispatch  address of `ptr dispatch(ptr bound)`, or 0 while there is none. `bound` has one borrowed reference per parameter in
              the order of co_varnames, then the function object. It returns a new reference, NULL with an exception set, or
              MISS_ADDRESS when no specialization answers; then nothing may have happened yet.
    hits      calls that dispatch answered, with a result or an exception
    misses    calls that went to the `miss` callable
    flags     DISABLED: calls run in the interpreter. LEFT: frames that a hook comes across do, calls of a native callable do not.
    busy      list of the threads in which `miss` is running (on their stacks: thread state, next); calls from there that dispatch
              does not answer (the function calls itself) run in the interpreter, without a frame of Trident in between
    code      address of the code object that dispatch answers for: calls and frames of a function that has been given another one
              miss before dispatch reads arguments that the new code may not have

    The words may be written from Python at any time that the GIL is held. Whoever puts an address into `dispatch` keeps the code
    alive until it has been replaced and nobody is inside it.
    """

    _fields_ = (("dispatch", ctypes.c_uint64), ("hits", ctypes.c_uint64), ("misses", ctypes.c_uint64), ("flags", ctypes.c_uint64),
                ("busy", ctypes.c_uint64), ("code", ctypes.c_uint64))

    @property
    def address(self) -> int:
        return ctypes.addressof(self)


DISABLED, LEFT = 1, 2
CELL_DISPATCH, CELL_HITS, CELL_MISSES, CELL_FLAGS, CELL_BUSY, CELL_CODE = 0, 8, 16, 24, 32, 40

MISS_SYMBOL = "trident_miss"
engine.add_symbol(MISS_SYMBOL, MISS_ADDRESS)

# The object: head, then these words.
VECTORCALL, FUNCTION, CELL, ON_MISS, DICT, WEAKREFS, OWNER, SIZE = 16, 24, 32, 40, 48, 56, 64, 72

# --------------------------------------------------------------------------------------------------------------- native code

CLEAN = "trident.clean_traceback"
MISSED = "trident.missed"
BUSY = "trident.busy"
_BUSY_THREAD, _BUSY_NEXT, _BUSY_WORDS = 0, 8, 2


def define_clean(module: Module) -> None:
    """`void trident.clean_traceback()`: drop Trident's frames from the front of the raised exception's traceback."""
    _export_strip()
    tools.install()
    f = module.function(CLEAN, VOID, [], internal=True)
    kind, value, traceback = (f.variable(NULL) for _ in range(3))
    f.call("PyErr_Fetch", VOID, kind, value, traceback)
    old = f.load(traceback)
    with f.when(f.not_null(old)):
        new = f.call("PyObject_CallOneArg", PTR, module.external_variable("trident_strip"), old)
        with f.otherwise(f.is_null(new)) as (failed, done):
            with failed:
                f.call("PyErr_Clear", VOID)
            with done:
                f.decref(old)
                f.store(new, traceback)
    f.call("PyErr_Restore", VOID, f.load(kind), f.load(value), f.load(traceback))
    f.ret()


@cache
def _export_strip() -> None:
    engine.add_symbol("trident_strip", engine.immortal(tracebacks.strip))


def _define_busy(module: Module) -> None:
    """`i1 trident.busy(cell, tstate)`: whether a miss is running in this thread; `void trident.rested(cell, node)`: one has ended."""
    f = module.function(BUSY, I1, [PTR, PTR], internal=True)
    cell, tstate = f.args
    _walk(f, f.at(cell, CELL_BUSY), _BUSY_THREAD, tstate, lambda _: f.ret(I1(1)))
    f.ret(I1(0))

    f = module.function("trident.rested", VOID, [PTR, PTR], internal=True)
    cell, node = f.args

    def unlink(link: ir.Value) -> None:
        f.store(f.load(node, _BUSY_NEXT), link)
        f.ret()

    _walk(f, f.at(cell, CELL_BUSY), None, node, unlink)
    f.ret()


def _walk(f: Function, first: ir.Value, field: int | None, wanted: ir.Value, found: Callable[[ir.Value], None]) -> None:
    """Over the nodes of a list of busy threads, to the one that is `wanted` or has that in a field. found: is given the link to it."""
    link = f.variable(first)
    head, body, end = (f.b.append_basic_block(name) for name in ("head", "body", "end"))
    f.b.branch(head)
    f.b.position_at_end(head)
    node = f.load(f.load(link))
    f.b.cbranch(f.not_null(node), body, end)
    f.b.position_at_end(body)
    with f.when(f.equal(node if field is None else f.load(node, field), wanted)):
        found(f.load(link))
    f.store(f.at(node, _BUSY_NEXT), link)
    f.b.branch(head)
    f.b.position_at_end(end)


def define_missed(module: Module) -> None:
    """`ptr trident.missed(cell, on_miss, code, bound, n)`: count, and call `on_miss` with a tuple of the n objects that were bound for a
    code object, and that code object.

    The miss marker where this thread's `on_miss` is running already: the interpreter is to run the call.
    """
    _define_busy(module)
    f = module.function(MISSED, PTR, [PTR, PTR, PTR, PTR, I64], internal=True)
    f.function.attributes.add("noinline")
    cell, on_miss, code, bound, count = f.args
    f.add_to(cell, CELL_MISSES, 1)
    tstate = f.call("PyThreadState_Get", PTR)
    with f.when(f.call(BUSY, I1, cell, tstate)):
        f.ret(module.external_variable(MISS_SYMBOL))
    f.incref(code)  # the function can be given another one at any time that Python runs
    f.incref(on_miss)
    arguments = f.call("PyTuple_New", PTR, count)
    with f.when(f.is_null(arguments)):
        f.decref(on_miss)
        f.decref(code)
        f.ret(NULL)
    with f.loop(i64(0), count) as i:
        value = f.load(f.item(bound, i))
        f.incref(value)
        f.store(value, f.item(f.at(arguments, layouts.TUPLE_ITEMS), i))
    node = f.words(PTR, i64(_BUSY_WORDS))
    f.store(tstate, node, _BUSY_THREAD)
    f.store(f.load(cell, CELL_BUSY), node, _BUSY_NEXT)
    f.store(node, cell, CELL_BUSY)
    taken = f.call(room.TAKE, I32, tstate)
    result = f.call("PyObject_CallFunctionObjArgs", PTR, on_miss, arguments, code, NULL)
    f.call(room.GIVE, VOID, tstate, taken)
    f.call("trident.rested", VOID, cell, node)
    f.decref(on_miss)
    f.decref(code)
    f.decref(arguments)
    f.ret(result)


def emit_dispatch(f: Function, cell: ir.Value, code: ir.Value, bound: ir.Value) -> ir.Value:
    """Call dispatch where there is one for this code object: its answer, or the miss marker. Counts hits, and the depth of recursion
    as a frame would."""
    miss = f.module.external_variable(MISS_SYMBOL)
    answer = f.variable(miss)
    dispatch = f.load(cell, CELL_DISPATCH)
    with f.when(f.b.and_(f.not_null(dispatch), f.equal(f.load(cell, CELL_CODE), code)), likely=True):
        where = f.module.variable("trident.where", I64)  # an empty C string
        deep = f.variable(f.call("Py_EnterRecursiveCall", I32, where))
        if f.module.layout.tstate_c_recursion_remaining >= 0:
            _emit_enter_frame(f, deep)
        with f.otherwise(f.equal(f.load(deep, kind=I32), i32(0))) as (fine, too_deep):
            with fine:
                result = f.call_address(dispatch, PTR, bound)
                f.call("Py_LeaveRecursiveCall", VOID)
                if f.module.layout.tstate_c_recursion_remaining >= 0:
                    f.add_to(f.call("PyThreadState_Get", PTR), f.module.layout.tstate_recursion_remaining, 1, I32)
                f.store(result, answer)
                with f.when(f.differ(result, miss), likely=True):
                    f.add_to(cell, CELL_HITS, 1)
            with too_deep:
                f.store(NULL, answer)
    return f.load(answer)


def _emit_enter_frame(f: Function, deep: ir.Value) -> None:
    """Where Python's frames have a limit of their own."""
    remaining = f.module.layout.tstate_recursion_remaining
    with f.when(f.equal(f.load(deep, kind=I32), i32(0)), likely=True):
        tstate = f.call("PyThreadState_Get", PTR)
        with f.otherwise(f.b.icmp_signed(">", f.load(tstate, remaining, I32), i32(0))) as (fine, full):
            with fine:
                f.add_to(tstate, remaining, -1, I32)
            with full:
                f.call("Py_LeaveRecursiveCall", VOID)
                f.call("PyErr_SetString", VOID, f.load(f.module.external_variable("PyExc_RecursionError")), pointer(_TOO_DEEP_ADDRESS))
                f.store(i32(1), deep)


_TOO_DEEP = ctypes.create_string_buffer(b"maximum recursion depth exceeded")
_TOO_DEEP_ADDRESS = ctypes.addressof(_TOO_DEEP)


def _define_run(module: Module) -> None:
    """`ptr run(self, code, bound, n)`: dispatch, else miss; the miss marker where the interpreter is to run the call.

    code: the one that the arguments were bound for, whatever the function has by now."""
    f = module.function("run", PTR, [PTR, PTR, PTR, I64], internal=True)
    f.inline()
    this, code, bound, count = f.args
    cell = f.load(this, CELL)
    with f.when(f.call(room.FULL, I1, f.call("PyThreadState_Get", PTR)), likely=False):
        f.ret(NULL)
    answer = emit_dispatch(f, cell, code, bound)
    result = f.variable(answer)
    with f.when(f.equal(answer, module.external_variable(MISS_SYMBOL)), likely=False):
        f.store(f.call(MISSED, PTR, cell, f.load(this, ON_MISS), code, bound, count), result)
    final = f.load(result)
    with f.when(f.is_null(final), likely=False):
        f.call(CLEAN, VOID)
    f.call(tools.SHOW, VOID)
    f.ret(final)


def _define_general(module: Module) -> None:
    """`ptr general(self, args, nargs, kwnames)`: the way of a call whose arguments are not simply the parameters."""
    f = module.function("general", PTR, [PTR, PTR, I64, PTR], internal=True)
    f.function.attributes.add("noinline")
    this, args, nargs, kwnames = f.args
    function = f.load(this, FUNCTION)
    code = f.load(function, module.layout.function_code)
    count, keywords = f.call(binding.COUNT, I64, code), binding.has_keywords(f, code)
    with f.when(f.b.icmp_signed(">", count, i64(binding.MAX_PARAMETERS))):
        f.ret(f.call("PyObject_Vectorcall", PTR, function, args, nargs, kwnames))
    bound = f.words(I64, f.b.add(count, i64(1)))
    f.incref(code)  # binding may run Python, which may give the function another one
    status = f.call(binding.BIND, I32, function, code, args, nargs, kwnames, bound)
    result = f.variable(NULL)
    f.store(function, f.item(bound, count))
    with f.when(f.equal(status, i32(binding.BOUND)), likely=True):
        f.store(f.call("run", PTR, this, code, bound, count), result)
    f.call(binding.RELEASE, VOID, bound, count, keywords)
    f.decref(code)
    with f.when(f.equal(status, i32(binding.MISMATCH)), likely=False):
        f.ret(f.call("PyObject_Vectorcall", PTR, function, args, nargs, kwnames))
    with f.when(f.equal(f.load(result), module.external_variable(MISS_SYMBOL)), likely=False):
        f.ret(f.call("interpret", PTR, function, args, nargs, kwnames))
    f.ret(f.load(result))


def _define_vectorcall(module: Module) -> None:
    """`ptr vectorcall(self, args, nargsf, kwnames)`: the type's vectorcall."""
    layout = module.layout
    f = module.function("vectorcall", PTR, [PTR, PTR, I64, PTR])
    this, args, nargsf, kwnames = f.args
    function, cell = f.load(this, FUNCTION), f.load(this, CELL)
    code = f.load(function, layout.function_code)
    off = f.differ(f.b.and_(f.load(cell, CELL_FLAGS, I64), i64(DISABLED)), i64(0))
    cleared = f.is_null(f.load(this, ON_MISS))
    watched = f.call(tracing.CHECK, I1, f.call("PyThreadState_Get", PTR), code)
    with f.when(f.b.or_(f.b.or_(off, cleared), watched), likely=False):
        f.ret(f.call("PyObject_Vectorcall", PTR, function, args, nargsf, kwnames))
    nargs = f.b.and_(nargsf, i64((1 << 63) - 1))
    with f.when(f.b.not_(binding.is_simple(f, code, nargs, kwnames)), likely=False):
        f.ret(f.call("general", PTR, this, args, nargs, kwnames))
    bound = f.words(I64, f.b.add(nargs, i64(1)))
    with f.loop(i64(0), nargs) as i:
        f.store(f.load(f.item(args, i)), f.item(bound, i))
    f.store(function, f.item(bound, nargs))
    result = f.call("run", PTR, this, code, bound, nargs)
    with f.when(f.equal(result, module.external_variable(MISS_SYMBOL)), likely=False):
        f.ret(f.call("interpret", PTR, function, args, nargsf, kwnames))
    f.ret(result)


_INTERPRETED_IN_C, _MODEST_LIMIT = 2, 4096


def _define_interpret(module: Module) -> None:
    """`ptr interpret(function, args, nargs, kwnames)`: a call that the function makes of itself while its miss is handled.

    Eager's would be no call in C. So where those have a limit of their own it counts none; unless the user has raised the limit
    of Python's frames, which is then no longer what keeps the C stack from overflowing.
    """
    f = module.function("interpret", PTR, [PTR, PTR, I64, PTR], internal=True)
    layout = module.layout
    granted = f.variable(i32(0))
    tstate = f.call("PyThreadState_Get", PTR)
    if layout.tstate_c_recursion_remaining >= 0:
        with f.when(f.b.icmp_signed("<=", f.load(tstate, layout.tstate_recursion_limit, I32), i32(_MODEST_LIMIT))):
            f.add_to(tstate, layout.tstate_c_recursion_remaining, _INTERPRETED_IN_C, I32)
            f.store(i32(1), granted)
    result = f.call("PyObject_Vectorcall", PTR, *f.args)
    with f.when(f.differ(f.load(granted, kind=I32), i32(0))):
        f.add_to(tstate, layout.tstate_c_recursion_remaining, -_INTERPRETED_IN_C, I32)
    f.ret(result)


def _define_slots(module: Module) -> None:
    """The type's tp_traverse, tp_clear, tp_dealloc and tp_descr_get."""
    f = module.function("traverse", I32, [PTR, PTR, PTR])
    this, visit, data = f.args
    for offset in (layouts.OB_TYPE, FUNCTION, ON_MISS, DICT, OWNER):
        field = f.load(this, offset)
        with f.when(f.not_null(field)):
            stop = f.call_address(visit, I32, field, data)
            with f.when(f.differ(stop, i32(0))):
                f.ret(stop)
    f.ret(i32(0))

    # The function and the cell stay: a finalizer of the same garbage may still call this object. Cycles break without them.
    f = module.function("clear", I32, [PTR])
    for offset in (ON_MISS, DICT):
        f.clear(f.args[0], offset)
    f.ret(i32(0))

    f = module.function("dealloc", VOID, [PTR])
    (this,) = f.args
    f.call("PyObject_GC_UnTrack", VOID, this)
    with f.when(f.not_null(f.load(this, WEAKREFS))):
        f.call("PyObject_ClearWeakRefs", VOID, this)
    for offset in (ON_MISS, DICT, OWNER, FUNCTION):
        f.clear(this, offset)
    kind = f.load(this, layouts.OB_TYPE)
    f.call("PyObject_GC_Del", VOID, this)
    f.decref(kind)
    f.ret()

    f = module.function("descr_get", PTR, [PTR, PTR, PTR])
    this, instance, _ = f.args
    none = module.external_variable("_Py_NoneStruct")
    with f.when(f.b.or_(f.is_null(instance), f.equal(instance, none))):
        f.incref(this)
        f.ret(this)
    f.ret(f.call("PyMethod_New", PTR, this, instance))


def _define_forwarding(module: Module) -> None:
    """Getter and setter of the attributes that are the wrapped function's; their closure is the name."""
    f = module.function("get_forwarded", PTR, [PTR, PTR])
    f.ret(f.call("PyObject_GetAttr", PTR, f.load(f.args[0], FUNCTION), f.args[1]))
    f = module.function("set_forwarded", I32, [PTR, PTR, PTR])
    this, value, name = f.args
    f.ret(f.call("PyObject_SetAttr", I32, f.load(this, FUNCTION), name, value))  # no value: deletes


@cache
def _native() -> engine.Compiled:
    module = Module("callable")
    binding.define_binding(module)
    tracing.define_check(module)
    define_clean(module)
    room.define(module)
    room.define_stack(module)
    define_missed(module)
    _define_run(module)
    _define_interpret(module)
    _define_general(module)
    _define_vectorcall(module)
    _define_slots(module)
    _define_forwarding(module)
    return module.compile()


# ------------------------------------------------------------------------------------------------------------------ the type


class _Slot(ctypes.Structure):
    _fields_ = (("slot", ctypes.c_int), ("function", ctypes.c_void_p))


class _Spec(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("basicsize", ctypes.c_int), ("itemsize", ctypes.c_int), ("flags", ctypes.c_uint),
                ("slots", ctypes.POINTER(_Slot)))


class _Member(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("kind", ctypes.c_int), ("offset", ctypes.c_ssize_t), ("flags", ctypes.c_int),
                ("doc", ctypes.c_char_p))


class _GetSet(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("get", ctypes.c_void_p), ("set", ctypes.c_void_p), ("doc", ctypes.c_char_p),
                ("closure", ctypes.c_void_p))


_TP_CALL, _TP_CLEAR, _TP_DEALLOC, _TP_DESCR_GET, _TP_TRAVERSE, _TP_MEMBERS, _TP_GETSET = 50, 51, 52, 54, 71, 72, 73
_T_OBJECT, _T_ULONGLONG, _T_PYSSIZET, _READONLY = 16, 18, 19, 1
_DISALLOW_INSTANTIATION, _HAVE_VECTORCALL, _HAVE_GC, _METHOD_DESCRIPTOR = 1 << 7, 1 << 11, 1 << 14, 1 << 17

# Attributes that are those of the wrapped function, in both directions.
FORWARDED = ("__name__", "__qualname__", "__annotations__", "__defaults__", "__kwdefaults__", "__code__", "__globals__",
             "__closure__", "__builtins__", "__type_params__")
_kept: list[object] = []  # C arrays that types refer to for ever


def _members() -> dict[str, object]:
    """What every callable type has, written in Python: nothing here is on the way of a call."""
    def itself(self: Any, *_: object) -> Any:
        return self

    def by_name(self: Any) -> str:
        return str(self.__qualname__)  # pickle stores it as the global of this name, like a function

    def wrapped(self: Any) -> Any:
        return self.__wrapped__  # for torch.jit.script, which compiles source code

    def represent(self: Any) -> str:
        return f"<trident function {self.__qualname__} at {id(self):#x}>"

    return {"__copy__": itself, "__deepcopy__": itself, "__reduce__": by_name, "__repr__": represent,
            "__prepare_scriptable__": wrapped}


def _array(kind: type[ctypes.Structure], *rows: tuple[Any, ...]) -> int:
    made: Any = (kind * (len(rows) + 1))(*rows)  # type: ignore[misc]  # the last one stays zero
    _kept.append(made)
    return ctypes.addressof(made)


def callable_type(name: str = "trident.Function", extra: Mapping[str, object] | None = None) -> type:
    """A type of native callables. `extra` are additional members (methods, properties) of its instances."""
    layouts.current()
    native = _native()
    members = _array(_Member, (b"__vectorcalloffset__", _T_PYSSIZET, VECTORCALL, _READONLY, None),
                     (b"__dictoffset__", _T_PYSSIZET, DICT, _READONLY, None),
                     (b"__weaklistoffset__", _T_PYSSIZET, WEAKREFS, _READONLY, None),
                     (b"__wrapped__", _T_OBJECT, FUNCTION, _READONLY, b"the Python function"),
                     (b"_entry_address", _T_ULONGLONG, CELL, _READONLY, b"address of the EntryCell"))
    forwarded = [(name.encode(), native.address("get_forwarded"), native.address("set_forwarded"), None,
                  engine.immortal(sys.intern(name))) for name in FORWARDED if name in FunctionType.__dict__]
    getset = _array(_GetSet, (b"__dict__", engine.api_address("PyObject_GenericGetDict"),
                              engine.api_address("PyObject_GenericSetDict"), None, None), *forwarded)
    slots = _array(_Slot, (_TP_CALL, engine.api_address("PyVectorcall_Call")), (_TP_CLEAR, native.address("clear")),
                   (_TP_DEALLOC, native.address("dealloc")), (_TP_DESCR_GET, native.address("descr_get")),
                   (_TP_TRAVERSE, native.address("traverse")), (_TP_MEMBERS, members), (_TP_GETSET, getset))
    flags = _DISALLOW_INSTANTIATION | _HAVE_VECTORCALL | _HAVE_GC | _METHOD_DESCRIPTOR
    spec = _Spec(name.encode(), SIZE, 0, flags, ctypes.cast(slots, ctypes.POINTER(_Slot)))
    _kept.append(spec)
    made: type = _type_from_spec(ctypes.addressof(spec))
    for key, value in (_members() | dict(extra or {})).items():
        setattr(made, key, value)
    return made


_type_from_spec = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p)(("PyType_FromSpec", ctypes.pythonapi))
_allocate = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object, ctypes.c_ssize_t)(("PyType_GenericAlloc", ctypes.pythonapi))


@cache
def default_type() -> type:
    """The type that `make_callable` uses where none is named."""
    return callable_type()


def _own(address: int, value: object) -> None:
    """Store a new reference into an object's field that is NULL."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
    ctypes.c_uint64.from_address(address).value = id(value)


def make_callable(function: FunctionType, cell: EntryCell | int, miss: Callable[[tuple[Any, ...], CodeType], object],
                  kind: type | None = None) -> Any:
    """A native callable that stands for `function`.

    cell: an EntryCell, which the callable then keeps alive, or the address of one, which the caller keeps alive.
    miss: called with the tuple of bound arguments (without the function) and the code object that they were bound for where dispatch
    does not answer; its result is the call's. kind: a type from `callable_type`.
    """
    if type(function) is not FunctionType:
        raise TypeError(f"a Python function is needed, not {type(function).__name__}")
    if not callable(miss):
        raise TypeError("miss is not callable")
    kind = kind or default_type()
    made: Any = _allocate(kind, 0)
    at = id(made)
    ctypes.c_uint64.from_address(at + VECTORCALL).value = _native().address("vectorcall")
    ctypes.c_uint64.from_address(at + CELL).value = cell if isinstance(cell, int) else cell.address
    _own(at + FUNCTION, function)
    _own(at + ON_MISS, miss)
    if not isinstance(cell, int):
        _own(at + OWNER, cell)
    made.__module__, made.__doc__ = function.__module__, function.__doc__
    made.__dict__.update(function.__dict__)
    return made
