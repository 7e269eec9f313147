"""What a config.json says about a model: its family, one spelling, its numbers, its ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.models.families import ARCHITECTURES, Architecture, architecture_of
from neuroncompile.models.normal import normalise
from neuroncompile.models.shape import ModelShape, Rope, shape_of

__all__ = [
    "ARCHITECTURES",
    "Architecture",
    "ModelShape",
    "Rope",
    "architecture_of",
    "eos_token_ids",
    "normalise",
    "shape_of",
]


def eos_token_ids(
    config: Mapping[str, Any],
    generation_config: Mapping[str, Any],
    tokenizer_config: Mapping[str, Any] | None = None,
) -> tuple[int, ...]:
    """Every id that ends a sequence, from the three files that may name one.

    Checkpoints disagree with themselves (a chat model's turn end is often only in its
    generation_config.json), so the union counts. 0 is a legal id; -1, meaning none, is not.
    """
    text = config.get("text_config")
    found: list[int] = []
    for place in (generation_config, config, text if isinstance(text, Mapping) else {}):
        value = place.get("eos_token_id")
        for token in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(token, int) and not isinstance(token, bool) and token >= 0:
                found.append(token)
    if tokenizer_config:
        found += _tokenizer_eos(tokenizer_config)
    return tuple(dict.fromkeys(found))


def _tokenizer_eos(tokenizer_config: Mapping[str, Any]) -> list[int]:
    eos = tokenizer_config.get("eos_token")
    text = eos.get("content") if isinstance(eos, Mapping) else eos
    added = tokenizer_config.get("added_tokens_decoder")
    if text is None or not isinstance(added, Mapping):
        return []
    return [
        int(number)
        for number, token in added.items()
        if isinstance(token, Mapping) and token.get("content") == text
    ]
