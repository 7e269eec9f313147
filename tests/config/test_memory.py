"""Plans against every published size, and against arithmetic done another way."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.dimensions import dimensions_of
from neuroncompile.config.heads import shard_heads
from neuroncompile.config.memory import Need, core_need, scratch_bytes, verdict_of
from neuroncompile.config.sizing import cache_of
from neuroncompile.hardware.memory import core_memory
from neuroncompile.hardware.targets import parse_target
from tests.config.documented import (
    DEEPSEEK_V3,
    EIGHT_BITS,
    LLAMA_31_8B,
    ROWS,
    Documented,
)

ids = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def need_of(row: Documented) -> Need:
    target = parse_target(row.target, lnc=row.neuron.get("logical_nc_config"))
    neuron = {"torch_dtype": "bfloat16", "batch_size": 1, "logical_nc_config": target.lnc}
    return core_need(
        dimensions_of(row.model),
        {**neuron, **row.neuron},
        budget=core_memory(target),
        platform=target.platform,
        graphs=2,
    )


def ceil(size: int, parts: int) -> int:
    return -(-size // parts)


def independent_bytes(config: dict[str, Any], neuron: dict[str, Any]) -> int:
    """Weights and cache of one rank in bfloat16, written out from the architecture."""
    c = {**config, **config.get("text_config", {})}
    tp, h, layers = neuron["tp_degree"], c["hidden_size"], c["num_hidden_layers"]
    d = c.get("head_dim", h // c["num_attention_heads"])
    heads = shard_heads(c["num_attention_heads"], c["num_key_value_heads"], tp)
    q, kv = heads.padded_query // tp, heads.sharded_key_value // tp
    tokens = neuron["seq_len"] * neuron.get("batch_size", 1)
    if "kv_lora_rank" in c:
        r, rope = c["kv_lora_rank"], c["qk_rope_head_dim"]
        nope, v, lora = c["qk_nope_head_dim"], c["v_head_dim"], c["q_lora_rank"]
        attention = h * lora + h * (r + rope)
        attention += q * (lora * (nope + rope) + r * (nope + v) + v * h)
        cache = 2 * layers * (r + rope) * tokens * 2
    else:
        gate = 1 if c["model_type"] == "afmoe" else 0
        attention = h * d * ((2 + gate) * q + 2 * kv)
        windowed = c["model_type"] == "gpt_oss"
        lengths = sum(128 if windowed and i % 2 == 0 else neuron["seq_len"] for i in range(layers))
        cache = 2 * lengths * kv * d * 2 * neuron.get("batch_size", 1)
    experts = next((c[n] for n in ("n_routed_experts", "num_experts", "num_local_experts")
                    if n in c), 0)  # fmt: skip
    dense = layers
    mixture = 0
    if experts:
        dense = c.get("first_k_dense_replace", c.get("num_dense_layers", 0))
        if isinstance(c.get("moe_layer_freq"), list):
            dense = c["moe_layer_freq"].count(0)
        wide = c.get("moe_intermediate_size", c["intermediate_size"])
        byte = 1 if neuron.get("quantized") else 2
        routed = experts * 3 * h * wide // tp * byte  # the product is tp, however it is split
        scales = experts * (2 * ceil(wide, tp) + h) * 4 if neuron.get("quantized") else 0
        shared = 0 if c["model_type"] == "gpt_oss" else 3 * h * ceil(wide, tp) * 2
        mixture = routed + scales + shared + experts * h * 4
    mlp = 3 * h * ceil(c.get("dense_intermediate_size", c["intermediate_size"]), tp) * 2
    ends = 2 * h * ceil(c["vocab_size"], tp) * 2
    return (layers * attention * 2 + dense * mlp + (layers - dense) * mixture + ends) + cache


@ids
def test_the_verdict_is_what_happened(row: Documented) -> None:
    assert need_of(row).verdict in row.verdicts


@ids
def test_parameters_are_the_published_number(row: Documented) -> None:
    assert dimensions_of(row.model).parameters / 1e9 == pytest.approx(row.parameters, rel=0.015)


@ids
def test_weights_and_cache_agree_with_arithmetic(row: Documented) -> None:
    need = need_of(row)
    expected = independent_bytes(row.model, row.neuron)
    assert need.weight_total + need.cache == pytest.approx(expected, rel=0.02)


@ids
def test_the_size_is_the_published_one(row: Documented) -> None:
    if row.size is None:
        assert row.name == "Trinity-Large tp64"  # the only source that gives none
        return
    need = need_of(row)
    resident = need.weight_total + need.cache
    ours = {
        "weights": need.weight_total,
        "resident": resident,
        "need": need.total,
        "resident of all": resident * row.neuron["tp_degree"],
    }[row.what]
    published = row.size * row.unit
    assert ours == pytest.approx(published, rel=row.deviation)
    if row.deviation > 0.15:
        assert row.why
        # the deviation is real: were it gone, the row should say so
        assert ours != pytest.approx(published, rel=0.15)


def test_cache_of_llama_8b() -> None:
    """128 KiB a token over all cores; 16 KiB on each of 32, which is four times as much."""
    model = dimensions_of(LLAMA_31_8B)
    for tp, each in ((1, 128), (2, 64), (8, 16), (32, 16)):
        cache = cache_of(model, {"tp_degree": tp, "seq_len": 4096, "torch_dtype": "bfloat16"})
        assert cache.token == each * 1024
        assert cache.bytes == each * 1024 * 4096


@pytest.mark.parametrize(
    ("need", "verdict"), [(0, "green"), (90, "green"), (91, "amber"), (100, "amber"), (101, "red")]
)
def test_verdicts(need: int, verdict: str) -> None:
    assert verdict_of(need, 100) == verdict


def test_parts_add_up() -> None:
    need = need_of(ROWS[0])
    assert sum(need.parts.values()) == need.total
    assert "draft model" not in need.parts


def test_a_draft_is_counted_with_its_cache() -> None:
    model = dimensions_of(LLAMA_31_8B)
    neuron = {"tp_degree": 2, "seq_len": 4096, "batch_size": 1, "torch_dtype": "bfloat16"}
    common: dict[str, Any] = {"budget": 16 << 30, "platform": "trn1", "graphs": 2}
    alone = core_need(model, neuron, **common)
    both = core_need(model, neuron, **common, draft=(model, neuron))
    assert both.draft == alone.weight_total + alone.cache
    assert both.total == alone.total + both.draft
    assert (alone.verdict, both.verdict) == ("green", "red")
    assert both.parts["draft model"] == both.draft


def test_scratch_is_whole_pages_and_follows_the_widest_context_graph() -> None:
    model = dimensions_of(DEEPSEEK_V3)
    neuron = {"tp_degree": 64, "seq_len": 8192, "torch_dtype": "bfloat16"}
    sizes = [
        scratch_bytes(model, {**neuron, "context_encoding_buckets": buckets}, "trn2")
        for buckets in ([128], [128, 4096], [8192, 128])
    ]
    assert sizes[0] == 512 << 20
    assert sizes[0] < sizes[1] < sizes[2]
    assert all(size % (512 << 20) == 0 for size in sizes)
    assert scratch_bytes(model, {**neuron, "context_encoding_buckets": [128]}, "trn1") == 64 << 20
    llama, eight = dimensions_of(LLAMA_31_8B), {**neuron, "tp_degree": 8}
    split = {**eight, "sequence_parallel_enabled": True}
    assert scratch_bytes(llama, split, "trn1") < scratch_bytes(llama, eight, "trn1")
    wide = {**neuron, "context_encoding_buckets": [128], "scratchpad_page_size": 1024}
    assert scratch_bytes(model, wide, "trn2") == 1 << 30


def test_quantised_weights_of_a_mixture_are_less_than_half() -> None:
    """Experts at one byte, what is named stays at two."""
    row = next(row for row in ROWS if row.name == "GLM-5.2 FP8")
    full = next(row for row in ROWS if row.name == "GLM-5.2 bfloat16")
    eight, sixteen = need_of(row).weights, need_of(full).weights
    assert eight["experts"] * 2 == sixteen["experts"]
    assert eight["attention"] == sixteen["attention"]
    assert eight["mlp"] == sixteen["mlp"]
    assert eight["scales"] > 0
    assert "scales" not in sixteen
    assert "self_attn" in EIGHT_BITS["modules_to_not_convert"]
