"""Leases: what living processes use, so that the collector leaves it alone.

A lease is a file that names a manifest and whoever uses it, locked while its process lives; as
Nix's temporary roots. The kernel drops the lock of a dead process, and the record tells of one
whose lock means nothing: on file systems where `flock` always succeeds, or for a child that
inherited the descriptor. A lease of another host or container that is not locked is believed
for a week, because there a lock may not be seen.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from pathlib import Path

from neuroncompile.store import locks
from neuroncompile.store.durable import make_directory, unique_name, write_all

__all__ = ["Lease", "held", "take"]

UNSEEN_SECONDS = 7 * 86400.0
_BEING_WRITTEN = 60.0  # seconds for which a lease without words is believed


class Lease:
    """One manifest in use, until `release`."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Give it up; again is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.unlink(self._path)
            os.close(descriptor)


def take(root: Path, manifest: str) -> Lease | None:
    """A lease on the manifest with this hex digest, under the collector's lock, shared.

    None where nothing can be written, and so nothing collected.
    """
    path = root / "leases" / unique_name()
    try:
        make_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    with suppress(OSError):
        write_all(descriptor, json.dumps({"manifest": manifest, **locks.identity()}).encode())
    return Lease(path, descriptor)


def held(root: Path, *, clean: bool = False) -> set[str]:
    """Hex digests of the manifests in use; `clean` removes the leases of the dead."""
    found: set[str] = set()
    directory = root / "leases"
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return found
    for name in names:
        path = directory / name
        try:
            descriptor = os.open(path, os.O_RDWR if clean else os.O_RDONLY)
        except FileNotFoundError:
            continue
        except OSError:
            descriptor = os.open(path, os.O_RDONLY)
        try:
            manifest, live = _state(descriptor)
            if live:
                found.add(manifest)
            elif clean:
                with suppress(OSError):
                    os.unlink(path)
        finally:
            os.close(descriptor)
    return found


def _state(descriptor: int) -> tuple[str, bool]:
    """The manifest in a lease, and whether it counts."""
    free = locks.try_lock(descriptor)
    age = abs(time.time() - os.fstat(descriptor).st_mtime)
    try:
        record = json.loads(os.pread(descriptor, 65536, 0))
        manifest, state = str(record["manifest"]), locks.state_of(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", not free or age < _BEING_WRITTEN
    if state == "dead":
        return manifest, False
    if state == "alive" or not free:
        return manifest, True
    return manifest, age < UNSEEN_SECONDS
