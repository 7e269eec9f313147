"""What a plan is about: a model's config, and the program asked for, without a weight being read.

Where a key can be had, the plan is `build --dry-run`'s. Where it cannot, because there are no
weights, the family is not compiled by this version or nothing names a toolchain, the
configuration is still resolved and checked by the same rules, and the reason is kept.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.backends import Graph, backend_for
from neuroncompile.config import NeuronConfig, Recipe, Toolchain, check_config
from neuroncompile.config.dimensions import Dimensions, dimensions_of
from neuroncompile.errors import ModelError, ToolchainError
from neuroncompile.hardware.targets import Target, parse_target
from neuroncompile.models import Progress
from neuroncompile.pipeline.effective import effective_config
from neuroncompile.pipeline.plan import Plan, make_plan
from neuroncompile.pipeline.recipes import recipe_of, target_of
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

__all__ = ["Subject", "Variant", "draft_dimensions", "load_subject"]

ASSUMED_SDK = {"trn1": "sdk-2.28", "trn1n": "sdk-2.28", "inf2": "sdk-2.28"}
NEWEST_CHECKED = "sdk-2.29"
"""The last SDK for these targets, and the last one with public source, for a plan that names no
toolchain: sizes do not depend on it, so only the key is left out."""


class Variant(NamedTuple):
    """One configuration of a subject.

    Attributes:
        config: effective keywords, `config.target` with its LNC.
        warnings: of the configuration rules.
    """

    config: NeuronConfig
    warnings: tuple[str, ...]

    @property
    def target(self) -> Target:
        return self.config.target

    @property
    def ranks(self) -> int:
        """Logical cores that the program runs on."""
        config = self.config
        degrees = (config["tp_degree"], config.get("pp_degree", 1), config.get("ep_degree", 1))
        world: int = config.get("world_size", degrees[0] * degrees[1] * degrees[2])
        return world


class Subject(NamedTuple):
    """A model and a request, sized.

    Attributes:
        name: the model, for people.
        model: its sizes.
        raw: config.json as found.
        config: the same, normalised where the family is known.
        dtype: of the checkpoint, or None.
        on_disk: bytes of its weight files, or None where they are not known.
        variant: the configuration asked for.
        plan: with its key, or None with `no_key` saying why.
        toolchain: whose SDK's limits hold, or None where no plan was made.
    """

    request: BuildRequest
    recipe: Recipe | None
    name: str
    model: Dimensions
    raw: Mapping[str, Any]
    config: Mapping[str, Any]
    dtype: str | None
    on_disk: int | None
    variant: Variant
    plan: Plan | None
    no_key: str | None
    toolchain: Toolchain | None = None

    def vary(self, sets: Sequence[str] = (), target: str | None = None) -> Variant:
        """The request with these `--set`s added, and perhaps for another target.

        Raises:
            ConfigError: the rules refuse it.
        """
        request = self.request._replace(
            sets=(*self.request.sets, *sets), target=target or self.request.target
        )
        toolchain = self.toolchain
        if (
            target
            and self.plan is None
            and parse_target(target).platform != self.variant.target.platform
        ):
            toolchain = None  # it was assumed for this platform; another one has its own
        return _variant(request, self.recipe, self.config, self.dtype, toolchain)

    def graphs(self, variant: Variant | None = None) -> list[Graph]:
        """Graphs to compile, by the backend's own list."""
        variant = variant or self.variant
        backend = backend_for(variant.target.platform)
        if self.plan is not None and variant is self.variant:
            return backend.graphs(self.plan.spec)
        return backend.graphs(
            {
                "model": self.config,
                "neuron": variant.config.plain(),
                "target": variant.target.spec(),
                "optlevel": self.request.optlevel or backend.default_optlevel,
                "toolchain": {},  # it decides the graphs' keys, and these have none
            }
        )


def load_subject(
    request: BuildRequest, settings: Settings, *, progress: Progress | None = None
) -> Subject:
    """Find the model's config and resolve the program asked for.

    Raises:
        ModelError: no config.json and no facts.
        ConfigError: a refused value or combination.
    """
    path = _config_file(request.model)
    alone = path is not None and not _has_weights(path)
    try:
        return _planned(request, settings, progress)
    except ToolchainError as error:
        target, _ = target_of(request, None if path else recipe_of(request.model))
        if request.toolchain is not None or settings.toolchain is not None or not target.is_cpu:
            raise
        why = str(error)  # no compiler is installed, and sizes need none
    except ModelError as error:
        if not alone and "supported" not in error.details:
            raise
        why = "no weights are there" if alone else str(error)
    recipe = None if path else recipe_of(request.model)
    raw = _raw_config(request.model, recipe, path, settings, request.revision)
    return _from_config(request, recipe, raw, why)


