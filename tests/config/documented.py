"""Programs whose size on a device somebody has published, with the numbers of their config.json.

Sources: the model's own config.json on the Hugging Face Hub (for the models of NxD Inference's
contrib directory also its README), and the place named in each row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

LLAMA_31_8B = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": False,
}
LLAMA_31_70B = {
    **LLAMA_31_8B,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
}
LLAMA_2_7B = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}
GLM_52 = {
    "model_type": "glm_moe_dsa",
    "vocab_size": 154880,
    "hidden_size": 6144,
    "intermediate_size": 12288,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 78,
    "num_attention_heads": 64,
    "num_key_value_heads": 64,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "q_lora_rank": 2048,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 192,
    "v_head_dim": 256,
    "tie_word_embeddings": False,
}
TRINITY_LARGE = {
    "model_type": "afmoe",
    "vocab_size": 200192,
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "moe_intermediate_size": 3072,
    "num_hidden_layers": 60,
    "num_dense_layers": 6,
    "num_attention_heads": 48,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "num_experts": 256,
    "num_shared_experts": 1,
    "num_experts_per_tok": 4,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
}
TRINITY_NANO = {
    **TRINITY_LARGE,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "moe_intermediate_size": 256,
    "num_hidden_layers": 56,
    "num_dense_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "sliding_window": 2048,
}
MINIMAX_M3 = {
    "model_type": "minimax_m3",
    "vocab_size": 200064,
    "hidden_size": 6144,
    "intermediate_size": 3072,
    "dense_intermediate_size": 12288,
    "shared_intermediate_size": 3072,
    "num_hidden_layers": 60,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_local_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 4,
    "moe_layer_freq": [0] * 3 + [1] * 57,
    "tie_word_embeddings": False,
}
GPT_OSS_120B = {
    "model_type": "gpt_oss",
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 36,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "num_local_experts": 128,
    "num_experts_per_tok": 4,
    "attention_bias": True,
    "sliding_window": 128,
    "tie_word_embeddings": False,
}
GEMMA_3_27B = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text",
        "vocab_size": 262208,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "sliding_window": 1024,
        "tie_word_embeddings": True,
    },
}
QWEN3_1_7B = {
    "model_type": "qwen3",
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "tie_word_embeddings": True,
}


class Documented(NamedTuple):
    """One published size.

    Attributes:
        parameters: billions, as published.
        verdicts: which of ours agree with what happened on the device.
        what: which of our figures the published one is: "weights", "resident" (weights and
            cache) or "need" of a core, or "resident of all".
        size: what was published, in `unit` bytes; None where the source has no figure.
        deviation: largest relative difference from it; above 0.15 only with `why`.
        why: the known reason.
    """

    name: str
    model: dict[str, Any]
    parameters: float
    target: str
    neuron: dict[str, Any]
    verdicts: tuple[str, ...]
    what: str = "weights"
    size: float | None = None
    unit: int = 1 << 30
    deviation: float = 0.15
    why: str = ""


FITS, FAILS, TIGHT = ("green",), ("red",), ("amber",)
GB = 10**9
EIGHT_BITS = {
    "quantized": True,
    "quantization_dtype": "f8e4m3",
    "quantization_type": "per_channel_symmetric",
    "modules_to_not_convert": [
        "lm_head", "self_attn", "shared_expert", "layers.0.mlp", "layers.1.mlp", "layers.2.mlp",
    ],
}  # fmt: skip
EXPERTS_APART = {"tp_degree": 64, "moe_ep_degree": 64, "moe_tp_degree": 1}

ROWS = (
    # NxD Inference feature guide: about 16 GB in all.
    Documented(
        "Llama-3.1-8B tp2", LLAMA_31_8B, 8.03, "trn1.2xlarge",
        {"tp_degree": 2, "seq_len": 4096}, FITS, "resident of all", 16, GB,
    ),
    # aws-neuron-sdk issue 1222: the host died while tracing; the device would have been full.
    Documented(
        "Llama-3.1-8B tp1", LLAMA_31_8B, 8.03, "trn1.2xlarge",
        {"tp_degree": 1, "batch_size": 2, "seq_len": 64}, TIGHT, "weights", 16, GB,
    ),
    # NxD Inference feature guide: 148 GB over 16 cores.
    Documented(
        "Llama-3.1-70B tp16", LLAMA_31_70B, 70.6, "trn1.32xlarge",
        {"tp_degree": 16, "seq_len": 4096}, FITS, "resident of all", 148, GB,
    ),
    # transformers-neuronx, neuron-top: 20.4 of 32 GB on two cores.
    Documented(
        "Llama-2-7B tp2", LLAMA_2_7B, 6.74, "inf2.xlarge",
        {"tp_degree": 2, "seq_len": 784}, FITS, "need", 10.2, GB, 0.27,
        "transformers-neuronx, the predecessor, keeps about 3 GB a core beyond weights and cache, "
        "of which this estimate of NxD Inference has 0.8",
    ),
    # contrib README: about 26 GB needed of 24.
    Documented(
        "GLM-5.2 bfloat16", GLM_52, 743, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 2048}, FAILS, "need", 26,
    ),
    # contrib README: about 886 GB compiled and sharded, for 64 ranks.
    Documented(
        "GLM-5.2 FP8", GLM_52, 743, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 2048, **EIGHT_BITS}, FITS, "weights", 886 / 64, GB,
    ),
    # contrib README: shards of about 21.4 GB; it runs, and at 1024 fails to load.
    Documented(
        "DeepSeek-V3 512", DEEPSEEK_V3, 671, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 512}, TIGHT, "weights", 21.4,
    ),
    Documented(
        "DeepSeek-V3 1024", DEEPSEEK_V3, 671, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 1024}, TIGHT, "need", 23.1 + 0.5,
    ),
    Documented(
        "DeepSeek-V3 tp32", DEEPSEEK_V3, 671, "trn2.48xlarge",
        {"tp_degree": 32, "seq_len": 512}, FAILS, "weights", 40,
    ),
    Documented(
        "DeepSeek-V3 LNC 1", DEEPSEEK_V3, 671, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 512, "logical_nc_config": 1}, FAILS, "weights", 21.4,
    ),
    # contrib README: 23.5 GB a core. It gives 516 GB for the checkpoint, which the layer counts
    # and widths of the same page, and the model card's 398B parameters, contradict.
    Documented(
        "Trinity-Large tp32", TRINITY_LARGE, 398, "trn2.48xlarge",
        {"tp_degree": 32, "seq_len": 2048}, FAILS, "weights", 23.5,
    ),
    Documented(
        "Trinity-Large tp64", TRINITY_LARGE, 398, "trn2.48xlarge",
        {"tp_degree": 64, "seq_len": 30720}, FITS,
    ),
    # contrib README: about 30 GB for eight prompts of 8,192; 32 of 512 run.
    Documented(
        "MiniMax-M3 8x8192", MINIMAX_M3, 428, "trn2.48xlarge",
        {**EXPERTS_APART, "batch_size": 8, "seq_len": 8192}, FAILS, "need", 30, GB,
    ),
    Documented(
        "MiniMax-M3 32x512", MINIMAX_M3, 428, "trn2.48xlarge",
        {**EXPERTS_APART, "batch_size": 32, "seq_len": 512}, FITS, "weights", 854 / 64, GB,
    ),
    # NxD Inference tutorial: bfloat16 checkpoint of 234 GB.
    Documented(
        "GPT-OSS-120B tp16", GPT_OSS_120B, 117, "trn2.48xlarge",
        {"tp_degree": 16, "seq_len": 10240}, FITS, "weights", 14.6, GB,
    ),
    # contrib README: about 12 GB; pre-sharded it runs on the smallest instance.
    Documented(
        "Trinity-Nano tp1", TRINITY_NANO, 6.1, "inf2.xlarge",
        {"tp_degree": 1, "seq_len": 2048}, FITS, "weights", 12, GB,
    ),
    # A 27B model that the source does not name; Gemma 3's numbers stand in for it.
    Documented(
        "27B tp4", GEMMA_3_27B, 27.0, "trn2.3xlarge",
        {"tp_degree": 4, "seq_len": 4096}, FITS, "weights", 13.5, GB,
    ),
    # Fine-tuning on one core of trn1: 17.87 GB, EOOM001.
    Documented(
        "Qwen3-1.7B", QWEN3_1_7B, 1.72, "trn1.2xlarge",
        {"tp_degree": 1, "seq_len": 4096}, FITS, "need", 17.87, GB, 0.72,
        "that run trained the model, with gradients and optimizer state; this is inference",
    ),
)  # fmt: skip
