"""NEFFs inside a TorchScript file, found without unpickling it.

The vendor's classes pickle a program with each graph's NEFF in it, as raw bytes; in which member
of the zip is theirs to choose. So they are looked for by their first bytes: a pickle would have to
be executed to be read. Memory stays at a few megabytes.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from neuroncompile.errors import CorruptArtifactError
from neuroncompile.hardware.neff import (
    HEADER_BYTES,
    MAX_UNPACKED,
    Neff,
    Readable,
    broken,
    is_neff,
    printable,
    read_from,
)

__all__ = ["Embedded", "neffs_in"]

_START = re.compile(rb"[\x01\x02]\0{7}\0\x04\0{6}")  # package version, header size
_CHUNK = 1 << 20
_BODY = 512  # bytes behind the header that show what is packed there


class Embedded(NamedTuple):
    """A NEFF inside another file: in which member of the zip, and from which byte of it."""

    member: str
    offset: int
    neff: Neff


def neffs_in(path: Path) -> Iterator[Embedded]:
    """Every NEFF in a TorchScript file, in the order they lie there.

    Raises:
        CorruptArtifactError: the file is no zip or is damaged, or a NEFF in it is.
    """
    import zipfile  # a reader of headers does not need it

    try:
        size = path.stat().st_size
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if sum(m.compress_size for m in members) > size:
                raise broken(str(path), "its members lie over each other", "TorchScript file")
            packed = [m for m in members if m.compress_type != zipfile.ZIP_STORED]
            if sum(m.file_size for m in packed) > MAX_UNPACKED:
                raise broken(str(path), "it unpacks to more than 4 GiB", "TorchScript file")
            for member in members:
                name = printable(member.filename)
                with archive.open(member) as stream:
                    yield from _search(_Feed(stream), name, f"{path}: {name}")
    except CorruptArtifactError:
        raise
    except OSError as error:
        why = f"it cannot be read: {error.strerror or error}"
        raise broken(str(path), why, "TorchScript file") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error) as e:
        # RuntimeError is said of encrypted members and of unknown compressions
        raise broken(str(path), printable(str(e)) or "it ends early", "TorchScript file") from None


class _Feed:
    """A stream with a look ahead; `at` is the offset of the next byte."""

    def __init__(self, stream: Readable) -> None:
        self._stream, self._buffer, self._next, self.at = stream, b"", 0, 0

    def ahead(self, count: int) -> bytes:
        """At least the next `count` bytes unless the stream ends."""
        pieces = [self._buffer[self._next :]]
        have = len(pieces[0])
        while have < count and (piece := self._stream.read(_CHUNK)):
            pieces.append(piece)
            have += len(piece)
        self._buffer, self._next = b"".join(pieces), 0
        return self._buffer

    def find(self, pattern: re.Pattern[bytes], width: int) -> bool:
        """Go to the next match of `width` bytes; False at the end of the stream."""
        while True:
            found = pattern.search(self._buffer, self._next)
            if found is not None:
                self.skip(found.start() - self._next)
                return True
            self.skip(max(0, len(self._buffer) - self._next - width + 1))
            before = len(self._buffer) - self._next
            if len(self.ahead(_CHUNK)) == before:
                return False

    def look(self, count: int) -> bytes:
        """The next `count` bytes, fewer at the end, without going on."""
        if len(self._buffer) - self._next < count:
            self.ahead(count)
        return self._buffer[self._next : self._next + count]

    def skip(self, count: int) -> None:
        self._next += count
        self.at += count

    def read(self, count: int, /) -> bytes:
        if self._next >= len(self._buffer):
            self.ahead(1)
        data = self._buffer[self._next : self._next + count]
        self.skip(len(data))
        return data


def _search(feed: _Feed, member: str, where: str) -> Iterator[Embedded]:
    while feed.find(_START, 16):
        if is_neff(feed.look(HEADER_BYTES + _BODY)):
            offset = feed.at
            yield Embedded(
                member, offset, read_from(feed, None, f"{where} at {offset}", whole=False)
            )
        else:
            feed.skip(1)
