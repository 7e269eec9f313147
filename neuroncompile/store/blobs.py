"""Blobs: immutable files named by their SHA-256, and what is known about their bytes.

Hashing gigabytes at every hit would cost more than the hit saves. So a blob that was hashed is
remembered in `ingest/<hex>` as `dev ino size mtime_ns`, one line for each host that sees the
file system under another device number. Whatever rewrites, copies or restores a blob changes
the line, and it is hashed again, once. A flipped bit on the medium changes no line: that is
what `verify="full"` is for.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store.durable import (
    NO_LINKS,
    link_new,
    make_directory,
    replace_file,
    set_aside,
    unique_name,
    write_all,
    write_file,
)
from neuroncompile.store.oci import Descriptor, Layer, hex_of

__all__ = ["TOUCH_SECONDS", "Blobs", "touch"]

TOUCH_SECONDS = 3600.0
_BUFFER = 1 << 20


def touch(path: Path, seen: os.stat_result) -> bool:
    """Set the modification time to now unless it is less than an hour old; True if set.

    A time in the future or before 1980 is a broken clock's and is put right as well.
    """
    if 0 <= time.time() - seen.st_mtime < TOUCH_SECONDS:
        return False
    os.utime(path)
    return True


class Blobs:
    """`blobs/sha256` of a store, with the memory of what has been hashed.

    Args:
        frozen: nothing is written, whatever the file system would allow.
    """

    def __init__(self, root: Path, *, frozen: bool = False) -> None:
        self._root = root
        self._frozen = frozen
        self._tmp = root / "tmp"
        self._hashed: dict[str, tuple[int, int, int, int]] = {}  # for a store we cannot write
        self._vouched: dict[tuple[int, int, int, int], str] = {}
        self.directory = root / "blobs" / "sha256"

    def path(self, name: str) -> Path:
        """Where the blob with this hex digest is, or would be."""
        return self.directory / name

    # ---- reading

    def read(self, name: str) -> bytes:
        """Bytes of a small blob, checked against its digest.

        Raises:
            CorruptArtifactError: missing, or its bytes differ; it is then set aside.
        """
        try:
            with open(self.path(name), "rb") as file:
                seen = os.fstat(file.fileno())
                data = file.read()
        except FileNotFoundError:
            raise _missing(name) from None
        if hashlib.sha256(data).hexdigest() != name:
            raise self._broken(name, seen, "its bytes differ from its digest")
        return data

    def verify(self, name: str, size: int, *, full: bool = False) -> None:
        """Check that a blob is there and whole, hashing it only when it is not known to be.

        Raises:
            CorruptArtifactError: missing, or its size or bytes differ; it is then set aside.
        """
        try:
            seen = os.stat(self.path(name))
        except FileNotFoundError:
            raise _missing(name) from None
        if not stat.S_ISREG(seen.st_mode) or seen.st_size != size:
            raise self._broken(name, seen, f"it has {seen.st_size} bytes instead of {size}")
        if full or not self._is_remembered(name, seen):
            self._hash_again(name)

    def whole(self, descriptor: Descriptor) -> bool:
        """Whether the blob is there and proven whole; a broken one is set aside."""
        try:
            self.verify(hex_of(descriptor.digest), descriptor.size)
        except CorruptArtifactError:
            return False
        return True

    def _hash_again(self, name: str) -> None:
        try:
            with open(self.path(name), "rb") as file:
                seen = os.fstat(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            raise _missing(name) from None
        if digest != name:
            raise self._broken(name, seen, "its bytes differ from its digest")
        self._remember(name, seen)

    def _broken(self, name: str, seen: os.stat_result, why: str) -> CorruptArtifactError:
        aside = None
        if self._frozen:
            return CorruptArtifactError(
                f"blob {name[:12]} of {self._root.parent} is corrupt: {why}",
                details={"digest": f"sha256:{name}"},
            )
        with suppress(OSError):  # on a read-only store it stays, and is refused every time
            make_directory(self._tmp)
            aside = set_aside(self.path(name), seen, self._tmp)
        tail = f" (moved to {aside})" if aside else ""
        return CorruptArtifactError(
            f"blob {name[:12]} is corrupt: {why}{tail}", details={"digest": f"sha256:{name}"}
        )

    # ---- what has been hashed

    def _is_remembered(self, name: str, seen: os.stat_result) -> bool:
        mark = _mark(seen)
        if self._hashed.get(name) == mark:
            return True
        return mark in self._marks(name)

    def _marks(self, name: str) -> list[tuple[int, ...]]:
        try:
            with open(self._root / "ingest" / name, "rb") as file:
                return [tuple(map(int, line.split())) for line in file.read(4096).splitlines()]
        except (OSError, ValueError):
            return []

    def _remember(self, name: str, seen: os.stat_result) -> None:
        mark = _mark(seen)
        self._hashed[name] = mark
        if self._frozen:
            return
        marks = [m for m in self._marks(name) if m[2:] == mark[2:] and m != mark][-15:]
        text = "".join(" ".join(map(str, m)) + "\n" for m in [*marks, mark])
        with suppress(OSError):  # forgetting costs a hash, nothing else
            make_directory(self._root / "ingest")
            replace_file(self._tmp, self._root / "ingest" / name, text.encode(), durable=False)

    # ---- writing

    def present(self, name: str, size: int) -> bool:
        """Is a blob of this name and size there: the collector may have taken it meanwhile."""
        try:
            return os.stat(self.path(name)).st_size == size
        except FileNotFoundError:
            return False

    def ingest(self, layer: Layer) -> tuple[str, int]:
        """Keep a file's bytes; hex digest and size. The caller syncs `directory` afterwards."""
        if layer.data is not None:
            return self.ingest_bytes(layer.data)
        assert layer.path is not None
        return self._ingest_file(layer.path)

    def ingest_bytes(self, data: bytes) -> tuple[str, int]:
        """Keep these bytes; hex digest and size."""
        name = hashlib.sha256(data).hexdigest()
        if not self._rearm(name, len(data)):
            staged = self._tmp / unique_name()
            write_file(staged, data, 0o444)
            self._place(staged, name, os.stat(staged))
        return name, len(data)

    def vouch(self, name: str, seen: os.stat_result) -> None:
        """The file that was `seen` has the bytes of `name`: they were hashed as it was written.

        So `ingest` need not read it again, unless it has changed since.
        """
        self._vouched[_mark(seen)] = name

    def _ingest_file(self, path: Path) -> tuple[str, int]:
        if path.parent == self.directory:  # a blob of ours, used in another artifact
            with suppress(FileNotFoundError):
                size = os.stat(path).st_size
                if self._rearm(path.name, size):
                    return path.name, size
        staged = self._tmp / unique_name()
        try:
            name, seen = self._link_and_hash(path, staged) or _copy_and_hash(path, staged)
            self._place(staged, name, seen)
        except BaseException:
            with suppress(OSError):
                os.unlink(staged)
            raise
        return name, seen.st_size

    def _link_and_hash(self, path: Path, staged: Path) -> tuple[str, os.stat_result] | None:
        """Take a scratch or partial file over without copying; None when it may not be.

        A file from elsewhere is somebody's, and one with a second name may be written through
        it: both are copied.
        """
        seen = os.lstat(path)
        ours = any(self._root / name in path.parents for name in ("tmp", "partial"))
        if not ours or not stat.S_ISREG(seen.st_mode) or seen.st_nlink > 1:
            return None
        try:
            os.link(path, staged)
        except OSError as error:
            if error.errno in NO_LINKS:
                return None
            raise
        with open(staged, "rb") as file:
            seen = os.fstat(file.fileno())
            digest = self._vouched.pop(_mark(seen), None)
            os.fchmod(file.fileno(), 0o444)
            if digest is None:
                # To the nanosecond: whoever writes later, even within the kernel's tick, shows.
                now = time.time_ns()
                os.utime(file.fileno(), ns=(now, now))
                seen = os.fstat(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            os.fsync(file.fileno())
            return digest, seen

    def _place(self, staged: Path, name: str, seen: os.stat_result) -> None:
        """Give a staged, synced file the name of its digest, or drop it for the one there.

        It was `seen` like this before it was hashed: what is written to it later by whoever has
        it open is not taken for what was hashed.
        """
        if self._rearm(name, seen.st_size):
            os.unlink(staged)
            return
        if link_new(staged, self.path(name)):  # else: placed by another writer this instant
            self._remember(name, seen)

    def _rearm(self, name: str, size: int) -> bool:
        """Is the blob there and whole? Then restart its grace before the collector."""
        try:
            self.verify(name, size)
            if touch(self.path(name), os.stat(self.path(name))):
                self._remember(name, os.stat(self.path(name)))
        except (CorruptArtifactError, FileNotFoundError):  # or collected this instant
            return False
        return True


def _mark(seen: os.stat_result) -> tuple[int, int, int, int]:
    return seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns


def _missing(name: str) -> CorruptArtifactError:
    return CorruptArtifactError(
        f"blob {name[:12]} is missing", details={"digest": f"sha256:{name}"}
    )


def _copy_and_hash(path: Path, staged: Path) -> tuple[str, os.stat_result]:
    """Copy a file; refuse one that somebody writes meanwhile, of which we had some of each."""
    digest = hashlib.sha256()
    target = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(path, "rb", buffering=0) as source:
            before = os.fstat(source.fileno())
            while chunk := source.read(_BUFFER):
                digest.update(chunk)
                write_all(target, chunk)
            after = os.fstat(source.fileno())
        if _mark(before) != _mark(after) or os.fstat(target).st_size != after.st_size:
            raise CorruptArtifactError(
                f"{path} changed while it was copied",
                hint="build again, and let nothing write to finished outputs",
            )
        os.fchmod(target, 0o444)
        os.fsync(target)
        seen = os.fstat(target)
    finally:
        os.close(target)
    return digest.hexdigest(), seen
