"""The exceptions that Trident itself raises.

Owns the class hierarchy and nothing else. What must hold: a fault of the user's program is never wrapped in one of these.
May import: nothing.
"""

from __future__ import annotations


class TridentError(Exception):
    """Base of everything that Trident raises on its own account."""


class UnsupportedPython(TridentError):
    """This CPython differs from what the layout tables describe: native code would be a guess, so there is none."""


class UnsupportedTorch(TridentError):
    """This torch differs from what the layout tables describe."""


class NativeError(TridentError):
    """LLVM refused code that Trident generated, or a symbol that it needs does not exist."""


class ResumeError(TridentError):
    """A frame state that CPython cannot continue from."""
