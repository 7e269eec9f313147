"""`Store`: look up, publish, view and lease artifacts in one directory tree."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.keys import canonical_bytes, digest_of
from neuroncompile.store import layout, locks, oci
from neuroncompile.store.actions import Artifact, Verify
from neuroncompile.store.durable import guarded, unique_name
from neuroncompile.store.publisher import Publisher
from neuroncompile.store.reader import Reader
from neuroncompile.store.refs import no_match
from neuroncompile.store.upkeep import Upkeep
from neuroncompile.store.views import Views

if TYPE_CHECKING:
    from neuroncompile.store.usage import Size

__all__ = ["Row", "Store"]

_KEY_DIGITS = 8  # of a key that a person types


class Row(NamedTuple):
    """An artifact in a listing: what it is, what it takes, last use (Unix time), and where."""

    kind: str
    key: str
    size: Size
    used: float
    spec: dict[str, Any]
    home: Path


class Store(Upkeep):
    """The artifact store under `root`, in `root/v1`; the package's docstring has its rules.

    Args:
        root: the directory; it and all below is made by the first write, never by a read.
        layers: roots of stores below, which are only read, in the order they are asked.
        on_warning: told what was broken but not fatal, such as a corrupt artifact that is
            treated as missing. None drops it.
    """

    def __init__(
        self,
        root: Path,
        *,
        layers: Sequence[Path] = (),
        on_warning: Callable[[str], None] | None = None,
    ) -> None:
        self._warn = on_warning or (lambda _: None)
        own = Reader(Path(root).absolute(), self._warn)
        super().__init__(own)
        below = [Reader(Path(layer).absolute(), self._warn, frozen=True) for layer in layers]
        self._readers = [own, *(reader for reader in below if reader.root != own.root)]
        self._views = Views(self._v1)
        self._publisher = Publisher(self._v1, self._blobs, self._actions, self._warn)

    # ---- reading

    def lookup(
        self, kind: str, key: str, *, verify: Verify = "stat", touch: bool = True
    ) -> Artifact | None:
        """The artifact of a key, or None; what is not provably whole is a miss, with a warning.

        Args:
            verify: `stat` hashes the files that changed since they were last hashed; `full`
                hashes all.
            touch: record the use, at most hourly, for least-recently-used collection.

        Raises:
            StoreError: the store cannot be read, or was made by a newer version.
        """
        for reader in self._readers:
            artifact = reader.load(kind, key, verify)
            if artifact is not None:
                if touch and reader is self._own:
                    self._actions.touch(kind, key)
                return artifact
        return None

    def artifacts(self, kind: str | None = None) -> Iterator[Artifact]:
        """All artifacts, or those of a kind, by kind and key; their layers are not checked."""
        for (name, key), reader in self._names(kind).items():
            artifact = reader.load(name, key, "none")
            if artifact is not None:
                yield artifact

    def rows(self, kind: str | None = None) -> Iterator[Row]:
        """All artifacts, or those of a kind, with their sizes: for listings of thousands.

        Specs are checked against their keys; files are only counted.
        """
        from neuroncompile.store import usage

        seen = set[tuple[str, str]]()
        for reader in self._readers:
            with guarded(reader.root, "cannot read"):
                found = usage.measure(reader.v1)
            for (name, key), size in found.sizes.items():
                if (name, key) in seen or kind not in (None, name):
                    continue
                seen.add((name, key))
                try:
                    spec = json.loads(reader.read(f"sha256:{key}"))
                except CorruptArtifactError as error:
                    self._warn(f"{name} {key[:12]} is skipped: {error}")
                    continue
                yield Row(name, key, size, found.used[name, key], spec, reader.root)

    def _names(self, kind: str | None = None) -> dict[tuple[str, str], Reader]:
        """Kind and key → reader of every pointer, sorted; the upper one hides those below."""
        found: dict[tuple[str, str], Reader] = {}
        for reader in self._readers:
            for name in reader.names(kind):
                found.setdefault(name, reader)
        return dict(sorted(found.items(), key=lambda item: item[0]))

    def find(self, text: str) -> Artifact:
        """The artifact that a person means: a ref, 8 or more digits of a key, or `sha256:…`
        of a key or a manifest.

        Raises:
            StoreError: nothing or more than one fits; the candidates are in the message.
            CorruptArtifactError: it is there and broken.
        """
        for reader in self._readers:
            manifest = reader.named(text) or reader.named(f"pins/{text}")
            if manifest is not None:
                with guarded(reader.root, "cannot read"):
                    found = reader.actions.behind("", manifest, "stat")
                    kind = str(json.loads(reader.read(f"sha256:{found.key}")).get("kind"))
                    return Artifact(kind, found.key, found.manifest_digest, found.layers)
        wanted = text.strip().lower().removeprefix("sha256:")
        names = list(self._names())
        matches = [name for name in names if wanted and name[1].startswith(wanted)]
        if len(wanted) >= _KEY_DIGITS and not matches:
            digest = f"sha256:{wanted}"
            matches = [
                (a.kind, a.key) for a in self.artifacts() if a.manifest_digest.startswith(digest)
            ]
        if len(wanted) >= _KEY_DIGITS and len(matches) == 1:
            for reader in self._readers:
                with guarded(reader.root, "cannot read"):
                    if (artifact := reader.actions.load(*matches[0], "stat")) is not None:
                        return artifact
        others = sorted(self.refs())[:4] + [f"{kind} {key[:16]}" for kind, key in names[:4]]
        raise no_match(text, matches, others, _KEY_DIGITS)

    def home(self, artifact: Artifact) -> Path:
        """Root of the store that has the artifact: this one's, or a layer's."""
        return self._home(artifact).root

    def _home(self, artifact: Artifact) -> Reader:
        if len(self._readers) > 1:
            for reader in self._readers:
                if reader.has(artifact):
                    return reader
        return self._own

    def spec_of(self, artifact: Artifact) -> dict[str, Any]:
        """The spec: all inputs of the artifact.

        Raises:
            CorruptArtifactError: its blob is missing or differs from its digest.
        """
        spec: dict[str, Any] = json.loads(self._home(artifact).read(f"sha256:{artifact.key}"))
        return spec

    def provenance_of(self, artifact: Artifact) -> dict[str, Any] | None:
        """How the artifact came to be, if that was recorded and is still there."""
        data = self.provenance_bytes(artifact)
        record: dict[str, Any] | None = None if data is None else json.loads(data)
        return record

    def provenance_bytes(self, artifact: Artifact) -> bytes | None:
        """The record of `provenance_of`, byte for byte."""
        return self._home(artifact).provenance(artifact)

    def manifest_of(self, artifact: Artifact) -> bytes:
        """The manifest, byte for byte.

        Raises:
            CorruptArtifactError: its blob is missing or differs from its digest.
        """
        return self._home(artifact).read(artifact.manifest_digest)

    def last_used(self, artifact: Artifact) -> float:
        """Unix time of the last use, to the hour; 0 when the pointer is gone."""
        return self._home(artifact).used(artifact)

    def blob_path(self, digest: str) -> Path:
        """Where the blob with this digest is kept; read-only, as every blob."""
        paths = [reader.blobs.path(oci.hex_of(digest)) for reader in self._readers]
        return next((path for path in paths[:-1] if path.exists()), paths[-1])

    def view(self, artifact: Artifact) -> Path:
        """A read-only directory with the artifact's files under their titles.

        On a store that cannot be written and holds no view yet, it is a directory of symbolic
        links in the system's temporary directory, for the life of this process.

        Raises:
            CorruptArtifactError: a file is missing.
        """
        with guarded(self.root, "cannot make a view"):
            home = self._home(artifact)
            manifest = oci.hex_of(artifact.manifest_digest)
            if home is not self._own:
                made = Views(home.v1).whole(manifest, artifact.layers, home.blobs)
                if made is not None:
                    return made
            return self._views.get(manifest, artifact.layers, home.blobs)

    @contextmanager
    def lease(self, artifact: Artifact) -> Iterator[Path]:
        """The view, protected from the collector inside the block.

        Raises:
            CorruptArtifactError: the artifact has been removed since it was looked up.
        """
        with self.hold(artifact):
            yield self.view(artifact)

    @contextmanager
    def hold(self, artifact: Artifact) -> Iterator[None]:
        """Protect the blobs from the collector inside the block, without making a view.

        A layer below is not ours to protect; whoever collects there must know its readers.

        Raises:
            CorruptArtifactError: the artifact has been removed since it was looked up.
        """
        from neuroncompile.store import leases

        manifest, taken = oci.hex_of(artifact.manifest_digest), None
        try:
            with guarded(self.root, "cannot lease"), locks.shared(self._v1):
                actions = self._home(artifact).actions
                actions.behind(artifact.kind, manifest, "stat", artifact.key)
                taken = leases.take(self._v1, manifest)
            yield
        finally:
            if taken is not None:
                taken.release()

    # ---- writing

    def publish(
        self,
        kind: str,
        spec: Mapping[str, Any],
        layers: Sequence[oci.Layer],
        *,
        provenance: Mapping[str, Any] | None = None,
    ) -> Artifact:
        """Keep an artifact under the key of its spec; the first writer wins.

        Returns the winner: ours, or the whole artifact that was there already. A broken one is
        set aside and replaced. The manifest does not depend on `provenance`.

        Raises:
            StoreError: the store cannot be written; nothing half-made is left.
        """
        if not layers:
            raise ValueError("an artifact needs at least one file")
        oci.check_titles(layer.title for layer in layers)
        spec_bytes = canonical_bytes(spec)
        key = digest_of(spec_bytes)
        self._actions.path(kind, key)
        record = None if provenance is None else json.dumps(provenance, sort_keys=True).encode()
        with guarded(self.root, f"cannot publish {kind} {key[:12]}"):
            layout.prepare(self._v1)
            artifact = self._publisher.publish(kind, key, spec_bytes, layers, record)
            self._failures.forget(kind, key)
            return artifact

    def missing(self, manifest: bytes) -> list[oci.Descriptor]:
        """Blobs of a manifest, its spec first, that are not here whole; each once.

        Raises:
            CorruptArtifactError: not the manifest of an artifact.
        """
        key, size, layers = oci.parse_manifest(manifest)
        wanted = {f"sha256:{key}": oci.Descriptor("spec", f"sha256:{key}", size, oci.ACTION)}
        for layer in layers:
            wanted.setdefault(layer.digest, layer)
        with guarded(self.root, "cannot look up"):
            return [d for d in wanted.values() if not self._blobs.whole(d)]

    def adopt(
        self,
        kind: str,
        manifest: bytes,
        files: Mapping[str, Path | bytes],
        *,
        provenance: bytes | None = None,
        hashed: Mapping[str, os.stat_result] | None = None,
    ) -> Artifact:
        """Keep an artifact that was made elsewhere, under its own manifest.

        Args:
            files: hex digest → bytes or path of each blob that `missing` named; a path below a
                `scratch` or `partial` directory is linked instead of copied. All bytes are
                hashed here, except those of `hashed`.
            hashed: hex digest → state of a file that was hashed as it was written; it is
                hashed again only if it has changed since.

        Returns the artifact of its key: this one, or the whole one that was there already.

        Raises:
            CorruptArtifactError: a blob is missing or differs from its digest; nothing is named.
            StoreError: the store cannot be written.
        """
        key = oci.parse_manifest(manifest)[0]
        self._actions.path(kind, key)
        with guarded(self.root, f"cannot keep {kind} {key[:12]}"):
            layout.prepare(self._v1)
            for name, seen in (hashed or {}).items():
                self._blobs.vouch(name, seen)
            artifact = self._publisher.adopt(kind, manifest, files, provenance)
            self._failures.forget(kind, key)
            return artifact

    @contextmanager
    def single_flight(
        self, kind: str, key: str, on_wait: Callable[[locks.Holder, float], None] | None = None
    ) -> Iterator[None]:
        """Let one process of this host at a time into the block of a key.

        Look up again inside: the one before may have published. `on_wait(holder, seconds)` is
        called while waiting; a holder that dies is noticed within a second. Across hosts, and
        in threads of one process where `flock` does not work, two may get in: the first to
        publish wins.

        Raises:
            StoreError: the store cannot be written.
        """
        name = self._lock_name(kind, key)
        with locks.wait_for(self._v1, name, f"{kind} {key}", on_wait):
            yield

    def try_claim(self, kind: str, key: str) -> locks.Claim | None:
        """The lock of a key if it is free now, to use in `with` or to `release`; else None."""
        claim = locks.claim(self._v1, self._lock_name(kind, key), f"{kind} {key}")
        return claim if isinstance(claim, locks.Claim) else None

    def _lock_name(self, kind: str, key: str) -> str:
        self._actions.path(kind, key)
        with guarded(self.root, "cannot write"):
            layout.prepare(self._v1)  # so that a build that could not be kept is never begun
        return f"{kind}-{key}"

    def scratch(self, name: str) -> Path:
        """A new empty directory on the store's file system; the caller removes it.

        Files below it are taken into the store without copying.
        """
        with guarded(self.root, "cannot make a work directory"):
            layout.prepare(self._v1)
            path = self._v1 / "tmp" / unique_name(name)
            os.mkdir(path)
            return path
