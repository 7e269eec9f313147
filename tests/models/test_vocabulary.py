"""Whether a draft means what its target means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from neuroncompile.errors import ModelError
from neuroncompile.models.vocabulary import check_vocabularies

NAMES = ("big", "small")


def tokenizer(directory: Path, tokens: list[str], added: dict[str, int] | None = None) -> Path:
    directory.mkdir()
    document = {
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}},
        "added_tokens": [{"id": i, "content": token} for token, i in (added or {}).items()],
    }
    (directory / "tokenizer.json").write_text(json.dumps(document))
    return directory


def test_padding_rows_are_no_difference(tmp_path: Path) -> None:
    """Qwen2.5: 152,064 rows in the large ones, 151,936 in the small ones, one tokenizer."""
    target = tokenizer(tmp_path / "a", ["x", "y"], {"<end>": 151_664})
    draft = tokenizer(tmp_path / "b", ["x", "y"], {"<end>": 151_664})
    assert check_vocabularies(target, draft, (152_064, 151_936), NAMES) is None
    assert check_vocabularies(target, draft, (151_936, 152_064), NAMES) is None


def test_a_token_more_is_no_difference_where_both_have_its_row(tmp_path: Path) -> None:
    target = tokenizer(tmp_path / "a", ["x", "y"], {"<tool>": 2})
    draft = tokenizer(tmp_path / "b", ["x", "y"])
    assert check_vocabularies(target, draft, (4, 4), NAMES) is None


@pytest.mark.parametrize(
    ("sizes", "words"), [((4, 2), ("big has token 2", "small", "2")), ((2, 4), ("small",))]
)
def test_a_token_without_a_row_is_refused(
    tmp_path: Path, sizes: tuple[int, int], words: tuple[str, ...]
) -> None:
    longer, shorter = ["x", "y", "z"], ["x", "y"]
    target = tokenizer(tmp_path / "a", longer if sizes[0] == 4 else shorter)
    draft = tokenizer(tmp_path / "b", shorter if sizes[0] == 4 else longer)
    with pytest.raises(ModelError) as raised:
        check_vocabularies(target, draft, sizes, NAMES)
    assert all(word in str(raised.value) for word in words)
    assert raised.value.details == {"token": 2, "vocab_size": 2}


def test_one_id_with_two_meanings_is_refused(tmp_path: Path) -> None:
    target, draft = tokenizer(tmp_path / "a", ["x", "y"]), tokenizer(tmp_path / "b", ["x", "z"])
    with pytest.raises(ModelError, match="another tokenizer") as raised:
        check_vocabularies(target, draft, (2, 2), NAMES)
    assert raised.value.details == {"token": 1, "target": "y", "draft": "z"}
    assert raised.value.hint


def test_a_unigram_vocabulary_is_a_list(tmp_path: Path) -> None:
    target, draft = tokenizer(tmp_path / "a", ["x", "y"]), tmp_path / "b"
    draft.mkdir()
    document = {"model": {"type": "Unigram", "vocab": [["x", 0.0], ["y", -1.5]]}}
    (draft / "tokenizer.json").write_text(json.dumps(document))
    assert check_vocabularies(target, draft, (2, 2), NAMES) is None


def test_without_tokenizers_sizes_are_compared_and_no_more_is_claimed(tmp_path: Path) -> None:
    target = tokenizer(tmp_path / "a", ["x"])
    assert check_vocabularies(target, None, (8, 8), NAMES) is None
    warning = check_vocabularies(None, None, (152_064, 151_936), NAMES)
    assert warning is not None
    assert "152064" in warning
    assert "151936" in warning
    assert "not at hand" in warning
