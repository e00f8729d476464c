"""Lowering of reads of tensor metadata and of thread state.

Owns these rules. What must hold: the plain fields of a TensorImpl are read only where its policy bits say that they are the truth;
otherwise Python is asked.

May import: lowering.*, native.frame, native.torch_layouts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from trident.backend.lowering.function import RAISE, Function
from trident.backend.lowering.rules import rule
from trident.backend.lowering.values import Op
from trident.backend.native import torch_layouts
from trident.backend.native.frame import Metadata

_READ_DISABLED: Final = "_ZN2at4impl22PythonTorchFunctionTLS18get_disabled_stateEv"
_READ_STACK: Final = "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv"
_TRACING_STATE: Final = "_ZN5torch3jit6tracer15getTracingStateEv"


def _impl(f: Function, op: Op) -> str:
    return f.load(f.tensor(op.operands[0]))


def _plain_or_slow(f: Function, op: Op, which: Metadata, policy: tuple[int, int], read: Callable[[str], str], dimension: int = 0) -> str:
    """Read a field where the policy byte allows it, else ask Python. Gives an i64."""
    impl = _impl(f, op)
    offset, mask = policy
    bits = f.value(f"and i8 {f.load(impl, offset, 'i8')}, {mask}")
    plain, slow, done = f.new_label(), f.new_label(), f.new_label()
    f.line(f"br i1 {f.value(f'icmp eq i8 {bits}, 0')}, label %{plain}, label %{slow}")
    f.block(slow)
    out = f.temporary(1)
    failed = f.call("trident_slow_metadata", "i1", "ptr %frame", f"ptr {f.tensor(op.operands[0])}", f"i64 {int(which)}",
                    f"i64 {dimension}", f"ptr {out}")
    if f.state < 0:
        f.leave_if(f.call("trident_forget_error", "i1", f"i1 {failed}"), f.site(op.name))
    else:
        f.leave_if(failed, f.site(op.name, is_raise=True), RAISE)
    asked = f.load(out, kind="i64")
    slow_end = f.label
    f.line(f"br label %{done}")
    f.block(plain)
    found = read(impl)
    plain_end = f.label
    f.line(f"br label %{done}")
    f.block(done)
    return f.value(f"phi i64 [{found}, %{plain_end}], [{asked}, %{slow_end}]")


def _sizes_policy() -> tuple[int, int]:
    layout = torch_layouts.current()
    return layout.policy, layout.policy_mask


def _device_policy() -> tuple[int, int]:
    layout = torch_layouts.current()
    return layout.device_policy, layout.device_policy_mask


def _field(name: str, which: Metadata, attribute: str) -> None:
    @rule(f"trident.{name}", leaves=True)
    def emit(f: Function, op: Op) -> None:
        offset = getattr(torch_layouts.current(), attribute)
        f.define(op.results[0], _plain_or_slow(f, op, which, _sizes_policy(), lambda impl: f.load(impl, offset, "i64")))


for _name, _which, _attribute in (("rank", Metadata.RANK, "sizes"), ("numel", Metadata.NUMEL, "numel"),
                                  ("storage_offset", Metadata.STORAGE_OFFSET, "storage_offset")):
    _field(_name, _which, _attribute)


def _dimension(f: Function, impl: str, inline: int, dimension: int, strides: bool) -> str:
    """sizes[dimension] or strides[dimension]: inline for few dimensions, else in an array of all sizes and then all strides."""
    sizes = torch_layouts.current().sizes
    rank = f.load(impl, sizes, "i64")
    near = f.value(f"icmp ule i64 {rank}, {torch_layouts.INLINE_DIMENSIONS}")
    far = f.load(impl, sizes + 8)
    if strides:
        far = f.value(f"getelementptr i64, ptr {far}, i64 {rank}")
    here = f.at(impl, inline + 8 * dimension)
    there = f.at(far, 8 * dimension)
    return f.value(f"load i64, ptr {f.value(f'select i1 {near}, ptr {here}, ptr {there}')}")


@rule("trident.size", leaves=True)
def size(f: Function, op: Op) -> None:
    dimension, inline = op.integer("dim"), torch_layouts.current().sizes + 8
    f.define(op.results[0], _plain_or_slow(f, op, Metadata.SIZE, _sizes_policy(),
                                           lambda impl: _dimension(f, impl, inline, dimension, False), dimension))


@rule("trident.stride", leaves=True)
def stride(f: Function, op: Op) -> None:
    dimension, inline = op.integer("dim"), torch_layouts.current().inline_strides
    f.define(op.results[0], _plain_or_slow(f, op, Metadata.STRIDE, _sizes_policy(),
                                           lambda impl: _dimension(f, impl, inline, dimension, True), dimension))


@rule("trident.dtype")
def dtype(f: Function, op: Op) -> None:
    code = f.load(_impl(f, op), torch_layouts.current().dtype, "i16")
    f.define(op.results[0], f.value(f"zext i16 {code} to i64"))


def _device(name: str, which: Metadata, attribute: str) -> None:
    @rule(f"trident.{name}", leaves=True)
    def emit(f: Function, op: Op) -> None:
        offset = getattr(torch_layouts.current(), attribute)
        f.define(op.results[0], _plain_or_slow(f, op, which, _device_policy(),
                                               lambda impl: f.value(f"sext i8 {f.load(impl, offset, 'i8')} to i64")))


_device("device_type", Metadata.DEVICE_TYPE, "device_type")
_device("device_index", Metadata.DEVICE_INDEX, "device_index")


@rule("trident.requires_grad")
def requires_grad(f: Function, op: Op) -> None:
    f.declare("_ZNK3c1010TensorImpl13requires_gradEv", "zeroext i1", "ptr")
    f.define(op.results[0], f.value(f"call zeroext i1 @_ZNK3c1010TensorImpl13requires_gradEv(ptr {_impl(f, op)})"))


@rule("trident.is_contiguous", leaves=True)
def is_contiguous(f: Function, op: Op) -> None:
    offset = torch_layouts.current().contiguous

    def read(impl: str) -> str:
        flag = f.load(impl, offset, "i8")
        return f.value(f"zext i8 {f.value(f'and i8 {flag}, 1')} to i64")

    word = _plain_or_slow(f, op, Metadata.CONTIGUOUS, _sizes_policy(), read)
    f.define(op.results[0], f.value(f"icmp ne i64 {word}, 0"))


@rule("trident.data_ptr", leaves=True)
def data_ptr(f: Function, op: Op) -> None:
    """Python's way: it may have to make a lazily copied storage real, or refuse."""
    out = f.temporary(1)
    failed = f.call("trident_slow_metadata", "i1", "ptr %frame", f"ptr {f.tensor(op.operands[0])}", f"i64 {int(Metadata.DATA_PTR)}",
                    "i64 0", f"ptr {out}")
    if f.state < 0:
        f.leave_if(f.call("trident_forget_error", "i1", f"i1 {failed}"), f.site(op.name))
    else:
        f.leave_if(failed, f.site(op.name, is_raise=True), RAISE)
    f.define(op.results[0], f.load(out, kind="i64"))


