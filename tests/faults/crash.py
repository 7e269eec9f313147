"""Power cuts: from a log of file-system calls to the states a disk may be in afterwards.

What `fsync` has returned for is there. Of the rest two models say what may be:

`ordered` is ext4 and XFS: names, modes and dates change in the order of the calls, up to any
call after the last fsync of anything; the data of files that were not synced may be missing,
cut short or zeros.

`posix` promises nothing that the standard does not: every name in every directory that was not
synced is old or new by itself, except that a rename cannot lose both its names. So the order of
two names in one directory counts for nothing, and a new directory may be gone with all in it.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.world import renumber

__all__ = ["Mark", "Trace"]


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an inode: of a name's target, of bytes, or of an attribute."""

    when: int
    what: str  # entry, write, truncate, mode, mtime
    name: str = ""
    number: int = 0  # entry: inode, 0 for none; write: offset; else the value
    data: bytes = b""
    rename: int = 0  # the same for both entries of a rename


@dataclass(slots=True)
class Node:
    """An inode: a file, directory or symbolic link."""

    kind: str
    changes: list[Change] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)
    target: str = ""

    def synced(self, cut: int) -> int:
        """When it was last synced before the cut; -1 for never."""
        return max((when for when in self.syncs if when <= cut), default=-1)


@dataclass(frozen=True, slots=True)
class Mark:
    """What the process that made the trace had said by then."""

    when: int
    text: str


class Trace:
    """A log of the shim, for calls below `root`.

    Attributes:
        length: number of calls.
        marks: what was said in between.
    """

    def __init__(self, log: Path, root: Path) -> None:
        self._nodes: dict[int, Node] = {0: Node("d")}
        self._by_number: dict[int, int] = {0: 0}  # the file system's inode → ours
        self.numbers: dict[int, int] = {}
        self._root = str(root)
        self.marks: list[Mark] = []
        self.length = 0
        for line in log.read_text().splitlines():
            self._read(line.split("\t"))

    def _read(self, fields: list[str]) -> None:
        now, name, rest = self.length, fields[0], fields[1:]
        if name == "mark":
            self.marks.append(Mark(now, rest[0]))
            return
        self.length = now + 1
        if name in ("create", "mkdir", "symlink"):
            self._create(now, name, rest)
        elif name == "link":
            self._entry(now, rest[1], self._find(rest[0]))
        elif name == "rename":
            moved = self._find(rest[0])
            self._entry(now, rest[0], 0, rename=now + 1)
            self._entry(now, rest[1], moved, rename=now + 1)
        elif name in ("unlink", "rmdir"):
            self._entry(now, rest[0], 0)
        else:
            node = self._nodes[self._by_number[int(rest[0])]]
            if name == "sync":
                node.syncs.append(now)
            elif name == "write":
                node.changes.append(
                    Change(now, "write", number=int(rest[1]), data=bytes.fromhex(rest[2]))
                )
            elif name == "chmod":
                node.changes.append(Change(now, "mode", number=int(rest[1], 8)))
            else:
                node.changes.append(Change(now, name, number=int(rest[1])))

    def _create(self, now: int, name: str, rest: list[str]) -> None:
        kind = {"create": "f", "mkdir": "d", "symlink": "l"}[name]
        node = Node(kind, target=rest[0] if kind == "l" else "")
        path, number = (rest[1], int(rest[2])) if kind == "l" else (rest[0], int(rest[1]))
        if kind == "f":
            node.changes.append(Change(now, "mode", number=int(rest[2], 8)))
        ours = len(self._nodes)
        self._nodes[ours] = node
        self._by_number[number] = ours
        self.numbers[ours] = number
        if path == self._root:
            self._nodes[0], self._by_number[number] = node, 0
        else:
            self._entry(now, path, ours)

    def _find(self, path: str) -> int:
        ours = 0
        for part in self._parts(path):
            changes = self._nodes[ours].changes
            ours = next(c.number for c in reversed(changes) if c.name == part)
            assert ours, path
        return ours

    def _parts(self, path: str) -> list[str]:
        return [part for part in path[len(self._root) :].split("/") if part]

    def _entry(self, now: int, path: str, ours: int, rename: int = 0) -> None:
        directory, _, name = path.rpartition("/")
        node = self._nodes[self._find(directory)]
        node.changes.append(Change(now, "entry", name, ours, rename=rename))

    # ---- the disk after a power cut

    def cut(self, at: int, model: str, seed: int, into: Path) -> None:
        """Make at `into` a state that the disk may be in after a power cut before call `at`.

        Model `none` is no power cut: everything that was done is there.
        """
        chance = random.Random(seed)
        last = at - 1
        if model == "posix":
            entries = self._posix_entries(last, chance)
            attributes = None
        else:
            first = max((n.synced(last) for n in self._nodes.values()), default=-1)
            reached = last if model == "none" else chance.randint(first, last)
            entries = {
                number: {c.name: c.number for c in node.changes if self._is_entry(c, reached)}
                for number, node in self._nodes.items()
                if node.kind == "d"
            }
            attributes = reached
        _Disk(self, entries, last, attributes, chance, exact=model == "none").build(into)

    @staticmethod
    def _is_entry(change: Change, until: int) -> bool:
        return change.what == "entry" and change.when <= until

    def _posix_entries(self, last: int, chance: random.Random) -> dict[int, dict[str, int]]:
        chosen: dict[tuple[int, str], list[Any]] = {}  # changes of a name, and how many hold
        for number, node in self._nodes.items():
            synced = node.synced(last)
            by_name: dict[str, list[Change]] = {}
            for change in node.changes:
                if self._is_entry(change, last):
                    by_name.setdefault(change.name, []).append(change)
            for name, changes in by_name.items():
                sure = sum(c.when <= synced for c in changes)
                chosen[number, name] = [changes, chance.randint(sure, len(changes))]
        _keep_renamed(chosen)
        entries: dict[int, dict[str, int]] = {
            number: {} for number, node in self._nodes.items() if node.kind == "d"
        }
        for (number, name), (changes, count) in chosen.items():
            if count:
                entries[number][name] = changes[count - 1].number
        return entries


