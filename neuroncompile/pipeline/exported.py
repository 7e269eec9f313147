"""What `export` has written, looked at before somebody is sent there.

vLLM's plugin takes whatever neuron_config.json says without comparing, and answers a missing file
by compiling into the directory; so both are found out here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.inference_config import without_places
from neuroncompile.backends.nxdi.outputs import shard_titles
from neuroncompile.errors import ConfigError, CorruptArtifactError, ModelError
from neuroncompile.models.header import read_header
from neuroncompile.store import Artifact, Store

__all__ = ["CONFIG", "KEPT_APART", "SIDECAR", "check_exported"]

CONFIG = "neuron_config.json"
SIDECAR = "neuroncompile.json"
KEPT_APART = ("constructed.json", "program.json", "compile.log")
"""Layers of a program that no loader wants."""

_OF_THE_EXPORT = frozenset({"save_sharded_checkpoint", "skip_sharding"})


def check_exported(directory: Path, artifact: Artifact, store: Store) -> dict[str, Any]:
    """Look at every file that a loader will read.

    Returns:
        Its neuron_config.json.

    Raises:
        ConfigError: not of this program, or not written by `export`.
        CorruptArtifactError: a file is missing, damaged or edited.
    """
    _check_sidecar(directory, artifact)
    digests = {layer.title: layer.digest for layer in artifact.layers}
    programs = [title for title in digests if title not in KEPT_APART]
    for title in programs:
        if _digest(directory / title) != digests[title]:
            raise _damaged(directory, title, "differs from its digest")
    config = _read(directory, CONFIG)
    constructed = json.loads(store.blob_path(digests["constructed.json"]).read_bytes())
    edited = _edited(without_places(config), constructed)
    if edited is not None:
        raise _damaged(directory, CONFIG, f"says another {edited} than the program has")
    _check_shards(directory, config, programs)
    return config


def _check_sidecar(directory: Path, artifact: Artifact) -> None:
    key = _read(directory, SIDECAR).get("key")
    if key != artifact.key:
        raise ConfigError(
            f"{directory} holds {str(key)[:12]}, not {artifact.key[:12]}",
            field="--dir",
            value=str(directory),
            legal=f"an export of {artifact.key[:12]}",
            hint=f"neuroncompile env {str(key)[:12]} --dir {directory}, or export this program",
        )


def _read(directory: Path, name: str) -> dict[str, Any]:
    try:
        found = json.loads((directory / name).read_bytes())
    except FileNotFoundError:
        raise _damaged(directory, name, "is missing") from None
    except (OSError, ValueError) as error:
        raise _damaged(directory, name, f"cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise _damaged(directory, name, "is no JSON object")
    return found


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError:
        raise _damaged(path.parent, path.name, "is missing or cannot be read") from None


def _edited(config: Mapping[str, Any], constructed: Mapping[str, Any]) -> str | None:
    """The first keyword of NxDI's that differs, at any depth where there are some."""
    for name, value in constructed.items():
        other = config.get(name)
        if name == "neuron_config" and isinstance(value, Mapping):
            held = other if isinstance(other, Mapping) else {}
            for keyword in sorted({*value, *held} - _OF_THE_EXPORT):
                if value.get(keyword) != held.get(keyword):
                    return f"{keyword}"
        elif isinstance(value, Mapping) and "neuron_config" in value:
            inner = _edited(other if isinstance(other, Mapping) else {}, value)
            if inner is not None:
                return inner
    return None


def _check_shards(directory: Path, config: Mapping[str, Any], programs: list[str]) -> None:
    for title in programs:
        place = title.rpartition("/")[0]
        own = config.get(place.replace("_model", "_config")) if place else config
        neuron = (own or config)["neuron_config"]
        if not neuron.get("save_sharded_checkpoint"):
            continue
        for shard in shard_titles(neuron, (place,)):
            try:
                read_header(directory / shard)
            except (ModelError, OSError):
                raise _damaged(directory, shard, "is missing or damaged") from None


def _damaged(directory: Path, name: str, why: str) -> CorruptArtifactError:
    return CorruptArtifactError(
        f"{directory / name} {why}",
        hint="export the program again, into a new directory",
        details={"file": name, "why": why},
    )
