"""What an op may disturb, finer than MLIR's effects: the facts that the passes share.

Owns the classes of state that a read depends on and that an effect clobbers. What must hold: when in doubt, everything is
clobbered.

May import: torch_mlir, ir.
"""

from __future__ import annotations

from enum import Flag, auto

from torch_mlir import ir as mlir

from trident.ir.ops import BY_NAME, Effect


class State(Flag):
    """Classes of mutable state."""

    NONE = 0
    PYTHON = auto()  # attributes, dicts, lists, cells, types
    METADATA = auto()  # sizes, strides, dtype, storage of tensors
    ENVIRONMENT = auto()  # grad mode, modes
    DATA = auto()  # contents of tensors
    ALL = PYTHON | METADATA | ENVIRONMENT | DATA


# ATen operators that change more of a tensor than its contents. Everything else in-place leaves sizes and strides alone.
METADATA_WRITERS = frozenset(
    """resize_ resize_as_ resize_as_sparse_ set_ set_data t_ transpose_ swapaxes_ swapdims_ squeeze_ unsqueeze_ as_strided_ detach_
    requires_grad_ rename_ sparse_resize_ sparse_resize_and_clear_ retain_grad _set_real resize unsafe_set_ _fw_primal""".split()
)

_READS: dict[str, State] = {
    **dict.fromkeys(("rank size stride numel storage_offset dtype device_type device_index requires_grad is_contiguous data_ptr").split(),
                    State.METADATA),
    **dict.fromkeys("grad_enabled inference_mode torch_function_modes".split(), State.ENVIRONMENT),
    **dict.fromkeys(("pin instance_dict list_len list_item list_at dict_len dict_has dict_keys_are odict_keys_are dict_item cell_get "
                     "traceback").split(), State.PYTHON),
}

# Reads that make a new object at each execution: never merged.
ALLOCATING = frozenset({"trident.build_tuple", "trident.build_list", "trident.build_dict", "trident.build_slice", "trident.box",
                        "trident.wrapped_number", "trident.number_tensor"})


def reads(name: str) -> State | None:
    """State that an op's result depends on; None if the op is not a pure function of its operands and that state."""
    spec = BY_NAME.get(name)
    if spec is None:
        return State.NONE if name.startswith("torch.constant.") else None
    if name in ALLOCATING:
        return None
    if spec.effect is Effect.PURE or name == "trident.guard":
        return State.NONE
    if spec.effect is Effect.READ:
        return _READS[spec.name]
    return None


# Writes that no read of an op depends on.
_INERT = frozenset({"state", "keep", "push_handled", "pop_handled", "add_context"})

_WRITES: dict[str, State] = {"set_grad_enabled": State.ENVIRONMENT, "cell_set": State.PYTHON, "add_traceback": State.PYTHON,
                             "launch": State.DATA, "exit": State.NONE}


def clobbers(op: mlir.Operation) -> State:
    """State that an op may change."""
    name = op.name
    spec = BY_NAME.get(name)
    if spec is not None:
        if spec.effect in (Effect.PURE, Effect.READ) or spec.name in _INERT:
            return State.NONE
        return _WRITES.get(spec.name, State.ALL)
    if name.startswith(("torch.constant.", "torch.prim.", "func.")):
        return State.NONE
    full = mlir.StringAttr(op.attributes["name"]).value if name == "torch.operator" else name.removeprefix("torch.")
    namespace, packet = full.split(".")[:2]
    if namespace != "aten":
        return State.ALL
    return State.METADATA | State.DATA if packet in METADATA_WRITERS else State.DATA