def _keep_renamed(chosen: dict[tuple[int, str], list[Any]]) -> None:
    """Where the old name of a rename is gone, the new one is there, or was at some time."""
    arrival = {
        change.rename: (place, index)
        for place, (changes, _) in chosen.items()
        for index, change in enumerate(changes)
        if change.rename and change.number
    }
    for changes, count in list(chosen.values()):
        for change in changes[:count]:
            if change.rename and not change.number:
                place, index = arrival[change.rename]
                chosen[place][1] = max(chosen[place][1], index + 1)


class _Disk:
    """One state, put together from its directories."""

    def __init__(
        self,
        trace: Trace,
        entries: dict[int, dict[str, int]],
        last: int,
        attributes: int | None,
        chance: random.Random,
        *,
        exact: bool,
    ) -> None:
        self._trace = trace
        self._entries = entries
        self._last = last
        self._attributes = attributes
        self._chance = chance
        self._exact = exact
        self._made: dict[int, Path] = {}

    def build(self, into: Path) -> None:
        self._directory(0, into)
        numbers = self._trace.numbers
        renumber(into, {str(numbers[ours]): path for ours, path in self._made.items()})

    def _directory(self, number: int, path: Path) -> None:
        path.mkdir()
        for name, child in sorted(self._entries[number].items()):
            if not child:
                continue
            node, place = self._trace._nodes[child], path / name
            if node.kind == "d":
                self._directory(child, place)
            elif child in self._made:
                os.link(self._made[child], place, follow_symlinks=False)
            else:
                self._made[child] = place
                if node.kind == "l":
                    os.symlink(node.target, place)
                else:
                    self._file(node, place)

    def _file(self, node: Node, path: Path) -> None:
        synced = self._last if self._exact else node.synced(self._last)
        path.write_bytes(self._content(node, synced))
        until = synced if self._attributes is None else max(synced, self._attributes)
        values: dict[str, int] = {}
        for change in node.changes:
            sure = change.when <= until
            maybe = self._attributes is None and change.when <= self._last
            unset = change.what not in values
            if sure or unset or (maybe and self._chance.random() < 0.5):
                values[change.what] = change.number
        path.chmod(values.get("mode", 0o600))
        mtime = values.get("mtime", 0)
        os.utime(path, ns=(mtime, mtime))

    def _content(self, node: Node, synced: int) -> bytes:
        data = [c for c in node.changes if c.what in ("write", "truncate")]
        sure = [c for c in data if c.when <= synced]
        pending = [c for c in data if synced < c.when <= self._last]
        old, new = _apply(sure), _apply([*sure, *pending])
        if not pending:
            return old
        way = self._chance.choice(["old", "new", "short", "zeros", "first"])
        if way == "old":
            return old
        if way == "new":
            return new
        if way == "short":
            return new[: self._chance.randint(0, len(new))]
        if way == "zeros":
            return bytes(len(new))
        return _apply([*sure, *pending[: self._chance.randint(0, len(pending))]])


def _apply(changes: list[Change]) -> bytes:
    data = bytearray()
    for change in changes:
        if change.what == "truncate":
            del data[change.number :]
            data.extend(bytes(change.number - len(data)))
        else:
            data.extend(bytes(max(0, change.number - len(data))))
            data[change.number : change.number + len(change.data)] = change.data
    return bytes(data)
