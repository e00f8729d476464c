"""LLVM IR text as one LLVM prints it, in the spelling that an older one reads.

Owns the floating-point literals: the LLVM inside torch-mlir prints forms (`f0x3FB8AA3B`, `+inf`, `-qnan`, inexact decimals) that
llvmlite's does not know. What must hold: every literal keeps its bits. May import: numpy.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable

import numpy as np

_TOKEN = re.compile(
    r'"[^"]*"|;.*$|(?<![%@\w.$-])(?:float|double|half|bfloat)(?![\w.])|f0x[0-9A-Fa-f]+'
    r'|[+-](?:inf|qnan|nan\([^)]*\)|snan\([^)]*\))|(?<![%@\w.$"-])[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?')


def _single_as_double(bits: int) -> str:
    """LLVM writes a float literal as the hex of the double of equal value; payloads of NaNs are kept."""
    exponent, sign, mantissa = (bits >> 23) & 0xFF, bits >> 31, bits & 0x7FFFFF
    if exponent == 0xFF:
        return f"0x{(sign << 63) | (0x7FF << 52) | (mantissa << 29):016X}"
    value = struct.unpack("<f", struct.pack("<I", bits))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def _bf16(value: float) -> int:
    bits: int = struct.unpack("<I", struct.pack("<f", np.float32(value)))[0]
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) & 0xFFFF


# type -> bits of infinity, quiet bit, position of the sign, how to write bits, decimal to bits
_FORMATS: dict[str, tuple[int, int, int, Callable[[int], str], Callable[[str], int]]] = {
    "float": (0x7F800000, 1 << 22, 31, _single_as_double, lambda t: int(np.float32(t).view(np.uint32))),
    "double": (0x7FF << 52, 1 << 51, 63, lambda b: f"0x{b:016X}", lambda t: int(np.float64(t).view(np.uint64))),
    "half": (0x7C00, 1 << 9, 15, lambda b: f"0xH{b:04X}", lambda t: int(np.float16(t).view(np.uint16))),
    "bfloat": (0x7F80, 1 << 6, 15, lambda b: f"0xR{b:04X}", lambda t: _bf16(float(t))),
}


def _literal(token: str, kind: str) -> str:
    infinity, quiet, sign, write, parse = _FORMATS[kind]
    if token.startswith("f0x"):
        return write(int(token[3:], 16))
    name = token[1:]
    if name.startswith(("inf", "qnan", "nan(", "snan(")):
        bits = infinity
        if name == "qnan":
            bits |= quiet
        elif name.startswith("snan("):
            bits |= int(name[5:-1], 0)
        elif name.startswith("nan("):
            bits |= quiet | int(name[4:-1], 0)
        return write(bits | (1 << sign) if token[0] == "-" else bits)
    return write(parse(token))


def respell_literals(text: str) -> str:
    """Rewrite every floating-point literal in LLVM's old hexadecimal form, by the type that precedes it on its line."""
    out = []
    for line in text.split("\n"):
        if "." in line or "f0x" in line or "inf" in line or "nan" in line:
            kind = "double"

            def replace(match: re.Match[str]) -> str:
                nonlocal kind
                token = match.group(0)
                if token[0] in '";':
                    return token
                if token in _FORMATS:
                    kind = token
                    return token
                return _literal(token, kind)

            line = _TOKEN.sub(replace, line)
        out.append(line)
    return "\n".join(out)