def _planned(request: BuildRequest, settings: Settings, progress: Progress | None) -> Subject:
    """With its key, or without one where nothing names a toolchain."""
    try:
        return _from_plan(request, settings, progress)
    except ToolchainError:
        recipe = None if _config_file(request.model) else recipe_of(request.model)
        target, _ = target_of(request, recipe)
        named = request.toolchain is not None or settings.toolchain is not None
        if named or target.is_cpu:
            raise
    assumed = ASSUMED_SDK.get(target.platform, NEWEST_CHECKED)
    subject = _from_plan(request._replace(toolchain=assumed), settings, progress)
    why = f"nothing names a toolchain; name one with --toolchain, such as {assumed}"
    return subject._replace(request=request, plan=None, no_key=why)


def draft_dimensions(reference: str, settings: Settings) -> Dimensions:
    """Sizes of a draft model, by the same kinds of reference.

    Raises:
        ModelError: no config.json and no facts.
    """
    path = _config_file(reference)
    recipe = None if path else recipe_of(reference)
    return dimensions_of(_raw_config(reference, recipe, path, settings, None))


def _raw_config(
    reference: str,
    recipe: Recipe | None,
    path: Path | None,
    settings: Settings,
    revision: str | None,
) -> Mapping[str, Any]:
    """A model's config.json, of whatever family: a file's, a recipe's facts, or the hub's."""
    if path is not None:
        return _read(path)
    if recipe is not None and recipe.facts:
        return recipe.facts
    from neuroncompile import models

    named = reference if recipe is None or recipe.model_ref is None else recipe.model_ref
    return models.resolve(named, settings, revision=revision).config


def _from_plan(request: BuildRequest, settings: Settings, progress: Progress | None) -> Subject:
    plan = make_plan(request, settings, progress=progress, from_facts=True)
    sizes = [weight.size for weight in plan.model.weights]
    known = plan.model.weights_format == "safetensors" and sizes and all(sizes)
    return Subject(
        request=request,
        recipe=plan.recipe,
        name=plan.model.name,
        model=dimensions_of(plan.model.config),
        raw=plan.model.config,
        config=plan.spec["model"],
        dtype=plan.model.dtype,
        on_disk=sum(sizes) if known else None,
        variant=Variant(plan.config, plan.warnings),
        plan=plan,
        no_key=None,
        toolchain=plan.toolchain,
    )


def _from_config(
    request: BuildRequest, recipe: Recipe | None, raw: Mapping[str, Any], why: str
) -> Subject:
    """Sizes from a config.json alone, of whatever family."""
    from neuroncompile.models.architecture import architecture_of, normalise

    try:
        config: Mapping[str, Any] = {
            **normalise(raw),
            "architectures": [architecture_of(raw).name],
        }
    except ModelError:
        target, _ = target_of(request, recipe)
        if target.is_cpu:  # its graphs are this version's own, so it must know the family
            raise
        model = dimensions_of(raw)
        config = {
            **raw,
            "num_attention_heads": model.heads,
            "num_key_value_heads": model.heads if model.latent else model.kv_heads,
        }
    dtype = config.get("dtype", config.get("torch_dtype"))
    dtype = dtype.removeprefix("torch.") if isinstance(dtype, str) else None
    variant = _variant(request, recipe, config, dtype, None)
    backend_for(variant.target.platform).check(variant.config.plain(), raw)
    return Subject(
        request=request,
        recipe=recipe,
        name=recipe.name if recipe is not None else request.model,
        model=dimensions_of(raw),
        raw=raw,
        config=config,
        dtype=dtype,
        on_disk=None,
        variant=variant,
        plan=None,
        no_key=why,
    )


def _variant(
    request: BuildRequest,
    recipe: Recipe | None,
    model: Mapping[str, Any],
    dtype: str | None,
    toolchain: Toolchain | None,
) -> Variant:
    target, _ = target_of(request, recipe)
    config = effective_config(request, recipe, target, model=model, model_dtype=dtype)
    warnings = check_config(
        config,
        model=model,
        target=config.target,
        toolchain=toolchain,
        allow_head_padding=request.allow_head_padding,
    )
    return Variant(config, tuple(warnings))


def _config_file(reference: str) -> Path | None:
    """The config.json that a path names, itself or in its directory."""
    if not reference.startswith((".", "/", "~")):
        return None
    path = Path(os.path.expanduser(reference))
    if path.suffix == ".json" and path.is_file():
        return path
    return path / "config.json" if (path / "config.json").is_file() else None


def _has_weights(config: Path) -> bool:
    return config.name == "config.json" and any(config.parent.glob("*.safetensors*"))


def _read(path: Path) -> dict[str, Any]:
    from neuroncompile.models.metadata import read_object

    return read_object(path)
