"""Keywords of NxD Inference that need another one, or cannot stand beside it, as tables.

Read from NxDI 0.9.0. Without a note a pair is asserted by `NeuronConfig` itself
(models/config.py); those noted are met later, while a graph is traced.
"""

from __future__ import annotations

from neuroncompile.config.rule import Case, Rule

__all__ = ["EXCLUDES", "NEEDS", "RULES", "UNREAD", "excludes", "needs", "unread"]

_ON = "attn_block_tkg_nki_kernel_enabled"
_ANY = f"{_ON} or attn_tkg_nki_kernel_enabled or attn_tkg_builtin_kernel_enabled"
_QKV = "qkv_kernel_enabled or qkv_nki_kernel_enabled"
_EAGLE = "enable_eagle_speculation or is_eagle_draft"
_SAMPLING = "on_device_sampling_config"

NEEDS: tuple[tuple[str, str], ...] = (
    # Kernels.
    ("qkv_cte_nki_kernel_fuse_rope", "qkv_kernel_enabled and qkv_nki_kernel_enabled"),
    ("qkv_kernel_enabled", "fused_qkv"),  # modules/attention/gqa.py, tracing
    ("qkv_nki_kernel_enabled", "fused_qkv"),  # the same
    ("qkv_kernel_fuse_residual_add", "qkv_kernel_enabled"),  # modeling_llama.py, tracing
    (_ON, _QKV),
    # Deprecated names of the same kernel: NxDI switches it on after its check has passed, so
    # there the lack of a QKV kernel is met only while tracing.
    ("attn_tkg_nki_kernel_enabled", _QKV),
    ("attn_tkg_builtin_kernel_enabled", _QKV),
    ("attn_block_tkg_nki_kernel_cache_update", _ANY),
    ("attn_block_tkg_nki_kernel_cascaded_attention", _ANY),
    # Deprecated; its three kernels count as switched off by the user unless they are on.
    (
        "attn_block_cte_nki_kernel_enabled",
        "qkv_kernel_enabled and qkv_nki_kernel_enabled and out_proj_kernel_enabled",
    ),
    ("rmsnorm_quantize_kernel_enabled", "quantized_mlp_kernel_enabled"),
    # Parallelism.
    ("strided_context_parallel_kernel_enabled", "cp_degree"),
    ("mlp_cp_degree", "sequence_parallel_enabled"),
    ("attention_dp_degree", "is_continuous_batching"),
    # Quantisation.
    ("is_full_model_shuffled", "is_mxfp4_compute or is_eagle_draft"),
    # The cache in blocks.
    ("chunked_prefill_config", "is_block_kv_layout"),
    ("is_prefix_caching", "is_block_kv_layout"),  # the block tables come with that layout
    # modules/kvcache/block_kv_cache_manager.py has a shape for these two only.
    ("is_block_kv_layout", "is_prefix_caching or chunked_prefill_config"),
    # Speculation.
    # NxDI switches fused speculation on by itself; it decides about pad_token_id in the key.
    ("enable_eagle_speculation", "enable_fused_speculation"),
    # models/model_base.py, NeuronFusedSpecModel, tracing
    ("enable_fused_speculation", f"speculation_length and {_SAMPLING}"),
    ("is_eagle3", _EAGLE),
    ("enable_eagle_draft_input_norm", _EAGLE),
    ("eagle_rolling_buffer_kernel_enabled", _EAGLE),
    ("token_tree_config", "enable_eagle_speculation"),
    ("draft_model_modules_to_not_convert", "enable_fused_speculation"),
    ("fused_spec_config", "enable_fused_speculation"),
    # models/model_wrapper.py and utils/hf_adapter.py (the tree), tracing and decoding
    (
        "is_medusa",
        f"medusa_speculation_length and num_medusa_heads and medusa_tree and {_SAMPLING}",
    ),
    ("medusa_speculation_length", "is_medusa"),
    ("num_medusa_heads", "is_medusa"),
    ("medusa_tree", "is_medusa"),
)
"""(keyword, what must be on beside it)."""

