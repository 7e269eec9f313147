"""`targets` as commands: what a program can be compiled for, and how large it is."""

from __future__ import annotations

import textwrap
from typing import Any

from neuroncompile.config.releases import RELEASES
from neuroncompile.config.windows import WINDOWS
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.memory import DTYPES, GIB, core_memory, device_memory
from neuroncompile.hardware.targets import (
    CHIPS,
    CPU_LEVELS,
    INSTANCES,
    Target,
    host_arch,
    host_isa,
    legal_tp_degrees,
    parse_target,
)
from neuroncompile.output import Output

__all__ = ["targets_ls_command", "targets_show_command"]


def targets_ls_command(output: Output) -> int:
    """Every target on a line: levels of the cpu, chips, instances."""
    best = _best()
    cpus = [_cpu(level, best) for level in CPU_LEVELS]
    chips = [_neuron(parse_target(name)) for name in CHIPS]
    instances = [_neuron(parse_target(name)) for name in INSTANCES]
    rows = [_row(chip) for chip in (*chips, *instances)]
    rows[:0] = [(c["target"], "-", "-", "-", "-", c["runs"]) for c in cpus]
    output.table(("TARGET", "DEVICES", "CORES", "GIB", "A CORE", "WHAT"), rows)
    output.result([*cpus, *chips, *instances])
    return 0


def targets_show_command(name: str, output: Output) -> int:
    """All that is known of one target.

    Raises:
        ConfigError: no such target, with the nearest.
    """
    target = parse_target(name)
    if target.is_cpu:
        shown = _cpu(str(target.isa), _best())
        lines = [(name, shown[name]) for name in ("target", "arch", "runs")]
        lines.append(("features", ", ".join(shown["features"])))
    else:
        shown = _neuron(target)
        lines = _lines(shown)
    for label, text in lines:
        for number, part in enumerate(textwrap.wrap(text, 66)):
            output.line(f"{'' if number else label:<14}{part}")
    output.result(shown)
    return 0


def _best() -> str | None:
    """This host's level; None on one that runs none, which may still compile for others."""
    try:
        return host_isa()
    except ConfigError:
        return None


def _cpu(level: str, best: str | None) -> dict[str, Any]:
    arch = CPU_LEVELS[level][0]
    levels = [name for name, (a, _) in CPU_LEVELS.items() if a == arch]
    runs = "on another architecture"
    if arch == host_arch():
        runs = "not here"
    if best in levels:
        here = levels.index(level) <= levels.index(best)
        runs = "here, the default" if level == best else "here" if here else "not here"
    features = [
        f for name in levels[: levels.index(level) + 1] for f in CPU_LEVELS[name][1].split()
    ]
    return {"target": f"cpu:{level}", "arch": arch, "runs": runs, "features": features}


def _neuron(target: Target) -> dict[str, Any]:
    """A chip, or an instance of it."""
    chip = CHIPS[target.platform]
    instance = INSTANCES.get(target.instance or "")
    devices = instance.devices if instance else 1
    settings = []
    for lnc in chip.lnc:
        at = target.with_lnc(lnc)
        settings.append(
            {
                "lnc": lnc,
                "default": lnc == chip.lnc[0],
                "logical_cores": devices * chip.physical_cores // lnc,
                "memory_per_core": core_memory(at),
                "tp_degrees": list(legal_tp_degrees(at) or ()),
            }
        )
    return {
        "target": target.text,
        "platform": target.platform,
        "chip": chip.name,
        "neuroncore": chip.neuroncore,
        "devices": instance.devices if instance else None,
        "physical_cores": devices * chip.physical_cores,
        "memory": device_memory(instance.name) if instance else chip.hbm_gib * GIB,
        "lnc": settings,
        "dtypes": list(DTYPES[chip.neuroncore]),
        "host_ram": instance.host_ram_gib * GIB if instance else None,
        "vcpus": instance.vcpus if instance else None,
        "sdk": _sdks(target.platform),
        "confidence": instance.confidence if instance else "high",
        "instances": [row.name for row in INSTANCES.values() if row.platform == target.platform],
    }


def _sdks(platform: str) -> dict[str, str]:
    """First and last SDK release (major.minor) whose NxD Inference runs on the platform."""
    fatal = [w for w in WINDOWS if w.fatal and platform in w.targets and not w.families]
    minors = sorted({(int(major), int(minor)) for major, minor, *_ in map(_split, RELEASES)})
    legal = [sdk for sdk in minors if not any(w.since <= sdk <= w.until for w in fatal)]
    return {"first": "{}.{}".format(*legal[0]), "last": "{}.{}".format(*legal[-1])}


def _split(release: str) -> list[str]:
    return release.split(".")


def _row(shown: dict[str, Any]) -> tuple[str, ...]:
    default = shown["lnc"][0]
    what = shown["chip"]
    if shown["devices"] is not None:
        what += f", {shown['vcpus']} vCPUs, {shown['host_ram'] // GIB} GiB"
    return (
        shown["target"],
        str(shown["devices"] or 1),
        str(default["logical_cores"]),
        str(shown["memory"] // GIB),
        str(default["memory_per_core"] // GIB),
        what,
    )


def _lines(shown: dict[str, Any]) -> list[tuple[str, str]]:
    devices = shown["devices"] or 1
    lines = [
        ("target", shown["target"]),
        ("chip", f"{shown['chip']}, NeuronCore {shown['neuroncore']}"),
        ("devices", f"{devices}, {shown['physical_cores']} physical cores"),
        ("memory", f"{shown['memory'] // GIB} GiB"),
    ]
    for at in shown["lnc"]:
        cores = at["logical_cores"]
        text = (
            f"{cores} logical core{'s' if cores > 1 else ''} of {at['memory_per_core'] // GIB} GiB"
        )
        mark = " (default)" if at["default"] and len(shown["lnc"]) > 1 else ""
        lines.append((f"LNC {at['lnc']}", text + mark))
        lines.append(("", f"tp_degree {', '.join(map(str, at['tp_degrees']))}"))
    lines.append(("dtypes", ", ".join(shown["dtypes"])))
    if shown["host_ram"] is not None:
        lines.append(("host", f"{shown['vcpus']} vCPUs, {shown['host_ram'] // GIB} GiB"))
    sdk = shown["sdk"]
    lines.append(("SDK", f"{sdk['first']} to {sdk['last']} (NxD Inference)"))
    if shown["devices"] is None:
        lines.append(("instances", ", ".join(shown["instances"])))
    if shown["confidence"] != "high":
        lines.append(
            ("confidence", f"{shown['confidence']}: not all on the vendor's hardware pages")
        )
    return lines
