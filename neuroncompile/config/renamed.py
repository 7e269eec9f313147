"""Names of other tools and of older NxDI; only a refused keyword reads them."""

from __future__ import annotations

__all__ = ["RENAMED"]

RENAMED = {
    "async": "async_mode",
    "cp_max_num_seqs": "chunked_prefill_config.max_num_seqs",
    "cp_num_active_blocks": "chunked_prefill_config",
    "dtype": "torch_dtype",
    "is_chunked_prefill": "chunked_prefill_config",
    "is_paged_attention": "is_block_kv_layout",
    "logical_neuron_cores": "logical_nc_config",
    "lora_serving_config": "lora_config",
    "max_loras_on_cpu": "max_cpu_loras",
    "max_input_len": "max_context_length",
    "max_model_len": "seq_len",
    "max_num_seqs": "batch_size",
    "n_ctx": "seq_len",
    "num_cores": "tp_degree",
    "quantized_kernel_lower_bound": "quantize_clamp_bound",
    "sequence_length": "seq_len",
    "tensor_parallel_size": "tp_degree",
}
"""Names of other tools and of older NxDI → ours, for hints only."""
