"""The native side of `trident.replay`: find the graph that fits a call, copy in, launch, copy out.

Owns

  trident_replay(ptr site, ptr tensors, ptr numbers, ptr outs) -> i32   tensors: addresses of at::Tensors; numbers: words; outs: addresses
      of empty slots for at::Tensors. DONE; MISSED, and then nothing has happened; RAISED with a Python exception
  trident_replay_host_copy(to, from, bytes, stream) -> i32              memory of the host, for the emulation
  trident_replay_call(callable) -> i32                                  calls a Python object; nonzero with an exception set

What must hold: the GIL is held, and but for the emulation no Python code runs, so that nobody comes between the copies in and the
copies out; until the launch nothing that the program can see is changed; whatever is not exactly as it was at the capture is MISSED.

May import: llvmlite (through emit), emit, engine, keys, launch_layout, replay_layout, runtime, torch_layouts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

from llvmlite import ir

from trident.backend.native import emit, engine, keys, launch_layout, runtime, torch_layouts
from trident.backend.native import replay_layout as layout
from trident.backend.native.emit import I1, I8, I32, I64, PTR, VOID, i32, i64, pointer
from trident.backend.native.replay_layout import Mismatch, OutputKind, RowKind
from trident.errors import NativeError

REPLAY: Final = "trident_replay"
HOST_COPY: Final = "trident_replay_host_copy"
CALL: Final = "trident_replay_call"
_FITS: Final = "trident.replay.fits"
_PAIR: Final = ir.LiteralStructType([I64, I64])
_EMPTY_LIKE: Final = ("_ZN2at4_ops10empty_like4callERKNS_6TensorESt8optionalIN3c1010ScalarTypeEES5_INS6_6LayoutEES5_INS6_6DeviceEE"
                      "S5_IbES5_INS6_12MemoryFormatEE")
_REQUIRES_GRAD: Final = "_ZNK3c1010TensorImpl13requires_gradEv"


class _Test:
    """A function that gives a Mismatch (0 where all fits), and notes where."""

    def __init__(self, f: emit.Function, site: ir.Value) -> None:
        self.f, self.site = f, site

    def refuse(self, condition: ir.Value, why: Mismatch, where: ir.Value | None = None) -> None:
        """Return where a condition holds."""
        f = self.f
        with f.when(condition, likely=False):
            f.store(i64(why), self.site, layout.SITE_WHY)
            f.store(i64(0) if where is None else where, self.site, layout.SITE_WHERE)
            f.ret(I1(0))


def _define_copy(m: emit.Module) -> None:
    f = m.function(HOST_COPY, I32, [PTR, PTR, I64, PTR])
    f.call("memmove", PTR, *f.args[:3])
    f.ret(i32(0))
    f = m.function(CALL, I32, [PTR])
    result = f.call("PyObject_CallNoArgs", PTR, f.args[0])
    f.xdecref(result)
    f.ret(f.b.zext(f.is_null(result), I32))


def _define_environment(m: emit.Module) -> None:
    """i1 environment(site, graph): whether the rows and the thread's state are those of the capture."""
    f = m.function("environment", I1, [PTR, PTR], internal=True)
    f.function.attributes.add("uwtable")
    site, graph = f.args
    test = _Test(f, site)
    known = keys.current()
    assert known is not None
    guard = f.words(I64, i64(2))
    f.call(keys.EXCLUDE_GUARD, VOID, guard, i64(0))
    thread = f.load(guard)
    for offset, field in ((keys.INCLUDED, layout.GRAPH_INCLUDED), (keys.EXCLUDED, layout.GRAPH_EXCLUDED)):
        test.refuse(f.differ(f.load(thread, offset, I64), f.load(graph, field, I64)), Mismatch.THREAD, i64(offset))
    modes = f.b.zext(f.load(f.call(keys.AUTOGRAD_STATE, PTR), known.grad_mode, I8), I64)
    test.refuse(f.differ(modes, f.load(graph, layout.GRAPH_MODES, I64)), Mismatch.THREAD, modes)
    test.refuse(f.call(keys.HAS_CALLBACKS, I1), Mismatch.PROFILER)
    rows = f.load(graph, layout.GRAPH_ENVIRONMENT)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_ENVIRONMENT_COUNT, I64)) as index:
        row = f.at(rows, f.b.mul(index, i64(layout.ROW_SIZE)))
        found = f.b.and_(f.call("ask", I64, row), f.load(row, layout.ROW_MASK, I64))
        test.refuse(f.differ(found, f.load(row, layout.ROW_EXPECTED, I64)), Mismatch.ENVIRONMENT, index)
    f.ret(I1(1))


