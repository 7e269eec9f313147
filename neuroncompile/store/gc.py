"""The collector: what may go, why, and in which order.

Mark: artifacts that have a ref, a pin or a live lease, or were used within the grace period,
stay. Of the others those go that are older than `max_age`, then, least recently used first, as
many as `max_bytes` demands. A graph whose files another artifact keeps costs nothing and stays.

Sweep, under the collector's lock, exclusive: pointers, then views, then blobs that nothing
names and nobody touched within the grace period, then what dead processes left behind. An
interruption at any point leaves garbage and never a name without its content.

The lock keeps publishers and new leases out while names and blobs are compared. Where `flock`
does not work, the grace period does most of it, and a publisher looks at every blob again
before it names them; what still goes wrong is a miss for the next reader, never a wrong file.
"""

from __future__ import annotations

import errno
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neuroncompile.errors import StoreError
from neuroncompile.store import leases, locks
from neuroncompile.store.blobs import TOUCH_SECONDS
from neuroncompile.store.census import Census, Entry
from neuroncompile.store.durable import listing, remove_tree, sync_directory, unique_name
from neuroncompile.store.failures import Failures

__all__ = ["GRACE_SECONDS", "Kept", "Policy", "Removal", "Sweep", "collect", "discard"]

GRACE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Policy:
    """What a collection may remove.

    Attributes:
        max_bytes: remove the least recently used artifacts until blobs take no more than this.
        max_age: remove artifacts that were not used for this many seconds.
        grace: seconds for which used artifacts and new blobs are safe. 0 is for a store that
            nobody else uses at the moment; leases hold even then.
        keep_last: of each kind, the most recently used that always stay.
        keep: keys that stay.
    """

    max_bytes: int | None = None
    max_age: float | None = None
    grace: float = GRACE_SECONDS
    keep_last: int = 0
    keep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Removal:
    """An artifact that goes: `age`, `size` or `broken`; `freed` are the bytes only it had."""

    kind: str
    key: str
    reason: str
    freed: int


@dataclass(frozen=True, slots=True)
class Kept:
    """How many artifacts stay for a reason, and the bytes of their distinct blobs."""

    artifacts: int
    bytes: int


@dataclass(slots=True)
class Sweep:
    """What a collection removed, or would.

    Attributes:
        dry_run: nothing was removed.
        removed: artifacts, in the order they go.
        kept: reason (`pin`, `ref`, `lease`, `recent`, `keep`, `shared`, `fits`) → what it keeps.
        blobs: blobs removed; `freed` are their bytes.
        waiting: bytes of blobs that nothing names but that are within their grace period.
        leftovers: unfinished files of dead processes, expired records, views of what is gone.
        bytes_before: of all blobs; `bytes_after` of those that stay.
        excess: bytes above `max_bytes` that could not go.
    """

    dry_run: bool
    removed: list[Removal] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    blobs: int = 0
    freed: int = 0
    waiting: int = 0
    leftovers: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    excess: int = 0


def collect(root: Path, policy: Policy, *, dry_run: bool, now: float | None = None) -> Sweep:
    """Collect the store whose `v1` is `root`.

    Args:
        now: Unix time to judge ages by; the clock's by default.

    Raises:
        OSError: a file cannot be removed or read.
    """
    moment = time.time() if now is None else now
    if dry_run:
        return _Collector(root, policy, moment, dry_run=True).run()
    with locks.exclusive(root):
        return _Collector(root, policy, moment, dry_run=False).run()


def discard(root: Path, kind: str, key: str, *, force: bool = False) -> int:
    """Remove one artifact with what only it has, at once; the bytes freed.

    Blobs that somebody is about to name again are put back by their publisher, who looks at
    each once more before naming it. `force` removes the name of one in use, not its bytes.

    Raises:
        StoreError: it has got a name, or without `force` a user, since the caller looked.
    """
    with locks.exclusive(root):
        census = Census(root)
        entry = next((e for e in census.entries if (e.kind, e.key) == (kind, key)), None)
        if entry is None:
            return 0
        leased = leases.held(root)
        used = entry.manifest in leased or leases.is_read(root, entry.manifest)
        if entry.manifest in census.named.values() or (used and not force):
            raise StoreError(
                f"{kind} {key[:12]} has just been named or taken into use",
                hint="look again with `neuroncompile store show`, then decide",
            )
        others = Counter(name for e in census.entries if e is not entry for name in e.blobs)
        for manifest in {*census.named.values(), *leased}:
            others.update(census.blobs_behind(manifest))
        mine = set() if used else set(entry.blobs) - others.keys()
        os.unlink(entry.path)
        sync_directory(entry.path.parent)
        if not used:
            _remove_view(root, entry.manifest)
        freed = sum(census.sizes.get(name, 0) for name in mine)
        for name in mine:
            _remove_blob(root, name)
        return freed


