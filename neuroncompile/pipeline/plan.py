"""From what a user asked for to a key: model, target, toolchain, config, spec.

Nothing here compiles, reads weights or imports torch. `build`, `run`, `--dry-run`, `--check`
and the Python API all go through `make_plan`, so they cannot disagree about a key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from neuroncompile.backends import Backend, backend_for
from neuroncompile.config import NeuronConfig, Recipe, Toolchain
from neuroncompile.errors import ConfigError
from neuroncompile.hardware.targets import Target
from neuroncompile.models import PinnedModel, Progress
from neuroncompile.pipeline.effective import compiler_inputs, effective_config, notices
from neuroncompile.pipeline.recipes import recipe_of, target_of
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

if TYPE_CHECKING:
    from neuroncompile.models.adapter import PinnedAdapter
    from neuroncompile.models.custom import CustomClass
    from neuroncompile.models.families import Architecture
    from neuroncompile.pipeline.companions import Draft
    from neuroncompile.pipeline.lock_command import Locked

__all__ = ["Plan", "architecture_for", "locked_for", "make_plan", "toolchain_of"]


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
        draft: the pinned draft, where the program has one; `model` itself where it is its own.
        draft_neuron: NxDI keywords of the draft.
        adapters: name → pinned LoRA adapter.
        custom: the class the user brings.
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
    draft: PinnedModel | None = None
    draft_neuron: Mapping[str, Any] = {}
    adapters: Mapping[str, PinnedAdapter] = {}
    custom: CustomClass | None = None

    def companions(self) -> dict[str, Any]:
        """What the program holds besides its model, as pinned; empty for most programs."""
        found: dict[str, Any] = {}
        if self.draft is not None:
            found["draft"] = {"model": self.draft.name, "revision": self.draft.revision}
        if self.adapters:
            found["adapters"] = {
                name: {
                    "reference": adapter.reference,
                    "revision": adapter.revision,
                    "rank": adapter.rank,
                }
                for name, adapter in self.adapters.items()
            }
        if self.custom is not None:
            found["class"] = self.custom.spec()
        return found


def make_plan(
    request: BuildRequest,
    settings: Settings,
    *,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
    from_facts: bool = False,
) -> Plan:
    """Resolve a request to a plan with its key.

    Args:
        progress: told about downloads and hashing.
        before_download: called once before the first byte of a model is fetched; what it
            raises stops the plan.
        from_facts: a recipe's `[model] facts` will do where the model is not at hand.

    Raises:
        ModelError: the model cannot be had or read.
        ConfigError: a refused value or combination.
        ToolchainError: no toolchain names the compiler.
    """
    from neuroncompile.config import check_config
    from neuroncompile.keys import compile_spec, spec_key
    from neuroncompile.models.architecture import normalise

    recipe = recipe_of(request.model)
    target, target_origin = target_of(request, recipe)
    backend = backend_for(target.platform)
    locked = locked_for(request, settings)
    if locked is not None and locked.entry is not None:
        pins = locked.entry.revisions
        reference = recipe.model_ref if recipe is not None else request.model
        request = request._replace(revision=request.revision or pins.get(str(reference)), pins=pins)
    toolchain = toolchain_of(backend, request, settings, recipe, locked)
    _early(request, recipe, target)
    fetching = _Fetching(settings, progress, before_download, from_facts)
    custom = _custom(request, recipe)
    model = _model(request, recipe, fetching)
    architecture = architecture_for(model, custom)
    normal = normalise(model.config, architecture)
    named = {**normal, "architectures": [architecture.name]}
    config, adapters = _config(request, recipe, target, model, normal, fetching)
    if not target.is_cpu:
        _check_family(architecture, normal, toolchain, custom, config["seq_len"])
    if request.artifact is not None:
        from neuroncompile.pipeline.artifact import check_config_of

        check_config_of(request.artifact, config)
    warnings = notices(request, config) + list(
        check_config(
            config,
            model=normal,
            target=config.target,
            toolchain=toolchain,
            allow_head_padding=request.allow_head_padding,
        )
    )
    backend.check(config.plain(), model.config)
    draft = _draft(request, recipe, model, named, config, fetching)
    if draft is not None and draft.warning:
        warnings.append(draft.warning)
    if model.source == "facts":
        warnings.append(
            "the key is computed from the recipe's facts; a field of the model's own config.json "
            "that they leave out would change it"
        )
    optlevel = _optlevel(backend, request)
    spec = compile_spec(
        backend=backend.name,
        model=named if custom is None else {**named, "class": custom.spec()},
        neuron=config.plain(),
        compiler=compiler_inputs(target),
        optlevel=optlevel,
        target=config.target.spec(),
        toolchain=toolchain.spec(),
        fused_speculation=bool(config.get("enable_fused_speculation")),
        draft=draft.spec if draft is not None else None,
    )
    key = spec_key(spec)
    if request.locked and locked is not None:
        from neuroncompile.pipeline.lock_command import check_locked

        check_locked(locked, spec, key)
    if request.artifact is not None:
        from neuroncompile.pipeline.artifact import check_chosen

        check_chosen(request.artifact, spec, key)
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
        key=key,
        warnings=tuple(warnings),
        draft=draft.model if draft is not None else None,
        draft_neuron=draft.spec["neuron"] if draft is not None else {},
        adapters=adapters,
        custom=custom,
    )


class _Fetching(NamedTuple):
    """How models are had; fields as `make_plan`'s arguments."""

    settings: Settings
    progress: Progress | None
    before_download: Callable[[], None] | None
    from_facts: bool


def _companions(request: BuildRequest, recipe: Recipe | None) -> bool:
    return request.has_companions or (
        recipe is not None and bool(recipe.draft or recipe.adapters or recipe.model_class)
    )