EXCLUDES: tuple[tuple[str, str], ...] = (
    (_ON, "flash_decoding_enabled or chunked_prefill_config"),
    ("attn_tkg_nki_kernel_enabled", "flash_decoding_enabled or chunked_prefill_config"),
    ("attn_tkg_builtin_kernel_enabled", "flash_decoding_enabled or chunked_prefill_config"),
    # Medusa: modules/kvcache/kv_cache_manager.py, tracing
    (
        "k_cache_transposed",
        "flash_decoding_enabled or chunked_prefill_config or is_block_kv_layout or is_medusa",
    ),
    # fused_qkv: NxDI reads it a second time there, finds it gone and takes false.
    (
        "activation_quantization_type",
        "mlp_kernel_enabled or quantized_mlp_kernel_enabled or mlp_tkg_nki_kernel_enabled "
        "or fused_qkv",
    ),
    (
        "token_generation_batches",
        "speculation_length or enable_fused_speculation or enable_eagle_speculation or is_medusa "
        "or token_tree_config or chunked_prefill_config or is_prefix_caching or "
        "is_block_kv_layout",
    ),
    # With a speculation length, models/model_base.py builds that graph and leaves Medusa's out.
    ("is_medusa", "async_mode or speculation_length"),
    ("is_eagle3", "token_tree_config or is_prefix_caching"),  # NeuronFusedSpecModel
    ("mlp_kernel_fuse_residual_add", "sequence_parallel_enabled"),  # modeling_llama.py, tracing
    ("qkv_kernel_fuse_residual_add", "sequence_parallel_enabled"),  # the same
)
"""(keyword, what must be off beside it)."""

_QUANTIZED = "quantized or quantized_mlp_kernel_enabled or activation_quantization_type"

UNREAD: tuple[tuple[str, str], ...] = (
    ("pa_num_blocks", "is_block_kv_layout"),
    ("pa_block_size", "is_block_kv_layout"),
    ("prefix_buckets", "is_prefix_caching"),
    ("spec_batch_size", "speculation_length or is_medusa"),
    ("quantization_type", _QUANTIZED),
    ("quantization_dtype", _QUANTIZED),
    ("quantization_block_size", _QUANTIZED),
    ("quantization_block_axis", _QUANTIZED),
    ("quantization_scale_dtype", _QUANTIZED),
    ("modules_to_not_convert", _QUANTIZED),
    ("quantized_checkpoints_path", "quantized"),
    ("disable_kv_cache_tiling", "enable_fused_speculation"),
    ("lm_head_pad_alignment_size", "lm_head_pad"),
)
"""(keyword, without which NxDI never reads it): a warning, and none for the default value."""


def needs(case: Case) -> list[str]:
    """What is on has what it needs."""
    for keyword, condition in NEEDS:
        if case.on(keyword) and not _holds(case, condition):
            missing = [name for name in _names(condition) if not case.on(name)]
            said = condition if " and " not in condition else " and ".join(missing)
            raise case.refusal(
                keyword,
                f"NxD Inference runs it with {said} only",
                f"off, or with {condition}",
                f"set {missing[0]}, or leave {keyword} out",
            )
    return []


def excludes(case: Case) -> list[str]:
    """What is on has nothing beside it that it cannot run with."""
    for keyword, condition in EXCLUDES:
        if not case.on(keyword):
            continue
        for name in _names(condition):
            if case.on(name):
                raise case.refusal(
                    keyword,
                    f"NxD Inference does not run it together with {name}",
                    f"off with {name}",
                    f"leave {keyword} or {name} out",
                )
    return []


def unread(case: Case) -> list[str]:
    """Values that NxDI drops on the floor, which nobody sets on purpose."""
    return [
        f"{keyword} is set, and NxD Inference reads it with {condition} only"
        for keyword, condition in UNREAD
        if case.given(keyword) and not _holds(case, condition)
    ]


def _names(condition: str) -> list[str]:
    return condition.replace(" and ", " or ").split(" or ")


def _holds(case: Case, condition: str) -> bool:
    if " and " in condition:
        return all(case.on(name) for name in condition.split(" and "))
    return any(case.on(name) for name in condition.split(" or "))


RULES: tuple[Rule, ...] = (needs, excludes, unread)
