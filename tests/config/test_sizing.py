"""What each keyword does to weights and cache, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.dimensions import Dimensions, dimensions_of
from neuroncompile.config.sizing import cache_bytes, cache_of, weight_bytes
from tests.config.documented import DEEPSEEK_V3, GPT_OSS_120B, LLAMA_31_8B, QWEN3_1_7B

MIB = 1 << 20

TINY = {
    "model_type": "llama",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "tie_word_embeddings": False,
}
MIXTURE = {
    **TINY,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}


def weights(model: dict[str, Any], **neuron: Any) -> dict[str, int]:
    return weight_bytes(dimensions_of(model), {"torch_dtype": "bfloat16", **neuron})


def cache(model: dict[str, Any], **neuron: Any) -> int:
    neuron = {"torch_dtype": "bfloat16", "seq_len": 256, "batch_size": 1, **neuron}
    return cache_bytes(dimensions_of(model), neuron)


def test_one_rank_holds_every_tensor_once() -> None:
    assert weights(TINY) == {
        "embedding": 1000 * 64 * 2,
        "output": 1000 * 64 * 2,
        "attention": 2 * (64 * 64 * 2 + 64 * 32 * 2) * 2,
        "mlp": 2 * 3 * 64 * 96 * 2,
        "norms": 5 * 64 * 2,
    }


def test_two_ranks_halve_linears_and_keep_norms_whole() -> None:
    one, two = weights(TINY), weights(TINY, tp_degree=2)
    for group in ("embedding", "output", "attention", "mlp"):
        assert two[group] * 2 == one[group]
    assert two["norms"] == one["norms"]


def test_replicated_heads_enlarge_the_weights_too() -> None:
    """Two key-value heads on four ranks: each rank holds a whole one, as on two ranks."""
    query = 2 * (64 * 64 * 2) * 2
    key_value = 2 * (64 * 32 * 2) * 2
    assert weights(TINY, tp_degree=4)["attention"] == query // 4 + key_value // 2


def test_context_and_data_parallelism_of_attention() -> None:
    """Fewer ranks for attention, and a second set of weights where prompts and decoding differ."""
    model = {**TINY, "num_key_value_heads": 4}
    one, two, four = (weights(model, tp_degree=tp)["attention"] for tp in (1, 2, 4))
    assert weights(model, tp_degree=4, cp_degree=2)["attention"] == two + four
    assert weights(model, tp_degree=4, attention_dp_degree=4)["attention"] == four + one
    both = {"tp_degree": 4, "cp_degree": 2, "attention_dp_degree": 2}
    assert weights(model, **both)["attention"] == two
    assert weights(model, **{**both, "cp_degree": 4})["attention"] == one + two


def test_padded_query_heads_and_vocabulary() -> None:
    three = weights(TINY, tp_degree=3)  # 4 query heads become 6, and so do 2 key-value heads
    assert three["attention"] == 2 * (64 * 2 * 16 * 4) * 2
    assert three["output"] == 334 * 64 * 2
    assert three["embedding"] == 1000 * 22 * 2
    assert weights(TINY, tp_degree=3, vocab_parallel=True)["embedding"] == 334 * 64 * 2


def test_tied_embeddings_are_loaded_twice_as_nxdi_does() -> None:
    tied = weights({**TINY, "tie_word_embeddings": True})
    assert tied == weights(TINY)
    assert dimensions_of({**TINY, "tie_word_embeddings": True}).parameters == (
        dimensions_of(TINY).parameters - 1000 * 64
    )


def test_every_rank_holds_every_expert_at_its_share_of_the_width() -> None:
    one, four = weights(MIXTURE), weights(MIXTURE, tp_degree=4)
    assert one["experts"] == 2 * 8 * 3 * 64 * 32 * 2
    assert four["experts"] * 4 == one["experts"]
    assert four["router"] == one["router"] == 2 * 8 * 64 * 4  # float32, whole on every rank
    assert "mlp" not in one


@pytest.mark.parametrize(
    "degrees",
    [
        {"tp_degree": 4, "moe_ep_degree": 4, "moe_tp_degree": 1},
        {"tp_degree": 4, "moe_ep_degree": 2, "moe_tp_degree": 2},
        {"tp_degree": 2, "ep_degree": 2},
    ],
)
def test_experts_divided_in_other_ways_take_the_same(degrees: dict[str, int]) -> None:
    assert weights(MIXTURE, **degrees)["experts"] == weights(MIXTURE, tp_degree=4)["experts"]


def test_shared_experts_and_dense_layers() -> None:
    model = {**DEEPSEEK_V3, "num_hidden_layers": 4}
    found = weights(model, tp_degree=64)
    assert found["mlp"] == 3 * 3 * 7168 * 288 * 2
    assert found["shared experts"] == 3 * 7168 * 32 * 2
    assert found["experts"] == 256 * 3 * 7168 * 32 * 2
    assert found["replicated attention"] == 4 * 7168 * (1536 + 576) * 2


@pytest.mark.parametrize(
    ("kind", "scales"),
    [
        # q, k, v, o, gate, up, down in two layers, and the output matrix
        ({"quantization_type": "per_tensor_symmetric"}, (7 * 2 + 1) * 4),
        (
            {"quantization_type": "per_channel_symmetric"},
            (2 * (64 + 32 + 32 + 64 + 96 + 96 + 64) + 1000) * 4,
        ),
        (
            {"quantization_type": "blockwise_symmetric", "quantization_block_size": [32, 32]},
            (2 * (4 + 2 + 2 + 4 + 6 * 3) + 63) * 4,
        ),
    ],
    ids=["tensor", "channel", "block"],
)
def test_quantised_linears_take_a_byte_and_scales(kind: dict[str, Any], scales: int) -> None:
    full, eight = weights(TINY), weights(TINY, quantized=True, quantization_dtype="int8", **kind)
    for group in ("attention", "mlp", "output"):
        assert eight[group] * 2 == full[group]
    assert eight["embedding"] == full["embedding"]
    assert eight["norms"] == full["norms"]
    assert eight["scales"] == scales


def test_four_bits_take_half_a_byte_and_an_exponent_for_32() -> None:
    four = weights(TINY, quantized=True, quantization_dtype="mxfp4")
    linears = 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96) + 1000 * 64
    assert four["attention"] + four["mlp"] + four["output"] == linears // 2
    assert four["scales"] == linears // 32


@pytest.mark.parametrize(
    ("excluded", "group"),
    [("lm_head", "output"), ("self_attn", "attention"), ("mlp", "mlp")],
)
def test_what_is_not_to_be_converted_is_not(excluded: str, group: str) -> None:
    full = weights(TINY)
    eight = weights(TINY, quantized=True, modules_to_not_convert=[excluded])
    assert eight[group] == full[group]
    others = {"output", "attention", "mlp"} - {group}
    assert all(eight[other] * 2 == full[other] for other in others)


def test_one_layer_can_be_left_out() -> None:
    full = weights(TINY)
    eight = weights(TINY, quantized=True, modules_to_not_convert=["layers.1.mlp"])
    assert eight["mlp"] == full["mlp"] // 2 + full["mlp"] // 4


def test_cache_is_layers_heads_width_length_and_rows() -> None:
    assert cache(TINY) == 2 * 2 * 2 * 16 * 256 * 2
    assert cache(TINY, batch_size=3, kv_cache_padding_size=1) == 4 * cache(TINY)
    assert cache(TINY, kv_cache_batch_size=2) == 2 * cache(TINY)
    assert cache(TINY, max_length=512) == 2 * cache(TINY)
    assert cache(TINY, torch_dtype="float32") == 2 * cache(TINY)
    assert cache(TINY, tp_degree=2) * 2 == cache(TINY)
    assert cache(TINY, tp_degree=4) == cache(TINY, tp_degree=2)  # replicated, not split further


def test_an_fp8_cache_needs_its_config() -> None:
    """`kv_cache_quant` alone is a compiler flag; the cache stays as it was."""
    assert cache(TINY, kv_cache_quant=True) == cache(TINY)
    assert cache(TINY, kv_quant_config={"direct_cast": True}) * 2 == cache(TINY)


@pytest.mark.parametrize(
    ("methods", "scales"),
    [
        ({}, 2),
        ({"k_quant_method": "per_key_symmetric"}, 2 + 1),
        ({"k_quant_method": "per_channel_symmetric", "v_quant_method": "per_key_symmetric"}, 18),
    ],
)
def test_scales_of_an_fp8_cache_that_is_not_a_cast(methods: dict[str, str], scales: int) -> None:
    """Two heads of 16 on the rank, two layers."""
    cast = cache(TINY, kv_quant_config={"direct_cast": True})
    assert cache(TINY, kv_quant_config={"direct_cast": False, **methods}) == cast + 2 * scales * 4


def test_blocks_take_the_place_of_rows_and_length() -> None:
    blocks = {"is_block_kv_layout": True, "pa_num_blocks": 10, "pa_block_size": 32}
    assert cache(TINY, **blocks) == 2 * 2 * 2 * 16 * 320 * 2
    spare = cache(TINY, **blocks, is_prefix_caching=True)
    assert spare == 2 * 2 * 2 * 16 * 352 * 2  # one block takes the writes of inactive rows


@pytest.mark.parametrize(
    ("family", "window", "lengths"),
    [
        ("llama", 64, (64, 64, 64, 64)),
        ("mistral", 64, (64, 64, 64, 64)),
        ("qwen2", 64, (256, 256, 256, 256)),
        ("gemma3_text", 64, (256, 256, 256, 256)),
        ("gpt_oss", 128, (128, 256, 128, 256)),
        ("gpt_oss", 129, (256, 256, 256, 256)),
        ("llama4_text", 64, (64, 64, 64, 256)),
        ("llama4_text", 512, (256, 256, 256, 256)),
        ("llama", None, (256, 256, 256, 256)),
    ],
)
def test_windows_as_each_familys_class_keeps_them(
    family: str, window: int | None, lengths: tuple[int, ...]
) -> None:
    model = {**TINY, "model_type": family, "num_hidden_layers": 4, "sliding_window": window}
    assert cache_of(dimensions_of(model), {"seq_len": 256}).lengths == lengths


def test_a_mask_over_sequence_ids_pads_each_layer() -> None:
    found = cache_of(dimensions_of(TINY), {"seq_len": 256, "apply_seq_ids_mask": True})
    assert found.lengths == (384, 384)


def test_flash_decoding_splits_the_length_over_a_group_of_cores() -> None:
    keywords = {"seq_len": 4096, "tp_degree": 32, "flash_decoding_enabled": True}
    found = cache_of(dimensions_of(LLAMA_31_8B), keywords)
    assert set(found.lengths) == {4096 // 4 + 128}


def test_attention_data_parallelism_splits_rows_and_spares_one() -> None:
    keywords = {"seq_len": 256, "tp_degree": 64, "batch_size": 32, "attention_dp_degree": 8}
    found = cache_of(dimensions_of(GPT_OSS_120B), keywords)
    assert (found.rows, found.heads) == (5, 1)


def test_latent_attention_caches_one_head_on_every_rank() -> None:
    model = dimensions_of(DEEPSEEK_V3)
    for tp in (1, 64):
        found = cache_of(model, {"seq_len": 512, "tp_degree": tp, "torch_dtype": "bfloat16"})
        assert (found.heads, found.width) == (1, 576)
        assert found.bytes == 61 * 2 * 576 * 512 * 2


def test_a_normalised_config_gives_the_same() -> None:
    from neuroncompile.models.architecture import normalise

    def plain(config: dict[str, Any]) -> Dimensions:
        return dimensions_of(config)._replace(unsized=())

    for raw in (LLAMA_31_8B, QWEN3_1_7B, MIXTURE):
        assert plain(raw) == plain(normalise(raw))
