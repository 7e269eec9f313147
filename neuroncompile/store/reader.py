"""One directory tree, read: the store that is written, or a layer below it that never is."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import oci
from neuroncompile.store.actions import Actions, Artifact, Verify
from neuroncompile.store.blobs import Blobs
from neuroncompile.store.durable import guarded
from neuroncompile.store.refs import Refs

__all__ = ["Reader"]


class Reader:
    """The tree under `root/v1`; see `Store` for what its methods promise.

    Args:
        frozen: a layer, in which nothing is written even where it could be.
    """

    def __init__(self, root: Path, warn: Callable[[str], None], *, frozen: bool = False) -> None:
        self.root = root
        self.v1 = root / "v1"
        self.blobs = Blobs(self.v1, frozen=frozen)
        self.actions = Actions(self.v1, self.blobs)
        self.refs = Refs(self.v1)
        self._warn = warn

    def load(self, kind: str, key: str, verify: Verify) -> Artifact | None:
        """The artifact of a key, or None; a broken one is None with a warning."""
        with guarded(self.root, "cannot read"):
            try:
                return self.actions.load(kind, key, verify)
            except CorruptArtifactError as error:
                self._warn(f"{kind} {key[:12]} is treated as missing: {error}")
                return None

    def named(self, name: str) -> str | None:
        """Hex digest of the manifest that has this ref."""
        with guarded(self.root, "cannot read"):
            return self.refs.get(name)

    def names(self, kind: str | None = None) -> list[tuple[str, str]]:
        """Kind and key of every pointer."""
        with guarded(self.root, "cannot read"):
            return self.actions.names(kind)

    def has(self, artifact: Artifact) -> bool:
        """Whether manifest and files are here, by name and size."""
        with guarded(self.root, "cannot read"):
            return os.path.exists(self.blobs.path(oci.hex_of(artifact.manifest_digest))) and all(
                self.blobs.present(oci.hex_of(d.digest), d.size) for d in artifact.layers
            )

    def read(self, digest: str) -> bytes:
        """A small blob, checked; raises CorruptArtifactError."""
        with guarded(self.root, "cannot read"):
            return self.blobs.read(oci.hex_of(digest))

    def provenance(self, artifact: Artifact) -> bytes | None:
        """The record of how an artifact came to be."""
        with guarded(self.root, "cannot read"), suppress(CorruptArtifactError):
            name = self.actions.provenance(artifact)
            return None if name is None else self.blobs.read(name)
        return None

    def used(self, artifact: Artifact) -> float:
        """Unix time of the last use, 0 without a pointer."""
        try:
            return os.stat(self.actions.path(artifact.kind, artifact.key)).st_mtime
        except FileNotFoundError:
            return 0.0
