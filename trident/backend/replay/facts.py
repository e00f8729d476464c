"""What a graph requires of its inputs: which tensors it may have, and the words of their memory that stay as they are.

Owns these tests. What must hold: two tensors with equal facts (and equal memory, where that is pinned) are the same to every operator; a
tensor that keeps what operators look at anywhere else is `Unfit`.

May import: native.{keys,replay_layout,torch_layouts}, replay.split. Uses torch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from typing import Final

import torch

from trident.backend.native import keys, replay_layout, torch_layouts
from trident.backend.replay.split import Unfit


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def refuse_odd(tensor: torch.Tensor) -> None:
    """Unfit for a tensor, of inputs and intermediates, that no graph may hold."""
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise Unfit(f"a tensor is a {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise Unfit("a tensor has another layout than plain memory")
    if torch.is_grad_enabled() and tensor.requires_grad:
        raise Unfit("autograd records what it does")


def refuse_input(tensor: torch.Tensor) -> None:
    """Unfit for an input whose state is not all in its words."""
    refuse_odd(tensor)
    if tensor.dim() > torch_layouts.INLINE_DIMENSIONS:
        raise Unfit(f"an input has {tensor.dim()} dimensions")
    has_names = getattr(tensor, "has_names", None)  # torch up to 2.12 has them
    if has_names is not None and has_names() or tensor.is_conj() or tensor.is_neg():
        raise Unfit("an input has names, or is a conjugate or negative view")
    if torch._C._is_cow_tensor(tensor):
        raise Unfit("an input's memory is copied when it is written to")
    known, layout = keys.current(), torch_layouts.current()
    assert known is not None
    if ctypes.c_uint8.from_address(tensor._cdata + layout.policy).value & layout.policy_mask \
            or ctypes.c_uint8.from_address(tensor._cdata + layout.device_policy).value & layout.device_policy_mask:
        raise Unfit("an input's sizes or device are not plain fields")
    meta = _word(tensor._cdata + known.autograd_meta)
    if meta and _word(meta) != known.leaf_meta:
        raise Unfit("an input is a view that autograd keeps track of, or its result")
    if meta and _word(meta + known.forward_grad):
        raise Unfit("an input has a forward gradient")


_ALL: Final = (1 << 64) - 1


def _masked(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Bytes with their masks as words with theirs."""
    words: dict[int, int] = {}
    for at, mask in places:
        words[at & ~7] = words.get(at & ~7, 0) | mask << 8 * (at & 7)
    return list(words.items())


def _small_fields() -> list[tuple[int, int]]:
    """The words, with masks, of dtype and device, and of those flags that sizes and strides do not decide; between them are bits that
    belong to nothing."""
    layout = torch_layouts.current()
    fields = [(layout.dtype, 0xFF), (layout.dtype + 1, 0xFF), *((layout.device_type + n, 0xFF) for n in range(3)),
              (layout.policy, layout.policy_mask), (layout.device_policy, layout.device_policy_mask), (layout.wrapped, layout.wrapped_mask)]
    return _masked((at, mask) for at, mask in fields if mask)


def words_of(tensor: torch.Tensor, *, offset: bool) -> list[tuple[int, int, int]]:
    """Offsets in the TensorImpl, masks, and what is there: rank, sizes, strides, number of elements, dtype, device, flags, dispatch keys.

    offset: the storage offset, too."""
    layout, known = torch_layouts.current(), keys.current()
    assert known is not None
    rank = tensor.dim()
    places = [layout.sizes, *(layout.sizes + 8 + 8 * n for n in range(rank)), *(layout.inline_strides + 8 * n for n in range(rank)),
              layout.numel, known.key_set, *([layout.storage_offset] if offset else [])]
    masked = [*((place, _ALL) for place in places), *_small_fields()]
    return [(place, mask, _word(tensor._cdata + place) & mask) for place, mask in masked]


def extent(tensor: torch.Tensor) -> int:
    """Bytes of a tensor whose elements fill its memory without gaps, whatever their order; -1 for others."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return -1 if tensor.numel() else 0
        expected *= size
    return tensor.numel() * tensor.element_size()


def memory_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """The words of its storage's memory, with its metadata: what must be after a capture as it was before."""
    return (*replay_layout.memory_of(tensor), *(word for *_, word in words_of(tensor, offset=True)))
