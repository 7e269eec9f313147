"""Random configs in both spellings: one model is one key, another number another one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from neuroncompile.keys import compile_spec, spec_key
from neuroncompile.models.architecture import ARCHITECTURES, architecture_of, normalise
from neuroncompile.models.families import DEFAULTS

RANDOM = 60
"""Configs of each family."""

FAMILIES = sorted(set(DEFAULTS) - {"gemma3"})  # whose two sets are in test_rope


def key(config: dict[str, Any]) -> str:
    return spec_key(
        compile_spec(
            backend="nxdi",
            model={**normalise(config), "architectures": [architecture_of(config).name]},
            neuron={"seq_len": 64},
            compiler={"args": [], "env": {}},
            optlevel=None,
            target={"platform": "trn2", "lnc": 2},
            toolchain={"neuronx-cc": "2.24"},
        )
    )


def architecture(family: str) -> str:
    return next(a.name for a in ARCHITECTURES.values() if a.family == family)


def drawn(family: str, rng: random.Random) -> dict[str, Any]:
    """A config as version 4 writes it."""
    heads = rng.choice([4, 8, 16])
    config: dict[str, Any] = {
        "architectures": [architecture(family)],
        "vocab_size": rng.randrange(64, 200_000),
        "hidden_size": heads * rng.choice([16, 32, 64]),
        "intermediate_size": rng.randrange(64, 4096),
        "num_hidden_layers": rng.randrange(2, 12),
        "num_attention_heads": heads,
        "num_key_value_heads": rng.choice([1, 2, 4]),
        "torch_dtype": rng.choice(["bfloat16", "float16", "torch.float32"]),
        "rope_theta": rng.choice([10000.0, 500000, 1e6]),
        "rope_scaling": rng.choice(
            [
                None,
                {"type": "linear", "factor": rng.choice([2.0, 8.0])},
                {
                    "rope_type": "llama3",
                    "factor": 8.0,
                    "low_freq_factor": 1.0,
                    "high_freq_factor": 4.0,
                    "original_max_position_embeddings": 8192,
                },
            ]
        ),
    }
    for name, value in DEFAULTS[family].items():
        if rng.random() < 0.3:
            config.setdefault(name, value)  # spelt out, as some files do
    return config


def as_five(config: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """The same as version 5 writes it, in another order and with its notes."""
    new = dict(config)
    new["dtype"] = new.pop("torch_dtype").removeprefix("torch.")
    scaling = dict(new.pop("rope_scaling") or {})
    kind = scaling.pop("type", None) or scaling.get("rope_type", "default")
    if not (config["rope_scaling"] is None and config["architectures"] == ["GptOssForCausalLM"]):
        scaling = {**scaling, "rope_type": kind}
        new["rope_parameters"] = {**scaling, "rope_theta": float(new.pop("rope_theta"))}
    new |= {"transformers_version": "5.24.0", "_name_or_path": "/elsewhere", "use_cache": True}
    items = list(new.items())
    rng.shuffle(items)
    return dict(items)


@pytest.mark.parametrize("family", FAMILIES)
def test_one_model_is_one_key(family: str) -> None:
    rng = random.Random(family)
    for _ in range(RANDOM):
        old = drawn(family, rng)
        new = as_five(old, rng)
        assert key(old) == key(new), (old, new)


@pytest.mark.parametrize("family", ["mllama", "qwen2_vl", "qwen3_vl"])
def test_a_nested_language_model_is_the_same_model(family: str) -> None:
    rng = random.Random(family)
    for _ in range(RANDOM):
        flat = drawn(family, rng)
        outer = {"architectures": flat["architectures"]}
        inner = {name: value for name, value in flat.items() if name != "architectures"}
        assert key({**outer, "text_config": inner}) == key(flat)


@pytest.mark.parametrize("family", FAMILIES)
def test_another_number_is_another_key(family: str) -> None:
    rng = random.Random(family)
    for _ in range(RANDOM):
        config = drawn(family, rng)
        normal = normalise(config)
        follows = {"architectures", "dtype", "model_type"}
        if not normal.get("use_sliding_window", True):
            follows.add("sliding_window")  # which is off
        name = rng.choice([n for n in normal if n not in follows])
        assert key({**normal, name: changed(normal[name])}) != key(config), name


def changed(value: Any) -> Any:
    """Another value of the same kind."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case str():
            return f"{value}x"
        case list():
            return [*value[:-1], changed(value[-1])] if value else [1]
        case dict():
            first = next(iter(value))
            return {**value, first: changed(value[first])}
    return 7
