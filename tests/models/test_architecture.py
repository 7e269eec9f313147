"""What ends a sequence."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.models.architecture import eos_token_ids


@pytest.mark.parametrize(
    ("config", "generation", "tokenizer", "ids"),
    [
        ({"eos_token_id": 0}, {}, None, (0,)),
        ({"eos_token_id": 2}, {"eos_token_id": [5, 2]}, None, (5, 2)),
        ({"eos_token_id": None}, {"eos_token_id": -1}, None, ()),
        ({"text_config": {"eos_token_id": [1, 106]}}, {}, None, (1, 106)),
        (
            {"eos_token_id": 1},
            {},
            {"eos_token": "<e>", "added_tokens_decoder": {"9": {"content": "<e>"}}},
            (1, 9),
        ),
        (
            {},
            {},
            {"eos_token": {"content": "<e>"}, "added_tokens_decoder": {"0": {"content": "<e>"}}},
            (0,),
        ),
        ({}, {}, {"eos_token": "<e>"}, ()),
    ],
)
def test_eos_token_ids(
    config: dict[str, Any],
    generation: dict[str, Any],
    tokenizer: dict[str, Any] | None,
    ids: tuple[int, ...],
) -> None:
    assert eos_token_ids(config, generation, tokenizer) == ids
