"""What a MODEL argument can name."""

from __future__ import annotations

from pathlib import Path

import pytest

from neuroncompile.errors import ModelError, ModelNotFoundError
from neuroncompile.models import Reference, is_model_reference, parse_reference

COMMIT = "0e9e39f249a16976918f6564b8830bc894c89659"


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("org/name", Reference("hub", "org/name")),
        (f"org/name@{COMMIT}", Reference("hub", "org/name", COMMIT)),
        ("hf:org/na.me-1@refs/pr/3", Reference("hub", "org/na.me-1", "refs/pr/3")),
        ("hf:gpt2", Reference("hub", "gpt2")),
        ("pypi:a-b==0.1.2#m/x.gguf", Reference("wheel", "a-b", "0.1.2", member="m/x.gguf")),
    ],
)
def test_parsed(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@pytest.mark.parametrize(
    "text", ["", "org/", "/x/y/z", "a/b/c", "a b/c", "pypi:a#b.gguf", "pypi:a==1#../b.gguf",
             "pypi:a==1#b.bin", "org/na--me", "ftp:x/y", "org/name@"],
)  # fmt: skip
def test_refused(text: str) -> None:
    with pytest.raises(ModelError):
        parse_reference(text)


def test_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "org/name").mkdir(parents=True)
    (tmp_path / "x.gguf").touch()
    (tmp_path / "x.bin").touch()
    directory = Reference("directory", path=tmp_path / "org/name")
    assert parse_reference("./org/name") == directory
    assert parse_reference("~/org/name") == directory
    assert parse_reference("org/name").kind == "hub"
    assert parse_reference("x.gguf") == Reference("gguf", path=tmp_path / "x.gguf")
    with pytest.raises(ModelNotFoundError, match=r"y\.gguf"):
        parse_reference("y.gguf")
    with pytest.raises(ModelError, match=r"not a \.gguf"):
        parse_reference("./x.bin")


def test_revision_beside_the_reference() -> None:
    assert parse_reference("o/n", revision="v1").revision == "v1"
    assert parse_reference("o/n@v1", revision="v1").revision == "v1"
    with pytest.raises(ModelError, match="v1"):
        parse_reference("o/n@v1", revision="v2")
    with pytest.raises(ModelError, match="no revisions"):
        parse_reference("pypi:a==1#b.gguf", revision="v2")


def test_recipes_are_not_models() -> None:
    assert not is_model_reference("smollm2-135m")
    assert not is_model_reference("./my.toml")
    assert is_model_reference("org/name")
    assert is_model_reference("x.gguf")
