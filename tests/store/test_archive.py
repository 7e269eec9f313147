"""Archives: what goes out comes in again, byte for byte, from a file, a pipe or a directory."""

from __future__ import annotations

import io
import json
import os
import shutil
import stat
import tarfile
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.archive_read import import_directory, import_tar
from neuroncompile.store.archive_write import export_directory, export_stream, export_tar
from tests.store.archives import END, Pipe, split


def exported(store: Store, artifacts: list[Artifact] | None = None) -> bytes:
    stream = io.BytesIO()
    export_stream(store, list(store.artifacts()) if artifacts is None else artifacts, stream)
    return stream.getvalue()


@pytest.fixture
def source(kit: Any) -> Store:
    kit.publish(0, provenance={"model": "m"})
    kit.publish(1, "y")
    kit.store.set_ref("team/llama@1", kit.publish(2, "z"))
    store: Store = kit.store
    return store


@pytest.fixture
def target(kit: Any) -> Store:
    store: Store = kit.fresh(kit.root.parent / "target")
    return store


def same(left: Store, right: Store) -> bool:
    def described(store: Store) -> Any:
        return [(a, store.provenance_of(a), store.spec_of(a)) for a in store.artifacts()]

    return bool(described(left) == described(right) and left.refs() == right.refs())


def test_round_trip_through_a_pipe(kit: Any, source: Store, target: Store) -> None:
    pipe = Pipe(exported(source))
    taken = import_tar(target, pipe)
    assert [i.new for i in taken.artifacts] == [True] * 3
    assert pipe.exhausted, "a writer must not meet a closed pipe"
    assert same(source, target)
    assert kit.assert_whole(target) == 3
    assert target.find("team/llama@1").key == kit.key(2)
    assert list((target.root / "v1" / "tmp").iterdir()) == []


def test_round_trip_through_a_real_pipe(source: Store, target: Store) -> None:
    data = exported(source)
    reader, writer = os.pipe()
    if os.fork() == 0:  # pragma: no cover
        os.close(reader)
        with os.fdopen(writer, "wb") as file:
            file.write(data)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        import_tar(target, file)
    os.wait()
    assert same(source, target)


def test_round_trip_through_a_file_and_a_directory(kit: Any, source: Store, tmp_path: Path) -> None:
    artifacts = list(source.artifacts())
    tar, directory = tmp_path / "a.tar", tmp_path / "dir"
    done = export_tar(source, artifacts, tar)
    also = export_directory(source, artifacts, directory)
    assert sorted(os.listdir(tmp_path)) == ["a.tar", "dir"]
    assert (done.blobs, done.size) == (also.blobs, also.size)
    assert done.size == sum(p.stat().st_size for p in (directory / "blobs/sha256").iterdir())
    one, two = kit.fresh(tmp_path / "one"), kit.fresh(tmp_path / "two")
    with open(tar, "rb") as file:
        import_tar(one, file)
    import_directory(two, directory)
    assert same(source, one)
    assert same(source, two)
    assert kit.assert_whole(two) == 3


def test_an_exported_directory_holds_no_links(source: Store, tmp_path: Path) -> None:
    """So it can be copied to a FAT stick, an image layer or a bucket mount."""
    export_directory(source, list(source.artifacts()), tmp_path / "dir")
    source_inodes = {p.stat().st_ino for p in source.root.rglob("*")}
    for path in (tmp_path / "dir").rglob("*"):
        seen = path.lstat()
        assert stat.S_ISDIR(seen.st_mode) or (stat.S_ISREG(seen.st_mode) and seen.st_nlink == 1)
        assert seen.st_ino not in source_inodes


def test_equal_content_gives_equal_bytes(kit: Any, source: Store, tmp_path: Path) -> None:
    data = exported(source)
    copy = kit.fresh(tmp_path / "copy")
    import_tar(copy, io.BytesIO(data))
    for name in (copy.root / "v1" / "blobs" / "sha256").iterdir():
        os.utime(name, (1, 1))
    assert exported(copy) == data
    assert exported(source, list(source.artifacts())[::-1]) == data