def _define_ask(m: emit.Module) -> None:
    """i64 ask(row): what a row's function gives now."""
    f = m.function("ask", I64, [PTR], internal=True)
    f.function.attributes.add("uwtable")
    row = f.args[0]
    function, kind = f.load(row), f.load(row, layout.ROW_KIND, I64)
    given = [f.load(row, layout.ROW_ARGUMENTS + 8 * n, I64) for n in range(3)]
    found = f.variable(i64(0))
    buffer = f.words(I64, i64(layout.ARRAY_BYTES // 8))
    with f.otherwise(f.equal(kind, i64(RowKind.ARRAY))) as (array, plain):
        with array:
            f.call("memset", PTR, buffer, i32(0), i64(layout.ARRAY_BYTES))
            f.call_address(function, VOID, buffer, *given)
            with f.loop(i64(0), i64(layout.ARRAY_BYTES // 8)) as index:
                word = f.load(f.item(buffer, index), kind=I64)
                f.store(f.b.mul(f.b.xor(f.load(found, kind=I64), word), i64(layout.FOLD)), found)
        with plain:
            both = f.call_address(function, _PAIR, *given)
            second = f.equal(kind, i64(RowKind.SECOND))
            f.store(f.b.select(second, f.b.extract_value(both, 1), f.b.extract_value(both, 0)), found)
    f.ret(f.load(found, kind=I64))


def _define_launches(m: emit.Module) -> None:
    """i1 launches(site, graph): whether Triton would launch the same kernels (see triton.guards)."""
    f = m.function("launches", I1, [PTR, PTR], internal=True)
    site, graph = f.args
    test = _Test(f, site)
    words, dicts = f.load(graph, layout.GRAPH_WORDS), f.load(graph, layout.GRAPH_DICTS)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_WORD_COUNT, I64)) as n:
        guard = f.at(words, f.b.mul(n, i64(8 * launch_layout.WORD_GUARD_WORDS)))
        found = f.b.and_(f.load(f.load(guard), kind=I64), f.load(guard, 8, I64))
        test.refuse(f.differ(found, f.load(guard, 16, I64)), Mismatch.LAUNCH, n)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_DICT_COUNT, I64)) as n:
        guard = f.at(dicts, f.b.mul(n, i64(8 * launch_layout.DICT_GUARD_WORDS)))
        mapping = f.load(guard)
        tag = f.load(mapping, launch_layout.DICT_VERSION_TAG, I64)
        with f.when(f.differ(tag, f.load(guard, 8, I64)), likely=False):
            found = f.call("_PyDict_GetItem_KnownHash", PTR, mapping, f.load(guard, 16), f.load(guard, 24, I64))
            test.refuse(f.differ(found, f.load(guard, 32)), Mismatch.LAUNCH, n)
            f.store(tag, guard, 8)
    f.ret(I1(1))


def _impl(f: emit.Function, tensors: ir.Value, index: ir.Value) -> ir.Value:
    return f.load(f.load(f.item(tensors, index)))


def _data(f: emit.Function, impl: ir.Value, item: ir.Value) -> ir.Value:
    """Address of a tensor's first element, as an i64."""
    known = layout.current()
    assert known is not None
    memory = f.load(f.load(impl, known.storage), known.memory, I64)
    offset = f.load(impl, torch_layouts.current().storage_offset, I64)
    return f.b.add(memory, f.b.mul(offset, item))


