"""Prefixes of blobs: who may take one over, and that no two processes write one file."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from neuroncompile.store import Layer, Store
from neuroncompile.tiers.partial import Partial
from tests.conftest import ROOT
from tests.tiers.conftest import Kit, spec

DATA = os.urandom(3 << 20)
NAME = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "partial"


def part(place: Path, data: bytes = DATA) -> Partial:
    return Partial(place, NAME, len(data))


def names(place: Path) -> list[str]:
    return sorted(os.listdir(place))


def dead_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left(place: Path, length: int, owner: str, data: bytes = DATA) -> Path:
    """A prefix that some process has left."""
    place.mkdir(exist_ok=True)
    path = place / (f"{NAME}.{owner}" if owner else NAME)
    path.write_bytes(data[:length])
    return path


def host() -> str:
    return os.uname().nodename


def test_small_and_long_chunks_make_the_blob(place: Path) -> None:
    made = part(place)
    for start, end in ((0, 10), (10, 10), (10, 2_500_000), (2_500_000, len(DATA))):
        made.append(memoryview(DATA)[start:end])
        assert made.offset == end
    assert made.whole
    made.close()
    assert made.path.read_bytes() == DATA
    made.remove()
    assert names(place) == []


def test_what_is_given_up_is_taken_over(place: Path) -> None:
    first = part(place)
    first.append(DATA[:1000])
    first.give_up()
    assert names(place) == [NAME]
    second = part(place)
    assert second.offset == 1000
    second.append(DATA[1000:])
    assert second.whole
    second.remove()
    assert names(place) == []


def test_nothing_given_up_leaves_nothing(place: Path) -> None:
    part(place).give_up()
    assert names(place) == []


def test_a_dead_owners_prefix_is_taken_by_its_name(place: Path) -> None:
    old = left(place, 2000, f"{host()}-{dead_process()}-abc")
    inode = old.stat().st_ino
    taken = part(place)
    assert (taken.offset, taken.path.stat().st_ino) == (2000, inode)
    assert not old.exists()
    taken.append(DATA[2000:])
    assert taken.whole


@pytest.mark.parametrize(
    "owner",
    [f"elsewhere-{os.getpid()}-abc", f"{host()}-1-abc", "odd"],
    ids=["another host's", "of pid 1", "odd"],
)
def test_a_prefix_whose_owner_may_live_is_copied(place: Path, owner: str) -> None:
    old = left(place, 2000, owner)
    taken = part(place)
    assert taken.offset == 2000
    taken.append(DATA[2000:])
    assert taken.whole
    assert old.read_bytes() == DATA[:2000]
    taken.remove()
    assert old.exists()


def test_a_locked_prefix_is_left_alone(place: Path) -> None:
    old = left(place, 2000, f"{host()}-{dead_process()}-abc")
    with old.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert part(place).offset == 0
    assert old.read_bytes() == DATA[:2000]


def test_the_longest_prefix_is_taken(place: Path) -> None:
    left(place, 10, "")
    left(place, 3000, f"{host()}-{dead_process()}-abc")
    left(place, len(DATA) + 5, f"{host()}-{dead_process()}-def", DATA + b"12345")
    assert part(place).offset == 3000


def test_wrong_bytes_show_and_are_thrown_away(place: Path) -> None:
    left(place, 2000, "", b"x" * 2000)
    taken = part(place)
    taken.append(DATA[2000:])
    assert taken.offset == len(DATA)
    assert not taken.whole
    taken.restart()
    assert taken.offset == 0
    taken.append(DATA)
    assert taken.whole


def test_what_has_become_a_blob_is_never_written(place: Path, tmp_path: Path) -> None:
    """The puller was killed after its file was linked into the store."""
    whole = left(place, len(DATA), f"{host()}-{dead_process()}-abc")
    short = left(place, 5000, f"{host()}-{dead_process()}-def")
    for path in (whole, short):
        os.link(path, tmp_path / path.name)
    taken = part(place)
    assert taken.whole
    taken.restart()
    taken.append(b"y" * 7000)
    assert (tmp_path / whole.name).read_bytes() == DATA
    whole.unlink(missing_ok=True)
    again = part(place)
    assert again.offset == 0
    again.append(b"z" * 9000)
    assert (tmp_path / short.name).read_bytes() == DATA[:5000]


RACER = """
import fcntl, hashlib, sys, time
from pathlib import Path
if sys.argv[4] == "lying":
    fcntl.flock = lambda *args: None
from neuroncompile.tiers.partial import Partial
place, name, data = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]).read_bytes()
for number in range(40):
    made = Partial(place, name, len(data))
    while made.offset < len(data):
        made.append(data[made.offset : made.offset + 300_000])
    assert made.whole
    made.close()
    assert hashlib.sha256(made.path.read_bytes()).hexdigest() == name
    if number % 2:
        made.give_up()
    else:
        made.remove()
"""


@pytest.mark.parametrize("locks", ["working", "lying"])
def test_racing_processes_share_no_file(place: Path, tmp_path: Path, locks: str) -> None:
    """Also where flock succeeds for everyone, as on some network file systems."""
    (tmp_path / "data").write_bytes(DATA)
    command = [sys.executable, "-c", RACER, str(place), NAME, str(tmp_path / "data"), locks]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    racers = [
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) for _ in range(4)
    ]
    for racer in racers:
        _, err = racer.communicate(timeout=120)
        assert racer.returncode == 0, err


def test_a_file_that_changed_since_it_was_hashed_is_hashed_again(kit: Kit) -> None:
    store: Store = kit.here
    source = kit.store("source").publish("graph", spec(), [Layer("a", data=DATA)])
    manifest = kit.store("source").manifest_of(source)
    [blob] = [d for d in store.missing(manifest) if d.title == "a"]
    made = Partial(store.root / "v1" / "partial", NAME, len(DATA))
    made.append(DATA)
    made.close()
    with made.path.open("r+b") as file:
        file.write(b"X")
    os.utime(made.path, ns=(1, made.seen.st_mtime_ns + 1))
    key = kit.store("source").blob_path(f"sha256:{source.key}").read_bytes()
    from neuroncompile.errors import CorruptArtifactError

    with pytest.raises(CorruptArtifactError):
        store.adopt("graph", manifest, {NAME: made.path, source.key: key}, hashed={NAME: made.seen})
    assert blob in store.missing(manifest)
    assert list(store.artifacts()) == []
