"""Archives that somebody made to do harm, or that came damaged: refused, and nothing is left.

A canary directory around the store shows what was written where.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import socket
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import NeuronCompileError, StoreError
from neuroncompile.store import Store, archive
from neuroncompile.store.archive_read import import_directory, import_tar
from tests.store.archives import END, Forgery, Pipe, member, sha, split

HEX = "a" * 64
GOOD = Forgery()
TERABYTE = b"\x80" + (1 << 40).to_bytes(11, "big")  # as GNU tar and Go write it


class Canary:
    """A store inside a directory with files that must not change."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "above").mkdir(parents=True)
        (root / "above" / "file").write_text("canary")
        (root / "target").symlink_to(root / "above")
        self.store = Store(root / "store", on_warning=print)
        self.store.scratch("warm").rmdir()  # the store's own files are there before
        self.before = self.state()

    def state(self) -> dict[str, tuple[int, int, bytes]]:
        found = {}
        for path in self.root.rglob("*"):
            seen = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path.relative_to(self.root))] = (seen.st_mode, seen.st_nlink, data)
        return found

    def refuses(self, data: bytes, match: str | None = None) -> NeuronCompileError:
        with pytest.raises(NeuronCompileError, match=match) as caught:
            import_tar(self.store, Pipe(data))
        assert caught.value.exit_code in (7, 9)
        assert self.state() == self.before, "a refused archive leaves nothing"
        return caught.value


@pytest.fixture
def canary(kit: Any) -> Canary:
    return Canary(kit.root.parent / "canary")


def test_a_forgery_is_right_until_made_wrong(kit: Any, canary: Canary) -> None:
    [imported] = import_tar(canary.store, Pipe(GOOD.tar())).artifacts
    assert imported.artifact.key == GOOD.key
    assert kit.assert_whole(canary.store) == 1


NAMES = [
    "../x",
    "../../above/file",
    "blobs/sha256/../../../above/file",
    "/etc/passwd",
    "/blobs/sha256/" + HEX,
    "./../x",
    "././oci-layout",
    ".//oci-layout",
    "",
    "/",
    ".",
    "..",
    " ",
    "x",
    "manifest.json",
    "Index.json",
    "INDEX.JSON",
    "index.json ",
    "index.json/",
    "index.json/x",
    "OCI-LAYOUT",
    "blobs",
    "blobs/sha256",
    "blobs/sha256/",
    "blobs/sha256/" + HEX[:63],
    "blobs/sha256/" + HEX + "a",
    "blobs/sha256/" + HEX.upper(),
    "Blobs/sha256/" + HEX,
    "blobs/SHA256/" + HEX,
    "blobs/sha512/" + HEX,
    "blobs//sha256/" + HEX,
    "blobs/sha256//" + HEX,
    "blobs\\sha256\\" + HEX,
    "blobs/sha256/ａ" + HEX[1:],
    "blobs/sha256/" + HEX[:62] + "\n",
    "actions/graph/" + HEX,
    "refs/pins/x",
    "store.json",
    "v1/index.json",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", ["first", "last"])
def test_no_other_name_than_those_of_a_layout(canary: Canary, name: str, place: str) -> None:
    bad = member(name, b"x")
    data = GOOD.tar(first=[bad]) if place == "first" else GOOD.tar(bad)
    error = canary.refuses(data, "belong|name|twice")
    shown = name.rstrip("/").removeprefix("./")
    assert not shown.isalnum() or shown in str(error)


def test_a_name_that_only_ustars_prefix_completes(canary: Canary) -> None:
    whole = Forgery()
    parts = whole.members()
    [data] = [d for n, d in whole.blobs().items() if n.endswith(sha(b"so"))]
    plain = member(sha(b"so"), data, prefix=b"blobs/sha256")
    canary.refuses(b"".join([*parts, member("x", b"1", prefix=b"..")]) + END, r"'\.\./x'")
    canary.refuses(b"".join([*parts, plain]) + END, "twice")
    import_tar(canary.store, Pipe(b"".join([*parts[:-1], plain]) + END))


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        (b"1", "a hard link"),
        (b"2", "a symbolic link"),
        (b"3", "a character device"),
        (b"4", "a block device"),
        (b"6", "a named pipe"),
        (b"7", "a contiguous file"),
        (b"S", "a sparse file"),
        (b"g", "a pax header"),
        (b"x", "a pax header"),
        (b"X", "a pax header"),
        (b"L", "a GNU long name"),
        (b"K", "a GNU long link"),
        (b"M", "a part of a file"),
        (b"V", "a volume label"),
        (b"D", "a GNU directory"),
        (b"A", "of type"),
        (b"\xff", "of type"),
    ],
)
def test_nothing_but_files_and_directories(canary: Canary, kind: bytes, what: str) -> None:
    for link in (b"", b"../target", b"/etc/passwd"):
        bad = member(f"blobs/sha256/{HEX}", b"", kind=kind, link=link)
        canary.refuses(GOOD.tar(first=[bad]), f"{HEX}.*{what}")
        canary.refuses(GOOD.tar(bad), what)


