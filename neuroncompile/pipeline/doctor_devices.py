"""The doctor's checks of Neuron devices: nodes, driver, runtime, neuron-ls, and who has cores."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from neuroncompile.backends import backend_for
from neuroncompile.config import resolve_toolchain
from neuroncompile.config.release_match import SYSTEM, match_release, older
from neuroncompile.errors import NeuronCompileError, RunError
from neuroncompile.hardware.cores import core_holders, core_text, visible_cores
from neuroncompile.hardware.neuron_ls import Device, neuron_devices
from neuroncompile.hardware.targets import CHIPS
from neuroncompile.output import human_bytes
from neuroncompile.pipeline.finding import Finding, Patient, good, install

__all__ = ["CHECKS"]

DEV, PROC, SYS, NEURON = Path("/dev"), Path("/proc"), Path("/sys"), Path("/opt/aws/neuron")


def devices(patient: Patient) -> list[Finding]:
    """Device nodes, driver and tools; then what neuron-ls tells."""
    nodes = sorted(DEV.glob("neuron[0-9]*"))
    if not nodes:
        return [
            Finding(
                "devices",
                "problem",
                f"no Neuron device ({DEV}/neuron0)",
                "programs can be compiled here and not run",
                "run on a Neuron instance; in a container, pass the devices through",
                "run",
            )
        ]
    found = [*_nodes(nodes), *_driver(patient), *_runtime()]
    try:
        listed = neuron_devices()
    except RunError as error:
        return [
            *found,
            Finding(
                "devices",
                "problem",
                str(error),
                "which cores are free is not known",
                error.hint or "install aws-neuronx-tools",
                "run",
            ),
        ]
    return [*found, *_listed(listed, patient)]


def _nodes(nodes: Sequence[Path]) -> list[Finding]:
    closed = [node.name for node in nodes if not os.access(node, os.R_OK | os.W_OK)]
    if not closed:
        return [good("devices", f"{len(nodes)} device nodes")]
    return [
        Finding(
            "devices",
            "problem",
            f"{closed[0]} and {len(closed) - 1} more may not be opened"
            if closed[1:]
            else f"{DEV}/{closed[0]} may not be opened",
            "the runtime opens them to read and write",
            "run as a user of their group (ls -l /dev/neuron0), or pass them to the container",
            "run",
        )
    ]


def _driver(patient: Patient) -> list[Finding]:
    """The kernel module, and whether it is as new as the toolchain's release."""
    try:
        version = (SYS / "module/neuron/version").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        version = ""
    with contextlib.suppress(OSError):
        modules = (PROC / "modules").read_text(encoding="ascii", errors="replace").splitlines()
        if not version and not any(line.startswith("neuron ") for line in modules):
            return [
                Finding(
                    "driver",
                    "warning",
                    "the kernel module neuron is not listed",
                    "in a container that is usual; on a host the runtime finds no device",
                    "sudo modprobe neuron",
                )
            ]
    release = _release_of(patient)
    wanted = SYSTEM[release][0] if release else ""
    if older(version, wanted):
        return [
            Finding(
                "driver",
                "warning",
                f"driver {version} is older than SDK {release}'s {wanted}",
                "a runtime may refuse it: `This runtime requires Neuron Driver version …`",
                f"on the host: {install('aws-neuronx-dkms')}, then load it anew",
            )
        ]
    return [good("driver", f"driver {version or 'of a version that is not told'}")]


def _release_of(patient: Patient) -> str:
    """The SDK release of the toolchain that was named or is here; "" where none is."""
    with contextlib.suppress(NeuronCompileError):
        identity = {}
        if not patient.toolchain:
            backend = backend_for(patient.target.platform)
            identity = backend.identity(patient.settings.neuron_python)
        named = resolve_toolchain("nxdi", flag=patient.toolchain, identity=identity)
        return match_release(named.packages).release
    return ""


def _runtime() -> list[Finding]:
    """The Neuron runtime, a library of the system and no package of Python's."""
    found = sorted((NEURON / "lib").glob("libnrt.so*"))
    if not found:
        with contextlib.suppress(OSError):
            ctypes.CDLL("libnrt.so.1")
            return [good("runtime", "libnrt.so.1 is there")]
        return [
            Finding(
                "runtime",
                "problem",
                f"no libnrt.so in {NEURON}/lib, and none that can be loaded",
                "it is what loads programs onto a device",
                install("aws-neuronx-runtime-lib aws-neuronx-collectives"),
                "run",
            )
        ]
    return [good("runtime", f"{found[0]} is there")]


def _listed(listed: tuple[Device, ...], patient: Patient) -> list[Finding]:
    cores = [core for device in listed for core in device.cores]
    memory = sum(device.memory for device in listed)
    found = [
        good(
            "devices, cores",
            f"{len(listed)} devices, {len(cores)} logical cores, {human_bytes(memory)} of memory",
        )
    ]
    chip = CHIPS[patient.target.platform]
    physical = {len(d.cores) * d.lnc for d in listed if d.cores}
    if physical and physical != {chip.physical_cores}:
        found.append(
            Finding(
                "devices, chip",
                "problem",
                f"devices have {', '.join(map(str, sorted(physical)))} physical cores; "
                f"{patient.target.platform} has {chip.physical_cores}",
                "a program is for one kind of chip",
                "name the target that this instance is",
                "run",
            )
        )
    lncs, asked = {device.lnc for device in listed}, patient.target.lnc or 1
    if lncs and lncs != {asked}:
        found.append(
            Finding(
                "devices, LNC",
                "warning",
                f"the runtime is set to LNC {', '.join(map(str, sorted(lncs)))}; the target has "
                f"{asked}",
                "a program's LNC must be the runtime's",
                f"export NEURON_LOGICAL_NC_CONFIG={asked}, or build with --lnc",
            )
        )
    return [*found, *_free(listed, cores)]


def _free(listed: Sequence[Device], cores: Sequence[int]) -> list[Finding]:
    """Cores that somebody holds, or that the runtime's variables leave out."""
    found = []
    visible = visible_cores(os.environ)
    absent = sorted(set(visible or ()).difference(cores))
    if absent:
        found.append(
            Finding(
                "devices, visible",
                "problem",
                f"NEURON_RT_VISIBLE_CORES names {core_text(absent)}, which this host has not",
                "no program can be put there",
                f"unset it, or name some of {core_text(cores)}",
                "run",
            )
        )
    usable = sorted(set(cores).intersection(visible) if visible is not None else cores)
    held = {core: who for core, who in core_holders(listed).items() if core in usable}
    if held:
        every = len(held) == len(usable)
        by = ", ".join(
            f"{core_text([core for core in held if held[core] == who])} by {who}"
            for who in dict.fromkeys(held.values())
        )
        found.append(
            Finding(
                "devices, busy",
                "problem" if every else "warning",
                f"{len(held)} of {len(usable)} cores are held: {by}",
                "a program needs cores that nobody holds",
                "end those processes",
                "run" if every else "",
            )
        )
    return found


CHECKS: tuple[Callable[[Patient], list[Finding]], ...] = (devices,)
