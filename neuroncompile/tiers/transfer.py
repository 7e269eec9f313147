"""Pull and push: artifacts between a store and a tier.

Pull. Pointer; manifest, whose SHA-256 must be the pointer's digest and whose `config.digest`
must be the key; then only the blobs that the store lacks, a few at a time, hashed as they come
into `partial/`; then `Store.adopt`, which names nothing that is not whole. What has come stays
in `partial/` when the pull fails or dies, and the next one asks only for the rest.

Push. The blobs that the tier lacks, the manifest, the provenance, and the pointer last, unless
the name is taken. So a half-pushed artifact has no name. If somebody else was first, theirs is
kept if it is whole; a broken one is replaced, as in a store.
"""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from neuroncompile.errors import CorruptArtifactError, TierError
from neuroncompile.store import Artifact, Descriptor, Store
from neuroncompile.store.actions import pointer_bytes
from neuroncompile.store.durable import guarded
from neuroncompile.store.oci import ACTION, hex_of, parse_manifest, parse_pointer
from neuroncompile.tiers.base import BlobNotFoundError, Tier, failure_class, tier_error
from neuroncompile.tiers.partial import Partial

__all__ = ["Pulled", "Pushed", "Remote", "find", "lacking", "pull", "push"]

Progress = Callable[[str, int, int | None], None]

_BLOBS = 4  # on their way at once
_TRIES = 2  # without getting on; each request has tries of its own besides
_WRONG = 2  # times that a blob may come with other bytes
_STEP = 8 << 20  # bytes that count as getting on
_AGAIN = frozenset({"interrupted", "short", "unreachable"})


class Remote(NamedTuple):
    """An artifact in a tier: its key and manifest are checked, its blobs are not."""

    kind: str
    key: str
    manifest: bytes
    provenance: str | None


class Pulled(NamedTuple):
    """An artifact that came from a tier, and what it took."""

    artifact: Artifact
    blobs: int
    size: int


class Pushed(NamedTuple):
    """What a push sent; `named` is False where the tier had the artifact already."""

    blobs: int
    size: int
    named: bool


def find(tier: Tier, kind: str, key: str) -> Remote | None:
    """The artifact that a tier has for a key, or None.

    Raises:
        TierError: it cannot be read, or what is there is not the artifact of this key.
    """
    pointer = tier.get_pointer(kind, key)
    return None if pointer is None else _behind(tier, kind, key, pointer)


def _behind(tier: Tier, kind: str, key: str, pointer: bytes) -> Remote:
    try:
        name, provenance = parse_pointer(pointer)
        manifest = tier.fetch(name)
        found = parse_manifest(manifest)[0]
    except CorruptArtifactError as error:
        raise _broken(tier, kind, key, str(error)) from None
    if found != key:
        raise _broken(tier, kind, key, f"it names the manifest of {found[:12]}")
    return Remote(kind, key, manifest, provenance)


def _broken(tier: Tier, kind: str, key: str, why: str) -> TierError:
    return tier_error(
        tier.url,
        f"the pointer of {kind} {key[:12]} is broken: {why}",
        "corrupt",
        "`neuroncompile build … --push` replaces it",
    )


def lacking(store: Store, tier: Tier, remote: Remote) -> list[Descriptor]:
    """Blobs that neither has: with any of them, a pull cannot end well. Nothing is moved."""
    return tier.missing(store.missing(remote.manifest))


