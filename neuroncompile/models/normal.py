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
from neuroncompile.models.families import architecture_of

__all__ = ["DEFAULTS", "normalise"]

_DENSE: dict[str, Any] = {
    "hidden_act": "silu",
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
_QWEN: dict[str, Any] = {
    **_DENSE,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
}
DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {
        **_DENSE,
        "max_position_embeddings": 2048,
        "attention_bias": False,
        "mlp_bias": False,
    },
    "mistral": {
        **_DENSE,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
    "mixtral": {
        **_DENSE,
        "rms_norm_eps": 1e-5,
        "num_key_value_heads": 8,
        "max_position_embeddings": 131072,
        "sliding_window": None,
        "num_experts_per_tok": 2,
        "num_local_experts": 8,
        "router_jitter_noise": 0.0,
    },
    "qwen2": {**_QWEN, "num_key_value_heads": 32, "max_window_layers": 28},
    "qwen3": {
        **_QWEN,
        "num_key_value_heads": 32,
        "head_dim": 128,
        "attention_bias": False,
        "max_window_layers": 28,
    },
    "qwen3_moe": {
        **_QWEN,
        "num_key_value_heads": 4,
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "norm_topk_prob": False,
        "mlp_only_layers": [],
    },
}
"""Family → what a missing field means (transformers 5.24). Sizes a file always has are left out,
because a model of a guessed size is a mistake and not a default."""

_THETA = {"mixtral": 1_000_000.0}
_EXPERTS = {"qwen3_moe": "num_experts", "mixtral": "num_local_experts"}


def normalise(config: Mapping[str, Any]) -> dict[str, Any]:
    """The canonical form of a config.json, equal for all spellings of one model.

    Fields of `text_config` come to the top level, `model_type` and `architectures` being the
    outer ones; `dtype` is a bare name; `rope_parameters` holds `rope_type` and `rope_theta`;
    `num_key_value_heads`, `head_dim` and the family's defaults are filled in.

    Raises:
        ModelError: the architecture is not supported, or a field is no JSON of its kind.
    """
    architecture = architecture_of(config)
    family = architecture.family
    result = _flattened(config)
    result.setdefault("model_type", architecture.model_types[0])
    _dtype(result)
    _experts(result, family)
    known = DEFAULTS.get(family)
    for name, value in (known or {}).items():
        # a null is the default too, except where it is a value of its own
        if name not in result or (result[name] is None and name != "sliding_window"):
            result[name] = list(value) if isinstance(value, list) else value
    _heads(result)
    _windows(result, family)
    _rope(result, family)
    if known is not None:
        result = {
            name: value
            for name, value in result.items()
            if value is not None or (name == "sliding_window" and name in known)
        }
    return result


def _flattened(config: Mapping[str, Any]) -> dict[str, Any]:
    result = {name: value for name, value in config.items() if name != "text_config"}
    inner = config.get("text_config")
    if inner is None:
        return result
    if not isinstance(inner, Mapping):
        raise _malformed("text_config", inner, "an object")
    for name, value in inner.items():
        outer = name in ("model_type", "architectures") and result.get(name) is not None
        if not outer and (value is not None or name not in result):
            result[name] = value
    return result


def _dtype(result: dict[str, Any]) -> None:
    old = result.pop("torch_dtype", None)
    dtype = result.get("dtype") if result.get("dtype") is not None else old
    result.pop("dtype", None)
    if dtype is None:
        return
    if isinstance(dtype, str):
        dtype = dtype.removeprefix("torch.")
    result["dtype"] = (
        {"float": "float32", "half": "float16"}.get(dtype, dtype)
        if isinstance(dtype, str)
        else dtype
    )


def _experts(result: dict[str, Any], family: str) -> None:
    wanted = _EXPERTS.get(family)
    for name in _EXPERTS.values():
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


def _windows(result: dict[str, Any], family: str) -> None:
    if family not in ("qwen2", "qwen3", "qwen3_moe"):
        return
    if not result["use_sliding_window"]:
        result["sliding_window"] = None
    layers = result.get("num_hidden_layers")
    if family != "qwen3_moe" and result.get("layer_types") is None and _is_size(layers):
        first = result["max_window_layers"]
        result["layer_types"] = [
            "sliding_attention"
            if result["sliding_window"] is not None and layer >= first
            else "full_attention"
            for layer in range(int(layers))
        ]


def _rope(result: dict[str, Any], family: str) -> None:
    scaling, parameters = result.pop("rope_scaling", None), result.pop("rope_parameters", None)
    theta = result.pop("rope_theta", None)
    rope = scaling or parameters or {}
    if not isinstance(rope, Mapping):
        raise _malformed("rope_scaling" if scaling else "rope_parameters", rope, "an object")
    rope = {name: value for name, value in rope.items() if value is not None}
    if rope and all(isinstance(value, Mapping) for value in rope.values()):
        result["rope_parameters"] = rope  # one set for each kind of layer (gemma3)
        if theta is not None:
            result["rope_theta"] = theta
        return
    if not rope and theta is None and family not in DEFAULTS:
        return
    kind = rope.pop("type", None)
    rope.setdefault("rope_type", kind or "default")
    if theta is None and family in DEFAULTS:
        theta = _THETA.get(family, 10_000.0)
    if theta is not None:
        rope.setdefault("rope_theta", theta)
    partial = result.pop("partial_rotary_factor", None)
    if partial is not None:
        rope.setdefault("partial_rotary_factor", partial)
    result["rope_parameters"] = rope


def _is_size(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and value > 0 and value % 1 == 0


def _malformed(field: str, value: object, kind: str) -> ModelError:
    return ModelError(
        f"{field} in config.json is {type(value).__name__}, not {kind}",
        hint="take the config.json of the model's own repository",
        details={"field": field, "value": repr(value)[:200]},
    )
