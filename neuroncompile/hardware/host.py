"""Memory of this host: what may still be used, and what a group of processes holds.

A container's limit counts like the machine's: cgroup v2's `memory.max` and `memory.current`, or
v1's `memory.limit_in_bytes` and `memory.usage_in_bytes`, of this process's group and its parents.
What a group uses contains the pages of files it has read; those not read again lately
(`inactive_file`) are given back before anything is killed, so they count as free.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MemoryWatch", "available_memory", "memory_limit"]

PROC, CGROUP = Path("/proc"), Path("/sys/fs/cgroup")
PAGE = os.sysconf("SC_PAGE_SIZE")
_FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""Of v2 and v1: limit, use, and what `memory.stat` calls pages of files that are idle."""
_UNLIMITED = 1 << 60  # v1 says "no limit" as a number close to 2**63


def available_memory(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Bytes that can be used without swapping or being killed; None where nothing tells."""
    found = [limit - used for limit, used in _limits(proc, cgroup)]
    try:
        with open(proc / "meminfo", encoding="ascii") as lines:
            found.append(
                next(int(line.split()[1]) * 1024 for line in lines if line[:12] == "MemAvailable")
            )
    except (OSError, StopIteration, ValueError):
        pass
    return max(0, min(found)) if found else None


def memory_limit(proc: Path = PROC, cgroup: Path = CGROUP) -> int | None:
    """Bytes of the tightest limit that a container sets; None without one."""
    return min((limit for limit, _ in _limits(proc, cgroup)), default=None)


class MemoryWatch:
    """Resident memory of a process group, and whether the kernel has killed for memory.

    Kills are counted in our own memory group, which its children share, by whatever they were
    caused; where there is none, on the whole machine.

    Args:
        group: process group id.

    Attributes:
        resident: bytes at the last sample, shared pages counted once for each process.
        peak: the most of all samples.
    """

    def __init__(self, group: int, proc: Path = PROC, cgroup: Path = CGROUP) -> None:
        self.group, self.resident, self.peak = group, 0, 0
        self._proc, self._cgroup = proc, cgroup
        self._kills = _kills(proc, cgroup)

    def sample(self) -> int:
        """Measure now."""
        self.resident = sum(_group_pages(self._proc, self.group)) * PAGE
        self.peak = max(self.peak, self.resident)
        return self.resident

    def killed(self) -> bool:
        """Whether the count of out-of-memory kills has gone up since the start."""
        return _kills(self._proc, self._cgroup) > self._kills


def _group_pages(proc: Path, group: int) -> Iterator[int]:
    try:
        entries = list(os.scandir(proc))
    except OSError:
        return
    for entry in entries:
        if not entry.name.isdigit():
            continue
        try:
            with open(os.path.join(entry.path, "stat"), "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it ended just now
        if (
            len(fields) > 21 and int(fields[2]) == group
        ):  # state, parent, group; the name before may hold anything
            yield int(fields[21])


def _groups(proc: Path, cgroup: Path) -> Iterator[Path]:
    """Directories of this process's memory group and its parents, innermost first."""
    try:
        lines = (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        root = cgroup / "memory" if controllers else cgroup
        place = root / path.lstrip("/")
        # inside a container the path may be the host's, and the root is ours
        yield from [place, *[p for p in place.parents if p == root or root in p.parents]]


def _limits(proc: Path, cgroup: Path) -> list[tuple[int, int]]:
    found = []
    for place in _groups(proc, cgroup):
        for limit_file, used_file, idle in _FILES:
            try:
                limit = int((place / limit_file).read_text(encoding="ascii"))
                used = int((place / used_file).read_text(encoding="ascii"))
            except (OSError, ValueError):  # "max" is no limit
                continue
            if limit < _UNLIMITED:
                free = _count(place / "memory.stat", idle) or 0
                found.append((limit, max(0, used - free)))
    return found


def _kills(proc: Path, cgroup: Path) -> int:
    """The innermost group's count: its parents count other groups' kills as well."""
    for place in _groups(proc, cgroup):
        for name in ("memory.events", "memory.oom_control"):
            if (kills := _count(place / name, "oom_kill")) is not None:
                return kills
    return _count(proc / "vmstat", "oom_kill") or 0


def _count(path: Path, name: str) -> int | None:
    """The number behind `name` in a file of names and numbers."""
    try:
        with open(path, encoding="ascii") as lines:
            return next(int(line.split()[1]) for line in lines if line.split()[:1] == [name])
    except (OSError, StopIteration, ValueError, IndexError):
        return None
