"""The contract between frontend and backend: op table, dialect, trace, builder, verifier, printer.

Owns what both halves share; imports neither. May import: torch_mlir, the standard library.
"""

from trident.ir.builder import TraceBuilder
from trident.ir.trace import (
    NULL,
    Arrival,
    Build,
    Frame,
    FrameState,
    GuardInfo,
    Known,
    LaunchParam,
    LaunchSite,
    OpaqueCall,
    Pin,
    PinKind,
    Recipe,
    Replay,
    Slot,
    Snapshot,
    Trace,
    rebuild,
)

__all__ = ["NULL", "Arrival", "Build", "Frame", "FrameState", "GuardInfo", "Known", "LaunchParam", "LaunchSite", "OpaqueCall", "Pin",
           "PinKind", "Recipe", "Replay", "Slot", "Snapshot", "Trace", "TraceBuilder", "rebuild"]