def _define_inputs(m: emit.Module) -> None:
    """i1 inputs(site, graph, tensors): whether all tensors are those of the capture, or like them where they are copied."""
    f = m.function("inputs", I1, [PTR, PTR, PTR], internal=True)
    site, graph, tensors = f.args
    test = _Test(f, site)
    known = layout.current()
    assert known is not None
    rows = f.load(graph, layout.GRAPH_INPUTS)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_INPUT_COUNT, I64)) as index:
        row, impl = f.at(rows, f.b.mul(index, i64(layout.INPUT_SIZE))), _impl(f, tensors, index)
        facts = f.load(row, layout.INPUT_FACTS)
        with f.loop(i64(0), f.load(row, layout.INPUT_FACT_COUNT, I64)) as n:
            fact = f.at(facts, f.b.mul(n, i64(layout.FACT_SIZE)))
            word = f.b.and_(f.load(f.at(impl, f.load(fact, kind=I64)), kind=I64), f.load(fact, 8, I64))
            test.refuse(f.differ(word, f.load(fact, 16, I64)), Mismatch.METADATA, index)
        _refuse_differentiable(f, test, row, impl, index)
        memory = f.load(row, layout.INPUT_MEMORY)
        with f.otherwise(f.not_null(memory)) as (pinned, copied):
            with pinned:
                storage = f.at(f.load(impl, known.storage), known.memory)
                for n in range(layout.MEMORY_WORDS):
                    test.refuse(f.differ(f.load(storage, 8 * n, I64), f.load(memory, 8 * n, I64)), Mismatch.ADDRESS, index)
            with copied:
                address = _data(f, impl, f.load(row, layout.INPUT_ITEM, I64))
                unaligned = f.b.and_(address, f.load(row, layout.INPUT_ALIGNMENT, I64))
                test.refuse(f.differ(unaligned, i64(0)), Mismatch.ALIGNMENT, index)
                _refuse_overlap(f, test, graph, address, f.load(row, layout.INPUT_BYTES, I64), index)
    pairs = f.load(graph, layout.GRAPH_SHARED)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_SHARED_COUNT, I64)) as n:
        pair = f.at(pairs, f.b.shl(n, i64(4)))
        one, other = (f.load(_impl(f, tensors, f.load(pair, at, I64)), known.version) for at in (0, 8))
        test.refuse(f.differ(one, other), Mismatch.VERSION, n)
    bumps = f.load(graph, layout.GRAPH_BUMPS)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_BUMP_COUNT, I64)) as n:
        index = f.load(f.at(bumps, f.b.shl(n, i64(4))), kind=I64)
        test.refuse(f.is_null(f.load(_impl(f, tensors, index), known.version)), Mismatch.VERSION, index)
    f.ret(I1(1))


def _refuse_differentiable(f: emit.Function, test: _Test, row: ir.Value, impl: ir.Value, index: ir.Value) -> None:
    """Autograd has nothing to do for a tensor without its data; for one with it where it is no view, has no tangent, and gradients are off
    or not wanted for it."""
    known = keys.current()
    assert known is not None
    meta = f.load(impl, known.autograd_meta)
    with f.when(f.not_null(meta)):
        test.refuse(f.differ(f.load(meta, kind=I64), i64(known.leaf_meta)), Mismatch.AUTOGRAD, index)
        test.refuse(f.not_null(f.load(meta, known.forward_grad)), Mismatch.AUTOGRAD, index)
        with f.when(f.equal(f.load(row, layout.INPUT_DIFFERENTIABLE, I64), i64(0))):
            test.refuse(f.call(_REQUIRES_GRAD, I1, impl), Mismatch.AUTOGRAD, index)


