"""What a field means that a config.json leaves out: the defaults of transformers 5.24's classes.

Sizes that a file of the family always has are not here, because a model of a guessed size is a
mistake and not a default. What only models with a vision tower need is in `composite`.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DEFAULTS", "EXPERTS", "NULLABLE", "THETA", "YARN"]

_DENSE: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_QWEN: dict[str, Any] = {
    **_DENSE,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        **_DENSE,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "mistral": {
        **_DENSE,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "mixtral": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": None,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "router_jitter_noise": 0.0,
    },
    "qwen2": {**_QWEN, "num_key_value_heads": 32, "max_window_layers": 28},
    "qwen3": {
        **_QWEN,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "attention_bias": False,
        "max_window_layers": 28,
    },
    "qwen3_moe": {
        **_QWEN,
        "num_key_value_heads": 4,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "norm_topk_prob": False,
        "mlp_only_layers": [],
    },
    "dbrx": {
        "tie_word_embeddings": False,
        "max_position_embeddings": 2048,
        "num_key_value_heads": 1,
        "emb_pdrop": 0.0,
    },
    "gpt_oss": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "head_dim": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 128,
        "attention_bias": True,
        "num_local_experts": 128,
        "num_experts_per_tok": 4,
        "swiglu_alpha": 1.702,
        "swiglu_limit": 7.0,
    },
    "gemma3": {
        "hidden_activation": "gelu_pytorch_tanh",
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
        "attention_bias": False,
        "query_pre_attn_scalar": 256,
        "sliding_window": 4096,
        "use_bidirectional_attention": False,
    },
    "llama4": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size_mlp": 16384,
        "max_position_embeddings": 131072,
        "attention_bias": False,
        "num_local_experts": 16,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 1,
        "router_jitter_noise": 0.0,
        "use_qk_norm": True,
        "no_rope_layer_interval": 4,
        "attention_chunk_size": 8192,
        "attn_temperature_tuning": True,
        "floor_scale": 8192,
        "attn_scale": 0.1,
    },
    "mllama": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38],
        "dropout": 0.0,
    },
    "qwen2_vl": {
        **_QWEN,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_window_layers": 80,
    },
    "qwen3_vl": {
        **_DENSE,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "max_position_embeddings": 128000,
        "attention_bias": False,
    },
}
"""Family → field → value. Pixtral's text model is a Mistral or Llama and takes its defaults."""

NULLABLE = ("sliding_window", "attention_chunk_size", "moe_normalize_expert_weights")
"""Fields whose null is a value ("off") and not a missing one."""

THETA = {
    "mixtral": 1_000_000.0,
    "gpt_oss": 150_000.0,
    "llama4": 500_000.0,
    "mllama": 500_000.0,
    "qwen2_vl": 1_000_000.0,
    "qwen3_vl": 500_000.0,
}
"""Family → base of the rotary frequencies, where it is not 10,000."""

YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "factor": 32.0,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "truncate": False,
    "original_max_position_embeddings": 4096,
}
"""GPT-OSS's rotary scaling where the file names none."""

EXPERTS = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts"}
"""Family → its own name of the number of experts; both names are read."""
