"""Small configs of every family of NxD Inference, as their checkpoints spell them."""

from __future__ import annotations

from typing import Any

BASE: dict[str, Any] = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "torch_dtype": "bfloat16",
}


def _family(architecture: str, model_type: str, **more: Any) -> dict[str, Any]:
    return {"architectures": [architecture], "model_type": model_type, **BASE, **more}


MODELS: dict[str, dict[str, Any]] = {
    "llama": _family("LlamaForCausalLM", "llama"),
    "mistral": _family("MistralForCausalLM", "mistral", sliding_window=None, head_dim=8),
    "qwen2": _family("Qwen2ForCausalLM", "qwen2"),
    "qwen3": _family("Qwen3ForCausalLM", "qwen3", head_dim=16),
    "mixtral": _family(
        "MixtralForCausalLM", "mixtral", num_local_experts=4, num_experts_per_tok=2,
        sliding_window=None,
    ),
    "qwen3_moe": _family(
        "Qwen3MoeForCausalLM", "qwen3_moe", head_dim=8, num_experts=4, num_experts_per_tok=2,
        moe_intermediate_size=64, norm_topk_prob=True,
    ),
    "gpt_oss": _family(
        "GptOssForCausalLM", "gpt_oss", head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        initial_context_length=256, sliding_window=128,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "gemma3": _family(
        "Gemma3ForCausalLM", "gemma3_text", head_dim=8, query_pre_attn_scalar=8,
        sliding_window=128, sliding_window_pattern=2, rope_local_base_freq=10000.0,
        hidden_activation="gelu_pytorch_tanh",
    ),
    "dbrx": {
        "architectures": ["DbrxForCausalLM"],
        "model_type": "dbrx",
        "d_model": 64,
        "n_heads": 8,
        "n_layers": 2,
        "max_seq_len": 512,
        "vocab_size": 512,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "pad_token_id": 0,
        "attn_config": {"kv_n_heads": 4, "rope_theta": 10000.0, "clip_qkv": 8},
        "ffn_config": {
            "ffn_hidden_size": 128,
            "moe_num_experts": 4,
            "moe_top_k": 2,
            "ffn_act_fn": {"name": "silu"},
        },
    },
}  # fmt: skip
"""Family → config.json."""

QWEN2_VL: dict[str, Any] = {
    **_family("Qwen2VLForConditionalGeneration", "qwen2_vl"),
    "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2]},
    "vision_token_id": 8,
    "vision_start_token_id": 5,
    "image_token_id": 6,
    "video_token_id": 7,
    "vision_config": {
        "depth": 2,
        "embed_dim": 64,
        "hidden_size": 64,
        "num_heads": 4,
        "patch_size": 14,
        "in_channels": 3,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        "mlp_ratio": 4,
    },
}

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {"seq_len": 256, "torch_dtype": "bfloat16"},
    "serving": {
        "seq_len": 512,
        "max_context_length": 256,
        "batch_size": 4,
        "ctx_batch_size": 1,
        "is_continuous_batching": True,
        "torch_dtype": "bfloat16",
        "tp_degree": 4,
        "on_device_sampling_config": {"dynamic": True, "deterministic": False, "global_topk": 64},
    },
    "one bucket": {
        "seq_len": 384,
        "enable_bucketing": False,
        "torch_dtype": "float32",
        "tp_degree": 2,
        "output_logits": True,
        "on_device_sampling_config": {"do_sample": False},
    },
}
"""What a user asks for, by name."""
