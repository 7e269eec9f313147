"""Every keyword of NxDI's NeuronConfig and its nested configs, as one table.

Read from NxDI 0.9.0 (models/config.py, modules/lora_serving/config.py) and NxD 0.18.0
(modules/moe/moe_configs.py, quantization/quantization_config.py). NxDI itself logs a warning
and drops a keyword it does not know; here that is an error, so the table must be complete. The
one left out is `logical_neuron_cores`, a deprecated second name of `logical_nc_config`.

A row is (name, type, default, reaches):

- type: `int bool str float dtype ints strs list dict buckets`, alternatives joined by `|`, or
  the name of a nested class of this table. `buckets` is `ints` or a list of int pairs.
- default: NxDI's own. Text that starts with "=" is derived from other keywords; None is unset.
- reaches: `weights` (graph and weight layout), `graph`, `flags` (compiler flags or
  environment), `files` (which files exist, or constants in model.pt), `runtime`, `unused`.

Plain tuples, because a build that hits the store imports this and should not notice.
"""

from __future__ import annotations

from typing import Any

__all__ = ["CLASSES", "FAMILY_CLASSES", "LEGAL", "MINIMUM", "Row", "fields_of"]

Row = tuple[str, str, Any, str]
INF = float("inf")

# fmt: off
CLASSES: dict[str, tuple[Row, ...]] = {
    "NeuronConfig": (
        ("batch_size", "int", 1, "graph"),
        ("padding_side", "str", "right", "graph"),
        ("allow_input_truncation", "bool", False, "runtime"),
        ("seq_len", "int", 128, "graph"),
        ("n_active_tokens", "int", "=seq_len", "unused"),
        ("n_positions", "int", "=seq_len", "unused"),
        ("on_cpu", "bool", False, "runtime"),
        ("output_logits", "bool", False, "graph"),
        ("torch_dtype", "dtype", None, "weights"),
        ("overrides_torch_dtype", "bool", True, "weights"),
        ("cast_type", "str", "config", "weights"),
        ("rpl_reduce_dtype", "dtype", None, "graph"),
        ("attention_dtype", "dtype", None, "graph"),
        ("max_context_length", "int", "=seq_len", "graph"),
        ("max_new_tokens", "int", "=seq_len - max_context_length", "runtime"),
        ("max_length", "int", "=seq_len", "graph"),
        ("vocab_parallel", "bool", False, "weights"),
        ("enable_cte_modular_flow", "bool", False, "unused"),
        ("layer_boundary_markers", "bool", False, "graph"),
        ("fused_qkv", "bool", False, "weights"),
        ("sequence_parallel_enabled", "bool", False, "graph"),
        ("weight_gather_seq_len_threshold", "int", 32768, "graph"),
        ("attn_cls", "str", "NeuronLlamaAttention", "graph"),
        ("ctx_batch_size", "int", "=batch_size", "graph"),
        ("tkg_batch_size", "int", "=batch_size", "graph"),
        ("max_batch_size", "int", "=batch_size", "runtime"),
        ("is_continuous_batching", "bool", False, "graph"),
        ("kv_cache_batch_size", "int", "=batch_size", "graph"),
        ("kv_cache_padding_size", "int", 0, "graph"),
        ("on_device_sampling_config", "OnDeviceSamplingConfig", None, "graph"),
        ("disable_argmax_kernel", "bool", False, "graph"),
        ("async_mode", "bool", False, "runtime"),
        ("enable_bucketing", "bool", False, "graph"),
        ("buckets", "buckets", "=[seq_len]", "unused"),
        ("bucket_n_active_tokens", "bool", False, "unused"),
        ("context_encoding_buckets", "buckets", None, "graph"),
        ("prefix_buckets", "ints", None, "graph"),
        ("token_generation_buckets", "ints", None, "graph"),
        ("token_generation_batches", "int|ints", None, "graph"),
        ("quantized", "bool", False, "weights"),
        ("quantized_checkpoints_path", "str", None, "runtime"),
        ("quantization_type", "str", "per_tensor_symmetric", "weights"),
        ("quantization_dtype", "str", "int8", "weights"),
        ("quantization_block_size", "int|ints", None, "graph"),
        ("quantization_block_axis", "int|ints", None, "graph"),
        ("quantization_scale_dtype", "str", "f32", "graph"),
        ("is_mxfp4_compute", "bool", False, "weights"),
        ("is_full_model_shuffled", "bool", False, "weights"),
        ("modules_to_not_convert", "strs", None, "weights"),
        ("draft_model_modules_to_not_convert", "strs", None, "graph"),
        ("kv_cache_quant", "bool", False, "graph"),
        ("speculation_length", "int", 0, "graph"),
        ("spec_batch_size", "int", "=batch_size", "graph"),
        ("enable_fused_speculation", "bool", False, "graph"),
        ("enable_eagle_speculation", "bool", False, "graph"),
        ("eagle_rolling_buffer_kernel_enabled", "bool", False, "graph"),
        ("is_eagle3", "bool", False, "graph"),
        ("is_eagle_draft", "bool", False, "graph"),
        ("enable_eagle_draft_input_norm", "bool", False, "graph"),
        ("token_tree_config", "dict", None, "graph"),
        ("is_medusa", "bool", False, "graph"),
        ("medusa_speculation_length", "int", 0, "graph"),
        ("num_medusa_heads", "int", 0, "graph"),
        ("medusa_tree", "list", None, "graph"),
        ("is_block_kv_layout", "bool", False, "graph"),
        ("pa_num_blocks", "int", "=batch_size", "graph"),
        ("pa_block_size", "int", "=seq_len", "graph"),
        ("is_prefix_caching", "bool", False, "graph"),
        ("windowed_context_encoding_size", "int", None, "graph"),
        ("chunked_prefill_config", "ChunkedPrefillConfig", None, "graph"),
        ("kv_quant_config", "KVQuantizationConfig", None, "graph"),
        ("tensor_replacement_config", "TensorReplacementConfig", None, "graph"),
        ("tensor_capture_config", "TensorCaptureConfig", None, "graph"),
        ("lora_config", "LoraServingConfig", None, "graph"),
        ("tp_degree", "int", 1, "weights"),
        ("cp_degree", "int", 1, "weights"),
        ("mlp_cp_degree", "int", 1, "graph"),
        ("attention_dp_degree", "int", 1, "graph"),
        ("pp_degree", "int", 1, "weights"),
        ("ep_degree", "int", 1, "weights"),
        ("save_sharded_checkpoint", "bool", False, "files"),
        ("skip_sharding", "bool", False, "files"),
        ("enable_ve_data_parallel", "bool", False, "graph"),
        ("qk_layernorm", "bool", False, "graph"),
        ("pre_rope_rmsnorm", "bool", False, "graph"),
        ("world_size", "int", "=tp_degree * pp_degree * ep_degree", "graph"),
        ("start_rank_id", "int", 0, "files"),
        ("local_ranks_size", "int", "=world_size", "files"),
        ("flash_decoding_enabled", "bool", False, "graph"),
        ("disable_kv_cache_tiling", "bool", False, "graph"),
        ("k_cache_transposed", "bool", False, "graph"),
        ("attn_kernel_enabled", "bool", None, "graph"),
        ("strided_context_parallel_kernel_enabled", "bool", False, "graph"),
        ("qkv_kernel_enabled", "bool", False, "graph"),
        ("qkv_nki_kernel_enabled", "bool", False, "graph"),
        ("qkv_cte_nki_kernel_fuse_rope", "bool", False, "graph"),
        ("qkv_kernel_nbsd_layout", "bool", False, "graph"),
        ("mlp_kernel_enabled", "bool", False, "graph"),
        ("mlp_tkg_nki_kernel_enabled", "bool", False, "graph"),
        ("fused_rmsnorm_skip_gamma", "bool", False, "weights"),
        ("mlp_kernel_fuse_residual_add", "bool", False, "graph"),
        ("qkv_kernel_fuse_residual_add", "bool", False, "graph"),
        ("quantized_mlp_kernel_enabled", "bool", False, "graph"),
        ("out_proj_kernel_enabled", "bool", False, "graph"),
        ("activation_quantization_type", "str", None, "weights"),
        ("attn_tkg_nki_kernel_enabled", "bool", False, "graph"),
        ("attn_tkg_builtin_kernel_enabled", "bool", False, "graph"),
        ("attn_block_tkg_nki_kernel_enabled", "bool", False, "graph"),
        ("attn_block_tkg_nki_kernel_cache_update", "bool", False, "graph"),
        ("attn_block_tkg_nki_kernel_cascaded_attention", "bool", False, "graph"),
        ("attn_block_tkg_nki_kernel_use_online_softmax", "bool", True, "graph"),
        ("attn_block_tkg_nki_kernel_disable_gpsimd_sb2sb", "bool", False, "graph"),
        ("attn_block_cte_nki_kernel_enabled", "bool", False, "graph"),
        ("rmsnorm_quantize_kernel_enabled", "bool", False, "graph"),
        ("quantize_clamp_bound", "float", INF, "graph"),
        ("moe_fused_nki_kernel_enabled", "bool", None, "graph"),
        ("router_topk_nki_kernel_enabled", "bool", None, "graph"),
        ("expert_mlp_nki_kernel_enabled", "bool", None, "graph"),
        ("shared_mlp_nki_kernel_enabled", "bool", None, "graph"),
        ("lm_head_pad", "bool", "=logical_nc_config > 1", "weights"),
        ("lm_head_pad_alignment_size", "int", 1, "weights"),
        ("cc_pipeline_tiling_factor", "int", 2, "flags"),
        ("seq_len_threshold_for_cc_tiling", "int", 16384, "unused"),
        ("target", "str", None, "flags"),
        ("enable_spill_reload_dge", "bool", False, "flags"),
        ("weights_to_skip_layout_optimization", "strs", (), "graph"),
        ("dma_order_config", "dict", None, "flags"),
        ("apply_seq_ids_mask", "bool", False, "graph"),
        ("skip_warmup", "bool", False, "runtime"),
        ("scratchpad_page_size", "int", None, "flags"),
        ("enable_output_completion_notifications", "bool", False, "flags"),
        ("padded_hidden_size", "int", None, "weights"),
        ("padded_intermediate_size", "int", None, "weights"),
        ("disable_numeric_cc_token", "bool", False, "flags"),
        ("switch_cc", "bool", False, "graph"),
        ("ep_dispatch_cc_option", "str", "AR_AG", "graph"),
        ("logical_nc_config", "int", "=target", "flags"),
    ),
    "MultimodalVisionNeuronConfig": (
        ("skip_vision", "bool", False, "graph"),
    ),
    "MoENeuronConfig": (
        ("capacity_factor", "float", None, "graph"),
        ("glu_mlp", "bool", True, "graph"),
        ("glu_type", "str", "glu", "graph"),
        ("hidden_act_scaling_factor", "float", 1.0, "graph"),
        ("hidden_act_bias", "float", 0.0, "graph"),
        ("gate_clamp_upper_limit", "float", None, "graph"),
        ("gate_clamp_lower_limit", "float", None, "graph"),
        ("up_clamp_upper_limit", "float", None, "graph"),
        ("up_clamp_lower_limit", "float", None, "graph"),
        ("use_index_calc_kernel", "bool", False, "graph"),
        ("moe_mask_padded_tokens", "bool", False, "graph"),
        ("early_expert_affinity_modulation", "bool", False, "graph"),
        ("disable_normalize_top_k_affinities", "bool", False, "graph"),
        ("fused_shared_experts", "bool", False, "weights"),
        ("shared_experts_sequence_parallel_enabled", "bool", False, "graph"),
        ("return_expert_index", "bool", False, "graph"),
        ("return_router_logits", "bool", False, "graph"),
        ("hybrid_sharding_config", "HybridShardingConfig", None, "graph"),
        ("moe_tp_degree", "int", 1, "weights"),
        ("moe_ep_degree", "int", 1, "weights"),
        ("transpose_shared_experts_weights", "bool", False, "weights"),
        ("blockwise_matmul_config", "BlockwiseMatmulConfig", None, "graph"),
        ("router_config", "RouterConfig", None, "graph"),
    ),
    "Qwen2VLNeuronConfig": (
        ("default_image_width", "int", 640, "graph"),
        ("default_image_height", "int", 320, "graph"),
    ),
    "InferenceConfig": (
        ("fused_spec_config", "FusedSpecNeuronConfig", None, "graph"),
    ),
    "GptOssNeuronConfig": (("sliding_window_attention_dp_degree", "int", 1, "graph"),),
    "OnDeviceSamplingConfig": (
        ("do_sample", "bool", False, "graph"),
        ("top_k", "int", 1, "graph"),
        ("top_p", "float", 1.0, "graph"),
        ("temperature", "float", 1.0, "graph"),
        ("dynamic", "bool", False, "graph"),
        ("deterministic", "bool", False, "graph"),
        ("global_topk", "int", 256, "graph"),
        ("on_device_sampling_config", "bool", True, "graph"),
        ("top_k_kernel_enabled", "bool", "=target is not trn1", "graph"),
        ("sampling_dp_degree", "int", 1, "graph"),
    ),
    "ChunkedPrefillConfig": (
        ("max_num_seqs", "int", 0, "graph"),
        ("tkg_model_enabled", "bool", True, "graph"),
        ("kernel_q_tile_size", "int", 128, "graph"),
        ("kernel_kv_tile_size", "int", 1024, "graph"),
    ),
    "HybridShardingConfig": (
        ("moe_cte_tp_degree", "int", 1, "graph"),
        ("moe_cte_ep_degree", "int", 1, "graph"),
        ("moe_tkg_tp_degree", "int", 1, "graph"),
        ("moe_tkg_ep_degree", "int", 1, "graph"),
    ),
    "TensorCaptureConfig": (
        ("modules_to_capture", "strs", (), "graph"),
        ("max_intermediate_tensors", "int", None, "graph"),
        ("auto_capture_moe_tensors", "bool", False, "graph"),
        ("capture_inputs", "bool", False, "graph"),
    ),
    "TensorReplacementConfig": (
        ("ref_dir", "str", None, "graph"),
        ("neuron_dir", "str", None, "graph"),
        ("tf_map", "dict", None, "graph"),
        ("neuron_config", "dict", None, "graph"),
        ("module_map", "dict", None, "graph"),
    ),
    "LoraServingConfig": (
        ("max_loras", "int", 1, "graph"),
        ("max_lora_rank", "int", 16, "graph"),
        ("max_cpu_loras", "int", 100, "runtime"),
        ("batch_size", "int", 1, "graph"),
        ("target_modules", "strs", None, "graph"),
        ("lora_bias", "str", "none", "graph"),
        ("lora_ckpt_paths", "strs|dict", None, "runtime"),
        ("lora_ckpt_paths_cpu", "strs|dict", None, "runtime"),
        ("lora_ckpt_json", "str", None, "runtime"),
        ("lora_memory_transpose", "bool", True, "graph"),
        ("lora_shard_linear_layer", "bool", True, "graph"),
        ("is_context_encoding", "bool", False, "runtime"),
        ("dynamic_multi_lora", "bool", False, "graph"),
        ("eviction_policy", "str", "lru", "runtime"),
        ("lfu_decay_period", "int", 128, "runtime"),
        ("base_model_quantized", "bool", False, "graph"),
        ("enable_base_model_only", "bool", False, "graph"),
    ),
    "FusedSpecNeuronConfig": (
        ("worker_cls", "str", None, "graph"),
        ("draft_config", "dict", None, "graph"),
        ("draft_model_path", "str", None, "graph"),
        ("draft_model_cls", "str", None, "graph"),
    ),
    "KVQuantizationConfig": (
        ("k_quant_method", "str", "per_tensor_symmetric", "graph"),
        ("v_quant_method", "str", "per_tensor_symmetric", "graph"),
        ("quant_dtype", "dtype", "float8_e4m3fn", "graph"),
        ("direct_cast", "bool", True, "graph"),
    ),
    "BlockwiseMatmulConfig": (
        ("block_size", "int", 512, "graph"),
        ("use_block_parallel", "bool", False, "graph"),
        ("logical_nc_config", "int", "=logical_nc_config", "graph"),
        ("blockwise_nki_autograd_cls", "str", None, "graph"),
        ("block_sharding_strategy", "str", "HI_LO", "graph"),
        ("skip_dma_token", "bool", False, "graph"),
        ("skip_dma_weight", "bool", False, "graph"),
        ("optimized_block_to_token_mapping", "bool", True, "graph"),
        ("use_torch_block_wise", "bool", False, "graph"),
        ("parallelize_token_to_block_mapping", "bool", True, "graph"),
        ("always_augment_inputs_for_blockwise_matmul", "bool", False, "graph"),
        ("use_shard_on_intermediate_dynamic_while", "bool", False, "graph"),
        ("use_shard_on_block_dynamic_while", "bool", False, "graph"),
        ("num_static_blocks", "int", None, "graph"),
        ("pad_num_blocks_to_even", "bool", False, "graph"),
    ),
    "RouterConfig": (
        ("act_fn", "str", "softmax", "graph"),
        ("dtype", "dtype", "float32", "graph"),
    ),
}
# fmt: on

