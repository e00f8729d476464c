"""The native functions that every host program calls: the GIL, releasing tensors, exits, pins, warnings, exact int arithmetic.

Owns them and their names. They are compiled once, on first use, and known to every later compilation by these symbols:

  trident_gil_acquire(ptr slot)          take the GIL if `*slot` holds a saved PyThreadState, and clear the slot
  trident_gil_release(ptr slot)          release the GIL if it is held (`*slot` is NULL) and save the PyThreadState there
  trident_release_tensor(ptr slot)       release the at::Tensor in a slot and clear the slot
  trident_keep(impl), trident_drop(impl) another reference to a TensorImpl, one less
  trident_release_vector(ptr slot)       the same for a std::vector<at::Tensor>
  trident_release_list(ptr slot)         the same for a c10::List
  trident_exit(frame, site) -> ptr       leave the trace: the miss marker, or what the bridge or the handler returns
  trident_raise(frame, site) -> ptr      the same with a Python exception set
  trident_catch(frame, site, exn) -> ptr the same with a C++ exception in flight
  trident_warnings_begin/end(frame), trident_warned(frame): the last throws
    where a warning became an error
  trident_dispatch(record, bound) -> ptr what the first program that does not miss returns, or the miss marker
  trident_int_fits(obj) -> i1, trident_unbox_int(obj) -> i64, trident_pow_int(i64, i64, ptr out) -> i1, trident_symint(i64)
  trident_slow_metadata(frame, tensor, which, dim, ptr out) -> i1   1 with a Python exception set and the GIL held
  trident_forget_error(i1 failed) -> i1  its argument; clears the exception where that is 1
  trident_optional_list(ptr out, ptr tensors, count)   a c10::List<optional<Tensor>> of borrowed tensors (NULL: none)

`below`, `jumps` and `pin_runtime` add theirs.

What must hold: all functions that touch Python objects run with the GIL held; the exit functions leave with it held, having
released everything that the frame owns.

May import: llvmlite (through emit), emit, engine, frame, jumps, pin_layout, callable, room, symbols, torch_layouts, tools, aside.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any, Final

import torch
from llvmlite import ir

from trident.backend.native import below, emit, engine, frame, jumps, pin_layout, pin_runtime, room, tools, torch_layouts
from trident.backend.native.aside import aside
from trident.backend.native.emit import I1, I8, I32, I64, NULL, PTR, VOID, i64, pointer
from trident.errors import UnsupportedTorch

FUNCTIONS: Final[tuple[str, ...]] = (
    "trident_gil_acquire", "trident_gil_release", "trident_keep", "trident_drop", "trident_release_tensor",
    "trident_release_vector", "trident_release_list", "trident_exit", "trident_raise", "trident_catch", "trident_warnings_begin",
    "trident_warnings_end", "trident_warned", "trident_int_fits", "trident_unbox_int", "trident_pow_int", "trident_symint",
    "trident_slow_metadata", "trident_optional_list", "trident_forget_error", "trident_dispatch", *below.FUNCTIONS,
    *jumps.FUNCTIONS, *pin_runtime.FUNCTIONS,
)

_CXX_CLASS: Final = int.from_bytes(b"GNUCC++\0", "big")
"""The class of C++ exceptions in the unwinder's header; the last byte tells kinds of them apart."""
WRAP: Final = "_Z16THPVariable_WrapRKN2at10TensorBaseE"
WRAP_MOVE: Final = "_Z16THPVariable_WrapON2at10TensorBaseE"
_UNDEFINED: Final = "_ZN3c1019UndefinedTensorImpl10_singletonE"
_DECREF_PYOBJECT: Final = "_ZNK3c1010TensorImpl15decref_pyobjectEv"
_WARNING_NEW: Final = "_ZN5torch16PyWarningHandlerC1Ev"
_WARNING_DELETE: Final = "_ZN5torch16PyWarningHandlerD1Ev"
_ORDER: Final = "acq_rel"


