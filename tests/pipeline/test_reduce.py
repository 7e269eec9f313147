"""A failing configuration shrinks to what its failure needs, by the same steps every time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.backends.nxdi.failures import Failure, classify
from neuroncompile.errors import ConfigError, StoreError
from neuroncompile.pipeline.reduce import Candidate, Step, reduce_config

BUG = classify(
    ["[INTERNAL_ERROR] [NCC_INLA001] cause"],
    graph={"submodel": "context_encoding_model", "index": 4, "bucket": 12288},
)
OTHER = classify(["[ERROR] [NCC_EOOM001] too large"])

START = Candidate(
    model={
        "model_type": "llama",
        "num_hidden_layers": 80,
        "hidden_size": 8192,
        "layer_types": ["full_attention"] * 80,
    },
    neuron={
        "batch_size": 8,
        "tkg_batch_size": 8,
        "ctx_batch_size": 1,
        "seq_len": 12800,
        "max_context_length": 12288,
        "torch_dtype": "bfloat16",
        "tp_degree": 64,
        "logical_nc_config": 2,
        "enable_bucketing": True,
        "context_encoding_buckets": [2048, 4096, 8192, 10240, 12288],
        "token_generation_buckets": [2048, 4096, 8192, 10240, 12800],
        "fused_qkv": True,
        "sequence_parallel_enabled": True,
        "attn_kernel_enabled": True,
        "qkv_kernel_enabled": True,
        "mlp_kernel_enabled": True,
        "on_device_sampling_config": {"do_sample": True, "top_k": 1},
    },
)


def failing_when(holds: Callable[[Candidate], bool]) -> Callable[[Candidate], Failure | None]:
    return lambda candidate: BUG if holds(candidate) else None


def test_all_that_does_not_matter_goes() -> None:
    end = reduce_config(START, BUG, failing_when(lambda c: True))
    assert end.complete
    assert end.candidate.model == {
        "model_type": "llama",
        "num_hidden_layers": 1,
        "hidden_size": 8192,
        "layer_types": ["full_attention"],
    }
    assert end.candidate.neuron == {
        "batch_size": 1,
        "tkg_batch_size": 1,
        "ctx_batch_size": 1,
        "seq_len": 128,
        "max_context_length": 128,
        "torch_dtype": "bfloat16",
        "tp_degree": 1,
        "logical_nc_config": 2,
        "enable_bucketing": True,
        "context_encoding_buckets": [128],
        "token_generation_buckets": [128],
    }
    assert end.calls < 20
    assert end.changes[0] == "layers 80 → 1"
    assert "tp_degree 64 → 1" in end.changes
    assert "without attn_kernel_enabled" in end.changes
    assert "context_encoding_buckets 2048,4096,8192,10240,12288 → 128" in end.changes


@pytest.mark.parametrize(
    ("needs", "same"),
    [
        (lambda c: c.model["num_hidden_layers"] >= 13, {"layers": 13}),
        (lambda c: c.neuron["batch_size"] >= 3, {"batch_size": 3}),
        (lambda c: c.neuron["tp_degree"] >= 16, {"tp_degree": 16}),
        (lambda c: 8192 in c.neuron["context_encoding_buckets"], {"context": [8192]}),
        (
            lambda c: {2048, 10240} <= set(c.neuron["context_encoding_buckets"]),
            {"context": [2048, 10240]},
        ),
        (lambda c: max(c.neuron["token_generation_buckets"]) >= 9000, {"tokens": [10240]}),
        (lambda c: "mlp_kernel_enabled" in c.neuron, {"features": {"mlp_kernel_enabled"}}),
        (
            lambda c: {"fused_qkv", "qkv_kernel_enabled"} <= set(c.neuron),
            {"features": {"fused_qkv", "qkv_kernel_enabled"}},
        ),
    ],
)
def test_what_the_failure_needs_stays(needs: Any, same: dict[str, Any]) -> None:
    end = reduce_config(START, BUG, failing_when(needs), limit=200)
    model, neuron = end.candidate
    features = {"fused_qkv", "sequence_parallel_enabled", "attn_kernel_enabled"}
    features |= {"qkv_kernel_enabled", "mlp_kernel_enabled", "on_device_sampling_config"}
    found = {
        "layers": model["num_hidden_layers"],
        "batch_size": neuron["batch_size"],
        "tp_degree": neuron["tp_degree"],
        "context": neuron["context_encoding_buckets"],
        "tokens": neuron["token_generation_buckets"],
        "features": features & set(neuron),
    }
    usual = {"layers": 1, "batch_size": 1, "tp_degree": 1, "features": set()}
    usual |= {"context": [128], "tokens": [128]}
    if "tokens" in same:
        usual["context"] = found["context"]  # whatever prompts fit
    if "context" in same:
        usual["tokens"] = [max(8192, *same["context"])]  # a sequence is as long as its prompt
    assert found == {**usual, **same}
    assert end.complete
    assert needs(end.candidate)


def test_needs_that_hang_together_take_another_round() -> None:
    def needs(c: Candidate) -> bool:
        # few layers fail only once a feature is gone, and features are left out last
        return c.model["num_hidden_layers"] >= (40 if "fused_qkv" in c.neuron else 2)

    end = reduce_config(START, BUG, failing_when(needs))
    assert end.candidate.model["num_hidden_layers"] == 2
    assert "fused_qkv" not in end.candidate.neuron


def test_another_failure_is_not_this_one() -> None:
    def fails(c: Candidate) -> Failure | None:
        return BUG if c.neuron["tp_degree"] >= 8 else OTHER

    steps: list[Step] = []
    end = reduce_config(START, BUG, fails, on_step=steps.append)
    assert end.candidate.neuron["tp_degree"] == 8
    assert OTHER.reason in {step.outcome for step in steps}
    assert not [s for s in steps if s.kept and s.outcome != "same"]


def test_what_cannot_be_built_is_passed_over() -> None:
    def fails(c: Candidate) -> Failure | None:
        if c.neuron["tp_degree"] < 4:
            raise ConfigError("heads do not divide")
        return BUG

    steps: list[Step] = []
    end = reduce_config(START, BUG, fails, on_step=steps.append)
    assert end.candidate.neuron["tp_degree"] == 4
    assert {step.outcome for step in steps} == {"same", "refused"}


def test_an_error_of_another_kind_ends_the_search() -> None:
    def fails(c: Candidate) -> Failure | None:
        raise StoreError("no space left")

    with pytest.raises(StoreError):
        reduce_config(START, BUG, fails)


def test_the_smaller_the_better_never_larger() -> None:
    tried: list[Candidate] = []

    def fails(c: Candidate) -> Failure | None:
        tried.append(c)
        return BUG if random.Random(c.digest).random() < 0.5 else None

    end = reduce_config(START, BUG, fails, limit=500)
    assert end.complete
    for c in tried:
        assert c.model["num_hidden_layers"] <= 80
        assert set(c.neuron) <= set(START.neuron)
        assert c.neuron["max_context_length"] == max(c.neuron["context_encoding_buckets"])
        assert c.neuron["seq_len"] == max(c.neuron["token_generation_buckets"])
        assert c.neuron["max_context_length"] <= c.neuron["seq_len"] or c.neuron["seq_len"] == 12800
    assert fails(end.candidate) is BUG or end.candidate == START


def test_the_same_steps_every_time_and_no_candidate_twice() -> None:
    def record() -> tuple[list[str], list[Step]]:
        tried: list[str] = []
        steps: list[Step] = []

        def fails(c: Candidate) -> Failure | None:
            tried.append(c.digest)
            return BUG if c.model["num_hidden_layers"] > 5 else None

        reduce_config(START, BUG, fails, on_step=steps.append)
        return tried, steps

    first, steps = record()
    assert record() == (first, steps)
    assert len(set(first)) == len(first) == len(steps)


def test_bounded() -> None:
    calls = 0

    def fails(c: Candidate) -> Failure | None:
        nonlocal calls
        calls += 1
        return BUG

    end = reduce_config(START, BUG, fails, limit=3)
    assert (end.calls, calls, end.complete) == (3, 3, False)
    assert end.candidate.model["num_hidden_layers"] == 1
    none = reduce_config(START, BUG, fails, limit=0)
    assert none.candidate == START


def test_goes_on_where_an_earlier_search_stopped() -> None:
    def needs(c: Candidate) -> bool:
        return c.model["num_hidden_layers"] >= 7 and "fused_qkv" in c.neuron

    whole = reduce_config(START, BUG, failing_when(needs))
    answers: dict[str, str] = {}
    calls, rounds = 0, 0
    while True:
        part = reduce_config(START, BUG, failing_when(needs), limit=4, answers=answers)
        calls, rounds = calls + part.calls, rounds + 1
        if part.complete:
            break
    assert rounds > 3
    assert calls == whole.calls == len(answers)
    assert part.candidate == whole.candidate


def test_answers_survive_an_interruption() -> None:
    answers: dict[str, str] = {}
    count = 0

    def fails(c: Candidate) -> Failure | None:
        nonlocal count
        count += 1
        if count == 5:
            raise KeyboardInterrupt
        return BUG

    with pytest.raises(KeyboardInterrupt):
        reduce_config(START, BUG, fails, answers=answers)
    assert list(answers.values()) == ["same"] * 4
    known: list[bool] = []
    reduce_config(START, BUG, fails, answers=answers, on_step=lambda step: known.append(step.known))
    assert known[:5] == [True] * 4 + [False]


def test_a_failure_that_comes_and_goes_is_given_several_tries() -> None:
    def fails(c: Candidate) -> Failure | None:
        seen[c.digest] = seen.get(c.digest, 0) + 1
        return BUG if seen[c.digest] == 3 else None  # every candidate passes twice first

    seen: dict[str, int] = {}
    assert reduce_config(START, BUG, fails, tries=2).candidate == START
    seen = {}
    end = reduce_config(START, BUG, fails, tries=3)
    assert end.candidate.model["num_hidden_layers"] == 1
    assert end.calls == sum(seen.values()) == 3 * len(seen)


def test_an_image_to_text_config_shrinks_inside() -> None:
    inner = {"num_hidden_layers": 8, "layer_types": list("abababab")}
    start = Candidate({"text_config": inner, "vision_config": {"depth": 32}}, {"tp_degree": 1})
    end = reduce_config(start, BUG, failing_when(lambda c: True))
    assert end.candidate.model == {
        "text_config": {"num_hidden_layers": 1, "layer_types": ["a"]},
        "vision_config": {"depth": 32},
    }


@pytest.mark.parametrize("name", ["n_layer", "num_layers"])
def test_other_names_of_the_layer_count(name: str) -> None:
    end = reduce_config(Candidate({name: 12}, {}), BUG, failing_when(lambda c: True))
    assert end.candidate.model == {name: 1}


def test_nothing_to_shrink() -> None:
    end = reduce_config(Candidate({}, {}), BUG, failing_when(lambda c: True))
    assert end == (Candidate({}, {}), (), 0, True)


def test_buckets_that_are_pairs_are_left_alone() -> None:
    start = Candidate({}, {"token_generation_buckets": [[1, 128], [4, 128]], "tp_degree": 1})
    assert reduce_config(start, BUG, failing_when(lambda c: True)).candidate == start
