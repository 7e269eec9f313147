"""Export and import that are killed, run out of disk, or may not write: nothing wrong is left."""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import Layer, Store
from neuroncompile.store.archive_read import import_directory, import_tar
from neuroncompile.store.archive_write import export_directory, export_stream, export_tar
from tests.conftest import ROOT

ReadOnly = Callable[[Path], None]


@pytest.fixture
def source(kit: Any) -> Store:
    for number in range(3):
        kit.store.publish(
            "graph", kit.spec(number), [Layer(f"{n}.so", data=os.urandom(90_000)) for n in "abc"]
        )
    store: Store = kit.store
    return store


def exported(store: Store) -> bytes:
    stream = io.BytesIO()
    export_stream(store, list(store.artifacts()), stream)
    return stream.getvalue()


# Ends itself by SIGKILL at the n-th call of one of the functions through which everything that
# changes the disk goes, so each run dies at another step.
KILLED = """
import os, signal, sys
from pathlib import Path
from neuroncompile.store import Store, tar
from neuroncompile.store.archive_read import import_directory, import_tar
from neuroncompile.store.archive_write import export_directory, export_tar

what, root, path, count = sys.argv[1:]
store, path, count = Store(Path(root)), Path(path), int(count)

def dying(function):
    def call(*args, **options):
        global count
        count -= 1
        if count < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args, **options)
    return call

for name in ("open", "write", "fsync", "link", "rename", "replace", "unlink", "mkdir", "utime"):
    setattr(os, name, dying(getattr(os, name)))
for name in ("header", "padding", "end"):
    setattr(tar, name, dying(getattr(tar, name)))
if what == "import-tar":
    with open(path, "rb") as file:
        import_tar(store, file)
elif what == "import-directory":
    import_directory(store, path)
elif what == "export-tar":
    export_tar(store, list(store.artifacts()), path)
elif what == "export-directory":
    export_directory(store, list(store.artifacts()), path)
"""


