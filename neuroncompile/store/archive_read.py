"""Take artifacts in from an archive that anybody may have made.

    bytes ─▶ scratch, hashed on the way, a file a blob     nothing else is written
          ─▶ index and manifests explain every blob, with its size
          ─▶ specs are canonical and are their manifests' keys
          ─▶ nothing is a pickle, unless trusted
          ─▶ Store.adopt, artifact by artifact

The first thing that is wrong refuses the whole archive, before the store has changed. A tar is
read once, from front to back, so a pipe will do. Of a directory only the files of an image
layout are opened, so the `v1` of another store will do too; its pointers count as its index.

What is checked is that artifacts are what their names say, not that they are good: whoever
makes an archive can put any program under any key. To import is to trust the sender.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import archive, layout, oci, tar
from neuroncompile.store.archive import Root
from neuroncompile.store.intake import Imported, Intake, Progress, Taken
from neuroncompile.store.local import Store

__all__ = ["Imported", "Taken", "import_directory", "import_tar"]

_CHUNK = 1 << 20


def import_tar(
    store: Store,
    source: tar.Readable,
    *,
    size: int | None = None,
    trust: bool = False,
    on_progress: Progress | None = None,
) -> Taken:
    """Take in what a tar holds; `source` is read to its end and never sought in.

    Args:
        size: of the tar in bytes, for progress only.
        trust: take pickles and TorchScript too.

    Raises:
        StoreError: the archive is not one, or not whole, or the store cannot be written.
        TrustError: it holds a pickle and is not trusted.
    """
    with _scratch(store) as scratch:
        intake = Intake(store, scratch, trust=trust, size=size, on_progress=on_progress)
        for count, member in enumerate(tar.members(_Source(source)), 1):
            if count > archive.MEMBER_LIMIT:
                raise StoreError(f"the archive holds over {archive.MEMBER_LIMIT} files")
            _take(member, intake)
        return intake.finish()


def _take(member: tar.Member, intake: Intake) -> None:
    name, blob = member.name, archive.blob_of(member.name)
    if member.is_directory and name in archive.DIRECTORIES:
        return
    if member.is_directory or (blob is None and name not in (archive.LAYOUT, archive.INDEX)):
        raise StoreError(
            f"{_shown(name)} does not belong in an archive: only {archive.LAYOUT}, "
            f"{archive.INDEX} and {archive.BLOBS}/<sha256> do"
        )
    if blob is not None:
        intake.blob(blob, member.size, member.chunks())
        return
    if member.size > archive.INDEX_LIMIT:
        raise StoreError(f"{name} has {member.size} bytes, over {archive.INDEX_LIMIT}")
    data = b"".join(member.chunks())
    if name == archive.LAYOUT:
        intake.layout(data)
    else:
        intake.index(archive.parse_index(data))


class _Source:
    """A stream whose failure to be read is the archive's and not the store's."""

    def __init__(self, stream: tar.Readable) -> None:
        self._stream = stream

    def read(self, size: int) -> bytes:
        try:
            return self._stream.read(size) or b""
        except OSError as error:
            raise StoreError(f"the archive cannot be read: {error.strerror}") from error


def import_directory(
    store: Store, path: Path, *, trust: bool = False, on_progress: Progress | None = None
) -> Taken:
    """Take in what an image layout, a store or the `v1` of one holds; nothing there changes.

    Raises:
        StoreError: it is none of these, or not whole, or the store cannot be written.
        TrustError: it holds a pickle and is not trusted.
    """
    if not (path / archive.LAYOUT).exists() and (path / "v1" / archive.LAYOUT).exists():
        path = path / "v1"
    layout.check_features(path)
    with _scratch(store) as scratch:
        intake = Intake(store, scratch, trust=trust, on_progress=on_progress)
        intake.layout(_small(path, archive.LAYOUT, archive.JSON_LIMIT))
        index = archive.parse_index(_small(path, archive.INDEX, archive.INDEX_LIMIT))
        pointers = list(_pointers(path)) if (path / "actions").is_dir() else []
        intake.index(archive.joined([*pointers, *index]))
        _fetch(path, intake)  # manifests
        _fetch(path, intake)  # what they name
        return intake.finish()


def _fetch(path: Path, intake: Intake) -> None:
    for name, size, lacking in intake.wanted():
        try:
            descriptor = _opened(path, f"{archive.BLOBS}/{name}")
        except FileNotFoundError:
            continue  # `finish` says what is not there
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            length = os.fstat(descriptor).st_size
            if lacking or length != size:
                intake.blob(name, length, _chunks(file, length))
            else:
                intake.passed(name, length)


def _chunks(file: tar.Readable, size: int) -> Iterator[bytes]:
    """No more than `size` bytes: a file that grows is not followed."""
    source = _Source(file)
    while size and (data := source.read(min(_CHUNK, size))):
        size -= len(data)
        yield data


def _pointers(v1: Path) -> Iterator[Root]:
    for kind in sorted(os.listdir(v1 / "actions")):
        if not (v1 / "actions" / kind).is_dir():
            continue
        for key in sorted(os.listdir(v1 / "actions" / kind)):
            name = f"actions/{kind}/{key}"
            if not oci.is_hex(key):
                continue
            try:
                yield archive.pointed(_small(v1, name, archive.JSON_LIMIT), kind, key)
            except CorruptArtifactError as error:
                raise StoreError(f"{_shown(name)}: {error}") from None


def _small(path: Path, name: str, limit: int) -> bytes:
    try:
        descriptor = _opened(path, name)
    except FileNotFoundError:
        raise StoreError(
            f"{path} is not an image layout: it has no {name}",
            hint="give a directory or tar that `neuroncompile store export` made, or a store",
        ) from None
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        data = b"".join(_chunks(file, limit + 1))
    if len(data) > limit:
        raise StoreError(f"{_shown(name)} has over {limit} bytes")
    return data


def _opened(path: Path, name: str) -> int:
    """A regular file, and not through a link: what is behind a link is not the archive's."""
    try:
        descriptor = os.open(path / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "it is a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise StoreError(f"{_shown(name)} cannot be read: {why}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StoreError(f"{_shown(name)} is not a regular file")
    return descriptor


@contextmanager
def _scratch(store: Store) -> Iterator[Path]:
    path = store.scratch("import")
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _shown(name: str) -> str:
    return repr(name) if len(name) <= 100 else f"{name[:97]!r}…"
