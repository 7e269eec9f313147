"""An archive: one OCI image layout with some artifacts of a store, as a directory or a tar.

    oci-layout
    index.json            a descriptor for each artifact, and for each of its names
    blobs/sha256/<hex>    manifests, specs, layers, provenance; each once

`oras`, `skopeo` and registries read it as any image layout. In the index each descriptor has
the artifact's kind and key, its name if it has one, and the digest of its provenance. A reader
believes none of that: the key is the manifest's `config.digest`, the kind is the spec's.

In a tar the order is this one, manifests first, so that whoever reads from a pipe knows what is
to come, and can refuse or leave out files before they arrive. Any order is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import oci

__all__ = [
    "BLOBS",
    "DIRECTORIES",
    "INDEX",
    "INDEX_LIMIT",
    "JSON_LIMIT",
    "LAYOUT",
    "LAYOUT_BYTES",
    "MEMBER_LIMIT",
    "Root",
    "blob_of",
    "check_layout",
    "index_bytes",
    "joined",
    "parse_index",
    "pointed",
]

LAYOUT = "oci-layout"
INDEX = "index.json"
BLOBS = "blobs/sha256"
DIRECTORIES = frozenset({".", "blobs", BLOBS})
LAYOUT_BYTES = b'{"imageLayoutVersion":"1.0.0"}'

JSON_LIMIT = 1 << 22  # bytes of a manifest, spec or provenance, as registries limit manifests
INDEX_LIMIT = 1 << 24
MEMBER_LIMIT = 1 << 18  # blobs taken in before an index says what they are

KIND = "dev.neuroncompile.kind"
KEY = "dev.neuroncompile.key"


@dataclass(frozen=True, slots=True)
class Root:
    """An artifact as an index or a pointer names it.

    Attributes:
        manifest: hex digest of its manifest.
        size: of its manifest in bytes.
        names: its refs.
        kind: what the index says the kind is, if it does; to be checked.
        key: likewise.
        provenance: hex digest of the record of how it was made.
    """

    manifest: str
    size: int
    names: tuple[str, ...] = ()
    kind: str | None = None
    key: str | None = None
    provenance: str | None = None


def index_bytes(roots: Iterable[Root]) -> bytes:
    """`index.json`: the same for the same artifacts and names, in any order."""
    entries = [
        _descriptor(root, name)
        for root in sorted(roots, key=lambda r: (r.kind or "", r.key or "", r.manifest))
        for name in (*sorted(root.names),) or (None,)
    ]
    index = {"schemaVersion": 2, "mediaType": oci.INDEX, "manifests": entries}
    return json.dumps(index, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _descriptor(root: Root, name: str | None) -> dict[str, Any]:
    provenance = f"sha256:{root.provenance}" if root.provenance else None
    annotations = {
        KIND: root.kind,
        KEY: root.key,
        oci.PROVENANCE_ANNOTATION: provenance,
        oci.REF_NAME: name,
    }
    return {
        "mediaType": oci.MANIFEST,
        "artifactType": oci.ARTIFACT_TYPE,
        "digest": f"sha256:{root.manifest}",
        "size": root.size,
        "annotations": {k: v for k, v in annotations.items() if v is not None},
    }


def parse_index(data: bytes) -> list[Root]:
    """The artifacts of an index, each once with all its names, in the index's order.

    Raises:
        StoreError: not an index, or it names what is not an artifact's manifest.
    """
    document = oci.json_object(data, INDEX)
    entries = document.get("manifests")
    if document.get("schemaVersion") != 2 or not isinstance(entries, list):
        raise StoreError(f"{INDEX} is not an OCI image index")
    roots = []
    for number, entry in enumerate(entries):
        try:
            roots.append(_root_of(entry))
        except CorruptArtifactError as error:
            raise StoreError(f"entry {number} of {INDEX}: {error}") from None
    return joined(roots)


def pointed(data: bytes, kind: str, key: str) -> Root:
    """What a pointer of a store names.

    Raises:
        CorruptArtifactError: it is not a pointer.
        StoreError: it is not even JSON.
    """
    return replace(_root_of(oci.json_object(data, "the pointer")), kind=kind, key=key, names=())


def joined(roots: Iterable[Root]) -> list[Root]:
    """Each artifact once, with all its names.

    Raises:
        StoreError: two descriptors of one manifest contradict each other.
    """
    found: dict[str, Root] = {}
    for root in roots:
        known = found.get(root.manifest)
        found[root.manifest] = root if known is None else _merged(known, root)
    return list(found.values())


def _root_of(entry: object) -> Root:
    """What a descriptor names.

    Raises:
        CorruptArtifactError: it does not describe a manifest.
    """
    if not isinstance(entry, dict):
        raise CorruptArtifactError("it is not a descriptor")
    media_type, kind = entry.get("mediaType"), entry.get("artifactType", oci.ARTIFACT_TYPE)
    if media_type != oci.MANIFEST or kind != oci.ARTIFACT_TYPE:
        raise CorruptArtifactError(
            f"it is {_shown(kind if media_type == oci.MANIFEST else media_type)}, "
            "and not an artifact of neuroncompile"
        )
    size = entry.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= JSON_LIMIT:
        raise CorruptArtifactError(f"a manifest has not {_shown(size)} bytes")
    if entry.get("data") is not None or entry.get("urls"):
        raise CorruptArtifactError("its bytes are elsewhere than in blobs/")
    notes = {} if (found := entry.get("annotations")) is None else found
    if not isinstance(notes, dict):
        raise CorruptArtifactError("its annotations are not an object")
    name, provenance = _note(notes, oci.REF_NAME), _note(notes, oci.PROVENANCE_ANNOTATION)
    return Root(
        oci.hex_of(str(entry.get("digest"))),
        size,
        (name,) if name else (),
        _note(notes, KIND),
        _note(notes, KEY),
        oci.hex_of(provenance) if provenance else None,
    )


def _note(notes: Mapping[str, object], name: str) -> str | None:
    value = notes.get(name)
    if value is not None and not isinstance(value, str):
        raise CorruptArtifactError(f"its annotation {name} is not text")
    return value


def _merged(one: Root, other: Root) -> Root:
    for first, second in ((one.size, other.size), (one.kind, other.kind), (one.key, other.key)):
        if None not in (first, second) and first != second:
            raise StoreError(
                f"manifest {one.manifest[:12]} has two descriptors, one with {_shown(first)} and "
                f"one with {_shown(second)}"
            )
    return Root(
        one.manifest,
        one.size,
        tuple(dict.fromkeys(one.names + other.names)),
        one.kind or other.kind,
        one.key or other.key,
        one.provenance or other.provenance,
    )


def check_layout(data: bytes) -> None:
    """Refuse a layout of another version.

    Raises:
        StoreError: its `oci-layout` says so, or nothing sensible.
    """
    version = oci.json_object(data, LAYOUT).get("imageLayoutVersion")
    if version != "1.0.0":
        raise StoreError(f"{LAYOUT} gives the version {_shown(version)}; 1.0.0 is read")


def blob_of(name: str) -> str | None:
    """Hex digest of the blob that a file of the archive is by its name, or None."""
    directory, _, last = name.rpartition("/")
    return last if directory == BLOBS and oci.is_hex(last) else None


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
