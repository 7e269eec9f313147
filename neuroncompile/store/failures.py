"""Remembered rejections: a spec that its compiler refused will be refused again.

Only what is certain to come again is remembered, and only for a day: the toolchain is in the
key, so a fixed compiler asks under another key, and a wrong record cannot poison a key for
ever. A signal, a time limit, lack of memory or disk say nothing about the spec.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neuroncompile.store.durable import make_directory, replace_file

__all__ = ["FAILURE_SECONDS", "Failure", "Failures"]

FAILURE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Failure:
    """A compiler's rejection: its words, the log's `sha256:…`, how often, until when (Unix)."""

    reason: str
    log: str | None
    attempts: int
    expires: float

    @property
    def since(self) -> float:
        """When it was last seen, Unix time."""
        return self.expires - FAILURE_SECONDS


class Failures:
    """`failures/<kind>/<hex>` of a store."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def _path(self, kind: str, key: str) -> Path:
        return self._root / "failures" / kind / key

    def get(self, kind: str, key: str) -> Failure | None:
        """The record, unless it has expired, is broken, or comes from a clock ahead of ours."""
        failure = self._read(kind, key)
        if failure is None or not 0 < failure.expires - time.time() <= FAILURE_SECONDS:
            return None
        return failure

    def logs(self) -> set[str]:
        """Hex digests of the logs of all records that count."""
        found = set()
        for path in self._root.glob("failures/*/*"):
            failure = self.get(path.parent.name, path.name)
            if failure is not None and failure.log is not None:
                found.add(failure.log.removeprefix("sha256:"))
        return found

    def _read(self, kind: str, key: str) -> Failure | None:
        try:
            with open(self._path(kind, key), "rb") as file:
                record = json.loads(file.read())
            log = record.get("log")
            return Failure(
                str(record["reason"]),
                None if log is None else str(log),
                int(record["attempts"]),
                float(record["expires"]),
            )
        except (FileNotFoundError, NotADirectoryError, ValueError, KeyError, TypeError):
            return None
        except AttributeError:  # JSON, but not an object
            return None

    def remember(self, kind: str, key: str, reason: str, log: str | None) -> None:
        """Write the record; `log` is the hex digest of a blob."""
        before = self._read(kind, key)
        record = {
            "schema": 1,
            "reason": reason,
            "log": None if log is None else f"sha256:{log}",
            "attempts": (before.attempts if before else 0) + 1,
            "expires": time.time() + FAILURE_SECONDS,
        }
        path = self._path(kind, key)
        make_directory(path.parent)
        replace_file(self._root / "tmp", path, json.dumps(record).encode())

    def forget(self, kind: str, key: str) -> None:
        """Remove the record, if any."""
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(self._path(kind, key))
