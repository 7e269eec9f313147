"""Rotary position embeddings that mean nothing, or that a Neuron class would not compute.

A form that some class ignores or misreads gives answers that are right for short prompts and
garbage for long ones. What the cpu target computes is in `shape`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ConfigError

__all__ = ["check_rope"]

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
