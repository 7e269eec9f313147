"""Files that run code when they are merely read: pickles, and TorchScript, which holds some.

Told by the artifact's own words (media type, file name) and by the bytes, because whoever
forges an artifact chooses the words. The bytes are a second look, not a proof: a file can be
crafted to be a pickle for one reader only. What never fails is that nothing of this package
unpickles a file of another name or type than these.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import PurePosixPath
from typing import BinaryIO

from neuroncompile.store import oci

__all__ = ["pickled_by_content", "pickled_by_name"]

_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib"})
_INSIDE = (".pkl", ".pickle", ".pt", ".pth")
_PEEK = 1 << 16
_DIRECTORY_LIMIT = 1 << 24  # bytes of a zip's table of contents that are looked through
_CALLS = frozenset({"GLOBAL", "INST", "OBJ", "REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX"})


def pickled_by_name(title: str, media_type: str) -> str | None:
    """What the file is said to be, if that is something to unpickle; else None."""
    if media_type == oci.TORCHSCRIPT or "torchscript" in media_type.lower():
        return "TorchScript"
    if "pickle" in media_type.lower():
        return "a pickle"
    suffix = PurePosixPath(title).suffix.lower()
    return f"a {suffix} file, which torch and others unpickle" if suffix in _SUFFIXES else None


def pickled_by_content(file: BinaryIO) -> str | None:
    """What the bytes are, if that is something to unpickle; else None.

    Args:
        file: seekable; its position is lost.
    """
    file.seek(0)
    start = file.read(_PEEK)
    if start[:1] == b"\x80" and start[1:2] and 2 <= start[1] <= 5:
        return "a pickle"
    if _is_text_pickle(start):
        return "a pickle"
    return _in_zip(file, start)


def _is_text_pickle(start: bytes) -> bool:
    """Protocols 0 and 1 have no magic: is it a whole program that calls something?"""
    calls = False
    try:
        for code, _, _ in pickletools.genops(start):
            calls = calls or code.name in _CALLS
    except Exception:  # the tokens of arbitrary bytes fail in many ways
        return False
    return calls


def _in_zip(file: BinaryIO, start: bytes) -> str | None:
    looks = start[:4] in (b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x06")
    if not zipfile.is_zipfile(file):
        return "a broken zip, which cannot be looked into" if looks else None
    if _directory_size(file) > _DIRECTORY_LIMIT:
        return "a zip with too many files to look through"
    try:
        with zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except Exception:  # a second opinion of a reader that may be laxer is not to be had
        return "a broken zip, which cannot be looked into" if looks else None
    for name in names:
        if name.lower().endswith(_INSIDE):
            return f"a zip that holds {name[:80]!r}, a pickle"
    return None


def _directory_size(file: BinaryIO) -> int:
    """Bytes of the zip's table of contents by its own words, which bound what is read."""
    size = file.seek(0, 2)
    file.seek(max(0, size - _PEEK - 22))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) < at + 22:
        return 0
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    if length == 0xFFFFFFFF or tail[: at - 16].endswith(b"PK\x06\x07"):  # zip64's own record
        big = tail.rfind(b"PK\x06\x06", 0, at)
        if big < 0:
            return _DIRECTORY_LIMIT + 1
        length = int.from_bytes(tail[big + 40 : big + 48], "little")
    return length
