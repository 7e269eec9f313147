"""Encoding, special tokens, and text in pieces that are never broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Fast
from tokenizers import decoders, models, normalizers, processors

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.runtime.tokenizer import TextStream, Tokenizer
from tests.runtime.conftest import VOCAB, byte_level


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


@settings(deadline=None, max_examples=300)
@given(st.lists(st.integers(0, VOCAB - 1), max_size=60))
def test_any_tokens_join_to_the_whole(tokenizer: Tokenizer, ids: list[int]) -> None:
    """Random ids are mostly wrong bytes; only what is still incomplete at the end is missing."""
    shown, whole = "".join(streamed(tokenizer, ids)), tokenizer.decode(ids)
    assert whole.startswith(shown)
    assert not whole[len(shown) :].strip("\ufffd")


@pytest.mark.parametrize("text", ["🎉漢a", "a🎉", "é🎉🎉 "])
def test_rubbish_first(tokenizer: Tokenizer, text: str) -> None:
    """Whatever was given up on, and at whichever byte of a character, text after it is complete."""
    wrong = tokenizer.token_id("ÿ")  # byte 0xFF
    assert wrong is not None
    for rubbish in range(4 * TextStream.PATIENCE):
        ids = [wrong] * rubbish + tokenizer.encode(text, add_special_tokens=False)
        assert "".join(streamed(tokenizer, ids)) == "\ufffd" * rubbish + text


def test_the_window_stays_short(tokenizer: Tokenizer) -> None:
    stream = TextStream(tokenizer)
    wrong = tokenizer.token_id("ÿ")
    assert wrong is not None
    text = tokenizer.encode("the cat sat on the mat 🎉 " * 20)
    for token in [*text, *[wrong] * 100, *[0, 1] * 100]:
        stream.push(token)
        assert len(stream._window) <= 2 * TextStream.PATIENCE


def test_a_token_may_end_one_character_and_begin_another(tmp_path: Path) -> None:
    """The first is shown at once, though the text is not whole."""
    pieces = ["ðŁİ", "īðŁ", "İī"]  # 🎉🎉 is F0 9F 8E 89 F0 9F 8E 89
    fast = Fast(models.WordLevel({piece: i for i, piece in enumerate(pieces)}, unk_token="ðŁİ"))
    fast.decoder = decoders.ByteLevel()
    fast.save(str(tmp_path / "tokenizer.json"))
    assert streamed(Tokenizer(tmp_path), [0, 1, 2]) == ["", "🎉", "🎉", ""]


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """As Llama 2's: spaces are ▁, one at the beginning is added and stripped, bytes fall back."""
    words = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", *"abctheàñ", "▁t"]
    vocab = {word: i for i, word in enumerate(words)}
    fast = Fast(
        models.BPE(vocab, [("▁", "t")], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    fast.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    fast.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    fast.add_special_tokens(["<s>", "</s>"])
    directory = tmp_path_factory.mktemp("sentencepiece")
    fast.save(str(directory / "tokenizer.json"))
    return Tokenizer(directory)


@settings(deadline=None)
@given(st.text(st.sampled_from("abcth àñé漢🎉\n\ufffd"), max_size=30))
def test_byte_fallback_joins_to_the_whole(sentencepiece: Tokenizer, text: str) -> None:
    ids = sentencepiece.encode(text)
    assert sentencepiece.decode(ids) == text
    pieces = streamed(sentencepiece, ids)
    assert "".join(pieces) == text.rstrip("\ufffd")
    if "\ufffd" not in text:
        assert not any("\ufffd" in piece for piece in pieces)


def test_a_wrong_byte_leaves_shown_characters_alone(sentencepiece: Tokenizer) -> None:
    """Decoded together, the emoji's four bytes would be broken by the fifth."""
    emoji = sentencepiece.encode("🎉")[1:]
    wrong = sentencepiece.token_id("<0xE2>")
    a = sentencepiece.token_id("a")
    assert wrong is not None
    assert a is not None
    assert sentencepiece.decode([*emoji, wrong, a]) == "\ufffd" * 5 + "a"
    assert "".join(streamed(sentencepiece, [*emoji, wrong, a])) == "🎉\ufffda"
    assert "".join(streamed(sentencepiece, [*emoji, wrong])) == "🎉"


@settings(deadline=None)
@given(st.lists(st.integers(0, 268), max_size=60))
def test_byte_fallback_takes_anything(sentencepiece: Tokenizer, ids: list[int]) -> None:
    shown = "".join(streamed(sentencepiece, ids))
    clean = sentencepiece.decode(ids)
    if "\ufffd" not in clean:
        assert shown == clean


def test_training_settings_do_not_cut_or_pad_prompts(tmp_path: Path) -> None:
    fast = byte_level()
    fast.enable_truncation(3)
    fast.enable_padding(length=8)
    fast.save(str(tmp_path / "tokenizer.json"))
    for text in ("a", "the cat sat on the mat 12345"):
        ids = Tokenizer(tmp_path).encode(text, add_special_tokens=False)
        assert ids == byte_level().encode(text, add_special_tokens=False).ids


def test_two_beginnings_that_were_typed_stay(tmp_path: Path) -> None:
    fast = byte_level()
    fast.post_processor = processors.ByteLevel(trim_offsets=False)
    fast.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>"}')
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.encode("<s><s>the")[:2] == [0, 0]
    assert tokenizer.encode("the")[0] != 0


def test_a_prompt_that_is_not_unicode(tokenizer: Tokenizer) -> None:
    with pytest.raises(ConfigError, match="not valid UTF-8"):
        tokenizer.encode(b"caf\xe9".decode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("prompt", ["the cat", "<s>the", "", " 🎉\n"])
def test_as_transformers_encodes(tmp_path: Path, prompt: str) -> None:
    from transformers import AutoTokenizer

    byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "add_bos_token": False,  # tokenizer.json has the last word
            }
        )
    )
    ours, theirs = Tokenizer(tmp_path), AutoTokenizer.from_pretrained(str(tmp_path))
    expected = theirs(prompt)["input_ids"]
    if prompt.startswith("<s>"):
        assert expected[:2] == [0, 0]
        expected = expected[1:]  # on purpose: one beginning
    assert ours.encode(prompt) == expected
    assert ours.decode(expected) == theirs.decode(expected, skip_special_tokens=True)


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
