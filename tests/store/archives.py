"""Tars byte by byte, for what no well-behaved tool writes, and archives made of them."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import NeuronCompileError
from neuroncompile.keys import canonical_bytes
from neuroncompile.store import Store, oci
from neuroncompile.store.archive import BLOBS, LAYOUT_BYTES
from neuroncompile.store.archive_read import import_tar

END = bytes(1024)
TERABYTE = b"\x80" + (1 << 40).to_bytes(11, "big")  # as GNU tar and Go write it


def member(
    name: str | bytes,
    data: bytes = b"",
    *,
    kind: bytes = b"0",
    link: bytes = b"",
    mode: int = 0o644,
    size: int | bytes | None = None,
    prefix: bytes = b"",
    magic: bytes = b"ustar\x0000",
    pad: bool = True,
) -> bytes:
    """A header with a right checksum, whatever it says, and the data."""
    raw = name.encode() if isinstance(name, str) else name
    said = len(data) if size is None else size
    length = said if isinstance(said, bytes) else b"%011o\0" % said
    before = (
        raw.ljust(100, b"\0") + b"%07o\0" % mode + b"0000000\0" * 2 + length + b"0" * 11 + b"\0"
    )
    after = kind + link.ljust(100, b"\0") + magic + bytes(64) + b"0000000\0" * 2
    after += prefix.ljust(155, b"\0") + bytes(12)
    total = sum(before) + 8 * 32 + sum(after)
    return before + b"%06o\0 " % total + after + data + (bytes(-len(data) % 512) if pad else b"")


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Forgery:
    """An archive's parts, right until a test makes one wrong.

    Attributes:
        spec, files: of the one artifact; files by title, with their media types.
        index_entry: added to the index's descriptor.
        extra: members after the rest.
    """

    spec: dict[str, Any] = field(default_factory=lambda: {"schema": 1, "kind": "graph", "n": 0})
    files: dict[str, bytes] = field(default_factory=lambda: {"program.json": b"{}", "a.so": b"so"})
    media_types: dict[str, str] = field(default_factory=dict)
    index_entry: dict[str, Any] = field(default_factory=dict)
    manifest_extra: dict[str, Any] = field(default_factory=dict)
    spec_bytes: bytes | None = None
    manifest_bytes: bytes | None = None

    @property
    def config(self) -> bytes:
        return canonical_bytes(self.spec) if self.spec_bytes is None else self.spec_bytes

    @property
    def key(self) -> str:
        return sha(self.config)

    @property
    def manifest(self) -> bytes:
        if self.manifest_bytes is not None:
            return self.manifest_bytes
        descriptors = [
            oci.Descriptor(
                title,
                f"sha256:{sha(data)}",
                len(data),
                self.media_types.get(title, "application/octet-stream"),
            )
            for title, data in self.files.items()
        ]
        plain = oci.build_manifest(self.key, len(self.config), descriptors)
        if not self.manifest_extra:
            return plain
        return json.dumps({**json.loads(plain), **self.manifest_extra}).encode()

    @property
    def index(self) -> bytes:
        entry = {
            "mediaType": oci.MANIFEST,
            "digest": f"sha256:{sha(self.manifest)}",
            "size": len(self.manifest),
            **self.index_entry,
        }
        return json.dumps({"schemaVersion": 2, "manifests": [entry]}).encode()

    def blobs(self) -> dict[str, bytes]:
        every = [self.manifest, self.config, *self.files.values()]
        return {f"{BLOBS}/{sha(data)}": data for data in every}

    def parts(self) -> dict[str, bytes]:
        return {"oci-layout": LAYOUT_BYTES, "index.json": self.index, **self.blobs()}

    def members(self) -> list[bytes]:
        return [member(name, data) for name, data in self.parts().items()]

    def tar(self, *more: bytes, first: Iterable[bytes] = ()) -> bytes:
        return b"".join([*first, *self.members(), *more, END])

    def directory(self, path: Path) -> Path:
        (path / BLOBS).mkdir(parents=True)
        for name, data in self.parts().items():
            (path / name).write_bytes(data)
        return path


def split(data: bytes) -> list[bytes]:
    """The members of a valid tar, headers and padding included, without the end mark."""
    found, at = [], 0
    while data[at : at + 512].strip(b"\0"):
        size = int(data[at + 124 : at + 135], 8)
        length = 512 + size + -size % 512
        found.append(data[at : at + length])
        at += length
    return found


class Pipe(io.RawIOBase):
    """Bytes a few at a time that cannot be sought in, as a pipe gives them."""

    def __init__(self, data: bytes, piece: int = 700) -> None:
        self._data, self._at, self._piece = data, 0, piece

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._data[self._at : self._at + min(len(buffer), self._piece)]
        buffer[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    @property
    def exhausted(self) -> bool:
        return self._at >= len(self._data)


class Canary:
    """A store inside a directory with files that must not change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "above").mkdir(parents=True)
        (root / "above" / "file").write_text("canary")
        (root / "target").symlink_to(root / "above")
        self.store = Store(root / "store", on_warning=print)
        self.store.scratch("warm").rmdir()  # the store's own files are there before
        self.before = self.state()

    def state(self) -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for path in self.root.rglob("*"):
            seen = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path.relative_to(self.root))] = (seen.st_mode, seen.st_nlink, data)
        return found

    def refuses(self, data: bytes, match: str | None = None) -> NeuronCompileError:
        with pytest.raises(NeuronCompileError, match=match) as caught:
            import_tar(self.store, Pipe(data))
        assert caught.value.exit_code in (7, 9)
        assert self.state() == self.before, "a refused archive leaves nothing"
        return caught.value


__all__ = ["END", "TERABYTE", "Canary", "Forgery", "Pipe", "member", "sha", "split"]
