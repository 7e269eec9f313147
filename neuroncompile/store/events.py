"""Hits and misses, counted: what the store has saved.

`stats/log` gets a line for each, appended in one write, so that any number of processes may; a
store that cannot be written counts nothing. Collecting folds the log into `stats/total.json`.
These are statistics: a crash in the middle of that may lose or double some.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from neuroncompile.store.durable import make_directory, replace_file

__all__ = ["EVENTS", "Totals", "fold", "record", "totals"]

EVENTS = ("hit", "miss")
_LIMIT = 64 << 20  # bytes of a log that nobody folds; then it is left alone


@dataclass(slots=True)
class Totals:
    """Counts since `since` (Unix time; 0 when nothing was counted).

    Attributes:
        bytes: logical bytes of artifacts that were hit, once for each hit.
        seconds: what building them took, once for each hit.
    """

    hits: int = 0
    misses: int = 0
    bytes: int = 0
    seconds: float = 0.0
    since: float = 0.0

    @property
    def rate(self) -> float:
        """Hits of all lookups, 0 to 1."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0


def record(root: Path, event: str, kind: str, key: str) -> None:
    """Count one event in the store whose `v1` is `root`, if that is there and can be written."""
    line = f"{int(time.time())} {event} {kind} {key}\n".encode()
    with suppress(OSError):
        path = root / "stats" / "log"
        if not root.is_dir():
            return
        make_directory(path.parent)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        try:
            if os.fstat(descriptor).st_size < _LIMIT:
                os.write(descriptor, line)
        finally:
            os.close(descriptor)


def totals(root: Path, cost: Callable[[str, str], tuple[int, float]]) -> Totals:
    """All that was counted.

    Args:
        cost: (kind, key) → bytes and build seconds of an artifact; zeros when it is gone.
    """
    found = _total(root)
    for path in (root / "stats").glob("log*"):
        _add(found, path, cost)
    return found


def fold(root: Path, cost: Callable[[str, str], tuple[int, float]]) -> None:
    """Move the log's counts into the total, before the artifacts they speak of are gone."""
    log = root / "stats" / "log"
    if not log.exists():
        return
    os.rename(log, log.with_name(f"log.{os.getpid()}"))
    found = _total(root)
    for path in list((root / "stats").glob("log.*")):  # not the log that others begin meanwhile
        _add(found, path, cost)
        path.unlink()
    record = {
        "hits": found.hits,
        "misses": found.misses,
        "bytes": found.bytes,
        "seconds": found.seconds,
        "since": found.since,
    }
    make_directory(root / "tmp")
    replace_file(root / "tmp", root / "stats" / "total.json", json.dumps(record).encode())


def _total(root: Path) -> Totals:
    try:
        record = json.loads((root / "stats" / "total.json").read_bytes())
        return Totals(
            int(record["hits"]),
            int(record["misses"]),
            int(record["bytes"]),
            float(record["seconds"]),
            float(record["since"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return Totals()


def _add(found: Totals, path: Path, cost: Callable[[str, str], tuple[int, float]]) -> None:
    known: dict[tuple[str, str], tuple[int, float]] = {}
    try:
        lines = path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        words = line.split()
        if len(words) != 4 or words[1] not in EVENTS or not words[0].isdecimal():
            continue
        when, event, kind, key = words
        found.since = min(found.since or float(when), float(when))
        if event == "miss":
            found.misses += 1
            continue
        if (kind, key) not in known:
            known[kind, key] = cost(kind, key)
        size, seconds = known[kind, key]
        found.hits += 1
        found.bytes += size
        found.seconds += seconds
