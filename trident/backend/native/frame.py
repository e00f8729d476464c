"""The data that a host program shares with the runtime: its frame on the stack, and the static tables behind it.

Owns these layouts (byte offsets; every field is one word unless said otherwise) and the codes in them. What must hold: the
lowering and `runtime` both take them from here.

May import: nothing of trident.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

# The frame: one array on the stack of the host program.
PROGRAM: Final = 0  # -> program table
ARGS: Final = 8  # the program's argument: PyObject**
GIL: Final = 16  # saved PyThreadState*, NULL while the GIL is held
SITE: Final = 24  # number of the site whose call is in progress: read where a C++ exception arrives
WARNINGS: Final = 32  # torch::PyWarningHandler, 48 bytes
WARNINGS_SIZE: Final = 48
WARNING_BUFFER: Final = WARNINGS + 8  # std::vector<c10::Warning>: begin, end
WARNING_IN_EXCEPTION: Final = WARNINGS + 40  # a byte
WARNINGS_ACTIVE: Final = 80  # nonzero while the handler exists
RESULTS_VALID: Final = 88  # nonzero while what is thrown is a warning: then the results of the call are in their slots
THREAD_KEYS: Final = 96  # -> this thread's dispatch keys, 0 before the first operator that looks at them
AUTOGRAD_STATE: Final = 104  # -> this thread's c10::AutogradState
BELOW_AUTOGRAD: Final = 112  # THREAD_KEYS while an operator is called below its autograd kernel, else 0
SLOTS: Final = 128

# The program table.
SLOT_COUNT: Final = 0
SLOT_KINDS: Final = 8  # -> one byte per slot
SITES: Final = 16  # -> sites
STATES: Final = 24  # -> states
HANDLER: Final = 32  # PyObject*: handler(site, values, error)
IS_BRIDGE: Final = 40  # nonzero where whoever called the program goes on with a jump that it returns
PROGRAM_SIZE: Final = 48

# A jump: what a program returns (its address plus JUMP_TAG) to be continued by another one, when its own frame is gone.
JUMP_PROGRAM: Final = 0  # address of the program
JUMP_COUNT: Final = 8
JUMP_VALUES: Final = 16  # its arguments, a reference each
JUMP_TAG: Final = 1

# A site.
BRIDGE: Final = 0  # address of a program, 0 for none
TAKEN: Final = 8
STATE: Final = 16  # number of the state, -1 for none
RESULT_START: Final = 24  # slots that a call which threw may have left garbage in
RESULT_WORDS: Final = 32
SITE_OBJECT: Final = 40  # PyObject*: the ExitSite
SITE_SIZE: Final = 48

# A state: its operands.
ENTRIES: Final = 0  # -> entries of two words: BoxKind, value
ENTRY_COUNT: Final = 8
STATE_SIZE: Final = 16
ENTRY_SIZE: Final = 16

# A table of pins: the version of all dicts at which those about dicts were last seen to hold, then the pairs of words that are compared,
# those about dicts last, then for each pin what is looked at where they differ.
PINS_VERSION: Final = 0
PINS_START: Final = 8
PIN_ADDRESS: Final = 0
PIN_EXPECTED: Final = 8
PIN_SIZE: Final = 16
PIN_SLOW: Final = 0  # -> slow pin, 0 for none
PIN_FAILURES: Final = 8
PIN_MORE_SIZE: Final = 16
NEVER: Final = (1 << 64) - 1  # an expected word that no tag and no size has

# A slow pin.
SLOW_KIND: Final = 0
SLOW_OWNER: Final = 8
SLOW_COUNT: Final = 16
SLOW_ITEMS: Final = 24  # -> words: key, expected, …, or items
SLOW_SIZE: Final = 32

# The record of a dispatch, and its table: count, index of the program to try first, the selection, and the entries.
DISPATCH_INSIDE: Final = 0
DISPATCH_TABLE: Final = 8
DISPATCH_SIZE: Final = 16
TABLE_COUNT: Final = 0
TABLE_LAST: Final = 8
TABLE_SELECT: Final = 16  # address of `ptr select(ptr bound)`, 0 where all are tried
TABLE_ENTRIES: Final = 24
ENTRY_PROGRAM: Final = 0  # its address
ENTRY_HITS: Final = 8
ENTRY_DUE: Final = 16  # hits at which it is passed over, so that the call is missed and something done about it; NEVER
ENTRY_LEAD: Final = 24  # index of the program to try first when this one has answered
DISPATCH_ENTRY_SIZE: Final = 32


class SlotKind(IntEnum):
    """What a slot owns. A VECTOR takes three slots, the second and third being RAW."""

    RAW = 0
    TENSOR = 1
    OBJECT = 2
    VECTOR = 3
    LIST = 4


class BoxKind(IntEnum):
    """How an operand of a state becomes a Python object; the value is an index, an address or a slot."""

    ARG = 0
    CONST = 1
    TENSOR = 2
    OBJECT = 3
    INT = 4
    FLOAT = 5
    BOOL = 6
    TENSOR_AT = 7


class SlowKind(IntEnum):
    """Which lookup a pin does where its word has changed."""

    DICT = 1
    TYPE = 2
    DICT_KEYS = 3
    NOT_EMPTY = 4
    LIST = 5
    ORDER = 6


class Metadata(IntEnum):
    """What `trident_slow_metadata` reads."""

    RANK = 0
    SIZE = 1
    STRIDE = 2
    NUMEL = 3
    STORAGE_OFFSET = 4
    DEVICE_TYPE = 5
    DEVICE_INDEX = 6
    CONTIGUOUS = 7
    DATA_PTR = 8
