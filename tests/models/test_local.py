"""Directories, good ones and every kind of broken one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from neuroncompile import models
from neuroncompile.errors import ModelError, ModelNotFoundError
from neuroncompile.settings import Settings

Write = Callable[..., Path]
ONE = {"model.safetensors": {"a": ((4, 4), "bfloat16"), "norm": ((4,), "float32")}}
TWO = {
    "model-00001-of-00002.safetensors": {"a": ((4, 4), "float32")},
    "model-00002-of-00002.safetensors": {"b": ((2, 4), "float32")},
}


def test_single_file(write_model: Write, settings: Settings) -> None:
    directory = write_model(ONE)
    (directory / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    (directory / "tokenizer.json").write_text("{}")
    (directory / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    model = models.resolve(str(directory), settings)
    assert (model.source, model.weights_format, model.revision) == ("local", "safetensors", None)
    assert model.dtype == "bfloat16", "the header wins over the config's float16"
    assert model.generation_config == {"eos_token_id": [2, 7]}
    assert model.tokenizer_dir == directory
    assert model.chat_template == "{{ messages }}"
    assert [(w.name, w.path) for w in model.weights] == [
        ("model.safetensors", directory / "model.safetensors")
    ]
    assert models.fetch_weights(model, settings) is model
    assert models.cached(str(directory), settings) == model
    assert models.resolve(str(directory), settings) == model


def test_shards(write_model: Write, settings: Settings) -> None:
    directory = write_model(TWO, index=True)
    model = models.resolve(str(directory), settings)
    assert [w.name for w in model.weights] == list(TWO)
    digests = models.source_digests(model, settings)
    assert digests == {n: sha256((directory / n).read_bytes()).hexdigest() for n in TWO}


def test_chat_template_file_wins_and_named_templates(
    write_model: Write, settings: Settings
) -> None:
    directory = write_model(ONE)
    named = [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]
    (directory / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert models.resolve(str(directory), settings).chat_template == "D"
    (directory / "chat_template.jinja").write_text("J")
    assert models.resolve(str(directory), settings).chat_template == "J"


def no_config(d: Path) -> None:
    (d / "config.json").unlink()


def only_gguf(d: Path) -> None:
    no_config(d)
    (d / "x.gguf").touch()


def adapter(d: Path) -> None:
    no_config(d)
    (d / "adapter_config.json").touch()


def bad_json(d: Path) -> None:
    (d / "config.json").write_text('{"a": ')


def list_json(d: Path) -> None:
    (d / "config.json").write_text("[]")


def lfs_config(d: Path) -> None:
    (d / "config.json").write_text("version https://git-lfs.github.com/spec/v1\n")


def shard_missing(d: Path) -> None:
    (d / "model-00002-of-00002.safetensors").unlink()


def no_index(d: Path) -> None:
    (d / "model.safetensors.index.json").unlink()


def foreign_index(d: Path) -> None:
    path = d / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    index["weight_map"]["c"] = "model-00001-of-00002.safetensors"
    path.write_text(json.dumps(index))


def escaping_index(d: Path) -> None:
    table = {"a": "../other/model.safetensors"}
    (d / "model.safetensors.index.json").write_text(json.dumps({"weight_map": table}))


def no_weight_map(d: Path) -> None:
    (d / "model.safetensors.index.json").write_text("{}")


def truncated(d: Path) -> None:
    path = d / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def truncated_header(d: Path) -> None:
    path = d / "model-00002-of-00002.safetensors"
    path.write_bytes(path.read_bytes()[:20])


def empty_shard(d: Path) -> None:
    (d / "model-00002-of-00002.safetensors").write_bytes(b"")


def lfs_shard(d: Path) -> None:
    (d / "model-00002-of-00002.safetensors").write_text("version https://git-lfs.github.com/")


def garbage_shard(d: Path) -> None:
    (d / "model-00002-of-00002.safetensors").write_bytes((10).to_bytes(8, "little") + b"x" * 64)


def no_weights(d: Path) -> None:
    for path in d.glob("model*"):
        path.unlink()


def only_bin(d: Path) -> None:
    no_weights(d)
    (d / "pytorch_model.bin").touch()


def odd_name(d: Path) -> None:
    no_weights(d)
    (d / "consolidated.safetensors").touch()


@pytest.mark.parametrize(
    ("spoil", "message", "hint"),
    [
        (no_config, "no config.json", "config.json"),
        (only_gguf, "no config.json", "x.gguf"),
        (adapter, "no config.json", "base model"),
        (bad_json, "not JSON", "repository"),
        (list_json, "not an object", "repository"),
        (lfs_config, "LFS", "git lfs pull"),
        (shard_missing, "incomplete", "shards"),
        (no_index, "no model.safetensors.index.json", "copy"),
        (foreign_index, "no tensor c", "different"),
        (escaping_index, "weight_map", "index"),
        (no_weight_map, "weight_map", "index"),
        (truncated, "cut off: 1 of 32 bytes", "again"),
        (truncated_header, "cut off", "again"),
        (empty_shard, "not a safetensors", "again"),
        (lfs_shard, "LFS", "git lfs pull"),
        (garbage_shard, "malformed", "again"),
        (no_weights, "no weights", "copy"),
        (only_bin, "pickle", "save_pretrained"),
        (odd_name, "consolidated", "rename"),
    ],
)
def test_each_defect_has_its_message_and_fix(
    spoil: Callable[[Path], None], message: str, hint: str, write_model: Write, settings: Settings
) -> None:
    directory = write_model(TWO, index=True)
    spoil(directory)
    with pytest.raises(ModelError, match=message) as raised:
        models.resolve(str(directory), settings)
    assert hint in (raised.value.hint or "")
    assert "\n" not in str(raised.value)


def test_a_directory_that_goes_away(write_model: Write, settings: Settings) -> None:
    directory = write_model(ONE)
    shutil.rmtree(directory)
    with pytest.raises(ModelNotFoundError):
        models.resolve(str(directory), settings)
    assert models.cached(str(directory), settings) is None


def test_facts_have_no_weights(settings: Settings) -> None:
    facts = {"architectures": ["LlamaForCausalLM"], "torch_dtype": "bfloat16"}
    model = models.from_facts(facts, "my-recipe")
    assert (model.source, model.dtype, model.weights) == ("facts", "bfloat16", ())
    with pytest.raises(ModelError, match="my-recipe"):
        models.fetch_weights(model, settings)
