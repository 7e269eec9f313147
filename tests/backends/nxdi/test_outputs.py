"""Outputs of a compile are looked at, whatever its exit status was."""

from __future__ import annotations

import hashlib
import pickle
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.backends.nxdi.outputs import check_outputs, check_shards, shard_titles
from neuroncompile.errors import CompileError
from tests.hardware.neffs import MEMBERS, neff_of, tar_of

TARGET = {"platform": "trn2", "lnc": 2}
GRAPHS: list[dict[str, Any]] = [
    {"submodel": "context_encoding_model", "index": 0, "batch": 1, "bucket": 128},
    {"submodel": "token_generation_model", "index": 0, "batch": 4, "bucket": 256},
]


def graph_neff(number: int, **header: Any) -> bytes:
    return neff_of(tar_of({**MEMBERS, "sg00/def.json": {"graph": number}}), **header)


class Tree:
    """What a compile has left: `out` and `work`."""

    def __init__(self, root: Path) -> None:
        self.out, self.work = root / "out", root / "work"
        self.out.mkdir()
        self.neffs = [graph_neff(number) for number in range(len(GRAPHS))]
        for graph, data in zip(GRAPHS, self.neffs, strict=True):
            self.path(graph).parent.mkdir(parents=True)
            self.path(graph).write_bytes(data)
        self.save(self.neffs)

    def path(self, graph: dict[str, Any]) -> Path:
        return self.work / graph["submodel"] / f"_tp0_bk{graph['index']}" / "graph.neff"

    def save(self, neffs: Sequence[bytes]) -> Path:
        path = self.out / "model.pt"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("model/data.pkl", pickle.dumps(list(neffs), protocol=4))
        return path

    def wrong(self) -> list[str]:
        with pytest.raises(CompileError) as caught:
            check_outputs(self.out, self.work, GRAPHS, TARGET)
        assert caught.value.details["deterministic"] is False
        wrong: list[str] = caught.value.details["wrong"]
        return wrong


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path)


def test_a_whole_program(tree: Tree) -> None:
    checked = check_outputs(tree.out, tree.work, GRAPHS, TARGET)
    assert checked.models == ("model.pt",)
    assert [graph["bucket"] for graph in checked.graphs] == [128, 256]
    first = checked.graphs[0]["neff"]
    assert first["sha256"] == hashlib.sha256(tree.neffs[0]).hexdigest()
    assert (first["size"], first["lnc"], first["targets"]) == (len(tree.neffs[0]), 2, ["trn2"])


def test_the_transformer_of_layouts_belongs_to_the_program(tree: Tree) -> None:
    other = graph_neff(7)
    (tree.work / "layout_opt").mkdir()
    (tree.work / "layout_opt" / "graph.neff").write_bytes(other)
    tree.save([*tree.neffs, other])
    assert len(check_outputs(tree.out, tree.work, GRAPHS, TARGET).graphs) == 2


def test_a_program_that_shows_no_neff_is_none_the_worse(tree: Tree) -> None:
    tree.save([])
    assert len(check_outputs(tree.out, tree.work, GRAPHS, TARGET).graphs) == 2


def test_a_neff_of_another_compile(tree: Tree) -> None:
    tree.save([tree.neffs[0], graph_neff(9)])
    (reason,) = tree.wrong()
    assert reason.startswith("model.pt holds a NEFF that was not made by this compile (model/data")


def test_a_damaged_neff_in_the_program(tree: Tree) -> None:
    damaged = bytearray(tree.neffs[0])
    damaged[1100] ^= 1
    tree.save([bytes(damaged)])
    assert "does not unpack" in tree.wrong()[0]


@pytest.mark.parametrize("length", [0, 10, 3000])
def test_a_program_that_is_cut_short(tree: Tree, length: int) -> None:
    path = tree.out / "model.pt"
    path.write_bytes(path.read_bytes()[:length])
    (reason,) = tree.wrong()
    assert reason.startswith("model.pt is empty" if not length else "model.pt is not a whole")


def test_a_program_whose_checksum_is_wrong(tree: Tree) -> None:
    path = tree.save([])
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    assert "CRC" in tree.wrong()[0]


def test_missing_program_and_graph_are_both_told(tree: Tree) -> None:
    (tree.out / "model.pt").unlink()
    tree.path(GRAPHS[1]).unlink()
    first, second = tree.wrong()
    assert first == "model.pt is missing"
    assert second.startswith("token_generation_model at bucket 256: it cannot be read")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (graph_neff(1)[:-1], "it is cut short: 1 of"),
        (graph_neff(1) + b"\0", "1 bytes follow its end"),
        (graph_neff(1, lnc=1), "has LNC 1, not 2"),
        (neff_of(tar_of({"kelf-0.json": {"target": "sunda"}})), "is for trn1 or trn1n or inf2"),
    ],
)
def test_a_graph_that_does_not_fit(tree: Tree, data: bytes, reason: str) -> None:
    tree.path(GRAPHS[1]).write_bytes(data)
    tree.save([])
    (told,) = tree.wrong()
    assert reason in told
    with pytest.raises(CompileError) as caught:
        check_outputs(tree.out, tree.work, GRAPHS, TARGET)
    assert caught.value.details["suspects"] == [["", "token_generation_model", 0]]


def test_no_graph_at_all(tree: Tree) -> None:
    with pytest.raises(CompileError, match="no graph at all"):
        check_outputs(tree.out, tree.work, [], TARGET)


def test_shards_of_every_rank(tmp_path: Path) -> None:
    titles = shard_titles({"start_rank_id": 2, "local_ranks_size": 2}, ("", "text_model"))
    assert titles == [
        "weights/tp2_sharded_checkpoint.safetensors",
        "weights/tp3_sharded_checkpoint.safetensors",
        "text_model/weights/tp2_sharded_checkpoint.safetensors",
        "text_model/weights/tp3_sharded_checkpoint.safetensors",
    ]
    (tmp_path / "weights").mkdir()
    empty = b"\x02\0\0\0\0\0\0\0{}"
    (tmp_path / titles[0]).write_bytes(empty)
    check_shards(tmp_path, titles[:1])
    (tmp_path / titles[1]).write_bytes(empty[:5])
    with pytest.raises(CompileError) as caught:
        check_shards(tmp_path, titles[:3])
    assert [text.split(" ")[0].split(":")[0] for text in caught.value.details["wrong"]] == titles[
        1:3
    ]