def test_a_link_then_a_file_through_it(canary: Canary) -> None:
    link = member("blobs", kind=b"2", link=b"../above")
    canary.refuses(link + member("blobs/file", b"x") + END, "'blobs' is a symbolic link")
    under = member("blobs/sha256", kind=b"2", link=str(canary.root / "above").encode())
    canary.refuses(under + GOOD.tar(), "symbolic link")
    named = member("", kind=b"2", link=b"../above")
    canary.refuses(named + GOOD.tar(), "symbolic link")


def test_a_file_with_a_links_target(canary: Canary) -> None:
    bad = member(f"blobs/sha256/{HEX}", b"", link=b"../above/file")
    canary.refuses(GOOD.tar(first=[bad]), "target of a link")


@pytest.mark.parametrize("mode", [0o4755, 0o2755, 0o1777, 0o7777])
def test_setuid_and_its_like(canary: Canary, mode: int) -> None:
    name, data = "oci-layout", GOOD.parts()["oci-layout"]
    canary.refuses(member(name, data, mode=mode) + b"".join(GOOD.members()[1:]) + END, "setuid")
    canary.refuses(GOOD.tar(first=[member("blobs", kind=b"5", mode=mode)]), "setuid")


def test_one_name_twice(canary: Canary) -> None:
    parts = GOOD.members()
    for part in parts:
        canary.refuses(b"".join([*parts, part]) + END, "twice")
    dotted = member("./oci-layout", GOOD.parts()["oci-layout"])
    canary.refuses(b"".join([*parts, dotted]) + END, "twice")
    directory = member("blobs/", kind=b"5")
    canary.refuses(GOOD.tar(first=[directory, directory]), "twice")
    canary.refuses(GOOD.tar(first=[directory, member("./blobs", kind=b"5")]), "twice")
    canary.refuses(GOOD.tar(first=[member("oci-layout", kind=b"5")]), "belong")


def test_directories_of_the_layout_and_no_others(kit: Any, canary: Canary) -> None:
    good = [member(n, kind=b"5") for n in ("./", "./blobs/", "./blobs/sha256/")]
    bad = member("blobs/sha512/", kind=b"5")
    canary.refuses(GOOD.tar(first=[*good, bad]), "'blobs/sha512' does not belong")
    canary.refuses(GOOD.tar(first=[member("/", kind=b"5")]), "name")
    canary.refuses(GOOD.tar(first=[member("", kind=b"5")]), "name")
    canary.refuses(GOOD.tar(first=[member("..", kind=b"5")]), "belong")
    canary.refuses(GOOD.tar(first=[member("blobs", b"x", kind=b"5")]), "a directory of 1 bytes")
    import_tar(canary.store, Pipe(GOOD.tar(first=good)))
    assert kit.assert_whole(canary.store) == 1


def test_pax_and_gnu_tricks_of_real_tools(canary: Canary) -> None:
    """Headers that change what another header says, as Python's tarfile writes them."""
    for form, pax in (
        (tarfile.PAX_FORMAT, {"path": "../x"}),
        (tarfile.PAX_FORMAT, {"size": "1"}),
        (tarfile.PAX_FORMAT, {"GNU.sparse.realsize": "1099511627776"}),
        (tarfile.PAX_FORMAT, {"linkpath": "/etc/passwd"}),
        (tarfile.PAX_FORMAT, {"mtime": "1.5"}),
        (tarfile.GNU_FORMAT, {}),
    ):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=form) as tar:
            name = f"blobs/sha256/{HEX}" if pax else "x" * 200
            info = tarfile.TarInfo(name)
            info.pax_headers = pax
            info.size = 3
            tar.addfile(info, io.BytesIO(b"abc"))
        canary.refuses(stream.getvalue(), "pax header|long name")


def test_a_sparse_terabyte(canary: Canary) -> None:
    """GNU's old sparse format: a header of 512 bytes for a file of 1 TB."""
    bad = member(f"blobs/sha256/{HEX}", b"", kind=b"S", size=TERABYTE)
    canary.refuses(bad + END, "sparse")


@pytest.mark.parametrize(
    "size",
    [
        1 << 30,
        8**11 - 1,
        TERABYTE,
        b"\x80" + b"\x7f" * 11,
    ],
)
def test_a_size_that_the_archive_does_not_have(canary: Canary, size: int | bytes) -> None:
    bad = member(f"blobs/sha256/{HEX}", b"x" * 2000, size=size)
    canary.refuses(bad, "ends within")
    index = member("index.json", b"{}", size=size)
    canary.refuses(index, "index.json has .* bytes|ends within")


