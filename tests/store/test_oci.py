"""Titles are safe on every file system; manifests round-trip and refuse what they must."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuroncompile.errors import CorruptArtifactError, StoreError
from neuroncompile.store import oci

KEY = "ab" * 32
ONE = oci.Descriptor("a/model.so", f"sha256:{'01' * 32}", 3, oci.AOTI)
TWO = oci.Descriptor("program.json", f"sha256:{'02' * 32}", 5, oci.JSON)


def test_manifest_round_trip_and_order_free() -> None:
    data = oci.build_manifest(KEY, 9, [TWO, ONE])
    assert data == oci.build_manifest(KEY, 9, [ONE, TWO])
    assert oci.parse_manifest(data) == (KEY, 9, (ONE, TWO))


def test_manifest_is_what_the_image_spec_asks_for() -> None:
    document = json.loads(oci.build_manifest(KEY, 9, [ONE]))
    assert document["schemaVersion"] == 2
    assert document["mediaType"] == "application/vnd.oci.image.manifest.v1+json"
    assert document["artifactType"] == "application/vnd.neuroncompile.artifact.v1"
    assert document["config"] == {
        "mediaType": "application/vnd.neuroncompile.action.v1+json",
        "digest": f"sha256:{KEY}",
        "size": 9,
    }
    assert document["layers"][0]["annotations"] == {"org.opencontainers.image.title": "a/model.so"}


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("artifactType", "application/x"),
        ("schemaVersion", 1),
        ("config", {"mediaType": oci.ACTION, "digest": "sha256:xyz", "size": 1}),
        ("config", {"mediaType": oci.ACTION, "digest": f"sha256:{KEY}", "size": -1}),
        ("config", {"mediaType": oci.ACTION, "digest": f"sha256:{KEY}", "size": True}),
        ("config", {"mediaType": oci.JSON, "digest": f"sha256:{KEY}", "size": 1}),
        ("config", None),
        ("layers", [{"mediaType": "a", "digest": ONE.digest, "size": 1}]),
        ("layers", 7),
        ("layers", [None]),
    ],
)
def test_manifest_refuses(member: str, value: object) -> None:
    document = json.loads(oci.build_manifest(KEY, 9, [ONE]))
    document[member] = value
    with pytest.raises(CorruptArtifactError):
        oci.parse_manifest(json.dumps(document).encode())


def test_manifest_refuses_a_title_that_leaves_the_view() -> None:
    document = json.loads(oci.build_manifest(KEY, 9, [ONE]))
    document["layers"][0]["annotations"][oci.TITLE] = "../../.bashrc"
    with pytest.raises(CorruptArtifactError, match="plain relative path"):
        oci.parse_manifest(json.dumps(document).encode())


def test_manifest_ignores_members_of_the_future() -> None:
    document = json.loads(oci.build_manifest(KEY, 9, [ONE]))
    document["later"] = {"x": 1}
    assert oci.parse_manifest(json.dumps(document).encode()) == (KEY, 9, (ONE,))


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff\xfe", b"[" * 100_000, b'{"digest": 4}'])
def test_pointer_refuses_rubbish(data: bytes) -> None:
    with pytest.raises(CorruptArtifactError):
        oci.parse_pointer(data)


@pytest.mark.parametrize(
    "title",
    ["", "/etc/x", "..", "a/../b", "a//b", "a/", "./a", "a\\b", "a\0", "a\nb", "x" * 256, "\ud800"],
)
def test_title_refused(title: str) -> None:
    with pytest.raises(StoreError):
        oci.check_titles([title])


@pytest.mark.parametrize(
    "titles",
    [
        ["a", "a"],
        ["Model.so", "model.SO"],
        ["straße", "STRASSE"],
        ["caf\u00e9", "cafe\u0301"],
        ["a", "a/b"],
        ["a/b", "A"],
    ],
)
def test_titles_collide(titles: list[str]) -> None:
    with pytest.raises(StoreError):
        oci.check_titles(titles)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=5))
def test_accepted_titles_stay_inside_and_apart(titles: list[str]) -> None:
    try:
        oci.check_titles(titles)
    except StoreError:
        return
    root = Path("/view")
    paths = [os.path.normpath(root / title) for title in titles]
    assert all(p.startswith("/view/") for p in paths)
    assert len({p.casefold() for p in paths}) == len(titles)
    assert [str(root / t) for t in titles] == paths


def test_layer_needs_exactly_one_source(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="either path or data"):
        oci.Layer("a")
    with pytest.raises(ValueError, match="either path or data"):
        oci.Layer("a", path=tmp_path, data=b"")
