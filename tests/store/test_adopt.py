"""Adopting: what comes from elsewhere is named only when every byte of it is right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import Artifact, Layer, Store


@pytest.fixture
def source(kit: Any) -> Artifact:
    artifact: Artifact = kit.publish(provenance={"made": "here"})
    return artifact


@pytest.fixture
def target(kit: Any) -> Store:
    store: Store = kit.fresh(kit.root / "other")
    return store


def carried(kit: Any, store: Store, manifest: bytes, *, paths: bool) -> dict[str, Path | bytes]:
    """What the target misses, from the source's blobs: linked from scratch, or as bytes."""
    scratch = store.scratch("incoming")
    found: dict[str, Path | bytes] = {}
    for descriptor in store.missing(manifest):
        name = descriptor.digest.removeprefix("sha256:")
        data = kit.store.blob_path(descriptor.digest).read_bytes()
        found[name] = data
        if paths:
            found[name] = scratch / name
            (scratch / name).write_bytes(data)
    return found


@pytest.mark.parametrize("paths", [True, False])
def test_the_same_artifact_under_the_same_manifest(
    kit: Any, source: Artifact, target: Store, *, paths: bool
) -> None:
    manifest = kit.store.manifest_of(source)
    missing = target.missing(manifest)
    assert [d.title for d in missing] == ["spec", *[d.title for d in source.layers]]
    files = carried(kit, target, manifest, paths=paths)
    made = target.adopt("graph", manifest, files, provenance=kit.store.provenance_bytes(source))
    assert made == source
    assert target.missing(manifest) == []
    assert target.lookup("graph", source.key, verify="full") == source
    assert target.provenance_of(made) == {"made": "here"}
    assert kit.assert_whole(target) == 1


def test_only_what_is_missing_has_to_come(kit: Any, source: Artifact, target: Store) -> None:
    target.publish("graph", kit.spec(7), kit.layers())
    manifest = kit.store.manifest_of(source)
    assert [d.title for d in target.missing(manifest)] == ["spec"]
    files = carried(kit, target, manifest, paths=False)
    assert target.adopt("graph", manifest, files) == source


def test_a_wrong_byte_names_nothing(kit: Any, source: Artifact, target: Store) -> None:
    manifest = kit.store.manifest_of(source)
    files = carried(kit, target, manifest, paths=False)
    for name, data in files.items():
        assert isinstance(data, bytes)
        with pytest.raises(CorruptArtifactError):
            target.adopt("graph", manifest, {**files, name: b"X" + data[1:]})
        with pytest.raises(CorruptArtifactError, match="missing"):
            target.adopt("graph", manifest, {k: v for k, v in files.items() if k != name})
        assert list(target.artifacts()) == []
    assert target.adopt("graph", manifest, files) == source


def test_another_kind_than_its_spec_says_is_refused(
    kit: Any, source: Artifact, target: Store
) -> None:
    manifest = kit.store.manifest_of(source)
    with pytest.raises(CorruptArtifactError, match="kind"):
        target.adopt("compile", manifest, carried(kit, target, manifest, paths=False))
    assert list(target.artifacts()) == []


def test_a_manifest_of_something_else_is_refused(target: Store) -> None:
    for manifest in (b"", b"{}", b"[]", b'{"schemaVersion":2}'):
        with pytest.raises(CorruptArtifactError):
            target.missing(manifest)
        with pytest.raises(CorruptArtifactError):
            target.adopt("graph", manifest, {})
    assert not target.root.exists()


def test_the_first_one_wins(kit: Any, source: Artifact, target: Store) -> None:
    ours = target.publish("graph", kit.spec(), [Layer("program.json", data=b"other output")])
    manifest = kit.store.manifest_of(source)
    assert target.adopt("graph", manifest, carried(kit, target, manifest, paths=False)) == ours


def test_adopting_forgets_a_rejection(kit: Any, source: Artifact, target: Store) -> None:
    target.remember_failure("graph", source.key, "NCC_EXAMPLE")
    manifest = kit.store.manifest_of(source)
    target.adopt("graph", manifest, carried(kit, target, manifest, paths=False))
    assert target.failure("graph", source.key) is None
