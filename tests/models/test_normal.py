"""One spelling for all spellings of a config; transformers is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.architecture import normalise

SIZES = {
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
OLD: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **SIZES, "torch_dtype": "float16"},
    "llama3": {
        "model_type": "llama",
        **SIZES,
        "num_key_value_heads": 2,
        "rope_theta": 500000.0,
        "rope_scaling": LLAMA3,
        "pretraining_tp": 1,
        "torch_dtype": "bfloat16",
    },
    "linear": {
        "model_type": "llama",
        **SIZES,
        "rope_scaling": {"type": "linear", "factor": 4.0},
        "head_dim": None,
    },
    "mistral": {"model_type": "mistral", **SIZES, "num_key_value_heads": 2, "rope_theta": 1e6},
    "mistral-full": {"model_type": "mistral", **SIZES, "sliding_window": None},
    "qwen2": {"model_type": "qwen2", **SIZES, "num_key_value_heads": 4, "rope_theta": 1000000},
    "qwen2-window": {
        "model_type": "qwen2",
        **SIZES,
        "num_key_value_heads": 4,
        "use_sliding_window": True,
        "sliding_window": 16,
        "max_window_layers": 2,
    },
    "qwen3": {"model_type": "qwen3", **SIZES, "num_key_value_heads": 2, "sliding_window": 4096},
    "qwen3_moe": {"model_type": "qwen3_moe", **SIZES, "num_experts": 4},
    "mixtral": {"model_type": "mixtral", **SIZES, "num_local_experts": 2},
}
WRITTEN_BY_EVERY_RELEASE = {
    "transformers_version",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "pretraining_tp",
    "bos_token_id",
    "eos_token_id",
    "output_router_logits",
    "router_aux_loss_coef",
}


def as_new(config: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The same config as transformers 5 writes it."""
    from transformers import AutoConfig

    (directory / "config.json").write_text(json.dumps(config))
    AutoConfig.from_pretrained(directory).save_pretrained(directory / "new")
    written: dict[str, Any] = json.loads((directory / "new/config.json").read_text())
    return written


@pytest.mark.parametrize("name", OLD)
def test_old_and_new_spelling_agree(name: str, tmp_path: Path) -> None:
    new = as_new(OLD[name], tmp_path)
    assert "rope_parameters" in new
    assert "torch_dtype" not in new
    left, right = normalise(OLD[name]), normalise(new)
    for field in WRITTEN_BY_EVERY_RELEASE:
        left.pop(field, None)
        right.pop(field, None)
    assert left == right


@pytest.mark.parametrize("name", OLD)
def test_normal_form_is_stable_and_leaves_its_argument_alone(name: str) -> None:
    before = json.dumps(OLD[name])
    normal = normalise(OLD[name])
    assert normalise(normal) == normal
    assert json.dumps(OLD[name]) == before


def test_unknown_fields_are_kept() -> None:
    assert normalise({**OLD["llama"], "shiny": {"a": 1}})["shiny"] == {"a": 1}


@pytest.mark.parametrize("spelling", ["float16", "torch.float16", "half"])
@pytest.mark.parametrize("field", ["dtype", "torch_dtype"])
def test_dtype_has_one_name(field: str, spelling: str) -> None:
    config = {"model_type": "llama", **SIZES, field: spelling}
    assert normalise(config)["dtype"] == "float16"
    assert "torch_dtype" not in normalise(config)


def test_dtype_wins_over_torch_dtype() -> None:
    config = {"model_type": "llama", **SIZES, "dtype": "bfloat16", "torch_dtype": "float32"}
    assert normalise(config)["dtype"] == "bfloat16"


def test_text_config_is_flattened_under_the_outer_name() -> None:
    config = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "vision_config": {"hidden_size": 7},
        "text_config": {**SIZES, "model_type": "gemma3_text", "torch_dtype": None},
    }
    normal = normalise(config)
    assert normal["hidden_size"] == 32
    assert normal["model_type"] == "gemma3"
    assert normal["dtype"] == "bfloat16"
    assert normal["vision_config"] == {"hidden_size": 7}
    assert "text_config" not in normal


def test_a_missing_window_and_a_null_window_differ_for_mistral() -> None:
    assert normalise(OLD["mistral"])["sliding_window"] == 4096
    assert normalise(OLD["mistral-full"])["sliding_window"] is None


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters", "text_config"])
def test_a_field_of_the_wrong_kind_is_named(field: str) -> None:
    with pytest.raises(ModelError, match=field):
        normalise({"model_type": "llama", **SIZES, field: "linear"})
