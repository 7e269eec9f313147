"""Tokenizers from GGUF headers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neuroncompile.errors import ModelError
from neuroncompile.models.gguf_header import GGUFHeader, read_gguf
from neuroncompile.models.gguf_tokenizer import (
    PRE_TOKENIZERS,
    tokenizer_config_of,
    tokenizer_json_of,
)
from tests.models.ggufs import PIECES, TOKENS, write_gguf, write_sentencepiece

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
        ("tekken", ["a", "Ġ", "1", "2", "3", "4", "Ġ'", "x"]),
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
    path = write_gguf(tmp_path / "x.gguf", pre="chameleon")
    with pytest.raises(ModelError, match="chameleon") as raised:
        tokenizer_json_of(read_gguf(path), path)
    assert "llama-bpe" in (raised.value.hint or "")
    path.write_bytes(path.read_bytes().replace(b"gpt2", b"bert"))
    with pytest.raises(ModelError, match="bert"):
        tokenizer_json_of(read_gguf(path), path)


def test_it_is_a_tokenizer_json(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf")
    assert json.loads(tokenizer_json_of(read_gguf(path), path))["model"]["type"] == "BPE"


TEXTS = [
    "hello world",
    "Hello the world.\n  there, 12 at\tten",
    "日本語 ça 🤖 it's I'LL",
    "a  b   c    d ",
    "é",
    "the<s>hello</s>",
    "",
]


def as_transformers_builds_it(path: Path) -> tokenizers.Tokenizer:
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    architecture, fields, _ = get_gguf_tokenizer(str(path))
    if "scores" in fields:  # its reader leaves these as a count, though its builder needs them
        fields["scores"] = read_gguf(path).fields["tokenizer.ggml.scores"]
        fields["token_type"] = read_gguf(path).fields["tokenizer.ggml.token_type"]
    return convert_gguf_tokenizer(architecture, fields)[0]


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_as_transformers(prefix: bool, tmp_path: Path) -> None:
    fields = {"tokenizer__ggml__add_space_prefix": prefix, "tokenizer__ggml__add_bos_token": False}
    path = write_sentencepiece(tmp_path / "x.gguf", **fields)
    ours, theirs = tokenizer(path), as_transformers_builds_it(path)
    if not prefix:
        from transformers import LlamaTokenizer

        theirs.pre_tokenizer = LlamaTokenizer(
            add_prefix_space=False
        ).backend_tokenizer.pre_tokenizer
    for text in TEXTS[:5]:  # past a special token transformers leaves out the space
        mine = ours.encode(text, add_special_tokens=False)
        assert mine.tokens == theirs.encode(text, add_special_tokens=False).tokens, text
        assert ours.decode(mine.ids) == text


def test_sentencepiece_as_sentencepiece(tmp_path: Path) -> None:
    built = tokenizer(write_sentencepiece(tmp_path / "x.gguf"))
    assert built.encode("hello world").tokens == ["<s>", "▁hello", "▁world"]
    chat = built.encode("<s>[INST] the", add_special_tokens=False).tokens
    assert chat == ["<s>", "[INST]", "▁", "▁the"], "a space of its own after each special token"
    assert built.encode("~", add_special_tokens=False).tokens == ["▁", "<0x7E>"]
    assert built.decode(built.encode("the 🤖").ids) == "the 🤖"
    assert built.get_vocab_size() == len(PIECES)


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2", "tekken"])
def test_pieces_as_transformers(pre: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "x.gguf", pre=pre)
    theirs, ours = as_transformers_builds_it(path), tokenizer(path)
    for text in [*TEXTS, "don't DON'T x1234y ½ ٣٤", "a\r\n\r\n b\u00a0c/\n", "naïve CamelCase"]:
        if pre == "smollm":
            text = "".join(c for c in text if not c.isnumeric())  # it does not know the digits
        assert ours.pre_tokenizer.pre_tokenize_str(text) == (
            theirs.pre_tokenizer.pre_tokenize_str(text)
        ), text


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-1, 400),
    st.lists(st.integers(-1, 9), max_size=4),
    st.lists(st.floats(), max_size=4),
    st.lists(st.text(max_size=3), max_size=4),
)


@pytest.fixture(scope="module")
def headers(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    directory = tmp_path_factory.mktemp("gguf")
    return [write_gguf(directory / "x.gguf"), write_sentencepiece(directory / "y.gguf")]


@settings(deadline=None)
@given(which=st.integers(0, 1), name=st.integers(0), value=VALUES)
def test_any_value_of_any_field_is_read_or_refused(
    headers: list[Path], which: int, name: int, value: object
) -> None:
    path = headers[which]
    header = read_gguf(path)
    known = [field for field in header.fields if field.startswith("tokenizer.")]
    fields = header.fields | {known[name % len(known)]: value}
    changed = GGUFHeader(fields, header.tensors)
    tokenizer_config_of(changed)
    try:
        text = tokenizer_json_of(changed, path)
    except ModelError:
        return
    tokenizers.Tokenizer.from_str(text).encode("the end")
