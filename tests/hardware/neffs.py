"""NEFFs made by the tests, in the layout of real ones."""

from __future__ import annotations

import gzip
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

MEMBERS: Mapping[str, Any] = {
    "info.json": {"tool_version": "2.23.6484.0+3b612583", "name": "file.neff"},
    "kelf-0.json": {"version": 0.5, "target": "cayman"},
    "sg00/def.json": {"var": {}},
    "neff.json": {"nodes": []},
}


def tar_of(members: Mapping[str, Any] = MEMBERS) -> bytes:
    """A ustar; bytes are taken as they are, all else as JSON."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in members.items():
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def neff_of(
    tar: bytes | None = None,
    *,
    body: bytes | None = None,
    name: bytes = b"file.neff",
    build: bytes = b"",
    lnc: int = 2,
    features: int = 0xC00,
    package: int = 2,
    size: int | None = None,
) -> bytes:
    """The file: `body` as it is, or `tar` (default `tar_of()`) in gzip with its padding."""
    if body is None:
        body = gzip.compress(tar_of() if tar is None else tar)
        body += bytes(-len(body) % 10240)
    head = struct.pack("<5Q", package, 1024, len(body) if size is None else size, 2, 0)
    head += build.ljust(128, b"\0") + struct.pack("<I", 1) + bytes(range(32)) + bytes(range(16))
    head += name.ljust(256, b"\0") + struct.pack("<I", 1) + b"\1".ljust(64, b"\0")
    head += struct.pack("<QI", features, lnc)
    return head.ljust(1024, b"\0") + body


def bomb(unpacked: int) -> bytes:
    """A gzip stream of `unpacked` zeros behind a member's header that promises them."""
    head = tarfile.TarInfo("weights.npy")
    head.size = unpacked
    out = zlib.compressobj(1, wbits=31)
    pieces = [out.compress(head.tobuf(tarfile.USTAR_FORMAT))]
    zeros = bytes(1 << 20)
    for _ in range(unpacked >> 20):
        pieces.append(out.compress(zeros))
    return b"".join([*pieces, out.flush()])
