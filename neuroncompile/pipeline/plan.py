"""From what a user asked for to a key: model, target, toolchain, config, spec.

Nothing here compiles, reads weights or imports torch. `build`, `run`, `--dry-run`, `--check`
and the Python API all go through `make_plan`, so they cannot disagree about a key.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from neuroncompile.backends import Backend, backend_for
from neuroncompile.config import NeuronConfig, Recipe, Toolchain
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target, parse_target
from neuroncompile.models import PinnedModel, Progress
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

__all__ = ["Plan", "make_plan", "recipe_of", "target_of"]


class Plan(NamedTuple):
    """Everything that decides a program, resolved.

    Attributes:
        request: what was asked for.
        model: the pinned model; its weights may not be fetched yet.
        recipe: the recipe, if one was named.
        target: what is compiled for.
        target_origin: which layer chose the target.
        toolchain: the compiler's identity.
        config: effective neuron config with origins.
        backend: "cpu" or "nxdi".
        optlevel: as hashed; None leaves it to the vendor.
        spec: the compile spec.
        key: SHA-256 of the spec's canonical bytes, 64 hex digits.
        warnings: what a user should know before building.
    """

    request: BuildRequest
    model: PinnedModel
    recipe: Recipe | None
    target: Target
    target_origin: str
    toolchain: Toolchain
    config: NeuronConfig
    backend: str
    optlevel: str | None
    spec: Mapping[str, Any]
    key: str
    warnings: tuple[str, ...] = ()


def make_plan(
    request: BuildRequest,
    settings: Settings,
    *,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
    from_facts: bool = False,
    will_compile: bool = False,
) -> Plan:
    """Resolve a request to a plan with its key.

    Args:
        progress: told about downloads and hashing.
        before_download: called once before the first byte of a model is fetched; what it
            raises stops the plan.
        will_compile: refuse at once a target that this version does not compile for.
        from_facts: a recipe's `[model] facts` will do where the model is not at hand.

    Raises:
        ModelError: the model cannot be had or read.
        ConfigError: a refused value or combination.
        ToolchainError: no toolchain names the compiler.
    """
    from neuroncompile.config import check_config, resolve_config
    from neuroncompile.keys import compile_spec, spec_key
    from neuroncompile.models.architecture import architecture_of, normalise

    recipe = recipe_of(request.model)
    target, target_origin = target_of(request, recipe)
    backend = backend_for(target.platform)
    if will_compile and not target.is_cpu:
        backend.preflight()
    toolchain = _toolchain(backend, request, settings, recipe)
    _early(request, recipe, target)
    model = _model(request, recipe, settings, progress, before_download, from_facts)
    architecture = architecture_of(model.config)
    normal = normalise(model.config)
    overrides, notices = _overrides(request)
    config = resolve_config(
        model=normal,
        model_dtype=model.dtype,
        target=target,
        base=_base(request, target, normal.get("max_position_embeddings")),
        recipe=recipe,
        flags=request.flags,
        overrides=overrides,
        sets=request.sets,
        allow_unknown=request.allow_unknown,
        environ=os.environ,
    )
    if request.vllm and config.origin("torch_dtype") == "model":
        notices.append(
            f"the weights stay {config['torch_dtype']}, as the checkpoint has them; "
            "vLLM's own dtype auto is float32"
        )
    warnings = notices + list(
        check_config(
            config,
            model=normal,
            target=config.target,
            toolchain=toolchain,
            allow_head_padding=request.allow_head_padding,
        )
    )
    backend.check(config.plain(), model.config)
    if model.source == "facts":
        warnings.append(
            "the key is computed from the recipe's facts; a field of the model's own config.json "
            "that they leave out would change it"
        )
    optlevel = _optlevel(backend, request.optlevel)
    spec = compile_spec(
        backend=backend.name,
        model={**normal, "architectures": [architecture.name]},
        neuron=config.plain(),
        compiler={"args": _compiler_args(backend.name), "env": _compiler_env(target)},
        optlevel=optlevel,
        target=config.target.spec(),
        toolchain=toolchain.spec(),
        fused_speculation=bool(config.get("enable_fused_speculation")),
    )
    return Plan(
        request=request,
        model=model,
        recipe=recipe,
        target=config.target,
        target_origin=target_origin,
        toolchain=toolchain,
        config=config,
        backend=backend.name,
        optlevel=optlevel,
        spec=spec,
        key=spec_key(spec),
        warnings=tuple(warnings),
    )


def _early(request: BuildRequest, recipe: Recipe | None, target: Target) -> None:
    """Refuse a misspelt keyword or an illegal value before a model is looked for."""
    from neuroncompile.config import resolve_config

    resolve_config(
        model={},
        model_dtype=None,
        target=target,
        base=_base(request, target, None),
        recipe=recipe,
        flags=request.flags,
        overrides=_overrides(request)[0],
        sets=request.sets,
        allow_unknown=request.allow_unknown,
        environ=os.environ,
    )
    _optlevel(backend_for(target.platform), request.optlevel)


def _base(
    request: BuildRequest, target: Target, positions: Any
) -> dict[str, tuple[str, Any]] | None:
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


def recipe_of(reference: str) -> Recipe | None:
    """The recipe, or the point of its matrix, that a reference names; None when it names a model.

    Raises:
        ModelNotFoundError: no such recipe, with the nearest.
        ConfigError: malformed, or asking for what this version does not do.
    """
    from neuroncompile.config import find_cell, find_recipe, load_recipe

    recipe = find_cell(reference) if reference.endswith("]") else None
    if recipe is None:
        named = "/" not in reference and ":" not in reference
        named = named and not reference.startswith((".", "~"))
        is_recipe = reference.endswith(".toml") or (named and not reference.endswith(".gguf"))
        if not is_recipe and find_recipe(reference) is None:
            return None
        recipe = load_recipe(reference)  # names the nearest recipe when there is none
    for table, meaning in (("draft", "speculation with a draft model"), ("adapters", "LoRA")):
        if getattr(recipe, table):
            raise ConfigError(
                f"recipe {recipe.name} has a [{table}] table, and {meaning} is not part of this "
                "version",
                field=table,
                value=sorted(getattr(recipe, table)),
                legal="none",
                hint=f"leave [{table}] out of {recipe.path}",
            )
    if recipe.matrix:
        raise _many(recipe, reference)
    return recipe


def _many(recipe: Recipe, reference: str) -> ConfigError:
    from neuroncompile.config import expand

    names = [reference + cell.name.removeprefix(recipe.name) for cell in expand(recipe)]
    return ConfigError(
        f"recipe {recipe.name} has a [matrix] of {len(names)} programs, and this command takes one",
        field="matrix",
        value=sorted(recipe.matrix),
        legal=names,
        hint=f"`neuroncompile prewarm {reference}` builds them all; '{names[0]}' names one",
    )


def target_of(request: BuildRequest, recipe: Recipe | None) -> tuple[Target, str]:
    """What is compiled for, and the layer that chose it."""
    if request.target:
        return parse_target(request.target), "flag --target"
    if recipe is not None and recipe.target is not None:
        return recipe.target, f"recipe {recipe.name}"
    return parse_target("cpu"), "default"


def _toolchain(
    backend: Backend, request: BuildRequest, settings: Settings, recipe: Recipe | None
) -> Toolchain:
    from neuroncompile.config import load_toolchain, resolve_toolchain

    if request.toolchain is None and settings.toolchain is not None:
        named = load_toolchain(settings.toolchain, origin="NEURONCOMPILE_TOOLCHAIN or settings")
        if named.backend == backend.name:  # one for another backend is not meant for this build
            return named
    return resolve_toolchain(
        backend.name, flag=request.toolchain, recipe=recipe, identity=backend.identity()
    )


def _model(
    request: BuildRequest,
    recipe: Recipe | None,
    settings: Settings,
    progress: Progress | None,
    before_download: Callable[[], None] | None,
    from_facts: bool,
) -> PinnedModel:
    from neuroncompile import models

    reference, revision, digests = request.model, request.revision, None
    if recipe is not None:
        if recipe.model_ref is None:
            raise ConfigError(
                f"recipe {recipe.name} names no model",
                field="model.ref",
                hint=f'add ref = "org/name" under [model] in {recipe.path}',
            )
        reference = recipe.model_ref
        revision = revision or recipe.revision
        digests = recipe.digests or None
        if from_facts and recipe.facts:
            found = models.cached(reference, settings, digests=digests, revision=revision)
            return found or models.from_facts(recipe.facts, recipe.name)
    return models.resolve(
        reference,
        settings,
        digests=digests,
        revision=revision,
        progress=progress,
        before_download=before_download,
    )


def _compiler_args(backend: str) -> list[str]:
    """NEURON_CC_FLAGS reaches neuronx-cc, so it enters the key; g++ never sees it."""
    flags = os.environ.get("NEURON_CC_FLAGS") if backend == "nxdi" else None
    if not flags:
        return []
    from neuroncompile.keys import compiler_flags

    return compiler_flags(flags)


def _compiler_env(target: Target) -> dict[str, str]:
    """Variables that the compiler's process is given, since they change what it makes."""
    if target.is_cpu:
        return {}
    from neuroncompile.config.environment import read_environment

    return dict(read_environment(os.environ, target).variables)


def _optlevel(backend: Backend, asked: str | None) -> str | None:
    if asked is None:
        return backend.default_optlevel
    if asked not in backend.optlevels:
        raise ConfigError(
            f"-O{asked} is not a level of the {backend.name} backend",
            field="optlevel",
            value=asked,
            legal=list(backend.optlevels),
            hint="use " + " or ".join(f"-O{level}" for level in backend.optlevels),
        )
    return asked
