"""What the fault tests put into stores, and the survey of a store that has been through a fault.

The world is numbered: artifact `n` in variant `text` has known bytes, so whatever a store
serves can be compared with what it ought to be without asking the store.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.keys import spec_key
from neuroncompile.store import Artifact, Layer, Store
from neuroncompile.store.oci import parse_manifest, parse_pointer

KIND = "graph"
COMMON = b"the same in every artifact\n" * 20

Texts = Iterable[str]


class WorkError(Exception):
    """The compiler could not write its output: not a matter of the store."""


def spec(number: int) -> dict[str, Any]:
    return {"schema": 1, "kind": KIND, "backend": "cpu", "bucket": number}


def key(number: int) -> str:
    return spec_key(spec(number))


def files(number: int, text: str) -> dict[str, bytes]:
    """Title → bytes. A variant that ends in `?` has another first byte in its first graph."""
    unit = f"{number} {text.removesuffix('?')}\n".encode()
    return {
        "common.json": COMMON,
        "graphs/a.so": (b"?" if text.endswith("?") else b"a") + unit * 60,
        "graphs/b.so": b"b" + unit * 40,
    }


def publish(store: Store, number: int, text: str = "x", *, provenance: bool = False) -> Artifact:
    """Publish by all three ways in: bytes, a file of elsewhere, a file of a scratch directory."""
    content = files(number, text)
    scratch = store.scratch("work")
    elsewhere = store.root.parent / f"elsewhere-{os.getpid()}-{number}-{text}"
    elsewhere.write_bytes(content["graphs/b.so"])
    try:
        try:
            (scratch / "a.so").write_bytes(content["graphs/a.so"])
        except OSError as error:
            raise WorkError from error
        layers = [
            Layer("common.json", data=content["common.json"]),
            Layer("graphs/a.so", path=scratch / "a.so"),
            Layer("graphs/b.so", path=elsewhere),
        ]
        record = {"by": text} if provenance else None
        return store.publish(KIND, spec(number), layers, provenance=record)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def quick(store: Store, number: int, text: str = "x") -> Artifact:
    """Publish from memory."""
    layers = [Layer(title, data=data) for title, data in files(number, text).items()]
    return store.publish(KIND, spec(number), layers)


def read(view: Path, artifact: Artifact) -> dict[str, bytes]:
    return {layer.title: (view / layer.title).read_bytes() for layer in artifact.layers}


def clone(template: Path, into: Path) -> None:
    """A copy of a directory tree with a store in it that remembers what it has hashed."""
    copies: dict[int, Path] = {}
    for place, directories, names in os.walk(template):
        target = into / os.path.relpath(place, template)
        target.mkdir()
        for name in (*names, *(d for d in directories if os.path.islink(os.path.join(place, d)))):
            source, copy = Path(place, name), target / name
            seen = os.lstat(source)
            if seen.st_ino in copies:
                os.link(copies[seen.st_ino], copy, follow_symlinks=False)
            else:
                shutil.copy2(source, copy, follow_symlinks=False)
                copies[seen.st_ino] = copy
    renumber(into / "store", {str(number): path for number, path in copies.items()})


def renumber(root: Path, now: Mapping[str, Path]) -> None:
    """Where files got other inodes, give the store those in the place of what it remembers.

    Args:
        now: inode number as text → the file that had it.
    """
    for record in root.glob("v1/ingest/*"):
        seen = os.stat(record)
        lines = record.read_bytes().decode("latin-1").split("\n")
        for i, line in enumerate(lines):
            fields = line.split(" ")
            if len(fields) > 2 and fields[1] in now:
                there = os.lstat(now[fields[1]])
                lines[i] = " ".join([str(there.st_dev), str(there.st_ino), *fields[2:]])
        record.write_bytes("\n".join(lines).encode("latin-1"))
        os.utime(record, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def break_blob(path: Path, *, size: bool = False) -> None:
    """Other bytes under the same name, written over the old ones."""
    data = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(data[:-1] if size else bytes([data[0] ^ 1]) + data[1:])
    path.chmod(0o444)


def wrong_bytes(store: Store, number: int, texts: Texts) -> str | None:
    """None when the artifact is served with the bytes of one of `texts`; else what it is not."""
    artifact = store.lookup(KIND, key(number), touch=False)
    if artifact is None:
        return "missing"
    served = read(store.view(artifact), artifact)
    if not any(served == files(number, text) for text in texts):
        return "WRONG BYTES"
    for layer in artifact.layers:
        if layer.digest != f"sha256:{hashlib.sha256(served[layer.title]).hexdigest()}":
            return "BYTES OF ANOTHER DIGEST"
    return None


def survey(
    root: Path,
    *,
    kept: Mapping[int, Texts] = {},
    maybe: Mapping[int, Texts] = {},
    damaged: bool = False,
    cut: bool = False,
    check: bool = True,
) -> list[str]:
    """What is wrong with a store, as a process sees it that has just started.

    Args:
        kept: artifacts that must be served, with the variants they may have.
        maybe: artifacts that may be missing, but if served must have one of these variants.
        damaged: the test has broken something itself, and nothing has repaired it yet.
        cut: the power was cut: a view may be half, and is made again when it is asked for.
        check: ask the store as well, which reads every byte.
    """
    warnings: list[str] = []
    store = Store(root, on_warning=warnings.append)
    problems = [f"litter: {path}" for path in litter(root / "v1")]
    if not damaged:
        problems += half_made(root / "v1", views=not cut)
        if check:
            found = store.check().problems
            problems += [f"check: {p}" for p in found if not (cut and p.what == "view")]
    for number, texts in kept.items():
        if wrong := wrong_bytes(store, number, texts):
            problems.append(f"artifact {number} is {wrong}: {warnings}")
    for number, texts in maybe.items():
        wrong = wrong_bytes(store, number, texts)
        if wrong not in (None, "missing"):
            problems.append(f"artifact {number} has {wrong}")
        if wrong == "missing" and warnings and not damaged:
            problems.append(f"artifact {number} is half: {warnings}")
    known = {key(number) for number in (*kept, *maybe)}
    for artifact in store.artifacts():
        if artifact.key not in known:
            problems.append(f"nobody published {artifact.kind} {artifact.key}")
    if warnings and not damaged:
        problems.append(f"warnings: {warnings}")
    return problems


_KNOWN = {
    "CACHEDIR.TAG",
    ".gitignore",
    "oci-layout",
    "index.json",
    "store.json",
    "actions",
    "blobs",
    "failures",
    "ingest",
    "leases",
    "locks",
    "refs",
    "stats",
    "tmp",
    "views",
}


def litter(v1: Path) -> list[Path]:
    """Files that are not where files of a store are."""
    if not v1.exists():
        return []
    found = [path for path in v1.iterdir() if path.name not in _KNOWN]
    found += [path for path in v1.glob("blobs/*") if path.name != "sha256"]
    for pattern in ("blobs/sha256/*", "views/*", "actions/*/*", "failures/*/*", "ingest/*"):
        found += [path for path in v1.glob(pattern) if len(path.name) != 64]
    return found


def half_made(v1: Path, *, views: bool = True) -> list[str]:
    """Blobs that are not their digest, pointers, refs and views that lead nowhere whole."""
    problems = []
    blobs = v1 / "blobs" / "sha256"
    for blob in blobs.glob("*"):
        if hashlib.sha256(blob.read_bytes()).hexdigest() != blob.name:
            problems.append(f"blob {blob.name[:12]} is not its digest")
        if blob.stat().st_mode & 0o777 != 0o444:
            problems.append(f"blob {blob.name[:12]} has mode {blob.stat().st_mode:o}")
    named = [*v1.glob("actions/*/*"), *(p for p in v1.glob("refs/**/*") if p.is_file())]
    whole = set()
    for pointer in named:
        try:
            name = parse_pointer(pointer.read_bytes())[0]
            manifest = (blobs / name).read_bytes()
            whole.add(name)
            found, _, layers = parse_manifest(manifest)
            gone = [
                d
                for d in (f"sha256:{found}", *(layer.digest for layer in layers))
                if not (blobs / d.removeprefix("sha256:")).exists()
            ]
            if gone:
                problems.append(f"{pointer} leads to missing {gone}")
        except (CorruptArtifactError, FileNotFoundError) as error:
            problems.append(f"{pointer} leads nowhere: {error}")
    for view in v1.glob("views/*") if views else ():
        if view.name not in whole:
            continue  # of an artifact that is gone: the collector's
        for layer in parse_manifest((blobs / view.name).read_bytes())[2]:
            data = (view / layer.title).read_bytes() if (view / layer.title).exists() else b""
            if f"sha256:{hashlib.sha256(data).hexdigest()}" != layer.digest:
                problems.append(f"view {view.name[:12]} has a wrong {layer.title}")
    for name in ("oci-layout", "index.json", "store.json"):
        path = v1 / name
        if path.exists():
            try:
                json.loads(path.read_bytes())
            except ValueError:
                problems.append(f"{name} is half")
        elif (v1 / "store.json").exists():
            problems.append(f"{name} is missing beside store.json")
    return problems


def temporary(root: Path) -> list[str]:
    """What lies in the store's `tmp`."""
    tmp = root / "v1" / "tmp"
    return sorted(os.listdir(tmp)) if tmp.is_dir() else []
