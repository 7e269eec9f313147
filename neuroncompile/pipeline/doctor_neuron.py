"""The doctor's checks for a Neuron target: toolchain, libraries, variables."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping

from neuroncompile.backends import backend_for
from neuroncompile.config import Toolchain, resolve_toolchain
from neuroncompile.config.release_match import match_release
from neuroncompile.errors import ConfigError, NeuronCompileError
from neuroncompile.pipeline.finding import Finding, Patient, good, install

__all__ = ["CHECKS"]

LIBXML2 = "libxml2.so.2"
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
    found = [*_window(named, platform), *_open(named), *_release(named)]
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


def _release(named: Toolchain) -> list[Finding]:
    """Whether all versions are of one release of the SDK."""
    match = match_release(named.packages)
    if not match.release:
        return [
            Finding(
                "toolchain, release",
                "warning",
                "its versions are of no release that is known",
                "limits and known issues of releases are then not checked",
                "neuroncompile toolchain ls lists the releases",
            )
        ]
    told = [
        f"{name} {version} is of {f'SDK {found[0]}' if found else 'no known release'}"
        for name, version, found in match.odd
    ]
    told += [f"{name} is missing" for name in match.missing]
    if not told:
        return [good("toolchain, release", f"SDK {match.release}")]
    return [
        Finding(
            "toolchain, release",
            "warning",
            f"most is of SDK {match.release}, and {'; '.join(told)}",
            "only the packages of one release are tested with each other",
            f"install the versions that `neuroncompile toolchain show sdk-{match.release}` lists",
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
    """Shared libraries that neuronx-cc loads and that images leave out.

    By the very name that it is linked to: newer systems have a libxml2.so.16 only.
    """
    try:
        ctypes.CDLL(LIBXML2)
    except OSError:
        return [
            Finding(
                "libraries",
                "problem",
                f"{LIBXML2} cannot be loaded",
                "neuronx-cc does not start without it: `error while loading shared libraries`",
                install("libxml2"),
                "build",
            )
        ]
    return [good("libraries", "libxml2 is there")]


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
    found = _lnc_variable(patient)
    if os.environ.get("NEURON_COMPILED_ARTIFACTS"):
        found += [
            Finding(
                "variables",
                "warning",
                "NEURON_COMPILED_ARTIFACTS is set",
                "vLLM's plugin reads it up to 0.5 and not from 0.21 on; nothing here does",
                "neuroncompile env KEY --for vllm:VERSION says what is read",
            )
        ]
    return found


def _lnc_variable(patient: Patient) -> list[Finding]:
    asked = str(patient.target.lnc or 1)
    for name in ("NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE"):
        text = os.environ.get(name, "").strip()
        if text and text != asked:
            return [
                Finding(
                    "variables",
                    "warning",
                    f"{name} is {text}; {patient.target.text} has LNC {asked} by itself",
                    "it decides the logical cores of what is built, and so its key",
                    f"unset {name}, or say it with --lnc {text}",
                )
            ]
    return []


CHECKS: tuple[Callable[[Patient], list[Finding]], ...] = (
    toolchain,
    libraries,
    neuron_variables,
)
