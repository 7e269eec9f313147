"""OCI names and manifests: media types, titles, `build_manifest`, `parse_manifest`.

An artifact is an OCI image manifest whose config blob is the spec, so `config.digest` is the
key and anyone who holds the manifest can check it. One file is one layer, raw: its digest is
the same in every tier and the file can be hard-linked and mapped. Registries, `oras` and
`skopeo` read the result as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroncompile.errors import CorruptArtifactError, StoreError

__all__ = [
    "ACTION",
    "AOTI",
    "ARTIFACT_TYPE",
    "INDEX",
    "JSON",
    "LOG",
    "MANIFEST",
    "NEFF",
    "PROVENANCE",
    "PROVENANCE_ANNOTATION",
    "REF_NAME",
    "TITLE",
    "TORCHSCRIPT",
    "WEIGHT",
    "Descriptor",
    "Layer",
    "build_manifest",
    "check_titles",
    "digests_of",
    "hex_of",
    "is_hex",
    "parse_manifest",
    "parse_pointer",
]

ARTIFACT_TYPE = "application/vnd.neuroncompile.artifact.v1"
ACTION = "application/vnd.neuroncompile.action.v1+json"
NEFF = "application/vnd.neuroncompile.neff.v1"
TORCHSCRIPT = "application/vnd.neuroncompile.torchscript.v1"
AOTI = "application/vnd.neuroncompile.aoti.v1"
LOG = "application/vnd.neuroncompile.log.v1.tar+zstd"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
JSON = "application/json"
PROVENANCE = "application/vnd.neuroncompile.provenance.v1+json"

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
TITLE = "org.opencontainers.image.title"
REF_NAME = "org.opencontainers.image.ref.name"
PROVENANCE_ANNOTATION = "dev.neuroncompile.provenance"

_HEX = frozenset("0123456789abcdef")
_UNPORTABLE = re.compile(r"[\\\x00-\x1f\x7f]")
_COMPONENT_BYTES = 255  # NAME_MAX of every file system in use


@dataclass(frozen=True, slots=True)
class Layer:
    """A file to publish: `path` of an existing file, or its bytes as `data`.

    Attributes:
        title: relative path of the file in the artifact's view.
        path: where the file is now. A file in a directory of `Store.scratch` is linked into
            the store and becomes read-only; any other file is copied.
        data: the content, instead of `path`.
        media_type: one of the constants of this module, or any other media type.
    """

    title: str
    path: Path | None = None
    data: bytes | None = None
    media_type: str = "application/octet-stream"

    def __post_init__(self) -> None:
        if (self.path is None) == (self.data is None):
            raise ValueError(f"layer {self.title!r} needs either path or data")


@dataclass(frozen=True, slots=True)
class Descriptor:
    """A file of an artifact: its title, `sha256:…` digest, size in bytes and media type."""

    title: str
    digest: str
    size: int
    media_type: str


def hex_of(digest: str) -> str:
    """The 64 hex digits of `sha256:<hex>` or of bare hex.

    Raises:
        CorruptArtifactError: it is not a SHA-256 digest.
    """
    text = digest.removeprefix("sha256:") if isinstance(digest, str) else ""
    if not is_hex(text):
        raise CorruptArtifactError(f"{digest!r} is not a SHA-256 digest")
    return text


def is_hex(text: str) -> bool:
    """Is it the 64 lower-case hex digits of a SHA-256?"""
    return len(text) == 64 and _HEX.issuperset(text)


def check_titles(titles: Iterable[str]) -> None:
    """Refuse titles that could leave the view, or that some file system could not tell apart.

    Raises:
        StoreError: a title is absolute, empty, has `.` or `..` or characters no portable file
            name has, or two titles collide after case-folding.
    """
    files: dict[str, str] = {}
    directories: dict[str, str] = {}
    for title in titles:
        parts = _parts(title)
        folded = [_fold(part) for part in parts]
        name = "/".join(folded)
        if name in files or name in directories:
            raise StoreError(
                f"file names {title!r} and {files.get(name) or directories[name]!r} collide"
            )
        files[name] = title
        for end in range(1, len(folded)):
            parent = "/".join(folded[:end])
            if parent in files:
                raise StoreError(f"{files[parent]!r} is both a file and a directory of {title!r}")
            directories[parent] = title


def _parts(title: str) -> list[str]:
    parts = title.split("/")
    for part in parts:
        if part in {"", ".", ".."}:
            raise StoreError(f"file name {title!r} is not a plain relative path")
        if _UNPORTABLE.search(part):
            raise StoreError(f"file name {title!r} has a character that is not portable")
        try:
            size = len(part.encode())
        except UnicodeEncodeError:
            raise StoreError(f"file name {title!r} is not valid Unicode") from None
        if size > _COMPONENT_BYTES:
            raise StoreError(f"file name {title[:40]!r}… has a part above 255 bytes")
    return parts


def _fold(part: str) -> str:
    if part.isascii():
        return part.lower()
    import unicodedata  # some file systems store NFC and NFD under one name

    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", part).casefold())


def build_manifest(key: str, spec_size: int, layers: Sequence[Descriptor]) -> bytes:
    """The manifest's bytes: the same inputs and outputs give the same digest, in any order."""
    manifest = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "artifactType": ARTIFACT_TYPE,
        "config": {"mediaType": ACTION, "digest": f"sha256:{key}", "size": spec_size},
        "layers": [
            {
                "mediaType": layer.media_type,
                "digest": layer.digest,
                "size": layer.size,
                "annotations": {TITLE: layer.title},
            }
            for layer in sorted(layers, key=lambda d: d.title)
        ],
    }
    return json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def parse_manifest(data: bytes) -> tuple[str, int, tuple[Descriptor, ...]]:
    """Key, size of the spec, and files of a manifest; unknown members are ignored.

    Raises:
        CorruptArtifactError: not a manifest of ours, or one with unsafe file names.
    """
    document = json_object(data, "the manifest")
    if document.get("artifactType") != ARTIFACT_TYPE or document.get("schemaVersion") != 2:
        raise CorruptArtifactError("the manifest is not one of a neuroncompile artifact")
    try:
        config = document["config"]
        if config["mediaType"] != ACTION:
            raise CorruptArtifactError("the manifest's config is not a spec")
        key, spec_size = hex_of(config["digest"]), _size(config["size"])
        layers = tuple(
            Descriptor(
                str(layer["annotations"][TITLE]),
                f"sha256:{hex_of(layer['digest'])}",
                _size(layer["size"]),
                str(layer["mediaType"]),
            )
            for layer in document["layers"]
        )
        check_titles(layer.title for layer in layers)
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptArtifactError(f"the manifest lacks {error}") from None
    except CorruptArtifactError:
        raise
    except StoreError as error:
        raise CorruptArtifactError(f"unsafe manifest: {error}") from None
    return key, spec_size, layers


