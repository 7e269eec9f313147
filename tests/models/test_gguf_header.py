"""GGUF headers: what they say, and every way a file can lie about its lengths."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import QUANTS, read_gguf
from tests.models.ggufs import write_gguf


def test_agrees_with_the_gguf_library(tmp_path: Path) -> None:
    from gguf import GGUFReader

    path = write_gguf(tmp_path / "x.gguf", quant="Q4_1", odd__flag=True, odd__number=7)
    ours, theirs = read_gguf(path), GGUFReader(path)
    for name, field in theirs.fields.items():
        if not name.startswith("GGUF."):
            assert ours.fields[name] == field.contents(), name
    assert list(ours.tensors) == [t.name for t in theirs.tensors]
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert mine.shape == tuple(tensor.shape.tolist()[::-1])
        assert (mine.offset, mine.size) == (tensor.data_offset, tensor.n_bytes)
        assert mine.quant == tensor.tensor_type


def test_sizes_are_ggmls() -> None:
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    for quant, (name, block, size) in QUANTS.items():
        assert GGMLQuantizationType(quant).name == name
        assert GGML_QUANT_SIZES[GGMLQuantizationType(quant)] == (block, size)


def test_every_truncation_is_found(tmp_path: Path) -> None:
    data = write_gguf(tmp_path / "x.gguf").read_bytes()
    cut = tmp_path / "cut.gguf"
    for size in [0, 1, 4, 8, 23, 24, 30, *range(100, len(data), 997), len(data) - 1]:
        cut.write_bytes(data[:size])
        with pytest.raises(ModelError):
            read_gguf(cut)


def test_a_damaged_header_is_read_or_refused_but_never_worse(tmp_path: Path) -> None:
    data = bytearray(write_gguf(tmp_path / "x.gguf").read_bytes())
    rng = random.Random(0)
    spoilt = tmp_path / "spoilt.gguf"
    for _ in range(300):
        copy = bytearray(data)
        for _ in range(3):
            copy[rng.randrange(4, 3000)] = rng.randrange(256)
        spoilt.write_bytes(copy)
        try:
            read_gguf(spoilt)
        except ModelError:
            continue


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"GGML" + bytes(60), "not a GGUF"),
        (b"version https://git-lfs", "LFS"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "cut off"),
        (b"GGUF" + struct.pack("<IQQQ", 3, 0, 1, 2**63), "cut off"),
        (b"GGUF" + struct.pack("<IQQQ1sIIQ", 3, 0, 1, 1, b"a", 9, 10, 2**61), "cut off"),
        (b"GGUF" + struct.pack("<IQQQ1sI", 3, 0, 1, 1, b"a", 99), "type 99"),
        (b"", "empty"),
    ],
)
def test_refused(data: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(data)
    with pytest.raises(ModelError, match=words):
        read_gguf(tmp_path / "x.gguf")
