"""Leases: what living processes use, so that the collector leaves it alone.

A lease is a file that names a manifest and whoever uses it, locked while its process lives; as
Nix's temporary roots. The manifest is in the file's name too, for which a full disk has room.
Who may only read the store, or cannot make a file, locks the manifest itself, shared. The
kernel drops the lock of a dead process, and the record tells of one whose lock means nothing:
on file systems where `flock` always succeeds, or for a child that inherited the descriptor. A
lease of another host or container that is not locked is believed for a week, because there a
lock may not be seen.
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

__all__ = ["Lease", "held", "is_read", "take"]

UNSEEN_SECONDS = 7 * 86400.0
_BEING_WRITTEN = 60.0  # seconds for which a lease without words is believed


class Lease:
    """One manifest in use, until `release`."""

    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: Path | None, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def release(self) -> None:
        """Give it up; again is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            if self._path is not None:
                with suppress(OSError):
                    os.unlink(self._path)
            os.close(descriptor)


def take(root: Path, manifest: str) -> Lease | None:
    """A lease on the manifest with this hex digest, under the collector's lock, shared.

    None where not even the manifest can be opened.
    """
    path = root / "leases" / unique_name(manifest)
    try:
        make_directory(path.parent)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
    except OSError:
        return _take_reading(root, manifest)
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    with suppress(OSError):
        write_all(descriptor, json.dumps({"manifest": manifest, **locks.identity()}).encode())
    return Lease(path, descriptor)


def _take_reading(root: Path, manifest: str) -> Lease | None:
    with suppress(OSError):
        descriptor = os.open(root / "blobs" / "sha256" / manifest, os.O_RDONLY)
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        return Lease(None, descriptor)
    return None


def is_read(root: Path, manifest: str) -> bool:
    """Whether somebody of this host who cannot write here has a lease on the manifest."""
    try:
        descriptor = os.open(root / "blobs" / "sha256" / manifest, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not locks.try_lock(descriptor)
    finally:
        os.close(descriptor)


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
            manifest, live = _state(descriptor, name)
            if live:
                found.add(manifest)
            elif clean:
                with suppress(OSError):
                    os.unlink(path)
        finally:
            os.close(descriptor)
    return found


def _state(descriptor: int, name: str) -> tuple[str, bool]:
    """The manifest in a lease, and whether it counts."""
    free = locks.try_lock(descriptor)
    age = abs(time.time() - os.fstat(descriptor).st_mtime)
    try:
        record = json.loads(os.pread(descriptor, 65536, 0))
        manifest, state = str(record["manifest"]), locks.state_of(record)
    except (ValueError, KeyError, TypeError, RecursionError):
        ours = name.startswith(f"{os.uname().nodename}-")
        live = locks.owner_is_alive(name) if ours else age < _BEING_WRITTEN
        return name.rpartition(".")[2], live or not free
    if state == "dead":
        return manifest, False
    if state == "alive" or not free:
        return manifest, True
    return manifest, age < UNSEEN_SECONDS
