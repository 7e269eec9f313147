from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig
from neuroncompile.config import rules_serving as rules
from tests.config.rows import Row, check_row

Resolve = Callable[..., NeuronConfig]


def sampling(**values: Any) -> dict[str, Any]:
    return {"on_device_sampling_config": {"do_sample": True, **values}}


def lora(**values: Any) -> dict[str, Any]:
    return {"lora_config": {"max_loras": 2, **values}}


def captured(**values: Any) -> dict[str, Any]:
    return {"tensor_capture_config": values, **sampling()}


REPLACED = {"ref_dir": "/a", "neuron_dir": "/b", "tf_map": {"1": ["x"]}, "neuron_config": {"a": 1}}

ROWS = [
    Row(rules.sampling, sampling(top_k=257), "on_device_sampling_config.top_k",
        sampling(top_k=256)),
    Row(rules.sampling, sampling(top_k=300), "on_device_sampling_config.top_k",
        sampling(top_k=300, global_topk=512)),
    Row(rules.sampling, sampling(), "on_device_sampling_config.global_topk",
        sampling(global_topk=100), model={"vocab_size": 100}),
    Row(rules.sampling, sampling(top_p=0.0), "on_device_sampling_config.top_p",
        sampling(top_p=0.5)),
    Row(rules.sampling, sampling(top_p=1.1), "on_device_sampling_config.top_p",
        sampling(top_p=1.0)),
    Row(rules.sampling_data_parallel, {"batch_size": 6, **sampling(sampling_dp_degree=4)},
        "on_device_sampling_config.sampling_dp_degree", {"batch_size": 8}),
    Row(rules.lora_paths, lora(lora_ckpt_paths=["a:/x", "a:/y"]), "lora_config.lora_ckpt_paths",
        lora(lora_ckpt_paths=["a:/x", "b:/y"])),
    Row(rules.lora_paths, lora(lora_ckpt_paths=["/x"]), "lora_config.lora_ckpt_paths",
        lora(lora_ckpt_paths={"a": "/x"})),
    Row(rules.lora_paths, lora(lora_ckpt_paths=["a:/x", "b:/y", "c:/z"]), "lora_config.max_loras",
        lora(lora_ckpt_paths=["a:/x", "b:/y", "c:/z"], max_loras=3)),
    Row(rules.lora_paths, lora(lora_ckpt_paths_cpu=["a:/x"]), "lora_config.lora_ckpt_paths_cpu",
        lora(lora_ckpt_paths_cpu=["a:/x"], dynamic_multi_lora=True)),
    Row(rules.lora_settings, lora(is_context_encoding=True), "lora_config.is_context_encoding",
        lora(is_context_encoding=False)),
    Row(rules.lora_settings, lora(dynamic_multi_lora=True, max_cpu_loras=1),
        "lora_config.max_cpu_loras", lora(dynamic_multi_lora=True, max_cpu_loras=2)),
    Row(rules.capture, captured(capture_inputs=True), "tensor_capture_config",
        captured(modules_to_capture=["layers.0"])),
    Row(rules.capture, {**captured(max_intermediate_tensors=1), "output_logits": False},
        "output_logits", {"output_logits": True}),
    Row(rules.capture, {"tensor_capture_config": {"max_intermediate_tensors": 1}},
        "tensor_capture_config", {"output_logits": True}),
    Row(rules.replacement, {"tensor_replacement_config": {**REPLACED, "tf_map": None}},
        "tensor_replacement_config", {"tensor_replacement_config": REPLACED}),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.rule.__name__}-{row.field}")
def test_row(resolve: Resolve, row: Row) -> None:
    check_row(row, resolve)


def test_every_rule_has_a_row() -> None:
    assert {row.rule for row in ROWS} == set(rules.RULES)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"do_sample": False, "top_k": 50}, ["top_k", "no effect"]),
        ({"do_sample": False, "temperature": 0.7}, ["temperature", "no effect"]),
        ({"do_sample": True, "deterministic": True}, ["deterministic", "0.5"]),
    ],
)
def test_a_sampler_that_ignores_requests_is_said(
    resolve: Resolve, values: dict[str, Any], words: list[str]
) -> None:
    row = Row(rules.sampling, {"on_device_sampling_config": values}, "", {})
    (warning,) = rules.sampling(row.case(resolve, changed=False))
    assert all(word in warning for word in words)


@pytest.mark.parametrize(
    "values",
    [
        {"do_sample": False, "top_k": 1},
        {"do_sample": True, "top_k": 50},
        {"dynamic": True, "top_k": 50},  # a live input samples whatever do_sample says
    ],
)
def test_a_plain_sampler_is_not(resolve: Resolve, values: dict[str, Any]) -> None:
    row = Row(rules.sampling, {"on_device_sampling_config": values}, "", {})
    assert rules.sampling(row.case(resolve, changed=False)) == []


@pytest.mark.parametrize(
    ("values", "word"),
    [
        ({"enable_base_model_only": True}, "adds one"),
        ({"lfu_decay_period": 64}, "eviction_policy lfu"),
        ({"max_cpu_loras": 8}, "dynamic_multi_lora"),
        ({"eviction_policy": "lru"}, "dynamic_multi_lora"),
    ],
)
def test_what_nothing_reads_is_said(resolve: Resolve, values: dict[str, Any], word: str) -> None:
    row = Row(rules.lora_settings, lora(**values), "", {})
    (warning,) = rules.lora_settings(row.case(resolve, changed=False))
    assert word in warning


def test_capturing_switches_logits_on_and_says_so(resolve: Resolve) -> None:
    row = Row(rules.capture, captured(max_intermediate_tensors=1), "", {"output_logits": True})
    (warning,) = rules.capture(row.case(resolve, changed=False))
    assert "output_logits" in warning
    assert rules.capture(row.case(resolve, changed=True)) == []
