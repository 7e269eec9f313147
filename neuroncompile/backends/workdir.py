"""The fixed directory that something is compiled in.

A compiled object contains the paths of its sources, so equal bytes need an equal path on every
host and in every run: it is a function of the graph's key. That makes it guessable, hence
private to us, and shared between processes, hence locked.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from neuroncompile.errors import CompileError

__all__ = ["fixed_directory", "fixed_path", "remove_leftover"]

ROOT = Path("/tmp")  # not TMPDIR: the path must not depend on who compiles


def fixed_path(key: str) -> Path:
    """Where the graph with this key is compiled."""
    return ROOT / f"neuroncompile-{key[:32]}"


@contextmanager
def fixed_directory(key: str, on_wait: Callable[[], None] | None = None) -> Iterator[Path]:
    """An empty directory at `fixed_path(key)`, ours alone until the end; waits for others.

    Args:
        on_wait: called once when somebody else has it.

    Raises:
        CompileError: the path exists and is not a private directory of ours.
    """
    path = fixed_path(key)
    lock = _lock(path, wait=on_wait is None)
    if lock is None:
        assert on_wait is not None
        on_wait()
        lock = _lock(path, wait=True)
    assert lock is not None
    try:
        _empty(path)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def remove_leftover(key: str) -> None:
    """Remove what a killed compiler left behind, unless somebody compiles there now."""
    path = fixed_path(key)
    if not path.is_dir() or path.is_symlink() or path.stat().st_uid != os.getuid():
        return
    lock = _lock(path, wait=False)
    if lock is not None:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _lock(path: Path, *, wait: bool) -> int | None:
    """An open, locked descriptor of the directory that is at `path` now."""
    while True:
        try:
            path.mkdir(mode=0o700, exist_ok=True)
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # the one before us removed it in between
        except (FileExistsError, NotADirectoryError):
            raise _refused(path, "is a link or a file") from None
        except PermissionError:
            raise _refused(path, "belongs to somebody else") from None
        status = os.fstat(handle)
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            os.close(handle)
            raise _refused(path, "belongs to somebody else or is open to others")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return None
        try:
            if os.stat(path, follow_symlinks=False).st_ino == status.st_ino:
                return handle
        except FileNotFoundError:
            pass
        os.close(handle)  # the one before us removed it while we waited


def _refused(path: Path, why: str) -> CompileError:
    return CompileError(
        f"the compiler's directory {path} {why}",
        hint=f"have its owner remove it, then build again: rm -r {path}",
        details={"directory": str(path)},
    )


def _empty(path: Path) -> None:
    for entry in path.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
