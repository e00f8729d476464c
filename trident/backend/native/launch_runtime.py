"""The process-wide native functions of Triton launches: compiled and verified once per target.

Owns the compiled `trident_launch_*` functions and the check that CPython's and torch's layouts are what they read. What must
hold: `install(target)` either makes all symbols of the target known to the engine or raises NativeError and leaves nothing.

May import: engine, symbols, launch_layout, launch_text, errors.
"""

from __future__ import annotations

import ctypes
import functools
import re
from typing import Any, Final

import torch

from trident.backend.native import engine, launch_layout, launch_text, symbols
from trident.backend.native.launch_layout import CUDA_TARGET, DICT_VERSION_TAG, TYPE_VERSION_TAG, VAR_SIZE
from trident.backend.native.launch_text_targets import TARGETS
from trident.errors import NativeError

_NUMBERS: Final = {name: value for name, value in vars(launch_layout).items() if name.isupper() and isinstance(value, int)}


def numbers(text: str) -> str:
    """The text with every name of `launch_layout`, and RUNTIME_ERROR, replaced by its number."""
    known = {**_NUMBERS, "RUNTIME_ERROR": id(RuntimeError)}
    return re.sub(r"(?<![@%\w.])[A-Z][A-Z_]+[A-Z]\b", lambda m: str(known.get(m.group(), m.group())), text)


def text_of(target: str) -> str:
    """The whole module of a target."""
    symbols.load_libraries()
    return numbers(launch_text.COMMON + TARGETS[target])


def word(address: int) -> int:
    """The 8 bytes at an address."""
    return ctypes.c_uint64.from_address(address).value


@functools.cache
def verify() -> None:
    """Check what native code reads of CPython: version tags of dicts and types, the length of a list."""
    sample: dict[str, object] = {"a": 1}
    tag = id(sample) + DICT_VERSION_TAG
    first = word(tag)
    _ = sample["a"], sample.get("b"), len(sample)
    second = word(tag)
    sample["a"] = 2
    third = word(tag)
    del sample["a"]
    if first != second or len({second, third, word(tag)}) != 3:
        raise NativeError("dict version tags are not where this Python should have them")
    items: list[int] = []
    size = id(items) + VAR_SIZE
    empty = word(size)
    items.append(1)
    if (empty, word(size)) != (0, 1):
        raise NativeError("the length of a list is not where this Python should have it")

    class Sample:
        """A class that is changed to see its version tag move."""

    def version() -> int:
        _ = Sample().__doc__  # a look-up gives a class without a tag a new one
        return word(id(Sample) + TYPE_VERSION_TAG) & 0xFFFFFFFF

    versions = [version(), version()]
    Sample.attribute = 1  # type: ignore[attr-defined]
    versions.append(version())
    if not (0 < versions[0] == versions[1] < versions[2] < versions[0] + 1000):
        raise NativeError("version tags of types are not where this Python should have them")


@functools.cache
def install(target: str) -> engine.Compiled:
    """Compile the launch functions of a target and make them known as symbols; NativeError where that cannot be."""
    verify()
    if target == CUDA_TARGET:
        engine.load_library("libcuda.so.1")
    text = text_of(target)
    for name in sorted(set(re.findall(r"@(_?Py\w+)", text))):
        engine.add_symbol(name, engine.api_address(name))
    compiled = engine.compile_ir(text, name=f"launch runtime, {target}")
    if target == CUDA_TARGET:
        _verify_cuda(compiled, torch)
    for name in (f"trident_launch_{target}", f"trident_launch_{target}_floor"):
        engine.add_symbol(name, compiled.address(name))
    for name in ("trident_launch_tensor", "trident_launch_miss"):  # the same code in every target's module: the first one serves
        if not engine.find_symbol(name):
            engine.add_symbol(name, compiled.address(name))
    return compiled


def _verify_cuda(compiled: engine.Compiled, torch: Any) -> None:
    """Native code must see the current device and streams that torch reports, a side stream included."""
    device_of = ctypes.CFUNCTYPE(ctypes.c_int32)(compiled.address("trident_launch_cuda_device"))
    stream_of = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int32, ctypes.c_void_p)(compiled.address("trident_launch_cuda_stream"))
    device = torch.cuda.current_device()
    if device_of() != device:
        raise NativeError("the current CUDA device that native code reads is not torch's")

    def agree() -> bool:
        out = ctypes.c_uint64(0)
        return stream_of(device, ctypes.addressof(out)) == 0 and out.value == torch.cuda.current_stream(device).cuda_stream

    with torch.cuda.stream(torch.cuda.Stream(device)):
        side = agree()
    if not (agree() and side):
        raise NativeError("the current CUDA stream that native code reads is not torch's")