_TEXT = CLASSES["NeuronConfig"]
CLASSES |= {
    "TextNeuronConfig": _TEXT,
    "VisionNeuronConfig": (*_TEXT, *CLASSES["Qwen2VLNeuronConfig"]),
    "MoETextNeuronConfig": (*_TEXT, *CLASSES["MoENeuronConfig"]),
    "ImageToTextConfig": (
        ("text_neuron_config", "TextNeuronConfig", None, "graph"),
        ("vision_neuron_config", "VisionNeuronConfig", None, "graph"),
    ),
    "MoEImageToTextConfig": (
        ("text_neuron_config", "MoETextNeuronConfig", None, "graph"),
        ("vision_neuron_config", "MoETextNeuronConfig", None, "graph"),
    ),
}
"""Class → rows; the other `…NeuronConfig`s hold what they add to `NeuronConfig`."""

_DENSE = ("NeuronConfig", "InferenceConfig")
_MOE = ("NeuronConfig", "MoENeuronConfig", "InferenceConfig")
FAMILY_CLASSES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma3", "gemma3_text"), _DENSE),
    **dict.fromkeys(("mixtral", "dbrx", "qwen3_moe"), _MOE),
    "gpt_oss": (*_MOE, "GptOssNeuronConfig"),
    "llama4_text": _MOE,
    "llama4": (*_MOE, "MoEImageToTextConfig"),
    **dict.fromkeys(("llava", "pixtral", "qwen3_vl"), (*_DENSE, "ImageToTextConfig")),
    "qwen2_vl": (*_DENSE, "Qwen2VLNeuronConfig", "ImageToTextConfig"),
    "mllama": (*_DENSE, "MultimodalVisionNeuronConfig"),
}
"""model_type → the classes its NxDI config accepts keywords of; other families accept all.

An image-to-text model has two neuron configs. The text part's is also the whole model's, so its
keywords stand at the top; `text_neuron_config` may repeat them, `vision_neuron_config` is apart.
"""

