"""What is known of files outside the store, so that each is read once.

`inputs/<sha256 of the path>.json` in the store's root holds a file's path, device, inode, size
and times with what was found in it. As long as all of these are the same, the file is not read
again: hashing 140 GB to find that nothing changed would take longer than the build. The index
is a memory, never a truth: it may be deleted at any time, and a store that cannot be written
costs only the time.
"""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError
from neuroncompile.models.progress import Progress

__all__ = ["Inputs", "write_atomically"]

_CHUNK = 4 << 20
_SETTLED = 20_000_000  # ns; a younger change may share its timestamp with the next one


class Inputs:
    """The index under one store root."""

    def __init__(self, root: Path) -> None:
        self._root = root / "inputs"

    def sha256(self, path: Path, progress: Progress | None = None) -> str:
        """Digest of a file, 64 hex digits; read at most once.

        Raises:
            ModelError: the file cannot be read or changes meanwhile.
        """
        known = self.recall(path).get("sha256")
        if isinstance(known, str):
            return known
        started = time.time_ns()
        try:
            before = _identity(path)
            digest = _hash(path, progress)
            after = _identity(path)
        except OSError as error:
            raise ModelError(
                f"{path} cannot be read: {error.strerror}",
                hint="check the path and its permissions",
                details={"path": str(path)},
            ) from None
        if before != after:
            raise ModelError(
                f"{path} changed while it was being read",
                hint="wait until the download or the training run that writes it is done",
                details={"path": str(path)},
            )
        self._remember(path, before, started, {"sha256": digest})
        return digest

    def recall(self, path: Path) -> dict[str, Any]:
        """What was remembered of the file as it is now; {} if nothing."""
        try:
            record = json.loads(self._record(path).read_bytes())
            if isinstance(record, dict) and record.get("file") == _identity(path):
                facts = record["facts"]
                return facts if isinstance(facts, dict) else {}
        except (OSError, ValueError, KeyError):
            pass
        return {}

    def remember(self, path: Path, facts: dict[str, Any]) -> None:
        """Add facts just read from the file to what is known of it."""
        try:
            self._remember(path, _identity(path), time.time_ns(), facts)
        except OSError:
            return

    def _remember(
        self, path: Path, identity: list[Any], read_at: int, facts: dict[str, Any]
    ) -> None:
        if read_at - identity[-1] < _SETTLED:
            return
        record = {"file": identity, "facts": self.recall(path) | facts}
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            write_atomically(self._record(path), json.dumps(record).encode())
        except OSError:
            return  # a read-only or full store; the next run reads the file again

    def _record(self, path: Path) -> Path:
        return self._root / f"{sha256(os.fsencode(os.path.abspath(path))).hexdigest()}.json"


def write_atomically(path: Path, data: bytes) -> None:
    """Write a small file so that readers see all of it or the one before."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _identity(path: Path) -> list[Any]:
    s = os.stat(path)
    return [os.path.abspath(path), s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns]


def _hash(path: Path, progress: Progress | None) -> str:
    digest = sha256()
    done = 0
    with path.open("rb", buffering=0) as file:
        total = os.fstat(file.fileno()).st_size
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(f"hashing {path.name}", done, total)
    return digest.hexdigest()
