"""Launch tests on the CPU run Triton with a backend whose kernels only record their parameters (fake.py)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Triton uses the recording backend, and a cache of its own."""
    import fake

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    with fake.active():
        yield
