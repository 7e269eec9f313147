"""Views: whole or not there, cheap, movable, and made again when somebody changed them."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import views

METHODS = ["_reflink", "_hardlink", "_symlink", "_copy"]


def only(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """A file system that can do no better than `method`."""

    def cannot(blob: Path, target: Path) -> None:
        target.touch()
        raise OSError(errno.EOPNOTSUPP, "cannot")

    for name in METHODS[: METHODS.index(method)]:
        monkeypatch.setattr(views, name, cannot)


def check(view: Path) -> None:
    assert (view / "program.json").read_bytes() == b"{}"
    assert (view / "graphs/a/model.so").read_bytes() == b"x" * 100
    assert (view / "graphs/b/model.so").read_bytes() == b"x" * 200


@pytest.mark.parametrize("method", METHODS[1:])
def test_each_method(kit: Any, method: str, monkeypatch: Any) -> None:
    only(monkeypatch, method)
    artifact = kit.publish()
    store = kit.fresh()
    view = store.view(artifact)
    check(view)
    assert view == kit.v1 / "views" / artifact.manifest_digest.removeprefix("sha256:")
    made = os.lstat(view / "program.json")
    assert kit.fresh().view(artifact) == view
    assert os.lstat(view / "program.json").st_ino == made.st_ino, "made again without need"
    os.utime(kit.blob(artifact, 2))  # a later publish re-arms the blob
    assert kit.fresh().view(artifact) == view
    assert os.lstat(view / "program.json").st_ino == made.st_ino, "made again without need"
    if method == "_hardlink":
        assert made.st_ino == kit.blob(artifact, 2).stat().st_ino
    assert (method == "_symlink") is (view / "program.json").is_symlink()
    if method == "_symlink":
        moved = kit.root.parent / "moved"
        kit.root.rename(moved)
        check(moved / view.relative_to(kit.root))


@pytest.mark.parametrize("method", METHODS[1:])
@pytest.mark.parametrize("change", ["remove", "edit", "replace"])
def test_changed_view_is_made_again(kit: Any, method: str, change: str, monkeypatch: Any) -> None:
    only(monkeypatch, method)
    artifact = kit.publish()
    file = kit.fresh().view(artifact) / "graphs/a/model.so"
    if change == "edit" and method == "_copy":
        file.chmod(0o644)
        file.write_bytes(b"y" * 100)
    else:
        file.unlink()
        if change != "remove":
            file.write_bytes(b"y" * 100)
    check(kit.fresh().view(artifact))


def test_writing_through_a_hard_link_is_noticed_at_lookup(kit: Any, monkeypatch: Any) -> None:
    only(monkeypatch, "_hardlink")
    artifact = kit.publish()
    file = kit.fresh().view(artifact) / "graphs/a/model.so"
    time.sleep(0.02)
    file.chmod(0o644)
    file.write_bytes(b"y" * 100)
    assert kit.fresh().lookup("graph", artifact.key) is None
    again = kit.publish()
    assert kit.fresh().lookup("graph", artifact.key) == again
    check(kit.fresh().view(again))


def test_file_in_place_of_the_view(kit: Any) -> None:
    artifact = kit.publish()
    (kit.v1 / "views").mkdir()
    (kit.v1 / "views" / artifact.manifest_digest[7:]).write_text("in the way")
    check(kit.store.view(artifact))


def test_missing_blob_makes_no_view(kit: Any) -> None:
    artifact = kit.publish()
    kit.blob(artifact).unlink()
    with pytest.raises(CorruptArtifactError):
        kit.store.view(artifact)
    assert list((kit.v1 / "tmp").iterdir()) == list((kit.v1 / "views").iterdir()) == []


VIEW = """
import sys
from pathlib import Path
from neuroncompile.store import Store
store = Store(Path(sys.argv[1]))
artifact = store.lookup("graph", sys.argv[2])
sys.stdin.readline()
print(store.view(artifact))
"""


def test_processes_that_make_one_view_at_once(kit: Any) -> None:
    artifact = kit.publish()
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", VIEW, str(kit.root), artifact.key],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    answers = {process.communicate("go\n")[0] for process in processes}
    assert answers == {f"{kit.store.view(artifact)}\n"}
    check(kit.store.view(artifact))
    assert list((kit.v1 / "tmp").iterdir()) == []


def test_lease_pins_while_inside(kit: Any) -> None:
    import fcntl

    artifact = kit.publish()
    with kit.store.lease(artifact) as view:
        check(view)
        (lease,) = (kit.v1 / "leases").iterdir()
        assert f"sha256:{json.loads(lease.read_text())['manifest']}" == artifact.manifest_digest
        with lease.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert list((kit.v1 / "leases").iterdir()) == []


def test_lease_of_a_collected_artifact(kit: Any) -> None:
    artifact = kit.publish()
    kit.blob(artifact).unlink()
    with pytest.raises(CorruptArtifactError), kit.store.lease(artifact):
        pass
    assert not (kit.v1 / "leases").exists() or list((kit.v1 / "leases").iterdir()) == []
