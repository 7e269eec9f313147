"""A config.json as transformers 4 reads it, which is what the vendor's packages run on.

transformers 5 writes `rope_parameters` and `dtype`; transformers 4 does not know the first and
would take its class's default base instead, without a word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["older_spelling"]

_LAYERS = ("full_attention", "sliding_attention")


def older_spelling(config: Mapping[str, Any]) -> dict[str, Any]:
    """The same config with `rope_theta`, `rope_scaling` and `torch_dtype`, at every depth.

    Gemma 3's two sets become `rope_theta` and `rope_scaling` of the layers that see everything,
    and `rope_local_base_freq` of the others (transformers 4.57, models/gemma3). Other sets by
    layer have no older spelling and stay as they are.
    """
    result: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and name.endswith("_config"):
            value = older_spelling(value)
        result[name] = value
    if "dtype" in result:
        dtype = result.pop("dtype")
        result.setdefault("torch_dtype", dtype)
    rope = result.get("rope_parameters")
    if isinstance(rope, Mapping):
        full = rope.get(_LAYERS[0])
        if isinstance(full, Mapping):
            _apart(result, full)
            local = rope.get(_LAYERS[1])
            if isinstance(local, Mapping) and "rope_theta" in local:
                result["rope_local_base_freq"] = local["rope_theta"]
        elif not any(isinstance(value, Mapping) for value in rope.values()):
            _apart(result, rope)
    return result


def _apart(result: dict[str, Any], rope: Mapping[str, Any]) -> None:
    """`rope_theta` and `partial_rotary_factor` to the top, the rest to `rope_scaling`."""
    rest = dict(rope)
    result.pop("rope_parameters", None)
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in rest:
            result[name] = rest.pop(name)
    sections = rest.get("mrope_section")
    if rest.get("rope_type", "default") == "default" and not sections:
        rest = {}
    result.pop("rope_scaling", None)
    if rest:
        result["rope_scaling"] = rest
