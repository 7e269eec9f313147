from __future__ import annotations

from collections.abc import Callable

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_parallel as rules
from tests.config.rows import Row, check_row

Resolve = Callable[..., NeuronConfig]

EXPERTS = {"model_type": "qwen3_moe", "num_experts": 128}

ROWS = [
    Row(rules.attention_data_parallel, {"tp_degree": 8, "batch_size": 8, "attention_dp_degree": 3},
        "attention_dp_degree", {"attention_dp_degree": 2}),
    Row(rules.attention_data_parallel, {"tp_degree": 8, "batch_size": 6, "attention_dp_degree": 4},
        "attention_dp_degree", {"batch_size": 8}),
    Row(
        rules.attention_data_parallel,
        {"tp_degree": 32, "batch_size": 8, "attention_dp_degree": 4, "cp_degree": 2},
        "attention_dp_degree",
        {"cp_degree": 4},
    ),
    Row(
        rules.attention_data_parallel,
        {"tp_degree": 8, "batch_size": 8, "attention_dp_degree": 2, "kv_cache_batch_size": 8},
        "kv_cache_batch_size",
        {"kv_cache_batch_size": 4},
    ),
    Row(
        rules.attention_data_parallel,
        {"tp_degree": 8, "batch_size": 8, "attention_dp_degree": 2, "kv_cache_padding_size": 2},
        "kv_cache_padding_size",
        {"attention_dp_degree": 1},
    ),
    # 8 key-value heads on 8 ranks are one each; in two halves of 4 ranks they would be two.
    Row(rules.attention_data_parallel_heads,
        {"tp_degree": 8, "batch_size": 8, "attention_dp_degree": 2}, "attention_dp_degree",
        {"tp_degree": 16}),
    Row(
        rules.attention_data_parallel_heads,
        {"tp_degree": 16, "batch_size": 8, "attention_dp_degree": 4, "cp_degree": 8},
        "attention_dp_degree",
        {"tp_degree": 32},
    ),
    Row(rules.context_parallel_heads, {"tp_degree": 4, "cp_degree": 2}, "cp_degree",
        {"tp_degree": 8}),
    Row(rules.expert_dispatch, {"tp_degree": 8, "ep_dispatch_cc_option": "RS_AG"},
        "ep_dispatch_cc_option", {"batch_size": 8}),
    Row(
        rules.cache_update,
        {"tp_degree": 16, "batch_size": 8, "attention_dp_degree": 2,
         "attn_block_tkg_nki_kernel_cache_update": True},
        "attn_block_tkg_nki_kernel_cache_update",
        {"attn_block_tkg_nki_kernel_cascaded_attention": True},
    ),
    Row(
        rules.attention_data_parallel_heads,
        {"tp_degree": 32, "batch_size": 16, "attention_dp_degree": 4, "cp_degree": 2},
        "attention_dp_degree",
        {"cp_degree": 4},
        model={"num_key_value_heads": 16},
    ),
    Row(rules.flash_decoding, {"tp_degree": 4, "flash_decoding_enabled": True},
        "flash_decoding_enabled", {"tp_degree": 16}),
    Row(rules.flash_decoding, {"tp_degree": 24, "flash_decoding_enabled": True, "seq_len": 4097},
        "flash_decoding_enabled", {"seq_len": 4098}, model={"num_attention_heads": 24}),
    Row(
        rules.sequence_parallel,
        {"tp_degree": 8, "sequence_parallel_enabled": True, "context_encoding_buckets": [500]},
        "sequence_parallel_enabled",
        {"context_encoding_buckets": [504]},
    ),
    Row(rules.compiler_target, {"target": "trn1"}, "target", {"target": "trn2"}),
    Row(rules.compiler_target, {"on_cpu": True}, "on_cpu", {"on_cpu": False}),
    Row(rules.ranks, {"tp_degree": 8, "world_size": 12}, "world_size", {"world_size": 16}),
    Row(rules.ranks, {"tp_degree": 8, "start_rank_id": 4, "local_ranks_size": 8},
        "local_ranks_size", {"local_ranks_size": 4}),
    Row(rules.ranks, {"tp_degree": 8, "start_rank_id": 1}, "start_rank_id", {"start_rank_id": 0}),
    Row(
        rules.experts,
        {"tp_degree": 32, "moe_tp_degree": 8, "moe_ep_degree": 8},
        "moe_ep_degree",
        {"moe_ep_degree": 4},
        model=EXPERTS,
    ),
    Row(
        rules.experts,
        {"tp_degree": 32, "moe_tp_degree": 1, "moe_ep_degree": 32},
        "moe_ep_degree",
        {"moe_tp_degree": 32, "moe_ep_degree": 1},
        model={**EXPERTS, "num_experts": 100},
    ),
    Row(
        rules.experts,
        {
            "tp_degree": 32,
            "hybrid_sharding_config": {
                "moe_cte_tp_degree": 8,
                "moe_cte_ep_degree": 4,
                "moe_tkg_tp_degree": 16,
                "moe_tkg_ep_degree": 4,
            },
        },
        "hybrid_sharding_config.moe_tkg_ep_degree",
        {
            "hybrid_sharding_config": {
                "moe_cte_tp_degree": 8,
                "moe_cte_ep_degree": 4,
                "moe_tkg_tp_degree": 8,
                "moe_tkg_ep_degree": 4,
            },
        },
        model=EXPERTS,
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} | {rules.half_a_device} == set(rules.RULES)


@pytest.mark.parametrize(
    ("target", "degree", "warned"),
    [
        ("trn2.3xlarge", 2, True),
        ("trn2.3xlarge", 1, False),
        ("trn2.3xlarge", 4, False),
        ("trn2.48xlarge", 2, False),
    ],
)
def test_half_of_a_small_instance_is_a_warning(
    resolve: Resolve, target: str, degree: int, warned: bool
) -> None:
    row = Row(rules.half_a_device, {"tp_degree": degree}, "", {}, target=target)
    assert bool(rules.half_a_device(row.case(resolve, changed=False))) == warned


def test_experts_held_twice_are_a_warning(resolve: Resolve) -> None:
    config = {"tp_degree": 32, "moe_tp_degree": 4, "moe_ep_degree": 4}
    row = Row(rules.experts, config, "", {"moe_tp_degree": 8}, model=EXPERTS)
    (warning,) = rules.experts(row.case(resolve, changed=False))
    assert "held 2 times" in warning
    assert rules.experts(row.case(resolve, changed=True)) == []


def test_flash_decoding_without_sharing_is_a_warning(resolve: Resolve) -> None:
    flash = {"tp_degree": 8, "flash_decoding_enabled": True}
    row = Row(rules.flash_decoding, flash, "", {"tp_degree": 16})
    (warning,) = rules.flash_decoding(row.case(resolve, changed=False))
    assert "gains nothing" in warning
    assert rules.flash_decoding(row.case(resolve, changed=True)) == []


def test_parts_of_a_batch_decode_where_a_prompt_had_parts(resolve: Resolve) -> None:
    """Full tensor parallelism while decoding needs a rank for each head; parts have their own."""
    both = {"tp_degree": 4, "batch_size": 4, "cp_degree": 2, "attention_dp_degree": 2}
    row = Row(rules.context_parallel_heads, both, "", {})
    assert rules.context_parallel_heads(row.case(resolve, changed=False)) == []


def test_stages_are_untested(resolve: Resolve) -> None:
    row = Row(rules.ranks, {"tp_degree": 8, "pp_degree": 2}, "", {"pp_degree": 1})
    (warning,) = rules.ranks(row.case(resolve, changed=False))
    assert "pp_degree is 2" in warning
    assert rules.ranks(row.case(resolve, changed=True)) == []
