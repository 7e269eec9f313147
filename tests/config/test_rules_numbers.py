from __future__ import annotations

from collections.abc import Callable

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_numbers as rules
from tests.config.rows import Row, check_row

Resolve = Callable[..., NeuronConfig]

QUANTIZED = {"quantized": True, "quantized_checkpoints_path": "/weights"}
QKV = {"fused_qkv": True, "qkv_kernel_enabled": True}

ROWS = [
    Row(rules.attention_dtype, {"attention_dtype": "float32"}, "attention_dtype",
        {"cast_type": "as-declared"}),
    Row(
        rules.kernel_quantization,
        {"quantized_mlp_kernel_enabled": True, "quantization_type": "per_tensor_symmetric"},
        "quantization_type",
        {"quantization_type": "per_channel_symmetric"},
    ),
    Row(
        rules.kernel_quantization,
        {"activation_quantization_type": "dynamic", "quantization_dtype": "int8"},
        "quantization_dtype",
        {"quantization_dtype": "f8e4m3"},
    ),
    Row(rules.modules_to_not_convert, {**QUANTIZED, **QKV}, "modules_to_not_convert",
        {"modules_to_not_convert": ["self_attn"]}),
    Row(
        rules.quantization_blocks,
        {**QUANTIZED, "quantization_type": "blockwise_symmetric"},
        "quantization_block_size",
        {"quantization_block_size": [128, 128], "quantization_block_axis": [0, 1]},
    ),
    Row(
        rules.quantization_blocks,
        {**QUANTIZED, "quantization_type": "blockwise_symmetric",
         "quantization_block_size": [128, 128], "quantization_block_axis": [0]},
        "quantization_block_axis",
        {"quantization_block_axis": [0, 1]},
    ),
    Row(
        rules.quantization_blocks,
        {**QUANTIZED, "quantization_block_size": 128},
        "quantization_block_size",
        {"quantization_type": "blockwise_symmetric", "quantization_block_axis": 1},
    ),
    Row(
        rules.expert_scales,
        {**QUANTIZED, "quantization_type": "expert_wise_per_channel_symmetric"},
        "quantization_type",
        {"quantization_type": "per_channel_symmetric"},
    ),
    Row(rules.fp8_weights, {**QUANTIZED, "quantization_dtype": "f8e4m3fn_x4"},
        "quantization_dtype", {"--target": "trn3"}),
    Row(rules.microscaling, {"is_mxfp4_compute": True}, "is_mxfp4_compute", {"--target": "trn3"}),
    Row(rules.kv_quantization, {"kv_cache_quant": True}, "kv_cache_quant",
        {"kv_quant_config": {"direct_cast": True}}),
    Row(rules.kv_quantization, {"kv_quant_config": {"direct_cast": True}}, "kv_quant_config",
        {"kv_cache_quant": True}),
    Row(
        rules.kv_quantization,
        {"kv_cache_quant": True, "kv_quant_config": {"k_quant_method": "per_key_symmetric"}},
        "kv_quant_config.k_quant_method",
        {"kv_quant_config": {"k_quant_method": "per_key_symmetric", "direct_cast": False}},
    ),
    Row(
        rules.kv_quantization,
        {"kv_cache_quant": True, "kv_quant_config": {"quant_dtype": "bfloat16"}},
        "kv_quant_config.quant_dtype",
        {"kv_quant_config": {"quant_dtype": "float8_e5m2"}},
    ),
    Row(rules.padded_sizes, {"padded_hidden_size": 4000}, "padded_hidden_size",
        {"padded_hidden_size": 4608}),
    Row(rules.padded_sizes, {"padded_intermediate_size": 14335}, "padded_intermediate_size",
        {"padded_intermediate_size": 14336}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(rules.RULES)


@pytest.mark.parametrize(
    ("target", "dtype", "warned"),
    [
        ("trn1", "f8e4m3fn", True),
        ("trn2", "f8e4m3fn", True),
        ("trn3", "f8e4m3fn", False),
        ("trn2", "f8e4m3", False),
        ("trn2", "int8", False),
    ],
)
def test_ocp_fp8_before_trn3_is_a_warning(
    resolve: Resolve, target: str, dtype: str, warned: bool
) -> None:
    row = Row(rules.fp8_weights, {**QUANTIZED, "quantization_dtype": dtype}, "", {}, target=target)
    warnings = rules.fp8_weights(row.case(resolve, changed=False))
    assert bool(warnings) == warned
    assert all("240" in line for line in warnings)


def test_a_quantised_cache_before_0_8_is_one_keyword(resolve: Resolve) -> None:
    row = Row(rules.kv_quantization, {"kv_cache_quant": True}, "", {}, nxdi=(0, 7))
    assert rules.kv_quantization(row.case(resolve, changed=False)) == []


def test_scales_of_the_cache_before_trn3_are_a_warning(resolve: Resolve) -> None:
    scaled = {"kv_cache_quant": True, "kv_quant_config": {"direct_cast": False}}
    row = Row(rules.kv_quantization, scaled, "", {"--target": "trn3"})
    (warning,) = rules.kv_quantization(row.case(resolve, changed=False))
    assert "448" in warning
    assert rules.kv_quantization(row.case(resolve, changed=True)) == []


def test_quantising_everything_is_said(resolve: Resolve) -> None:
    row = Row(rules.modules_to_not_convert, QUANTIZED, "", {"modules_to_not_convert": ["lm_head"]})
    (warning,) = rules.modules_to_not_convert(row.case(resolve, changed=False))
    assert "modules_to_not_convert" in warning
    assert rules.modules_to_not_convert(row.case(resolve, changed=True)) == []
