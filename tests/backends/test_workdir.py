"""The fixed directory: empty, ours, one process at a time, gone afterwards."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from neuroncompile.backends.workdir import fixed_directory, fixed_path, remove_leftover
from neuroncompile.errors import CompileError


@pytest.fixture
def key() -> Iterator[str]:
    """A key nobody else compiles."""
    key = uuid.uuid4().hex * 2
    yield key
    path = fixed_path(key)
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        path.rmdir()


def test_the_path_depends_on_the_key_alone(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fixed_path(key)
    monkeypatch.setenv("TMPDIR", "/var/tmp")
    assert fixed_path(key) == before
    assert fixed_path("f" + key[1:]) != fixed_path("e" + key[1:])


def test_it_is_private_empty_and_removed(key: str) -> None:
    leftover = fixed_path(key)
    leftover.mkdir(mode=0o700)
    (leftover / "old").mkdir()
    (leftover / "old" / "graph.o").write_bytes(b"x")
    with fixed_directory(key) as path:
        assert list(path.iterdir()) == []
        assert path.stat().st_mode & 0o777 == 0o700
        (path / "graph.cpp").write_text("int x;")
    assert not path.exists()


def test_it_is_removed_when_compiling_fails(key: str) -> None:
    with pytest.raises(RuntimeError), fixed_directory(key):
        raise RuntimeError
    assert not fixed_path(key).exists()


def test_a_directory_open_to_others_is_refused(key: str) -> None:
    path = fixed_path(key)
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(CompileError, match=str(path)), fixed_directory(key):
        pass
    assert path.exists()


def test_a_link_is_not_followed(key: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o700)
    (victim / "keep").write_text("mine")
    fixed_path(key).symlink_to(victim)
    with pytest.raises(CompileError, match="link"), fixed_directory(key):
        pass
    remove_leftover(key)
    assert (victim / "keep").read_text() == "mine"


def test_a_second_process_waits_for_the_first(key: str, tmp_path: Path) -> None:
    program = (
        "import sys; from neuroncompile.backends.workdir import fixed_directory\n"
        "with fixed_directory(sys.argv[1]) as path:\n"
        "    open(sys.argv[2], 'w').write(str(list(path.iterdir())))\n"
    )
    report = tmp_path / "report"
    with fixed_directory(key) as path:
        (path / "graph.o").write_bytes(b"x")
        second = subprocess.Popen([sys.executable, "-c", program, key, str(report)])
        time.sleep(0.7)
        assert not report.exists()
        remove_leftover(key)  # somebody compiles there: left alone
        assert (path / "graph.o").exists()
    assert second.wait(timeout=20) == 0
    assert report.read_text() == "[]"
    assert not fixed_path(key).exists()


def test_what_a_killed_compiler_left_is_removed(key: str) -> None:
    fixed_path(key).mkdir(mode=0o700)
    (fixed_path(key) / "graph.o").write_bytes(b"x")
    remove_leftover(key)
    assert not fixed_path(key).exists()
    remove_leftover(key)  # nothing there: nothing to do


@pytest.mark.skipif(os.getuid() != 0, reason="needs to become somebody else")
def test_somebody_elses_directory_is_refused_and_kept(key: str) -> None:
    path = fixed_path(key)
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)
    with pytest.raises(CompileError, match="somebody else"), fixed_directory(key):
        pass
    remove_leftover(key)
    assert path.exists()
