"""Any bytes at all: never written elsewhere, never a wrong artifact."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuroncompile.errors import StoreError, TrustError
from neuroncompile.keys import digest_of
from neuroncompile.store import Store
from neuroncompile.store.archive_read import import_tar
from neuroncompile.store.archive_write import export_stream
from tests.store.archives import END, member, sha, split


@pytest.fixture(scope="module")
def world() -> Iterator[tuple[bytes, dict[str, Any], Path]]:
    """A valid archive of three artifacts, what it holds, and a directory in memory."""
    from tests.store.conftest import Kit

    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="neuroncompile-", dir=shm) as name:
        kit = Kit(Path(name) / "source")
        kit.publish(0, provenance={"model": "m"})
        kit.publish(1, "y")
        kit.store.set_ref("name", kit.publish(2, "z"))
        stream = io.BytesIO()
        export_stream(kit.store, list(kit.store.artifacts()), stream)
        truth = {a.key: a for a in kit.store.artifacts()}
        yield stream.getvalue(), truth, Path(name)


@st.composite
def damaged(draw: st.DrawFn, length: int, count: int) -> list[tuple[str, Any]]:
    """What is done to the archive, one thing after the other."""
    flips = st.tuples(st.just("flip"), st.tuples(st.integers(0, length - 1), st.integers(1, 255)))
    cuts = st.tuples(st.just("cut"), st.integers(0, length))
    orders = st.tuples(st.just("order"), st.permutations(range(count)))
    drops = st.tuples(st.just("drop"), st.integers(0, count - 1))
    doubles = st.tuples(st.just("double"), st.integers(0, count - 1))
    swaps = st.tuples(
        st.just("swap"), st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    )
    renames = st.tuples(
        st.just("rename"),
        st.tuples(
            st.integers(0, count - 1),
            st.sampled_from(["../x", "index.json", "blobs/sha256/" + "a" * 64, "/x", "refs/x"]),
        ),
    )
    zeros = st.tuples(st.just("zero"), st.tuples(st.integers(0, length - 1), st.integers(1, 1024)))
    inserts = st.tuples(
        st.just("insert"), st.tuples(st.integers(0, length), st.binary(max_size=600))
    )
    steps = st.one_of(flips, cuts, orders, drops, doubles, swaps, renames, zeros, inserts)
    return draw(st.lists(steps, min_size=1, max_size=3))


def apply(data: bytes, steps: list[tuple[str, Any]]) -> bytes:
    """Steps on members first, while there are members; then those on bytes."""
    parts = split(data)
    for what, how in steps:
        if what == "order":
            parts = [parts[i] for i in how if i < len(parts)]
        elif what == "drop" and how < len(parts):
            del parts[how]
        elif what == "double" and how < len(parts):
            parts.append(parts[how])
        elif what == "swap" and max(how) < len(parts):
            one, two = (parts[i] for i in how)
            parts[how[0]], parts[how[1]] = one[:512] + two[512:], two[:512] + one[512:]
        elif what == "rename" and how[0] < len(parts):
            size = int(parts[how[0]][124:135], 8)
            parts[how[0]] = member(how[1], parts[how[0]][512 : 512 + size])
    raw = bytearray(b"".join(parts) + END)
    for what, how in steps:
        if what == "flip" and how[0] < len(raw):
            raw[how[0]] ^= how[1]
        elif what == "cut":
            del raw[how:]
        elif what == "zero":
            raw[how[0] : how[0] + how[1]] = bytes(len(raw[how[0] : how[0] + how[1]]))
        elif what == "insert":
            raw[how[0] : how[0]] = how[1]
    return bytes(raw)


LIMITS = settings(
    max_examples=200,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


def outside(root: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(root)): p.read_bytes() if p.is_file() else b""
        for p in root.rglob("*")
        if not p.is_relative_to(root / "target")
    }


def check(data: bytes, world: tuple[bytes, dict[str, Any], Path]) -> bool:
    """Import `data` into a new store beside a canary; whether it was taken."""
    _, truth, root = world
    before = outside(root)
    with tempfile.TemporaryDirectory(prefix="target-", dir=root) as name:
        store = Store(Path(name) / "target")
        try:
            import_tar(store, io.BytesIO(data))
            taken = True
        except (StoreError, TrustError):
            taken = False
        v1 = store.root / "v1"
        assert os.listdir(name) == ["target"]
        assert os.listdir(v1 / "tmp") == []
        for blob in (v1 / "blobs" / "sha256").iterdir():
            assert digest_of(blob.read_bytes()) == blob.name
        found = {a.key: a for a in store.artifacts()}
        assert found.items() <= truth.items(), "what comes in is what went out, or nothing"
        for artifact in found.values():
            assert store.lookup(artifact.kind, artifact.key, verify="full") == artifact
            assert store.spec_of(artifact)["kind"] == "graph"
        if not taken:
            assert not found
    assert outside(root) == before
    return taken


@LIMITS
@given(data=st.data())
def test_a_damaged_archive(data: st.DataObject, world: Any) -> None:
    good = world[0]
    steps = data.draw(damaged(len(good), len(split(good))))
    check(apply(good, steps), world)


@settings(LIMITS, max_examples=100)
@given(junk=st.binary(max_size=3000))
def test_junk(junk: bytes, world: Any) -> None:
    assert not check(junk, world)


def test_flips_in_headers(world: Any) -> None:
    """Flips where they hurt most, in headers, with a wrong checksum and a right one."""
    parts = split(world[0])
    taken = 0
    for number in (2, 3, 5):
        for at in range(number % 3, 512, 11):
            header = bytearray(parts[number][:512])
            header[at] ^= 1 << at % 8
            for fixed in (False, True):
                if fixed:
                    header[148:156] = b"        "
                    header[148:156] = b"%06o\0 " % sum(header)
                changed = [*parts]
                changed[number] = bytes(header) + parts[number][512:]
                taken += check(b"".join(changed) + END, world)
    assert taken, "owner, date and their like change nothing"


def test_the_archive_itself_is_taken(world: Any) -> None:
    assert check(world[0], world)
    assert check(b"".join(split(world[0])[::-1]) + END, world)
    assert not check(world[0] + member(f"blobs/sha256/{sha(b'x')}", b"x") + END, world)
