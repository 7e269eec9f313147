"""What has arrived of an archive, what explains it, and whether all of it is right.

Blobs may come before the index and the manifests that explain them. Until all manifests are
known, everything is kept in scratch; from then on, what they do not name is refused as soon as
its header is seen, and what the store has already is hashed and dropped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neuroncompile.errors import ConfigError, CorruptArtifactError, StoreError, TrustError
from neuroncompile.keys import canonical_bytes
from neuroncompile.store import archive, oci
from neuroncompile.store.actions import Artifact
from neuroncompile.store.archive import Root
from neuroncompile.store.durable import guarded, write_all
from neuroncompile.store.local import Store
from neuroncompile.store.pickled import pickled_by_content, pickled_by_name

__all__ = ["Imported", "Intake", "Progress", "Taken"]

Progress = Callable[[str, int, int | None], None]
"""Called with what goes on, bytes done, and bytes in all where that is known."""

_AGAIN = "copy or export it again; it was damaged, or made by something else"
_MANIFESTS_LIMIT = 1 << 27  # bytes of all together, which are in memory
PINS = "pins/"  # below refs/: what the collector keeps here
_KIND = frozenset("abcdefghijklmnopqrstuvwxyz_")


@dataclass(frozen=True, slots=True)
class Imported:
    """An artifact of the archive and what became of it.

    Attributes:
        artifact: the one in the store: the archive's, or another that its key had already.
        new: it was not here before.
        same: its manifest is the archive's.
        names: refs that lead to it now.
        refused: refs of the archive that were not set, each with the reason.
    """

    artifact: Artifact
    new: bool
    same: bool
    names: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Taken:
    """What an import brought.

    Attributes:
        artifacts: in the order of the archive's index.
        new_bytes: of blobs that the store did not have whole.
        known_bytes: of blobs that it had.
    """

    artifacts: tuple[Imported, ...]
    new_bytes: int
    known_bytes: int


@dataclass(frozen=True, slots=True)
class _Manifest:
    data: bytes
    key: str
    spec_size: int
    layers: tuple[oci.Descriptor, ...]


class Intake:
    """One archive on its way in.

    Args:
        scratch: an empty directory of `store.scratch`; nothing is written elsewhere before all
            is known to be right.
        trust: take pickles too.
        size: bytes of the archive, if known, for progress.
    """

    def __init__(
        self,
        store: Store,
        scratch: Path,
        *,
        trust: bool,
        size: int | None = None,
        on_progress: Progress | None = None,
    ) -> None:
        self._store, self._scratch, self._trust = store, scratch, trust
        self._size, self._on_progress = size, on_progress or (lambda *_: None)
        self._done = 0
        self._has_layout = False
        self._roots: dict[str, Root] | None = None
        self._manifests: dict[str, _Manifest] = {}
        self._expected: dict[str, int] = {}  # what index and manifests name: digest and size
        self._optional: set[str] = set()  # provenance: its size is nowhere
        self._missing: set[str] = set()  # of the expected, what the store has not
        self._seen: dict[str, int] = {}
        self._kept: dict[str, Path] = {}
        self._refs: dict[str, str] = {}
        self._stored = self._new_bytes = self._manifest_bytes = 0

    # ---- arriving

    def layout(self, data: bytes) -> None:
        """`oci-layout` has come."""
        archive.check_layout(data)
        self._has_layout = True

    def index(self, roots: Sequence[Root]) -> None:
        """The index has come: these are the artifacts."""
        self._roots = {root.manifest: root for root in roots}
        for root in roots:
            self._expect(root.manifest, root.size, "a manifest")
            if root.provenance:
                self._optional.add(root.provenance)
        for name in self._roots.keys() & self._kept.keys():
            self._manifest(name)

    @property
    def explained(self) -> bool:
        """Is it known of every blob whether it belongs here?"""
        return self._roots is not None and len(self._manifests) == len(self._roots)

    def wanted(self) -> list[tuple[str, int | None, bool]]:
        """Digest, size if known, and whether it has to be read, of all that is yet to come."""
        roots = self._roots or {}
        named = [
            (name, size, name in self._missing or name in roots)
            for name, size in self._expected.items()
            if name not in self._seen
        ]
        optional = sorted(self._optional - self._expected.keys() - self._seen.keys())
        return named + [(name, None, True) for name in optional]

    def passed(self, name: str, size: int) -> None:
        """A blob is there that the store has already; it was not read."""
        self._hold(name)
        self._seen[name] = size

    def _hold(self, name: str) -> None:
        """Keep a blob of the store's, which the collector may take before it is named."""
        if name not in self._kept:
            with suppress(OSError):  # not everywhere are links; then adopting may fail
                os.link(self._store.blob_path(name), self._scratch / name)
                self._kept[name] = self._scratch / name

    def blob(self, name: str, size: int, chunks: Iterable[bytes]) -> None:
        """A blob has come.

        Raises:
            StoreError: its bytes are not what its name says, or nothing names it.
        """
        wanted = self._expected.get(name)
        if self.explained and wanted is None and name not in self._optional:
            raise _unexplained(name)
        if wanted is not None and wanted != size:
            raise StoreError(f"{_path(name)} has {size} bytes instead of {wanted}", hint=_AGAIN)
        if name in self._optional and wanted is None and size > archive.JSON_LIMIT:
            raise StoreError(f"{_path(name)} has {size} bytes, too many for provenance")
        keep = not self.explained or name in self._missing or name in self._optional
        received = self._counted(chunks)
        if keep:
            path = self._scratch / name
            with guarded(self._store.root, "cannot take the archive in"):
                found = _written(path, received)
            self._kept[name] = path
        else:
            self._hold(name)
            found = _hashed(received)
        if found != name:
            raise CorruptArtifactError(
                f"{_path(name)} does not hold what its name says", hint=_AGAIN
            )
        self._seen[name] = size
        if self._roots is not None and name in self._roots:
            self._manifest(name)

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for chunk in chunks:
            yield chunk
            self._done += len(chunk)
            self._on_progress("reading", self._done, self._size)

    def _manifest(self, name: str) -> None:
        """Read a manifest that has come, and expect what it names."""
        data = self._small(name)
        try:
            key, spec_size, layers = oci.parse_manifest(data)
        except CorruptArtifactError as error:
            raise CorruptArtifactError(f"manifest {name[:12]}: {error}", hint=_AGAIN) from None
        if not layers:
            raise StoreError(f"manifest {name[:12]} has no files")
        self._manifests[name] = _Manifest(data, key, spec_size, layers)
        self._manifest_bytes += len(data)
        if self._manifest_bytes > _MANIFESTS_LIMIT:
            raise StoreError(f"the archive's manifests have over {_MANIFESTS_LIMIT} bytes")
        self._expect(key, spec_size, "a spec")
        for layer in layers:
            self._expect(oci.hex_of(layer.digest), layer.size)
            if what := pickled_by_name(layer.title, layer.media_type):
                self._needs_trust(layer, key, what)
        self._missing |= {oci.hex_of(d.digest) for d in self._store.missing(data)}

    def _expect(self, name: str, size: int, what: str | None = None) -> None:
        if what and size > archive.JSON_LIMIT:
            raise StoreError(f"{_path(name)} has {size} bytes, too many for {what}")
        for known in (self._expected.get(name), self._seen.get(name)):
            if known not in (None, size):
                raise StoreError(f"{_path(name)} has {known} bytes in one place and {size} in one")
        self._expected[name] = size

    def _needs_trust(self, layer: oci.Descriptor, key: str, what: str) -> None:
        if not self._trust:
            raise TrustError(
                f"{layer.title!r} of artifact {key[:12]} is {what}: reading it runs code",
                hint="--trust takes it in, if you trust whoever made the archive",
                details={"key": key, "file": layer.title, "digest": layer.digest},
            )

    def _small(self, name: str) -> bytes:
        """A manifest, spec or provenance, from scratch or else from the store."""
        path = self._kept.get(name) or self._store.blob_path(name)
        with guarded(self._store.root, "cannot read back"), open(path, "rb") as file:
            data = file.read(archive.JSON_LIMIT + 1)
        if hashlib.sha256(data).hexdigest() != name:  # also: larger than the limit
            raise CorruptArtifactError(f"{_path(name)} is too large, or changed while it was read")
        return data

    # ---- all is here

    def finish(self) -> Taken:
        """Check what is left to check, and put everything into the store.

        Raises:
            StoreError: the archive is not whole; nothing of it is in the store.
            TrustError: it holds a pickle.
        """
        roots = self._complete()
        kinds = {name: self._kind(root) for name, root in roots.items()}
        records = {name: self._provenance(root) for name, root in roots.items()}
        if not self._trust:
            for manifest in self._manifests.values():
                self._look_inside(manifest)
        self._refs = self._store.refs()
        self._new_bytes = sum(self._seen[name] for name in self._missing)
        known = self._expected.keys() - self._missing - roots.keys()
        imported = [self._adopt(r, kinds[name], records[name]) for name, r in roots.items()]
        return Taken(tuple(imported), self._new_bytes, sum(self._expected[name] for name in known))

    def _complete(self) -> dict[str, Root]:
        for there, name in ((self._has_layout, archive.LAYOUT), (self._roots, archive.INDEX)):
            if there is None or there is False:
                raise StoreError(f"the archive has no {name}", hint=_AGAIN)
        assert self._roots is not None
        for name in self._expected:
            if name not in self._seen:
                raise StoreError(f"the archive lacks {_path(name)}", hint=_AGAIN)
        for name in self._seen:
            if name not in self._expected and name not in self._optional:
                raise _unexplained(name)
        return self._roots

    def _kind(self, root: Root) -> str:
        """The kind by the spec, which the index must not contradict."""
        key = self._manifests[root.manifest].key
        data = self._small(key)
        try:
            document = json.loads(data)
            kind = document["kind"]
            good = isinstance(kind, str) and canonical_bytes(document) == data
        except (ValueError, KeyError, TypeError, RecursionError, ConfigError):
            good = False
        if not good or not 0 < len(kind) <= 32 or not _KIND.issuperset(kind):
            raise StoreError(f"{_path(key)} is not the spec of an artifact")
        if (root.kind or kind, root.key or key) != (kind, key):
            raise StoreError(f"the index calls {kind} {key[:12]} {root.kind} {str(root.key)[:12]}")
        return str(kind)

    def _look_inside(self, manifest: _Manifest) -> None:
        for layer in manifest.layers:
            name = oci.hex_of(layer.digest)
            path = self._kept.get(name) or self._store.blob_path(name)
            with guarded(self._store.root, "cannot read back"), open(path, "rb") as file:
                what = pickled_by_content(file)
            if what:
                self._needs_trust(layer, manifest.key, what)

    def _adopt(self, root: Root, kind: str, provenance: bytes | None) -> Imported:
        manifest = self._manifests[root.manifest]
        before = self._store.lookup(kind, manifest.key)
        if before is None or before.manifest_digest != f"sha256:{root.manifest}":
            self._on_progress("keeping", self._stored, self._new_bytes)
            lacking = [oci.hex_of(d.digest) for d in self._store.missing(manifest.data)]
            files = {name: self._kept[name] for name in lacking if name in self._kept}
            artifact = self._store.adopt(kind, manifest.data, files, provenance=provenance)
            self._stored += sum(self._seen[name] for name in lacking)
        else:
            artifact = before
        same = artifact.manifest_digest == f"sha256:{root.manifest}"
        names, refused = self._name(root, artifact)
        return Imported(artifact, before is None and same, same, names, refused)

    def _provenance(self, root: Root) -> bytes | None:
        if root.provenance is None or root.provenance not in self._seen:
            return None
        data = self._small(root.provenance)
        try:
            good = isinstance(json.loads(data), dict)
        except (ValueError, RecursionError):
            good = False
        return data if good else None

    def _name(
        self, root: Root, artifact: Artifact
    ) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Set the refs that are free; which lead to the artifact now, and which do not."""
        set_: list[str] = []
        refused: list[tuple[str, str]] = []
        for name in root.names:
            if why := self._set(name, artifact):
                refused.append((name, why))
            else:
                set_.append(name)
        return tuple(set_), tuple(refused)

    def _set(self, name: str, artifact: Artifact) -> str | None:
        """Let the ref lead to the artifact; why not, if it cannot."""
        if name.startswith(PINS):
            return "pins are each store's own"
        holder = self._refs.get(name)
        try:
            if holder is None:
                self._store.set_ref(name, artifact)
        except StoreError as error:
            if error.details.get("errno") in (None, "ENOTDIR", "EISDIR", "EEXIST"):
                return str(error)  # unusable, or a part of another, or has parts
            raise
        if holder in (None, artifact.manifest_digest):
            self._refs[name] = artifact.manifest_digest
            return None
        return "it names another artifact here"


def _written(path: Path, chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        for chunk in chunks:
            digest.update(chunk)
            write_all(descriptor, chunk)
    finally:
        os.close(descriptor)
    return digest.hexdigest()


def _hashed(chunks: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def _path(name: str) -> str:
    return f"{archive.BLOBS}/{name[:12]}…"


def _unexplained(name: str) -> StoreError:
    return StoreError(
        f"{_path(name)} belongs to no artifact of the archive",
        hint=_AGAIN,
        details={"digest": f"sha256:{name}"},
    )
