"""Neuron devices of this host, as `neuron-ls -j` tells them.

Its answer is a list with an object for each device. Older releases and hosts with one chip leave
fields out or null: cores are then counted, and LNC is 1. From the Neuron SDK's documentation,
tools/neuron-sys-tools/neuron-ls.rst.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from neuroncompile.errors import RunError

__all__ = [
    "Device",
    "Process",
    "choose_cores",
    "cpu_list",
    "cpus_near",
    "neuron_devices",
    "parse_devices",
]

SECONDS = 20.0
PLACES = ("/opt/aws/neuron/bin",)  # where the tools are installed, often not on the path


class Process(NamedTuple):
    """One that uses a device."""

    pid: int
    command: str


class Device(NamedTuple):
    """One Neuron device.

    Attributes:
        number: as in /dev/neuron<number>.
        address: PCI, "00:1e.0".
        cores: ids of its logical cores.
        lnc: physical cores that a logical one has.
        memory: bytes of HBM.
        numa_node: None where it is not told.
        cpus: of the host that are near; empty where it is not told.
        processes: those that hold it.
    """

    number: int
    address: str
    cores: tuple[int, ...]
    lnc: int
    memory: int
    numa_node: int | None
    cpus: tuple[int, ...]
    processes: tuple[Process, ...]


def neuron_devices() -> tuple[Device, ...]:
    """Ask neuron-ls.

    Raises:
        RunError: it is not installed, fails, hangs, or answers with what is no list of devices.
    """
    path = shutil.which("neuron-ls", path=os.pathsep.join([os.environ.get("PATH", ""), *PLACES]))
    if path is None:
        raise RunError(
            "neuron-ls is not installed",
            hint="install aws-neuronx-tools, or put /opt/aws/neuron/bin on the path",
        )
    try:
        done = subprocess.run([path, "-j"], capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise RunError(
            f"neuron-ls gave no answer in {SECONDS:.0f} s",
            hint="the driver may hang: sudo modprobe -r neuron && sudo modprobe neuron",
        ) from None
    except OSError as error:
        raise RunError(f"{path} cannot be run: {error.strerror}", hint="install it anew") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.returncode}"]
        raise RunError(
            f"neuron-ls fails: {lines[-1]}",
            hint="install and load the driver: aws-neuronx-dkms, then sudo modprobe neuron",
        )
    return parse_devices(done.stdout)


def parse_devices(text: str) -> tuple[Device, ...]:
    """Read `neuron-ls -j`.

    Raises:
        RunError: it is no list of devices.
    """
    try:
        rows = json.loads(text)
        if not isinstance(rows, list):
            raise ValueError("it is no list")
        devices, following = [], 0
        for row in rows:
            device = _device(row, following)
            following += len(device.cores)
            devices.append(device)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunError(
            f"neuron-ls -j answers with what is not understood: {error}",
            hint="its version may be newer than this one; please report it",
            details={"answer": text[:2000]},
        ) from None
    return tuple(sorted(devices))


def choose_cores(devices: Sequence[Device], count: int) -> tuple[int, ...]:
    """The first run of `count` free logical cores, starting where a group of that size may.

    A device that any process holds is taken as a whole: neuron-ls does not say which cores.

    Raises:
        RunError: there are not that many, with who holds the others.
    """
    free = sorted(core for d in devices if not d.processes for core in d.cores)
    every = {core for device in devices for core in device.cores}
    taken = set(free)
    for first in range(0, max(every, default=-1) + 1, max(1, count)):
        run = range(first, first + count)
        if taken.issuperset(run):
            return tuple(run)
    holders = [
        f"pid {p.pid} ({p.command}) on device {d.number}" for d in devices for p in d.processes
    ]
    by = f"; {', '.join(holders)}" if holders else ""
    raise RunError(
        f"{count} cores side by side are needed, and {len(free)} of {len(every)} are free{by}",
        hint="end those processes, or run it on an instance with more cores",
        details={"needed": count, "free": free, "busy": sorted(every - taken)},
    )


def cpus_near(devices: Sequence[Device], cores: Sequence[int]) -> tuple[int, ...]:
    """CPUs of the host that are near the devices of these cores; empty where it is not told."""
    wanted = set(cores)
    return tuple(sorted({c for d in devices if wanted.intersection(d.cores) for c in d.cpus}))


def cpu_list(text: str) -> tuple[int, ...]:
    """ "48-95,144" as Linux writes lists of CPUs → the numbers."""
    found: list[int] = []
    for part in filter(None, (p.strip() for p in text.split(","))):
        first, dash, last = part.partition("-")
        found += range(int(first), int(last if dash else first) + 1)
    return tuple(found)


def _device(row: Mapping[str, Any], following: int) -> Device:
    count = int(row.get("nc_count") or 0)
    cores = row.get("neuroncore_ids") or range(following, following + count)
    node = row.get("numa_node")
    known = node not in (None, "", "-1", -1)
    return Device(
        number=int(row["neuron_device"]),
        address=str(row.get("bdf") or ""),
        cores=tuple(int(core) for core in cores),
        lnc=int(row.get("logical_neuroncore_config") or 1),
        memory=int(row.get("memory_size") or 0),
        numa_node=int(node) if known and node is not None else None,
        cpus=cpu_list(str(row.get("cpu_affinity") or "")),
        processes=tuple(
            Process(int(p.get("pid") or 0), str(p.get("command") or "?"))
            for p in row.get("neuron_processes") or ()
        ),
    )
