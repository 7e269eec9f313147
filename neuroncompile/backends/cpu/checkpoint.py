"""Weights mapped from safetensors files, never copied unless their dtype must change."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from neuroncompile.errors import ModelError

__all__ = ["Checkpoint", "Tensor", "to_float32"]

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}

STORAGE = {"float32": np.float32, "bfloat16": np.uint16, "float16": np.float16}
"""How numpy holds each dtype; it has no bfloat16."""

MAX_HEADER = 100 << 20  # safetensors' own limit


class Tensor(NamedTuple):
    """One tensor: `data` has `STORAGE[dtype]` and the tensor's shape, read-only when mapped."""

    dtype: str
    data: NDArray[np.generic]

    @property
    def address(self) -> int:
        return int(self.data.ctypes.data)


class Checkpoint:
    """The tensors of a model, by Hugging Face name.

    Args:
        files: safetensors shards.
        dtype: what the program was compiled for; other float dtypes are cast on first use.

    Raises:
        ModelError: a file is not safetensors.
    """

    def __init__(self, files: Sequence[Path], dtype: str) -> None:
        self.dtype = dtype
        self._mapped: dict[str, Tensor] = {}
        self._cast: dict[str, Tensor] = {}
        self._unsupported: dict[str, str] = {}
        for path in files:
            self._map(path)
        self._files = [str(path) for path in files]

    def tensor(self, name: str, shape: Sequence[int]) -> Tensor:
        """A tensor in the program's dtype.

        Raises:
            ModelError: it is missing, of another shape, or of a dtype that cannot be cast.
        """
        found = self._cast.get(name) or self._mapped.get(name)
        if found is None:
            raise self._missing(name)
        if found.data.shape != tuple(shape):
            raise ModelError(
                f"{name} has shape {list(found.data.shape)}; the program was compiled for "
                f"{list(shape)}",
                hint="give the weights of the model the program was built from",
                details={"tensor": name, "shape": list(found.data.shape), "legal": list(shape)},
            )
        if found.dtype != self.dtype:
            found = self._cast[name] = Tensor(self.dtype, _cast(found, self.dtype))
        return found

    def __contains__(self, name: str) -> bool:
        return name in self._mapped

    def _map(self, path: Path) -> None:
        try:
            file = np.memmap(path, mode="r", dtype=np.uint8)
            (length,) = struct.unpack("<Q", file[:8].tobytes())
            if length > min(MAX_HEADER, file.size - 8):
                raise ValueError(f"a header of {length} bytes")
            header = json.loads(file[8 : 8 + length].tobytes())
            header.pop("__metadata__", None)
            for name, entry in header.items():
                self._add(name, entry, file[8 + length :])
        except (OSError, ValueError, KeyError, TypeError, struct.error) as error:
            raise ModelError(
                f"{path} is not a complete safetensors file: {error}",
                hint="fetch the weights again",
                details={"file": str(path)},
            ) from None

    def _add(self, name: str, entry: dict[str, Any], body: NDArray[np.uint8]) -> None:
        dtype = DTYPES.get(str(entry["dtype"]))
        if dtype is None:
            self._unsupported[name] = str(entry["dtype"])
            return
        begin, end = entry["data_offsets"]
        shape = tuple(entry["shape"])
        if end > body.size:
            raise ValueError(f"{name} ends after the file")
        self._mapped[name] = Tensor(dtype, body[begin:end].view(STORAGE[dtype]).reshape(shape))

    def _missing(self, name: str) -> ModelError:
        if name in self._unsupported:
            return ModelError(
                f"{name} is {self._unsupported[name]}; cpu runs {', '.join(DTYPES)}",
                hint="use a checkpoint that is not quantised",
                details={"tensor": name, "dtype": self._unsupported[name]},
            )
        return ModelError(
            f"the weights hold no tensor {name}",
            hint="give all shards of the model the program was built from",
            details={"tensor": name, "files": self._files},
        )


def to_float32(tensor: Tensor, rows: NDArray[np.int64] | None = None) -> NDArray[np.float32]:
    """A tensor, or some of its rows, as float32."""
    data = tensor.data if rows is None else tensor.data[rows]
    if tensor.dtype == "bfloat16":
        return (data.astype(np.uint32) << 16).view(np.float32)
    return data.astype(np.float32)


def _cast(tensor: Tensor, dtype: str) -> NDArray[np.generic]:
    wide = to_float32(tensor)
    if dtype != "bfloat16":
        return wide.astype(STORAGE[dtype])
    bits = wide.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16  # to nearest, ties to even
    return np.where(np.isnan(wide), 0x7FC0, rounded).astype(np.uint16)
