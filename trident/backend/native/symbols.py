"""The unboxed dispatcher entries of ATen, found in the dynamic symbol table of libtorch.

Owns: the map from an operator's C++ name (`add_Tensor`) to its mangled symbol, and the parsing of Itanium-mangled parameter
lists. What must hold: a symbol that cannot be parsed completely has no parameter list (MangledError), never a partial one.

May import: errors, native.engine.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
from functools import cache
from pathlib import Path
from typing import Final

import torch

from trident.backend.native import engine
from trident.errors import UnsupportedTorch

LIBRARIES: Final = ("libc10.so", "libtorch_cpu.so", "libtorch_python.so")
OPTIONAL_LIBRARIES: Final = ("libc10_cuda.so", "libtorch_cuda.so")

_ENTRY: Final = re.compile(rb"_ZN2at4_ops([0-9]+)([^\x00]*?)(4call|10redispatch)E[^\x00]*")


class MangledError(ValueError):
    """A mangled name outside the part of the Itanium grammar that parameter lists of ATen use."""


def library_directory() -> Path:
    """The folder of torch's shared libraries."""
    return Path(os.path.dirname(torch.__file__)) / "lib"


@cache
def load_libraries() -> None:
    """Make torch's exported symbols callable from native code."""
    folder = library_directory()
    for name in LIBRARIES:
        if not (folder / name).exists():
            raise UnsupportedTorch(f"torch has no {name}")
        engine.load_library(str(folder / name))
    for name in OPTIONAL_LIBRARIES:
        if (folder / name).exists():
            engine.load_library(str(folder / name))
    engine.load_library("libstdc++.so.6")


