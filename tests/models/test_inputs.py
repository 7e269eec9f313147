"""Files are read once, and again when anything about them changed."""

from __future__ import annotations

import json
import os
import time
from hashlib import sha256
from pathlib import Path

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.inputs import Inputs


class Reads:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self, what: str, done: int, total: int | None) -> None:
        self.count += done == total


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"a" * 1000)
    time.sleep(0.05)  # timestamps of files just written are not trusted
    return path


def test_hashed_once(file: Path, tmp_path: Path) -> None:
    reads = Reads()
    for _ in range(3):
        assert Inputs(tmp_path).sha256(file, reads) == sha256(b"a" * 1000).hexdigest()
    assert reads.count == 1


def test_same_size_and_mtime_but_other_content_is_read_again(file: Path, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.sha256(file)
    stat = file.stat()
    file.write_bytes(b"b" * 1000)
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert inputs.sha256(file) == sha256(b"b" * 1000).hexdigest()


def test_replaced_by_rename_is_read_again(file: Path, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.sha256(file)
    other = tmp_path / "other"
    other.write_bytes(b"c" * 1000)
    other.rename(file)
    assert inputs.sha256(file) == sha256(b"c" * 1000).hexdigest()


def test_a_file_just_written_is_not_remembered(tmp_path: Path) -> None:
    path = tmp_path / "new"
    inputs = Inputs(tmp_path)
    path.write_bytes(b"x")
    inputs.sha256(path)
    path.write_bytes(b"y")
    assert inputs.sha256(path) == sha256(b"y").hexdigest()


def test_facts_are_kept_beside_the_digest(file: Path, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.remember(file, {"sizes": {"F32": 4}})
    inputs.sha256(file)
    assert inputs.recall(file) == {
        "sizes": {"F32": 4},
        "sha256": sha256(b"a" * 1000).hexdigest(),
    }
    assert [p.suffix for p in (tmp_path / "inputs").iterdir()] == [".json"]


@pytest.mark.parametrize("spoilt", [b"", b"[]", b"{}", b'{"file": 1}', b"\xff\xff"])
def test_a_spoilt_record_is_ignored(spoilt: bytes, file: Path, tmp_path: Path) -> None:
    inputs = Inputs(tmp_path)
    inputs.sha256(file)
    next((tmp_path / "inputs").iterdir()).write_bytes(spoilt)
    assert inputs.sha256(file) == sha256(b"a" * 1000).hexdigest()


def test_a_store_that_cannot_be_written(file: Path, tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file where the store should be")
    assert Inputs(tmp_path / "blocked").sha256(file) == sha256(b"a" * 1000).hexdigest()


def test_a_file_that_grows_meanwhile_is_refused(file: Path, tmp_path: Path) -> None:
    def grow(what: str, done: int, total: int | None) -> None:
        with file.open("ab") as stream:
            stream.write(b"z")
        time.sleep(0.01)

    with pytest.raises(ModelError, match="changed"):
        Inputs(tmp_path).sha256(file, lambda w, d, t: grow(w, d, t) if d == 1000 else None)


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        Inputs(tmp_path).sha256(tmp_path / "gone")


def test_record_is_json_with_the_path(file: Path, tmp_path: Path) -> None:
    Inputs(tmp_path).sha256(file)
    record = json.loads(next((tmp_path / "inputs").iterdir()).read_text())
    assert record["file"][0] == str(file)
