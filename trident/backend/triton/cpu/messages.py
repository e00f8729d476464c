"""What kernels tell the host while they run: device_print and device_assert.

Owns the function that compiled kernels call. It takes the GIL, so a kernel may run with or without it. What must hold: a failed
assertion is raised by the launch that it happened in (a launch by native code leaves it for the thread's next launch from Python).

May import: native.engine, errors.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Final

from trident.backend.native import engine
from trident.backend.triton.cpu.errors import KernelAssertionError

SYMBOL: Final = "trident_cpu_message"
ASSERT: Final = -1
HEX: Final = 64
UNSIGNED: Final = 128
KINDS: Final = ("i1", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "ptr")
_WIDTHS = {"i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "ptr": 64}

# Failed assertions by thread, until a launch raises them.
failures: dict[int, str] = {}


def _format(kind: int, bits: int) -> str:
    elem = KINDS[kind & ~(HEX | UNSIGNED)]
    width = _WIDTHS[elem]
    raw = bits & ((1 << width) - 1)
    if kind & HEX or elem == "ptr":
        return f"0x{raw:0{max(width // 4, 1)}x}"
    if elem == "f64":
        return f"{struct.unpack('<d', struct.pack('<Q', raw))[0]:f}"
    if elem in ("f32", "bf16"):
        return f"{struct.unpack('<f', struct.pack('<I', raw << 16 if elem == 'bf16' else raw))[0]:f}"
    if elem == "f16":
        return f"{struct.unpack('<e', struct.pack('<H', raw))[0]:f}"
    signed = elem != "i1" and not kind & UNSIGNED and raw >> (width - 1)
    return str(raw - (1 << width) if signed else raw)


def _message(text: bytes, kind: int, x: int, y: int, z: int, index: int, bits: int) -> None:
    shown = text.decode(errors="replace")
    if kind == ASSERT:
        failures.setdefault(threading.get_ident(), f"device-side assert failed in program ({x}, {y}, {z}): {shown}")
    elif kind < 0:
        print(f"pid ({x}, {y}, {z}){shown}")
    else:
        place = f" idx ({index})" if index >= 0 else ""
        print(f"pid ({x}, {y}, {z}){place}{shown}{_format(kind, bits)}")


_TYPE = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32, ctypes.c_int64,
                         ctypes.c_int64)
_callback = _TYPE(_message)


def install() -> None:
    """Make the function known to kernels that are loaded from now on."""
    address = ctypes.cast(_callback, ctypes.c_void_p).value
    assert address is not None
    engine.add_symbol(SYMBOL, address)


def raise_failure() -> None:
    """Raise this thread's failed assertion, if there is one."""
    text = failures.pop(threading.get_ident(), None)
    if text is not None:
        raise KernelAssertionError(text)
