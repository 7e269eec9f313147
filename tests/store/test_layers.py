"""Layers: stores below are read, shadowed by the upper one, and never written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.gc import Policy


@pytest.fixture
def below(kit: Any) -> Artifact:
    """In the kit's own store, which the others have below them."""
    artifact: Artifact = kit.publish(1, provenance={"made": "below"})
    kit.store.set_ref("base", artifact)
    return artifact


@pytest.fixture
def upper(kit: Any) -> Store:
    root = kit.root.parent / "upper"
    return Store(root, layers=[kit.root], on_warning=kit.warnings.append)


def test_everything_can_be_read_through(kit: Any, below: Artifact, upper: Store) -> None:
    before = snapshot(kit.root)
    assert upper.lookup("graph", below.key) == below
    assert upper.find(below.key[:12]) == upper.find("base") == below
    assert list(upper.artifacts()) == [below]
    assert upper.spec_of(below) == kit.spec(1)
    assert upper.provenance_of(below) == {"made": "below"}
    assert upper.manifest_of(below) == kit.store.manifest_of(below)
    assert upper.last_used(below) > 0
    assert upper.home(below) == kit.root
    assert not upper.root.exists(), "reading makes nothing"
    with upper.lease(below) as view:
        assert (view / "program.json").read_bytes() == b"{}"
        assert view.is_relative_to(upper.root)
    assert snapshot(kit.root) == before


def test_a_view_that_the_layer_has_is_used(kit: Any, below: Artifact, upper: Store) -> None:
    made = kit.store.view(below)
    assert upper.view(below) == made
    assert not upper.root.exists()


def test_the_upper_one_hides_those_below(kit: Any, below: Artifact, upper: Store) -> None:
    ours = upper.publish("graph", kit.spec(1), [Layer("program.json", data=b"ours")])
    assert ours != below
    assert upper.lookup("graph", below.key) == ours
    assert list(upper.artifacts()) == [ours]
    assert upper.home(ours) == upper.root
    assert (upper.view(ours) / "program.json").read_bytes() == b"ours"
    assert kit.fresh().lookup("graph", below.key) == below


def test_files_below_are_copied_up_when_published(kit: Any, below: Artifact, upper: Store) -> None:
    files = [
        Layer(d.title, path=upper.blob_path(d.digest), media_type=d.media_type)
        for d in below.layers
    ]
    made = upper.publish("graph", kit.spec(2), files)
    shutil.rmtree(kit.root)
    assert kit.assert_whole(Store(upper.root)) == 1
    assert made.layers == below.layers


def test_a_broken_layer_is_a_miss_and_stays_as_it_is(
    kit: Any, below: Artifact, upper: Store
) -> None:
    blob = kit.blob(below, 1)
    blob.chmod(0o644)
    blob.write_bytes(b"y" + blob.read_bytes()[1:])
    os.utime(blob, (1, 1))
    before = snapshot(kit.root)
    assert upper.lookup("graph", below.key) is None
    assert any("corrupt" in said and str(kit.root) in said for said in kit.warnings)
    with pytest.raises(CorruptArtifactError):
        upper.find(below.key[:12])
    assert snapshot(kit.root) == before
    made = upper.publish("graph", kit.spec(1), kit.layers())
    assert upper.lookup("graph", below.key) == made


def test_collecting_and_removing_concern_the_upper_one(
    kit: Any, below: Artifact, upper: Store
) -> None:
    before = snapshot(kit.root)
    upper.view(below)
    assert upper.collect(Policy(max_bytes=0, grace=0), dry_run=False).removed == []
    with pytest.raises(StoreError, match="layer"):
        upper.remove(below)
    assert snapshot(kit.root) == before
    assert upper.lookup("graph", below.key) == below


def test_a_read_only_mount_and_a_read_only_user(kit: Any, below: Artifact, read_only: Any) -> None:
    read_only(kit.root)
    upper = Store(kit.root.parent / "upper", layers=[kit.root])
    with upper.lease(upper.find(below.key)) as view:
        assert (view / "graphs/a/model.so").read_bytes() == b"x" * 100


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody else")
def test_a_user_who_may_write_neither(kit: Any, below: Artifact) -> None:
    for path in [kit.root.parent, kit.root, *kit.root.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o444)
    program = (
        "import atexit, os, shutil, sys, tempfile; from pathlib import Path\n"
        "from neuroncompile.store import Store, leases\n"
        "os.setgid(65534); os.setuid(65534)\n"
        "root = Path(sys.argv[1]); upper = Store(root.parent / 'no', layers=[root])\n"
        "with upper.lease(upper.find(sys.argv[2])) as view:\n"
        "    print((view / 'program.json').read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(kit.root), below.key],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert done.stdout == "{}\n", done.stderr


def snapshot(root: Path) -> dict[str, tuple[int, int]]:
    return {
        str(p.relative_to(root)): (p.lstat().st_ino, p.lstat().st_mtime_ns) for p in root.rglob("*")
    }
