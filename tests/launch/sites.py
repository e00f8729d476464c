"""Making launch sites for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from trident.backend.native import launch_layout as layout
from trident.backend.triton.launcher import NativeLauncher
from trident.ir.trace import LaunchParam, LaunchSite


def site_of(kernel: Any, *, options: dict[str, Any] | None = None, **constants: Any) -> LaunchSite:
    """A site of a kernel: the named parameters are constants, the others operands."""
    params = tuple(LaunchParam(name, name in constants, constants.get(name)) for name in kernel.arg_names)
    return LaunchSite(kernel, params, tuple((options or {}).items()), __file__, 1)


def kind_of(value: Any) -> str:
    """The kind an operand of this value has in a trace."""
    import torch

    if isinstance(value, torch.Tensor):
        return "tensor"
    if type(value) is bool:
        return "bool"
    if type(value) is int and -(1 << 63) <= value < 1 << 63:
        return "int"
    return "float" if type(value) is float else "object"


def launcher_of(
    kernel: Any, operands: Sequence[Any], *, options: dict[str, Any] | None = None, **constants: Any
) -> NativeLauncher:
    """A launcher for operands of these kinds."""
    return NativeLauncher(site_of(kernel, options=options, **constants), [kind_of(value) for value in operands])


class KeyReader:
    """The key that native code computes: a launcher whose way to Python only notes it."""

    def __init__(self, kernel: Any, kinds: Sequence[str], **constants: Any) -> None:
        self.launcher = NativeLauncher(site_of(kernel, **constants), kinds)
        assert self.launcher.state.operands is not None, self.launcher.state.reason
        self.seen: list[bytes] = []
        self._note = self.note
        self.launcher.state._header[layout.STATE_MISS] = id(self._note)

    def note(self, gx: int, gy: int, gz: int, args: tuple[Any, ...], key: bytes) -> None:
        self.seen.append(key)
        self.args = args

    def key(self, *operands: Any) -> bytes:
        self.launcher((1,), *operands)
        for given, got in zip(operands, self.args, strict=True):
            assert given is got or (given == got and type(given) is type(got)) or (given != given and got != got)
        return self.seen[-1]
