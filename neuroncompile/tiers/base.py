"""`Tier`: what every place that shares artifacts can do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from neuroncompile.errors import TierError
from neuroncompile.store import Descriptor

__all__ = ["SMALL", "TRANSIENT", "BlobNotFoundError", "Tier", "failure_class", "tier_error"]

SMALL = 16 << 20
"""Bytes that a manifest, pointer or provenance may have; more is nothing of ours."""

TRANSIENT = frozenset({"timeout", "unreachable", "interrupted", "server", "short"})
"""Classes of failure after which the same request may well succeed."""


class BlobNotFoundError(TierError):
    """A blob that a manifest names is not in the tier."""


def tier_error(url: str, what: str, failure: str, hint: str, **details: Any) -> TierError:
    """A `TierError` of one class of failure; `url` and `what` hold nothing secret.

    Args:
        failure: `scheme`, `url`, `missing`, `forbidden`, `credentials`, `region`, `timeout`,
            `unreachable`, `interrupted`, `server`, `short`, `corrupt`, `full` or `other`.
    """
    return TierError(
        f"tier {url}: {what}",
        hint=hint,
        details={"class": failure, "field": "tier", "tier": url, **details},
    )


def failure_class(error: TierError) -> str:
    """The class of failure that `tier_error` was given."""
    return str(error.details.get("class", "other"))


class Tier(ABC):
    """A place that many hosts share, with the tree of a store below it.

    A tier promises two things only: an object is there whole or not at all, and of several
    writers who put a pointer that is absent one wins. Everything else is checked by whoever
    reads. All methods may be called from several threads, and raise `TierError`.

    Attributes:
        url: as a user writes it, without anything secret.
        network: whether it takes a network to reach it.
    """

    url: str
    network: bool = True

    @abstractmethod
    def get_pointer(self, kind: str, key: str) -> bytes | None:
        """The pointer of a key, or None; its content is not checked."""

    @abstractmethod
    def put_pointer(self, kind: str, key: str, data: bytes, *, replace: bool = False) -> bool:
        """Name an artifact whose blobs are all there; False if the name is taken.

        Args:
            replace: take the name even then, because what has it is broken.
        """

    @abstractmethod
    def missing(self, blobs: Iterable[Descriptor]) -> list[Descriptor]:
        """Those of `blobs` that are absent or have another size; nothing is transferred."""

    @abstractmethod
    def read(
        self, name: str, offset: int = 0, size: int | None = None
    ) -> Iterator[bytes | memoryview]:
        """The bytes of a blob from `offset` on, in chunks; they are not checked.

        Args:
            name: the blob's SHA-256, 64 hex digits.
            size: of the whole blob, if known: then ranges are fetched ahead of the reader.

        Raises:
            BlobNotFoundError: it is not there.
        """

    @abstractmethod
    def write(self, name: str, source: Path | bytes) -> None:
        """Put a blob, in place of what has its name.

        Raises:
            CorruptArtifactError: the bytes of `source` are not those of `name`; nothing is put.
        """

    @abstractmethod
    def actions(self, kind: str | None = None) -> Iterator[tuple[str, str]]:
        """Kind and key of every pointer. Only this needs the right to list."""

    def fetch(self, name: str, limit: int = SMALL) -> bytes:
        """A small blob, checked against its name.

        Raises:
            BlobNotFoundError: it is not there.
            TierError: its bytes are others, or more than `limit`.
        """
        data = bytearray()
        for chunk in self.read(name):
            data += chunk
            if len(data) > limit:
                break
        if hashlib.sha256(data).hexdigest() != name:
            raise self.corrupt(name)
        return bytes(data)

    def corrupt(self, name: str) -> TierError:
        """The error for a blob whose bytes are not those of its name."""
        return tier_error(
            self.url,
            f"blob {name[:12]} has other bytes than its digest says",
            "corrupt",
            "`neuroncompile build … --push` from a host that has the artifact replaces it",
            digest=f"sha256:{name}",
        )

    def prepare(self) -> None:  # noqa: B027  most tiers need nothing
        """Before the first write: make the tree if it is not there."""

    def close(self) -> None:  # noqa: B027  most tiers hold nothing
        """Give up threads and connections."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
