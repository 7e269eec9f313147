"""Each row of the two tables fires, and does not once what it asks for is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, check_config
from neuroncompile.config.rule import Case
from neuroncompile.config.rules_pairs import EXCLUDES, NEEDS, UNREAD, excludes, needs, unread
from neuroncompile.errors import ConfigError

Resolve = Callable[..., NeuronConfig]

ON: dict[str, Any] = {
    "activation_quantization_type": "dynamic",
    "attention_dp_degree": 2,
    "chunked_prefill_config": {"max_num_seqs": 2},
    "cp_degree": 2,
    "disable_kv_cache_tiling": True,
    "draft_model_modules_to_not_convert": ["lm_head"],
    "fused_spec_config": {"draft_model_path": "/draft"},
    "lm_head_pad_alignment_size": 4,
    "medusa_speculation_length": 2,
    "medusa_tree": [[0]],
    "mlp_cp_degree": 2,
    "modules_to_not_convert": ["lm_head"],
    "num_medusa_heads": 1,
    "on_device_sampling_config": {"do_sample": True},
    "pa_block_size": 32,
    "pa_num_blocks": 512,
    "prefix_buckets": [512],
    "quantization_block_axis": 1,
    "quantization_block_size": 128,
    "quantization_dtype": "f8e4m3",
    "quantization_scale_dtype": "f8e8m0",
    "quantization_type": "per_channel_symmetric",
    "quantized_checkpoints_path": "/weights",
    "spec_batch_size": 1,
    "speculation_length": 4,
    "tensor_capture_config": {"capture_inputs": True},
    "token_generation_batches": [1],
    "token_tree_config": {"0": [1]},
}
"""A value that switches a keyword on, where it is not `true`."""


def case_of(resolve: Resolve, *names: str) -> Case:
    off = {"is_continuous_batching": False}
    config = resolve(config=off | {name: ON.get(name, True) for name in names}, target="trn2")
    return Case(config, {}, config.target)


def names_of(condition: str) -> list[str]:
    return condition.replace(" and ", " or ").split(" or ")


@pytest.mark.parametrize(("keyword", "condition"), NEEDS)
def test_a_need_is_met_or_refused(resolve: Resolve, keyword: str, condition: str) -> None:
    with pytest.raises(ConfigError) as caught:
        needs(case_of(resolve, keyword))
    error = caught.value
    assert error.field == keyword
    assert names_of(condition)[0] in str(error.hint)
    # With what it asks for, this row is content; what that in turn needs is another row's.
    chain = {keyword, *names_of(condition)}
    for _ in range(5):
        chain |= {name for word, more in NEEDS if word in chain for name in names_of(more)}
    assert needs(case_of(resolve, *chain)) == []


@pytest.mark.parametrize(("keyword", "condition"), NEEDS)
def test_each_part_of_an_and_is_needed(resolve: Resolve, keyword: str, condition: str) -> None:
    parts = condition.split(" and ")
    for left_out in parts if len(parts) > 1 else ():
        kept = [part for part in parts if part != left_out]
        with pytest.raises(ConfigError):
            needs(case_of(resolve, keyword, *kept))


PAIRS = [(keyword, name) for keyword, condition in EXCLUDES for name in names_of(condition)]


@pytest.mark.parametrize(("keyword", "other"), PAIRS)
def test_what_excludes_each_other_is_refused(resolve: Resolve, keyword: str, other: str) -> None:
    with pytest.raises(ConfigError) as caught:
        excludes(case_of(resolve, keyword, other))
    assert {keyword, other} & {caught.value.field}
    assert keyword in str(caught.value)
    assert other in str(caught.value)
    assert excludes(case_of(resolve, keyword)) == []
    assert excludes(case_of(resolve, other)) == []


@pytest.mark.parametrize(("keyword", "condition"), UNREAD)
def test_what_nothing_reads_is_said(resolve: Resolve, keyword: str, condition: str) -> None:
    # An LNC of 2 switches lm_head_pad on.
    extra = {"lm_head_pad": False} if keyword.startswith("lm_head_pad") else {}
    config = resolve(config={keyword: ON.get(keyword, True), **extra}, target="trn2")
    (warning,) = unread(Case(config, {}, config.target))
    assert keyword in warning
    assert names_of(condition)[0] in warning
    assert unread(case_of(resolve, keyword, names_of(condition)[0])) == []


def test_the_cpu_is_not_held_to_them(resolve: Resolve, llama: dict[str, Any]) -> None:
    """Its own checks refuse by name what it cannot honour."""
    config = resolve("qkv_kernel_enabled=true")
    assert check_config(config, model=llama) == ()
    with pytest.raises(ConfigError, match="fused_qkv"):
        check_config(resolve("qkv_kernel_enabled=true", target="trn2"), model=llama)
