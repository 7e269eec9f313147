"""The doctor's checks for a Neuron target: toolchain, libraries, driver, devices, variables."""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from neuroncompile.backends import backend_for
from neuroncompile.config import Toolchain, resolve_toolchain
from neuroncompile.errors import ConfigError, NeuronCompileError, RunError
from neuroncompile.hardware.neuron_ls import Device, neuron_devices
from neuroncompile.hardware.targets import CHIPS
from neuroncompile.output import human_bytes
from neuroncompile.pipeline.finding import Finding, Patient, good

__all__ = ["CHECKS"]

DEV, PROC = Path("/dev"), Path("/proc")
NEWER_CHIPS = (0, 9)
"""The first NxDI that runs trn2 and newer only (release notes of SDK 2.29)."""


def toolchain(patient: Patient) -> list[Finding]:
    """What was named, what its interpreter holds, and whether the target is in its window."""
    platform = patient.target.platform
    settings = patient.settings
    backend = backend_for(platform)
    try:
        identity = {} if patient.toolchain else backend.identity(settings.neuron_python)
        named = resolve_toolchain("nxdi", flag=patient.toolchain, identity=identity)
    except NeuronCompileError as error:
        return [
            Finding(
                "toolchain",
                "problem",
                str(error),
                "its versions are part of every key",
                error.hint or "name one with --toolchain",
                "both",
            )
        ]
    found = [*_window(named, platform), *_open(named)]
    python = named.python or settings.neuron_python
    try:
        backend.preflight(python)
    except NeuronCompileError as error:
        found.append(
            Finding(
                "toolchain",
                "problem",
                str(error),
                "keys can be computed, and programs of a store or tier be found; nothing compiles",
                error.hint or "name an interpreter",
                "both",
            )
        )
        return found
    return [*found, *_installed(named, backend.identity(python), python or "this interpreter")]


def _window(named: Toolchain, platform: str) -> list[Finding]:
    version = named.packages.get("neuronx-distributed-inference", "")
    numbers = tuple(int(p) for p in version.split(".")[:2] if p.isdigit())
    if len(numbers) == 2 and numbers >= NEWER_CHIPS and platform in ("trn1", "trn1n", "inf2"):
        return [
            Finding(
                "toolchain",
                "problem",
                f"NxD Inference {version} runs trn2 and newer; the target is {platform}",
                "it refuses the device, after a compile",
                "--toolchain sdk-2.28",
                "both",
            )
        ]
    compiler = named.packages.get("neuronx-cc", "none")
    return [good("toolchain", f"{named.name}: neuronx-cc {compiler}, NxD Inference {version}")]


def _open(named: Toolchain) -> list[Finding]:
    windows = sorted(name for name, version in named.packages.items() if version.endswith(".*"))
    if not windows:
        return []
    return [
        Finding(
            "toolchain",
            "warning",
            f"{named.name} leaves {', '.join(windows)} open",
            "a compile needs exact versions, since a key has them",
            "neuroncompile toolchain freeze --python PATH -o sdk.toml",
        )
    ]


def _installed(named: Toolchain, packages: Mapping[str, str], python: str) -> list[Finding]:
    wrong = named.mismatches(packages)
    if not wrong:
        return [good("toolchain, interpreter", f"{python} holds those versions")]
    told = "; ".join(f"{name} {asked} asked, {here or 'none'} here" for name, asked, here in wrong)
    return [
        Finding(
            "toolchain, interpreter",
            "problem",
            f"{python}: {told}",
            "what it compiles would have another key",
            f"neuroncompile toolchain freeze --python {python} -o sdk.toml, or install those",
            "both",
        )
    ]


def libraries(patient: Patient) -> list[Finding]:
    """Shared libraries that neuronx-cc loads and that images leave out."""
    if ctypes.util.find_library("xml2"):
        return [good("libraries", "libxml2 is there")]
    return [
        Finding(
            "libraries",
            "warning",
            "libxml2 is not found",
            "neuronx-cc does not start without it, and every graph fails",
            "apt-get install libxml2",
        )
    ]


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
    found = [good("devices", f"{len(nodes)} device nodes"), *_driver()]
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


def _driver() -> list[Finding]:
    try:
        loaded = any(line.startswith("neuron ") for line in (PROC / "modules").open())
    except OSError:
        return []
    if loaded:
        return [good("driver", "the kernel module is loaded")]
    return [
        Finding(
            "driver",
            "warning",
            "the kernel module neuron is not listed",
            "in a container that is usual; on a host the runtime finds no device",
            "sudo modprobe neuron",
        )
    ]


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
    busy = [f"pid {p.pid} ({p.command})" for d in listed for p in d.processes]
    if busy:
        held = sum(len(d.cores) for d in listed if d.processes)
        found.append(
            Finding(
                "devices, busy",
                "problem" if held == len(cores) else "warning",
                f"{held} of {len(cores)} cores are held by {', '.join(dict.fromkeys(busy))}",
                "a program needs cores that nobody holds",
                "end those processes",
                "run" if held == len(cores) else "",
            )
        )
    return found


def neuron_variables(patient: Patient) -> list[Finding]:
    """The vendor's variables that would stop a build."""
    from neuroncompile.config.environment import read_environment

    try:
        read_environment(os.environ, patient.target)
    except ConfigError as error:
        return [
            Finding(
                "variables",
                "problem",
                str(error),
                "a build stops for it",
                error.hint or f"unset {error.field}",
                "both",
            )
        ]
    if os.environ.get("NEURON_COMPILED_ARTIFACTS"):
        return [
            Finding(
                "variables",
                "warning",
                "NEURON_COMPILED_ARTIFACTS is set",
                "vLLM's plugin reads it up to 0.5 and not from 0.21 on; nothing here does",
                "neuroncompile env KEY --for vllm:VERSION says what is read",
            )
        ]
    return []


CHECKS: tuple[Callable[[Patient], list[Finding]], ...] = (
    toolchain,
    libraries,
    devices,
    neuron_variables,
)
