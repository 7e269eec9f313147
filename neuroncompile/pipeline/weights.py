"""The safetensors files an engine maps: the model's own, or packed once and kept.

A safetensors checkpoint is mapped where it lies. A GGUF is dequantised into one safetensors
file, a `pack` artifact keyed by the source's digest, the layout and the dtype.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from neuroncompile.errors import CacheMissError
from neuroncompile.keys import pack_spec, spec_key
from neuroncompile.output import Output
from neuroncompile.pipeline.plan import Plan
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.provenance import provenance
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.oci import WEIGHT

__all__ = ["PACKED", "weight_files"]

PACKED = "model.safetensors"
LAYOUT = "hf-1"  # Hugging Face tensor names and row order, one file


def weight_files(
    plan: Plan, settings: Settings, output: Output, *, require_cached: bool = False
) -> tuple[Path, ...]:
    """Paths of the safetensors files that hold the plan's weights.

    Raises:
        CacheMissError: they would have to be packed and `require_cached` forbids it.
        ModelError: they cannot be had or read.
    """
    from neuroncompile import models

    if plan.model.weights_format == "safetensors":
        model = models.fetch_weights(plan.model, settings, progress=Transfer(output))
        return tuple(w.path for w in model.weights if w.path is not None)
    store = Store(settings.store, on_warning=output.warn)
    spec = pack_spec(
        sources=models.source_digests(plan.model, settings),
        layout=LAYOUT,
        dtype=plan.config["torch_dtype"],
        quantization=None,
        toolchain={},
    )
    key = spec_key(spec)
    artifact = store.lookup("pack", key)
    if artifact is None and require_cached:
        raise CacheMissError(
            f"packed weights {key[:12]} are not in {settings.store} ({settings.store_origin})",
            hint="run `neuroncompile build` with the same options first",
            details={"key": key, "store": str(settings.store)},
        )
    if artifact is None:
        with store.single_flight("pack", key, None):
            artifact = store.lookup("pack", key) or _pack(plan, settings, store, spec, output)
    return (store.view(artifact) / PACKED,)


def _pack(
    plan: Plan, settings: Settings, store: Store, spec: dict[str, object], output: Output
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
    finally:
        shutil.rmtree(directory, ignore_errors=True)
