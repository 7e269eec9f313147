"""Write artifacts into an archive: a tar, a stream, or a directory.

A tar or directory appears under its name only when it is complete and durable; what a killed
export leaves is beside it, as `.<name>.<host>-<pid>-<random>.partial`. Every blob is hashed on
its way out, so damage in the store is not handed on. A directory holds real files and no links,
so it can be copied anywhere.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import archive, oci, tar
from neuroncompile.store.actions import Artifact
from neuroncompile.store.archive import Root
from neuroncompile.store.durable import guarded, sync_directory, unique_name, write_all
from neuroncompile.store.intake import PINS, Progress
from neuroncompile.store.local import Store

__all__ = ["Exported", "export_directory", "export_stream", "export_tar"]

_CHUNK = 1 << 20
_LEASES = 256  # each keeps a file open; what is beyond is safe only while it is in use or new


class Writable(Protocol):
    """A stream: `write` takes some of the data and says how much."""

    def write(self, data: bytes, /) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Exported:
    """What an archive holds.

    Attributes:
        roots: its artifacts, as its index has them.
        blobs: how many different files, manifests and specs included.
        size: their bytes.
    """

    roots: tuple[Root, ...]
    blobs: int
    size: int


def export_tar(
    store: Store, artifacts: Sequence[Artifact], path: Path, on_progress: Progress | None = None
) -> Exported:
    """Write a tar at `path`, in place of a file that is there.

    Raises:
        StoreError: the store cannot be read or the file cannot be written.
        CorruptArtifactError: a blob is missing or differs from its digest.
    """
    staged = _beside(path)
    try:
        with _writing(path):
            descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            done = export_stream(store, artifacts, file, on_progress, str(path))
            with _writing(path):
                os.fsync(descriptor)
        with _writing(path):
            os.replace(staged, path)
            sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(staged)
        raise
    return done


def export_stream(
    store: Store,
    artifacts: Sequence[Artifact],
    stream: Writable,
    on_progress: Progress | None = None,
    name: str = "the archive",
) -> Exported:
    """Write a tar to a pipe or an open file: the same bytes for the same artifacts and names.

    Raises:
        StoreError, CorruptArtifactError: as for `export_tar`; the stream then lacks its end mark,
            and whoever reads it refuses it.
    """
    written = 0

    def put(data: bytes) -> None:
        nonlocal written
        with _writing(name):
            view = memoryview(data)
            while view:
                view = view[stream.write(view) or 0 :]  # type: ignore[arg-type]
        written += len(data)

    with _Contents(store, artifacts, on_progress) as contents:
        for directory in ("blobs", archive.BLOBS):
            put(tar.header(f"{directory}/", 0, directory=True))
        for file, size, chunks in contents.files():
            put(tar.header(file, size))
            for chunk in chunks:
                put(chunk)
            put(tar.padding(size))
        put(tar.end(written))
        return contents.done()


def export_directory(
    store: Store, artifacts: Sequence[Artifact], path: Path, on_progress: Progress | None = None
) -> Exported:
    """Write an image layout as the directory `path`, which must be empty or not there.

    Raises:
        StoreError, CorruptArtifactError: as for `export_tar`.
    """
    with _writing(path):
        if os.path.lexists(path) and (not path.is_dir() or os.listdir(path)):
            raise StoreError(f"{path} is there, and not an empty directory", hint="name a new one")
    staged = _beside(path)
    try:
        with _writing(path):
            (staged / archive.BLOBS).mkdir(parents=True)
        with _Contents(store, artifacts, on_progress) as contents:
            for name, _, chunks in contents.files():
                with _writing(path):
                    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
                    descriptor = os.open(staged / name, flags, 0o666)
                try:
                    for chunk in chunks:
                        with _writing(path):
                            write_all(descriptor, chunk)
                    with _writing(path):
                        os.fsync(descriptor)
                finally:
                    os.close(descriptor)
            done = contents.done()
        with _writing(path):
            for directory in (staged / archive.BLOBS, staged / "blobs", staged):
                sync_directory(directory)
            os.replace(staged, path)
            sync_directory(path.parent)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return done


class _Contents:
    """What goes into an archive, and in which order; leased while it is written."""

    def __init__(
        self, store: Store, artifacts: Sequence[Artifact], on_progress: Progress | None
    ) -> None:
        self._store, self._on_progress = store, on_progress
        self._artifacts = {a.manifest_digest: a for a in artifacts}
        self._leases = ExitStack()
        self._sizes: dict[str, int] = {}
        self._roots: list[Root] = []

    def __enter__(self) -> _Contents:
        try:
            with guarded(self._store.root, "cannot export"):
                self._collect()
        except BaseException:
            self._leases.close()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._leases.close()

    def _collect(self) -> None:
        names = _names(self._store)
        specs: dict[str, int] = {}
        layers: dict[str, int] = {}
        for artifact in self._artifacts.values():
            manifest = oci.hex_of(artifact.manifest_digest)
            if len(self._roots) < _LEASES:
                self._leases.enter_context(self._store.hold(artifact))
            data = self._store.manifest_of(artifact)
            key, spec_size, descriptors = oci.parse_manifest(data)
            record = self._store.provenance_bytes(artifact)
            provenance = hashlib.sha256(record).hexdigest() if record is not None else None
            if record is not None and provenance is not None:
                layers[provenance] = len(record)
            specs[key] = spec_size
            layers.update((oci.hex_of(d.digest), d.size) for d in descriptors)
            self._roots.append(
                Root(manifest, len(data), names.get(manifest, ()), artifact.kind, key, provenance)
            )
        manifests = sorted((r.manifest, r.size) for r in self._roots)
        self._sizes = dict([*manifests, *sorted(specs.items()), *sorted(layers.items())])

    def files(self) -> Iterator[tuple[str, int, Iterator[bytes]]]:
        """Name, size and bytes of each file, to be written one after the other."""
        index = archive.index_bytes(self._roots)
        for name, data in ((archive.LAYOUT, archive.LAYOUT_BYTES), (archive.INDEX, index)):
            yield name, len(data), iter([data])
        total, done = sum(self._sizes.values()), 0
        for name, size in self._sizes.items():
            yield f"{archive.BLOBS}/{name}", size, self._blob(name, size, done, total)
            done += size

    def _blob(self, name: str, size: int, done: int, total: int) -> Iterator[bytes]:
        """The bytes of a blob, no more than its size; that they were right shows at the end."""
        digest, left = hashlib.sha256(), size
        path = self._store.blob_path(name)
        with guarded(self._store.root, "cannot export"):
            try:
                file = open(path, "rb", buffering=0)  # noqa: SIM115  closed below
            except FileNotFoundError:
                raise CorruptArtifactError(
                    f"blob {name[:12]} is missing", hint="build it again, then export"
                ) from None
        with file:
            while left:
                with guarded(self._store.root, "cannot export"):
                    chunk = file.read(min(_CHUNK, left))
                if not chunk:
                    break
                digest.update(chunk)
                left -= len(chunk)
                yield chunk
                if self._on_progress is not None:
                    self._on_progress("exporting", done + size - left, total)
        if left or digest.hexdigest() != name:
            raise CorruptArtifactError(
                f"blob {name[:12]} is corrupt: its bytes differ from its digest",
                hint="`neuroncompile store verify` says what is broken; build that again",
                details={"digest": f"sha256:{name}"},
            )

    def done(self) -> Exported:
        """What was written, when all was."""
        return Exported(tuple(self._roots), len(self._sizes), sum(self._sizes.values()))


def _names(store: Store) -> dict[str, tuple[str, ...]]:
    """Names by the hex digest of the manifest they lead to; pins are this store's own."""
    found: dict[str, tuple[str, ...]] = {}
    for name, digest in store.refs().items():
        if not name.startswith(PINS):
            found[oci.hex_of(digest)] = (*found.get(oci.hex_of(digest), ()), name)
    return found


def _beside(path: Path) -> Path:
    return path.parent / f".{path.name}.{unique_name('partial')}"


@contextmanager
def _writing(path: Path | str) -> Iterator[None]:
    """An OSError of the block is about what is written, not about the store."""
    try:
        yield
    except OSError as error:
        code = error.errno
        if code == errno.EPIPE:
            what, hint = "whoever read it has gone", "see what it said"
        elif code in (errno.ENOSPC, errno.EDQUOT):
            what, hint = "no space left", "free space there, or write elsewhere with -o"
        else:
            what, hint = error.strerror or str(error), "write elsewhere with -o"
        raise StoreError(
            f"cannot write {path}: {what}",
            hint=hint,
            details={"errno": errno.errorcode.get(code or 0, str(code))},
        ) from error
