"""Verify: whatever is wrong is found, named, and put right without touching what is not."""

from __future__ import annotations

import os
from typing import Any

import pytest

from neuroncompile.store.check import Check


def flip(path: Any, at: int = 0) -> None:
    """Change one bit and keep size and dates: what a medium does."""
    seen = path.stat()
    path.chmod(0o644)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    path.chmod(0o444)
    os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def found(check: Check) -> list[tuple[str, bool]]:
    return [(p.what, p.repaired) for p in check.problems]


def test_nothing_is_wrong_with_no_store_and_a_whole_one(kit: Any) -> None:
    assert kit.store.check() == Check()
    assert not kit.root.exists()
    artifact = kit.publish(1, provenance={"made": "here"})
    kit.store.set_ref("name", artifact)
    kit.store.view(artifact)
    before = kit.tree(kit.root)
    seen = list[tuple[int, int]]()
    check = kit.store.check(on_progress=lambda done, total: seen.append((done, total)))
    assert check.problems == []
    assert (check.artifacts, check.blobs, check.unnamed) == (1, 6, 0)
    assert seen[-1] == (check.bytes, check.bytes)
    assert kit.tree(kit.root) == before


def test_a_flipped_bit_anywhere_is_found_and_repaired(kit: Any) -> None:
    other = kit.publish(2, "other")
    for index in range(6):
        artifact = kit.publish(1, provenance={"made": "here"})
        kit.store.set_ref("name", artifact)
        manifest = artifact.manifest_digest
        names = [artifact.key, manifest, *(d.digest for d in artifact.layers)]
        paths = sorted({kit.store.blob_path(n if ":" in n else f"sha256:{n}") for n in names})
        paths = [p for p in paths if p.read_bytes() != b"{}"]  # which the other has as well
        flip(paths[index % len(paths)])
        assert ("blob", False) in found(kit.store.check())
        assert ("artifact", False) in found(kit.store.check())
        repaired = kit.store.check(repair=True)
        assert all(p.repaired for p in repaired.problems)
        assert kit.store.check().problems == []
        assert kit.fresh().lookup("graph", artifact.key) is None
        assert kit.fresh().lookup("graph", other.key, verify="full") == other
    assert len(list((kit.v1 / "tmp").glob("*.broken"))) == 6, "kept to be looked at"


def test_missing_short_and_misplaced_files(kit: Any) -> None:
    gone, short, forged = kit.publish(1, "a"), kit.publish(2, "b"), kit.publish(3, "c")
    kit.blob(gone, 1).unlink()
    blob = kit.blob(short, 0)
    blob.chmod(0o644)
    os.truncate(blob, 5)
    actions = kit.v1 / "actions" / "graph"
    (actions / ("0" * 64)).write_bytes((actions / forged.key).read_bytes())
    (kit.v1 / "refs").mkdir()
    (kit.v1 / "refs" / "bad").write_bytes(b"{}")
    problems = {(p.what, p.name.split()[-1]) for p in kit.store.check().problems}
    assert problems == {
        ("blob", blob.name),
        ("artifact", gone.key),
        ("artifact", short.key),
        ("artifact", "0" * 64),
        ("ref", "bad"),
    }
    kit.store.check(repair=True)
    assert kit.store.check().problems == []
    assert [a.key for a in kit.fresh().artifacts()] == [forged.key]


def test_an_edited_view_is_found_and_made_anew(kit: Any) -> None:
    artifact = kit.publish(1)
    view = kit.store.view(artifact)
    (view / "program.json").unlink()
    (view / "program.json").write_text("edited")
    assert found(kit.store.check()) == [("view", False)]
    assert found(kit.store.check(repair=True)) == [("view", True)]
    assert (kit.fresh().view(artifact) / "program.json").read_text() == "{}"
    assert kit.store.check().problems == []


def test_garbage_is_counted_and_is_no_problem(kit: Any) -> None:
    artifact = kit.publish(1)
    (kit.v1 / "actions" / "graph" / artifact.key).unlink()
    check = kit.store.check()
    assert check.problems == []
    assert check.unnamed == check.blobs > 3


def test_a_read_only_store_can_be_verified(kit: Any, read_only: Any) -> None:
    artifact = kit.publish(1)
    flip(kit.blob(artifact, 1))
    read_only(kit.root)
    assert found(kit.fresh().check()) == [("blob", False), ("artifact", False)]
    with pytest.raises(Exception, match=r"read-only|permission"):
        kit.fresh().check(repair=True)