# --------------------------------------------------------------------------------------------------------------- environment


def _flag(name: str, symbol: str) -> None:
    @rule(f"trident.{name}")
    def emit(f: Function, op: Op) -> None:
        f.declare(symbol, "zeroext i1", "")
        f.define(op.results[0], f.value(f"call zeroext i1 @{symbol}()"))


_flag("grad_enabled", "_ZN3c108GradMode10is_enabledEv")
_flag("inference_mode", "_ZN3c1013InferenceMode10is_enabledEv")


@rule("trident.set_grad_enabled")
def set_grad_enabled(f: Function, op: Op) -> None:
    symbol = "_ZN3c108GradMode11set_enabledEb"
    f.declare(symbol, "void", "i1 zeroext")
    f.line(f"call void @{symbol}(i1 zeroext {f.scalar(op.operands[0])})")


@rule("trident.torch_function_modes")
def torch_function_modes(f: Function, op: Op) -> None:
    disabled = f.call(_READ_DISABLED, "i32")
    tracer = f.load(f.call(_TRACING_STATE, "ptr"), 0)
    quiet = f.value(f"icmp eq ptr {tracer}, null")
    on = f.value(f"and i1 {quiet}, {f.value(f'icmp eq i32 {disabled}, 0')}")
    f.define(op.results[0], f.value(f"select i1 {on}, i64 {f.call(_READ_STACK, 'i64')}, i64 -1"))
