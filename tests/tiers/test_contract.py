"""What every tier does, over each of them."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import Descriptor
from neuroncompile.tiers import BlobNotFoundError, Tier

KEY = "ab" * 32
BIG = 40 << 20  # several ranges and parts


def named(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def described(data: bytes, size: int | None = None) -> Descriptor:
    return Descriptor("x", f"sha256:{named(data)}", len(data) if size is None else size, "a/b")


def test_an_empty_tier_has_nothing(tier: Tier) -> None:
    assert tier.get_pointer("compile", KEY) is None
    assert list(tier.actions()) == []
    blob = described(b"x")
    assert tier.missing([blob]) == [blob]
    assert tier.missing([]) == []
    with pytest.raises(BlobNotFoundError):
        list(tier.read(named(b"x")))
    with pytest.raises(BlobNotFoundError):
        list(tier.read(named(b"x"), 0, BIG))
    with pytest.raises(BlobNotFoundError):
        tier.fetch(named(b"x"))


@pytest.mark.parametrize("data", [b"", b"x", os.urandom(100_000)], ids=["none", "one", "many"])
def test_bytes_come_back(tier: Tier, data: bytes, tmp_path: Path) -> None:
    name = named(data)
    tier.write(name, data)
    assert tier.missing([described(data)]) == []
    assert b"".join(tier.read(name)) == data
    assert b"".join(tier.read(name, 0, len(data))) == data
    assert tier.fetch(name) == data
    path = tmp_path / "again"
    path.write_bytes(data)
    tier.write(name, path)
    assert tier.fetch(name) == data


def test_big_files_in_parts_from_any_offset(tier: Tier, tmp_path: Path) -> None:
    data = os.urandom(BIG + 12345)
    path = tmp_path / "big"
    path.write_bytes(data)
    tier.write(named(data), path)
    assert tier.missing([described(data)]) == []
    for offset in (0, 1, 8 << 20, BIG, len(data) - 1):
        rest = b"".join(tier.read(named(data), offset, len(data)))
        assert rest == data[offset:]
    tail = b"".join(tier.read(named(data), BIG))
    assert tail == data[BIG:]


def test_a_reader_may_stop(tier: Tier) -> None:
    data = os.urandom(BIG)
    tier.write(named(data), data)
    chunks = iter(tier.read(named(data), 0, len(data)))
    first = bytes(next(chunks))
    assert first == data[: len(first)]
    del chunks
    assert b"".join(tier.read(named(data), 0, len(data))) == data


def test_another_size_is_missing(tier: Tier) -> None:
    tier.write(named(b"xyz"), b"xyz")
    wrong = described(b"xyz", size=4)
    assert tier.missing([described(b"xyz"), wrong]) == [wrong]


@pytest.mark.parametrize("size", [10, 20 << 20], ids=["small", "parts"])
def test_wrong_bytes_are_never_put(tier: Tier, size: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"y" * size)
    other = named(b"other")
    with pytest.raises(CorruptArtifactError):
        tier.write(other, path)
    with pytest.raises(CorruptArtifactError):
        tier.write(other, b"y")
    blob = Descriptor("x", f"sha256:{other}", size, "a/b")
    assert tier.missing([blob]) == [blob]


def test_the_first_pointer_stays_until_it_is_replaced(tier: Tier) -> None:
    assert tier.put_pointer("compile", KEY, b"first")
    assert not tier.put_pointer("compile", KEY, b"second")
    assert tier.get_pointer("compile", KEY) == b"first"
    assert tier.put_pointer("compile", KEY, b"third", replace=True)
    assert tier.get_pointer("compile", KEY) == b"third"
    assert tier.get_pointer("graph", KEY) is None


def test_of_many_writers_of_a_pointer_one_wins(tier: Tier) -> None:
    with ThreadPoolExecutor(8) as pool:
        for number in range(5):
            key = f"{number:064x}"
            puts = [pool.submit(tier.put_pointer, "graph", key, b"%d" % i) for i in range(8)]
            won = [i for i, put in enumerate(puts) if put.result()]
            assert len(won) == 1
            assert tier.get_pointer("graph", key) == b"%d" % won[0]


def test_actions_are_listed_by_kind(tier: Tier) -> None:
    for kind, number in (("graph", 2), ("compile", 1), ("graph", 1)):
        tier.put_pointer(kind, f"{number:064x}", b"{}")
    tier.write(named(b"x"), b"x")
    assert list(tier.actions("graph")) == [("graph", f"{1:064x}"), ("graph", f"{2:064x}")]
    assert [kind for kind, _ in tier.actions()] == ["compile", "graph", "graph"]


def test_a_blob_is_replaced_as_a_whole(tier: Tier, tmp_path: Path) -> None:
    data = b"right"
    tier.write(named(data), data)
    tier.write(named(data), data)
    assert tier.fetch(named(data)) == data
