"""The store's surface: publish, look up, view, find, remember."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import Layer, Store
from neuroncompile.store.oci import WEIGHT


def test_reading_makes_nothing(kit: Any) -> None:
    assert kit.store.lookup("graph", kit.key()) is None
    assert list(kit.store.artifacts()) == []
    assert kit.store.failure("graph", kit.key()) is None
    with pytest.raises(StoreError, match="no artifact"):
        kit.store.find("0123456789")
    assert not kit.root.exists()


def test_publish_then_lookup_in_another_process(kit: Any) -> None:
    made = kit.publish(provenance={"seconds": 1.5, "who": "ci"})
    store = kit.fresh()
    found = store.lookup("graph", kit.key())
    assert found == made
    assert found.key == kit.key()
    assert [d.title for d in found.layers] == [
        "graphs/a/model.so",
        "graphs/b/model.so",
        "program.json",
    ]
    assert (store.view(found) / "graphs/b/model.so").read_bytes() == b"x" * 200
    assert store.spec_of(found) == kit.spec()
    assert store.provenance_of(found) == {"seconds": 1.5, "who": "ci"}
    assert list(store.artifacts()) == list(store.artifacts("graph")) == [made]
    assert list(store.artifacts("pack")) == []
    assert kit.warnings == []


def test_key_is_the_config_digest(kit: Any) -> None:
    made = kit.publish()
    manifest = json.loads(kit.store.blob_path(made.manifest_digest).read_bytes())
    assert manifest["config"]["digest"] == f"sha256:{kit.key()}"
    assert json.loads(kit.store.blob_path(made.key).read_bytes()) == kit.spec()


def test_layout(kit: Any) -> None:
    kit.publish()
    assert json.loads((kit.v1 / "oci-layout").read_bytes()) == {"imageLayoutVersion": "1.0.0"}
    assert (kit.v1 / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f")
    assert (kit.v1 / ".gitignore").read_text() == "*\n"
    assert json.loads((kit.v1 / "store.json").read_bytes())["schema"] == 1
    assert list((kit.v1 / "tmp").iterdir()) == []
    assert all(p.stat().st_mode & 0o222 == 0 for p in (kit.v1 / "blobs/sha256").iterdir())


def test_first_writer_wins(kit: Any) -> None:
    first = kit.publish(text="x", provenance={"n": 1})
    second = kit.publish(text="y", provenance={"n": 2})
    assert second == first
    assert kit.store.provenance_of(second) == {"n": 1}


def test_manifest_does_not_depend_on_provenance(kit: Any, tmp_path: Path) -> None:
    other = Store(tmp_path / "other")
    a = kit.publish(provenance={"finished": "today"})
    b = other.publish("graph", kit.spec(), kit.layers(), provenance={"finished": "later"})
    assert a.manifest_digest == b.manifest_digest


def test_scratch_files_are_linked_and_others_copied(kit: Any, tmp_path: Path) -> None:
    scratch = kit.store.scratch("compile")
    assert scratch.stat().st_dev == kit.v1.stat().st_dev
    (scratch / "deep").mkdir()
    mine, theirs = scratch / "deep" / "a.so", tmp_path / "b.so"
    mine.write_bytes(b"a" * 5000)
    theirs.write_bytes(b"b" * 5000)
    theirs.chmod(0o644)
    artifact = kit.store.publish(
        "graph", kit.spec(), [Layer("a.so", path=mine), Layer("b.so", path=theirs)]
    )
    a, b = (kit.blob(artifact, i) for i in (0, 1))
    assert a.stat().st_ino == mine.stat().st_ino
    assert b.stat().st_ino != theirs.stat().st_ino
    assert theirs.stat().st_mode & 0o777 == 0o644
    theirs.write_bytes(b"changed")
    assert b.read_bytes() == b"b" * 5000


def test_scratch_file_with_a_second_name_is_copied(kit: Any) -> None:
    scratch = kit.store.scratch("compile")
    outside = kit.root.parent / "outside.so"
    outside.write_bytes(b"a" * 100)
    os.link(outside, scratch / "a.so")
    artifact = kit.store.publish("graph", kit.spec(), [Layer("a.so", path=scratch / "a.so")])
    outside.write_bytes(b"b" * 100)
    assert kit.blob(artifact).read_bytes() == b"a" * 100


def test_symbolic_link_is_copied(kit: Any, tmp_path: Path) -> None:
    scratch = kit.store.scratch("compile")
    (tmp_path / "outside.so").write_bytes(b"a" * 100)
    (scratch / "a.so").symlink_to(tmp_path / "outside.so")
    artifact = kit.store.publish("graph", kit.spec(), [Layer("a.so", path=scratch / "a.so")])
    assert not kit.blob(artifact).is_symlink()
    assert kit.blob(artifact).read_bytes() == b"a" * 100


def test_blobs_are_shared_between_artifacts(kit: Any) -> None:
    graph = kit.publish()
    before = kit.tree(kit.v1 / "blobs")
    again = [
        Layer(f"graphs/{d.digest[7:15]}/{d.title}", path=kit.store.blob_path(d.digest))
        for d in graph.layers
    ]
    program = kit.store.publish("compile", {"kind": "compile"}, again)
    assert {d.digest for d in program.layers} == {d.digest for d in graph.layers}
    assert len(kit.tree(kit.v1 / "blobs") - before) == 2  # spec and manifest
    kit.assert_whole(kit.fresh())


def test_same_content_under_two_titles(kit: Any) -> None:
    artifact = kit.store.publish(
        "graph", kit.spec(), [Layer("a", data=b"1"), Layer("b", data=b"1")]
    )
    view = kit.store.view(artifact)
    assert (view / "a").read_bytes() == (view / "b").read_bytes() == b"1"


def test_empty_file(kit: Any) -> None:
    artifact = kit.store.publish("pack", kit.spec(), [Layer("e", data=b"", media_type=WEIGHT)])
    assert (kit.store.view(artifact) / "e").read_bytes() == b""


def test_unsafe_titles_are_refused_before_any_write(kit: Any) -> None:
    with pytest.raises(StoreError):
        kit.store.publish("graph", kit.spec(), [Layer("../x", data=b"")])
    with pytest.raises(ValueError, match="at least one file"):
        kit.store.publish("graph", kit.spec(), [])
    assert not kit.root.exists()


@pytest.mark.parametrize(("kind", "key"), [("../x", "0" * 64), ("graph", "../x"), ("", "0" * 64)])
def test_kind_and_key_cannot_leave_the_store(kit: Any, kind: str, key: str) -> None:
    with pytest.raises(ValueError, match="kind and key"):
        kit.store.lookup(kind, key)


def test_failed_publish_can_be_tried_again(kit: Any, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        kit.store.publish("graph", kit.spec(), [Layer("a", path=tmp_path / "missing")])
    assert kit.store.lookup("graph", kit.key()) is None
    assert list((kit.v1 / "tmp").iterdir()) == []
    kit.publish()
    assert kit.assert_whole(kit.fresh()) == 1


# ---- naming


def test_find(kit: Any) -> None:
    a, b = kit.publish(0), kit.publish(1)
    kit.store.set_ref("nightly/model", b)
    find = kit.store.find
    assert find(a.key) == find(a.key[:8]) == find(a.key[:12].upper()) == a
    assert find(f"sha256:{a.key}") == find(a.manifest_digest) == a
    assert find("nightly/model") == b
    with pytest.raises(StoreError, match="too short") as caught:
        find(a.key[:5])
    assert a.key[:16] in str(caught.value)
    for text in ("ffffffffffff", "no-such", "", "../v1", "sha256:", "nightly"):
        with pytest.raises(StoreError) as caught:
            find(text)
        assert caught.value.hint


def test_find_lists_all_that_fit(kit: Any) -> None:
    made = kit.publish()
    kit.store.publish("pack", kit.spec(), kit.layers())
    with pytest.raises(StoreError, match="fits 2 artifacts") as caught:
        kit.store.find(made.key[:10])
    assert caught.value.details["candidates"] == [f"graph {made.key[:16]}", f"pack {made.key[:16]}"]


def test_find_says_what_is_broken(kit: Any) -> None:
    made = kit.publish()
    kit.blob(made).unlink()
    with pytest.raises(CorruptArtifactError):
        kit.store.find(made.key)


@pytest.mark.parametrize("name", ["../x", "/x", "a b", "deadbeef", "", "a\nb"])
def test_unusable_refs(kit: Any, name: str) -> None:
    with pytest.raises(StoreError):
        kit.store.set_ref(name, kit.publish())


def test_index_repeats_the_refs(kit: Any) -> None:
    made = kit.publish()
    kit.store.set_ref("b", made)
    kit.store.set_ref("a", made)
    index = json.loads((kit.v1 / "index.json").read_bytes())
    names = [m["annotations"]["org.opencontainers.image.ref.name"] for m in index["manifests"]]
    assert names == ["a", "b"]
    manifest = kit.store.blob_path(made.manifest_digest)
    assert index["manifests"][0]["size"] == manifest.stat().st_size
    assert index["manifests"][0]["digest"] == made.manifest_digest


# ---- time


@pytest.mark.parametrize("mtime", [0, 1, 4_000_000_000])
def test_absurd_dates_are_put_right_by_use(kit: Any, mtime: int) -> None:
    made = kit.publish()
    pointer = kit.v1 / "actions" / "graph" / made.key
    for path in [pointer, *(kit.v1 / "blobs/sha256").iterdir()]:
        os.utime(path, (mtime, mtime))
    store = kit.fresh()
    assert store.last_used(made) == mtime
    assert store.lookup("graph", made.key, touch=False) == made
    assert store.last_used(made) == mtime
    assert store.lookup("graph", made.key) == made
    assert abs(store.last_used(made) - time.time()) < 60
    kit.publish()
    assert all(abs(p.stat().st_mtime - time.time()) < 60 for p in kit.v1.glob("blobs/sha256/*"))
    assert kit.warnings == []


def test_use_is_recorded_hourly(kit: Any) -> None:
    made = kit.publish()
    pointer = kit.v1 / "actions" / "graph" / made.key
    recent, old = time.time() - 1800, time.time() - 7200
    os.utime(pointer, (recent, recent))
    kit.store.lookup("graph", made.key)
    assert kit.store.last_used(made) == pytest.approx(recent, abs=1)
    os.utime(pointer, (old, old))
    kit.store.lookup("graph", made.key)
    assert kit.store.last_used(made) == pytest.approx(time.time(), abs=60)


# ---- failures


def test_failures(kit: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    key = kit.key()
    kit.store.remember_failure("graph", key, "NCC_EXTP004", log=b"the log")
    kit.store.remember_failure("graph", key, "NCC_EXTP004", log=b"the log")
    failure = kit.fresh().failure("graph", key)
    assert failure is not None
    assert (failure.reason, failure.attempts) == ("NCC_EXTP004", 2)
    assert kit.store.blob_path(failure.log).read_bytes() == b"the log"
    now = time.time()
    for later, counts in [(23.9 * 3600, True), (24.1 * 3600, False), (-48 * 3600, False)]:
        monkeypatch.setattr(time, "time", lambda later=later: now + later)
        assert (kit.fresh().failure("graph", key) is not None) is counts
    monkeypatch.undo()
    kit.store.forget_failure("graph", key)
    kit.store.forget_failure("graph", key)
    assert kit.store.failure("graph", key) is None


def test_publish_forgets_the_failure(kit: Any) -> None:
    kit.store.remember_failure("graph", kit.key(), "no")
    kit.publish()
    assert kit.store.failure("graph", kit.key()) is None


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"reason":1,"attempts":"x"}', b"\xff"])
def test_broken_failure_record_is_none(kit: Any, data: bytes) -> None:
    kit.store.remember_failure("graph", kit.key(), "no")
    (kit.v1 / "failures" / "graph" / kit.key()).write_bytes(data)
    assert kit.store.failure("graph", kit.key()) is None


# ---- other versions, other places, cost


def test_store_of_a_newer_version_is_refused(kit: Any) -> None:
    kit.publish()
    (kit.v1 / "store.json").write_text('{"schema":1,"features":["chunks"]}')
    for use in (
        lambda s: s.lookup("graph", kit.key()),
        lambda s: s.scratch("x"),
        lambda s: list(s.artifacts()),
    ):
        with pytest.raises(StoreError, match="chunks") as caught:
            use(kit.fresh())
        assert "upgrade" in (caught.value.hint or "")


def test_copied_store_works(kit: Any, tmp_path: Path) -> None:
    made = kit.publish()
    kit.store.view(made)
    subprocess.run(["cp", "-a", str(kit.root), str(tmp_path / "copy")], check=True)
    subprocess.run(["rm", "-rf", str(kit.root)], check=True)
    copy = kit.fresh(tmp_path / "copy")
    assert copy.lookup("graph", kit.key()) == made
    assert str(copy.view(made)).startswith(str(tmp_path / "copy"))
    assert kit.assert_whole(copy) == 1
    assert kit.warnings == []


HIT = """
import sys, time
before = set(sys.modules)
from pathlib import Path
from neuroncompile.store import Store
def hit():
    store = Store(Path(sys.argv[1]))
    store.view(store.lookup("graph", sys.argv[2]))
hit()
heavy = {"logging", "tempfile", "uuid", "subprocess", "shutil", "asyncio", "numpy", "torch",
         "socket", "unicodedata", "random"}
assert not heavy & (set(sys.modules) - before), heavy & set(sys.modules)
began = time.process_time()
for _ in range(50):
    hit()
print((time.process_time() - began) / 50)
"""


def test_hit_is_light_and_fast(kit: Any) -> None:
    made = kit.store.publish(
        "graph", kit.spec(), [Layer(f"g/{i}.so", data=b"%d" % i * 50_000) for i in range(8)]
    )
    kit.store.view(made)
    done = subprocess.run(
        [sys.executable, "-c", HIT, str(kit.root), made.key], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 0.005  # seconds of CPU for lookup and view