def pull(
    store: Store,
    tier: Tier,
    kind: str,
    key: str,
    *,
    progress: Progress | None = None,
    on_warning: Callable[[str], None] | None = None,
) -> Pulled | None:
    """Bring the artifact of a key into the store; None if the tier has none that is complete.

    Raises:
        TierError: the tier fails, or serves other bytes than it should; nothing is named.
        StoreError: the store cannot be written.
    """
    try:
        remote = find(tier, kind, key)
        if remote is None:
            return None
        wanted = store.missing(remote.manifest)
        provenance = _provenance(tier, remote)
        parts = _Incoming(store, tier, kind, progress).fetch(wanted)
    except BlobNotFoundError as error:
        if on_warning is not None:
            on_warning(f"{kind} {key[:12]} is incomplete and treated as missing: {error}")
        return None
    try:
        # One that has gone was given to another pull of the same blob, which has kept it.
        files: dict[str, Path | bytes] = {
            name: part.path for name, part in parts.items() if part.path.exists()
        }
        hashed = {name: parts[name].seen for name in files}
        artifact = store.adopt(kind, remote.manifest, files, provenance=provenance, hashed=hashed)
    except BaseException as error:
        for part in parts.values():
            part.give_up()
        if isinstance(error, CorruptArtifactError):
            raise _broken(tier, kind, key, str(error)) from None
        raise
    for part in parts.values():
        part.remove()
    return Pulled(artifact, len(wanted), sum(d.size for d in wanted))


def _provenance(tier: Tier, remote: Remote) -> bytes | None:
    """How it came to be is worth having, and not worth failing for."""
    if remote.provenance is None:
        return None
    try:
        record = tier.fetch(remote.provenance)
        json.loads(record)
    except (TierError, ValueError, RecursionError):
        return None
    return record


class _Incoming:
    """The blobs of one artifact on their way in."""

    def __init__(self, store: Store, tier: Tier, kind: str, progress: Progress | None) -> None:
        self._store, self._tier, self._progress = store, tier, progress
        self._what = f"pulling {kind} from {tier.url}"
        self._directory = store.root / "v1" / "partial"
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._done = self._total = 0
        self._alone = False

    def fetch(self, wanted: Sequence[Descriptor]) -> dict[str, Partial]:
        """All of them, by hex digest; if one fails, what has come of the others is kept."""
        self._total = sum(d.size for d in wanted)
        self._alone = len(wanted) == 1
        self._say(0)
        parts: dict[str, Partial] = {}
        with ThreadPoolExecutor(_BLOBS, thread_name_prefix="pull") as pool:
            futures = [(hex_of(d.digest), pool.submit(self._blob, d)) for d in wanted]
            try:
                for name, future in futures:
                    parts[name] = future.result()
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                for _, future in futures:
                    if future.done() and not future.cancelled() and not future.exception():
                        future.result().give_up()
                raise
        return parts

    def _blob(self, wanted: Descriptor) -> Partial:
        with guarded(self._store.root, f"cannot keep what comes from {self._tier.url}"):
            part = Partial(self._directory, hex_of(wanted.digest), wanted.size, alone=self._alone)
            try:
                self._say(part.offset)
                self._receive(part, hex_of(wanted.digest), wanted.size)
                part.close()
            except BaseException:
                part.give_up()
                raise
        return part

    def _receive(self, part: Partial, name: str, size: int) -> None:
        """Go on until the blob is whole, or too often nothing more comes."""
        tries = wrong = 0
        while not part.whole:
            before = part.offset
            if before >= size:
                if (wrong := wrong + 1) > _WRONG:
                    raise self._tier.corrupt(name)
                part.restart()
                self._say(-before)
            try:
                self._read(part, name, size)
                failure = None
            except TierError as error:
                if failure_class(error) not in _AGAIN:
                    raise
                failure = error
            if part.offset >= size:
                continue
            tries = 1 if part.offset - before >= _STEP else tries + 1
            if tries >= _TRIES:
                raise failure or self._short(name, part.offset, size)
            self._stop.wait(0.1 * 2**tries * random.uniform(0.5, 1.5))

    def _read(self, part: Partial, name: str, size: int) -> None:
        for chunk in self._tier.read(name, part.offset, size):
            if self._stop.is_set():
                raise tier_error(self._tier.url, "the pull was given up", "other", "try again")
            part.append(chunk)
            self._say(len(chunk))
            if part.offset > size:
                return

    def _short(self, name: str, offset: int, size: int) -> TierError:
        return tier_error(
            self._tier.url,
            f"blob {name[:12]} ends after {offset} of {size} bytes",
            "short",
            "try again; what has come is kept",
            digest=f"sha256:{name}",
        )

    def _say(self, more: int) -> None:
        with self._lock:
            self._done += more
            if self._progress is not None and self._total:
                self._progress(self._what, self._done, self._total)


