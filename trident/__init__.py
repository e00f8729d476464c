"""Trident: a tracing JIT for the host code of PyTorch programs that launch Triton kernels.

Public names only. Importing it registers the Triton `cpu` backend, so that kernels also run on CPU tensors.
"""

from trident.api import explain, frame_hook, jit, stats
from trident.backend.triton.cpu import register as _register_cpu_backend
from trident.entry import StrictError
from trident.errors import TridentError

__version__ = "0.1.0"
__all__ = ["StrictError", "TridentError", "explain", "frame_hook", "jit", "stats", "__version__"]

_register_cpu_backend()
