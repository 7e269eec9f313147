"""Refs: names that people give to artifacts, and the words for a name that fits none."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import locks, oci
from neuroncompile.store.durable import make_directory, replace_file, sync_directory, sync_up

__all__ = ["Refs", "no_match"]

_LEGAL = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/@+")


class Refs:
    """`refs/` of a store, and its projection `index.json`, which other OCI tools read."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._directory = root / "refs"

    def get(self, name: str) -> str | None:
        """Hex digest of the manifest that has this name, or None.

        Raises:
            CorruptArtifactError: the ref is not an OCI descriptor.
        """
        if _objection(name):
            return None
        try:
            with open(self._directory / name, "rb") as file:
                return oci.parse_pointer(file.read())[0]
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            return None

    def names(self) -> list[str]:
        """All names, sorted."""
        found = []
        for directory, _, files in os.walk(self._directory):
            for file in files:
                found.append(os.path.relpath(os.path.join(directory, file), self._directory))
        return sorted(found)

    def set(self, name: str, manifest: str, size: int) -> None:
        """Name a manifest of `size` bytes, and rewrite the index.

        Raises:
            StoreError: the name is unusable.
            CorruptArtifactError: a blob of the artifact is missing, as after a collection.
        """
        if objection := _objection(name):
            raise StoreError(
                f"{name!r} cannot be a ref: {objection}",
                hint="use letters, digits and . _ - / @ +, and not only hex digits",
            )
        path = self._directory / name
        with locks.shared(self._root):  # so that what is there now will be there
            self._check_present(manifest)
            make_directory(path.parent)
            replace_file(self._root / "tmp", path, _dump(_descriptor(manifest, size)))
            sync_up(path.parent, self._root)
        with locks.wait_for(self._root, "index", "index.json", None):
            self._project()

    def remove(self, name: str) -> None:
        """Take a name away, if it is one, and rewrite the index."""
        if _objection(name):
            return
        with suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            os.unlink(self._directory / name)
            sync_directory((self._directory / name).parent)
            try:
                with locks.wait_for(self._root, "index", "index.json", None):
                    self._project()
            except (OSError, StoreError) as error:
                cause = error if isinstance(error, OSError) else error.__cause__
                if getattr(cause, "errno", None) not in (errno.ENOSPC, errno.EDQUOT):
                    raise  # a full disk must not keep anybody from letting things go

    def _check_present(self, manifest: str) -> None:
        blobs = self._root / "blobs" / "sha256"
        try:
            key, _, layers = oci.parse_manifest((blobs / manifest).read_bytes())
        except FileNotFoundError:
            raise CorruptArtifactError(f"manifest {manifest[:12]} has been removed") from None
        for name in (key, *(oci.hex_of(layer.digest) for layer in layers)):
            if not os.path.exists(blobs / name):
                raise CorruptArtifactError(f"blob {name[:12]} is missing")

    def _project(self) -> None:
        entries = []
        for name in self.names():
            with suppress(OSError, ValueError):
                entry = json.loads((self._directory / name).read_bytes())
                entries.append({**entry, "annotations": {oci.REF_NAME: name}})
        index = {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries}
        replace_file(self._root / "tmp", self._root / "index.json", _dump(index))


def _objection(name: str) -> str | None:
    """Why this cannot be a ref, or None."""
    try:
        oci.check_titles([name])
    except StoreError as error:
        return str(error)
    if not _LEGAL.issuperset(name):
        return "it has characters that OCI tools refuse"
    if len(name) >= 8 and frozenset("0123456789abcdefABCDEF").issuperset(name):
        return "it could be a key"
    return None


def _descriptor(manifest: str, size: int) -> dict[str, Any]:
    return {
        "mediaType": oci.MANIFEST,
        "artifactType": oci.ARTIFACT_TYPE,
        "digest": f"sha256:{manifest}",
        "size": size,
    }


def _dump(document: dict[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True).encode()


def no_match(
    text: str, matches: Sequence[tuple[str, str]], others: Sequence[str], digits: int
) -> StoreError:
    """The error for a name that fits no artifact, or several.

    Args:
        matches: kind and key of the artifacts that fit.
        others: what could have been meant, if nothing fits.
        digits: how many hex digits of a key are asked for at least.
    """
    candidates = [f"{kind} {key[:16]}" for kind, key in matches[:8]]
    if not matches:
        has = f"; it has {', '.join(others)}" if others else ""
        return StoreError(
            f"no artifact {text!r} in the store{has}",
            hint="`neuroncompile store ls` lists what is there",
            details={"candidates": list(others)},
        )
    if len(text) < digits:
        why, hint = "is too short for a key", f"give at least {digits} hex digits"
    else:
        why, hint = f"fits {len(matches)} artifacts", "give more digits"
    return StoreError(
        f"{text!r} {why}: {', '.join(candidates)}", hint=hint, details={"candidates": candidates}
    )
