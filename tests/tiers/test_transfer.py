"""Push and pull over every tier: what arrives, what travels, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from neuroncompile.errors import CorruptArtifactError, TierError
from neuroncompile.store import Layer, Store
from neuroncompile.store.actions import pointer_bytes
from neuroncompile.tiers import MemoryTier, Tier, failure_class, find, lacking, pull, push
from tests.tiers.conftest import Kit, spec


def test_what_was_pushed_is_pulled(kit: Kit, tier: Tier) -> None:
    artifact = kit.publish(size=9 << 20)
    sent = push(kit.here, tier, artifact)
    assert (sent.blobs, sent.named) == (5, True)
    there = kit.store("there")
    pulled = pull(there, tier, "graph", artifact.key)
    assert pulled is not None
    assert (pulled.artifact, pulled.blobs, pulled.size) == (artifact, 5, sent.size)
    assert there.lookup("graph", artifact.key, verify="full") == artifact
    assert there.provenance_of(artifact) == {"by": "us"}
    assert kit.partials(there) == {}
    assert kit.warnings == []


def test_what_is_not_there_is_no_artifact(kit: Kit, tier: Tier) -> None:
    assert pull(kit.here, tier, "graph", kit.key()) is None
    assert find(tier, "graph", kit.key()) is None
    assert not kit.here.root.exists()


def test_only_missing_blobs_travel(kit: Kit) -> None:
    tier = MemoryTier()
    first, second = kit.publish(0, size=1000), kit.publish(1)
    push(kit.here, tier, first)
    assert push(kit.here, tier, second).blobs == 1  # its spec; the files are the same
    assert push(kit.here, tier, second) == (0, 0, False)
    there = kit.store("there")
    assert pull(there, tier, "graph", first.key).blobs == 5  # type: ignore[union-attr]
    remote = find(tier, "graph", second.key)
    assert remote is not None
    assert lacking(there, tier, remote) == []
    assert pull(there, tier, "graph", second.key).blobs == 1  # type: ignore[union-attr]


def test_the_pointer_comes_last(kit: Kit) -> None:
    events = []

    class Watched(MemoryTier):
        def write(self, name: str, source: Path | bytes) -> None:
            events.append(name)
            super().write(name, source)

        def put_pointer(self, kind: str, key: str, data: bytes, *, replace: bool = False) -> bool:
            events.append("pointer")
            return super().put_pointer(kind, key, data, replace=replace)

    artifact = kit.publish()
    push(kit.here, Watched(), artifact)
    assert events[-1] == "pointer"
    manifest = artifact.manifest_digest.removeprefix("sha256:")
    blobs = {d.digest.removeprefix("sha256:") for d in artifact.layers} | {artifact.key}
    assert set(events[: events.index(manifest)]) == blobs


@pytest.mark.parametrize("fails_after", range(7))
def test_a_half_pushed_artifact_is_invisible(kit: Kit, fails_after: int) -> None:
    left = fails_after

    class Breaking(MemoryTier):
        def write(self, name: str, source: Path | bytes) -> None:
            self._count()
            super().write(name, source)

        def put_pointer(self, kind: str, key: str, data: bytes, *, replace: bool = False) -> bool:
            self._count()
            return super().put_pointer(kind, key, data, replace=replace)

        def _count(self) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise TierError("broke off")

    artifact, tier, there = kit.publish(), Breaking(), kit.store("there")
    with pytest.raises(TierError):
        push(kit.here, tier, artifact)
    assert find(tier, "graph", artifact.key) is None
    assert pull(there, tier, "graph", artifact.key) is None
    left = 100
    push(kit.here, tier, artifact)
    assert pull(there, tier, "graph", artifact.key) is not None


def test_a_pointer_without_its_blobs_is_a_miss_with_a_warning(kit: Kit, tier: Tier) -> None:
    artifact, warnings = kit.publish(), []
    manifest = kit.here.manifest_of(artifact)
    name = artifact.manifest_digest.removeprefix("sha256:")
    tier.put_pointer("graph", artifact.key, pointer_bytes(name, len(manifest)))
    there = kit.store("there")
    assert pull(there, tier, "graph", artifact.key, on_warning=warnings.append) is None
    tier.write(name, manifest)
    assert pull(there, tier, "graph", artifact.key, on_warning=warnings.append) is None
    assert len(warnings) == 2
    assert all("incomplete" in text for text in warnings)
    assert list(there.artifacts()) == []
    assert push(kit.here, tier, artifact).blobs == 4  # and so it is repaired
    assert pull(there, tier, "graph", artifact.key) is not None


@pytest.mark.parametrize(
    "pointer", [b"", b"{}", b"[]", b'{"digest":"sha256:12"}', b"\xff", b'{"digest":3}']
)
def test_a_broken_pointer_is_said_and_replaced(kit: Kit, tier: Tier, pointer: bytes) -> None:
    artifact, there = kit.publish(), kit.store("there")
    tier.put_pointer("graph", artifact.key, pointer)
    with pytest.raises(TierError, match="pointer of graph") as caught:
        pull(there, tier, "graph", artifact.key)
    assert failure_class(caught.value) == "corrupt"
    assert push(kit.here, tier, artifact).named
    assert pull(there, tier, "graph", artifact.key) is not None


def test_another_keys_manifest_is_refused(kit: Kit, tier: Tier) -> None:
    mine, other = kit.publish(0), kit.publish(1)
    push(kit.here, tier, other)
    pointer = tier.get_pointer("graph", other.key)
    assert pointer is not None
    tier.put_pointer("graph", mine.key, pointer)
    there = kit.store("there")
    with pytest.raises(TierError, match="names the manifest of"):
        pull(there, tier, "graph", mine.key)
    tier.put_pointer("compile", other.key, pointer)
    with pytest.raises(TierError, match="kind"):
        pull(there, tier, "compile", other.key)
    assert list(there.artifacts()) == []


def test_another_pushers_artifact_is_kept(kit: Kit, tier: Tier) -> None:
    first = kit.publish(0, store=kit.store("a"), text=b"a")
    second = kit.publish(0, store=kit.store("b"), text=b"b")
    assert first.key == second.key
    assert first.manifest_digest != second.manifest_digest
    assert push(kit.store("a"), tier, first).named
    assert not push(kit.store("b"), tier, second).named
    pulled = pull(kit.store("c"), tier, "graph", first.key)
    assert pulled is not None
    assert pulled.artifact == first


def test_wrong_bytes_in_the_tier_name_nothing_and_can_be_repaired(kit: Kit) -> None:
    artifact, tier = kit.publish(size=3000), MemoryTier()
    push(kit.here, tier, artifact)
    for blob in [kit.big(artifact), artifact.key]:
        right = tier.blobs[blob]
        tier.blobs[blob] = b"X" + right[1:]
        there = kit.store(f"there-{blob}")
        with pytest.raises(TierError, match="other bytes") as caught:
            pull(there, tier, "graph", artifact.key)
        assert list(there.artifacts()) == []
        assert set(kit.partials(there)) <= {d.digest[7:] for d in artifact.layers} | {artifact.key}
        push(kit.here, tier, artifact, repair=[caught.value.details["digest"]])
        assert tier.blobs[blob] == right
        assert pull(there, tier, "graph", artifact.key) is not None


def test_the_stores_own_broken_bytes_are_not_pushed(kit: Kit, tier: Tier) -> None:
    artifact = kit.publish(size=3000)
    path = kit.here.blob_path(f"sha256:{kit.big(artifact)}")
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"X" + data[1:])
    with pytest.raises(CorruptArtifactError):
        push(kit.here, tier, artifact)
    path.unlink(missing_ok=True)
    with pytest.raises(CorruptArtifactError, match="missing"):
        push(kit.here, tier, artifact)
    assert find(tier, "graph", artifact.key) is None


def test_a_directory_tier_is_a_store(kit: Kit) -> None:
    """What another host keeps can be read as a tier, and what was pushed as a store."""
    from neuroncompile.tiers import open_tier

    artifact = kit.publish()
    there = kit.store("there")
    assert pull(there, open_tier(f"file://{kit.here.root}"), "graph", artifact.key) is not None
    push(kit.here, open_tier(f"file://{kit.root}/new", create=True), artifact)
    assert kit.store("new").lookup("graph", artifact.key, verify="full") == artifact
    blobs = list((kit.root / "new" / "v1" / "blobs" / "sha256").iterdir())
    assert {p.stat().st_mode & 0o777 for p in blobs} == {0o444}


def test_a_manifest_that_climbs_out_is_refused(kit: Kit) -> None:
    artifact, tier, there = kit.publish(), MemoryTier(), kit.store("there")
    manifest = json.loads(kit.here.manifest_of(artifact))
    manifest["layers"][0]["annotations"]["org.opencontainers.image.title"] = "../../evil"
    data = json.dumps(manifest).encode()
    import hashlib

    name = hashlib.sha256(data).hexdigest()
    push(kit.here, tier, artifact)
    tier.write(name, data)
    tier.put_pointer("graph", artifact.key, pointer_bytes(name, len(data)), replace=True)
    with pytest.raises(TierError, match="pointer of graph"):
        pull(there, tier, "graph", artifact.key)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_whatever_a_tier_holds_a_pull_is_right_or_nothing(kit: Kit, data: st.DataObject) -> None:
    """Blobs removed, cut, flipped or swapped at random: the artifact arrives whole or not."""
    artifact = kit.publish(size=1000)
    tier, there = MemoryTier(), Store(kit.root / os.urandom(6).hex())
    push(kit.here, tier, artifact)
    names = sorted(tier.blobs)
    for _ in range(data.draw(st.integers(0, 3))):
        name = data.draw(st.sampled_from(names))
        how = data.draw(st.sampled_from(["remove", "cut", "flip", "swap", "longer"]))
        bytes_ = tier.blobs.get(name, b"")
        if how == "remove":
            tier.blobs.pop(name, None)
        elif how == "cut":
            tier.blobs[name] = bytes_[: len(bytes_) // 2]
        elif how == "flip" and bytes_:
            at = data.draw(st.integers(0, len(bytes_) - 1))
            tier.blobs[name] = bytes_[:at] + bytes([bytes_[at] ^ 1]) + bytes_[at + 1 :]
        elif how == "longer":
            tier.blobs[name] = bytes_ + b"x"
        else:
            tier.blobs[name] = tier.blobs.get(data.draw(st.sampled_from(names)), b"")
    try:
        pulled = pull(there, tier, "graph", artifact.key)
    except TierError:
        pulled = None
    found = there.lookup("graph", artifact.key, verify="full")
    assert found == (pulled.artifact if pulled else None)
    assert found in (None, artifact)
    push(kit.here, tier, artifact, repair=[f"sha256:{name}" for name in names])
    assert pull(there, tier, "graph", artifact.key) is not None
    assert there.lookup("graph", artifact.key, verify="full") == artifact


def test_a_layer_named_twice_travels_once(kit: Kit) -> None:
    tier = MemoryTier()
    layers = [Layer("a", data=b"same" * 500), Layer("b", data=b"same" * 500)]
    artifact = kit.here.publish("graph", spec(9), layers)
    assert push(kit.here, tier, artifact).blobs == 2
    pulled = pull(kit.store("there"), tier, "graph", artifact.key)
    assert pulled is not None
    assert pulled.blobs == 2
