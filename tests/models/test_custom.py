"""A class of the user's own: found and digested without running any of it."""

from __future__ import annotations

import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.errors import ConfigError
from neuroncompile.models.architecture import normalise
from neuroncompile.models.custom import common_names, custom_architecture, read_class

SOURCE = "raise SystemExit('run')\n\nclass Mine:\n    class Inner: pass\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE)
    return path


def test_a_files_digest_is_its_own(file: Path) -> None:
    found = read_class(f"{file}:Mine")
    assert found.digest == sha256(SOURCE.encode()).hexdigest()
    assert (found.name, found.source) == ("Mine", file)
    assert found.spec() == {"class": "Mine", "source": f"sha256:{found.digest}"}


def test_a_relative_path_starts_at_its_recipe(file: Path) -> None:
    assert read_class("mine.py:Mine", base=file.parent).source == file


def test_a_module_is_found_without_importing_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "outer_of_mine"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('run')\n")
    (package / "modeling.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = read_class("outer_of_mine.modeling:Mine")
    assert found.source == package / "modeling.py"
    assert "outer_of_mine" not in sys.modules
    assert found.digest == read_class(f"{package / 'modeling.py'}:Mine").digest


def test_a_package_is_digested_whole(tmp_path: Path) -> None:
    def digest(name: str, helper: str) -> str:
        package = tmp_path / name
        package.mkdir()
        (package / "__init__.py").write_text("from .inner import Mine\n")
        (package / "inner.py").write_text(SOURCE)
        (package / "more.py").write_text(helper)
        (package / "data.bin").write_bytes(name.encode())
        return read_class(f"{package}:Mine").digest

    assert digest("one", "a = 1\n") == digest("two", "a = 1\n") != digest("three", "a = 2\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Mine", "names no class"),
        (":Mine", "names no class"),
        ("{file}:", "names no class"),
        ("{file}:not a name", "names no class"),
        ("{file}:Inner", "defines no class Inner"),  # only what a module has
        ("{file}:Mien", "did you mean Mine"),
        ("{file}.py:Mine", "no such file"),
        ("json.no_such_part:Mine", "no module"),
    ],
)
def test_what_is_not_there_is_named(file: Path, text: str, words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read_class(text.format(file=file))
    error = raised.value
    assert error.field == "model.class"
    assert words in f"{error} {error.hint}"


def test_a_supported_family_keeps_its_defaults(file: Path) -> None:
    config = {"model_type": "mistral", "hidden_size": 64, "num_attention_heads": 4}
    architecture = custom_architecture(config, read_class(f"{file}:Mine"))
    assert (architecture.name, architecture.cpu) == ("MistralForCausalLM", False)
    assert architecture.nxdi == f"{file}:Mine"
    assert normalise(config, architecture) == normalise(config)


def test_another_family_keeps_its_name(file: Path) -> None:
    config = {"architectures": ["FalconForCausalLM"], "model_type": "falcon"}
    architecture = custom_architecture(config, read_class(f"{file}:Mine"))
    assert (architecture.name, architecture.family) == ("FalconForCausalLM", "falcon")
    assert custom_architecture({}, read_class(f"{file}:Mine")).name == "Mine"


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"n_embd": 8, "n_head": 2}, {"hidden_size": 8, "num_attention_heads": 2}),
        ({"hidden_size": 8, "n_embd": 8}, {"hidden_size": 8}),
        ({"hidden_size": 8, "d_model": 9}, {"hidden_size": 8, "d_model": 9}),
        ({"n_head_kv": 2}, {"num_key_value_heads": 2}),
        ({"num_kv_heads": 2}, {"num_key_value_heads": 2}),
        ({"multi_query": True}, {"num_key_value_heads": 1, "multi_query": True}),
        ({"multi_query": False}, {"multi_query": False}),
        (
            {"multi_query": True, "new_decoder_architecture": True, "num_kv_heads": 8},
            {"multi_query": True, "new_decoder_architecture": True, "num_key_value_heads": 8},
        ),
        (
            {"multi_query": True, "multi_query_group_num": 2},
            {"multi_query": True, "num_key_value_heads": 2},
        ),
        ({"n_positions": 1024}, {"max_position_embeddings": 1024}),
    ],
)
def test_other_families_names_become_the_usual_ones(
    config: dict[str, Any], wanted: dict[str, Any]
) -> None:
    common_names(config)
    assert config == wanted
