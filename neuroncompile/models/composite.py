"""Configs in configs: language models inside multimodal ones, vision towers, DBRX's parts.

What the language model reads comes to the top level; a vision tower stays nested, with its own
defaults filled in (transformers 5.24). Read only for configs that have such parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ModelError

__all__ = ["TEXT_CONFIGS", "dbrx", "flattened", "malformed", "outer_defaults", "without_base"]

TEXT_CONFIGS = ("text_config", "llm_config", "language_config")
"""Names of the language model's part (InternVL has llm_config, DeepSeek-VL2 language_config)."""

_BASE: tuple[tuple[str, Any], ...] = (
    *((name, False) for name in ("add_cross_attention", "do_sample", "early_stopping")),
    *((name, False) for name in ("is_decoder", "is_encoder_decoder", "output_attentions")),
    *((name, False) for name in ("output_hidden_states", "output_scores", "torchscript")),
    *((name, False) for name in ("remove_invalid_values", "return_dict_in_generate")),
    *((name, False) for name in ("tf_legacy_loss", "tie_encoder_decoder", "use_bfloat16")),
    *((name, 0) for name in ("chunk_size_feed_forward", "diversity_penalty", "min_length")),
    *((name, 0) for name in ("encoder_no_repeat_ngram_size", "no_repeat_ngram_size")),
    *((name, 1) for name in ("length_penalty", "num_beam_groups", "num_beams", "temperature")),
    *((name, 1) for name in ("num_return_sequences", "repetition_penalty", "top_p", "typical_p")),
    ("return_dict", True),
    ("max_length", 20),
    ("top_k", 50),
    ("pruned_heads", {}),
    ("_name_or_path", ""),
    ("id2label", {"0": "LABEL_0", "1": "LABEL_1"}),
    ("label2id", {"LABEL_0": 0, "LABEL_1": 1}),
)
"""Defaults of transformers' base class, which version 4 wrote into every nested config."""

_NEVER_IN_A_TOWER = (
    "_name_or_path",
    "transformers_version",
    "architectures",
    "torch_dtype",
    "dtype",
    "initializer_range",
    "initializer_factor",
    "attention_dropout",
    "_attn_implementation_autoset",
)
"""Of a nested config: places, releases, the checkpoint's dtype, training."""

