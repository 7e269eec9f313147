"""Rotary forms: one spelling, and those that mean nothing refused."""

from __future__ import annotations

from typing import Any

import pytest

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models.architecture import normalise, shape_of
from neuroncompile.models.families import ARCHITECTURES
from neuroncompile.models.rope import check_rope

SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
LLAMA3 = {
    "factor": 32.0,
    "high_freq_factor": 4.0,
    "low_freq_factor": 1.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def llama(**fields: Any) -> dict[str, Any]:
    return normalise({"model_type": "llama", **SIZES, **fields})


def refusal(normal: dict[str, Any], family: str | None = None) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        check_rope(normal, family)
    assert raised.value.legal
    assert raised.value.hint
    return raised.value


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"rope_scaling": None}, {"rope_type": "default", "rope_theta": 10000.0}),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0}},
            {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0},
        ),
        (
            {"rope_scaling": {"rope_type": "linear", "factor": 8.0}, "rope_theta": 5e5},
            {"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
        ),
        ({"rope_scaling": LLAMA3, "rope_theta": 5e5}, {**LLAMA3, "rope_theta": 5e5}),
        (
            {
                "rope_scaling": {
                    "rope_type": "yarn",
                    "factor": 4.0,
                    "original_max_position_embeddings": 32768,
                }
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 32768,
                "rope_theta": 10000.0,
            },
        ),
        (
            {"rope_scaling": {"type": "dynamic", "factor": 2.0}},
            {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        ),
        ({"rope_theta": 1000000.0}, {"rope_type": "default", "rope_theta": 1000000.0}),
    ],
    ids=["null", "type", "linear", "llama3", "yarn", "dynamic", "theta"],
)
def test_both_spellings_are_one(old: dict[str, Any], new: dict[str, Any]) -> None:
    normal = llama(**old)
    assert normal["rope_parameters"] == new
    assert normal == llama(rope_parameters=new)
    check_rope(normal, "llama")  # NxDI's Llama hands the rest to transformers' class


def test_a_factor_without_a_kind_is_refused() -> None:
    error = refusal(llama(rope_scaling={"factor": 8.0}))
    assert error.field == "rope_parameters.rope_type"
    assert "factor" in str(error)
    assert set(error.legal) == {"linear", "dynamic", "yarn", "llama3"}


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({"rope_type": "shiny", "factor": 8.0}, "rope_type"),
        ({"rope_type": "linear"}, "factor"),
        ({"rope_type": "dynamic"}, "factor"),
        ({"rope_type": "yarn", "factor": 4.0}, "original_max_position_embeddings"),
        ({k: v for k, v in LLAMA3.items() if k != "low_freq_factor"}, "low_freq_factor"),
    ],
)
def test_what_is_incomplete_is_named(scaling: dict[str, Any], field: str) -> None:
    error = refusal(llama(rope_scaling=scaling))
    assert error.field == f"rope_parameters.{field}"
    assert field in str(error)


@pytest.mark.parametrize(
    ("short", "long", "field"), [(4, 4, None), (3, 4, "short_factor"), (4, 8, "long_factor")]
)
def test_longrope_has_a_factor_for_each_pair(short: int, long: int, field: str | None) -> None:
    scaling = {"type": "longrope", "short_factor": [1.0] * short, "long_factor": [2.0] * long}
    normal = llama(rope_scaling=scaling, original_max_position_embeddings=4096)
    assert normal["rope_parameters"]["original_max_position_embeddings"] == 4096
    if field is None:
        check_rope(normal)
        return
    error = refusal(normal)
    assert error.field == f"rope_parameters.{field}"
    assert "4" in str(error)


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
        {"type": "dynamic", "factor": 2.0},
        {"type": "longrope", "short_factor": [1.0] * 4, "long_factor": [1.0] * 4},
        {"factor": 8.0},
    ],
)
def test_cpu_refuses_what_it_does_not_compute(scaling: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as raised:
        shape_of({"model_type": "llama", **SIZES, "rope_scaling": scaling})
    assert raised.value.field == "rope_parameters.rope_type"
    assert raised.value.legal == ["default", "linear", "llama3"] or "factor" in str(raised.value)


@pytest.mark.parametrize("family", ["mistral", "mixtral", "qwen2", "qwen3", "qwen3_moe"])
def test_a_scaling_that_nxdi_would_ignore_is_refused(family: str) -> None:
    config = {"model_type": family, **SIZES, "num_key_value_heads": 2}
    check_rope(normalise(config), family)
    scaled = normalise({**config, "rope_scaling": {"type": "linear", "factor": 2.0}})
    error = refusal(scaled, family)
    assert error.legal == ["default"]
    assert family in str(error)
    check_rope(scaled)  # with a class of the user's own it may be computed


def test_gemma3_has_a_set_for_each_kind_of_layer() -> None:
    config = {
        "model_type": "gemma3_text",
        **SIZES,
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    }
    normal = normalise(config)
    assert normal["rope_parameters"] == {
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    check_rope(normal, "gemma3")
    broken = {**config, "rope_scaling": {"factor": 8.0}}
    assert refusal(normalise(broken)).field == "rope_parameters.rope_type"


def test_a_rope_that_is_no_object_is_refused() -> None:
    with pytest.raises(ModelError, match="rope_scaling"):
        llama(rope_scaling="linear")


def test_every_family_with_defaults_has_a_sound_rope() -> None:
    families = {a.family: a for a in ARCHITECTURES.values()}
    for family, architecture in families.items():
        config = {"architectures": [architecture.name], **SIZES}
        check_rope(normalise(config), family)
