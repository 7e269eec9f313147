"""Whatever is broken is a miss with a warning, and the next publish repairs it."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import Layer, blobs


def overwrite(path: Path, data: bytes) -> None:
    """As a careless process with the right to do so would."""
    time.sleep(0.02)  # the kernel's clock for file times ticks every 4 to 10 ms
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    overwrite(path, bytes(data))


def assert_repaired(kit: Any) -> None:
    artifact = kit.publish()
    store = kit.fresh()
    kit.warnings.clear()
    assert store.lookup("graph", kit.key(), verify="full") == artifact
    assert kit.assert_whole(store) >= 1
    assert kit.warnings == []


DAMAGE: dict[str, Callable[[Any, Any], object]] = {
    "layer flipped": lambda kit, a: flip(kit.blob(a)),
    "layer shorter": lambda kit, a: overwrite(kit.blob(a), b"x"),
    "layer empty": lambda kit, a: overwrite(kit.blob(a), b""),
    "layer gone": lambda kit, a: kit.blob(a).unlink(),
    "manifest flipped": lambda kit, a: flip(kit.store.blob_path(a.manifest_digest)),
    "manifest empty": lambda kit, a: overwrite(kit.store.blob_path(a.manifest_digest), b""),
    "manifest gone": lambda kit, a: kit.store.blob_path(a.manifest_digest).unlink(),
    "spec flipped": lambda kit, a: flip(kit.store.blob_path(a.key)),
    "spec gone": lambda kit, a: kit.store.blob_path(a.key).unlink(),
    "pointer empty": lambda kit, a: (kit.v1 / "actions/graph" / a.key).write_bytes(b""),
    "pointer rubbish": lambda kit, a: (kit.v1 / "actions/graph" / a.key).write_bytes(b"\0" * 99),
    "pointer of no digest": lambda kit, a: (kit.v1 / "actions/graph" / a.key).write_text("{}"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_a_miss_then_repaired(kit: Any, name: str) -> None:
    artifact = kit.publish()
    DAMAGE[name](kit, artifact)
    assert kit.fresh().lookup("graph", kit.key()) is None
    assert len(kit.warnings) == 1
    assert "treated as missing" in kit.warnings[0]
    assert_repaired(kit)


@pytest.mark.parametrize("name", DAMAGE)
def test_publish_repairs_without_a_lookup_before(kit: Any, name: str) -> None:
    DAMAGE[name](kit, kit.publish())
    kit.store = kit.fresh()
    assert_repaired(kit)


def test_bit_rot_is_found_by_full_verification_only(kit: Any) -> None:
    artifact = kit.publish()
    blob = kit.blob(artifact)
    before = blob.stat()
    flip(blob)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))  # the medium tells no dates
    assert kit.fresh().lookup("graph", kit.key()) == artifact
    assert kit.fresh().lookup("graph", kit.key(), verify="full") is None
    assert "corrupt" in kit.warnings[0]
    assert_repaired(kit)


def test_corrupt_blob_is_set_aside_not_lost(kit: Any) -> None:
    artifact = kit.publish()
    flip(kit.blob(artifact))
    bad = kit.blob(artifact).read_bytes()
    kit.fresh().lookup("graph", kit.key())
    assert not kit.blob(artifact).exists()
    aside = [p for p in (kit.v1 / "tmp").iterdir() if p.name.endswith(".broken")]
    assert [p.read_bytes() for p in aside] == [bad]
    assert str(aside[0]) in kit.warnings[0]


def test_pointer_to_another_keys_manifest(kit: Any) -> None:
    one, two = kit.publish(1), kit.publish(2, text="y")
    pointers = kit.v1 / "actions" / "graph"
    (pointers / one.key).write_bytes((pointers / two.key).read_bytes())
    assert kit.fresh().lookup("graph", one.key) is None
    assert two.key[:12] in kit.warnings[0]
    assert kit.fresh().lookup("graph", two.key) == two
    assert kit.store.publish("graph", kit.spec(1), kit.layers()) == one
    assert kit.fresh().lookup("graph", one.key) == one


def forge(kit: Any, artifact: Any, change: Callable[[dict[str, Any]], None]) -> None:
    """A manifest with its own right digest, which the pointer names."""
    document = json.loads(kit.store.blob_path(artifact.manifest_digest).read_bytes())
    change(document)
    data = json.dumps(document).encode()
    digest = hashlib.sha256(data).hexdigest()
    (kit.v1 / "blobs" / "sha256" / digest).write_bytes(data)
    (kit.v1 / "blobs" / "sha256" / digest).chmod(0o444)
    pointer = kit.v1 / "actions" / "graph" / artifact.key
    pointer.write_text(json.dumps({"digest": f"sha256:{digest}", "size": len(data)}))


def test_forged_manifest_with_other_inputs_under_the_right_key(kit: Any) -> None:
    artifact = kit.publish()
    other = json.dumps({"schema": 1, "kind": "graph", "bucket": 7}).encode()
    overwrite(kit.store.blob_path(artifact.key), other)
    forge(kit, artifact, lambda d: d["config"].update(size=len(other)))
    assert kit.fresh().lookup("graph", artifact.key) is None
    assert "differ" in kit.warnings[0]
    assert_repaired(kit)


def test_forged_manifest_with_another_config(kit: Any) -> None:
    artifact, other = kit.publish(0), kit.publish(1)
    forge(kit, artifact, lambda d: d["config"].update(digest=f"sha256:{other.key}"))
    assert kit.fresh().lookup("graph", artifact.key) is None
    assert_repaired(kit)


def test_forged_manifest_that_would_write_outside_its_view(kit: Any) -> None:
    artifact = kit.publish()
    title = "org.opencontainers.image.title"
    forge(kit, artifact, lambda d: d["layers"][0]["annotations"].update({title: "../../../x"}))
    assert kit.fresh().lookup("graph", artifact.key) is None
    assert "plain relative path" in kit.warnings[0]
    assert_repaired(kit)


def test_directory_in_place_of_a_blob(kit: Any) -> None:
    artifact = kit.publish()
    kit.blob(artifact).unlink()
    kit.blob(artifact).mkdir()
    assert kit.fresh().lookup("graph", artifact.key) is None
    assert_repaired(kit)


def test_rehash_happens_once(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = kit.publish()
    os.utime(kit.blob(artifact))
    hashed: list[object] = []
    real = hashlib.file_digest

    def counting(file: Any, name: str) -> Any:
        hashed.append(file.name)
        return real(file, name)

    monkeypatch.setattr(hashlib, "file_digest", counting)
    for _ in range(3):
        assert kit.fresh().lookup("graph", artifact.key) == artifact
    assert hashed == [str(kit.blob(artifact))]


@pytest.mark.parametrize("data", [b"", b"x y z\n", b"\xff\xfe", b"1 2 3\n" * 9])
def test_broken_memory_of_hashes_costs_a_hash(kit: Any, data: bytes) -> None:
    artifact = kit.publish()
    for path in (kit.v1 / "ingest").iterdir():
        path.write_bytes(data)
    assert kit.fresh().lookup("graph", artifact.key) == artifact
    assert kit.warnings == []


def test_two_hosts_with_other_device_numbers_remember_both(kit: Any) -> None:
    artifact = kit.publish()
    memory = kit.v1 / "ingest" / artifact.layers[0].digest[7:]
    device, *rest = memory.read_text().split()
    memory.write_text(" ".join([str(int(device) + 1), *rest]) + "\n")
    assert kit.fresh().lookup("graph", artifact.key) == artifact
    assert len(memory.read_text().splitlines()) == 2


def test_listing_skips_what_is_broken(kit: Any) -> None:
    one, two = kit.publish(1), kit.publish(2)
    kit.store.blob_path(one.manifest_digest).unlink()
    (kit.v1 / "actions" / "graph" / "README").write_text("not a key")
    assert list(kit.fresh().artifacts()) == [two]
    assert len(kit.warnings) == 1


def test_spec_and_provenance_of_a_broken_artifact(kit: Any) -> None:
    artifact = kit.publish(provenance={"a": 1})
    pointer = json.loads((kit.v1 / "actions" / "graph" / artifact.key).read_bytes())
    flip(kit.store.blob_path(pointer["annotations"]["dev.neuroncompile.provenance"]))
    assert kit.fresh().provenance_of(artifact) is None
    assert kit.fresh().lookup("graph", artifact.key) == artifact
    flip(kit.store.blob_path(artifact.key))
    with pytest.raises(CorruptArtifactError):
        kit.fresh().spec_of(artifact)


def test_blob_collected_while_publishing_is_ingested_again(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collector between ingest and pointer: the publish must not name what it took."""
    from neuroncompile.store import locks

    scratch = kit.store.scratch("compile")
    (scratch / "a.so").write_bytes(b"a" * 1000)
    real = locks.shared

    def collect_first(root: Path) -> Any:
        for path in (kit.v1 / "blobs" / "sha256").iterdir():
            path.unlink()
        return real(root)

    monkeypatch.setattr(locks, "shared", collect_first)
    kit.store.publish("graph", kit.spec(), [Layer("a", path=scratch / "a.so"), *kit.layers()])
    assert kit.assert_whole(kit.fresh()) == 1
    assert kit.warnings == []


