"""A tar of plain files and directories: written the same for the same content, read strictly.

A tar can say one thing to the program that checks it and another to the one that unpacks it:
links that later members are written through, extended headers that change a name or a size
after the fact, holes that turn a kilobyte into a terabyte. So only the oldest part of the
format is read, POSIX ustar: regular files and directories whose header says everything. Who
reads a member decides what its name may be and where its bytes go; nothing is unpacked here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from neuroncompile.errors import StoreError

__all__ = ["BLOCK", "Member", "Readable", "end", "header", "members", "padding"]

BLOCK = 512
_RECORD = 20 * BLOCK  # tar pads its output to this
_TAIL = 64 * _RECORD  # zeros accepted after the end: some tools pad to a larger record
_LARGEST_OCTAL = 8**11 - 1
_CHUNK = 1 << 20

_REFUSED = {
    b"1": "a hard link",
    b"2": "a symbolic link",
    b"3": "a character device",
    b"4": "a block device",
    b"6": "a named pipe",
    b"7": "a contiguous file",
    b"g": "a pax header for all that follows",
    b"x": "a pax header",
    b"X": "a pax header",
    b"L": "a GNU long name",
    b"K": "a GNU long link",
    b"S": "a sparse file",
    b"M": "a part of a file",
    b"V": "a volume label",
    b"D": "a GNU directory listing",
    b"N": "a GNU long name",
}
_OTHER_FORMATS = {
    b"\x1f\x8b": ("gzip-compressed", "gunzip -c FILE | neuroncompile store import -"),
    b"\x28\xb5\x2f\xfd": ("zstd-compressed", "zstd -dc FILE | neuroncompile store import -"),
    b"\xfd7zXZ\0": ("xz-compressed", "xz -dc FILE | neuroncompile store import -"),
    b"BZh": ("bzip2-compressed", "bzip2 -dc FILE | neuroncompile store import -"),
    b"PK\x03\x04": ("a zip", "unpack it, and import the directory"),
}
_REMAKE = "make it with `neuroncompile store export`, or with GNU tar and --format=gnu"


class Readable(Protocol):
    """A stream: `read` gives up to `size` bytes, and none only at the end."""

    def read(self, size: int, /) -> bytes | None: ...


class Member:
    """A file or directory of the archive, to be read before the next one is asked for.

    Attributes:
        name: as the header has it; the caller decides whether it may be.
        size: in bytes; 0 of a directory.
        is_directory: whether it is one.
    """

    __slots__ = ("_left", "_stream", "is_directory", "name", "size")

    def __init__(self, name: str, size: int, is_directory: bool, stream: Readable) -> None:
        self.name, self.size, self.is_directory = name, size, is_directory
        self._stream = stream
        self._left = size

    def chunks(self) -> Iterator[bytes]:
        """The bytes, a piece at a time.

        Raises:
            StoreError: the archive ends within the file.
        """
        while self._left:
            data = self._stream.read(min(_CHUNK, self._left))
            if not data:
                raise StoreError(
                    f"the archive ends within {self.name!r}, {self._left} bytes early",
                    hint="copy or export it again",
                )
            self._left -= len(data)
            yield data


def members(stream: Readable) -> Iterator[Member]:
    """What a tar holds, in its order; works on a pipe.

    Raises:
        StoreError: the archive is truncated or damaged, holds anything but regular files and
            directories, one name twice, or bytes after its end. The member is named.
    """
    seen: set[str] = set()
    first = True
    while True:
        block = _block(stream, first)
        if not block.strip(b"\0"):
            break
        name, size, is_directory = _parse(block)
        first = False
        if name in seen:
            raise StoreError(f"the archive has {name!r} twice")
        seen.add(name)
        member = Member(name, size, is_directory, stream)
        yield member
        for _ in member.chunks():
            pass
        _exactly(stream, -size % BLOCK, name)
    _end(stream)


def _block(stream: Readable, first: bool) -> bytes:
    block = _read(stream, BLOCK)
    if first:
        for magic, (what, hint) in _OTHER_FORMATS.items():
            if block.startswith(magic):
                raise StoreError(f"the archive is {what}, and not a plain tar", hint=hint)
    if len(block) < BLOCK:
        what = "is empty" if first and not block else "ends without its end mark"
        raise StoreError(f"the archive {what}", hint="copy or export it again")
    return block


def _end(stream: Readable) -> None:
    """A second block of zeros, then no more than padding; reads all, or a writer would fail."""
    tail = 0
    while data := _read(stream, _CHUNK):
        tail += len(data)
        if data.strip(b"\0"):
            raise StoreError("the archive has bytes after its end mark", hint=_REMAKE)
        if tail > _TAIL:
            raise StoreError(f"the archive goes on after its end mark for over {_TAIL} bytes")
    if tail < BLOCK:
        raise StoreError("the archive ends within its end mark", hint="copy or export it again")


def _parse(block: bytes) -> tuple[str, int, bool]:
    """Name, size, and whether it is a directory."""
    if not _checksum_holds(block):
        raise StoreError("the archive is not a tar, or is damaged: a header's checksum is wrong")
    kind = block[156:157]
    name = _text(block[0:100])
    if block[257:262] == b"ustar":
        if block[257:265] == b"ustar\x0000" and (prefix := _text(block[345:500])):
            name = f"{prefix}/{name}"
    elif block[257:265].strip(b"\0 "):
        raise StoreError(f"{name!r} is of an unknown kind of tar", hint=_REMAKE)
    if kind not in (b"0", b"\0", b"5"):
        what = _REFUSED.get(kind, f"of type {kind!r}")
        raise StoreError(f"{name!r} is {what}; only files and directories are read", hint=_REMAKE)
    size, mode = _number(block[124:136], name), _number(block[100:108], name)
    if block[157:257].strip(b"\0"):
        raise StoreError(f"{name!r} is a file with the target of a link")
    if mode & 0o7000:
        raise StoreError(f"{name!r} has mode {mode & 0o7777:04o}: setuid, setgid or sticky")
    is_directory = kind == b"5"
    if is_directory and size:
        raise StoreError(f"{name!r} is a directory of {size} bytes")
    if is_directory:
        name = name.rstrip("/") or name
    if not name or name.endswith("/"):  # old tars mark a directory so
        raise StoreError(f"{name!r} is not the name of a file or directory")
    return name.removeprefix("./"), size, is_directory


def _checksum_holds(block: bytes) -> bool:
    try:
        stored = int(block[148:156].strip(b"\0 ") or b"x", 8)
    except ValueError:
        return False
    return stored == sum(block[:148]) + 8 * ord(" ") + sum(block[156:])


def _text(field: bytes) -> str:
    text, _, rest = field.partition(b"\0")
    if rest.strip(b"\0"):  # a reader in C and one in another language see two names
        raise StoreError(f"the name {field.rstrip(bytes(1))!r} has a zero byte inside")
    return text.decode("utf-8", "backslashreplace")


def _number(field: bytes, name: str) -> int:
    """Octal digits, or the binary form that sizes from 8 GiB on need."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b"\0 ")
    if digits.strip(b"01234567") or len(field.rstrip(b"\0 ").lstrip(b" ")) != len(digits):
        raise StoreError(f"{name!r} has a header with the number {field!r}")
    return int(digits or b"0", 8)


