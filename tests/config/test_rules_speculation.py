from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_speculation as rules
from neuroncompile.errors import ConfigError
from tests.config.rows import Row, check_row

Resolve = Callable[..., NeuronConfig]

FUSED = {
    "speculation_length": 5,
    "enable_fused_speculation": True,
    "on_device_sampling_config": {"do_sample": False},
}
EAGLE = {**FUSED, "enable_eagle_speculation": True}
MEDUSA: dict[str, Any] = {
    "is_medusa": True,
    "num_medusa_heads": 2,
    "medusa_tree": [[0], [0, 0], [1]],
    "medusa_speculation_length": 4,
}


def with_draft(**neuron: Any) -> dict[str, Any]:
    return {**FUSED, "fused_spec_config": {"draft_config": {"neuron_config": neuron}}}


ROWS = [
    Row(rules.length, {"speculation_length": 1}, "speculation_length", {"speculation_length": 2}),
    Row(rules.length, {"speculation_length": 4096}, "speculation_length",
        {"speculation_length": 4095}),
    Row(
        rules.sliding_window,
        FUSED,
        "enable_fused_speculation",
        {"attn_block_tkg_nki_kernel_cascaded_attention": True},
        model={"sliding_window": 1024},
    ),
    Row(
        rules.asynchronous,
        {**FUSED, "async_mode": True, "is_prefix_caching": True},
        "async_mode",
        {"enable_eagle_speculation": True},
    ),
    Row(rules.medusa_tree, {**MEDUSA, "medusa_tree": [[0], [0, 0, 0], [1]]}, "medusa_tree",
        {"num_medusa_heads": 3}),
    Row(rules.medusa_tree, {**MEDUSA, "medusa_tree": [[0], ["a"], [1]]}, "medusa_tree", MEDUSA),
    Row(rules.medusa_tree, {**MEDUSA, "medusa_speculation_length": 3},
        "medusa_speculation_length", MEDUSA),
    Row(rules.token_tree, {**EAGLE, "token_tree_config": {"1": [2]}}, "token_tree_config",
        {"token_tree_config": {"0": [1], "1": [2]}}),
    Row(rules.token_tree, {**EAGLE, "token_tree_config": {"0": [1], "1": [0]}},
        "token_tree_config", {"token_tree_config": {"0": [1]}}),
    Row(rules.token_tree, {**EAGLE, "token_tree_config": {"0": [1, 2], "1": [2]}},
        "token_tree_config", {"token_tree_config": {"0": [1, 2]}}),
    Row(rules.token_tree, {**EAGLE, "token_tree_config": {"0": [1], "7": [8]}},
        "token_tree_config", {"token_tree_config": {"0": [7], "7": [8]}}),
    Row(rules.token_tree, {**EAGLE, "token_tree_config": {"0": ["x"]}}, "token_tree_config",
        {"token_tree_config": {"0": [1]}}),
    Row(
        rules.draft,
        with_draft(seqlen=4096),
        "fused_spec_config.draft_config.neuron_config.seqlen",
        with_draft(seq_len=4096),
    ),
    Row(
        rules.draft,
        with_draft(tp_degree="8"),
        "fused_spec_config.draft_config.neuron_config.tp_degree",
        with_draft(tp_degree=8),
    ),
    Row(
        rules.draft,
        with_draft(on_device_sampling_config={"topk": 1}),
        "fused_spec_config.draft_config.neuron_config.on_device_sampling_config.topk",
        with_draft(on_device_sampling_config={"top_k": 1}),
    ),
    Row(
        rules.draft,
        with_draft(enable_fused_speculation=True),
        "fused_spec_config.draft_config.neuron_config.enable_fused_speculation",
        with_draft(enable_fused_speculation=False),
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field[-30:]}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} | {rules.untested} == set(rules.RULES)


@pytest.mark.parametrize("kind", [{"speculation_length": 5}, FUSED, EAGLE, MEDUSA])
@pytest.mark.parametrize(
    ("beside", "target", "said"),
    [
        ({"batch_size": 4}, "trn2", "batch_size 4"),
        ({}, "trn1", "target trn1"),
        ({}, "inf2", "target inf2"),
        ({"sequence_parallel_enabled": True}, "trn2", "sequence_parallel_enabled"),
        ({"lora_config": {"max_loras": 1}}, "trn2", "lora_config"),
    ],
)
def test_untested_combinations_are_said(
    resolve: Resolve, kind: dict[str, Any], beside: dict[str, Any], target: str, said: str
) -> None:
    row = Row(rules.untested, {**kind, **beside}, "", {}, target=target)
    (warning,) = rules.untested(row.case(resolve, changed=False))
    assert said in warning
    assert "untested" in warning


@pytest.mark.parametrize("kind", [{"speculation_length": 5}, FUSED, EAGLE, MEDUSA])
def test_one_sequence_on_trn2_is_tested(resolve: Resolve, kind: dict[str, Any]) -> None:
    assert rules.untested(Row(rules.untested, kind, "", {}).case(resolve, changed=False)) == []


def test_no_speculation_no_warning(resolve: Resolve) -> None:
    row = Row(rules.untested, {"batch_size": 4}, "", {}, target="trn1")
    assert rules.untested(row.case(resolve, changed=False)) == []


def test_waiting_anyway(resolve: Resolve) -> None:
    row = Row(rules.asynchronous, {"speculation_length": 5, "async_mode": True}, "", FUSED)
    (warning,) = rules.asynchronous(row.case(resolve, changed=False))
    assert "async_mode" in warning
    assert rules.asynchronous(row.case(resolve, changed=True)) == []


def test_a_draft_that_is_no_table_is_left_to_its_type(resolve: Resolve) -> None:
    with pytest.raises(ConfigError, match="draft_config"):
        resolve(config={"fused_spec_config": {"draft_config": "x"}}, target="trn2")
