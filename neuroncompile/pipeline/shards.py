"""Weights for a Neuron program: cut into ranks once and kept, and quantised before if asked.

A `shard` artifact is of one checkpoint, whoever's program it is loaded into; a `pack` artifact is
what `quantized` asks NxDI to make of a checkpoint first. Neither is in a program.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.backends.nxdi.compile import with_quantised
from neuroncompile.backends.nxdi.model_directory import lay_out
from neuroncompile.backends.nxdi.outputs import MODEL, check_shards, shard_titles
from neuroncompile.backends.nxdi.process import OrderFailed, OverLimit, Worker, WorkerEnded
from neuroncompile.backends.nxdi.surroundings import environment, neff_cache
from neuroncompile.errors import CompileError, ConfigError, InterruptedBuildError, StoreError
from neuroncompile.keys import digest_of, pack_spec, shard_spec, spec_key
from neuroncompile.keys.canonical import canonical_bytes
from neuroncompile.models import PinnedModel
from neuroncompile.output import Output
from neuroncompile.pipeline.diagnosis import Diagnosis, tail
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.program import draft_reference, reference_of
from neuroncompile.pipeline.progress import BuildProgress, Transfer, waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.oci import WEIGHT

__all__ = ["draft_order", "quantised", "quantised_in", "shard_spec_of", "sharded", "weight_paths"]

_OPERATIONS = {"shard": "shard", "pack": "quantize"}
_QUANTISING = (
    "quantization_type",
    "quantization_dtype",
    "modules_to_not_convert",
    "torch_dtype",
)


def weight_paths(model: PinnedModel, settings: Settings, output: Output) -> dict[str, Path]:
    """File name → path of a model's safetensors, fetched where they are not here.

    Raises:
        ModelError: they cannot be had, or are of another format.
    """
    from neuroncompile import models

    fetched = models.fetch_weights(model, settings, progress=Transfer(output))
    return {w.name: w.path for w in fetched.weights if w.path is not None}


def draft_order(
    plan: Plan, directory: Path, quantized: Path, settings: Settings, output: Output
) -> dict[str, Any] | None:
    """The "draft" of a worker's order, its checkpoint laid out in `directory`; None without one.

    Args:
        quantized: directory of the quantised checkpoint, where the program takes one.
    """
    if plan.draft is None:
        return None
    files = weight_paths(plan.draft, settings, output)
    return {
        "class": draft_reference(plan),
        "model": str(lay_out(directory, plan.draft.config, files)),
        "neuron": with_quantised(plan.draft_neuron, quantized),
    }


def quantised(plan: Plan, settings: Settings, output: Output, store: Store) -> Artifact | None:
    """The quantised checkpoint that the config asks for; None where it asks for none.

    Raises:
        CompileError: NxDI could not make it.
    """
    spec = _pack_spec(plan.spec, plan.model, settings)
    if spec is None:
        return None
    key = spec_key(spec)
    found = store.lookup("pack", key)
    if found is not None:
        return found
    with store.single_flight("pack", key, waiter(output, "quantises these weights")):
        found = store.lookup("pack", key)
        return found or _made(plan, settings, output, store, "pack", spec)


def quantised_in(
    spec: Mapping[str, Any], model: PinnedModel, settings: Settings, store: Store
) -> Artifact | None:
    """The same of a program by its spec, if the store has it."""
    packed = _pack_spec(spec, model, settings)
    return None if packed is None else store.lookup("pack", spec_key(packed))


def _pack_spec(
    spec: Mapping[str, Any], model: PinnedModel, settings: Settings
) -> dict[str, Any] | None:
    neuron = spec["neuron"]
    if not neuron.get("quantized"):
        return None
    from neuroncompile import models

    how = {name: neuron.get(name) for name in _QUANTISING}
    return pack_spec(
        sources=models.source_digests(model, settings),
        layout="nxdi-1",
        dtype=str(neuron.get("quantization_dtype") or "int8"),
        quantization=digest_of(canonical_bytes({"model": spec["model"], **how})),
        toolchain=spec["toolchain"],
    )


def shard_spec_of(
    spec: Mapping[str, Any],
    model: PinnedModel,
    settings: Settings,
    *,
    draft: PinnedModel | None = None,
    packed: Artifact | None = None,
) -> dict[str, Any]:
    """The shard spec of a model in a program; no byte of a hub's weights is read for it.

    Args:
        spec: the program's compile spec.
        packed: the quantised checkpoint, where the program takes one.
    """
    from neuroncompile import models

    if packed is not None:
        sources = {layer.title: layer.digest for layer in packed.layers}
    else:
        sources = models.source_digests(model, settings)
    second = None
    if draft is not None:
        second = {"sources": models.source_digests(draft, settings), **spec["draft"]}
    return shard_spec(
        sources=sources,
        model=spec["model"],
        neuron=spec["neuron"],
        target=spec["target"],
        toolchain=spec["toolchain"],
        draft=second,
    )


def sharded(plan: Plan, settings: Settings, output: Output, store: Store) -> tuple[Artifact, bool]:
    """The plan's weights cut into ranks, and whether they were there.

    Raises:
        ConfigError: the program has adapters.
        CompileError: NxDI could not cut them.
        ModelError: the checkpoint cannot be had.
    """
    if plan.adapters:
        raise ConfigError(
            "weights are not cut ahead for a program with adapters: NxDI cuts both when it loads",
            field="adapters",
            value=sorted(plan.adapters),
            legal="no adapter with --shard",
            hint="leave --shard out; the program itself holds no weights",
        )
    packed = quantised(plan, settings, output, store)
    spec = shard_spec_of(plan.spec, plan.model, settings, draft=plan.draft, packed=packed)
    key = spec_key(spec)
    found = store.lookup("shard", key)
    if found is not None:
        return found, True
    with store.single_flight("shard", key, waiter(output, "cuts these weights")):
        found = store.lookup("shard", key)
        if found is not None:
            return found, True
        return _made(plan, settings, output, store, "shard", spec, packed), False


def _made(
    plan: Plan,
    settings: Settings,
    output: Output,
    store: Store,
    kind: str,
    spec: dict[str, Any],
    packed: Artifact | None = None,
) -> Artifact:
    """Have the worker make a `shard` or `pack` artifact, look at it, publish it."""
    began = time.monotonic()
    diagnosis = Diagnosis(plan, settings, output)
    diagnosis.check_toolchain()  # the program may be a hit, that no compiler was asked for
    doing = f"{'cutting' if kind == 'shard' else 'quantising'} weights of {plan.model.name}"
    output.note(doing)
    scratch = store.scratch(kind)
    try:
        where = scratch / "out" if packed is None else store.view(packed)
        order = _order(plan, settings, output, scratch, where)
        result = _ordered(diagnosis, scratch, doing, {"op": _OPERATIONS[kind], **order})
        titles = [title for title in result["files"] if title.endswith(".safetensors")]
        wanted = titles or [MODEL]
        if kind == "shard":
            wanted = shard_titles(result["ranks"], result["places"])
        check_shards(scratch / "out", wanted)
        layers = [Layer(t, path=scratch / "out" / t, media_type=WEIGHT) for t in titles]
        record = provenance(plan, [], time.monotonic() - began)
        return store.publish(kind, spec, layers, provenance=record)
    except OSError as error:
        raise StoreError(
            f"weights cannot be written: {error.strerror or error}",
            hint=f"free space on {settings.store}, or choose another with --store DIR",
        ) from None
    except KeyboardInterrupt:
        raise InterruptedBuildError(
            "interrupted while making weights; the program is kept",
            hint="the same command makes them again",
        ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _order(
    plan: Plan, settings: Settings, output: Output, scratch: Path, quantized: Path
) -> dict[str, Any]:
    model = lay_out(
        scratch / "model", plan.model.config, weight_paths(plan.model, settings, output)
    )
    return {
        "class": reference_of(plan),
        "model": str(model),
        "neuron": with_quantised(plan.config.plain(), quantized),
        "draft": draft_order(plan, scratch / "draft", quantized, settings, output),
        "optlevel": None,
        "out": str(scratch / "out"),
    }


def _ordered(
    diagnosis: Diagnosis, scratch: Path, doing: str, order: Mapping[str, Any]
) -> dict[str, Any]:
    for name in ("work", "cwd"):
        (scratch / name).mkdir()
    log = scratch / "log"
    worker = Worker(
        diagnosis.python,
        environment=environment(
            diagnosis.plan.spec,
            diagnosis.python,
            work=scratch / "work",
            cache=neff_cache(diagnosis.settings.cache),
        ),
        directory=scratch / "cwd",
        log=log,
        limits=diagnosis.limits(),
    )
    worker.watch(scratch / "out")
    progress = BuildProgress(diagnosis.output, total=1)
    progress.start(doing)
    try:
        return worker.order(order, on_tick=progress.tick)[0]
    except (OrderFailed, WorkerEnded, OverLimit) as error:
        raise CompileError(
            f"NxD Inference could not {order['op']} the weights: {error}",
            hint="the last lines of its output are in the error's details (--json)",
            details={"how": str(error), "last_lines": tail(log, 20), "deterministic": False},
        ) from None
    finally:
        worker.close()