def _custom(request: BuildRequest, recipe: Recipe | None) -> CustomClass | None:
    if not _companions(request, recipe):
        return None
    from neuroncompile.pipeline.companions import custom_class

    return custom_class(request, recipe)


def architecture_for(model: PinnedModel, custom: CustomClass | None) -> Architecture:
    """What the model's config asks for, or the class that the user brings."""
    from neuroncompile.models.architecture import architecture_of

    if custom is None:
        return architecture_of(model.config)
    from neuroncompile.models.custom import custom_architecture

    return custom_architecture(model.config, custom)


def _check_family(
    architecture: Architecture,
    normal: Mapping[str, Any],
    toolchain: Toolchain,
    custom: CustomClass | None,
    seq_len: int,
) -> None:
    """Whether NxDI has the family, and computes what its config says."""
    from neuroncompile.models.families import check_release
    from neuroncompile.models.rope import check_rope

    if custom is None:
        version = toolchain.packages.get("neuronx-distributed-inference")
        check_release(architecture, version, normal, seq_len=seq_len)
    check_rope(normal, architecture.family if custom is None else None)


def _config(
    request: BuildRequest,
    recipe: Recipe | None,
    target: Target,
    model: PinnedModel,
    normal: Mapping[str, Any],
    fetching: _Fetching,
) -> tuple[NeuronConfig, Mapping[str, PinnedAdapter]]:
    """The effective config, with what adapters say about it, and the adapters."""
    config = effective_config(request, recipe, target, model=normal, model_dtype=model.dtype)
    if not request.adapters and (recipe is None or not recipe.adapters):
        return config, {}
    from neuroncompile.pipeline.companions import adapter_flags, adapters_of, check_adapters

    adapters = adapters_of(
        request,
        recipe,
        fetching.settings,
        progress=fetching.progress,
        before_download=fetching.before_download,
    )
    more = {**adapter_flags(adapters, config), **request.flags}
    config = effective_config(
        request._replace(flags=more), recipe, target, model=normal, model_dtype=model.dtype
    )
    check_adapters(adapters, config)
    return config, adapters


def _draft(
    request: BuildRequest,
    recipe: Recipe | None,
    model: PinnedModel,
    named: Mapping[str, Any],
    config: NeuronConfig,
    fetching: _Fetching,
) -> Draft | None:
    if not request.draft and (recipe is None or not recipe.draft):
        return None
    from neuroncompile.pipeline.companions import draft_of

    return draft_of(
        request,
        recipe,
        model,
        named,
        config,
        fetching.settings,
        progress=fetching.progress,
        before_download=fetching.before_download,
        from_facts=fetching.from_facts,
    )


def _early(request: BuildRequest, recipe: Recipe | None, target: Target) -> None:
    """Refuse a misspelt keyword or an illegal value before a model is looked for."""
    if target.is_cpu and _companions(request, recipe):
        from neuroncompile.pipeline.companions import refuse_on_cpu

        refuse_on_cpu(request, recipe)
    effective_config(request, recipe, target, model={}, model_dtype=None)
    _optlevel(backend_for(target.platform), request)


def locked_for(request: BuildRequest, settings: Settings) -> Locked | None:
    """What a lock file says about a request; most directories have none, and pay for one look."""
    if request.unlocked or not (request.locked or settings.lock.is_file()):
        return None
    from neuroncompile.pipeline.lock_command import locked_of

    return locked_of(request, settings.lock)


def toolchain_of(
    backend: Backend,
    request: BuildRequest,
    settings: Settings,
    recipe: Recipe | None,
    locked: Locked | None = None,
) -> Toolchain:
    """The toolchain of a request, with the settings' interpreter where it names none.

    Raises:
        ToolchainError: none, an unknown one, or one of the other backend.
    """
    pinned = None
    if locked is not None and locked.entry is not None and request.toolchain is None:
        pinned = locked.entry.pinned_toolchain(locked.path)
    if pinned is not None and pinned.backend == backend.name:
        found = pinned
    else:
        found = _toolchain(backend, request, settings, recipe)
    if found.python is None and backend.name == "nxdi" and settings.neuron_python is not None:
        return found._replace(python=settings.neuron_python)
    return found


def _toolchain(
    backend: Backend, request: BuildRequest, settings: Settings, recipe: Recipe | None
) -> Toolchain:
    from neuroncompile.config import load_toolchain, resolve_toolchain

    if request.toolchain is None and settings.toolchain is not None:
        named = load_toolchain(settings.toolchain, origin="NEURONCOMPILE_TOOLCHAIN or settings")
        if named.backend == backend.name:  # one for another backend is not meant for this build
            return named
    said = bool(request.toolchain or (recipe is not None and recipe.toolchain))
    identity = {} if said and backend.name == "nxdi" else backend.identity(settings.neuron_python)
    return resolve_toolchain(backend.name, flag=request.toolchain, recipe=recipe, identity=identity)


def _model(request: BuildRequest, recipe: Recipe | None, fetching: _Fetching) -> PinnedModel:
    from neuroncompile import models

    settings = fetching.settings
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
        if fetching.from_facts and recipe.facts:
            found = models.cached(reference, settings, digests=digests, revision=revision)
            return found or models.from_facts(recipe.facts, recipe.name)
    return models.resolve(
        reference,
        settings,
        digests=digests,
        revision=revision,
        progress=fetching.progress,
        before_download=fetching.before_download,
    )


def _optlevel(backend: Backend, request: BuildRequest) -> str | None:
    asked = request.optlevel
    if asked is None and request.artifact is not None:
        level: str | None = request.artifact.spec["optlevel"]
        return level
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