LEGAL: dict[str, tuple[Any, ...]] = {
    "padding_side": ("right", "left"),
    "cast_type": ("config", "as-declared"),
    "logical_nc_config": (1, 2),
    "activation_quantization_type": ("dynamic", "static"),
    "ep_dispatch_cc_option": ("AR_AG", "RS_AG", "AG_AR"),
    "eviction_policy": ("lru", "lfu"),
    "lora_bias": ("none", "all"),
    "quantization_type": (
        "per_tensor_symmetric",
        "per_channel_symmetric",
        "expert_wise_per_channel_symmetric",
        "blockwise_symmetric",
    ),
    "quantization_dtype": (
        "int8",
        "f8e4m3",
        "f8e4m3fn",
        "f8e5m2",
        "f4e2m1fn_x4",
        "f8e4m3fn_x4",
        "f8e5m2_x4",
    ),
    "quantization_scale_dtype": ("f32", "f8e8m0"),
    "k_quant_method": ("per_tensor_symmetric", "per_key_symmetric", "per_channel_symmetric"),
    "v_quant_method": ("per_tensor_symmetric", "per_key_symmetric", "per_channel_symmetric"),
    "act_fn": ("softmax", "sigmoid"),
    "glu_type": ("glu", "swiglu"),
    "block_sharding_strategy": ("HI_LO", "PING_PONG"),
    "target": ("trn1", "trn1n", "inf2", "trn2", "trn3"),
}
"""Legal values where NxDI fixes them, by keyword."""

