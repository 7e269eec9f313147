"""`neuroncompile.lock`: what a recipe or model meant when it was locked, and the keys it led to.

    {"schema": 1, "entries": {REFERENCE: {
        "revisions": {REFERENCE: COMMIT}, "toolchain": {"name", "packages"},
        "programs": {KEY: {"name", "target", "optlevel", "compiler", "neuron", "model", …}}}}}

A program holds its spec, with the model's config by its digest alone, so that a refusal can name
the field that has changed. The file is JSON, sorted and indented: it is committed, and compared.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.config.toolchain import Toolchain
from neuroncompile.errors import ConfigError
from neuroncompile.keys import digest_of
from neuroncompile.keys.canonical import canonical_bytes

__all__ = ["Entry", "read_lock", "summary", "write_lock"]

_SECTIONS = ("backend", "target", "optlevel", "compiler", "neuron", "toolchain")


class Entry(NamedTuple):
    """What one reference is locked to.

    Attributes:
        revisions: reference of a model, draft or adapter on the hub → commit.
        toolchain: name, backend and packages.
        programs: key → name and `summary` of its spec.
    """

    revisions: Mapping[str, str]
    toolchain: Mapping[str, Any]
    programs: Mapping[str, Mapping[str, Any]]

    def pinned_toolchain(self, path: Path) -> Toolchain:
        """Its toolchain; the interpreter is this host's affair."""
        return Toolchain(
            str(self.toolchain["name"]),
            str(self.toolchain["backend"]),
            dict(self.toolchain["packages"]),
            origin=f"lock {path.name}",
        )


def read_lock(path: Path) -> dict[str, Entry]:
    """Reference → entry; empty without a file.

    Raises:
        ConfigError: the file is no lock of this version.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != 1:
            raise ValueError(f"schema is {document['schema']!r}; this version reads 1")
        return {
            str(name): Entry(
                dict(entry["revisions"]), dict(entry["toolchain"]), dict(entry["programs"])
            )
            for name, entry in document["entries"].items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} is not a lock file: {error}",
            field="lock",
            value=str(path),
            legal="what `neuroncompile lock` writes",
            hint=f"take it from version control again, or rm {path} and lock anew",
        ) from None


def write_lock(path: Path, entries: Mapping[str, Entry]) -> None:
    """Write a lock whole or not at all.

    Raises:
        ConfigError: it cannot be written.
    """
    document = {"schema": 1, "entries": {name: entry._asdict() for name, entry in entries.items()}}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        text = json.dumps(document, indent=1, sort_keys=True, ensure_ascii=False)
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(
            f"{path} cannot be written: {error.strerror}",
            field="lock",
            value=str(path),
            hint="name another file with --output",
        ) from None


def summary(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A spec as a lock holds it."""
    found = {name: spec[name] for name in _SECTIONS if name in spec}
    for name in ("model", "draft"):
        if name in spec:
            found[name] = f"sha256:{digest_of(canonical_bytes(spec[name]))}"
    return found