def _gil(m: emit.Module) -> None:
    f = m.function("trident_gil_acquire", VOID, [PTR])
    saved = f.load(f.args[0])
    with f.when(f.not_null(saved)):
        f.call("PyEval_RestoreThread", VOID, saved)
        f.store(NULL, f.args[0])
    f.ret()
    f = m.function("trident_gil_release", VOID, [PTR])
    with f.when(f.is_null(f.load(f.args[0]))):
        f.store(f.call("PyEval_SaveThread", PTR), f.args[0])
    f.ret()


def _release(m: emit.Module) -> None:
    """`~intrusive_ptr`: the same steps as c10's."""
    f = m.function("trident_drop", VOID, [PTR])
    target, b = f.args[0], f.b
    with f.when(b.or_(f.is_null(target), f.equal(target, m.external_variable(_UNDEFINED)))):
        f.ret()
    counts = f.at(target, torch_layouts.REFCOUNT)
    vtable = f.load(target)
    now = b.load_atomic(counts, "acquire", 8, typ=I64)
    unique = torch_layouts.ONE_WEAK | torch_layouts.ONE_STRONG
    with f.when(f.equal(b.and_(now, i64(torch_layouts.HAS_PYOBJECT - 1)), i64(unique))):
        f.store(i64(0), counts)
        f.call_address(f.load(vtable, 8 * torch_layouts.VTABLE_DELETE), VOID, target)
        f.ret()
    new = b.sub(b.atomic_rmw("sub", counts, i64(1), _ORDER), i64(1))
    strong = b.and_(new, i64(0xFFFFFFFF))
    with f.when(f.equal(strong, i64(0))):
        weak = b.and_(b.lshr(new, i64(32)), i64(0x7FFFFFFF))
        with f.when(b.icmp_unsigned("!=", weak, i64(1))):
            f.call_address(f.load(vtable, 8 * torch_layouts.VTABLE_RELEASE_RESOURCES), VOID, target)
            left = b.sub(b.atomic_rmw("sub", counts, i64(torch_layouts.ONE_WEAK), _ORDER), i64(torch_layouts.ONE_WEAK))
            with f.when(f.differ(b.and_(b.lshr(left, i64(32)), i64(0x7FFFFFFF)), i64(0))):
                f.ret()
        f.call_address(f.load(vtable, 8 * torch_layouts.VTABLE_DELETE), VOID, target)
        f.ret()
    with f.when(b.and_(f.equal(strong, i64(1)), b.icmp_signed("<", new, i64(0)))):
        f.call(_DECREF_PYOBJECT, VOID, target)
    f.ret()
    for name in ("trident_release_tensor", "trident_release_list"):
        f = m.function(name, VOID, [PTR])
        old = f.load(f.args[0])
        f.store(NULL, f.args[0])
        f.call("trident_drop", VOID, old)
        f.ret()
    f = m.function("trident_release_vector", VOID, [PTR])
    begin, end = f.load(f.args[0]), f.load(f.args[0], 8)
    with f.when(f.not_null(begin)):
        f.store(NULL, f.args[0])
        count = f.b.lshr(f.b.sub(f.b.ptrtoint(end, I64), f.b.ptrtoint(begin, I64)), i64(3))
        with f.loop(i64(0), count) as index:
            f.call("trident_drop", VOID, f.load(f.item(begin, index)))
        f.call("_ZdlPv", VOID, begin)
    f.ret()


def _slot(f: emit.Function, base: ir.Value, index: ir.Value) -> ir.Value:
    return f.item(f.at(base, frame.SLOTS), index)


