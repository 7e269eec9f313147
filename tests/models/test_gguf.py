"""A GGUF file pinned: derived once, then read."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from neuroncompile import models
from neuroncompile.errors import ModelError, StoreError
from neuroncompile.settings import Settings
from tests.models.ggufs import write_gguf


def test_pinned(tmp_path: Path, settings: Settings) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tied=True)
    digest = sha256(path.read_bytes()).hexdigest()
    model = models.resolve(str(path), settings)
    assert (model.source, model.weights_format, model.dtype) == ("gguf", "gguf", "bfloat16")
    assert model.name == "tiny.gguf"
    assert model.chat_template == "{{ messages[0].content }}"
    directory = settings.store / "models" / digest / "hf-1"
    assert model.tokenizer_dir == directory
    assert {p.name for p in directory.iterdir()} == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert list(directory.parent.iterdir()) == [directory], "nothing temporary is left"
    assert models.source_digests(model, settings) == {"tiny.gguf": digest}
    assert models.fetch_weights(model, settings) is model


def test_derived_once(tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    first = models.resolve(str(path), settings)
    monkeypatch.delattr("neuroncompile.models.gguf._derive")
    assert models.resolve(str(path), settings) == first
    assert models.cached(str(path), settings) == first


def test_another_digest_than_pinned(tmp_path: Path, settings: Settings) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    with pytest.raises(ModelError, match="as pinned"):
        models.resolve(str(path), settings, digests={"file": "sha256:" + "0" * 64})
    good = "sha256:" + sha256(path.read_bytes()).hexdigest()
    assert models.resolve(str(path), settings, digests={"file": good}).source == "gguf"


def test_a_broken_file_leaves_nothing(tmp_path: Path, settings: Settings) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", pre="unheard-of")
    with pytest.raises(ModelError, match="unheard-of"):
        models.resolve(str(path), settings)
    assert not (settings.store / "models").exists()


def test_a_store_that_cannot_be_written(tmp_path: Path, settings: Settings) -> None:
    path = write_gguf(tmp_path / "tiny.gguf")
    settings.store.write_text("a file where the store should be")
    with pytest.raises(StoreError, match="cannot write") as raised:
        models.resolve(str(path), settings)
    assert "--store" in (raised.value.hint or "")
