"""A core's share of its device's memory."""

from __future__ import annotations

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.hardware.memory import DTYPES, GIB, core_memory, device_memory
from neuroncompile.hardware.targets import CHIPS, INSTANCES, parse_target


@pytest.mark.parametrize(
    ("name", "lnc", "gib"),
    [
        ("inf2", 1, 16),
        ("trn1", 1, 16),
        ("trn1n", 1, 16),
        ("trn2", 2, 24),
        ("trn2", 1, 12),
        ("trn3", 2, 36),
        ("trn3", 1, 18),
        ("trn2.48xlarge", 2, 24),
    ],
)
def test_a_core_has_an_equal_share(name: str, lnc: int, gib: int) -> None:
    assert core_memory(parse_target(name, lnc=lnc)) == gib * GIB


def test_cpu_has_none() -> None:
    with pytest.raises(ConfigError, match="no device memory"):
        core_memory(parse_target("cpu:x86-64-v3"))


def test_devices_together() -> None:
    assert device_memory("trn2.48xlarge") == 1536 * GIB
    assert device_memory("inf2.24xlarge") == 192 * GIB
    for name, row in INSTANCES.items():
        target = parse_target(name)
        cores = row.logical_cores(target.lnc or 1)
        assert cores * core_memory(target) == device_memory(name)


def test_every_core_has_its_formats() -> None:
    assert {chip.neuroncore for chip in CHIPS.values()} == set(DTYPES)
    assert set(DTYPES["v2"]) < set(DTYPES["v3"]) < set(DTYPES["v4"])