def _release_all(m: emit.Module) -> None:
    f = m.function("trident_release_all", VOID, [PTR], internal=True)
    base = f.args[0]
    table = f.load(base, frame.PROGRAM)
    kinds = f.load(table, frame.SLOT_KINDS)
    with f.loop(i64(0), f.load(table, frame.SLOT_COUNT, I64)) as index:
        kind = f.load(f.b.gep(kinds, [index], source_etype=I8), kind=I8)
        slot = _slot(f, base, index)
        for code, name in ((frame.SlotKind.TENSOR, "trident_release_tensor"), (frame.SlotKind.VECTOR, "trident_release_vector"),
                           (frame.SlotKind.LIST, "trident_release_list")):
            with f.when(f.equal(kind, ir.Constant(I8, code))):
                f.call(name, VOID, slot)
        with f.when(f.equal(kind, ir.Constant(I8, frame.SlotKind.OBJECT))):
            f.clear(slot)
    f.ret()


def _box(m: emit.Module) -> None:
    """One operand of a state as a new reference."""
    f = m.function("trident_box", PTR, [PTR, PTR], internal=True)
    base, entry = f.args
    kind, value = f.load(entry, 0, I64), f.load(entry, 8, I64)
    slot = _slot(f, base, value)

    def case(code: frame.BoxKind) -> Any:
        return f.when(f.equal(kind, i64(code)))

    def owned(obj: ir.Value) -> None:
        f.incref(obj)
        f.ret(obj)

    with case(frame.BoxKind.ARG):
        owned(f.load(f.item(f.load(base, frame.ARGS), value)))
    with case(frame.BoxKind.CONST):
        owned(f.b.inttoptr(value, PTR))
    with case(frame.BoxKind.OBJECT):
        owned(f.load(slot))
    with case(frame.BoxKind.TENSOR):
        f.ret(f.call(WRAP, PTR, slot))
    with case(frame.BoxKind.TENSOR_AT):
        f.ret(f.call(WRAP, PTR, f.load(slot)))
    with case(frame.BoxKind.INT):
        f.ret(f.call("PyLong_FromLongLong", PTR, f.load(slot, kind=I64)))
    with case(frame.BoxKind.FLOAT):
        f.ret(f.call("PyFloat_FromDouble", PTR, f.load(slot, kind=ir.DoubleType())))
    f.ret(f.call("PyBool_FromLong", PTR, f.load(slot, kind=I64)))


def _site(f: emit.Function, base: ir.Value, number: ir.Value) -> ir.Value:
    sites = f.load(f.load(base, frame.PROGRAM), frame.SITES)
    return f.at(sites, f.b.mul(number, i64(frame.SITE_SIZE)))


def _leave(m: emit.Module) -> None:
    """Box the state's operands, release the frame, and jump to the bridge (which takes them over) or ask the handler."""
    f = m.function("trident_leave", PTR, [PTR, PTR, PTR], internal=True)
    base, site, error = f.args  # error: the exception (a reference of ours), or NULL
    table = f.load(base, frame.PROGRAM)
    is_bridge = f.load(table, frame.IS_BRIDGE, I64)
    f.add_to(site, frame.TAKEN, 1)
    state = f.at(f.load(table, frame.STATES), f.b.mul(f.load(site, frame.STATE, I64), i64(frame.STATE_SIZE)))
    entries, count = f.load(state, frame.ENTRIES), f.load(state, frame.ENTRY_COUNT, I64)
    record = f.call("trident_new_jump", PTR, f.load(site, frame.BRIDGE), count)
    failed = f.variable(f.is_null(record))
    with f.when(f.not_null(record)):
        with f.loop(i64(0), count) as index:
            boxed = f.call("trident_box", PTR, base, f.at(entries, f.b.mul(index, i64(frame.ENTRY_SIZE))))
            f.store(boxed, f.item(f.at(record, frame.JUMP_VALUES), index))
            with f.when(f.is_null(boxed)):
                f.store(ir.Constant(I1, 1), failed)
    f.call("trident_release_all", VOID, base)
    result = f.variable(NULL)
    usable = f.b.not_(f.load(failed, kind=I1))
    use_bridge = f.b.and_(usable, f.b.and_(f.not_null(f.load(site, frame.BRIDGE)), f.is_null(error)))
    with f.when(use_bridge):
        f.store(f.load(site, frame.BRIDGE), record)
        f.store(f.at(record, frame.JUMP_TAG), result)
    with f.when(f.b.not_(use_bridge)):
        with f.when(usable):
            f.store(f.call("trident_ask", PTR, base, site, f.at(record, frame.JUMP_VALUES), count, error), result)
        f.call("trident_free_jump", VOID, record)
    f.xdecref(error)
    with f.when(f.differ(is_bridge, i64(0))):
        f.ret(f.load(result))
    f.ret(f.call("trident_go_on", PTR, f.load(result)))


