"""A LoRA adapter, pinned as a model is: a directory or a repository with adapter_config.json.

Only that file is read here. Its rank and target modules are shapes of the program; its weights
are not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError, ModelNotFoundError
from neuroncompile.models.metadata import read_object
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import Reference, parse_reference
from neuroncompile.settings import Settings

__all__ = ["PinnedAdapter", "open_adapter"]

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"

_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "peft_type": ("LORA", "lora"),
    "use_dora": (False,),
    "modules_to_save": ([],),
    "layers_to_transform": ([],),
    "layer_replication": ([],),
    "alora_invocation_tokens": ([],),
    "trainable_token_indices": ([],),
    "fan_in_fan_out": (False,),
}
"""Fields that change what an adapter computes → values that do not; a null never does."""


class PinnedAdapter(NamedTuple):
    """One adapter.

    Attributes:
        reference: as typed.
        revision: 40-hex commit for the hub, else None.
        rank: highest rank of any of its matrices.
        target_modules: names of the linears it changes, sorted.
        bias: "none", "all" or "lora_only".
    """

    reference: str
    revision: str | None
    rank: int
    target_modules: tuple[str, ...]
    bias: str


def open_adapter(
    reference: str,
    settings: Settings,
    *,
    revision: str | None = None,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
) -> PinnedAdapter:
    """Pin an adapter and read what it needs of a program.

    Raises:
        ModelError: not to be had, no adapter, or of a kind that NxDI does not compute;
            subclasses as for a model.
    """
    parsed = parse_reference(reference, revision=revision)
    if parsed.kind == "hub":
        sha, config = _from_hub(parsed, settings, progress, before_download)
        return _adapter(reference, sha, config)
    if parsed.kind != "directory" or parsed.path is None:
        raise ModelError(
            f"{reference} is no adapter",
            hint=f"name a directory or repository that holds {CONFIG}",
            details={"reference": reference},
        )
    return _adapter(reference, None, _from_directory(parsed.path, reference))


def _from_directory(path: Path, reference: str) -> dict[str, Any]:
    if not (path / CONFIG).exists():
        model = " (it holds a model: its config.json is there)"
        raise ModelNotFoundError(
            f"{reference} has no {CONFIG}" + (model if (path / "config.json").exists() else ""),
            hint="name the directory that peft's save_pretrained wrote",
            details={"path": str(path)},
        )
    if not (path / WEIGHTS).exists():
        pickled = (path / "adapter_model.bin").exists()
        raise ModelError(
            f"{reference} has no {WEIGHTS}"
            + (", only a pickle, which is code and is not loaded" if pickled else ""),
            hint="save it with peft's save_pretrained, which writes safetensors",
            details={"path": str(path)},
        )
    return read_object(path / CONFIG)


def _from_hub(
    parsed: Reference,
    settings: Settings,
    progress: Progress | None,
    before_download: Callable[[], None] | None,
) -> tuple[str, dict[str, Any]]:
    from neuroncompile.models.hub import Opening
    from neuroncompile.models.hub_cache import Repository

    repository = Repository(parsed.name, settings.hub.cache, settings.store)
    revision = parsed.revision or "main"
    opening = Opening(repository, revision, settings, progress, before_download)
    commit = opening.commit()
    for name in (CONFIG, WEIGHTS) if commit.listed else (CONFIG,):
        if name not in commit.files:
            if not commit.listed:
                raise opening.missing(name)
            raise ModelError(
                f"{parsed.name} has no {name}",
                hint="name a repository that peft's save_pretrained wrote, with safetensors",
                details={"files": sorted(commit.files)[:50]},
            )
    opening.fetch([CONFIG], commit)
    config = read_object(repository.snapshot(commit.sha) / CONFIG)
    repository.remember_ref(revision, commit.sha)
    return commit.sha, config


def _adapter(reference: str, revision: str | None, config: Mapping[str, Any]) -> PinnedAdapter:
    for field, neutral in _NEUTRAL.items():
        value = config.get(field)
        if value is not None and value not in neutral:
            raise _unusable(reference, field, value, f"{neutral[0]!r} only")
    patterns = config.get("rank_pattern") or {}
    ranks = [config.get("r", config.get("lora_rank")), *dict(patterns).values()]
    if not all(isinstance(r, int) and not isinstance(r, bool) and r > 0 for r in ranks):
        raise _unusable(reference, "r", config.get("r"), "a whole number of at least 1")
    modules = config.get("target_modules")
    if not isinstance(modules, list) or not modules or not all(isinstance(m, str) for m in modules):
        # NxDI would take a text apart into its letters
        raise _unusable(reference, "target_modules", modules, "a list of module names")
    return PinnedAdapter(
        reference, revision, max(ranks), tuple(sorted(set(modules))), config.get("bias") or "none"
    )


def _unusable(reference: str, field: str, value: Any, legal: str) -> ModelError:
    return ModelError(
        f"{field} of the adapter {reference} is {value!r:.80}; NxDI computes {legal}",
        hint=f"save the adapter with {field} as {legal}, or merge it into the model",
        details={"field": field, "value": repr(value)[:200], "legal": legal},
    )
