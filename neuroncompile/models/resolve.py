"""From a reference to a pinned model."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from neuroncompile.errors import ModelError, ModelNotFoundError, NotCachedError
from neuroncompile.models.inputs import Inputs
from neuroncompile.models.pinned import PinnedModel
from neuroncompile.models.progress import Progress
from neuroncompile.models.reference import parse_reference
from neuroncompile.settings import Settings

__all__ = ["cached", "fetch_weights", "resolve", "source_digests"]


def resolve(
    reference: str,
    settings: Settings,
    *,
    digests: Mapping[str, str] | None = None,
    revision: str | None = None,
    progress: Progress | None = None,
    before_download: Callable[[], None] | None = None,
) -> PinnedModel:
    """Pin the model a reference names; of a hub model only the small files are fetched.

    Args:
        digests: "wheel" and "file" → SHA-256, with or without "sha256:", that files must have.
        revision: commit, branch or tag of a hub model.
        progress: told about downloads and hashing.
        before_download: called once, just before the first byte is fetched from the network;
            what it raises stops the resolution.

    Raises:
        ModelError: the model cannot be had or read; subclasses say why.
    """
    parsed = parse_reference(reference, revision=revision)
    expected = {
        name: digest.removeprefix("sha256:").lower() for name, digest in (digests or {}).items()
    }
    if parsed.kind == "hub":
        from neuroncompile.models.hub import open_repository

        return open_repository(parsed, reference, settings, progress, before_download)
    if parsed.kind == "wheel":
        from neuroncompile.models.wheel import open_wheel

        return open_wheel(parsed, reference, settings, expected, progress, before_download)
    assert parsed.path is not None
    with _readable():
        if parsed.kind == "gguf":
            from neuroncompile.models.gguf import open_gguf

            return open_gguf(parsed.path, reference, settings, expected.get("file"), progress)
        from neuroncompile.models.local import open_directory

        return open_directory(parsed.path, reference, Inputs(settings.store))


@contextlib.contextmanager
def _readable() -> Iterator[None]:
    """A file that may not be read, or that its disk does not give, is the model's fault."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EIO, errno.ESTALE, errno.ELOOP):
            raise
        raise ModelError(
            f"{error.filename or 'a file of the model'} cannot be read: {error.strerror}",
            hint="let this user read the model's directory and files"
            if isinstance(error, PermissionError)
            else "copy the model anew",
            details={"path": str(error.filename)},
        ) from None


def cached(
    reference: str,
    settings: Settings,
    *,
    digests: Mapping[str, str] | None = None,
    revision: str | None = None,
) -> PinnedModel | None:
    """As `resolve`, from what is here already; None where it is not.

    Raises:
        ModelError: it is here, but broken.
    """
    try:
        return resolve(
            reference, replace(settings, offline=True), digests=digests, revision=revision
        )
    except (NotCachedError, ModelNotFoundError):
        return None


def fetch_weights(
    model: PinnedModel, settings: Settings, *, progress: Progress | None = None
) -> PinnedModel:
    """The model with all its weights here, every `WeightFile.path` set.

    Raises:
        ModelError: they cannot be had, or the model is known by its facts only.
    """
    if model.source == "facts":
        raise ModelError(
            f"{model.name} is known by its facts only, which have no weights",
            hint="resolve the model itself, without --dry-run",
        )
    if all(weight.path is not None for weight in model.weights):
        return model
    from neuroncompile.models.hub import download_weights

    return download_weights(model, settings, progress)


def source_digests(
    model: PinnedModel, settings: Settings, *, progress: Progress | None = None
) -> dict[str, str]:
    """Weight file name → SHA-256 (64 hex digits); a local file is read once and remembered.

    Raises:
        ModelError: a file without a known digest is not here or cannot be read.
    """
    inputs = Inputs(settings.store)
    found = {}
    for weight in model.weights:
        if weight.sha256 is not None:
            found[weight.name] = weight.sha256
        elif weight.path is not None:
            with _readable():
                found[weight.name] = inputs.sha256(weight.path, progress)
        else:
            raise NotCachedError(
                f"{weight.name} of {model.name} is not here and nobody published its digest",
                hint="run `neuroncompile build` once, which downloads it",
            )
    return found