def _ask(m: emit.Module) -> None:
    """handler(site, values, error or None): the list of values has taken over the references, so that the handler can let go of them.
    What it returns, a Jump being one."""
    f = m.function("trident_ask", PTR, [PTR, PTR, PTR, I64, PTR], internal=True)
    base, site, values, count, error = f.args
    f.call(tools.HIDE, VOID, emit.i32(0))  # what an opaque call of this program has installed
    packed = f.call("PyList_New", PTR, count)
    with f.when(f.is_null(packed)):
        f.ret(NULL)
    with f.loop(i64(0), count) as index:
        f.store(f.load(f.item(values, index)), f.item(f.load(packed, pin_layout.LIST_ITEMS), index))
        f.store(NULL, f.item(values, index))
    arguments = f.words(PTR, i64(3))
    f.store(f.load(site, frame.SITE_OBJECT), arguments)
    f.store(packed, arguments, 8)
    f.store(f.b.select(f.is_null(error), m.external_variable("_Py_NoneStruct"), error), arguments, 16)
    tstate = f.call("PyThreadState_Get", PTR)
    taken = f.call(room.TAKE, I32, tstate)
    result = f.call("PyObject_Vectorcall", PTR, f.load(f.load(base, frame.PROGRAM), frame.HANDLER), arguments, i64(3), NULL)
    f.call(room.GIVE, VOID, tstate, taken)
    f.decref(packed)
    f.ret(f.call("trident_as_jump", PTR, result))


def _exits(m: emit.Module) -> None:
    f = m.function("trident_exit", PTR, [PTR, I64])
    f.call("trident_gil_acquire", VOID, f.at(f.args[0], frame.GIL))
    f.call("trident_warnings_end", VOID, f.args[0])
    site = _site(f, *f.args)
    with f.when(f.b.icmp_signed("<", f.load(site, frame.STATE, I64), i64(0))):
        f.add_to(site, frame.TAKEN, 1)
        f.call("trident_release_all", VOID, f.args[0])
        f.ret(m.external_variable("trident_miss"))
    f.ret(f.call("trident_leave", PTR, f.args[0], site, NULL))

    f = m.function("trident_raise", PTR, [PTR, I64])
    base = f.args[0]
    f.call("trident_gil_acquire", VOID, f.at(base, frame.GIL))
    site = _site(f, *f.args)
    error = f.words(PTR, i64(3))
    f.call("PyErr_Fetch", VOID, error, f.at(error, 8), f.at(error, 16))
    f.call("PyErr_NormalizeException", VOID, error, f.at(error, 8), f.at(error, 16))
    value, traceback = f.load(error, 8), f.load(error, 16)
    with f.when(f.not_null(traceback)):
        f.call("PyException_SetTraceback", I32, value, traceback)
    f.xdecref(f.load(error))
    f.xdecref(traceback)
    f.call("trident_warnings_end", VOID, base)
    with f.when(f.b.icmp_signed("<", f.load(site, frame.STATE, I64), i64(0))):
        f.call("trident_release_all", VOID, base)
        f.call("PyErr_SetObject", VOID, f.load(value, pin_layout.OB_TYPE), value)
        f.decref(value)
        f.ret(NULL)
    f.ret(f.call("trident_leave", PTR, base, site, value))

    f = m.function("trident_catch", PTR, [PTR, I64, PTR])
    f.function.attributes.add("uwtable")
    base = f.args[0]
    f.call("trident_below_done", VOID, base)
    # A thread that is being ended (the interpreter shuts down) unwinds through here too: nothing may stop that.
    kind = f.b.lshr(f.load(f.args[2], kind=I64), i64(8))
    with f.when(f.differ(kind, i64(_CXX_CLASS >> 8)), likely=False):
        f.call("_Unwind_Resume", VOID, f.args[2])
    f.call("trident_gil_acquire", VOID, f.at(base, frame.GIL))
    caught = f.words(PTR)
    f.call("__cxa_begin_catch", PTR, f.args[2])
    f.call("_ZSt17current_exceptionv", VOID, caught)
    f.call("_ZN5torch29translate_exception_to_pythonERKNSt15__exception_ptr13exception_ptrE", VOID, caught)
    f.call("_ZNSt15__exception_ptr13exception_ptrD1Ev", VOID, caught)
    f.call("__cxa_end_catch", VOID)
    site = _site(f, base, f.args[1])
    start = f.load(site, frame.RESULT_START, I64)
    with f.when(f.equal(f.load(base, frame.RESULTS_VALID, I64), i64(0))):
        with f.loop(i64(0), f.load(site, frame.RESULT_WORDS, I64)) as index:
            f.store(i64(0), _slot(f, base, f.b.add(start, index)))
    with f.when(f.differ(f.load(base, frame.WARNINGS_ACTIVE, I64), i64(0))):
        f.store(ir.Constant(I8, 1), base, frame.WARNING_IN_EXCEPTION)
    f.ret(f.call("trident_raise", PTR, base, f.args[1]))


