"""A model known only by a recipe's facts: enough for a dry run, nothing to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.models.pinned import PinnedModel

__all__ = ["from_facts"]


def from_facts(facts: Mapping[str, Any], name: str) -> PinnedModel:
    """A pinned model without files from `[model] facts`, a subset of config.json."""
    from neuroncompile.models.normal import config_dtype

    dtype = config_dtype(facts)
    return PinnedModel(
        reference=name,
        source="facts",
        name=name,
        revision=None,
        config=dict(facts),
        generation_config={},
        tokenizer_dir=None,
        weights=(),
        weights_format="none",
        dtype=dtype if isinstance(dtype, str) else None,
        chat_template=None,
    )
