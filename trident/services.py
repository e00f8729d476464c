"""What the recorder needs from the rest of the system.

Owns the implementation of frontend.core.Services. May import: backend, resuming, shadow.
"""

from __future__ import annotations

from typing import Any

from trident.backend.lowering import aten
from trident.backend.native import tools
from trident.backend.native.evaluator import captured_again
from trident.backend.native.resume import call
from trident.resuming import continue_frames
from trident.shadow import Shadow


class Services:
    """What the recorder needs from the backend (see frontend.recorder.Services)."""

    def resume(self, frames: list[Any], exc: BaseException | None) -> object:
        """Continue frames in CPython."""
        return continue_frames(frames, exc)

    def leave(self, frames: list[Any]) -> object:
        """Continue frames that are not worth a recording: what they call is captured by itself."""
        with captured_again():
            return continue_frames(frames, None)

    def call(self, function: Any, args: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """Call without frames of Trident below."""
        return call(function, args, keywords)

    def watched(self) -> bool:
        """Whether a tool waits for the frames to go on in CPython."""
        return tools.hidden()

    def shadow(self, recorder: Any, values: list[Any]) -> None:
        """Follow a recording."""
        Shadow(recorder, values)

    def supports_operator(self, name: str, overload: str) -> bool:
        """Whether the lowering can call this ATen operator."""
        return aten.supports(name, overload)


services = Services()
