"""`store export` and `store import`: artifacts to and from one file, directory or pipe."""

from __future__ import annotations

import io
import os
import stat
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

from neuroncompile.errors import StoreError, UsageError
from neuroncompile.output import Output, human_bytes, human_seconds
from neuroncompile.pipeline.progress import Transfer
from neuroncompile.pipeline.stores import open_store
from neuroncompile.settings import Settings
from neuroncompile.store import Artifact, Store
from neuroncompile.store.archive_read import Imported, Taken, import_directory, import_tar
from neuroncompile.store.archive_write import (
    Exported,
    export_directory,
    export_stream,
    export_tar,
)

__all__ = ["export_command", "import_command"]

STDIO = "-"
LISTED = 20  # artifacts told one by one without -v


# ---------------------------------------------------------------------- export


def export_command(
    keys: Sequence[str],
    everything: bool,
    kind: str | None,
    target: str | None,
    settings: Settings,
    output: Output,
) -> int:
    """Write artifacts to `target`: a tar, a directory (it ends in `/`), or `-` for stdout."""
    target = _target(target, output)
    store = open_store(settings, output)
    artifacts = _selected(store, keys, everything, kind)
    began = time.monotonic()
    progress = Transfer(output)
    if target == STDIO:
        stdout = io.FileIO(sys.stdout.fileno(), "wb", closefd=False)  # nothing waits to be flushed
        done = export_stream(store, artifacts, stdout, progress, "stdout")
    elif target.endswith("/") or os.path.isdir(target):
        done = export_directory(store, artifacts, Path(target), progress)
    elif os.path.lexists(target) and not os.path.isfile(target):
        with _opened(target, "wb") as file:  # a named pipe or a device has no end to rename
            done = export_stream(store, artifacts, file, progress, target)
    else:
        done = export_tar(store, artifacts, Path(target), progress)
    summary = (
        f"exported {_count(len(artifacts), 'artifact')} in {_count(done.blobs, 'file')}, "
        f"{human_bytes(done.size)}, to {'stdout' if target == STDIO else target} "
        f"in {human_seconds(time.monotonic() - began)}"
    )
    if target == STDIO:
        output.note(summary)
    else:
        output.line(summary)
    output.result(_exported(done, target))
    return 0


def _target(target: str | None, output: Output) -> str:
    if target is None or target == STDIO:
        if output.json_mode:
            raise UsageError(
                "--json and the archive cannot both be on stdout", hint="name a file with -o FILE"
            )
        if target is None and sys.stdout.isatty():
            raise UsageError(
                "the archive would go to the terminal",
                hint="name a file with -o FILE.tar, a directory with -o DIR/, or pipe it",
            )
        return STDIO
    return target


def _selected(
    store: Store, keys: Sequence[str], everything: bool, kind: str | None
) -> list[Artifact]:
    if bool(keys) == (everything or kind is not None):
        raise UsageError(
            "name artifacts, or take all with --all" if not keys else "KEY and --all or --kind",
            hint="neuroncompile store export KEY -o FILE.tar; `neuroncompile store ls` has keys",
        )
    if keys:
        return list({a.manifest_digest: a for a in map(store.find, keys)}.values())
    found = list(store.artifacts(kind))
    if not found:
        kinds = ", ".join(sorted({a.kind for a in store.artifacts()}))
        has = f"; it has {kinds}" if kinds else ""
        what = f"artifacts of the kind {kind!r}" if kind else "artifacts"
        raise StoreError(
            f"{store.root} holds no {what}{has}",
            hint="`neuroncompile store ls` lists what is there",
        )
    return found


def _exported(done: Exported, target: str) -> dict[str, Any]:
    return {
        "path": target,
        "blobs": done.blobs,
        "bytes": done.size,
        "artifacts": [
            {
                "kind": root.kind,
                "key": root.key,
                "manifest": f"sha256:{root.manifest}",
                "names": list(root.names),
            }
            for root in done.roots
        ],
    }


# ---------------------------------------------------------------------- import


def import_command(path: str, trust: bool, settings: Settings, output: Output) -> int:
    """Take in the archive at `path`, or from stdin for `-`."""
    store = Store(settings.store, on_warning=output.warn)  # what a layer below has is not here
    began = time.monotonic()
    taken = _import(store, path, trust, Transfer(output))
    new = [i for i in taken.artifacts if i.new]
    level = 0 if len(taken.artifacts) <= LISTED else 1
    for imported in taken.artifacts:
        _report(imported, output, level)
    if any(i.artifact.kind in ("compile", "graph") for i in new):
        output.note("programs are native code that runs when it is loaded: trust its sender")
    output.line(
        f"imported {_count(len(new), 'new artifact')}, {len(taken.artifacts) - len(new)} already "
        f"here; {human_bytes(taken.new_bytes)} new, {human_bytes(taken.known_bytes)} already here, "
        f"in {human_seconds(time.monotonic() - began)}"
    )
    output.result(_imported(taken, store))
    return 0


def _import(store: Store, path: str, trust: bool, progress: Transfer) -> Taken:
    if path == STDIO:
        if sys.stdin.isatty():
            raise UsageError(
                "the archive would come from the terminal",
                hint="name a file, or pipe it: neuroncompile store import - <FILE.tar",
            )
        return import_tar(store, sys.stdin.buffer, trust=trust, on_progress=progress)
    if os.path.isdir(path):
        return import_directory(store, Path(path), trust=trust, on_progress=progress)
    with _opened(path, "rb") as file:
        found = os.fstat(file.fileno())
        size = found.st_size if stat.S_ISREG(found.st_mode) else None
        return import_tar(store, file, size=size, trust=trust, on_progress=progress)


def _report(imported: Imported, output: Output, level: int) -> None:
    artifact = imported.artifact
    size = human_bytes(sum(d.size for d in artifact.layers))
    state = "new" if imported.new else "already here"
    if not imported.same:
        state = "already here, built separately: that one is kept"
    names = f" as {', '.join(imported.names)}" if imported.names else ""
    output.note(f"{artifact.kind} {artifact.key[:12]}  {size}  {state}{names}", level=level)
    for name, why in imported.refused:
        output.warn(f"{artifact.kind} {artifact.key[:12]} is not named {name!r}: {why}")


def _imported(taken: Taken, store: Store) -> dict[str, Any]:
    return {
        "store": str(store.root),
        "new": sum(i.new for i in taken.artifacts),
        "already_here": sum(not i.new for i in taken.artifacts),
        "new_bytes": taken.new_bytes,
        "already_here_bytes": taken.known_bytes,
        "artifacts": [
            {
                "kind": i.artifact.kind,
                "key": i.artifact.key,
                "manifest": i.artifact.manifest_digest,
                "bytes": sum(d.size for d in i.artifact.layers),
                "new": i.new,
                "same": i.same,
                "names": list(i.names),
                "refused_names": [{"name": name, "why": why} for name, why in i.refused],
            }
            for i in taken.artifacts
        ],
    }


def _opened(path: str, mode: str) -> BinaryIO:
    try:
        return open(path, mode)  # type: ignore[return-value]
    except OSError as error:
        raise StoreError(
            f"{path} cannot be opened: {error.strerror}",
            hint="give a tar that `neuroncompile store export` made, a directory, or -",
        ) from None


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
