"""A store that fails the test on any warning it does not expect, and artifacts to put in it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.keys import spec_key
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.oci import AOTI


def spec(number: int = 0) -> dict[str, Any]:
    return {"schema": 1, "kind": "graph", "backend": "cpu", "bucket": number}


def layers(text: str = "x") -> list[Layer]:
    return [
        Layer("program.json", data=b"{}"),
        Layer("graphs/a/model.so", data=text.encode() * 100, media_type=AOTI),
        Layer("graphs/b/model.so", data=text.encode() * 200, media_type=AOTI),
    ]


def tree(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*")}


def assert_whole(store: Store) -> int:
    """Every pointer leads to whole bytes, every blob has its digest; how many pointers."""
    import hashlib

    v1 = store.root / "v1"
    for blob in (v1 / "blobs" / "sha256").iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
        assert blob.stat().st_mode & 0o777 == 0o444
    count = 0
    for pointer in (v1 / "actions").glob("*/*"):
        artifact = store.lookup(pointer.parent.name, pointer.name, verify="full")
        assert artifact is not None
        view = store.view(artifact)
        for layer in artifact.layers:
            data = (view / layer.title).read_bytes()
            assert f"sha256:{hashlib.sha256(data).hexdigest()}" == layer.digest
        count += 1
    return count


class Kit:
    """What the tests of this directory share."""

    spec = staticmethod(spec)
    layers = staticmethod(layers)
    tree = staticmethod(tree)
    assert_whole = staticmethod(assert_whole)

    def __init__(self, root: Path) -> None:
        self.root = root
        self.v1 = root / "v1"
        self.warnings: list[str] = []
        self.store = self.fresh()

    def fresh(self, root: Path | None = None) -> Store:
        """A second process's view of the store: nothing in memory."""
        return Store(root or self.root, on_warning=self.warnings.append)

    def publish(self, number: int = 0, text: str = "x", **more: Mapping[str, Any]) -> Artifact:
        return self.store.publish("graph", spec(number), layers(text), **more)

    def key(self, number: int = 0) -> str:
        return spec_key(spec(number))

    def blob(self, artifact: Artifact, index: int = 0) -> Path:
        return self.store.blob_path(artifact.layers[index].digest)


@pytest.fixture
def kit() -> Iterator[Kit]:
    """In memory where there is a tmpfs: these tests fsync some thousand times."""
    shm = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="neuroncompile-", dir=shm) as root:
        yield Kit(Path(root) / "store")


@pytest.fixture
def disk_kit(tmp_path: Path) -> Kit:
    """On the file system of the temporary directory."""
    return Kit(tmp_path / "store")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB."""
    yield from _mounted(tmp_path / "disk", ["-t", "tmpfs", "-o", "size=1m", "tmpfs"])


@pytest.fixture
def read_only() -> Iterator[Callable[[Path], None]]:
    """Make a directory tree read-only: by a mount for root, by its mode for others."""
    undo: list[Callable[[], object]] = []

    def apply(path: Path) -> None:
        if os.geteuid() != 0:
            directories = [path, *(p for p in path.rglob("*") if p.is_dir())]
            for directory in directories:
                directory.chmod(0o555)
                undo.append(lambda d=directory: d.chmod(0o755))  # type: ignore[misc]
            return
        _mount(["--bind", str(path), str(path)])
        undo.append(lambda: subprocess.run(["umount", "-l", str(path)], check=True))
        _mount(["-o", "remount,bind,ro", str(path)])

    yield apply
    for step in undo:
        step()


def _mounted(path: Path, arguments: list[str]) -> Iterator[Path]:
    path.mkdir()
    _mount([*arguments, str(path)])
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def _mount(arguments: list[str]) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mount: {done.stderr.strip()}")