def dynamic_strings(path: Path) -> bytes:
    """The .dynstr section of a 64-bit little-endian ELF file."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:6] != b"\x7fELF\x02\x01":
            raise UnsupportedTorch(f"{path.name} is not a 64-bit little-endian ELF file")
        section_table, = struct.unpack_from("<Q", data, 0x28)
        entry_size, count, names_index = struct.unpack_from("<HHH", data, 0x3A)

        def section(index: int) -> tuple[int, int, int]:
            base = section_table + index * entry_size
            name, = struct.unpack_from("<I", data, base)
            offset, size = struct.unpack_from("<QQ", data, base + 0x18)
            return name, offset, size

        _, names_offset, _ = section(names_index)
        for index in range(count):
            name, offset, size = section(index)
            if data[names_offset + name: names_offset + name + 8] == b".dynstr\x00":
                return data[offset: offset + size]
    raise UnsupportedTorch(f"{path.name} has no .dynstr section")


@cache
def _entries() -> dict[str, dict[str, str]]:
    """Method -> C++ name -> symbol, in one pass over the names."""
    entries: dict[str, dict[str, str]] = {"call": {}, "redispatch": {}}
    for match in _ENTRY.finditer(dynamic_strings(library_directory() / "libtorch_cpu.so")):
        digits, rest = match[1], match[2]
        # The digits of the length and those that may begin the name are adjacent: take the split that is consistent.
        for cut in range(1, len(digits) + 1):
            name = digits[cut:] + rest
            if int(digits[:cut]) == len(name):
                entries[match[3].lstrip(b"0123456789").decode()][name.decode()] = match[0].decode()
                break
    return entries


def operator_entries(method: str = "call") -> dict[str, str]:
    """C++ name of every operator (`add_Tensor`) -> mangled symbol of its `at::_ops::…::call`, or `redispatch`."""
    return _entries()[method]


def cxx_name(op: str, overload: str) -> str:
    """The name of the struct in `at::_ops` of the operator `aten::<op>.<overload>`."""
    return f"{op}_{overload}" if overload else op


class _Demangler:
    """Recursive descent over the part of the Itanium grammar that occurs in ATen's parameter lists."""

    BUILTIN: Final = {"v": "void", "b": "bool", "a": "signed char", "h": "unsigned char", "c": "char", "s": "short",
                      "i": "int", "j": "unsigned int", "l": "long", "m": "unsigned long", "x": "long long", "f": "float",
                      "d": "double"}
    STD: Final = {"St": "std", "Sa": "std::allocator", "Sb": "std::basic_string", "Ss": "std::string"}

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.substitutions: list[str] = []

    def peek(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.at)

    def take(self, prefix: str) -> bool:
        if self.peek(prefix):
            self.at += len(prefix)
            return True
        return False

    def remember(self, name: str) -> str:
        self.substitutions.append(name)
        return name

    def fail(self) -> MangledError:
        return MangledError(f"{self.text[:self.at]} <here> {self.text[self.at:]}")

    def source_name(self) -> str:
        match = re.compile(r"\d+").match(self.text, self.at)
        if not match:
            raise self.fail()
        length = int(match[0])
        self.at = match.end() + length
        return self.text[match.end(): self.at]

    def substitution(self) -> str | None:
        """`S_`, `S0_`, …; None where the text has a standard abbreviation or something else."""
        match = re.compile(r"S([0-9A-Z]*)_").match(self.text, self.at)
        if not match:
            return None
        index = 0 if not match[1] else int(match[1], 36) + 1
        if index >= len(self.substitutions):
            raise self.fail()
        self.at = match.end()
        return self.substitutions[index]

    def template_arguments(self) -> str:
        arguments: list[str] = []
        while not self.take("E"):
            if self.take("L"):
                kind = self.text[self.at]
                match = re.compile(r"[mijlb](\d+)E").match(self.text, self.at)
                if not match:
                    raise self.fail()
                self.at = match.end()
                arguments.append(match[1] + {"m": "ul", "j": "u", "l": "l"}.get(kind, ""))
            else:
                arguments.append(self.type())
        return f"<{', '.join(arguments)}>"

    def nested_name(self) -> str:
        """After `N`, up to and including `E`."""
        name = ""
        while not self.take("E"):
            if self.take("I"):
                name = self.remember(name + self.template_arguments())
            elif not name and (found := self.substitution()) is not None:
                name = found
            elif not name and self.peek("S"):
                name = self.standard()
            else:
                part = self.source_name()
                name = self.remember(f"{name}::{part}" if name else part)
        return name

    def standard(self) -> str:
        for code, name in self.STD.items():
            if self.take(code):
                return name
        raise self.fail()

    def type(self) -> str:
        for code, suffix in (("R", "&"), ("O", "&&"), ("P", "*"), ("K", " const")):
            if self.take(code):
                return self.remember(self.type() + suffix)
        if self.take("N"):
            return self.nested_name()
        found = self.substitution()
        if found is not None:
            # A substituted template name may get its arguments here.
            return self.remember(found + self.template_arguments()) if self.take("I") else found
        if self.peek("S"):
            name = self.standard()
            if name == "std":
                name = self.remember(f"std::{self.source_name()}")
            return self.remember(name + self.template_arguments()) if self.take("I") else name
        if self.at < len(self.text) and self.text[self.at] in self.BUILTIN:
            self.at += 1
            return self.BUILTIN[self.text[self.at - 1]]
        if self.at < len(self.text) and self.text[self.at].isdigit():
            name = self.remember(self.source_name())
            return self.remember(name + self.template_arguments()) if self.take("I") else name
        raise self.fail()


def parameter_types(symbol: str) -> tuple[str, ...]:
    """The parameter types of a mangled function, as `_ZN<namespaces>4callE<parameters>`, in C++ spelling."""
    if not symbol.startswith("_ZN"):
        raise MangledError(symbol)
    parser = _Demangler(symbol)
    parser.at = 3
    # The enclosing names are substitutions, the function's own name is not.
    parser.nested_name()
    parser.substitutions.pop()
    parameters: list[str] = []
    while parser.at < len(symbol):
        parameters.append(parser.type())
    return () if parameters == ["void"] else tuple(parameters)
