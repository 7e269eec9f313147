"""Targets: what a program is compiled for, as text, as a table, and as part of a key.

A target is a CPU instruction-set level (`cpu`, `cpu:x86-64-v3`) or a Neuron chip (`trn2`),
also spelt as an EC2 instance (`trn2.48xlarge`) when topology matters. The instance never
enters a key: the compiler sees the chip and its logical-core setting (LNC) only.

Records are named tuples rather than dataclasses: a build that hits the store imports this, and a
dataclass costs it a millisecond.

Figures are from the AWS Neuron documentation (aws-neuron-sdk 2.32: about-neuron/arch,
libraries/nxd-inference/developer_guides/feature-guide.rst); `Instance.confidence` marks the
ones that are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from neuroncompile.errors import ConfigError, nearest

__all__ = [
    "CHIPS",
    "CPU_LEVELS",
    "INSTANCES",
    "PLATFORMS",
    "Chip",
    "Instance",
    "Target",
    "host_arch",
    "host_isa",
    "legal_tp_degrees",
    "parse_target",
]


class Chip(NamedTuple):
    """One Neuron device.

    Attributes:
        physical_cores: NeuronCores on the device, before LNC joins them.
        lnc: legal logical-core settings, the default first.
        hbm_gib: device memory.
    """

    name: str
    neuroncore: str
    physical_cores: int
    lnc: tuple[int, ...]
    hbm_gib: int


class Instance(NamedTuple):
    """One EC2 instance type; memory in GiB."""

    name: str
    platform: str
    devices: int
    vcpus: int
    host_ram_gib: int
    confidence: str = "high"

    def logical_cores(self, lnc: int) -> int:
        return self.devices * CHIPS[self.platform].physical_cores // lnc


CHIPS = {
    "trn1": Chip("trainium1", "v2", 2, (1,), 32),
    "trn1n": Chip("trainium1", "v2", 2, (1,), 32),
    "inf2": Chip("inferentia2", "v2", 2, (1,), 32),
    "trn2": Chip("trainium2", "v3", 8, (2, 1), 96),
    "trn3": Chip("trainium3", "v4", 8, (2, 1), 144),
}
"""By compiler target. trn1, trn1n and inf2 hold the same cores yet stay distinct: the
compiler is told which, and collectives differ."""

PLATFORMS = ("cpu", *CHIPS)

INSTANCES = {
    row.name: row
    for row in (
        Instance("inf2.xlarge", "inf2", 1, 4, 16),
        Instance("inf2.8xlarge", "inf2", 1, 32, 128),
        Instance("inf2.24xlarge", "inf2", 6, 96, 384),
        Instance("inf2.48xlarge", "inf2", 12, 192, 768),
        Instance("trn1.2xlarge", "trn1", 1, 8, 32),
        Instance("trn1.32xlarge", "trn1", 16, 128, 512),
        Instance("trn1n.32xlarge", "trn1n", 16, 128, 512),
        Instance("trn2.3xlarge", "trn2", 1, 12, 128, "medium"),
        Instance("trn2.48xlarge", "trn2", 16, 192, 2048),
        Instance("trn2u.48xlarge", "trn2", 16, 192, 2048),
        # Only neuron-ls and neuron-monitor samples and nrt.h name it; the size is trn2's.
        Instance("trn2n.48xlarge", "trn2", 16, 192, 2048, "low"),
        # No EC2 size is documented for trn3; one server of each UltraServer generation.
        Instance("trn3-gen1", "trn3", 16, 192, 2048, "medium"),
        Instance("trn3-gen2", "trn3", 4, 64, 768, "medium"),
    )
}

CPU_LEVELS = {
    # psABI micro-architecture levels, by the names /proc/cpuinfo gives their features.
    "x86-64-v2": ("x86_64", "cx16 lahf_lm popcnt pni sse4_1 sse4_2 ssse3"),
    "x86-64-v3": ("x86_64", "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave"),
    "x86-64-v4": ("x86_64", "avx512f avx512bw avx512cd avx512dq avx512vl"),
    # GCC's -march names; the features are the ones that level makes mandatory.
    "armv8-a": ("aarch64", "fp asimd"),
    "armv8.2-a": ("aarch64", "atomics crc32 asimdrdm dcpop"),
    "armv8.4-a": ("aarch64", "asimddp lrcpc ilrcpc uscat flagm dit"),
    "armv9-a": ("aarch64", "sve sve2 sb frint flagm2"),
}
"""Level → (architecture, features it adds to the level before it), worst to best."""

_TP_DEGREES = {
    "inf2": (1, 2, 4, 8, 24),
    "trn1": (1, 2, 8, 16, 32),
    "trn1n": (1, 2, 8, 16, 32),
    "trn2": (1, 2, 4, 8, 16, 32, 64),
    # Not documented; the topology is trn2's.
    "trn3": (1, 2, 4, 8, 16, 32, 64),
}


class Target(NamedTuple):
    """What a program is compiled for.

    Attributes:
        platform: "cpu", "trn1", "trn1n", "inf2", "trn2" or "trn3".
        arch: "x86_64" or "aarch64" for cpu, else None.
        isa: a `CPU_LEVELS` name for cpu, else None.
        lnc: physical cores per logical core for Neuron, else None.
        instance: an `INSTANCES` name when one was given; never in a key.
    """

    platform: str
    arch: str | None = None
    isa: str | None = None
    lnc: int | None = None
    instance: str | None = None

    def spec(self) -> dict[str, str | int]:
        """The `target` member of a spec: the compiler's view, nothing of the machine."""
        if self.platform == "cpu":
            return {"platform": "cpu", "arch": str(self.arch), "isa": str(self.isa)}
        return {"platform": self.platform, "lnc": int(self.lnc or 1)}

    @property
    def is_cpu(self) -> bool:
        return self.platform == "cpu"

    @property
    def text(self) -> str:
        """The spelling `parse_target` reads back."""
        if self.platform == "cpu":
            return f"cpu:{self.isa}"
        return self.instance or self.platform

    def with_lnc(self, lnc: int) -> Target:
        """The same chip with another logical-core setting.

        Raises:
            ConfigError: the chip does not have that setting.
        """
        legal = CHIPS[self.platform].lnc if self.platform in CHIPS else ()
        if lnc not in legal:
            choices = ", ".join(map(str, sorted(legal))) or "none; it is for Neuron targets"
            raise ConfigError(
                f"logical_nc_config is {lnc!r}; {self.platform} supports {choices}",
                field="logical_nc_config",
                value=lnc,
                legal=sorted(legal),
                hint=f"set logical_nc_config to one of {choices}, or choose another --target"
                if legal
                else "leave logical_nc_config out for cpu",
            )
        return self._replace(lnc=lnc)


