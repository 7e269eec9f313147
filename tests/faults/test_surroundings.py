"""Full disks, read-only mounts, other users, clocks that step, copies, dates that mean nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults import world
from tests.faults.conftest import ROOT
from tests.faults.operations import age, two
from tests.faults.world import KIND, break_blob, key, publish, quick, survey

pytestmark = pytest.mark.slow

X = ("x",)
EVERYTHING = Policy(max_age=0, max_bytes=0, grace=0)
FAKETIME = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"
NOBODY = "65534"


class Reader:
    """A process that has artifact 1 leased."""

    def __init__(self, root: Path, *more: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.reader", str(root), "1", *more],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        )
        assert self.process.stdout is not None
        self.first = self.process.stdout.readline()

    def finish(self) -> str:
        """What it reads after all that has happened."""
        told, _ = self.process.communicate("go\ngo\n", timeout=60)
        assert self.process.returncode == 0
        return told


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Mount something; needs root, as CI has."""
    places: list[Path] = []

    def mount(name: str, *arguments: str) -> Path:
        place = tmp_path / name
        place.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *arguments, str(place)], capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"mount: {done.stderr.strip()}")
        places.append(place)
        return place

    yield mount
    for place in reversed(places):
        subprocess.run(["umount", "-l", str(place)], check=True)


def tree(root: Path) -> dict[str, tuple[int, ...]]:
    """Every path with what a write to it would change."""
    found = {}
    for path in root.rglob("*"):
        seen = path.lstat()
        found[str(path)] = (seen.st_ino, seen.st_mode, seen.st_size, seen.st_mtime_ns)
    return found


# ---- full disks


def fill(disk: Path, spare: int) -> None:
    """All space but `spare` pages."""
    page = os.statvfs(disk).f_frsize
    with (disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"0" * page):
                pass
        except OSError:
            pass
        size = file.tell()
        file.truncate(max(0, size - spare * page))


def refused(root: Path, disk: Path) -> bool:
    """Publish artifact 3; a refusal must help."""
    try:
        quick(Store(root), 3)
    except StoreError as error:
        text, code, hint = str(error), error.exit_code, error.hint
    else:
        return False
    assert code == 7
    assert "no space left" in text
    assert str(disk) in (hint or "")
    assert Store(root).lookup(KIND, key(3)) is None
    return True


