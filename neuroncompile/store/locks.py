"""Locks that save work: one builder a key, and readers apart from the collector.

Nothing here is needed for correctness; a lock that does not hold costs a duplicate build. So
`flock` may be missing or lie (some network file systems, gVisor): a second file, `<name>.held`,
made by whoever comes first and removed at the end, then keeps the processes of one host apart.

A lock file is never unlinked: a waiter that has it open would hold a lock on a nameless file
while a newcomer locks a new one. The record is cleared on release, and the kernel drops the
lock of a dead process. Only a child that inherited the descriptor by `fork` can keep a dead
holder's lock; the record shows that too, and the next lock file in line (`<name>.1`) is used.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroncompile.store.durable import guarded, make_directory, set_aside, write_all, write_file

__all__ = [
    "Claim",
    "Holder",
    "claim",
    "exclusive",
    "identity",
    "owner_is_alive",
    "shared",
    "state_of",
    "try_lock",
    "wait_for",
]

POLL_SECONDS = 0.2
_NOT_LOCKING = frozenset({errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL})
_NOT_OURS = frozenset({errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOENT})
_OWNER = re.compile(r"(?P<host>.+)-(?P<pid>\d+)-[0-9a-f]{10}(?:\.|$)")
_BEING_WRITTEN = 10.0  # seconds for which a `.held` without words is believed
_ORPHANED = 4  # lock files in line behind orphaned ones; then waiting is all that is left


@dataclass(frozen=True, slots=True)
class Holder:
    """Who builds a key: process, host, start (Unix time in seconds), and what."""

    pid: int
    host: str
    started: float
    what: str


class Claim:
    """A lock that this process holds until `release` or the end of the `with` block."""

    __slots__ = ("_descriptor", "_marker")

    def __init__(self, descriptor: int, marker: Path | None = None) -> None:
        self._descriptor, self._marker = descriptor, marker

    def release(self) -> None:
        """Give the lock up; again is harmless."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with suppress(OSError):
            os.ftruncate(descriptor, 0)
        if self._marker is not None:
            _unmark(self._marker)
        with suppress(OSError):  # explicitly: a forked child may share the descriptor
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)

    def __enter__(self) -> Claim:
        return self

    def __exit__(self, *exc: object) -> None:
        self.release()


def claim(root: Path, name: str, what: str) -> Claim | Holder | None:
    """The lock `name` at once, else who holds it (None: held, but by whom is not known).

    Raises:
        StoreError: the lock file cannot be made or written.
    """
    holder: Holder | None = None
    for turn in range(_ORPHANED):
        with guarded(root, "cannot lock"):
            make_directory(root / "locks")
            path = root / "locks" / (f"{name}.{turn}" if turn else name)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                locked = try_lock(descriptor)
                holder, state = _record_of(descriptor)
                if locked and state != "alive":
                    marker = None if _excludes(path) else path.with_name(f"{path.name}.held")
                    if marker is not None and not _mark(marker, root / "tmp", what):
                        os.close(descriptor)
                        return _holder_in(marker)[0]
                    os.ftruncate(descriptor, 0)
                    os.lseek(descriptor, 0, os.SEEK_SET)
                    write_all(descriptor, _record(what))
                    return Claim(descriptor, marker)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        if locked or state != "dead":
            break
    return holder


def _excludes(path: Path) -> bool:
    """Whether the lock that we have on this file keeps anybody out, ourselves to begin with."""
    second = os.open(path, os.O_RDWR)
    try:
        return not try_lock(second)
    finally:
        os.close(second)


_marked: set[Path] = set()  # by this process


def _mark(marker: Path, tmp: Path, what: str) -> bool:
    """Make the file that says a lock is held; False while somebody else's says so."""
    make_directory(tmp)
    for _ in range(_ORPHANED):
        with suppress(FileExistsError):
            write_file(marker, _record(what), durable=False)
            _marked.add(marker)
            return True
        with suppress(FileNotFoundError):
            seen = os.lstat(marker)
            holder, state = _holder_in(marker)
            being_written = holder is None and abs(time.time() - seen.st_mtime) < _BEING_WRITTEN
            if state == "alive" or being_written or marker in _marked:
                return False
            if (left := set_aside(marker, seen, tmp)) is not None:  # by a dead process
                os.unlink(left)
    return False


def _unmark(marker: Path) -> None:
    _marked.discard(marker)
    with suppress(OSError):
        holder, _ = _holder_in(marker)
        if holder is not None and holder.pid == os.getpid():
            os.unlink(marker)


