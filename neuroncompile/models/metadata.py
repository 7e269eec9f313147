"""The small files beside the weights: configs, tokenizer files, chat template."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError

__all__ = ["METADATA_FILES", "Metadata", "chat_template_of", "read_metadata", "read_object"]

METADATA_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
)
"""All that is read besides weights and their index; only the first has to exist."""


class Metadata(NamedTuple):
    """What the small files say; fields as in `PinnedModel`."""

    config: dict[str, Any]
    generation_config: dict[str, Any]
    tokenizer_dir: Path | None
    chat_template: str | None


def read_metadata(directory: Path) -> Metadata:
    """Read a directory that has a config.json.

    Raises:
        ModelError: a file is no JSON object or cannot be read.
    """
    config = read_object(directory / "config.json")
    generation = directory / "generation_config.json"
    tokenizer_config = directory / "tokenizer_config.json"
    return Metadata(
        config=config,
        generation_config=read_object(generation) if generation.exists() else {},
        tokenizer_dir=directory if (directory / "tokenizer.json").exists() else None,
        chat_template=chat_template_of(
            directory, read_object(tokenizer_config) if tokenizer_config.exists() else {}
        ),
    )


def chat_template_of(directory: Path, tokenizer_config: Mapping[str, Any]) -> str | None:
    """The chat template: its own file first, then tokenizer_config.json, as transformers reads.

    Of several named templates the one called "default" counts.
    """
    try:
        return (directory / "chat_template.jinja").read_text("utf-8")
    except OSError:
        pass
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        named = {
            entry.get("name"): entry.get("template")
            for entry in template
            if isinstance(entry, Mapping)
        }
        template = named.get("default")
    return template if isinstance(template, str) else None


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        ModelError: unreadable, a Git LFS pointer, no JSON, or no object.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(
            f"{path} cannot be read: {error.strerror}",
            hint="check the path and its permissions",
            details={"path": str(path)},
        ) from None
    if data.startswith(b"version https://git-lfs"):
        raise ModelError(
            f"{path} is a Git LFS pointer, not the file",
            hint="run `git lfs pull` in the repository",
            details={"path": str(path)},
        )
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ModelError(
            f"{path} is not JSON: {error}",
            hint="take the file of the model's own repository",
            details={"path": str(path)},
        ) from None
    if not isinstance(value, dict):
        raise ModelError(
            f"{path} holds {type(value).__name__}, not an object",
            hint="take the file of the model's own repository",
            details={"path": str(path)},
        )
    return value
