"""A tier in this process's memory: the contract in its shortest form, for tests and trials."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import Descriptor
from neuroncompile.store.oci import hex_of
from neuroncompile.tiers.base import BlobNotFoundError, Tier

__all__ = ["MemoryTier"]

_CHUNK = 1 << 20


class MemoryTier(Tier):
    """Blobs and pointers in two dictionaries."""

    network = False

    def __init__(self, name: str = "here") -> None:
        self.url = f"memory://{name}"
        self.blobs: dict[str, bytes] = {}
        self.pointers: dict[tuple[str, str], bytes] = {}
        self._lock = threading.Lock()

    def get_pointer(self, kind: str, key: str) -> bytes | None:
        return self.pointers.get((kind, key))

    def put_pointer(self, kind: str, key: str, data: bytes, *, replace: bool = False) -> bool:
        with self._lock:
            if (kind, key) in self.pointers and not replace:
                return False
            self.pointers[kind, key] = data
            return True

    def missing(self, blobs: Iterable[Descriptor]) -> list[Descriptor]:
        have = {name: len(data) for name, data in self.blobs.items()}
        return [d for d in blobs if have.get(hex_of(d.digest)) != d.size]

    def read(self, name: str, offset: int = 0, size: int | None = None) -> Iterator[bytes]:
        data = self.blobs.get(name)
        if data is None:
            raise BlobNotFoundError(f"tier {self.url}: blob {name[:12]} is not there")
        for start in range(offset, len(data), _CHUNK):
            yield data[start : start + _CHUNK]

    def write(self, name: str, source: Path | bytes) -> None:
        data = source if isinstance(source, bytes) else source.read_bytes()
        if hashlib.sha256(data).hexdigest() != name:
            raise CorruptArtifactError(f"{name[:12]} is not pushed: its bytes are others")
        self.blobs[name] = data

    def actions(self, kind: str | None = None) -> Iterator[tuple[str, str]]:
        return iter(sorted(name for name in self.pointers if kind in (None, name[0])))