def test_the_tar_is_plain_for_other_tools(source: Store) -> None:
    with tarfile.open(fileobj=io.BytesIO(exported(source))) as archive:
        members = archive.getmembers()
        names = [m.name for m in members]
    assert names[:4] == ["blobs", "blobs/sha256", "oci-layout", "index.json"]
    assert {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members} == {(0, 0, 0, "", "")}
    assert len(set(names)) == len(names)


def test_the_index_describes_every_artifact(kit: Any, source: Store, tmp_path: Path) -> None:
    export_directory(source, list(source.artifacts()), tmp_path / "dir")
    index = json.loads((tmp_path / "dir" / "index.json").read_bytes())
    assert json.loads((tmp_path / "dir" / "oci-layout").read_bytes()) == {
        "imageLayoutVersion": "1.0.0"
    }
    assert index["schemaVersion"] == 2
    assert len(index["manifests"]) == 3
    for entry in index["manifests"]:
        manifest = json.loads(
            (tmp_path / "dir" / "blobs/sha256" / entry["digest"][7:]).read_bytes()
        )
        notes = entry["annotations"]
        assert entry["artifactType"] == manifest["artifactType"]
        assert manifest["config"]["digest"] == f"sha256:{notes['dev.neuroncompile.key']}"
        assert notes["dev.neuroncompile.kind"] == "graph"
    names = [e["annotations"].get("org.opencontainers.image.ref.name") for e in index["manifests"]]
    assert sorted(filter(None, names)) == ["team/llama@1"]


def test_an_artifact_with_two_names_keeps_both(kit: Any, source: Store, target: Store) -> None:
    source.set_ref("also", source.find("team/llama@1"))
    import_tar(target, io.BytesIO(exported(source)))
    assert source.refs() == target.refs()
    assert len(target.refs()) == 2


def test_only_what_was_asked_for_goes_along(kit: Any, source: Store, target: Store) -> None:
    import_tar(target, io.BytesIO(exported(source, [source.find(kit.key(0))])))
    assert [a.key for a in target.artifacts()] == [kit.key(0)]
    assert target.refs() == {}


def test_pins_stay_at_home(kit: Any, source: Store, target: Store) -> None:
    source.pin("mine", source.find(kit.key(0)))
    data = exported(source)
    assert b"pins/" not in data
    taken = import_directory(target, source.root)
    assert "pins/mine" not in target.refs()
    assert [i.refused for i in taken.artifacts if i.refused] == [
        (("pins/mine", "pins are each store's own"),)
    ]


def test_a_second_import_changes_nothing(kit: Any, source: Store, target: Store) -> None:
    data = exported(source)
    first = import_tar(target, io.BytesIO(data))
    before = kit.tree(target.root)
    again = import_tar(target, io.BytesIO(data))
    assert [i.new for i in again.artifacts] == [False] * 3
    assert (again.new_bytes, again.known_bytes) == (0, first.new_bytes)
    assert kit.tree(target.root) == before


