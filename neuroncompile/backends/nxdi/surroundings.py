"""Where a worker works and all it gets of an environment.

NxD takes paths into the keys of its own cache: the work directory through `--logfile`, and with it
the graph's number. So the directory follows from the *family*, the spec less its lists of buckets
and batches, and is the same on every host: a program with one more bucket finds the graphs that
another one of its family has had compiled.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.keys import digest_of
from neuroncompile.keys.canonical import canonical_bytes
from neuroncompile.keys.exclusions import SIZES, without

__all__ = ["environment", "family_of", "neff_cache", "runtime_environment"]

INHERITED = ("HOME", "LD_LIBRARY_PATH", "TMPDIR", "USER")
"""All of the caller's environment that a worker sees, besides the path."""


def family_of(spec: Mapping[str, Any]) -> str:
    """SHA-256, 64 hex digits, of a compile spec less its buckets, batches and lengths."""
    parts = {**spec, "neuron": without(spec["neuron"], SIZES, nested=True)}
    if "draft" in spec:
        own = without(spec["draft"]["neuron"], SIZES, nested=True)
        parts["draft"] = {**spec["draft"], "neuron": own}
    return digest_of(canonical_bytes(parts))


def neff_cache(cache: Path) -> Path:
    """The vendor's cache of compiled graphs, in ours: `cache` is `settings.cache`."""
    return cache / "neff"


def environment(spec: Mapping[str, Any], python: str, *, work: Path, cache: Path) -> dict[str, str]:
    """The environment of a worker that compiles or shards.

    Target and logical cores are read when the packages are imported, so they are here and in the
    keywords alike.

    Args:
        spec: of the program; its `compiler` and `target` decide.
        python: the toolchain's interpreter, whose directory leads the path: neuronx-cc is there.
        work: directory for the tree of graphs.
        cache: the vendor's cache of graphs.
    """
    compiler = spec["compiler"]
    return {
        **_base(python),
        **compiler["env"],
        **_target(spec),
        "NEURON_CC_FLAGS": " ".join(map(shlex.quote, compiler["args"])),
        "NEURON_COMPILE_CACHE_URL": str(cache),
        "BASE_COMPILE_WORK_DIR": f"{work}/",
    }


def runtime_environment(spec: Mapping[str, Any], python: str, cores: str | None) -> dict[str, str]:
    """The environment of a worker that loads and runs.

    Args:
        cores: NEURON_RT_VISIBLE_CORES, a contiguous range; None where no device is used.
    """
    found = {**_base(python), **_target(spec)}
    if cores is not None:
        found["NEURON_RT_VISIBLE_CORES"] = cores
    return found


def _base(python: str) -> dict[str, str]:
    path = [str(Path(python).parent), os.environ.get("PATH", os.defpath)]
    return {name: os.environ[name] for name in INHERITED if name in os.environ} | {
        "PATH": os.pathsep.join(path),
        "LC_ALL": "C.UTF-8",
        "PYTHONHASHSEED": "0",
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",  # everything is at hand; and no token is in here
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _target(spec: Mapping[str, Any]) -> dict[str, str]:
    target = spec["target"]
    lnc = spec["neuron"].get("logical_nc_config") or target.get("lnc") or 1
    return {
        "NEURON_PLATFORM_TARGET_OVERRIDE": str(target["platform"]),
        "NEURON_LOGICAL_NC_CONFIG": str(lnc),
    }