def _refuse_overlap(f: emit.Function, test: _Test, graph: ir.Value, address: ir.Value, size: ir.Value, index: ir.Value) -> None:
    """What is copied before must not be what the graph writes to."""
    written, end = f.load(graph, layout.GRAPH_WRITTEN), f.b.add(address, size)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_WRITTEN_COUNT, I64)) as n:
        pair = f.at(written, f.b.shl(n, i64(4)))
        before = f.b.icmp_unsigned("<=", end, f.load(pair, kind=I64))
        behind = f.b.icmp_unsigned(">=", address, f.load(pair, 8, I64))
        test.refuse(f.b.not_(f.b.or_(before, behind)), Mismatch.OVERLAP, index)


def _define_fits(m: emit.Module) -> None:
    f = m.function(_FITS, I1, [PTR, PTR, PTR, PTR], internal=True)
    f.function.attributes.add("uwtable")
    site, graph, tensors, numbers = f.args
    test = _Test(f, site)
    expected = f.load(graph, layout.GRAPH_NUMBERS)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_NUMBER_COUNT, I64)) as n:
        differs = f.differ(f.load(f.item(numbers, n), kind=I64), f.load(f.item(expected, n), kind=I64))
        test.refuse(differs, Mismatch.NUMBER, n)
    busy = f.load(graph, layout.GRAPH_BUSY)
    with f.when(f.not_null(busy)):
        test.refuse(f.differ(f.load(busy, kind=I64), i64(0)), Mismatch.BUSY)
    with f.when(f.b.not_(f.call("inputs", I1, site, graph, tensors)), likely=False):
        f.ret(I1(0))
    with f.when(f.b.not_(f.call("environment", I1, site, graph)), likely=False):
        f.ret(I1(0))
    with f.when(f.b.not_(f.call("launches", I1, site, graph)), likely=False):
        f.ret(I1(0))
    capturing = f.load(graph, layout.GRAPH_CAPTURING)
    with f.when(f.not_null(capturing)):
        status = f.variable(i32(0))
        failed = f.call_address(capturing, I32, f.load(graph, layout.GRAPH_STREAM), status)
        test.refuse(f.differ(f.b.or_(failed, f.load(status, kind=I32)), i32(0)), Mismatch.CAPTURING)
    f.ret(I1(1))


def _copy(f: emit.Function, graph: ir.Value, to: ir.Value, source: ir.Value, size: ir.Value, failed: Callable[[], None]) -> None:
    """On the graph's stream; failed: writes what is done where that cannot be."""
    status = f.call_address(f.load(graph, layout.GRAPH_COPY), I32, f.b.inttoptr(to, PTR), f.b.inttoptr(source, PTR), size,
                            f.load(graph, layout.GRAPH_STREAM))
    with f.when(f.differ(status, i32(0)), likely=False):
        failed()


def _each(f: emit.Function, graph: ir.Value, rows: int, count: int, size: int) -> _Rows:
    return _Rows(f, f.load(graph, rows), f.load(graph, count, I64), size)


class _Rows:
    """Rows of a table, to loop over."""

    def __init__(self, f: emit.Function, base: ir.Value, count: ir.Value, size: int) -> None:
        self.f, self.base, self.count, self.size = f, base, count, size

    def row(self, index: ir.Value) -> ir.Value:
        return self.f.at(self.base, self.f.b.mul(index, i64(self.size)))


