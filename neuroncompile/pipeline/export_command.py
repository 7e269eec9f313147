"""`export KEY DIR --for …`: a Neuron program as its consumer's loader wants it.

The directory holds files of its own, none of the store's, and is read-only: a loader that does not
like it must fail rather than compile into it. It appears whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.backends.nxdi.inference_config import for_model
from neuroncompile.errors import (
    ConfigError,
    CorruptArtifactError,
    StoreError,
    UsageError,
)
from neuroncompile.models import PinnedModel
from neuroncompile.output import Output, human_bytes
from neuroncompile.pipeline.exported import CONFIG, KEPT_APART, SIDECAR
from neuroncompile.pipeline.handover import check_consumer, consumer_of, program_of
from neuroncompile.pipeline.served_model import (
    checkpoint_directory,
    served_draft,
    served_model,
)
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store

__all__ = ["ExportRequest", "export_command"]

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)


class ExportRequest(NamedTuple):
    """What `export` was asked for.

    Attributes:
        key: of the program.
        directory: to be made.
        consumer: "nxdi" or "vllm:VERSION".
        model: reference of the model whose weights are served.
        revision: of a hub model.
        model_path: the checkpoint's directory on the host that serves, if it is another.
        draft, draft_path: the same of a draft.
        quantized_path: directory of the quantised checkpoint on the host that serves.
        shards: ship the weights, cut into ranks, from the store.
        copy: leave the files writable.
    """

    key: str
    directory: str
    consumer: str
    model: str
    revision: str | None = None
    model_path: str | None = None
    draft: str | None = None
    draft_path: str | None = None
    quantized_path: str | None = None
    shards: bool = False
    copy: bool = False


def export_command(request: ExportRequest, settings: Settings, output: Output) -> int:
    """Run `neuroncompile export` and return its exit code."""
    consumer = consumer_of(request.consumer)
    store = open_store(settings, output)
    artifact, spec = program_of(request.key, store)
    warning = check_consumer(consumer, spec, request.draft_path or request.draft)
    if warning is not None:
        output.warn(warning)
    directory = Path(request.directory).expanduser().absolute()
    _check_place(directory, settings)
    model = served_model(request.model, request.revision, spec, settings, output)
    draft = _draft(request, spec, model, settings, output)
    shards = _shards(request, spec, model, draft, settings, store) if request.shards else None
    places = _places(request, spec, model, draft, settings, output, bool(shards))
    store.count("hit", "compile", artifact.key)
    staged = directory.with_name(f".{directory.name}.{os.getpid()}")
    try:
        with store.hold(artifact):
            files = _fill(staged, store, artifact, shards)
        _write_config(staged, store, artifact, spec, (model, draft), places, bool(shards))
        _write_config_json(model, staged)
        _copy_tokenizer(model, staged)
        _write(staged / SIDECAR, json.dumps(_sidecar(artifact, spec, model), indent=1) + "\n")
        _publish(staged, directory, writable=request.copy)
    except OSError as error:
        raise StoreError(
            f"{directory} cannot be written: {error.strerror or error}",
            hint="free space there, or name another directory",
        ) from None
    finally:
        _remove(staged)
    size = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    output.line(f"exported  {directory}  ({human_bytes(size)})")
    if consumer.name == "vllm":
        output.note(
            f"serve it: neuroncompile env {artifact.key[:12]} --for {consumer.text} "
            f"--dir {directory}"
        )
    if not request.copy:
        output.note("read-only; root is not held by that, so mount it read-only in a container")
    output.result(
        {
            "key": artifact.key,
            "for": consumer.text,
            "path": str(directory),
            "model": model.name,
            "revision": model.revision,
            "weights": "sharded" if shards else places["path"],
            "files": files,
            "bytes": size,
        }
    )
    return 0


def _check_place(directory: Path, settings: Settings) -> None:
    parent = directory.parent
    if Path(os.path.realpath(directory)).is_relative_to(os.path.realpath(settings.store)):
        raise UsageError(
            f"{directory} lies in the store, whose files vLLM's loader would delete",
            hint="name a directory elsewhere",
        )
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()):
        raise UsageError(f"{directory} is there and no directory", hint="name another directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise UsageError(
            f"{directory} is not empty; nothing in it was touched",
            hint="name a new directory, or remove that one",
        )
    if not parent.is_dir():
        raise UsageError(f"no directory {parent}", hint=f"mkdir -p {parent}")


def _draft(
    request: ExportRequest,
    spec: Mapping[str, Any],
    model: PinnedModel,
    settings: Settings,
    output: Output,
) -> PinnedModel | None:
    if "draft" not in spec:
        if request.draft or request.draft_path:
            raise UsageError("this program has no draft", hint="leave --draft-model out")
        return None
    if request.draft is None:
        if request.draft_path is not None and not request.shards:
            return None
        raise UsageError(
            "this program decodes with a draft; its weights are needed, too",
            hint="name it with --draft-model REF",
        )
    return served_draft(request.draft, model, spec, settings, output)


def _shards(
    request: ExportRequest,
    spec: Mapping[str, Any],
    model: PinnedModel,
    draft: PinnedModel | None,
    settings: Settings,
    store: Store,
) -> Artifact:
    from neuroncompile.keys import spec_key
    from neuroncompile.pipeline.shards import quantised_in, shard_spec_of

    packed = quantised_in(spec, model, settings, store)
    wanted = spec_key(shard_spec_of(spec, model, settings, draft=draft, packed=packed))
    found = store.lookup("shard", wanted)
    if found is None:
        raise ConfigError(
            f"the store has no weights of {model.name} cut for this program",
            field="--shards",
            value=wanted[:12],
            legal="made by build --shard",
            hint="build it with --shard, where the toolchain is; or leave --shards out",
        )
    return found


def _places(
    request: ExportRequest,
    spec: Mapping[str, Any],
    model: PinnedModel,
    draft: PinnedModel | None,
    settings: Settings,
    output: Output,
    sharded: bool,
) -> dict[str, str | None]:
    """Where the serving host finds what is not shipped."""
    quantized = request.quantized_path
    if spec["neuron"].get("quantized") and quantized is None and not sharded:
        raise ConfigError(
            "this program takes quantised weights, and nothing says where they will be",
            field="quantized_checkpoints_path",
            value=None,
            legal="a directory on the host that serves",
            hint="ship them with --shards (after build --shard), or name --quantized-path DIR",
        )
    fetch = not sharded
    own = request.model_path or checkpoint_directory(model, settings, output, fetch=fetch)
    second = request.draft_path
    if second is None and draft is not None:
        second = checkpoint_directory(draft, settings, output, fetch=fetch)
    return {"path": own, "quantized": quantized, "draft": second}


def _fill(staged: Path, store: Store, artifact: Artifact, shards: Artifact | None) -> list[str]:
    """Copy the program and the shards, each file's digest taken on the way."""
    staged.mkdir()
    titles = []
    for source in (artifact, shards):
        for layer in source.layers if source is not None else ():
            if source is artifact and layer.title in KEPT_APART:
                continue
            path = staged / layer.title
            path.parent.mkdir(parents=True, exist_ok=True)
            if _copied(store.blob_path(layer.digest), path) != layer.digest.partition(":")[2]:
                raise CorruptArtifactError(
                    f"{layer.title} of {artifact.key[:12]} differs from its digest",
                    hint="neuroncompile store verify; then build it again",
                    details={"layer": layer.title, "digest": layer.digest},
                )
            titles.append(layer.title)
    return sorted(titles)


