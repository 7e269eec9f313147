"""`partial/` of a store: blobs on their way in, which survive the process that fetches them.

    partial/<hex>                        given up in good order; anybody's
    partial/<hex>.<host>-<pid>-<random>  somebody's, who holds a lock on it while writing

A file is a prefix of its blob. Whoever fetches the blob next takes a prefix over, hashes it
again and asks for the rest. No two processes ever write one file, whatever locks are worth:

* a prefix that is nobody's, or whose owner is provably dead, is taken by renaming it, which
  only one of several can do;
* one whose owner may live behind a lock that does not work here (another host, another process
  namespace) is copied, and left alone.

So a lock that lies costs bandwidth, never bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from neuroncompile.store.durable import make_directory, unique_name, write_all

__all__ = ["Partial"]

_PIECE = 4 << 20
_PARALLEL = 128 << 10


class Partial:
    """A blob as far as it has come, in a file of this process's own.

    Args:
        directory: `v1/partial` of the store.
        name: the blob's SHA-256, 64 hex digits.
        size: its bytes.
        alone: it is the only blob on its way, so there is a core to hash it on beside.

    Attributes:
        path: the file.
        offset: bytes that are there.
        seen: state of the file when it was closed.
    """

    seen: os.stat_result

    def __init__(self, directory: Path, name: str, size: int, *, alone: bool = False) -> None:
        make_directory(directory)
        self._directory, self._name, self._size = directory, name, size
        self.path = directory / f"{name}.{unique_name()}"
        self._alone = alone
        self._digest = hashlib.sha256()
        self.offset = 0
        self._hasher: ThreadPoolExecutor | None = None
        self._descriptor = self._take_over()
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            _lock(self._descriptor)

    def append(self, chunk: bytes | memoryview) -> None:
        """The bytes that follow; what is beyond the blob's size shows in `whole`.

        A long chunk of the only blob is hashed by another thread while this one writes it;
        among several blobs that would only be two threads more for the same cores.
        """
        if len(chunk) < _PARALLEL or not self._alone:
            self._digest.update(chunk)
            write_all(self._descriptor, chunk)
        else:
            if self._hasher is None:
                self._hasher = ThreadPoolExecutor(1, thread_name_prefix="hash")
            hashing = self._hasher.submit(self._digest.update, chunk)
            try:
                write_all(self._descriptor, chunk)
            finally:
                hashing.result()
        self.offset += len(chunk)

    @property
    def whole(self) -> bool:
        """Whether these are the bytes of the blob."""
        return self.offset == self._size and self._digest.hexdigest() == self._name

    def restart(self) -> None:
        """Throw away what has come: some of it is wrong."""
        os.close(self._descriptor)
        os.unlink(self.path)  # never truncated: a whole one may have become a blob
        self._digest, self.offset = hashlib.sha256(), 0
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        _lock(self._descriptor)

    def close(self) -> None:
        """Stop writing; the file stays ours."""
        if self._hasher is not None:
            self._hasher.shutdown()
            self._hasher = None
        if self._descriptor >= 0:
            self.seen = os.fstat(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def give_up(self) -> None:
        """Leave what has come to whoever tries next."""
        self.close()
        with suppress(OSError):
            if self.offset:
                os.rename(self.path, self._directory / self._name)
            else:
                os.unlink(self.path)

    def remove(self) -> None:
        """The blob is kept: nobody needs a part of it any more."""
        self.close()
        with suppress(OSError):
            os.unlink(self.path)
        for path in list(self._others()):
            descriptor = _open_unlocked(path)
            if descriptor >= 0:
                with suppress(OSError):
                    if self._is_nobodys(path):
                        os.unlink(path)
                os.close(descriptor)

    # ---- taking over

    def _take_over(self) -> int:
        """The longest prefix that may be had, renamed or copied to `path`; -1 if there is none."""
        for path in sorted(self._others(), key=_length, reverse=True):
            descriptor = _open_unlocked(path)
            if descriptor < 0:
                continue
            try:
                seen = os.fstat(descriptor)
                if not 0 < seen.st_size <= self._size:
                    continue
                if seen.st_nlink > 1 and seen.st_size < self._size:
                    continue
                if self._is_nobodys(path):
                    os.rename(path, self.path)
                    now = os.stat(self.path)
                    if (now.st_dev, now.st_ino) != (seen.st_dev, seen.st_ino):
                        os.unlink(self.path)  # another took that one, and left us a newer
                        continue
                    self._hash(descriptor)
                    taken, descriptor = descriptor, -1
                    return taken
                return self._copy(descriptor)
            except OSError:  # taken by another, or unreadable
                continue
            finally:
                if descriptor >= 0:
                    os.close(descriptor)
        return -1

    def _is_nobodys(self, path: Path) -> bool:
        return path.name == self._name or _is_dead(path.name[len(self._name) + 1 :])

    def _hash(self, descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        while piece := os.read(descriptor, _PIECE):
            self._digest.update(piece)
            self.offset += len(piece)

    def _copy(self, descriptor: int) -> int:
        """Only as much as is there now: its owner may be writing."""
        left = os.fstat(descriptor).st_size
        copy = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            _lock(copy)
            while left > 0 and (piece := os.read(descriptor, min(left, _PIECE))):
                write_all(copy, piece)
                self._digest.update(piece)
                self.offset += len(piece)
                left -= len(piece)
        except BaseException:
            os.close(copy)
            os.unlink(self.path)
            self._digest, self.offset = hashlib.sha256(), 0
            raise
        return copy

    def _others(self) -> Iterator[Path]:
        for entry in os.scandir(self._directory):
            if entry.name.partition(".")[0] == self._name and entry.name != self.path.name:
                yield Path(entry.path)


def _lock(descriptor: int) -> None:
    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _open_unlocked(path: Path) -> int:
    """A descriptor with the lock of the file, or -1 while somebody else holds it.

    A file of more than one name has become a blob: it may be whole, and is never written.
    """
    try:
        writable = os.stat(path).st_nlink == 1
        descriptor = os.open(path, os.O_RDWR if writable else os.O_RDONLY)
    except OSError:
        return -1
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return -1
    except OSError:
        pass
    return descriptor


def _length(path: Path) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _is_dead(owner: str) -> bool:
    """Whether `<host>-<pid>-<random>` was of this host and no process has its number."""
    host, _, rest = owner.rpartition("-")[0].rpartition("-")
    if host != os.uname().nodename or not rest.isdigit():
        return False
    try:
        os.kill(int(rest), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
