"""Memory of a host and of containers, on trees of /proc and /sys/fs/cgroup as kernels show them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from neuroncompile.hardware.host import PAGE, MemoryWatch, available_memory, memory_limit

GB = 10**9
MEMINFO = "MemTotal:       65536000 kB\nMemFree:         1000 kB\nMemAvailable:   8000000 kB\n"
AVAILABLE = 8_000_000 * 1024


class Host:
    """Two directories in the place of /proc and /sys/fs/cgroup."""

    def __init__(self, root: Path, cgroup: str, *, meminfo: str | None = MEMINFO) -> None:
        self.proc, self.cgroup = root / "proc", root / "cgroup"
        self.write("proc/self/cgroup", cgroup)
        self.cgroup.mkdir(exist_ok=True)
        if meminfo is not None:
            self.write("proc/meminfo", meminfo)

    def write(self, name: str, text: str) -> None:
        path = self.proc.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def group(self, path: str, files: Mapping[str, str | int]) -> None:
        for name, text in files.items():
            self.write(f"cgroup/{path}/{name}", f"{text}\n")

    @property
    def available(self) -> int | None:
        return available_memory(self.proc, self.cgroup)

    @property
    def limit(self) -> int | None:
        return memory_limit(self.proc, self.cgroup)

    def process(self, pid: int, group: int, pages: int, name: str = "cc") -> None:
        """/proc/PID/stat of Linux 6: 52 fields, of which the third to last matter here."""
        rest = ["S", "1", str(group), *["0"] * 18, str(pages), *["0"] * 28]
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {' '.join(rest)}\n")


def v2(current: int, most: str | int, **more: str | int) -> dict[str, str | int]:
    return {"memory.current": current, "memory.max": most, **more}


def v1(used: int, limit: int, **more: str | int) -> dict[str, str | int]:
    return {"memory.usage_in_bytes": used, "memory.limit_in_bytes": limit, **more}


V1 = "12:pids:/x\n5:cpu,cpuacct:/x\n4:memory:/docker/abc\n0::/system.slice\n"
NO_LIMIT = 0x7FFFFFFFFFFFF000


def test_a_machine_without_groups(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/\n")
    assert host.available == AVAILABLE
    assert host.limit is None


def test_nothing_tells(tmp_path: Path) -> None:
    assert available_memory(tmp_path / "none", tmp_path / "none") is None
    assert memory_limit(tmp_path / "none", tmp_path / "none") is None
    assert Host(tmp_path, "0::/\n", meminfo="MemTotal: 5 kB\n").available is None


def test_a_container_of_v2_sees_its_own_root(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/\n")
    host.group(".", v2(1 * GB, 4 * GB))
    assert host.limit == 4 * GB
    assert host.available == 3 * GB


def test_the_tightest_of_a_group_and_its_parents_counts(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/a/b/c\n")
    host.group("a/b/c", v2(1 * GB, "max"))
    host.group("a/b", v2(2 * GB, 3 * GB))
    host.group("a", v2(7 * GB, 9 * GB))
    host.group("other", v2(1 * GB, 1 * GB))
    assert host.limit == 3 * GB
    assert host.available == 1 * GB


def test_a_limit_above_what_the_machine_has_is_no_memory(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/a\n")
    host.group("a", v2(0, 100 * GB))
    assert host.available == AVAILABLE


def test_a_host_path_inside_a_container(tmp_path: Path) -> None:
    """Without a cgroup namespace the path is the host's, and only the root is mounted."""
    host = Host(tmp_path, "0::/kubepods.slice/pod1/abc\n")
    host.group(".", v2(1 * GB, 2 * GB))
    assert (host.limit, host.available) == (2 * GB, 1 * GB)
    other = Host(tmp_path / "v1", V1)
    other.group("memory", v1(1 * GB, 3 * GB))
    assert (other.limit, other.available) == (3 * GB, 2 * GB)


def test_v1(tmp_path: Path) -> None:
    host = Host(tmp_path, V1)
    host.group("memory/docker/abc", v1(1 * GB, 5 * GB))
    host.group("memory/docker", v1(20 * GB, NO_LIMIT))
    host.group("memory", v1(30 * GB, NO_LIMIT))
    host.group("unified/system.slice", v2(1 * GB, 1 * GB))  # of another hierarchy
    assert (host.limit, host.available) == (5 * GB, 4 * GB)


