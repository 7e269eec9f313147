"""The header of a GGUF file: metadata and where each tensor lies.

Format (ggml, docs/gguf.md): magic, version, counts; key-value pairs; tensor infos; then, at the
next multiple of the alignment, the data. Every length is checked against the file before it is
believed: a file from the network must not make us allocate what it claims.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError

__all__ = ["QUANTS", "GGUFHeader", "GGUFTensor", "read_gguf"]

QUANTS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    20: ("IQ4_NL", 32, 18),
    23: ("IQ4_XS", 256, 136),
    30: ("BF16", 1, 2),
}
"""ggml type → (name, weights a block, bytes a block); ggml.h, ggml-common.h."""

_SCALARS = {
    0: "<B",
    1: "<b",
    2: "<H",
    3: "<h",
    4: "<I",
    5: "<i",
    6: "<f",
    7: "<?",
    10: "<Q",
    11: "<q",
    12: "<d",
}
_STRING, _ARRAY = 8, 9
_DEEPEST = 4  # arrays of arrays exist in no known file


class GGUFTensor(NamedTuple):
    """Where a tensor lies.

    Attributes:
        name: in GGUF's terms, "blk.0.attn_q.weight".
        shape: as torch has it, outermost first.
        quant: ggml type, a key of `QUANTS`.
        offset: bytes from the start of the file.
        size: bytes.
    """

    name: str
    shape: tuple[int, ...]
    quant: int
    offset: int
    size: int


class GGUFHeader(NamedTuple):
    """A parsed header.

    Attributes:
        fields: metadata key → int, float, bool, str or list of these.
        tensors: name → tensor, in the file's order.
    """

    fields: dict[str, Any]
    tensors: dict[str, GGUFTensor]


def read_gguf(path: Path) -> GGUFHeader:
    """Read and check a GGUF header.

    Raises:
        ModelError: no GGUF, another version or byte order, cut off, or inconsistent.
    """
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            return _Reader(path, data).header()
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", "check its permissions") from None
    except ValueError:  # an empty file cannot be mapped
        raise _bad(path, "is empty") from None


class _Reader:
    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self._path, self._data, self._at = path, data, 0

    def header(self) -> GGUFHeader:
        magic = self._take(4)
        if magic == b"vers":
            raise _bad(self._path, "is a Git LFS pointer, not the file", "run `git lfs pull`")
        if magic != b"GGUF":
            raise _bad(self._path, "is not a GGUF file")
        version = self._number("<I")
        if version not in (2, 3):
            swapped = version > 0xFFFF
            what = "is big-endian" if swapped else f"is GGUF version {version}"
            raise _bad(self._path, f"{what}; versions 2 and 3, little-endian, are read")
        tensors, pairs = self._number("<Q"), self._number("<Q")
        # the shortest entry of either kind takes more than 12 bytes
        self._room(12 * (tensors + pairs))
        fields: dict[str, Any] = {}
        for _ in range(pairs):
            name = self._string()
            if name in fields:
                raise _bad(self._path, f"is malformed: {name} occurs twice")
            fields[name] = self._value(self._number("<I"), 0)
        infos = [self._info() for _ in range(tensors)]
        return GGUFHeader(fields, self._placed(infos, fields.get("general.alignment", 32)))

    def _placed(
        self, infos: list[tuple[str, tuple[int, ...], int, int]], alignment: Any
    ) -> dict[str, GGUFTensor]:
        if not isinstance(alignment, int) or alignment < 8 or alignment % 8:
            raise _bad(self._path, f"is malformed: alignment {alignment!r}")
        base = self._at + -self._at % alignment
        placed: dict[str, GGUFTensor] = {}
        for name, shape, quant, offset in infos:
            if quant not in QUANTS:
                raise ModelError(
                    f"{self._path} stores {name} as ggml type {quant}, which is not read",
                    hint=f"use a file of one of {', '.join(q[0] for q in QUANTS.values())}",
                    details={"path": str(self._path), "tensor": name, "type": quant},
                )
            _, block, block_bytes = QUANTS[quant]
            count = 1
            for dim in shape:
                count *= dim
            if not shape or count < 1 or shape[-1] % block or name in placed:
                raise _bad(self._path, f"is malformed: tensor {name} of shape {shape}")
            size = count // block * block_bytes
            if base + offset + size > len(self._data):
                missing = base + offset + size - len(self._data)
                raise _bad(self._path, f"is cut off: {missing} bytes of {name} are missing")
            placed[name] = GGUFTensor(name, shape, quant, base + offset, size)
        return placed

    def _info(self) -> tuple[str, tuple[int, ...], int, int]:
        name = self._string()
        dims = self._number("<I")
        if dims > 4:
            raise _bad(self._path, f"is malformed: tensor {name} has {dims} dimensions")
        shape = tuple(self._number("<Q") for _ in range(dims))[::-1]
        return name, shape, self._number("<I"), self._number("<Q")

    def _value(self, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind])
        if kind != _ARRAY or depth == _DEEPEST:
            raise _bad(self._path, f"is malformed: metadata of type {kind}")
        of, count = self._number("<I"), self._number("<Q")
        if of in _SCALARS:
            code = _SCALARS[of][1]
            width = struct.calcsize(f"<{code}")
            self._room(count * width)
            return list(struct.unpack(f"<{count}{code}", self._take(count * width)))
        self._room(count * 8)  # a string's length, the least an entry takes
        return [self._value(of, depth + 1) for _ in range(count)]

    def _string(self) -> str:
        return self._take(self._number("<Q")).decode("utf-8", "replace")

    def _number(self, code: str) -> int:
        return int(self._scalar(code))

    def _scalar(self, code: str) -> Any:
        return struct.unpack(code, self._take(struct.calcsize(code)))[0]

    def _take(self, count: int) -> bytes:
        self._room(count)
        start = self._at
        self._at += count
        return self._data[start : self._at]

    def _room(self, count: int) -> None:
        if self._at + count > len(self._data):
            raise _bad(self._path, "is cut off within its header")


def _bad(path: Path, what: str, fix: str = "download the file again") -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
