from __future__ import annotations

import json

import pytest

from neuroncompile.config.listing import keyword, keywords
from neuroncompile.config.schema import CLASSES
from neuroncompile.errors import ConfigError


def test_every_name_of_the_schema_is_listed_once() -> None:
    names = [record.name for record in keywords()]
    assert len(names) == len(set(names))
    for owner in ("NeuronConfig", "MoENeuronConfig", "InferenceConfig", "ImageToTextConfig"):
        assert {row[0] for row in CLASSES[owner]} <= set(names)
    assert "on_device_sampling_config.top_k" in names
    assert "fused_spec_config.draft_config" in names
    assert "lora_config.max_lora_rank" in names
    assert "blockwise_matmul_config.block_size" in names
    assert "text_neuron_config.seq_len" not in names


def test_one_keyword_in_full() -> None:
    found = keyword("seq_len")
    assert (found.type, found.default, found.reaches) == ("int", 128, "graph")
    assert found.legal == ">= 1"
    assert found.families == ()
    assert found.since == "0.1 (SDK 2.21)"
    nested = keyword("global_topk")
    assert nested.name == "on_device_sampling_config.global_topk"
    assert keyword("lora_config.max_cpu_loras").since == "0.7 (SDK 2.27)"
    assert keyword("chunked_prefill_config.max_num_seqs").since == "0.4 (SDK 2.24)"
    assert keyword("quantization_dtype").legal[0] == "int8"
    assert keyword("glu_mlp").families == (
        "mixtral",
        "dbrx",
        "qwen3_moe",
        "gpt_oss",
        "llama4_text",
        "llama4",
    )
    assert keyword("vision_neuron_config").families == (
        "llama4",
        "llava",
        "pixtral",
        "qwen3_vl",
        "qwen2_vl",
    )


def test_a_misspelt_keyword_says_the_nearest() -> None:
    with pytest.raises(ConfigError) as caught:
        keyword("seqlen")
    assert caught.value.hint == "did you mean seq_len?"


def test_a_top_level_name_wins_over_nested_ones() -> None:
    assert keyword("batch_size").name == "batch_size"  # LoRA's config has one too
    assert keyword("on_device_sampling_config").owner == "NeuronConfig"
    assert keyword("--seq-len".lstrip("-")).name == "seq_len"


def test_records_are_json() -> None:
    for record in keywords():
        json.dumps(record.as_json(), allow_nan=False)
