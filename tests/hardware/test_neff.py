"""NEFF headers: real files, files made here, and files that are not what they say."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.hardware.neff import Neff, is_neff, read_neff
from tests.conftest import ROOT
from tests.hardware.neffs import MEMBERS, bomb, neff_of, tar_of

SAMPLES = os.environ.get("NEURONCOMPILE_TEST_NEFFS")
"""A directory of NEFFs by neuronx-cc 2.23.6484 for trn2 at LNC 2, two of them of one program."""


def why(source: Path | bytes) -> str:
    with pytest.raises(CorruptArtifactError) as caught:
        read_neff(source)
    assert caught.value.hint == "build it again"
    text: str = caught.value.details["why"]
    return text


def test_a_file_says_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file.neff"
    path.write_bytes(neff_of())
    assert read_neff(path) == Neff(
        package_version=2,
        version=(2, 0),
        size=path.stat().st_size,
        lnc=2,
        feature_bits=0xC00,
        uuid="000102030405060708090a0b0c0d0e0f",
        name="file.neff",
        compiler="2.23.6484.0+3b612583",
        architecture="cayman",
        program=hashlib.sha256(tar_of()).hexdigest(),
    )
    assert read_neff(path).targets == ("trn2",)


@pytest.mark.parametrize(
    ("architecture", "targets"),
    [("sunda", ("trn1", "trn1n", "inf2")), ("mariana", ("trn3",)), ("*", ()), (None, ()), (7, ())],
)
def test_the_architecture_is_the_kelfs(architecture: object, targets: tuple[str, ...]) -> None:
    tar = tar_of({**MEMBERS, "kelf-0.json": {"target": architecture}})
    assert read_neff(neff_of(tar)).targets == targets


def test_a_plain_tar_and_an_older_container() -> None:
    plain = read_neff(neff_of(body=tar_of(), package=1))
    assert plain.package_version == 1
    assert plain.program == hashlib.sha256(tar_of()).hexdigest() == read_neff(neff_of()).program
    assert plain.compiler == "2.23.6484.0+3b612583"


def test_the_header_names_the_compiler_where_no_member_does() -> None:
    tar = tar_of({"sg00/def.json": {}})
    assert read_neff(neff_of(tar, build=b"2.9.1.0+ab")).compiler == "2.9.1.0+ab"


def test_members_with_a_leading_dot_and_larger_ones_than_a_piece() -> None:
    big = random.Random(1).randbytes(3 << 20)
    tar = tar_of({"sg00/value.npy": big, "./info.json": {"tool_version": "2.24"}})
    found = read_neff(neff_of(tar))
    assert found.compiler == "2.24"
    assert found.program == hashlib.sha256(tar).hexdigest()


def test_two_compiles_of_one_program_differ_in_file_and_not_in_digest() -> None:
    one = neff_of(body=gzip.compress(tar_of(), mtime=1))
    two = neff_of(body=gzip.compress(tar_of(), mtime=2))
    assert one != two
    assert read_neff(one).program == read_neff(two).program


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 1500])
def test_cut_short(length: int, tmp_path: Path) -> None:
    path = tmp_path / "file.neff"
    path.write_bytes(neff_of()[:length])
    expected = "bytes are missing" if length >= 1024 else f"it has {length} bytes"
    assert expected in why(path)


def test_padded_behind_its_end(tmp_path: Path) -> None:
    path = tmp_path / "file.neff"
    path.write_bytes(neff_of() + bytes(100))
    assert why(path) == "100 bytes follow its end"
    assert read_neff(path.read_bytes()).lnc == 2  # as bytes it may stand inside something else


def test_a_flipped_bit_of_the_data_never_gives_another_answer() -> None:
    whole = neff_of(body=gzip.compress(tar_of()))
    expected = read_neff(whole)
    flips = random.Random(0).sample(range(1024 * 8, len(whole) * 8), 400)
    noticed = 0
    for bit in flips:
        data = bytearray(whole)
        data[bit // 8] ^= 1 << bit % 8
        try:
            # gzip's time and system, or the copy of one zero for another
            assert read_neff(bytes(data)) == expected
        except CorruptArtifactError:
            noticed += 1
    assert noticed > 350


def test_flipped_bits_of_the_header() -> None:
    whole = neff_of()
    for byte in range(24):  # version of the container, size of the header, size of the data
        data = bytearray(whole)
        data[byte] ^= 0x40
        assert why(bytes(data))


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x1f\x8b" + bytes(2000), "it does not begin as a NEFF does"),
        (neff_of(package=3), "it does not begin as a NEFF does"),
        (neff_of(size=2**64 - 1), "bytes are missing"),
        (neff_of(size=0), "its data is neither gzip nor tar"),
        (neff_of(body=bytes(4096)), "its data is neither gzip nor tar"),
        (neff_of(body=gzip.compress(tar_of())[:-9]), "its data ends too early"),
        (neff_of(body=gzip.compress(tar_of()) + b"more"), "something follows its data"),
        (neff_of(body=gzip.compress(b"")), "the header of member 1"),
        (neff_of(body=gzip.compress(bytes(10240))), "it holds nothing"),
        (neff_of(body=gzip.compress(b"no tar" * 200)), "the header of member 1"),
        (neff_of(tar_of()[:700]), "the last is cut short"),
        (neff_of(tar_of({"info.json": b"{"})), "its info.json is not JSON"),
        (neff_of(tar_of({"info.json": b"[" * 100_000})), "its info.json is not JSON"),
        (neff_of(tar_of({"info.json": b"\xff\xfe"})), "its info.json is not JSON"),
        (neff_of(tar_of({"info.json": b" " * (2 << 20)})), "too many"),
    ],
)
def test_each_has_its_own_message(data: bytes, expected: str) -> None:
    assert expected in why(data)


def test_text_is_made_printable() -> None:
    tar = tar_of({"info.json": {"tool_version": "2.23\x1b]0;owned\x07"}, "kelf-0.json": ["x"]})
    found = read_neff(neff_of(tar, name=b"a\x1b[2Jb\xff.neff"))
    assert found.compiler == "2.23�]0;owned�"
    assert found.name == "a�[2Jb�.neff"
    assert found.architecture == ""


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert why(tmp_path / "pipe") == "it is not a file"
    assert why(tmp_path) == "it is not a file"
    assert why(tmp_path / "none") == "it cannot be read: No such file or directory"


def test_memory_does_not_follow_what_a_file_unpacks_to(tmp_path: Path) -> None:
    """256 MiB unpacked within 160 MiB of address space above what the interpreter takes."""
    path = tmp_path / "bomb.neff"
    path.write_bytes(neff_of(body=bomb(256 << 20)))
    assert path.stat().st_size < 4 << 20
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from neuroncompile.hardware.neff import read_neff\n"
        "pages = int(open('/proc/self/statm').read().split()[0])\n"
        "limit = pages * resource.getpagesize() + (160 << 20)\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "print(read_neff(Path(sys.argv[1])).program)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    expected = hashlib.sha256(gzip.decompress(bomb(256 << 20))).hexdigest()
    assert done.stdout.strip() == expected


def test_damage_anywhere_is_told_or_harmless() -> None:
    """Cut, flipped, repeated and overwritten at random: an error of ours or an answer."""
    chance = random.Random(7)
    for start in (neff_of(), neff_of(body=tar_of())):
        for _ in range(300):
            data = bytearray(start)
            for _ in range(chance.randint(1, 4)):
                at, width = chance.randrange(len(data)), chance.randint(1, 64)
                match chance.randrange(4):
                    case 0:
                        data[at : at + width] = chance.randbytes(width)
                    case 1:
                        del data[at : at + width]
                    case 2:
                        data[at:at] = data[at : at + width]
                    case _:
                        data[at] ^= 1 << chance.randrange(8)
            with contextlib.suppress(CorruptArtifactError):
                assert len(read_neff(bytes(data)).program) == 64


def test_is_neff_looks_at_the_header_and_what_is_packed() -> None:
    assert is_neff(neff_of())
    assert is_neff(neff_of(body=tar_of()))
    assert is_neff(neff_of()[: 1024 + 512])
    assert not is_neff(neff_of()[:1024])
    assert not is_neff(neff_of(body=bytes(600)))
    assert not is_neff(neff_of(package=0))
    assert not is_neff(b"")


@pytest.mark.skipif(not SAMPLES, reason="NEURONCOMPILE_TEST_NEFFS names no directory of NEFFs")
def test_real_files() -> None:
    found = {path: read_neff(path) for path in sorted(Path(str(SAMPLES)).glob("*.neff"))}
    assert found
    for path, neff in found.items():
        assert neff.size == path.stat().st_size
        assert neff.compiler.startswith("2.23.6484.")
        assert neff.targets == ("trn2",)
        assert neff.lnc == 2
    baselines = [neff for path, neff in found.items() if path.name.endswith("baseline.neff")]
    assert len({neff.program for neff in baselines}) == 1 < len({neff.uuid for neff in baselines})


@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=4096))
def test_any_bytes_behind_a_header(data: bytes) -> None:
    with contextlib.suppress(CorruptArtifactError):
        read_neff(neff_of(body=data))
    with contextlib.suppress(CorruptArtifactError):
        read_neff(neff_of(body=gzip.compress(data, 1)))
    with contextlib.suppress(CorruptArtifactError):
        read_neff(neff_of(body=tar_of()[: len(data)] + data))


@settings(max_examples=200, deadline=None)
@given(
    names=st.lists(st.sampled_from(["info.json", "kelf-0.json", "sg00/def.json", "./x"])),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["target", "a"]), inner),
    ),
    lnc=st.integers(0, 2**32 - 1),
    features=st.integers(0, 2**64 - 1),
)
def test_any_members_and_numbers(names: list[str], value: object, lnc: int, features: int) -> None:
    tar = tar_of({**dict.fromkeys(names, value), "neff.json": {}})
    found = read_neff(neff_of(tar, lnc=lnc, features=features))
    assert (found.lnc, found.feature_bits) == (lnc, features)
    assert found.program == hashlib.sha256(tar).hexdigest()
    assert found.architecture.isprintable()


def member(name: str, size: bytes, kind: bytes = b"0", *, right: bool = True) -> bytes:
    head = bytearray(tarfile.TarInfo(name).tobuf(tarfile.USTAR_FORMAT))
    head[124:136], head[156:157] = size.ljust(12, b"\0"), kind
    head[148:156] = b" " * 8
    total = sum(head) + (0 if right else 1)
    head[148:156] = b"%06o\0 " % total
    return bytes(head)


@pytest.mark.parametrize(
    ("tar", "expected"),
    [
        (member("info.json", b"77777777777"), "the last is cut short"),
        (member("info.json", b"\x80" + b"\xff" * 11), "the header of member 1"),
        (member("info.json", b"-1"), "the header of member 1"),
        (member("info.json", b"1_0"), "the header of member 1"),
        (member("info.json", b"2", right=False) + b"{}".ljust(512), "the header of member 1"),
        (tar_of()[:2048] + member("x", b"9" * 11) + bytes(1024), "the header of member 3"),
        (member("info.json", b"100", b"2") + bytes(64), "the last is cut short"),
    ],
)
def test_tars_that_lie(tar: bytes, expected: str) -> None:
    assert expected in why(neff_of(tar))
    assert expected in why(neff_of(body=tar))


@pytest.mark.parametrize("kind", [b"1", b"2", b"5", b"x", b"g", b"L", b"S"])
def test_links_and_extensions_are_no_members(kind: bytes) -> None:
    """A long name or a link called info.json is not read as one."""
    content = b'{"tool_version": "9"}'
    tar = member("info.json", b"%o" % len(content), kind) + content.ljust(512, b"\0") + tar_of()
    assert read_neff(neff_of(tar)).compiler == "2.23.6484.0+3b612583"
