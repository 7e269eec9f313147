"""Parameters for programs that choose tokens on the device: handed over, or refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.runtime.device_sampler import DeviceSampler, check_device_sampling
from neuroncompile.runtime.sampling import Sampling, SamplingParams

DYNAMIC = {"dynamic": True, "deterministic": False}


def asked(**values: Any) -> Sampling:
    """What the command line asks for; the rest has its default."""
    origins = dict.fromkeys(values, "flag")
    return Sampling(SamplingParams(**values), {"seed": "drawn", **origins})


def test_rows_as_the_graph_takes_them() -> None:
    sampler = DeviceSampler(
        [
            SamplingParams(),
            SamplingParams(temperature=0.5),
            SamplingParams(temperature=2.0, top_k=5, top_p=0.75),
        ]
    )
    assert sampler.rows.dtype == np.float32
    assert sampler.rows.tolist() == [[1, 1, 1], [256, 1, 0.5], [5, 0.75, 2]]
    assert sampler.sample(np.array([3, 1, 2]), [9, 9, 9]) == [3, 1, 2]


@pytest.mark.parametrize(
    ("config", "sampling"),
    [
        (DYNAMIC, asked()),
        (DYNAMIC, asked(temperature=0.7, top_k=5, top_p=0.9)),
        (DYNAMIC, asked(seed=3)),  # greedy: no draw that a seed could fix
        ({"do_sample": False}, asked()),
        ({"do_sample": True}, asked(temperature=1.0)),
    ],
)
def test_what_the_graph_honours(config: dict[str, Any], sampling: Sampling) -> None:
    check_device_sampling(config, [sampling])


@pytest.mark.parametrize(
    ("config", "sampling", "field"),
    [
        (DYNAMIC, asked(temperature=0.7, seed=3), "seed"),
        ({"dynamic": True, "deterministic": True}, asked(temperature=0.7, seed=3), "seed"),
        ({**DYNAMIC, "global_topk": 64}, asked(temperature=0.7, top_k=65), "top_k"),
        ({"do_sample": False}, asked(temperature=0.7), "temperature"),
        ({"do_sample": True}, asked(), "temperature"),
    ],
)
def test_what_it_would_ignore_is_refused(
    config: dict[str, Any], sampling: Sampling, field: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_device_sampling(config, [asked(), sampling] if field != "temperature" else [sampling])
    assert caught.value.field == field
    assert "on_device_sampling_config" in str(caught.value.hint)
