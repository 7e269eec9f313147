"""Archives that somebody made to do harm, or that came damaged: refused, and nothing is left.

A canary directory around the store shows what was written where.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from typing import Any

import pytest

from neuroncompile.store import archive
from neuroncompile.store.archive_read import import_tar
from tests.store.archives import END, TERABYTE, Canary, Forgery, Pipe, member, sha, split

HEX = "a" * 64
GOOD = Forgery()


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


def test_split_gives_the_members(canary: Canary) -> None:
    assert b"".join(split(GOOD.tar())) + END == GOOD.tar()