def _dispatch(m: emit.Module) -> None:
    """Try the programs that the selection names; without one, the program that answered last, then the others in order."""
    miss = m.external_variable("trident_miss")
    f = m.function("trident_dispatch", PTR, [PTR, PTR])
    record, bound = f.args
    f.add_to(record, frame.DISPATCH_INSIDE, 1)
    table = f.load(record, frame.DISPATCH_TABLE)
    count, last = f.load(table, frame.TABLE_COUNT, I64), f.load(table, frame.TABLE_LAST, I64)

    def attempt(index: ir.Value) -> None:
        entry = f.at(f.at(table, frame.TABLE_ENTRIES), f.b.mul(index, i64(frame.DISPATCH_ENTRY_SIZE)))
        with f.when(f.differ(f.load(entry, frame.ENTRY_HITS, I64), f.load(entry, frame.ENTRY_DUE, I64)), likely=True):
            result = f.call_address(f.load(entry), PTR, bound)
            with f.when(f.differ(result, miss)):
                f.add_to(entry, frame.ENTRY_HITS, 1)
                f.store(f.load(entry, frame.ENTRY_LEAD, I64), table, frame.TABLE_LAST)
                f.add_to(record, frame.DISPATCH_INSIDE, -1)
                f.ret(result)

    def done() -> None:
        f.add_to(record, frame.DISPATCH_INSIDE, -1)
        f.ret(miss)

    select = f.load(table, frame.TABLE_SELECT)
    with f.when(f.not_null(select)):
        chosen = f.call_address(select, PTR, bound)
        with f.loop(i64(0), f.load(chosen, 0, I64)) as place:
            attempt(f.load(f.item(f.at(chosen, 8), place), kind=I64))
        done()
    with f.when(f.differ(count, i64(0))):
        attempt(last)
    with f.loop(i64(0), count) as index:
        with f.when(f.differ(index, last)):
            attempt(index)
    done()


