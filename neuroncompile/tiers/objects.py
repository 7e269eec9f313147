"""Tiers in an object store or a shared directory, through obstore.

The tree is the store's own, so a directory tier may be another host's store, and
`aws s3 sync` of a store makes a tier:

    <prefix>/v1/oci-layout            marks the tree, and shows that we may read it
    <prefix>/v1/blobs/sha256/<hex>
    <prefix>/v1/actions/<kind>/<hex>

Nothing here lists a bucket except `actions`. Without the right to list, S3 answers 403 for what
is absent; a 403 counts as absent once `v1/oci-layout` could be read.

Single requests are retried by obstore, with backoff and jitter, after a reset, a timeout or a
5xx. Uploads hash what they send: a blob with other bytes than its name never gets one.
"""

from __future__ import annotations

import hashlib
import os
import random
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from neuroncompile.errors import CorruptArtifactError, TierError
from neuroncompile.store import Descriptor
from neuroncompile.store.oci import hex_of, is_hex
from neuroncompile.tiers.base import TRANSIENT, BlobNotFoundError, Tier, failure_class, tier_error
from neuroncompile.tiers.explain import explained, is_absent
from neuroncompile.tiers.ranges import Range
from neuroncompile.tiers.urls import Location

if TYPE_CHECKING:
    from obstore.store import ClientConfig, LocalStore, RetryConfig, S3Store

__all__ = ["RETRIES", "TIMEOUT", "ObjectTier"]

TIMEOUT = 30.0  # seconds without a byte before a request is given up
RETRIES = 6  # of one request

_RANGE = 8 << 20  # bytes of one ranged request
_AHEAD = 4  # ranges of one blob that are fetched before they are asked for
_THREADS = 8
_PART = 16 << 20  # bytes of one part of an upload
_PARTS = 9000  # S3 takes 10,000
_PIECE = 256 << 10  # bytes that a reader gets at least, and after which it may stop
_UPLOAD = 4 << 20
_LAYOUT = "v1/oci-layout"


