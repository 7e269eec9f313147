"""A model in a local directory: config.json and safetensors, one file or sharded.

The files are taken where they lie. Whatever is wrong with a directory is said here, at once and
by name, rather than after minutes of compiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from neuroncompile.errors import ModelError, ModelNotFoundError
from neuroncompile.models.header import DTYPES, read_header
from neuroncompile.models.inputs import Inputs
from neuroncompile.models.metadata import read_metadata, read_object
from neuroncompile.models.normal import config_dtype
from neuroncompile.models.pinned import PinnedModel, WeightFile

__all__ = ["INDEX", "SINGLE", "checkpoint_dtype", "open_directory", "shard_names"]

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


def open_directory(path: Path, reference: str, inputs: Inputs) -> PinnedModel:
    """Pin a directory.

    Raises:
        ModelError: what is missing or broken, with the fix.
    """
    if not (path / "config.json").exists():
        raise _no_config(path, reference)
    metadata = read_metadata(path)
    weights = _weights(path, reference, inputs)
    return PinnedModel(
        reference=reference,
        source="local",
        name=reference,
        revision=None,
        config=metadata.config,
        generation_config=metadata.generation_config,
        tokenizer_dir=metadata.tokenizer_dir,
        weights=weights,
        weights_format="safetensors",
        dtype=checkpoint_dtype(weights, inputs, metadata.config),
        chat_template=metadata.chat_template,
    )


def shard_names(index: Mapping[str, Any], where: str) -> dict[str, list[str]]:
    """Shard file name → names of its tensors, from a parsed index.

    Raises:
        ModelError: the index has no sound `weight_map`.
    """
    table = index.get("weight_map")
    shards: dict[str, list[str]] = {}
    sound = isinstance(table, dict) and bool(table)
    for tensor, name in table.items() if isinstance(table, dict) else ():
        sound = (
            sound and isinstance(name, str) and "/" not in name and name.endswith(".safetensors")
        )
        if sound:
            shards.setdefault(name, []).append(tensor)
    if not sound:
        raise ModelError(
            f"{where} has no sound weight_map",
            hint="download the index again; it maps tensor names to .safetensors files beside it",
            details={"path": where},
        )
    return dict(sorted(shards.items()))


def checkpoint_dtype(
    weights: tuple[WeightFile, ...], inputs: Inputs, config: Mapping[str, Any]
) -> str | None:
    """The dtype most of the weights have, by bytes; the config's where no file is here.

    What a header says wins: configs are copied between checkpoints more often than corrected.
    """
    sizes: dict[str, int] = {}
    for weight in weights:
        if weight.path is not None:
            for dtype, size in _summary(weight.path, inputs)["sizes"].items():
                sizes[dtype] = sizes.get(dtype, 0) + size
    floats = {DTYPES[name]: size for name, size in sizes.items() if name in DTYPES}
    if floats:
        return max(sorted(floats), key=floats.__getitem__)
    dtype = config_dtype(config)
    return dtype if isinstance(dtype, str) and dtype in DTYPES.values() else None


def _weights(path: Path, reference: str, inputs: Inputs) -> tuple[WeightFile, ...]:
    if (path / SINGLE).exists():
        shards: dict[str, list[str]] = {SINGLE: []}
    elif (path / INDEX).exists():
        shards = shard_names(read_object(path / INDEX), str(path / INDEX))
    else:
        raise _no_weights(path, reference)
    missing = [name for name in shards if not (path / name).exists()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            f"{reference} is incomplete: its index names {missing[0]}{more}, not in the directory",
            hint="finish the download, or copy all shards",
            details={"missing": missing},
        )
    weights = []
    for name, tensors in shards.items():
        summary = _summary(path / name, inputs)
        # a remembered summary has no names; the shard's tensors were checked when it was made
        absent = sorted(set(tensors) - summary["names"]) if "names" in summary else []
        if absent:
            raise ModelError(
                f"{path / name} has no tensor {absent[0]}, which the index places there",
                hint="index and shards are of different checkpoints; download both again",
                details={"missing": absent[:20]},
            )
        weights.append(WeightFile(name, (path / name).stat().st_size, None, path / name))
    return tuple(weights)


def _summary(path: Path, inputs: Inputs) -> dict[str, Any]:
    known = inputs.recall(path)
    if isinstance(known.get("sizes"), dict):
        return known
    header = read_header(path)
    inputs.remember(path, {"sizes": header.sizes})
    return {"sizes": header.sizes, "names": header.names}


def _no_config(path: Path, reference: str) -> ModelError:
    files = {p.name for p in path.iterdir()}
    ggufs = sorted(name for name in files if name.endswith(".gguf"))
    if ggufs:
        hint = f"name the file: {Path(reference) / ggufs[0]}"
    elif "adapter_config.json" in files:
        hint = "this is a LoRA adapter; name its base model"
    elif "params.json" in files:
        hint = "this is the original layout; take the checkpoint in Hugging Face's layout"
    elif "snapshots" in files:
        hint = "this is a cache directory; name one of the directories in its snapshots/"
    elif any(name.endswith(".safetensors") for name in files):
        hint = "copy config.json from the model's repository to the weights"
    else:
        hint = "name the directory that holds config.json and the safetensors files"
    return ModelNotFoundError(
        f"{reference} has no config.json", hint=hint, details={"path": str(path)}
    )


def _no_weights(path: Path, reference: str) -> ModelError:
    names = sorted(p.name for p in path.iterdir())
    safetensors = [name for name in names if name.endswith(".safetensors")]
    pickled = [name for name in names if name.endswith((".bin", ".pt", ".pth"))]
    if safetensors and "-of-" in safetensors[0]:
        what, hint = f"has shards but no {INDEX}", f"copy {INDEX} from the model's repository"
    elif safetensors:
        what = f"has {safetensors[0]} but no {SINGLE}"
        hint = f"rename it to {SINGLE}, if that is what it is"
    elif pickled:
        what = f"has only {pickled[0]}, a pickle, which is code and is not loaded"
        hint = "save it with transformers' save_pretrained, which writes safetensors"
    else:
        what = "has a config.json but no weights"
        hint = f"copy {SINGLE}, or {INDEX} and its shards, into the directory"
    return ModelError(f"{reference} {what}", hint=hint, details={"path": str(path)})
