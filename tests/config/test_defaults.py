"""What a config is when nothing is said: a change here is a change of every user's program.

Whoever changes a value below changes keys, and says so in CHANGELOG.
"""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config import resolve_config
from neuroncompile.hardware.targets import parse_target
from neuroncompile.models.families import ARCHITECTURES

COMMON: dict[str, Any] = {
    "batch_size": 1,
    "padding_side": "right",
    "seq_len": 4096,
    "torch_dtype": "bfloat16",
    "max_context_length": 4096,
    "ctx_batch_size": 1,
    "tkg_batch_size": 1,
    "is_continuous_batching": False,
    "enable_bucketing": True,
    "context_encoding_buckets": [128, 256, 512, 1024, 2048, 4096],
    "token_generation_buckets": [128, 256, 512, 1024, 2048, 4096],
    "tp_degree": 1,
}
TARGETS: dict[str, dict[str, Any]] = {
    "cpu:x86-64-v3": {},
    "trn1": {"logical_nc_config": 1},
    "inf2": {"logical_nc_config": 1},
    "trn2": {"logical_nc_config": 2},
    "trn3": {"logical_nc_config": 2},
}
FAMILIES = sorted({kind for a in ARCHITECTURES.values() for kind in a.model_types})


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_said(family: str, target: str) -> None:
    config = resolve_config(
        model={"model_type": family, "max_position_embeddings": 8192},
        model_dtype="bfloat16",
        target=parse_target(target),
    )
    assert config.plain() == {**COMMON, **TARGETS[target]}


def test_a_batch_is_continuous_and_its_prompts_come_one_by_one() -> None:
    config = resolve_config(
        model={"max_position_embeddings": 512},
        model_dtype=None,
        target=parse_target("trn2"),
        flags={"batch_size": ("--batch-size", 4)},
    )
    assert config.plain() == {
        **COMMON,
        "batch_size": 4,
        "seq_len": 512,
        "max_context_length": 512,
        "tkg_batch_size": 4,
        "is_continuous_batching": True,
        "context_encoding_buckets": [128, 256, 512],
        "token_generation_buckets": [128, 256, 512],
        "logical_nc_config": 2,
    }
