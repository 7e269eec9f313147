"""Encoding, special tokens, and text in pieces that are never broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models

from neuroncompile.errors import ModelError
from neuroncompile.runtime.tokenizer import TextStream, Tokenizer


def streamed(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = TextStream(tokenizer)
    return [*(stream.push(token) for token in ids), stream.flush()]


def test_one_beginning_of_sequence(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("the")[0] == tokenizer.bos_token_id == 0
    assert tokenizer.encode("<s>the") == tokenizer.encode("the")
    assert tokenizer.encode("<s>the", add_special_tokens=False) == tokenizer.encode("the")
    assert tokenizer.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_special_tokens_are_not_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode([0, *tokenizer.encode("cat", add_special_tokens=False), 1]) == "cat"


def test_no_half_characters(tokenizer: Tokenizer) -> None:
    pieces = streamed(tokenizer, tokenizer.encode("a🎉é漢", add_special_tokens=False))
    assert "".join(pieces) == "a🎉é漢"
    assert not any("\ufffd" in piece for piece in pieces)


def test_an_incomplete_end_is_dropped(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("ok🎉", add_special_tokens=False)
    assert "".join(streamed(tokenizer, ids[:-1])) == "ok"


@settings(deadline=None)
@given(st.text(max_size=40))
def test_pieces_join_to_the_whole(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids).rstrip("\ufffd")


def test_spaces_of_a_decoder_that_strips_the_first(tmp_path: Path) -> None:
    words = ["<unk>", "▁the", "▁cat", "s", "▁"]
    fast = Fast(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    fast.decoder = decoders.Metaspace()
    fast.save(str(tmp_path / "tokenizer.json"))
    tokenizer = Tokenizer(tmp_path)
    assert streamed(tokenizer, [1, 2, 3, 1, 2]) == ["the", " cat", "s", " the", " cat", ""]


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="there is none"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        Tokenizer(tmp_path)
