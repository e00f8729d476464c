"""Shared by all tests: those marked `gpu` are skipped, with the reason shown, where there is no CUDA device."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture(autouse=True)
def no_callbacks_of_tools() -> Iterator[None]:
    """Hypothesis measures collections with a Python function, whose frames would be counted where frames are."""
    callbacks = gc.callbacks[:]
    gc.callbacks.clear()
    yield
    gc.callbacks[:0] = callbacks


@pytest.fixture
def no_collections() -> Iterator[None]:
    """For tests that count frames: a collection in the middle would run the finalizers of earlier tests' garbage."""
    gc.disable()
    yield
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)
