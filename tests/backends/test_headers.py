"""Precompiled headers: made once, never waited for, and nothing but time when they fail."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path

import pytest
from torch._inductor import codecache, cpp_builder

from neuroncompile.backends.cpu import headers
from neuroncompile.backends.cpu.headers import use_precompiled_headers

HEADER = "cstdint"  # small, so that the tests are about us


@pytest.fixture(autouse=True)
def _inductor_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codecache, "_precompile_header", codecache._precompile_header)
    # In this process, unlike a compiler's, distutils may have been imported before setuptools.
    monkeypatch.setenv("SETUPTOOLS_USE_DISTUTILS", "stdlib")
    headers._digest.cache_clear()


def precompile(directory: Path, header: str = HEADER, flags: str = "") -> str | None:
    assert use_precompiled_headers(directory)
    path: str | None = codecache._precompile_header(header, flags, device_type="cpu")
    return path


def test_made_once_and_included_by_g_plus_plus(tmp_path: Path) -> None:
    path = precompile(tmp_path)
    assert path is not None
    compiled = Path(path + ".gch")
    made = compiled.stat().st_mtime_ns
    assert precompile(tmp_path) == path
    assert compiled.stat().st_mtime_ns == made
    assert [p.name for p in tmp_path.iterdir() if "partial" in p.name] == []


def test_other_flags_and_other_headers_are_kept_apart(tmp_path: Path) -> None:
    paths = {precompile(tmp_path, h, f) for h in (HEADER, "cstddef") for f in ("", "-O1")}
    assert len(paths - {None}) == 4


def test_nobody_waits_for_another_compiler(tmp_path: Path) -> None:
    path = precompile(tmp_path)
    assert path is not None
    entry = Path(path).parent
    os.rename(entry, tmp_path / "elsewhere")
    with (tmp_path / f"{entry.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert precompile(tmp_path) is None
    assert precompile(tmp_path) == path


def test_what_a_killed_compiler_left_is_made_anew(tmp_path: Path) -> None:
    path = precompile(tmp_path)
    assert path is not None
    entry = Path(path).parent
    entry.rename(entry.with_name(f"{entry.name}.partial"))
    assert precompile(tmp_path) == path
    assert Path(path + ".gch").is_file()


def test_a_failure_costs_time_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert precompile(tmp_path / "file") is None
    assert precompile(tmp_path, "no/such/header.h") is None
    said = [record for record in caplog.records if record.name == headers.__name__]
    assert len(said) == 2


def test_abandoned_ones_go_when_another_is_made(tmp_path: Path) -> None:
    old, recent = tmp_path / "old", tmp_path / "recent"
    old.mkdir()
    recent.mkdir()
    long_ago = time.time() - headers.UNUSED_SECONDS - 60
    os.utime(old, (long_ago, long_ago))
    precompile(tmp_path)
    assert not old.exists()
    assert recent.exists()


def test_only_g_plus_plus_is_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_builder, "is_gcc", lambda: False)
    assert not use_precompiled_headers(tmp_path)
    assert not use_precompiled_headers(None)
