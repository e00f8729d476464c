"""Shared set-up: the cpu backend registered, a compile cache of its own, one thread."""

from __future__ import annotations

import os
import tempfile

os.environ.setdefault("TRITON_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"trident-triton-cpu-{os.getuid()}"))

import pytest
import torch

pytest.importorskip("triton")
pytest.importorskip("torch_mlir.ir")

from trident.backend.triton.cpu import register

register()
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
