"""The figures of a plan: memory on a core, or on this host for cpu; host, time and history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from neuroncompile.config.compile_time import Minutes, compile_minutes
from neuroncompile.config.dimensions import Dimensions, dimensions_of
from neuroncompile.config.host import HostNeed, host_need
from neuroncompile.config.memory import GREEN, Need, core_need, verdict_of
from neuroncompile.config.sizing import BYTES
from neuroncompile.hardware.memory import GIB, core_memory
from neuroncompile.hardware.targets import INSTANCES
from neuroncompile.pipeline.stores import open_store
from neuroncompile.pipeline.subject import Subject, Variant
from neuroncompile.settings import Settings

__all__ = [
    "CpuNeed",
    "History",
    "cpu_need",
    "draft_in",
    "history_of",
    "host_of",
    "minutes_of",
    "need_of",
]


class CpuNeed(NamedTuple):
    """Bytes of this host's memory that the cpu target runs in.

    Attributes:
        weights: mapped from the checkpoint, in its dtype; tied embeddings once.
        cache: float32, whatever the weights are, with one row more for padding.
        token: cache of one token of one sequence.
        available: MemAvailable, or None where there is no /proc/meminfo.
    """

    weights: int
    cache: int
    token: int
    available: int | None

    @property
    def total(self) -> int:
        return self.weights + self.cache

    @property
    def verdict(self) -> str:
        return verdict_of(self.total, self.available) if self.available else "green"

    @property
    def tokens_that_fit(self) -> int | None:
        """Tokens, of all sequences together, whose cache stays green beside the weights."""
        if self.available is None:
            return None
        return max(0, int(self.available * GREEN - self.weights) // self.token)


class History(NamedTuple):
    """One program of the same family and target that this store saw compiled."""

    key: str
    seconds: float
    graphs: int


def need_of(subject: Subject, variant: Variant, draft: Dimensions | None = None) -> Need:
    """Memory of one logical core; a draft is split like the model and caches as much.

    Args:
        draft: a draft beside the program; one that the program itself has counts anyway.
    """
    neuron = variant.config.plain()
    second: tuple[Dimensions, Mapping[str, Any]] | None = None
    if draft is not None:
        second = draft, _drafts_own(neuron)
    elif subject.plan is not None:
        second = draft_in(subject.plan.spec, neuron)
    return core_need(
        subject.model,
        neuron,
        budget=core_memory(variant.target),
        platform=variant.target.platform,
        graphs=len(subject.graphs(variant)),
        draft=second,
    )


def draft_in(
    spec: Mapping[str, Any], neuron: Mapping[str, Any]
) -> tuple[Dimensions, Mapping[str, Any]] | None:
    """The draft of a program that holds one, by its spec's `draft` member, or None.

    Args:
        spec: a compile spec; `draft` holds a `model` and what its `neuron` config changes.
        neuron: the model's own keywords.
    """
    draft = spec.get("draft")
    if draft is None:
        return None
    return dimensions_of(draft["model"]), {**draft.get("neuron", {}), **_drafts_own(neuron)}


def _drafts_own(neuron: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the model that its draft shares; quantisation is the model's alone."""
    shared = (
        "tp_degree", "batch_size", "seq_len", "max_length", "torch_dtype", "vocab_parallel",
        "kv_cache_batch_size", "kv_cache_padding_size", "kv_quant_config",
    )  # fmt: skip
    return {name: neuron[name] for name in shared if name in neuron}


def cpu_need(subject: Subject) -> CpuNeed:
    """Weights and cache on this host."""
    config, model = subject.variant.config, subject.model
    weights = subject.on_disk or model.parameters * BYTES[config["torch_dtype"]]
    token = 2 * model.layers * model.kv_heads * model.head_dim * 4
    cache = token * config["seq_len"] * (config["batch_size"] + 1)
    return CpuNeed(weights, cache, token, _available())


def host_of(subject: Subject, variant: Variant, need: Need) -> HostNeed:
    """Host memory and disk for cutting the weights and compiling."""
    instance = INSTANCES.get(variant.target.instance or "")
    return host_need(
        subject.model,
        subject.raw,
        variant.config.plain(),
        rank_bytes=need.weight_total,
        ranks=variant.ranks,
        platform=variant.target.platform,
        ram=instance.host_ram_gib * GIB if instance else None,
        on_disk=subject.on_disk,
    )


def minutes_of(subject: Subject, variant: Variant, jobs: int) -> Minutes:
    """Minutes of neuronx-cc for all graphs."""
    graphs = len(subject.graphs(variant))
    return compile_minutes(subject.model.parameters, variant.ranks, graphs, jobs)


def history_of(subject: Subject, settings: Settings) -> list[History]:
    """Compiles of the same family and target in this store, from their provenance.

    What was put together from kept graphs alone took no compiling and is left out.
    """
    if not (settings.store / "v1").is_dir():
        return []
    store = open_store(settings)
    wanted = subject.variant.target.spec()
    found = []
    for artifact in store.artifacts("compile"):
        spec = store.spec_of(artifact)
        family = spec.get("model", {}).get("model_type")
        if spec.get("target") != wanted or family != subject.model.family:
            continue
        record = store.provenance_of(artifact) or {}
        compiled, seconds = record.get("compiled"), record.get("seconds")
        if compiled and isinstance(seconds, (int, float)):
            found.append(History(artifact.key, float(seconds), len(compiled)))
    return sorted(found, key=lambda row: row.seconds)


def _available() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            kib = next(int(x.split()[1]) for x in lines if x.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
    return kib * 1024
