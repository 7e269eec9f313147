"""Which release of NxD Inference knows which keyword.

NxDI logs a warning and drops a keyword that it does not know, so an option newer than the
toolchain would silently do nothing. Read off the sources of each release: the tags of
aws-neuron/neuronx-distributed-inference up to 0.7, and the release commits of 0.8 (SDK 2.28) and
0.9 (SDK 2.29). 0.10 (SDK 2.30 and 2.31) has no public source and is taken to know what 0.9 knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.config.schema import CLASSES
from neuroncompile.config.values import NeuronConfig
from neuroncompile.errors import ConfigError

__all__ = ["GONE", "SINCE", "check_versions", "nxdi_version", "since"]

Version = tuple[int, int]

SINCE: dict[str, dict[Version, str]] = {
    "NeuronConfig": {
        (0, 2): """
            activation_quantization_type allow_input_truncation async_mode
            draft_model_modules_to_not_convert is_block_kv_layout is_prefix_caching
            kv_cache_batch_size kv_cache_padding_size logical_nc_config modules_to_not_convert
            qkv_kernel_nbsd_layout quantize_clamp_bound skip_sharding skip_warmup
            token_tree_config
        """,
        (0, 3): """
            attn_block_tkg_nki_kernel_cache_update attn_block_tkg_nki_kernel_enabled
            attn_tkg_builtin_kernel_enabled attn_tkg_nki_kernel_enabled disable_kv_cache_tiling
            fused_rmsnorm_skip_gamma k_cache_transposed layer_boundary_markers
            qkv_kernel_fuse_residual_add weight_gather_seq_len_threshold
        """,
        (0, 4): """
            apply_seq_ids_mask attention_dtype cast_type chunked_prefill_config cp_degree
            enable_spill_reload_dge prefix_buckets seq_len_threshold_for_cc_tiling
        """,
        (0, 5): """
            attention_dp_degree attn_block_cte_nki_kernel_enabled
            enable_output_completion_notifications expert_mlp_nki_kernel_enabled lm_head_pad
            lm_head_pad_alignment_size moe_fused_nki_kernel_enabled
            router_topk_nki_kernel_enabled scratchpad_page_size shared_mlp_nki_kernel_enabled
        """,
        (0, 6): """
            attn_block_tkg_nki_kernel_cascaded_attention enable_cte_modular_flow
            strided_context_parallel_kernel_enabled
        """,
        (0, 7): """
            attn_block_tkg_nki_kernel_use_online_softmax disable_numeric_cc_token is_eagle3
            is_full_model_shuffled is_mxfp4_compute mlp_cp_degree mlp_tkg_nki_kernel_enabled
            out_proj_kernel_enabled padded_hidden_size padded_intermediate_size
            pre_rope_rmsnorm qkv_cte_nki_kernel_fuse_rope qkv_nki_kernel_enabled
            quantization_block_axis quantization_block_size quantization_scale_dtype switch_cc
            tensor_capture_config tensor_replacement_config windowed_context_encoding_size
        """,
        (0, 8): """
            attn_block_tkg_nki_kernel_disable_gpsimd_sb2sb disable_argmax_kernel
            dma_order_config eagle_rolling_buffer_kernel_enabled ep_dispatch_cc_option
            kv_quant_config token_generation_batches weights_to_skip_layout_optimization
        """,
        (0, 9): "enable_ve_data_parallel",
    },
    "MultimodalVisionNeuronConfig": {(0, 2): "skip_vision"},
    "MoENeuronConfig": {
        (0, 4): """
            blockwise_matmul_config disable_normalize_top_k_affinities
            early_expert_affinity_modulation fused_shared_experts router_config
        """,
        (0, 5): "return_expert_index shared_experts_sequence_parallel_enabled",
        (0, 6): """
            glu_type hidden_act_bias hidden_act_scaling_factor hybrid_sharding_config
            moe_ep_degree moe_tp_degree transpose_shared_experts_weights
        """,
        (0, 7): """
            gate_clamp_lower_limit gate_clamp_upper_limit moe_mask_padded_tokens
            return_router_logits up_clamp_lower_limit up_clamp_upper_limit use_index_calc_kernel
        """,
    },
    "FusedSpecNeuronConfig": {(0, 7): "draft_model_cls"},
    "OnDeviceSamplingConfig": {
        (0, 5): "top_k_kernel_enabled",
        (0, 8): "sampling_dp_degree",
    },
    "LoraServingConfig": {
        (0, 2): "lora_memory_transpose lora_shard_linear_layer",
        (0, 7): """
            base_model_quantized batch_size dynamic_multi_lora eviction_policy
            is_context_encoding lfu_decay_period lora_ckpt_json lora_ckpt_paths_cpu max_cpu_loras
        """,
        (0, 9): "enable_base_model_only",
    },
    "TensorReplacementConfig": {(0, 8): "neuron_config"},
}
"""Class → the first release that knows a keyword; what is not listed came with the class."""

_PARTS = {
    "TextNeuronConfig": ("NeuronConfig",),
    "VisionNeuronConfig": ("NeuronConfig",),
    "MoETextNeuronConfig": ("NeuronConfig", "MoENeuronConfig"),
}
"""Classes of the schema that only repeat others."""

GONE = {
    "async": ((0, 1), "async_mode"),
    "cp_max_num_seqs": ((0, 3), "chunked_prefill_config.max_num_seqs"),
    "cp_num_active_blocks": ((0, 3), "chunked_prefill_config"),
    "is_chunked_prefill": ((0, 3), "chunked_prefill_config"),
    "is_paged_attention": ((0, 1), "is_block_kv_layout"),
    "max_loras_on_cpu": ((0, 6), "lora_config.max_cpu_loras"),
    "quantized_kernel_lower_bound": ((0, 1), "quantize_clamp_bound"),
    "trace_tokengen_model": ((0, 1), None),
}
"""Old keyword → the last release that knew it, and what took its place."""


def nxdi_version(packages: Mapping[str, str]) -> Version | None:
    """(major, minor) of a toolchain's NxD Inference, or None."""
    parts = packages.get("neuronx-distributed-inference", "").split(".")
    if len(parts) < 2 or not (parts[0].isdigit() and parts[1].isdigit()):
        return None
    return int(parts[0]), int(parts[1])