def test_disk_that_loses_writes_is_an_error_and_not_a_loop(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit.publish(1)
    monkeypatch.setattr("neuroncompile.store.actions.oci.parse_pointer", _raise_corrupt)
    with pytest.raises(StoreError, match="read back"):
        kit.publish(2)


def _raise_corrupt(_: bytes) -> object:
    raise CorruptArtifactError("not what was written")


def test_output_that_changes_while_published_is_refused(
    kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was hashed first is what counts: a later state must not get in under the key."""
    from neuroncompile.store import locks

    scratch = kit.store.scratch("compile")
    (scratch / "a.so").write_bytes(b"a" * 1000)
    real = locks.shared

    def scribble_first(root: Path) -> Any:
        os.truncate(scratch / "a.so", 500)
        return real(root)

    monkeypatch.setattr(locks, "shared", scribble_first)
    with pytest.raises(CorruptArtifactError, match="changed while"):
        kit.store.publish("graph", kit.spec(), [Layer("a", path=scratch / "a.so")])
    monkeypatch.undo()
    assert kit.fresh().lookup("graph", kit.key()) is None


def test_a_file_that_is_written_while_it_is_copied_is_refused(
    kit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of what was there before and half of after is nobody's output."""
    source = tmp_path / "output.so"
    source.write_bytes(b"a" * (3 << 20))
    write_all = blobs.write_all

    def meanwhile(descriptor: int, data: bytes | memoryview) -> None:
        write_all(descriptor, data)
        source.write_bytes(b"b" * (3 << 20))
        os.utime(source, (1, 1))

    monkeypatch.setattr(blobs, "write_all", meanwhile)
    with pytest.raises(CorruptArtifactError, match="changed while it was copied"):
        kit.store.publish("graph", kit.spec(1), [Layer("output.so", path=source)])
    monkeypatch.undo()
    assert list(kit.fresh().artifacts()) == []
    assert list((kit.v1 / "tmp").iterdir()) == []
    made = kit.store.publish("graph", kit.spec(1), [Layer("output.so", path=source)])
    assert (kit.store.view(made) / "output.so").read_bytes() == b"b" * (3 << 20)
