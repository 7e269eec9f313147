"""`verify`: every byte of a store read again, and every name followed to its end.

What it finds is put right by `repair` in the order that keeps the invariants: a corrupt blob is
set aside, then pointers and refs that lead to it go, so the next build or pull makes them anew.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.store import layout, locks, oci
from neuroncompile.store.actions import Actions
from neuroncompile.store.blobs import Blobs
from neuroncompile.store.census import Census
from neuroncompile.store.durable import remove_tree, set_aside, unique_name
from neuroncompile.store.refs import Refs

__all__ = ["Check", "Problem", "check"]


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong: `what` is `blob`, `artifact`, `ref` or `view`; `name` which one."""

    what: str
    name: str
    why: str
    repaired: bool


@dataclass(slots=True)
class Check:
    """What was looked at, and what was wrong with it.

    Attributes:
        blobs: hashed; `bytes` of them.
        artifacts: followed from pointer to files.
        unnamed: blobs that no pointer or ref leads to, which is garbage and no problem.
    """

    blobs: int = 0
    bytes: int = 0
    artifacts: int = 0
    unnamed: int = 0
    problems: list[Problem] = field(default_factory=list)


def check(
    root: Path,
    *,
    repair: bool = False,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Check:
    """Check the store whose `v1` is `root`; nothing is changed without `repair`.

    Args:
        on_progress: called with bytes hashed and bytes in all.

    Raises:
        OSError: something cannot be read, or with `repair` not be moved.
    """
    found = Check()
    layout.check_features(root)
    census = Census(root)
    corrupt = _blobs(root, census, found, repair, on_progress)
    _artifacts(root, census, corrupt, found, repair)
    _refs(root, census, corrupt, found, repair)
    _views(root, census, found, repair)
    return found


def _blobs(
    root: Path,
    census: Census,
    found: Check,
    repair: bool,
    on_progress: Callable[[int, int], None],
) -> set[str]:
    """Hex names of the blobs whose bytes are not theirs."""
    total, corrupt = sum(census.sizes.values()), set()
    for name in sorted(census.sizes):
        path = root / "blobs" / "sha256" / name
        try:
            with open(path, "rb") as file:
                seen = os.fstat(file.fileno())
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except FileNotFoundError:
            continue  # collected meanwhile
        found.blobs += 1
        found.bytes += seen.st_size
        on_progress(found.bytes, total)
        if digest != name:
            corrupt.add(name)
            moved = repair and set_aside(path, seen, root / "tmp") is not None
            why = f"its {seen.st_size} bytes have the digest {digest[:12]}"
            found.problems.append(Problem("blob", name, why, moved))
    return corrupt


def _artifacts(root: Path, census: Census, corrupt: set[str], found: Check, repair: bool) -> None:
    blobs = Blobs(root, frozen=True)
    actions = Actions(root, blobs)
    named: set[str] = set()
    for entry in census.entries:
        found.artifacts += 1
        named.update(entry.blobs)
        why = None
        if wrong := corrupt.intersection(entry.needed):
            why = f"blob {min(wrong)[:12]} is corrupt"
        else:
            try:
                actions.load(entry.kind, entry.key, "none")
                why = _missing(blobs, census, entry.manifest)
            except CorruptArtifactError as error:
                why = str(error)
        if why is not None:
            removed = repair and _remove_pointer(root, entry.path)
            name = f"{entry.kind} {entry.key}"
            found.problems.append(Problem("artifact", name, why, removed))
    for manifest in census.named.values():
        named.update(census.blobs_behind(manifest))
    found.unnamed = len(census.sizes.keys() - named)


def _missing(blobs: Blobs, census: Census, manifest: str) -> str | None:
    """Why a manifest's files are not all there with their sizes; None when they are."""
    _, _, layers = oci.parse_manifest(blobs.read(manifest))
    for layer in layers:
        size = census.sizes.get(oci.hex_of(layer.digest))
        if size is None and not blobs.present(oci.hex_of(layer.digest), layer.size):
            return f"{layer.title} ({oci.hex_of(layer.digest)[:12]}) is missing"
        if size is not None and size != layer.size:
            return f"{layer.title} has {size} bytes instead of {layer.size}"
    return None


def _refs(root: Path, census: Census, corrupt: set[str], found: Check, repair: bool) -> None:
    refs = Refs(root)
    blobs = Blobs(root, frozen=True)
    for name in refs.names():
        manifest = census.named.get(name)
        if manifest is None:
            why: str | None = "it is not a descriptor of a manifest"
        elif wrong := corrupt.intersection(census.blobs_behind(manifest)):
            why = f"blob {min(wrong)[:12]} is corrupt"
        else:
            try:
                why = _missing(blobs, census, manifest)
            except CorruptArtifactError as error:
                why = str(error)
        if why is not None:
            if repair:
                refs.remove(name)
            found.problems.append(Problem("ref", name, why, repair))


def _views(root: Path, census: Census, found: Check, repair: bool) -> None:
    """A view's files must be their blobs, or copies of the same bytes."""
    directory = root / "views"
    for name in sorted(os.listdir(directory)) if directory.is_dir() else []:
        try:
            _, _, layers = oci.parse_manifest(Blobs(root, frozen=True).read(name))
        except CorruptArtifactError:
            continue  # of an artifact that is gone: the collector's
        for layer in layers:
            path = directory / name / layer.title
            if not _same(path, root / "blobs" / "sha256" / oci.hex_of(layer.digest)):
                if repair:
                    aside = root / "tmp" / unique_name("view")
                    with suppress(FileNotFoundError):
                        os.rename(directory / name, aside)
                        remove_tree(aside)
                why = f"{layer.title} is not what its artifact has"
                found.problems.append(Problem("view", name, why, repair))
                break


def _same(path: Path, blob: Path) -> bool:
    try:
        if os.path.samefile(path, blob):
            return True
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == blob.name
    except FileNotFoundError:
        return False


def _remove_pointer(root: Path, path: Path) -> bool:
    with locks.shared(root), suppress(FileNotFoundError):
        os.unlink(path)
        return True
    return False
