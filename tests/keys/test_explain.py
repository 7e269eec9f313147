"""Field differences and the nearest spec."""

from __future__ import annotations

from neuroncompile.keys.explain import ABSENT, Difference, differences, nearest_spec

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
