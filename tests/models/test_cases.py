"""Configs of real models, literally, as they met their users."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.keys import compile_spec, spec_key
from neuroncompile.models.architecture import (
    ARCHITECTURES,
    architecture_of,
    eos_token_ids,
    normalise,
    shape_of,
)
from neuroncompile.models.normal import config_dtype

SMOLLM2: dict[str, Any] = {  # HuggingFaceTB/SmolLM2-135M
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "vocab_size": 49152,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "tie_word_embeddings": True,
    "rope_scaling": None,
    "rope_theta": 100000,
    "max_position_embeddings": 8192,
    "is_llama_config": True,
    "rope_interleaved": False,
    "torch_dtype": "bfloat16",
}
QWEN3: dict[str, Any] = {  # Qwen/Qwen3-0.6B
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "head_dim": 128,
    "num_key_value_heads": 8,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "sliding_window": None,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
LLAMA32: dict[str, Any] = {  # NxDI's tiny Llama 3.2
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "eos_token_id": [128001, 128008, 128009],
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "head_dim": 8,
    "hidden_size": 256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "intermediate_size": 512,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}
GPT2: dict[str, Any] = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
    "bos_token_id": 50256,
    "eos_token_id": 50256,
}


def key(config: dict[str, Any]) -> str:
    return spec_key(
        compile_spec(
            backend="nxdi",
            model={**normalise(config), "architectures": [architecture_of(config).name]},
            neuron={"seq_len": 64},
            compiler={"args": [], "env": {}},
            optlevel=None,
            target={"platform": "trn2", "lnc": 2},
            toolchain={"neuronx-cc": "2.24"},
        )
    )


def test_smollm2() -> None:
    shape = shape_of(SMOLLM2)
    assert (shape.num_attention_heads, shape.num_key_value_heads, shape.head_dim) == (9, 3, 64)
    assert shape.rope.theta == 100000.0
    assert shape.tie_word_embeddings
    assert eos_token_ids(SMOLLM2, {}) == (0,)
    shorter = {**SMOLLM2, "max_position_embeddings": 2048}  # dumps disagree
    assert key(shorter) != key(SMOLLM2)


def test_smollm2s_extra_keys_do_not_break_unless_they_change_numbers() -> None:
    with pytest.raises(ConfigError) as raised:
        shape_of({**SMOLLM2, "rope_interleaved": True})
    assert (raised.value.field, raised.value.legal) == ("rope_interleaved", [False])
    shape_of({**SMOLLM2, "is_llama_config": False})  # a note of the trainer's; nothing reads it


def test_qwen3_has_heads_apart_from_its_width() -> None:
    shape = shape_of(QWEN3)
    assert shape.head_dim == 128 != shape.hidden_size // shape.num_attention_heads
    assert shape.num_attention_heads * shape.head_dim == 2048
    assert set(shape.sliding_windows) == {None}
    without = {name: value for name, value in QWEN3.items() if name != "head_dim"}
    assert shape_of(without).head_dim == 128  # the class's default, not 64


def test_llama32_and_its_ends() -> None:
    shape = shape_of(LLAMA32)
    assert (shape.rope.kind, shape.rope.factor) == ("llama3", 32.0)
    assert shape.rope.original_max_position_embeddings == 8192
    generation = {  # beside that list, as another tool wrote it
        "_from_model_config": True,
        "bos_token_id": 128000,
        "eos_token_id": 128001,
        "do_sample": True,
        "temperature": 0.6,
        "top_p": 0.9,
    }
    assert set(eos_token_ids(LLAMA32, generation)) == {128001, 128008, 128009}


@pytest.mark.parametrize(
    ("config", "generation", "ids"),
    [
        ({"eos_token_id": 0}, {"eos_token_id": None}, {0}),
        ({"eos_token_id": [0, 2]}, {"eos_token_id": 0}, {0, 2}),
        ({"eos_token_id": -1}, {}, set()),
        ({"eos_token_id": False}, {"eos_token_id": True}, set()),
        ({"text_config": {"eos_token_id": 106}}, {"eos_token_id": [1]}, {1, 106}),
    ],
)
def test_ends_are_the_union_of_all_places(
    config: dict[str, Any], generation: dict[str, Any], ids: set[int]
) -> None:
    assert set(eos_token_ids(config, generation)) == ids


def test_gpt2_is_refused_with_the_families_there_are() -> None:
    with pytest.raises(ModelError) as raised:
        architecture_of(GPT2)
    error = raised.value
    assert "GPT2LMHeadModel" in str(error)
    assert set(error.details["supported"]) == {a.family for a in ARCHITECTURES.values()}
    assert len(error.details["supported"]) == 14
    assert "gpt_oss" in (error.hint or "")
    assert "--model-class" in (error.hint or "")


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, "neither"),
        ({"architectures": None}, "neither"),
        ({"architectures": []}, "neither"),
        ({"architectures": None, "model_type": None}, "neither"),
        ({"architectures": ["FooForCausalLM"]}, "FooForCausalLM"),
        ({"architectures": ["FooForCausalLM"], "model_type": "llama"}, "FooForCausalLM"),
        ({"architectures": ["FooForCausalLM", "BarForCausalLM"]}, "BarForCausalLM"),
        ({"model_type": "foo"}, "foo"),
    ],
)
def test_an_unsupported_model_always_gets_the_list(fields: dict[str, Any], found: str) -> None:
    with pytest.raises(ModelError) as raised:
        architecture_of({"hidden_size": 64, **fields})
    assert found in str(raised.value)
    assert len(raised.value.details["supported"]) == 14
    assert "llama" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"architectures": ["FooForCausalLM", "LlamaForCausalLM"]}, "LlamaForCausalLM"),
        ({"architectures": None, "model_type": "llama"}, "LlamaForCausalLM"),
        ({"architectures": ["LlamaForCausalLM"]}, "LlamaForCausalLM"),  # model_type missing
    ],
)
def test_one_usable_name_is_enough(fields: dict[str, Any], name: str) -> None:
    assert architecture_of(fields).name == name


@pytest.mark.parametrize(("wrong", "near"), [("LLamaForCausalLM", "Llama"), ("qwen_3", "qwen3")])
def test_the_nearest_is_named(wrong: str, near: str) -> None:
    with pytest.raises(ModelError) as raised:
        architecture_of({"architectures": [wrong]})
    assert near in raised.value.details["nearest"]
    assert "nearest" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("fields", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "auto"}, None),
        ({"torch_dtype": "auto"}, None),
        ({"dtype": None}, None),
        ({}, None),
        ({"torch_dtype": "torch.float16"}, "float16"),
        ({"dtype": "auto", "torch_dtype": "float16"}, "float16"),
        ({"text_config": {"torch_dtype": "bfloat16"}}, "bfloat16"),
        ({"dtype": "float8_e4m3fn"}, "float8_e4m3fn"),
    ],
)
def test_dtype_forms(fields: dict[str, Any], dtype: str | None) -> None:
    assert config_dtype(fields) == dtype
    if "text_config" not in fields:
        assert normalise({**LLAMA32, **fields}).get("dtype") == dtype


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_act", "gelu"),
        ("attn_logit_softcapping", 50.0),
        ("final_logit_softcapping", 30.0),
        ("logits_scaling", 8.0),
        ("partial_rotary_factor", 0.5),
        ("attention_multiplier", 0.015625),
        ("residual_multiplier", 0.22),
        ("qk_layernorm", True),
        ("alibi", True),
        ("quantization_config", {"quant_method": "fp8"}),
    ],
)
def test_a_number_that_cpu_would_drop_stops_the_build_by_name(field: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        shape_of({**SMOLLM2, field: value})
    assert field in str(raised.value)
    assert key({**SMOLLM2, field: value}) != key(SMOLLM2)  # elsewhere it is another program


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"num_key_value_heads": None}, 9),
        ({"num_key_value_heads": 1}, 1),
    ],
)
def test_attention_without_groups(changes: dict[str, Any], shape: int) -> None:
    assert shape_of({**SMOLLM2, **changes}).num_key_value_heads == shape
