"""What is said about artifacts and done to them later: names, rejections, removal, repair."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import layout, oci
from neuroncompile.store.actions import Artifact
from neuroncompile.store.durable import guarded
from neuroncompile.store.failures import Failure, Failures
from neuroncompile.store.reader import Reader

if TYPE_CHECKING:  # imported where they are used: a hit does without
    from neuroncompile.store.check import Check
    from neuroncompile.store.events import Totals
    from neuroncompile.store.gc import Policy, Sweep
    from neuroncompile.store.usage import Usage

__all__ = ["Upkeep"]


class Upkeep:
    """The part of a `Store` that neither builds nor reads files."""

    def __init__(self, own: Reader) -> None:
        self._own = own
        self.root = own.root
        self._v1, self._blobs, self._actions, self._refs = own.v1, own.blobs, own.actions, own.refs
        self._failures = Failures(own.v1)

    def failure(self, kind: str, key: str) -> Failure | None:
        """The compiler's rejection of this very spec, while it counts."""
        self._actions.path(kind, key)
        with guarded(self.root, "cannot look up"):
            return self._failures.get(kind, key)

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

        if self.home(artifact) != self.root:
            raise StoreError(
                f"{artifact.kind} {artifact.key[:12]} is in a layer below, which is only read",
                hint="remove it where that store is written, with --store DIR",
            )
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
            return gc.discard(self._v1, artifact.kind, artifact.key, force=force)

    def collect(self, policy: Policy, *, dry_run: bool = True, now: float | None = None) -> Sweep:
        """Remove what the policy lets go, or with `dry_run` only say it; see `store.gc`.

        Raises:
            StoreError: the store cannot be read or written.
        """
        from neuroncompile.store import events, gc

        with guarded(self.root, "cannot collect"):
            if not self._v1.is_dir():
                return gc.Sweep(dry_run)
            layout.check_features(self._v1)
            if not dry_run:
                events.fold(self._v1, self._cost)
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

    def home(self, artifact: Artifact) -> Path:
        """Root of the store that has the artifact."""
        return self.root

    def count(self, event: str, kind: str, key: str) -> None:
        """Count a `hit` or a `miss`, where the store can be written."""
        from neuroncompile.store import events

        events.record(self._v1, event, kind, key)

    def totals(self) -> Totals:
        """Hits, misses and what they saved, since the store was made."""
        from neuroncompile.store import events

        with guarded(self.root, "cannot read"):
            return events.totals(self._v1, self._cost)

    def _cost(self, kind: str, key: str) -> tuple[int, float]:
        """Bytes of an artifact's files and seconds of its build."""
        artifact = self._own.load(kind, key, "none")
        if artifact is None:
            return 0, 0.0
        try:
            seconds = float(json.loads(self._own.provenance(artifact) or b"{}").get("seconds", 0))
        except (ValueError, TypeError, AttributeError):
            seconds = 0.0
        return sum(d.size for d in artifact.layers), seconds

    def usage(self) -> Usage:
        """What every artifact takes, and the store in all."""
        from neuroncompile.store import usage

        with guarded(self.root, "cannot read"):
            return usage.measure(self._v1)

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
