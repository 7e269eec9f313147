"""What artifacts take: three numbers each, because they share blobs.

*Logical* is the sum of an artifact's files. *Unique* is what would be free if it alone were
removed: its files, manifest, spec and provenance as far as nothing else names them. *Shared* is
the rest of its logical size. The store's total counts every blob once; views are links.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from neuroncompile.store.census import Census, Entry

__all__ = ["Size", "Usage", "measure", "tree_bytes"]


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes of an artifact, or of a group of them."""

    logical: int
    shared: int
    unique: int


@dataclass(slots=True)
class Usage:
    """A store's bytes.

    Attributes:
        sizes: (kind, key) → size of each artifact.
        used: (kind, key) → Unix time of its last use.
        kinds: kind → number of artifacts and bytes of their distinct blobs.
        blobs: number of blobs; `total` their bytes.
        unnamed: bytes of blobs that nothing names: the collector's, after their grace.
        unfinished: bytes below `tmp` and `partial`.
    """

    sizes: dict[tuple[str, str], Size]
    used: dict[tuple[str, str], float]
    kinds: dict[str, tuple[int, int]]
    blobs: int
    total: int
    unnamed: int
    unfinished: int


def measure(root: Path) -> Usage:
    """Measure the store whose `v1` is `root`."""
    census = Census(root)
    uses = Counter(name for entry in census.entries for name in set(entry.blobs))
    for manifest in set(census.named.values()):
        uses.update(set(census.blobs_behind(manifest)) - uses.keys())
    return Usage(
        sizes={(e.kind, e.key): _size(e, census.sizes, uses) for e in census.entries if e.blobs},
        used={(e.kind, e.key): e.used for e in census.entries},
        kinds=_kinds(census),
        blobs=len(census.sizes),
        total=sum(census.sizes.values()),
        unnamed=sum(size for name, size in census.sizes.items() if name not in uses),
        unfinished=tree_bytes(root / "tmp") + tree_bytes(root / "partial"),
    )


def _size(entry: Entry, sizes: dict[str, int], uses: Counter[str]) -> Size:
    files = set(entry.files)
    own = {name for name in entry.blobs if uses[name] == 1}
    logical = sum(sizes.get(name, 0) for name in entry.files)
    shared = sum(sizes.get(name, 0) for name in files - own)
    return Size(logical, shared, sum(sizes.get(name, 0) for name in own))


def _kinds(census: Census) -> dict[str, tuple[int, int]]:
    groups: dict[str, list[Entry]] = {}
    for entry in census.entries:
        groups.setdefault(entry.kind, []).append(entry)
    return {kind: (len(group), _distinct(group, census.sizes)) for kind, group in groups.items()}


def _distinct(entries: Iterable[Entry], sizes: dict[str, int]) -> int:
    return sum(sizes.get(name, 0) for name in {n for entry in entries for n in entry.blobs})


def tree_bytes(path: Path) -> int:
    """Bytes of all files below a directory; what vanishes meanwhile counts nothing."""
    total, seen = 0, set[tuple[int, int]]()
    for place, _, files in os.walk(path):
        for name in files:
            try:
                status = os.lstat(os.path.join(place, name))
            except FileNotFoundError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                total += status.st_size
    return total
