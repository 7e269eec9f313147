"""`Store`: look up, publish, view and lease artifacts in one directory tree."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.keys import canonical_bytes, digest_of
from neuroncompile.store import layout, locks, oci
from neuroncompile.store.actions import Actions, Artifact, Verify
from neuroncompile.store.blobs import Blobs
from neuroncompile.store.durable import guarded, unique_name
from neuroncompile.store.failures import Failure, Failures
from neuroncompile.store.publisher import Publisher
from neuroncompile.store.refs import Refs, no_match
from neuroncompile.store.views import Views

if TYPE_CHECKING:  # imported where they are used: a hit does without
    from neuroncompile.store.check import Check
    from neuroncompile.store.gc import Policy, Sweep

__all__ = ["Store"]

_KEY_DIGITS = 8  # of a key that a person types


class Store:
    """The artifact store under `root`, in `root/v1`; the package's docstring has its rules.

    Args:
        root: the directory; it and all below is made by the first write, never by a read.
        on_warning: told what was broken but not fatal, such as a corrupt artifact that is
            treated as missing. None drops it.
    """

    def __init__(self, root: Path, *, on_warning: Callable[[str], None] | None = None) -> None:
        self.root = Path(root).absolute()
        self._v1 = self.root / "v1"
        self._warn = on_warning or (lambda _: None)
        self._blobs = Blobs(self._v1)
        self._actions = Actions(self._v1, self._blobs)
        self._views = Views(self._v1, self._blobs)
        self._refs = Refs(self._v1)
        self._failures = Failures(self._v1)
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
        with guarded(self.root, "cannot look up"):
            try:
                artifact = self._actions.load(kind, key, verify)
            except CorruptArtifactError as error:
                self._warn(f"{kind} {key[:12]} is treated as missing: {error}")
                return None
            if artifact is not None and touch:
                self._actions.touch(kind, key)
            return artifact

    def artifacts(self, kind: str | None = None) -> Iterator[Artifact]:
        """All artifacts, or those of a kind, by kind and key; their layers are not checked."""
        for name, key in self._actions.names(kind):
            with guarded(self.root, "cannot read"):
                try:
                    artifact = self._actions.load(name, key, "none")
                except CorruptArtifactError as error:
                    self._warn(f"{name} {key[:12]} is skipped: {error}")
                    continue
            if artifact is not None:
                yield artifact

    def find(self, text: str) -> Artifact:
        """The artifact that a person means: a ref, 8 or more digits of a key, or `sha256:…`
        of a key or a manifest.

        Raises:
            StoreError: nothing or more than one fits; the candidates are in the message.
            CorruptArtifactError: it is there and broken.
        """
        with guarded(self.root, "cannot look up"):
            named = self._refs.get(text)
            if named is not None:
                artifact = self._actions.behind("", named, "stat")
                kind = str(self.spec_of(artifact).get("kind"))
                return Artifact(kind, artifact.key, artifact.manifest_digest, artifact.layers)
            wanted = text.strip().lower().removeprefix("sha256:")
            names = self._actions.names()
            matches = [name for name in names if wanted and name[1].startswith(wanted)]
            if len(wanted) >= _KEY_DIGITS and not matches:
                digest = f"sha256:{wanted}"
                matches = [
                    (a.kind, a.key)
                    for a in self.artifacts()
                    if a.manifest_digest.startswith(digest)
                ]
            if len(wanted) >= _KEY_DIGITS and len(matches) == 1:
                found = self._actions.load(*matches[0], "stat")
                if found is not None:
                    return found
            others = self._refs.names()[:4] + [f"{kind} {key[:16]}" for kind, key in names[:4]]
        raise no_match(text, matches, others, _KEY_DIGITS)

    def spec_of(self, artifact: Artifact) -> dict[str, Any]:
        """The spec: all inputs of the artifact.

        Raises:
            CorruptArtifactError: its blob is missing or differs from its digest.
        """
        with guarded(self.root, "cannot read"):
            spec: dict[str, Any] = json.loads(self._blobs.read(artifact.key))
            return spec

    def provenance_of(self, artifact: Artifact) -> dict[str, Any] | None:
        """How the artifact came to be, if that was recorded and is still there."""
        data = self.provenance_bytes(artifact)
        record: dict[str, Any] | None = None if data is None else json.loads(data)
        return record

    def provenance_bytes(self, artifact: Artifact) -> bytes | None:
        """The record of `provenance_of`, byte for byte."""
        with guarded(self.root, "cannot read"), suppress(CorruptArtifactError):
            name = self._actions.provenance(artifact)
            return None if name is None else self._blobs.read(name)
        return None

    def manifest_of(self, artifact: Artifact) -> bytes:
        """The manifest, byte for byte.

        Raises:
            CorruptArtifactError: its blob is missing or differs from its digest.
        """
        with guarded(self.root, "cannot read"):
            return self._blobs.read(oci.hex_of(artifact.manifest_digest))

    def last_used(self, artifact: Artifact) -> float:
        """Unix time of the last use, to the hour; 0 when the pointer is gone."""
        try:
            return os.stat(self._actions.path(artifact.kind, artifact.key)).st_mtime
        except FileNotFoundError:
            return 0.0

    def blob_path(self, digest: str) -> Path:
        """Where the blob with this digest is kept; read-only, as every blob."""
        return self._blobs.path(oci.hex_of(digest))

    def view(self, artifact: Artifact) -> Path:
        """A read-only directory with the artifact's files under their titles.

        On a store that cannot be written and holds no view yet, it is a directory of symbolic
        links in the system's temporary directory, for the life of this process.

        Raises:
            CorruptArtifactError: a file is missing.
        """
        with guarded(self.root, "cannot make a view"):
            return self._views.get(oci.hex_of(artifact.manifest_digest), artifact.layers)

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

        Raises:
            CorruptArtifactError: the artifact has been removed since it was looked up.
        """
        from neuroncompile.store import leases

        manifest, taken = oci.hex_of(artifact.manifest_digest), None
        try:
            with guarded(self.root, "cannot lease"), locks.shared(self._v1):
                self._actions.behind(artifact.kind, manifest, "stat", artifact.key)
                taken = leases.take(self._v1, manifest)
            yield
        finally:
            if taken is not None:
                taken.release()

    def failure(self, kind: str, key: str) -> Failure | None:
        """The compiler's rejection of this very spec, while it counts."""
        self._actions.path(kind, key)
        with guarded(self.root, "cannot look up"):
            return self._failures.get(kind, key)

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
    ) -> Artifact:
        """Keep an artifact that was made elsewhere, under its own manifest.

        Args:
            files: hex digest → bytes or path of each blob that `missing` named; a path below a
                `scratch` directory is linked instead of copied. All bytes are hashed here.

        Returns the artifact of its key: this one, or the whole one that was there already.

        Raises:
            CorruptArtifactError: a blob is missing or differs from its digest; nothing is named.
            StoreError: the store cannot be written.
        """
        key = oci.parse_manifest(manifest)[0]
        self._actions.path(kind, key)
        with guarded(self.root, f"cannot keep {kind} {key[:12]}"):
            layout.prepare(self._v1)
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

    def set_ref(self, name: str, artifact: Artifact) -> None:
        """Give an artifact a name for people, in place of what had it.

        Raises:
            StoreError: the name is unusable, or the store cannot be written.
        """
        manifest = oci.hex_of(artifact.manifest_digest)
        with guarded(self.root, f"cannot name {artifact.key[:12]}"):
            layout.prepare(self._v1)
            self._refs.set(name, manifest, len(self._blobs.read(manifest)))

    def pin(self, name: str, artifact: Artifact) -> None:
        """Keep an artifact until `unpin(name)`, whatever its age and size.

        Raises:
            StoreError: the name is unusable, or the store cannot be written.
        """
        self.set_ref(f"pins/{name}", artifact)

    def unpin(self, name: str) -> None:
        """Let the collector have what this pin kept; without such a pin, nothing happens."""
        with guarded(self.root, f"cannot unpin {name}"):
            self._refs.remove(f"pins/{name}")

    def refs(self) -> dict[str, str]:
        """Name → manifest digest of every ref, pins as `pins/<name>`."""
        found = {}
        with guarded(self.root, "cannot read"):
            for name in self._refs.names():
                with suppress(CorruptArtifactError):
                    if (manifest := self._refs.get(name)) is not None:
                        found[name] = f"sha256:{manifest}"
        return found

    def remove(self, artifact: Artifact, *, force: bool = False) -> int:
        """Remove an artifact with the blobs that only it has; the bytes freed.

        Raises:
            StoreError: it has a name or a pin, or a process uses it, and `force` is not set
                (names then go as well, files in use keep their bytes); or cannot be removed.
        """
        from neuroncompile.store import gc, leases

        with guarded(self.root, f"cannot remove {artifact.key[:12]}"):
            names = [n for n, digest in self.refs().items() if digest == artifact.manifest_digest]
            used = oci.hex_of(artifact.manifest_digest) in leases.held(self._v1)
            if (names or used) and not force:
                why = f"has the name {', '.join(names)}" if names else "is in use"
                raise StoreError(
                    f"{artifact.kind} {artifact.key[:12]} {why}",
                    hint="--force removes it all the same",
                    details={"names": names, "in_use": used},
                )
            for name in names:
                self._refs.remove(name)
            return gc.discard(self._v1, artifact.kind, artifact.key)

    def collect(self, policy: Policy, *, dry_run: bool = True, now: float | None = None) -> Sweep:
        """Remove what the policy lets go, or with `dry_run` only say it; see `store.gc`.

        Raises:
            StoreError: the store cannot be read or written.
        """
        from neuroncompile.store import gc

        with guarded(self.root, "cannot collect"):
            if not self._v1.is_dir():
                return gc.Sweep(dry_run)
            layout.check_features(self._v1)
            return gc.collect(self._v1, policy, dry_run=dry_run, now=now)

    def check(
        self,
        *,
        repair: bool = False,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Check:
        """Hash every blob and follow every name; `problems` is empty when all is well.

        Args:
            repair: set corrupt blobs aside and remove the names that lead to them, so that the
                next build makes them anew.
            on_progress: called with bytes hashed and bytes in all.

        Raises:
            StoreError: the store cannot be read, or with `repair` not be written.
        """
        from neuroncompile.store import check

        with guarded(self.root, "cannot verify"):
            if not self._v1.is_dir():
                return check.Check()
            return check.check(self._v1, repair=repair, on_progress=on_progress)

    def remember_failure(
        self, kind: str, key: str, reason: str, *, log: bytes | None = None
    ) -> None:
        """Remember for 24 hours that the compiler rejects this very spec.

        Only for a rejection that would come again: never for a signal, a time limit, lack of
        memory or disk. A publish under the key forgets it.
        """
        self._actions.path(kind, key)
        with guarded(self.root, "cannot write"):
            layout.prepare(self._v1)
            kept = self._blobs.ingest_bytes(log)[0] if log is not None else None
            self._failures.remember(kind, key, reason, kept)

    def forget_failure(self, kind: str, key: str) -> None:
        """Let the next build try again."""
        self._actions.path(kind, key)
        with guarded(self.root, "cannot write"):
            self._failures.forget(kind, key)
