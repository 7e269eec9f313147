from __future__ import annotations

from collections.abc import Callable

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_family as rules
from tests.config.rows import Row, check_row, refusal

Resolve = Callable[..., NeuronConfig]


def of(family: str, **more: object) -> dict[str, object]:
    return {"model_type": family, **more}


ROWS = [
    Row(
        rules.deprecated,
        {"mlp_tkg_nki_kernel_enabled": True, "mlp_kernel_enabled": False},
        "mlp_kernel_enabled",
        {"mlp_kernel_enabled": True},
    ),
    Row(
        rules.deprecated,
        {"attn_block_cte_nki_kernel_enabled": True, "attn_kernel_enabled": False},
        "attn_kernel_enabled",
        {"attn_kernel_enabled": True},
    ),
    *(
        Row(rules.gated_experts, {"glu_mlp": False}, "glu_mlp", {"glu_mlp": True}, of(family))
        for family in ("mixtral", "dbrx", "qwen3_moe")
    ),
    *(
        Row(rules.no_speculation, {"speculation_length": 4}, "speculation_length",
            {"speculation_length": 0}, of(family))
        for family in ("mllama", "llama4", "llama4_text")
    ),
    Row(rules.no_speculation, {"is_medusa": True}, "is_medusa", {"is_medusa": False},
        of("mllama")),
    *(
        Row(rules.image_to_text, {name: True}, name, {name: False}, of(family))
        for family in ("llama4", "pixtral", "llava", "qwen2_vl", "qwen3_vl")
        for name in ("is_block_kv_layout", "is_prefix_caching", "is_medusa",
                     "enable_fused_speculation")
    ),
    Row(rules.image_to_text, {"cp_degree": 2}, "cp_degree", {"cp_degree": 1}, of("qwen3_vl")),
    Row(rules.image_to_text, {"attention_dp_degree": 2}, "attention_dp_degree",
        {"attention_dp_degree": 1}, of("qwen3_vl")),
    Row(
        rules.text_and_vision,
        {"text_neuron_config": {"seq_len": 8192}},
        "text_neuron_config.seq_len",
        {"text_neuron_config": {"seq_len": 4096}},
        of("pixtral"),
    ),
    Row(
        rules.text_and_vision,
        {"vision_neuron_config": {"batch_size": 1}},
        "vision_neuron_config.fused_qkv",
        {"vision_neuron_config": {"batch_size": 1, "fused_qkv": True}},
        of("qwen2_vl"),
    ),
    Row(
        rules.text_and_vision,
        {"vision_neuron_config": {"fused_qkv": True, "flash_decoding_enabled": True}},
        "vision_neuron_config.flash_decoding_enabled",
        {"vision_neuron_config": {"fused_qkv": True}},
        of("qwen2_vl"),
    ),
    Row(
        rules.pinned,
        {"router_config": {"dtype": "bfloat16"}},
        "router_config.dtype",
        {"router_config": {"dtype": "float32"}},
        of("qwen3_moe"),
    ),
    Row(rules.pinned, {"disable_numeric_cc_token": False}, "disable_numeric_cc_token",
        {"disable_numeric_cc_token": True}, of("qwen3_moe")),
    Row(
        rules.chunked_attention,
        {"seq_len": 16384, "flash_decoding_enabled": True},
        "flash_decoding_enabled",
        {"seq_len": 8192},
        of("llama4", attention_chunk_size=8192),
    ),
    Row(
        rules.chunked_attention,
        {"seq_len": 16384, "padding_side": "left"},
        "padding_side",
        {"padding_side": "right"},
        of("llama4", attention_chunk_size=8192),
    ),
    Row(
        rules.chunked_attention,
        {"seq_len": 10000, "cp_degree": 32, "tp_degree": 32},
        "cp_degree",
        {"seq_len": 10240},
        of("llama4", attention_chunk_size=8192),
    ),
    Row(
        rules.windows_of_trn1,
        {"attn_kernel_enabled": True},
        "attn_kernel_enabled",
        {"--target": "trn2"},
        {"sliding_window": 1024},
        target="trn1",
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(rules.RULES)


@pytest.mark.parametrize("name", rules.DEPRECATED)
def test_a_deprecated_keyword_is_said_with_what_took_its_place(resolve: Resolve, name: str) -> None:
    row = Row(rules.deprecated, {name: True}, "", {name: False})
    (warning,) = rules.deprecated(row.case(resolve, changed=False))
    assert name in warning
    assert rules.DEPRECATED[name] in warning
    assert rules.deprecated(row.case(resolve, changed=True)) == []


@pytest.mark.parametrize("family", ["qwen2", "qwen3", "mistral", "gemma3_text"])
def test_a_family_with_attention_of_its_own_takes_no_other(resolve: Resolve, family: str) -> None:
    error = refusal(Row(rules.pinned, {"attn_cls": "Mine"}, "", {}, of(family)), resolve)
    assert error is not None
    assert error.field == "attn_cls"


def test_what_is_lost_on_reload_is_said(resolve: Resolve) -> None:
    row = Row(rules.pinned, {"disable_normalize_top_k_affinities": True}, "", {}, of("mixtral"))
    (warning,) = rules.pinned(row.case(resolve, changed=False))
    assert "disable_normalize_top_k_affinities" in warning


def test_other_families_keep_their_freedom(resolve: Resolve) -> None:
    for rule, config in (
        (rules.no_speculation, {"speculation_length": 4}),
        (rules.image_to_text, {"is_prefix_caching": True}),
        (rules.pinned, {"attn_cls": "Mine"}),
    ):
        assert rule(Row(rule, config, "", {}).case(resolve, changed=False)) == []
