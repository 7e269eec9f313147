"""The NEFF file: what a compiled graph says about itself.

A header of 1,024 bytes, little-endian, without a magic number, then a gzip stream (or a plain
tar) of members, padded with zeros. Layout from the AWS documentation
(neuron-runtime/explore/work-with-neff-files.rst), checked against files of neuronx-cc 2.23. The
header's hash is no checksum of anything found there, and two compiles of one program differ in
it; the *program digest*, SHA-256 of the unpacked tar, is equal.

Files come from other hosts, so nothing in them is believed: memory stays at a few megabytes
whatever sizes a file states, nothing is unpacked to disk or unpickled, and text is made printable.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from neuroncompile.errors import CorruptArtifactError

__all__ = [
    "ARCHITECTURES",
    "HEADER_BYTES",
    "MAX_UNPACKED",
    "Neff",
    "Readable",
    "broken",
    "is_neff",
    "printable",
    "read_from",
    "read_neff",
]

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
_CHUNK = 1 << 20
_BLOCK = 512  # of a tar
_MAX_JSON = 1 << 20


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


class Readable(Protocol):
    """What is read forward only."""

    def read(self, count: int, /) -> bytes: ...


def is_neff(data: bytes) -> bool:
    """Whether bytes begin as a NEFF does; at least the header and 512 bytes more are needed."""
    if len(data) < HEADER_BYTES + 2:
        return False
    package, header, size = struct.unpack_from("<3Q", data)
    if header != HEADER_BYTES or package not in (1, 2) or not size:
        return False
    body = data[HEADER_BYTES : HEADER_BYTES + _BLOCK]
    return body[:2] == b"\x1f\x8b" or body[257:262] == b"ustar"


def read_neff(source: Path | bytes) -> Neff:
    """Read one NEFF: a file that is nothing else, or bytes that may go on behind it.

    Raises:
        CorruptArtifactError: it is none, is cut short, goes on behind its end, or does not unpack.
    """
    if isinstance(source, bytes):
        return read_from(io.BytesIO(source), len(source), "the NEFF", whole=False)
    where = str(source)
    try:
        # without O_NONBLOCK a pipe of that name would hold us for ever
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise broken(where, "it is not a file")
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return read_from(file, about.st_size, where, whole=True)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise broken(where, f"it cannot be read: {error.strerror}") from None


def read_from(stream: Readable, available: int | None, where: str, *, whole: bool) -> Neff:
    """Read a NEFF from its first byte to its last.

    Args:
        available: bytes there are, None where that is not known.
        whole: nothing may follow.
    """
    head = _exactly(stream, HEADER_BYTES)
    if len(head) < HEADER_BYTES:
        raise broken(where, f"it has {len(head)} bytes; a header alone has {HEADER_BYTES}")
    fields = _FIXED.unpack_from(head)
    package, header, size, major, minor = fields[:5]
    if header != HEADER_BYTES or package not in (1, 2):
        raise broken(where, "it does not begin as a NEFF does")
    if available is not None and size != available - HEADER_BYTES:
        missing = size - (available - HEADER_BYTES)
        if missing > 0:
            raise broken(where, f"it is cut short: {missing} of {size} bytes are missing")
        if whole:
            raise broken(where, f"{-missing} bytes follow its end")
    features, lnc = _FEATURES.unpack_from(head, 544)
    tar = _Tar(_unpacked(_body(stream, size, where), where))
    found = dict(_tables(tar, where))
    compiler = found.get("info.json", {}).get("tool_version")
    architecture = found.get("kelf-0.json", {}).get("target")
    return Neff(
        package_version=package,
        version=(major, minor),
        size=HEADER_BYTES + size,
        lnc=lnc,
        feature_bits=features,
        uuid=fields[8].hex(),
        name=_text(fields[9]),
        compiler=printable(compiler) if isinstance(compiler, str) else _text(fields[5]),
        architecture=printable(architecture) if isinstance(architecture, str) else "",
        program=tar.digest(),
    )


def _exactly(stream: Readable, count: int) -> bytes:
    data = b""
    while len(data) < count and (piece := stream.read(count - len(data))):
        data += piece
    return data


def _body(stream: Readable, size: int, where: str) -> Iterator[bytes]:
    left = size
    while left:
        piece = stream.read(min(left, _CHUNK))
        if not piece:
            raise broken(where, f"it is cut short: {left} of {size} bytes are missing")
        left -= len(piece)
        yield piece


def _unpacked(body: Iterator[bytes], where: str) -> Iterator[bytes]:
    """The tar; zeros after a gzip stream are padding."""
    first = b""
    while len(first) < _BLOCK and (piece := next(body, b"")):
        first += piece
    if first[:2] != b"\x1f\x8b":
        if first[257:262] != b"ustar":
            raise broken(where, "its data is neither gzip nor tar")
        yield from chain((first,), body)
        return
    stream = zlib.decompressobj(wbits=31)
    total = 0
    for piece in chain((first,), body):
        if stream.eof:
            rest = piece
        else:
            for data in _inflated(stream, piece, where):
                total += len(data)
                if total > MAX_UNPACKED:
                    raise broken(where, "its data unpacks to more than 4 GiB")
                yield data
            rest = stream.unused_data
        if rest.strip(b"\0"):
            raise broken(where, "something follows its data")
    if not stream.eof:
        raise broken(where, "its data ends too early")


def _inflated(stream: Any, piece: bytes, where: str) -> Iterator[bytes]:
    full = True
    while (piece or full) and not stream.eof:
        try:
            data: bytes = stream.decompress(piece, _CHUNK)
        except zlib.error as error:
            raise broken(where, f"its data does not unpack: {error}") from None
        piece, full = stream.unconsumed_tail, len(data) == _CHUNK
        yield data


class _Tar:
    """A tar read forward once, hashed as it goes by."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._piece, self._next = pieces, b"", 0
        self._digest = hashlib.sha256()

    def take(self, count: int, *, keep: int | None = None) -> tuple[bytes, int]:
        """Go on by `count` bytes: the first `keep` of them (default all), and how far it went."""
        keep = count if keep is None else min(count, keep)
        kept, gone = bytearray(), 0
        while gone < count:
            if self._next == len(self._piece):
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._digest.update(piece)
                self._piece, self._next = piece, 0
                continue
            step = min(count - gone, len(self._piece) - self._next)
            kept += self._piece[self._next : self._next + min(step, keep - len(kept))]
            self._next += step
            gone += step
        return bytes(kept), gone

    def digest(self) -> str:
        """SHA-256 of all of it, to the end, 64 hex digits."""
        for piece in self._pieces:
            self._digest.update(piece)
        return self._digest.hexdigest()


