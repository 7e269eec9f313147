"""Sizes read from the spellings of many families."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.dimensions import dimensions_of
from neuroncompile.errors import ModelError
from tests.config.documented import DEEPSEEK_V3, GEMMA_3_27B, LLAMA_31_8B, MINIMAX_M3

BASE = {
    "model_type": "qwen3_moe",
    "vocab_size": 10,
    "hidden_size": 8,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_experts": 4,
    "intermediate_size": 16,
}


def test_dbrx_says_it_in_nested_configs() -> None:
    model = dimensions_of(
        {
            "model_type": "dbrx",
            "d_model": 6144,
            "n_layers": 40,
            "n_heads": 48,
            "vocab_size": 100352,
            "attn_config": {"kv_n_heads": 8, "model_type": "dbrx_attn"},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        }
    )
    assert (model.kv_heads, model.experts, model.active_experts) == (8, 16, 4)
    assert model.family == "dbrx"
    assert model.parameters / 1e9 == pytest.approx(131.6, rel=0.01)
    assert model.active_parameters / 1e9 == pytest.approx(36.5, rel=0.01)


def test_the_text_model_of_a_multimodal_one() -> None:
    model = dimensions_of(GEMMA_3_27B)
    assert (model.family, model.layers, model.layer_norms) == ("gemma3", 62, 4)
    assert model.unsized == ("the vision encoder is not counted",)


def test_linear_attention_is_named() -> None:
    model = dimensions_of({**LLAMA_31_8B, "layer_types": ["linear_attention"] * 32})
    assert "linear attention" in model.unsized[0]


@pytest.mark.parametrize(
    ("fields", "mixture"),
    [
        ({}, (True, True, True, True)),
        ({"first_k_dense_replace": 1}, (False, True, True, True)),
        ({"num_dense_layers": 2}, (False, False, True, True)),
        ({"decoder_sparse_step": 2}, (False, True, False, True)),
        ({"interleave_moe_layer_step": 2}, (False, True, False, True)),
        ({"mlp_only_layers": [3]}, (True, True, True, False)),
        ({"moe_layer_freq": [0, 1, 1, 0]}, (False, True, True, False)),
        ({"moe_layers": [1]}, (False, True, False, False)),
        ({"num_experts": 1}, (False, False, False, False)),
    ],
)
def test_which_layers_are_mixtures(fields: dict[str, Any], mixture: tuple[bool, ...]) -> None:
    assert dimensions_of({**BASE, **fields}).mixture == mixture


@pytest.mark.parametrize(
    ("fields", "shared"),
    [
        ({}, 0),
        ({"n_shared_experts": 2, "moe_intermediate_size": 3}, 6),
        ({"num_shared_experts": 1}, 16),
        ({"shared_expert_intermediate_size": 5}, 5),
        ({"model_type": "llama4_text"}, 16),
    ],
)
def test_shared_experts(fields: dict[str, Any], shared: int) -> None:
    assert dimensions_of({**BASE, **fields}).shared_intermediate == shared


def test_widths_of_dense_layers_and_experts_are_told_apart() -> None:
    model = dimensions_of(MINIMAX_M3)
    assert (model.intermediate, model.expert_intermediate) == (12288, 3072)
    llama4 = {**BASE, "model_type": "llama4_text", "intermediate_size_mlp": 32}
    assert dimensions_of(llama4).intermediate == 32
    assert dimensions_of(llama4).expert_intermediate == 16


def test_active_parameters_of_deepseek_v3_are_the_published_37b() -> None:
    assert dimensions_of(DEEPSEEK_V3).active_parameters / 1e9 == pytest.approx(37, rel=0.02)


@pytest.mark.parametrize(
    "missing", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"]
)
def test_a_missing_size_is_named(missing: str) -> None:
    config = {name: value for name, value in LLAMA_31_8B.items() if name != missing}
    with pytest.raises(ModelError, match=missing):
        dimensions_of(config)
    with pytest.raises(ModelError, match=missing):
        dimensions_of({**config, missing: "many"})