def _define_outputs(m: emit.Module) -> None:
    """void allocate(graph, tensors, outs): the results, empty; void finish(graph, tensors): versions, counts. i1 copy_out(graph, outs)."""
    f = m.function("allocate", VOID, [PTR, PTR, PTR], internal=True)
    f.function.attributes.add("uwtable")
    graph, tensors, outs = f.args
    made = f.words(PTR)
    rows = _each(f, graph, layout.GRAPH_OUTPUTS, layout.GRAPH_OUTPUT_COUNT, layout.OUTPUT_SIZE)
    with f.loop(i64(0), rows.count) as index:
        row, out = rows.row(index), f.load(f.item(outs, index))
        kind, other = f.load(row, layout.OUTPUT_KIND, I64), f.load(row, layout.OUTPUT_INDEX, I64)
        with f.when(f.equal(kind, i64(OutputKind.FRESH))):
            none = i64(0)
            f.call(_EMPTY_LIKE, VOID, made, f.load(row, layout.OUTPUT_TENSOR), none, none, none, none, none)
            f.store(f.load(made), out)
        for code, source in ((OutputKind.INPUT, tensors), (OutputKind.SAME, outs)):
            with f.when(f.equal(kind, i64(code))):
                impl = f.load(f.load(f.item(source, other)))
                f.call("trident_keep", VOID, impl)
                f.store(impl, out)
    f.ret()

    f = m.function("copy_out", I1, [PTR, PTR], internal=True)
    graph, outs = f.args
    rows = _each(f, graph, layout.GRAPH_OUTPUTS, layout.GRAPH_OUTPUT_COUNT, layout.OUTPUT_SIZE)
    with f.loop(i64(0), rows.count) as index:
        row = rows.row(index)
        with f.when(f.equal(f.load(row, layout.OUTPUT_KIND, I64), i64(OutputKind.FRESH))):
            size = f.load(row, layout.OUTPUT_BYTES, I64)
            with f.when(f.differ(size, i64(0))):
                target = _data(f, f.load(f.load(f.item(outs, index))), i64(0))
                _copy(f, graph, target, f.load(row, layout.OUTPUT_MEMORY, I64), size, lambda: f.ret(I1(0)))
    f.ret(I1(1))

    f = m.function("finish", VOID, [PTR, PTR], internal=True)
    graph, tensors = f.args
    known = layout.current()
    assert known is not None
    bumps = f.load(graph, layout.GRAPH_BUMPS)
    with f.loop(i64(0), f.load(graph, layout.GRAPH_BUMP_COUNT, I64)) as n:
        pair = f.at(bumps, f.b.shl(n, i64(4)))
        counter = f.load(_impl(f, tensors, f.load(pair, kind=I64)), known.version)
        f.b.atomic_rmw("add", f.at(counter, known.count), f.load(pair, 8, I32), "monotonic")
    f.add_to(graph, layout.GRAPH_REPLAYS, 1)
    f.ret()


def _define_replay(m: emit.Module) -> None:
    f = m.function("launch", I32, [PTR, PTR, PTR, PTR], internal=True)
    f.function.attributes.add("uwtable")
    site, graph, tensors, outs = f.args
    f.call("allocate", VOID, graph, tensors, outs)

    def not_copied() -> None:
        f.store(i64(Mismatch.COPY), site, layout.SITE_WHY)
        f.call("forget", VOID, graph, outs)
        f.ret(i32(layout.MISSED))

    rows = _each(f, graph, layout.GRAPH_INPUTS, layout.GRAPH_INPUT_COUNT, layout.INPUT_SIZE)
    with f.loop(i64(0), rows.count) as index:
        row = rows.row(index)
        size = f.load(row, layout.INPUT_BYTES, I64)
        with f.when(f.b.and_(f.is_null(f.load(row, layout.INPUT_MEMORY)), f.differ(size, i64(0)))):
            source = _data(f, _impl(f, tensors, index), f.load(row, layout.INPUT_ITEM, I64))
            _copy(f, graph, f.load(row, layout.INPUT_PLACEHOLDER, I64), source, size, not_copied)
    busy = f.load(graph, layout.GRAPH_BUSY)

    def set_busy(value: int) -> None:
        with f.when(f.not_null(busy)):
            f.store(i64(value), busy)

    set_busy(1)
    status = f.call_address(f.load(graph, layout.GRAPH_LAUNCH), I32, f.load(graph, layout.GRAPH_CONTEXT))
    set_busy(0)
    with f.when(f.differ(status, i32(0)), likely=False):
        f.ret(i32(layout.RAISED))
    with f.when(f.b.not_(f.call("copy_out", I1, graph, outs)), likely=False):
        f.call("PyErr_SetString", VOID, f.load(m.external_variable("PyExc_RuntimeError")), pointer(_NO_COPY_ADDRESS))
        f.ret(i32(layout.RAISED))
    f.call("finish", VOID, graph, tensors)
    f.ret(i32(layout.DONE))

    f = m.function(REPLAY, I32, [PTR, PTR, PTR, PTR])
    f.function.attributes.add("uwtable")
    site, tensors, numbers, outs = f.args
    f.store(i64(Mismatch.NO_GRAPH), site, layout.SITE_WHY)
    graphs = f.variable(f.load(site, layout.SITE_GRAPHS))
    head, body, end = (f.b.append_basic_block(name) for name in ("head", "body", "end"))
    f.b.branch(head)
    f.b.position_at_end(head)
    graph = f.load(f.load(graphs))
    f.b.cbranch(f.not_null(graph), body, end)
    f.b.position_at_end(body)
    with f.when(f.call(_FITS, I1, site, graph, tensors, numbers), likely=True):
        f.store(i64(Mismatch.NONE), site, layout.SITE_WHY)
        f.ret(f.call("launch", I32, site, graph, tensors, outs))
    f.store(f.at(f.load(graphs), 8), graphs)
    f.b.branch(head)
    f.b.position_at_end(end)
    f.ret(i32(layout.MISSED))