class _Collector:
    """One collection: census, decision, removal."""

    def __init__(self, root: Path, policy: Policy, now: float, *, dry_run: bool) -> None:
        self.root, self.policy, self.now = root, policy, now
        self.census = Census(root)
        self.sweep = Sweep(dry_run, bytes_before=sum(self.census.sizes.values()))
        self.leased = leases.held(root, clean=not dry_run)
        self.pinned, self.named = self.census.pinned, set(self.census.named.values())

    def run(self) -> Sweep:
        stay, reasons = self._decide()
        reachable = self._reachable(stay)
        self._account(reasons)
        if not self.sweep.dry_run:
            for removal in self.sweep.removed:
                with suppress(FileNotFoundError):
                    os.unlink(self.root / "actions" / removal.kind / removal.key)
            # Gone for good before their blobs go, also those that a killed collector removed.
            for kind in listing(self.root / "actions"):
                sync_directory(self.root / "actions" / kind)
        manifests = {e.manifest for e in stay} | self.named | self.leased
        self._views(manifests)
        self._blobs(reachable)
        self._leftovers()
        limit = self.policy.max_bytes
        if limit is not None:
            self.sweep.excess = max(0, self.sweep.bytes_after - limit)
        return self.sweep

    # ---- mark

    def _decide(self) -> tuple[list[Entry], dict[str, list[Entry]]]:
        """Who stays, and for which reason."""
        reasons = dict[str, list[Entry]]()
        entries = sorted(self.census.entries, key=lambda e: (e.used, e.kind, e.key))
        latest = _latest(entries, self.policy.keep_last)
        candidates = []
        for entry in entries:
            if entry.blobs and all(name in self.census.sizes for name in entry.needed):
                why = self._protection(entry, latest)
                if why is None:
                    candidates.append(entry)
                else:
                    reasons.setdefault(why, []).append(entry)
            else:
                self._remove(entry, "broken", 0)
        self._let_go(candidates, reasons)
        return [e for group in reasons.values() for e in group], reasons

    def _let_go(self, candidates: list[Entry], reasons: dict[str, list[Entry]]) -> None:
        """Remove or keep each candidate, least recently used first.

        A graph that a program contains is decided on after the programs: beside one that stays
        it costs nothing, and saves a compile when only the list of buckets changes.
        """
        policy, sizes = self.policy, self.census.sizes
        uses = Counter(n for group in reasons.values() for e in group for n in set(e.blobs))
        uses.update(n for e in candidates for n in set(e.blobs))
        total = sum(sizes.get(name, 0) for name in uses)
        programs = {n for e in candidates if e.kind != "graph" for n in e.files}
        kept = {n for group in reasons.values() for e in group for n in e.files}
        for entry in sorted(
            candidates, key=lambda e: e.kind == "graph" and programs.issuperset(e.files)
        ):
            old = policy.max_age is not None and self.now - entry.used > policy.max_age
            full = policy.max_bytes is not None and total > policy.max_bytes
            if entry.kind == "graph" and kept.issuperset(entry.files):
                reasons.setdefault("shared", []).append(entry)
            elif not old and not full:
                reasons.setdefault("fits", []).append(entry)
                kept.update(entry.files)
            elif leases.is_read(self.root, entry.manifest):
                reasons.setdefault("lease", []).append(entry)
                kept.update(entry.files)
            else:
                uses.subtract(set(entry.blobs))
                freed = sum(sizes.get(name, 0) for name in set(entry.blobs) if not uses[name])
                total -= freed
                self._remove(entry, "age" if old else "size", freed)

    def _protection(self, entry: Entry, latest: set[tuple[str, str]]) -> str | None:
        if entry.manifest in self.pinned:
            return "pin"
        if entry.manifest in self.named:
            return "ref"
        if entry.manifest in self.leased:
            return "lease"
        if entry.key in self.policy.keep or (entry.kind, entry.key) in latest:
            return "keep"
        # A use is recorded hourly, and a date from the future is a clock's fault, not an age.
        if self.policy.grace > 0 and self.now - entry.used < self.policy.grace + TOUCH_SECONDS:
            return "recent"
        return None

    def _remove(self, entry: Entry, reason: str, freed: int) -> None:
        self.sweep.removed.append(Removal(entry.kind, entry.key, reason, freed))

    def _reachable(self, stay: Iterable[Entry]) -> set[str]:
        reachable = {name for entry in stay for name in entry.blobs}
        for manifest in self.named | self.leased:
            reachable.update(self.census.blobs_behind(manifest))
        going = {(r.kind, r.key) for r in self.sweep.removed}
        for entry in self.census.since():  # published while we looked, where locks do not hold
            if (entry.kind, entry.key) not in going:
                reachable.update(entry.blobs)
        reachable.update(Failures(self.root).logs())
        return reachable

    def _account(self, reasons: Mapping[str, list[Entry]]) -> None:
        for why, entries in reasons.items():
            names = {name for entry in entries for name in entry.blobs}
            size = sum(self.census.sizes.get(name, 0) for name in names)
            self.sweep.kept[why] = Kept(len(entries), size)

    # ---- sweep

    def _views(self, manifests: set[str]) -> None:
        for name in listing(self.root / "views"):
            if name not in manifests:
                self.sweep.leftovers += 1
                if not self.sweep.dry_run:
                    _remove_view(self.root, name)

    def _blobs(self, reachable: set[str]) -> None:
        sweep = self.sweep
        for name, size in self.census.sizes.items():
            if name in reachable:
                sweep.bytes_after += size
            elif self._is_young(self.root / "blobs" / "sha256" / name):
                sweep.bytes_after += size
                sweep.waiting += size
            else:
                sweep.blobs += 1
                sweep.freed += size
                if not sweep.dry_run:
                    _remove_blob(self.root, name)

    def _leftovers(self) -> None:
        for directory in ("tmp", "partial"):
            for name in listing(self.root / directory):
                path = self.root / directory / name
                if not locks.owner_is_alive(name) and not self._is_young(path):
                    self.sweep.leftovers += 1
                    if not self.sweep.dry_run:
                        remove_tree(path)
        for name in listing(self.root / "ingest"):
            if name not in self.census.sizes and not self._is_young(self.root / "ingest" / name):
                self._drop(self.root / "ingest" / name)
        for kind in listing(self.root / "failures"):
            for name in listing(self.root / "failures" / kind):
                path = self.root / "failures" / kind / name
                with suppress(FileNotFoundError):
                    if abs(self.now - os.stat(path).st_mtime) > GRACE_SECONDS:
                        self._drop(path)

    def _drop(self, path: Path) -> None:
        self.sweep.leftovers += 1
        if not self.sweep.dry_run:
            with suppress(FileNotFoundError):
                os.unlink(path)

    def _is_young(self, path: Path) -> bool:
        """Whether its grace goes on; a date after now is no age at all, so it does."""
        try:
            return self.now - os.lstat(path).st_mtime < self.policy.grace
        except FileNotFoundError:
            return True  # gone already: nothing to remove


def _latest(entries: Iterable[Entry], count: int) -> set[tuple[str, str]]:
    """Kind and key of the `count` most recently used of each kind; `entries` are oldest first."""
    if not count:
        return set()
    by_kind: dict[str, list[tuple[str, str]]] = {}
    for entry in entries:
        by_kind.setdefault(entry.kind, []).append((entry.kind, entry.key))
    return {pair for group in by_kind.values() for pair in group[-count:]}


def _remove_view(root: Path, manifest: str) -> None:
    """Out of its name in one step, then file by file; at once where a full disk has no room
    for the other name."""
    view, aside = root / "views" / manifest, root / "tmp" / unique_name("view")
    with suppress(FileNotFoundError):
        try:
            os.rename(view, aside)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            aside = view
        remove_tree(aside)


def _remove_blob(root: Path, name: str) -> None:
    for path in (root / "blobs" / "sha256" / name, root / "ingest" / name):
        with suppress(FileNotFoundError):
            os.unlink(path)
