"""The safetensors files an engine maps: the model's own, or packed once and kept.

A safetensors checkpoint is mapped where it lies. A GGUF is dequantised into one safetensors
file, a `pack` artifact keyed by the source's digest, the layout and the dtype.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import InterruptedBuildError, StoreError
from neuroncompile.keys import pack_spec, spec_key
from neuroncompile.output import Output
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.progress import Transfer, waiter
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.pipeline.sharing import Tiers
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.oci import WEIGHT

__all__ = ["PACKED", "Weights", "find_packed", "weight_files"]

PACKED = "model.safetensors"
LAYOUT = "hf-1"  # Hugging Face tensor names and row order, one file


MISS = "run `neuroncompile build` with the same options first"


class Weights(NamedTuple):
    """Safetensors files, and the artifact they belong to when they were packed."""

    paths: tuple[Path, ...]
    packed: Artifact | None = None


def find_packed(
    plan: Plan, store: Store, settings: Settings
) -> tuple[dict[str, Any], Artifact | None]:
    """The pack spec of a GGUF's weights, and the artifact if the store has it."""
    from neuroncompile import models

    spec = pack_spec(
        sources=models.source_digests(plan.model, settings),
        layout=LAYOUT,
        dtype=plan.config["torch_dtype"],
        quantization=None,
        toolchain={},
    )
    return spec, store.lookup("pack", spec_key(spec))


def weight_files(
    plan: Plan,
    settings: Settings,
    output: Output,
    tiers: Tiers,
    *,
    require_cached: bool = False,
) -> Weights:
    """The safetensors files that hold the plan's weights; packed ones may come from a tier.

    Raises:
        CacheMissError: they would have to be packed and `require_cached` forbids it.
        TierError: the same, and a tier that might have them fails.
        ModelError: they cannot be had or read.
        StoreError: no space for packed weights.
    """
    from neuroncompile import models

    if plan.model.weights_format == "safetensors":
        model = models.fetch_weights(plan.model, settings, progress=Transfer(output))
        return Weights(tuple(w.path for w in model.weights if w.path is not None))
    store = open_store(settings, output)
    spec, artifact = find_packed(plan, store, settings)
    if artifact is None:
        key = spec_key(spec)
        if require_cached and not (tiers and tiers.having(store, "pack", key)):
            raise tiers.miss(f"packed weights {key[:12]} are", key, MISS)
        with store.single_flight("pack", key, waiter(output, "packs these weights")):
            artifact = store.lookup("pack", key)
            if artifact is None and tiers and (found := tiers.pull(store, "pack", key)):
                artifact = found.artifact
            if artifact is None and require_cached:
                raise tiers.miss(f"packed weights {key[:12]} are", key, MISS)
            artifact = artifact or _pack(plan, settings, store, spec, output)
    return Weights((store.view(artifact) / PACKED,), artifact)


def _pack(
    plan: Plan, settings: Settings, store: Store, spec: dict[str, Any], output: Output
) -> Artifact:
    from neuroncompile import models
    from neuroncompile.models.gguf import dequantise

    model = models.fetch_weights(plan.model, settings, progress=Transfer(output))
    source = model.weights[0].path
    assert source is not None
    began = time.monotonic()
    directory = store.scratch("pack")
    try:
        dequantise(source, directory / PACKED, plan.config["torch_dtype"], Transfer(output))
        layer = Layer(PACKED, path=directory / PACKED, media_type=WEIGHT)
        record = provenance(plan, [], time.monotonic() - began)
        return store.publish("pack", spec, [layer], provenance=record)
    except OSError as error:  # numpy's short writes carry no errno
        raise StoreError(
            f"packed weights cannot be written: {error.strerror or error}",
            hint=f"free space on {settings.store}, or choose another with --store DIR",
        ) from None
    except KeyboardInterrupt:
        raise InterruptedBuildError(
            "interrupted while packing weights; the program is kept",
            hint="the same command packs them again",
        ) from None
    finally:
        shutil.rmtree(directory, ignore_errors=True)
