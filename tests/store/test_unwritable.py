"""Stores that cannot be written: reading works, writing fails with the fix, nothing is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import Layer, Store

ReadOnly = Callable[[Path], None]


def test_read_only_store_serves_a_view_that_is_there(kit: Any, read_only: ReadOnly) -> None:
    artifact = kit.publish(provenance={"a": 1})
    view = kit.store.view(artifact)
    pointer = kit.v1 / "actions" / "graph" / artifact.key
    os.utime(pointer, (0, 0))
    before = kit.tree(kit.root)
    read_only(kit.root)
    store = kit.fresh()
    assert store.lookup("graph", kit.key()) == artifact
    assert store.view(artifact) == view
    assert store.find(artifact.key[:12]) == artifact
    assert store.provenance_of(artifact) == {"a": 1}
    with store.lease(artifact) as leased:
        assert leased == view
    assert kit.tree(kit.root) == before
    assert kit.warnings == []


READ = """
import sys
from pathlib import Path
from neuroncompile.store import Store
store = Store(Path(sys.argv[1]), on_warning=print)
artifact = store.lookup("graph", sys.argv[2])
view = store.view(artifact)
assert view == store.view(artifact)
assert (view / "graphs/a/model.so").read_bytes() == b"x" * 100
assert (view / "program.json").is_symlink()
print(view)
"""


def test_read_only_store_without_a_view(kit: Any, read_only: ReadOnly) -> None:
    artifact = kit.publish()
    shutil.rmtree(kit.v1 / "ingest")  # nothing is known to be whole either
    read_only(kit.root)
    done = subprocess.run(
        [sys.executable, "-c", READ, str(kit.root), artifact.key], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    view = Path(done.stdout.strip())
    assert not view.is_relative_to(kit.root)
    assert not view.exists(), "the temporary view must go with its process"


def test_read_only_store_refuses_corruption_every_time(kit: Any, read_only: ReadOnly) -> None:
    artifact = kit.publish()
    blob = kit.blob(artifact)
    blob.chmod(0o644)
    blob.write_bytes(b"y" * blob.stat().st_size)
    os.utime(blob, (1, 1))
    read_only(kit.root)
    for _ in range(2):
        assert kit.fresh().lookup("graph", artifact.key) is None
    assert len(kit.warnings) == 2


def test_writing_to_a_read_only_store(kit: Any, read_only: ReadOnly) -> None:
    kit.publish(0)
    before = kit.tree(kit.root)
    read_only(kit.root)
    store = kit.fresh()
    writes: list[Callable[[], object]] = [
        lambda: kit.publish(1),
        lambda: store.scratch("x"),
        lambda: store.remember_failure("graph", kit.key(1), "no"),
        lambda: store.single_flight("graph", kit.key(1), None).__enter__(),
        lambda: store.try_claim("graph", kit.key(1)),
        lambda: store.set_ref("name", store.find(kit.key(0))),
    ]
    for write in writes:
        with pytest.raises(StoreError) as caught:
            write()
        assert caught.value.exit_code == 7
        assert "--store DIR" in (caught.value.hint or "")
        assert str(kit.root) in str(caught.value)
    assert kit.tree(kit.root) == before


def test_full_disk(small_disk: Path, kit: Any) -> None:
    store = Store(small_disk / "store", on_warning=kit.warnings.append)
    kept = store.publish("graph", kit.spec(0), [Layer("a", data=b"a" * 300_000)])
    big = [Layer("small", data=b"s" * 100_000), Layer("big", data=os.urandom(900_000))]
    with pytest.raises(StoreError, match="no space left") as caught:
        store.publish("graph", kit.spec(1), big)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(f"free space on {small_disk},")
    assert caught.value.details["errno"] == "ENOSPC"
    assert list((small_disk / "store/v1/tmp").iterdir()) == []
    assert store.lookup("graph", kit.key(1)) is None
    assert store.lookup("graph", kit.key(0), verify="full") == kept
    assert kit.assert_whole(store) == 1
    assert kit.warnings == []


def test_disk_without_a_byte_or_inode_still_serves(small_disk: Path, kit: Any) -> None:
    store = Store(small_disk / "store", on_warning=kit.warnings.append)
    kept = store.publish("graph", kit.spec(0), kit.layers())
    with (small_disk / "filler").open("wb", buffering=0) as file:
        try:
            while file.write(b"0" * 4096):
                pass
        except OSError:
            pass
    with pytest.raises(StoreError, match="no space left"):
        store.publish("graph", kit.spec(1), kit.layers("y"))
    fresh = Store(small_disk / "store", on_warning=kit.warnings.append)
    assert fresh.lookup("graph", kit.key(0)) == kept
    assert (fresh.view(kept) / "graphs/a/model.so").read_bytes() == b"x" * 100
    (small_disk / "filler").unlink()
    store.publish("graph", kit.spec(1), kit.layers("y"))
    assert kit.assert_whole(store) == 2
    assert kit.warnings == []


LIMITED = """
import os, resource, sys
from pathlib import Path
from neuroncompile.store import Layer, Store
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
store = Store(Path(sys.argv[1]))
scratch = store.scratch("compile")
(scratch / "small").write_bytes(b"s" * 1000)
try:
    layers = [Layer("small", path=scratch / "small"), Layer("big", path=Path(sys.argv[2]))]
    store.publish("graph", {"kind": "graph"}, layers)
except Exception as error:
    print(type(error).__name__, error.exit_code, error, error.hint, sep="|")
"""


def test_file_size_limit(kit: Any, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"b" * 100_000)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(kit.root), str(tmp_path / "big")],
        capture_output=True,
        text=True,
    )
    name, code, message, hint = done.stdout.strip().split("|")
    assert (name, code) == ("StoreError", "7"), done.stderr
    assert "file size limit" in message
    assert "ulimit -f" in hint
    assert [p.suffix for p in (kit.v1 / "tmp").iterdir()] == [".compile"]
    assert kit.assert_whole(kit.fresh()) == 0


def test_file_in_place_of_the_store(tmp_path: Path, kit: Any) -> None:
    (tmp_path / "file").write_text("")
    store = Store(tmp_path / "file")
    assert store.lookup("graph", kit.key()) is None
    with pytest.raises(StoreError) as caught:
        store.publish("graph", kit.spec(), kit.layers())
    assert "in the way" in str(caught.value)


def test_unreadable_store_is_an_error_and_not_a_miss(kit: Any) -> None:
    """Rebuilding for half an hour because of a wrong mode helps nobody."""
    kit.publish()
    code = (
        "import sys; from pathlib import Path; from neuroncompile.store import Store\n"
        "import os; os.geteuid() or os.seteuid(65534)\n"
        "try: print(Store(Path(sys.argv[1])).lookup('graph', sys.argv[2]))\n"
        "except Exception as error: print(type(error).__name__, error, error.hint)"
    )
    kit.root.parent.chmod(0o755)
    (kit.v1 / "actions" / "graph").chmod(0)
    try:
        arguments = [sys.executable, "-c", code, str(kit.root), kit.key()]
        done = subprocess.run(arguments, capture_output=True, text=True)
    finally:
        (kit.v1 / "actions" / "graph").chmod(0o755)
    assert done.stdout.startswith("StoreError"), done.stdout + done.stderr
    assert "permission denied" in done.stdout
    assert "access to" in done.stdout
