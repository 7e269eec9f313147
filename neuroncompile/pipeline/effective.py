"""The effective neuron config of a request: every layer it has, in order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from neuroncompile.config import NeuronConfig, Recipe, resolve_config
from neuroncompile.hardware.targets import Target
from neuroncompile.pipeline.request import BuildRequest

__all__ = ["compiler_inputs", "effective_config", "notices"]


def effective_config(
    request: BuildRequest,
    recipe: Recipe | None,
    target: Target,
    *,
    model: Mapping[str, Any],
    model_dtype: str | None,
) -> NeuronConfig:
    """All layers merged, defaults filled in; with an empty `model` all that needs no model.

    Args:
        model: normalised Hugging Face config.
        model_dtype: the checkpoint's own.

    Raises:
        ConfigError: a refused keyword, value or variable of the environment.
    """
    return resolve_config(
        model=model,
        model_dtype=model_dtype,
        target=target,
        base=_base(request, target, model.get("max_position_embeddings")),
        recipe=recipe if request.artifact is None else None,
        flags=request.flags,
        overrides=_overrides(request)[0],
        sets=request.sets,
        # what an artifact holds is known to its builder; a typo contradicts it anyway
        allow_unknown=request.allow_unknown or request.artifact is not None,
        environ=os.environ,
    )


def notices(request: BuildRequest, config: NeuronConfig) -> list[str]:
    """What was read otherwise than vLLM would, one line each."""
    found = _overrides(request)[1]
    if request.vllm and config.origin("torch_dtype") == "model":
        found.append(
            f"the weights stay {config['torch_dtype']}, as the checkpoint has them; "
            "vLLM's own dtype auto is float32"
        )
    return found


def compiler_inputs(target: Target) -> dict[str, Any]:
    """The spec's `compiler`: what of the environment reaches neuronx-cc; g++ sees nothing of it."""
    if target.is_cpu:
        return {"args": [], "env": {}}
    from neuroncompile.config.environment import read_environment
    from neuroncompile.keys import compiler_flags

    return {
        "args": compiler_flags(os.environ.get("NEURON_CC_FLAGS", "")),
        "env": dict(read_environment(os.environ, target).variables),
    }


def _base(
    request: BuildRequest, target: Target, positions: Any
) -> dict[str, tuple[str, Any]] | None:
    if request.artifact is not None:
        from neuroncompile.pipeline.artifact import config_of

        return config_of(request.artifact)
    if not request.vllm:
        return None
    from neuroncompile.config.vllm import vllm_layer

    layer = vllm_layer(
        target,
        positions=positions if isinstance(positions, int) else None,
        speculative_tokens=request.num_speculative_tokens,
    )
    origins = {
        "speculation_length": "flag --num-speculative-tokens",
        "seq_len": f"vLLM default, the model's {positions} positions",
    }
    return {name: (origins.get(name, "vLLM default"), value) for name, value in layer.items()}


def _overrides(request: BuildRequest) -> tuple[list[dict[str, Any]], list[str]]:
    """The tables of `--override-neuron-config`, and a line for what is read differently."""
    if not request.overrides:
        return [], []
    from neuroncompile.config.assignments import parse_table
    from neuroncompile.config.vllm import override_layer

    tables, notices = [], []
    for text in request.overrides:
        table, notice = override_layer(parse_table(text, option="--override-neuron-config"))
        tables.append(table)
        notices += [notice] if notice else []
    return tables, notices
