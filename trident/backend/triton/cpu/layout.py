"""How arguments lie in memory when a kernel is called from native code.

Owns the packed layout: each value at its natural alignment, in order. The launcher packs with `struct` in native alignment, which is
the same rule. May import: nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

# elem of a TTIR argument -> bytes
ARGUMENT_SIZES: dict[str, int] = {"ptr": 8, "i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f16": 2, "bf16": 2, "f32": 4, "f64": 8}

# Triton's names in a kernel's signature -> (struct format, elem)
SIGNATURE: dict[str, tuple[str, str]] = {
    "i1": ("?", "i1"), "u1": ("?", "i1"), "i8": ("b", "i8"), "u8": ("B", "i8"), "i16": ("h", "i16"), "u16": ("H", "i16"),
    "i32": ("i", "i32"), "u32": ("I", "i32"), "i64": ("q", "i64"), "u64": ("Q", "i64"), "fp16": ("e", "f16"), "bf16": ("H", "bf16"),
    "fp32": ("f", "f32"), "f32": ("f", "f32"), "fp64": ("d", "f64"),
}


def packed_layout(elems: Sequence[str]) -> list[int]:
    """The offset of each argument."""
    offsets, position = [], 0
    for elem in elems:
        size = ARGUMENT_SIZES[elem]
        position = (position + size - 1) // size * size
        offsets.append(position)
        position += size
    return offsets