def test_what_is_here_already_is_not_written_again(
    kit: Any, source: Store, target: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two artifacts share files; the second archive brings the rest only."""
    target.publish("graph", kit.spec(7), kit.layers("y"))
    taken = import_tar(target, io.BytesIO(exported(source, [source.find(kit.key(1))])))
    assert taken.new_bytes == len(json.dumps(kit.spec(1), separators=(",", ":")))
    assert taken.known_bytes == 2 + 100 + 200


def test_a_broken_blob_here_is_mended(kit: Any, source: Store, target: Store) -> None:
    data = exported(source)
    [first, *_] = import_tar(target, io.BytesIO(data)).artifacts
    blob = target.blob_path(first.artifact.layers[0].digest)
    blob.chmod(0o644)
    blob.write_bytes(b"?" * blob.stat().st_size)
    again = kit.fresh(target.root)
    import_tar(again, io.BytesIO(data))
    assert kit.assert_whole(again) == 3


def test_an_artifact_that_was_built_here_too_stays(kit: Any, source: Store, target: Store) -> None:
    """NEFFs are not reproducible: two manifests for one key are normal, the first one stays."""
    ours = target.publish("graph", kit.spec(2), [Layer("program.json", data=b"ours")])
    taken = import_tar(target, io.BytesIO(exported(source)))
    [other] = [i for i in taken.artifacts if not i.same]
    assert (other.artifact, other.new, other.names) == (ours, False, ("team/llama@1",))
    assert target.lookup("graph", kit.key(2)) == ours
    assert kit.assert_whole(target) == 3


def test_a_name_that_is_taken_stays(kit: Any, source: Store, target: Store) -> None:
    ours = target.publish("graph", kit.spec(9), kit.layers("o"))
    target.set_ref("team/llama@1", ours)
    taken = import_tar(target, io.BytesIO(exported(source)))
    assert target.find("team/llama@1") == ours
    [refused] = [i.refused for i in taken.artifacts if i.refused]
    assert refused == (("team/llama@1", "it names another artifact here"),)


@pytest.mark.parametrize("there", ["team", "team/llama@1/x"])
def test_a_name_within_another_is_left_out(
    kit: Any, source: Store, target: Store, there: str
) -> None:
    target.set_ref(there, target.publish("graph", kit.spec(9), kit.layers("o")))
    taken = import_tar(target, io.BytesIO(exported(source)))
    assert [len(i.refused) for i in taken.artifacts].count(1) == 1
    assert set(target.refs()) == {there}
    assert kit.assert_whole(target) == 4


def test_import_of_another_stores_v1(kit: Any, source: Store, target: Store) -> None:
    before = {p: p.lstat() for p in source.root.rglob("*")}
    taken = import_directory(target, source.root / "v1")
    assert len(taken.artifacts) == 3
    assert same(source, target)
    after = {p: p.lstat() for p in source.root.rglob("*")}
    assert {p: s.st_mtime_ns for p, s in before.items()} == {
        p: s.st_mtime_ns for p, s in after.items()
    }


def test_import_of_itself_changes_nothing(kit: Any, source: Store) -> None:
    before = kit.tree(source.root)
    taken = import_directory(source, source.root)
    assert [i.new for i in taken.artifacts] == [False] * 3
    assert kit.tree(source.root) == before | {"v1/locks/gc"}


def test_a_copied_or_recreated_tar_is_read(kit: Any, source: Store, tmp_path: Path) -> None:
    """`tar -C DIR -cf x.tar .` writes ./ before names and another order."""
    export_directory(source, list(source.artifacts()), tmp_path / "dir")
    for options in (["--format=ustar"], ["--format=gnu"], ["--format=v7", "--sort=name"]):
        path = tmp_path / "made.tar"
        arguments = " ".join([*options, "-C", str(tmp_path / "dir"), "-cf", str(path), "."])
        assert os.system(f"tar {arguments}") == 0
        store = kit.fresh(tmp_path / options[0])
        with open(path, "rb") as file:
            import_tar(store, file)
        assert same(source, store)


def test_members_come_in_any_order(kit: Any, source: Store, tmp_path: Path) -> None:
    parts = split(exported(source))
    for number, order in enumerate((parts[::-1], parts[4:] + parts[:4], parts[::2] + parts[1::2])):
        store = kit.fresh(tmp_path / str(number))
        import_tar(store, Pipe(b"".join(order) + END))
        assert same(source, store)


def test_an_empty_archive_brings_nothing(kit: Any, source: Store, target: Store) -> None:
    assert import_tar(target, io.BytesIO(exported(source, []))).artifacts == ()


def test_export_refuses_a_corrupt_blob(kit: Any, source: Store, tmp_path: Path) -> None:
    artifact = source.find(kit.key(0))
    blob = kit.blob(artifact, 1)
    seen = blob.stat()
    blob.chmod(0o644)
    blob.write_bytes(b"?" * seen.st_size)
    os.utime(blob, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # a flip that no date shows
    for write, name in ((export_tar, "a.tar"), (export_directory, "dir")):
        with pytest.raises(CorruptArtifactError, match="corrupt"):
            write(source, [artifact], tmp_path / name)
    assert os.listdir(tmp_path) == []


def test_export_refuses_a_missing_blob(kit: Any, source: Store, tmp_path: Path) -> None:
    artifact = source.find(kit.key(0))
    kit.blob(artifact, 1).unlink()
    with pytest.raises(CorruptArtifactError, match="missing"):
        export_tar(source, [artifact], tmp_path / "a.tar")
    assert os.listdir(tmp_path) == []


def test_a_directory_with_something_in_it_is_left_alone(source: Store, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("x")
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "mine", tmp_path / "file"):
        with pytest.raises(StoreError, match="not an empty directory"):
            export_directory(source, list(source.artifacts()), path)
    (tmp_path / "empty").mkdir()
    export_directory(source, list(source.artifacts()), tmp_path / "empty")
    assert (tmp_path / "empty" / "index.json").exists()


def test_a_tar_replaces_a_tar(source: Store, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(b"old")
    export_tar(source, list(source.artifacts()), path)
    assert tarfile.is_tarfile(path)


def test_progress_counts_bytes(source: Store, target: Store) -> None:
    out: list[tuple[str, int, int | None]] = []
    done = export_stream(
        source, list(source.artifacts()), stream := io.BytesIO(), lambda *a: out.append(a)
    )
    assert out[-1] == ("exporting", done.size, done.size)
    seen: list[tuple[str, int, int | None]] = []
    import_tar(
        target, io.BytesIO(stream.getvalue()), size=99, on_progress=lambda *a: seen.append(a)
    )
    assert ("reading", done.size, 99) in seen
    assert next(s for s in seen if s[0] == "keeping") == ("keeping", 0, 1064)
    assert len([s for s in seen if s[0] == "keeping"]) == 3


def test_a_collector_cannot_take_what_is_exported(kit: Any, source: Store, tmp_path: Path) -> None:
    """Between the first and the last byte the artifacts are leased."""
    from neuroncompile.store.gc import Policy

    artifacts = list(source.artifacts())
    for artifact in artifacts:
        os.utime(kit.v1 / "actions" / "graph" / artifact.key, (1e9, 1e9))
    for blob in (kit.v1 / "blobs" / "sha256").iterdir():
        os.utime(blob, (1e9, 1e9))
    collected = []

    def collect(what: str, done: int, total: int | None) -> None:
        if not collected:
            collected.append(source.collect(Policy(max_age=1.0, grace=0.0), dry_run=False))

    export_tar(source, artifacts, tmp_path / "a.tar", collect)
    assert len(list(source.artifacts())) == 3
    shutil.rmtree(tmp_path / "a.tar", ignore_errors=True)
    source.collect(Policy(max_age=1.0, grace=0.0), dry_run=False)
    assert len(list(source.artifacts())) < 3, "without the lease it would have gone"


def test_a_collector_cannot_take_what_the_archive_need_not_bring(
    kit: Any, source: Store, target: Store
) -> None:
    """Blobs that are here as garbage when they pass by are gone when the artifact is kept."""
    from neuroncompile.store.gc import Policy

    data = exported(source)
    import_tar(target, io.BytesIO(data))
    shutil.rmtree(target.root / "v1" / "actions")
    shutil.rmtree(target.root / "v1" / "refs")
    blobs = target.root / "v1" / "blobs" / "sha256"
    for blob in blobs.iterdir():
        os.utime(blob, (1e9, 1e9))
    left: list[int] = []

    def collect(what: str, done: int, total: int | None) -> None:
        if what == "keeping" and not left:
            target.collect(Policy(grace=0.0), dry_run=False)
            left.append(len(list(blobs.iterdir())))

    taken = import_tar(target, io.BytesIO(data), on_progress=collect)
    assert left == [0], "the collector took them all"
    assert (taken.new_bytes, taken.known_bytes) == (0, 1064)
    assert same(source, target)
    assert kit.assert_whole(target) == 3