def parse_target(text: str, *, lnc: int | None = None, isa: str | None = None) -> Target:
    """Read a target: `cpu`, `cpu:x86-64-v3`, `trn2`, `trn2.48xlarge`.

    Without a level, `cpu` means the best this host runs. Without `lnc`, the chip's default.

    Raises:
        ConfigError: unknown target, level, instance or LNC, with the legal ones.
    """
    name, _, level = text.strip().partition(":")
    if name == "cpu":
        if lnc is not None:
            Target("cpu").with_lnc(lnc)
        return _cpu_target(level or isa)
    instance = INSTANCES.get(name)
    platform = instance.platform if instance else name
    if platform not in CHIPS or level:
        raise _unknown_target(text)
    if isa is not None:
        raise ConfigError(
            f"target.isa is {isa!r}; {platform} has no CPU level",
            field="target.isa",
            value=isa,
            legal=None,
            hint="leave isa out, or choose platform cpu",
        )
    target = Target(
        platform, lnc=CHIPS[platform].lnc[0], instance=instance.name if instance else None
    )
    return target if lnc is None else target.with_lnc(lnc)


def legal_tp_degrees(target: Target) -> tuple[int, ...] | None:
    """Tensor-parallel degrees the target's runtime can run, or None for any (cpu).

    A named instance caps them by its logical cores; at LNC 1 a trn2 or trn3 device shows
    twice as many cores, so its list is one doubling longer.
    """
    if target.is_cpu:
        return None
    degrees = _TP_DEGREES[target.platform]
    lnc = target.lnc or 1
    if lnc < CHIPS[target.platform].lnc[0]:
        degrees = (*degrees, degrees[-1] * 2)
    if target.instance:
        cores = INSTANCES[target.instance].logical_cores(lnc)
        degrees = tuple(degree for degree in degrees if degree <= cores)
    return degrees


def host_arch() -> str:
    """This machine's architecture in the spelling of `Target.arch`."""
    machine = os.uname().machine
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine)


def host_isa(cpuinfo: Iterable[str] | None = None, arch: str | None = None) -> str:
    """The best `CPU_LEVELS` name this host runs.

    Args:
        cpuinfo: lines in the format of /proc/cpuinfo; the first processor counts.
        arch: architecture those lines are of; default this machine's.

    Raises:
        ConfigError: the host is below the lowest level, or of another architecture.
    """
    features = _cpu_features(cpuinfo)
    arch = arch or host_arch()
    best = None
    for level, (level_arch, needed) in CPU_LEVELS.items():
        if level_arch != arch:
            continue
        if not features.issuperset(needed.split()):
            break
        best = level
    if best is None:
        raise ConfigError(
            f"this host ({arch}) runs no level the cpu target compiles for",
            field="target",
            value=arch,
            legal=sorted(CPU_LEVELS),
            hint="name one with --target cpu:LEVEL to build for another machine",
        )
    return best


def _cpu_features(cpuinfo: Iterable[str] | None) -> frozenset[str]:
    if cpuinfo is None:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as lines:
            return _cpu_features(lines)
    for line in cpuinfo:  # the file grows with the cores: stop at the first processor's line
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def _cpu_target(level: str | None) -> Target:
    level = level or host_isa()
    if level not in CPU_LEVELS:
        near = nearest(level, CPU_LEVELS)
        raise ConfigError(
            f"unknown cpu level {level!r}",
            field="target.isa",
            value=level,
            legal=list(CPU_LEVELS),
            hint=f"did you mean cpu:{near}?" if near else f"legal: {', '.join(CPU_LEVELS)}",
        )
    return Target("cpu", arch=CPU_LEVELS[level][0], isa=level)


def _unknown_target(text: str) -> ConfigError:
    legal = [*PLATFORMS, *(f"cpu:{level}" for level in CPU_LEVELS), *INSTANCES]
    near = nearest(text, legal)
    shown = f"cpu[:LEVEL], {', '.join(CHIPS)}, or an instance such as trn2.48xlarge"
    return ConfigError(
        f"unknown target {text!r}; legal: {shown}",
        field="target",
        value=text,
        legal=legal,
        hint=f"did you mean {near}?" if near else "neuroncompile targets ls",
    )
