"""Which of its pointer arguments a Triton kernel may store to, read from the text of its TTIR.

Owns `stored`. What must hold: an argument that is not named is never stored to. All values that may point to the same memory are put into
one class; a store makes the arguments of its class stored ones. Whatever is not known gives None: any argument may be stored to.

May import: the standard library.
"""

from __future__ import annotations

import re
from typing import Final

_POINTERS: Final = ("!tt.ptr", "tensordesc")
# Operations whose results point to where their operands do.
_PASSING: Final = frozenset({
    "tt.splat", "tt.addptr", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.bitcast", "tt.unsplat", "arith.select",
    "scf.for", "scf.while", "scf.if", "scf.yield", "scf.condition", "tt.make_tensor_descriptor", "tt.make_tensor_ptr", "tt.advance",
})
_ENDING: Final = frozenset({"scf.yield", "scf.condition"})
_READING: Final = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather", "tt.return"})
_STORING: Final = frozenset({"tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_store", "tt.descriptor_scatter",
                             "tt.descriptor_reduce"})
_UNKNOWN: Final = ("tt.call", "tt.int_to_ptr", "tt.ptr_to_int", "cf.br", "cf.cond_br", "cf.switch", "!tt.ptr<!tt.ptr")
_LOCATION: Final = re.compile(r"\s*loc\(.*$")
_NAME: Final = re.compile(r"%[A-Za-z0-9_$.\-]+")
_OPERATION: Final = re.compile(r"^\s*(?:%[^=]*= )?\"?([a-z_]+\.[a-z_0-9.]+)\"?")
_ARGUMENT: Final = re.compile(r"(%[A-Za-z0-9_$.\-]+): (!?[A-Za-z0-9_.]+(?:<[^{}()]*?>)?)(?=[ ,){]|$)")


class _Classes:
    """Values that may point to the same memory (union-find)."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}

    def of(self, name: str) -> str:
        found = self._parents.setdefault(name, name)
        while found != self._parents[found]:
            found = self._parents[found]
        return found

    def unite(self, names: list[str]) -> None:
        for name in names[1:]:
            self._parents[self.of(name)] = self.of(names[0])


def _pointer_arguments(header: str) -> list[str]:
    """The pointers among a function's arguments, in order."""
    inside = header[header.index("(") + 1:]
    return [name for name, kind in _ARGUMENT.findall(inside) if any(pointer in kind for pointer in _POINTERS)]


def stored(ttir: str, count: int) -> set[int] | None:
    """Numbers of the pointer arguments (counted among the pointers, of which there must be `count`) that a kernel may store to; None where
    that cannot be said."""
    lines = ttir.splitlines()
    headers = [line for line in lines if "tt.func " in line]
    if len(headers) != 1 or any(word in ttir for word in _UNKNOWN):
        return None
    arguments = _pointer_arguments(headers[0])
    if len(arguments) != count:
        return None
    classes, written = _Classes(), list[str]()
    around: list[list[str]] = []  # names of the operations whose regions are open
    for line in lines[lines.index(headers[0]) + 1:]:
        text = _LOCATION.sub("", line).strip()
        operation = _OPERATION.match(text)
        name = operation[1] if operation is not None else ""
        names: list[str] = []
        if any(pointer in text for pointer in _POINTERS):
            if name in _PASSING:
                classes.unite(_alike(name, text) + (around[-1] if around and name in _ENDING else []))
            elif name in _STORING:
                written.append(_stored_operand(text))
            elif name not in _READING:
                return None
        if text.startswith("}") and around:
            names = around.pop()  # of an operation with more regions
        if text.endswith("{"):
            around.append(_alike(name, text) if operation is not None else names)
    marked = {classes.of(name) for name in written}
    return {n for n, name in enumerate(arguments) if classes.of(name) in marked}


def _alike(name: str, text: str) -> list[str]:
    """The values of a line that may point to the same memory: results, and those operands that they come from."""
    left, equals, right = text.partition(" = ")
    results = _NAME.findall(left) if equals and text.startswith("%") else []
    operands = _NAME.findall(right if results else text)
    if name == "scf.for":
        return results + _NAME.findall(text.partition("iter_args(")[2])
    if name == "scf.if":
        return results
    if name in _ENDING:
        kinds = _top_level(text.partition(" : ")[2])
        values = operands[name == "scf.condition":]
        if len(kinds) == len(values):
            return [value for value, kind in zip(values, kinds, strict=True) if any(pointer in kind for pointer in _POINTERS)]
        return values
    if name == "arith.select":
        return results + operands[1:]
    if name == "scf.while":
        return results + operands
    return results + operands[:1]


def _top_level(text: str) -> list[str]:
    """A list that is separated by commas, of types with commas inside."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<([{") - (character in ">)]}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip()]


def _stored_operand(text: str) -> str:
    """The first operand of a store that is a value."""
    return _NAME.findall(text.partition(" = ")[2] or text)[0]
