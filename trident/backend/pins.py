"""Pin tables: the facts that one check of a host program compares, as the native loop reads them.

Owns the translation of `Pin`s into words to compare. What must hold: the table agrees with `ir.pins.holds`; the trace that the
pins belong to (and so every owner) outlives the table.

May import: ir, native.{dict_versions,frame,pin_layout}.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final

from trident.backend.native import dict_versions, frame, pin_layout
from trident.backend.native.frame import NEVER, SlowKind
from trident.ir.trace import NULL, Pin, PinKind

_WORD: Final = 0xFFFFFFFFFFFFFFFF


def _address(obj: object) -> int:
    return 0 if obj is NULL else id(obj)


def _is_about_a_dict(pin: Pin) -> bool:
    """Whether a pin's fact can change with its owner's version tag only."""
    return pin.kind in (PinKind.DICT, PinKind.DICT_KEYS) or pin.kind is PinKind.EMPTY and isinstance(pin.owner, dict)


class PinTable:
    """A table in memory. `address`, `others` and `count` are what the native check gets; pins of one owner share an entry."""

    def __init__(self, pins: Sequence[Pin]) -> None:
        self._keep: list[Any] = [pins]
        self._entries: list[tuple[int, int, int]] = []
        self._owners: list[list[Pin]] = []
        shared: dict[tuple[PinKind, int], list[Pin]] = {}
        for pin in pins:
            if _is_about_a_dict(pin):
                dict_versions.watch(pin.owner)
            if pin.kind in (PinKind.DICT, PinKind.TYPE):
                shared.setdefault((pin.kind, id(pin.owner)), []).append(pin)
            else:
                self._single(pin)
        for (kind, _), group in shared.items():
            self._keyed(kind, group)
        self.others = self._put_in_order()
        compared = [word for address, expected, _ in self._entries for word in (address, expected)]
        more = [word for _, _, slow in self._entries for word in (slow, 0)]
        self._table = self._words([NEVER, *compared, *more])
        self.address = ctypes.addressof(self._table)
        self.count = len(self._entries)

    def _put_in_order(self) -> int:
        """Those about dicts come last; the number of the others. Before them lists, which are looked into at each check."""
        firsts = [pins[0] for pins in self._owners]
        order = sorted(range(len(firsts)), key=lambda n: (_is_about_a_dict(firsts[n]), firsts[n].kind is PinKind.LIST))
        self._entries = [self._entries[n] for n in order]
        self._owners = [self._owners[n] for n in order]
        return sum(not _is_about_a_dict(pin) for pin in firsts)

    def _words(self, words: Sequence[int]) -> Any:
        array = (ctypes.c_uint64 * max(len(words), 1))(*[w & _WORD for w in words])
        self._keep.append(array)
        return array

    def _entry(self, pins: list[Pin], address: int, expected: int, slow: int = 0) -> None:
        self._entries.append((address, expected, slow))
        self._owners.append(pins)

    def _slow(self, kind: SlowKind, owner: object, count: int, items: Sequence[int]) -> int:
        return ctypes.addressof(self._words([kind, id(owner), count, ctypes.addressof(self._words(items))]))

    def _keyed(self, kind: PinKind, group: list[Pin]) -> None:
        """Several keys of one dict or type, behind its version tag. The first check looks them up: no tag is NEVER."""
        self._keep.append([pin.key for pin in group])
        items = [word for pin in group for word in (id(pin.key), _address(pin.expected))]
        owner = group[0].owner
        slow, offset = (SlowKind.DICT, pin_layout.DICT_TAG) if kind is PinKind.DICT else (SlowKind.TYPE, pin_layout.TYPE_TAG)
        self._entry(group, id(owner) + offset, NEVER, self._slow(slow, owner, len(group), items))

    def _single(self, pin: Pin) -> None:
        owner, expected = pin.owner, pin.expected
        match pin.kind:
            case PinKind.WORD:
                self._entry([pin], owner, expected & _WORD)
            case PinKind.CELL:
                self._entry([pin], id(owner) + pin_layout.CELL_CONTENTS, _address(expected))
            case PinKind.FUNCTION:
                fields = pin_layout.current()
                for offset, part in zip((fields.code, fields.defaults, fields.kwdefaults), expected, strict=True):
                    # A function without defaults has a null pointer there, which Python shows as None.
                    self._entry([pin], id(owner) + offset, 0 if part is None else id(part))
            case PinKind.LIST:
                # Items change without any trace in the list itself, so its size is never taken for an answer.
                slow = self._slow(SlowKind.LIST, owner, len(expected), [id(item) for item in expected])
                self._entry([pin], id(owner) + pin_layout.SIZE, NEVER, slow)
            case PinKind.DICT_KEYS:
                slow = self._slow(SlowKind.DICT_KEYS, owner, len(expected) // 2, [id(part) for part in expected])
                self._entry([pin], id(owner) + pin_layout.DICT_TAG, NEVER, slow)
            case PinKind.ORDER:
                slow = self._slow(SlowKind.ORDER, owner, len(expected), [id(key) for key in expected])
                self._entry([pin], id(owner) + pin_layout.ORDER_STATE, NEVER, slow)
            case PinKind.EMPTY:
                offset = pin_layout.SET_USED if isinstance(owner, set | frozenset) else pin_layout.SIZE
                slow = 0 if expected else self._slow(SlowKind.NOT_EMPTY, owner, 0, [])
                self._entry([pin], id(owner) + offset, 0 if expected else NEVER, slow)
            case _:
                raise NotImplementedError(f"no native check for pins of kind {pin.kind}")

    def failures(self) -> list[tuple[Pin, int]]:
        """How often each entry was the first one of its check that did not hold: its pins and a count."""
        start = frame.PINS_START + self.count * frame.PIN_SIZE + frame.PIN_FAILURES
        counts = [int(self._table[(start + n * frame.PIN_MORE_SIZE) // 8]) for n in range(self.count)]
        return [(pin, count) for pins, count in zip(self._owners, counts, strict=True) if count for pin in pins]
