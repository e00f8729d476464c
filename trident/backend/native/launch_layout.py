"""Memory layouts and rules that Triton launches share between Python, which writes the tables, and native code, which reads them.

Owns numbers and one record, nothing that runs. What must hold: these are the only definitions; the native text gets them by
substitution.

May import: nothing of trident.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Return codes of `trident_launch_<target>`.
LAUNCHED: Final = 0
MISS: Final = 1
FAILED: Final = 2

# Codes of operand kinds, the bytes behind STATE_KINDS.
KINDS: Final[dict[str, int]] = {"tensor": 0, "int": 1, "float": 2, "bool": 3, "object": 4}

# Site state: 8-byte words. The table pointer is the only field that changes after construction (besides the counters).
STATE_TABLE, STATE_MISS, STATE_OPERANDS, STATE_KINDS, STATE_KEY_BYTES, STATE_HITS, STATE_MISSES = range(7)
STATE_WORDS: Final = 7
# Table: words. Guards and entries are published together by one store to STATE_TABLE; entries may be appended afterwards, the
# count last.
TABLE_WORD_COUNT, TABLE_WORD_GUARDS, TABLE_DICT_COUNT, TABLE_DICT_GUARDS, TABLE_ENTRY_COUNT, TABLE_ENTRIES, TABLE_STRIDE, \
    TABLE_KEY_WORDS, TABLE_HINT = range(9)
TABLE_WORDS: Final = 9
# Word guard: address, mask, expected. Dict guard: dict, version tag seen last, key (str), hash of key, expected value.
WORD_GUARD_WORDS: Final = 3
DICT_GUARD_WORDS: Final = 5
# Entry: words, followed by the key words.
ENTRY_FUNCTION, ENTRY_DEVICE, ENTRY_BLOCK_SHARED, ENTRY_CTAS, ENTRY_ATTRS, ENTRY_ATTR_COUNT, ENTRY_PARAM_COUNT, \
    ENTRY_PLAN = range(8)
ENTRY_WORDS: Final = 8
# A word of a plan says where a kernel parameter lies: below this, a byte offset into the slots; else an address.
PLAN_OFFSETS: Final = 1 << 16
# CPython 3.11 and 3.12: ma_version_tag of a dict, ob_size of a list, tp_version_tag (4 bytes) of a type, in bytes.
DICT_VERSION_TAG: Final = 24
TYPE_VERSION_TAG: Final = 384
VAR_SIZE: Final = 16

CUDA_ERROR_INVALID_CONTEXT: Final = 201
CUDA_TARGET: Final = "cuda"
CPU_TARGET: Final = "cpu"
# c10::DeviceType of each target's tensors.
DEVICE_TYPES: Final[dict[str, int]] = {CPU_TARGET: 0, CUDA_TARGET: 1}
# What stands for the host where an entry has the index of a CUDA device.
CPU_DEVICE: Final = -1

# A data pointer below this may be an offset into a storage without memory: it is looked at more closely.
LOWEST_ADDRESS: Final = 1 << 40

# Bits of the class of an int operand.
INT_WIDE: Final = 1  # needs 64 bits
INT_ONE: Final = 2  # is 1, where Triton folds that
INT_ALIGNED: Final = 4  # is a multiple of 16, where Triton looks at that
# Class of a tensor operand: dtype << 1 | (data pointer is a multiple of 16, where Triton looks at that).


@dataclass(frozen=True, slots=True)
class Operand:
    """How native code classifies a run-time operand for the key, and stores it for the kernel.

    kind: of KINDS. wide/one/align: which facts Triton specializes on. low/high: ints outside are left to Python. store: `word`
    (the operand's 8 bytes, of which the kernel reads as many as its type has), `fp32` or `fp64` (the number converted).
    """

    kind: str
    wide: bool = False
    one: bool = False
    align: bool = False
    low: int = -(1 << 63)
    high: int = (1 << 63) - 1
    store: str = "word"
