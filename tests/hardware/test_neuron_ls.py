"""`neuron-ls -j` in every shape that is documented, and cores chosen from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import RunError
from neuroncompile.hardware.neuron_ls import (
    choose_cores,
    cpu_list,
    cpus_near,
    neuron_devices,
    parse_devices,
)


def trn2(count: int = 16, **first: Any) -> list[dict[str, Any]]:
    """trn2.48xlarge at LNC 2."""
    rows: list[dict[str, Any]] = [
        {
            "neuron_device": n,
            "bdf": f"{n:02x}:00.0",
            "cpu_affinity": "48-95,144-191" if n < 8 else "0-47,96-143",
            "numa_node": "1" if n < 8 else "0",
            "connected_to": [(n + 1) % count, (n + 4) % count],
            "nc_count": 4,
            "logical_neuroncore_config": 2,
            "memory_size": 103079215104,
            "neuroncore_ids": [4 * n + core for core in range(4)],
            "neuron_processes": [],
        }
        for n in range(count)
    ]
    rows[0] |= first
    return rows


ONE_CHIP = [
    {
        "neuron_device": 0,
        "bdf": "00:1e.0",
        "connected_to": None,
        "nc_count": 2,
        "memory_size": 34359738368,
        "neuron_processes": [],
    }
]
HELD = [{"pid": 4242, "command": "python serve.py", "neuron_runtime_version": "2.31"}]


def test_whole_instance() -> None:
    devices = parse_devices(json.dumps(trn2()))
    assert len(devices) == 16
    assert sum(len(device.cores) for device in devices) == 64
    assert {device.lnc for device in devices} == {2}
    assert devices[9].numa_node == 0
    assert devices[0].cpus[:2] == (48, 49)
    assert len(devices[0].cpus) == 96
    assert devices[0].memory == 96 << 30


def test_one_chip_of_an_older_release() -> None:
    (device,) = parse_devices(json.dumps(ONE_CHIP))
    assert device.cores == (0, 1)
    assert (device.lnc, device.numa_node, device.cpus, device.processes) == (1, None, (), ())


def test_cores_are_counted_where_they_are_not_named() -> None:
    rows = [{**ONE_CHIP[0], "neuron_device": n} for n in range(3)]
    assert [d.cores for d in parse_devices(json.dumps(rows))] == [(0, 1), (2, 3), (4, 5)]


@pytest.mark.parametrize("node", [None, "", "-1", -1])
def test_numa_node_that_is_none(node: Any) -> None:
    (device,) = parse_devices(json.dumps([{**ONE_CHIP[0], "numa_node": node}]))
    assert device.numa_node is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no devices found",
        "{}",
        '{"a": 1}',
        "[1]",
        '[{"bdf": "x"}]',
        "null",
        '[{"neuron_device": "x"}]',
    ],
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(RunError, match="not understood"):
        parse_devices(text)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", ()), ("3", (3,)), ("0-2", (0, 1, 2)), ("1-2,5", (1, 2, 5)), (" 0-1, 4-5 ", (0, 1, 4, 5))],
)
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("count", [1, 2, 4, 8, 64])
def test_cores_side_by_side(count: int) -> None:
    devices = parse_devices(json.dumps(trn2()))
    assert choose_cores(devices, count) == tuple(range(count))


def test_busy_devices_are_left_out() -> None:
    devices = parse_devices(json.dumps(trn2(neuron_processes=HELD)))
    assert choose_cores(devices, 4) == (4, 5, 6, 7)
    assert choose_cores(devices, 8) == tuple(range(8, 16))
    assert choose_cores(devices, 32) == tuple(range(32, 64))


def test_too_few_are_free_and_who_has_them() -> None:
    devices = parse_devices(json.dumps(trn2(neuron_processes=HELD)))
    with pytest.raises(RunError) as caught:
        choose_cores(devices, 64)
    message = str(caught.value)
    assert "60 of 64 are free" in message
    assert "pid 4242 (python serve.py) on device 0" in message
    assert caught.value.exit_code == 10
    with pytest.raises(RunError, match="0 of 0"):
        choose_cores((), 1)


def test_near_cpus_are_those_of_the_devices() -> None:
    devices = parse_devices(json.dumps(trn2()))
    assert cpus_near(devices, range(4))[0] == 48
    assert cpus_near(devices, range(36, 40))[0] == 0
    assert len(cpus_near(devices, range(64))) == 192


def command(directory: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / "neuron-ls"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")


def test_the_command_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tmp_path / "answer.json"
    answer.write_text(json.dumps(trn2()))
    command(tmp_path / "bin", f'[ "$1" = -j ] && cat {answer}', monkeypatch)
    assert len(neuron_devices()) == 16


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("echo 'No neuron device found' >&2; exit 1", "No neuron device found"),
        ("exit 3", "status 3"),
        ("echo '+----+'", "not understood"),
    ],
)
def test_the_command_fails(
    text: str, match: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command(tmp_path / "bin", text, monkeypatch)
    with pytest.raises(RunError, match=match):
        neuron_devices()


def test_it_is_not_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RunError, match="not installed"):
        neuron_devices()
