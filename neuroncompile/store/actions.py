"""Actions: pointers from a key to its manifest, and everything a reader checks behind one.

    actions/<kind>/<key> ─▶ manifest: sha256 = the pointer's digest, config.digest = key
                              ├─▶ spec blob: sha256 = key
                              └─▶ layers: there, of the right size, hashed before or now

So a pointer that is stale, forged or restored from elsewhere cannot serve another key's files.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import layout, oci
from neuroncompile.store.blobs import Blobs, touch
from neuroncompile.store.durable import listing

__all__ = ["Actions", "Artifact", "Verify", "pointer_bytes"]

Verify = Literal["none", "stat", "full"]
"""How layers are checked: not at all, hashed if not known to be whole, or hashed always."""

_KINDS = frozenset("abcdefghijklmnopqrstuvwxyz_")


@dataclass(frozen=True, slots=True)
class Artifact:
    """An artifact of a store.

    Attributes:
        kind: `compile`, `graph`, `shard`, `pack`, …
        key: SHA-256 of the spec, 64 hex digits.
        manifest_digest: `sha256:…` of the manifest, which binds inputs and outputs.
        layers: its files, sorted by title.
    """

    kind: str
    key: str
    manifest_digest: str
    layers: tuple[oci.Descriptor, ...]


class Actions:
    """`actions/` of a store."""

    def __init__(self, root: Path, blobs: Blobs) -> None:
        self._root = root
        self._blobs = blobs
        self._checked = False

    def path(self, kind: str, key: str) -> Path:
        """Where the pointer of a key is, or would be.

        Raises:
            ValueError: not a kind, or not a key.
        """
        if not kind or not _KINDS.issuperset(kind) or not oci.is_hex(key):
            raise ValueError(f"{kind!r} {key!r} is not the kind and key of an artifact")
        return self._root / "actions" / kind / key

    def names(self, kind: str | None = None) -> list[tuple[str, str]]:
        """Kind and key of every pointer, sorted."""
        kinds = [kind] if kind is not None else listing(self._root / "actions")
        return [
            (k, name)
            for k in kinds
            for name in listing(self._root / "actions" / k)
            if oci.is_hex(name) and _KINDS.issuperset(k)
        ]

    def load(self, kind: str, key: str, verify: Verify) -> Artifact | None:
        """The artifact of a key; None when there is no pointer.

        Raises:
            CorruptArtifactError: the pointer or anything behind it is missing or false.
        """
        data = self._pointer(kind, key)
        if data is None:
            return None
        return self.behind(kind, oci.parse_pointer(data)[0], verify, key)

    def behind(self, kind: str, manifest: str, verify: Verify, key: str | None = None) -> Artifact:
        """The artifact of the manifest with this hex digest, which must be the one of `key`.

        Raises:
            CorruptArtifactError: as for `load`.
        """
        if not self._checked:
            layout.check_features(self._root)
            self._checked = True
        found, spec_size, layers = oci.parse_manifest(self._blobs.read(manifest))
        if key is not None and found != key:
            raise CorruptArtifactError(f"its pointer names the manifest of {found[:12]}")
        if len(self._blobs.read(found)) != spec_size:
            raise CorruptArtifactError(f"its manifest gives the spec {spec_size} bytes")
        if verify != "none":
            for layer in layers:
                self._blobs.verify(oci.hex_of(layer.digest), layer.size, full=verify == "full")
        return Artifact(kind, found, f"sha256:{manifest}", layers)

    def provenance(self, artifact: Artifact) -> str | None:
        """Hex digest of the provenance recorded with the artifact.

        Raises:
            CorruptArtifactError: the pointer is broken.
        """
        data = self._pointer(artifact.kind, artifact.key)
        if data is None:
            return None
        manifest, provenance = oci.parse_pointer(data)
        return provenance if f"sha256:{manifest}" == artifact.manifest_digest else None

    def touch(self, kind: str, key: str) -> None:
        """Record a use, at most hourly, where the store can be written."""
        path = self.path(kind, key)
        with suppress(OSError):
            touch(path, os.stat(path))

    def _pointer(self, kind: str, key: str) -> bytes | None:
        try:
            with open(self.path(kind, key), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None


def pointer_bytes(manifest: str, size: int, provenance: str | None = None) -> bytes:
    """A pointer: the OCI descriptor of a manifest.

    Provenance hangs on it and not on the manifest, so that two builds with the same inputs and
    outputs have one manifest whatever their dates.
    """
    pointer: dict[str, Any] = {
        "mediaType": oci.MANIFEST,
        "artifactType": oci.ARTIFACT_TYPE,
        "digest": f"sha256:{manifest}",
        "size": size,
    }
    if provenance is not None:
        pointer["annotations"] = {oci.PROVENANCE_ANNOTATION: f"sha256:{provenance}"}
    return json.dumps(pointer, sort_keys=True).encode()
