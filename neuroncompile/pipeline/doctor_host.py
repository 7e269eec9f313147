"""The doctor's checks of any host: memory, disk, store, tiers, hub, variables, the cpu compiler."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from neuroncompile.backends.cpu.backend import CpuBackend
from neuroncompile.errors import NeuronCompileError
from neuroncompile.hardware.host import available_memory, memory_limit
from neuroncompile.output import human_bytes
from neuroncompile.pipeline.finding import Finding, Patient, good

__all__ = ["CHECKS"]

GB = 10**9
LITTLE_DISK = 10 * GB  # a program, its graphs and one model's weights
NEEDED = {"cpu": 2 * GB, "trn1": 16 * GB, "trn1n": 16 * GB, "inf2": 16 * GB}
NEURON_NEEDED = 40 * GB  # one neuronx-cc for a large model on trn2 and newer

RETIRED = {
    "VLLM_NEURON_REMOTE_CACHE": "NEURON_LIBTORCH_REMOTE_CACHE (vLLM's plugin from 0.24 on)",
    "VLLM_NEURON_COMPILATION_TIMEOUT": "NEURON_LIBTORCH_COMPILATION_TIMEOUT (from 0.24 on)",
    "VLLM_NEURON_DISABLE_COMPILE_CACHE": "NEURON_LIBTORCH_DISABLE_COMPILE_CACHE (from 0.24 on)",
    "VLLM_NEURON_ASSERT_CACHE_HIT": "VLLM_NEURON_DISABLE_WARMUP_COMPILE (from 0.24 on)",
    "NEURON_RT_VIRTUAL_CORE_SIZE": "NEURON_LOGICAL_NC_CONFIG",
    "HUGGINGFACE_HUB_CACHE": "HF_HUB_CACHE",
    "HUGGING_FACE_HUB_TOKEN": "HF_TOKEN",
    "TRANSFORMERS_CACHE": "HF_HOME",
    "PYTORCH_TRANSFORMERS_CACHE": "HF_HOME",
}
"""Variables that something once read → what is read now."""

PAIRS = (
    ("NEURON_RT_VISIBLE_CORES", "NEURON_RT_NUM_CORES", "the first wins"),
    ("NEURON_LOGICAL_NC_CONFIG", "NEURON_RT_VIRTUAL_CORE_SIZE", "the first wins"),
    ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "the first wins"),
)


def memory(patient: Patient) -> list[Finding]:
    free, limit = available_memory(), memory_limit()
    platform = patient.target.platform
    need = NEEDED.get(platform, NEURON_NEEDED)
    if free is None:
        return [
            Finding(
                "memory",
                "warning",
                "free memory is not known here",
                "compilers at once are then one a core",
                "set --jobs",
            )
        ]
    text = f"{human_bytes(free)} free"
    if limit is not None:
        text += f", of a container's limit of {human_bytes(limit)}"
    if free < need:
        return [
            Finding(
                "memory",
                "warning",
                f"{text}; one compiler for {platform} may need {human_bytes(need)}",
                "the kernel kills a compiler that does not fit",
                "a host or container with more memory; fewer --jobs; -O1",
            )
        ]
    return [good("memory", text)]


def disk(patient: Patient) -> list[Finding]:
    settings = patient.settings
    places = {"store": settings.store, "cache": settings.cache, "work": Path("/tmp")}
    temporary = Path(tempfile.gettempdir())
    if temporary not in places.values():
        places["TMPDIR"] = temporary
    return [_place(name, path, patient.target.is_cpu) for name, path in places.items()]


def _place(name: str, path: Path, loads: bool) -> Finding:
    """A place that is written; where it is not there yet, the first one above it that is.

    Args:
        loads: shared objects are loaded from there.
    """
    there = path
    while not os.path.exists(there) and there != there.parent:
        there = there.parent
    try:
        usage = os.statvfs(there)
        with tempfile.TemporaryFile(dir=there):
            pass
    except OSError as error:
        return Finding(
            f"disk, {name}",
            "warning" if name == "store" else "problem",
            f"{there} cannot be written: {error.strerror}",
            "a store that is only read serves what it has, and builds nothing"
            if name == "store"
            else "compilers work there",
            "choose another with --store DIR" if name == "store" else f"make {there} writable",
            "" if name == "store" else "build",
        )
    if loads and usage.f_flag & os.ST_NOEXEC:
        return Finding(
            f"disk, {name}",
            "problem",
            f"{there} is mounted noexec",
            "programs for cpu are shared objects, which cannot be loaded from there",
            "choose another with --store DIR"
            if name == "store"
            else f"mount -o remount,exec {there}",
            "both" if name == "store" else "build",
        )
    free = usage.f_bavail * usage.f_frsize
    if free < LITTLE_DISK or (usage.f_files and not usage.f_favail):
        left = f"{human_bytes(free)} free" if free < LITTLE_DISK else "no file can be made"
        return Finding(
            f"disk, {name}",
            "warning",
            f"{left} on {there}",
            "a build that runs out of space ends; what is finished stays",
            "neuroncompile store gc --yes, or --store on a larger disk"
            if name == "store"
            else f"free space on {there}",
        )
    return Finding(f"disk, {name}", "ok", f"{human_bytes(free)} free on {there}")


def store(patient: Patient) -> list[Finding]:
    settings = patient.settings
    there = "" if (settings.store / "v1").is_dir() else "; nothing is there yet"
    found = [good("store", f"{settings.store} ({settings.store_origin}){there}")]
    found += [good("store, layer", str(layer)) for layer in settings.layers]
    origin = "NEURONCOMPILE_TIER" if os.environ.get("NEURONCOMPILE_TIER") else "settings file"
    found += [_tier(url, origin) for url in settings.tiers]
    if not settings.tiers:
        found.append(good("tier", "none"))
    return found


def _tier(url: str, origin: str) -> Finding:
    """What can be said of a tier without a request."""
    from neuroncompile.tiers import parse_url

    try:
        location = parse_url(url)
    except NeuronCompileError as error:
        why = "every command that looks for a program stops"
        return Finding("tier", "problem", str(error), why, error.hint or "", "both")
    if location.scheme == "file" and not os.path.isdir(location.path):
        return Finding(
            "tier",
            "warning",
            f"{location.url} ({origin}): there is no such directory",
            "programs that others have compiled are not found",
            f"mount it, or correct {origin}",
        )
    return good("tier", f"{location.url} ({origin})")


def hub(patient: Patient) -> list[Finding]:
    settings = patient.settings
    token = "with a token" if settings.hub.token else "without a token"
    if settings.offline:
        cause = " by HF_HUB_OFFLINE" if os.environ.get("HF_HUB_OFFLINE") else ""
        return [good("hub", f"offline{cause}; models come from {settings.hub.cache}")]
    return [good("hub", f"{settings.hub.endpoint}, {token}; cache {settings.hub.cache}")]


def variables(patient: Patient) -> list[Finding]:
    found = [
        Finding("variables", "warning", warning, "it has no effect", "correct or unset it")
        for warning in patient.settings.warnings
    ]
    for name, live in RETIRED.items():
        if os.environ.get(name):
            found.append(
                Finding(
                    "variables", "warning", f"{name} is set", f"{live} is read now", f"unset {name}"
                )
            )
    for first, second, what in PAIRS:
        if os.environ.get(first) and os.environ.get(second):
            found.append(
                Finding(
                    "variables",
                    "warning",
                    f"{first} and {second} are both set",
                    what,
                    f"unset {second}",
                )
            )
    return found or [good("variables", "none that is misspelt, retired or contradicts another")]


def cpu_compiler(patient: Patient) -> list[Finding]:
    if not patient.target.is_cpu:
        return []
    backend = CpuBackend()
    identity = backend.identity()
    if not identity:
        return [
            Finding(
                "toolchain",
                "problem",
                "torch is not installed here",
                "it is the cpu target's compiler, and programs are linked to its libraries",
                'pip install "neuroncompile[cpu]"',
                "both",
            )
        ]
    try:
        backend.preflight()
    except NeuronCompileError as error:
        return [
            Finding(
                "toolchain",
                "problem",
                str(error),
                "generated code is compiled with it",
                error.hint or "install it",
                "build",
            )
        ]
    torch = identity.get("torch", "?")
    return [good("toolchain", f"torch {torch}, {backend.compiler()}")]


CHECKS: tuple[Callable[[Patient], list[Finding]], ...] = (
    cpu_compiler,
    memory,
    disk,
    store,
    hub,
    variables,
)
