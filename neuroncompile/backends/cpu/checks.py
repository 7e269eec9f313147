"""Which NxDI keywords the cpu target honours; every other one must have its default.

A configuration that runs here is meant as a rehearsal of one on a device, so a keyword that is
silently not applied would be a lie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ConfigError
from neuroncompile.models.shape import ModelShape

__all__ = ["check"]

DTYPES = ("float32", "bfloat16", "float16")

HONOURED = frozenset(
    [
        "batch_size",
        "seq_len",
        "max_context_length",
        "context_encoding_buckets",
        "token_generation_buckets",
        "enable_bucketing",
        "torch_dtype",
        "is_continuous_batching",
    ]
)

INERT = frozenset(
    # Nothing on a CPU depends on them, whatever they are.
    [
        "overrides_torch_dtype",
        "max_new_tokens",
        "n_active_tokens",
        "n_positions",
        "buckets",
        "bucket_n_active_tokens",
        "skip_warmup",
        "seq_len_threshold_for_cc_tiling",
    ]
)

DEFAULTS: dict[str, Any] = {
    # NxDI 0.9.0 models/config.py, where the default is neither None, false, 0 nor empty.
    "padding_side": "right",
    "cast_type": "config",
    "ctx_batch_size": 1,
    "weight_gather_seq_len_threshold": 32768,
    "attn_cls": "NeuronLlamaAttention",
    "quantization_type": "per_tensor_symmetric",
    "quantization_dtype": "int8",
    "quantization_scale_dtype": "f32",
    "tp_degree": 1,
    "cp_degree": 1,
    "mlp_cp_degree": 1,
    "attention_dp_degree": 1,
    "pp_degree": 1,
    "ep_degree": 1,
    "world_size": 1,
    "local_ranks_size": 1,
    "attn_block_tkg_nki_kernel_use_online_softmax": True,
    "quantize_clamp_bound": float("inf"),
    "lm_head_pad_alignment_size": 1,
    "cc_pipeline_tiling_factor": 2,
    "ep_dispatch_cc_option": "AR_AG",
    "logical_nc_config": 1,
}

FOLLOW = {
    "max_length": "seq_len",
    "tkg_batch_size": "batch_size",
    "max_batch_size": "batch_size",
    "kv_cache_batch_size": "batch_size",
    "spec_batch_size": "batch_size",
    "pa_num_blocks": "batch_size",
    "pa_block_size": "seq_len",
}
"""Keywords that must equal another one."""


def check(neuron: Mapping[str, Any], shape: ModelShape) -> None:
    """Refuse what the cpu target cannot honour.

    Args:
        neuron: effective NxDI keywords as plain values, defaults resolved.
        shape: the model, already one the cpu target computes.

    Raises:
        ConfigError: naming the keyword, its value and the legal ones.
    """
    for name, value in neuron.items():
        if name in HONOURED or name in INERT:
            continue
        legal = neuron[FOLLOW[name]] if name in FOLLOW else DEFAULTS.get(name)
        neutral = _off(value) if legal is None else value == legal
        if not neutral and value is not None:
            raise _refused(name, value, legal)
    dtype = neuron.get("torch_dtype")
    if dtype not in DTYPES:
        raise ConfigError(
            f"torch_dtype is {dtype!r}; the cpu target reads {', '.join(DTYPES)}",
            field="torch_dtype",
            value=dtype,
            legal=list(DTYPES),
            hint="use --dtype " + " or ".join(DTYPES),
        )
    _check_buckets(neuron)


def _check_buckets(neuron: Mapping[str, Any]) -> None:
    seq_len = neuron["seq_len"]
    for name in ("context_encoding_buckets", "token_generation_buckets"):
        buckets = neuron.get(name)
        if buckets is None:
            continue
        if not all(type(bucket) is int and 1 <= bucket <= seq_len for bucket in buckets):
            raise ConfigError(
                f"{name} is {buckets!r}; the cpu target takes whole numbers from 1 to seq_len "
                f"{seq_len}",
                field=name,
                value=buckets,
                legal=f"1..{seq_len}",
                hint=f"leave {name} out to have it derived",
            )
    generation = neuron.get("token_generation_buckets")
    if generation and max(generation) != seq_len:
        raise ConfigError(
            f"the largest of token_generation_buckets is {max(generation)}, seq_len is {seq_len}; "
            "positions between them could not be decoded",
            field="token_generation_buckets",
            value=generation,
            legal=f"a list ending in {seq_len}",
            hint=f"add {seq_len} to token_generation_buckets or lower seq_len",
        )


def _off(value: Any) -> bool:
    if isinstance(value, Mapping):
        return False  # a nested config asks for its feature even where it says nothing
    return value is None or value is False or value == 0 or value in ((), [], "")


def _refused(name: str, value: Any, legal: Any) -> ConfigError:
    wanted = "off" if legal is None else repr(legal)
    return ConfigError(
        f"{name} is {value!r}; the cpu target has it {wanted} only",
        field=name,
        value=value,
        legal=[legal],
        hint=f"leave {name} out for cpu, or name a Neuron target with --target",
    )
