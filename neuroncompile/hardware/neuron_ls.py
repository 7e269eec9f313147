"""Neuron devices of this host, as `neuron-ls -j` tells them.

Its answer is a list with an object for each device. Older releases and hosts with one chip leave
fields out or null: cores are then counted, and LNC is 1. From the Neuron SDK's documentation,
tools/neuron-sys-tools/neuron-ls.rst. Without a driver it writes a line to stderr, as
`level=fatal msg="…" error="…"`, and ends with status 1.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.errors import RunError
from neuroncompile.hardware.numa import cpu_list

__all__ = [
    "Device",
    "Process",
    "neuron_devices",
    "parse_devices",
]

SECONDS = 20.0
PLACES = ("/opt/aws/neuron/bin",)  # where the tools are installed, often not on the path
TOOLS = ("neuron-ls", "neuron-monitor", "neuron-top")  # they look at devices and take no core
_MOST_CORES = 4096  # of a device: more is a broken answer


class Process(NamedTuple):
    """One that uses a device.

    Attributes:
        command: program and script or module; options are left out, as secrets stand in them.
        runtime: version of the Neuron runtime in it, "" where it has none.
    """

    pid: int
    command: str
    runtime: str = ""


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
        processes: those that hold it, less the tools that only look.
        connected: numbers of the devices that it has links to.
    """

    number: int
    address: str
    cores: tuple[int, ...]
    lnc: int
    memory: int
    numa_node: int | None
    cpus: tuple[int, ...]
    processes: tuple[Process, ...]
    connected: tuple[int, ...] = ()


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
    status, out, err = _answer(path)
    if status:
        raise RunError(
            f"neuron-ls fails: {_reason(err or out) or f'status {status}'}",
            hint="install and load the driver: aws-neuronx-dkms, then sudo modprobe neuron",
        )
    return parse_devices(out)


def _answer(path: str) -> tuple[int, str, str]:
    """Status, output and errors; all that it started ends with it when it gives no answer."""
    try:
        process = subprocess.Popen(
            [path, "-j"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        raise RunError(f"{path} cannot be run: {error.strerror}", hint="install it anew") from None
    with process:
        try:
            out, err = process.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise RunError(
                f"neuron-ls gave no answer in {SECONDS:.0f} s",
                hint="the driver may hang: sudo modprobe -r neuron && sudo modprobe neuron",
            ) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def _reason(text: str) -> str:
    """What the last line says, out of `msg="…" error="…"` where it has that form."""
    lines = text.strip().splitlines()
    last = lines[-1] if lines else ""
    said = re.findall(r'\b(?:msg|error)="([^"]*)"', last)
    return ": ".join(said) or last


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
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RunError(
            f"neuron-ls -j answers with what is not understood: {error}",
            hint="its version may be newer than this one; please report it",
            details={"answer": text[:2000]},
        ) from None
    return tuple(sorted(devices))


def _device(row: Mapping[str, Any], following: int) -> Device:
    count = int(row.get("nc_count") or 0)
    if not 0 <= count <= _MOST_CORES:
        raise ValueError(f"{count} cores on one device")
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
        processes=tuple(filter(None, map(_process, row.get("neuron_processes") or ()))),
        connected=tuple(int(number) for number in row.get("connected_to") or ()),
    )


def _process(row: Mapping[str, Any]) -> Process | None:
    command = _brief(str(row.get("command") or "?"))
    if os.path.basename(command.split()[0]) in TOOLS:
        return None
    version = str(row.get("neuron_runtime_version") or "")
    return Process(int(row.get("pid") or 0), command, "" if version == "NA" else version)


def _brief(command: str) -> str:
    """ "python -u serve.py --token x" → "python serve.py"."""
    words = "".join(c if c.isprintable() else " " for c in command).split() or ["?"]
    for number, word in enumerate(words[1:], 1):
        if word == "-m" and number + 1 < len(words):
            return f"{words[0]} -m {words[number + 1]}"
        if word == "-c":
            break
        if not word.startswith("-"):
            return f"{words[0]} {word}" if "=" not in word else words[0]
    return words[0]