def _define_forget(m: emit.Module) -> None:
    """void forget(graph, outs): release results that will not be."""
    f = m.function("forget", VOID, [PTR, PTR], internal=True)
    graph, outs = f.args
    with f.loop(i64(0), f.load(graph, layout.GRAPH_OUTPUT_COUNT, I64)) as index:
        f.call("trident_release_tensor", VOID, f.load(f.item(outs, index)))
    f.ret()


_NO_COPY: Final = ctypes.create_string_buffer(b"trident: a result of a graph could not be copied out of the graph's memory")
_NO_COPY_ADDRESS: Final = ctypes.addressof(_NO_COPY)


@dataclass(frozen=True, slots=True)
class CudaAddresses:
    """Of the functions that a graph of CUDA's has in its words: launch, copy and capturing, see replay_layout.GRAPH_*."""

    launch: int
    copy: int
    capturing: int


_CUDA_REPLAY: Final = "_ZN2at4cuda9CUDAGraph6replayEv"
_CUDA_COPY: Final = "cuMemcpyDtoDAsync_v2"
_CUDA_CAPTURING: Final = "cuStreamIsCapturing"


@cache
def cuda_addresses() -> CudaAddresses:
    """NativeError where one of them does not exist."""
    load()
    engine.load_library("libcuda.so.1")
    for name in (_CUDA_REPLAY, _CUDA_COPY, _CUDA_CAPTURING):
        if not engine.find_symbol(name):
            raise NativeError(f"there is no {name} to replay graphs with")
    m = emit.Module("trident.replay.cuda")
    f = m.function("trident_replay_cuda", I32, [PTR])
    f.function.attributes.add("uwtable")
    f.call(_CUDA_REPLAY, VOID, f.args[0])
    f.ret(i32(0))
    launch = m.compile(opt=2).address("trident_replay_cuda")
    return CudaAddresses(launch, engine.find_symbol(_CUDA_COPY), engine.find_symbol(_CUDA_CAPTURING))


@cache
def load() -> engine.Compiled:
    """Compile these functions and make them known. NativeError where torch's layout is not known."""
    runtime.load()
    if layout.current() is None or keys.current() is None:
        raise NativeError("where this torch keeps a tensor's memory is not known")
    m = emit.Module("trident.replay")
    for define in (_define_copy, _define_ask, _define_environment, _define_launches, _define_inputs, _define_fits, _define_forget,
                   _define_outputs, _define_replay):
        define(m)
    compiled = m.compile(opt=2)
    for name in (REPLAY, HOST_COPY, CALL):
        engine.add_symbol(name, compiled.address(name))
    return compiled
