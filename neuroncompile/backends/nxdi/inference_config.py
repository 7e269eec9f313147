"""NxDI's `neuron_config.json`: kept without what names a place, written anew for each model.

NxDI loads weights from `_name_or_path` in that file before it looks at the directory it was
given, so a kept file would serve the model it was compiled with to whoever asks for another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

__all__ = ["without_places"]

_PLACES = (
    "_name_or_path",
    "transformers_version",
    "quantized_checkpoints_path",
    "draft_model_path",
    "lora_ckpt_paths",
    "lora_ckpt_paths_cpu",
    "lora_ckpt_json",
)


def without_places(config: Mapping[str, Any]) -> dict[str, Any]:
    """A constructed config as it is kept: no host, no model, at any depth.

    Numbers that JSON does not have become text: "Infinity", "-Infinity", "NaN".
    """
    return {name: _kept(value) for name, value in config.items() if name not in _PLACES}


def _kept(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_places(value)
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value
