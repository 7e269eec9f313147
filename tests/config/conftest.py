from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from neuroncompile.config import NeuronConfig, Recipe, resolve_config
from neuroncompile.hardware.targets import parse_target

Resolve = Callable[..., NeuronConfig]

LLAMA = {
    "model_type": "llama",
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


@pytest.fixture
def llama() -> dict[str, Any]:
    return dict(LLAMA)


@pytest.fixture
def resolve() -> Resolve:
    def call(
        *sets: str,
        target: str = "cpu:x86-64-v3",
        model: dict[str, Any] | None = None,
        dtype: str | None = "bfloat16",
        flags: dict[str, tuple[str, Any]] | None = None,
        config: dict[str, Any] | None = None,
        environ: dict[str, str] | None = None,
        allow_unknown: bool = False,
    ) -> NeuronConfig:
        return resolve_config(
            model=LLAMA if model is None else model,
            model_dtype=dtype,
            target=parse_target(target),
            recipe=None if config is None else recipe_of(config),
            flags=flags,
            sets=sets,
            allow_unknown=allow_unknown,
            environ=environ,
        )

    return call


def recipe_of(config: dict[str, Any], parents: Sequence[Path] = ()) -> Recipe:
    return Recipe(
        name="base",
        path=Path("base.toml"),
        parents=tuple(parents),
        model_ref=None,
        revision=None,
        digests={},
        facts={},
        target_table={},
        config=config,
        matrix={},
        toolchain={},
        draft={},
        adapters={},
        golden={},
    )
