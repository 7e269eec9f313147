"""A model in one GGUF file.

What its header says is written once as Hugging Face's small files, under the digest of the
file, into `models/<sha256>/` of the store; later resolutions read only those.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from neuroncompile.errors import ModelError, StoreError
from neuroncompile.models.inputs import Inputs
from neuroncompile.models.metadata import read_metadata
from neuroncompile.models.pinned import PinnedModel, WeightFile
from neuroncompile.models.progress import Progress
from neuroncompile.settings import Settings

__all__ = ["dequantise", "open_gguf"]

DERIVED = "hf-1"
"""Directory of the derived files; its number changes when the derivation does."""


def dequantise(source: Path, out: Path, dtype: str, progress: Progress | None = None) -> None:
    """Write a GGUF file's weights as safetensors; see `gguf_weights.dequantise`."""
    from neuroncompile.models import gguf_weights

    gguf_weights.dequantise(source, out, dtype, progress)


def open_gguf(
    path: Path,
    reference: str,
    settings: Settings,
    expected: str | None = None,
    progress: Progress | None = None,
    *,
    sha256: str | None = None,
) -> PinnedModel:
    """Pin a GGUF file.

    Args:
        expected: SHA-256 the file must have.
        sha256: its SHA-256, where the caller vouches for it; otherwise hashed, once.

    Raises:
        ModelError: broken, of another digest, or of a kind that is not read.
        StoreError: the derived files cannot be written.
    """
    digest = sha256 or Inputs(settings.store).sha256(path, progress)
    if expected is not None and digest != expected:
        raise ModelError(
            f"{path.name} has SHA-256 {digest[:12]}…, not {expected[:12]}… as pinned",
            hint="the file is another one than the recipe names; correct one of the two",
            details={"path": str(path), "sha256": digest, "expected": expected},
        )
    directory = settings.store / "models" / digest / DERIVED
    if not (directory / "config.json").exists():
        _derive(path, directory)
    metadata = read_metadata(directory)
    return PinnedModel(
        reference=reference,
        source="gguf",
        name=path.name,
        revision=None,
        config=metadata.config,
        generation_config=metadata.generation_config,
        tokenizer_dir=metadata.tokenizer_dir,
        weights=(WeightFile(path.name, path.stat().st_size, digest, path),),
        weights_format="gguf",
        dtype="bfloat16",
        chat_template=metadata.chat_template,
    )


def _derive(path: Path, directory: Path) -> None:
    import shutil

    from neuroncompile.models.gguf_config import config_of, generation_config_of
    from neuroncompile.models.gguf_header import read_gguf
    from neuroncompile.models.gguf_tokenizer import tokenizer_config_of, tokenizer_json_of

    header = read_gguf(path)
    texts = {
        "config.json": _json(config_of(header, path)),
        "generation_config.json": _json(generation_config_of(header)),
        "tokenizer_config.json": _json(tokenizer_config_of(header)),
        "tokenizer.json": tokenizer_json_of(header, path),
    }
    temporary = directory.with_name(f".{DERIVED}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        temporary.mkdir(parents=True)
        for name, text in texts.items():
            with (temporary / name).open("w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
        try:
            os.rename(temporary, directory)
        except OSError:
            if not (directory / "config.json").exists():  # else another process was first
                raise
    except OSError as error:
        raise StoreError(
            f"cannot write {directory}: {error.strerror}",
            hint="free some space, or name a writable store with --store",
            details={"path": str(directory)},
        ) from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
