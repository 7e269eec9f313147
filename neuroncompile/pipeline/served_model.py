"""The models whose weights a program is served with: pinned, and held against the program.

A fine-tune of the model that was compiled will do; anything that would have had another key will
not, since its weights would be read by graphs of other shapes or other arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.keys.exclusions import MODEL_EXCLUSIONS, without
from neuroncompile.keys.explain import differences
from neuroncompile.models import PinnedModel
from neuroncompile.output import Output
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.settings import Settings

__all__ = ["checkpoint_directory", "served_draft", "served_model"]


def served_model(
    reference: str,
    revision: str | None,
    spec: Mapping[str, Any],
    settings: Settings,
    output: Output,
) -> PinnedModel:
    """The model behind `reference`, which the program must have been compiled for.

    Raises:
        ModelError: it cannot be had or read.
        ConfigError: a field that counts differs.
    """
    model = _resolved(reference, revision, settings, output)
    normal = _normal(model, spec)
    if normal is not None:
        _check(model, "model", spec["model"], normal, spec)
    return model


def served_draft(
    reference: str,
    target: PinnedModel,
    spec: Mapping[str, Any],
    settings: Settings,
    output: Output,
) -> PinnedModel:
    """The same of a draft; "self" is the target.

    Raises:
        ModelError: it cannot be had or read.
        ConfigError: a field that counts differs.
    """
    from neuroncompile.pipeline.companions import SELF, normal_draft

    draft = target
    if reference not in (SELF, target.reference):
        draft = _resolved(reference, None, settings, output)
    normal = _normal(target, spec)
    if normal is not None:
        eagle = bool(spec["neuron"].get("enable_eagle_speculation"))
        own = normal_draft(draft, target, normal, eagle=eagle)
        _check(draft, "draft.model", spec["draft"]["model"], own, spec)
    return draft


def checkpoint_directory(
    model: PinnedModel, settings: Settings, output: Output, *, fetch: bool
) -> str:
    """The directory that holds a model's weights on this host.

    Args:
        fetch: they are loaded from there; otherwise the path is a name only.

    Raises:
        ConfigError: a GGUF, which NxD Inference does not read.
        ModelError: they cannot be had.
    """
    from neuroncompile import models

    if not fetch:  # shipped in ranks: the loader then asks for no checkpoint
        paths = [weight.path for weight in model.weights if weight.path is not None]
        is_local = model.weights_format == "safetensors" and bool(paths)
        return str(paths[0].parent) if is_local and paths[0] is not None else model.reference
    if model.weights_format == "gguf":
        raise ConfigError(
            "NxD Inference loads safetensors, and this model is a GGUF",
            field="--model",
            value=model.name,
            legal="a model in safetensors",
            hint="ship its weights with --shards (after build --shard)",
        )
    model = models.fetch_weights(model, settings, progress=Transfer(output))
    return str(next(w.path for w in model.weights if w.path is not None).parent)


def _resolved(
    reference: str, revision: str | None, settings: Settings, output: Output
) -> PinnedModel:
    from neuroncompile import models

    return models.resolve(reference, settings, revision=revision, progress=Transfer(output))


def _normal(model: PinnedModel, spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Its normalised config; None for a family that only the user's own class knows."""
    from neuroncompile.models.architecture import architecture_of, normalise

    try:
        architecture = architecture_of(model.config)
    except ModelError:
        if "class" in spec["model"]:
            return None
        raise
    return {**normalise(model.config, architecture), "architectures": [architecture.name]}


def _check(
    model: PinnedModel,
    part: str,
    kept: Mapping[str, Any],
    normal: Mapping[str, Any],
    spec: Mapping[str, Any],
) -> None:
    from neuroncompile.keys import canonical

    compiled = {name: value for name, value in kept.items() if name != "class"}
    fused = bool(spec["neuron"].get("enable_fused_speculation"))
    own = canonical(without(normal, MODEL_EXCLUSIONS, fused_speculation=fused))
    told = differences({part: compiled}, {part: own})
    if not told:
        return
    first = told[0]
    raise ConfigError(
        f"{model.name} is not what this program was compiled for: "
        + ", ".join(f"{d.path} {d.left!r} compiled, {d.right!r} here" for d in told[:4]),
        field=first.path,
        value=first.right,
        legal=first.left,
        hint="name the model it was built with, or a fine-tune of it; build this one otherwise",
    )