def test_disk_that_is_full_after_any_page(mounted: Callable[..., Path], counts: Any) -> None:
    disk = mounted("disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    root = disk / "store"
    numbers: Counter[str] = Counter()
    two(root)
    for spare in range(40):
        fill(disk, spare)
        made = {} if refused(root, disk) else {3: X}
        numbers["published" if made else "refused"] += 1
        assert world.temporary(root) == [], spare
        assert survey(root, kept={1: X, 2: X, **made}) == [], spare
        (disk / "filler").unlink()
        quick(Store(root), 3)
        Store(root).remove(Store(root).find(key(3)))
    counts("tmpfs with 0 to 39 pages left", numbers)
    assert numbers["refused"] > 5
    assert numbers["published"] > 5


def test_full_disk_lets_itself_be_freed(mounted: Callable[..., Path]) -> None:
    disk = mounted("disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    root = disk / "store"
    two(root)
    store = Store(root)
    store.pin("it", quick(store, 3))
    age(root, 86400)
    fill(disk, 0)
    store.unpin("it")
    sweep = store.collect(EVERYTHING, dry_run=False)
    assert {removal.key for removal in sweep.removed} == {key(1), key(3)}
    assert Store(root).lookup(KIND, key(2)) is not None
    (disk / "filler").unlink()
    assert survey(root, kept={2: X}) == []


def test_lease_holds_on_a_full_disk(mounted: Callable[..., Path]) -> None:
    """The moment at which everybody collects."""
    disk = mounted("disk", "-t", "tmpfs", "-o", "size=1m", "tmpfs")
    root = disk / "store"
    two(root)
    fill(disk, 0)
    reader = Reader(root)
    assert reader.first == "whole []\n"
    sweep = Store(root).collect(EVERYTHING, dry_run=False)
    assert sweep.removed == []
    assert reader.finish() == "whole []\n"
    Store(root).collect(EVERYTHING, dry_run=False)
    assert Store(root).lookup(KIND, key(1)) is None


def test_lease_holds_where_no_file_can_be_made(mounted: Callable[..., Path]) -> None:
    """No inode is left either."""
    disk = mounted("disk", "-t", "tmpfs", "-o", "size=4m,nr_inodes=100", "tmpfs")
    root = disk / "store"
    two(root)
    os.makedirs(root / "v1/leases")
    for number in range(200):
        if os.statvfs(disk).f_ffree:
            (disk / f"filler-{number}").touch()
    reader = Reader(root)
    assert reader.first == "whole []\n"
    assert os.listdir(root / "v1/leases") == []
    artifact = Store(root).find(key(1))
    with pytest.raises(StoreError, match=r"in use|into use"):
        Store(root).remove(artifact)
    assert Store(root).collect(EVERYTHING, dry_run=False).removed == []
    assert reader.finish() == "whole []\n"
    Store(root).remove(artifact)
    assert Store(root).lookup(KIND, key(1)) is None


# ---- who may only read


def test_read_only_mount(mounted: Callable[..., Path], tmp_path: Path) -> None:
    """A container that mounts the host's store, while the host collects."""
    root = tmp_path / "store"
    two(root)
    shutil.rmtree(root / "v1/ingest")
    before = tree(root)
    below = mounted("mounted", "-o", "bind,ro", str(root))
    with pytest.raises(OSError, match="Read-only"):
        (below / "x").touch()
    reader = Reader(below)
    assert reader.first == "whole []\n"
    assert tree(root) == before
    assert Store(root).collect(EVERYTHING, dry_run=False).removed == []
    assert reader.finish() == "whole []\n"
    assert {r.key for r in Store(root).collect(EVERYTHING, dry_run=False).removed} == {key(1)}


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become somebody else")
def test_other_user(mounted: Callable[..., Path]) -> None:
    disk = mounted("disk", "-t", "tmpfs", "-o", "size=4m,mode=755", "tmpfs")
    for place in Path(os.path.realpath(disk)).parents:
        if place.stat().st_mode & 1 == 0:
            place.chmod(place.stat().st_mode | 0o011)
    root = disk / "store"
    two(root)
    shutil.rmtree(root / "v1/ingest")
    before = tree(root)
    reader = Reader(root, NOBODY)
    assert reader.first == "whole []\n"
    assert tree(root) == before
    assert Store(root).collect(EVERYTHING, dry_run=False).removed == []
    assert Store(root).collect(EVERYTHING, dry_run=True).removed == []
    assert reader.finish() == "whole []\n"
    assert tree(root) == before
    assert {r.key for r in Store(root).collect(EVERYTHING, dry_run=False).removed} == {key(1)}


# ---- clocks and dates

STEP = """
import sys
from pathlib import Path
from neuroncompile.store import Store
from neuroncompile.store.gc import Policy
from tests.faults.world import KIND, key, publish, quick
root, policy = Path(sys.argv[1]), eval(sys.argv[2])
store = Store(root, on_warning=sys.exit)
quick(store, 3)
store.remember_failure(KIND, key(4), "no")
artifact = store.lookup(KIND, key(1))
assert artifact is not None
with store.lease(artifact):
    pass
print(sorted(removal.key for removal in store.collect(policy, dry_run=False).removed))
"""


def stepped(root: Path, step: str, policy: Policy) -> list[str]:
    """Keys that a collector removes whose clock is off."""
    if not os.path.exists(FAKETIME):
        pytest.skip("needs libfaketime (Debian's faketime)")
    code = [sys.executable, "-c", STEP, str(root), repr(policy)]
    env = {
        "PYTHONPATH": str(ROOT),
        "LD_PRELOAD": FAKETIME,
        "FAKETIME": step,
        "NO_FAKE_STAT": "1",  # dates in the file system are those of others
    }
    done = subprocess.run(code, capture_output=True, text=True, env={**os.environ, **env})
    assert done.returncode == 0, done.stderr
    found: list[str] = eval(done.stdout)
    return found


@pytest.mark.parametrize("step", ["-1h", "+1h"])
def test_clock_that_is_an_hour_off(memory: Path, step: str) -> None:
    root = memory / "store"
    two(root)  # a day old
    publish(Store(root), 5)  # now
    reader = Reader(root)
    assert stepped(root, step, Policy(max_age=7200.0, grace=1800.0)) == []
    assert survey(root, kept=dict.fromkeys((1, 2, 3, 5), X)) == []
    failure = Store(root).failure(KIND, key(4))
    assert (failure is None) == (step == "+1h")
    removed = stepped(root, step, Policy(max_age=-1e9, grace=0.0))
    assert set(removed) == {key(3), key(5)}, "leased and named ones stay at any time"
    assert reader.finish() == "whole []\n"
    assert survey(root, kept={1: X, 2: X}) == []


@pytest.mark.parametrize("step", ["-1h", "+1h"])
def test_reader_whose_clock_is_an_hour_off(memory: Path, step: str) -> None:
    root = memory / "store"
    two(root)
    if not os.path.exists(FAKETIME):
        pytest.skip("needs libfaketime (Debian's faketime)")
    reader = Reader(root, LD_PRELOAD=FAKETIME, FAKETIME=step, NO_FAKE_STAT="1")
    assert reader.first == "whole []\n"
    assert Store(root).collect(EVERYTHING, dry_run=False).removed == []
    assert reader.finish() == "whole []\n"


@pytest.mark.parametrize("date", [0, 315532800, 4_000_000_000])
def test_dates_that_mean_nothing(memory: Path, date: int) -> None:
    """1970, 1980 and 2096, as from an image or after a clock's battery went."""
    root = memory / "store"
    two(root)
    for path in sorted(root.rglob("*"), reverse=True):
        os.utime(path, (date, date), follow_symlinks=False)
    assert survey(root, kept={1: X, 2: X}) == []
    assert Store(root).lookup(KIND, key(1)) is not None  # a use puts its date right
    assert abs(time.time() - Store(root).last_used(Store(root).find(key(1)))) < 60
    quick(Store(root), 3)
    sweep = Store(root).collect(Policy(max_age=3600.0, grace=600.0), dry_run=False)
    assert sweep.removed == []
    assert survey(root, kept=dict.fromkeys((1, 2, 3), X)) == []


# ---- copies


@pytest.mark.parametrize("how", [["cp", "-a"], ["cp", "-r"], ["cp", "-al"]])
def test_copied_store(tmp_path: Path, how: list[str]) -> None:
    root, other = tmp_path / "store", tmp_path / "elsewhere" / "copy"
    two(root)
    other.parent.mkdir()
    subprocess.run([*how, str(root), str(other)], check=True)
    shutil.rmtree(root)
    assert Store(other).check().problems == []
    assert survey(other, kept={1: X, 2: X}) == []
    publish(Store(other), 3)
    assert survey(other, kept=dict.fromkeys((1, 2, 3), X)) == []


def test_copy_that_was_cut_short(tmp_path: Path) -> None:
    root, other = tmp_path / "store", tmp_path / "copy"
    two(root)
    subprocess.run(["cp", "-a", str(root), str(other)], check=True)
    artifact = Store(root).find(key(1))
    blob = Store(other).blob_path(artifact.layers[1].digest)
    blob.chmod(0o644)
    blob.write_bytes(bytes(blob.stat().st_size))  # allocated, never written
    os.utime(blob, ns=(0, Store(root).blob_path(artifact.layers[1].digest).stat().st_mtime_ns))
    assert survey(other, kept={2: X}, maybe={1: X}, damaged=True) == []
    assert Store(other).lookup(KIND, key(1)) is None


COPIED = """
import os, sys
from pathlib import Path
from neuroncompile.store import Store
from tests.faults.world import KIND, break_blob, files, key, quick, read
root = Path(sys.argv[1])
store = Store(root)
artifact = quick(store, 1)
blob = store.blob_path(artifact.layers[1].digest)
seen = blob.stat()
break_blob(blob)
os.utime(blob, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # a medium that rots dates nothing
view = Store(root).view(artifact)
assert not view.joinpath("graphs/a.so").is_symlink()
assert view.joinpath("graphs/a.so").stat().st_nlink == 1
assert read(view, artifact) != files(1, "x")
assert Store(root).lookup(KIND, key(1), verify="full") is None
artifact = quick(Store(root), 1)
print(read(Store(root).view(artifact), artifact) == files(1, "x"))
"""


def test_copies_of_a_corrupt_blob_are_not_served_once_it_is_repaired(
    memory: Path, shim: Path
) -> None:
    """Where files are neither linked nor linked to, views have bytes of their own."""
    env = {"LD_PRELOAD": str(shim), "FAULT_ROOT": str(memory), "PYTHONPATH": str(ROOT)}
    env |= {"FAULT_LINK": "1", "FAULT_SYMLINK": "1"}
    done = subprocess.run(
        [sys.executable, "-c", COPIED, str(memory / "store")],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
    )
    assert done.stdout == "True\n", done.stderr


# ---- what is not needed may be missing


def test_artifact_without_its_provenance_is_whole(memory: Path) -> None:
    root = memory / "store"
    two(root)
    store = Store(root)
    artifact = store.find(key(1))
    store.pin("it", artifact)
    data = store.provenance_bytes(artifact)
    assert data is not None
    record = next(b for b in (root / "v1/blobs/sha256").iterdir() if b.read_bytes() == data)
    break_blob(record)
    assert [problem.what for problem in store.check(repair=True).problems] == ["blob"]
    assert store.provenance_bytes(artifact) is None
    assert store.collect(EVERYTHING, dry_run=False).removed == []
    assert survey(root, kept={1: X, 2: X}) == []


@pytest.mark.parametrize("part", ["manifest", "spec", "file"])
def test_check_changes_nothing_unless_told(memory: Path, part: str) -> None:
    root = memory / "store"
    two(root)
    artifact = Store(root).find(key(1))
    digests = {
        "manifest": artifact.manifest_digest,
        "spec": f"sha256:{artifact.key}",
        "file": artifact.layers[1].digest,
    }
    break_blob(Store(root).blob_path(digests[part]))
    before = tree(root)
    assert {problem.what for problem in Store(root).check().problems} >= {"blob", "artifact"}
    assert tree(root) == before
    Store(root).check(repair=True)
    assert Store(root).check().problems == []


def test_something_in_place_of_the_locks(memory: Path) -> None:
    """Nobody publishes unprotected because a lock cannot be had."""
    root = memory / "store"
    two(root)
    shutil.rmtree(root / "v1/locks")
    (root / "v1/locks").touch()
    with pytest.raises(StoreError, match="in the way"):
        quick(Store(root), 3)
    assert Store(root).lookup(KIND, key(3)) is None
    assert Store(root).lookup(KIND, key(1)) is not None
