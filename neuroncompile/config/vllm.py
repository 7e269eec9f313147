"""The neuron configs that vLLM's loader for NxD Inference starts from.

vLLM lays the user's `override_neuron_config` over one of two sets of defaults: one for serving,
one for speculation, which samples statically and greedily and names neither a padding side nor
sequence parallelism (vllm/model_executor/model_loader/neuronx_distributed.py). An artifact that
vLLM is to find has to be built from the same. Two things differ on purpose: `dtype` "auto" is
the checkpoint's own here, where vLLM takes float32; and `trace_tokengen_model`, which vLLM sets
and NxDI 0.9 drops as unknown, is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.hardware.targets import Target

__all__ = ["MAX_NUM_SEQS", "override_layer", "vllm_layer"]

MAX_NUM_SEQS = 32
"""Sequences of a Neuron engine when `--max-num-seqs` is not given."""


def vllm_layer(
    target: Target, *, positions: int | None = None, speculative_tokens: int | None = None
) -> dict[str, Any]:
    """vLLM's defaults as a layer below recipe and flags.

    Args:
        target: cpu takes the shapes only; its sampling is on the host, and it has one rank.
        positions: the model's, which are vLLM's default length; None leaves `seq_len` open.
        speculative_tokens: `--num-speculative-tokens`; with it the second set.
    """
    layer: dict[str, Any] = {
        "batch_size": MAX_NUM_SEQS,
        "ctx_batch_size": 1,
        "enable_bucketing": True,
        "is_continuous_batching": True,
    }
    if positions is not None:
        layer["seq_len"] = positions
    if speculative_tokens is not None:
        layer["speculation_length"] = speculative_tokens
        layer["enable_fused_speculation"] = True
        layer["on_device_sampling_config"] = {"top_k": 1, "do_sample": False}
    elif not target.is_cpu:
        layer["padding_side"] = "right"
        layer["sequence_parallel_enabled"] = True
        layer["on_device_sampling_config"] = {"dynamic": True, "deterministic": False}
    return layer


def override_layer(overrides: Mapping[str, Any]) -> tuple[dict[str, Any], str | None]:
    """`override_neuron_config` as a layer, and what was understood differently.

    vLLM's `lora_serving_config` is no keyword of NxDI, which drops it and serves no adapter;
    its contents are `lora_config`'s.
    """
    layer = dict(overrides)
    if "lora_serving_config" not in layer:
        return layer, None
    serving = layer.pop("lora_serving_config")
    layer.setdefault("lora_config", serving)
    return layer, "lora_serving_config is read as lora_config; NxDI itself would drop it"
