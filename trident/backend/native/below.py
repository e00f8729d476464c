"""The native test whether an operator may be called below its autograd kernel, and the thread's state around such a call.

Owns, for n tensors:

  trident_below<n>(frame, ptr entry, ptr slot, i64 kernel, tensors…) -> i64   the key set to dispatch to again, with the autograd
                                                        keys excluded in this thread; 0: call the dispatcher, nothing was changed
  trident_below_done(frame)                             after such a call, returned or thrown: undoes the exclusion

What must hold: nonzero only where the generated autograd kernel would find nothing to do. The thread's keys are the default ones
(no mode, no inference mode, autocast, vmap or tracer), no profiler listens, the operator's kernels are the known ones, all tensors
are plain ones of one device, and none is differentiated: none has autograd data, or gradients are off and none is a view (whose
tangent may be its base's) or has a tangent.

May import: llvmlite (through emit), emit, frame, keys.
"""

from __future__ import annotations

import ctypes
from typing import Final

from llvmlite import ir

from trident.backend.native import emit, frame, keys
from trident.backend.native.emit import I1, I8, I64, PTR, VOID, i64, pointer

FUNCTIONS: Final = (*(f"trident_below{n}" for n in range(1, keys.MAX_TENSORS + 1)), "trident_below_done")


def define(m: emit.Module) -> None:
    """Add the functions to the runtime."""
    layout = keys.current()
    if layout is not None:
        for count in range(1, keys.MAX_TENSORS + 1):
            _define_test(m, layout, count)
    f = m.function("trident_below_done", VOID, [PTR])
    tls = f.load(f.args[0], frame.BELOW_AUTOGRAD)
    with f.when(f.not_null(tls)):
        f.store(i64(0), tls, keys.EXCLUDED)
        f.store(i64(0), f.args[0], frame.BELOW_AUTOGRAD)
    f.ret()


def _define_test(m: emit.Module, layout: keys.KeyLayout, count: int) -> None:
    f = m.function(f"trident_below{count}", I64, [PTR, PTR, PTR, I64, *[PTR] * count])
    base, entry, slot, kernel = f.args[:4]

    def no_where(condition: ir.Value) -> None:
        with f.when(condition, likely=False):
            f.ret(i64(0))

    with f.when(f.is_null(f.load(base, frame.THREAD_KEYS)), likely=False):
        guard = f.words(I64, i64(2))
        f.call(keys.EXCLUDE_GUARD, VOID, guard, i64(0))
        f.store(f.load(guard), base, frame.THREAD_KEYS)
        f.store(f.call(keys.AUTOGRAD_STATE, PTR), base, frame.AUTOGRAD_STATE)
    tls = f.load(base, frame.THREAD_KEYS)
    special = f.b.or_(f.load(tls, keys.INCLUDED, I64), f.load(tls, keys.EXCLUDED, I64))
    no_where(f.differ(special, i64(0)))
    tensors = [f.load(at) for at in f.args[4:]]
    key_set = metas = i64(0)
    for tensor in tensors:
        key_set = f.b.or_(key_set, f.load(tensor, layout.key_set, I64))
        metas = f.b.or_(metas, f.load(tensor, layout.autograd_meta, I64))
    words = pointer(ctypes.addressof(keys.KEY_WORDS))
    on_cpu = f.equal(key_set, f.load(words, 0, I64))
    no_where(f.b.not_(f.b.or_(on_cpu, f.equal(key_set, f.load(words, 16, I64)))))
    offset = f.b.select(on_cpu, i64(0), i64(layout.autograd_cuda - layout.autograd_cpu))
    no_where(f.differ(f.load(f.at(slot, offset), kind=I64), kernel))
    for between in layout.between:
        no_where(f.differ(f.load(entry, between, I64), i64(layout.fallthrough)))
    with f.when(f.differ(metas, i64(0))):
        state = f.load(f.load(base, frame.AUTOGRAD_STATE), layout.grad_mode, I8)
        no_where(f.differ(f.b.and_(state, ir.Constant(I8, keys.GRAD_MODE)), ir.Constant(I8, 0)))
        for tensor in tensors:
            meta = f.load(tensor, layout.autograd_meta)
            with f.when(f.not_null(meta)):
                no_where(f.differ(f.load(meta, kind=I64), i64(layout.leaf_meta)))
                no_where(f.not_null(f.load(meta, layout.forward_grad)))
    no_where(f.call(keys.HAS_CALLBACKS, I1))
    f.store(i64(layout.excluded), tls, keys.EXCLUDED)
    f.store(tls, base, frame.BELOW_AUTOGRAD)
    f.ret(f.b.select(on_cpu, f.load(words, 8, I64), f.load(words, 24, I64)))
