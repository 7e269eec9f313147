"""What goes with a model into one program: a draft, adapters, a class of the user's own.

Each is pinned as the model is. All are for Neuron targets; the cpu target refuses them by name.
Imported only when one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from neuroncompile.config import NeuronConfig, Recipe
from neuroncompile.errors import ConfigError, ModelError
from neuroncompile.models import PinnedModel, Progress
from neuroncompile.models.adapter import PinnedAdapter, open_adapter
from neuroncompile.models.custom import CustomClass, read_class
from neuroncompile.pipeline.request import BuildRequest
from neuroncompile.settings import Settings

__all__ = [
    "Draft",
    "adapter_flags",
    "adapters_of",
    "check_adapters",
    "custom_class",
    "draft_of",
    "normal_draft",
    "refuse_on_cpu",
]

SELF = "self"
"""The reference that makes the model its own draft."""


class Draft(NamedTuple):
    """A draft, resolved.

    Attributes:
        model: pinned; the target's own where it is its own draft.
        spec: what of it enters the compile key: normalised config and neuron config.
        warning: what could not be compared, or None.
    """

    model: PinnedModel
    spec: Mapping[str, Any]
    warning: str | None


def refuse_on_cpu(request: BuildRequest, recipe: Recipe | None) -> None:
    """Say which of the three the cpu target was asked for.

    Raises:
        ConfigError: any of them.
    """
    asked: list[tuple[str, str, Any]] = [
        ("draft", "--draft-model", request.draft),
        ("adapters", "--adapter", request.adapters),
        ("model.class", "--model-class", request.model_class),
    ]
    if recipe is not None:
        tables = (recipe.draft, recipe.adapters, recipe.model_class)
        asked = [(*row[:2], row[2] or own) for row, own in zip(asked, tables, strict=True)]
    for field, option, value in asked:
        if value:
            raise ConfigError(
                f"{field} ({option} or the recipe's) is for Neuron targets; the cpu target "
                "does not take it",
                field=field,
                value=value if isinstance(value, str) else sorted(map(str, value)),
                legal="none on cpu",
                hint=f"choose a Neuron target with --target, or leave {option} out",
            )


def custom_class(request: BuildRequest, recipe: Recipe | None) -> CustomClass | None:
    """The class that the user brings, by flag or by a recipe given as a path.

    A recipe that is only named may have come with a package: a class is code, and code is
    the user's own word.

    Raises:
        ConfigError: not to be found, or named by a recipe that was not given as a path.
    """
    if request.model_class:
        return read_class(request.model_class)
    if recipe is None or recipe.model_class is None:
        return None
    if not (request.model.endswith(".toml") or "/" in request.model):
        raise ConfigError(
            f"recipe {recipe.name} names a class, and a recipe that is named without its path "
            "may not",
            field="model.class",
            value=recipe.model_class,
            legal="in a recipe given as a path, or --model-class",
            hint=f"give the recipe as {recipe.path}, if you trust it",
        )
    return read_class(recipe.model_class, base=recipe.path.parent.resolve())


def draft_of(
    request: BuildRequest,
    recipe: Recipe | None,
    target: PinnedModel,
    normal: Mapping[str, Any],
    config: NeuronConfig,
    settings: Settings,
    *,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
    from_facts: bool = False,
) -> Draft | None:
    """Pin the draft asked for, by flag before recipe; None where there is none.

    Args:
        normal: the target's normalised config.
        config: the target's effective neuron config.

    Raises:
        ModelError: the draft cannot be had, or has another tokenizer.
        ConfigError: the neuron config does not speculate with a draft.
    """
    table: Mapping[str, Any] = recipe.draft if recipe is not None else {}
    if request.draft:
        table = {"ref": request.draft, "config": table.get("config", {})}
    if not table:
        return None
    if not isinstance(table.get("ref"), str):
        raise ConfigError(
            "[draft] names no model",
            field="draft.ref",
            value=table.get("ref"),
            legal='org/name, a path, or "self"',
            hint='add ref = "org/name" under [draft]',
        )
    _check_speculation(config)
    if not table.get("revision"):
        table = {**table, "revision": request.pins.get(table["ref"])}
    model = _pinned(table, recipe, target, settings, progress, before_download, from_facts)
    from neuroncompile.config.draft import draft_config
    from neuroncompile.models.vocabulary import check_vocabularies

    eagle = bool(config.get("enable_eagle_speculation"))
    own = normal_draft(model, target, normal, eagle=eagle)
    warning = None
    if model is not target and not (eagle and model.tokenizer_dir is None):
        warning = check_vocabularies(
            target.tokenizer_dir,
            model.tokenizer_dir,
            (normal.get("vocab_size"), own.get("vocab_size")),
            (target.name, model.name),
        )
    neuron = draft_config(config.plain(), overrides=table.get("config", {}))
    return Draft(model, {"model": own, "neuron": neuron}, warning)


def _check_speculation(config: NeuronConfig) -> None:
    if not config.get("speculation_length"):
        raise ConfigError(
            "a draft is given, but speculation_length is 0",
            field="speculation_length",
            value=config.get("speculation_length", 0),
            legal="a whole number of at least 1",
            hint="--set speculation_length=5, or leave the draft out",
        )
    if not (config.get("enable_fused_speculation") or config.get("enable_eagle_speculation")):
        raise ConfigError(
            "a draft is given, but enable_fused_speculation is false: the draft would be a "
            "program of its own",
            field="enable_fused_speculation",
            value=False,
            legal=[True],
            hint="--set enable_fused_speculation=true, or build the draft by itself",
        )


def _pinned(
    table: Mapping[str, Any],
    recipe: Recipe | None,
    target: PinnedModel,
    settings: Settings,
    progress: Progress | None,
    before_download: Callable[[], None] | None,
    from_facts: bool,
) -> PinnedModel:
    from neuroncompile import models

    reference, revision = table["ref"], table.get("revision")
    digests = table.get("digests") or None
    if reference == SELF or (reference == target.reference and revision in (None, target.revision)):
        return target
    facts = table.get("facts")
    if from_facts and facts:
        found = models.cached(reference, settings, digests=digests, revision=revision)
        name = f"{recipe.name} [draft]" if recipe is not None else reference
        return found or models.from_facts(facts, name)
    return models.resolve(
        reference,
        settings,
        digests=digests,
        revision=revision,
        progress=progress,
        before_download=before_download,
    )


def normal_draft(
    model: PinnedModel, target: PinnedModel, normal: Mapping[str, Any], *, eagle: bool
) -> dict[str, Any]:
    """A draft's normalised config, whose class may be known to NxDI only as the target's.

    Args:
        normal: the target's, for a target that is its own draft.

    Raises:
        ModelError: a family that is not known.
    """
    from neuroncompile.models.architecture import architecture_of, normalise

    if model is target:
        return {**normal}
    try:
        architecture = architecture_of(model.config)
    except ModelError:
        if not eagle:
            raise
        # an EAGLE head has a class of its own on the Hub, and the target's in NxDI
        architecture = architecture_of(target.config)._replace(
            name=str((model.config.get("architectures") or ["EAGLE"])[0])
        )
    own = normalise(model.config, architecture)
    return {**own, "architectures": [architecture.name]}


def adapters_of(
    request: BuildRequest,
    recipe: Recipe | None,
    settings: Settings,
    *,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
) -> dict[str, PinnedAdapter]:
    """Name → adapter, from `--adapter NAME=REF` over the recipe's tables.

    Raises:
        ConfigError: a flag that is not NAME=REF, or a table without ref.
        ModelError: an adapter that cannot be had or used.
    """
    wanted: dict[str, tuple[str, str | None]] = {}
    for name, table in recipe.adapters.items() if recipe is not None else ():
        if not isinstance(table.get("ref"), str):
            raise _no_reference(f"adapters.{name}.ref", table.get("ref"))
        wanted[name] = (table["ref"], table.get("revision"))
    for text in request.adapters:
        name, equals, reference = text.partition("=")
        if not equals or not name or not reference:
            raise _no_reference("adapters", text)
        wanted[name] = (reference, None)
    return {
        name: open_adapter(
            reference,
            settings,
            revision=revision or request.pins.get(reference),
            progress=progress,
            before_download=before_download,
        )
        for name, (reference, revision) in wanted.items()
    }


def _no_reference(field: str, value: Any) -> ConfigError:
    return ConfigError(
        f"{field} is {value!r}, which names no adapter",
        field=field,
        value=value,
        legal="NAME=REF, or ref in [adapters.NAME]",
        hint="for example --adapter german=org/adapter@main",
    )


def adapter_flags(
    adapters: Mapping[str, PinnedAdapter], config: NeuronConfig
) -> dict[str, tuple[str, Any]]:
    """What the adapters say about `lora_config`, for the leaves that nobody has set."""
    derived = {
        "max_loras": len(adapters),
        "max_lora_rank": max(adapter.rank for adapter in adapters.values()),
        "target_modules": sorted({m for a in adapters.values() for m in a.target_modules}),
    }
    missing = {name: value for name, value in derived.items() if not _said(config, name)}
    return {"lora_config": ("--adapter", missing)} if missing else {}


def _said(config: NeuronConfig, name: str) -> bool:
    try:
        return not config.origin(f"lora_config.{name}").startswith("default")
    except KeyError:
        return False


def check_adapters(adapters: Mapping[str, PinnedAdapter], config: NeuronConfig) -> None:
    """Refuse what NxDI would change silently: fewer places, a lower rank, other modules.

    Raises:
        ConfigError: naming the adapter's value and the config's.
    """
    lora = config["lora_config"]
    for name, adapter in adapters.items():
        if adapter.rank > lora["max_lora_rank"]:
            raise _too_small(
                "max_lora_rank",
                lora["max_lora_rank"],
                adapter.rank,
                f"adapter {name} has rank {adapter.rank}",
            )
        absent = sorted(set(adapter.target_modules) - set(lora.get("target_modules") or ()))
        if absent:
            raise _too_small(
                "target_modules",
                lora.get("target_modules"),
                list(adapter.target_modules),
                f"adapter {name} changes {', '.join(absent)} too",
            )
        if adapter.bias != "none" and lora.get("lora_bias", "none") == "none":
            raise _too_small("lora_bias", "none", "all", f"adapter {name} has biases")
    if len(adapters) > lora["max_loras"]:
        raise _too_small(
            "max_loras", lora["max_loras"], len(adapters), f"{len(adapters)} adapters are given"
        )


def _too_small(name: str, value: Any, needed: Any, why: str) -> ConfigError:
    return ConfigError(
        f"lora_config.{name} is {value!r}, and {why}",
        field=f"lora_config.{name}",
        value=value,
        legal=needed if isinstance(needed, list) else f"at least {needed}",
        hint=f"set lora_config.{name} to {needed}, or leave it out to have it derived",
    )
