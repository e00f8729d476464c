"""The table of `transformers` models: a few of its cases, and that a fault of one model is a row of the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from benchmarks import models_table
from benchmarks.models_table import RUNS, TIMED
from benchmarks.transformers_models import ARCHITECTURES, NEW_TOKENS, Case, cases


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # as in the table
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("case", [
    Case("Llama", "forward", "sdpa", 4),
    Case("ViT", "forward", "eager", 1),
    Case("Llama", "decode, dynamic cache", "eager", 4),
    Case("T5", "decode, dynamic cache", "sdpa", 4),
    Case("OPT", "decode, static cache", "sdpa", 4),
    Case("Mamba 2", "decode, dynamic cache", "eager", 1),
    Case("GPT-2", "generate, sampled", "sdpa", 4),
], ids=str)  # fmt: skip
def test_a_step_is_bit_identical_and_a_hit(case: Case) -> None:
    result = models_table.measure(case)
    assert result.identical, (result.differs, result.error)
    assert result.hits == result.calls == result.steps == (RUNS * NEW_TOKENS if case.generates else TIMED)
    assert result.recorded <= 4  # a cache that grows is no new recording for each length
    # A build of torch for CUDA asks a device that may be missing, and handles the exception.
    opaque = [what for what in result.opaque if "an exception that is handled" not in what]
    assert result.exits == 0 and not opaque


def test_every_difference_is_found() -> None:
    x = torch.tensor([0.0, float("nan")])
    assert models_table.difference({"a": [x]}, {"a": [x.clone()]}) == ""
    assert models_table.difference({"a": [x]}, {"a": [-x]}) == "result['a'][0]"
    assert models_table.difference({"a": [x]}, {"a": [x.double()]}) == "result['a'][0]"
    assert models_table.difference({"a": [x]}, {"b": [x]}) == "result.keys"
    assert models_table.difference((x,), [x]) == "result.length"
    assert models_table.difference([1], [True]) == "result[0]"


def test_a_model_that_fails_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case("ViT", "forward", "eager", 1)
    monkeypatch.setattr(models_table, "session", lambda *_: lambda model: model("nonsense"))
    result = models_table.measure(case)
    assert not result.identical and result.error
    assert "| error |" in models_table.markdown([(case, result)], "command")


def test_all_models_have_cases() -> None:
    assert len(ARCHITECTURES) == 13
    assert all(list(cases(model)) for model in ARCHITECTURES)