def _copied(source: Path, target: Path) -> str:
    digest = hashlib.sha256()
    with source.open("rb") as file, target.open("wb") as out:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _write_config(
    staged: Path,
    store: Store,
    artifact: Artifact,
    spec: Mapping[str, Any],
    models: tuple[PinnedModel, PinnedModel | None],
    places: Mapping[str, str | None],
    sharded: bool,
) -> None:
    model, draft = models
    by_title = {layer.title: layer.digest for layer in artifact.layers}
    constructed = json.loads(store.blob_path(by_title["constructed.json"]).read_bytes())
    text = for_model(
        constructed,
        path=str(places["path"]),
        config=model.config,
        transformers=spec["toolchain"].get("transformers", ""),
        sharded=sharded,
        quantized=places["quantized"],
        draft=places["draft"],
        draft_config={} if draft is None else draft.config,
        own_class="class" in spec["model"],
    )
    _write(staged / CONFIG, text)


def _write_config_json(model: PinnedModel, staged: Path) -> None:
    """The model's own config, so that vLLM can be given the directory as the model, too."""
    from neuroncompile.models.spelling import older_spelling

    text = json.dumps(older_spelling(model.config), indent=2, sort_keys=True)
    _write(staged / "config.json", text + "\n")


def _copy_tokenizer(model: PinnedModel, staged: Path) -> None:
    if model.tokenizer_dir is None:
        return
    for name in TOKENIZER:
        source = model.tokenizer_dir / name
        if source.is_file():
            shutil.copyfile(source, staged / name)


def _sidecar(artifact: Artifact, spec: Mapping[str, Any], model: PinnedModel) -> dict[str, Any]:
    return {
        "schema": 1,
        "key": artifact.key,
        "manifest": artifact.manifest_digest,
        "model": {"name": model.name, "revision": model.revision},
        "spec": dict(spec),
    }


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())


def _publish(staged: Path, directory: Path, *, writable: bool) -> None:
    if not writable:
        for path in sorted(staged.rglob("*"), reverse=True):
            path.chmod(0o555 if path.is_dir() else 0o444)
    if directory.is_dir():
        directory.rmdir()  # it was empty a moment ago, or this fails
    os.rename(staged, directory)
    if not writable:
        directory.chmod(0o555)
    handle = os.open(directory.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(staged: Path) -> None:
    if not staged.exists():
        return
    for path in [staged, *staged.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(OSError):
                path.chmod(0o755)
    shutil.rmtree(staged, ignore_errors=True)