_AT_LEAST_1 = """
    batch_size seq_len max_context_length max_length ctx_batch_size tkg_batch_size max_batch_size
    kv_cache_batch_size spec_batch_size n_positions n_active_tokens pa_num_blocks pa_block_size
    tp_degree cp_degree mlp_cp_degree attention_dp_degree pp_degree ep_degree world_size
    local_ranks_size moe_tp_degree moe_ep_degree moe_cte_tp_degree moe_cte_ep_degree
    moe_tkg_tp_degree moe_tkg_ep_degree windowed_context_encoding_size max_loras max_lora_rank
    context_encoding_buckets token_generation_buckets token_generation_batches prefix_buckets
    buckets kernel_q_tile_size kernel_kv_tile_size sampling_dp_degree
    sliding_window_attention_dp_degree lm_head_pad_alignment_size cc_pipeline_tiling_factor
    scratchpad_page_size padded_hidden_size padded_intermediate_size quantization_block_size
    max_intermediate_tensors default_image_width default_image_height block_size
    num_static_blocks lfu_decay_period
"""
_AT_LEAST_0 = """
    max_new_tokens speculation_length medusa_speculation_length num_medusa_heads start_rank_id
    kv_cache_padding_size max_num_seqs max_cpu_loras temperature top_p capacity_factor
    weight_gather_seq_len_threshold seq_len_threshold_for_cc_tiling quantization_block_axis
    quantize_clamp_bound
"""
MINIMUM = {
    **dict.fromkeys(_AT_LEAST_1.split(), 1),
    **dict.fromkeys(_AT_LEAST_0.split(), 0),
    "top_k": -1,
    "global_topk": -1,
}
"""Smallest legal number, by keyword; of a list, of each element."""


def fields_of(family: str | None) -> dict[str, Row]:
    """Keyword → row of the top-level config of a model family (`model_type`)."""
    names = FAMILY_CLASSES.get(family or "") or (
        "NeuronConfig",
        "MoENeuronConfig",
        "MultimodalVisionNeuronConfig",
        "GptOssNeuronConfig",
        "Qwen2VLNeuronConfig",
        "InferenceConfig",
        "MoEImageToTextConfig",
    )
    return {row[0]: row for name in names for row in CLASSES[name]}
