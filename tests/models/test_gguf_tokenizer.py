"""Tokenizers from GGUF headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import read_gguf
from neuroncompile.models.gguf_tokenizer import (
    PRE_TOKENIZERS,
    tokenizer_config_of,
    tokenizer_json_of,
)
from tests.models.ggufs import TOKENS, write_gguf

tokenizers = pytest.importorskip("tokenizers")


def tokenizer(path: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str(tokenizer_json_of(read_gguf(path), path))


@pytest.mark.parametrize("pre", [*PRE_TOKENIZERS, None])
def test_round_trip(pre: str | None, tmp_path: Path) -> None:
    built = tokenizer(write_gguf(tmp_path / "x.gguf", pre=pre))
    text = "hello he 1234\n(x) it's"
    ids = built.encode(text, add_special_tokens=False).ids
    assert built.decode(ids) == text
    assert TOKENS.index("Ġhe") in ids


@pytest.mark.parametrize(
    ("pre", "pieces"),
    [
        ("smollm", ["a", "Ġ", "1", "2", "3", "4", "Ġ'", "x"]),
        ("gpt-2", ["a", "Ġ1234", "Ġ'", "x"]),
        ("llama-bpe", ["a", "Ġ", "123", "4", "Ġ'", "x"]),
        ("qwen2", ["a", "Ġ", "1", "2", "3", "4", "Ġ'", "x"]),
        ("default", ["a", "Ġ", "123", "4", "Ġ", "'", "x"]),
    ],
)
def test_pieces(pre: str, pieces: list[str], tmp_path: Path) -> None:
    built = tokenizer(write_gguf(tmp_path / "x.gguf", pre=pre))
    assert [p for p, _ in built.pre_tokenizer.pre_tokenize_str("a 1234 'x")] == pieces


def test_special_tokens_are_cut_out_and_skipped(tmp_path: Path) -> None:
    built = tokenizer(write_gguf(tmp_path / "x.gguf"))
    ids = built.encode("<|im_start|>he<tool>", add_special_tokens=False).ids
    assert ids == [1, TOKENS.index("he"), TOKENS.index("<tool>")]
    assert built.decode(ids) == "he<tool>", "control tokens are special, the user's are text"
    assert built.get_vocab_size() == len(TOKENS)


@pytest.mark.parametrize(
    ("pre", "asked", "first"),
    [("smollm", None, False), ("smollm", True, True), ("llama-bpe", None, True),
     ("llama-bpe", False, False)],
)  # fmt: skip
def test_begin_of_sequence(pre: str, asked: bool | None, first: bool, tmp_path: Path) -> None:
    fields = {} if asked is None else {"tokenizer__ggml__add_bos_token": asked}
    built = tokenizer(write_gguf(tmp_path / "x.gguf", pre=pre, **fields))
    assert (built.encode("he").ids[0] == 1) is first


def test_config(tmp_path: Path) -> None:
    found = tokenizer_config_of(read_gguf(write_gguf(tmp_path / "x.gguf")))
    assert found["eos_token"] == "<|im_end|>"
    assert found["bos_token"] == "<|im_start|>"
    assert found["chat_template"] == "{{ messages[0].content }}"


def test_what_is_not_read_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", pre="tekken")
    with pytest.raises(ModelError, match="tekken") as raised:
        tokenizer_json_of(read_gguf(path), path)
    assert "llama-bpe" in (raised.value.hint or "")
    path.write_bytes(path.read_bytes().replace(b"gpt2", b"bert"))
    with pytest.raises(ModelError, match="bert"):
        tokenizer_json_of(read_gguf(path), path)


def test_it_is_a_tokenizer_json(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf")
    assert json.loads(tokenizer_json_of(read_gguf(path), path))["model"]["type"] == "BPE"