def since(owner: str, name: str) -> Version:
    """The first release whose class `owner` knows the keyword."""
    for part in _PARTS.get(owner, (owner,)):
        for version, names in SINCE.get(part, {}).items():
            if name in names.split():
                return version
    return (0, 1)


def check_versions(config: NeuronConfig, nxdi: Version | None) -> None:
    """Refuse what the toolchain's NxDI would drop.

    Raises:
        ConfigError: naming the keyword, the release and the one that has it.
    """
    if nxdi is None:
        return
    known = {
        name: (owner, version)
        for owner, versions in SINCE.items()
        for version, names in versions.items()
        for name in names.split()
    }
    if nxdi >= max(version for _, version in known.values()):
        return
    nested = {row[0]: row[1] for rows in CLASSES.values() for row in rows if row[1] in CLASSES}
    for path, value, origin in config.rows():
        if origin.startswith("default"):
            continue  # ours; NxDI's own default says the same
        owner: str | None = None
        parts = path.split(".")
        for part in parts:
            versions = [since(owner, part)] if owner else _anywhere(part)
            if min(versions, default=(0, 1)) > nxdi:
                raise _unknown(path, value, origin, min(versions), nxdi)
            owner = nested.get(part)


def _anywhere(name: str) -> list[Version]:
    """Of a top-level keyword, in whichever class of the family's has it."""
    return [
        since(owner, name)
        for owner, rows in CLASSES.items()
        if owner.endswith("NeuronConfig")
        and owner not in _PARTS
        and any(row[0] == name for row in rows)
    ]


def _unknown(path: str, value: Any, origin: str, first: Version, nxdi: Version) -> ConfigError:
    have, want = (".".join(map(str, version)) for version in (nxdi, first))
    old = next((old for old, (last, new) in GONE.items() if new == path and nxdi <= last), None)
    called = f"; there it was called {old}" if old else ""
    return ConfigError(
        f"{path} is {value!r} ({origin}); NxD Inference {have} does not know it and would drop it"
        f"{called}",
        field=path,
        value=value,
        legal=f"NxD Inference {want} or later (SDK 2.{first[1] + 20} or later)",
        hint=f"leave {path} out, or use a toolchain with SDK 2.{first[1] + 20} or later",
    )