def _warnings(m: emit.Module) -> None:
    """What HANDLE_TH_ERRORS does around every operator that Python calls: C++ warnings become Python warnings."""
    f = m.function("trident_warnings_begin", VOID, [PTR])
    f.call(_WARNING_NEW, VOID, f.at(f.args[0], frame.WARNINGS))
    f.store(i64(1), f.args[0], frame.WARNINGS_ACTIVE)
    f.ret()
    f = m.function("trident_warnings_end", VOID, [PTR])
    with f.when(f.differ(f.load(f.args[0], frame.WARNINGS_ACTIVE, I64), i64(0))):
        f.store(i64(0), f.args[0], frame.WARNINGS_ACTIVE)
        f.call(_WARNING_DELETE, VOID, f.at(f.args[0], frame.WARNINGS))
    f.ret()
    f = m.function("trident_warned", VOID, [PTR])
    base = f.args[0]
    with f.when(f.differ(f.load(base, frame.WARNING_BUFFER), f.load(base, frame.WARNING_BUFFER + 8)), likely=False):
        # The handler's destructor issues the warnings, and throws where a filter made one an error.
        f.store(i64(1), base, frame.RESULTS_VALID)
        f.store(i64(0), base, frame.WARNINGS_ACTIVE)
        f.call(_WARNING_DELETE, VOID, f.at(base, frame.WARNINGS))
        f.call("trident_warnings_begin", VOID, base)
        f.store(i64(0), base, frame.RESULTS_VALID)
    f.ret()
    f.function.attributes.add("uwtable")


# ------------------------------------------------------------------------------------------------------------------- ints


def _ints(m: emit.Module) -> None:
    f = m.function("trident_int_fits", I1, [PTR])
    with f.when(f.differ(f.load(f.args[0], pin_layout.OB_TYPE), m.external_variable("PyLong_Type"))):
        f.ret(ir.Constant(I1, 0))
    overflow = f.words(I32)
    f.call("PyLong_AsLongLongAndOverflow", I64, f.args[0], overflow)
    f.ret(f.equal(f.load(overflow, kind=I32), emit.i32(0)))
    f = m.function("trident_unbox_int", I64, [PTR])
    f.ret(f.call("PyLong_AsLongLong", I64, f.args[0]))
    f = m.function("trident_symint", I64, [I64])
    with f.when(f.b.icmp_signed(">", f.args[0], i64(torch_layouts.SYMINT_LIMIT)), likely=True):
        f.ret(f.args[0])
    # Such a number lives in an object of its own, which nobody frees here: it is as good as never met.
    cell = f.words(I64)
    f.store(f.args[0], cell)
    f.call("_ZN3c106SymInt19promote_to_negativeEv", VOID, cell)
    f.ret(f.load(cell, kind=I64))
    _power(m)


def _power(m: emit.Module) -> None:
    """base ** exponent of a non-negative exponent; 1 where it does not fit."""
    f = m.function("trident_pow_int", I1, [I64, I64, PTR])
    with f.when(f.b.icmp_signed("<", f.args[1], i64(0))):
        f.ret(ir.Constant(I1, 1))
    base, left, result = f.variable(f.args[0]), f.variable(f.args[1]), f.variable(i64(1))

    def multiply(a: ir.Value, b: ir.Value, to: ir.Value) -> None:
        both = f.b.smul_with_overflow(f.load(a, kind=I64), f.load(b, kind=I64))
        with f.when(f.b.extract_value(both, 1)):
            f.ret(ir.Constant(I1, 1))
        f.store(f.b.extract_value(both, 0), to)

    with f.loop(i64(0), i64(64)):
        now = f.load(left, kind=I64)
        with f.when(f.equal(now, i64(0))):
            f.store(f.load(result, kind=I64), f.args[2])
            f.ret(ir.Constant(I1, 0))
        with f.when(f.differ(f.b.and_(now, i64(1)), i64(0))):
            multiply(result, base, result)
        f.store(f.b.lshr(now, i64(1)), left)
        with f.when(f.b.icmp_signed(">", now, i64(1))):  # one more squaring is needed, and its result is
            multiply(base, base, base)
    f.store(f.load(result, kind=I64), f.args[2])
    f.ret(ir.Constant(I1, 0))


