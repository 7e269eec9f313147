"""One spelling for all spellings of a Hugging Face config.

transformers 5 renamed `torch_dtype` to `dtype` and folded `rope_theta` and `rope_scaling` into
`rope_parameters`; old files leave out what their class had as default. The same model has to
give the same key however its config was written, so the defaults of transformers 5.24's
configuration classes are filled in here. Unknown fields stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from neuroncompile.errors import ModelError
from neuroncompile.models.families import (
    DEFAULTS,
    EXPERTS,
    NULLABLE,
    THETA,
    YARN,
    Architecture,
    architecture_of,
)

__all__ = ["DEFAULTS", "config_dtype", "normalise"]

_ORIGINAL = "original_max_position_embeddings"
_PARTS = ("text_config", "llm_config", "language_config", "vision_config", "attn_config")


def normalise(
    config: Mapping[str, Any], architecture: Architecture | None = None
) -> dict[str, Any]:
    """The canonical form of a config.json, equal for all spellings of one model.

    Fields of `text_config` come to the top level, `model_type` and `architectures` being the
    outer ones; `dtype` is a bare name; `rope_parameters` holds `rope_type` and `rope_theta`;
    `num_key_value_heads`, `head_dim` and the family's defaults are filled in.

    Args:
        architecture: of a model whose class the user brings; otherwise the config's own.

    Raises:
        ModelError: the architecture is not supported, or a field is no JSON of its kind.
    """
    if architecture is None:
        architecture = architecture_of(config)
    family = architecture.family
    result = _flat(config, architecture)
    result.setdefault("model_type", architecture.model_types[0])
    result.pop("torch_dtype", None)
    result.pop("dtype", None)
    dtype = config_dtype(config)
    if dtype is not None:
        result["dtype"] = dtype
    _experts(result, family)
    if not architecture.since:
        from neuroncompile.models.custom import common_names

        common_names(result)
    text = result.get("text_model_type") if family == "pixtral" else family
    known = DEFAULTS.get(str(text)) if architecture.since else None
    for name, value in (known or {}).items():
        # a null is the default too, except where it is a value of its own
        if name not in result or (result[name] is None and name not in NULLABLE):
            result[name] = list(value) if isinstance(value, list) else value
    _heads(result)
    if known is not None:
        _layers(result, str(text))
    _rope(result, None if known is None else str(text))
    return {
        name: value
        for name, value in result.items()
        if value is not None or known is None or (name in NULLABLE and name in known)
    }


def config_dtype(config: Mapping[str, Any]) -> Any:
    """The checkpoint's dtype as its config spells it, by its bare name; None where it is open.

    What is no text is handed on as it is, so that it is refused by name where it matters.
    """
    found: Any = None
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping):
            for name in ("dtype", "torch_dtype"):
                if found in (None, "auto"):
                    found = part.get(name)
    if not isinstance(found, str):
        return found
    found = found.removeprefix("torch.")
    return {"auto": None, "float": "float32", "half": "float16"}.get(found, found)


def _flat(config: Mapping[str, Any], architecture: Architecture) -> dict[str, Any]:
    if not any(config.get(part) is not None for part in _PARTS) and architecture.text_only:
        return {name: value for name, value in config.items() if name not in _PARTS}
    from neuroncompile.models.composite import dbrx, flattened, outer_defaults, without_base

    result = flattened(config)
    if "vision_config" in config or len(result) != len(config):
        result = without_base(result)
    if architecture.family == "dbrx":
        dbrx(result)
    elif architecture.since and not architecture.text_only:
        outer_defaults(result, architecture.family)
    return result


def _experts(result: dict[str, Any], family: str) -> None:
    wanted = EXPERTS.get(family)
    for name in EXPERTS.values():
        if wanted and name != wanted and name in result:
            value = result.pop(name)
            if result.get(wanted) is None:
                result[wanted] = value


def _heads(result: dict[str, Any]) -> None:
    heads, hidden = result.get("num_attention_heads"), result.get("hidden_size")
    if result.get("num_key_value_heads") is None and heads is not None:
        result["num_key_value_heads"] = heads
    if result.get("head_dim") is None and _is_size(heads) and _is_size(hidden):
        result["head_dim"] = int(hidden // heads)


def _layers(result: dict[str, Any], family: str) -> None:
    """What each layer is, where the file leaves that to its class."""
    if family in ("qwen2", "qwen3", "qwen3_moe", "qwen2_vl") and not result["use_sliding_window"]:
        result["sliding_window"] = None
    count = result.get("num_hidden_layers")
    layers = range(int(count)) if _is_size(count) else range(0)
    if family == "llama4" and layers:
        _llama4(result, layers)
    pattern = result.get("sliding_window_pattern") or result.get("_sliding_window_pattern") or 6
    if family == "gemma3":
        result.pop("sliding_window_pattern", None)
        result.pop("_sliding_window_pattern", None)
    if result.get("layer_types") is not None or not layers:
        return
    window = result.get("sliding_window")
    if family in ("qwen2", "qwen3", "qwen2_vl"):
        first = result["max_window_layers"]
        sliding = [window is not None and layer >= first for layer in layers]
    elif family == "gpt_oss":
        sliding = [layer % 2 == 0 for layer in layers]
    elif family == "gemma3" and _is_size(pattern):
        sliding = [(layer + 1) % int(pattern) != 0 for layer in layers]
    else:
        return
    result["layer_types"] = ["sliding_attention" if s else "full_attention" for s in sliding]


def _llama4(result: dict[str, Any], layers: range) -> None:
    interval, step = result["no_rope_layer_interval"], result["interleave_moe_layer_step"]
    if not result.get("no_rope_layers"):
        result["no_rope_layers"] = [int((layer + 1) % interval != 0) for layer in layers]
    if result.get("moe_layers") is None:
        result["moe_layers"] = list(range(step - 1, len(layers), step))
    if result.get("layer_types") is None:
        chunked = result["attention_chunk_size"] is not None
        result["layer_types"] = [
            "chunked_attention" if rope and chunked else "full_attention"
            for rope in result["no_rope_layers"]
        ]


def _rope(result: dict[str, Any], family: str | None) -> None:
    """Bring a config's rotary fields into `rope_parameters`, in place.

    Args:
        family: whose defaults are filled in; None fills in none.
    """
    scaling, parameters = result.pop("rope_scaling", None), result.pop("rope_parameters", None)
    theta = result.pop("rope_theta", None)
    rope = scaling or parameters or {}
    if not isinstance(rope, Mapping):
        raise _malformed_rope("rope_scaling" if scaling else "rope_parameters", rope)
    rope = {name: value for name, value in rope.items() if value is not None}
    if family == "gemma3":
        local = result.pop("rope_local_base_freq", None)
        result["rope_parameters"] = _by_layer(rope, theta, local)
        return
    if rope and all(isinstance(value, Mapping) for value in rope.values()):
        result["rope_parameters"] = rope  # one set for each kind of layer
        if theta is not None:
            result["rope_theta"] = theta
        return
    if not rope and theta is None and family not in DEFAULTS:
        return
    if not rope and family == "gpt_oss":
        rope = dict(YARN)
    _name_kind(rope, family)
    if theta is None and family in DEFAULTS:
        theta = THETA.get(str(family), 10_000.0)
    if theta is not None:
        rope.setdefault("rope_theta", theta)
    partial = result.pop("partial_rotary_factor", None)
    if partial is not None:
        rope.setdefault("partial_rotary_factor", partial)
    if rope["rope_type"] in ("yarn", "longrope", "llama3"):
        outer = result.get(_ORIGINAL)
        if _ORIGINAL not in rope and outer is not None:
            rope[_ORIGINAL] = outer
        if rope.get(_ORIGINAL) == outer:
            result.pop(_ORIGINAL, None)
    result["rope_parameters"] = rope


def _name_kind(rope: dict[str, Any], family: str | None) -> None:
    kind = rope.pop("type", None)
    rope.setdefault("rope_type", kind or "default")
    if rope["rope_type"] == "mrope" or (family == "qwen2_vl" and kind == "mrope"):
        rope["rope_type"] = "default"  # the sections say the rest
    if rope["rope_type"] == "su":
        rope["rope_type"] = "longrope"  # its name before it had one


def _by_layer(rope: dict[str, Any], theta: Any, local: Any) -> dict[str, Any]:
    """Gemma 3's two sets; `rope_scaling` is of the layers that see everything."""
    nested = bool(rope) and all(isinstance(value, Mapping) for value in rope.values())
    sets: dict[str, dict[str, Any]] = {}
    for layer, base in (
        ("full_attention", theta or 1_000_000.0),
        ("sliding_attention", local or 10_000.0),
    ):
        own = rope.get(layer, {}) if nested else rope if layer == "full_attention" else {}
        found = {name: value for name, value in own.items() if value is not None}
        _name_kind(found, None)
        found.setdefault("rope_theta", base)
        sets[layer] = found
    return sets


def _is_size(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and value > 0 and value % 1 == 0


def _malformed_rope(field: str, value: object) -> ModelError:
    return ModelError(
        f"{field} in config.json is {type(value).__name__}, not an object",
        hint="take the config.json of the model's own repository",
        details={"field": field, "value": repr(value)[:200]},
    )
