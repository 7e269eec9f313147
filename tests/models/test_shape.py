"""The numbers the cpu target reads, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.architecture import Rope, normalise, shape_of

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}


def config(family: str = "llama", **fields: Any) -> dict[str, Any]:
    return {"model_type": family, **SIZES, **fields}


@pytest.mark.parametrize(
    ("family", "fields", "biases"),
    [
        ("llama", {}, (False, False, False, False)),
        ("llama", {"attention_bias": True}, (True, True, False, False)),
        ("llama", {"mlp_bias": True}, (False, False, True, False)),
        ("mistral", {"attention_bias": True}, (False, False, False, False)),
        ("qwen2", {"num_key_value_heads": 4}, (True, False, False, False)),
        ("qwen2", {"num_key_value_heads": 4, "attention_bias": False}, (True, False, False, False)),
        ("qwen3", {"num_key_value_heads": 4}, (False, False, False, True)),
        ("qwen3", {"num_key_value_heads": 4, "attention_bias": True}, (True, True, False, True)),
    ],
)
def test_what_each_family_adds_is_what_transformers_builds(
    family: str, fields: dict[str, Any], biases: tuple[bool, ...]
) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields = {"num_key_value_heads": 2} | fields
    shape = shape_of(config(family, **fields))
    assert (shape.qkv_bias, shape.o_bias, shape.mlp_bias, shape.qk_norm) == biases
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            AutoConfig.for_model(family, **{**SIZES, **fields})
        )
    names = {name.partition("layers.0.")[2] for name, _ in model.named_parameters()}
    assert ("self_attn.q_proj.bias" in names) == shape.qkv_bias
    assert ("self_attn.o_proj.bias" in names) == shape.o_bias
    assert ("mlp.up_proj.bias" in names) == shape.mlp_bias
    assert ("self_attn.q_norm.weight" in names) == shape.qk_norm
    parameters = dict(model.named_parameters())
    assert parameters["model.layers.0.self_attn.k_proj.weight"].shape == (
        shape.num_key_value_heads * shape.head_dim,
        shape.hidden_size,
    )
    assert model.config.rms_norm_eps == shape.rms_norm_eps
    assert model.config.max_position_embeddings == shape.max_position_embeddings
    assert model.config.tie_word_embeddings == shape.tie_word_embeddings


def test_raw_and_normalised_give_one_shape() -> None:
    raw = config("qwen2", num_key_value_heads=4, rope_theta=1000000)
    assert shape_of(raw) == shape_of(normalise(raw))


@pytest.mark.parametrize(
    ("fields", "rope"),
    [
        ({}, Rope("default", 10000.0)),
        ({"rope_theta": 500000}, Rope("default", 500000.0)),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, Rope("linear", 10000.0, 2.0)),
        ({"rope_scaling": LLAMA3}, Rope("llama3", 10000.0, 8.0, 1.0, 4.0, 32)),
        (
            {"rope_parameters": {**LLAMA3, "rope_theta": 7.0}},
            Rope("llama3", 7.0, 8.0, 1.0, 4.0, 32),
        ),
        ({"rope_parameters": {"partial_rotary_factor": 1.0}}, Rope("default", 10000.0)),
    ],
)
def test_rope(fields: dict[str, Any], rope: Rope) -> None:
    assert shape_of(config(**fields)).rope == rope


@pytest.mark.parametrize(
    ("family", "fields", "windows"),
    [
        ("llama", {"sliding_window": 8}, (None,) * 4),
        ("mistral", {"num_key_value_heads": 2}, (4096,) * 4),
        ("mistral", {"num_key_value_heads": 2, "sliding_window": None}, (None,) * 4),
        ("qwen2", {"sliding_window": 8}, (None,) * 4),
        (
            "qwen3",
            {"sliding_window": 8, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 8),
        ),
        (
            "qwen3",
            {
                "sliding_window": 8,
                "use_sliding_window": True,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (8, None, 8, None),
        ),
    ],
)
def test_windows(family: str, fields: dict[str, Any], windows: tuple[int | None, ...]) -> None:
    assert shape_of(config(family, **{"num_key_value_heads": 4} | fields)).sliding_windows == (
        windows
    )


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config"),
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ({"rope_interleaved": True}, "rope_interleaved"),
        ({"attention_multiplier": 0.1}, "attention_multiplier"),
        ({"embedding_multiplier": 12.0}, "embedding_multiplier"),
        ({"partial_rotary_factor": 0.5}, "rope_parameters.partial_rotary_factor"),
        ({"rope_scaling": {"factor": 8.0}}, "rope_parameters.rope_type"),
        ({"rope_scaling": {"type": "yarn", "factor": 8.0}}, "rope_parameters.rope_type"),
        ({"rope_scaling": {"type": "dynamic", "factor": 8.0}}, "rope_parameters.rope_type"),
        ({"rope_scaling": {"type": "linear"}}, "rope_parameters.factor"),
        ({"rope_scaling": {"type": "linear", "factor": -1}}, "rope_parameters.factor"),
        ({"rope_scaling": {**LLAMA3, "high_freq_factor": 1.0}}, "rope_parameters.high_freq_factor"),
        ({"rope_scaling": {**LLAMA3, "mscale": 2.0}}, "rope_parameters.mscale"),
        (
            {"rope_scaling": {k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}},
            "rope_parameters.low_freq_factor",
        ),
        (
            {"rope_scaling": LLAMA3, "original_max_position_embeddings": 16},
            "original_max_position_embeddings",
        ),
        ({"num_local_experts": 8}, "num_local_experts"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"num_attention_heads": 3}, "hidden_size"),
        ({"head_dim": 7}, "head_dim"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "64"}, "vocab_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"vocab_size": float("inf")}, "vocab_size"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"rms_norm_eps": 0}, "rms_norm_eps"),
        ({"rms_norm_eps": "1e-5"}, "rms_norm_eps"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        ({"layer_types": ["sliding_attention"] * 4}, "layer_types"),
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
    ],
)
def test_what_cannot_be_honoured_is_named(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as raised:
        shape_of(config(**fields))
    assert raised.value.field == field
    assert raised.value.legal
    assert field.rpartition(".")[2] in str(raised.value)


def test_numbers_written_as_floats_are_whole_all_the_same() -> None:
    assert shape_of(config(num_hidden_layers=4.0)).num_hidden_layers == 4


def test_a_family_of_neuron_only_is_refused_for_cpu() -> None:
    with pytest.raises(ModelError, match="Qwen3MoeForCausalLM") as raised:
        shape_of(config("qwen3_moe"))
    assert "Qwen3ForCausalLM" in (raised.value.hint or "")
