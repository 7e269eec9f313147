"""The fixed files of a store: what marks the directory as an OCI layout, a cache, and ours."""

from __future__ import annotations

import json
import os
from pathlib import Path

from neuroncompile.errors import StoreError
from neuroncompile.store.durable import (
    link_new,
    make_directory,
    sync_directory,
    sync_up,
    unique_name,
    write_file,
)

__all__ = ["check_features", "prepare"]

_CACHEDIR_TAG = (
    b"Signature: 8a477f597d28d172789f06886806bc55\n"
    b"# A cache of neuroncompile; see https://bford.info/cachedir/\n"
)
_FEATURES: frozenset[str] = frozenset()  # what a later version may require; we know none


def prepare(v1: Path) -> None:
    """Make the store, unless it is there.

    Raises:
        OSError: it cannot be made.
        StoreError: it is one of a newer version.
    """
    tmp = v1 / "tmp"
    make_directory(v1 / "blobs" / "sha256")
    make_directory(tmp)
    if os.path.exists(v1 / "store.json"):
        check_features(v1)
        return
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": b'{"schemaVersion":2,"manifests":[]}',
        "CACHEDIR.TAG": _CACHEDIR_TAG,
        ".gitignore": b"*\n",
        "store.json": json.dumps({"schema": 1, "id": _uuid4(), "features": []}).encode(),
    }
    for name, data in files.items():
        if name == "store.json":  # last: it says that the others are there, and will be
            sync_up(v1 / "blobs", v1.parent)
        if not os.path.exists(v1 / name):
            staged = tmp / unique_name()
            write_file(staged, data)
            link_new(staged, v1 / name)
    sync_directory(v1)


def check_features(v1: Path) -> None:
    """Refuse a store that needs what this version does not know; a missing file says nothing.

    Raises:
        StoreError: made by a newer version, or its `store.json` is broken.
    """
    path = v1 / "store.json"
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read())
        unknown = sorted(set(document.get("features", ())) - _FEATURES)
        schema = document["schema"]
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StoreError(
            f"{path} is broken", hint=f"remove {path}; the artifacts beside it stay usable"
        ) from None
    if schema != 1 or unknown:
        needs = ", ".join(map(str, unknown)) or f"schema {schema}"
        raise StoreError(
            f"the store {v1.parent} needs a newer neuroncompile ({needs})",
            hint="upgrade neuroncompile, or choose another store with --store DIR",
        )


def _uuid4() -> str:
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
