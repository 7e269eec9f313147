"""Views: a directory that looks like the artifact's files, without copying them.

Each file is, by what the file system can do, a reflink, a hard link, a symbolic link or a copy
of its blob. The directory is built in `tmp/` and renamed, so a view is there whole or not at
all. Views are read-only by agreement: a file changed in place is noticed, because it no longer
is its blob's inode or no longer has the date that copies get, and the view is made again.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store.blobs import Blobs
from neuroncompile.store.durable import (
    NO_LINKS,
    make_directory,
    remove_tree,
    set_aside,
    unique_name,
)
from neuroncompile.store.oci import Descriptor, hex_of

__all__ = ["Views"]

_FICLONE = 0x40049409  # linux/fs.h
_COPY_DATE = 315532800  # 1980-01-01, the earliest date of a copied file in a view
_UNWRITABLE = frozenset(
    {errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
)


class Views:
    """`views/` of a store."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._private: dict[str, Path] = {}
        self._methods: dict[int, list[Callable[[Path, Path], None]]] = {}

    def path(self, manifest: str) -> Path:
        """Where the view of the manifest with this hex digest is, or would be."""
        return self._root / "views" / manifest

    def whole(self, manifest: str, layers: Iterable[Descriptor], blobs: Blobs) -> Path | None:
        """The view if it is there and whole; nothing is made."""
        path = self.path(manifest)
        return path if _is_whole(path, _files(layers, blobs)) else None

    def get(self, manifest: str, layers: Iterable[Descriptor], blobs: Blobs) -> Path:
        """The view of files among `blobs`, made if it is not there.

        Where the store cannot be written (read-only, full) and has no view, the result is a
        directory of symbolic links under the system's temporary directory, which lives as long
        as this process and is left behind if the process is killed.

        Raises:
            CorruptArtifactError: a blob is missing.
        """
        if manifest in self._private:
            return self._private[manifest]
        path = self.path(manifest)
        files = _files(layers, blobs)
        if _is_whole(path, files):
            return path
        try:
            return self._build(path, files)
        except OSError as error:
            if error.errno not in _UNWRITABLE:
                raise
            self._private[manifest] = private = _private_view(files)
            return private

    def _build(self, path: Path, files: list[tuple[str, Path]]) -> Path:
        tmp = self._root / "tmp"
        make_directory(tmp)
        make_directory(path.parent)
        staged = tmp / unique_name()
        try:
            for title, blob in files:
                target = staged / title
                make_directory(target.parent)
                self._place(blob, target)
            while True:
                try:
                    os.rename(staged, path)
                    return path
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                        raise
                seen = os.lstat(path)
                if _is_whole(path, files):  # another process was first
                    remove_tree(staged)
                    return path
                if (broken := set_aside(path, seen, tmp)) is not None:
                    remove_tree(broken)
        except BaseException:
            remove_tree(staged)
            raise

    def _place(self, blob: Path, target: Path) -> None:
        try:
            device = os.stat(blob).st_dev
        except FileNotFoundError:
            raise CorruptArtifactError(f"blob {blob.name[:12]} is missing") from None
        methods = self._methods.setdefault(device, [_reflink, _hardlink, _symlink, _copy])
        while True:
            try:
                methods[0](blob, target)
                return
            except OSError as error:
                with suppress(FileNotFoundError):
                    os.unlink(target)
                if len(methods) == 1 or error.errno not in _CANNOT:
                    raise
                del methods[0]  # nor will it work for the next file of this device


def _reflink(blob: Path, target: Path) -> None:
    source = os.open(blob, os.O_RDONLY)
    try:
        copy = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        try:
            fcntl.ioctl(copy, _FICLONE, source)
            _mark_copy(copy, os.fstat(source))
        finally:
            os.close(copy)
    finally:
        os.close(source)


def _hardlink(blob: Path, target: Path) -> None:
    os.link(blob, target)


def _symlink(blob: Path, target: Path) -> None:
    root = blob.parts[:-3]
    if target.parts[: len(root)] != root:  # a blob of another store
        os.symlink(blob, target)
        return
    # Relative to where the view will be, one directory below views/, so a store can be moved.
    depth = len(target.parts) - len(root)
    os.symlink("../" * (depth - 1) + "/".join(blob.parts[-3:]), target)


def _copy(blob: Path, target: Path) -> None:
    import shutil

    with open(blob, "rb") as source, open(target, "xb") as copy:
        shutil.copyfileobj(source, copy, 1 << 20)
        copy.flush()
        _mark_copy(copy.fileno(), os.fstat(source.fileno()))


def _mark_copy(descriptor: int, original: os.stat_result) -> None:
    """Date a copy as one of this very blob, and make it durable before the view has a name."""
    date = _date_of_copy(original)
    os.fchmod(descriptor, 0o444)
    os.utime(descriptor, (date, date))
    os.fsync(descriptor)


def _date_of_copy(original: os.stat_result) -> int:
    """From 1980 to 2011, by inode: a blob that turned out corrupt and was made again is another
    file, and copies of the corrupt one must not pass for its."""
    return _COPY_DATE + original.st_ino % 1_000_000_000


_CANNOT = NO_LINKS | {errno.EINVAL, errno.ENOTTY, errno.EBADF, errno.ENOTSUP, errno.ETXTBSY}


def _is_whole(path: Path, files: Iterable[tuple[str, Path]]) -> bool:
    try:
        for title, blob in files:
            seen, original = os.stat(path / title), os.stat(blob)
            if (seen.st_dev, seen.st_ino) == (original.st_dev, original.st_ino):
                continue
            if seen.st_mtime != _date_of_copy(original) or seen.st_size != original.st_size:
                return False
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _files(layers: Iterable[Descriptor], blobs: Blobs) -> list[tuple[str, Path]]:
    return [(layer.title, blobs.path(hex_of(layer.digest))) for layer in layers]


def _private_view(files: Iterable[tuple[str, Path]]) -> Path:
    import atexit
    import tempfile

    root = Path(tempfile.mkdtemp(prefix="neuroncompile-view-"))
    owner = os.getpid()

    def clean() -> None:
        if os.getpid() == owner:  # a forked child must not take it from its parent
            remove_tree(root)

    atexit.register(clean)
    for title, blob in files:
        target = root / title
        target.parent.mkdir(parents=True, exist_ok=True)
        os.symlink(blob.absolute(), target)
    return root
