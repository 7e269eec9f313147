"""Other people's tools read what we write, and we read what they write."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.store import Store
from neuroncompile.store.archive_read import import_directory, import_tar
from neuroncompile.store.archive_write import export_directory, export_stream, export_tar

pytestmark = pytest.mark.skipif(
    shutil.which("skopeo") is None, reason="needs skopeo (apt-get install skopeo)"
)


def skopeo(*arguments: str) -> str:
    done = subprocess.run(
        ["skopeo", "--insecure-policy", *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def source(kit: Any) -> Store:
    kit.publish(0, "y", provenance={"model": "m"})
    kit.store.set_ref("team/llama", kit.publish(1, "z"))
    store: Store = kit.store
    return store


@pytest.fixture(params=["export", "v1"])
def layout(request: pytest.FixtureRequest, source: Store, tmp_path: Path) -> Path:
    """An exported directory, and a store's own v1."""
    if request.param == "v1":
        return source.root / "v1"
    export_directory(source, list(source.artifacts()), tmp_path / "layout")
    return tmp_path / "layout"


def test_skopeo_inspects(kit: Any, source: Store, layout: Path) -> None:
    manifest = skopeo("inspect", "--raw", f"oci:{layout}:team/llama")
    artifact = source.find("team/llama")
    assert manifest.encode() == source.manifest_of(artifact)
    assert json.loads(manifest)["config"]["digest"] == f"sha256:{artifact.key}"


@pytest.mark.parametrize("kind", ["oci", "oci-archive"])
def test_what_skopeo_copied_comes_in(
    kit: Any, source: Store, layout: Path, tmp_path: Path, kind: str
) -> None:
    """It keeps the manifest byte for byte, and drops what the index says beside the name."""
    copy = tmp_path / "copy"
    skopeo("copy", f"oci:{layout}:team/llama", f"{kind}:{copy}:v1.2")
    target = kit.fresh(tmp_path / "target")
    if kind == "oci":
        taken = import_directory(target, copy)
    else:
        with open(copy, "rb") as file:
            taken = import_tar(target, file)
    [imported] = taken.artifacts
    assert imported.artifact == source.find("team/llama")
    assert imported.names == ("v1.2",)
    assert kit.assert_whole(target) == 1


def test_skopeo_reads_our_tar(kit: Any, source: Store, tmp_path: Path) -> None:
    tar = tmp_path / "a.tar"
    export_tar(source, [source.find("team/llama")], tar)
    skopeo("copy", f"oci-archive:{tar}:team/llama", f"oci:{tmp_path}/copy:x")
    import_directory(target := kit.fresh(tmp_path / "target"), tmp_path / "copy")
    assert target.find("x") == source.find("team/llama")


def test_skopeo_adds_to_a_layout(kit: Any, source: Store, tmp_path: Path) -> None:
    """Two copies into one layout: its index has both."""
    source.set_ref("other", next(a for a in source.artifacts() if a.key == kit.key(0)))
    for name in ("team/llama", "other"):
        skopeo("copy", f"oci:{source.root}/v1:{name}", f"oci:{tmp_path}/both:{name}")
    taken = import_directory(target := kit.fresh(tmp_path / "target"), tmp_path / "both")
    assert len(taken.artifacts) == 2
    assert set(target.refs()) == {"team/llama", "other"}


def test_skopeo_refuses_what_we_corrupt(source: Store, tmp_path: Path) -> None:
    """The check of the check: the peer does look at the bytes."""
    export_directory(source, list(source.artifacts()), tmp_path / "layout")
    layer = source.find("team/llama").layers[0].digest.removeprefix("sha256:")
    (tmp_path / "layout" / "blobs" / "sha256" / layer).write_bytes(b"x" * 100)
    with pytest.raises(AssertionError, match="Digest did not match"):
        skopeo("copy", f"oci:{tmp_path}/layout:team/llama", f"oci:{tmp_path}/copy:x")


def test_oras_reads_the_layout(source: Store, layout: Path) -> None:
    from oras.layout import Layout

    artifact = source.find("team/llama")
    opened = Layout(str(layout))
    opened.validate()
    blobs = opened.get_ordered_blobs("team/llama")
    assert blobs[-2:] == [f"sha256:{artifact.key}", artifact.manifest_digest]
    assert blobs[:-2] == [layer.digest for layer in artifact.layers]
    for digest in blobs:
        assert opened.blob_exists(digest)


def test_oras_accepts_every_descriptor(source: Store, tmp_path: Path) -> None:
    import jsonschema
    import oras.schemas

    export_directory(source, list(source.artifacts()), tmp_path / "layout")
    index = json.loads((tmp_path / "layout" / "index.json").read_bytes())
    for entry in index["manifests"]:
        blob = tmp_path / "layout" / "blobs" / "sha256" / entry["digest"].removeprefix("sha256:")
        jsonschema.validate(json.loads(blob.read_bytes()), oras.schemas.manifest)


def test_gnu_tar_lists_and_unpacks(source: Store, tmp_path: Path) -> None:
    stream = io.BytesIO()
    export_stream(source, list(source.artifacts()), stream)
    done = subprocess.run(
        ["tar", "-xf", "-", "-C", str(tmp_path)], input=stream.getvalue(), capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
    export_directory(source, list(source.artifacts()), tmp_path / "other")
    done = subprocess.run(
        ["diff", "-r", "--exclude=other", str(tmp_path), str(tmp_path / "other")],
        capture_output=True,
    )
    assert (done.returncode, done.stdout) == (0, b"")
