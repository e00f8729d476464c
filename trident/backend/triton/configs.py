"""From a kernel that Triton compiled to the words of a native launch, one rule per target.

Owns the knowledge of Triton's launchers (CUDA: 3.6 to 3.9): what they do besides the driver call, and with which attributes they
make it. What must hold: a kernel whose launcher would do anything that the native launch does not is Unsuitable.

May import: triton, native.launch_layout, specialize.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from trident.backend.native.launch_layout import CPU_TARGET, CUDA_TARGET
from trident.backend.triton.specialize import Unsuitable

# First version of Triton whose launchers are not known here.
TRITON_BEFORE: Final = (3, 10)
TRITON_FROM: Final = (3, 6)


@dataclass(frozen=True, slots=True)
class LaunchConfig:
    """function: address of the kernel (CUfunction, or the function itself on the CPU). attrs: CUlaunchAttribute records.

    extra: how many null pointers follow the kernel's own parameters.
    """

    function: int
    block: int = 1
    shared: int = 0
    ctas: int = 1
    attrs: bytes = b""
    extra: int = 0


CU_ATTRIBUTE_SIZE: Final = 72
# CUlaunchAttributeID
_COOPERATIVE, _CLUSTER_DIMENSION, _CLUSTER_SCHEDULING, _PROGRAMMATIC_STREAM_SERIALIZATION, _SHARED_MEMORY_MODE = 2, 4, 5, 6, 18
_SPREAD: Final = 1
_ALLOW_OVERSIZED_SHARED_MEMORY: Final = 3
_LARGEST_ORDINARY_SHARED: Final = 228 * 1024


def triton_version() -> tuple[int, int]:
    """Major and minor version of Triton."""
    import triton

    major, minor = triton.__version__.split(".")[:2]
    return int(major), int(minor)


def _attribute(key: int, *values: int) -> bytes:
    return struct.pack(f"<ii{len(values)}i", key, 0, *values).ljust(CU_ATTRIBUTE_SIZE, b"\0")


def cuda_config(compiled: Any) -> LaunchConfig:
    """What `CudaLauncher` and the `_launch` under it do for this kernel."""
    from triton.backends.nvidia import driver as nvidia

    launcher = compiled.run
    if type(launcher) is not nvidia.CudaLauncher:
        raise Unsuitable(f"the launcher is a {type(launcher).__name__}")
    if launcher.global_scratch_size or launcher.profile_scratch_size:
        raise Unsuitable("the kernel needs scratch memory")
    if getattr(launcher, "gsan_enabled", False):
        raise Unsuitable("gsan is on")
    warps, ctas, shared = compiled.packed_metadata
    attrs = b""
    if shared > _LARGEST_ORDINARY_SHARED and triton_version() >= (3, 8):
        attrs += _attribute(_SHARED_MEMORY_MODE, _ALLOW_OVERSIZED_SHARED_MEMORY)
    if launcher.launch_pdl:
        attrs += _attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 1)
    if launcher.launch_cooperative_grid:
        attrs += _attribute(_COOPERATIVE, 1)
    if ctas != 1:
        attrs += _attribute(_CLUSTER_DIMENSION, ctas, 1, 1) + _attribute(_CLUSTER_SCHEDULING, _SPREAD)
    # Two parameters follow the kernel's own: global and profile scratch. ctas == 16 needs a function attribute that the first
    # launch, made by Triton, has set.
    return LaunchConfig(int(compiled.function), 32 * warps, shared, ctas, attrs, extra=2)


def cpu_config(compiled: Any) -> LaunchConfig:
    """The `cpu` backend's kernels take nothing but their parameters."""
    return LaunchConfig(int(compiled.function))


CONFIGS: Final[dict[str, Callable[[Any], LaunchConfig]]] = {CUDA_TARGET: cuda_config, CPU_TARGET: cpu_config}


def available() -> tuple[str, ...]:
    """Targets that exist on this machine."""
    return (CPU_TARGET, CUDA_TARGET) if torch.cuda.is_available() and torch.version.cuda else (CPU_TARGET,)
