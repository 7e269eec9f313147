"""Host memory, against the hosts on which it was and was not enough."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.config.dimensions import dimensions_of
from neuroncompile.config.host import HostNeed, checkpoint_bytes, host_need
from neuroncompile.config.sizing import weight_bytes
from tests.config.documented import DEEPSEEK_V3, GLM_52, GPT_OSS_120B, LLAMA_31_8B, TRINITY_NANO

GIB, GB = 1 << 30, 10**9


def host(config: dict[str, Any], tp: int, platform: str, ram: int, **neuron: Any) -> HostNeed:
    model = dimensions_of(config)
    neuron = {"tp_degree": tp, "seq_len": 512, "torch_dtype": "bfloat16", **neuron}
    return host_need(
        model,
        config,
        neuron,
        rank_bytes=sum(weight_bytes(model, neuron).values()),
        ranks=tp,
        platform=platform,
        ram=ram * GIB,
    )


@pytest.mark.parametrize(
    ("config", "tp", "platform", "ram", "fits"),
    [
        (TRINITY_NANO, 1, "inf2", 16, False),  # killed at 15.3 GB on inf2.xlarge
        (TRINITY_NANO, 1, "inf2", 128, True),  # and fine on inf2.8xlarge
        (LLAMA_31_8B, 1, "trn1", 32, False),  # killed while tracing on trn1.2xlarge
        (LLAMA_31_8B, 2, "trn1", 32, None),  # the documented way to run it there
        (DEEPSEEK_V3, 64, "trn2", 2048, None),  # with 400 GB of swap besides
    ],
)
def test_the_verdict_is_what_happened(
    config: dict[str, Any], tp: int, platform: str, ram: int, fits: bool | None
) -> None:
    assert host(config, tp, platform, ram).shards_here is fits


def test_a_checkpoint_in_fp8_is_held_twice_when_it_becomes_bfloat16() -> None:
    need = host(DEEPSEEK_V3, 64, "trn2", 2048)
    assert need.checkpoint == pytest.approx(642 * GB, rel=0.05)  # as published
    assert need.sharding[0] == pytest.approx(2.0e12, rel=0.05)  # "about 2 TB"
    assert need.sharding[1] >= 2.4e12  # with the swap that was needed


def test_disk_holds_checkpoint_and_shards() -> None:
    """GLM-5.2 in FP8: 705 GB of checkpoint and 886 GB compiled and sharded."""
    config = {**GLM_52, "quantization_config": {"quant_method": "fp8"}}
    need = host(config, 64, "trn2", 2048, quantized=True, quantization_dtype="f8e4m3")
    assert need.disk == pytest.approx((705 + 886) * GB, rel=0.15)
    assert need.sharding[0] < 1.0e12 < need.sharding[1] * 1.15  # "about 1 TB peak"


def test_a_checkpoint_of_the_compiled_dtype_is_held_once() -> None:
    same = host(LLAMA_31_8B, 8, "trn1", 512)
    other = host({**LLAMA_31_8B, "torch_dtype": "float32"}, 8, "trn1", 512)
    parameters = dimensions_of(LLAMA_31_8B).parameters
    assert same.checkpoint == 2 * parameters
    assert other.checkpoint == 4 * parameters
    assert other.sharding[0] - same.sharding[0] == 4 * parameters


def test_compilers_side_by_side() -> None:
    assert host(LLAMA_31_8B, 8, "trn1", 512).jobs == 512 * GIB // (16 * GB)
    assert host(DEEPSEEK_V3, 64, "trn2", 128).jobs == 3
    assert host(DEEPSEEK_V3, 64, "trn2", 128, max_context_length=16384).jobs == 1
    assert host(LLAMA_31_8B, 1, "trn1", 8).jobs == 1


def test_checkpoints_of_four_bits() -> None:
    config = {**GPT_OSS_120B, "quantization_config": {"quant_method": "mxfp4"}}
    assert checkpoint_bytes(dimensions_of(config), config) == pytest.approx(61 * GB, rel=0.06)