# -------------------------------------------------------------------------------------------------------------- ATen lists


def _optional_list(m: emit.Module) -> None:
    f = m.function("trident_keep", VOID, [PTR])
    with f.when(f.equal(f.args[0], m.external_variable(_UNDEFINED))):
        f.ret()
    counts = f.at(f.args[0], torch_layouts.REFCOUNT)
    new = f.b.add(f.b.atomic_rmw("add", counts, i64(1), "monotonic"), i64(1))
    second = f.equal(f.b.and_(new, i64(0xFFFFFFFF)), i64(2))
    with f.when(f.b.and_(second, f.b.icmp_signed("<", new, i64(0)))):
        f.call("_ZNK3c1010TensorImpl15incref_pyobjectEv", VOID, f.args[0])
    f.ret()
    f = m.function("trident_optional_list", VOID, [PTR, PTR, I64])
    out, tensors, count = f.args
    size = f.b.mul(count, i64(torch_layouts.IVALUE_SIZE))
    buffer = f.call("_Znwm", PTR, size)
    with f.loop(i64(0), count) as index:
        value = f.at(buffer, f.b.mul(index, i64(torch_layouts.IVALUE_SIZE)))
        tensor = f.load(f.item(tensors, index))
        f.store(tensor, value)
        f.store(i64(torch_layouts.IVALUE_NONE), value, 8)
        with f.when(f.not_null(tensor)):
            f.call("trident_keep", VOID, tensor)
            f.store(i64(torch_layouts.IVALUE_TENSOR), value, 8)
    vector, kind = f.words(I64, i64(3)), f.words(I64, i64(2))
    end = f.at(buffer, size)
    for offset, value in ((0, buffer), (8, end), (16, end)):
        f.store(value, vector, offset)
    f.call("_ZN3c1012OptionalType8ofTensorEv", VOID, kind)
    made = f.call("_Znwm", PTR, i64(torch_layouts.LIST_SIZE))
    f.call("_ZN3c106detail8ListImplC1ESt6vectorINS_6IValueESaIS3_EENS_4Type24SingletonOrSharedTypePtrIS6_EE", VOID,
           made, vector, kind)
    f.store(i64(torch_layouts.ONE_WEAK | torch_layouts.ONE_STRONG), made, torch_layouts.REFCOUNT)
    f.store(made, out)
    f.ret()


# ---------------------------------------------------------------------------------------------------------------- metadata


def _read_metadata(tensor: Any, which: int, dimension: int) -> int:
    """The slow way, for tensors that do not keep their sizes, strides or device in the plain fields."""
    match frame.Metadata(which):
        case frame.Metadata.RANK:
            return tensor.dim()
        case frame.Metadata.SIZE:
            return tensor.size(dimension)
        case frame.Metadata.STRIDE:
            return tensor.stride(dimension)
        case frame.Metadata.NUMEL:
            return tensor.numel()
        case frame.Metadata.STORAGE_OFFSET:
            return tensor.storage_offset()
        case frame.Metadata.CONTIGUOUS:
            return int(tensor.is_contiguous())
        case frame.Metadata.DATA_PTR:
            return tensor.data_ptr()
        case frame.Metadata.DEVICE_INDEX:
            return -1 if tensor.device.index is None else tensor.device.index
    return torch._C._autograd.DeviceType.__members__[tensor.device.type.upper()].value


