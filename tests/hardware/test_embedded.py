"""NEFFs inside TorchScript files, found without unpickling."""

from __future__ import annotations

import io
import random
import struct
import zipfile
from pathlib import Path

import pytest

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.hardware.embedded import neffs_in
from neuroncompile.hardware.neff import read_neff
from tests.hardware.neffs import neff_of


def torchscript(path: Path, members: dict[str, bytes], *, packed: bool = False) -> Path:
    how = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, data in members.items():
            archive.writestr(f"model/{name}", data)
    return path


def pickled(*texts: bytes) -> bytes:
    """Strings as TorchScript's pickler lays them: their bytes as they are behind a length."""
    inside = b"".join(b"X" + struct.pack("<I", len(text)) + text for text in texts)
    return b"\x80\x02(" + inside + b"t."


def named(lnc: int) -> bytes:
    return neff_of(lnc=lnc, name=b"graph%d.neff" % lnc)


def why(path: Path) -> str:
    with pytest.raises(CorruptArtifactError) as caught:
        list(neffs_in(path))
    text: str = caught.value.details["why"]
    return text


@pytest.mark.parametrize("packed", [False, True])
def test_every_neff_with_its_place(packed: bool, tmp_path: Path) -> None:
    data = pickled(b"meta", named(1), b"between", named(2))
    path = torchscript(
        tmp_path / "model.pt",
        {"version": b"3\n", "data.pkl": data, "data/0": named(4), "code/x.py": b"pass\n"},
        packed=packed,
    )
    found = list(neffs_in(path))
    assert [(f.member, f.neff.name) for f in found] == [
        ("model/data.pkl", "graph1.neff"),
        ("model/data.pkl", "graph2.neff"),
        ("model/data/0", "graph4.neff"),
    ]
    for part in found[:2]:
        assert read_neff(data[part.offset : part.offset + part.neff.size]) == part.neff


@pytest.mark.parametrize(
    "before", [(1 << 20) - 8, (1 << 20) - 1024, (1 << 20) - 1, (2 << 20) - 600]
)
def test_one_that_lies_across_two_pieces(before: int, tmp_path: Path) -> None:
    filler = random.Random(before).randbytes(before)
    path = torchscript(tmp_path / "model.pt", {"data.pkl": filler + named(2) + filler + named(1)})
    found = list(neffs_in(path))
    assert [f.neff.lnc for f in found] == [2, 1]
    assert found[0].offset == before


def test_what_only_begins_alike_is_passed_over(tmp_path: Path) -> None:
    start = named(2)[:16]
    data = start * 5000 + bytes(3000) + start + bytes(2000) + named(2) + start
    found = list(neffs_in(torchscript(tmp_path / "model.pt", {"data.pkl": data})))
    assert [f.offset for f in found] == [16 * 5000 + 3000 + 16 + 2000]


def test_none_in_a_program_without_any(tmp_path: Path) -> None:
    assert list(neffs_in(torchscript(tmp_path / "model.pt", {"data.pkl": b"\x80\x02}."}))) == []


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    import os
    import pickle

    class Bad:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "executed"),)

    data = pickle.dumps(Bad()) + pickled(named(1))
    found = list(neffs_in(torchscript(tmp_path / "model.pt", {"data.pkl": data})))
    assert [f.neff.lnc for f in found] == [1]
    assert not (tmp_path / "executed").exists()


def test_a_damaged_neff_is_told_with_its_place(tmp_path: Path) -> None:
    data = bytearray(pickled(named(1)))
    data[1024 + 100] ^= 1
    path = torchscript(tmp_path / "model.pt", {"data.pkl": bytes(data)})
    with pytest.raises(
        CorruptArtifactError, match=r"model\.pt: model/data\.pkl at 8 is not a whole"
    ):
        list(neffs_in(path))


def test_one_that_is_cut_by_the_end_of_its_member(tmp_path: Path) -> None:
    path = torchscript(tmp_path / "model.pt", {"data.pkl": named(1)[:-10]})
    assert "10 of" in why(path)


def test_damaged_and_hostile_zips(tmp_path: Path) -> None:
    good = torchscript(tmp_path / "model.pt", {"data.pkl": pickled(named(1))}).read_bytes()
    path = tmp_path / "bad.pt"
    for data in (b"", b"PK", good[:-30], good[: len(good) // 2], b"\x80\x02."):
        path.write_bytes(data)
        assert why(path)
    flipped = bytearray(good)
    flipped[60] ^= 1  # in the data: the zip's own checksum tells
    path.write_bytes(flipped)
    assert why(path)
    assert "No such file" in why(tmp_path / "none.pt")


def test_members_that_share_their_bytes(tmp_path: Path) -> None:
    """A thousand entries for one piece of data would be read a thousand times."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("data.pkl", bytes(4096))
        for number in range(1000):
            entry = zipfile.ZipInfo(f"data/{number}")
            first = archive.filelist[0]
            for field in ("CRC", "compress_size", "file_size", "header_offset", "compress_type"):
                setattr(entry, field, getattr(first, field))
            archive.filelist.append(entry)
    path = tmp_path / "model.pt"
    path.write_bytes(out.getvalue())
    assert why(path) == "its members lie over each other"


def test_a_zip_that_unpacks_to_too_much(tmp_path: Path) -> None:
    path = torchscript(tmp_path / "model.pt", {"a": b"x" * 100, "b": b"y" * 100}, packed=True)
    data = bytearray(path.read_bytes())
    for name in (b"model/a", b"model/b"):
        at = data.rindex(name) - 46 + 24
        data[at : at + 4] = struct.pack("<I", 2**32 - 2)
    path.write_bytes(data)
    assert why(path) == "it unpacks to more than 4 GiB"


def test_a_file_that_torch_has_saved(tmp_path: Path) -> None:
    import torch

    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for lnc in (1, 2):
                data = torch.frombuffer(bytearray(named(lnc)), dtype=torch.uint8)
                self.register_buffer(f"graph{lnc}", data)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.graph1.sum()

    torch.jit.script(Program()).save(str(tmp_path / "model.pt"))
    found = list(neffs_in(tmp_path / "model.pt"))
    assert [f.neff.name for f in found] == ["graph1.neff", "graph2.neff"]
    assert {f.member.rpartition("/")[0] for f in found} == {"model/data"}
