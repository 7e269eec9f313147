from __future__ import annotations

from collections.abc import Callable

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_cache as rules
from tests.config.rows import Row, check_row

Resolve = Callable[..., NeuronConfig]

BLOCKS = {"is_block_kv_layout": True, "is_prefix_caching": True, "pa_block_size": 32}
CHUNKS = {"chunked_prefill_config": {"max_num_seqs": 4}, "is_block_kv_layout": True}

ROWS = [
    Row(
        rules.batches,
        {"batch_size": 4, "tkg_batch_size": 8},
        "tkg_batch_size",
        {"kv_cache_batch_size": 8},
    ),
    Row(
        rules.batches,
        {"batch_size": 4, "tkg_batch_size": 2, "is_continuous_batching": False},
        "tkg_batch_size",
        {"is_continuous_batching": True},
    ),
    Row(
        rules.batches,
        {"batch_size": 2, "kv_cache_batch_size": 4, "is_continuous_batching": False},
        "kv_cache_batch_size",
        {"kv_cache_batch_size": 2},
    ),
    Row(
        rules.batches,
        {"batch_size": 2, "speculation_length": 4, "spec_batch_size": 4},
        "spec_batch_size",
        {"spec_batch_size": 2},
    ),
    Row(
        rules.continuous_batch_rows,
        {"is_continuous_batching": True, "ctx_batch_size": 2},
        "ctx_batch_size",
        {"ctx_batch_size": 1},
    ),
    # The length and the block of case F18.
    Row(
        rules.block_counts,
        {**BLOCKS, "seq_len": 100, "pa_num_blocks": 8},
        "pa_block_size",
        {"seq_len": 128},
    ),
    Row(rules.block_counts, {**BLOCKS, "pa_num_blocks": 127}, "pa_num_blocks",
        {"pa_num_blocks": 128}),
    Row(rules.prefix_blocks, {**BLOCKS, "seq_len": 96}, "pa_block_size",
        {"pa_block_size": 128, "seq_len": 128}),
    Row(rules.prefix_blocks, {**BLOCKS, "seq_len": 96}, "pa_block_size",
        {"attn_block_tkg_nki_kernel_enabled": True}),
    Row(rules.chunked_prefill, CHUNKS, "chunked_prefill_config",
        {"chunked_prefill_config": None}),
    Row(rules.chunked_prefill, CHUNKS, "chunked_prefill_config",
        {"chunked_prefill_config": None}, nxdi=None),
    Row(
        rules.chunked_prefill,
        {**CHUNKS, "batch_size": 2,
         "chunked_prefill_config": {"max_num_seqs": 4, "tkg_model_enabled": False}},
        "batch_size",
        {"batch_size": 1},
        nxdi=(0, 7),
    ),
    Row(
        rules.chunked_prefill,
        {**CHUNKS, "chunked_prefill_config": {"kernel_q_tile_size": 128}},
        "chunked_prefill_config.max_num_seqs",
        CHUNKS,
        nxdi=(0, 7),
    ),
    Row(rules.bucket_shape, {"context_encoding_buckets": [[512, 4]]},
        "context_encoding_buckets", {"context_encoding_buckets": [512]}),
    Row(rules.bucket_shape, {**CHUNKS, "context_encoding_buckets": [512]},
        "context_encoding_buckets", {"context_encoding_buckets": [[512, 4]]}),
    Row(rules.bucket_shape, {**BLOCKS, "context_encoding_buckets": [512]},
        "context_encoding_buckets", {"prefix_buckets": [512]}),
    Row(rules.prefix_buckets, {**BLOCKS, "prefix_buckets": [512]}, "prefix_buckets",
        {"context_encoding_buckets": [512]}),
    Row(
        rules.prefix_buckets,
        {**BLOCKS, "prefix_buckets": [512, 8192], "context_encoding_buckets": [512]},
        "prefix_buckets",
        {"prefix_buckets": [512, 4096]},
    ),
    Row(
        rules.prefix_buckets,
        {**BLOCKS, "prefix_buckets": [512, 512], "context_encoding_buckets": [512]},
        "prefix_buckets",
        {"prefix_buckets": [512]},
    ),
    Row(rules.padding, {"padding_side": "left", "k_cache_transposed": True}, "padding_side",
        {"padding_side": "right"}),
    Row(
        rules.padding,
        {"padding_side": "left", "batch_size": 2, "is_continuous_batching": False},
        "padding_side",
        {"attn_kernel_enabled": False},
    ),
    Row(rules.transposed_keys, {"k_cache_transposed": True, "kv_cache_batch_size": 2},
        "k_cache_transposed", {"kv_cache_batch_size": 1}),
    Row(
        rules.window,
        {"windowed_context_encoding_size": 512},
        "windowed_context_encoding_size",
        {"windowed_context_encoding_size": 1024},
        model={"sliding_window": 1024},
    ),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(rules.RULES)


def test_blocks_for_fewer_sequences_than_the_batch_are_a_warning(resolve: Resolve) -> None:
    row = Row(rules.block_counts, {**BLOCKS, "batch_size": 4, "pa_num_blocks": 256}, "", {})
    (warning,) = rules.block_counts(row.case(resolve, changed=False))
    assert "256 holds 2 sequences" in warning
    enough = row._replace(change={"pa_num_blocks": 512})
    assert rules.block_counts(enough.case(resolve, changed=True)) == []


def test_a_verifying_step_may_have_fewer_rows(resolve: Resolve) -> None:
    fewer = {"batch_size": 2, "speculation_length": 4, "spec_batch_size": 1}
    row = Row(rules.batches, {**fewer, "is_continuous_batching": False}, "", {})
    assert rules.batches(row.case(resolve, changed=False)) == []


def test_prompts_in_blocks_need_no_row(resolve: Resolve) -> None:
    several = {"is_continuous_batching": True, "ctx_batch_size": 2, "batch_size": 4}
    row = Row(rules.continuous_batch_rows, {**several, **BLOCKS}, "", {})
    assert rules.continuous_batch_rows(row.case(resolve, changed=False)) == []


def test_attention_data_parallelism_derives_the_rows_itself(resolve: Resolve) -> None:
    row = Row(
        rules.batches,
        {"batch_size": 4, "attention_dp_degree": 2, "kv_cache_batch_size": 2},
        "",
        {},
    )
    assert rules.batches(row.case(resolve, changed=False)) == []


def test_left_padding_of_one_row_is_a_warning(resolve: Resolve) -> None:
    row = Row(rules.padding, {"padding_side": "left"}, "", {})
    (warning,) = rules.padding(row.case(resolve, changed=False))
    assert "padding_side is left" in warning