def _tables(tar: _Tar, where: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """info.json and the first kelf, where they are there.

    Long names lie in members of their own, which are passed over: the two names are short.
    """
    members = 0
    while True:
        header, _ = tar.take(_BLOCK)
        if len(header) == _BLOCK and not any(header):
            break
        if not header and members:
            break  # some writers leave the closing blocks out
        size = _member_size(header)
        if size is None:
            raise broken(where, f"its members cannot be read: the header of member {members + 1}")
        name = header[:100].split(b"\0", 1)[0].removeprefix(b"./")
        wanted = name in (b"info.json", b"kelf-0.json") and header[156:157] in (b"0", b"\0")
        data, gone = tar.take(size, keep=_MAX_JSON if wanted else 0)
        _, padding = tar.take(-size % _BLOCK)
        if gone + padding < size + -size % _BLOCK:
            raise broken(where, "its members cannot be read: the last is cut short")
        if wanted:
            yield name.decode(), _table(name.decode(), data, size, where)
        members += 1
    if not members:
        raise broken(where, "it holds nothing")


def _member_size(header: bytes) -> int | None:
    """Bytes of a member, None where the header is none or contradicts its checksum."""
    octal = [header[a:b].strip(b"\0 ") for a, b in ((124, 136), (148, 156))]
    if len(header) < _BLOCK or not all(re.fullmatch(rb"[0-7]{1,12}", text) for text in octal):
        return None
    total = sum(header) - sum(header[148:156]) + 8 * 32
    return int(octal[0], 8) if total == int(octal[1], 8) else None


def _table(name: str, data: bytes, size: int, where: str) -> dict[str, Any]:
    if size > _MAX_JSON:
        raise broken(where, f"its {name} has {size} bytes, which are too many")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise broken(where, f"its {name} is not JSON: {error}") from None
    return content if isinstance(content, dict) else {}


def _text(field: bytes) -> str:
    return printable(field.split(b"\0", 1)[0].decode("utf-8", errors="replace"))


def printable(text: str) -> str:
    """What a terminal shows and does not obey."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:1024])


def broken(where: str, why: str, kind: str = "NEFF") -> CorruptArtifactError:
    """The error of a file that is not what it should be."""
    return CorruptArtifactError(
        f"{where} is not a whole {kind}: {why}",
        hint="build it again",
        details={"file": where, "why": why},
    )
