"""`neuron-ls -j` in every shape that is documented, and cores chosen from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import RunError
from neuroncompile.hardware import neuron_ls
from neuroncompile.hardware.neuron_ls import Process, neuron_devices, parse_devices


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
        '[{"neuron_device": 0, "nc_count": 1000000000000}]',
        '[{"neuron_device": 0, "nc_count": -1}]',
        '[{"neuron_device": 0, "cpu_affinity": "0-99999999999"}]',
        '[{"neuron_device": 0, "neuron_processes": [7]}]',
        "[" * 100_000,
    ],
)
def test_what_is_no_answer(text: str) -> None:
    with pytest.raises(RunError, match="not understood"):
        parse_devices(text)


def test_links_and_processes() -> None:
    held = [
        {"pid": 7, "command": "python3 -u serve.py --token hf_x", "neuron_runtime_version": "2.31"},
        {"pid": 8, "command": "/usr/bin/python -m vllm.serve --api-key k"},
        {"pid": 9, "command": "env HF_TOKEN=hf_x python a.py"},
        {"pid": 10, "command": "python -c 'key = 1'"},
        {"pid": 11, "command": "./a\x1b[2Jb", "neuron_runtime_version": "NA"},
        {"pid": 12, "command": "/opt/aws/neuron/bin/neuron-ls -a", "neuron_runtime_version": "NA"},
        {"pid": 13, "command": "neuron-monitor"},
        {"pid": 14},
    ]
    (device,) = parse_devices(json.dumps(trn2(1, neuron_processes=held, connected_to=[12, 3])))
    assert device.connected == (12, 3)
    assert device.processes == (
        Process(7, "python3 serve.py", "2.31"),
        Process(8, "/usr/bin/python -m vllm.serve"),
        Process(9, "env"),
        Process(10, "python"),
        Process(11, "./a [2Jb"),
        Process(14, "?"),
    )


def test_an_address_with_its_domain() -> None:
    """As trn1.2xlarge answered with tools 2.28.23: a virtual machine without NUMA."""
    row = {
        **ONE_CHIP[0],
        "bdf": "0000:00:1e.0",
        "cpu_affinity": "0-7",
        "numa_node": "-1",
        "neuroncore_ids": [0, 1],
    }
    (device,) = parse_devices(json.dumps([row]))
    assert (device.address, device.numa_node) == ("0000:00:1e.0", None)
    assert device.cores == (0, 1)


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
        (
            'echo \'time="t" level=fatal msg="Failed to load" error="no driver"\' >&2; exit 1',
            "fails: Failed to load: no driver$",
        ),
        ("exit 3", "status 3"),
        ("printf '\\377\\376'", "not understood"),
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


def test_it_hangs_and_takes_its_children_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neuron_ls, "SECONDS", 0.3)
    command(tmp_path / "bin", f"sleep 600 & echo $! > {tmp_path}/child; wait", monkeypatch)
    with pytest.raises(RunError, match="gave no answer"):
        neuron_devices()
    child = int((tmp_path / "child").read_text())
    try:
        state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        state = "X"
    assert state in "ZX"


def test_it_cannot_be_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command(tmp_path / "bin", "", monkeypatch)
    (tmp_path / "bin" / "neuron-ls").write_text("#!/nowhere/at/all\n")
    with pytest.raises(RunError, match="cannot be run: No such file"):
        neuron_devices()