def push(
    store: Store,
    tier: Tier,
    artifact: Artifact,
    *,
    repair: Collection[str] = (),
    progress: Progress | None = None,
) -> Pushed:
    """Bring an artifact into a tier.

    Args:
        repair: digests (`sha256:…`) of blobs that the tier has with wrong bytes.

    Raises:
        TierError: the tier fails; then it has no new name.
        CorruptArtifactError: the store's own bytes are wrong or gone.
    """
    with store.hold(artifact):
        return _push(store, tier, artifact, repair, progress)


def _push(
    store: Store,
    tier: Tier,
    artifact: Artifact,
    repair: Collection[str],
    progress: Progress | None,
) -> Pushed:
    manifest = store.manifest_of(artifact)
    kind, key, name = artifact.kind, artifact.key, hex_of(artifact.manifest_digest)
    blobs = _blobs_of(manifest)
    tier.prepare()
    taken = tier.get_pointer(kind, key)
    if taken is not None and not repair and _is_whole(tier, kind, key, taken):
        return Pushed(0, 0, named=False)
    wanted = {d.digest: d for d in tier.missing(blobs)}
    wanted |= {d.digest: d for d in blobs if d.digest in repair}
    _send(store, tier, kind, list(wanted.values()), progress)
    record = store.provenance_bytes(artifact)
    small = [(name, manifest)]
    if record is not None:
        import hashlib

        small.append((hashlib.sha256(record).hexdigest(), record))
    for digest, data in small:
        tier.write(digest, data)
    pointer = pointer_bytes(name, len(manifest), *(digest for digest, _ in small[1:]))
    named = tier.put_pointer(kind, key, pointer)
    if not named:
        taken = tier.get_pointer(kind, key)
        if taken is None or not _is_whole(tier, kind, key, taken):
            named = tier.put_pointer(kind, key, pointer, replace=True)
    return Pushed(len(wanted), sum(d.size for d in wanted.values()), named)


def _blobs_of(manifest: bytes) -> list[Descriptor]:
    """The spec and the layers, each blob once."""
    key, size, layers = parse_manifest(manifest)
    found = {f"sha256:{key}": Descriptor("spec", f"sha256:{key}", size, ACTION)}
    for layer in layers:
        found.setdefault(layer.digest, layer)
    return list(found.values())


def _is_whole(tier: Tier, kind: str, key: str, pointer: bytes) -> bool:
    """Whether what has the name in a tier can be pulled, as far as can be seen without."""
    try:
        remote = _behind(tier, kind, key, pointer)
    except BlobNotFoundError:
        return False
    except TierError as error:
        if failure_class(error) != "corrupt":
            raise
        return False
    return not tier.missing(_blobs_of(remote.manifest))


def _send(
    store: Store,
    tier: Tier,
    kind: str,
    wanted: Sequence[Descriptor],
    progress: Progress | None,
) -> None:
    what = f"pushing {kind} to {tier.url}"
    total, done, lock = sum(d.size for d in wanted), 0, threading.Lock()

    def send(blob: Descriptor) -> None:
        nonlocal done
        path = store.blob_path(blob.digest)
        if not path.is_file():
            raise CorruptArtifactError(f"blob {hex_of(blob.digest)[:12]} is missing")
        tier.write(hex_of(blob.digest), path)
        with lock:
            done += blob.size
            if progress is not None:
                progress(what, done, total)

    if progress is not None and total:
        progress(what, 0, total)
    with ThreadPoolExecutor(_BLOBS, thread_name_prefix="push") as pool:
        try:
            for _ in pool.map(send, wanted):
                pass
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
