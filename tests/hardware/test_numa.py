"""CPUs near a device, from neuron-ls and from trees of /sys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.hardware.neuron_ls import Device, parse_devices
from neuroncompile.hardware.numa import cpu_list, cpus_near, cpus_of_node, node_of
from tests.hardware.test_neuron_ls import trn2


@pytest.fixture
def sys(tmp_path: Path) -> Path:
    """Two nodes; devices 00 and 01 on node 1, 02 on none."""
    for node, cpus in enumerate(("0-3,8-11", "4-7")):
        place = tmp_path / f"devices/system/node/node{node}"
        place.mkdir(parents=True)
        (place / "cpulist").write_text(f"{cpus}\n")
    for bus, text in (("00", "1\n"), ("01", "1\n"), ("02", "-1\n"), ("cc", "0\n"), ("dd", "x")):
        place = tmp_path / f"bus/pci/devices/0000:{bus}:00.0"
        place.mkdir(parents=True)
        (place / "numa_node").write_text(text)
    return tmp_path


def devices(count: int, **first: Any) -> tuple[Device, ...]:
    return parse_devices(json.dumps(trn2(count, **first)))


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", ()), ("3", (3,)), ("0-2", (0, 1, 2)), ("1-2,5", (1, 2, 5)), (" 0-1, 4-5 ", (0, 1, 4, 5))],
)
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["x", "1-", "-1", "3-1", "0-99999999", "1 2"])
def test_what_is_no_list(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        cpu_list(text)


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("01:00.0", 1),
        ("0000:01:00.0", 1),
        ("CC:00.0", 0),
        ("02:00.0", None),
        ("dd:00.0", None),
        ("ee:00.0", None),
        ("", None),
        ("../../x", None),
    ],
)
def test_node_of_an_address(address: str, node: int | None, sys: Path) -> None:
    assert node_of(address, sys) == node


def test_cpus_of_a_node(sys: Path) -> None:
    assert cpus_of_node(0, sys) == (0, 1, 2, 3, 8, 9, 10, 11)
    assert cpus_of_node(7, sys) == ()


def test_what_neuron_ls_tells_comes_first(sys: Path) -> None:
    nodes, cpus = cpus_near(devices(16), range(4), sys)
    assert nodes == (1,)
    assert cpus == (*range(48, 96), *range(144, 192))
    nodes, cpus = cpus_near(devices(16), range(64), sys)
    assert nodes == (0, 1)
    assert cpus == tuple(range(192))


def test_what_it_leaves_out_the_kernel_tells(sys: Path) -> None:
    bare = devices(3, numa_node=None, cpu_affinity=None)
    assert cpus_near(bare, range(4), sys) == ((1,), (4, 5, 6, 7))
    without_cpus = devices(3, cpu_affinity="")
    assert cpus_near(without_cpus, range(4), sys) == ((1,), (4, 5, 6, 7))


def test_nothing_is_near_where_a_node_is_not_known(sys: Path) -> None:
    virtual = devices(1, bdf="02:00.0", numa_node="-1", cpu_affinity="0-7")
    assert cpus_near(virtual, range(4), sys) == ((), ())
    half = devices(2, bdf="02:00.0", numa_node=None, cpu_affinity=None)
    assert cpus_near(half, range(8), sys) == ((), ())
    assert cpus_near(half, range(4, 8), sys)[0] == (1,)
    assert cpus_near((), range(4), sys) == ((), ())


def test_this_machine() -> None:
    """Whatever this kernel has: an answer, and no more CPUs than there are."""
    assert len(cpus_of_node(0)) <= 1 << 16
    assert node_of("ff:1f.7") is None