def _slow_metadata(m: emit.Module) -> None:
    f = m.function("trident_slow_metadata", I1, [PTR, PTR, I64, I64, PTR])
    base, tensor, which, dimension, out = f.args
    saved = f.load(base, frame.GIL)
    f.call("trident_gil_acquire", VOID, f.at(base, frame.GIL))
    arguments = f.words(PTR, i64(3))
    f.store(f.call(WRAP, PTR, tensor), arguments)
    f.store(f.call("PyLong_FromLongLong", PTR, which), arguments, 8)
    f.store(f.call("PyLong_FromLongLong", PTR, dimension), arguments, 16)
    result = f.call("PyObject_Vectorcall", PTR, pointer(id(_read_metadata)), arguments, i64(3), NULL)
    for offset in (0, 8, 16):
        f.xdecref(f.load(arguments, offset))
    with f.when(f.is_null(result)):
        f.ret(ir.Constant(I1, 1))
    f.store(f.call("PyLong_AsLongLong", I64, result), out)
    f.decref(result)
    failed = f.not_null(f.call("PyErr_Occurred", PTR))
    with f.when(f.b.and_(f.not_null(saved), f.b.not_(failed))):
        f.call("trident_gil_release", VOID, f.at(base, frame.GIL))
    f.ret(failed)
    f = m.function("trident_forget_error", I1, [I1])
    with f.when(f.args[0]):
        f.call("PyErr_Clear", VOID)
    f.ret(f.args[0])


# --------------------------------------------------------------------------------------------------------------- all of it


def _check_warning_handler(compiled: engine.Compiled) -> None:
    """The handler's buffer must be where `trident_warned` looks, and empty when new."""
    storage = (ctypes.c_uint64 * (frame.SLOTS // 8))(*([0xABABABABABABABAB] * (frame.SLOTS // 8)))
    at = ctypes.addressof(storage)
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(compiled.address("trident_warnings_begin"))(at)
    words = list(storage)
    first = frame.WARNINGS // 8
    flag = ctypes.c_uint8.from_address(at + frame.WARNING_IN_EXCEPTION).value
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(compiled.address("trident_warnings_end"))(at)
    if not words[first] or words[first + 1: first + 4] != [0, 0, 0] or flag or words[frame.SITE // 8] != 0xABABABABABABABAB:
        raise UnsupportedTorch("torch's PyWarningHandler is not the known one")


def _check_list(compiled: engine.Compiled) -> None:
    """A list of one tensor and one None must have the known fields, and give its tensor back when it is released."""
    tensor = torch.zeros(2)
    counts = ctypes.c_uint64.from_address(tensor._cdata + torch_layouts.REFCOUNT)
    before = counts.value
    out, given = ctypes.c_uint64(0), (ctypes.c_uint64 * 2)(tensor._cdata, 0)
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(compiled.address("trident_optional_list"))(
        ctypes.addressof(out), ctypes.addressof(given), 2)
    fields = (ctypes.c_uint64 * 7).from_address(out.value)
    begin, end = fields[2], fields[3]
    values = list((ctypes.c_uint64 * 4).from_address(begin)) if end - begin == 2 * torch_layouts.IVALUE_SIZE else []
    held = counts.value == before + 1
    good = values == [tensor._cdata, torch_layouts.IVALUE_TENSOR, 0, torch_layouts.IVALUE_NONE] and fields[5] and held
    ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(compiled.address("trident_release_list"))(ctypes.addressof(out))
    if not good or counts.value != before:
        raise UnsupportedTorch("c10::List is not the known one")


@cache
def load() -> engine.Compiled:
    """Compile the runtime, check what can be checked, and make its functions known. The first call takes some 100 ms."""
    # Its import names the miss marker to the engine.
    from trident.backend.native import callable as _callable  # noqa: F401

    torch_layouts.current()
    pin_layout.current()
    tools.install()
    m = emit.Module("trident.runtime")
    for define in (room.define, below.define, pin_runtime.define, _gil, _release, _release_all, _box, _warnings,
                   jumps.define, _ask, _leave, _exits, _dispatch, _ints, _optional_list, _slow_metadata):
        define(m)
    compiled = m.compile(opt=2)
    _check_warning_handler(compiled)
    aside(lambda: _check_list(compiled))
    for name in FUNCTIONS:
        if name in m.ir.globals:  # without a known layout of dispatch keys nobody asks for what needs it
            engine.add_symbol(name, compiled.address(name))
    return compiled
