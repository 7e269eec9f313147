"""Rotary position embeddings in config.json: one spelling, and forms that mean nothing refused.

transformers 4 wrote `rope_theta` beside `rope_scaling` with `type` or `rope_type` in it, 5 writes
one `rope_parameters`; Gemma 3 has a set for each kind of layer. A form that some class would
ignore or misread gives answers that are right for short prompts and garbage for long ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.defaults import DEFAULTS, THETA, YARN

__all__ = ["check_rope", "normal_rope"]

_ORIGINAL = "original_max_position_embeddings"
_LLAMA3 = ("factor", "low_freq_factor", "high_freq_factor", _ORIGINAL)
_NEEDED: dict[str, tuple[str, ...]] = {
    "default": (),
    "linear": ("factor",),
    "dynamic": ("factor",),
    "yarn": ("factor", _ORIGINAL),
    "longrope": ("short_factor", "long_factor", _ORIGINAL),
    "llama3": _LLAMA3,
    "proportional": (),
}
"""Kind → fields it cannot do without, as transformers 5.24's modeling_rope_utils checks them."""

_NEURON: dict[str, tuple[str, ...]] = {
    "mistral": ("default",),
    "mixtral": ("default",),
    "qwen2": ("default",),
    "qwen3": ("default",),
    "qwen3_moe": ("default",),
    "dbrx": ("default",),
    "mllama": ("default", "llama3"),
    "llama4": ("default", "llama3"),
    "gpt_oss": ("yarn",),
    "qwen2_vl": ("default",),
    "qwen3_vl": ("default",),
}
"""Family → kinds that NxDI 0.9's modelling code reads; it ignores others without a word.

Its Llama hands unknown kinds to transformers' own class, and its Gemma 3 has fixed numbers.
"""


def normal_rope(result: dict[str, Any], family: str | None) -> None:
    """Bring a config's rotary fields into `rope_parameters`, in place.

    Args:
        family: whose defaults are filled in; None fills in none.
    """
    scaling, parameters = result.pop("rope_scaling", None), result.pop("rope_parameters", None)
    theta = result.pop("rope_theta", None)
    rope = scaling or parameters or {}
    if not isinstance(rope, Mapping):
        raise _malformed("rope_scaling" if scaling else "rope_parameters", rope)
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


def check_rope(normal: Mapping[str, Any], family: str | None = None) -> None:
    """Refuse a form of `rope_parameters` that is incomplete or that nobody would compute.

    Args:
        normal: a normalised config.
        family: whose Neuron class has to compute it; None asks only for a sound form.

    Raises:
        ConfigError: with the field, its value and what is legal.
    """
    rope = normal.get("rope_parameters")
    if not isinstance(rope, Mapping):
        return
    nested = [value for value in rope.values() if isinstance(value, Mapping)]
    for one in nested if nested and len(nested) == len(rope) else [rope]:
        _check_one(one, normal)
        kind = one["rope_type"]
        legal = _NEURON.get(family, (kind,)) if family is not None else (kind,)
        if kind not in legal:
            raise ConfigError(
                f"rope_parameters.rope_type in config.json is {kind!r}; the Neuron class of "
                f"{family} computes {', '.join(legal)} only and would ignore it",
                field="rope_parameters.rope_type",
                value=kind,
                legal=list(legal),
                hint="bring a class that computes it with --model-class, or take another model",
            )


def _check_one(rope: Mapping[str, Any], normal: Mapping[str, Any]) -> None:
    kind = rope.get("rope_type")
    if kind not in _NEEDED:
        raise _refused("rope_type", kind, list(_NEEDED))
    if kind == "default":
        for field in (*_LLAMA3, "short_factor", "long_factor"):
            if field in rope:
                raise _refused(
                    "rope_type",
                    kind,
                    [name for name in _NEEDED if field in _NEEDED[name]],
                    f"rope_parameters in config.json has {field} but its rope_type is missing "
                    "or default",
                )
    for field in _NEEDED[kind]:
        if field not in rope:
            raise _refused(
                field,
                None,
                "a number > 0" if not field.endswith("_factor") else "present",
                f"rope_parameters.{field} is missing in config.json; rope_type {kind} needs it",
            )
    if kind == "longrope":
        _check_factors(rope, normal)


def _check_factors(rope: Mapping[str, Any], normal: Mapping[str, Any]) -> None:
    """longrope: one factor for each pair of rotated dimensions."""
    head_dim = normal.get("head_dim")
    if not isinstance(head_dim, int):
        return
    pairs = int(head_dim * rope.get("partial_rotary_factor", 1)) // 2
    for field in ("short_factor", "long_factor"):
        factors = rope[field]
        if not isinstance(factors, (list, tuple)) or len(factors) != pairs:
            length = len(factors) if isinstance(factors, (list, tuple)) else repr(factors)
            raise _refused(
                field,
                length,
                f"a list of {pairs} numbers",
                f"rope_parameters.{field} in config.json has {length} numbers; head_dim "
                f"{head_dim} needs {pairs}",
            )


def _refused(field: str, value: Any, legal: Any, message: str | None = None) -> ConfigError:
    wanted = ", ".join(map(str, legal)) if isinstance(legal, list) else legal
    return ConfigError(
        message or f"rope_parameters.{field} in config.json is {value!r}; known are {wanted}",
        field=f"rope_parameters.{field}",
        value=value,
        legal=legal,
        hint=f"legal: {wanted}; take the config.json of the model's own repository",
    )


def _malformed(field: str, value: object) -> ModelError:
    return ModelError(
        f"{field} in config.json is {type(value).__name__}, not an object",
        hint="take the config.json of the model's own repository",
        details={"field": field, "value": repr(value)[:200]},
    )
