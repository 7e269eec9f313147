"""The Hugging Face cache on disk, and what is remembered of a commit.

Layout ("Understand caching" in huggingface_hub's documentation), shared with its client:

    models--org--name/refs/<revision>            40-hex commit a branch or tag was at
    models--org--name/snapshots/<commit>/<file>  symlink to a blob, or a copy of it
    models--org--name/blobs/<etag>               SHA-256 for LFS files, else git's SHA-1

It is read here without the client, whose import costs more than a whole build on a hit. The
cache does not say which files a commit has, so that is remembered in `inputs/` of our store.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from hashlib import sha1, sha256
from pathlib import Path
from typing import NamedTuple

from neuroncompile.models.inputs import Inputs, write_atomically
from neuroncompile.models.progress import Progress

__all__ = ["COMMIT", "Commit", "RepoFile", "Repository", "is_intact"]

COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CHUNK = 4 << 20


class RepoFile(NamedTuple):
    """One file of a commit.

    Attributes:
        size: bytes.
        oid: git's blob id, a SHA-1 over the size and the bytes, if known.
        sha256: of a file kept in LFS; its oid is the pointer's.
    """

    size: int
    oid: str | None
    sha256: str | None


class Commit(NamedTuple):
    """What one commit holds; it cannot change, so this is fetched once.

    Attributes:
        sha: 40 hex digits.
        files: path in the repository → file.
        dtype: what the header of the first weight file says, "float32", "bfloat16" or
            "float16"; None when it is of another kind.
        listed: whether `files` is the Hub's own list, rather than what was found in a cache.
    """

    sha: str
    files: dict[str, RepoFile]
    dtype: str | None = None
    listed: bool = True


class Repository(NamedTuple):
    """One model repository as far as it is on this machine.

    Attributes:
        name: "org/name", or a bare name.
        cache: root of the Hugging Face cache.
        store: root of our store, for `inputs/`.
    """

    name: str
    cache: Path
    store: Path

    @property
    def directory(self) -> Path:
        return self.cache / f"models--{self.name.replace('/', '--')}"

    def snapshot(self, commit: str) -> Path:
        return self.directory / "snapshots" / commit

    def commit_of(self, revision: str) -> str | None:
        """The commit a revision was at when it was last looked up, or None."""
        if COMMIT.fullmatch(revision):
            return revision
        if ".." in revision.split("/") or revision.startswith("/"):
            return None
        try:
            sha = (self.directory / "refs" / revision).read_text().strip()
        except (OSError, UnicodeDecodeError):
            return None
        return sha if COMMIT.fullmatch(sha) else None

    def remember_ref(self, revision: str, sha: str) -> None:
        """Note where a branch or tag is, as the client itself does."""
        path = self.directory / "refs" / revision
        if COMMIT.fullmatch(revision) or self.commit_of(revision) == sha:
            return
        with suppress(OSError):  # a read-only cache
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, sha.encode())

    def recall(self, sha: str) -> Commit | None:
        """What was remembered of a commit."""
        try:
            record = json.loads(self._record(sha).read_bytes())
            files = {name: RepoFile(**file) for name, file in record["files"].items()}
            if record["name"] == self.name and record["sha"] == sha:
                return Commit(sha, files, record["dtype"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        return None

    def remember(self, commit: Commit) -> None:
        """Keep a commit's file list; a store that cannot be written costs one look-up more."""
        path = self._record(commit.sha)
        files = {name: file._asdict() for name, file in commit.files.items()}
        record = {"name": self.name, "sha": commit.sha, "files": files, "dtype": commit.dtype}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, json.dumps(record).encode())
        except OSError:
            return

    def found(self, sha: str) -> Commit | None:
        """A commit as another tool left it in the cache: the client's own list, if there is
        one (since huggingface_hub 2), else the files that are there."""
        if not self.snapshot(sha).is_dir():
            return None
        try:
            listing = json.loads((self.directory / "trees" / f"{sha}.json").read_bytes())
            if listing["format_version"] == 1:
                return Commit(
                    sha,
                    {
                        name: RepoFile(file["size"], file["blob_id"], file.get("lfs_sha256"))
                        for name, file in listing["files"].items()
                    },
                )
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass
        files = {}
        try:
            for entry in os.scandir(self.snapshot(sha)):
                if entry.is_file():
                    blob = os.path.basename(os.path.realpath(entry.path))
                    files[entry.name] = RepoFile(
                        entry.stat().st_size,
                        blob if COMMIT.fullmatch(blob) else None,
                        blob if _SHA256.fullmatch(blob) else None,
                    )
        except OSError:
            return None
        return Commit(sha, files, listed=False) if files else None

    def discard(self, sha: str, name: str) -> None:
        """Remove a broken file, so that nobody finds it again."""
        path = self.snapshot(sha) / name
        blob = Path(os.path.realpath(path))
        with suppress(OSError):  # a read-only cache; the next look finds it broken again
            path.unlink(missing_ok=True)
            if blob != path and blob.is_relative_to(os.path.realpath(self.directory)):
                blob.unlink(missing_ok=True)

    def _record(self, sha: str) -> Path:
        name = sha256(f"hub:{self.name}@{sha}".encode()).hexdigest()
        return self.store / "inputs" / f"{name}.json"


def is_intact(
    path: Path, file: RepoFile, inputs: Inputs, *, read: bool, progress: Progress | None = None
) -> bool:
    """Whether a cached file has the bytes its commit has.

    The client checks sizes only; a disk or an interrupted copy can still have changed them.

    Args:
        read: hash the file if it has not been hashed since it last changed; without it, an
            unread file counts as not intact.
    """
    try:
        if path.stat().st_size != file.size:
            return False
        known = inputs.recall(path)
        if file.sha256 is not None:
            if not read and known.get("sha256") is None:
                return False
            return inputs.sha256(path, progress) == file.sha256
        if file.oid is None:
            return True
        if known.get("oid") is None and read:
            known = {"oid": _git_oid(path, file.size)}
            inputs.remember(path, known)
        return bool(known.get("oid") == file.oid)
    except OSError:
        return False


def _git_oid(path: Path, size: int) -> str:
    digest = sha1(f"blob {size}\0".encode(), usedforsecurity=False)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