class ObjectTier(Tier):
    """A bucket and prefix, or a directory.

    Args:
        place: from `parse_url`.
        timeout: seconds without a byte before a request is given up and tried again.
        retries: of one request.
        create: make a directory tier's directory if it is not there.
    """

    def __init__(
        self,
        place: Location,
        *,
        timeout: float = TIMEOUT,
        retries: int = RETRIES,
        create: bool = False,
    ) -> None:
        self.url = place.url
        self.network = place.scheme != "file"
        self._directory = Path(place.path) if place.scheme == "file" else None
        self._retries = retries if self.network else 0
        self._marked = False
        self._readable: bool | None = None
        self._threads: ThreadPoolExecutor | None = None
        self._store: LocalStore | S3Store
        try:
            if self._directory is not None:
                self._store = _local_store(self._directory, create=create)
            else:
                self._store = _s3_store(place, timeout, retries)
        except Exception as error:  # obstore's, and ValueError for a malformed AWS_* variable
            raise explained(self.url, "cannot open", error) from None

    def prepare(self) -> None:
        if not self._marked:
            self._create(_LAYOUT, b'{"imageLayoutVersion":"1.0.0"}', "cannot write")
            self._marked, self._readable = True, None

    # ---- pointers

    def get_pointer(self, kind: str, key: str) -> bytes | None:
        try:
            return self._get(f"v1/actions/{kind}/{key}", f"cannot look up {kind} {key[:12]}")
        except TierError as error:
            if self._hides_absent(error):
                return None
            raise

    def put_pointer(self, kind: str, key: str, data: bytes, *, replace: bool = False) -> bool:
        path, doing = f"v1/actions/{kind}/{key}", f"cannot name {kind} {key[:12]}"
        if not replace:
            return self._create(path, data, doing)
        try:
            self._put(path, data)
        except Exception as error:
            raise explained(self.url, doing, error) from None
        self._settle(path)
        return True

    def actions(self, kind: str | None = None) -> Iterator[tuple[str, str]]:
        import obstore

        found = []
        prefix = "v1/actions/" + (f"{kind}/" if kind else "")
        try:
            for batch in obstore.list(self._store, prefix=prefix):
                for item in batch:
                    parts = item["path"].split("/")
                    if len(parts) == 4 and is_hex(parts[3]):
                        found.append((parts[2], parts[3]))
        except Exception as error:
            raise explained(self.url, "cannot list", error) from None
        return iter(sorted(found))

    # ---- blobs

    def missing(self, blobs: Iterable[Descriptor]) -> list[Descriptor]:
        wanted = list(blobs)
        sizes = self._pool().map(lambda d: self._size(hex_of(d.digest)), wanted)
        return [d for d, size in zip(wanted, sizes, strict=True) if size != d.size]

    def read(
        self, name: str, offset: int = 0, size: int | None = None
    ) -> Iterator[bytes | memoryview]:
        chunks = self._stream(name, offset, size)
        while True:
            try:
                chunk = next(chunks, None)
            except TierError as error:
                if self._hides_absent(error):
                    raise self._absent(name) from None
                raise
            except Exception as error:
                if is_absent(error):
                    raise self._absent(name) from None
                raise explained(self.url, f"cannot read blob {name[:12]}", error) from None
            if chunk is None:
                return
            yield chunk

    def write(self, name: str, source: Path | bytes) -> None:
        import obstore

        path = _blob(name)
        try:
            if isinstance(source, bytes):
                self._put(path, _checked(name, source))
            elif (size := os.stat(source).st_size) <= _PART:
                self._put(path, _checked(name, source.read_bytes()))
            else:
                obstore.put(
                    self._store,
                    path,
                    _pieces(name, source),
                    chunk_size=max(_PART, -(-size // _PARTS)),
                    max_concurrency=4,
                )
        except CorruptArtifactError:
            raise
        except Exception as error:
            raise explained(self.url, f"cannot write blob {name[:12]}", error) from None
        self._settle(path, 0o444)

    def close(self) -> None:
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)

    # ---- inside

    def _pool(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="tier")
        return self._threads

    def _get(self, path: str, doing: str) -> bytes | None:
        import obstore

        try:
            return bytes(obstore.get(self._store, path).bytes())
        except Exception as error:
            if is_absent(error):
                return None
            raise explained(self.url, doing, error) from None

    def _put(self, path: str, data: bytes, *, create: bool = False) -> None:
        import obstore

        obstore.put(
            self._store,
            path,
            data,
            mode="create" if create else "overwrite",
            use_multipart=False,
        )

    def _create(self, path: str, data: bytes, doing: str) -> bool:
        """Put an object unless there is one; False if there is.

        obstore does not retry this, because an attempt that broke off may have been the one
        that won. Then the name is ours, and False is what a lost race looks like, too.
        """
        from obstore.exceptions import AlreadyExistsError

        for attempt in range(self._retries + 1):
            try:
                self._put(path, data, create=True)
            except AlreadyExistsError:
                return False
            except Exception as error:
                failed = explained(self.url, doing, error)
                if attempt == self._retries or failure_class(failed) not in TRANSIENT:
                    raise failed from None
                time.sleep(min(5.0, 0.1 * 2**attempt) * random.uniform(0.5, 1.5))
                continue
            self._settle(path)
            return True
        return False

    def _size(self, name: str) -> int | None:
        """Of a blob; None where it is absent, or may not be seen: then writing it will tell."""
        import obstore

        try:
            return int(obstore.head(self._store, _blob(name))["size"])
        except Exception as error:
            if is_absent(error):
                return None
            failed = explained(self.url, f"cannot look for blob {name[:12]}", error)
            if failure_class(failed) == "forbidden":
                return None
            raise failed from None

    def _stream(self, name: str, offset: int, size: int | None) -> Iterator[bytes | memoryview]:
        import obstore

        if size is not None and size - offset > _RANGE:
            yield from self._ahead(name, offset, size)
            return
        options: dict[str, dict[str, int]] = {"range": {"offset": offset}} if offset else {}
        result = obstore.get(self._store, _blob(name), options=options or None)  # type: ignore[arg-type]
        yield from result.stream(min_chunk_size=_PIECE)

    def _ahead(self, name: str, offset: int, size: int) -> Iterator[bytes]:
        """Ranges in order, some in flight while the reader hashes and writes the one before."""
        pool = self._pool()
        flying: deque[Range] = deque()
        try:
            for start in range(offset, size, _RANGE):
                flying.append(Range(pool, self._range, name, start, min(start + _RANGE, size)))
                if len(flying) >= _AHEAD:
                    yield from flying.popleft()
            while flying:
                yield from flying.popleft()
        finally:
            for one in flying:
                one.stop()

    def _range(self, name: str, start: int, end: int) -> Iterator[bytes]:
        import obstore

        result = obstore.get(self._store, _blob(name), options={"range": (start, end)})
        left = end - start
        for chunk in result.stream(min_chunk_size=_PIECE):
            left -= len(chunk)
            yield chunk
        if left:
            raise tier_error(
                self.url,
                f"blob {name[:12]} ends {left} bytes too early",
                "short",
                "try again; what has come is kept",
            )

    def _absent(self, name: str) -> BlobNotFoundError:
        return BlobNotFoundError(
            f"tier {self.url}: blob {name[:12]} is not there",
            details={"class": "missing", "tier": self.url, "digest": f"sha256:{name}"},
        )

    def _hides_absent(self, error: TierError) -> bool:
        """Whether a 403 may mean no more than that the object is absent."""
        if failure_class(error) != "forbidden" or self._directory is not None:
            return False
        if self._readable is None:
            try:
                self._readable = self._get(_LAYOUT, "cannot read") is not None
            except TierError:
                self._readable = False
        return self._readable

    def _settle(self, path: str, mode: int | None = None) -> None:
        """Make a file durable before anything names it; an object store does so itself."""
        if self._directory is None:
            return
        file = self._directory / path
        try:
            for place in (file, file.parent):
                descriptor = os.open(place, os.O_RDONLY)
                try:
                    if place == file and mode is not None:
                        os.fchmod(descriptor, mode)
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)
        except OSError as error:
            why = OSError(f"(os error {error.errno})")
            raise explained(self.url, "cannot write", why) from None


