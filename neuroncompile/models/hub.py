"""A model on the Hugging Face Hub, pinned to one commit.

All files come from that commit, even if its branch moves between the first and the last one.
What the Hugging Face cache holds is read without its client; the network is asked only for the
commit of a branch or tag, for the file list of a commit seen for the first time, and for files
that are not in the cache. Only safetensors are taken: other formats are pickles, which are code.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from neuroncompile.errors import ModelError, NetworkError, NotCachedError
from neuroncompile.models.hub_cache import COMMIT, Commit, RepoFile, Repository, is_intact
from neuroncompile.models.inputs import Inputs
from neuroncompile.models.local import INDEX, SINGLE, checkpoint_dtype, shard_names
from neuroncompile.models.metadata import METADATA_FILES, read_metadata, read_object
from neuroncompile.models.pinned import PinnedModel, WeightFile
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import Reference
from neuroncompile.settings import Settings

if TYPE_CHECKING:
    from neuroncompile.models.hub_client import HubClient

__all__ = ["Opening", "download_weights", "open_repository"]


def open_repository(
    parsed: Reference,
    reference: str,
    settings: Settings,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
) -> PinnedModel:
    """Pin a repository, fetching its small files where they are not in the cache.

    Raises:
        ModelNotFoundError: no such repository or revision.
        GatedModelError: it exists, but this token may not read it.
        NetworkError: the Hub cannot be reached or fails.
        NotCachedError: offline, and not all in the cache.
        ModelError: no safetensors, or a file that is broken.
    """
    repository = Repository(parsed.name, settings.hub.cache, settings.store)
    revision = parsed.revision or "main"
    opening = Opening(repository, revision, settings, progress, before_download)
    commit = opening.commit()
    opening.fetch([name for name in METADATA_FILES if name in commit.files], commit)
    if "config.json" not in commit.files:
        raise _no_config(opening, commit)
    snapshot = repository.snapshot(commit.sha)
    metadata = read_metadata(snapshot)
    shards = _shards(opening, commit)
    commit = opening.with_dtype(commit, shards)
    repository.remember_ref(revision, commit.sha)  # last: a ref's small files are all there
    inputs = Inputs(settings.store)
    return PinnedModel(
        reference=reference,
        source="hub",
        name=f"{repository.name}@{commit.sha[:7]}",
        revision=commit.sha,
        config=metadata.config,
        generation_config=metadata.generation_config,
        tokenizer_dir=metadata.tokenizer_dir,
        weights=tuple(
            _weight(snapshot / name, name, commit.files[name], inputs) for name in shards
        ),
        weights_format="safetensors",
        dtype=commit.dtype or checkpoint_dtype((), inputs, metadata.config),
        chat_template=metadata.chat_template,
    )


def download_weights(
    model: PinnedModel, settings: Settings, progress: Progress | None = None
) -> PinnedModel:
    """The model with every weight file in the cache and compared with its digest.

    Raises:
        NotCachedError: offline, and one is missing.
        ModelError: one cannot be had, or its bytes are not its commit's.
    """
    assert model.revision is not None
    name = model.name.rpartition("@")[0]
    repository = Repository(name, settings.hub.cache, settings.store)
    opening = Opening(repository, model.revision, settings, progress, None)
    commit = opening.commit()
    opening.fetch([weight.name for weight in model.weights], commit)
    snapshot = repository.snapshot(commit.sha)
    weights = tuple(replace(weight, path=snapshot / weight.name) for weight in model.weights)
    return replace(model, weights=weights)


class Opening:
    """One look-up of a repository; the network client is made when first needed."""

    def __init__(
        self,
        repository: Repository,
        revision: str,
        settings: Settings,
        progress: Progress | None,
        before_download: Callable[[], None] | None,
    ) -> None:
        self.repository = repository
        self._revision = revision
        self._settings = settings
        self._progress = progress
        self._before_download = before_download
        self._made: HubClient | None = None

    def commit(self) -> Commit:
        """The commit, from memory or the cache where that is enough, else from the Hub."""
        sha = self.repository.commit_of(self._revision)
        pinned = COMMIT.fullmatch(self._revision) is not None
        if sha is not None and (pinned or self._settings.offline):
            known = self.repository.recall(sha)
            if known is None and self._settings.offline:
                known = self.repository.found(sha)
            if known is not None:
                return known
        try:
            commit = self._client().commit(self._revision)
        except NetworkError as error:
            if sha is not None and not pinned:
                error.hint = f"use the cached commit {sha[:7]} with --offline, or try again later"
            raise
        known = self.repository.recall(commit.sha)
        if known is not None:
            return known
        self.repository.remember(commit)
        return commit

    def fetch(self, names: list[str], commit: Commit) -> None:
        """Have these files in the snapshot, each with the bytes its commit has.

        Raises:
            ModelError: even a fresh download differs from what the Hub published.
        """
        snapshot = self.repository.snapshot(commit.sha)
        inputs = Inputs(self._settings.store)
        for name in names:
            path, file = snapshot / name, commit.files[name]
            if path.exists():
                if self._trusted(path, file) or is_intact(
                    path, file, inputs, read=True, progress=self._progress
                ):
                    continue
                if self._settings.offline:
                    raise self._broken(name, path)
                self.repository.discard(commit.sha, name)
            path = self._client(name).download(commit.sha, name, self._progress)
            if not is_intact(path, file, inputs, read=True, progress=self._progress):
                self.repository.discard(commit.sha, name)
                raise self._broken(name, path)

    def with_dtype(self, commit: Commit, shards: list[str]) -> Commit:
        """The commit with its dtype, asked of the first weight file's header.

        Always the first file's, whether it is here or not: the dtype enters the key, which must
        not depend on whether the weights have been downloaded.
        """
        if commit.dtype is not None:
            return commit
        name = shards[0]
        path = self.repository.snapshot(commit.sha) / name
        if path.exists():
            here = (WeightFile(name, commit.files[name].size, None, path),)
            dtype = checkpoint_dtype(here, Inputs(self._settings.store), {})
        elif self._settings.offline:
            return commit
        else:
            dtype = self._client().dtype(commit.sha, name)
        commit = commit._replace(dtype=dtype)
        if self.repository.recall(commit.sha) is not None:
            self.repository.remember(commit)
        return commit

    def missing(self, what: str) -> NotCachedError:
        return NotCachedError(
            f"{what} of {self.repository.name} at {self._revision} is not in "
            f"{self._settings.hub.cache}, and this is offline",
            hint="run once without --offline and HF_HUB_OFFLINE, or copy the cache of a machine "
            "that did",
            details={
                "repository": self.repository.name,
                "revision": self._revision,
                "cache": str(self._settings.hub.cache),
            },
        )

    def _client(self, what: str = "config.json") -> HubClient:
        if self._settings.offline:
            raise self.missing(what)
        if self._made is None:
            from neuroncompile.models.hub_client import HubClient

            if self._before_download is not None:
                self._before_download()
            self._made = HubClient(self.repository, self._settings.hub)
        return self._made

    def _trusted(self, path: Path, file: RepoFile) -> bool:
        """Where nothing can be remembered, hashing 140 GB at each start would be the price."""
        place = self._settings.store
        while not place.exists() and place != place.parent:
            place = place.parent
        return not os.access(place, os.W_OK) and path.stat().st_size == file.size

    def _broken(self, name: str, path: Path) -> ModelError:
        return ModelError(
            f"{name} of {self.repository.name} differs from what the Hub published",
            hint="run the command again with network access; it is downloaded anew",
            details={"path": str(path)},
        )


def _weight(path: Path, name: str, file: RepoFile, inputs: Inputs) -> WeightFile:
    intact = is_intact(path, file, inputs, read=False)
    return WeightFile(name, file.size, file.sha256, path if intact else None)


def _shards(opening: Opening, commit: Commit) -> list[str]:
    """Names of the weight files, from the index where there is one."""
    name = opening.repository.name
    if SINGLE in commit.files:
        return [SINGLE]
    if INDEX not in commit.files:
        raise _no_safetensors(opening, commit)
    opening.fetch([INDEX], commit)
    path = opening.repository.snapshot(commit.sha) / INDEX
    shards = list(shard_names(read_object(path), f"{INDEX} of {name}"))
    absent = [shard for shard in shards if shard not in commit.files]
    if absent:
        if not commit.listed:
            raise opening.missing(absent[0])
        raise ModelError(
            f"{name} is incomplete: its index names {absent[0]}, which the repository lacks",
            hint="tell its owner, or name an earlier revision with @",
            details={"missing": absent},
        )
    return shards


def _no_config(opening: Opening, commit: Commit) -> ModelError:
    if not commit.listed:
        return opening.missing("config.json")
    ggufs = sorted(name for name in commit.files if name.endswith(".gguf"))
    hint = "name the repository of the base model in transformers' format"
    if ggufs:
        hint = f"download {ggufs[0]} and name that file"
    elif "adapter_config.json" in commit.files:
        hint = "this is a LoRA adapter; name its base model"
    return ModelError(
        f"{opening.repository.name} has no config.json",
        hint=hint,
        details={"files": sorted(commit.files)[:50]},
    )


def _no_safetensors(opening: Opening, commit: Commit) -> ModelError:
    if not commit.listed:
        return opening.missing(SINGLE)
    name = opening.repository.name
    pickles = sorted(n for n in commit.files if n.endswith((".bin", ".pt", ".pth")))
    if pickles:
        return ModelError(
            f"{name} has only {pickles[0]}, a pickle, which is code and is not loaded",
            hint="name a revision with safetensors (often refs/pr/1), or save it with "
            "transformers' save_pretrained",
            details={"files": pickles[:50]},
        )
    return ModelError(
        f"{name} has no {SINGLE} and no {INDEX}",
        hint="name a repository with safetensors in transformers' layout",
        details={"files": sorted(commit.files)[:50]},
    )