def _read(stream: Readable, size: int) -> bytes:
    """`size` bytes, fewer only at the end."""
    data = stream.read(size) or b""
    while data and len(data) < size:
        more = stream.read(size - len(data))
        if not more:
            break
        data += more
    return data


def _exactly(stream: Readable, size: int, name: str) -> None:
    if len(_read(stream, size)) != size:
        raise StoreError(f"the archive ends after {name!r}", hint="copy or export it again")


# ---- writing


def header(name: str, size: int, *, directory: bool = False) -> bytes:
    """The block before a file: mode 0644, owner 0, time 0, so that only content makes bytes."""
    raw = name.encode("ascii")
    if len(raw) > 100 or not raw:
        raise ValueError(f"{name!r} does not fit a ustar header")
    length = b"%011o\0" % size if size <= _LARGEST_OCTAL else b"\x80" + size.to_bytes(11, "big")
    mode, kind = (b"0000755\0", b"5") if directory else (b"0000644\0", b"0")
    before = raw.ljust(100, b"\0") + mode + b"0000000\0" * 2 + length + b"%011o\0" % 0
    after = kind + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2
    after = after.ljust(BLOCK - len(before) - 8, b"\0")
    total = sum(before) + 8 * ord(" ") + sum(after)
    return before + b"%06o\0 " % total + after


def padding(size: int) -> bytes:
    """The zeros after a file of `size` bytes."""
    return bytes(-size % BLOCK)


def end(written: int) -> bytes:
    """The end mark of an archive of `written` bytes so far, and its padding."""
    return bytes(2 * BLOCK + -(written + 2 * BLOCK) % _RECORD)