_INDEX = ("image_token", "boi_token", "eoi_token")  # …_id is transformers' alias of …_index
_QWEN_IDS = {
    "image_token_id": 151655,
    "video_token_id": 151656,
    "vision_start_token_id": 151652,
    "vision_end_token_id": 151653,
}
_OUTER: dict[str, dict[str, Any]] = {
    "gemma3": {
        "mm_tokens_per_image": 256,
        "boi_token_index": 255_999,
        "eoi_token_index": 256_000,
        "image_token_index": 262_144,
    },
    "llama4": {
        "boi_token_index": 200_080,
        "eoi_token_index": 200_081,
        "image_token_index": 200_092,
    },
    "mllama": {"image_token_index": 128_256},
    "pixtral": {
        "image_token_index": 32_000,
        "image_seq_length": 576,
        "projector_hidden_act": "gelu",
        "vision_feature_select_strategy": "default",
        "vision_feature_layer": -2,
        "multimodal_projector_bias": True,
    },
    "qwen2_vl": _QWEN_IDS,
    "qwen3_vl": _QWEN_IDS,
}
_SIZES: dict[str, dict[str, Any]] = {
    "gemma3": {"hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
    "llama4": {
        "vocab_size": 202_048,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
    },
    "mllama": {
        "vocab_size": 128_256,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 40,
        "num_attention_heads": 32,
    },
    "mistral": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 14_336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "llama": {
        "vocab_size": 32_000,
        "hidden_size": 4096,
        "intermediate_size": 11_008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
    "qwen2_vl": {
        "vocab_size": 152_064,
        "hidden_size": 8192,
        "intermediate_size": 29_568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
    },
    "qwen3_vl": {
        "vocab_size": 151_936,
        "hidden_size": 4096,
        "intermediate_size": 22_016,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
    },
}
"""Sizes that files of multimodal models do leave out (Gemma-3-4b names no heads)."""

_SQUARE = {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24}
_LLAVA_TOWER: dict[str, Any] = {
    **_SQUARE,
    "num_attention_heads": 16,
    "projection_dim": 768,
    "image_size": 336,
    "patch_size": 14,
}
"""Llava's CLIP where the file has no `vision_config` at all."""

_VISION: dict[str, dict[str, Any]] = {
    "siglip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 16,
        "hidden_act": "gelu_pytorch_tanh",
        "layer_norm_eps": 1e-6,
        "vision_use_head": True,
    },
    "llama4_vision_model": {
        "hidden_size": 768,
        "hidden_act": "gelu",
        "num_hidden_layers": 34,
        "num_attention_heads": 16,
        "num_channels": 3,
        "intermediate_size": 5632,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "norm_eps": 1e-5,
        "vision_feature_select_strategy": "default",
        "pixel_shuffle_ratio": 0.5,
        "projector_input_dim": 4096,
        "projector_output_dim": 4096,
        "multi_modal_projector_bias": False,
        "projector_dropout": 0.0,
        "rope_theta": 10_000.0,
    },
    "mllama_vision_model": {
        "hidden_size": 1280,
        "hidden_act": "gelu",
        "num_hidden_layers": 32,
        "num_global_layers": 8,
        "attention_heads": 16,
        "num_channels": 3,
        "intermediate_size": 5120,
        "vision_output_dim": 7680,
        "image_size": 448,
        "patch_size": 14,
        "norm_eps": 1e-5,
        "max_num_tiles": 4,
        "intermediate_layers_indices": [3, 7, 15, 23, 30],
        "supported_aspect_ratios": [
            *([1, 1], [1, 2], [1, 3], [1, 4]),
            *([2, 1], [2, 2], [3, 1], [4, 1]),
        ],
    },
    "pixtral": {
        **_SQUARE,
        "num_attention_heads": 16,
        "num_channels": 3,
        "image_size": 1024,
        "patch_size": 16,
        "hidden_act": "gelu",
        "rope_theta": 10_000.0,
    },
    "clip_vision_model": {
        "hidden_size": 768,
        "intermediate_size": 3072,
        "num_hidden_layers": 12,
        "num_attention_heads": 12,
        "projection_dim": 512,
        "num_channels": 3,
        "image_size": 224,
        "patch_size": 32,
        "hidden_act": "quick_gelu",
        "layer_norm_eps": 1e-5,
    },
    "qwen2_vl_vision": {
        "depth": 32,
        "embed_dim": 1280,
        "hidden_size": 3584,
        "hidden_act": "quick_gelu",
        "mlp_ratio": 4,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 14,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "rope_theta": 10_000.0,
    },
    "qwen3_vl_vision": {
        "depth": 27,
        "hidden_size": 1152,
        "hidden_act": "gelu_pytorch_tanh",
        "intermediate_size": 4304,
        "num_heads": 16,
        "in_channels": 3,
        "patch_size": 16,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "out_hidden_size": 3584,
        "num_position_embeddings": 2304,
        "deepstack_visual_indexes": [8, 16, 24],
        "rope_theta": 10_000.0,
    },
}
_TOWER = {
    "gemma3": "siglip_vision_model",
    "llama4": "llama4_vision_model",
    "mllama": "mllama_vision_model",
    "pixtral": "clip_vision_model",
    "qwen2_vl": "qwen2_vl_vision",
    "qwen3_vl": "qwen3_vl_vision",
}
"""Family → `model_type` of its vision tower where the file does not say."""


def flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    """A config with the language model's fields at the top.

    The inner value counts, except for `model_type` and `architectures`, which name the whole,
    and for `tie_word_embeddings`, where an outer one is what transformers 5 reads. The inner
    `model_type` stays as `text_model_type`, since one wrapper holds different models.

    Raises:
        ModelError: a part that is no object.
    """
    result = {name: value for name, value in config.items() if name not in TEXT_CONFIGS}
    for part in TEXT_CONFIGS:
        inner = config.get(part)
        if inner is None:
            continue
        if not isinstance(inner, Mapping):
            raise malformed(part, inner, "an object")
        for name, value in inner.items():
            outer = (
                name in ("model_type", "architectures", "tie_word_embeddings")
                and result.get(name) is not None
            )
            if not outer and (value is not None or name not in result):
                result[name] = value
        if result.get("tie_word_embeddings") is False and inner.get("tie_word_embeddings"):
            # files before version 5 have it inside only; the outer false is the base's default
            result["tie_word_embeddings"] = True
        if inner.get("model_type") is not None:
            result["text_model_type"] = inner["model_type"]
    return result


def outer_defaults(result: dict[str, Any], family: str) -> None:
    """Fill in what surrounds the language model: token ids, sizes, the vision tower."""
    for stem in _INDEX if family in ("gemma3", "llama4", "mllama", "pixtral") else ():
        value = result.pop(f"{stem}_id", None)
        if value is not None and result.get(f"{stem}_index") is None:
            result[f"{stem}_index"] = value
    text = result.get("text_model_type", "llama") if family == "pixtral" else family
    for name, value in {**_OUTER.get(family, {}), **_SIZES.get(text, {})}.items():
        if result.get(name) is None:
            result[name] = value
    if family == "pixtral":
        result.setdefault("text_model_type", "llama")
    else:
        result.pop("text_model_type", None)  # follows from the family
    result["vision_config"] = _tower(result.get("vision_config"), family)


def _tower(config: object, family: str) -> dict[str, Any]:
    if config is None:
        config = _LLAVA_TOWER if family == "pixtral" else {}
    if not isinstance(config, Mapping):
        raise malformed("vision_config", config, "an object")
    tower = without_base(config)
    for name in _NEVER_IN_A_TOWER:
        tower.pop(name, None)
    kind = tower.get("model_type") or _TOWER[family]
    tower["model_type"] = f"{kind}_vision" if kind in ("qwen2_vl", "qwen3_vl") else kind
    rope = tower.pop("rope_parameters", None)
    if isinstance(rope, Mapping) and rope.get("rope_theta") is not None:
        tower["rope_theta"] = rope["rope_theta"]  # its kind is a matter of the class
    for name, value in _VISION.get(tower["model_type"], {}).items():
        if tower.get(name) is None:
            tower[name] = value
    if tower["model_type"] == "pixtral" and tower.get("head_dim") is None:
        tower["head_dim"] = tower["hidden_size"] // tower["num_attention_heads"]
    if tower["model_type"] == "clip_vision_model":
        tower.pop("vocab_size", None)  # of the text half, which a tower lacks
    return {name: value for name, value in tower.items() if value is not None}


def without_base(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` less what only repeats a default of transformers' base class."""
    result = dict(config)
    for name, value in _BASE:
        if name in result and result[name] == value:
            del result[name]
    return result


_DBRX_NAMES = (
    ("d_model", "hidden_size"),
    ("n_heads", "num_attention_heads"),
    ("n_layers", "num_hidden_layers"),
    ("max_seq_len", "max_position_embeddings"),
)
_DBRX_FFN: dict[str, Any] = {
    "ffn_hidden_size": 3584,
    "moe_num_experts": 4,
    "moe_top_k": 1,
    "moe_normalize_expert_weights": 1.0,
}


def dbrx(result: dict[str, Any]) -> None:
    """Bring DBRX's own names and parts into the common form, in place."""
    for own, common in _DBRX_NAMES:
        value = result.pop(own, None)
        if value is not None:
            result[common] = value
    attention, ffn = result.pop("attn_config", None) or {}, result.pop("ffn_config", None) or {}
    for part, value in (("attn_config", attention), ("ffn_config", ffn)):
        if not isinstance(value, Mapping):
            raise malformed(part, value, "an object")
    inner = without_base(attention)
    heads, theta = inner.pop("kv_n_heads", None), inner.pop("rope_theta", None)
    if heads is not None:
        result["num_key_value_heads"] = heads
    if theta is not None:  # transformers 5 writes its default beside it when it saves anew
        result["rope_theta"] = theta
        result.pop("rope_parameters", None)
    experts = {**_DBRX_FFN, **without_base(ffn)}
    experts["ffn_act_fn"] = experts.get("ffn_act_fn") or {"name": "silu"}
    dropped = (*_NEVER_IN_A_TOWER, "model_type", "attn_pdrop", "moe_loss_weight", "hidden_size")
    for part, fields in (("attn_config", inner), ("ffn_config", experts)):
        kept = {
            key: value
            for key, value in fields.items()
            if key not in dropped and (value is not None or key == "moe_normalize_expert_weights")
        }
        if kept:
            result[part] = kept


def malformed(field: str, value: object, kind: str) -> ModelError:
    """The error for a field of the wrong kind."""
    return ModelError(
        f"{field} in config.json is {type(value).__name__}, not {kind}",
        hint="take the config.json of the model's own repository",
        details={"field": field, "value": repr(value)[:200]},
    )
