"""Pickles and TorchScript: known by name, by media type and by their bytes."""

from __future__ import annotations

import io
import json
import pickle
import struct
import zipfile
from typing import Any

import pytest

from neuroncompile.errors import TrustError
from neuroncompile.store import oci
from neuroncompile.store.archive_read import import_directory, import_tar
from neuroncompile.store.pickled import pickled_by_content, pickled_by_name
from tests.store.archives import END, Forgery, Pipe, member


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("unpickled",))


def zipped(*names: str, comment: bytes = b"", prefix: bytes = b"") -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.comment = comment
        for name in names:
            archive.writestr(name, b"x")
    return prefix + stream.getvalue()


def torch_saved(script: bool) -> bytes:
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    if script:
        torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), stream)
    else:
        torch.save({"a": torch.ones(2)}, stream)
    return stream.getvalue()


def legacy_torch_saved() -> bytes:
    torch = pytest.importorskip("torch")
    stream = io.BytesIO()
    torch.save({"a": torch.ones(2)}, stream, _use_new_zipfile_serialization=False)
    return stream.getvalue()


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_of_pickle(protocol: int) -> None:
    assert pickled_by_content(io.BytesIO(pickle.dumps(Evil(), protocol))) == "a pickle"


@pytest.mark.parametrize(
    "data",
    [
        zipped("archive/data.pkl"),
        zipped("a", "b/constants.pkl"),
        zipped("DATA.PKL"),
        zipped("sample_inputs/model.pt"),
        zipped("x.pkl", comment=b"c" * 60000),
        zipped("x.pkl", prefix=b"\x7fELF" * 1000),
        zipped("x.pkl") + b"after",
        zipped("x.pkl")[:-30],
        zipped("x")[:40],
        b"PK\x03\x04" + bytes(100),
        pickle.dumps(Evil()) + b"after",
        b"cos\nsystem\n(S'id'\ntR.",
    ],
    ids=range(12),
)
def test_bytes_that_are_or_may_be_unpickled(data: bytes) -> None:
    assert pickled_by_content(io.BytesIO(data))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_what_torch_saves() -> None:
    assert "data.pkl" in str(pickled_by_content(io.BytesIO(torch_saved(script=True))))
    assert "data.pkl" in str(pickled_by_content(io.BytesIO(torch_saved(script=False))))
    assert pickled_by_content(io.BytesIO(legacy_torch_saved())) == "a pickle"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"\x80",
        b"\x80\x00",
        json.dumps({"graphs": [1, 2]}).encode(),
        b"\x7fELF\x02\x01\x01" + bytes(4096),
        b"N.",
        b"copyright notice\nof a file\nin words.",
        bytes(1 << 17),
        bytes(range(256)) * 300,
        zipped("data.json", "weights.npy"),
        struct.pack("<Q", 100) + b'{"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}',
    ],
    ids=range(12),
)
def test_bytes_that_are_not(data: bytes) -> None:
    assert pickled_by_content(io.BytesIO(data)) is None


def test_what_the_cpu_target_writes_is_none(kit: Any) -> None:
    for layer in kit.publish().layers:
        assert pickled_by_name(layer.title, layer.media_type) is None


@pytest.mark.parametrize("zip64", [False, True])
def test_a_zip_with_an_endless_table_of_contents(zip64: bool) -> None:
    """It is refused without being read: reading it would take its size in memory."""
    data = bytearray(zipped("x"))
    at = data.rindex(b"PK\x05\x06")
    struct.pack_into("<L", data, at + 12, 1 << 30)
    if zip64:
        struct.pack_into("<L", data, at + 12, 16)
        record = b"PK\x06\x06" + struct.pack("<QHHLLQQQQ", 44, 45, 45, 0, 0, 1, 1, 1 << 30, 0)
        locator = b"PK\x06\x07" + struct.pack("<LQL", 0, at, 1)
        data[at:at] = record + locator
    assert "too many files" in str(pickled_by_content(io.BytesIO(bytes(data))))


