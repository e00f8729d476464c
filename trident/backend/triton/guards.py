"""What `JITFunction.run` re-reads at every launch besides the arguments, as words that native code compares.

Owns the list for Triton 3.6 to 3.9: knobs, launch hooks, pre-run hooks, the active driver, the kernel object and its caches, the
global variables that the kernel uses, and the classes whose methods a launch goes through. What must hold: while every word is
as it was taken, a launch through Triton would take the same way as the launch that was seen; a word that moved sends the next
launch to Python, nothing else.

May import: triton, native.launch_layout, specialize.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trident.backend.native.launch_layout import DICT_VERSION_TAG, VAR_SIZE
from trident.backend.triton.specialize import Unsuitable, immutable
from trident.ir.trace import LaunchSite

ALL: Final = (1 << 64) - 1
TYPE_VERSION_MASK: Final = (1 << 32) - 1
# PyTypeObject.tp_version_tag, in bytes (CPython 3.11 and 3.12).
TYPE_VERSION_TAG: Final = 384


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


@dataclass(slots=True)
class Guards:
    """words: address, mask, expected. dicts: dict, version tag, key, hash, value. alive: what the addresses lie in."""

    words: list[tuple[int, int, int]] = field(default_factory=list)
    dicts: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    alive: list[Any] = field(default_factory=list)

    def version(self, mapping: dict[Any, Any]) -> None:
        """Nothing in the dict changes."""
        self._word(mapping, DICT_VERSION_TAG, ALL)

    def empty(self, items: list[Any]) -> None:
        """The list is and stays empty."""
        self.alive.append(items)
        self.words.append((id(items) + VAR_SIZE, ALL, 0))

    def attributes(self, obj: Any) -> None:
        """Neither the object's own attributes nor its class's change."""
        self.version(vars(obj))
        self.type(type(obj))

    def type(self, cls: type) -> None:
        """No class in the class's MRO changes (a modified class loses its version tag, and so do its subclasses)."""
        getattr(cls, "__doc__", None)  # a look-up gives a class without a tag a new one
        if word(id(cls) + TYPE_VERSION_TAG) & TYPE_VERSION_MASK == 0:
            raise Unsuitable(f"class {cls.__qualname__} has no version tag")
        self._word(cls, TYPE_VERSION_TAG, TYPE_VERSION_MASK)

    def value(self, mapping: dict[Any, Any], key: str) -> None:
        """The value under a key stays the same object (or absent); the rest of the dict may change."""
        found = mapping.get(key)
        present = key in mapping
        self.alive += [mapping, key, found]
        tag = word(id(mapping) + DICT_VERSION_TAG)
        self.dicts.append((id(mapping), tag, id(key), hash(key) & ALL, id(found) if present else 0))

    def _word(self, obj: Any, offset: int, mask: int) -> None:
        self.alive.append(obj)
        self.words.append((id(obj) + offset, mask, word(id(obj) + offset) & mask))


def _hook(guards: Guards, hook: Any, name: str) -> None:
    """A hook of `knobs.runtime` that must not have anything to call."""
    if hook is None:
        return
    calls = getattr(hook, "calls", None)
    if type(hook).__name__ != "HookChain" or not isinstance(calls, list):
        raise Unsuitable(f"{name} is set")
    if calls:
        raise Unsuitable(f"{name} has hooks")
    guards.attributes(hook)
    guards.empty(calls)


def _constants(site: LaunchSite) -> Iterator[object]:
    """Constants of the site, tuples and constexprs opened."""
    pending = [p.value for p in site.params if p.constexpr] + [value for _, value in site.options]
    while pending:
        value = pending.pop()
        yield value
        if type(value) is tuple:
            pending += value
        elif type(value).__name__ == "constexpr":
            pending.append(value.value)


def _globals(guards: Guards, used: Mapping[tuple[str, int], tuple[Any, dict[str, Any]]]) -> None:
    """Global variables that the kernel or a function that it calls uses: Triton raises when one has changed."""
    from triton.language import constexpr

    for (name, _), (value, mapping) in used.items():
        current = mapping.get(name)
        if name not in mapping or current != value or type(mapping) is not dict:
            raise Unsuitable(f"global variable {name} has changed")
        if not immutable(current):
            raise Unsuitable(f"global variable {name} is a {type(current).__name__}, which can change")
        if isinstance(current, constexpr):
            guards.version(vars(current))
        guards.value(mapping, name)


def take(site: LaunchSite) -> Guards:
    """All guard words of a site, as they are now. Unsuitable where a launch cannot be repeated natively at present."""
    from triton import knobs
    from triton.runtime import driver
    from triton.runtime import jit as jit_module
    from triton.runtime.jit import JITCallable

    guards = Guards()
    kernel = site.kernel
    for module in (knobs, jit_module):
        guards.version(vars(module))
    for knob in (knobs.runtime, knobs.compilation):
        guards.attributes(knob)
    guards.attributes(driver)
    guards.attributes(driver.active)
    guards.attributes(kernel)
    guards.version(kernel.device_caches)
    for caches in list(kernel.device_caches.values()):
        guards.version(caches[0])
    guards.empty(kernel.pre_run_hooks)
    if kernel.pre_run_hooks:
        raise Unsuitable("the kernel has pre-run hooks")
    _hook(guards, knobs.runtime.launch_enter_hook, "launch_enter_hook")
    _hook(guards, knobs.runtime.launch_exit_hook, "launch_exit_hook")
    if getattr(knobs.runtime, "add_stages_inspection_hook", None) is not None:
        raise Unsuitable("add_stages_inspection_hook is set")
    if knobs.compilation.instrumentation_mode:
        raise Unsuitable("an instrumentation mode is set")
    for value in _constants(site):
        if isinstance(value, JITCallable):
            guards.version(vars(value))
    _globals(guards, kernel.used_global_vals)
    return guards


def snapshot(site: LaunchSite) -> tuple[object, ...]:
    """What a compiled kernel in the cache stands for besides its key: when this is the same, known entries remain right."""
    from triton import knobs
    from triton.runtime import driver

    kernel = site.kernel
    return (id(driver.active), bool(kernel.debug), bool(knobs.runtime.debug), knobs.compilation.instrumentation_mode)
