"""transformers 4's spelling of configs that transformers 5 has written."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.models.architecture import normalise
from neuroncompile.models.spelling import older_spelling

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 64,
    "intermediate_size": 96,
}


@pytest.mark.parametrize(
    ("rope", "older"),
    [
        ({"rope_type": "default", "rope_theta": 5e5}, {"rope_theta": 5e5}),
        (
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4},
            {"rope_theta": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        ),
        (
            {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5},
            {"rope_theta": 1e4, "partial_rotary_factor": 0.5},
        ),
        (
            {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
            {
                "rope_theta": 1e6,
                "rope_scaling": {"rope_type": "default", "mrope_section": [16, 24, 24]},
            },
        ),
        (
            {
                "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            },
            {
                "rope_theta": 1e6,
                "rope_local_base_freq": 1e4,
                "rope_scaling": {"rope_type": "linear", "factor": 8.0},
            },
        ),
    ],
    ids=["default", "linear", "partial", "sections", "by layer"],
)
def test_rope(rope: dict[str, Any], older: dict[str, Any]) -> None:
    assert older_spelling({"rope_parameters": rope}) == older


def test_same_model_in_both_spellings() -> None:
    new = {
        **LLAMA,
        "dtype": "bfloat16",
        "rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 54321.0},
    }
    old = older_spelling(new)
    assert "rope_parameters" not in old
    assert old["torch_dtype"] == "bfloat16"
    assert normalise(old) == normalise(new)


def test_older_file_stays_as_it_is() -> None:
    old = {**LLAMA, "torch_dtype": "float16", "rope_theta": 1e4, "rope_scaling": None}
    assert older_spelling(old) == old


def test_parts_are_spelt_too() -> None:
    part = {"dtype": "float16", "rope_parameters": {"rope_type": "default", "rope_theta": 2.0}}
    assert older_spelling({"text_config": part, "vision_config": {"dtype": "float16"}}) == {
        "text_config": {"torch_dtype": "float16", "rope_theta": 2.0},
        "vision_config": {"torch_dtype": "float16"},
    }
