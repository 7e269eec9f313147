"""Field differences and the nearest spec."""

from __future__ import annotations

from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, NEURON_EXCLUSIONS
from neuroncompile.keys.explain import (
    ABSENT,
    Difference,
    differences,
    excluded_differences,
    nearest_spec,
)

SPEC = {"kind": "compile", "neuron": {"seq_len": 64, "batch_size": 1}, "target": {"isa": "v3"}}


def test_differences_are_leaves_by_path() -> None:
    other = {"kind": "compile", "neuron": {"seq_len": 128, "tp": 2}, "target": {"isa": "v3"}}
    assert differences(SPEC, other) == [
        Difference("neuron.batch_size", 1, ABSENT),
        Difference("neuron.seq_len", 64, 128),
        Difference("neuron.tp", ABSENT, 2),
    ]
    assert differences(SPEC, SPEC) == []


def test_true_is_not_one() -> None:
    assert differences({"a": True}, {"a": 1}) == [Difference("a", True, 1)]


def test_nearest_has_most_equal_sections_then_fewest_leaves() -> None:
    candidates = {
        "two sections": {**SPEC, "neuron": {"seq_len": 1}, "target": {"isa": "v4"}},
        "one section, two leaves": {**SPEC, "neuron": {"seq_len": 1, "batch_size": 2}},
        "one section, one leaf": {**SPEC, "neuron": {"seq_len": 1, "batch_size": 1}},
    }
    assert nearest_spec(SPEC, candidates) == "one section, one leaf"
    assert nearest_spec(SPEC, {}) is None


def test_excluded_fields_that_differ() -> None:
    left = {"hidden_size": 64, "eos_token_id": 2, "initializer_range": 0.02, "pad_token_id": 0}
    right = {"hidden_size": 32, "eos_token_id": [2, 3], "initializer_range": 0.02}
    assert excluded_differences(left, right, MODEL_EXCLUSIONS) == [
        Difference("eos_token_id", 2, [2, 3]),
        Difference("pad_token_id", 0, ABSENT),
    ]
    fused = excluded_differences(left, right, MODEL_EXCLUSIONS, fused_speculation=True)
    assert [d.path for d in fused] == ["eos_token_id"]


def test_excluded_fields_of_nested_keywords() -> None:
    left = {"lora_config": {"max_loras": 1, "lora_ckpt_json": "a"}, "seq_len": 64}
    right = {"lora_config": {"max_loras": 2, "lora_ckpt_json": "b"}, "seq_len": 64}
    assert excluded_differences(left, right, NEURON_EXCLUSIONS, nested=True) == [
        Difference("lora_config.lora_ckpt_json", "a", "b")
    ]