@pytest.mark.parametrize(
    ("title", "media_type"),
    [
        ("model.pt", "application/octet-stream"),
        ("weights/MODEL.PT", "application/octet-stream"),
        ("a.pth", "x/y"),
        ("pytorch_model.bin", "x/y"),
        ("a.pkl", "x/y"),
        ("a.pickle", "x/y"),
        ("last.ckpt", "x/y"),
        ("model", oci.TORCHSCRIPT),
        ("model", "application/x-TorchScript"),
        ("model", "application/python-pickle"),
    ],
)
def test_by_name_or_media_type(title: str, media_type: str) -> None:
    assert pickled_by_name(title, media_type)


@pytest.mark.parametrize(
    "title", ["model.so", "program.json", "a.pt2.json", "pt", "file.neff", "a.pt/b"]
)
def test_other_names(title: str) -> None:
    assert pickled_by_name(title, oci.AOTI) is None


# ---- and what an import does with them

FORGERIES = {
    "title": Forgery(files={"model.pt": b"x"}),
    "media type": Forgery(files={"model": b"x"}, media_types={"model": oci.TORCHSCRIPT}),
    "content": Forgery(files={"graphs/a/model.so": zipped("archive/data.pkl")}),
    "pickle": Forgery(files={"program.json": pickle.dumps(Evil())}),
}


@pytest.mark.parametrize("which", FORGERIES)
def test_import_refuses_unless_trusted(kit: Any, tmp_path: Any, which: str) -> None:
    forged = FORGERIES[which]
    title = next(iter(forged.files))
    store = kit.store
    for take in (
        lambda **k: import_tar(store, Pipe(forged.tar()), **k),
        lambda **k: import_tar(store, Pipe(b"".join(forged.members()[::-1]) + END), **k),
        lambda **k: import_directory(store, tmp_path / "dir", **k),
    ):
        if not (tmp_path / "dir").exists():
            forged.directory(tmp_path / "dir")
        with pytest.raises(TrustError) as caught:
            take()
        assert caught.value.exit_code == 9
        assert repr(title) in str(caught.value)
        assert forged.key[:12] in str(caught.value)
        assert "--trust" in str(caught.value.hint)
        assert caught.value.details["key"] == forged.key
        assert list(store.artifacts()) == []
        assert list((kit.v1 / "blobs" / "sha256").iterdir()) == []
        assert list((kit.v1 / "tmp").iterdir()) == []
    [imported] = take(trust=True).artifacts
    assert imported.new
    assert kit.assert_whole(store) == 1


def test_a_name_is_refused_before_its_bytes_come(kit: Any) -> None:
    """A pipe of ours brings manifests first, so gigabytes are not fetched for nothing."""
    forged = FORGERIES["title"]
    parts = forged.members()
    blob = member(f"blobs/sha256/{'a' * 64}", b"", size=b"\x80" + (1 << 40).to_bytes(11, "big"))
    with pytest.raises(TrustError):
        import_tar(kit.store, Pipe(b"".join(parts[:3]) + blob))


def test_bytes_that_are_here_already_are_looked_into_too(kit: Any) -> None:
    """A local file must not become another artifact's program unseen."""
    from neuroncompile.store import Layer

    data = zipped("archive/data.pkl")
    kit.store.publish("graph", kit.spec(5), [Layer("mine", data=data)])
    with pytest.raises(TrustError):
        import_tar(kit.store, Pipe(FORGERIES["content"].tar()))


def test_one_bad_artifact_refuses_the_archive(kit: Any) -> None:
    good, bad = Forgery(), FORGERIES["pickle"]
    index = json.loads(good.index)
    index["manifests"] += json.loads(bad.index)["manifests"]
    parts = {**good.parts(), **bad.parts(), "index.json": json.dumps(index).encode()}
    bad.spec["n"] = 1
    with pytest.raises(TrustError):
        import_tar(kit.store, Pipe(b"".join(member(n, d) for n, d in parts.items()) + END))
    assert list(kit.store.artifacts()) == []


def test_nothing_is_unpickled(kit: Any, capsys: pytest.CaptureFixture[str]) -> None:
    import_tar(kit.store, Pipe(FORGERIES["pickle"].tar()), trust=True)
    kit.store.view(next(kit.store.artifacts()))
    assert "unpickled" not in capsys.readouterr().out