def run_until_killed(what: str, store: Path, path: Path, count: int) -> bool:
    """Whether it was killed; any other failure fails the test."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, what, str(store), str(path), str(count)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def steps(what: str, store: Path, path: Path) -> Iterator[int]:
    """Counts at which to die, wider apart as it goes on, until it is not killed any more."""
    count = 0
    while run_until_killed(what, store, path, count):
        yield count
        count += 1 + count // 4
    assert count > 20, "nothing was killed"


@pytest.mark.parametrize("what", ["import-tar", "import-directory"])
def test_an_import_that_is_killed(kit: Any, source: Store, what: str) -> None:
    base = kit.root.parent
    if what == "import-tar":
        path = base / "a.tar"
        path.write_bytes(exported(source))
    else:
        path = base / "dir"
        export_directory(source, list(source.artifacts()), path)
    truth = {a.key: a for a in source.artifacts()}
    target = base / "target"
    for _ in steps(what, target, path):
        store = kit.fresh(target)
        found = {a.key: a for a in store.artifacts()}
        assert found.items() <= truth.items()
        kit.assert_whole(store) if (target / "v1" / "blobs" / "sha256").exists() else None
    assert {a.key: a for a in kit.fresh(target).artifacts()} == truth
    assert kit.assert_whole(kit.fresh(target)) == 3
    assert kit.warnings == []


@pytest.mark.parametrize("what", ["export-tar", "export-directory"])
def test_an_export_that_is_killed(kit: Any, source: Store, what: str) -> None:
    base = kit.root.parent / "out"
    base.mkdir()
    path = base / "archive"
    for _ in steps(what, source.root, path):
        for left in base.iterdir():
            assert left == path or left.name.startswith(".archive."), left
            assert left == path or left.name.endswith(".partial"), left
        if path.exists():  # killed when all was done but the last fsync
            assert_takes_in(kit, path)
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert_takes_in(kit, path)


def assert_takes_in(kit: Any, path: Path) -> None:
    """The archive is whole."""
    with tempfile.TemporaryDirectory(dir=kit.root.parent) as name:
        store = kit.fresh(Path(name))
        if path.is_dir():
            import_directory(store, path)
        else:
            import_tar(store, io.BytesIO(path.read_bytes()))
        assert kit.assert_whole(store) == 3


def test_an_export_that_is_killed_leaves_the_old_tar(kit: Any, source: Store) -> None:
    path = kit.root.parent / "a.tar"
    path.write_bytes(b"old")
    assert run_until_killed("export-tar", source.root, path, 30)
    assert path.read_bytes() == b"old"


def test_an_interrupted_import_cleans_up(kit: Any, source: Store) -> None:
    """Ctrl-C in the middle of a pipe that then stays silent."""
    data = exported(source)
    target = kit.root.parent / "target"
    process = subprocess.Popen(
        [sys.executable, "-m", "neuroncompile", "store", "import", "-", "--store", str(target)],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdin is not None
    process.stdin.write(data[:300_000])
    process.stdin.flush()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if any(p.is_file() for p in (target / "v1" / "tmp").rglob("*")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert list((target / "v1" / "tmp").iterdir()) == []
    assert list((target / "v1" / "blobs" / "sha256").iterdir()) == []


def test_an_import_into_a_read_only_store(kit: Any, source: Store, read_only: ReadOnly) -> None:
    data = exported(source)
    target = kit.fresh(kit.root.parent / "target")
    target.publish("graph", kit.spec(9), kit.layers())
    before = kit.tree(target.root)
    read_only(target.root)
    with pytest.raises(StoreError) as caught:
        import_tar(target, io.BytesIO(data))
    assert "--store" in str(caught.value.hint)
    assert kit.tree(target.root) == before


def test_an_export_into_a_read_only_directory(
    kit: Any, source: Store, read_only: ReadOnly, tmp_path: Path
) -> None:
    place = tmp_path / "ro"
    place.mkdir()
    read_only(place)
    artifacts = list(source.artifacts())
    for write in (export_tar, export_directory):
        with pytest.raises(StoreError, match="cannot write") as caught:
            write(source, artifacts, place / "x")
        assert "-o" in str(caught.value.hint)
    for path in (tmp_path / "no" / "such" / "x.tar", tmp_path / "ro" / "x.tar"):
        with pytest.raises(StoreError, match="cannot write"):
            export_tar(source, artifacts, path)
    assert os.listdir(place) == []


def test_an_export_of_a_read_only_store(
    kit: Any, source: Store, read_only: ReadOnly, tmp_path: Path
) -> None:
    before = kit.tree(source.root)
    read_only(source.root)
    export_tar(kit.fresh(), list(source.artifacts()), tmp_path / "a.tar")
    import_tar(
        other := kit.fresh(tmp_path / "other"), io.BytesIO((tmp_path / "a.tar").read_bytes())
    )
    assert kit.assert_whole(other) == 3
    assert kit.tree(source.root) == before


def test_a_full_disk_under_an_export(source: Store, small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(600_000))
    artifacts = list(source.artifacts())
    for write in (export_tar, export_directory):
        with pytest.raises(StoreError, match="no space left"):
            write(source, artifacts, small_disk / "x")
        assert os.listdir(small_disk) == ["ballast"]
    (small_disk / "ballast").unlink()
    export_tar(source, artifacts, small_disk / "x")
    assert tarfile.is_tarfile(small_disk / "x")


def test_a_full_disk_under_an_import(kit: Any, source: Store, small_disk: Path) -> None:
    data = exported(source)
    store = kit.fresh(small_disk / "store")
    store.scratch("warm").rmdir()
    ballast = small_disk / "ballast"
    for size in (900_000, 600_000, 500_000, 400_000, 300_000):
        ballast.write_bytes(b"")
        ballast.write_bytes(bytes(size))
        with pytest.raises(StoreError, match="no space left"):
            import_tar(store, io.BytesIO(data))
        assert list((store.root / "v1" / "tmp").iterdir()) == []
        kit.assert_whole(store)
    ballast.unlink()
    import_tar(store, io.BytesIO(data))
    assert kit.assert_whole(store) == 3


def test_a_reader_that_goes_away(source: Store) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with (
        os.fdopen(writer, "wb", buffering=0) as file,
        pytest.raises(StoreError, match="whoever read it has gone"),
    ):
        export_stream(source, list(source.artifacts()), file)


def test_a_source_that_cannot_be_read(kit: Any) -> None:
    class Failing(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            raise OSError(5, "Input/output error")

    with pytest.raises(StoreError, match="the archive cannot be read: Input/output error"):
        import_tar(kit.store, Failing())


def test_memory_is_bounded(kit: Any, tmp_path: Path) -> None:
    """A file of 200 MB goes out and in within 100 MB, most of them the interpreter's."""
    big = tmp_path / "big"
    with open(big, "wb") as file:
        file.truncate(200_000_000)
    kit = type(kit)(tmp_path / "store")  # on disk
    kit.store.publish("graph", kit.spec(), [Layer("big", path=big)])
    script = """
import sys
from pathlib import Path
from neuroncompile.store import Store
from neuroncompile.store.archive_read import import_tar
from neuroncompile.store.archive_write import export_tar
store, path = Store(Path(sys.argv[1])), Path(sys.argv[2])
export_tar(store, list(store.artifacts()), path)
with open(path, "rb") as file:
    import_tar(Store(Path(sys.argv[3])), file)
# Not ru_maxrss: that one survives exec, and is the memory of whoever started us.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(kit.root), str(tmp_path / "a"), str(tmp_path / "b")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 100_000, "kilobytes"