@pytest.mark.parametrize(
    "size",
    [
        b"-0000000001\0",
        b"\xff" * 12,
        b"\xff" + b"\0" * 11,
        b"\x81" + b"\0" * 11,
        b"0x000000001\0",
        b"00000000009\0",
        b"000000 0001\0",
        b"1 2        \0",
        b"+0000000001\0",
        b"1_000000000\0",
        b"\xd9\xa1          ",
    ],
)
def test_a_size_that_is_none(canary: Canary, size: bytes) -> None:
    canary.refuses(GOOD.tar(first=[member("oci-layout", b"x", size=size)]), "number")


def test_a_size_smaller_or_larger_than_the_index_says(canary: Canary) -> None:
    name = f"blobs/sha256/{sha(b'so')}"
    rest = [member(n, d) for n, d in GOOD.parts().items() if n != name]
    canary.refuses(b"".join([*rest, member(name, b"so" * 9)]) + END, "18 bytes instead of 2")
    canary.refuses(b"".join([member(name, b"s"), *rest]) + END, "what its name says")
    canary.refuses(b"".join([*rest, member(name, b"os")]) + END, "what its name says")


def test_truncated_anywhere(canary: Canary) -> None:
    data = GOOD.tar()
    for length in [*range(0, len(data) - 1024, 97), len(data) - 1024, len(data) - 1, 512, 511]:
        canary.refuses(data[:length], "ends|empty|lacks|no ")


def test_bytes_after_the_end(canary: Canary) -> None:
    more = Forgery(spec={"schema": 1, "kind": "graph", "n": 1}).tar()
    canary.refuses(GOOD.tar() + more, "after its end")
    canary.refuses(GOOD.tar() + bytes(5000) + b"x", "after its end")
    canary.refuses(GOOD.tar() + bytes(1 << 20), "goes on after its end mark")
    import_tar(canary.store, Pipe(GOOD.tar() + bytes(9216)))


@pytest.mark.parametrize("format_", ["gzip", "zip", "zstd", "xz", "bzip2", "text", "zeros", "none"])
def test_other_formats_are_named(canary: Canary, format_: str) -> None:
    import bz2
    import lzma

    tar = GOOD.tar()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive_:
        archive_.writestr("oci-layout", b"{}")
    data, match = {
        "gzip": (gzip.compress(tar), "gzip-compressed"),
        "zip": (stream.getvalue(), "a zip"),
        "zstd": (b"\x28\xb5\x2f\xfd" + tar, "zstd-compressed"),
        "xz": (lzma.compress(tar), "xz-compressed"),
        "bzip2": (bz2.compress(tar), "bzip2-compressed"),
        "text": (b"hello, world\n" * 100, "not a tar"),
        "zeros": (bytes(4096), "no oci-layout"),
        "none": (b"", "is empty"),
    }[format_]
    canary.refuses(data, match)


def test_a_damaged_header(canary: Canary) -> None:
    data = bytearray(GOOD.tar())
    data[3] ^= 1
    canary.refuses(bytes(data), "checksum")
    odd = member("oci-layout", b"{}", magic=b"tarus\x0000")
    canary.refuses(odd + END, "unknown kind of tar")
    nul = member(b"oci-layout\0../x", b"{}")
    canary.refuses(nul + END, "zero byte")


# ---- members that the index does not explain


def test_a_blob_that_nothing_names(canary: Canary) -> None:
    stray = member(f"blobs/sha256/{sha(b'stray')}", b"stray")
    canary.refuses(GOOD.tar(stray), "belongs to no artifact")
    canary.refuses(GOOD.tar(first=[stray]), "belongs to no artifact")


def test_a_stray_blob_is_refused_by_its_header(canary: Canary) -> None:
    """When all is explained, a terabyte that nothing names is not even read."""
    stray = member(f"blobs/sha256/{HEX}", b"x", size=TERABYTE)
    canary.refuses(b"".join(GOOD.members()) + stray, "belongs to no artifact")


def test_more_members_than_anybody_needs(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MEMBER_LIMIT", 40)
    many = [member(f"blobs/sha256/{sha(b'%d' % n)}", b"%d" % n) for n in range(50)]
    canary.refuses(GOOD.tar(first=many), "over 40 files")


def test_what_is_missing_is_named(canary: Canary) -> None:
    parts = GOOD.parts()
    for name in parts:
        rest = [member(n, d) for n, d in parts.items() if n != name]
        canary.refuses(b"".join(rest) + END, "lacks blobs|no oci-layout|no index.json|belongs")


def test_a_blob_that_is_here_must_come_all_the_same(canary: Canary) -> None:
    """Whether an archive is whole does not depend on who reads it."""
    import_tar(canary.store, Pipe(GOOD.tar()))
    canary.before = canary.state()
    part = [member(n, d) for n, d in GOOD.parts().items() if not n.endswith(sha(b"so"))]
    canary.refuses(b"".join(part) + END, "lacks blobs")


# ---- documents


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


def test_split_gives_the_members(canary: Canary) -> None:
    assert b"".join(split(GOOD.tar())) + END == GOOD.tar()
