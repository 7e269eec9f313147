"""Indexes, manifests, specs and directories that say what is not so: refused, nothing is left."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import StoreError
from neuroncompile.store import archive
from neuroncompile.store.archive_read import import_directory, import_tar
from tests.store.archives import END, TERABYTE, Canary, Forgery, Pipe, member, sha

HEX = "a" * 64
GOOD = Forgery()


@pytest.fixture
def canary(kit: Any) -> Canary:
    return Canary(kit.root.parent / "canary")


def test_a_gigantic_index(canary: Canary) -> None:
    canary.refuses(member("index.json", b"{}", size=TERABYTE), "index.json has 1099511627776 bytes")
    canary.refuses(member("oci-layout", b"{}", size=TERABYTE), "oci-layout has 1099511627776 bytes")


@pytest.mark.parametrize(
    "index",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"schemaVersion":2}',
        b'{"schemaVersion":1,"manifests":[]}',
        b'{"schemaVersion":2,"manifests":{}}',
        b'{"schemaVersion":2,"manifests":[1]}',
        b'{"schemaVersion":2,"manifests":[{}]}',
        b'{"schemaVersion":' + b"9" * 5000 + b"}",
    ],
)
def test_an_index_that_is_none(canary: Canary, index: bytes) -> None:
    parts = [member("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'), member("index.json", index)]
    canary.refuses(b"".join(parts) + END, "index.json")


@pytest.mark.parametrize(
    "entry",
    [
        {"mediaType": "application/vnd.oci.image.index.v1+json"},
        {"mediaType": "application/vnd.docker.distribution.manifest.v2+json"},
        {"artifactType": "application/vnd.oci.empty.v1+json"},
        {"digest": "sha256:" + HEX[:-1]},
        {"digest": "sha256:../../x"},
        {"digest": "sha512:" + HEX},
        {"digest": None},
        {"size": -1},
        {"size": 0},
        {"size": "9"},
        {"size": True},
        {"size": 1e3},
        {"size": 1 << 40},
        {"size": 1},
        {"annotations": []},
        {"annotations": {"dev.neuroncompile.kind": 1}},
        {"annotations": {"dev.neuroncompile.kind": "compile"}},
        {"annotations": {"dev.neuroncompile.key": HEX}},
        {"annotations": {"dev.neuroncompile.provenance": "../x"}},
        {"data": "e30="},
        {"urls": ["https://example.com/"]},
    ],
    ids=str,
)
def test_a_descriptor_that_is_wrong(canary: Canary, entry: dict[str, Any]) -> None:
    absurd = "size" in entry and entry["size"] != 1
    match = "entry 0 of index.json: a manifest has not" if absurd else None
    canary.refuses(Forgery(index_entry=entry).tar(), match)


def test_another_version_of_the_layout(canary: Canary) -> None:
    for text in (b"{}", b"", b'{"imageLayoutVersion":"2.0.0"}', b'{"imageLayoutVersion":{}}'):
        parts = [member("oci-layout", text), *GOOD.members()[1:]]
        canary.refuses(b"".join(parts) + END, "oci-layout")


@pytest.mark.parametrize(
    "change",
    [
        {"config": None},
        {"config": {"mediaType": "application/vnd.oci.image.config.v1+json"}},
        {"layers": None},
        {"layers": []},
        {"layers": {}},
        {"layers": [{}]},
        {"artifactType": "other"},
        {"schemaVersion": 1},
    ],
    ids=str,
)
def test_a_manifest_that_is_wrong(canary: Canary, change: dict[str, Any]) -> None:
    canary.refuses(Forgery(manifest_extra=change).tar(), "manifest")


@pytest.mark.parametrize(
    "title",
    [
        "../x",
        "/etc/passwd",
        "a/../../x",
        "",
        "a//b",
        "./a",
        "a\\b",
        "a\nb",
        "A.so",
        "x" * 300,
        "a.so/b",
    ],
)
def test_titles_that_could_leave_a_view(canary: Canary, title: str) -> None:
    files = {"a.so": b"so", title: b"y"}
    canary.refuses(Forgery(files=files).tar(), "unsafe manifest|duplicate|collide")


def _layer(**changes: Any) -> dict[str, Any]:
    plain = {
        "mediaType": "application/octet-stream",
        "digest": f"sha256:{sha(b'so')}",
        "size": 2,
        "annotations": {"org.opencontainers.image.title": "a.so"},
    }
    return {**plain, **changes}


@pytest.mark.parametrize(
    "layers",
    [
        [_layer(size=3)],
        [_layer(size=-2)],
        [_layer(size=2.0)],
        [_layer(digest=f"sha256:{HEX}")],
        [_layer(), _layer(size=3, annotations={"org.opencontainers.image.title": "b.so"})],
    ],
    ids=str,
)
def test_layers_that_contradict_the_bytes(canary: Canary, layers: list[Any]) -> None:
    files = {"a.so": b"so"}
    forged = Forgery(files=files, manifest_extra={"layers": layers})
    canary.refuses(forged.tar())
    canary.refuses(b"".join(forged.members()[::-1]) + END)


def test_a_spec_of_a_terabyte(canary: Canary) -> None:
    """It is refused by its descriptor, before it comes."""
    config = {**json.loads(GOOD.manifest)["config"], "size": 1 << 40}
    forged = Forgery(manifest_extra={"config": config})
    canary.refuses(b"".join(forged.members()[:3]), "too many for a spec")


@pytest.mark.parametrize(
    "spec",
    [
        b"",
        b"{}",
        b"[]",
        b'{"kind":"graph" }',
        b'{"kind":"graph","kind":"graph"}',
        b'{"kind":"../../x","schema":1}',
        b'{"kind":"","schema":1}',
        b'{"kind":1,"schema":1}',
        b'{"kind":["a"],"schema":1}',
        b'{"kind":"' + b"a" * 4000 + b'","schema":1}',
        b'{"kind":"graph","x":1.5}',
        b'{"kind":"graph","x":NaN}',
        b'{"kind":"graph","x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
    ids=lambda b: str(b[:40]),
)
def test_a_spec_that_no_build_could_ask_for(canary: Canary, spec: bytes) -> None:
    canary.refuses(Forgery(spec_bytes=spec).tar(), "spec")


def test_names_of_classes_are_data(canary: Canary, kit: Any) -> None:
    """A dotted name in any document chooses no code; it is kept as the bytes it is."""
    dotted = {"__module__": "this", "__class__": "os.system", "class": "antigravity.x"}
    forged = Forgery(
        spec={"schema": 1, "kind": "graph", **dotted},
        manifest_extra=dotted,
        index_entry=dotted,
    )
    import sys

    import_tar(canary.store, Pipe(forged.tar()))
    assert canary.store.spec_of(canary.store.find(forged.key))["__module__"] == "this"
    assert not {"this", "antigravity"} & sys.modules.keys()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "pins/x", "deadbeef", "a b", "a/../b", "x" * 300, "\x1b]0;x", "a:b"]
)
def test_a_ref_that_cannot_be_is_left_out(canary: Canary, kit: Any, name: str) -> None:
    notes = {"org.opencontainers.image.ref.name": name}
    [imported] = import_tar(
        canary.store, Pipe(Forgery(index_entry={"annotations": notes}).tar())
    ).artifacts
    assert [refused[0] for refused in imported.refused] == [name]
    assert canary.store.refs() == {}
    assert not (canary.root / "x").exists()


@pytest.mark.parametrize(
    "record", [b"", b"[]", b"\x80\x04.", b"{", b"x" * (archive.JSON_LIMIT + 1)]
)
def test_provenance_that_is_none(canary: Canary, kit: Any, record: bytes) -> None:
    notes = {"dev.neuroncompile.provenance": f"sha256:{sha(record)}"}
    forged = Forgery(index_entry={"annotations": notes})
    data = forged.tar(member(f"blobs/sha256/{sha(record)}", record))
    if len(record) > archive.JSON_LIMIT:
        canary.refuses(data, "too many for provenance")
        return
    import_tar(canary.store, Pipe(data))
    assert canary.store.provenance_of(canary.store.find(forged.key)) is None


def test_two_descriptors_that_contradict(canary: Canary) -> None:
    forged = Forgery()
    index = json.loads(forged.index)
    [entry] = index["manifests"]
    for change in ({"size": 1}, {"annotations": {"dev.neuroncompile.kind": "pack"}}):
        first = {**entry, "annotations": {"dev.neuroncompile.kind": "graph"}}
        index["manifests"] = [first, {**entry, **change}]
        parts = {**forged.parts(), "index.json": json.dumps(index).encode()}
        canary.refuses(b"".join(member(n, d) for n, d in parts.items()) + END, "two descriptors")


# ---- directories


@pytest.fixture
def layout_directory(canary: Canary, tmp_path: Path) -> Path:
    return GOOD.directory(tmp_path / "layout")


def refuses_directory(canary: Canary, path: Path, match: str | None = None) -> None:
    with pytest.raises(StoreError, match=match):
        import_directory(canary.store, path)
    assert canary.state() == canary.before


def _link(path: Path) -> None:
    path.rename(path.with_suffix(".real"))
    path.symlink_to(path.with_suffix(".real"))


def _socket(path: Path) -> None:
    path.unlink()
    here = os.getcwd()
    os.chdir(path.parent)  # the whole path may be too long for a socket
    try:
        socket.socket(socket.AF_UNIX).bind(path.name[:60])
        os.rename(path.name[:60], path.name)
    finally:
        os.chdir(here)


def _fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b" ")


def _flipped(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(bytes([data[0] ^ 1]) + data[1:])


def _gone(path: Path) -> None:
    path.unlink()


DAMAGE = [_link, _socket, _fifo, _directory, _device, _flipped, _gone]


@pytest.mark.parametrize("damage", [*DAMAGE, _longer])
@pytest.mark.parametrize("which", ["layer", "spec", "manifest"])
def test_a_directory_with_a_wrong_blob(
    canary: Canary, layout_directory: Path, damage: Callable[[Path], None], which: str
) -> None:
    name = {"layer": sha(b"so"), "spec": GOOD.key, "manifest": sha(GOOD.manifest)}[which]
    damage(layout_directory / "blobs" / "sha256" / name)
    refuses_directory(canary, layout_directory)


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["index.json", "oci-layout"])
def test_a_directory_with_a_wrong_document(
    canary: Canary, layout_directory: Path, damage: Callable[[Path], None], name: str
) -> None:
    damage(layout_directory / name)
    refuses_directory(canary, layout_directory)


def test_other_files_of_a_directory_are_not_opened(
    canary: Canary, kit: Any, layout_directory: Path
) -> None:
    """OCI allows them, and another store's v1 is full of them."""
    (layout_directory / "evil").symlink_to("/dev/zero")
    os.mkfifo(layout_directory / "blobs" / "sha256" / HEX)
    (layout_directory / "blobs" / "sha256" / "x.pkl").write_bytes(b"\x80\x04.")
    import_directory(canary.store, layout_directory)
    assert kit.assert_whole(canary.store) == 1


def test_a_forged_pointer_of_another_store(canary: Canary, kit: Any, tmp_path: Path) -> None:
    """A pointer that names another key's manifest is refused, not believed."""
    kit.publish(0)
    kit.publish(1, "y")
    graph = kit.v1 / "actions" / "graph"
    good = (graph / kit.key(0)).read_bytes()
    (graph / kit.key(1)).write_bytes(good)
    refuses_directory(canary, kit.root, "two descriptors")
    (graph / kit.key(0)).unlink()
    refuses_directory(canary, kit.root, "the index calls")


def test_what_is_no_layout_is_said(canary: Canary, tmp_path: Path) -> None:
    refuses_directory(canary, tmp_path, "not an image layout")


def test_a_store_of_a_newer_version(canary: Canary, kit: Any) -> None:
    kit.publish(0)
    (kit.v1 / "store.json").write_text('{"schema":1,"features":["packs"]}')
    refuses_directory(canary, kit.root, "newer neuroncompile")