def digests_of(data: bytes) -> tuple[str, tuple[str, ...]]:
    """Key of a manifest and hex digests of its files; their titles are not looked at.

    Raises:
        CorruptArtifactError: it has no such members.
    """
    document = json_object(data, "the manifest")
    try:
        key = hex_of(document["config"]["digest"])
        return key, tuple(hex_of(layer["digest"]) for layer in document["layers"])
    except (KeyError, TypeError) as error:
        raise CorruptArtifactError(f"the manifest lacks {error}") from None


def parse_pointer(data: bytes) -> tuple[str, str | None]:
    """Hex digests of the manifest and of the provenance that a pointer or ref names.

    Raises:
        CorruptArtifactError: not an OCI descriptor.
    """
    document = json_object(data, "the pointer")
    annotations = document.get("annotations")
    provenance = annotations.get(PROVENANCE_ANNOTATION) if isinstance(annotations, dict) else None
    return hex_of(document.get("digest", "")), hex_of(provenance) if provenance else None


def json_object(data: bytes, what: str) -> dict[str, Any]:
    """The JSON object in a file that `what` names.

    Raises:
        CorruptArtifactError: it is something else.
    """
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise CorruptArtifactError(f"{what} is not JSON") from None
    if not isinstance(document, dict):
        raise CorruptArtifactError(f"{what} is not a JSON object")
    return document


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise CorruptArtifactError(f"{value!r} is not a size")
    return value
