"""The header of a safetensors file, read without the weights.

Layout (safetensors, "Format"): 8 bytes little-endian length N, N bytes of JSON
`{name: {"dtype", "shape", "data_offsets": [begin, end]}, "__metadata__"?}`, then the data, to
which the offsets are relative.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from neuroncompile.errors import ModelError

__all__ = ["DTYPES", "Header", "read_header"]

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
"""safetensors' names of the dtypes a checkpoint can have → torch's."""

_LONGEST = 100_000_000  # as the safetensors library's own limit


class Header(NamedTuple):
    """What a safetensors file holds.

    Attributes:
        names: tensor names.
        sizes: safetensors dtype → bytes of it.
    """

    names: frozenset[str]
    sizes: dict[str, int]


def read_header(path: Path) -> Header:
    """Read and check the header of a safetensors file.

    Raises:
        ModelError: the file is cut off, is a Git LFS pointer or is no safetensors file.
    """
    try:
        with path.open("rb") as file:
            total = os.fstat(file.fileno()).st_size
            first = file.read(8)
            length = int.from_bytes(first, "little")
            if first == b"version ":
                raise _bad(path, "is a Git LFS pointer, not the file", "run `git lfs pull`")
            if len(first) < 8 or length > _LONGEST or length < 2:
                raise _bad(path, "is not a safetensors file")
            if 8 + length > total:
                raise _bad(path, f"is cut off: {total} bytes end within its header")
            data = file.read(length)
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", "check its permissions") from None
    try:
        return _checked(json.loads(data), path, total - 8 - length)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise _bad(path, "is not a safetensors file: its header is malformed") from None


def _checked(table: dict[str, dict[str, Any]], path: Path, room: int) -> Header:
    sizes: dict[str, int] = {}
    last = 0
    for name, entry in table.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        if not (type(begin) is int and type(end) is int and 0 <= begin <= end):
            raise ValueError(name)
        dtype = str(entry["dtype"])
        sizes[dtype] = sizes.get(dtype, 0) + end - begin
        last = max(last, end)
    if last > room:
        raise _bad(path, f"is cut off: {last - room} of {last} bytes of tensors are missing")
    return Header(frozenset(table) - {"__metadata__"}, sizes)


def _bad(path: Path, what: str, fix: str = "download the file again") -> ModelError:
    return ModelError(f"{path} {what}", hint=fix, details={"path": str(path)})
