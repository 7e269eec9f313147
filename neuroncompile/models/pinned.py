"""One model, pinned: from here on nothing asks where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PinnedModel", "WeightFile"]


@dataclass(frozen=True, slots=True)
class WeightFile:
    """One file of weights.

    Attributes:
        name: path inside the model.
        size: bytes; 0 when not known before the download.
        sha256: 64 hex digits, or None when nobody has hashed it yet.
        path: where it lies, or None when it is not here.
    """

    name: str
    size: int
    sha256: str | None
    path: Path | None


@dataclass(frozen=True, slots=True)
class PinnedModel:
    """A model that cannot change under our feet.

    Attributes:
        reference: as typed.
        source: "hub", "local", "gguf" or "facts".
        name: for people: "org/name@1a2b3c4", "./dir", "SmolLM2-135M-Instruct.Q4_1.gguf".
        revision: 40-hex commit for the hub.
        config: config.json (derived, in Hugging Face's spelling, for GGUF).
        generation_config: generation_config.json, {} if there is none.
        tokenizer_dir: holds tokenizer.json and its companions.
        weights: safetensors shards, or the one .gguf.
        weights_format: "safetensors", "gguf" or "none".
        dtype: the checkpoint's own, "float32", "bfloat16" or "float16"; a safetensors header
            wins over the config, a GGUF counts as "bfloat16".
        chat_template: Jinja source, if the model has one.
    """

    reference: str
    source: str
    name: str
    revision: str | None
    config: Mapping[str, Any]
    generation_config: Mapping[str, Any]
    tokenizer_dir: Path | None
    weights: tuple[WeightFile, ...]
    weights_format: str
    dtype: str | None
    chat_template: str | None
