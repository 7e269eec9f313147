"""NxDI's `neuron_config.json`: kept without what names a place, written anew for each model.

NxDI loads weights from `_name_or_path` in that file before it looks at the directory it was
given, so a kept file would serve the model it was compiled with to whoever asks for another.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import TrustError
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS

__all__ = ["for_model", "without_places"]

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


_NUMBERS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}
_CLASSES = "neuronx_distributed_inference."
_NOT_THE_MODELS = ("dtype", "_name_or_path", "_commit_hash", "transformers_version", "auto_map")


def for_model(
    constructed: Mapping[str, Any],
    *,
    path: str,
    config: Mapping[str, Any],
    transformers: str,
    sharded: bool,
    quantized: str | None = None,
    draft: str | None = None,
    draft_config: Mapping[str, Any] = {},
    own_class: bool = False,
) -> str:
    """The text of `neuron_config.json` for one model, as NxDI writes it.

    Args:
        constructed: as kept, `without_places`.
        path: directory of the checkpoint on the host that will serve.
        config: that model's config.json. Of its fields those count that no program depends on:
            a fine-tune's own end-of-sequence ids are served, not those of the first one built.
        transformers: version of the toolchain's.
        sharded: the directory has `weights/`, which are then loaded.
        quantized: directory of the quantised checkpoint, where the program has one.
        draft: directory of the draft's checkpoint, where the program has one.
        draft_config: that draft's config.json.
        own_class: the program runs a class of the user's, which stands in no registry.

    Raises:
        TrustError: a class is named that is not NxDI's. Its loader imports what stands there
            (models/config.py `from_json_string`), so it would be code that data chose.
    """
    if not own_class:
        _check_classes(constructed)
    result = _restored(constructed)
    _places(result, config, path, transformers)
    for name in ("text_config", "vision_config"):
        part, own = result.get(name), config.get(name)
        if isinstance(part, dict):
            _places(part, own if isinstance(own, Mapping) else {}, path, transformers)
            if isinstance(part.get("neuron_config"), dict):
                _weights(part["neuron_config"], sharded, quantized)
    _weights(result["neuron_config"], sharded, quantized)
    speculation = result.get("fused_spec_config")
    if isinstance(speculation, dict):
        speculation["draft_model_path"] = draft
        inner = speculation.get("draft_config")
        if isinstance(inner, dict):
            _places(inner, draft_config, draft, transformers)
            _weights(inner["neuron_config"], sharded, quantized)
    return json.dumps(result, indent=2, sort_keys=True) + "\n"


def _check_classes(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _check_classes(item)
    if not isinstance(value, Mapping):
        return
    if "__module__" in value or "__name__" in value:
        module, name = value.get("__module__"), value.get("__name__")
        if not (isinstance(module, str) and module.startswith(_CLASSES) and isinstance(name, str)):
            raise TrustError(
                f"this program's config names the class {module}:{name}, which NxD Inference "
                "would import",
                hint="build the program again, with --model-class if the class is your own",
                details={"module": module, "class": name},
            )
    for item in value.values():
        _check_classes(item)


def _places(
    part: dict[str, Any], config: Mapping[str, Any], path: str | None, transformers: str
) -> None:
    own = {
        name: value
        for name, value in config.items()
        if name in MODEL_EXCLUSIONS and name not in _NOT_THE_MODELS
    }
    part |= {**own, "_name_or_path": path, "transformers_version": transformers}


def _weights(neuron: dict[str, Any], sharded: bool, quantized: str | None) -> None:
    neuron["save_sharded_checkpoint"] = sharded
    neuron["skip_sharding"] = False
    neuron["quantized_checkpoints_path"] = quantized


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _restored(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_restored(item) for item in value]
    return _NUMBERS.get(value, value) if isinstance(value, str) else value
