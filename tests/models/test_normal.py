"""One spelling for all spellings of a config; transformers is the judge."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.architecture import ARCHITECTURES, Architecture, normalise
from neuroncompile.models.families import DEFAULTS

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
    "dbrx": {
        "model_type": "dbrx",
        "d_model": 32,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 64,
        "vocab_size": 64,
        "attn_config": {"clip_qkv": 8, "kv_n_heads": 2, "rope_theta": 500000},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 16, "moe_loss_weight": 0.05},
    },
    "gpt_oss": {
        "model_type": "gpt_oss",
        **SIZES,
        "rope_theta": 150000,
        "rope_scaling": {
            "rope_type": "yarn",
            "beta_fast": 32.0,
            "beta_slow": 1.0,
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "truncate": False,
        },
    },
    "gpt_oss-bare": {"model_type": "gpt_oss", **SIZES},
    "gemma3_text": {
        "model_type": "gemma3_text",
        **SIZES,
        "sliding_window_pattern": 3,
        "rope_local_base_freq": 20000,
        "rope_theta": 1000000,
        "sliding_window": 16,
        "head_dim": 16,
    },
    "gemma3": {  # sizes are missing in the real files, too
        "model_type": "gemma3",
        "text_config": {
            "model_type": "gemma3_text",
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 8,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {"hidden_size": 24, "model_type": "siglip_vision_model"},
    },
    "llama4": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            **SIZES,
            "no_rope_layers": [],
            "rope_scaling": LLAMA3,
            # the base class's defaults, as version 4 wrote them into nested configs
            "top_k": 50,
            "temperature": 1.0,
            "is_decoder": False,
            "pruned_heads": {},
        },
        "vision_config": {"model_type": "llama4_vision_model", "rope_theta": 10000},
        "image_token_index": 9,
    },
    "llama4_text": {"model_type": "llama4_text", **SIZES, "attention_chunk_size": None},
    "mllama": {
        "model_type": "mllama",
        "text_config": {
            "model_type": "mllama_text_model",
            **SIZES,
            "cross_attention_layers": [1, 3],
            "rope_theta": 500000.0,
            "rope_scaling": LLAMA3,
        },
        "vision_config": {"hidden_size": 32, "model_type": "mllama_vision_model"},
    },
    "pixtral": {  # as its text model's heads and tokens are missing in the real file
        "model_type": "llava",
        "text_config": {
            "model_type": "mistral",
            "head_dim": 16,
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 4,
            "rope_theta": 1e9,
            "sliding_window": None,
        },
        "vision_config": {"model_type": "pixtral", "hidden_act": "silu", "rope_theta": 10000.0},
        "image_token_index": 10,
    },
    "llava": {
        "model_type": "llava",
        "text_config": {"model_type": "llama", "hidden_size": 64, "tie_word_embeddings": True},
    },
    "qwen2_vl": {  # flat, as on the Hub
        "model_type": "qwen2_vl",
        **SIZES,
        "num_key_value_heads": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
        "rope_theta": 1000000.0,
        "sliding_window": 32768,
        "use_sliding_window": False,
        "max_window_layers": 2,
        "vision_config": {"depth": 2, "embed_dim": 32, "in_chans": 3},
        "tie_word_embeddings": True,
    },
    "qwen3_vl": {
        "model_type": "qwen3_vl",
        "text_config": {
            "model_type": "qwen3_vl_text",
            **SIZES,
            "rope_scaling": {"mrope_section": [4, 2, 2], "rope_type": "default"},
            "rope_theta": 5000000,
        },
        "vision_config": {"depth": 2, "model_type": "qwen3_vl"},
        "tie_word_embeddings": True,
        "image_token_id": 5,
    },
}
WRITTEN_BY_EVERY_RELEASE = {
    "transformers_version",
    "use_cache",
    "initializer_range",
    "attention_dropout",
    "pretraining_tp",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "resid_pdrop",
    "cache_implementation",
    "architectures",
    "_name_or_path",
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
    assert "rope_parameters" in str(new)
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
    assert normal["vision_config"]["hidden_size"] == 7
    assert "text_config" not in normal


@pytest.mark.parametrize("part", ["text_config", "llm_config", "language_config"])
def test_the_language_model_has_several_names(part: str) -> None:
    custom = Architecture("InternVLChatModel", "internvl", "./x.py:Mine", False, ("internvl",))
    config = {"architectures": ["InternVLChatModel"], part: {**SIZES, "rope_theta": 5.0}}
    normal = normalise(config, custom)
    assert (normal["hidden_size"], normal["num_key_value_heads"]) == (32, 4)
    assert normal["rope_parameters"] == {"rope_type": "default", "rope_theta": 5.0}


@pytest.mark.parametrize(
    ("name", "tied"),
    [
        *((name, False) for name in OLD if name not in ("llava", "qwen2_vl", "qwen3_vl")),
        *((name, True) for name in ("llava", "qwen2_vl", "qwen3_vl")),  # the file says so
    ],
)
def test_embeddings_are_tied_as_the_family_ties_them(name: str, tied: bool, tmp_path: Path) -> None:
    from transformers import AutoConfig

    tied = tied or name.startswith("gemma3")
    assert normalise(OLD[name])["tie_word_embeddings"] is tied
    (tmp_path / "config.json").write_text(json.dumps(OLD[name]))
    judge = AutoConfig.from_pretrained(tmp_path)
    assert getattr(judge, "tie_word_embeddings", False) is tied


def test_every_family_has_its_defaults() -> None:
    families = {a.family for a in ARCHITECTURES.values()}
    assert families - set(DEFAULTS) == {"pixtral"}  # its text model is a Mistral or Llama
    assert {normalise(config)["model_type"] for config in OLD.values()} >= families - {
        "pixtral",
    }


def test_a_null_that_is_a_value_is_kept() -> None:
    normal = normalise(OLD["llama4_text"])
    assert normal["attention_chunk_size"] is None
    assert normal["layer_types"] == ["full_attention"] * 4
    assert normalise({**OLD["llama4_text"], "attention_chunk_size": 8192}) != normal


def test_a_missing_window_and_a_null_window_differ_for_mistral() -> None:
    assert normalise(OLD["mistral"])["sliding_window"] == 4096
    assert normalise(OLD["mistral-full"])["sliding_window"] is None


@pytest.mark.parametrize("field", ["rope_scaling", "rope_parameters", "text_config"])
def test_a_field_of_the_wrong_kind_is_named(field: str) -> None:
    with pytest.raises(ModelError, match=field):
        normalise({"model_type": "llama", **SIZES, field: "linear"})
