"""The address that means "no specialization matched": a result that is no Python object.

Owns one static buffer. What must hold: a program returns its address only when nothing has happened yet, and nobody ever
touches a reference count there. May import: nothing of trident.
"""

from __future__ import annotations

import ctypes
from typing import Final

_storage: Final = (ctypes.c_uint64 * 2)()

MISS_ADDRESS: Final[int] = ctypes.addressof(_storage)
