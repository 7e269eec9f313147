"""A model's directory as the vendor's packages read it: config.json and safetensors.

The checkpoint's own directory would do for most models. Not for one whose config transformers 4
misreads, nor for weights that were packed apart from it, and none is ever written to.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.models.header import read_header
from neuroncompile.models.spelling import older_spelling

__all__ = ["INDEX", "lay_out"]

INDEX = "model.safetensors.index.json"
_SINGLE = "model.safetensors"


def lay_out(
    directory: Path,
    config: Mapping[str, Any],
    weights: Mapping[str, Path] = {},
    generation_config: Mapping[str, Any] = {},
) -> Path:
    """Write config.json and link the weights; returns the directory.

    Args:
        directory: new or empty.
        config: config.json in any spelling.
        weights: file name → safetensors file. One is linked as model.safetensors; several keep
            their names, and an index is written from their headers.

    Raises:
        ModelError: a file of weights cannot be read.
    """
    directory.mkdir(parents=True, exist_ok=True)
    _write(directory / "config.json", older_spelling(config))
    if generation_config:
        _write(directory / "generation_config.json", dict(generation_config))
    if len(weights) == 1:
        (directory / _SINGLE).symlink_to(next(iter(weights.values())).resolve())
        return directory
    where: dict[str, str] = {}
    total = 0
    for name, path in sorted(weights.items()):
        flat = Path(name).name
        (directory / flat).symlink_to(path.resolve())
        header = read_header(path)
        where |= dict.fromkeys(sorted(header.names), flat)
        total += sum(header.sizes.values())
    if where:
        _write(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": where})
    return directory


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
