"""Writes that are either complete and durable or absent, and the words for those that fail.

A file gets its final name only by `link` or `rename`, after its bytes have been fsynced; so
whatever ends the process, a name under `blobs/`, `actions/` or `views/` is never half-written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from neuroncompile.errors import StoreError

__all__ = [
    "NO_LINKS",
    "guarded",
    "link_new",
    "listing",
    "make_directory",
    "remove_tree",
    "replace_file",
    "set_aside",
    "sync_directory",
    "sync_up",
    "unique_name",
    "write_all",
    "write_file",
]

NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES}
)
"""What `link` fails with where a file system or mount has no (more) hard links for us."""


@contextmanager
def guarded(root: Path, doing: str) -> Iterator[None]:
    """Turn an OSError of the block into a StoreError with the fix in its hint."""
    try:
        yield
    except OSError as error:
        raise _explained(root, doing, error) from error


def _explained(root: Path, doing: str, error: OSError) -> StoreError:
    elsewhere = "choose another store with --store DIR or NEURONCOMPILE_STORE"
    code = error.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        what = "disk quota exceeded" if code == errno.EDQUOT else "no space left"
        hint = f"free space on {_mount_of(root)}, or {elsewhere}"
    elif code == errno.EROFS:
        what = "read-only file system"
        hint = f"remount {_mount_of(root)} writable, or {elsewhere}"
    elif code in (errno.EACCES, errno.EPERM):
        what = "permission denied"
        place = error.filename if error.filename is not None else root
        hint = f"give uid {os.geteuid()} access to {place}, or {elsewhere}"
    elif code == errno.EFBIG:
        what = "file size limit reached"
        hint = f"raise the limit (`ulimit -f unlimited`), or {elsewhere}"
    elif code in (errno.ENOTDIR, errno.EEXIST):
        what = "a file is in the way"
        hint = f"move {error.filename or root} away, or {elsewhere}"
    else:
        what = error.strerror or str(error)
        hint = f"check the file system of {root}, or {elsewhere}"
    return StoreError(
        f"{doing} in {root}: {what}",
        hint=hint,
        details={"store": str(root), "errno": errno.errorcode.get(code or 0, str(code))},
    )


def _mount_of(path: Path) -> Path:
    """The mount point that holds `path`, which need not exist yet."""
    place = path.absolute()
    while not os.path.ismount(place):
        place = place.parent
    return place


def unique_name(label: str = "") -> str:
    """`<host>-<pid>-<random>[.label]`: a collector sees whose it is and whether that lives."""
    tail = f".{label}" if label else ""
    return f"{os.uname().nodename}-{os.getpid()}-{os.urandom(5).hex()}{tail}"


def make_directory(path: Path) -> None:
    """`path` and its parents; a directory that somebody makes meanwhile is as good."""
    if not os.path.isdir(path):
        os.makedirs(path, exist_ok=True)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """All of `data`; a file-size limit or a full disk shows as a short write first."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def write_file(path: Path, data: bytes, mode: int = 0o644, *, durable: bool = True) -> None:
    """A new file with these bytes; nothing is left of it when writing fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        try:
            write_all(descriptor, data)
            os.fchmod(descriptor, mode)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise


def replace_file(tmp: Path, path: Path, data: bytes, *, durable: bool = True) -> None:
    """`path` with these bytes, by rename from a new file in the directory `tmp`."""
    staged = tmp / unique_name()
    write_file(staged, data, durable=durable)
    try:
        os.replace(staged, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise


def listing(path: Path) -> list[str]:
    """Names in a directory, sorted; none when it is not there."""
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_tree(path: Path) -> None:
    """Remove a file or a directory with all below; what cannot go stays."""
    import shutil

    shutil.rmtree(path, ignore_errors=True)
    if os.path.lexists(path) and (os.path.islink(path) or not os.path.isdir(path)):
        with suppress(OSError):
            os.unlink(path)


def link_new(staged: Path, path: Path) -> bool:
    """Give the staged file its name unless the name is taken; the staged name goes either way.

    Where the file system has no hard links, look-then-rename is all there is: two writers at the
    same instant may both win, and both their manifests are whole.
    """
    try:
        try:
            os.link(staged, path)
            return True
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            if os.path.lexists(path):
                return False
            os.rename(staged, path)
            return True
    finally:
        with suppress(FileNotFoundError):
            os.unlink(staged)


def sync_directory(path: Path) -> None:
    """Make the names in `path` survive a power cut, where the file system can."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)


def sync_up(path: Path, top: Path) -> None:
    """Make the names in `path`, and it and its parents in theirs up to `top`, survive a power cut.

    A directory that a killed process made may not be durable, so this asks no questions; where
    nothing has changed an fsync costs nothing.
    """
    sync_directory(path)
    while path != top:
        path = path.parent
        sync_directory(path)


def set_aside(path: Path, seen: os.stat_result, tmp: Path) -> Path | None:
    """Move the broken file or directory that was `seen` at `path` into `tmp`.

    Somebody may have repaired `path` since it was seen. That shows only after the move, as
    another inode; it is then moved back, and for a moment readers miss it, which costs them a
    rebuild and never a wrong answer. Returns where the broken one is now, None if not moved.
    """
    aside = tmp / unique_name("broken")
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return None
    now = os.lstat(aside)
    if (now.st_dev, now.st_ino) == (seen.st_dev, seen.st_ino):
        return aside
    if not os.path.lexists(path):
        with suppress(OSError):  # a third one is there already: as good
            os.rename(aside, path)
    return None