def _blob(name: str) -> str:
    return f"v1/blobs/sha256/{name}"


def _local_store(directory: Path, *, create: bool) -> LocalStore:
    from obstore.store import LocalStore

    return LocalStore(str(directory), mkdir=create)


def _s3_store(place: Location, timeout: float, retries: int) -> S3Store:
    from obstore.store import S3Store

    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=min(5.0, timeout)),
        "read_timeout": timedelta(seconds=timeout),
        "timeout": timedelta(hours=1),  # of a whole body; a stalled one is given up before
    }
    if endpoint.startswith("http://"):
        client["allow_http"] = True
    retry: RetryConfig = {
        "max_retries": retries,
        "retry_timeout": timedelta(seconds=max(60.0, 2 * timeout)),
        "backoff": {
            "init_backoff": timedelta(milliseconds=200),
            "max_backoff": timedelta(seconds=5),
            "base": 2,
        },
    }
    prefix = place.path or None
    return S3Store(place.bucket, prefix=prefix, client_options=client, retry_config=retry)


def _checked(name: str, data: bytes) -> bytes:
    if hashlib.sha256(data).hexdigest() != name:
        raise _other_bytes(name)
    return data


def _pieces(name: str, source: Path) -> Iterator[bytes]:
    """The file in pieces; an exception before the end keeps the upload from being completed."""
    digest = hashlib.sha256()
    with open(source, "rb", buffering=0) as file:
        piece = file.read(_UPLOAD)
        while piece:
            digest.update(piece)
            following = file.read(_UPLOAD)
            if not following and digest.hexdigest() != name:
                raise _other_bytes(name)
            yield piece
            piece = following


def _other_bytes(name: str) -> CorruptArtifactError:
    return CorruptArtifactError(
        f"blob {name[:12]} is not pushed: its bytes differ from its digest",
        hint="`neuroncompile store verify --repair`, then build again",
        details={"digest": f"sha256:{name}"},
    )