def test_v1_without_a_limit(tmp_path: Path) -> None:
    host = Host(tmp_path, V1)
    host.group("memory/docker/abc", v1(1 * GB, NO_LIMIT))
    assert host.limit is None
    assert host.available == AVAILABLE


@pytest.mark.parametrize("version", [1, 2])
def test_pages_of_files_are_given_back(version: int, tmp_path: Path) -> None:
    """A container that has read a checkpoint is full of it, and not out of memory."""
    host = Host(tmp_path, "0::/a\n" if version == 2 else V1)
    if version == 2:
        stat = f"anon {GB}\nfile {3 * GB}\ninactive_file {2 * GB}\nactive_file {GB}"
        host.group("a", v2(4 * GB, 4 * GB, **{"memory.stat": stat}))
    else:
        stat = f"cache {3 * GB}\ninactive_file 1\ntotal_inactive_file {2 * GB}"
        host.group("memory/docker/abc", v1(4 * GB, 4 * GB, **{"memory.stat": stat}))
    assert host.available == 2 * GB
    assert host.limit == 4 * GB


def test_use_beyond_the_limit_is_none_left(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/a\n")
    host.group("a", v2(5 * GB, 4 * GB))
    assert host.available == 0


@pytest.mark.parametrize("text", ["", "garbage", "0::", "4:memory", "0::/a/../../b\n"])
def test_strange_membership(text: str, tmp_path: Path) -> None:
    host = Host(tmp_path, text)
    assert host.available == AVAILABLE
    assert host.limit is None


def test_resident_memory_of_a_group(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/\n")
    host.process(10, 10, 100)
    host.process(11, 10, 50, name="cc (x) 1 2) 3")
    host.process(12, 12, 1000)
    host.write("proc/13/stat", "")
    host.write("proc/uptime", "1 2")
    watch = MemoryWatch(10, host.proc, host.cgroup)
    assert watch.sample() == 150 * PAGE
    host.process(11, 10, 20)
    assert watch.sample() == watch.resident == 120 * PAGE
    assert watch.peak == 150 * PAGE


@pytest.mark.parametrize(
    ("cgroup", "path", "name"),
    [("0::/a/b\n", "a/b", "memory.events"), (V1, "memory/docker/abc", "memory.oom_control")],
)
def test_kills_of_our_own_group(cgroup: str, path: str, name: str, tmp_path: Path) -> None:
    host = Host(tmp_path, cgroup)
    host.write("proc/vmstat", "pgfault 9\noom_kill 5\n")
    host.group(path, {name: "low 0\noom 7\noom_kill 2\noom_group_kill 9"})
    host.group(str(Path(path).parent), {name: "oom_kill 30"})
    watch = MemoryWatch(1, host.proc, host.cgroup)
    assert not watch.killed()
    # somebody else's, in a group beside ours
    host.group(str(Path(path).parent), {name: "oom_kill 31"})
    host.write("proc/vmstat", "pgfault 9\noom_kill 6\n")
    assert not watch.killed()
    host.group(path, {name: "low 0\noom 8\noom_kill 3\noom_group_kill 9"})
    assert watch.killed()


def test_kills_of_a_machine_without_groups(tmp_path: Path) -> None:
    host = Host(tmp_path, "0::/\n")
    host.write("proc/vmstat", "oom_kill 5\n")
    watch = MemoryWatch(1, host.proc, host.cgroup)
    host.write("proc/vmstat", "oom_kill 6\n")
    assert watch.killed()


def test_this_machine() -> None:
    """A child that holds 64 MiB, in a process group of its own."""
    free = available_memory()
    assert free is None or free > 1 << 20
    code = "held = bytearray(64 << 20); print('ready', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        watch = MemoryWatch(child.pid)
        assert watch.sample() > 64 << 20
        assert watch.sample() < 512 << 20
        child.communicate(b"\n")
    assert MemoryWatch(child.pid).sample() == 0
    assert MemoryWatch(os.getpgrp()).sample() > 1 << 20