def _holder_in(marker: Path) -> tuple[Holder | None, str]:
    try:
        descriptor = os.open(marker, os.O_RDONLY)
    except FileNotFoundError:
        return None, "dead"
    try:
        return _record_of(descriptor)
    finally:
        os.close(descriptor)


def wait_for(
    root: Path, name: str, what: str, on_wait: Callable[[Holder, float], None] | None
) -> Claim:
    """The lock `name`, waiting for it as long as its holder lives.

    Args:
        on_wait: called about five times a second with the holder and the seconds waited.
    """
    began = time.monotonic()
    while not isinstance(answer := claim(root, name, what), Claim):
        if on_wait is not None and answer is not None:
            on_wait(answer, time.monotonic() - began)
        time.sleep(POLL_SECONDS)
    return answer


@contextmanager
def shared(root: Path) -> Iterator[None]:
    """The collector's lock, shared: nothing is deleted inside the block.

    Who may only read the store locks the file that is there; where there is none, nothing has
    been collected yet.

    Raises:
        OSError: the lock file cannot be opened, though we may.
    """
    try:
        descriptor = _open_to_share(root / "locks" / "gc")
    except OSError as error:
        if error.errno not in _NOT_OURS:
            raise
        yield
        return
    try:
        _give_way(root / "locks" / "gc.want")
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        yield
    finally:
        os.close(descriptor)


def _open_to_share(path: Path) -> int:
    try:
        make_directory(path.parent)
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return os.open(path, os.O_RDONLY)


@contextmanager
def exclusive(root: Path) -> Iterator[None]:
    """The collector's lock: nothing is named or leased inside the block.

    Linux lets new sharers in before a waiting owner, so we announce ourselves, and they hold
    back for a moment.

    Raises:
        OSError: the lock file cannot be made.
    """
    make_directory(root / "locks")
    want = root / "locks" / "gc.want"
    descriptor = os.open(root / "locks" / "gc", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        while not try_lock(descriptor):
            with suppress(OSError):
                os.close(os.open(want, os.O_WRONLY | os.O_CREAT, 0o666))
                os.utime(want)
            time.sleep(0.005)
        with suppress(OSError):
            os.unlink(want)
        yield
    finally:
        os.close(descriptor)


def _give_way(want: Path) -> None:
    """Wait, up to half a second, while a collector announces itself."""
    for _ in range(50):
        try:
            if not 0 <= time.time() - os.stat(want).st_mtime < 1:
                return
        except OSError:
            return
        time.sleep(0.01)


def try_lock(descriptor: int) -> bool:
    """Lock an open file exclusively unless another has it; True where nothing can be locked."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        if error.errno not in _NOT_LOCKING:
            raise
    return True


def identity() -> dict[str, object]:
    """Who this process is, so that others can tell whether it still lives."""
    pid = os.getpid()
    return {
        "pid": pid,
        "host": os.uname().nodename,
        "namespace": _pid_namespace(),
        "ticks": _start_ticks(pid),
    }


def state_of(record: Mapping[str, Any]) -> str:
    """Whether the process with this identity is `alive` or `dead`; `unknown` if none can tell.

    The identity of another host, or of a container with its own process ids, proves nothing.
    """
    here = record["host"] == os.uname().nodename and record.get("namespace") == _pid_namespace()
    ticks = record.get("ticks")
    if not here or ticks is None:
        return "unknown"
    return "alive" if _start_ticks(int(record["pid"])) == ticks else "dead"


def owner_is_alive(name: str) -> bool:
    """Whether the process that made this `unique_name` runs here; False for other hosts'."""
    found = _OWNER.match(name)
    if found is None or found["host"] != os.uname().nodename:
        return False
    return _start_ticks(int(found["pid"])) is not None


def _record(what: str) -> bytes:
    return json.dumps({**identity(), "started": time.time(), "what": what}).encode()


def _record_of(descriptor: int) -> tuple[Holder | None, str]:
    """The holder in a lock file and its state: `alive`, `dead` or `unknown`.

    Our own record, left by a release that failed, proves nothing.
    """
    try:
        record = json.loads(os.pread(descriptor, 65536, 0))
        holder = Holder(
            int(record["pid"]), str(record["host"]), float(record["started"]), str(record["what"])
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "unknown"
    return holder, "unknown" if holder.pid == os.getpid() else state_of(record)


def _pid_namespace() -> str | None:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _start_ticks(pid: int) -> int | None:
    """When a living process began, in clock ticks since boot; None when it is gone.

    Process ids are used again; the pair is not. A zombie is gone: it runs nothing.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
