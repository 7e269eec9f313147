"""Publish: from finished files to a pointer, and the same for what comes from elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import locks, oci
from neuroncompile.store.actions import Actions, Artifact, pointer_bytes
from neuroncompile.store.blobs import Blobs
from neuroncompile.store.durable import (
    link_new,
    make_directory,
    set_aside,
    sync_directory,
    sync_up,
    unique_name,
    write_file,
)

__all__ = ["Publisher"]

_ATTEMPTS = 8  # to publish where something keeps breaking what was written


class Publisher:
    """The writing half of a store: everything a pointer needs first, then the pointer."""

    def __init__(
        self, root: Path, blobs: Blobs, actions: Actions, warn: Callable[[str], None]
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._actions = actions
        self._warn = warn

    def publish(
        self,
        kind: str,
        key: str,
        spec: bytes,
        layers: Sequence[oci.Layer],
        provenance: bytes | None,
    ) -> Artifact:
        """Keep `layers` under `key`, the SHA-256 of `spec`."""
        inputs = _Inputs(spec, layers, provenance)
        kept = [self._blobs.ingest(layer) for layer in inputs.all]
        descriptors = [
            oci.Descriptor(layer.title, f"sha256:{name}", size, layer.media_type)
            for layer, (name, size) in zip(layers, kept, strict=False)
        ]
        manifest = oci.build_manifest(key, len(spec), descriptors)
        return self._name(kind, key, inputs, kept, manifest)

    def adopt(
        self,
        kind: str,
        manifest: bytes,
        files: Mapping[str, Path | bytes],
        provenance: bytes | None,
    ) -> Artifact:
        """Keep an artifact under the manifest it already has; see `Store.adopt`."""
        key, spec_size, descriptors = oci.parse_manifest(manifest)
        spec = files.get(key)
        if isinstance(spec, Path):
            spec = spec.read_bytes()
        if spec is None:
            spec = self._blobs.read(key)
        _check_spec(kind, key, spec, spec_size)
        layers = [self._layer(descriptor, files) for descriptor in descriptors]
        inputs = _Inputs(spec, layers, provenance)
        kept = []
        for layer, descriptor in zip(layers, descriptors, strict=True):
            kept.append(found := self._blobs.ingest(layer))
            if (f"sha256:{found[0]}", found[1]) != (descriptor.digest, descriptor.size):
                raise CorruptArtifactError(
                    f"{layer.title!r} is not what its manifest says: {found[1]} bytes with the "
                    f"digest {found[0][:12]}",
                    details={"expected": descriptor.digest, "found": f"sha256:{found[0]}"},
                )
        kept += [self._blobs.ingest(layer) for layer in inputs.all[len(layers) :]]
        return self._name(kind, key, inputs, kept, manifest)

    def _layer(self, descriptor: oci.Descriptor, files: Mapping[str, Path | bytes]) -> oci.Layer:
        name = oci.hex_of(descriptor.digest)
        given = files.get(name, self._blobs.path(name))
        if isinstance(given, bytes):
            return oci.Layer(descriptor.title, data=given, media_type=descriptor.media_type)
        if not given.is_file():
            raise CorruptArtifactError(f"{descriptor.title!r} ({name[:12]}) is missing")
        return oci.Layer(descriptor.title, path=given, media_type=descriptor.media_type)

    def _name(
        self,
        kind: str,
        key: str,
        inputs: _Inputs,
        kept: Sequence[tuple[str, int]],
        manifest: bytes,
    ) -> Artifact:
        """Under the collector's lock: everything is still there, then manifest, then pointer."""
        for _ in range(_ATTEMPTS):
            with locks.shared(self._root):
                for layer, (name, size) in zip(inputs.all, kept, strict=True):
                    if not self._blobs.present(name, size):  # collected, or set aside
                        self._ingest_again(layer, name)
                digest, size = self._blobs.ingest_bytes(manifest)
                sync_directory(self._blobs.directory)
                provenance = kept[-1][0] if inputs.has_provenance else None
                artifact = self._point(kind, key, pointer_bytes(digest, size, provenance))
            if artifact is not None:
                return artifact
        raise StoreError(
            f"{kind} {key[:12]} cannot be kept: what is read back differs from what was written",
            hint=f"check the disk of {self._root.parent}, or choose another store with --store DIR",
        )

    def _ingest_again(self, layer: oci.Layer, name: str) -> None:
        """A scratch file shares its inode with the blob, so what broke one broke both."""
        if self._blobs.ingest(layer)[0] != name:
            raise CorruptArtifactError(
                f"{layer.title!r} changed while it was published",
                hint="build again, and let nothing write to finished outputs",
            )

    def _point(self, kind: str, key: str, pointer: bytes) -> Artifact | None:
        """Give a pointer its name unless a whole artifact has it; returns what has it.

        None if that was not whole: it is set aside, and there may be more to write again.
        """
        path = self._actions.path(kind, key)
        make_directory(path.parent)
        staged = self._root / "tmp" / unique_name()
        write_file(staged, pointer)
        link_new(staged, path)
        sync_up(path.parent, self._root)  # the winner may have died before it came to this
        try:
            seen = os.lstat(path)
            artifact = self._actions.load(kind, key, "stat")
        except FileNotFoundError:
            return None
        except CorruptArtifactError as error:
            self._warn(f"{kind} {key[:12]} is replaced: {error}")
            set_aside(path, seen, self._root / "tmp")
            return None
        self._actions.touch(kind, key)
        return artifact


class _Inputs:
    """Files, then spec, then provenance: what must be there before a pointer is."""

    def __init__(self, spec: bytes, layers: Sequence[oci.Layer], provenance: bytes | None) -> None:
        self.all = [*layers, oci.Layer("spec", data=spec)]
        self.has_provenance = provenance is not None
        if provenance is not None:
            self.all.append(oci.Layer("provenance", data=provenance))


def _check_spec(kind: str, key: str, spec: bytes, size: int) -> None:
    try:
        says = json.loads(spec)["kind"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise CorruptArtifactError(f"the spec of {key[:12]} is not one of an artifact") from None
    if says != kind:
        raise CorruptArtifactError(f"{key[:12]} is of the kind {says!r}, not {kind!r}")
    if len(spec) != size:
        raise CorruptArtifactError(f"the manifest of {key[:12]} gives its spec {size} bytes")
