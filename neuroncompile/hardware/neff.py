"""The NEFF file: what a compiled graph says about itself.

A header of 1,024 bytes, little-endian, without a magic number, then a gzip stream (or a plain
tar) of members, padded with zeros. Layout from the AWS documentation
(neuron-runtime/explore/work-with-neff-files.rst), checked against files of neuronx-cc 2.23. The
header's hash is no checksum of anything found there, and two compiles of one program differ in
it; the *program digest*, SHA-256 of the unpacked tar, is equal.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from neuroncompile.errors import CorruptArtifactError

__all__ = ["ARCHITECTURES", "HEADER_BYTES", "Neff", "is_neff", "read_neff"]

HEADER_BYTES = 1024
MAX_UNPACKED = 4 << 30  # bytes: a stream that grows beyond is no program
ARCHITECTURES = {
    "sunda": ("trn1", "trn1n", "inf2"),
    "cayman": ("trn2",),
    "mariana": ("trn3",),
}
"""The compiler's name of an architecture → targets; only cayman was seen in real files."""

_FIXED = struct.Struct("<5Q128sI32s16s256sI64s")  # up to requested_tpb_count and tpb_per_node
_FEATURES = struct.Struct("<QI")


@dataclass(frozen=True, slots=True)
class Neff:
    """One NEFF.

    Attributes:
        package_version: 1 or 2, of the container.
        version: (major, minor) of the format; runtimes judge it.
        size: bytes of header and data together.
        lnc: physical cores a logical one has.
        feature_bits: what a runtime must know.
        uuid: 32 hex digits, new with each compile.
        name: the output file's.
        compiler: full version of neuronx-cc, "2.23.6484.0+3b612583"; "" where it is not said.
        architecture: the compiler's name, "cayman"; "" where it is not said.
        program: program digest, 64 hex digits.
    """

    package_version: int
    version: tuple[int, int]
    size: int
    lnc: int
    feature_bits: int
    uuid: str
    name: str
    compiler: str
    architecture: str
    program: str

    @property
    def targets(self) -> tuple[str, ...]:
        """Targets it was compiled for; empty where the file does not say."""
        return ARCHITECTURES.get(self.architecture, ())


def is_neff(data: bytes) -> bool:
    """Whether bytes begin as a NEFF does; at least the header and 512 bytes more are needed."""
    if len(data) < HEADER_BYTES + 2:
        return False
    package, header, size = struct.unpack_from("<3Q", data)
    if header != HEADER_BYTES or package not in (1, 2) or not size:
        return False
    body = data[HEADER_BYTES:]
    return body[:2] == b"\x1f\x8b" or body[257:262] == b"ustar"


def read_neff(source: Path | bytes) -> Neff:
    """Read one NEFF whole; `source` may be longer than it, as inside another file.

    Raises:
        CorruptArtifactError: it is none, or is cut short, or does not unpack.
    """
    data = source if isinstance(source, bytes) else _bytes_of(source)
    where = "the NEFF" if isinstance(source, bytes) else str(source)
    if len(data) < HEADER_BYTES:
        raise _broken(where, f"it has {len(data)} bytes; a header alone has {HEADER_BYTES}")
    fields = _FIXED.unpack_from(data)
    package, header, size, major, minor = fields[:5]
    if header != HEADER_BYTES or package not in (1, 2):
        raise _broken(where, "it does not begin as a NEFF does")
    if size > len(data) - HEADER_BYTES:
        missing = size - (len(data) - HEADER_BYTES)
        raise _broken(where, f"it is cut short: {missing} of {size} bytes are missing")
    features, lnc = _FEATURES.unpack_from(data, 544)
    tar = _unpacked(data[HEADER_BYTES : HEADER_BYTES + size], where)
    info, kelf = _members(tar, where)
    return Neff(
        package_version=package,
        version=(major, minor),
        size=HEADER_BYTES + size,
        lnc=lnc,
        feature_bits=features,
        uuid=fields[8].hex(),
        name=_text(fields[9]),
        compiler=str(info.get("tool_version", "")) or _text(fields[5]),
        architecture=str(kelf.get("target", "")),
        program=hashlib.sha256(tar).hexdigest(),
    )


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise _broken(str(path), f"it cannot be read: {error.strerror}") from None


def _unpacked(body: bytes, where: str) -> bytes:
    """The tar; zeros after a gzip stream are padding."""
    if body[:2] != b"\x1f\x8b":
        if body[257:262] != b"ustar":
            raise _broken(where, "its data is neither gzip nor tar")
        return body
    stream = zlib.decompressobj(wbits=31)
    try:
        tar = stream.decompress(body, MAX_UNPACKED)
    except zlib.error as error:
        raise _broken(where, f"its data does not unpack: {error}") from None
    if not stream.eof:
        raise _broken(where, "its data ends too early, or unpacks to more than 4 GiB")
    if stream.unused_data.strip(b"\0"):
        raise _broken(where, "something follows its data")
    return tar


def _members(tar: bytes, where: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """info.json and the first kelf; empty where they are not there."""
    found: dict[str, dict[str, Any]] = {}
    try:
        for name, data in _json_members(tar):
            found[name] = data
    except (tarfile.TarError, ValueError, EOFError, OSError) as error:
        raise _broken(where, f"its members cannot be read: {error}") from None
    return found.get("info.json", {}), found.get("kelf-0.json", {})


def _json_members(tar: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            name = member.name.removeprefix("./")
            if name not in ("info.json", "kelf-0.json") or not member.isfile():
                continue
            file = archive.extractfile(member)
            content = json.loads(file.read(1 << 20)) if file is not None else {}
            if isinstance(content, dict):
                yield name, content


def _text(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", errors="replace")


def _broken(where: str, why: str) -> CorruptArtifactError:
    return CorruptArtifactError(
        f"{where} is not a whole NEFF: {why}",
        hint="build it again",
        details={"file": where, "why": why},
    )
