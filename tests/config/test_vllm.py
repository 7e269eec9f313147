"""vLLM's two default sets, keyword by keyword, and its overrides."""

from __future__ import annotations

from neuroncompile.config.vllm import override_layer, vllm_layer
from neuroncompile.hardware.targets import parse_target

TRN2 = parse_target("trn2")
SHAPE = {
    "batch_size": 32,
    "ctx_batch_size": 1,
    "enable_bucketing": True,
    "is_continuous_batching": True,
    "seq_len": 8192,
}


def test_serving() -> None:
    assert vllm_layer(TRN2, positions=8192) == {
        **SHAPE,
        "padding_side": "right",
        "sequence_parallel_enabled": True,
        "on_device_sampling_config": {"dynamic": True, "deterministic": False},
    }


def test_speculation_is_static_and_greedy() -> None:
    assert vllm_layer(TRN2, positions=8192, speculative_tokens=5) == {
        **SHAPE,
        "speculation_length": 5,
        "enable_fused_speculation": True,
        "on_device_sampling_config": {"top_k": 1, "do_sample": False},
    }


def test_cpu_takes_the_shapes() -> None:
    assert vllm_layer(parse_target("cpu:x86-64-v3"), positions=8192) == SHAPE


def test_a_model_that_is_not_known_yet_leaves_the_length_open() -> None:
    assert "seq_len" not in vllm_layer(TRN2)


def test_lora_serving_config_is_not_dropped() -> None:
    layer, notice = override_layer({"lora_serving_config": {"max_loras": 2}, "tp_degree": 8})
    assert layer == {"lora_config": {"max_loras": 2}, "tp_degree": 8}
    assert notice is not None
    assert "lora_config" in notice
    assert override_layer({"tp_degree": 8}) == ({"tp_degree": 8}, None)
