"""The part of tar that is written and read; hostile ones are in test_archive_hostile."""

from __future__ import annotations

import io
import tarfile

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import tar
from tests.store.archives import Pipe

NAME = "blobs/sha256/" + "a" * 64


@pytest.mark.parametrize("size", [0, 1, 8**11 - 1, 8**11, 3 << 40])
def test_a_header_is_what_tar_reads(size: int) -> None:
    """From 8 GiB on the size is binary, as GNU tar and Go write it."""
    block = tar.header(NAME, size)
    info = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    assert len(block) == tar.BLOCK
    assert (info.name, info.size, info.mode, info.mtime, info.uid) == (NAME, size, 0o644, 0, 0)
    assert info.isreg()
    member = next(tar.members(io.BytesIO(block)))
    assert (member.name, member.size, member.is_directory) == (NAME, size, False)


def test_a_directory() -> None:
    info = tarfile.TarInfo.frombuf(tar.header("blobs/", 0, directory=True), "utf-8", "strict")
    assert info.isdir()
    assert info.mode == 0o755
    assert next(tar.members(io.BytesIO(tar.header("blobs/", 0, directory=True)))).is_directory


@pytest.mark.parametrize("name", ["", "x" * 101])
def test_a_name_that_does_not_fit(name: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        tar.header(name, 0)


def whole(*files: tuple[str, bytes]) -> bytes:
    data = b"".join(tar.header(n, len(d)) + d + tar.padding(len(d)) for n, d in files)
    return data + tar.end(len(data))


def test_members_are_read_in_order_even_if_not_looked_at() -> None:
    data = whole(("a", b"x" * 1000), ("b", b""), ("c", b"y" * 512))
    assert len(data) % 10240 == 0, "as tar pads it"
    assert [m.name for m in tar.members(Pipe(data))] == ["a", "b", "c"]
    read = {m.name: b"".join(m.chunks()) for m in tar.members(Pipe(data, piece=1))}
    assert read == {"a": b"x" * 1000, "b": b"", "c": b"y" * 512}


def test_chunks_are_bounded() -> None:
    data = whole(("a", bytes(5 << 20)))
    [member] = [[len(c) for c in m.chunks()] for m in tar.members(io.BytesIO(data))]
    assert max(member) <= 1 << 20
    assert sum(member) == 5 << 20


def test_an_end_within_a_file() -> None:
    data = whole(("a", b"x" * 1000))
    member = next(tar.members(Pipe(data[: 512 + 500])))
    with pytest.raises(StoreError, match="ends within 'a', 500 bytes early"):
        list(member.chunks())
