"""The parts of an estimate that no command line reaches by itself."""

from __future__ import annotations

from neuroncompile.config.dimensions import dimensions_of
from neuroncompile.pipeline.estimate import CpuNeed, draft_in
from tests.config.documented import LLAMA_31_8B, LLAMA_31_70B


def test_a_draft_in_the_program_is_split_like_the_model() -> None:
    """Its own keywords hold, but for the degree, the batch and the length, which are shared."""
    neuron = {"tp_degree": 8, "seq_len": 4096, "batch_size": 2, "quantized": True}
    spec = {"model": LLAMA_31_70B, "draft": {"model": LLAMA_31_8B, "neuron": {"tp_degree": 1}}}
    found = draft_in(spec, neuron)
    assert found is not None
    model, own = found
    assert model == dimensions_of(LLAMA_31_8B)
    assert own == {"tp_degree": 8, "seq_len": 4096, "batch_size": 2}
    assert draft_in({"model": LLAMA_31_70B}, neuron) is None


def test_a_host_that_does_not_say_what_is_free() -> None:
    need = CpuNeed(weights=100, cache=10, token=1, available=None)
    assert (need.verdict, need.tokens_that_fit) == ("green", None)
    assert CpuNeed(100, 10, 1, 110).verdict == "amber"
    assert CpuNeed(100, 10, 1, 100).tokens_that_fit == 0
    assert CpuNeed(100, 100, 2, 200).tokens_that_fit == 40
