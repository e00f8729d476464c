"""What `JITFunction.run` re-reads at every launch besides the arguments, as words that native code compares.

Owns the list for Triton 3.6 to 3.9: knobs, launch hooks, pre-run hooks, the active driver, the kernel object and its caches, the
global variables that the kernel uses, and the classes whose methods a launch goes through. What must hold: while every word is
as it was taken, a launch through Triton would take the same way as the launch that was seen; a word that moved sends the next
launch to Python, nothing else.

May import: triton, native.launch_layout, specialize.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trident.backend.native.launch_layout import DICT_VERSION_TAG, TYPE_VERSION_TAG, VAR_SIZE
from trident.backend.triton.specialize import Unsuitable, immutable
from trident.ir.trace import LaunchSite

ALL: Final = (1 << 64) - 1
ROUTING: Final = "trident.backend.triton.cpu.route"
TYPE_VERSION_MASK: Final = (1 << 32) - 1


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


@dataclass(slots=True)
class Guards:
    """words: address, mask, expected. dicts: dict, version tag, key, hash, value. alive, values: what the addresses lie in."""

    words: list[tuple[int, int, int]] = field(default_factory=list)
    dicts: list[tuple[int, int, int, int, int]] = field(default_factory=list)
    alive: list[Any] = field(default_factory=list)
    values: list[tuple[dict[str, Any], str, Any]] = field(default_factory=list)

    def hold(self) -> bool:
        """Whether every word is as it was taken (for a dict: whether the key's value is the same object)."""
        return (all(word(address) & mask == expected for address, mask, expected in self.words)
                and all(mapping.get(key) is value for mapping, key, value in self.values))

    def same_guards(self, other: Guards) -> bool:
        """Whether these are the same guards, taken at another time."""
        return ([record[:2] for record in self.words] == [record[:2] for record in other.words]
                and [(r[0], r[2:]) for r in self.dicts] == [(r[0], r[2:]) for r in other.dicts])

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
        self.class_of(obj)

    def class_of(self, obj: Any) -> None:
        """No class in the MRO of the object's class changes (one that does loses its version tag, and so do its subclasses)."""
        cls = type(obj)
        getattr(cls, "__doc__", None)  # a look-up gives a class without a tag a new one
        if word(id(cls) + TYPE_VERSION_TAG) & TYPE_VERSION_MASK == 0:
            raise Unsuitable(f"class {cls.__qualname__} has no version tag")
        self._word(cls, TYPE_VERSION_TAG, TYPE_VERSION_MASK)

    def value(self, mapping: dict[str, Any], key: str) -> Any:
        """The value under a key, which has to stay the same object; the rest of the dict may change."""
        tag = word(id(mapping) + DICT_VERSION_TAG)
        found = mapping[key]
        self.values.append((mapping, key, found))
        self.dicts.append((id(mapping), tag, id(key), hash(key) & ALL, id(found)))
        return found

    def _word(self, obj: Any, offset: int, mask: int) -> None:
        record = (id(obj) + offset, mask, word(id(obj) + offset) & mask)
        if record not in self.words:
            self.alive.append(obj)
            self.words.append(record)


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
    from triton.language import constexpr

    pending: list[Any] = [p.value for p in site.params if p.constexpr] + [value for _, value in site.options]
    while pending:
        value = pending.pop()
        yield value
        if type(value) is tuple:
            pending += value
        elif isinstance(value, constexpr):
            pending.append(value.value)


def _globals(guards: Guards, used: Mapping[tuple[str, int], tuple[Any, dict[str, Any]]]) -> None:
    """Global variables that the kernel or a function that it calls uses: Triton raises when one has changed."""
    from triton.language import constexpr

    for (name, _), (value, mapping) in used.items():
        if type(mapping) is not dict or name not in mapping:
            raise Unsuitable(f"global variable {name} is gone")
        current = guards.value(mapping, name)
        if current != value:
            raise Unsuitable(f"global variable {name} has changed")
        if not immutable(current):
            raise Unsuitable(f"global variable {name} is a {type(current).__name__}, which can change")
        if isinstance(current, constexpr):
            guards.version(vars(current))


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


def unpatched(method: Any, owner: type) -> None:
    """A method is the one that its class was written with, not something that was put in its place (by a profiler, say).

    Behind the cpu backend's routing, that is: which driver it chooses shows in the kernel that was launched.
    """
    if getattr(method, "__globals__", {}).get("__name__") == ROUTING:
        method = method.__wrapped__
    home = sys.modules.get(owner.__module__)
    if home is None or getattr(method, "__globals__", None) is not vars(home):
        raise Unsuitable(f"{owner.__qualname__}.{getattr(method, '__name__', '?')} has been replaced")


def snapshot(site: LaunchSite) -> tuple[object, ...]:
    """What a compiled kernel in the cache stands for besides its key: when this is the same, known entries remain right."""
    from triton import knobs
    from triton.runtime import driver

    kernel = site.kernel
    return (id(driver.active), bool(kernel.debug), bool(knobs.runtime.debug), knobs.compilation.instrumentation_mode)
