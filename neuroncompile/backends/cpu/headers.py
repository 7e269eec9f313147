"""Torch's headers, parsed once for a machine instead of once for every graph.

g++ spends half of a small graph's seconds on them. Precompiled they take about 270 MB for each
combination of torch, compiler, instruction set and flags. The objects that come out are the
same bytes with and without, so nothing here is part of a key, and whatever goes wrong only
costs time.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from torch._inductor import codecache, cpp_builder

__all__ = ["use_precompiled_headers"]

UNUSED_SECONDS = 30 * 86400  # then a combination is taken for abandoned


def use_precompiled_headers(directory: Path | None) -> bool:
    """Have Inductor include precompiled headers kept in `directory`; whether it will.

    Only g++ is served; the format of others is their own. None asks for none.
    """
    if directory is None or not cpp_builder.is_gcc():
        return False

    def precompile(header: str, flags: str, **options: Any) -> str | None:
        return _precompiled(directory, header, flags, tuple(sorted(options.items())))

    codecache._precompile_header = precompile  # type: ignore[assignment]
    return True


def _precompiled(
    directory: Path, header: str, flags: str, options: tuple[tuple[str, Any], ...]
) -> str | None:
    """Path to include `header` by; None while another compiler makes it, or if it fails."""
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        entry = directory / _digest(header, flags, options)
        ready = entry / "header.h.gch"
        if not ready.exists():
            with _alone(directory, entry.name) as alone:
                if not alone:
                    return None
                if not ready.exists():
                    _make(entry, header, dict(options))
                    _remove_unused(directory)
        os.utime(entry)
        return str(entry / "header.h")
    except Exception as error:  # without it the compile is slower and nothing else
        logging.getLogger(__name__).warning("%s is not precompiled: %s", header, error)
        return None


@cache
def _digest(header: str, flags: str, options: tuple[tuple[str, Any], ...]) -> str:
    """Name of this header as this compiler sees it: any change of torch's files is another."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "header.hpp"
        source.write_text(f"#include <{header}>\n")
        build = cpp_builder.CppTorchDeviceOptions(**dict(options), preprocessing=True)
        builder = cpp_builder.CppBuilder(
            name=str(source.with_suffix("")), sources=str(source), BuildOption=build
        )
        builder.build()
        text = Path(builder.get_target_file_path()).read_bytes()
    compiler = cpp_builder.get_compiler_version_info(build.get_compiler())
    digest = hashlib.sha256(f"{header}\0{flags}\0{compiler}\0".encode())
    digest.update(repr([(name, str(value)) for name, value in options]).encode())
    digest.update(text)
    return digest.hexdigest()[:32]


def _make(entry: Path, header: str, options: dict[str, Any]) -> None:
    """Compile beside and rename: what is there under its name is complete."""
    partial = entry.with_name(f"{entry.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o700)
    (partial / "header.h").write_text(f"#include <{header}>\n")
    try:
        cpp_builder.CppBuilder(
            name=str(partial / "header.h"),
            sources=str(partial / "header.h"),
            BuildOption=cpp_builder.CppTorchDeviceOptions(**options, precompiling=True),
        ).build()
        shutil.rmtree(entry, ignore_errors=True)
        partial.rename(entry)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextlib.contextmanager
def _alone(directory: Path, name: str) -> Iterator[bool]:
    """Whether we may make this one; another compiler goes on without rather than wait."""
    with (directory / f"{name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _remove_unused(directory: Path) -> None:
    oldest = time.time() - UNUSED_SECONDS
    for entry in directory.iterdir():
        if entry.is_dir() and entry.stat().st_mtime < oldest:
            shutil.rmtree(entry, ignore_errors=True)
            entry.with_name(f"{entry.name}.lock").unlink(missing_ok=True)
