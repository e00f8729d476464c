"""Native code: the only package that uses llvmlite. Importing it does nothing by itself."""

from __future__ import annotations


def verify() -> None:
    """Check every layout and symbol that native code relies on; UnsupportedPython or UnsupportedTorch where one does not hold."""
    from trident.backend.native import layouts, symbols, torch_layouts
    from trident.errors import UnsupportedPython
    from trident.ir import exceptions

    layouts.current()
    with layouts.plain_evaluator():
        try:
            exceptions.state_offset()
            exceptions.frame_offsets()
        except LookupError as error:
            raise UnsupportedPython(str(error)) from error
        symbols.load_libraries()
        torch_layouts.current()
